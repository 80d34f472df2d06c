"""The event log on a real server: opened, read, marked, locked (spec/event-log.md 1, 5, 8, 10, 11, 12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from eventlog.core.catalog import build_catalog
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import LogRow
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.locate import check_rights, locate_log
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import (
    RefusedRow,
    Requeued,
    add_errors,
    count_by_status,
    next_flight,
    read_inflight,
    requeue,
    strike_inflight,
    tail,
    update_inflight,
    write_inflight,
)
from eventlog.sql.windows import Window, to_ranges

EVERYTHING = Window(first=0, last=None, limit=None)


def write(conn: Connection, *rows: tuple[int, str], **fields: object) -> None:
    """Rows of the log: record_id and status each, further fields for all of them."""
    values = {"event_type": 6, "table_name": "usr", "table_key": "idu=1"} | fields
    names = ", ".join(values)
    binds = ", ".join(f":{name}" for name in values)
    statement = sa.text(f"INSERT INTO eventlog (record_id, status, {names}) VALUES (:id, :status, {binds})")
    for record_id, status in rows:
        conn.execute(statement, {"id": record_id, "status": status} | values)


def ids(rows: list[LogRow]) -> list[int]:
    return [row.record_id for row in rows]


def statuses(conn: Connection) -> dict[int, str]:
    return {row[0]: row[1] for row in conn.execute(sa.text("SELECT record_id, status FROM eventlog"))}


# Reading


def test_a_row_comes_with_its_ten_fields(conn: Connection, opened: LogTable) -> None:
    write(
        conn,
        (7, "N"),
        event_type=2,
        event_time="2024-05-06 07:08:09.5",
        perpetrator="app",
        column_name="fname",
        old_value=None,
        new_value="O'Brien \\ % {x} \u2603",
    )
    assert DIALECT.read_window(conn, opened, EVERYTHING) == [
        LogRow(7, "N", 2, "2024-05-06 07:08:09.5", "app", "usr", "idu=1", "fname", None, "O'Brien \\ % {x} \u2603")
    ]
    assert type(DIALECT.read_window(conn, opened, EVERYTHING)[0]) is LogRow


def test_only_rows_n_are_read_in_record_id_order(conn: Connection, opened: LogTable) -> None:
    write(conn, (5, "N"), (1, "S"), (4, "W"), (3, "N"), (2, "E"), (6, "n"), (8, "F"), (7, "N"), (9, "X"))
    assert ids(DIALECT.read_window(conn, opened, EVERYTHING)) == [3, 5, 7]


def test_rows_without_a_positive_record_id_are_left_alone(conn: Connection, opened: LogTable) -> None:
    write(conn, (-3, "N"), (0, "N"), (2**63 - 1, "N"))
    assert ids(DIALECT.read_window(conn, opened, EVERYTHING)) == [2**63 - 1]
    assert tail(conn, opened) == 2**63 - 1


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(0, None, None), [2, 3, 5, 8]),
        (Window(3, None, None), [3, 5, 8]),
        (Window(3, 5, None), [3, 5]),
        (Window(0, None, 2), [2, 3]),
        (Window(4, 8, 1), [5]),
        (Window(9, None, 10), []),
        (Window(0, None, 0), []),
        (Window(0, None, None, leave_user="eventlog"), [2, 3, 8]),
        (Window(0, None, 3, leave_user="eventlog  "), [2, 3, 8]),
        (Window(0, None, None, leave_user="Eventlog"), [2, 3, 5, 8]),
    ],
)
def test_a_window_is_bounded(conn: Connection, opened: LogTable, window: Window, expected: list[int]) -> None:
    write(conn, (2, "N"), perpetrator=None)
    write(conn, (3, "N"), (8, "N"), perpetrator="app")
    write(conn, (5, "N"), perpetrator="eventlog ")
    assert ids(DIALECT.read_window(conn, opened, window)) == expected


def test_rows_are_read_by_id_whatever_their_status(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "S"), (3, "E"), (4, "N"), (9, "X"))
    rows = DIALECT.read_rows(conn, opened, [(9, 9), (2, 3), (20, 30)])
    assert [(row.record_id, row.status) for row in rows] == [(2, "S"), (3, "E"), (9, "X")]
    assert DIALECT.read_rows(conn, opened, []) == []


def test_the_tail_is_the_highest_row_n(conn: Connection, opened: LogTable) -> None:
    assert tail(conn, opened) is None
    write(conn, (1, "N"), (5, "N"), (6, "S"))
    assert tail(conn, opened) == 5


def test_the_queue_is_counted_and_its_age_told(conn: Connection, opened: LogTable) -> None:
    assert DIALECT.queue(conn, opened, "utc") == (0, None)
    write(conn, (1, "S"), event_time="1999-01-01")
    write(conn, (2, "N"), event_time="infinity")
    assert DIALECT.queue(conn, opened, "utc") == (1, None)
    conn.execute(sa.text("UPDATE eventlog SET event_time = localtimestamp - interval '1 hour' WHERE status = 'N'"))
    rows, age = DIALECT.queue(conn, opened, "local")
    assert (rows, round(age or 0, -2)) == (1, 3600)
    assert count_by_status(conn, opened) == {"N": 1, "S": 1}


# Marking


@pytest.mark.parametrize("letter", ["S", "W", "E", "F"])
def test_marks_name_exactly_the_rows_of_the_ranges(conn: Connection, opened: LogTable, letter: str) -> None:
    write(conn, *((record_id, "N") for record_id in range(1, 11)))
    assert DIALECT.mark(conn, opened, letter, [(2, 3), (7, 7), (50, 60)]) == 3
    assert [record_id for record_id, status in statuses(conn).items() if status == letter] == [2, 3, 7]


def test_only_rows_that_are_still_n_are_marked_or_deleted(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "E"), (3, "X"), (4, "N"))
    assert DIALECT.mark(conn, opened, "S", [(1, 3)]) == 1
    assert DIALECT.delete(conn, opened, [(1, 4)]) == 1
    assert statuses(conn) == {1: "S", 2: "E", 3: "X"}
    assert DIALECT.mark(conn, opened, "S", []) == 0


def test_what_is_marked_is_not_committed_by_us(engine: Engine, conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"))
    conn.commit()
    DIALECT.mark(conn, opened, "S", [(1, 1)])
    add_errors(conn, opened, [(1, "receiver", "no")])
    write_inflight(conn, opened, 1, "[]")
    conn.rollback()
    assert statuses(conn) == {1: "N"}
    assert read_inflight(conn, opened) == []
    assert conn.execute(sa.text("SELECT count(*) FROM eventlog_error")).scalar() == 0


def test_a_row_that_another_session_took_meanwhile_is_not_marked(
    engine: Engine, conn: Connection, opened: LogTable
) -> None:
    write(conn, (1, "N"), (2, "N"))
    conn.commit()
    DIALECT.mark(conn, opened, "E", [(1, 1)])
    with engine.connect() as other:
        other.execute(sa.text("SET lock_timeout = '100ms'"))
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            DIALECT.mark(other, opened, "S", [(1, 2)])
        other.rollback()
        conn.commit()
        assert DIALECT.mark(other, opened, "S", [(1, 2)]) == 1


def test_what_is_read_back_is_planned_as_before(conn: Connection, opened: LogTable) -> None:
    conn.execute(
        sa.text("CREATE VIEW v AS SELECT 1 AS pk_n, current_setting('enable_sort') AS sort, current_setting("
                "'enable_seqscan') AS seqscan")
    )  # fmt: skip
    catalog = build_catalog(DIALECT.reflect(conn, None), tables=["v"])
    conn.commit()
    conn.execute(sa.text("SET LOCAL enable_sort = off"))
    DIALECT.read_window(conn, opened, EVERYTHING)
    cls = catalog.class_named("v")
    for _ in range(2):
        assert DIALECT.query_back(conn, None, cls, ["pk_n=1"], cls.attributes)["pk_n=1"]["sort"] == ["off"]
        assert DIALECT.query_back(conn, None, cls, ["pk_n=1"], cls.attributes)["pk_n=1"]["seqscan"] == ["on"]
        DIALECT.mark(conn, opened, "S", [(1, 1)])
    conn.rollback()
    shown = [conn.execute(sa.text(f"SHOW {name}")).scalar() for name in ("enable_sort", "enable_seqscan")]
    assert shown == ["on", "on"]


@contextmanager
def statements(conn: Connection) -> Iterator[list[str]]:
    """The statements that the connection runs within the block."""
    run: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        run.append(statement)

    sa.event.listen(conn, "before_cursor_execute", note)
    try:
        yield run
    finally:
        sa.event.remove(conn, "before_cursor_execute", note)


def test_the_plans_of_a_transaction_are_chosen_once(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "N"))
    conn.commit()
    with statements(conn) as run:
        DIALECT.read_window(conn, opened, EVERYTHING)
        DIALECT.mark(conn, opened, "S", [(1, 1)])
        DIALECT.delete(conn, opened, [(2, 2)])
        assert len(run) == 4
        conn.commit()
        DIALECT.mark(conn, opened, "S", [(1, 1)])
        assert len(run) == 6
        conn.rollback()
        with conn.begin():
            savepoint = conn.begin_nested()
            DIALECT.mark(conn, opened, "S", [(1, 1)])
            savepoint.rollback()
            DIALECT.mark(conn, opened, "S", [(1, 1)])
    assert sum("set_config" in statement for statement in run) == 4


def test_an_error_between_two_chunks_is_the_one_that_is_raised(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "N"), (3, "N"))

    def leave_half_way() -> None:
        with closing(DIALECT.window_chunks(conn, opened, EVERYTHING, 1)) as chunks:
            next(chunks)
            conn.execute(sa.text("SELECT * FROM no_such_table"))

    with pytest.raises(sa.exc.ProgrammingError, match="no_such_table"):
        leave_half_way()


def test_chunks_that_are_left_close_their_cursor(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "N"), (3, "N"))
    for _ in range(2):  # a cursor of this name that were open would be in the way
        with closing(DIALECT.window_chunks(conn, opened, EVERYTHING, 1)) as chunks:
            assert ids(next(chunks)) == [1]


# Plans


def plan(conn: Connection, opened: LogTable, name: str, parameters: dict[str, object]) -> str:
    """The plan of a statement as it is run. The log's indexes are all that it may use."""
    DIALECT.choose_plans(conn)
    rows = conn.exec_driver_sql("EXPLAIN " + DIALECT.log_statement(opened, name), parameters)
    return "\n".join(row[0] for row in rows)


