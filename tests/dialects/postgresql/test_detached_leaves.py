"""Tables that are detached from a partitioned log: a purge drops those alone that it has recorded
(spec/event-log.md 14.3).
"""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from old_leaves import MEANS, Command, Findings, known, opened, remove
from shared import execute, fetch

from eventlog import cli
from eventlog.core.ranges import RecordSet

PURGE = ("purge", "--older-than", "3650d")
"""A purge that removes no row."""
LEAF = "hr.eventlog_2"
DETACH = f"ALTER TABLE hr.eventlog DETACH PARTITION {LEAF}"


def is_there(database: sa.Engine, table: str = LEAF) -> bool:
    return fetch(database, f"SELECT to_regclass('{table}') IS NOT NULL") == [(True,)]


def recorded(database: sa.Engine) -> list[tuple[Any, ...]]:
    return fetch(database, "SELECT content FROM hr.eventlog_state WHERE kind = 'detached'")


def detach_as_an_earlier_version(database: sa.Engine) -> None:
    """Remove a leaf without a record, with its range."""
    with opened(database) as log:
        remove(log, MEANS.leaves(log)[1])
    execute(database, "DELETE FROM hr.eventlog_state WHERE kind = 'detached'")


def test_a_purge_that_was_killed_after_it_detached_a_leaf_is_finished_by_the_next_one(
    partitioned: sa.Engine, command: Command
) -> None:
    with opened(partitioned) as log:
        remove(log, MEANS.leaves(log)[1])
    execute(partitioned, f"UPDATE {LEAF} SET status = 'N' WHERE record_id = 150")
    oid = fetch(partitioned, f"SELECT '{LEAF}'::regclass::oid::bigint")[0][0]
    assert recorded(partitioned) == [(f'{{"oid": {oid}, "name": "eventlog_2"}}',)]
    assert "detached" not in command(*PURGE)
    assert not is_there(partitioned)
    assert recorded(partitioned) == []
    waiting = "SELECT record_id FROM hr.eventlog WHERE status = 'N'"
    assert fetch(partitioned, waiting) == [(150,)]


def test_a_leaf_that_an_administrator_detached_is_named_and_stays(
    partitioned: sa.Engine, command: Command, findings: Findings
) -> None:
    execute(partitioned, f"UPDATE {LEAF} SET status = 'N' WHERE record_id IN (150, 151)", DETACH)
    assert command(*PURGE)["detached"] == ["eventlog_2"]
    assert command("purge", "--older-than", "30d", "--dry-run")["detached"] == ["eventlog_2"]
    assert fetch(partitioned, f"SELECT count(*) FROM {LEAF}") == [(100,)]
    assert "it has 2 rows that are not of status S or W" in findings()["detached_leaf"]
    execute(partitioned, f"COMMENT ON TABLE {LEAF} IS 'archive'")
    assert "detached_leaf" not in findings()
    assert "detached" not in command(*PURGE)
    assert is_there(partitioned)


def test_a_removed_leaf_that_was_restored_from_a_dump_stays(
    partitioned: sa.Engine, command: Command
) -> None:
    execute(partitioned, "CREATE TABLE dump AS SELECT * FROM hr.eventlog_2")
    with opened(partitioned) as log:
        remove(log, MEANS.leaves(log)[1])
    text = fetch(partitioned, f"SELECT obj_description('{LEAF}'::regclass)")[0][0]
    execute(
        partitioned,
        f"DROP TABLE {LEAF}",
        f"CREATE TABLE {LEAF} AS SELECT * FROM dump",
        f"COMMENT ON TABLE {LEAF} IS '{text}'",
    )
    assert len(recorded(partitioned)) == 1  # of the table that had this name
    assert command(*PURGE)["detached"] == ["eventlog_2"]
    assert command(*PURGE)["detached"] == ["eventlog_2"]
    assert fetch(partitioned, f"SELECT count(*) FROM {LEAF}") == [(100,)]


@pytest.mark.parametrize(
    "change",
    [
        f"ALTER TABLE {LEAF} RENAME TO archive",
        f"COMMENT ON TABLE {LEAF} IS 'archive'",
        f"ALTER TABLE hr.eventlog ATTACH PARTITION {LEAF} FOR VALUES FROM (-20) TO (-10)",
    ],
)
def test_a_removed_leaf_that_somebody_has_changed_to_keep_it_stays(
    partitioned: sa.Engine, command: Command, change: str
) -> None:
    with opened(partitioned) as log:
        remove(log, MEANS.leaves(log)[1])
    if "ATTACH" in change:  # the lowest leaf has all lower numbers
        execute(
            partitioned, "DELETE FROM hr.eventlog_2",
            "ALTER TABLE hr.eventlog DETACH PARTITION hr.eventlog_1",
        )  # fmt: skip
    execute(partitioned, change)
    command(*PURGE)
    assert recorded(partitioned) == []
    assert is_there(partitioned) or is_there(partitioned, "hr.archive")


