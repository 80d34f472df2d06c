"""Oracle, 12.2 and later, by python-oracledb in its thin mode."""

from __future__ import annotations

from typing import Final

from eventlog.core.values import Kind
from eventlog.sql.bulk import Bulk
from eventlog.sql.dialect import Dialect, Resync, Triggers
from eventlog.sql.dialects.oracle import bulk, doctor, lock, log, resync, script, triggers
from eventlog.sql.dialects.oracle.ddl import DDL, next_flight
from eventlog.sql.dialects.oracle.identity import identity
from eventlog.sql.dialects.oracle.query_back import query_back
from eventlog.sql.dialects.oracle.reflect import fingerprint, reflect
from eventlog.sql.dialects.oracle.session import CONNECT_ADVICE, SESSION, begin_publishing, connect_args, passes
from eventlog.sql.dialects.oracle.text import MAX_IDENTIFIER, fold_name, quote_identifier, spelled, value_text

CAPABILITIES: Final = frozenset(
    {
        "server",
        "schemas",
        "roles",
        "sequences",
        "concurrent_writers",
        "statement_capture",
        "partitions",
        "deferrable_keys",
        "fixed_char",
        "single_precision",
        "exact_decimals",
        "time_types",
        "time_zones",
        "binary_values",
        "upsert_captured",
    }
)

DIALECT: Final = Dialect(
    name="oracle",
    capabilities=CAPABILITIES,
    driver="oracle+oracledb",
    package="eventlog-publisher[oracle]",
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
    wake=None,
    session_id=lock.session_id,
    local_time=log.local_time,
    fold_name=fold_name,
    spelled=spelled,
    next_flight=next_flight,
    identity=identity,
    ddl=DDL,
    triggers=Triggers(
        compile=triggers.compile_tables,
        plan=triggers.plan,
        plan_drop=triggers.plan_drop,
        apply=triggers.apply,
        script=script.script,
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
        export=bulk.export,
        join=bulk.join,
        parts=bulk.parts,
        read=bulk.read,
    ),
    health=doctor,
    fingerprint=fingerprint,
    begin_publishing=begin_publishing,
    passes=passes,
    lacks=frozenset({Kind.TIME, Kind.UUID}),
)