STATISTICS = {
    "never analyzed": "",
    "analyzed when all is done": "UPDATE eventlog SET status = 'S'; ANALYZE eventlog; UPDATE eventlog SET status = 'N'",
    "analyzed when all is new": "ANALYZE eventlog; UPDATE eventlog SET status = 'S' WHERE record_id > 100",
    "analyzed": "UPDATE eventlog SET status = 'S' WHERE record_id % 100 <> 0; ANALYZE eventlog",
}


@pytest.mark.parametrize("statistics", STATISTICS)
def test_the_hot_statements_walk_an_index_whatever_the_statistics(
    conn: Connection, opened: LogTable, statistics: str
) -> None:
    conn.execute(sa.text("ALTER TABLE eventlog SET (autovacuum_enabled = false)"))
    conn.execute(
        sa.text(
            "INSERT INTO eventlog (event_type, table_name, table_key, new_value)"
            " SELECT 1, 'usr', 'idu=' || n, repeat('x', 20) FROM generate_series(1, 200000) AS n"
        )
    )
    for statement in STATISTICS[statistics].split(";"):
        if statement:
            conn.execute(sa.text(statement))
    window = {"first": 1, "last": 2**63 - 1, "limit": 10_000}
    ten_thousand = {"lo": list(range(1, 20_000, 2)), "hi": list(range(1, 20_000, 2))}
    one = {"lo": [5], "hi": [5]}
    for name, parameters in [
        ("read_window", window),
        ("read_window", window | {"limit": 2**62}),
        ("read_window_left", window | {"perpetrator": "eventlog"}),
        ("mark", ten_thousand | {"letter": "S"}),
        ("mark", one | {"letter": "S"}),
        ("delete", ten_thousand),
        ("read_rows", ten_thousand),
        ("read_rows", one),
    ]:
        shown = plan(conn, opened, name, dict(parameters))
        assert "Seq Scan" not in shown, shown
        assert "Sort" not in shown, shown
        assert "Index" in shown, shown
        if name.startswith("read_window"):
            assert "idx_eventlog_1" in shown, shown