def test_finish_drops_a_leaf_that_an_earlier_version_has_removed(
    partitioned: sa.Engine, command: Command
) -> None:
    detach_as_an_earlier_version(partitioned)
    execute(partitioned, f"UPDATE {LEAF} SET status = 'E' WHERE record_id = 150")
    report = command("purge", "--finish", "eventlog_2", "--dry-run")
    assert (report["unprocessed"], report["put_back"]) == (1, None)
    assert is_there(partitioned)
    assert command("purge", "--finish", "eventlog_2", "--yes")["put_back"] == 1
    assert not is_there(partitioned)
    assert recorded(partitioned) == []
    refused = "SELECT record_id FROM hr.eventlog WHERE status = 'E'"
    assert fetch(partitioned, refused) == [(150,)]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_row_that_is_put_back_keeps_its_transaction_id_or_has_none(
    partitioned: sa.Engine, is_older: bool
) -> None:
    """``is_older``: the table was restored from a dump of before the column."""
    assert cli.run(["--set", "database.transaction_ids=true", "db", "upgrade"]) == 0
    detach_as_an_earlier_version(partitioned)
    execute(
        partitioned, f"UPDATE {LEAF} SET status = 'E', transaction_id = 7 WHERE record_id = 150"
    )
    if is_older:
        execute(partitioned, f"ALTER TABLE {LEAF} DROP COLUMN transaction_id")
    assert cli.run(["purge", "--finish", "eventlog_2", "--yes"]) == 0
    put_back = "SELECT transaction_id FROM hr.eventlog WHERE record_id = 150"
    assert fetch(partitioned, put_back) == [(None if is_older else 7,)]


@pytest.mark.parametrize("name", ["usr", "eventlog_1", "eventlog", "nothing"])
def test_finish_drops_no_other_table(
    partitioned: sa.Engine, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(partitioned, DETACH)
    assert cli.run(["purge", "--finish", name, "--yes"]) == 2
    assert f"{name} is not a detached leaf of the log hr.eventlog" in capfd.readouterr().err
    assert is_there(partitioned)


def test_finish_takes_no_age(partitioned: sa.Engine) -> None:
    execute(partitioned, DETACH)
    assert cli.run(["purge", "--finish", "eventlog_2", "--older-than", "30d"]) == 2
    assert is_there(partitioned)


def test_finish_asks_first_on_a_terminal(
    partitioned: sa.Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    detach_as_an_earlier_version(partitioned)
    monkeypatch.setattr("eventlog.cli.context.sees_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert cli.run(["purge", "--finish", "eventlog_2"]) == 1
    assert "This drops the table eventlog_2" in capfd.readouterr().err
    assert is_there(partitioned)


def test_finish_changes_nothing_if_a_row_has_no_leaf_to_go_back_to(
    partitioned: sa.Engine, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(partitioned, f"UPDATE {LEAF} SET status = 'N' WHERE record_id = 150", DETACH)
    assert cli.run(["purge", "--finish", "eventlog_2", "--yes"]) == 1
    assert "ATTACH PARTITION" in capfd.readouterr().err
    assert command(*PURGE)["detached"] == ["eventlog_2"]
    assert fetch(partitioned, f"SELECT count(*) FROM {LEAF}") == [(100,)]


@pytest.mark.parametrize("row", [101, 150, 200], ids=["first", "inner", "last"])
def test_finish_keeps_a_row_that_a_consumer_has_not_processed(
    partitioned: sa.Engine, capfd: pytest.CaptureFixture[str], row: int
) -> None:
    execute(
        partitioned,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', "
        f"'{RecordSet(row - 1, [(row + 1, 350)]).encode()}')",
        DETACH,
    )
    assert cli.run(["purge", "--finish", "eventlog_2", "--yes"]) == 2
    assert f"consumer search has not processed row {row}" in capfd.readouterr().err
    assert is_there(partitioned)


def test_a_detached_leaf_stays_while_the_log_becomes_a_table_and_leaves_again(
    partitioned: sa.Engine, command: Command
) -> None:
    execute(
        partitioned,
        DETACH,
        "ALTER TABLE hr.eventlog DETACH PARTITION hr.eventlog_1",  # the lowest one has the CHECK
    )
    assert command("db", "unpartition")["copied"] == 50
    command("db", "partition", "--leaf-size", "100")
    assert known(partitioned) == [(None, 351), (351, 451), (451, None)]
    assert command(*PURGE)["detached"] == ["eventlog_1", "eventlog_2"]
    command("db", "downgrade", "base", "--yes")
    left = "SELECT relname FROM pg_class WHERE relname ~ '^eventlog' AND relkind = 'r' ORDER BY 1"
    assert fetch(partitioned, left) == [("eventlog_1",), ("eventlog_2",)]


def test_a_role_that_may_not_read_a_detached_leaf_is_shown_its_name(
    partitioned: sa.Engine, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"monitor_{partitioned.url.database}"
    execute(
        partitioned,
        DETACH,
        f"CREATE ROLE {user} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA hr TO {user}",
    )
    for table in fetch(
        partitioned, "SELECT format('%I.%I', 'hr', relname) FROM pg_class WHERE relname ~ "
        "'^eventlog($|_[a-z]+$)' AND relkind IN ('r', 'p')"
    ):  # fmt: skip
        execute(partitioned, f"GRANT SELECT ON {table[0]} TO {user}")
    url = partitioned.url.set(username=user, password="x").render_as_string(hide_password=False)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    assert "this role may not read it" in findings()["detached_leaf"]
    execute(partitioned, f"DROP OWNED BY {user}; DROP ROLE {user}")
