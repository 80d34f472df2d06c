"""The ``post_poll_statements`` that are refused: they would lose rows (spec/event-log.md 8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from eventlog.sql.log_table import LogTable
from eventlog.sql.sql_text import changed_table

SAFE_WAYS: Final = (
    "delete_from_log = true in [publisher] deletes rows once they are answered",
    "or `eventlog purge`, rows that are done and old",
)
"""The ways to remove rows of a log without losing changes."""


def refused_statements(statements: Iterable[str], log: LogTable) -> Iterator[tuple[str, str]]:
    """Yield the statements that may change the log or an internal table, each with the reason.

    Such a statement would also remove rows that were committed while the receiver answered, and
    rows that wait for a retry.
    """
    for statement in statements:
        table = changed_table(statement, log.schema, log.own_tables)
        if table is not None:
            what = "the log" if table == log.name else f"a table of the log {log}"
            yield (
                statement,
                f"may change {table}, {what}: rows that are committed while the receiver answers, "
                "or that wait for a retry, would be lost silently",
            )