def test_an_empty_log_is_read_by_index_too(conn: Connection, opened: LogTable) -> None:
    assert "idx_eventlog_1" in plan(conn, opened, "read_window", {"first": 1, "last": 9, "limit": 5})
    assert "Seq Scan" not in plan(conn, opened, "mark", {"lo": [1], "hi": [9], "letter": "S"})


# Opening


def test_a_log_is_found_by_its_schema_and_without_case(conn: Connection) -> None:
    conn.execute(sa.text('CREATE SCHEMA "Other"'))
    migrations.upgrade(conn, log_table="Log", schema="Other")
    for name, schema in [('"Other".Log', None), ("Other.Log", "public"), ("log", "Other"), ("LOG", "Other")]:
        assert (found := locate_log(conn, DIALECT, name=name, schema=schema)).name == "Log"
        assert found.schema == "Other"
    assert locate_log(conn, DIALECT, name="EVENTLOG") == locate_log(conn, DIALECT, name="public.eventlog")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE eventlog", "no log table 'eventlog' in schema 'public': make it with `eventlog db upgrade`"),
        ("DROP TABLE eventlog_error", "no companion table public.eventlog_error: make it with `eventlog db upgrade`"),
        ("DROP TABLE eventlog_inflight", "no companion table public.eventlog_inflight"),
        (
            "ALTER TABLE eventlog ALTER COLUMN perpetrator TYPE integer USING 1",
            'log table public.eventlog: column "perpetrator" cannot be perpetrator: integer, character needed',
        ),
        (
            "ALTER TABLE eventlog DROP COLUMN new_value",
            "log table public.eventlog: the log has 9 columns, so none at position 10 can be new_value",
        ),
    ],
)
def test_a_log_that_lacks_something_is_refused(conn: Connection, statement: str, message: str) -> None:
    conn.execute(sa.text(statement))
    with pytest.raises(LogTableError) as refused:
        locate_log(conn, DIALECT, name="eventlog")
    assert message in str(refused.value)


