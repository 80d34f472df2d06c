"""The column of a log in which PostgreSQL records the transaction of each row
(spec/event-log.md 1.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eventlog.errors import LogTableError
from eventlog.sql.dialects.postgresql.partitions.leaf_sql import (
    ask,
    changes,
    leaf_comment,
    run,
    sibling,
    table_of,
)
from eventlog.sql.log_table import TRANSACTION_ID

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog


def statements(table: str) -> tuple[str, str]:
    """Return the statements that add the column to a table, whose name is quoted. Existing rows get
    NULL before the column gets its default: the server would rewrite the table for a new column
    whose default is not constant.
    """
    return (
        f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {TRANSACTION_ID} bigint",
        f"ALTER TABLE {table} ALTER COLUMN {TRANSACTION_ID} SET DEFAULT pg_catalog.txid_current()",
    )


def add(log: OpenLog) -> None:
    """Add the column to the table of a log, its leaves, and the detached tables that may become
    leaves again. All tables are changed in one transaction, which the function commits.

    Raises LogInUse if another session uses the log, and LogTableError if the log has another column
    of this name.
    """
    if ask(log, "has_column", column=TRANSACTION_ID)[0][0]:
        raise LogTableError(
            f"the log {log} has a column {TRANSACTION_ID} that `eventlog db upgrade` did not add: "
            "rename it, or remove database.transaction_ids"
        )
    log.connection.rollback()
    with changes(log):
        detached = [name for _, name, _ in ask(log, "detached", comment=leaf_comment(log.table))]
        for table in (table_of(log.table), *(sibling(log.table, name) for name in detached)):
            run(log, "; ".join(statements(table)))
    log.commit()


HAS_COLUMN: Final = r"""
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = %(column)s AND NOT a.attisdropped
          AND a.atttypid = 'pg_catalog.int8'::regtype
          AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) ~ '^(pg_catalog\.)?txid_current\(\)$')"""
"""The statement that checks for the column. The default shows that eventlog has added it."""
