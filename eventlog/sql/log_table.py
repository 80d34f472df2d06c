"""The table of a log, its columns, and the names of the objects that belong to it
(spec/event-log.md 1.1, 10, spec/triggers.md 9).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS

INSUFFICIENT_PRIVILEGE: Final = "42501"
"""The SQLSTATE of a missing right."""

LAYOUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "2.x": LOG_COLUMNS,
    "3.5": (
        "record_id",
        "table_key",
        "status",
        "event_type",
        "event_time",
        "perpetrator",
        "table_name",
        "column_name",
        "old_value",
        "new_value",
    ),
}
"""The standard names by position (spec/event-log.md 1.2)."""

TRANSACTION_ID: Final = "transaction_id"
"""The field of ``LogRow`` for the column that a log has with `database.transaction_ids`, and the
name of the column (spec/event-log.md 1.5).
"""


@dataclass(frozen=True, slots=True)
class LogTable:
    """A log table whose columns have been found."""

    schema: str | None
    name: str
    columns: tuple[str, ...]
    """The real names in the order of ``LogRow``'s fields."""
    types: tuple[ColumnType, ...] = ()
    """The types of the columns, empty if unknown."""
    max_identifier: int = 63
    """The maximum number of bytes of a name in the database. The names of internal tables are cut
    to this length.
    """
    upper: bool = False
    """True if eventlog's part of internal tables' names is in upper case, since the database stores
    unquoted names in upper case.
    """
    sequence: tuple[str | None, str] | None = None
    """The schema and name of the sequence from which the triggers of another program draw
    record_ids, None = the database numbers the column itself, or the sequence is unknown.
    """

    is_partitioned: bool = False
    """True if the table is partitioned: statements then contain the range of their rows, so that
    they touch only the leaves of that range (spec/event-log.md 14).
    """

    renamed: tuple[tuple[str, ...], ...] = ()
    """For each table or view that was renamed (``renamed_from``, spec/event-log.md 5.2): the names
    that its rows may have, the present name first.
    """

    transaction_column: str | None = None
    """The real name of the column with the id of the transaction that wrote a row, None if the log
    has no such column (spec/event-log.md 1.5).
    """

    writes_utc: bool = False
    """True if event_time is UTC whatever the option ``event_time_zone`` is, because eventlog's
    own triggers write it.
    """

    readers: tuple[str, ...] = ()
    """The roles of ``database.readers``, which may read the log and its internal tables
    (spec/event-log.md 11.1).
    """

    def __hash__(self) -> int:
        # Statements are cached by their tables: to hash all fields takes longer than to find one.
        return hash((self.schema, self.name))

    def present_name(self, table_name: str) -> str:
        """Return the present name of the table or view that a row of the log names."""
        for names in self.renamed:
            if table_name.casefold() in map(str.casefold, names):
                return names[0]
        return table_name

    def column(self, field: str) -> str:
        """Return the real name of the column that holds a field of ``LogRow``. The log must have
        this column: few logs have ``transaction_id``.
        """
        if field == TRANSACTION_ID and self.transaction_column is not None:
            return self.transaction_column
        return self.columns[LOG_COLUMNS.index(field)]

    def type_of(self, field: str) -> ColumnType | None:
        """Return the type of the column that holds a field of ``LogRow``, None if it is unknown."""
        is_typed = self.types and field != TRANSACTION_ID
        return self.types[LOG_COLUMNS.index(field)] if is_typed else None

    @property
    def has_zoned_time(self) -> bool:
        """True if the type of event_time has a time zone, so that its values need no conversion."""
        column_type = self.type_of("event_time")
        return column_type is not None and column_type.kind is Kind.TIMESTAMPTZ

    def zone_of_times(self, event_time_zone: str) -> str:
        """Return the zone of event_time, utc or local, by the option ``event_time_zone``."""
        return "utc" if self.writes_utc or self.has_zoned_time else event_time_zone

    def own_name(self, pattern: str) -> str:
        """Return the name of an object of the log, made from a pattern such as ``proc_{}_quote``
        (spec/triggers.md 9).
        """
        return named_after(pattern, self.name, self.max_identifier, upper=self.upper)

    def _internal_table(self, ending: str, reserved: int = 0) -> str:
        """Return the name of an internal table. The name leaves ``reserved`` bytes free, so that a
        constraint can have this name with an ending added.
        """
        name = self.name + (ending.upper() if self.upper else ending)
        return cut_name(name, self.max_identifier - reserved)

    @property
    def error_table(self) -> str:
        """The name ``<log>_error`` (spec/event-log.md 10)."""
        return self._internal_table("_error")

    @property
    def inflight_table(self) -> str:
        """The name ``<log>_inflight`` (spec/event-log.md 10)."""
        return self._internal_table("_inflight")

    @property
    def state_table(self) -> str:
        """The name ``<log>_state`` (spec/event-log.md 10)."""
        return self._internal_table("_state")

    @property
    def number_sequence(self) -> str:
        """The name ``<log>_delivery`` of the sequence, or table, that numbers deliveries and never
        restarts (spec/event-log.md 10).
        """
        return self._internal_table("_delivery")

    @property
    def version_table(self) -> str:
        """The name ``<log>_version`` of the table with the revisions that the log has reached."""
        # The name of its key is this name with _pkc added.
        return self._internal_table("_version", 4)

    @property
    def resync_table(self) -> str:
        """The name ``<log>_resync`` of the table with the keys that unfinished resyncs have
        reached.
        """
        return self._internal_table("_resync")

    @property
    def epoch_table(self) -> str:
        """The name ``<log>_epoch`` of the table with the log's epoch, in one row (spec/event-log.md
        7.4, 10).
        """
        return self._internal_table("_epoch")

    @property
    def consumer_table(self) -> str:
        """The name ``<log>_consumer`` of the table with the log's consumers, one row each
        (spec/event-log.md 10, 13).
        """
        return self._internal_table("_consumer")

    @property
    def captured_table(self) -> str:
        """The name ``<log>_captured`` of the table in which `triggers apply` records what it has
        captured, one row per table (spec/event-log.md 10).
        """
        return self._internal_table("_captured")

    @property
    def deferred_table(self) -> str:
        """The name ``<log>_deferred`` of the table whose rows are logged at the commit
        (spec/triggers.md 7.1).
        """
        return self._internal_table("_deferred")

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The log and all tables that belong to it: these tables are never classes."""
        return (
            self.name,
            self.error_table,
            self.inflight_table,
            self.state_table,
            self.number_sequence,
            self.resync_table,
            self.epoch_table,
            self.consumer_table,
            self.captured_table,
            self.deferred_table,
            self.version_table,
        )

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


QUEUE_INDEX: Final = "idx_{}_5"
"""The name of the queue's index if it is on an expression (``LogTable.own_name``)."""


