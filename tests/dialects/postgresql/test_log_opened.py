"""How a log is found and checked on a real server, whoever made it (spec/event-log.md 1.2 to 1.4,
12).
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from shared import opened_log
from sqlalchemy import Connection
from written_log import EVERYTHING, ids

from eventlog.core.ranges import to_ranges
from eventlog.errors import LogTableError
from eventlog.model import LOG_COLUMNS
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
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
from eventlog.sql.log.requeue import requeue
from eventlog.sql.log.rows import count_by_status, tail
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import set_purpose
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Addition, Purpose

# Opening


def test_a_log_is_found_by_its_schema_and_without_case(conn: Connection) -> None:
    conn.execute(sa.text('CREATE SCHEMA "Other"'))
    migrations.upgrade(conn, log_table="Log", schema="Other")
    for name, schema in [
        ('"Other".Log', None),
        ("Other.Log", "public"),
        ("log", "Other"),
        ("LOG", "Other"),
    ]:
        assert (found := locate_log(DIALECT.open(conn), name=name, schema=schema)).name == "Log"
        assert found.schema == "Other"
    assert locate_log(DIALECT.open(conn), name="EVENTLOG") == locate_log(
        DIALECT.open(conn), name="public.eventlog"
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "DROP TABLE eventlog",
            "no log table 'eventlog' in schema 'public': create it with `eventlog db upgrade`",
        ),
        (
            "DROP TABLE eventlog_error",
            "no internal table public.eventlog_error: create it with `eventlog db upgrade`",
        ),
        ("DROP TABLE eventlog_inflight", "no internal table public.eventlog_inflight"),
        (
            "ALTER TABLE eventlog ALTER COLUMN perpetrator TYPE integer USING 1",
            'log table public.eventlog: column "perpetrator" cannot be perpetrator: integer, '
            "expected character",
        ),
        (
            "ALTER TABLE eventlog DROP COLUMN new_value",
            "log table public.eventlog: the log has 9 columns, but ten are needed: "
            "new_value should be at position 10",
        ),
    ],
)
def test_a_log_that_lacks_something_is_refused(
    conn: Connection, statement: str, message: str
) -> None:
    conn.execute(sa.text(statement))
    with pytest.raises(LogTableError) as refused:
        locate_log(DIALECT.open(conn), name="eventlog")
    assert message in str(refused.value)


GRANTS = {
    "USAGE on schema public": "GRANT USAGE ON SCHEMA public TO PUBLIC",
    "SELECT on table eventlog": "GRANT SELECT ON eventlog TO PUBLIC",
    "DELETE on table eventlog": "GRANT DELETE ON eventlog TO PUBLIC",
    "UPDATE on column status of table eventlog": "GRANT UPDATE (status) ON eventlog TO PUBLIC",
    "SELECT on table eventlog_error": "GRANT SELECT ON eventlog_error TO PUBLIC",
    "INSERT on table eventlog_error": "GRANT INSERT ON eventlog_error TO PUBLIC",
    "DELETE on table eventlog_inflight": "GRANT ALL ON eventlog_inflight TO PUBLIC",
    "DELETE on table eventlog_state": "GRANT SELECT, DELETE ON eventlog_state TO PUBLIC",
    "UPDATE on table eventlog_epoch": "GRANT SELECT, INSERT, UPDATE ON eventlog_epoch TO PUBLIC",
    "SELECT on table eventlog_consumer": "GRANT SELECT ON eventlog_consumer TO PUBLIC",
    "USAGE on sequence eventlog_delivery": "GRANT USAGE ON SEQUENCE eventlog_delivery TO PUBLIC",
}


def locate_with_rights(conn: Connection) -> LogTable:
    log = locate_log(DIALECT.open(conn), name="eventlog", schema="public")
    DIALECT.open(conn).log(log).check_rights(Purpose.PUBLISHER, Addition.DELETE_FROM_LOG)
    return log


def test_every_right_that_is_missing_is_named_until_there_is_none(conn: Connection) -> None:
    set_purpose(conn.engine, Purpose.PUBLISHER, hides_rows=False)
    conn.execute(sa.text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
    # SET ROLE to a role that the server has anyway, and that owns nothing
    for right, grant in GRANTS.items():
        conn.execute(sa.text("SET ROLE pg_monitor"))
        with pytest.raises(LogTableError, match=right) as refused, conn.begin_nested():
            locate_with_rights(conn)
        assert "--purpose publisher`, run by the owner, prints the rights" in str(refused.value)
        conn.execute(sa.text("RESET ROLE"))
        conn.execute(sa.text(grant))
    conn.execute(sa.text("SET ROLE pg_monitor"))
    opened = locate_with_rights(conn)
    # and they are enough
    delivery = next_number(opened_log(conn, opened))
    add_entry(opened_log(conn, opened), EntryKind.DELIVERY, delivery, "{}")
    replace_content(opened_log(conn, opened), EntryKind.DELIVERY, delivery, "[]")
    assert _in_flight(opened_log(conn, opened)) == [(delivery, "[]")]
    delete_entry(opened_log(conn, opened), EntryKind.DELIVERY, delivery)
    add_errors(opened_log(conn, opened), [(1, "receiver", "no")])
    assert DIALECT.open(conn).log(opened).read_window(EVERYTHING) == []
    assert (
        DIALECT.open(conn).log(opened).mark("S", [(1, 9)])
        == DIALECT.open(conn).log(opened).delete([(1, 9)])
        == 0
    )


# A log that somebody else made


FOREIGN = """CREATE TABLE foreign_log (
    rid numeric(38), tkey char(20), st char(4), et numeric(2), at timestamptz,
    who varchar(10), tab char(10), col text, ov text, nv text)"""


def test_a_log_of_another_layout_and_other_types_works_alike(conn: Connection) -> None:
    conn.execute(sa.text(FOREIGN))
    migrations.upgrade(conn, log_table="foreign_log", existing_log=True)
    opened = locate_log(DIALECT.open(conn), name="foreign_log", layout="3.5")
    assert opened.columns == ("rid", "st", "et", "at", "who", "tab", "tkey", "col", "ov", "nv")
    insert = sa.text(
        "INSERT INTO foreign_log (rid, st, et, tkey, tab, who, at) VALUES (:rid, :st, CAST(:et AS "
        "numeric), 'idu=1', 'usr', 'eventlog', '2024-05-06 09:08:09+02')"
    )
    for rid, st, et in [
        (3, "N", "4"),
        (1, "N", None),
        (2, "N", "NaN"),
        (None, "N", "1"),
        (4, "S", "1"),
        (0, "N", "1"),
    ]:
        conn.execute(insert, {"rid": rid, "st": st, "et": et})
    conn.execute(insert, {"rid": 2**63, "st": "N", "et": "1"})
    rows = DIALECT.open(conn).log(opened).read_window(EVERYTHING)
    assert [(type(row.record_id), *row[:3]) for row in rows] == [
        (int, 1, "N", None),
        (int, 2, "N", 0),
        (int, 3, "N", 4),
    ]
    assert rows[2][3:7] == ("2024-05-06 07:08:09+00", "eventlog", "usr", "idu=1")
    assert DIALECT.open(conn).log(opened).read_window(Window(0, None, None, "eventlog")) == []
    assert DIALECT.open(conn).log(opened).mark("S", [(1, 2)]) == 2
    assert ids(DIALECT.open(conn).log(opened).read_rows(to_ranges([1, 3, 4]))) == [1, 3, 4]
    assert DIALECT.open(conn).log(opened).delete([(1, 9)]) == 1
    assert DIALECT.open(conn).log(opened).queue("utc").rows == 3  # those that cannot be addressed
    assert count_by_status(opened_log(conn, opened)) == {"N": 3, "S": 3}


def test_names_that_attack_the_statements_are_only_names(conn: Connection) -> None:
    name = 'l"; DROP TABLE eventlog; -- %s %% {x} :y'
    columns = [f'{field} "%s {{0}} :z' for field in LOG_COLUMNS]
    quoted = ['"' + column.replace('"', '""') + '"' for column in columns]
    types = ["bigint", "char(1)", "smallint", "timestamp", *["text"] * 6]
    table = '"' + name.replace('"', '""') + '"'
    body = ", ".join(f"{column} {sql}" for column, sql in zip(quoted, types, strict=True))
    conn.connection.cursor().execute(f"CREATE TABLE {table} ({body})")
    migrations.upgrade(conn, log_table=table, existing_log=True)
    opened = locate_log(DIALECT.open(conn), name=name)
    conn.connection.cursor().execute(
        f"INSERT INTO {table} ({', '.join(quoted[:3])}) VALUES (1, 'N', 2), (2, 'N', 2)"
    )
    assert ids(DIALECT.open(conn).log(opened).read_window(Window(0, None, None, "x"))) == [1, 2]
    assert (
        DIALECT.open(conn).log(opened).mark("E", [(1, 1)])
        == DIALECT.open(conn).log(opened).delete([(1, 2)])
        == 1
    )
    assert requeue(opened_log(conn, opened), "E").set_back == 1
    assert tail(opened_log(conn, opened)) == 1
    add_entry(
        opened_log(conn, opened), EntryKind.DELIVERY, next_number(opened_log(conn, opened)), "{}"
    )
    add_errors(opened_log(conn, opened), [(1, "receiver", "no")])
    assert DIALECT.open(conn).log(opened).try_lock()


def _in_flight(log: OpenLog) -> list[tuple[int, str]]:
    return [(one.number, one.content) for one in read_entries(log, EntryKind.DELIVERY)]
