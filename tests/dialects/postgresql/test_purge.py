"""``eventlog purge`` on a real PostgreSQL: what was not delivered is never removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute, in_ci

from eventlog import cli
from eventlog.cli.repair.purge import parse_age
from eventlog.cli.repair.runs import purge as purge_command
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS
from eventlog.publisher.upkeep import purge as publisher_purge
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable

LOG = LogTable("hr", "eventlog", LOG_COLUMNS)
Purge = Callable[..., dict[str, Any]]


def statuses(database: sa.Engine) -> str:
    """The letters of the rows that are there, in record_id order."""
    with database.connect() as conn:
        return "".join(
            conn.exec_driver_sql("SELECT status FROM hr.eventlog ORDER BY record_id").scalars()
        )


def fill(database: sa.Engine) -> None:
    execute(database, "CREATE SCHEMA hr; CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(database, log_table="eventlog", schema="hr")
    execute(
        database,
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, event_time) SELECT "
        "letter, 4, 'usr', 'idu=1', now() AT TIME ZONE 'UTC' - CASE WHEN n <= 8 THEN interval '31 "
        "days' ELSE interval '29 days' END FROM unnest(string_to_array('S,W,N,E,F,x,S,S,S,N', "
        "',')) WITH ORDINALITY AS u (letter, n) ORDER BY n",
    )


def fill_leaf(database: sa.Engine) -> None:
    """The same rows, in the lowest leaf of a partitioned log."""
    fill(database)
    with database.connect() as conn:
        db = DIALECT.open(conn)
        log = db.log(locate_log(db, name="eventlog", schema="hr"))
        DIALECT.partitioning.prepare(log)
        DIALECT.partitioning.partition(log, 100)


@pytest.fixture(params=[fill, fill_leaf], ids=["table", "leaf"])
def home(
    filled_database: Any,
    empty_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[sa.Engine]:
    """A database with a log of ten rows, the first eight of them a month old: SWNEFxSS SN."""
    monkeypatch.setenv("EVENTLOG_DATABASE_SCHEMA_NAME", "hr")
    with filled_database(request.param) as database:
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False)
        )
        yield database


@pytest.fixture
def purge(home: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Purge:
    """``eventlog purge --json`` as data."""

    def purge(*arguments: str) -> dict[str, Any]:
        capfd.readouterr()
        assert cli.run(["purge", *arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    return purge


def test_only_processed_rows_that_are_old_enough_go(home: sa.Engine, purge: Purge) -> None:
    report = purge("--older-than", "30d")
    assert (report["rows"], report["checked"], report["dry_run"]) == (4, 10, False)
    assert statuses(home) == "NEFxSN"
    assert purge("--older-than", "30d")["rows"] == 0
    assert purge("--older-than", "1w")["rows"] == 1
    assert statuses(home) == "NEFxN"


def test_a_dry_run_counts_and_removes_nothing(home: sa.Engine, purge: Purge) -> None:
    execute(
        home,
        "INSERT INTO hr.eventlog_error (record_id, error_time, code, message) VALUES (1, "
        "'2020-01-01', 'receiver', 'x'), (4, '2020-01-01', 'receiver', 'x')",
    )
    planned = purge("--older-than", "30d", "--dry-run")
    assert (planned["rows"], planned["error_lines"]) == (4, 1)
    assert statuses(home) == "SWNEFxSSSN"
    done = purge("--older-than", "30d")
    assert (done["rows"], done["error_lines"]) == (4, 1)


def test_a_dry_run_does_not_count_the_errors_of_a_row_without_a_time(
    home: sa.Engine, purge: Purge
) -> None:
    execute(
        home,
        "ALTER TABLE hr.eventlog ALTER event_time DROP NOT NULL",
        "UPDATE hr.eventlog SET event_time = NULL WHERE record_id = 1",
        "INSERT INTO hr.eventlog_error (record_id, error_time, code, message) VALUES (1, "
        "'2020-01-01', 'receiver', 'x')",
    )
    planned = purge("--older-than", "30d", "--dry-run")
    done = purge("--older-than", "30d")
    assert (planned["rows"], planned["error_lines"]) == (done["rows"], done["error_lines"])
    assert done["error_lines"] == 0


# One row, a rest in the last one, and all rows at once.
@pytest.mark.parametrize("size", in_ci([1, 2, 3, 10], 1, 3, 10))
def test_each_batch_is_a_separate_transaction(
    home: sa.Engine, purge: Purge, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        left.append(statuses(home))

    # In the place of the module, whose own sleep other threads of the session use.
    monkeypatch.setattr(purge_command, "sleep", sleep)
    report = purge("--older-than", "30d", "--batch", str(size), "--pause", "0.5")
    assert report["batches"] == len(left) == -(-10 // size)
    assert set(pauses) == {0.5}
    whole = "SWNEFxSSSN"
    for done, seen in enumerate(left, 1):
        looked_at, rest = whole[: done * size], whole[done * size :]
        kept = [letter for n, letter in enumerate(looked_at) if letter not in "SW" or n >= 8]
        assert seen == "".join(kept) + rest


def test_rows_in_delivery_stay_whatever_their_status(home: sa.Engine, purge: Purge) -> None:
    execute(
        home,
        """INSERT INTO hr.eventlog_inflight (entry_no, kind, content)
        VALUES (1, 'delivery', '{"line_format":1,
            "documents":[{"number":1,"rows":[[1,1],[7,8]],"counts":[3]}]}')""",
    )
    assert purge("--older-than", "30d")["rows"] == 1
    assert statuses(home) == "SNEFxSSSN"


