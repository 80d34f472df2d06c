"""The text of a table_key: its grammar, its errors with offsets, and its canonical text
(spec/event-log.md 4).

Canonicalizing keys is a hot path. Nearly every key of a log is canonical already. One regular
expression per class recognizes a canonical key in 0.3 us; the grammar takes 17 us
(bench/RESULTS.md, "One path to JSON"). The price: the normal forms of the types are written twice,
in ``_plain_normal_form`` and in ``values.key_normalizer``;
test_the_fast_way_gives_what_the_grammar_gives_for_every_type checks that both are equal.

The grammar:

::

    table-key = part *( "+" part )
    part      = column "=" value
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from eventlog.core.values import ColumnType, Kind, integer_pattern, key_normalizer
from eventlog.errors import BadTableKey, BadValue

# The nine special characters, and the control characters, as parts of a regular expression's
# character class.
_SPECIAL = r""",;'+"=\\<>"""
_CONTROL = r"\x00-\x1f\x7f"

_BLANKS = re.compile(r"[ \t]*")
_BARE = re.compile(rf"(?:[^{_SPECIAL}{_CONTROL}]|\t)*")
_QUOTED = re.compile(r'[^"\\\x00]*')
# Text that needs no quotes: no special or control character (a tab is one), no blank at either end.
_PLAIN_PATTERN = rf"[^ {_SPECIAL}{_CONTROL}](?:[^{_SPECIAL}{_CONTROL}]*[^ {_SPECIAL}{_CONTROL}])?"
_PLAIN = re.compile(_PLAIN_PATTERN)
# A key of one column in canonical form, as most keys are.
_PLAIN_PART = re.compile(f"({_PLAIN_PATTERN})=({_PLAIN_PATTERN})")


class Part(NamedTuple):
    """A column and its unquoted value, with the offsets of the first characters of both in code
    points. The first character of a quoted name or value is its quote.
    """

    name: str
    value: str
    name_offset: int
    value_offset: int


def parse(text: str | None) -> tuple[Part, ...]:
    """Parse a table_key into its parts in the order of the text (spec/event-log.md 4.1).

    Raises BadTableKey with the code and the offset of the first error from the left
    (spec/event-log.md 4.2). NULL is ``empty_key``.
    """
    if text is None:
        raise BadTableKey("empty_key", 0, "")
    if plain := _PLAIN_PART.fullmatch(text):
        return (Part(plain[1], plain[2], 0, plain.start(2)),)
    end = len(text)
    at = _after_blanks(text, 0)
    if at == end:
        raise BadTableKey("empty_key", 0, text)
    parts: list[Part] = []
    names: set[str] = set()
    while True:
        name_offset = at
        name, at = _name(text, at)
        if name in names:
            raise BadTableKey("duplicate_column", name_offset, text)
        names.add(name)
        at = _after_blanks(text, at)
        if at == end or text[at] == "+":
            raise BadTableKey("missing_equals", at, text)
        if text[at] != "=":
            raise BadTableKey("trailing_characters", at, text)
        value_offset = _after_blanks(text, at + 1)
        value, at = _value(text, value_offset)
        parts.append(Part(name, value, name_offset, value_offset))
        at = _after_blanks(text, at)
        if at == end:
            return tuple(parts)
        if text[at] != "+":
            raise BadTableKey("trailing_characters", at, text)
        at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the column name that begins at ``at``, and the offset at which it ends: at a blank,
    ``=``, ``+`` or the end of the text.
    """
    if at == len(text) or text[at] == "+":
        raise BadTableKey("empty_part", at, text)
    if text[at] == "=":
        raise BadTableKey("empty_name", at, text)
    if text[at] == '"':
        name, after = _quoted(text, at)
        if not name:
            raise BadTableKey("empty_name", at, text)
        return name, after
    return _bare(text, at, "=+")


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at ``at``, and the offset at which it ends: at a blank, ``+`` or
    the end of the text.
    """
    if at == len(text) or text[at] == "+":
        raise BadTableKey("empty_value", at, text)
    if text[at] == '"':
        return _quoted(text, at)
    return _bare(text, at, "+")


def _bare(text: str, at: int, ends: str) -> tuple[str, int]:
    bare = _BARE.match(text, at)
    assert bare is not None
    after = bare.end()
    if after < len(text) and text[after] not in ends:
        # A character that neither continues bare text nor ends it is a special or a control
        # character. Control characters are below the blank, or are DEL.
        character = text[after]
        error = (
            "control_character" if character < " " or character == "\x7f" else "unquoted_special"
        )
        raise BadTableKey(error, after, text)
    return bare[0].rstrip(" \t"), after


def _quoted(text: str, opening: int) -> tuple[str, int]:
    fragments: list[str] = []
    at = opening + 1
    while True:
        fragment = _QUOTED.match(text, at)
        assert fragment is not None
        fragments.append(fragment[0])
        at = fragment.end()
        stop = text[at : at + 1]
        if stop == '"':
            return "".join(fragments), at + 1
        if stop == "\x00":
            raise BadTableKey("control_character", at, text)
        escaped = text[at + 1 : at + 2]
        if not escaped:
            raise BadTableKey("unterminated_quote", opening, text)
        if escaped not in '"\\':
            raise BadTableKey("bad_escape", at, text)
        fragments.append(escaped)
        at += 2