GRANTS = {
    "USAGE on schema public": "GRANT USAGE ON SCHEMA public TO PUBLIC",
    "SELECT on table eventlog": "GRANT SELECT ON eventlog TO PUBLIC",
    "DELETE on table eventlog": "GRANT DELETE ON eventlog TO PUBLIC",
    "UPDATE on column status of table eventlog": "GRANT UPDATE (status) ON eventlog TO PUBLIC",
    "INSERT on table eventlog_error": "GRANT INSERT ON eventlog_error TO PUBLIC",
    "DELETE on table eventlog_inflight": "GRANT ALL ON eventlog_inflight TO PUBLIC",
    "USAGE on sequence eventlog_flight": "GRANT USAGE ON SEQUENCE eventlog_flight TO PUBLIC",
}


def locate_with_rights(conn: Connection) -> LogTable:
    log = locate_log(conn, DIALECT, name="eventlog", schema="public")
    check_rights(conn, DIALECT, log, delete=True)
    return log


def test_every_right_that_is_missing_is_named_until_there_is_none(conn: Connection) -> None:
    conn.execute(sa.text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
    # SET ROLE to a role that the server has anyway, and that owns nothing
    for right, grant in GRANTS.items():
        conn.execute(sa.text("SET ROLE pg_monitor"))
        with pytest.raises(LogTableError, match=right) as refused, conn.begin_nested():
            locate_with_rights(conn)
        assert "have its owner grant" in str(refused.value)
        conn.execute(sa.text("RESET ROLE"))
        conn.execute(sa.text(grant))
    conn.execute(sa.text("SET ROLE pg_monitor"))
    opened = locate_with_rights(conn)
    # and they are enough
    flight = next_flight(conn, opened)
    write_inflight(conn, opened, flight, "{}")
    update_inflight(conn, opened, flight, "[]")
    assert read_inflight(conn, opened) == [(flight, "[]")]
    strike_inflight(conn, opened, flight)
    add_errors(conn, opened, [(1, "receiver", "no")])
    assert DIALECT.read_window(conn, opened, EVERYTHING) == []
    assert DIALECT.mark(conn, opened, "S", [(1, 9)]) == DIALECT.delete(conn, opened, [(1, 9)]) == 0


# A log that somebody else made


FOREIGN = """CREATE TABLE foreign_log (
    rid numeric(38), tkey char(20), st char(4), et numeric(2), at timestamptz,
    who varchar(10), tab char(10), col text, ov text, nv text)"""


def test_a_log_of_another_layout_and_other_types_works_alike(conn: Connection) -> None:
    conn.execute(sa.text(FOREIGN))
    migrations.upgrade(conn, log_table="foreign_log", companions_only=True)
    opened = locate_log(conn, DIALECT, name="foreign_log", layout="3.5")
    assert opened.columns == ("rid", "st", "et", "at", "who", "tab", "tkey", "col", "ov", "nv")
    insert = sa.text(
        "INSERT INTO foreign_log (rid, st, et, tkey, tab, who, at)"
        " VALUES (:rid, :st, CAST(:et AS numeric), 'idu=1', 'usr', 'eventlog', '2024-05-06 09:08:09+02')"
    )
    for rid, st, et in [(3, "N", "4"), (1, "N", None), (2, "N", "NaN"), (None, "N", "1"), (4, "S", "1"), (0, "N", "1")]:
        conn.execute(insert, {"rid": rid, "st": st, "et": et})
    conn.execute(insert, {"rid": 2**63, "st": "N", "et": "1"})
    rows = DIALECT.read_window(conn, opened, EVERYTHING)
    assert [(type(row.record_id), *row[:3]) for row in rows] == [
        (int, 1, "N", None),
        (int, 2, "N", 0),
        (int, 3, "N", 4),
    ]
    assert rows[2][3:7] == ("2024-05-06 07:08:09+00", "eventlog", "usr", "idu=1")
    assert DIALECT.read_window(conn, opened, Window(0, None, None, "eventlog")) == []
    assert DIALECT.mark(conn, opened, "S", [(1, 2)]) == 2
    assert ids(DIALECT.read_rows(conn, opened, to_ranges([1, 3, 4]))) == [1, 3, 4]
    assert DIALECT.delete(conn, opened, [(1, 9)]) == 1
    assert DIALECT.queue(conn, opened, "utc").rows == 3  # those that cannot be addressed
    assert count_by_status(conn, opened) == {"N": 3, "S": 3}


def test_names_that_attack_the_statements_are_only_names(conn: Connection) -> None:
    name = 'l"; DROP TABLE eventlog; -- %s %% {x} :y'
    columns = [f'{field} "%s {{0}} :z' for field in LogRow._fields]
    quoted = ['"' + column.replace('"', '""') + '"' for column in columns]
    types = ["bigint", "char(1)", "smallint", "timestamp", *["text"] * 6]
    table = '"' + name.replace('"', '""') + '"'
    body = ", ".join(f"{column} {sql}" for column, sql in zip(quoted, types, strict=True))
    conn.connection.cursor().execute(f"CREATE TABLE {table} ({body})")
    migrations.upgrade(conn, log_table=table, companions_only=True)
    opened = locate_log(conn, DIALECT, name=name)
    conn.connection.cursor().execute(f"INSERT INTO {table} ({', '.join(quoted[:3])}) VALUES (1, 'N', 2), (2, 'N', 2)")
    assert ids(DIALECT.read_window(conn, opened, Window(0, None, None, "x"))) == [1, 2]
    assert DIALECT.mark(conn, opened, "E", [(1, 1)]) == DIALECT.delete(conn, opened, [(1, 2)]) == 1
    assert requeue(conn, opened, "E").set_back == 1
    assert tail(conn, opened) == 1
    write_inflight(conn, opened, next_flight(conn, opened), "{}")
    add_errors(conn, opened, [(1, "receiver", "no")])
    assert DIALECT.try_lock(conn, opened)


# Companions


def test_flights_are_numbered_without_going_back(conn: Connection, opened: LogTable) -> None:
    first = next_flight(conn, opened)
    conn.rollback()
    assert next_flight(conn, opened) > first


def test_inflight_lines_are_kept_in_order_until_struck(conn: Connection, opened: LogTable) -> None:
    one, two = next_flight(conn, opened), next_flight(conn, opened)
    write_inflight(conn, opened, two, '{"b": "%s {0} :x \u2603"}')
    write_inflight(conn, opened, one, '{"a": 1}')
    assert read_inflight(conn, opened) == [(one, '{"a": 1}'), (two, '{"b": "%s {0} :x \u2603"}')]
    update_inflight(conn, opened, one, "{}")
    strike_inflight(conn, opened, two)
    assert read_inflight(conn, opened) == [(one, "{}")]


def test_error_messages_hold_what_a_text_column_takes(conn: Connection, opened: LogTable) -> None:
    add_errors(conn, opened, [(1, "bad_value", "a\0b"), (2, "receiver", "\ud800 %s :x"), (2, "receiver", "again")])
    add_errors(conn, opened, [])
    rows = conn.execute(sa.text("SELECT record_id, code, message FROM eventlog_error")).all()
    assert rows == [(1, "bad_value", "a\ufffdb"), (2, "receiver", "? %s :x"), (2, "receiver", "again")]


# Requeue


def test_e_and_f_go_back_to_their_old_place(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "E"), (2, "F"), (3, "S"), (4, "N"), (5, "X"))
    assert requeue(conn, opened, "EF") == Requeued(2, 0, ())
    assert statuses(conn) == {1: "N", 2: "N", 3: "S", 4: "N", 5: "X"}


