"""The tables change while a publisher runs: seen, said, and taken up before rows go bad (spec/event-log.md 5).

A publisher reads its catalogue at the start. A column that comes later would make its rows ``unknown_column``, another
type would make them ``bad_value``, and a column that is gone would fail the statement that reads back. So the catalogue
is compared every ``INTERVAL`` seconds by one statement, and at once where rows are about to become E or the database
refuses a statement. What has changed is said once, and publishing goes on with the catalogue that is there now. A
column that is gone is still known in rows that were logged before; it is read back no more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from eventlog.core.catalog import Attribute, Catalog, LogName, ObjectClass
from eventlog.errors import EventlogError
from eventlog.publisher.context import Context
from eventlog.sql.triggers.compare import in_words, key_in_words

_log = logging.getLogger("eventlog.publisher")

INTERVAL: Final = 10.0
"""Seconds between two looks at the tables of a publisher that has no reason to suspect anything."""


class CatalogDrifted(Exception):
    """A window holds rows that are bad by a catalogue that is no longer that of the database. Nothing was recorded."""


@dataclass(slots=True)
class CatalogWatcher:
    """Which catalogue the publisher works with. ``seen``: the tables' fingerprint when they were last compared.

    ``next_refresh`` is on a monotonic clock in seconds; ``last_warning``: why no other catalogue could be had.
    """

    context: Context
    seen: str | None = None
    next_refresh: float = 0.0
    last_warning: str = ""

    def refresh_if_due(self) -> bool:
        """``refresh``, if the last one was ``INTERVAL`` seconds ago."""
        return time.monotonic() >= self.next_refresh and self.refresh()

    def refresh(self) -> bool:
        """Compare the tables with the catalogue; whether there is another one in ``context`` now. Ends a transaction.

        What has changed is logged as a warning, once. A catalogue that cannot be built leaves the old one in force, and
        that is said once too.
        """
        self.next_refresh = time.monotonic() + INTERVAL
        context = self.context
        if context.reread is None:
            return False
        # Before the catalogue: what changes in between is seen the next time.
        fingerprint = context.dialect.fingerprint(context.connection, context.catalog)
        if fingerprint is not None and fingerprint == self.seen:
            context.connection.commit()
            return False
        self.seen = fingerprint
        try:
            fresh = context.reread()
        except EventlogError as error:
            context.connection.rollback()
            if str(error) != self.last_warning:
                what = "the tables have changed, and the publisher goes on with what it knows of them: %s"
                _log.warning(what, error, extra={"code": error.code})
            self.last_warning = str(error)
            return False
        context.connection.commit()
        sentences = list(changes(context.catalog, fresh))
        if not sentences:
            return False
        for sentence in sentences:
            _log.warning("%s; see `eventlog triggers plan`, then `eventlog triggers apply`", sentence)
        self.context = replace(context, catalog=with_lost(fresh, context.catalog))
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


def changes(before: Catalog, now: Catalog) -> Iterator[str]:
    """What became of the classes' tables, in sentences, one a table."""
    classes = {cls.name: cls for cls in now.classes}
    for old in before.classes:
        new = classes.pop(old.name, None)
        if new is None:
            yield f"{old.name} is no class any more"
            continue
        tables = _columns(new)
        for table, columns in _columns(old).items():
            if table not in tables:
                yield f"{table} is no child table of {old.name} any more"
                continue
            words = in_words(columns, tables.pop(table))
            if table == old.name:
                words = (*words, *key_in_words(*([column.name for column in cls.key] for cls in (old, new))))
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


def with_lost(now: Catalog, before: Catalog) -> Catalog:
    """The catalogue, in which the log's rows may still name what only the catalogue before had."""
    names: dict[str, LogName] = {}
    for name, log_name in now.log_names.items():
        old = before.log_names.get(name)
        lost = {} if old is None else _lost(old, log_name)
        # Last of all: a name that the class has now means what it means now.
        names[name] = replace(log_name, column_forms=(*log_name.column_forms, lost)) if lost else log_name
    return replace(now, log_names=names)


def _lost(old: LogName, new: LogName) -> dict[str, Attribute]:
    return {
        name: attribute
        for names in old.column_forms
        for name, attribute in names.items()
        if new.attribute(name) is None
    }
