"""What differs between databases, as data and small functions (design.md, "The things").

Each database is a package under ``eventlog.sql.dialects`` with the same file names in each. The core asks the dialect,
never which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from eventlog.catalog import Attribute, Column, Database, ObjectClass
from eventlog.model import LogRow
from eventlog.sql.log_table import DueWindow, LogTable, Queue, Ranges, Window

CurrentRow = dict[str, list[str | None]]
"""Attribute name -> its values now, as log text (triggers.md 6): one for a single-valued table column, one for each
row otherwise."""

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


@dataclass(frozen=True, slots=True)
class Dialect:
    """One database.

    ``driver`` the SQLAlchemy driver name that its URLs get; ``connect_args`` what the driver is given to connect within
    a number of seconds; ``connect_advice`` what to do, by a part of the driver's message; ``session`` the statements
    that pin a new session, so that values read have one text;
    ``max_identifier`` in bytes; ``numbers_columns`` whether the columns of a table have an order of their own
    (spec/event-log.md 1.3); ``quote`` an identifier; ``value_text`` SQL of a column's value as log text
    (triggers.md 6), given the SQL of the column reference; ``reflect`` one schema.

    On the log: ``read_window``; ``read_rows`` whatever their status; ``mark`` and ``delete`` rows that still have
    status N, and tell how many; ``queue`` what waits (``event_time_zone`` utc or local); ``missing_rights`` in words
    (the flag: rows are going to be deleted); ``try_lock`` it for one publisher, held by the session; ``is_locked``
    whether any session holds it, asked without taking it; ``holds_lock`` whether this session does, ``unlock``.
    With ``handle_future_events``: ``read_due`` in the order of event_time, and ``due_until`` the database's clock as a
    bound for it. ``wake`` is None where there is polling only.

    On the session: ``session_id`` that no other session has at the same time, ``local_time`` of the server,
    ``fold_name`` a name that is written without quotes as the database keeps it.

    For migrations: ``utc_now`` SQL of the time in UTC as a timestamp; ``is_letter`` SQL of a check that a column holds
    a letter; ``create_functions`` and ``drop_functions`` that the triggers of a log use, statement by statement.

    ``query_back`` the current rows of many keys of one class in one statement, by canonical key, gone objects left
    out; ``current_user`` that triggers would log as perpetrator.
    """

    name: str
    driver: str
    connect_args: Callable[[int], Mapping[str, object]]
    connect_advice: Mapping[str, str]
    session: Sequence[str]
    max_identifier: int
    numbers_columns: bool
    quote: Callable[[str], str]
    value_text: Callable[[Column, str], str]
    reflect: Callable[[Connection, str | None], Database]
    read_window: Callable[[Connection, LogTable, Window], list[LogRow]]
    read_rows: Callable[[Connection, LogTable, Ranges], list[LogRow]]
    mark: Callable[[Connection, LogTable, str, Ranges], int]
    delete: Callable[[Connection, LogTable, Ranges], int]
    queue: Callable[[Connection, LogTable, str], Queue]
    missing_rights: Callable[[Connection, LogTable, bool], list[str]]
    utc_now: str
    is_letter: Callable[[str], str]
    create_functions: Callable[[LogTable], Sequence[str]]
    drop_functions: Callable[[LogTable], Sequence[str]]
    query_back: QueryBack
    current_user: Callable[[Connection], str]
    try_lock: Callable[[Connection, LogTable], bool]
    is_locked: Callable[[Connection, LogTable], bool]
    holds_lock: Callable[[Connection, LogTable], bool]
    unlock: Callable[[Connection, LogTable], None]
    read_due: Callable[[Connection, LogTable, DueWindow], list[LogRow]]
    due_until: Callable[[Connection, LogTable, str], str]
    wake: Wake | None
    session_id: Callable[[Connection], str]
    local_time: Callable[[Connection], datetime]
    fold_name: Callable[[str], str]
