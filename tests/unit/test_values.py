"""What column types mean, and the text that values are written as (spec/xds.md 6, 8;
spec/event-log.md 4.3).
"""

import re
from base64 import b64decode, b64encode
from decimal import Decimal
from struct import pack, unpack

import pytest
from documents import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared import examples
from value_samples import SYNTAXES, TYPES, key, written

from eventlog.core.values import (
    TYPE_NAMES,
    ColumnType,
    Kind,
    ValueOptions,
    check_xml,
    converter,
    integer_pattern,
    parse_type,
    xds_type,
)
from eventlog.errors import BadValue, BadXmlChar, ConfigError

# --- types


@pytest.mark.promise("type other 0")
@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("smallint", Kind.INTEGER, 16),
        ("integer", Kind.INTEGER, 32),
        ("bigint", Kind.INTEGER, 64),
        ("decimal(12,0)", Kind.INTEGER, 0),
        ("decimal(12)", Kind.INTEGER, 0),
        ("decimal", Kind.EXACT, 0),
        ("decimal(12,4)", Kind.EXACT, 0),
        ("decimal( 12 , 4 )", Kind.EXACT, 0),
        ("decimal(5,-2)", Kind.EXACT, 0),
        ("real", Kind.APPROXIMATE, 32),
        ("double", Kind.APPROXIMATE, 64),
        ("boolean", Kind.BOOLEAN, 0),
        ("char(8)", Kind.FIXED, 0),
        ("varchar(64)", Kind.CHARACTER, 0),
        ("text", Kind.CHARACTER, 0),
        ("clob", Kind.CHARACTER, 0),
        ("varbinary(200)", Kind.BINARY, 0),
        ("blob", Kind.BINARY, 0),
        ("date", Kind.DATE, 0),
        ("time", Kind.TIME, 0),
        ("timestamp", Kind.TIMESTAMP, 0),
        ("timestamptz", Kind.TIMESTAMPTZ, 0),
        ("uuid", Kind.UUID, 0),
        ("json", Kind.OTHER, 0),
        ("BigInt", Kind.INTEGER, 64),
        ("interval", Kind.OTHER, 0),
        ("integer[]", Kind.OTHER, 0),
        # as PostgreSQL spells them
        ("bytea", Kind.BINARY, 0),
        ("double precision", Kind.APPROXIMATE, 64),
        ("numeric(10,2)", Kind.EXACT, 0),
        ("numeric(10,0)", Kind.INTEGER, 0),
        ("timestamp without time zone", Kind.TIMESTAMP, 0),
        ("timestamp(3) without time zone", Kind.TIMESTAMP, 0),
        ("timestamp(3) with time zone", Kind.TIMESTAMPTZ, 0),
        ("time(0) without time zone", Kind.TIME, 0),
        ("time with time zone", Kind.OTHER, 0),
        ("character varying(20)", Kind.CHARACTER, 0),
        ("character(5)", Kind.FIXED, 0),
        ("bpchar", Kind.FIXED, 0),
        ("int4", Kind.INTEGER, 32),
        ("bool", Kind.BOOLEAN, 0),
        ("float(24)", Kind.APPROXIMATE, 32),
        ("bit varying(3)", Kind.OTHER, 0),
        ("text[]", Kind.OTHER, 0),
        ("numeric(9,2)[][]", Kind.OTHER, 0),
        ("jsonb", Kind.OTHER, 0),
        # as Oracle does
        ("NUMBER(9)", Kind.INTEGER, 0),
        ("NUMBER(*,0)", Kind.INTEGER, 0),
        ("NUMBER", Kind.EXACT, 0),
        ("VARCHAR2(20 CHAR)", Kind.CHARACTER, 0),
        ("LONG RAW", Kind.BINARY, 0),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", Kind.TIMESTAMPTZ, 0),
        ("BINARY_FLOAT", Kind.APPROXIMATE, 32),
        ("INTERVAL DAY(2) TO SECOND(6)", Kind.OTHER, 0),
        # as SQLite's documentation does
        ("UNSIGNED BIG INT", Kind.INTEGER, 64),
        ("NATIVE CHARACTER(70)", Kind.FIXED, 0),
        ("VARYING CHARACTER(255)", Kind.CHARACTER, 0),
        ("DATETIME", Kind.TIMESTAMP, 0),
        ("other", Kind.OTHER, 0),
    ],
)
def test_a_type_name_has_a_kind_and_bits(text, kind, bits):
    assert parse_type(text) == ColumnType(kind, bits, text)


