"""The transaction of each row, which PostgreSQL records with `database.transaction_ids`
(spec/event-log.md 1.5).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import PATIENCE, Run, execute, fetch, url_of

from eventlog.conversion import convert
from eventlog.publisher.upkeep import leaves as publisher_leaves
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT

SCHEMA = "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, lname text)"
COLUMNS = """SELECT column_name, data_type, column_default FROM information_schema.columns
WHERE table_name = 'eventlog' ORDER BY ordinal_position"""
CLOUDEVENTS = {"type": "cloudevents"}


@pytest.fixture
def database(logged: sa.Engine, empty_home: Path) -> sa.Engine:
    """A database with a log without the column, and a configuration with the option."""
    configure(logged)
    execute(logged, SCHEMA)
    return logged


def configure(database: sa.Engine, with_ids: bool = True, **format: Any) -> None:
    write_config(
        Path(),
        url_of(database),
        [{"table": "usr"}],
        database={"transaction_ids": with_ids},
        publisher={"allow_loopback": True},
        format=format or CLOUDEVENTS,
    )


@pytest.fixture
def traced(database: sa.Engine, run: Run) -> sa.Engine:
    """A database whose log has the column, and whose table is captured."""
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0
    return database


def changed(database: sa.Engine, *statements: str) -> int:
    """Run statements in one transaction, and return its number."""
    with database.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)
        return int(conn.exec_driver_sql("SELECT txid_current()").scalar_one())


def ids(database: sa.Engine, which: str = "true") -> list[int | None]:
    rows = fetch(database, f"SELECT transaction_id FROM eventlog WHERE {which} ORDER BY record_id")
    return [one for (one,) in rows]


def published(run: Run, *flags: str) -> list[dict[str, Any]]:
    code, out, err = run("--quiet", *flags, "publish", "--once")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def transactions(events: Sequence[dict[str, Any]]) -> list[Any]:
    return [event["data"].get("transaction") for event in events]


# --- the column -----------------------------------------------------------------------------------


def test_an_upgrade_adds_an_eleventh_column_and_rewrites_nothing(
    database: sa.Engine, run: Run
) -> None:
    execute(
        database,
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')",
    )
    before = fetch(database, COLUMNS)
    file = fetch(database, "SELECT pg_relation_filenode('eventlog')")
    heads = json.loads(run("db", "current", "--json")[1])["current"]
    code, out, _ = run("db", "upgrade", "--json")
    assert (code, json.loads(out)["current"], json.loads(out)["transaction_ids"]) == (
        0,
        heads,
        True,
    )
    assert fetch(database, COLUMNS) == [*before, ("transaction_id", "bigint", "txid_current()")]
    assert fetch(database, "SELECT pg_relation_filenode('eventlog')") == file
    assert ids(database) == [None]
    assert "nothing to do" in run("db", "upgrade")[1]


def test_an_upgrade_without_the_option_adds_and_removes_no_column(
    database: sa.Engine, run: Run
) -> None:
    configure(database, with_ids=False)
    assert run("db", "upgrade")[0] == 0
    assert len(fetch(database, COLUMNS)) == 10
    configure(database)
    assert run("db", "upgrade")[0] == 0
    configure(database, with_ids=False)
    assert run("db", "upgrade")[0] == 0
    assert len(fetch(database, COLUMNS)) == 11


def test_the_upgrade_waits_for_a_writer_without_blocking_the_others(
    database: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gave_up, pause = Event(), publisher_leaves.sleep

    def paused(seconds: float) -> None:
        gave_up.set()
        pause(seconds)

    monkeypatch.setattr(publisher_leaves, "sleep", paused)
    row = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')"
    codes: list[int] = []
    with database.connect() as writer:
        writer.exec_driver_sql(row)
        upgrade = Thread(target=lambda: codes.append(run("db", "upgrade")[0]))
        upgrade.start()
        assert gave_up.wait(PATIENCE)
        execute(database, f"SET lock_timeout = '5s'; {row}")
        writer.commit()
    upgrade.join()
    assert codes == [0]
    assert ids(database) == [None, None]


def test_an_upgrade_that_gets_no_lock_ends_and_has_changed_nothing(
    database: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_leaves, "PATIENCE", 0.1)
    with database.connect() as writer:
        writer.exec_driver_sql("LOCK TABLE eventlog IN ROW EXCLUSIVE MODE")
        code, _, err = run("db", "upgrade")
    assert code == 1
    assert "the log public.eventlog is in use by session" in err
    assert len(fetch(database, COLUMNS)) == 10


def test_leaves_and_detached_leaves_get_the_column_and_may_be_attached_again(
    database: sa.Engine, run: Run
) -> None:
    assert run("db", "partition", "--leaf-size", "10")[0] == 0
    execute(database, "ALTER TABLE eventlog DETACH PARTITION eventlog_2")
    assert run("db", "upgrade")[0] == 0
    found = fetch(
        database,
        "SELECT table_name FROM information_schema.columns WHERE column_name = 'transaction_id' "
        "AND column_default = 'txid_current()' ORDER BY table_name",
    )
    assert found == [("eventlog",), ("eventlog_1",), ("eventlog_2",), ("eventlog_3",)]
    execute(
        database, "ALTER TABLE eventlog ATTACH PARTITION eventlog_2 FOR VALUES FROM (1) TO (11)"
    )


def test_a_column_of_that_name_that_is_not_ours_is_neither_read_nor_changed(
    database: sa.Engine, run: Run
) -> None:
    execute(database, "ALTER TABLE eventlog ADD COLUMN transaction_id bigint DEFAULT 7")
    code, _, err = run("db", "upgrade")
    assert (code, "has a column transaction_id that `eventlog db upgrade` did not add" in err) == (
        1,
        True,
    )
    with database.connect() as conn:
        assert locate_log(DIALECT.open(conn), name="eventlog").transaction_column is None
    assert run("triggers", "apply")[0] == 0
    changed(database, "INSERT INTO usr VALUES (1, 'Ada')")
    assert transactions(published(run)) == [None]


def test_the_log_of_another_program_and_another_database_refuse_the_option(
    database: sa.Engine, run: Run
) -> None:
    code, _, err = run("db", "upgrade", "--existing-log")
    assert (code, "must stay as another program made it" in err) == (2, True)
    code, _, err = run("--database-url", "sqlite:///other.db", "db", "upgrade")
    assert (code, "only PostgreSQL records transaction ids, and this is sqlite" in err) == (
        2,
        True,
    )


def test_a_script_has_the_statements_too(database: sa.Engine, run: Run) -> None:
    code, out, _ = run("db", "upgrade", "--sql")
    script = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS transaction_id bigint;\n"
    assert (code, script.format('"eventlog"') in out) == (0, True)


def test_examinations_and_plans_find_nothing_new(traced: sa.Engine, run: Run) -> None:
    configure(traced, with_ids=False)
    _, with_column, _ = run("doctor", "--json")
    code, plan, _ = run("triggers", "plan", "--check", "--json")
    execute(traced, "ALTER TABLE eventlog DROP COLUMN transaction_id")
    _, without, _ = run("doctor", "--json")
    assert json.loads(with_column)["findings"] == json.loads(without)["findings"]
    assert code == 0, plan


# --- what is written ------------------------------------------------------------------------------


def test_a_subtransaction_has_the_id_of_the_whole(traced: sa.Engine) -> None:
    whole = changed(
        traced,
        "INSERT INTO usr VALUES (1, 'Ada')",
        "SAVEPOINT inner_one",
        "INSERT INTO usr VALUES (2, 'Ben')",
        "RELEASE inner_one",
    )
    assert set(ids(traced)) == {whole}


def test_rows_of_resync_requeue_and_convert_have_no_id(
    traced: sa.Engine, run: Run, tmp_path: Path
) -> None:
    changed(traced, "INSERT INTO usr VALUES (1, 'Ada', 'L')")
    published(run)
    execute(traced, "UPDATE eventlog SET event_type = 5")
    logged_before = max(number for (number,) in fetch(traced, "SELECT record_id FROM eventlog"))
    assert run("requeue", "--status", "S")[0] == 0
    assert run("resync", "usr")[0] == 0
    assert run("resync", "usr", "--key", "idu=1")[0] == 0
    change = {"schema": "public", "table": "usr", "op": "DELETE", "key": [["idu", 9]]}
    Path("changes.jsonl").write_text(json.dumps(change) + "\n")
    convert("jsonl", "eventlog", "changes.jsonl", url_of(traced))
    assert set(ids(traced, f"record_id <= {logged_before}")) != {None}
    later = ids(traced, f"record_id > {logged_before}")
    assert (len(later) >= 4, set(later)) == (True, {None})


def test_a_row_that_moves_keeps_its_id(traced: sa.Engine, run: Run) -> None:
    number = changed(traced, "INSERT INTO usr VALUES (1, 'Ada', 'L')")
    assert run("db", "partition", "--leaf-size", "10")[0] == 0
    later = changed(traced, "INSERT INTO usr VALUES (2, 'Ben', 'L')")
    code, _, err = run("db", "unpartition")
    assert code == 0, err
    assert set(ids(traced)) == {number, later}


# --- what is sent ---------------------------------------------------------------------------------


def test_the_events_of_a_transaction_have_its_id(traced: sa.Engine, run: Run) -> None:
    first = changed(
        traced, "INSERT INTO usr VALUES (1, 'Ada')", "INSERT INTO usr VALUES (2, 'Ben')"
    )
    second = changed(traced, "DELETE FROM usr WHERE idu = 2")
    assert transactions(published(run)) == [{"id": str(one)} for one in (first, first, second)]


def test_a_folded_event_has_the_id_of_its_last_row(traced: sa.Engine, run: Run) -> None:
    changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    published(run)
    changed(traced, "UPDATE usr SET fname = 'Augusta'")
    last = changed(traced, "UPDATE usr SET lname = 'King'")
    assert transactions(published(run)) == [{"id": str(last)}]


def test_an_event_that_is_built_again_has_the_same_id(traced: sa.Engine, run: Run) -> None:
    number = changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    refused = ("--set", "sink.type=http", "--set", "sink.url=http://localhost:9")
    assert run("--quiet", *refused, "publish", "--once")[0] == 1
    assert fetch(traced, "SELECT count(*) FROM eventlog_inflight") == [(1,)]
    assert transactions(published(run)) == [{"id": str(number)}]


def test_an_id_of_a_later_epoch_names_it(traced: sa.Engine, run: Run) -> None:
    assert run("db", "start-epoch")[0] == 0
    ((epoch,),) = fetch(traced, "SELECT epoch FROM eventlog_epoch")
    number = changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    assert transactions(published(run)) == [{"id": f"{epoch}:{number}"}]


def test_debezium_and_a_converted_log_have_the_id(traced: sa.Engine, run: Run) -> None:
    number = changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    configure(traced, type="debezium")
    (event,) = published(run)
    assert event["payload"]["source"]["txId"] == number
    convert("eventlog", "debezium", url_of(traced), "debezium.jsonl")
    convert("eventlog", "qlik-messages", url_of(traced), "qlik.jsonl")
    assert f'"txId":{number}' in Path("debezium.jsonl").read_text()
    assert f"{number:032X}" in Path("qlik.jsonl").read_text()


def test_events_in_the_order_of_time_have_the_id(traced: sa.Engine, run: Run) -> None:
    number = changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    future = ("--set", "publisher.handle_future_events=true")
    assert transactions(published(run, *future)) == [{"id": str(number)}]


def test_a_consumers_snapshot_has_no_transaction_and_its_changes_have(
    traced: sa.Engine, run: Run
) -> None:
    changed(traced, "INSERT INTO usr VALUES (1, 'Ada')")
    copy = ("--set", "source.consumer=copy", "--set", "source.start_from=snapshot")
    assert transactions(published(run, *copy)) == [None]
    number = changed(traced, "INSERT INTO usr VALUES (2, 'Ben')")
    assert transactions(published(run, *copy)) == [{"id": str(number)}]
