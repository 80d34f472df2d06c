"""The environment that Alembic runs for every command.

The attributes of its configuration contain all that it needs.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from eventlog.sql.migrations import every_statement

attributes = context.config.attributes
shared = {
    "version_table": attributes["version_table"],
    "version_table_schema": attributes["version_table_schema"],
    "transaction_per_migration": False,
    "target_metadata": sa.MetaData(
        naming_convention=attributes["dialect"].constraint_names or None
    ),
}


def placed_and_guarded(statement: str) -> str:
    """Return a statement of a migration in the form in which it runs."""
    dialect = attributes["dialect"]
    placed = dialect.placed(statement, attributes["storage"])
    made: str = dialect.open(attributes["connection"]).guarded(placed)
    return made


if context.is_offline_mode():
    context.configure(
        dialect_name=attributes["dialect"].name,
        dialect_opts={"paramstyle": "named"},
        literal_binds=True,
        transactional_ddl=False,  # the whole script is one transaction: Dialect.prologue, epilogue
        **shared,
    )
    # The results of a script are not read, and on Oracle RETURNING would need a variable.
    context.get_context().dialect.insert_returning = False
    with context.begin_transaction():
        context.run_migrations()
else:
    context.configure(connection=attributes["connection"], **shared)
    with context.begin_transaction(), every_statement(attributes["connection"], placed_and_guarded):
        context.run_migrations()