@pytest.mark.parametrize(
    ("text", "dialect", "kind", "bits"),
    [
        ("DATE", "oracle", Kind.TIMESTAMP, 0),
        ("TIMESTAMP(6)", "mariadb", Kind.TIMESTAMPTZ, 0),
        ("bigint(20) unsigned", "mariadb", Kind.INTEGER, 0),
        ("bigint unsigned", "mysql", Kind.INTEGER, 0),
        ("int unsigned", "mariadb", Kind.INTEGER, 64),
        ("mediumtext", "mariadb", Kind.CHARACTER, 0),
        ("float", "mariadb", Kind.APPROXIMATE, 32),
        ("FLOAT(24)", "oracle", Kind.EXACT, 0),
        ("REAL", "oracle", Kind.EXACT, 0),
        ("INTEGER", "sqlite", Kind.INTEGER, 64),
        ("REAL", "sqlite", Kind.APPROXIMATE, 64),
        ("date", "postgresql", Kind.DATE, 0),
    ],
)
def test_a_word_means_what_its_database_means_by_it(text, dialect, kind, bits):
    assert parse_type(text, dialect) == ColumnType(kind, bits, text)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("byteaa", "bytea"),
        ("varchr(20)", "varchar"),
        ("timestampz", "timestamptz"),
        ("decimal(x)", "decimal"),
    ],
)
def test_a_type_that_is_not_known_is_refused_with_the_nearest(text, near):
    with pytest.raises(ConfigError, match=rf"Do you mean {near}\? .*user-defined type"):
        parse_type(text)


def test_the_page_of_catalogs_lists_every_type():
    page = (ROOT / "docs/formats/convert.md").read_text()
    table = page[page.index("| column holds | `type` |") :].partition("\n\n")[0]
    listed = {
        name
        for line in table.splitlines()[2:]
        for name in re.findall("`([^`]+)`", line.split("|")[2])
    }
    for name in listed:
        parse_type(name)
    assert {parse_type(name).kind for name in listed} == set(Kind)
    assert {
        "bytea",
        "double precision",
        "character varying",
        "timestamp without time zone",
        "jsonb",
    } <= listed
    assert [
        name for names in TYPE_NAMES.values() for name in names.split(", ") if name not in listed
    ] == []


def test_a_type_that_is_like_none_is_refused():
    with pytest.raises(ConfigError, match=r"unknown column type 'mood'\. Use 'other'"):
        parse_type("mood")


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_type_name_is_refused(text):
    with pytest.raises(ConfigError):
        parse_type(text)


@pytest.mark.parametrize(
    ("type_name", "expected"),
    [
        ("integer", "int"),
        ("decimal(12,0)", "int"),
        ("decimal(12,4)", "string"),
        ("double", "string"),
        ("boolean", "state"),
        ("char(8)", "string"),
        ("text", "string"),
        ("blob", "octet"),
        ("uuid", "string"),
        ("json", "string"),
    ],
)
@pytest.mark.parametrize("time_syntax", SYNTAXES)
def test_the_xds_type_follows_the_kind(type_name, expected, time_syntax):
    assert xds_type(parse_type(type_name), ValueOptions(time_syntax=time_syntax)) == expected


@pytest.mark.parametrize("type_name", ["date", "time", "timestamp", "timestamptz"])
@pytest.mark.parametrize(
    ("time_syntax", "expected"), [("integer", "time"), ("canonical", "string"), ("java", "string")]
)
def test_dates_and_times_are_of_type_time_only_as_integers(type_name, time_syntax, expected):
    assert xds_type(parse_type(type_name), ValueOptions(time_syntax=time_syntax)) == expected


# --- numbers


