"""The catalogue of a publisher whose tables change while it runs (spec/event-log.md 5.5).

A publisher reads its catalogue at the start. Without a newer catalogue, rows of a column that is
added later would be ``unknown_column``, rows of a column with a new type would be ``bad_value``,
and the statement that reads back would fail if a column is missing. Values that are read back with
an older catalogue lack the new column, and nothing would send the lacking values later. So
``CatalogWatcher`` compares the catalogue with the tables by one statement: every few seconds, and
immediately when values are about to be read back, when rows are about to become E, and when the
database refuses a statement. Each change is logged once, and publishing goes on with the present
catalogue, without the classes that the format fails to write or that the role may not read. Rows
that were logged earlier may still name a column that no longer exists; such a column is no longer
read back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Attribute, Catalog, LogName, ObjectClass, Table
from eventlog.core.clock import monotonic
from eventlog.errors import DatabaseError, EventlogError, first_of
from eventlog.publisher.context.context import CatalogCheck, Context, unavailable_in_words
from eventlog.publisher.send.sending import CycleRepeats
from eventlog.publisher.send.unwritable import UnwritableClasses
from eventlog.sql.port.driver_errors import is_refused, words_of
from eventlog.sql.port.questions import ask, row
from eventlog.sql.port.rights import grants_advice
from eventlog.sql.triggers.uncaptured import column_changes, key_change

_log = logging.getLogger("eventlog.publisher")

CATALOG_INTERVAL: Final = 10.0
"""Seconds between two checks of the tables if there is no sign of a change."""

RIGHTS_INTERVAL: Final = 60.0
"""Seconds between two trials of unavailable classes while no table changes: a GRANT changes none.
"""


class CatalogDrifted(CycleRepeats):
    """A window has invalid rows, or rows whose values must be read back, but the catalogue is older
    than the tables. Nothing about these rows was recorded.
    """


class CatalogWatcher(CatalogCheck):
    """Keeps the publisher's present ``context`` and its catalogue up to date."""

    __slots__ = (
        "_fingerprint",
        "_has_failed",
        "_last_warning",
        "_next_question",
        "_next_refresh",
        "_unreadable",
        "_unwritable",
        "context",
    )

    def __init__(self, context: Context) -> None:
        self.context = context
        # The state of the tables before the catalogue was last read from them; None = unknown.
        self._fingerprint: str | None = None
        self._next_refresh = 0.0
        self._last_warning = ""
        self._has_failed = False  # True if the last cycle ended by an error that nothing explained
        # The classes that the format has failed to write: their tables then, and the error.
        self._unwritable: dict[str, tuple[tuple[Table, ...], EventlogError]] = {}
        # The classes whose tables the role may not read, as they were last read, and the error.
        self._unreadable: dict[str, tuple[ObjectClass, EventlogError]] = {}
        self._next_question = 0.0

    def refresh_if_due(self) -> bool:
        """Call ``refresh`` if the last call was ``CATALOG_INTERVAL`` seconds ago."""
        return monotonic() >= self._next_refresh and self.refresh()

    def refresh(self) -> bool:
        """Compare the tables with the catalogue. Return True if ``context`` now has a new
        catalogue. Ends the transaction.

        A warning reports each change once. If the catalogue cannot be read, the old catalogue stays
        in force, and a warning reports the error once.
        """
        self._next_refresh = monotonic() + CATALOG_INTERVAL
        if self.context.catalog.unavailable and monotonic() >= self._next_question:
            self._ask_again()
        if self._is_current():
            self.context.log.commit()
            return False
        return self._reread()

    def _is_current(self) -> bool:
        """Return True if the tables still match the catalogue; one statement checks that."""
        context = self.context
        if context.reread is None:
            return True
        fingerprint = context.log.db.fingerprint(context.catalog)
        if fingerprint is not None and fingerprint == self._fingerprint:
            return True
        # This is taken before the catalogue is read, so that a change in between is noticed the
        # next time.
        self._fingerprint = fingerprint
        return False

    def _reread(self) -> bool:
        """Read the catalogue. Return True if ``context`` now has a new catalogue. Ends the
        transaction.
        """
        context = self.context
        assert context.reread is not None
        try:
            fresh = self._writable(context.reread())
        except EventlogError as error:
            context.log.connection.rollback()
            self._fingerprint = None
            if str(error) != self._last_warning:
                what = (
                    "the tables have changed and cannot be read again, so publishing continues "
                    "with the tables as they were: %s"
                )
                _log.warning(what, error, extra={"code": error.code})
            self._last_warning = str(error)
            return False
        context.log.commit()
        sentences = list(_changes(context.catalog, fresh))
        if not sentences:
            return False
        for sentence in sentences:
            _log.warning(
                "%s; see `eventlog triggers plan`, then `eventlog triggers apply`", sentence
            )
        self.context = replace(context, catalog=_with_lost_names(fresh, context.catalog))
        return True

    def _writable(self, fresh: Catalog) -> Catalog:
        """Return the catalogue without the classes that the format fails to write. A class is tried
        again after its tables have changed.
        """
        tables = {cls.name: _tables(cls) for cls in fresh.classes}
        self._unwritable = {
            name: (of_class, error)
            for name, (of_class, error) in self._unwritable.items()
            if tables.get(name) == of_class
        }
        self._unreadable = {
            name: (fresh.class_named(name), error)
            for name, (_, error) in self._unreadable.items()
            if name in tables
        }
        left_out = (*self._unwritable.items(), *self._unreadable.items())
        refused = {name: error for name, (_, error) in left_out}
        return fresh.without(refused) if refused else fresh

    def _not_readable(self, classes: Iterable[ObjectClass]) -> dict[str, list[str]]:
        """Return those of the classes that the role may not read, each with the tables."""
        context, needed = self.context, dict[str, dict[str, set[str]]]()
        for cls in classes:
            needed[cls.name] = {table: set(columns) for table, columns in _columns(cls).items()}
            needed[cls.name][cls.table.name] |= {column.name for column in cls.key}
        of_tables = chain.from_iterable(tables.items() for tables in needed.values())
        pairs = {(table, column) for table, columns in of_tables for column in columns}
        tables = [table for table, _ in pairs]
        columns = [column for _, column in pairs]
        about = {"schema": context.catalog.schema, "tables": tables, "columns": columns}
        closed = {table for table, _ in ask(context.log, "unreadable", row, **about)}
        return {name: sorted(closed & set(of)) for name, of in needed.items() if closed & set(of)}

    def _leave_out_unreadable(self, error: DBAPIError) -> bool:
        """Make the classes unavailable that the role may not read and that a refused statement
        reads. Return False if there are none, or if the role may read no class.
        """
        context, statement = self.context, error.statement or ""
        closed = self._not_readable(context.catalog.classes)
        context.log.connection.rollback()
        if len(closed) == len(context.catalog.classes):
            return False
        user = context.log.connection.engine.url.username
        advice = grants_advice(user, context.ledger.purpose)
        errors: dict[str, EventlogError] = {
            name: DatabaseError(f"this role may not read {first_of(tables, 3)}; {advice}")
            for name, tables in closed.items()
            if any(context.log.dialect.quote(table) in statement for table in tables)
        }
        for name, refused in errors.items():
            self._unreadable[name] = context.catalog.class_named(name), refused
        self._next_question = monotonic() + RIGHTS_INTERVAL
        self._make_unavailable(errors)
        return bool(errors)

    def _ask_again(self) -> None:
        """Ask whether the role may read its classes now, and have the tables read again."""
        self._next_question = monotonic() + RIGHTS_INTERVAL
        closed = self._not_readable(cls for cls, _ in self._unreadable.values())
        self._unreadable = {name: self._unreadable[name] for name in closed}
        self._fingerprint = None

    def _leave_out(self, errors: Mapping[str, EventlogError]) -> None:
        """Make the classes unavailable that the format has failed to write."""
        for name, error in errors.items():
            self._unwritable[name] = _tables(self.context.catalog.class_named(name)), error
        self.context.output.forget()
        self._make_unavailable(errors)

    def _make_unavailable(self, errors: Mapping[str, EventlogError]) -> None:
        for name, error in errors.items():
            _log.error("%s", unavailable_in_words(name, error), extra={"code": error.code})
        self.context = replace(self.context, catalog=self.context.catalog.without(errors))

    def before_invalid(self) -> None:
        """Raise CatalogDrifted if rows may be invalid only because the catalogue is old."""
        if self.refresh():
            raise CatalogDrifted

    def before_read_back(self) -> None:
        """Raise CatalogDrifted if values would be read back with an old catalogue.

        When a row of the log is read, the tables already have every change that was committed
        before the row, such as a new column. So one comparison after reading is enough for all rows
        of a window.
        """
        if not self._is_current() and self._reread():
            raise CatalogDrifted

    def explains(self, error: CycleRepeats | DBAPIError) -> bool:
        """Return True if an error has ended a cycle that must run again. Four causes of the error
        require this: the catalogue was old, and ``context`` now has a new catalogue; the format has
        failed to write classes, or the role may not read them, and ``context`` no longer has them;
        a table may have been unavailable
        only while the statement ran. The last cause leaves no trace. So a cycle is run again after
        any statement that the database has refused, but not a second time in succession.
        """
        if isinstance(error, UnwritableClasses):
            self.context.log.connection.rollback()
            self._leave_out(error.errors)
        if isinstance(error, CycleRepeats):
            return True
        if not is_refused(self.context.log.connection, error):
            return False
        self.context.log.connection.rollback()
        if self.refresh() or self._leave_out_unreadable(error):
            return True
        is_first, self._has_failed = not self._has_failed, True
        if is_first:
            reason = words_of(self.context.log.connection, error)
            _log.warning("a statement failed and is tried again: %s", reason)
        return is_first

    def cycle_ended(self) -> None:
        """Record that a cycle has ended without an error of the database."""
        self._has_failed = False


