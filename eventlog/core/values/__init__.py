"""Column types, and the conversion of values to the text that is written (spec/xds.md 6).

Converting values is a hot path. ``converter`` chooses once per column, and each function first
tests for text that is already in its normal form (``isprintable``, one regular expression). The
price: most functions begin with a short cut that repeats, in brief, the rule in the rest of the
function.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context, Decimal
from difflib import get_close_matches
from enum import StrEnum
from math import frexp, inf, isfinite, isinf, nextafter
from struct import pack, unpack
from typing import Final, TypeAlias

from eventlog.core.values.moments import date_converter, time_converter, timestamp_converter
from eventlog.errors import BadValue, BadXmlChar, ConfigError, shown


class Kind(StrEnum):
    """The kinds of columns of spec/xds.md 6.1, 6.2."""

    INTEGER = "integer"
    EXACT = "exact"
    APPROXIMATE = "approximate"
    BOOLEAN = "boolean"
    FIXED = "fixed"
    CHARACTER = "character"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column (spec/xds.md 6.3)."""

    kind: Kind
    bits: int = 0
    """The width in bits. The width is 16, 32 or 64 for smallint, integer and bigint, whose range is
    checked; 0 for numerics of scale 0, which have no range; and 32 or 64 for approximate numbers.
    """
    sql: str = ""
    """The database's own spelling."""
    special: bool = False
    """True if values of the column can be special times (spec/xds.md 6.3), or words that stand for
    exact numbers (6.1).
    """

    point: int = 2
    """The number of digits after the point of PostgreSQL's money. ``lc_monetary`` of the database
    determines it.
    """

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in the parentheses of ``sql``: a length, or a precision and perhaps a scale.
        The result is empty without parentheses.
        """
        match = _SIZES.search(self.sql)
        return (
            ()
            if match is None
            else tuple(int(number) for number in match.groups() if number is not None)
        )


ColumnTypes: TypeAlias = Mapping[str, ColumnType]
"""The types of columns by their names."""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The options of spec/event-log.md 9 that decide the form of values. ``special_times`` takes
    effect when classes are built.

    ``characters`` are the characters that the format can hold: XML 1.0 (``xml``) or all of Unicode
    (``unicode``).
    """

    time_syntax: str = "integer"
    time_zone: str = "UTC"
    char_padding: str = "trim"
    special_times: str = "text"
    characters: str = "xml"


# --- types ----------------------------------------------------------------------------------------

_SIZES = re.compile(
    r"\(\s*([0-9]{1,9})(?:\s+(?:char|byte))?\s*(?:,\s*(-?[0-9]{1,9})\s*)?\)",
    re.ASCII | re.IGNORECASE,
)
_IN_PARENTHESES = re.compile(
    r"\(\s*([0-9]+|\*)(?:\s+(?:char|byte))?\s*(?:,\s*(-?[0-9]+)\s*)?\)", re.ASCII | re.IGNORECASE
)
_ARRAY = re.compile(
    r"(?:.*\S)\s*(?:\[[0-9]*\]|\barray(?:\[[0-9]*\])?)", re.ASCII | re.IGNORECASE | re.DOTALL
)
_MONEY = re.compile(r"money(?:\(([0-9])\))?((?:\[\])?)", re.ASCII)
_SINGLE: Final = frozenset(map(str, range(1, 25)))
"""The numbers ``n`` of binary digits with which ``float(n)`` means a real."""

