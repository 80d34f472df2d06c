"""SQLite: the whole product on a file, without a server."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from eventlog.sql.bulk import Bulk
from eventlog.sql.dialect import Ddl, Dialect, Resync, Triggers
from eventlog.sql.dialects.sqlite import doctor, lock, log, resync, session, snapshot, triggers
from eventlog.sql.dialects.sqlite.identity import identity
from eventlog.sql.dialects.sqlite.query_back import query_back
from eventlog.sql.dialects.sqlite.reflect import fingerprint, reflect
from eventlog.sql.dialects.sqlite.text import MAX_IDENTIFIER, quote_identifier, value_text
from eventlog.sql.log_table import LogTable

CONNECT_ADVICE: Final = {"not a database": "correct the database URL", "unable to open": "correct the database URL"}


def is_letter(column: str) -> str:
    """SQL: the column holds a letter of ASCII."""
    return f"{quote_identifier(column)} GLOB '[A-Za-z]'"


def record_id(_of: LogTable, comment: str) -> sa.Column[int]:
    """record_id, the rowid; the table is made with AUTOINCREMENT."""
    return sa.Column("record_id", sa.Integer, primary_key=True, comment=comment)


def create_flights(of: LogTable) -> list[str]:
    """A table whose numbers are never given twice, in place of a sequence."""
    table = quote_identifier(of.flight_sequence)
    return [f"CREATE TABLE {table} (flight_no INTEGER PRIMARY KEY AUTOINCREMENT)"]


def drop_flights(of: LogTable) -> list[str]:
    """Away with it."""
    return [f"DROP TABLE {quote_identifier(of.flight_sequence)}"]


_TEXT: Final = sa.Text()
DDL: Final = Ddl(
    types={
        "integer": sa.Integer(),
        "event_type": sa.Integer(),
        "time": sa.TIMESTAMP(),
        **dict.fromkeys(("status", "event_time", "name", "key", "value", "code", "digest", "text"), _TEXT),
    },
    record_id=record_id,
    queue_index=("record_id",),
    utc_now=f"({log.UTC_NOW})",
    is_letter=is_letter,
    before_log=lambda of: (),
    drop_before_log=lambda of: (),
    after_log=lambda of: (),
    drop_after_log=lambda of: (),
    after_companions=create_flights,
    drop_after_companions=drop_flights,
    after_resync=lambda of, index: (),
    prologue=("BEGIN;", ""),
    epilogue=("", "COMMIT;"),
)

DIALECT: Final = Dialect(
    name="sqlite",
    capabilities=frozenset({"partial_indexes", "transactional_ddl", "empty_text", "owner_look_up"}),
    driver="sqlite+pysqlite",
    connect_args=session.connect_args,
    connect_advice=CONNECT_ADVICE,
    session=(),
    begin=session.begin,
    check_url=session.check_url,
    prepare=session.prepare,
    refuses=session.refuses,
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
    wake=None,
    session_id=lock.session_id,
    local_time=log.local_time,
    fold_name=str,
    spelled=str,
    next_flight=log.next_flight,
    identity=identity,
    ddl=DDL,
    triggers=Triggers(
        compile=triggers.compile_tables,
        plan=triggers.plan,
        plan_drop=triggers.plan_drop,
        apply=triggers.apply,
        script=triggers.script,
        installed=triggers.installed,
        digests=triggers.digests,
    ),
    resync=Resync(
        prepare=resync.prepare,
        write_batch=resync.write_batch,
        estimate=resync.estimate,
        count=resync.estimate,
        write_keys=resync.write_keys,
        missing_rights=resync.missing_rights,
    ),
    bulk=Bulk(
        execution_options={},
        export=snapshot.export,
        join=snapshot.join,
        parts=snapshot.parts,
        read=snapshot.read,
    ),
    health=doctor,
    fingerprint=fingerprint,
)
