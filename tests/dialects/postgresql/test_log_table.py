"""The event log on a real server: read, marked, queued again (spec/event-log.md 1, 5, 8, 10,
11).
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from shared import opened_log
from sqlalchemy import Connection, Engine
from written_log import EVERYTHING, ids, statuses, write

from eventlog.errors import ConfigError
from eventlog.model import LogRow
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log.errors import add_errors
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    replace_content,
)
from eventlog.sql.log.requeue import RefusedRow, Requeued, requeue
from eventlog.sql.log.rows import count_by_status, tail
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_log import OpenLog

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
    assert DIALECT.open(conn).log(opened).read_window(EVERYTHING) == [
        LogRow(
            7,
            "N",
            2,
            "2024-05-06 07:08:09.5",
            "app",
            "usr",
            "idu=1",
            "fname",
            None,
            "O'Brien \\ % {x} \u2603",
        )
    ]
    assert type(DIALECT.open(conn).log(opened).read_window(EVERYTHING)[0]) is LogRow


def test_only_rows_n_are_read_in_record_id_order(conn: Connection, opened: LogTable) -> None:
    write(
        conn,
        (5, "N"),
        (1, "S"),
        (4, "W"),
        (3, "N"),
        (2, "E"),
        (6, "n"),
        (8, "F"),
        (7, "N"),
        (9, "X"),
    )
    assert ids(DIALECT.open(conn).log(opened).read_window(EVERYTHING)) == [3, 5, 7]


def test_rows_without_a_positive_record_id_are_left_alone(
    conn: Connection, opened: LogTable
) -> None:
    write(conn, (-3, "N"), (0, "N"), (2**63 - 1, "N"))
    assert ids(DIALECT.open(conn).log(opened).read_window(EVERYTHING)) == [2**63 - 1]
    assert tail(opened_log(conn, opened)) == 2**63 - 1


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
        (Window(0, None, None, skipped_user="eventlog"), [2, 3, 8]),
        (Window(0, None, 3, skipped_user="eventlog  "), [2, 3, 8]),
        (Window(0, None, None, skipped_user="Eventlog"), [2, 3, 5, 8]),
    ],
)
def test_a_window_is_bounded(
    conn: Connection, opened: LogTable, window: Window, expected: list[int]
) -> None:
    write(conn, (2, "N"), perpetrator=None)
    write(conn, (3, "N"), (8, "N"), perpetrator="app")
    write(conn, (5, "N"), perpetrator="eventlog ")
    assert ids(DIALECT.open(conn).log(opened).read_window(window)) == expected


def test_rows_are_read_by_id_whatever_their_status(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "N"), (2, "S"), (3, "E"), (4, "N"), (9, "X"))
    rows = DIALECT.open(conn).log(opened).read_rows([(9, 9), (2, 3), (20, 30)])
    assert [(row.record_id, row.status) for row in rows] == [(2, "S"), (3, "E"), (9, "X")]
    assert DIALECT.open(conn).log(opened).read_rows([]) == []


def test_the_tail_is_the_highest_row_n(conn: Connection, opened: LogTable) -> None:
    assert tail(opened_log(conn, opened)) is None
    write(conn, (1, "N"), (5, "N"), (6, "S"))
    assert tail(opened_log(conn, opened)) == 5


def test_the_queue_is_counted_and_its_age_reported(conn: Connection, opened: LogTable) -> None:
    assert DIALECT.open(conn).log(opened).queue("utc") == (0, None)
    write(conn, (1, "S"), event_time="1999-01-01")
    write(conn, (2, "N"), event_time="infinity")
    assert DIALECT.open(conn).log(opened).queue("utc") == (1, None)
    conn.execute(
        sa.text(
            "UPDATE eventlog SET event_time = localtimestamp - interval '1 hour' WHERE status = 'N'"
        )
    )
    rows, age = DIALECT.open(conn).log(opened).queue("local")
    assert (rows, round(age or 0, -2)) == (1, 3600)
    assert count_by_status(opened_log(conn, opened)) == {"N": 1, "S": 1}


# Marking


@pytest.mark.parametrize("letter", ["S", "W", "E", "F"])
def test_marks_name_exactly_the_rows_of_the_ranges(
    conn: Connection, opened: LogTable, letter: str
) -> None:
    write(conn, *((record_id, "N") for record_id in range(1, 11)))
    assert DIALECT.open(conn).log(opened).mark(letter, [(2, 3), (7, 7), (50, 60)]) == 3
    assert [record_id for record_id, status in statuses(conn).items() if status == letter] == [
        2,
        3,
        7,
    ]


def test_only_rows_that_are_still_n_are_marked_or_deleted(
    conn: Connection, opened: LogTable
) -> None:
    write(conn, (1, "N"), (2, "E"), (3, "X"), (4, "N"))
    assert DIALECT.open(conn).log(opened).mark("S", [(1, 3)]) == 1
    assert DIALECT.open(conn).log(opened).delete([(1, 4)]) == 1
    assert statuses(conn) == {1: "S", 2: "E", 3: "X"}
    assert DIALECT.open(conn).log(opened).mark("S", []) == 0


def test_what_is_marked_is_not_committed_by_us(
    engine: Engine, conn: Connection, opened: LogTable
) -> None:
    write(conn, (1, "N"))
    conn.commit()
    DIALECT.open(conn).log(opened).mark("S", [(1, 1)])
    add_errors(opened_log(conn, opened), [(1, "receiver", "no")])
    add_entry(opened_log(conn, opened), EntryKind.DELIVERY, 1, "[]")
    conn.rollback()
    assert statuses(conn) == {1: "N"}
    assert _in_flight(opened_log(conn, opened)) == []
    assert conn.execute(sa.text("SELECT count(*) FROM eventlog_error")).scalar() == 0


def test_a_row_that_another_session_took_meanwhile_is_not_marked(
    engine: Engine, conn: Connection, opened: LogTable
) -> None:
    write(conn, (1, "N"), (2, "N"))
    conn.commit()
    DIALECT.open(conn).log(opened).mark("E", [(1, 1)])
    with engine.connect() as other:
        other.execute(sa.text("SET lock_timeout = '100ms'"))
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            DIALECT.open(other).log(opened).mark("S", [(1, 2)])
        other.rollback()
        conn.commit()
        assert DIALECT.open(other).log(opened).mark("S", [(1, 2)]) == 1


# Internal tables


def test_deliveries_are_numbered_without_going_back(conn: Connection, opened: LogTable) -> None:
    first = next_number(opened_log(conn, opened))
    conn.rollback()
    assert next_number(opened_log(conn, opened)) > first


def test_inflight_lines_are_kept_in_order_until_struck(conn: Connection, opened: LogTable) -> None:
    one, two = next_number(opened_log(conn, opened)), next_number(opened_log(conn, opened))
    add_entry(opened_log(conn, opened), EntryKind.DELIVERY, two, '{"b": "%s {0} :x \u2603"}')
    add_entry(opened_log(conn, opened), EntryKind.DELIVERY, one, '{"a": 1}')
    assert _in_flight(opened_log(conn, opened)) == [
        (one, '{"a": 1}'),
        (two, '{"b": "%s {0} :x \u2603"}'),
    ]
    replace_content(opened_log(conn, opened), EntryKind.DELIVERY, one, "{}")
    delete_entry(opened_log(conn, opened), EntryKind.DELIVERY, two)
    assert _in_flight(opened_log(conn, opened)) == [(one, "{}")]


def test_error_messages_hold_what_a_text_column_takes(conn: Connection, opened: LogTable) -> None:
    add_errors(
        opened_log(conn, opened),
        [(1, "bad_value", "a\0b"), (2, "receiver", "\ud800 %s :x"), (2, "receiver", "again")],
    )
    add_errors(opened_log(conn, opened), [])
    rows = conn.execute(sa.text("SELECT record_id, code, message FROM eventlog_error")).all()
    assert rows == [
        (1, "bad_value", "a\ufffdb"),
        (2, "receiver", "? %s :x"),
        (2, "receiver", "again"),
    ]


# Requeue


def test_e_and_f_go_back_to_their_old_place(conn: Connection, opened: LogTable) -> None:
    write(conn, (1, "E"), (2, "F"), (3, "S"), (4, "N"), (5, "X"))
    assert requeue(opened_log(conn, opened), "EF") == Requeued(2, 0, ())
    assert statuses(conn) == {1: "N", 2: "N", 3: "S", 4: "N", 5: "X"}


def test_w_and_s_are_logged_again_in_their_order(conn: Connection, opened: LogTable) -> None:
    conn.execute(sa.text("ALTER TABLE eventlog ALTER COLUMN record_id RESTART WITH 100"))
    write(
        conn, (2, "S"), (3, "W"), event_type=4, perpetrator="app", event_time="2024-05-06 07:08:09"
    )
    write(
        conn, (1, "W"), (4, "E"), event_type=4, perpetrator="app", event_time="2024-05-06 07:08:09"
    )
    assert requeue(opened_log(conn, opened), ["S", "W"], [(1, 2), (3, 3)]) == Requeued(0, 3, ())
    assert statuses(conn) == {1: "W", 2: "S", 3: "W", 4: "E", 100: "N", 101: "N", 102: "N"}
    copies = DIALECT.open(conn).log(opened).read_rows([(100, 102)])
    assert {(row.event_type, *row[4:]) for row in copies} == {
        (4, "app", "usr", "idu=1", None, None, None, None)
    }
    assert min(str(row.event_time) for row in copies) > "2026"  # the present time


def test_rows_that_would_bring_old_values_back_are_named_and_refused(
    conn: Connection, opened: LogTable
) -> None:
    for event_type, key in [
        (1, "idu=1"),
        (2, "idu=2"),
        (3, "idu=3"),
        (6, "idu=4"),
        (2, "idu=5"),
        (2, "idu=6"),
    ]:
        write(conn, (event_type * 10 + int(key[-1]), "E"), event_type=event_type, table_key=key)
    for later, status, key in [
        (91, "S", 1),
        (92, "W", 2),
        (93, "S", 3),
        (94, "S", 4),
        (95, "E", 5),
        (96, "N", 6),
    ]:
        write(conn, (later, status), table_key=f"idu={key}")
    write(conn, (97, "S"), table_key="idu=5", table_name="another")
    refused = tuple(
        RefusedRow(record_id, event_type, "usr", key)
        for record_id, event_type, key in [(11, 1, "idu=1"), (22, 2, "idu=2"), (33, 3, "idu=3")]
    )
    assert requeue(opened_log(conn, opened), "E") == Requeued(4, 0, refused)
    assert statuses(conn)[11] == "E"
    assert requeue(opened_log(conn, opened), "E", force=True) == Requeued(3, 0, ())
    assert statuses(conn)[11] == "N"


def test_the_later_row_of_a_copied_object_refuses_its_copy(
    conn: Connection, opened: LogTable
) -> None:
    conn.execute(sa.text("ALTER TABLE eventlog ALTER COLUMN record_id RESTART WITH 100"))
    write(conn, (1, "S"), (2, "S"), event_type=2)
    assert requeue(opened_log(conn, opened), "S", [(1, 1)]) == Requeued(
        0, 0, (RefusedRow(1, 2, "usr", "idu=1"),)
    )
    assert requeue(opened_log(conn, opened), "S", [(2, 2)]).copied == 1


def test_only_done_rows_can_be_requeued(conn: Connection, opened: LogTable) -> None:
    with pytest.raises(ConfigError, match="status 'N' cannot be requeued"):
        requeue(opened_log(conn, opened), "EN")
    assert requeue(opened_log(conn, opened), "EFSW", []) == Requeued(0, 0, ())


def _in_flight(log: OpenLog) -> list[tuple[int, str]]:
    return [(one.number, one.content) for one in read_entries(log, EntryKind.DELIVERY)]
