"""The statements that SQLAlchemy compiles for us, as a server of each version is sent them.

``core_cases`` runs every function of the product that builds one. Left out: what SQLAlchemy asks
the dictionary by itself (``inspect``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import sqlalchemy as sa
from oracle_catalogue import CATALOG, LOG, Cases, class_of
from oracle_driver import URL, Server, session_on

from eventlog.core.ranges import RecordSet
from eventlog.core.rows.requeue import LoggedRow, RowState
from eventlog.core.values import ColumnType, Kind
from eventlog.log.live import LiveDatabase
from eventlog.log.storage import LogOptions
from eventlog.model import LOG_COLUMNS, EventType, LogRow
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream import position as positions
from eventlog.publisher.stream.position import Saved, TablePosition, position_ddl, position_tables
from eventlog.sql import resync
from eventlog.sql.dialects.oracle import DIALECT
from eventlog.sql.dialects.oracle.session import has_log
from eventlog.sql.log import epoch, errors, internal_tables, purge, requests, requeue, rows
from eventlog.sql.log.internal_tables import EntryKind
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import ResyncBatch, Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask, repairs
from eventlog.sql.port.rights import Addition, Purpose, demanded, rights_for
from eventlog.sql.port.sql_files import statements

_ALL = [(1, 9), (20, 20)]
_MOMENT = datetime(2026, 5, 6, 7, 8, 9)
_TYPES = tuple(
    ColumnType(
        {"record_id": Kind.INTEGER, "event_type": Kind.INTEGER, "event_time": Kind.TIMESTAMP}.get(
            field, Kind.CHARACTER
        ),
        0,
        "",
    )
    for field in LOG_COLUMNS
)
_LOG = LogTable(LOG.schema, LOG.name, LOG.columns, _TYPES, 128, True)
NUMBERED = replace(LOG, sequence=("APP", "SEQ_LOG"))
"""A log of somebody else, whose triggers draw the numbers of its rows."""
_ROW = LogRow(1, "N", 2, "2026-05-06 07:08:09.000000", "U", "USR", "IDU=1", "FNAME", "a", "b")
_KNOWN = Selection("USR", EventType.INSERT_ROW_QUERY_BACK)

_NUMBERS = itertools.count(1)

Run = Callable[[sa.Connection], object]


def _log(conn: sa.Connection) -> OpenLog:
    """The log of the newest revision, as a connection has it after its first question."""
    conn.info.setdefault(internal_tables.WITH_COLUMNS, set()).add((LOG, LOG.error_table))
    return DIALECT.open(conn).log(LOG)


def _is(status: str) -> sa.ColumnElement[bool]:
    return rows.column_of(LOG, "status") == status


def _rows() -> Mapping[str, Run]:
    """Every function about rows, errors and requests that sends a statement, by its name."""
    return {
        "tail": lambda conn: rows.tail(_log(conn)),
        "refuse_large_ids": lambda conn: rows.refuse_large_ids(_log(conn)),
        "extent": lambda conn: rows.extent(_log(conn)),
        "count": lambda conn: rows.count(conn, rows.rows_of(LOG)),
        "count_queue": lambda conn: rows.count_queue(_log(conn), 1000),
        "count_by_status": lambda conn: rows.count_by_status(_log(conn)),
        "count_newest": lambda conn: rows.count_newest(_log(conn), 1000),
        "requeue": lambda conn: [
            requeue.requeue(_log(conn), "EFWS", _ALL),
            requeue.requeue(_log(conn), "EF", []),
            requeue.requeue(_log(conn), "EFWS", force=True),
            requeue.requeue(_log(conn), "EF", dry=True),
        ],
        "copy_rows": lambda conn: requeue.copy_rows(
            DIALECT.open(conn).log(NUMBERED), [1, 2, 4], {4}, {"status": rows.STATUS_NEW}
        ),
        "read_logged_objects": lambda conn: list(
            requeue.read_logged_objects(_log(conn), _is("E"), "ANN")
        ),
        "judge_all": lambda conn: requeue.judge_all(_log(conn), _is("E"), _waits),
        "write_keys": lambda conn: (
            DIALECT.open(conn)
            .log(NUMBERED)
            .write_keys(Selection("USR", EventType.DELETE_ROW), ["IDU=1"])
        ),
        "requeue_loopback": lambda conn: [
            requeue.requeue_loopback(_log(conn), "ANN", _ALL),
            requeue.requeue_loopback(_log(conn), "ANN", force=True, dry=True),
        ],
        "newest_errors_of": lambda conn: errors.newest_errors_of(_log(conn), [1, 2, 4]),
        "newest_failed_rows": lambda conn: rows.newest_failed_rows(_log(conn), 1000),
        "add_errors": lambda conn: errors.add_errors(_log(conn), [(1, "receiver", "no")]),
        "add_object_errors": lambda conn: errors.add_object_errors(
            _log(conn), [("snapshot.1", "receiver", "no")], "search"
        ),
        "newest_error_time": lambda conn: errors.newest_error_time(_log(conn), "search"),
        "read_attempts": lambda conn: errors.read_attempts(_log(conn), "search"),
        "ask_again": lambda conn: requests.ask_again(
            _log(conn), requests.ResendRequest([(1, 2), (4, 4)])
        ),
        "take_requests": lambda conn: requests.take_requests(_log(conn)),
        "is_requested": lambda conn: requests.is_requested(_log(conn)),
        "next_number": lambda conn: internal_tables.next_number(_log(conn)),
        "add_entry": lambda conn: internal_tables.add_entry(
            _log(conn), EntryKind.DELIVERY, 1, "{}", "crm"
        ),
        "replace_content": lambda conn: internal_tables.replace_content(
            _log(conn), EntryKind.DELIVERY, 1, "{}"
        ),
        "end_delivery": lambda conn: internal_tables.end_delivery(_log(conn), 1, "{}"),
        "delete_entry": lambda conn: internal_tables.delete_entry(
            _log(conn), EntryKind.DELIVERY, 1
        ),
        "delete_entries_of": lambda conn: internal_tables.delete_entries_of(
            _log(conn), "crm", with_letters=False
        ),
        "read_entries": lambda conn: internal_tables.read_entries(_log(conn), EntryKind.DELIVERY),
        "read_claims": lambda conn: internal_tables.read_entries(_log(conn), EntryKind.CLAIM, None),
        "refuse_unknown_kinds": lambda conn: internal_tables.refuse_unknown_kinds(
            _log(conn), EntryKind.DELIVERY
        ),
        "add_entries": lambda conn: internal_tables.add_entries(
            _log(conn), EntryKind.DEAD_LETTER, {1: "{}", 2: "{}"}, "crm"
        ),
        "count_waiting": lambda conn: internal_tables.count_waiting(
            _log(conn), EntryKind.DEAD_LETTER, "", 1000
        ),
        "read_letters": lambda conn: internal_tables.read_entries(
            _log(conn), EntryKind.DEAD_LETTER, "crm", 100
        ),
        "count_refusals": lambda conn: errors.count_refusals(
            _log(conn), [1, 2, 4], ["snapshot.1"], "search"
        ),
        "refused_letters": lambda conn: errors.refused_letters(_log(conn), 1),
        "read_errors": lambda conn: errors.read_errors(_log(conn), 1),
        "newest_errors": lambda conn: errors.newest_errors(_log(conn), 20),
        "newest_by_row": lambda conn: errors.newest_by_row(_log(conn), 20),
        "count_failed": lambda conn: [
            errors.count_failed(_log(conn), 20),
            errors.count_failed(_log(conn), 20, "search"),
        ],
    }


def _waits(row: requeue.ObjectRow) -> LoggedRow:
    """The judgement that a row waits to be published."""
    return LoggedRow(row.record_id, row.event_type, row.column_name, RowState.WAITS, None)


def _lacking(conn: sa.Connection, purpose: Purpose) -> object:
    """What the rights of a purpose are tried with."""
    return DIALECT.open(conn).log(LOG).lacking(demanded(purpose, *Addition))


def _grants(conn: sa.Connection, purpose: Purpose) -> None:
    """The statements that grant the rights of a purpose, as if they were sent."""
    driver: Any = conn.connection.driver_connection
    statements = DIALECT.open(conn).log(LOG).grants(rights_for(purpose, *Addition), '"ANN"')
    driver.server.sent += statements


def _purges() -> Mapping[str, Run]:
    """Every function of ``sql.purge`` that sends a statement, by its name."""
    return {
        "purge_cutoff": lambda conn: purge.purge_cutoff(_log(conn), "utc", timedelta(days=30)),
        "purge_rows": lambda conn: [
            purge.purge_rows(_log(conn), (1, 1000), 1000, _MOMENT, range(2), dry=False),
            purge.purge_rows(_log(conn), (1, 1000), 1000, _MOMENT, [], dry=True),
        ],
        "purge_errors": lambda conn: [
            purge.purge_errors(_log(conn), None, 1000, _MOMENT, _MOMENT, dry=False),
            purge.purge_errors(_log(conn), 7, 1000, _MOMENT, _MOMENT, dry=True),
        ],
        "read_purged": lambda conn: purge.read_purged(_log(conn)),
        "write_purged": lambda conn: purge.write_purged(
            _log(conn), purge.PurgedRows(RecordSet(9, [(20, 20)]), _MOMENT)
        ),
        "utc_now": lambda conn: DIALECT.open(conn).utc_now(),
        "highest_id": lambda conn: purge.highest_id(_log(conn)),
    }


def _resyncs() -> Mapping[str, Run]:
    """Every function of ``sql.resync`` that sends its own statement, by its name."""
    cls = class_of("USR")
    return {
        "unfinished": lambda conn: resync.unfinished(_log(conn), "USR"),
        "find": lambda conn: resync.find(_log(conn), _KNOWN),
        "begin": lambda conn: resync.begin(_log(conn), _KNOWN, resume=False, restart=True),
        "run": lambda conn: [
            list(
                resync.run(
                    _log(conn),
                    _KNOWN,
                    lambda _conn, _place, last=last: ResyncBatch(1, 0, "IDU=1", last),
                )
            )
            for last in (True,)
        ],
        "run_on": lambda conn: next(
            resync.run(_log(conn), _KNOWN, lambda _conn, _place: ResyncBatch(1, 0, "IDU=1", False))
        ),
        "existing": lambda conn: resync.existing(conn, DIALECT, "APP", cls, ["IDU=1"]),
        "history": lambda conn: resync.history(_log(conn), CATALOG, cls),
        "known": lambda conn: list(resync.known(_log(conn), ["USR"], 0)),
        "write_deleted": lambda conn: resync.write_deleted(_log(conn), "APP", cls, ["IDU=7"]),
        "note_due": lambda conn: resync.note_due(
            _log(conn), [resync.Due(_KNOWN, "column NICK is new")]
        ),
        "due_now": lambda conn: resync.due_now(_log(conn)),
        "settle_lost": lambda conn: resync.settle_lost(_log(conn), CATALOG, ()),
        "reads_of_log": lambda conn: resync.reads_of_log(_log(conn)),
    }


def _positions() -> Mapping[str, Run]:
    """What keeps the position of a source in tables."""

    def write(conn: sa.Connection) -> None:
        place = TablePosition(conn, DIALECT, position_tables("positions"), "gbase")
        place.load()
        place.entries()
        place.save(Saved({"a": 1}, 7), [Failure("x", "receiver", "no")], {7: "{}"})

    return {
        "table": write,
        "status": lambda _: positions.status_in_table(URL, "positions", "gbase"),
    }


def _storage() -> Mapping[str, Run]:
    """The live log as a source and a target of ``convert``."""
    live = LogOptions()
    assert live.log_table

    def read_and_write(conn: sa.Connection) -> None:
        database = LiveDatabase(conn, DIALECT, None)
        next(database.rows(_LOG), None)
        database.append(_LOG, [_ROW])

    return {"live": read_and_write}


def _epochs() -> Mapping[str, Run]:
    """Every function of ``sql.epoch`` that sends a statement, by its name."""
    entry = epoch.Epoch("20260506T070809-00000001", {"database": "HR"})
    return {
        "read_epoch": lambda conn: [
            epoch.read_epoch(_log(conn)),
            epoch.read_epoch(_log(conn), is_locked=True),
        ],
        "read_removed": lambda conn: epoch.read_removed(_log(conn)),
        "note_removed": lambda conn: epoch.note_removed(_log(conn), 17),
        "forget_removed": lambda conn: epoch.forget_removed(_log(conn), 7),
        "write_epoch": lambda conn: epoch.write_epoch(_log(conn), entry, is_raise=True),
        "raise_epoch": lambda conn: epoch.raise_epoch(_log(conn), {}),
        "pass_over": lambda conn: epoch.pass_over(_log(conn), 1),
    }


def _doctor() -> Mapping[str, Run]:
    """The questions of ``doctor`` that are SQL, the functions that answer the others, and what it
    shows as a fix.
    """
    texts = statements("eventlog.sql.dialects.oracle", "doctor.sql")
    limits = {
        "sample": 1000,
        "limit": 100,
        "delivery": 7,
        "now": "2026-05-06 07:08:09",
        "perpetrator": "ANN",
    }
    fixes = {
        "read_grants": {"classes": '"HR"', "tables": '"HR"."USR"', "user": '"ANN"'},
        "reading_index": {},
        "row_index": {},
    }

    def show(conn: sa.Connection, name: str) -> None:
        driver: Any = conn.connection.driver_connection
        driver.server.sent += repairs(_log(conn), name, **fixes[name])

    asked = {name: partial(_ask, name=name, about=limits) for name in texts if name not in fixes}
    for name in ("indexes", "numberings", "scaled", "rights"):  # their functions ask them
        del asked[name]
    return {
        **asked,
        **{name: partial(show, name=name) for name in fixes},
        "numbering": partial(_ask, name="numberings", about={}),
        "index": partial(_ask, name="indexes", about={}),
        "has_log": lambda conn: has_log(conn, '"LOGS"."EVENTLOG"'),
        **{
            f"rights_{purpose}": partial(_lacking, purpose=purpose)
            for purpose in (Purpose.PUBLISHER, Purpose.RESYNC, Purpose.PURGE)
        },
        **{f"grants_{purpose}": partial(_grants, purpose=purpose) for purpose in Purpose},
        "rights_to_apply": lambda conn: list(
            DIALECT.answers["rights_to_apply"](DIALECT.open(conn).log(LOG), schema="APP")
        ),
        "unreadable": lambda conn: list(
            DIALECT.answers["unreadable"](
                DIALECT.open(conn).log(LOG), schema="APP", tables=["USR"], columns=["IDU"]
            )
        ),
    }


def _ask(conn: sa.Connection, name: str, about: Mapping[str, Any]) -> None:
    ask(DIALECT.open(conn).log(LOG), name, lambda *fields: fields, **about)


def _sessions() -> Mapping[str, Run]:
    """What a session is asked and answered."""
    return {
        "who": lambda conn: DIALECT.open(conn).current_user(),
        "which": lambda conn: DIALECT.open(conn).session_id(),
        "identity": lambda conn: DIALECT.open(conn).log(LOG).identity(),
        "lock": lambda conn: (
            DIALECT.open(conn).log(LOG).try_lock(),
            DIALECT.open(conn).log(LOG).unlock(),
        ),
        "begin_reading": lambda conn: DIALECT.open(conn).begin_reading(7),
        "local_time": lambda conn: DIALECT.open(conn).local_time(),
        "snapshot": lambda conn: DIALECT.open(conn).join_snapshot(
            DIALECT.open(conn).export_snapshot()
        ),
    }


MODULES: Mapping[str, Callable[[], Mapping[str, Run]]] = {
    "core_rows": _rows,
    "core_purge": _purges,
    "core_resync": _resyncs,
    "core_positions": _positions,
    "core_storage": _storage,
    "core_epoch": _epochs,
    "core_doctor": _doctor,
    "core_sessions": _sessions,
}


_NOT_OURS = re.compile(
    "select |begin |SELECT 1.1 |SELECT CASE BITAND|ALTER SESSION|SELECT tables_and_views"
)
"""What a session begins with, and what SQLAlchemy asks the dictionary."""


def _answer(statement: str) -> Sequence[Sequence[Any]] | None:
    """Rows where numbers would not do."""
    if "SYSTIMESTAMP" in statement and "DUAL" in statement:
        return [("2026-05-06 07:08:09.000000000",)] if "TO_CHAR" in statement else [(_MOMENT,)]
    if "count(*)" in statement and "GROUP BY" in statement:
        return []
    if "CURRENT_SYSTEM_CHANGE" in statement or "GET_SYSTEM_CHANGE" in statement:
        return [("4711",)]
    if "all_ind_columns" in statement:
        return [
            ("IDX_EVENTLOG_5", 1, "SYS_NC00011$", 'CASE "STATUS" WHEN \'N\' THEN "RECORD_ID" END ')
        ]
    if "all_sequences" in statement:
        return (
            []
            if "scale_flag" in statement
            else [("LOGS", "SEQ_EVENTLOG_1", 1000, 1, "N", "N", "N")]
        )
    if "tables_and_views" in statement:
        return [("POSITIONS",)]
    if "positions_error.event_id" in statement:
        return []
    if "positions.token" in statement:
        return [("{}", 1, None)]
    if "positions.saved" in statement:
        return [(_MOMENT,)]
    if "selection LIKE" in statement:
        return [("USR", 'due: {"type": 6, "where": null, "reason": "column NICK is new"}')]
    if "EVENTLOG_EPOCH" in statement:
        return [(None, "{}")]
    if "EVENTLOG_DELIVERY" in statement:
        return [(next(_NUMBERS),)]
    if "EVENTLOG_INFLIGHT" in statement or "EVENTLOG_STATE" in statement:
        if " NOT IN " in statement:
            return []
        if "count(*)" in statement:
            return [(1,)]
        if "started, SYS_EXTRACT_UTC" in statement:
            return [(_MOMENT, _MOMENT)]
        if "kind = 'request'" in statement:
            return [(1, None, _MOMENT, '{"rows":[[1,2]],"objects":[]}')]
        noted = '{"rows":"[9]","whole":"2026-05-06T07:08:09"}'
        return [(1, None, _MOMENT, noted) if "started" in statement.lower() else (1, "{}")]
    if '"APP"."USR"' in statement or ("EVENTLOG_RESYNC" in statement and "ORDER BY" in statement):
        return []
    return None


@cache
def core_cases(version: str) -> Cases:
    """The statements of each module that a server of this version is sent."""
    found: dict[str, tuple[str, ...]] = {}
    for name, runs in MODULES.items():
        server = Server(version, _answer)
        with session_on(server) as conn:
            for run in runs().values():
                run(conn)
                conn.rollback()
        found[name] = tuple(dict.fromkeys(one for one in server.sent if not _NOT_OURS.match(one)))
    found["core_positions"] += tuple(
        position_ddl("positions", "oracle").removesuffix(";\n").split(";\n")
    )
    return found