def test_w_and_s_are_logged_anew_in_their_order(conn: Connection, opened: LogTable) -> None:
    conn.execute(sa.text("ALTER TABLE eventlog ALTER COLUMN record_id RESTART WITH 100"))
    write(conn, (2, "S"), (3, "W"), event_type=4, perpetrator="app", event_time="2024-05-06 07:08:09")
    write(conn, (1, "W"), (4, "E"), event_type=4, perpetrator="app", event_time="2024-05-06 07:08:09")
    assert requeue(conn, opened, ["S", "W"], [(1, 2), (3, 3)]) == Requeued(0, 3, ())
    assert statuses(conn) == {1: "W", 2: "S", 3: "W", 4: "E", 100: "N", 101: "N", 102: "N"}
    assert {row[2:] for row in DIALECT.read_rows(conn, opened, [(100, 102)])} == {
        (4, "2024-05-06 07:08:09", "app", "usr", "idu=1", None, None, None)
    }


def test_rows_that_would_bring_old_values_back_are_named_and_refused(conn: Connection, opened: LogTable) -> None:
    for event_type, key in [(1, "idu=1"), (2, "idu=2"), (3, "idu=3"), (6, "idu=4"), (2, "idu=5"), (2, "idu=6")]:
        write(conn, (event_type * 10 + int(key[-1]), "E"), event_type=event_type, table_key=key)
    for later, status, key in [(91, "S", 1), (92, "W", 2), (93, "S", 3), (94, "S", 4), (95, "E", 5), (96, "N", 6)]:
        write(conn, (later, status), table_key=f"idu={key}")
    write(conn, (97, "S"), table_key="idu=5", table_name="another")
    refused = tuple(
        RefusedRow(record_id, event_type, "usr", key)
        for record_id, event_type, key in [(11, 1, "idu=1"), (22, 2, "idu=2"), (33, 3, "idu=3")]
    )
    assert requeue(conn, opened, "E") == Requeued(4, 0, refused)
    assert statuses(conn)[11] == "E"
    assert requeue(conn, opened, "E", force=True) == Requeued(3, 0, ())
    assert statuses(conn)[11] == "N"


def test_the_later_row_of_a_copied_object_refuses_its_copy(conn: Connection, opened: LogTable) -> None:
    conn.execute(sa.text("ALTER TABLE eventlog ALTER COLUMN record_id RESTART WITH 100"))
    write(conn, (1, "S"), (2, "S"), event_type=2)
    assert requeue(conn, opened, "S", [(1, 1)]) == Requeued(0, 0, (RefusedRow(1, 2, "usr", "idu=1"),))
    assert requeue(conn, opened, "S", [(2, 2)]).copied == 1


def test_only_done_rows_can_be_requeued(conn: Connection, opened: LogTable) -> None:
    with pytest.raises(ConfigError, match="status 'N' cannot be requeued"):
        requeue(conn, opened, "EN")
    assert requeue(conn, opened, "EFSW", []) == Requeued(0, 0, ())
