"""A package, directory or database that an executor lacks is reported in one line before a job
begins, and the number of tasks at the same time is asked, not guessed.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from shared import wait_until

import eventlog
from eventlog.spark.backlog import preflight as module
from eventlog.spark.backlog.preflight import counting_cores, preflight
from eventlog.spark.directory import Directory
from eventlog.spark.log_source import LogLocation
from eventlog.spark.session.session import SparkFailed
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.port.driver_errors import open_database

ROOT = Path(__file__).parents[2]
PACKAGES = {
    path.name: path
    for place in sys.path
    if place.endswith("site-packages")
    for path in Path(place).iterdir()
}


@pytest.fixture
def place(log: sa.Engine, tmp_path: Path) -> LogLocation:
    file = tmp_path / "url"
    file.write_text(log.url.render_as_string(hide_password=False))
    with connect(log.url).connect() as connection:
        return LogLocation(
            "", str(file), locate_log(open_database(connection), name="eventlog", schema="hr")
        )


def refusal(spark: SparkSession, place: LogLocation, directory: Directory) -> str:
    """The line that the preflight ends with; nothing of it is left in the directory."""
    with pytest.raises(SparkFailed) as failed:
        preflight(spark, place, directory)
    assert directory.names() == []
    line = str(failed.value)
    assert "\n" not in line
    return line


def test_an_executor_with_everything_passes_and_leaves_no_file_in_the_directory(
    spark: SparkSession, place: LogLocation, tmp_path: Path
) -> None:
    directory = Directory(str(tmp_path / "out"))
    preflight(spark, place, directory)
    assert directory.names() == []


def test_another_version_of_eventlog_is_named(
    spark: SparkSession, place: LogLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = eventlog.__version__
    monkeypatch.setattr(eventlog, "__version__", "0.0.7")
    said = refusal(spark, place, Directory(str(tmp_path / "out")))
    assert re.search(
        rf"executor on \S+ cannot run tasks: eventlog is {there} there and 0\.0\.7 on the driver",
        said,
    )


def test_another_directory_with_the_same_name_is_reported(
    spark: SparkSession, place: LogLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, elsewhere = Directory(str(tmp_path / "out")), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(directory, "uri", str(elsewhere))
    assert f"{elsewhere} is not the driver's directory" in refusal(spark, place, directory)


def test_an_unreachable_database_is_reported_with_the_settings_to_use(
    spark: SparkSession, place: LogLocation, tmp_path: Path
) -> None:
    Path(str(place.url_file)).write_text("postgresql://somebody@127.0.0.1:1/none")
    said = refusal(spark, place, Directory(str(tmp_path / "out")))
    assert "cannot connect to database 'none' at 127.0.0.1:1" in said
    assert "executors find the database with EVENTLOG_DATABASE_URL_FILE" in said


# --- packages -------------------------------------------------------------------------------------


def python_with(place: Path, sources: Sequence[Path]) -> str:
    """A Python with only its own library and these packages, as executors run it."""
    folder = place / "packages"
    folder.mkdir(parents=True)
    for source in sources:
        (folder / source.name).symlink_to(source)
    bare = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    script = place / "python"
    script.write_text(
        f'#!/bin/sh\ncd {place}\nPYTHONPATH="$PYTHONPATH:{folder}" exec {bare} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def packages_but(*left_out: str) -> list[Path]:
    found = [
        path
        for name, path in PACKAGES.items()
        if path.suffix != ".pth" and not name.startswith(left_out)
    ]
    return [*found, ROOT / "eventlog"]


def arrow() -> list[Path]:
    return [path for name, path in PACKAGES.items() if name.startswith(("pyarrow", "numpy"))]


_LOOK = """
import pickle, sys
from pathlib import Path
from eventlog.spark.backlog.preflight import preflight
from eventlog.spark.directory import Directory
from eventlog.spark.session.session import SparkFailed, open_session

place, out, *pythons = sys.argv[1:]
spark = open_session("local[1]")
for python in pythons:
    spark.sparkContext.pythonExec = python
    try:
        preflight(spark, pickle.loads(Path(place).read_bytes()), Directory(out))
        print("passed")
    except SparkFailed as error:
        print(error)
"""


@pytest.mark.night
def test_a_missing_package_or_python_is_named_with_the_action(
    place: LogLocation, tmp_path: Path
) -> None:
    expected = {
        "./env/bin/python": r'Cannot run program "./env/bin/python"',
        python_with(tmp_path / "none", []): "the Python of an executor cannot start a worker",
        python_with(tmp_path / "arrow", arrow()): "cannot start a worker: eventlog, or a package",
        python_with(tmp_path / "undriven", packages_but("pyspark", "psycopg")):
            r"the executor on \S+ cannot run tasks: .*psycopg",
        # An executor needs neither an installed PySpark nor pandas.
        python_with(tmp_path / "all", packages_but("pyspark", "pandas")): "^passed$",
    }  # fmt: skip
    (tmp_path / "place").write_bytes(pickle.dumps(place))
    named = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, tmp_path / "place", tmp_path / "out", *expected],
        env=named, cwd=ROOT, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said, pattern in zip(done.stdout.splitlines(), expected.values(), strict=True):
        assert re.search(pattern, said), said
        assert said == "passed" or "ship the driver's environment with --archives" in said


# --- cores ----------------------------------------------------------------------------------------


class Registering:
    """A context whose executors register one after the other. ``looks``: how often it was asked."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = cores
        self.looks = 0

    @property
    def defaultParallelism(self) -> int:
        self.looks += 1
        return self._cores[min(self.looks, len(self._cores)) - 1]


@pytest.mark.parametrize(("registered", "cores"), [([2], 2), ([2, 4, 4, 6, 8], 8)])
def test_cores_are_counted_when_no_more_executors_register(
    monkeypatch: pytest.MonkeyPatch, registered: Sequence[int], cores: int
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    context = Registering(registered)
    session: Any = SimpleNamespace(sparkContext=context)
    with counting_cores(session) as number:
        wait_until(lambda: context.looks >= len(registered) + 4, "no more executors come")
        assert number() == cores


def test_cores_are_a_guess_for_a_session_that_does_not_report_them() -> None:
    session: Any = object()
    with counting_cores(session) as number:
        assert number() == 8
