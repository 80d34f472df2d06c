"""docs/quick-start.md on PostgreSQL: its commands and its SQL, run by the roles that it names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from documents import ROOT, fenced, scenarios
from role_site import Site, at_home_in

PAGE = ROOT / "docs" / "quick-start.md"


def test_the_hour_on_postgresql_ends_with_a_document(
    database: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    at_home_in(tmp_path, monkeypatch)
    (config,) = (text for text in fenced(PAGE, "toml") if "[database]" in text)
    (tmp_path / "eventlog.toml").write_text(re.sub("(?m)^url =.*$", "", config), encoding="utf-8")
    site = Site(database, tmp_path, f"_{os.getpid()}")
    with site.roles("hr_owner", "hr_app", "publisher"):
        owned = f"GRANT CREATE ON DATABASE {database.url.database} TO hr_owner"
        site.sql("postgres", f"CREATE ROLE hr_owner LOGIN; CREATE ROLE hr_app LOGIN; {owned}")
        for block in scenarios(PAGE)["quick start"].blocks:
            site.run(block, capfd)
        (document,) = (tmp_path / "documents").glob("*.xmll")
        assert 'event-id="1"><association>idu=1,table=usr,schema=hr' in document.read_text(
            encoding="utf-8"
        )
        assert site.rows("SELECT DISTINCT status FROM hr.eventlog") == [("S",)]
