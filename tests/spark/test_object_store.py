"""A whole job whose output directory is on an object store (moto's S3 server), and what is left
when it is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from backlog_job import LOG, config_of, convert, fetch, log_rows, random_rows, statuses
from backlog_page import block
from object_store import BUCKET, Store, object_store, output_of
from shared import execute, url_of

from eventlog import cli
from eventlog.errors import ConfigError
from eventlog.spark.backlog import job as jobs
from eventlog.spark.directory import SUCCESS, Directory, JobDirectory, Owner, job_in, resume

OWNER = Owner("backlog job", {"log": "hr.eventlog"}, lambda said: f"documents of {said['log']}")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store() as store:
        yield store


@pytest.fixture
def file(log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file; the URL is in the environment."""
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(log))
    file = tmp_path / "eventlog.toml"
    file.write_text('[database]\nschema_name = "hr"\n[publisher]\ndriver_user = "publisher"\n')
    return file


def statuses_in(store: Store, prefix: str) -> dict[int, str]:
    """Which letter each row is to get, as the files of the job say."""
    rows = [
        row
        for name in store.keys(prefix)
        if name.startswith("_ids/")
        for row in pq.read_table(BytesIO(store.read(prefix, name))).to_pylist()
    ]
    return {i: row["status"] for row in rows for i in range(row["first"], row["last"] + 1)}


def is_tidy(store: Store, prefix: str) -> bool:
    """Whether a finished directory holds what it is to hold, all of one job, and nothing that
    stands for a folder.
    """
    job = json.loads(store.read(prefix, "_manifest.json"))["job"]
    known = re.compile(rf"_SUCCESS|_manifest\.json|_marked/part-\d+|(_ids/)?part-[\d-]+-{job}\.\w+")
    return all(map(known.fullmatch, store.keys(prefix)))