TYPE_NAMES: Final[dict[tuple[Kind, int], str]] = {
    (Kind.INTEGER, 16): "smallint, int2, smallserial, serial2, tinyint",
    (Kind.INTEGER, 32): "integer, int, int4, serial, serial4, mediumint",
    (Kind.INTEGER, 64): "bigint, int8, bigserial, serial8, big int, unsigned big int",
    (Kind.EXACT, 0): "decimal, dec, numeric, number",
    (Kind.APPROXIMATE, 32): "real, float4, binary_float",
    (Kind.APPROXIMATE, 64): "double, double precision, float, float8, binary_double",
    (Kind.BOOLEAN, 0): "boolean, bool",
    (
        Kind.FIXED,
        0,
    ): "char, character, bpchar, nchar, national char, national character, native character",
    (
        Kind.CHARACTER,
        0,
    ): (
        "varchar, character varying, char varying, varying character, text, clob, varchar2, "
        "nvarchar, nvarchar2, nchar varying, national char varying, national character "
        "varying, nclob, long, character large object"
    ),
    (
        Kind.BINARY,
        0,
    ): "varbinary, binary, binary varying, blob, bytea, raw, long raw, bfile, binary large object",
    (Kind.DATE, 0): "date",
    (Kind.TIME, 0): "time, time without time zone",
    (Kind.TIMESTAMP, 0): "timestamp, timestamp without time zone, datetime",
    (Kind.TIMESTAMPTZ, 0): "timestamptz, timestamp with time zone, timestamp with local time zone",
    (Kind.UUID, 0): "uuid",
    (
        Kind.OTHER,
        0,
    ): (
        "other, json, jsonb, jsonpath, xml, xmltype, inet, cidr, macaddr, macaddr8, money, "
        "bit, bit varying, varbit, timetz, time with time zone, interval, interval year to "
        "month, interval day to second, interval year, interval month, interval day, interval "
        "hour, interval minute, interval second, point, line, lseg, box, path, polygon, "
        "circle, tsvector, tsquery, hstore, citext, ltree, vector, geometry, geography, "
        "int4range, int8range, numrange, tsrange, tstzrange, daterange, int4multirange, "
        "int8multirange, nummultirange, tsmultirange, tstzmultirange, datemultirange, oid, "
        "xid, xid8, cid, tid, name, pg_lsn, regclass, regproc, regprocedure, regtype, "
        "regrole, regnamespace, rowid, urowid"
    ),
}
"""The type names of PostgreSQL, Oracle and SQLite by kind and bits."""
_TYPES: Final = {name: kind for kind, names in TYPE_NAMES.items() for name in names.split(", ")}

_INTEGERS_OF_SQLITE: Final = {
    name: (Kind.INTEGER, 64) for name, (kind, _) in _TYPES.items() if kind is Kind.INTEGER
}
# TIMESTAMP is a point in time, shown in the zone of the session.
_TYPES_OF_MYSQL: Final = {
    "timestamp": (Kind.TIMESTAMPTZ, 0),
    "bit": (Kind.BINARY, 0),
    "year": (Kind.INTEGER, 16),
    "tinyint unsigned": (Kind.INTEGER, 16),
    "smallint unsigned": (Kind.INTEGER, 32),
    "mediumint unsigned": (Kind.INTEGER, 32),
    "int unsigned": (Kind.INTEGER, 64),
    "bigint unsigned": (Kind.INTEGER, 0),
    "float": (Kind.APPROXIMATE, 32),
    "real": (Kind.APPROXIMATE, 64),
    **dict.fromkeys(
        ("tinytext", "mediumtext", "longtext", "json", "enum", "set"), (Kind.CHARACTER, 0)
    ),
    **dict.fromkeys(("tinyblob", "mediumblob", "longblob"), (Kind.BINARY, 0)),
}
_OWN_TYPES: Final[dict[str, dict[str, tuple[Kind, int]]]] = {
    # Oracle's DATE has a time of day, and its approximate type names are NUMBERs.
    "oracle": {
        "date": (Kind.TIMESTAMP, 0),
        **dict.fromkeys(("real", "float", "double precision"), (Kind.EXACT, 0)),
    },
    # SQLite's integers and doubles have one size, whatever their name.
    "sqlite": {**_INTEGERS_OF_SQLITE, "real": (Kind.APPROXIMATE, 64)},
    **dict.fromkeys(("mariadb", "mysql"), _TYPES_OF_MYSQL),
}
"""The type names of a database with another meaning than in ``TYPE_NAMES`` (spec/xds.md 6.2)."""


