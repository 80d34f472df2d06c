"""Java's class data archive: made by a command, taken by later jobs, and passed over where it does
not fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from backlog_page import block

from eventlog.spark.session import session
from eventlog.spark.session.session import archive_of, check_java


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an environment without an archive keeps it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive = archive_of("17.0.15")
    archive.parent.mkdir(parents=True)
    return archive


def test_java_gets_the_archive_that_was_made_for_its_version(environment: Path) -> None:
    environment.write_bytes(b"classes")
    assert session.archive_option("17.0.15") == ""  # nothing shows that it is whole
    environment.with_suffix(".size").write_text("7")
    assert f'"-XX:SharedArchiveFile={environment}"' in session.archive_option("17.0.15")
    assert session.archive_option("17.0.16") == ""


_IN_PREFIX = "import sys; sys.prefix = sys.argv[1]; "
_MAKE = (
    _IN_PREFIX
    + "import runpy; runpy.run_module('eventlog.spark.class_archive', run_name='__main__')"
)
_COUNT = _IN_PREFIX + (
    "from eventlog.spark.session.session import open_session; "
    "print(open_session('local[1]').range(7).count())"
)


def run(program: str, prefix: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, prefix],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.night
def test_java_uses_the_archive_that_the_command_makes_but_not_a_truncated_one(
    tmp_path: Path,
) -> None:
    assert block("Start sooner") == "python -m eventlog.spark.class_archive\n"
    prefix = tmp_path / "an environment"
    made = run(_MAKE, prefix)
    (archive,) = (prefix / "share/eventlog").glob("*.jsa")
    assert archive.name.endswith(f"-java-{check_java()}.jsa")
    assert made.stdout.splitlines()[-1].startswith(str(archive))

    taken = run(
        _COUNT, prefix, JDK_JAVA_OPTIONS="-Xshare:on"
    )  # Java does not start unless it takes the archive
    assert taken.stdout == "7\n"

    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes()[: 2**20])
    assert run(_COUNT, prefix).stdout == "7\n"
