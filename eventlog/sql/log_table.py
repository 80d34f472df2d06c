"""A log and what belongs to it, by name (spec/event-log.md 1.1, 10; spec/triggers.md 9)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy.sql import quoted_name

from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError
from eventlog.model import LogRow


@dataclass(frozen=True, slots=True)
class LogTable:
    """A log table with its columns found. ``columns`` are the real names in the order of ``LogRow``'s fields.

    ``types`` are theirs, empty if not known. ``max_identifier`` (bytes) is the database's, for the companions' names;
    ``upper``: those end in upper case, since the database keeps names that are not quoted so.
    """

    schema: str | None
    name: str
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...] = ()
    max_identifier: int = 63
    upper: bool = False

    def column(self, field: str) -> str:
        """The real name of the column that holds a field of ``LogRow``."""
        return self.columns[LogRow._fields.index(field)]

    def type_of(self, field: str) -> ColumnType | None:
        """The type of that column, None if it is not known."""
        return self.types[LogRow._fields.index(field)] if self.types else None

    @property
    def has_zoned_time(self) -> bool:
        """Whether event_time knows its zone, so that it holds the moment itself."""
        column_type = self.type_of("event_time")
        return column_type is not None and column_type.kind is Kind.TIMESTAMPTZ

    def own_name(self, pattern: str) -> str:
        """The name of what belongs to the log, after a pattern such as ``proc_{}_quote`` (spec/triggers.md 9)."""
        return named_after(pattern, self.name, self.max_identifier, upper=self.upper)

    def _companion(self, ending: str, max_bytes: int) -> str:
        return cut_name(self.name + (ending.upper() if self.upper else ending), max_bytes)

    @property
    def error_table(self) -> str:
        """``<log>_error`` (spec/event-log.md 10)."""
        return self._companion("_error", self.max_identifier)

    @property
    def inflight_table(self) -> str:
        """``<log>_inflight`` (spec/event-log.md 10)."""
        return self._companion("_inflight", self.max_identifier)

    @property
    def flight_sequence(self) -> str:
        """``<log>_flight``: what numbers flights and never restarts: a sequence, or a table (spec/event-log.md 10)."""
        return self._companion("_flight", self.max_identifier)

    @property
    def version_table(self) -> str:
        """``<log>_version``: which migrations this log has seen."""
        return self._companion("_version", self.max_identifier - 4)  # its key is called this and _pkc

    @property
    def resync_table(self) -> str:
        """``<log>_resync``: the positions of the resyncs that are not finished."""
        return self._companion("_resync", self.max_identifier)

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The log and all that belongs to it: never a class."""
        return (
            self.name,
            self.error_table,
            self.inflight_table,
            self.flight_sequence,
            self.resync_table,
            self.version_table,
        )

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def cut_name(name: str, max_bytes: int) -> str:
    """The name; if it is too long for the database, cut and ended by ``_`` and 6 hex digits (spec/triggers.md 9)."""
    encoded = name.encode()
    if len(encoded) <= max_bytes:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:6]
    return encoded[: max_bytes - 7].decode(errors="ignore") + "_" + digest


def named_after(pattern: str, name: str, max_bytes: int, *, upper: bool) -> str:
    """Our name after ``pattern`` and the name of a table, cut to its length (spec/triggers.md 9).

    ``upper``: in upper case if the table's is, since the database keeps names that are not quoted so.
    """
    whole = pattern.format(name)
    return cut_name(whole.upper() if upper and name == name.upper() else whole, max_bytes)


def storable(text: str) -> str:
    """A text for people without NUL, which no text column takes, and lone surrogates, which no encoding takes."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def split_name(name: str) -> tuple[str | None, str]:
    """Schema and table of ``table``, ``schema.table`` or either part in double quotes (there ``""`` is one ``"``).

    Raises ConfigError for anything else.
    """
    parts: list[str] = []
    rest = name.strip()
    while True:
        part, rest = _first_part(rest, name)
        parts.append(part)
        if not rest:
            break
        if not rest.startswith(".") or len(parts) == 2:
            raise _bad_name(name)
        rest = rest[1:]
    return (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _first_part(text: str, name: str) -> tuple[str, str]:
    if text.startswith('"'):
        end = 1
        while (end := text.find('"', end)) >= 0 and text[end + 1 : end + 2] == '"':
            end += 2
        part, rest = text[1:end].replace('""', '"'), text[end + 1 :]
        if end < 0:
            raise _bad_name(name)
    else:
        part, dot, rest = text.partition(".")
        rest = dot + rest
    if not part or "\0" in part:
        raise _bad_name(name)
    return part, rest


def _bad_name(name: str) -> ConfigError:
    return ConfigError(f'log_table {name!r} is no table name: write table, schema.table or "Schema"."Table"')


def quoted(name: str) -> quoted_name:
    """A name that SQLAlchemy writes in quotes and never folds (spec/triggers.md 9)."""
    return quoted_name(name, quote=True)


def schema_of(log: LogTable) -> quoted_name | None:
    """The schema of a log's tables for SQLAlchemy, None = the session's current one."""
    return None if log.schema is None else quoted(log.schema)
