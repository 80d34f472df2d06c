"""Objects as they exist for a reader: their current rows with the condition of their class
(spec/event-log.md 15.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.catalog.filters import MATCHES
from eventlog.core.rows.events import OUTSIDE, CurrentRow, FailedCondition
from eventlog.sql.port.driver_errors import first_line, is_refused
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.sql_files import NEUTRAL, source_of

_NAME: Final = "eventlog_condition"


def read_for_reader(
    db: OpenDatabase,
    schema: str | None,
    cls: ObjectClass,
    keys: Sequence[str],
    attributes: Sequence[Attribute],
) -> Mapping[str, CurrentRow]:
    """Return the same as ``query_back``, from the same statement with the condition of the class:
    ``OUTSIDE`` for an object that does not match it, a ``FailedCondition`` for one for which it
    fails.

    If it fails for an object, the others are read again by halves.
    """
    if cls.condition is None:
        return db.query_back(schema, cls, keys, attributes)
    try:
        with _after_refusal(db):
            rows = db.query_back(schema, cls, keys, (*attributes, MATCHES))
    except DBAPIError as error:
        if not is_refused(db.connection, error) or why_refused(db, schema, cls) is not None:
            raise
        if len(keys) == 1:
            return {keys[0]: FailedCondition(first_line(error.orig or error))}
        middle = len(keys) // 2
        return {
            **read_for_reader(db, schema, cls, keys[:middle], attributes),
            **read_for_reader(db, schema, cls, keys[middle:], attributes),
        }
    return {
        key: {name: texts for name, texts in row.items() if name != MATCHES.name}
        if "1" in row[MATCHES.name]
        else OUTSIDE
        for key, row in rows.items()
    }


def why_refused(db: OpenDatabase, schema: str | None, cls: ObjectClass) -> str | None:
    """Return why the database refuses the condition of a class, whatever the objects are; None if
    it accepts it, or if there is none.
    """
    if cls.condition is None:
        return None
    dialect = db.dialect
    source = source_of(cls, dialect.rows_of(schema, cls), [MATCHES.column], dialect.quote)
    statement = f"SELECT p.{dialect.quote(MATCHES.column.name)} FROM {source} p WHERE 1 = 0"  # noqa: S608 - the operator's own
    try:
        with _after_refusal(db):
            db.connection.exec_driver_sql(dialect.bindable(statement))
    except DBAPIError as error:
        if not is_refused(db.connection, error):
            raise
        return first_line(error.orig or error)
    return None


@contextmanager
def _after_refusal(db: OpenDatabase) -> Iterator[None]:
    """Let the transaction continue if a statement of the block is refused."""
    if not db.dialect.refusal_ends_transaction:
        yield
        return

    def run(command: str) -> None:
        db.connection.exec_driver_sql(f"{command} {_NAME}", execution_options=NEUTRAL)

    run("SAVEPOINT")
    try:
        yield
    except DBAPIError as error:
        if not error.connection_invalidated:
            run("ROLLBACK TO SAVEPOINT")
            run("RELEASE SAVEPOINT")
        raise
    run("RELEASE SAVEPOINT")
