"""The internal tables of a log: failures, deliveries in flight, records of commands for other
processes, resyncs, the epoch, consumers, captured tables (spec/event-log.md 7.4, 10, 11, 13).

`eventlog grants` prints the rights that each role needs on these tables.

If another program made the log (``--existing-log``), this migration creates the trigger that wakes
a sleeping publisher. This needs the rights of the log's owner. Without the trigger the publisher
polls every ``polling_interval`` seconds and logs a warning. Printed SQL always contains the
trigger, since the owner may run the SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import execute, log_and_dialect, new_columns
from eventlog.sql.port.database import Wake
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.rights import Part

revision = "internal_2"
down_revision = None
branch_labels = ("internal",)
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    _create(
        log,
        log.error_table,
        new_columns(
            dialect,
            ("record_id", "integer", False, "The row of the log that failed"),
            ("error_time", "time", False, "When it failed, in UTC"),
            ("code", "code", False, "Reason: code of a row check; or receiver, skipped, requeued"),
            ("message", "text", False, "Reason in words"),
            ("consumer", "code", True, "Whose failure it is; NULL: the publisher's"),
            (
                "event_id",
                "text",
                True,
                "Event-id of an object of a consumer's snapshot, or new event-id under which a "
                "row is sent again",
            ),
        ),
        f"Rows of {log.name} that failed: one row per failure, never changed afterwards",
    )
    index = quoted(log.own_name("idx_{}_2"))
    op.create_index(index, quoted(log.error_table), ["record_id"], schema=schema_of(log))
    _create(
        log,
        log.inflight_table,
        _entry_columns(dialect, is_key=True),
        f"Deliveries of the readers of {log.name} that are not marked yet, and what consumers "
        "have done",
    )
    execute(dialect.after_internal_tables(log))
    _create_state(log, dialect)
    _create_resync(log, dialect)
    _create_epoch(log, dialect)
    _create_consumers(log, dialect)
    _create_captured(log, dialect)
    if wake := _wake(log, dialect):
        execute(wake.create(log))
    internal_tables = [name for name in log.own_tables if name != log.name]
    execute(dialect.deny_others(log, internal_tables))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    if wake := _wake(log, dialect):
        execute(wake.drop(log))
    for table in (
        log.captured_table,
        log.consumer_table,
        log.epoch_table,
        log.resync_table,
        log.state_table,
    ):
        op.drop_table(quoted(table), schema=schema_of(log))
    execute(dialect.drop_after_internal_tables(log))
    for table in (log.inflight_table, log.error_table):
        op.drop_table(quoted(table), schema=schema_of(log))


def _create(log: LogTable, table: str, columns: Iterable[sa.Column[Any]], comment: str) -> None:
    op.create_table(quoted(table), *columns, schema=schema_of(log), comment=comment)


def _create_index(log: LogTable, index: str, table: str, columns: list[str]) -> None:
    """Create the unique index of a table. There is no primary key: a table with a primary key would
    be a class of its schema.
    """
    op.create_index(quoted(index), quoted(table), columns, unique=True, schema=schema_of(log))


def _entry_columns(dialect: Dialect, *, is_key: bool) -> list[sa.Column[Any]]:
    """Return the columns of a table of entries (``eventlog.sql.log.internal_tables``)."""
    return [
        sa.Column(
            "entry_no",
            dialect.column_types["integer"],
            primary_key=is_key,
            nullable=False,
            autoincrement=False,
            comment="Number of the entry, never reused",
        ),
        *new_columns(
            dialect,
            ("owner", "code", True, "Consumer; NULL: the publisher, or a command"),
            ("kind", "code", False, "Purpose of the entry"),
            ("started", "time", False, "When it was last written, in UTC"),
            ("content", "text", False, "JSON"),
        ),
    ]


def _create_state(log: LogTable, dialect: Dialect) -> None:
    _create(
        log,
        log.state_table,
        _entry_columns(dialect, is_key=False),
        f"Records of commands for other processes of {log.name}: claims, removed rows, "
        "requests, verifications",
    )
    # The index begins with the kind, so that a poll for requests does not read entries of other
    # kinds.
    index = log.own_name("idx_{}_7")
    _create_index(log, index, log.state_table, ["kind", "owner", "entry_no"])
    # The owner may be NULL, so this index cannot identify rows.
    execute(dialect.after_table(log, Part.STATE))


def _create_resync(log: LogTable, dialect: Dialect) -> None:
    index = log.own_name("idx_{}_3")
    _create(
        log,
        log.resync_table,
        new_columns(
            dialect,
            ("digest", "digest", False, "SHA-256 of what is written again"),
            ("class_name", "name", False, "Class whose objects are written again"),
            ("selection", "text", False, "Description of the chosen objects"),
            ("started", "time", False, "When it was started, in UTC"),
            (
                "position",
                "text",
                True,
                "Last key that is written, or last line of the file; NULL: none yet",
            ),
            ("rows_written", "integer", False, "Rows written so far"),
        ),
        f"Resyncs into {log.name} that are not finished, or are due: one row each, "
        "deleted with its last batch",
    )
    _create_index(log, index, log.resync_table, ["digest"])
    execute(dialect.after_table(log, Part.RESYNC, index))


def _create_epoch(log: LogTable, dialect: Dialect) -> None:
    _create(
        log,
        log.epoch_table,
        new_columns(
            dialect,
            (
                "epoch",
                "code",
                True,
                "What new event-ids contain after the record_id; NULL: nothing",
            ),
            ("server", "text", True, "JSON: identity of the server, such as its timeline"),
            ("raised", "time", True, "When the epoch began, in UTC; NULL: never"),
            ("removed", "integer", True, "Highest record_id that was removed; NULL: none"),
        ),
        f"The epoch of {log.name}: one row, changed when the database has lost its "
        "newest transactions",
    )
    execute(dialect.after_table(log, Part.EPOCH))
    # The row is written here, with the timeline or the file if SQL shows it, so that the loss of
    # transactions before the first connection of a publisher is detected, too.
    epochs = sa.table(
        quoted(log.epoch_table), sa.column("epoch"), sa.column("server"), schema=schema_of(log)
    )
    server: sa.ColumnElement[str] = sa.literal_column(dialect.server_sql)
    if not context.is_offline_mode():
        # The identity of a copy on a server is left out, since no publisher has used an epoch of
        # this log yet. For a file it is included, since files are easily copied and replaced by
        # copies.
        server_parts = dialect.open(op.get_bind()).log(log).server_parts()
        parts = {part: text for part, text in server_parts.items() if part in ("timeline", "file")}
        server = sa.literal(json.dumps(parts) if parts else None, sa.Text())
    # If DDL is not transactional, an interrupted migration is run again and finds the row.
    entry = sa.select(server).where(~sa.exists(sa.select(sa.text("1")).select_from(epochs)))
    op.execute(sa.insert(epochs).from_select(["server"], entry))


def _wake(log: LogTable, dialect: Dialect) -> Wake | None:
    """Return the trigger that wakes a log's publisher, if another program made the log and if this
    session may create the trigger.
    """
    wake = dialect.wake
    if wake is None or not context.config.attributes["existing_log"]:
        return None
    if context.is_offline_mode() or wake.may_create(dialect.open(op.get_bind()).log(log)):
        return wake
    return None


def _create_consumers(log: LogTable, dialect: Dialect) -> None:
    index = log.own_name("idx_{}_6")
    _create(
        log,
        log.consumer_table,
        new_columns(
            dialect,
            ("name", "code", False, "Name of the consumer"),
            ("begun", "time", False, "When it was registered, in UTC"),
            (
                "begins",
                "code",
                False,
                "Where it began: latest, earliest, snapshot, a record_id or a time",
            ),
            ("done", "text", False, "JSON: the record_ids that it had done when it was registered"),
            ("moved", "time", True, "When its snapshot last advanced, in UTC; NULL: never"),
            ("requeued", "text", True, "JSON: what is sent again; NULL: nothing"),
            (
                "loaded",
                "text",
                True,
                "JSON: position of its snapshot; NULL: there is none, or it has ended",
            ),
        ),
        f"The consumers of {log.name}: one row each",
    )
    _create_index(log, index, log.consumer_table, ["name"])
    execute(dialect.after_table(log, Part.CONSUMER, index))


def _create_captured(log: LogTable, dialect: Dialect) -> None:
    _create(
        log,
        log.captured_table,
        new_columns(
            dialect,
            ("schema_name", "name", True, "Schema of the table; NULL: there is none"),
            ("table_name", "name", False, "Name of the table"),
            ("captured", "time", False, "When this was last written, in UTC"),
            (
                "content",
                "text",
                False,
                "JSON: the table as it was when its triggers were applied",
            ),
        ),
        f"Tables that {log.name} captures: one row each, written by triggers apply",
    )
    execute(dialect.after_table(log, Part.CAPTURED))
