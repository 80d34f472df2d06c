"""The options of reading and writing CDC streams, under the names of spec/gbase-cdc.md; the restart token (4.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from eventlog.changes.catalog_option import CatalogOption
from eventlog.changes.format import check_charset
from eventlog.errors import ConfigError
from eventlog.gbase.records import DEFAULT_MAX_RECORD
from eventlog.gbase.values import TextOptions
from eventlog.model import Row, Value


class Token(NamedTuple):
    """``restart``: sequence to activate at; ``commit``: highest COMMTX sequence delivered. None while there is none."""

    restart: int | None = None
    commit: int | None = None

    @classmethod
    def of(cls, value: Token | Mapping[str, str | None] | str) -> Self:
        """The token of its JSON form, as object or text. Raises ConfigError."""
        try:
            if isinstance(value, str):
                value = json.loads(value)
            if isinstance(value, Token):
                return cls(*value)
            if isinstance(value, Mapping) and value.keys() <= {"restart", "commit"}:
                return cls(*(None if part is None else int(part, 16) for part in map(value.get, cls._fields)))
        except (ValueError, TypeError):
            pass
        raise ConfigError(f"restart {value!r} is no token; it looks like {Token(0xB01746018, None).to_json()}")

    def to_json(self) -> dict[str, str | None]:
        """The JSON form: sequences as 16 lower-case hex digits."""
        return {name: None if part is None else f"{part:016x}" for name, part in zip(self._fields, self, strict=True)}


_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "charset_errors": ("strict", "replace"),
    "decimal_no_scale": ("floating", "zero"),
    "size_order": ("auto", "little", "big"),
    "varchar_prefix": ("auto", 1, 2),
    "duplicate_begin": ("raise", "replace"),
    "orphans": ("skip", "raise"),
    "char_trim": (True, False),
    "empty_transactions": (True, False),
}


class TableName(NamedTuple):
    """A table as the calls of the CDC interface name it: ``db:owner.table``, schema None without an owner."""

    database: str
    schema: str | None
    table: str

    def __str__(self) -> str:
        owner = "" if self.schema is None else f"{self.schema}."
        return f"{self.database}:{owner}{self.table}"


_TABLE_NAME: Final = re.compile(
    r"""(?:(?P<database>[^:"]*):)? \s* (?:(?P<owner>"(?:[^"]|"")*"|[^."]*)\.)? (?P<table>.*)""", re.VERBOSE | re.DOTALL
)


def parse_table_name(text: str) -> TableName:
    """The parts of ``db:owner.table``; database and owner may be missing, owner and table quoted."""
    match = _TABLE_NAME.fullmatch(text)
    assert match is not None  # the table takes whatever is left
    return TableName(
        (match["database"] or "").strip(), _unquoted(match["owner"] or "") or None, _unquoted(match["table"])
    )


def _unquoted(name: str) -> str:
    name = name.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a stream is read. Raises ConfigError naming the option that is wrong.

    ``labels``: label (number or its text) -> ``db:owner.table``; ``keys``: ``owner.table`` or table -> key columns;
    ``max_record`` bytes of a record at most; ``max_open_bytes`` of open transactions in memory; ``restart``: the
    token of the last run. The others: spec/gbase-cdc.md 3.2 to 4.
    """

    labels: Mapping[int | str, str] = field(default_factory=dict)
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    charset: str = "utf-8"
    charset_errors: str = "strict"
    char_trim: bool = True
    decimal_no_scale: str = "floating"
    size_order: str = "auto"
    varchar_prefix: str | int = "auto"
    max_record: int = DEFAULT_MAX_RECORD
    max_open_bytes: int = 256 << 20
    empty_transactions: bool = False
    duplicate_begin: str = "raise"
    orphans: str = "skip"
    restart: Token | Mapping[str, str | None] | str | None = None

    def __post_init__(self) -> None:
        _check(self)
        _positive(self, "max_record", "max_open_bytes")
        _mappings(self, "labels", "keys")
        labels = _labels(self.labels)
        for table, key in self.keys.items():
            if isinstance(key, str) or not all(isinstance(name, str) for name in key):
                raise ConfigError(f"keys[{table!r}] is {key!r}; give the names of the key columns as a list")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "restart", None if self.restart is None else Token.of(self.restart))

    @property
    def text(self) -> TextOptions:
        """What concerns text."""
        return TextOptions(self.charset, self.charset_errors, self.char_trim)

    @property
    def token(self) -> Token:
        """The restart token, empty without one."""
        return self.restart if isinstance(self.restart, Token) else Token()

    def name_of(self, label: int) -> tuple[str | None, str]:
        """Schema and table of a label; without one in ``labels``: None and ``label_<n>``."""
        text = self.labels.get(label)
        if text is None:
            return None, f"label_{label}"
        name = parse_table_name(text)
        return name.schema, name.table

    def key_of(self, schema: str | None, table: str) -> tuple[str, ...] | None:
        """The key columns of a table, None = unknown."""
        key = self.keys.get(f"{schema}.{table}") if schema is not None else None
        if key is None:
            key = self.keys.get(table)
        return None if key is None else tuple(key)


Complete = Callable[[str | None, str, Sequence[tuple[str, Value]] | None], Row | None]
"""Gives the whole row of (schema, table, key), None if there is none (spec/change-model.md 4)."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a stream is written. Raises ConfigError naming the option that is wrong.

    ``labels``: label -> ``db:owner.table``, the tables in the order of their TABSCHEM records; ``tables``:
    ``owner.table`` or table -> its columns as TABSCHEM spells them; ``catalog``: a JSON catalogue, for those that
    ``tables`` does not name; ``complete``: gives whole rows;
    ``user_ids``: name of a user -> operating system id; ``first_sequence``: that of the first record; ``max_record``:
    bytes of a record at most. The others: spec/gbase-cdc.md 3.2, 3.3.
    """

    labels: Mapping[int | str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    catalog: CatalogOption = None
    charset: str = "utf-8"
    decimal_no_scale: str = "floating"
    size_order: str = "little"
    varchar_prefix: int | str = 2
    complete: Complete | None = None
    user_ids: Mapping[str, int] = field(default_factory=dict)
    first_sequence: int = 1 << 32 | 0x18
    max_record: int = DEFAULT_MAX_RECORD

    def __post_init__(self) -> None:
        _check(self)
        if self.size_order == "auto" or self.varchar_prefix == "auto":
            raise ConfigError("size_order and varchar_prefix of a writer cannot be auto; use little or big, 1 or 2")
        _positive(self, "max_record", "first_sequence")
        _mappings(self, "labels", "tables", "user_ids")
        for user, number in self.user_ids.items():
            if not isinstance(number, int) or not 0 <= number < 1 << 32:
                raise ConfigError(f"user_ids[{user!r}] is {number!r}; give an operating system user id")
        if self.first_sequence >= 1 << 63:
            raise ConfigError(f"first_sequence is {self.first_sequence}; give a number of 8 bytes that leaves room")
        if self.complete is not None and not callable(self.complete):
            raise ConfigError("complete is no callable; it is given (schema, table, key) and returns the row or None")
        object.__setattr__(self, "labels", _labels(self.labels))


def _check(options: ReadOptions | WriteOptions) -> None:
    for name, legal in _CHOICES.items():
        value = getattr(options, name, legal[0])
        if value not in legal or (isinstance(value, bool) and not isinstance(legal[0], bool)):
            raise ConfigError(f"{name} {value!r} is unknown; use {' or '.join(map(str, legal))}")
    check_charset(options.charset)


def _positive(options: ReadOptions | WriteOptions, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} is {value!r}; give a number above 0")


def _mappings(options: ReadOptions | WriteOptions, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(options, name), Mapping):
            raise ConfigError(f"{name} is {getattr(options, name)!r}; give an object")


def _labels(given: Mapping[int | str, str]) -> dict[int, str]:
    try:
        labels = {int(label): str(name) for label, name in given.items()}
    except (ValueError, TypeError):
        raise ConfigError(f"labels are numbers, not {', '.join(map(repr, given))}") from None
    for label in labels:
        if not 0 <= label < 1 << 32:
            raise ConfigError(f"label {label} is no unsigned number of 4 bytes")
    return labels
