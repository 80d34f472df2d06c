"""The masks that a reader has used (spec/event-log.md 10, 15.3). The publisher's are an entry of
``<log>_inflight``, a consumer's are in the consumer's row.

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.catalog import Catalog, match_name
from eventlog.core.catalog.masks import HASH, MaskedColumns
from eventlog.errors import DatabaseError
from eventlog.sql.log.internal_tables import (
    LATER_COLUMNS,
    EntryKind,
    add_entry,
    consumers_of,
    delete_entry,
    has_columns,
    read_entries,
    unreadable,
    update_consumer,
)
from eventlog.sql.port.open_log import OpenLog

_ENTRY: Final = 0
"""The number of the publisher's entry, which no delivery has."""


class RecordedMasks(NamedTuple):
    """The masks that a reader has used: by table, the form of each masked column. ``key`` shows
    under which secret values were hashed, None = it is not recorded.
    """

    tables: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    key: str | None = None

    @classmethod
    def of(cls, masks: Sequence[MaskedColumns], key: str | None) -> RecordedMasks:
        """Return the masks of a configuration. ``key`` is the result of ``key_of``."""
        tables: dict[str, dict[str, str]] = {}
        for one in masks:
            tables.setdefault(one.table, {}).update(dict.fromkeys(one.columns, one.form))
        return cls(tables, key)

    @classmethod
    def decode(cls, text: str | None) -> RecordedMasks | None:
        """Parse a record; None = the masks are unknown. Raises KeyError, TypeError, ValueError or
        AttributeError for another text.
        """
        content = None if text is None else json.loads(text)
        if content is None:
            return None
        tables = {name: dict(columns) for name, columns in content["tables"].items()}
        return cls(tables, content.get("key"))

    def encode(self) -> str:
        content = {"tables": dict(self.tables), **({"key": self.key} if self.key else {})}
        return json.dumps(content, ensure_ascii=False)

    def __str__(self) -> str:
        columns = (
            f"{table}.{column} ({form})"
            for table, columns in self.tables.items()
            for column, form in columns.items()
        )
        return ", ".join(columns) or "none"

    def has(self, table: str, column: str, form: str) -> bool:
        """Return True if a column had a mask of this form."""
        name = match_name(table, self.tables)
        columns = {} if name is None else self.tables[name]
        found = match_name(column, columns)
        return found is not None and columns[found] == form

    def differences(self, now: RecordedMasks) -> Iterator[str]:
        """Yield, in words, which of these masks the masks ``now`` lack or change."""
        for table, columns in self.tables.items():
            for column, form in columns.items():
                present = now.tables.get(table, {}).get(column)
                if present != form:
                    is_now = "has none" if present is None else f"has the mask {present}"
                    yield f"{table}.{column} had the mask {form} and {is_now} now"
        if self.key is not None and now.key not in (None, self.key):
            yield "the secret of the hashes is another one"


NO_MASKS: Final = RecordedMasks()


def masks_to_record(
    masks: Sequence[MaskedColumns], before: RecordedMasks | None, catalog: Catalog, key: str | None
) -> RecordedMasks:
    """Return what to record of the masks of a configuration: the masks of available classes, and
    those that were recorded before. ``key`` is the result of ``key_of``.
    """
    tables: dict[str, dict[str, str]] = {}
    for table, columns in RecordedMasks.of(masks, key).tables.items():
        is_available = catalog.log_name(table) is not None
        for column, form in columns.items():
            if is_available or (before is not None and before.has(table, column, form)):
                tables.setdefault(table, {})[column] = form
    has_hash = any(one.how == HASH and one.table in tables for one in masks)
    return RecordedMasks(tables, key if has_hash else None)


def key_of(log: OpenLog, consumer: str, masks: Sequence[MaskedColumns]) -> str | None:
    """Return a text that differs for another secret of the masks. It shows neither the secret nor
    whether another log or reader has the same secret. None = there is no secret.
    """
    secret = next((one.secret for one in masks if one.how == HASH), "")
    if not secret:
        return None
    text = "\0".join(("eventlog masks", str(log), consumer))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def recorded_masks(log: OpenLog, consumer: str) -> RecordedMasks | None:
    """Return the masks that a consumer, empty = the publisher, has used; None = they are unknown.

    Raises DatabaseError for a record that cannot be read.
    """
    if consumer:
        table = consumers_of(log.table)
        row = log.connection.execute(
            sa.select(table.c.masks).where(table.c.name == consumer)
        ).first()
        try:
            return NO_MASKS if row is None else RecordedMasks.decode(row.masks)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DatabaseError(
                f"the masks of consumer {consumer!r} cannot be read ({error}). If its row was "
                "changed by hand, undo the change"
            ) from None
    for entry in read_entries(log, EntryKind.MASKS):
        try:
            return RecordedMasks.decode(entry.content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unreadable(log, EntryKind.MASKS, entry.number, error) from None
    # Before that revision, the publisher recorded nothing.
    return NO_MASKS if has_columns(log, log.table.consumer_table, LATER_COLUMNS) else None


def record_masks(log: OpenLog, consumer: str, masks: RecordedMasks) -> None:
    """Record the masks that a consumer that exists, empty = the publisher, uses from now on."""
    if consumer:
        update_consumer(log, consumer, {"masks": masks.encode()})
        return
    delete_entry(log, EntryKind.MASKS, _ENTRY)
    if masks.tables:
        add_entry(log, EntryKind.MASKS, _ENTRY, masks.encode())