def quote(text: str) -> str:
    """Return a column name or value as canonical text has it: in quotes only if it needs quotes
    (spec/event-log.md 4.3 rule 3).
    """
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def key_text(columns: Iterable[tuple[str, str]]) -> str:
    """Return the canonical text of pairs, in the order given. A pair is a column as the database
    spells it, and its value in normal form.
    """
    return "+".join([f"{quote(name)}={quote(value)}" for name, value in columns])


def parts_text(parts: Iterable[Part]) -> str:
    """Return the canonical text of parts whose key columns are unknown: only the quotes and the
    separators are normalized (spec/event-log.md 4.3 rules 3 and 4).
    """
    return key_text([(part.name, part.value) for part in parts])


Canonicalizer: TypeAlias = Callable[[str | None], str]
"""A function that returns a table_key in its canonical form. The function raises BadTableKey."""


def canonicalizer(columns: Sequence[tuple[str, ColumnType]]) -> Canonicalizer:
    """Return the function that returns the canonical text of a class's table_key (spec/event-log.md
    4.3).

    ``columns`` are the key columns as the database spells them, with their types, in primary-key
    order, for a view in the order of the ``pk_`` columns. The function raises BadTableKey with the
    code and the offset of spec/event-log.md 4.2.
    """
    read = grammar_canonicalizer(columns)
    if not columns:
        return read
    # Text that the expression does not match, valid or not, goes through the grammar.
    is_canonical = re.compile(
        r"\+".join(f"{re.escape(quote(name))}={_plain_normal_form(type)}" for name, type in columns)
    ).fullmatch

    def read_fast(text: str | None) -> str:
        if text is not None and is_canonical(text):
            return text
        return read(text)

    return read_fast


def grammar_canonicalizer(columns: Sequence[tuple[str, ColumnType]]) -> Canonicalizer:
    """Return the function that parses, resolves and normalizes every text. The function of
    ``canonicalizer`` has the same results and is faster.
    """
    order = {name: position for position, (name, _) in enumerate(columns)}
    normalizers = {name: key_normalizer(type) for name, type in columns}
    key_columns = f"the key is {', '.join(order)}"
    without_case: dict[str, list[str]] = {}
    for name, _ in columns:
        without_case.setdefault(name.casefold(), []).append(name)

    def resolve(name: str) -> str | None:
        if name in normalizers:
            return name
        similar = without_case.get(name.casefold(), ())
        return similar[0] if len(similar) == 1 else None

    def read(text: str | None) -> str:
        parts = parse(text)
        assert text is not None
        values: dict[str, str] = {}
        for part in parts:
            column = resolve(part.name)
            if column is None:
                raise BadTableKey("unknown_column", part.name_offset, text, key_columns)
            if column in values:
                raise BadTableKey("repeated_column", part.name_offset, text)
            try:
                values[column] = normalizers[column](part.value)
            except BadValue as error:
                detail = f"{column}: {error}"
                raise BadTableKey("bad_value", part.value_offset, text, detail) from error
        if len(values) < len(order):
            raise BadTableKey("missing_column", len(text), text, key_columns)
        return key_text(sorted(values.items(), key=lambda item: order[item[0]]))

    return read


def _plain_normal_form(type: ColumnType) -> str:
    """Return a regular expression of values in normal form that need no quotes.

    The expression may miss some of these values, and matches no other text.
    """
    if type.kind is Kind.INTEGER:
        return integer_pattern(type.bits)
    return _PLAIN_NORMAL_FORMS[type.kind]


_DAY_OF_EVERY_MONTH = "(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_TIME_OF_DAY = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{0,9})?"
_TIMESTAMP = f"{_DAY_OF_EVERY_MONTH}(?:[ T]{_TIME_OF_DAY})?"

_PLAIN_NORMAL_FORMS = {
    Kind.EXACT: r"(?:0|-?(?:0\.[0-9]*[1-9]|[1-9][0-9]*(?:\.[0-9]*[1-9])?))",
    # few digits, so that the value is in the range of double and single precision
    Kind.APPROXIMATE: r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?",
    Kind.BOOLEAN: "(?:true|false|t|f|1|0)",
    Kind.FIXED: _PLAIN_PATTERN,
    Kind.CHARACTER: _PLAIN_PATTERN,
    Kind.BINARY: "(?:[A-Za-z0-9/]{4})+",
    Kind.DATE: _DAY_OF_EVERY_MONTH,
    Kind.TIME: _TIME_OF_DAY,
    Kind.TIMESTAMP: _TIMESTAMP,
    Kind.TIMESTAMPTZ: _TIMESTAMP,
    Kind.UUID: "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    Kind.OTHER: _PLAIN_PATTERN,
}
