"""The notebooks of spark/notebooks run from the first cell to the last, and plot the described
data.

Each runs in a separate process, the kernel, with a separate Spark: no test here uses the session of
the others.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("nbclient", reason="the extra dev is not installed")
pytest.importorskip("ipykernel", reason="the extra dev is not installed")
pytest.importorskip("matplotlib", reason="the extra dev is not installed")
pytest.importorskip("deltalake", reason="the extra delta is not installed")

import nbformat
from backlog_job import fetch, log_rows, make_tables, random_rows
from deltalake import DeltaTable
from nbclient import NotebookClient
from shared import url_of

sys.path.insert(0, str(Path(__file__).with_name("lake")))
from test_live_copy import INSERT, assert_equal, installed, make_accounts, run, wait_until

from eventlog.spark.changes.changes import HAS_STREAMS

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("own Java")]

NOTEBOOKS = Path(__file__).parents[2] / "spark" / "notebooks"
CELL_SECONDS = 600


@pytest.fixture
def own_spark(java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which the kernel starts a separate Java, with workers of this Python."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # Its second compiler takes more time than it gives back to so short a life.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC")


@pytest.fixture
def backlog(own_spark: None, filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_tables) as database:
        yield database


@pytest.fixture
def accounts(own_spark: None, filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_accounts) as database:
        yield database


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def executed(name: str, directory: Path) -> Any:
    """Return the notebook with its outputs, run in a directory by this Python."""
    where = {"metadata": {"path": directory}}
    return NotebookClient(
        read(name), timeout=CELL_SECONDS, kernel_name="python3", resources=where
    ).execute()


def outputs_of(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def pictures_in(notebook: Any) -> int:
    return sum("image/png" in output.get("data", ()) for output in outputs_of(notebook))


def printed_by(notebook: Any) -> str:
    return "".join(
        output["text"] for output in outputs_of(notebook) if output.get("name") == "stdout"
    )


def test_notebooks_are_stored_without_outputs_and_each_is_run_here() -> None:
    names = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    assert names == {"backlog", "live-copy", "history"}
    for name in names:
        notebook = read(name)
        nbformat.validate(notebook)
        assert outputs_of(notebook) == []


@pytest.mark.night
def test_a_backlog_is_read_counted_converted_and_plotted(
    backlog: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(backlog, random_rows(2_000, seed=120))
    ((rows,),) = fetch(backlog, "SELECT count(*) FROM hr.eventlog WHERE status = 'N'")
    (tmp_path / "eventlog.toml").write_text(
        '[database]\nschema_name = "hr"\n[publisher]\ndriver_user = "publisher"\n'
    )  # fmt: skip
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(backlog))
    notebook = executed("backlog", tmp_path)
    assert re.search(rf"^{rows:,} rows, [\d,]+ events, ", printed_by(notebook), re.MULTILINE)
    assert (tmp_path / "documents" / "_SUCCESS").exists()
    assert pictures_in(notebook) == 2


def followed(name: str, accounts: sa.Engine, directory: Path, patched: pytest.MonkeyPatch) -> Any:
    """Return a notebook that follows a table, run while the table changes."""
    installed(accounts, directory)
    run(accounts, INSERT.format(first=1, last=20))
    patched.setenv("EVENTLOG_CLASS", "acct")
    patched.setenv("EVENTLOG_SECONDS", "8")

    def change() -> None:
        wait_until(lambda: DeltaTable.is_deltatable(str(directory / "copy")), CELL_SECONDS)
        for owner, first in (("one", 30), ("two", 50)):
            run(
                accounts,
                f"UPDATE acct SET owner = '{owner}' WHERE no < 5",
                INSERT.format(first=first, last=first + 9),
            )
            time.sleep(0.5)

    writer = threading.Thread(
        target=change, daemon=True
    )  # ends with the tests if the notebook makes no copy
    writer.start()
    notebook = executed(name, directory)
    writer.join()
    assert_equal(accounts, directory, "copy")
    return notebook


@pytest.mark.night
@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
def test_a_table_is_followed_by_a_delta_table_whose_lag_is_plotted(
    accounts: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = followed("live-copy", accounts, tmp_path, monkeypatch)
    assert DeltaTable(tmp_path / "copy").version() >= 1
    assert pictures_in(notebook) == 1


@pytest.mark.night
@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
def test_the_versions_of_a_table_and_the_table_of_a_moment_are_shown(
    accounts: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = followed("history", accounts, tmp_path, monkeypatch)
    assert re.search(r"^\d+ rows at [\d:]+, 40 rows now$", printed_by(notebook), re.MULTILINE)
    assert pictures_in(notebook) == 1
