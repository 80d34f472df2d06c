"""Every block of docs/guides/convert-a-backlog.md runs in a test; those run here that need no
cluster.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import (
    LOG,
    config_of,
    documents_of,
    events_of,
    fetch,
    log_rows,
    publish,
    random_rows,
    statuses,
)
from backlog_page import BACKLOG, block, copy_clone, skip_without_index
from documents import ROOT, blocks, runnable
from pyspark.sql import SparkSession
from shared import url_of, wait_until

from eventlog import cli
from eventlog.spark.backlog.preflight import (
    CORE_SECONDS_PER_ROW,
    DELETE_SECONDS_PER_ROW,
    MARK_SECONDS_PER_ROW,
    START_SECONDS,
)

_CLUSTER, _HERE, _STORE = "test_cluster", "test_backlog_page", "test_object_store"
RUN_BY = {
    (BACKLOG, "Convert a backlog", 0): (
        _HERE,
        "test_rows_are_converted_given_back_converted_again_and_marked",
    ),
    (BACKLOG, "In a notebook", 0): (_HERE, "test_a_notebook_converts"),
    (BACKLOG, "The log in a notebook", 0): (_HERE, "test_a_notebook_reads_the_log"),
    (BACKLOG, "On a cluster", 0): (
        _CLUSTER,
        "test_executors_run_from_the_environment_that_the_documented_lines_pack",
    ),
    (BACKLOG, "On a cluster", 1): (
        _CLUSTER,
        "test_the_documented_lines_run_by_spark_submit_while_an_executor_is_killed",
    ),
    (BACKLOG, "On a cluster", 2): (
        _CLUSTER,
        "test_a_job_on_a_cluster_gives_what_the_publisher_sends_and_marks_it",
    ),
    (BACKLOG, "On an object store", 0): (
        _STORE,
        "test_the_documented_lines_convert_and_mark_with_keys_of_the_environment",
    ),
    (BACKLOG, "Start sooner", 0): (
        "test_class_archive",
        "test_java_uses_the_archive_that_the_command_makes_but_not_a_truncated_one",
    ),
    (BACKLOG, "Size a backlog", 0): (_HERE, "test_an_estimate_is_printed"),
}


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    shown = {(BACKLOG, *place) for place in blocks(BACKLOG)}
    # Its blocks run by themselves (tests/packaging/test_documents.py).
    tutorial = {place for place in shown if place[1] == "Tutorial: clear a backlog"}
    assert len(tutorial) == len(runnable(BACKLOG))
    assert shown - tutorial == RUN_BY.keys()
    for module, name in RUN_BY.values():
        assert f"def {name}(" in (ROOT / "tests" / "spark" / f"{module}.py").read_text()


@pytest.fixture
def site(log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that commands are typed in."""
    (tmp_path / "eventlog.toml").write_text(
        '[database]\nschema_name = "hr"\n[publisher]\ndriver_user = "publisher"\n'
    )
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(log))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(line: str) -> int:
    """Run a line, in the session that the tests share."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "eventlog"
    return cli.run(arguments)


def test_rows_are_converted_given_back_converted_again_and_marked(
    log: sa.Engine, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_rows(log, random_rows(500, seed=110))
    _install, convert, mark, abandon = block("Convert a backlog").splitlines()
    assert run(convert) == 0
    assert publish(config_of(log)) == []
    assert run(abandon) == 0
    capsys.readouterr()
    # The server may end the session of the command before, which has the lock, a moment later.
    wait_until(lambda: run(convert) == 0, "the rows are converted again")
    assert set(statuses(log).values()) == {"N"}
    said, err = capsys.readouterr()
    assert "500 rows read" in said
    assert "no row was marked" in err
    assert run(mark) == 0
    assert "documents is already complete" in capsys.readouterr().out
    assert "N" not in statuses(log).values()
    assert run("eventlog backlog run --out documents --max-file-size ten") == 2


@pytest.mark.night
@pytest.mark.timeout(900)
def test_the_first_line_installs_what_a_job_needs(tmp_path: Path) -> None:
    install, *_ = block("Convert a backlog").splitlines()
    copy_clone(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    done = subprocess.run(
        ["bash", "-euc", f". env/bin/activate; {install}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    skip_without_index(done.stderr)
    assert done.returncode == 0, done.stderr
    needs = "import pyspark, pyarrow, adbc_driver_postgresql, eventlog.spark.backlog.backlog"
    subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", needs], cwd=tmp_path / "env", check=True
    )


def test_a_notebook_converts(
    log: sa.Engine, spark: SparkSession, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_rows(log, random_rows(300, seed=111))
    exec(block("In a notebook"), {"spark": spark})
    events = len(list(events_of(documents_of(site / "documents"))))
    assert f"{events} events" in capsys.readouterr().out


def test_a_notebook_reads_the_log(
    log: sa.Engine, spark: SparkSession, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_rows(log, random_rows(300, seed=112, first=999_900))
    (site / "url").write_text(url_of(log))
    exec(
        block("The log in a notebook", here={"/run/secrets/eventlog-url": str(site / "url")}),
        {"spark": spark},
    )
    shown = capsys.readouterr().out
    for table, rows in fetch(
        log, f"SELECT table_name, count(*) FROM {LOG} WHERE record_id > 1000000 GROUP BY 1"
    ):
        assert f"{table or 'NULL'}|{rows}|" in shown.replace(" ", "")


def test_an_estimate_is_printed(
    log: sa.Engine, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_rows(log, random_rows(300, seed=113))
    assert run(block("Size a backlog")) == 0
    assert "300 rows in" in capsys.readouterr().out
    assert not (site / "documents").exists()


def test_the_model_of_the_page_is_that_of_the_estimate() -> None:
    page = " ".join(BACKLOG.read_text().split())
    assert f"{START_SECONDS:g} s for the start of Spark" in page
    for seconds in (CORE_SECONDS_PER_ROW, MARK_SECONDS_PER_ROW, DELETE_SECONDS_PER_ROW):
        assert f"{seconds * 1e6:g} us per row" in page
