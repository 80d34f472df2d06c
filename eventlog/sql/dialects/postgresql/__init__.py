"""PostgreSQL."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.sql.bulk import Bulk
from eventlog.sql.dialect import Ddl, Dialect, Resync, Triggers
from eventlog.sql.dialects.postgresql import (
    arrow,
    doctor,
    guard,
    lock,
    log,
    resync,
    show,
    snapshot,
    storage,
    triggers,
    wake,
)
from eventlog.sql.dialects.postgresql.facts import facts_of
from eventlog.sql.dialects.postgresql.fingerprint import fingerprint
from eventlog.sql.dialects.postgresql.identity import identity
from eventlog.sql.dialects.postgresql.query_back import query_back
from eventlog.sql.dialects.postgresql.reflect import reflect
from eventlog.sql.dialects.postgresql.session import SESSION, read_only
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, fold_name, qualified, quote_identifier, value_text
from eventlog.sql.dialects.postgresql.triggers import render_quote_function
from eventlog.sql.log_table import LogTable, cut_name

_USER_ADVICE: Final = "check the user in the URL, and {secret}"
CONNECT_ADVICE: Final = {
    "password authentication failed": _USER_ADVICE,
    "no password supplied": _USER_ADVICE,
    "pg_hba.conf": "let this user in by a line in the server's pg_hba.conf, or correct the URL",
    "role ": "create the user, or correct the URL",
    "database ": "create the database, or correct the URL",
    "connection option": "correct the options behind ? in the URL",
}


def connect_args(timeout: int) -> dict[str, object]:
    """What psycopg is given to connect within ``timeout`` seconds."""
    return {
        "connect_timeout": timeout,
        "application_name": "eventlog",
        "client_encoding": "UTF8",
        # No prepared statements: one reads a row or ten thousand, and its plan would be kept while the log grows.
        "prepare_threshold": None,
    }


def is_letter(column: str) -> str:
    """SQL: the column holds a letter of ASCII."""
    return f"{quote_identifier(column)} ~ '^[A-Za-z]$'"


def create_functions(of: LogTable) -> list[str]:
    """The functions that the triggers of a log use."""
    return [render_quote_function(of)]


def drop_functions(of: LogTable) -> list[str]:
    """Away with what ``create_functions`` made."""
    name = qualified(of.schema, cut_name(f"proc_{of.name}_quote", of.max_identifier))
    return [f"DROP FUNCTION IF EXISTS {name}(text)"]


def record_id(_of: LogTable, comment: str) -> sa.Column[int]:
    """record_id, numbered by an identity."""
    # CACHE 1: with a cache the numbers of two sessions' changes of one row may stand in the wrong order.
    numbers = sa.Identity(always=False, cache=1)
    return sa.Column("record_id", sa.BigInteger, numbers, primary_key=True, comment=comment)


def create_flights(of: LogTable) -> list[str]:
    """A sequence of its own, not an identity: the number is needed before the line that it stands in is written."""
    return [f"CREATE SEQUENCE {qualified(of.schema, of.flight_sequence)} AS BIGINT CACHE 1"]


def drop_flights(of: LogTable) -> list[str]:
    """Away with the sequence."""
    return [f"DROP SEQUENCE {qualified(of.schema, of.flight_sequence)}"]


def next_flight(conn: Connection, of: LogTable) -> int:
    """The sequence's next number."""
    name = {"name": qualified(of.schema, of.flight_sequence)}
    return int(conn.execute(sa.text("SELECT nextval(CAST(CAST(:name AS text) AS regclass))"), name).scalar_one())


_TEXT: Final = sa.Text()
DDL: Final = Ddl(
    types={
        "integer": sa.BigInteger(),
        "status": sa.CHAR(1),
        "event_type": sa.SmallInteger(),
        "event_time": sa.TIMESTAMP(),
        "time": sa.TIMESTAMP(),
        "digest": sa.CHAR(64),
        **dict.fromkeys(("name", "key", "value", "code", "text"), _TEXT),
    },
    record_id=record_id,
    queue_index=("record_id",),
    utc_now="(clock_timestamp() AT TIME ZONE 'UTC')",
    is_letter=is_letter,
    before_log=lambda of: (),
    drop_before_log=lambda of: (),
    after_log=lambda of: [storage.of_log(of), *create_functions(of)],
    drop_after_log=drop_functions,
    after_companions=lambda of: [storage.of_inflight(of), *create_flights(of)],
    drop_after_companions=drop_flights,
    prologue=("BEGIN;", ""),
    epilogue=("", "COMMIT;"),
    after_resync=lambda of, index: [storage.of_resync(of), *resync.table_options(of, index)],
    guard_by_index=guard.by_index,
    guard_by_checks=guard.by_checks,
)

CAPABILITIES: Final = frozenset(
    {
        "server",
        "schemas",
        "roles",
        "sequences",
        "partial_indexes",
        "transactional_ddl",
        "concurrent_writers",
        "statement_capture",
        "truncate",
        "partitions",
        "deferrable_keys",
        "fixed_char",
        "boolean",
        "single_precision",
        "exact_decimals",
        "time_types",
        "time_zones",
        "empty_text",
        "binary_values",
        "owner_look_up",
        "key_cascades",
        "upsert_captured",
        "wake",
    }
)

DIALECT: Final = Dialect(
    name="postgresql",
    capabilities=CAPABILITIES,
    driver="postgresql+psycopg",
    connect_args=connect_args,
    connect_advice=CONNECT_ADVICE,
    session=SESSION,
    begin=None,
    check_url=lambda url: None,
    prepare=lambda url: None,
    refuses=lambda error: False,
    max_identifier=MAX_IDENTIFIER,
    numbers_columns=True,
    quote=quote_identifier,
    value_text=value_text,
    reflect=reflect,
    read_window=log.read_window,
    read_queue=log.read_queue,
    window_chunks=log.window_chunks,
    open_writers=log.open_writers,
    are_open=log.are_open,
    read_rows=log.read_rows,
    mark=log.mark,
    delete=log.delete,
    queue=log.queue,
    missing_rights=log.missing_rights,
    query_back=query_back,
    current_user=lock.current_user,
    try_lock=lock.try_lock,
    is_locked=lock.is_locked,
    holds_lock=lock.holds_lock,
    unlock=lock.unlock,
    due_chunks=log.due_chunks,
    due_until=log.due_until,
    wake=wake.WAKE,
    session_id=lock.session_id,
    read_only=read_only,
    local_time=log.local_time,
    fold_name=fold_name,
    spelled=str,
    next_flight=next_flight,
    identity=identity,
    ddl=DDL,
    triggers=Triggers(
        compile=triggers.compile_tables,
        plan=triggers.plan,
        plan_drop=triggers.plan_drop,
        apply=triggers.apply,
        script=triggers.to_sql,
        installed=show.installed,
        digests=triggers.digests,
        facts=facts_of,
    ),
    resync=Resync(
        prepare=resync.prepare,
        write_batch=resync.write_batch,
        estimate=resync.estimate,
        count=resync.count,
        write_keys=resync.write_keys,
        missing_rights=resync.missing_rights,
    ),
    bulk=Bulk(
        execution_options={"isolation_level": snapshot.ISOLATION},
        export=snapshot.export,
        join=snapshot.join,
        parts=snapshot.parts,
        read=arrow.read,
    ),
    health=doctor,
    fingerprint=fingerprint,
)