# --- names ----------------------------------------------------------------------------------------


@lru_cache(1024)
def cut_name(name: str, max_bytes: int) -> str:
    """Return the name. If it is too long for the database, it is cut and ends in ``_`` and 6 hex
    digits (spec/triggers.md 9).
    """
    encoded = name.encode()
    if len(encoded) <= max_bytes:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:6]
    return encoded[: max_bytes - 7].decode(errors="ignore") + "_" + digest


def named_after(pattern: str, name: str, max_bytes: int, *, upper: bool) -> str:
    """Return the name that ``pattern`` makes of the name of a table, cut to the longest possible
    length (spec/triggers.md 9).

    With ``upper`` the new name is in upper case if the table's name is in upper case, since the
    database stores unquoted names in upper case.
    """
    whole = pattern.format(name)
    return cut_name(whole.upper() if upper and name == name.upper() else whole, max_bytes)


def storable(text: str) -> str:
    """Return a text for people in a form that can be stored: without NUL, which no text column
    accepts, and without lone surrogates, which no encoding accepts.
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def split_name(name: str) -> tuple[str | None, str]:
    """Split ``table``, ``schema.table`` or either part in double quotes (there ``""`` is one ``"``)
    into schema and table.

    Raises ConfigError for any other text.
    """
    parts: list[str] = []
    rest = name.strip()
    while True:
        part, rest = _first_part(rest, name)
        parts.append(part)
        if not rest:
            break
        if not rest.startswith(".") or len(parts) == 2:
            raise _invalid_name(name)
        rest = rest[1:]
    return (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _first_part(text: str, name: str) -> tuple[str, str]:
    if text.startswith('"'):
        end = 1
        while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
            end += 2
        part, rest = text[1:end].replace('""', '"'), text[end + 1 :]
        if end < 0:
            raise _invalid_name(name)
    else:
        part, dot, rest = text.partition(".")
        rest = dot + rest
    if not part or "\0" in part:
        raise _invalid_name(name)
    return part, rest


def _invalid_name(name: str) -> ConfigError:
    return ConfigError(
        f"log_table {name!r} is not a table name: write it as table, schema.table or "
        '"Schema"."Table"'
    )
