"""The log: its table, the index by which the publisher reads, its functions and the trigger that
wakes a publisher.

Rules: spec/event-log.md 1.1 and spec/triggers.md 4, 7, 8.

Grants: the publisher's user needs SELECT and UPDATE (status) on the log, and DELETE with
``delete_from_log``. The owner of the trigger functions needs INSERT; the application's users need
no right at all, since the functions run with their owner's rights (spec/triggers.md 7.1).
Notifications need no right either: the function that sends them runs with its owner's rights.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.migrations import execute, log_and_dialect, new_columns
from eventlog.sql.port.quoted_names import quoted, schema_of

revision = "log_1"
down_revision = None
branch_labels = ("log",)
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.before_log(log))
    op.create_table(
        quoted(log.name),
        dialect.record_id(log, "Place in the queue: ascending, with gaps"),
        sa.Column(
            "status",
            dialect.column_types["status"],
            nullable=False,
            server_default=sa.text("'N'"),
            comment="N new, S success, W warning, E error, F fatal; any other letter: left alone",
        ),
        *new_columns(
            dialect,
            (
                "event_type",
                "event_type",
                False,
                "1 insert field, 2 update field, 3 update field (remove all values), 4 delete row; "
                "read back: 5 insert row, 6 update row, 7 insert field, 8 update field",
            ),
            ("event_time", "event_time", False, "When the change was made, in UTC"),
            (
                "perpetrator",
                "name",
                True,
                "Database user who made the change; NULL: not the publisher",
            ),
            ("table_name", "name", False, "Table or view whose object changed"),
            ("table_key", "key", False, "Key of the object: column=value+column=value"),
            ("column_name", "name", True, "Column that changed, for types 1, 2, 3, 7 and 8"),
            (
                "old_value",
                "value",
                True,
                "Value before, for types 1 to 3; binary values are base64",
            ),
            (
                "new_value",
                "value",
                True,
                "Value after, for types 1 to 3; binary values are base64",
            ),
        ),
        *map(sa.CheckConstraint, dialect.log_checks()),
        schema=schema_of(log),
        comment="Event log: triggers write it, the eventlog publisher reads and marks it",
        # A record_id is never assigned twice, even if the newest rows are deleted.
        sqlite_autoincrement=True,
    )
    execute([dialect.create_queue_index(log)])
    execute(dialect.after_log(log))
    if dialect.wake is not None:
        execute(dialect.wake.create(log))
    execute(dialect.deny_others(log, [log.name, log.version_table]))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    if dialect.wake is not None:
        execute(dialect.wake.drop(log))
    execute(dialect.drop_after_log(log))
    # The table may have been dropped by hand; the rest of the log is removed anyway.
    if context.is_offline_mode() or sa.inspect(op.get_bind()).has_table(
        quoted(log.name), schema_of(log)
    ):
        op.drop_table(quoted(log.name), schema=schema_of(log))
    execute(dialect.drop_before_log(log))
    if dialect.partitioning is not None and not context.is_offline_mode():
        execute(dialect.partitioning.drop(log))