@pytest.mark.parametrize(
    ("type_name", "text", "expected"),
    [
        ("integer", "0", "0"),
        ("integer", "-5", "-5"),
        ("integer", " 007 ", "7"),
        ("integer", "\t+7\t", "7"),
        ("integer", "-0", "0"),
        ("integer", "-012", "-12"),
        ("smallint", "32767", "32767"),
        ("smallint", "-32768", "-32768"),
        ("integer", "2147483647", "2147483647"),
        ("integer", "-2147483648", "-2147483648"),
        ("bigint", "9223372036854775807", "9223372036854775807"),
        ("bigint", "-9223372036854775808", "-9223372036854775808"),
        ("bigint", "0" * 5000 + "1", "1"),
        ("decimal(38,0)", "+12", "12"),
        ("decimal(38,0)", "0" + "9" * 5000, "9" * 5000),
    ],
)
def test_integers_are_written_without_sign_zeros_and_blanks(type_name, text, expected):
    assert written(type_name, text) == expected
    assert key(type_name, text) == expected


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(
            ("integer", text)
            for text in (
                "",
                " ",
                "x",
                "1.0",
                "1 2",
                "+",
                "--1",
                "1_0",
                "٣",
                "1\n",
                "\u00a01",
                "1e3",
            )
        ),
        ("smallint", "32768"),
        ("smallint", "-32769"),
        ("integer", "2147483648"),
        ("integer", "-2147483649"),
        ("bigint", "9223372036854775808"),
        ("bigint", "-9223372036854775809"),
        ("bigint", "9" * 5000),
        ("decimal(9,0)", "1.0"),
    ],
)
def test_other_text_is_no_integer(type_name, text):
    with pytest.raises(BadValue):
        written(type_name, text)
    with pytest.raises(BadValue):
        key(type_name, text)


@pytest.mark.promise("type integer 16", "type integer 32", "type integer 64")
@given(st.sampled_from([8, 16, 32, 64]), st.integers(-(2**65), 2**65))
@settings(deadline=None)
def test_an_integer_is_good_if_and_only_if_it_is_in_range(bits, number):
    convert = converter(ColumnType(Kind.INTEGER, bits), ValueOptions())
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        assert convert(str(number)) == str(number)
    else:
        assert not re.fullmatch(integer_pattern(bits), str(number))
        with pytest.raises(BadValue):
            convert(str(number))


@pytest.mark.promise("type exact 0")
@pytest.mark.parametrize(
    ("text", "value", "normal"),
    [
        ("0", "0", "0"),
        ("12.50", "12.50", "12.5"),
        ("01.50", "1.50", "1.5"),
        ("100.00", "100.00", "100"),
        ("100", "100", "100"),
        (".5", "0.5", "0.5"),
        ("5.", "5", "5"),
        ("+.5", "0.5", "0.5"),
        ("-0.50", "-0.50", "-0.5"),
        ("-0.00", "0.00", "0"),
        ("-0", "0", "0"),
        ("1E2", "100", "100"),
        ("1E3", "1000", "1000"),
        ("1.50e1", "15.0", "15"),
        ("1.50e+2", "150", "150"),
        ("1E-3", "0.001", "0.001"),
        ("12E-1", "1.2", "1.2"),
        ("0E5", "0", "0"),
        ("0e-2", "0.00", "0"),
        (" 1.5\t", "1.5", "1.5"),
        ("1e400", "1" + "0" * 400, "1" + "0" * 400),
        ("1e-0400", "0." + "0" * 399 + "1", "0." + "0" * 399 + "1"),
    ],
)
def test_exact_numbers_are_plain_decimals(text, value, normal):
    assert written("decimal(9,2)", text) == value
    assert key("decimal(9,2)", text) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "x",
        "1.2.3",
        "1e",
        "1e401",
        "1E-401",
        "1e" + "9" * 5000,
        "NaN",
        "inf",
        "1,5",
        "1_0",
        "١",
        "1\n",
    ],
)
def test_other_text_is_no_exact_number(text):
    with pytest.raises(BadValue):
        written("decimal(9,2)", text)
    with pytest.raises(BadValue):
        key("decimal(9,2)", text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
@settings(deadline=None)
def test_exact_numbers_keep_their_value(number):
    value, normal = written("decimal", str(number)), key("decimal", str(number))
    assert Decimal(value) == number == Decimal(normal)
    assert re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", value)
    assert re.fullmatch(r"0|-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", normal)
    assert written("decimal", value) == value
    assert key("decimal", normal) == normal


@pytest.mark.promise("type approximate 32", "type approximate 64")
@pytest.mark.parametrize(
    ("type_name", "text", "expected"),
    [
        ("double", "1e3", "1000"),
        ("double", "1e-5", "1e-05"),
        ("double", "0.0001", "0.0001"),
        ("double", "1e15", "1000000000000000"),
        ("double", "1E16", "1e+16"),
        ("double", "-1.5e300", "-1.5e+300"),
        ("double", "0.1000", "0.1"),
        ("double", "0.1000000000000000055511151231257827", "0.1"),
        ("double", "-0.0", "0"),
        ("double", "0e999999999999999999999", "0"),
        ("double", "5e-324", "5e-324"),
        ("double", " .5 ", "0.5"),
        ("double", "NAN", "NaN"),
        ("double", "inf", "Infinity"),
        ("double", "Infinity", "Infinity"),
        ("double", "-Inf", "-Infinity"),
        ("real", "-infinity", "-Infinity"),
        ("real", "nan", "NaN"),
        ("real", "0.1", "0.1"),
        ("real", "0.100000001490116", "0.1"),
        ("real", "-0", "0"),
        ("real", "16777217", "16777216"),
        (
            "real",
            "16777217.0000000000001",
            "16777218",
        ),  # through the nearest double it would be a tie
        ("real", "3.4028235e+38", "3.4028235e+38"),
        ("real", "340282356779733661637539395458142568447.9", "3.4028235e+38"),
        ("real", "1e-45", "1e-45"),
        ("real", "1.17549435e-38", "1.1754944e-38"),
        ("real", "9.8607613e-32", "9.8607613e-32"),  # a power of two
        ("real", "8388608", "8388608"),
        ("real", "1e10", "10000000000"),
    ],
)
def test_approximate_numbers_have_the_shortest_digits(type_name, text, expected):
    assert written(type_name, text) == expected


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(
            ("double", text)
            for text in (
                "",
                ".",
                "x",
                "1e",
                "1e999",
                "-1e309",
                "1e-400",
                "1_0",
                "٣",
                "1\n",
                "0x1p3",
            )
        ),
        *(("double", text) for text in ("infinit", "+inf", "nan(1)")),
        *(("real", text) for text in ("1e39", "3.4028236e38", "1e-46", "-1e-400", "x")),
    ],
)
def test_other_text_is_no_approximate_number(type_name, text):
    with pytest.raises(BadValue):
        written(type_name, text)
    with pytest.raises(BadValue):
        key(type_name, text)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None)