def test_error_rows_go_when_they_are_old_and_their_rows_are_gone(
    home: sa.Engine, purge: Purge
) -> None:
    execute(
        home,
        "INSERT INTO hr.eventlog_error (record_id, error_time, code, message) VALUES"
        " (4, '2020-01-01', 'a', 'its row is there'),"
        " (99, '2020-01-01', 'b', 'gone'), (99, '2020-01-02', 'b', 'gone'),"
        " (98, now() AT TIME ZONE 'UTC', 'c', 'young')",
    )
    assert purge("--older-than", "30d", "--batch", "1")["error_lines"] == 2
    with home.connect() as conn:
        assert conn.exec_driver_sql(
            "SELECT code FROM hr.eventlog_error ORDER BY 1"
        ).scalars().all() == ["a", "c"]


def test_a_purge_that_is_stopped_has_done_what_it_has_done(
    home: sa.Engine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(purge_command, "sleep", interrupt)
    assert cli.run(["purge", "--older-than", "30d", "--batch", "2", "--pause", "1"]) == 130
    assert statuses(home) == "NEFxSSSN"
    assert cli.run(["purge", "--older-than", "30d"]) == 0
    assert "2 of 8 rows removed" in capfd.readouterr().out


@pytest.mark.parametrize("home", [fill], indirect=True)  # a leaf of young rows is not looked at
def test_a_purge_ends_after_many_rows_that_are_too_young(
    home: sa.Engine, purge: Purge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_purge, "YOUNG", 2)
    execute(
        home,
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, event_time) VALUES "
        "('S', 4, 'usr', 'idu=1', '2020-01-01')",
    )
    report = purge("--older-than", "30d", "--batch", "2")
    assert (report["rows"], report["checked"]) == (4, 10)
    monkeypatch.setenv("EVENTLOG_PUBLISHER_HANDLE_FUTURE_EVENTS", "true")
    assert purge("--older-than", "30d", "--batch", "2")["rows"] == 1


def test_what_one_purge_left_the_next_one_takes(home: sa.Engine, purge: Purge) -> None:
    assert purge("--older-than", "30d")["rows"] == 4
    execute(home, "UPDATE hr.eventlog SET status = 'S'")
    report = purge("--older-than", "0s")
    assert (report["rows"], report["checked"]) == (6, 6)
    execute(home, "TRUNCATE hr.eventlog RESTART IDENTITY")
    execute(
        home,
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, event_time) VALUES "
        "('S', 4, 'usr', 'idu=1', '2020-01-01')",
    )
    assert purge("--older-than", "0s")["rows"] == 1