def _changes(before: Catalog, now: Catalog) -> Iterator[str]:
    """Yield one sentence for each changed table of the classes."""
    classes = {cls.name: cls for cls in now.classes}
    for name, error in now.unavailable.items():
        if str(before.unavailable.get(name, "")) != str(error):
            yield unavailable_in_words(name, error)
    for old in before.classes:
        new = classes.pop(old.name, None)
        if new is None:
            if old.name not in now.unavailable:
                yield f"{old.name} is no longer a class"
            continue
        yield from _changes_of_class(old, new, now.no_children)
    yield from (f"{name} is a class now" for name in classes)


def _changes_of_class(
    old: ObjectClass, new: ObjectClass, no_children: Mapping[str, str]
) -> Iterator[str]:
    """Yield the changes of the tables of a class: its own table and its child tables."""
    tables = _columns(new)
    for table, columns in _columns(old).items():
        if table not in tables:
            why = f": {no_children[table]}" if table in no_children else ""
            yield (
                f"{table} is no longer a child table of {old.name}{why}; its values are not "
                "captured"
            )
            continue
        words = column_changes(columns, tables.pop(table))
        if table == old.name:
            words = (
                *words,
                *key_change(*([column.name for column in cls.key] for cls in (old, new))),
            )
        if words:
            yield f"{table}: {'; '.join(words)}"
    yield from (f"{table} is a child table of {old.name} now" for table in tables)


