"""The log table and the function that quotes keys for it (spec/event-log.md 1.1, spec/triggers.md 4, 7).

Grants: the publisher's user needs SELECT and UPDATE (status) on the log, and DELETE with ``delete_from_log``. The owner
of the trigger functions needs INSERT; the application's users need no right at all, since the functions run with
their owner's (spec/triggers.md 7.1).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import quoted, schema_of
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0002"
down_revision = None
branch_labels = ("log",)
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types = dialect.column_types
    execute(dialect.before_log(log))
    op.create_table(
        quoted(log.name),
        dialect.record_id(log, "Place in the queue: ascending, with gaps"),
        sa.Column(
            "status",
            types["status"],
            nullable=False,
            server_default=sa.text("'N'"),
            comment="N new, S success, W warning, E error, F fatal; any other letter: left alone",
        ),
        sa.Column(
            "event_type",
            types["event_type"],
            nullable=False,
            comment="1 insert field, 2 update field, 3 update field (remove all values), 4 delete row; "
            "read back: 5 insert row, 6 update row, 7 insert field, 8 update field",
        ),
        sa.Column(
            "event_time",
            types["event_time"],
            nullable=False,
            server_default=sa.text(dialect.utc_now),
            comment="When the change was made, in UTC",
        ),
        sa.Column("perpetrator", types["name"], comment="Database user who made the change; NULL: somebody else"),
        sa.Column("table_name", types["name"], nullable=False, comment="Table or view whose object changed"),
        sa.Column("table_key", types["key"], nullable=False, comment="Key of the object: column=value+column=value"),
        sa.Column("column_name", types["name"], comment="Column that changed, for types 1, 2, 3, 7 and 8"),
        sa.Column("old_value", types["value"], comment="Value before, for types 1 to 3; binary values are base64"),
        sa.Column("new_value", types["value"], comment="Value after, for types 1 to 3; binary values are base64"),
        sa.CheckConstraint(dialect.is_letter("status")),
        sa.CheckConstraint("event_type BETWEEN 1 AND 8"),
        schema=schema_of(log),
        comment="Event log: triggers write it, the eventlog publisher reads and marks it",
        # A record_id is never given twice, even if the rows behind it are deleted.
        sqlite_autoincrement=True,
    )
    if dialect.queue_by_expression:
        execute(dialect.narrow_queue(log))
    else:
        op.create_index(
            quoted(log.own_name("idx_{}_1")),
            quoted(log.name),
            list(dialect.queue_index),
            schema=schema_of(log),
            postgresql_where=sa.text("status = 'N'"),
            sqlite_where=sa.text("status = 'N'"),
        )
    execute(dialect.after_log(log))


def downgrade() -> None:
    log, dialect = log_and_dialect()
    execute(dialect.drop_after_log(log))
    # The table may have been dropped by hand: what is left of the log goes all the same.
    if context.is_offline_mode() or sa.inspect(op.get_bind()).has_table(quoted(log.name), schema_of(log)):
        op.drop_table(quoted(log.name), schema=schema_of(log))
    execute(dialect.drop_before_log(log))
