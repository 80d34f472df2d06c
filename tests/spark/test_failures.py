"""Failures are reported clearly, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from backlog_job import config_of, convert, copy, documents_of, log_rows, random_rows, statuses
from pyspark.sql import SparkSession
from shared import in_ci

from eventlog import cli
from eventlog.config.load import load
from eventlog.errors import ConfigError, DatabaseError
from eventlog.exit_codes import ExitCode
from eventlog.spark.backlog import backlog, claim
from eventlog.spark.backlog import job as jobs
from eventlog.spark.directory import TEMPORARY, Directory
from eventlog.spark.session import session
from eventlog.spark.session.session import (
    LOCAL_JAVA_OPTIONS,
    SparkFailed,
    as_spark_failed,
    check_java,
    cores_of,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", in_ci([8_000, 20_000], 8_000))
@pytest.mark.parametrize(
    "begun", [pytest.param("_STARTED", marks=pytest.mark.night), "_temporary/*"]
)
def test_a_worker_that_is_killed_is_replaced_and_the_result_is_the_same(
    log: sa.Engine, tmp_path: Path, begun: str, number: int
) -> None:
    log_rows(log, random_rows(number, seed=30))
    config = config_of(log)
    copy(config, tmp_path / "calm", partition_rows=number // 5)
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        while not over.is_set() and not killed:
            if not list((tmp_path / "stormy").glob(begun)):
                continue
            for process in psutil.Process().children(recursive=True):
                try:
                    parent = process.parent()
                    # A worker is a fork of the daemon, which is a child of the JVM.
                    if (
                        parent is not None
                        and "pyspark.worker" in " ".join(parent.cmdline())
                        and not killed
                    ):
                        process.kill()
                        killed.append(process.pid)
                except psutil.Error:
                    continue

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        convert(config, tmp_path / "stormy", partition_rows=number // 5, mark=True)
    finally:
        over.set()
        killer.join()
    assert killed
    assert documents_of(tmp_path / "stormy") == documents_of(tmp_path / "calm")
    assert "N" not in statuses(log).values()


@pytest.mark.promise("spark SparkFailed")
def test_a_job_that_fails_reports_the_reason_and_marks_nothing(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(500, seed=31))
    monkeypatch.setattr(backlog, "BLOB_SCHEMA", "kind int, target int, first_id bigint, blob int")
    with pytest.raises(SparkFailed, match="nothing is lost; run the same command again") as failed:
        convert(config_of(log), tmp_path / "out", mark=True)
    assert failed.value.__notes__ == ["nothing was marked"]
    assert set(statuses(log).values()) == {"N"}
    assert [
        path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(TEMPORARY)
    ] == []
    monkeypatch.undo()
    convert(config_of(log), tmp_path / "out", mark=True)
    assert "N" not in statuses(log).values()


def test_an_output_directory_that_cannot_be_made_is_refused_before_spark_starts(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(10, seed=34))
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out"
    monkeypatch.setattr(backlog, "open_session", lambda *_, **__: pytest.fail("Spark was started"))
    with pytest.raises(ConfigError, match=f"--out {out} cannot be written") as failed:
        convert(config_of(log), out)
    assert failed.value.__notes__ == ["nothing was marked"]


def test_a_failed_command_prints_on_a_separate_line_that_nothing_was_marked(
    log: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", log.url.render_as_string(hide_password=False))
    out = str(tmp_path / "file" / "out")
    assert (
        cli.run(["--schema", "hr", "--quiet", "backlog", "run", "--json", "--out", out])
        == ExitCode.USAGE
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert "nothing was marked\n" in said.err
    assert f"--out {out} cannot be written" in said.err


def test_a_command_that_fails_while_it_marks_prints_how_to_mark_the_other_rows(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(300, seed=35))
    convert(config_of(log), tmp_path / "out")

    def fail(*_: object) -> None:
        raise DatabaseError("the server has gone")

    monkeypatch.setattr(claim, "write_marks", fail)
    with pytest.raises(DatabaseError) as failed:
        convert(config_of(log), tmp_path / "out", mark=True)
    assert failed.value.__notes__ == [
        "marking has begun; run the same command again to mark the remaining rows"
    ]
    monkeypatch.undo()
    convert(config_of(log), tmp_path / "out", mark=True)
    assert "N" not in statuses(log).values()


@pytest.mark.night  # starts a separate Java
@pytest.mark.xdist_group("own Java")
def test_a_driver_that_is_killed_leaves_the_url_in_no_file(
    java: None, log_alone: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log_alone, random_rows(500, seed=36))
    temporary, out, config = tmp_path / "tmp", tmp_path / "out", tmp_path / "eventlog.toml"
    temporary.mkdir()
    url = log_alone.url.update_query_dict({"application_name": "a-secret-in-the-url"})
    config.write_text('[database]\nschema_name = "hr"\n')
    given = {
        "EVENTLOG_DATABASE_URL": url.render_as_string(hide_password=False),
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
    }
    command = [
        Path(sys.executable).with_name("eventlog"),
        "-c",
        config,
        "backlog",
        "run",
        "--out",
        out,
        "--master",
        "local[1]",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    with subprocess.Popen(command, env=environment | given, stderr=subprocess.DEVNULL) as driver:
        while not list(out.glob("_temporary/*")):  # a worker has read the log
            assert driver.poll() is None
            time.sleep(0.05)
        others = psutil.Process(driver.pid).children(recursive=True)
        lines = []
        for process in others:
            with suppress(psutil.Error):  # it may have ended
                lines.append(" ".join(process.cmdline()))
        driver.kill()
    psutil.wait_procs(others, timeout=30)
    assert any("worker_daemon" in line for line in lines)
    assert not any("a-secret-in-the-url" in line for line in lines)
    left = [path for path in temporary.rglob("*") if path.is_file()]
    assert not any(b"a-secret-in-the-url" in path.read_bytes() for path in left)


def test_an_eventlog_error_in_a_worker_is_the_reported_reason() -> None:
    from pyspark.errors import PythonException

    text = (
        "Traceback:\n  File x\neventlog.errors.DatabaseError: rows 1 to 5 cannot be read: "
        "gone\n\n\tat org.apache"
    )
    with pytest.raises(SparkFailed) as failed, as_spark_failed("try again"):
        raise PythonException(text)
    assert str(failed.value) == "the Spark job failed: rows 1 to 5 cannot be read: gone; try again"


def test_a_full_directory_of_sparks_own_files_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import PySparkException

    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch/one")
    said = r"own files, /scratch/one \(SPARK_LOCAL_DIRS, or else spark.local.dir\)"
    with pytest.raises(SparkFailed, match=said), as_spark_failed("try again"):
        raise PySparkException("java.io.IOException: No space left on device")


def test_the_loss_of_the_last_task_is_the_reason_if_no_python_ran() -> None:
    from pyspark.errors import PySparkException

    lost = (
        "most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
        "java.io.IOException: Cannot run"
    )
    text = (
        "An error occurred while calling o60.collectToPython.\n: x: Job aborted: Task 0 failed 4 "
        f"times, {lost}\n\tat x"
    )
    with pytest.raises(SparkFailed) as failed, as_spark_failed("try again"):
        raise PySparkException(text)
    assert str(failed.value) == "the Spark job failed: java.io.IOException: Cannot run; try again"


def test_a_database_that_cannot_be_reached_is_named_before_spark_starts(tmp_path: Path) -> None:
    config = load(None, {"EVENTLOG_DATABASE_URL": "postgresql://nobody:hidden@localhost:1/none"})
    with pytest.raises(
        DatabaseError, match="cannot connect to database 'none' at localhost:1"
    ) as failed:
        convert(config, tmp_path / "out")
    assert "hidden" not in str(failed.value)


def test_a_worker_that_cannot_reach_the_directory_is_reported(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path / "mounted elsewhere"))
    with pytest.raises(
        ConfigError, match="mounted elsewhere that the driver and all workers reach"
    ):
        jobs.write_run(directory, 1, [])


def _java(directory: Path, version: str) -> None:
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "message"), [("1.8.0_402", "is Java 8"), ("11.0.22", "is Java 11"), ("17.0.1", "")]
)
def test_a_java_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, message: str
) -> None:
    _java(tmp_path, version)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if not message:
        check_java()
        return
    with pytest.raises(ConfigError, match=rf"{message}\. Spark needs Java 17 or later"):
        check_java()


def test_a_java_that_is_too_new_for_this_spark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, "25.0.3")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(session, "JAVA_TOO_NEW", None)
    check_java()
    monkeypatch.setattr(session, "JAVA_TOO_NEW", 23)
    with pytest.raises(
        ConfigError, match=r"is Java 25, on which PySpark 4\S+ does not run\. Set JAVA_HOME"
    ):
        check_java()


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="there is no java in PATH"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConfigError, match="from JAVA_HOME, does not run"):
        check_java()


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[*]", os.cpu_count()), ("yarn", 1)]
)
def test_the_number_of_cores_follows_from_the_master(master: str, cores: int) -> None:
    assert cores_of(master) == cores


def test_java_warns_on_standard_error() -> None:
    options = [
        *LOCAL_JAVA_OPTIONS.split(),
        "-XX:+UseLargePages",
        "-XX:LargePageSizeInBytes=3g",
        "-version",
    ]
    said = subprocess.run(["java", *options], capture_output=True, text=True, check=True)
    assert said.stdout == ""


@pytest.mark.night
@pytest.mark.xdist_group("own Java")
def test_modules_of_the_users_directory_do_not_disturb_a_job(
    java: None, log_alone: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log_alone, random_rows(100, seed=34))
    for name in ("spark", "fold", "session", "backlog", "job", "worker_daemon", "write"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of the user')\n")
    environment = {
        **os.environ,
        "EVENTLOG_DATABASE_URL": log_alone.url.render_as_string(hide_password=False),
        "EVENTLOG_DATABASE_SCHEMA_NAME": "hr",
    }
    for variable in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(variable, None)
    command = [
        sys.executable,
        "-c",
        "import sys; from eventlog.cli import run; sys.exit(run(sys.argv[1:]))",
    ]
    done = subprocess.run(
        [*command, "backlog", "run", "--out", tmp_path / "out", "--master", "local[1]"],
        env=environment, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.night
def test_spark_submit_runs_the_program_whose_result_is_alone_on_standard_output(
    log: sa.Engine, spark: SparkSession, tmp_path: Path
) -> None:
    log_rows(log, random_rows(200, seed=33))
    file = tmp_path / "eventlog.toml"
    file.write_text('[database]\nschema_name = "hr"\n')
    environment = {
        **os.environ,
        "EVENTLOG_DATABASE_URL": log.url.render_as_string(hide_password=False),
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    environment.pop("PYSPARK_GATEWAY_SECRET", None)
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false",
         ROOT / "spark" / "backlog.py", "run", "--config", file, "--out", tmp_path / "out", "--mark",
        "--json"], env=environment, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["marked"] == 200
    assert "Starting Spark" in done.stderr
    assert len(done.stderr.splitlines()) < 20
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "of another run"])
def test_a_file_between_two_stages_that_has_changed_is_refused(tmp_path: Path, damage: str) -> None:
    directory = Directory(str(tmp_path))
    directory.make(TEMPORARY)
    kept = [jobs.Blob(jobs.EVENTS, 1, 7, b"content"), jobs.Blob(jobs.OUTCOMES, 1, 9, b"")]
    run = jobs.write_run(directory, 1, kept)
    assert list(jobs.read_run(directory, run)) == kept
    (path,) = (tmp_path / TEMPORARY).iterdir()
    content = bytearray(path.read_bytes())
    if damage == "changed":
        content[content.index(b"content")] ^= 1
    elif damage == "cut":
        del content[-3:]
    else:
        jobs.write_run(directory, 1, kept[:1])
        (other,) = (one for one in (tmp_path / TEMPORARY).iterdir() if one != path)
        content = bytearray(other.read_bytes())
    path.write_bytes(content)
    with pytest.raises(jobs.RunDamaged, match=f"{path.name} has changed since it was written"):
        jobs.read_run(directory, run)


def test_a_worker_needs_no_pandas_and_a_function_that_does_gets_it() -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from eventlog.spark.session.in_tasks import tune_collector\n"
        "tune_collector()\n"
        "pa.array(['text']).to_pylist()\n"
        "assert 'pandas' not in sys.modules\n"
        "print(pa.table({'a': [1, 2]}).to_pandas()['a'].sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "3\n"