def parse_type(text: str, dialect: str = "") -> ColumnType:
    """Return the column type of a name as databases spell it: ``bigint``, ``character
    varying(64)``, ``numeric(9,2)``, ``timestamp(3) without time zone`` (spec/xds.md 9).

    The type names of the database ``dialect`` take precedence. ``decimal(p)`` and ``decimal(p,0)``
    are integers without a range; ``decimal`` alone is an exact number. ``json``, arrays and
    ``other`` are ``Kind.OTHER``; ``other`` stands for every user-defined type. Case and blanks are
    ignored. Raises ConfigError if the text is empty or names an unknown type.
    """
    if not text.strip():
        raise ConfigError(
            "a column type is empty; use a type such as integer, varchar(64) or timestamp"
        )
    if (_MONEY.fullmatch(text) is None and _ARRAY.fullmatch(text)) or text == '"char"':
        return ColumnType(Kind.OTHER, sql=text)
    if (money := _MONEY.fullmatch(text)) is not None:
        return ColumnType(Kind.OTHER, sql=f"money{money[2]}", point=int(money[1] or 2))
    name = " ".join(_IN_PARENTHESES.sub(" ", text).split()).lower()
    found = _OWN_TYPES.get(dialect, {}).get(name) or _TYPES.get(name)
    if found is None:
        raise _unknown_type(text, name)
    (kind, bits), sizes = found, _IN_PARENTHESES.search(text)
    if (
        sizes is not None
        and kind is Kind.EXACT
        and name != "float"
        and not (sizes[2] or "").strip("-0")
    ):
        kind = Kind.INTEGER
    if name == "bit" and kind is Kind.BINARY and (sizes is None or sizes[1] == "1"):
        kind = Kind.BOOLEAN
    if sizes is not None and kind is Kind.APPROXIMATE and name == "float" and sizes[1] in _SINGLE:
        bits = 32
    return ColumnType(kind, bits, text)


def _unknown_type(text: str, name: str) -> ConfigError:
    near = get_close_matches(name, _TYPES, n=1)
    hint = f"Do you mean {near[0]}? " if near else ""
    return ConfigError(
        f"unknown column type {shown(text)}. {hint}Use 'other' for an enumeration, a domain or a "
        "user-defined type"
    )


TEMPORAL: Final = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
"""The kinds of dates and times."""


def with_special_values(type: ColumnType, dialect: str, options: ValueOptions) -> ColumnType:
    """Return the type of a column, in which the special values of this dialect are allowed
    (spec/xds.md 6.1, 6.3).

    Raises ConfigError for an unknown ``special_times``.
    """
    if options.special_times not in ("text", "error"):
        raise ConfigError(f"special_times {options.special_times!r} is unknown; use text or error")
    is_special = dialect == "postgresql" and (
        type.kind is Kind.EXACT
        or (type.kind is Kind.INTEGER and not type.bits)
        or (type.kind in TEMPORAL and options.special_times == "text")
    )
    return replace(type, special=is_special) if is_special is not type.special else type


def xds_type(type: ColumnType, options: ValueOptions) -> str:
    """Return the XDS type of a column's values: int, string, state, octet or time (spec/xds.md 6.1,
    6.3).

    For special values, too, this is the type of their column; documents carry special values as
    strings.
    """
    if type.kind is Kind.INTEGER:
        return "int"
    if type.kind is Kind.BOOLEAN:
        return "state"
    if type.kind is Kind.BINARY:
        return "octet"
    if type.kind in TEMPORAL and options.time_syntax == "integer":
        return "time"
    return "string"


# --- characters -----------------------------------------------------------------------------------

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def check_xml(text: str) -> None:
    """Raise BadXmlChar if the text has a character that XML 1.0 cannot hold (spec/xds.md 8)."""
    # No character of _NOT_XML is printable, and isprintable is several times as fast as a search.
    if text.isprintable():
        return
    match = _NOT_XML.search(text)
    if match is not None:
        raise BadXmlChar(
            _raw_byte(match)
            or f"U+{ord(match[0]):04X} at offset {match.start()} cannot be written in XML 1.0; "
            "remove it from the value"
        )


def is_xml(text: str) -> bool:
    """Return True if XML 1.0 can hold all characters of a text."""
    return text.isprintable() or _NOT_XML.search(text) is None


def _raw_byte(match: re.Match[str]) -> str:
    """Return, as text, what is wrong with a character that stands for a byte (``surrogateescape``).
    The text is empty for any other character.
    """
    byte = ord(match[0]) - 0xDC00
    if not 0x80 <= byte <= 0xFF:
        return ""
    return (
        f"the byte 0x{byte:02X} at offset {match.start()} is no character of the database's "
        "encoding; correct the value"
    )


_HALF_PAIR = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    r"""Return a text in which unpaired surrogates are escaped, as in ``\udc81``."""
    return text.encode(errors="backslashreplace").decode()


def is_unicode(text: str) -> bool:
    """Return False for a text with an unpaired surrogate."""
    return text.isprintable() or _HALF_PAIR.search(text) is None


def check_unicode(text: str) -> None:
    """Raise BadValue for an unpaired surrogate, which UTF-8 cannot express. An unpaired surrogate
    indicates that the text was not UTF-8.
    """
    if text.isprintable():
        return
    match = _HALF_PAIR.search(text)
    if match is not None:
        raw = _raw_byte(match)
        half = f"it has an unpaired surrogate, U+{ord(match[0]):04X}, at offset {match.start()}"
        raise BadValue(f"{shown(text)} is not valid text: {raw or half}")


