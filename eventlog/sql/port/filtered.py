"""Objects as they exist for a reader: their current rows with the condition of their class
(spec/event-log.md 15.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.catalog.filters import MATCHES
from eventlog.core.rows.events import LEFT_VIEW, OUTSIDE, CurrentRow, FailedCondition
from eventlog.sql.port.driver_errors import first_line, is_refused, words_of
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
    """Return objects as ``query_back`` does, by a statement that also evaluates the condition of
    the class and, for a view, reads the main table. An object that does not match the condition is
    ``OUTSIDE``. An object whose condition raises an error is a ``FailedCondition``. An object that
    only the main table has is ``LEFT_VIEW``.

    If the condition raises an error, the keys are divided into halves, which are read again
    separately, until the object with the error is found.
    """
    if not cls.may_lack_objects:
        with _naming(cls):
            return db.query_back(schema, cls, keys, attributes)
    if cls.condition is None:
        with _naming(cls):
            return _as_present(db.query_back(schema, cls, keys, (*attributes, MATCHES)))
    try:
        with _after_refusal(db):
            rows = db.query_back(schema, cls, keys, (*attributes, MATCHES))
    except DBAPIError as error:
        if not is_refused(db.connection, error) or why_refused(db, schema, cls) is not None:
            with _naming(cls):
                raise
        if len(keys) == 1:
            return {keys[0]: FailedCondition(words_of(db.connection, error, otherwise=True))}
        middle = len(keys) // 2
        return {
            **read_for_reader(db, schema, cls, keys[:middle], attributes),
            **read_for_reader(db, schema, cls, keys[middle:], attributes),
        }
    return _as_present(rows)


@contextmanager
def _naming(cls: ObjectClass) -> Iterator[None]:
    """Add the class to an error of a statement of the block, for messages (``words_of``)."""
    try:
        yield
    except DBAPIError as error:
        error.add_note(f"reading class {cls.name}")
        raise


def _as_present(rows: Mapping[str, CurrentRow]) -> dict[str, CurrentRow]:
    """Return rows that were read with ``MATCHES`` as they exist for the reader."""
    present: dict[str, CurrentRow] = {}
    for key, row in rows.items():
        found = row[MATCHES.name]
        if "1" in found:
            present[key] = {name: texts for name, texts in row.items() if name != MATCHES.name}
        else:
            present[key] = OUTSIDE if "0" in found else LEFT_VIEW
    return present


def why_refused(db: OpenDatabase, schema: str | None, cls: ObjectClass) -> str | None:
    """Return why the database refuses the condition of a class for any object; None if it accepts
    the condition, or if the class has no condition. The statement reads no row, so the database's
    message quotes none.
    """
    if cls.condition is None:
        return None
    return _why_refused(db, schema, cls)


def may_read_main_table(db: OpenDatabase, schema: str | None, cls: ObjectClass) -> bool:
    """Return True if this session can read whether an object of a view has a row in the view's main
    table.
    """
    return _why_refused(db, schema, replace(cls, condition=None)) is None


def _why_refused(db: OpenDatabase, schema: str | None, cls: ObjectClass) -> str | None:
    dialect = db.dialect
    source = source_of(cls, partial(dialect.relation, schema), [MATCHES.column], dialect.quote)
    statement = f"SELECT p.{dialect.quote(MATCHES.column.name)} FROM {source} p WHERE 1 = 0"  # noqa: S608 - the operator's own
    try:
        with _after_refusal(db):
            db.connection.exec_driver_sql(dialect.strict(statement))
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
