"""Statements of a dialect's own, in a migration."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from alembic import context, op


def execute(statements: Iterable[str]) -> None:
    """Run or print SQL text as it stands: no colon in it begins a parameter."""
    for statement in statements:
        if context.is_offline_mode():
            op.execute(sa.text(statement.replace(":", "\\:")))
        else:
            op.get_bind().exec_driver_sql(statement, execution_options={"no_parameters": True})