def character_check(options: ValueOptions) -> Callable[[str], None]:
    """Return the function that raises RowError for a text that the format cannot hold."""
    return check_xml if options.characters == "xml" else check_unicode


# --- converters -----------------------------------------------------------------------------------

Converter = Callable[[str], str]


def converter(type: ColumnType, options: ValueOptions) -> Converter:
    """Return the function that turns log text of a column into the text that XDS has (spec/xds.md
    6.1, 6.3, 8).

    The function raises BadValue for text that is not a value of the type and, if ``characters`` is
    ``xml``, BadXmlChar for a character that XML 1.0 cannot hold. Raises ConfigError for an unknown
    option value.
    """
    character = _character if options.characters == "xml" else _unicode
    match type.kind:
        case Kind.INTEGER:
            return _whole_or_word if type.special else _integer(type.bits)
        case Kind.EXACT:
            return _exact_or_word if type.special else _exact
        case Kind.APPROXIMATE:
            return _single_precision if type.bits == 32 else _double_precision
        case Kind.BOOLEAN:
            return _boolean
        case Kind.FIXED:
            return _fixed(options.char_padding, character)
        case Kind.BINARY:
            return _binary
        case Kind.DATE:
            return date_converter(options.time_syntax, options.time_zone, special=type.special)
        case Kind.TIME:
            return time_converter(options.time_syntax, options.time_zone, special=type.special)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return timestamp_converter(options.time_syntax, options.time_zone, special=type.special)
        case Kind.OTHER if is_money(type):
            return lambda text: character(money_numbers(text, type.point))
        case Kind.CHARACTER | Kind.UUID | Kind.OTHER:
            return character


def key_normalizer(type: ColumnType) -> Converter:
    """Return the function that returns the normal form of a key value (spec/event-log.md 4.3).

    The function raises BadValue for text that is not a value of the type, even for types whose text
    stays unchanged. Characters are checked elsewhere (spec/event-log.md 5).
    """
    match type.kind:
        case Kind.INTEGER:
            return _whole_or_word if type.special else _integer(type.bits)
        case Kind.EXACT:
            exact = _exact_or_word if type.special else _exact
            return lambda text: _without_last_zeros(exact(text))
        case Kind.FIXED:
            return _without_padding
        case Kind.BINARY:
            return _binary
        case Kind.UUID:
            return _uuid_key
        case Kind.CHARACTER | Kind.OTHER:
            return str
        case _:
            return _checked(converter(type, ValueOptions()))


def _checked(check: Converter) -> Converter:
    def normalize(text: str) -> str:
        check(text)
        return text

    return normalize


def _character(text: str) -> str:
    # check_xml is inlined here, since this runs for most values of a log.
    if text.isprintable() or _NOT_XML.search(text) is None:
        return text
    check_xml(text)
    return text


def _unicode(text: str) -> str:
    if text.isprintable():
        return text
    check_unicode(text)
    return text


def _without_padding(text: str) -> str:
    return text.rstrip(" ")


def _fixed(char_padding: str, character: Converter) -> Converter:
    if char_padding == "trim":
        return lambda text: character(text.rstrip(" "))
    if char_padding == "keep":
        return character
    raise ConfigError(
        f"char_padding {char_padding!r} is unknown; use trim or keep (spec/event-log.md 9)"
    )


_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def _uuid_key(text: str) -> str:
    if _UUID.fullmatch(text) is None:
        raise BadValue(f"{shown(text)} is not a uuid of 8-4-4-4-12 hexadecimal digits")
    return text.lower()


# --- numbers --------------------------------------------------------------------------------------

_BLANKS: Final = " \t"
_INTEGER = re.compile(r"[+-]?[0-9]+")
INTEGER_NAMES: Final = {16: "smallint", 32: "integer", 64: "bigint"}
"""The SQL types of integers by their bits."""


def integer_pattern(bits: int) -> str:
    """Return a regular expression for integers in normal form and in the range of ``bits`` (0 = any
    range).

    The expression does not match the longest integers, which must be compared with the range.
    """
    more_digits = f"{{0,{len(str(1 << bits - 1)) - 2}}}" if bits else "*"
    return f"(?:0|-?[1-9][0-9]{more_digits})"