def test_a_double_reads_back_the_same(number):
    assert float(written("double", repr(number))) == number


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
@example(2.0**-126)
@example(2.0**-149)
@settings(deadline=None)
def test_a_single_reads_back_the_same_with_at_most_nine_digits(number):
    text = written("real", repr(number))
    assert unpack("<f", pack("<f", float(text)))[0] == number
    mantissa = text.lstrip("-").partition("e")[0].replace(".", "")
    assert len(mantissa.strip("0")) <= 9


# --- boolean, characters, binary


@pytest.mark.promise("type boolean 0")
@pytest.mark.parametrize(
    ("texts", "expected"),
    [("true TRUE t T 1 yes Yes y on", "true"), ("false False f F 0 no N n off", "false")],
)
def test_booleans(texts, expected):
    for text in texts.split():
        assert written("boolean", text) == expected
        assert key("boolean", text) == text


@pytest.mark.parametrize("text", ["", "tru", "2", "-1", "wahr"])
def test_other_text_is_no_boolean(text):
    with pytest.raises(BadValue):
        written("boolean", text)
    with pytest.raises(BadValue):
        key("boolean", text)


@pytest.mark.promise("type fixed 0")
def test_padding_is_trimmed_or_kept():
    assert written("char(8)", " ab      ") == " ab"
    assert written("char(8)", "ab  ", char_padding="keep") == "ab  "
    assert written("char(8)", "ab\t") == "ab\t"
    assert written("varchar(8)", "ab  ") == "ab  "
    with pytest.raises(ConfigError):
        written("char(8)", "ab", char_padding="strip")


def test_the_key_of_a_fixed_column_has_no_padding_and_of_a_variable_one_stays():
    assert key("char(5)", "AB   ") == "AB"
    assert key("varchar(5)", "AB   ") == "AB   "


@pytest.mark.promise("type character 0")
def test_characters_stay_as_they_are_and_are_not_copied():
    text = "Jürgen & <日本> \U0001f600 \u0085\ufffd \t\r\n e\u0301"
    for type_name in ("varchar(9)", "text", "clob", "json", "uuid", "interval"):
        assert written(type_name, text) is text


@pytest.mark.promise("type binary 0")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("qqo=", "qqo="),
        ("AAEC\nAwQF", "AAECAwQF"),
        (" q q\to\r\n=\v\f", "qqo="),
        ("qqp=", "qqo="),  # the bits that do not count
        ("+/+/", "+/+/"),
    ],
)
def test_binary_is_base64_without_white_space(text, value):
    assert written("blob", text) == value
    assert key("varbinary(9)", text) == value