def _tables(cls: ObjectClass) -> tuple[Table, ...]:
    return cls.table, *(child.table for child in cls.children)


def _columns(cls: ObjectClass) -> dict[str, dict[str, str]]:
    """Return the columns of a class that are attributes, by table. The class's own table is the
    first.
    """
    tables: dict[str, dict[str, str]] = {cls.table.name: {}}
    for attribute in cls.attributes:
        column = (attribute.stored or attribute).column
        tables.setdefault(attribute.table, {})[column.name] = column.type.sql
    return tables


def _with_lost_names(now: Catalog, before: Catalog) -> Catalog:
    """Return the new catalogue, with the names that only the old catalogue had, since the log's
    rows may use these names.
    """
    names: dict[str, LogName] = {}
    for name, log_name in now.log_names.items():
        old = before.log_names.get(name)
        lost = {} if old is None else _lost(old, log_name)
        # They come last, since the present names of the class keep their present meaning.
        names[name] = (
            replace(log_name, by_spelling=(*log_name.by_spelling, lost)) if lost else log_name
        )
    return replace(now, log_names=names)


def _lost(old: LogName, new: LogName) -> dict[str, Attribute]:
    return {
        name: attribute
        for names in old.by_spelling
        for name, attribute in names.items()
        if new.attribute(name) is None
    }
