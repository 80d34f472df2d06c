"""The grammar of table_key, its errors and its canonical text (spec/event-log.md 4)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.core.table_key import (
    Part,
    canonicalizer,
    grammar_canonicalizer,
    key_text,
    parse,
    parts_text,
    quote,
)
from eventlog.core.values import parse_type
from eventlog.errors import BadTableKey


def reader(*columns):
    return canonicalizer([(name, parse_type(type_name)) for name, type_name in columns])


def failure(read, text):
    with pytest.raises(BadTableKey) as caught:
        read(text)
    return caught.value.error, caught.value.offset


# --- grammar


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("idu=1", [("idu", "1")]),
        ("pkey1=value1+pkey2=value2", [("pkey1", "value1"), ("pkey2", "value2")]),
        (" idu =\t1 ", [("idu", "1")]),
        ("a = 1 + b = 2", [("a", "1"), ("b", "2")]),
        ("n=John  Smith", [("n", "John  Smith")]),
        ('n=" x"', [("n", " x")]),
        ('n=""', [("n", "")]),
        ('n="a\\"b\\\\" ', [("n", 'a"b\\')]),
        ('n="a\nb"+m=c', [("n", "a\nb"), ("m", "c")]),
        ("n=a\tb", [("n", "a\tb")]),
        ('"a=b"=1', [("a=b", "1")]),
        ("my col = 1", [("my col", "1")]),
        ("n=\u00a0x\u3000", [("n", "\u00a0x\u3000")]),
        ("a=1+A=2", [("a", "1"), ("A", "2")]),
        ("k=\x85", [("k", "\x85")]),
    ],
)
def test_a_key_is_columns_and_values(text, parts):
    assert [(part.name, part.value) for part in parse(text)] == parts


def test_offsets_are_code_points_and_a_quote_counts():
    assert parse('"\U0001f600" = "x" + b= 2') == (
        Part("\U0001f600", "x", 0, 6),
        Part("b", "2", 12, 15),
    )


@pytest.mark.parametrize(
    ("text", "error", "offset"),
    [
        (None, "empty_key", 0),
        ("", "empty_key", 0),
        (" \t", "empty_key", 0),
        ("+", "empty_part", 0),
        (" +a=1", "empty_part", 1),
        ("a=1++b=2", "empty_part", 4),
        ("a=1+", "empty_part", 4),
        ("a=1+ ", "empty_part", 5),
        ("=1", "empty_name", 0),
        ('a=1+ ""=1', "empty_name", 5),
        ('""x=1', "empty_name", 0),
        ("a", "missing_equals", 1),
        ("a ", "missing_equals", 2),
        ("a+b=1", "missing_equals", 1),
        ('"a" +b=1', "missing_equals", 4),
        ("a=", "empty_value", 2),
        ("a= ", "empty_value", 3),
        ("idu=+1", "empty_value", 4),
        ("a==", "unquoted_special", 2),
        ("k=qqo=", "unquoted_special", 5),
        (",=1", "unquoted_special", 0),
        ('a"b=1', "unquoted_special", 1),
        ("n=a'b", "unquoted_special", 3),
        ("n=a\nb", "control_character", 3),
        ("\n", "control_character", 0),
        ("n=1\x7f", "control_character", 3),
        ("n=\x00", "control_character", 2),
        ('n="a\x00', "control_character", 4),
        ('n="a', "unterminated_quote", 2),
        ('n="a\\', "unterminated_quote", 2),
        ('n="a\\"', "unterminated_quote", 2),
        ('"a=1', "unterminated_quote", 0),
        ('n="a\\n"', "bad_escape", 4),
        ('n="\\\x00"', "bad_escape", 3),
        ('n="a\\n', "bad_escape", 4),
        ('n="a"b', "trailing_characters", 5),
        ('n="a" "b"', "trailing_characters", 6),
        ('n="a"=b', "trailing_characters", 5),
        ('n="a"\n', "trailing_characters", 5),
        ('"a"b=1', "trailing_characters", 3),
        ("a=1+a=2", "duplicate_column", 4),
        ("a=1+a", "duplicate_column", 4),
        ('a=1+ "a"x', "duplicate_column", 5),
    ],
)
def test_the_first_error_from_the_left_counts(text, error, offset):
    assert failure(parse, text) == (error, offset)


# --- canonical text


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("x", "x"),
        ("a b", "a b"),
        ("", '""'),
        (" ", '" "'),
        (" x", '" x"'),
        ("x ", '"x "'),
        ("a\tb", '"a\tb"'),
        ("\x7f", '"\x7f"'),
        ("x\n", '"x\n"'),
        ("\u00a0\x85", "\u00a0\x85"),
        ('a"b\\', '"a\\"b\\\\"'),
        *((f"x{special}y", f'"x{special}y"') for special in ",;'+=<>"),
    ],
)
def test_only_what_needs_quotes_has_them(text, quoted):
    assert quote(text) == quoted


def test_without_key_columns_the_parts_keep_their_order():
    assert parts_text(parse(' b = "1" + a="x y"+ "c c"=" "')) == 'b=1+a=x y+c c=" "'


def test_key_text_joins_columns_and_normal_values():
    assert (
        key_text([("branch", "North West"), ("n,o", "7"), ("k", "qqo=")])
        == 'branch=North West+"n,o"=7+k="qqo="'
    )


# --- keys of a class


@pytest.mark.parametrize(
    ("columns", "text", "expected"),
    [
        ([("idu", "integer")], "idu=1", "idu=1"),
        ([("idu", "integer")], " idu = 007", "idu=7"),
        ([("idu", "integer")], 'idu="+7"', "idu=7"),
        ([("IDU", "integer")], "idu=34131", "IDU=34131"),
        ([("a", "integer"), ("b", "integer")], "b=2+a=1", "a=1+b=2"),
        ([("a", "integer"), ("A", "integer")], "A=2+a=1", "a=1+A=2"),
        ([("a", "integer"), ("b", "varchar(9)")], 'b=" x"+A=01', 'a=1+b=" x"'),
        ([("n", "text"), ("m", "text")], "n=a b+m=c", "n=a b+m=c"),
        ([("n,o", "text")], '"n,o"=x', '"n,o"=x'),
        ([("d", "decimal(9,2)")], "d=-0.00", "d=0"),
        ([("c", "char(5)")], 'c="AB   "', "c=AB"),
        ([("v", "varchar(5)")], 'v="AB   "', 'v="AB   "'),
        ([("k", "blob")], 'k="qq\no="', 'k="qqo="'),
        ([("k", "blob")], "k=qqoa", "k=qqoa"),
        ([("t", "timestamp")], "t=2024-05-06 07:08:09", "t=2024-05-06 07:08:09"),
        ([("t", "date")], "t=2024-02-29", "t=2024-02-29"),
        ([("f", "double")], "f=1e3", "f=1e3"),
        ([("a.b", "integer")], "a.b=1", "a.b=1"),
    ],
)
def test_two_spellings_of_one_key_have_one_text(columns, text, expected):
    read = reader(*columns)
    assert read(text) == expected
    assert read(expected) == expected


@pytest.mark.parametrize(
    ("columns", "text", "error", "offset"),
    [
        ([("idu", "integer")], None, "empty_key", 0),
        ([("idu", "integer")], "", "empty_key", 0),
        ([("idu", "integer")], "idu=1+", "empty_part", 6),
        ([("idu", "integer")], "id=1", "unknown_column", 0),
        ([("idu", "integer")], "idu=1+x=2", "unknown_column", 6),
        ([("Ab", "integer"), ("aB", "integer")], "AB=1", "unknown_column", 0),
        ([("a", "integer")], "a=1+A=2", "repeated_column", 4),
        ([("a", "integer")], "a=1+A=x", "repeated_column", 4),
        ([("a", "integer"), ("b", "integer")], "a=x+y=1", "bad_value", 2),
        ([("a", "integer"), ("b", "integer")], "a=1", "missing_column", 3),
        ([("a", "integer"), ("b", "integer")], "b=x", "bad_value", 2),
        ([("idu", "integer")], 'idu= "1 2"', "bad_value", 5),
        ([("idu", "integer")], "idu=2147483648", "bad_value", 4),
        ([("idu", "integer")], "idu=1\n", "control_character", 5),
        ([("u", "uuid")], "u=9F1C0D7E0000400080000000000000AA", "bad_value", 2),
        ([("t", "date")], "t=2024-02-30", "bad_value", 2),
        ([("t", "date")], "t=0000-01-01", "bad_value", 2),
        ([("f", "double")], "f=1e999", "bad_value", 2),
        ([("b", "boolean")], "b=maybe", "bad_value", 2),
        ([("a.b", "integer")], "axb=1", "unknown_column", 0),
        ([], "a=1", "unknown_column", 0),
        ([], "", "empty_key", 0),
    ],
)
def test_a_key_that_is_not_of_its_class_is_refused(columns, text, error, offset):
    assert failure(reader(*columns), text) == (error, offset)


# --- properties

ANY_CHARACTER = st.characters(exclude_categories=())
TEXTS = st.text(ANY_CHARACTER.filter(lambda character: character != "\x00"), max_size=12)
KEY_TEXTS = st.one_of(
    st.text(ANY_CHARACTER, max_size=20),
    st.text(st.sampled_from('ab=+",;\\ \t\n\x00'), max_size=16),
)
PARTS = st.lists(
    st.builds(Part, TEXTS.filter(bool), TEXTS, st.just(0), st.just(0)),
    min_size=1,
    max_size=4,
    unique_by=lambda part: part.name,
)


@given(PARTS)
@settings(deadline=None, max_examples=examples(300))
def test_canonical_text_reads_back_the_same(parts):
    text = parts_text(parts)
    again = parse(text)
    assert [part[:2] for part in again] == [part[:2] for part in parts]
    assert parts_text(again) == text


@given(KEY_TEXTS)
@settings(deadline=None, max_examples=examples(500))
def test_a_text_parses_to_parts_that_are_where_they_say_or_is_a_bad_table_key(text):
    try:
        parts = parse(text)
    except BadTableKey:
        return
    for name, value, name_offset, value_offset in parts:
        assert text[name_offset] == '"' or text.startswith(name, name_offset)
        assert text[value_offset] == '"' or text.startswith(value, value_offset)
    assert parse(parts_text(parts)) != ()


DATES = r"[0-9]{4}-(02|[01][0-9])-([0-2][0-9]|3[01])"
TIMES = r"[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.([0-9]{0,2}|0{9,10}))?"
# Texts of which about half are in normal form, the others not or no values at all.
VALUES = {
    "smallint": r"-?[0-9]{1,6}",
    "integer": r"[+-]?0?[0-9]{8,11}",
    "bigint": r"-?[0-9]{17,20}",
    "decimal(9,0)": r"-?[0-9]{1,20}",
    "decimal(9,2)": r"-?[01]{0,2}(\.[01]{0,3})?(e[0-9]{1,3})?",
    "real": r"-?[0-9]{0,3}(\.[0-9]{0,3})?(e[0-9]{1,2})?|9{36,41}|0\.0{43,48}1",
    "double": r"-?[0-9]{0,16}(\.[0-9]{0,16})?(e-?[0-9]{1,3})?",
    "boolean": r"true|T|yes|2|f",
    "char(5)": r"[A+]?[ B\t]{0,2}[C\x00]?",
    "varchar(9)": r"[A+]?[ B\t]{0,2}[C\x7f]?",
    "blob": r"[A-Z/]{1,8}(\+\+\+\+)?={0,2}",
    "date": rf"{DATES}( 00:00:00)?|0000-01-01",
    "time": rf"{TIMES}Z?",
    "timestamp": rf"{DATES}([ T]{TIMES}Z?)?",
    "timestamptz": rf"{DATES}([ T]{TIMES}([+-]0[0-9])?)?",
    "uuid": r"([0-9a-f]{8}|[0-9A-F]{8})(-[0-9a-f]{4}){3}-?[0-9a-f]{12}",
    "json": r"[a\[][ ]?(\]|\n)?",
}
COLUMNS = st.lists(
    st.tuples(
        st.sampled_from(["a", "A", "b", "a.b", "n,o", "x y"]), st.sampled_from(sorted(VALUES))
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda column: column[0],
)


@st.composite
def keys(draw, columns):
    """Texts of such columns: names and values quoted or not, sometimes in another order,
    incomplete, or with a tail.
    """
    chosen = draw(st.sampled_from([columns, columns, columns[::-1], columns[:1]]))
    parts = []
    for name, type_name in chosen:
        value = draw(st.from_regex(VALUES[type_name], fullmatch=True))
        parts.append(f"{quote(name)}={draw(st.sampled_from([value, quote(value)]))}")
    return "+".join(parts) + draw(st.sampled_from(["", "", "", "", "\n", "+", " "]))


def outcome(read, text):
    try:
        return read(text)
    except BadTableKey as error:
        return error.error, error.offset, error.text


def assert_both_ways_are_one(names, text):
    columns = [(name, parse_type(type_name)) for name, type_name in names]
    fast, slow = canonicalizer(columns), grammar_canonicalizer(columns)
    result = outcome(fast, text)
    assert result == outcome(slow, text)
    if isinstance(result, str):
        assert fast(result) == slow(result) == result


@pytest.mark.parametrize("type_name", sorted(VALUES))
@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_the_fast_way_gives_what_the_grammar_gives_for_every_type(type_name, data):
    columns = [("k", type_name)]
    assert_both_ways_are_one(columns, data.draw(keys(columns)))


@given(COLUMNS, st.data())
@settings(deadline=None, max_examples=examples(300))
def test_the_fast_way_gives_what_the_grammar_gives_for_composite_keys(columns, data):
    assert_both_ways_are_one(columns, data.draw(keys(columns)))


@given(COLUMNS, st.one_of(st.none(), KEY_TEXTS))
@settings(deadline=None)
def test_the_fast_way_gives_what_the_grammar_gives_for_any_text(columns, text):
    assert_both_ways_are_one(columns, text)
