"""The catalogue of a publisher whose tables change while it runs (spec/event-log.md 5).

A publisher reads its catalogue at the start. A column that comes later would make its rows
``unknown_column``, another type would make them ``bad_value``, and a column that is gone would fail
the statement that reads back. So ``CatalogWatcher`` compares the catalogue every few seconds by one
statement, and at once where rows are about to become E or the database refuses a statement. What
has changed is said once, and publishing goes on with the catalogue that is there now. A column that
is gone is still known in rows that were logged before; it is read back no more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from eventlog.core.catalog import (
    Attribute,
    Catalog,
    LogName,
    ObjectClass,
)
from eventlog.errors import (
    EventlogError,
)
from eventlog.publisher.context import Context, unavailable_in_words
from eventlog.sql.triggers import column_changes, key_change

_log = logging.getLogger("eventlog.publisher")

CATALOG_INTERVAL: Final = 10.0
"""Seconds between two looks at the tables of a publisher that has no reason to suspect anything."""


class CatalogDrifted(Exception):
    """A window holds rows that are bad by a catalogue that is no longer that of the database. Nothing was recorded."""


class CatalogWatcher:
    """Which catalogue the publisher works with: that of ``context``."""

    __slots__ = ("_fingerprint", "_last_warning", "_next_refresh", "context")

    def __init__(self, context: Context) -> None:
        self.context = context
        self._fingerprint: str | None = None  # of the tables, when they were last compared
        self._next_refresh = 0.0
        self._last_warning = ""

    def refresh_if_due(self) -> bool:
        """``refresh``, if the last one was ``CATALOG_INTERVAL`` seconds ago."""
        return time.monotonic() >= self._next_refresh and self.refresh()

    def refresh(self) -> bool:
        """Compare the tables with the catalogue; whether there is another one in ``context`` now. Ends a transaction.

        What has changed is logged as a warning, once. A catalogue that cannot be read leaves the old one in force, and
        that is said once too.
        """
        self._next_refresh = time.monotonic() + CATALOG_INTERVAL
        context = self.context
        if context.reread is None:
            return False
        # Before the catalogue: what changes in between is seen the next time.
        fingerprint = context.dialect.fingerprint(context.connection, context.catalog)
        if fingerprint is not None and fingerprint == self._fingerprint:
            context.connection.commit()
            return False
        self._fingerprint = fingerprint
        try:
            fresh = context.reread()
        except EventlogError as error:
            context.connection.rollback()
            if str(error) != self._last_warning:
                what = "the tables have changed, and the publisher goes on with what it knows of them: %s"
                _log.warning(what, error, extra={"code": error.code})
            self._last_warning = str(error)
            return False
        context.connection.commit()
        sentences = list(_changes(context.catalog, fresh))
        if not sentences:
            return False
        for sentence in sentences:
            _log.warning("%s; see `eventlog triggers plan`, then `eventlog triggers apply`", sentence)
        self.context = replace(context, catalog=_with_lost(fresh, context.catalog))
        return True

    def check_bad(self) -> None:
        """To be called before rows are marked bad: raises CatalogDrifted if the catalogue was to blame."""
        if self.refresh():
            raise CatalogDrifted

    def explains(self, error: Exception) -> bool:
        """Whether an error that ended a cycle came of the old catalogue, and another one is in ``context`` now."""
        if isinstance(error, CatalogDrifted):
            return True
        if self.context.connection.invalidated:
            return False
        self.context.connection.rollback()
        return self.refresh()


def _changes(before: Catalog, now: Catalog) -> Iterator[str]:
    """What became of the classes' tables, in sentences, one a table."""
    classes = {cls.name: cls for cls in now.classes}
    for name, error in now.unavailable.items():
        if str(before.unavailable.get(name, "")) != str(error):
            yield unavailable_in_words(name, error)
    for old in before.classes:
        new = classes.pop(old.name, None)
        if new is None:
            if old.name not in now.unavailable:
                yield f"{old.name} is no class any more"
            continue
        tables = _columns(new)
        for table, columns in _columns(old).items():
            if table not in tables:
                why = f": {now.no_children[table]}" if table in now.no_children else ""
                yield f"{table} is no child table of {old.name} any more{why}; its values are not captured"
                continue
            words = column_changes(columns, tables.pop(table))
            if table == old.name:
                words = (*words, *key_change(*([column.name for column in cls.key] for cls in (old, new))))
            if words:
                yield f"{table}: {'; '.join(words)}"
        yield from (f"{table} is a child table of {old.name} now" for table in tables)
    yield from (f"{name} is a class now" for name in classes)


def _columns(cls: ObjectClass) -> dict[str, dict[str, str]]:
    """The columns of a class that are attributes, by table, its own table first."""
    tables: dict[str, dict[str, str]] = {cls.table.name: {}}
    for attribute in cls.attributes:
        tables.setdefault(attribute.table, {})[attribute.column.name] = attribute.column.type.sql
    return tables


def _with_lost(now: Catalog, before: Catalog) -> Catalog:
    """The catalogue, in which the log's rows may still name what only the catalogue before had."""
    names: dict[str, LogName] = {}
    for name, log_name in now.log_names.items():
        old = before.log_names.get(name)
        lost = {} if old is None else _lost(old, log_name)
        # Last of all: a name that the class has now means what it means now.
        names[name] = replace(log_name, by_spelling=(*log_name.by_spelling, lost)) if lost else log_name
    return replace(now, log_names=names)


def _lost(old: LogName, new: LogName) -> dict[str, Attribute]:
    return {
        name: attribute for names in old.by_spelling for name, attribute in names.items() if new.attribute(name) is None
    }