def _integer(bits: int) -> Converter:
    is_normal = re.compile(integer_pattern(bits)).fullmatch

    def convert(text: str) -> str:
        if is_normal(text):
            return text
        trimmed = text.strip(_BLANKS)
        if _INTEGER.fullmatch(trimmed) is None:
            raise BadValue(f"{shown(text)} is not an integer")
        # Text, not int(): a number of scale 0 may have more digits than int() reads.
        digits = trimmed.lstrip("+-").lstrip("0")
        if not digits:
            return "0"
        normal = "-" + digits if trimmed[0] == "-" else digits
        if bits and (len(digits) > 19 or not -(1 << bits - 1) <= int(normal) < 1 << bits - 1):
            raise BadValue(
                f"{shown(text)} is out of the range of {INTEGER_NAMES.get(bits, f'{bits} bits')}"
            )
        return normal

    return convert


_EXACT_NORMAL = re.compile(r"(?:0|-?[1-9][0-9]*)(?:\.[0-9]+)?")
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?")
_MAX_EXPONENT: Final = 400


def _exact(text: str) -> str:
    if _EXACT_NORMAL.fullmatch(text):
        return text
    match = _NUMBER.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise BadValue(f"{shown(text)} is not a decimal number")
    sign, whole, fraction, bare_fraction, exponent_sign, exponent = match.groups("")
    fraction = fraction or bare_fraction
    exponent = exponent.lstrip("0")
    if len(exponent) > 3 or int(exponent or 0) > _MAX_EXPONENT:
        raise BadValue(f"{shown(text)} has an exponent outside -{_MAX_EXPONENT}..{_MAX_EXPONENT}")
    digits = whole + fraction
    point = len(whole) + int(exponent_sign + (exponent or "0"))
    if point < 0:
        digits = "0" * -point + digits
        point = 0
    whole = digits[:point].ljust(point, "0").lstrip("0") or "0"
    fraction = digits[point:]
    plain = f"{whole}.{fraction}" if fraction else whole
    # Exact numbers have no negative zero.
    return "-" + plain if sign == "-" and digits.strip("0") else plain


def _without_last_zeros(plain: str) -> str:
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


_EXACT_WORDS: Final = {"nan": "NaN", "infinity": "Infinity", "-infinity": "-Infinity"}
EXACT_WORDS: Final = frozenset(_EXACT_WORDS.values())
"""The words that are values of PostgreSQL's exact numbers (spec/xds.md 6.1)."""


def _or_word(is_normal: Callable[[str], object], convert: Converter) -> Converter:
    """Return a converter that accepts the ``EXACT_WORDS`` in addition to numbers."""

    def convert_any(text: str) -> str:
        if is_normal(text):
            return text
        word = _EXACT_WORDS.get(text.strip(_BLANKS).lower())
        return convert(text) if word is None else word

    return convert_any


_whole_or_word: Final = _or_word(re.compile(integer_pattern(0)).fullmatch, _integer(0))
_exact_or_word: Final = _or_word(_EXACT_NORMAL.fullmatch, _exact)


_FLOAT_WORDS: Final = {
    "nan": "NaN",
    "infinity": "Infinity",
    "inf": "Infinity",
    "-infinity": "-Infinity",
    "-inf": "-Infinity",
}


_FLOAT_TEXTS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "-0.0": "0"}


def float_text(number: float) -> str:
    """Return the text of a double in the log: the fewest digits that read back as the same double,
    or a word such as NaN.
    """
    text = repr(number)
    return _FLOAT_TEXTS.get(text) or text.removesuffix(".0")


def without_host_mask(text: str) -> str:
    """Return an inet address as PostgreSQL prints it. The log has the result of the cast to text,
    which includes the mask of a single host (spec/triggers.md 6).
    """
    return text.removesuffix("/128") if ":" in text else text.removesuffix("/32")


def float_or_special(number: float) -> float | str:
    """Return a double for JSON: the double itself, or a word such as NaN if JSON has no number for
    it (spec/xds.md 6.1).
    """
    return number if isfinite(number) else float_text(number)


def _double(text: str, trimmed: str) -> float:
    """Return the finite double that a text stands for.

    Raises BadValue for a number outside PostgreSQL's range: too large, or so small that it becomes
    zero.
    """
    match = _NUMBER.fullmatch(trimmed)
    if match is None:
        raise BadValue(f"{shown(text)} is not a number")
    number = float(trimmed)
    if isinf(number) or (number == 0 and _is_not_zero(match)):
        raise BadValue(f"{shown(text)} is out of the range of double precision")
    return number


