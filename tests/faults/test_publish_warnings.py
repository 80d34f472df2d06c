"""What ``publish`` reports about settings without effect, a watch that names no column, a receiver that
took nothing, and another publisher.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from publishers import configuration, opened
from shared import Run

from eventlog.sql.connect.connection import connect

CONFIG = """
[database]
url = "sqlite:///app.db"
[[watch]]
{watch}
[sink]
type = "http"
url = "http://127.0.0.1:9"
{sink}
"""


@pytest.fixture
def log(empty_home: Path, run: Run) -> None:
    """A log with one row of class ``usr``, whose receiver is unavailable."""
    with sqlite3.connect("app.db") as conn:
        conn.execute("CREATE TABLE usr (idu integer PRIMARY KEY, email text)")
    configure()
    for command in (["db", "upgrade"], ["triggers", "apply"]):
        assert run(*command)[0] == 0
    with sqlite3.connect("app.db") as conn:
        conn.execute("INSERT INTO usr VALUES (1, 'a')")


def configure(watch: str = 'table = "usr"', sink: str = "") -> None:
    Path("eventlog.toml").write_text(CONFIG.format(watch=watch, sink=sink))


@pytest.mark.usefixtures("log")
def test_an_excluded_column_that_no_table_has_is_a_warning(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    configure('tables = "us*"\nexclude = ["emial"]')
    run("publish", "--once")
    assert (
        "watch us*, exclude: 'emial' is an attribute of none of its tables. Correct" in caplog.text
    )
    caplog.clear()
    configure('table = "usr"\nexclude = ["emial"]')
    run("publish", "--once")
    assert caplog.text.count("'emial' is not an attribute of the class") == 1


@pytest.mark.usefixtures("log")
def test_an_option_of_another_sink_is_a_warning(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    configure(sink='directory = "documents"')
    run("publish", "--once")
    what = "eventlog.toml: sink.directory has no effect: it is no option of the sink "
    assert f"{what}http" in caplog.text
    caplog.clear()
    run("--set", "sink.type=stdout", "publish", "--once")
    assert what not in caplog.text


@pytest.mark.usefixtures("log")
def test_a_receiver_that_took_nothing_has_no_figures_of_documents(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run("publish", "--once")
    assert "0 published, 1 waiting; the receiver has taken no document" in caplog.text


@pytest.mark.usefixtures("log")
def test_a_refused_run_is_not_advised_to_wait_with_a_setting_that_it_has(
    run: Run,
) -> None:
    with opened(configuration(connect("sqlite:///app.db"))):
        _, _, err = run("--set", "publisher.standby=true", "publish", "--once")
    assert "standby = true (without --once)" in err


@pytest.mark.usefixtures("log")
def test_status_with_another_configuration_than_the_applied_one_does_not_claim_a_loss(
    run: Run,
) -> None:
    """Its triggers log each change, and applying this configuration would replace them."""
    configure('table = "usr"\nexclude = ["email"]')
    out = run("status")[1]
    assert "1 table captured otherwise than this configuration declares (usr)" in out
    assert "If the triggers come from another configuration, use the other" in out
    assert "not logged" not in out
    with sqlite3.connect("app.db") as conn:
        conn.execute("ALTER TABLE usr ADD COLUMN phone text")
    assert "1 table not captured as declared: changes are not logged (usr)" in run("status")[1]
