"""The statements of a migration: those of a dialect's own, and what becomes of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement, Executable

from eventlog.sql import registry


def execute(statements: Iterable[str]) -> None:
    """``run_or_print`` in the migration that is under way."""
    run_or_print(op.get_context(), statements)


class _AsItStands(Executable, ClauseElement):
    """SQL that no dialect changes. In a ``text()`` percent signs are doubled for drivers whose parameters are %s."""

    inherit_cache = False

    def __init__(self, statement: str) -> None:
        self.statement = statement


@compiles(_AsItStands)
def _as_it_stands(element: _AsItStands, _compiler: Any, **_: Any) -> str:
    return element.statement


def run_or_print(context: MigrationContext, statements: Iterable[str]) -> None:
    """Run or print SQL text as it stands: no colon in it begins a parameter, no percent sign is doubled."""
    run = registry.load(context.dialect.name).run
    for statement in statements:
        if context.as_sql:
            context.impl.execute(_AsItStands(statement))
        else:
            assert context.bind is not None
            run(context.bind, statement)


@contextmanager
def every_statement(conn: Connection, written: Callable[[str], str]) -> Iterator[None]:
    """Give each statement that the connection runs within the block the text that ``written`` makes of it."""

    def rewrite(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return written(statement), parameters

    sa.event.listen(conn, "before_cursor_execute", rewrite, retval=True)
    try:
        yield
    finally:
        sa.event.remove(conn, "before_cursor_execute", rewrite)
