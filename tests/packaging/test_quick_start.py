"""docs/quick-start.md on PostgreSQL: its commands and its SQL, run by the roles that it names."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa
from documents import ROOT, fenced, scenarios
from processes import EVENTLOG
from role_site import Site, at_home_in

PAGE = ROOT / "docs" / "quick-start.md"


def test_the_hour_on_postgresql_ends_with_a_document(
    database: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    home = first_step_after_the_minute(tmp_path)
    at_home_in(home, monkeypatch)
    (config,) = (text for text in fenced(PAGE, "toml") if "[database]" in text)
    file = home / "eventlog.toml"
    file.write_text(
        without_the_url(filled_in(file.read_text(encoding="utf-8"), config)), encoding="utf-8"
    )
    site = Site(database, home, f"_{os.getpid()}")
    with site.roles("hr_owner", "hr_app", "publisher"):
        owned = f"GRANT CREATE ON DATABASE {database.url.database} TO hr_owner"
        site.sql("postgres", f"CREATE ROLE hr_owner LOGIN; CREATE ROLE hr_app LOGIN; {owned}")
        for block in scenarios(PAGE)["quick start"].blocks:
            site.run(block, capfd)
        (document,) = (home / "documents").glob("*.xmll")
        assert 'event-id="1"><association>idu=1,table=usr,schema=hr' in document.read_text(
            encoding="utf-8"
        )
        assert site.rows("SELECT DISTINCT status FROM hr.eventlog") == [("S",)]


def first_step_after_the_minute(directory: Path) -> Path:
    """Run the first step on PostgreSQL where the page's first part leaves the reader, with the
    configuration of that part there; return the directory in which the reader is then.
    """
    enter, init = (
        line
        for text in fenced(PAGE, "sh")
        for line in text.splitlines()
        if line.startswith(("mkdir ", "eventlog init"))
    )
    (leave,) = (text for text in fenced(PAGE, "sh") if init in text)
    done = subprocess.run(
        ["bash", "-euc", f"{enter}\n: > eventlog.toml\n{leave}\npwd"],
        cwd=directory,
        env=os.environ | {"PATH": f"{Path(EVENTLOG).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


def filled_in(written: str, page: str) -> str:
    """Return what `eventlog init` has written, without the ``#`` in front of each option of the
    page, and with the page's values.
    """
    values: dict[tuple[str, str], str] = {}
    section = ""
    for line in page.splitlines():
        if line.startswith("["):
            section = line
        elif line:
            values[section, line.partition(" = ")[0]] = line
    lines = []
    for line in written.splitlines():
        option = line.removeprefix("#")
        if option.startswith("["):
            section = option
            is_set = any(of == section for of, _ in values)
            lines.append(option if is_set else line)
        else:
            lines.append(values.pop((section, option.partition(" = ")[0]), line))
    assert not values
    return "\n".join(lines)


def without_the_url(config: str) -> str:
    """The database of the test is in a variable."""
    return re.sub("(?m)^url = .*/hr.*$", "", config)