@pytest.mark.parametrize("home", [fill], ids=["table"], indirect=True)  # an open leaf stays
def test_a_row_that_commits_late_among_removed_rows_goes_once_the_notes_of_these_expire(
    home: sa.Engine, purge: Purge, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(home, "DELETE FROM hr.eventlog")
    row = (
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, event_time) "
        "VALUES ('S', 4, 'usr', 'idu=1', '2020-01-01 00:00:00')"
    )
    with home.connect() as late:
        execute(home, row)
        late.exec_driver_sql(row)
        execute(home, row, row.replace("'S'", "'N'"))
        assert purge("--older-than", "30d")["rows"] == 2
        late.commit()
    assert purge("--older-than", "30d")["rows"] == 0
    assert statuses(home) == "SN"
    monkeypatch.setattr(publisher_purge, "WHOLE", timedelta(0))
    assert purge("--older-than", "30d")["rows"] == 1
    assert statuses(home) == "N"


def test_a_purge_runs_while_a_publisher_runs_and_takes_no_row_that_is_being_marked(
    home: sa.Engine, purge: Purge
) -> None:
    with home.connect() as publisher:
        assert DIALECT.open(publisher).log(LOG).try_lock()
        publisher.commit()
        # A mark that is not committed: to everybody else the row is N.
        assert DIALECT.open(publisher).log(LOG).mark("S", [(3, 3)]) == 1
        assert purge("--older-than", "30d")["rows"] == 4
        publisher.rollback()
    assert statuses(home) == "NEFxSN"


def test_rows_that_get_another_letter_during_the_purge_are_not_noted_as_removed(
    home: sa.Engine, purge: Purge
) -> None:
    def requeue(*statement: Any) -> None:
        if statement[2].startswith("DELETE"):
            execute(home, "UPDATE hr.eventlog SET status = 'N' WHERE status IN ('S', 'W')")

    sa.event.listen(sa.Engine, "before_cursor_execute", requeue)
    try:
        assert purge("--older-than", "30d")["rows"] == 0
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", requeue)
    with home.connect() as conn:
        assert conn.exec_driver_sql("SELECT removed FROM hr.eventlog_epoch").all() == [(None,)]


def test_age_is_counted_in_the_zone_of_event_time(
    home: sa.Engine, purge: Purge, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(home, f"ALTER DATABASE \"{home.url.database}\" SET TimeZone = 'Etc/GMT+12'")
    # Twelve hours behind: what is 31 days old in UTC is 30 and a half by the local clock, and 29 is
    # 28 and a half.
    assert purge("--older-than", "735h", "--dry-run")["rows"] == 4
    monkeypatch.setenv("EVENTLOG_PUBLISHER_EVENT_TIME_ZONE", "local")
    assert purge("--older-than", "735h", "--dry-run")["rows"] == 4, "a log of ours is in UTC"
    execute(home, "ALTER TABLE hr.eventlog ALTER event_time DROP DEFAULT")  # a log of others
    assert purge("--older-than", "735h", "--dry-run")["rows"] == 0
    assert purge("--older-than", "730h", "--dry-run")["rows"] == 4


def test_without_the_right_to_delete_nothing_is_begun(
    home: sa.Engine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"purger_{home.url.database}"
    execute(
        home,
        f"CREATE ROLE {user} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA hr TO {user};GRANT ALL ON "
        f"ALL TABLES IN SCHEMA hr TO {user}; GRANT ALL ON ALL SEQUENCES IN SCHEMA hr TO "
        f"{user};REVOKE DELETE ON hr.eventlog_error FROM {user}",
    )
    url = home.url.set(username=user, password="x").render_as_string(hide_password=False)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    assert cli.run(["purge", "--older-than", "30d"]) == 1
    refusal = capfd.readouterr().err
    assert f"user {user} lacks rights on the log" in refusal
    assert "DELETE on table eventlog_error; `eventlog grants" in refusal
    assert statuses(home) == "SWNEFxSSSN"
    execute(home, f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_an_empty_log_is_nothing_to_do(home: sa.Engine, purge: Purge) -> None:
    execute(home, "TRUNCATE hr.eventlog")
    assert (purge("--older-than", "0s")["rows"], purge("--older-than", "99999w")["rows"]) == (0, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 2592000),
        ("12h", 43200),
        ("90m", 5400),
        ("45s", 45),
        ("2w", 1209600),
        (" 1 d ", 86400),
    ],
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "1y", "1d2h", "٣d", "999999999w"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--older-than"):
        parse_age(text)


def test_the_age_must_be_given(home: sa.Engine) -> None:
    assert cli.run(["purge"]) == 2
    assert statuses(home) == "SWNEFxSSSN"