def _is_not_zero(match: re.Match[str]) -> bool:
    return any(digits and digits.strip("0") for digits in match.group(2, 3, 4))


def _double_precision(text: str) -> str:
    trimmed = text.strip(_BLANKS)
    word = _FLOAT_WORDS.get(trimmed.lower())
    return float_text(_double(text, trimmed)) if word is None else word


def _single_precision(text: str) -> str:
    trimmed = text.strip(_BLANKS)
    word = _FLOAT_WORDS.get(trimmed.lower())
    if word is not None:
        return word
    number = _double(text, trimmed)
    if not number:
        return "0"
    try:
        single = _to_single(number, Decimal(trimmed))
    except OverflowError:
        single = 0.0
    if not single:
        raise BadValue(f"{shown(text)} is out of the range of real")
    return float_text(_shortest_single(single))


def _to_single(number: float, exact: Decimal) -> float:
    """Return the number of single precision nearest to ``exact``; ``number`` is the double nearest
    to ``exact``. Raises OverflowError.

    Rounding twice may give a wrong result at a tie, so an inexact double is first rounded to odd,
    towards the exact number.
    """
    if number != exact and not unpack("<q", pack("<d", number))[0] & 1:
        number = nextafter(number, inf if exact > number else -inf)
    single: float = unpack("<f", pack("<f", number))[0]
    return single


_SMALLEST_NORMAL_SINGLE: Final = 2.0**-126


def _shortest_single(single: float) -> float:
    """Return the double whose text is the shortest that reads back as ``single``."""
    # A real keeps any six digits exactly, so fewer digits need not be tried.
    fewest = 6 if abs(single) >= _SMALLEST_NORMAL_SINGLE else 1
    for precision in range(fewest, 9):
        if _reads_back(digits := f"{single:.{precision - 1}e}", single):
            return float(digits)
        if abs(frexp(single)[0]) == 0.5:
            # Above a power of two, neighbouring numbers are further apart than below it. The digits
            # that are rounded up may read back even if the nearest ones do not.
            wider = Context(prec=precision, rounding=ROUND_UP).create_decimal_from_float(single)
            if _reads_back(digits := str(wider), single):
                return float(digits)
    return float(f"{single:.8e}")


def _reads_back(digits: str, single: float) -> bool:
    try:
        return _to_single(float(digits), Decimal(digits)) == single
    except OverflowError:
        return False


_BOOLEANS: Final = {
    **dict.fromkeys(("true", "t", "1", "yes", "y", "on"), "true"),
    **dict.fromkeys(("false", "f", "0", "no", "n", "off"), "false"),
}


def _boolean(text: str) -> str:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise BadValue(f"{shown(text)} is not a boolean; use true or false")
    return value


# --- money ----------------------------------------------------------------------------------------

_DOLLARS = re.compile(r"\"?(-?)\$([0-9,]+)\.([0-9]{2})\"?")


def is_money(type: ColumnType) -> bool:
    """Return True for PostgreSQL's money, and an array of it."""
    return type.kind is Kind.OTHER and type.sql in ("money", "money[]")


def money_numbers(text: str, point: int) -> str:
    """Return a value of money, or of an array of money, as numbers with ``point`` digits after the
    point (spec/xds.md 6.1). Triggers log the stored integer as if it were cents: they log 1,234 yen
    as ``$12.34``.

    A plain number, which a source other than triggers may have logged, stays unchanged.
    """

    def number(match: re.Match[str]) -> str:
        digits = (match[2].replace(",", "") + match[3]).lstrip("0").rjust(point + 1, "0")
        place = len(digits) - point
        return match[1] + digits[:place] + ("." + digits[place:] if point else "")

    return _DOLLARS.sub(number, text)


# --- binary ---------------------------------------------------------------------------------------

_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]+")


def _binary(text: str) -> str:
    bare = _WHITE_SPACE.sub("", text)
    try:
        # The text is encoded again, so that one value has one text: the last digit may have bits
        # that are ignored.
        value = b2a_base64(a2b_base64(bare, strict_mode=True), newline=False).decode("ascii")
    except ValueError:
        value = ""
    # Another length means that the text was not decoded, or padded after a full group, which
    # strict_mode accepts.
    if len(value) != len(bare):
        raise BadValue(f"{shown(text)} is not base64")
    return value
