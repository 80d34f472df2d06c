"""The internal tables of a log: failures, deliveries in flight, records of commands for other
processes, resyncs, the epoch, consumers, captured tables (spec/event-log.md 7.4, 10, 11, 13).

`eventlog grants` prints the rights that each role needs on them.

A log that another program made gets the trigger that wakes a sleeping publisher here
(``--existing-log``), and only if this session has the rights of the log's owner. Without them the
publisher polls every ``polling_interval`` seconds and logs a warning. Printed SQL always has the
trigger, for the owner to run.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import execute, log_and_dialect
from eventlog.sql.port.database import Wake
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.quoted_names import quoted, schema_of

revision = "internal_2"
down_revision = None
branch_labels = ("internal",)
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    op.create_table(
        quoted(log.error_table),
        sa.Column(
            "record_id", types["integer"], nullable=False, comment="The row of the log that failed"
        ),
        sa.Column(
            "error_time",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When it failed, in UTC",
        ),
        sa.Column(
            "code",
            types["code"],
            nullable=False,
            comment="Why: a code of the row checks, receiver, skipped or requeued",
        ),
        sa.Column("message", types["text"], nullable=False, comment="Why, for people"),
        sa.Column("consumer", types["code"], comment="Whose failure it is; NULL: the publisher's"),
        sa.Column(
            "event_id",
            types["text"],
            comment="Event-id of an object of a consumer's snapshot; of a row, the id under which "
            "it is sent again, if it is not the first one",
        ),
        schema=schema_of(log),
        comment=f"Rows of {log.name} that failed: one row per failure, never changed afterwards",
    )
    index = quoted(log.own_name("idx_{}_2"))
    op.create_index(index, quoted(log.error_table), ["record_id"], schema=schema_of(log))
    op.create_table(
        quoted(log.inflight_table),
        *_entry_columns(dialect, is_key=True),
        schema=schema_of(log),
        comment=f"What the readers of {log.name} have sent and not yet marked, and what its "
        "consumers have done",
    )
    execute(dialect.after_internal_tables(log))
    _create_state(log, dialect)
    _create_resync(log, dialect)
    _create_epoch(log, dialect)
    _create_consumers(log, dialect)
    _create_captured(log, dialect)
    if wake := _wake(log, dialect):
        execute(wake.create(log))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    if wake := _wake(log, dialect):
        execute(wake.drop(log))
    op.drop_table(quoted(log.captured_table), schema=schema_of(log))
    op.drop_table(quoted(log.consumer_table), schema=schema_of(log))
    op.drop_table(quoted(log.epoch_table), schema=schema_of(log))
    op.drop_table(quoted(log.resync_table), schema=schema_of(log))
    op.drop_table(quoted(log.state_table), schema=schema_of(log))
    execute(dialect.drop_after_internal_tables(log))
    op.drop_table(quoted(log.inflight_table), schema=schema_of(log))
    op.drop_table(quoted(log.error_table), schema=schema_of(log))


def _entry_columns(dialect: Dialect, *, is_key: bool) -> list[sa.Column[Any]]:
    """Return the columns of a table of entries (``eventlog.sql.log.internal_tables``)."""
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    return [
        sa.Column(
            "entry_no",
            types["integer"],
            primary_key=is_key,
            nullable=False,
            autoincrement=False,
            comment="Number of the entry, never reused",
        ),
        sa.Column("owner", types["code"], comment="Consumer; NULL: the publisher, or a command"),
        sa.Column("kind", types["code"], nullable=False, comment="Purpose of the entry"),
        sa.Column(
            "started",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When it was last written, in UTC",
        ),
        sa.Column("content", types["text"], nullable=False, comment="JSON"),
    ]


def _create_state(log: LogTable, dialect: Dialect) -> None:
    index = log.own_name("idx_{}_7")
    # There is no primary key: a table with one would be a class of its schema. The index begins
    # with the kind, so that a poll for requests does not read entries of other kinds.
    op.create_table(
        quoted(log.state_table),
        *_entry_columns(dialect, is_key=False),
        schema=schema_of(log),
        comment=f"What commands record for other processes of {log.name}: claims, removed rows, "
        "requests, verifications",
    )
    op.create_index(
        quoted(index),
        quoted(log.state_table),
        ["kind", "owner", "entry_no"],
        unique=True,
        schema=schema_of(log),
    )
    execute(dialect.after_state(log))


def _create_resync(log: LogTable, dialect: Dialect) -> None:
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    index = log.own_name("idx_{}_3")
    # There is no primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.resync_table),
        sa.Column(
            "digest", types["digest"], nullable=False, comment="SHA-256 of what is written again"
        ),
        sa.Column(
            "class_name",
            types["name"],
            nullable=False,
            comment="Class whose objects are written again",
        ),
        sa.Column("selection", types["text"], nullable=False, comment="Which of them, for people"),
        sa.Column(
            "started",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When it was started, in UTC",
        ),
        sa.Column(
            "position",
            types["text"],
            comment="Last key that is written, or last line of the file; NULL: none yet",
        ),
        sa.Column("rows_written", types["integer"], nullable=False, comment="Rows written so far"),
        schema=schema_of(log),
        comment=(
            f"Resyncs into {log.name} that are not finished, or are due: one row each, "
            "deleted with its last batch"
        ),
    )
    op.create_index(
        quoted(index), quoted(log.resync_table), ["digest"], unique=True, schema=schema_of(log)
    )
    execute(dialect.after_resync(log, index))


def _create_epoch(log: LogTable, dialect: Dialect) -> None:
    types = dialect.column_types
    # There is no primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.epoch_table),
        sa.Column(
            "epoch",
            types["code"],
            comment="Part of new event-ids after the record_id; NULL: none",
        ),
        sa.Column(
            "server",
            types["text"],
            comment="JSON: identity of the server, such as its timeline",
        ),
        sa.Column("raised", types["time"], comment="When the epoch began, in UTC; NULL: never"),
        sa.Column(
            "removed", types["integer"], comment="Highest record_id that was removed; NULL: none"
        ),
        schema=schema_of(log),
        comment=(
            f"The epoch of {log.name}: one row, changed when the database has lost its "
            "newest transactions"
        ),
    )
    execute(dialect.after_epoch(log))
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
    """Return the trigger that wakes the publisher of a log that another program made, if this
    session may create it.
    """
    wake = dialect.wake
    if wake is None or not context.config.attributes["existing_log"]:
        return None
    if context.is_offline_mode() or wake.may_create(dialect.open(op.get_bind()).log(log)):
        return wake
    return None


def _create_consumers(log: LogTable, dialect: Dialect) -> None:
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    index = log.own_name("idx_{}_6")
    # There is no primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.consumer_table),
        sa.Column("name", types["code"], nullable=False, comment="Name of the consumer"),
        sa.Column(
            "begun",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When it was registered, in UTC",
        ),
        sa.Column(
            "begins",
            types["code"],
            nullable=False,
            comment="Where it began: latest, earliest, snapshot, a record_id or a time",
        ),
        sa.Column(
            "done",
            types["text"],
            nullable=False,
            comment="JSON: the record_ids that it had done when it was registered",
        ),
        sa.Column(
            "moved", types["time"], comment="When its snapshot last advanced, in UTC; NULL: never"
        ),
        sa.Column("requeued", types["text"], comment="JSON: what is sent again; NULL: nothing"),
        sa.Column(
            "loaded",
            types["text"],
            comment="JSON: position of its snapshot; NULL: there is none, or it has ended",
        ),
        schema=schema_of(log),
        comment=f"The consumers of {log.name}: one row each",
    )
    op.create_index(
        quoted(index), quoted(log.consumer_table), ["name"], unique=True, schema=schema_of(log)
    )
    execute(dialect.after_consumers(log, index))


def _create_captured(log: LogTable, dialect: Dialect) -> None:
    types, now = dialect.column_types, sa.text(dialect.utc_now)
    # There is no primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.captured_table),
        sa.Column("schema_name", types["name"], comment="Schema of the table; NULL: there is none"),
        sa.Column("table_name", types["name"], nullable=False, comment="Name of the table"),
        sa.Column(
            "captured",
            types["time"],
            nullable=False,
            server_default=now,
            comment="When this was last written, in UTC",
        ),
        sa.Column(
            "content",
            types["text"],
            nullable=False,
            comment="JSON: the table as it was when its triggers were applied",
        ),
        schema=schema_of(log),
        comment=f"Tables that {log.name} captures: one row each, written by triggers apply",
    )
    execute(dialect.after_captured(log))
