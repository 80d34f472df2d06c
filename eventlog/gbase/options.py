"""The options of reading and writing CDC streams, under the names of formats/gbase-cdc.md, and the
restart token (4.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from eventlog.changes.images import Complete
from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.core.options import (
    CHARSET,
    FLAG,
    FUNCTION,
    LIST_OBJECT,
    OBJECT,
    STRING,
    TEXT_OBJECT,
    CheckedOptions,
    OptionKind,
    choice,
    integer,
    object_of,
    option,
    shared,
)
from eventlog.errors import ConfigError
from eventlog.gbase.records import DEFAULT_MAX_RECORD
from eventlog.model import TableName, full_name


class Token(NamedTuple):
    """A restart token. ``restart`` is the sequence at which the next session starts to read.
    ``commit`` is the highest sequence of a COMMTX record that was delivered.

    None stands for "not yet".
    """

    restart: int | None = None
    commit: int | None = None

    @classmethod
    def of(cls, value: Token | Mapping[str, str | None] | str) -> Self:
        """Parse a token from its JSON form, an object or a text. Raises ConfigError."""
        try:
            if isinstance(value, str):
                value = json.loads(value)
            if isinstance(value, Token):
                return cls(*value)
            if isinstance(value, Mapping) and value.keys() <= {"restart", "commit"}:
                return cls(
                    *(
                        None if part is None else int(part, 16)
                        for part in map(value.get, cls._fields)
                    )
                )
        except (ValueError, TypeError, RecursionError):
            pass
        raise ConfigError(
            f"restart {value!r:.60} is not a token; expected one like "
            f"{Token(0xB01746018, None).to_json()}"
        )

    def to_json(self) -> dict[str, str | None]:
        """Return the JSON form of the token, in which a sequence is 16 lower-case hex digits."""
        return {
            name: None if part is None else f"{part:016x}"
            for name, part in zip(self._fields, self, strict=True)
        }


_TABLE_NAME: Final = re.compile(
    r"""(?:(?P<database>[^:"]*):)? \s* (?:(?P<owner>"(?:[^"]|"")*"|[^."]*)\.)? (?P<table>.*)""",
    re.VERBOSE | re.DOTALL,
)


def parse_table_name(text: str) -> tuple[str, str | None, str]:
    """Split ``db:owner.table`` into database, owner and table.

    Database and owner may be missing; owner and table may be quoted.
    """
    match = _TABLE_NAME.fullmatch(text)
    assert match is not None  # the table name may contain anything, so it matches the rest
    return (
        (match["database"] or "").strip(),
        _unquoted(match["owner"] or "") or None,
        _unquoted(match["table"]),
    )


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


def _parse_labels(value: Any) -> Mapping[int, str]:
    labels = {}
    for label, name in OBJECT.parse(value).items():
        try:
            number = int(label)
        except (ValueError, TypeError):
            raise ValueError(f"{label!r} is not a number") from None
        if not 0 <= number < 1 << 32:
            raise ValueError(f"label {label} is not an unsigned integer of 4 bytes")
        labels[number] = STRING.parse(name)
    return labels


@dataclass(frozen=True, slots=True)
class StreamOptions(CheckedOptions):
    """Options that reader and writer share."""

    labels: Mapping[int | str, str] = option(
        {},
        OptionKind(_parse_labels, "an object: label -> db:owner.table"),
        "the table of each label",
    )
    charset: str = option("utf-8", CHARSET, "character set of text")
    decimal_no_scale: str = option(
        "floating",
        choice("floating", "zero"),
        "meaning of DECIMAL(p): a floating-point decimal, or scale 0",
    )
    max_record: int = option(DEFAULT_MAX_RECORD, integer(1), "maximum size of a record in bytes")


@dataclass(frozen=True, slots=True)
class ReadOptions(StreamOptions):
    """Options of reading a stream (formats/gbase-cdc.md 3.2 to 4). Raises ConfigError."""

    keys: Mapping[str, Sequence[str]] = option(
        {}, LIST_OBJECT, "key columns of the tables, by owner.table or table"
    )
    charset_errors: str = option(
        "strict",
        choice("strict", "replace"),
        "what happens to bytes that are not valid in the charset",
    )
    char_trim: bool = option(True, FLAG, "cut the trailing blanks of CHAR")
    size_order: str = option(
        "auto", choice("auto", "little", "big"), "byte order of the sizes in a row"
    )
    varchar_prefix: str | int = option(
        "auto", choice("auto", 1, 2), "how many bytes the length of a VARCHAR takes"
    )
    max_open_bytes: int = option(
        256 << 20,
        integer(1),
        "maximum number of bytes of open transactions in memory; the rest goes to a file",
    )
    empty_transactions: bool = option(False, FLAG, "count transactions without changes")
    duplicate_begin: str = option(
        "error", choice("error", "replace"), "what happens if a transaction begins twice"
    )
    orphans: str = option(
        "skip",
        choice("skip", "error"),
        "what happens to records of a transaction that did not begin",
    )
    restart: Token | Mapping[str, str | None] | str | None = option(
        None,
        OptionKind(Token.of, "a restart token"),
        "token of the last run, from which to continue",
    )

    @property
    def token(self) -> Token:
        """The restart token, empty if none is set."""
        return self.restart if isinstance(self.restart, Token) else Token()

    def name_of(self, label: int) -> TableName:
        """Return schema and table of a label. Schema and table are None and ``label_<n>`` if
        ``labels`` lacks the label.
        """
        text = self.labels.get(label)
        if text is None:
            return None, f"label_{label}"
        return parse_table_name(text)[1:]

    def key_of(self, schema: str | None, table: str) -> Sequence[str] | None:
        """Return the key columns of a table, None if they are unknown."""
        return self.keys.get(full_name(schema, table), self.keys.get(table))


@dataclass(frozen=True, slots=True)
class WriteOptions(StreamOptions):
    """Options of writing a stream (formats/gbase-cdc.md 3.2, 3.3). Raises ConfigError.

    The TABSCHEM records of the tables follow the order of ``labels``.
    """

    tables: Mapping[str, str] = option(
        {},
        TEXT_OBJECT,
        "for each table, named owner.table or table: its columns in the spelling of TABSCHEM",
    )
    catalog: CatalogOption = shared(CATALOG)
    size_order: str = option("little", choice("little", "big"), "byte order of the sizes in a row")
    varchar_prefix: int = option(2, choice(1, 2), "how many bytes the length of a VARCHAR takes")
    complete: Complete | None = option(
        None, FUNCTION, "function that gets schema, table and key, and returns the whole row"
    )
    user_ids: Mapping[str, int] = option(
        {},
        object_of(integer(0, (1 << 32) - 1), "an object: user -> number"),
        "operating system ids of users",
    )
    first_sequence: int = option(
        1 << 32 | 0x18, integer(1, (1 << 63) - 1), "sequence number of the first record"
    )