def test_a_whole_job_puts_the_bytes_of_a_directory_into_a_bucket_once_and_marks_its_rows(
    log: sa.Engine, store: Store, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_rows(log, random_rows(1_000, seed=120))
    command = ["backlog", "run", "--config", str(file), "--partition-rows", "250", "--out"]
    assert cli.run([*command, str(tmp_path / "local"), "--no-claim"]) == 0
    assert cli.run([*command, store.uri("whole")]) == 0
    assert store.output("whole") == output_of(tmp_path / "local")
    assert cli.run([*command, store.uri("whole"), "--mark"]) == 0
    assert statuses(log) == statuses_in(store, "whole")

    assert is_tidy(store, "whole")
    sizes = {f"whole/{key}": len(store.read("whole", key)) for key in store.keys("whole")}
    assert {key: store.put[key] for key in sizes} == sizes
    assert store.copies == []
    said, err = capsys.readouterr()
    assert f"s3://***@{BUCKET}/whole" in said + err
    assert "cret" not in said + err


def test_an_empty_log_makes_a_finished_directory(log: sa.Engine, store: Store) -> None:
    assert convert(config_of(log), store.uri("empty"), mark=True).marked == 0  # type: ignore[arg-type]
    assert store.keys("empty") == {"_SUCCESS", "_manifest.json"}


def test_an_unfinished_job_starts_over_and_a_finished_job_is_resumed(
    store: Store,
) -> None:
    directory = Directory(store.uri("halved"))
    JobDirectory(directory, OWNER).begin((), "job1")
    jobs.write_run(directory, 1, [jobs.Blob(jobs.EVENTS, 1, 7, b"content")])  # and killed

    directory = Directory(store.uri("halved"))
    assert resume(directory, OWNER) is None
    JobDirectory(directory, OWNER).begin((), "job2")
    assert job_in(directory) == "job2"
    run = jobs.write_run(directory, 1, [jobs.Blob(jobs.EVENTS, 1, 7, b"content")])
    assert [blob.content for blob in jobs.read_run(directory, run)] == [b"content"]
    directory.write("_ids/part-000001-job2.parquet", b"ids")
    told: list[str] = []
    JobDirectory(directory, OWNER).finish(
        {"job": "job2"}, {"_ids/part-000001-job2.parquet": 3}, told.append
    )
    assert told == [directory.sha256("_manifest.json")]
    known = resume(Directory(store.uri("halved")), OWNER)
    assert known is not None
    assert known["job"] == "job2"
    assert store.keys("halved") == {SUCCESS, "_manifest.json", "_ids/part-000001-job2.parquet"}


def test_without_boto3_an_empty_folder_object_remains_and_the_directory_is_resumed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    directory = Directory(store.uri("bare"))
    JobDirectory(directory, OWNER).begin((), "job1")
    JobDirectory(directory, OWNER).finish({"job": "job1"}, {})
    assert store.keys("bare") == {SUCCESS, "_manifest.json", ""}
    assert resume(Directory(store.uri("bare")), OWNER) is not None


def test_a_missing_bucket_is_reported_before_spark_starts(log: sa.Engine, store: Store) -> None:
    with pytest.raises(ConfigError, match=r"there is no bucket nowhere\. Create it first"):
        convert(config_of(log), store.uri("out").replace(BUCKET, "nowhere"))  # type: ignore[arg-type]


@pytest.mark.night
def test_a_store_that_does_not_answer_is_reported_without_its_keys(
    log: sa.Engine, store: Store
) -> None:
    with pytest.raises(
        ConfigError, match=r"landing/out.* cannot be reached: .*Check its name and your rights"
    ) as said:
        convert(config_of(log), store.uri("out").replace(store.address, "127.0.0.1:1"))  # type: ignore[arg-type]
    assert "cret" not in str(said.value)


def test_keys_in_the_uri_are_in_no_message_and_no_file(store: Store) -> None:
    directory = Directory(store.uri("masked"))
    assert "cret" not in directory.location
    JobDirectory(directory, OWNER).begin((), "job1")
    directory.write("_manifest.json", json.dumps({"log": "fin.eventlog"}).encode())
    directory.write(SUCCESS, b"")
    with pytest.raises(ConfigError) as refused:
        resume(directory, OWNER)
    assert "cret" not in str(refused.value)


# --- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.night
@pytest.mark.timeout(400)
def test_the_documented_lines_convert_and_mark_with_keys_of_the_environment(
    log: sa.Engine, store: Store, file: Path
) -> None:
    log_rows(log, random_rows(2_000, seed=124))
    lines = block("On an object store")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    named = {**environment_of(store), "PATH": path}
    done = subprocess.run(
        ["bash", "-euc", lines], env=named, cwd=file.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert statuses(log) == statuses_in(store, "documents")
    assert is_tidy(store, "documents")


def environment_of(store: Store) -> dict[str, str]:
    """The environment of a separate command."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    return {**inherited, **store.environment, "PYSPARK_PYTHON": sys.executable}


class Command:
    """``eventlog backlog`` with the keys of the store in its environment, in separate processes."""

    def __init__(self, store: Store, file: Path, prefix: str) -> None:
        eventlog = Path(sys.executable).with_name("eventlog")
        options = ["--config", file, "--out", f"s3://{BUCKET}/{prefix}", "--master", "local[2]"]
        self.arguments = [
            eventlog,
            "backlog",
            "run",
            *options,
            "--partition-rows",
            "1000",
            "--json",
        ]
        self.environment = environment_of(store)

    def run(self, *more: str) -> int:
        """Run it to its end; how many rows it marked."""
        done = subprocess.run(
            [*self.arguments, *more], env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["marked"] or 0)

    def kill_when(self, seen: Callable[[], object], *more: str) -> None:
        """Run it, and kill it with all its processes when something is seen."""
        process = subprocess.Popen(
            [*self.arguments, *more], env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            while not seen() and process.poll() is None:
                time.sleep(0.1)  # the store is in this process, and has to serve the job
            others = psutil.Process(process.pid).children(recursive=True)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the job ended before it was killed"
        assert psutil.wait_procs(others, timeout=60)[1] == []


@pytest.fixture
def count_marks(log: sa.Engine) -> Callable[[], dict[int, int]]:
    """A function that returns how often the status of each row has been changed."""
    execute(
        log,
        f"""
        CREATE TABLE hr.marks (record_id bigint);
        CREATE FUNCTION hr.count_mark() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO hr.marks VALUES (NEW.record_id); RETURN NULL; END$$;
        CREATE TRIGGER count_mark AFTER UPDATE OF status ON {LOG} FOR EACH ROW EXECUTE FUNCTION hr.count_mark()
    """,
    )
    counted = "SELECT record_id, count(*) FROM hr.marks GROUP BY record_id"
    return lambda: {int(str(i)): int(str(times)) for i, times in fetch(log, counted)}


@pytest.mark.night
@pytest.mark.timeout(400)
@pytest.mark.parametrize("begun", ["_temporary/", "_ids/"])
def test_a_job_that_is_killed_while_it_converts_is_discarded_and_starts_over(
    log: sa.Engine, store: Store, file: Path, tmp_path: Path, begun: str
) -> None:
    log_rows(log, random_rows(20_000, seed=121))
    prefix = f"converting{begun.strip('/')}"
    command = Command(store, file, prefix)
    command.kill_when(lambda: any(key.startswith(begun) for key in store.keys(prefix)), "--mark")
    killed = store.keys(prefix)
    assert SUCCESS not in killed
    assert set(statuses(log).values()) == {"N"}

    cli.run(
        [
            "backlog",
            "run",
            "--config",
            str(file),
            "--partition-rows",
            "1000",
            "--out",
            str(tmp_path / "local"),
            "--no-claim",
        ]
    )
    assert command.run("--mark") == 20_000
    assert store.output(prefix) == output_of(tmp_path / "local")
    assert is_tidy(store, prefix)
    assert statuses(log) == statuses_in(store, prefix)


@pytest.mark.night
@pytest.mark.timeout(400)
def test_a_job_that_is_killed_between_converting_and_marking_only_marks_when_it_is_run_again(
    log: sa.Engine, store: Store, file: Path, count_marks: Callable[[], dict[int, int]]
) -> None:
    log_rows(log, random_rows(20_000, seed=122))
    command = Command(store, file, "between")
    with log.connect() as holder:
        holder.exec_driver_sql(f"LOCK TABLE {LOG} IN SHARE MODE")  # it can be read, and not marked
        command.kill_when(lambda: SUCCESS in store.keys("between"), "--mark")
    assert set(statuses(log).values()) == {"N"}
    documents = store.output("between")

    assert command.run("--mark") == 20_000
    assert store.output("between") == documents
    assert statuses(log) == statuses_in(store, "between")
    assert count_marks() == dict.fromkeys(statuses(log), 1)
    assert is_tidy(store, "between")


@pytest.mark.night
@pytest.mark.timeout(400)
def test_a_job_that_is_killed_while_it_marks_marks_the_rest_when_it_is_run_again_each_row_once(
    log: sa.Engine, store: Store, file: Path, count_marks: Callable[[], dict[int, int]]
) -> None:
    log_rows(log, random_rows(20_000, seed=123))
    command = Command(store, file, "marking")
    command.run()
    parts = sum(key.startswith("_ids/") for key in store.keys("marking"))
    with log.connect() as holder:
        holder.exec_driver_sql(
            f"SELECT 1 FROM {LOG} ORDER BY record_id DESC LIMIT 1 FOR UPDATE"
        )  # of the last part
        command.kill_when(
            lambda: sum(key.startswith("_marked/") for key in store.keys("marking")) == parts - 1,
            "--mark",
        )
    marked = [i for i, letter in statuses(log).items() if letter != "N"]
    assert 0 < len(marked) < 20_000

    assert command.run("--mark") == 20_000 - len(marked)
    assert statuses(log) == statuses_in(store, "marking")
    assert count_marks() == dict.fromkeys(statuses(log), 1)
    assert is_tidy(store, "marking")
