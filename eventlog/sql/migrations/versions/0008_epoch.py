"""The epoch of a log, with what the server said of itself: how a log that was put back is told (spec/event-log.md 7.4).

The line is written at once, with the timeline where the database tells it in SQL: what is lost after that, and before
the first connection of a publisher, is seen too. A downgrade forgets the epoch, so that event-ids begin to be without
one again: go back only where no failover is to be remembered.

Grants: the publisher's user, and who runs ``eventlog db new-epoch``, need SELECT, INSERT, UPDATE on it.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import context, op

from eventlog.sql.log_table import quoted, schema_of
from eventlog.sql.migrations import execute, log_and_dialect

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    log, dialect = log_and_dialect()
    types = dialect.column_types
    # No primary key: a table with one would be a class of its schema.
    op.create_table(
        quoted(log.epoch_table),
        sa.Column("epoch", types["code"], comment="What new event-ids carry behind the record_id; NULL: nothing"),
        sa.Column("server", types["text"], comment="JSON: what the server last said of itself, such as its timeline"),
        sa.Column("raised", types["time"], comment="When the epoch was drawn, in UTC; NULL: never"),
        schema=schema_of(log),
        comment=f"The epoch of {log.name}: one line, changed when the database has lost its newest transactions",
    )
    execute(dialect.after_epoch(log))
    epochs = sa.table(quoted(log.epoch_table), sa.column("epoch"), sa.column("server"), schema=schema_of(log))
    server: sa.ColumnElement[str] = sa.literal_column(dialect.server_sql)
    if not context.is_offline_mode():
        # Not what tells one copy of a database from another: nobody has published this log under an epoch yet.
        timeline = dialect.server_parts(op.get_bind(), log).get("timeline")
        server = sa.literal(None if timeline is None else json.dumps({"timeline": timeline}), sa.Text())
    # Where DDL is not part of the transaction, a migration that broke off is run again: the line is there then.
    told = sa.select(server).where(~sa.exists(sa.select(sa.text("1")).select_from(epochs)))
    op.execute(sa.insert(epochs).from_select(["server"], told))


def downgrade() -> None:
    log, _ = log_and_dialect()
    op.drop_table(quoted(log.epoch_table), schema=schema_of(log))
