"""What differs between databases, as data and small functions.

Each database is a package under ``eventlog.sql.dialects`` with the same file names in each. The core asks the dialect,
never which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import URL, Connection
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Attribute, Catalog, Column, Database, ObjectClass
from eventlog.core.values import Kind
from eventlog.model import LogRow, QueueRow
from eventlog.sql.bulk import Bulk
from eventlog.sql.health import Health
from eventlog.sql.log_table import LogTable
from eventlog.sql.resync import Batch, Selection
from eventlog.sql.triggers.plan import InstalledTrigger, TableSql, TriggerPlan
from eventlog.sql.triggers.watch import Watch
from eventlog.sql.windows import DueWindow, Queue, Ranges, Window

CAPABILITIES: Final[Mapping[str, str]] = {
    "server": "the database is a server, not a file",
    "schemas": "tables stand in schemas",
    "roles": "sessions have users, with rights; triggers log them as perpetrator",
    "sequences": "numbers come from sequences",
    "partial_indexes": "an index can hold the rows N alone",
    "transactional_ddl": "DDL is part of a transaction and goes back with it",
    "concurrent_writers": "several transactions write at the same time",
    "statement_capture": "capture = statement",
    "truncate": "TRUNCATE is captured",
    "partitions": "partitioned tables",
    "deferrable_keys": "primary keys that are checked later than row by row",
    "fixed_char": "CHAR(n) values are padded with blanks",
    "boolean": "a boolean type whose text is true and false",
    "single_precision": "a type of approximate numbers of 32 bits",
    "exact_decimals": "exact numbers keep all their digits",
    "time_types": "types of dates and times",
    "time_zones": "a timestamp type that knows its zone",
    "empty_text": "'' is a value of its own, not NULL",
    "binary_values": "binary columns are logged by value (spec/triggers.md 6.1)",
    "owner_look_up": "a child row's DELETE looks whether its owner is still there (spec/triggers.md 2)",
    "key_cascades": "child rows that follow their owner's new key log that themselves, after it (spec/triggers.md 2)",
    "upsert_captured": "a row that INSERT replaces is logged as gone",
    "wake": "a writer wakes a publisher that sleeps (spec/triggers.md 8)",
}
"""What a database may be able to do: names for ``Dialect.capabilities``, and what each means."""

WRITES: Final = "eventlog_writes"
"""Key of ``Connection.info``: the transactions of this session are going to write (``eventlog.sql.connect``)."""

CurrentRow = dict[str, list[str | None]]
"""Attribute name -> its values now, as log text (spec/triggers.md 6): one for a single-valued column, one for each
row otherwise."""

LogRows = Generator[list[LogRow], None, None]

QueryBack = Callable[[Connection, str | None, ObjectClass, Sequence[str], Sequence[Attribute]], dict[str, CurrentRow]]


@dataclass(frozen=True, slots=True)
class Wake:
    """How a database wakes a publisher that sleeps (spec/triggers.md 8).

    ``create`` and ``drop`` the trigger of the log, statement by statement; ``may_create`` whether this session has the
    rights for it; ``missing`` why nobody would notify, None if somebody would. In the publisher's session: ``listen``
    from the end of the transaction on; ``fall_asleep``, False while a writer is open that will not notify; ``wake_up``
    again; ``socket`` the descriptor that is readable when a notification comes; ``heard`` whether one has come since it
    was asked last.
    """

    create: Callable[[LogTable], Sequence[str]]
    drop: Callable[[LogTable], Sequence[str]]
    may_create: Callable[[Connection, LogTable], bool]
    missing: Callable[[Connection, LogTable], str | None]
    listen: Callable[[Connection, LogTable], None]
    fall_asleep: Callable[[Connection, LogTable], bool]
    wake_up: Callable[[Connection, LogTable], None]
    socket: Callable[[Connection], int]
    heard: Callable[[Connection], bool]


def run_as_it_stands(conn: Connection, statement: str) -> None:
    """Run SQL text: no colon in it begins a parameter, no percent sign is doubled."""
    conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


@dataclass(frozen=True, slots=True)
class Ddl:
    """What the tables of a log are made of (spec/triggers.md 7, spec/event-log.md 10).

    ``types`` by role: integer (record_ids, counts), status, event_type, event_time, name (of users, tables, columns),
    key, value, time (of companions), code, digest, text. ``record_id``: the column of the log with what numbers it.
    ``queue_index``: the columns of the index that the publisher reads by; it holds the rows N alone with capability
    ``partial_indexes``. ``utc_now`` SQL of the time in UTC as event_time holds it; ``is_letter`` SQL of a check that a
    column holds a letter. ``guard_by_index`` and ``guard_by_checks``: what makes a log of ours refuse a status that is
    no letter without CHECKs, where these cost its writers more, and what takes that back. Statement by statement:
    ``before_log`` what the log's own columns need; ``after_log`` what it needs beyond them and what its triggers use,
    such as the key quoting function; ``after_companions`` what they need and what numbers flights, never twice;
    ``after_resync`` what the table of positions needs (given its index's name); ``drop_...`` away with what does not
    go with a table.
    ``prologue`` and ``epilogue``: the lines that a script for the database's own tool begins and ends with;
    ``as_script``: what Alembic printed, as text that this tool runs, and runs again where it can.

    ``run`` a statement of the dialect's own text; raises DatabaseError for a function or trigger that does not compile.
    Where DDL is not transactional, a migration that broke off is run again from its beginning: ``guarded``: a statement
    as Alembic has it, as it can be run again; ``half_made``: whether a table of the log's name is one of ours that such
    a migration left.
    """

    types: Mapping[str, TypeEngine[Any]]
    record_id: Callable[[LogTable, str], sa.Column[Any]]
    queue_index: Sequence[str]
    utc_now: str
    is_letter: Callable[[str], str]
    before_log: Callable[[LogTable], Sequence[str]]
    drop_before_log: Callable[[LogTable], Sequence[str]]
    after_log: Callable[[LogTable], Sequence[str]]
    drop_after_log: Callable[[LogTable], Sequence[str]]
    after_companions: Callable[[LogTable], Sequence[str]]
    drop_after_companions: Callable[[LogTable], Sequence[str]]
    after_resync: Callable[[LogTable, str], Sequence[str]]
    guard_by_index: Callable[[LogTable], Sequence[str]] = lambda of: ()
    guard_by_checks: Callable[[LogTable], Sequence[str]] = lambda of: ()
    prologue: Sequence[str] = ()
    epilogue: Sequence[str] = ()
    as_script: Callable[[str], str] = str
    run: Callable[[Connection, str], None] = run_as_it_stands
    guarded: Callable[[str], str] = str
    half_made: Callable[[Connection, LogTable], bool] = lambda conn, log: False


@dataclass(frozen=True, slots=True)
class Triggers:
    """How what is declared becomes triggers (spec/triggers.md 2, 9, 10).

    ``compile`` (database, catalog, log, watches): the SQL of what is declared, table by table, from the catalogue
    alone; no database is asked, so names that others have taken there are not seen. Raises TriggerError for a watch
    that cannot be compiled. ``facts``: what else compiling needs to know of these tables to give what ``plan`` does, as
    literals that ``compile`` takes as its last argument; None = there is nothing else.

    ``plan``: what brings the triggers that write a log to what is declared, one action a table with its reason;
    ``plan_drop`` what takes all of them away, found by what stands in the database. Nothing is changed. They raise
    LogTableError if the log is missing; ``plan`` raises TriggerError for a watch that cannot be compiled or whose
    triggers could not run. ``apply`` runs the statements of a plan, all or none where DDL is transactional; seconds to
    wait for a table, 0 = without end; the caller commits; raises DatabaseError. ``script``: the same as text, as the
    database's own tool runs it.

    ``installed``: the triggers that write a log, for people. ``digests``: table (as ``TableSql.table`` has it) -> hash
    of what was compiled for it, for what is installed.
    """

    compile: Callable[..., tuple[TableSql, ...]]
    plan: Callable[[Connection, Database, Catalog, LogTable, Sequence[Watch]], TriggerPlan]
    plan_drop: Callable[[Connection, LogTable], TriggerPlan]
    apply: Callable[[Connection, TriggerPlan, float], None]
    script: Callable[[TriggerPlan, float], str]
    installed: Callable[[Connection, LogTable], list[InstalledTrigger]]
    digests: Callable[[Connection, LogTable], Mapping[str, str]]
    facts: Callable[[Connection, Database, LogTable, Collection[str]], Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Resync:
    """How objects are written into the log once more (spec/event-log.md 11, ``eventlog.sql.resync``).

    ``prepare`` gives what the others call a walk: of a log, schema, class, selection; the caller commits and goes on in
    the same session. ``write_batch`` logs the next objects behind a position (canonical table_key text, None = from the
    beginning), at most so many; ``estimate`` how many are expected behind it, which also tries out the operator's
    predicate; ``count`` how many there are; ``write_keys`` logs the objects with these canonical keys, in their order.
    ``missing_rights`` in words (the flag: the resync keeps its position).
    """

    prepare: Callable[[Connection, LogTable, str | None, ObjectClass, Selection], Any]
    write_batch: Callable[[Connection, Any, str | None, int], Batch]
    estimate: Callable[[Connection, Any, str | None], int]
    count: Callable[[Connection, Any, str | None], int]
    write_keys: Callable[[Connection, LogTable, Selection, Sequence[str]], None]
    missing_rights: Callable[[Connection, LogTable, bool], list[str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One database. ``capabilities``: names of ``CAPABILITIES``.

    ``driver`` the SQLAlchemy driver name that its URLs get; ``connect_args`` what the driver is given to connect within
    a number of seconds; ``connect_advice`` what to do, by a part of the driver's message (``{secret}`` in it: where the
    password belongs); ``session`` the statements that pin a new session, so that values read have one text; ``begin``
    begins a transaction where the driver does not (None = it does);
    ``check_url`` raises ConfigError or DatabaseError for a URL that cannot lead to a log; ``prepare``
    makes a database ready for a log by its URL, before the first migration, outside of any transaction; ``refuses``
    whether an operational error of the driver is the statement's own fault, so that trying again cannot help;
    ``passes`` whether another error of the driver is worth trying again; ``package`` what to install for the driver;
    ``lacks`` the classes of column types that no version of it has;
    ``max_identifier`` in bytes;
    ``numbers_columns`` whether the columns of a table have an order of their own (spec/event-log.md 1.3); ``quote``
    an identifier; ``value_text`` SQL of a column's value as log text (spec/triggers.md 6), given the SQL of the column
    reference; ``reflect`` one schema.

    On the log: ``read_window``, and ``read_queue`` for what is looked at of its rows alone; ``window_chunks`` the same
    by one statement, hence of one snapshot, in lists of a given size, the last of fewer (to be closed when they are not
    read to their end); ``read_rows`` whatever their
    status; ``mark`` and ``delete`` rows that still have status N, and tell how many; ``queue`` what waits
    (``event_time_zone`` utc or local); ``missing_rights`` in words (the flag: rows are going to be deleted);
    ``try_lock`` it for one publisher, held by the session; ``is_locked`` whether any session holds it, asked without
    taking it; ``holds_lock`` whether this session does, ``unlock``.
    ``open_writers``: names of the other sessions' transactions that have written the log and are open, None = it cannot
    be told; ``are_open`` whether all of these still were when the statement before began.
    With ``handle_future_events``: ``due_chunks`` as ``window_chunks``, in the order of event_time, and ``due_until``
    the database's clock as a bound for it. ``wake`` is None where there is polling only.

    On the session: ``begin_publishing`` gives that of a publisher what others do not need, such as an end to waiting
    for a server that never answers; ``session_id`` that no other has at the same time, ``local_time`` of the server,
    ``fold_name`` a name that is written without quotes as the database keeps it; ``spelled`` a name as SQLAlchemy and
    the configuration give it (lower case for names without case) as the database keeps it.

    ``read_only``: why this session can write nothing, whatever its rights, in words; None = it can.

    ``next_flight`` a flight number that was never given before; ``identity`` of what gives them: a text that no other
    log has, nor this one when it is made anew, as far as the database can tell. ``query_back`` the current rows of many
    keys of one class in one statement, by canonical key, gone objects left out; ``current_user`` that triggers would
    log as perpetrator, an empty text where they log none.

    ``fingerprint`` a text that changes when a column of the tables of a catalogue comes, goes, or gets another name or
    type, by one quick statement; None = the tables are to be reflected to see it.

    ``ddl`` of the log, its ``triggers``, ``resync``, ``bulk`` reading, and ``health``: the facts for ``doctor``.
    """

    name: str
    capabilities: frozenset[str]
    driver: str
    connect_args: Callable[[int], Mapping[str, object]]
    connect_advice: Mapping[str, str]
    session: Sequence[str]
    begin: Callable[[Connection], None] | None
    check_url: Callable[[URL], None]
    prepare: Callable[[URL], None]
    refuses: Callable[[BaseException], bool]
    max_identifier: int
    numbers_columns: bool
    quote: Callable[[str], str]
    value_text: Callable[[Column, str], str]
    reflect: Callable[[Connection, str | None], Database]
    read_window: Callable[[Connection, LogTable, Window], list[LogRow]]
    read_queue: Callable[[Connection, LogTable, Window], list[QueueRow]]
    window_chunks: Callable[[Connection, LogTable, Window, int], LogRows]
    open_writers: Callable[[Connection, LogTable], frozenset[str] | None]
    are_open: Callable[[Connection, frozenset[str]], bool]
    read_rows: Callable[[Connection, LogTable, Ranges], list[LogRow]]
    mark: Callable[[Connection, LogTable, str, Ranges], int]
    delete: Callable[[Connection, LogTable, Ranges], int]
    queue: Callable[[Connection, LogTable, str], Queue]
    missing_rights: Callable[[Connection, LogTable, bool], list[str]]
    query_back: QueryBack
    current_user: Callable[[Connection], str]
    try_lock: Callable[[Connection, LogTable], bool]
    is_locked: Callable[[Connection, LogTable], bool]
    holds_lock: Callable[[Connection, LogTable], bool]
    unlock: Callable[[Connection, LogTable], None]
    due_chunks: Callable[[Connection, LogTable, DueWindow, int], LogRows]
    due_until: Callable[[Connection, LogTable, str], str]
    wake: Wake | None
    session_id: Callable[[Connection], str]
    local_time: Callable[[Connection], datetime]
    fold_name: Callable[[str], str]
    spelled: Callable[[str], str]
    next_flight: Callable[[Connection, LogTable], int]
    identity: Callable[[Connection, LogTable], str]
    ddl: Ddl
    triggers: Triggers
    resync: Resync
    bulk: Bulk
    health: Health
    fingerprint: Callable[[Connection, Catalog], str] | None = None
    begin_publishing: Callable[[Connection], None] = lambda conn: None
    passes: Callable[[BaseException], bool] = lambda error: False
    read_only: Callable[[Connection], str | None] = lambda conn: None
    package: str = "eventlog-publisher"
    lacks: frozenset[Kind] = frozenset()