@pytest.mark.parametrize(
    "text",
    [
        "qqo",
        "qqoa=",
        "qqoa====",
        "qq=",
        "q===",
        "====",
        "q*o=",
        "qqo=qqo=",
        "=qqo",
        "q=qo",
        "-_-_",
        "qqo=\u00a0",
        "qqo=\x1c",
        "ààà=",
    ],
)
def test_other_text_is_no_base64(text):
    with pytest.raises(BadValue):
        written("blob", text)
    with pytest.raises(BadValue):
        key("blob", text)


@given(st.text(alphabet="Az0+/===-\n", max_size=10))
@settings(deadline=None)
def test_base64_is_taken_exactly_if_its_alphabet_and_padding_are_right(text):
    bare = text.replace(" ", "").replace("\n", "")
    if re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", bare):
        assert written("blob", text) == b64encode(b64decode(bare)).decode()
    else:
        with pytest.raises(BadValue):
            written("blob", text)


@pytest.mark.promise("type uuid 0")
def test_a_uuid_is_lower_case_in_keys_and_as_stored_in_values():
    text = "9F1C0D7E-0000-4000-8000-00000000000A"
    assert written("uuid", text) == text
    assert key("uuid", text) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9F1C0D7E0000400080000000000000AA",
        "{9F1C0D7E-0000-4000-8000-00000000000A}",
        "9F1C0D7E-0000-4000-8000-00000000000G",
    ],
)
def test_a_uuid_key_needs_its_hyphens(text):
    with pytest.raises(BadValue):
        key("uuid", text)


@pytest.mark.parametrize("code", [0x0, 0x8, 0xB, 0xC, 0xE, 0x1F, 0xD800, 0xDFFF, 0xFFFE, 0xFFFF])
@pytest.mark.parametrize("type_name", ["char(9)", "text", "uuid", "json"])
def test_a_character_that_xml_cannot_hold_is_named_with_its_offset(type_name, code):
    with pytest.raises(BadXmlChar, match=f"U\\+{code:04X} at offset 4 "):
        written(type_name, f"bell{chr(code)}")
    with pytest.raises(BadXmlChar, match=f"U\\+{code:04X} at offset 0 "):
        check_xml(chr(code))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\t\n\r",
        " \u00a0\u2028",
        "\x7f\x80\x9f\u0085",
        "\ud7ff\ue000\ufffd",
        "\U0001f600\U0010ffff",
    ],
)
def test_every_other_character_is_good(text):
    check_xml(text)
    assert written("text", text) == text


@given(st.characters())
@settings(deadline=None)
def test_the_characters_refused_are_those_outside_the_production_char_of_xml(character):
    code = ord(character)
    allowed = (
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or code >= 0x10000
    )
    try:
        check_xml(character)
    except BadXmlChar:
        assert not allowed
    else:
        assert allowed


def test_keys_are_not_checked_for_characters():
    assert key("text", "bell\x07") == "bell\x07"


# --- any text

ANY_TEXT = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=())),
    st.text(alphabet="0123456789+-.eE:TZ \t\n_,=/xinfa٣\x00\ud800", max_size=24),
)


@given(
    st.sampled_from(TYPES),
    st.sampled_from(SYNTAXES),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    ANY_TEXT,
)
@settings(deadline=None, max_examples=examples(500))
def test_a_converter_gives_xml_text_or_one_of_its_two_errors(
    type_name, time_syntax, time_zone, text
):
    try:
        value = written(type_name, text, time_syntax=time_syntax, time_zone=time_zone)
    except (BadValue, BadXmlChar):
        return
    check_xml(value)


@given(st.sampled_from(TYPES), ANY_TEXT)
@settings(deadline=None, max_examples=examples(500))
def test_a_normal_form_is_its_own_normal_form(type_name, text):
    try:
        normal = key(type_name, text)
    except BadValue:
        return
    assert key(type_name, normal) == normal


@pytest.mark.parametrize(
    "type_name",
    [name for name in TYPES if name not in ("char(8)", "varchar(64)", "text", "clob", "json")],
)
def test_messages_show_only_the_beginning_of_a_value(type_name):
    with pytest.raises(BadValue) as caught:
        key(type_name, "\U0010ffff" * 100_000)
    assert len(str(caught.value)) < 200
