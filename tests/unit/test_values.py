"""What column types mean, and the text that values are written as (spec/xds.md 6, 8; spec/event-log.md 4.3)."""

import re
from base64 import b64decode, b64encode
from decimal import Decimal
from struct import pack, unpack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventlog.core.typed import moment_reader, value_reader
from eventlog.core.values import (
    ColumnType,
    Kind,
    ValueOptions,
    check_xml,
    converter,
    integer_pattern,
    key_normalizer,
    parse_type,
    with_special_values,
    xds_type,
)
from eventlog.errors import BadValue, BadXmlChar, ConfigError

TYPES = [
    "smallint", "integer", "bigint", "decimal(12,0)", "decimal(12,4)", "real", "double", "boolean", "char(8)",
    "varchar(64)", "text", "clob", "varbinary(9)", "blob", "date", "time", "timestamp", "timestamptz", "uuid", "json",
]  # fmt: skip
SYNTAXES = ["integer", "canonical", "java"]


def written(type_name: str, text: str, **options: str) -> str:
    return converter(parse_type(type_name), ValueOptions(**options))(text)


def key(type_name: str, text: str) -> str:
    return key_normalizer(parse_type(type_name))(text)


# --- types


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
        ("decimal(x)", Kind.OTHER, 0),
    ],
)
def test_a_generic_type_name_has_a_kind_and_bits(text, kind, bits):
    assert parse_type(text) == ColumnType(kind, bits, text)


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
        *(("integer", text) for text in ("", " ", "x", "1.0", "1 2", "+", "--1", "1_0", "٣", "1\n", "\u00a01", "1e3")),
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
    "text", ["", ".", "x", "1.2.3", "1e", "1e401", "1E-401", "1e" + "9" * 5000, "NaN", "inf", "1,5", "1_0", "١", "1\n"]
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
        ("real", "16777217.0000000000001", "16777218"),  # through the nearest double it would be a tie
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
        *(("double", text) for text in ("", ".", "x", "1e", "1e999", "-1e309", "1e-400", "1_0", "٣", "1\n", "0x1p3")),
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


def test_characters_stay_as_they_are_and_are_not_copied():
    text = "Jürgen & <日本> \U0001f600 \u0085\ufffd \t\r\n e\u0301"
    for type_name in ("varchar(9)", "text", "clob", "json", "uuid", "interval"):
        assert written(type_name, text) is text


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
    "text", ["", "\t\n\r", " \u00a0\u2028", "\x7f\x80\x9f\u0085", "\ud7ff\ue000\ufffd", "\U0001f600\U0010ffff"]
)
def test_every_other_character_is_good(text):
    check_xml(text)
    assert written("text", text) == text


@given(st.characters())
@settings(deadline=None)
def test_the_characters_refused_are_those_outside_the_production_char_of_xml(character):
    code = ord(character)
    allowed = code in (0x9, 0xA, 0xD) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
    try:
        check_xml(character)
    except BadXmlChar:
        assert not allowed
    else:
        assert allowed


def test_keys_are_not_checked_for_characters():
    assert key("text", "bell\x07") == "bell\x07"


# --- dates and times


@pytest.mark.parametrize(
    ("type_name", "text", "integer", "canonical", "java"),
    [
        ("date", "2024-02-29", "1709164800", "20240229", "2024-02-29"),
        ("date", "1970-01-02", "86400", "19700102", "1970-01-02"),
        ("date", "2024-02-29 00:00:00.000", "1709164800", "20240229", "2024-02-29"),
        ("date", "2024-02-29T00:00:00", "1709164800", "20240229", "2024-02-29"),
        ("date", "0001-01-01", "-62135596800", "00010101", "0001-01-01"),
        ("date", "9999-12-31", "253402214400", "99991231", "9999-12-31"),
        ("time", "00:01:40", "100", "000140", "00:01:40"),
        ("time", "23:59:59.999999999", "86399", "235959", "23:59:59"),
        ("time", "07:08:09Z", "25689", "070809", "07:08:09"),
        ("time", "01:00:00+02", "82800", "230000", "23:00:00"),
        ("timestamp", "1969-12-31 23:59:58.500", "-2", "19691231235958500000000", "1969-12-31 23:59:58.5"),
        ("timestamp", "2000-02-29", "951782400", "20000229000000000000000", "2000-02-29 00:00:00.0"),
        ("timestamp", "2024-05-06T07:08:09Z", "1714979289", "20240506070809000000000", "2024-05-06 07:08:09.0"),
        ("timestamp", "2024-05-06 07:08:09.", "1714979289", "20240506070809000000000", "2024-05-06 07:08:09.0"),
        ("timestamp", "2024-05-06 07:08:09.123456789", "1714979289", "20240506070809123456789",
         "2024-05-06 07:08:09.123456789"),
        ("timestamptz", "2001-09-09 03:46:40+02", "1000000000", "20010909014640000000000", "2001-09-09 01:46:40.0"),
        ("timestamptz", "2001-09-09 03:46:40.0000000 +02:00", "1000000000", "20010909014640000000000",
         "2001-09-09 01:46:40.0"),
        ("timestamptz", "2001-09-08T20:16:40-0530", "1000000000", "20010909014640000000000", "2001-09-09 01:46:40.0"),
        ("timestamptz", "0001-01-01 00:00:00-01", "-62135593200", "00010101010000000000000", "0001-01-01 01:00:00.0"),
    ],
)  # fmt: skip
def test_dates_and_times_in_the_three_syntaxes(type_name, text, integer, canonical, java):
    results = [written(type_name, text, time_syntax=syntax) for syntax in SYNTAXES]
    assert results == [integer, canonical, java]
    assert key(type_name, text) == text


@pytest.mark.parametrize("text", ["07:08:09.123456789", "07:08:09.5", "07:08:09"])
def test_text_that_is_read_again_has_the_fraction_of_a_time_of_day(text):
    assert written("time", text, time_syntax="full") == (text if "." in text else f"{text}.0")
    moment = f"2024-02-29 {text}"
    assert written("timestamp", moment, time_syntax="full") == written("timestamp", moment, time_syntax="java")


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(("date", text) for text in ("", "2024-02-30", "2023-02-29", "0000-01-01", "10000-01-01", "2024-2-3")),
        *(("date", text) for text in ("2024-02-29 00:00:01", "2024-02-29 00:00:00Z", "20240229", "2024-02-29\n")),
        *(("date", text) for text in ("infinity", "٢٠٢٤-02-29", "2024-13-01", "2024-02-29 ")),
        *(
            ("time", text)
            for text in ("", "24:00:00", "23:59:60", "7:08:09", "07:08", "07:08:09.1234567890", "-01:00:00")
        ),
        *(("time", text) for text in ("838:59:59", "07:08:09\n", "07:08:09+16")),
        *(("timestamp", text) for text in ("", "2024-05-06 24:00:00", "2024-05-06 23:59:60", "2024-05-06Z")),
        *(("timestamp", text) for text in ("2024-05-06  07:08:09", "2024-05-06t07:08:09", "2024-05-06 07:08:09z")),
        *(("timestamp", text) for text in ("2024-05-06 07:08:09.1234567890", "2024-05-06 07:08:09+16", "infinity")),
        *(("timestamp", text) for text in ("0044-03-15 00:00:00 BC", "2024-05-06 07:08:09+2", "2024-05-06 07:08:09\n")),
        ("timestamptz", "0001-01-01 00:00:00+01"),
        ("timestamptz", "9999-12-31 23:30:00-01"),
    ],
)
@pytest.mark.parametrize("time_syntax", SYNTAXES)
def test_other_text_is_no_date_or_time(type_name, text, time_syntax):
    with pytest.raises(BadValue):
        written(type_name, text, time_syntax=time_syntax)
    with pytest.raises(BadValue):
        key(type_name, text)


def special(type_name, **options):
    return with_special_values(parse_type(type_name), "postgresql", ValueOptions(**options))


SPECIAL = [
    *(("date", text) for text in ("infinity", "-infinity", "10000-01-01", "5874897-12-31", "12345-02-28")),
    *(("date", text) for text in ("0044-03-15 BC", "0001-12-31 BC", "0001-02-29 BC", "4714-11-24 BC")),
    ("time", "24:00:00"),
    *(
        ("timestamp", text)
        for text in ("infinity", "-infinity", "10000-01-01 00:00:00", "294276-12-31 23:59:59.999999")
    ),
    *(("timestamp", text) for text in ("0044-03-15 10:00:00 BC", "4714-11-24 00:00:00 BC", "12345-01-01T01:02:03.5")),
    *(("timestamptz", text) for text in ("infinity", "12345-01-01 00:00:00Z", "0044-03-15 10:00:00+05:30 BC")),
]


@pytest.mark.parametrize("time_syntax", SYNTAXES)
@pytest.mark.parametrize(("type_name", "text"), SPECIAL)
def test_a_special_time_is_written_as_its_text(type_name, text, time_syntax):
    assert converter(special(type_name), ValueOptions(time_syntax=time_syntax))(text) == text
    assert key_normalizer(special(type_name))(text) == text
    assert value_reader(special(type_name))(text) == text


@pytest.mark.parametrize(("type_name", "text"), SPECIAL)
def test_a_special_time_is_bad_where_it_is_not_wanted_and_where_the_database_has_none(type_name, text):
    unwanted = special(type_name, special_times="error")
    elsewhere = with_special_values(parse_type(type_name), "oracle", ValueOptions())
    for type in (unwanted, elsewhere):
        for read in (converter(type, ValueOptions()), key_normalizer(type), value_reader(type)):
            with pytest.raises(BadValue):
                read(text)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(("date", text) for text in ("Infinity", "infinity BC", "infinity ", "x BC", " BC", "2024-02-29 BC BC")),
        *(("date", text) for text in ("12345-02-29", "12345-13-01", "0044-02-29 BC", "4714-11-23 BC", "0000-01-01 BC")),
        *(("date", text) for text in ("5874898-01-01", "012345-01-01", "12345-01-01 10:00:00", "24:00:00")),
        *(("time", text) for text in ("24:00:01", "24:00:00.5", "25:00:00", "infinity", "24:00:00 BC")),
        *(("timestamp", text) for text in ("2024-05-06 24:00:00", "12345-01-01 24:00:00", "294277-01-01 00:00:00")),
        *(("timestamp", text) for text in ("12345-01-01 00:00:00.1234567", "infinityZ", "4714-11-23 23:59:59 BC")),
        ("timestamptz", "294276-12-31 23:59:59-01"),
        ("timestamptz", "4714-11-24 00:00:00+01 BC"),
    ],
)
def test_what_postgresql_does_not_have_is_no_special_time(type_name, text):
    for read in (converter(special(type_name), ValueOptions()), key_normalizer(special(type_name))):
        with pytest.raises(BadValue):
            read(text)


@pytest.mark.parametrize("type_name", ["date", "time", "timestamp", "timestamptz"])
def test_beside_special_times_all_others_are_as_ever(type_name):
    for text in ("2024-02-29", "07:08:09.5", "2024-02-29 07:08:09.25Z", "no time"):
        results = []
        for type in (parse_type(type_name), special(type_name)):
            try:
                results.append(converter(type, ValueOptions())(text))
            except BadValue as error:
                results.append(str(error))
        assert results[0] == results[1]


def test_an_unknown_special_times_is_refused():
    with pytest.raises(ConfigError, match="special_times 'null' is unknown; use text or error"):
        special("date", special_times="null")


@pytest.mark.parametrize(
    ("text", "word"), [("nan", "NaN"), (" NaN", "NaN"), ("INFINITY", "Infinity"), ("-infinity", "-Infinity")]
)
def test_words_of_exact_numbers_are_values_where_the_database_has_them(text, word):
    assert converter(special("decimal(10,2)"), ValueOptions())(text) == word
    assert key_normalizer(special("decimal(10,2)"))(text) == word
    with pytest.raises(BadValue):
        written("decimal(10,2)", text)


@pytest.mark.parametrize("text", ["inf", "-inf", "infinite", "+infinity", "na n", ""])
def test_other_words_are_no_exact_numbers(text):
    with pytest.raises(BadValue):
        converter(special("decimal(10,2)"), ValueOptions())(text)


def test_exact_numbers_beside_their_words_are_as_ever():
    for text in ("01.50", "1E2", "-0", "1.50", "  7 "):
        assert converter(special("decimal(10,2)"), ValueOptions())(text) == written("decimal(10,2)", text)
        assert key_normalizer(special("decimal(10,2)"))(text) == key("decimal(10,2)", text)


@pytest.mark.parametrize(
    ("type_name", "text", "integer", "java"),
    [
        # Berlin is an hour before UTC in winter, two in summer.
        ("date", "2024-01-01", "1704063600", "2024-01-01"),
        ("timestamp", "2024-07-01 02:00:00", "1719792000", "2024-07-01 02:00:00.0"),
        ("timestamptz", "2024-07-01 00:00:00.25Z", "1719792000", "2024-07-01 02:00:00.25"),
        ("timestamp", "2024-01-01 00:00:00Z", "1704067200", "2024-01-01 01:00:00.0"),
        # The hour that comes twice: without a zone the first, with one the one that is meant.
        ("timestamp", "2024-10-27 02:30:00", "1729989000", "2024-10-27 02:30:00.0"),
        ("timestamptz", "2024-10-27 00:30:00Z", "1729989000", "2024-10-27 02:30:00.0"),
        ("timestamptz", "2024-10-27 01:30:00Z", "1729992600", "2024-10-27 02:30:00.0"),
        ("timestamp", "0001-01-01 00:00:00", "-62135600008", "0001-01-01 00:00:00.0"),
        ("time", "07:08:09", "25689", "07:08:09"),
    ],
)
def test_values_without_a_zone_are_in_time_zone_and_the_others_are_brought_there(type_name, text, integer, java):
    assert written(type_name, text, time_zone="Europe/Berlin") == integer
    assert written(type_name, text, time_zone="Europe/Berlin", time_syntax="java") == java


def test_a_time_with_a_zone_is_brought_only_to_a_zone_of_one_displacement():
    assert written("time", "23:30:00Z", time_zone="Etc/GMT-2", time_syntax="java") == "01:30:00"
    with pytest.raises(BadValue):
        written("time", "23:30:00Z", time_zone="Europe/Berlin")


@pytest.mark.parametrize("time_syntax", SYNTAXES)
@pytest.mark.parametrize("text", ["9999-12-31 23:30:00Z", "0001-01-01 00:00:00+01"])
def test_a_value_that_leaves_the_calendar_on_its_way_to_time_zone_is_refused(text, time_syntax):
    with pytest.raises(BadValue):
        written("timestamptz", text, time_syntax=time_syntax, time_zone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["utc", "Utc"])
def test_utc_is_named_in_any_case(zone):
    assert written("time", "23:30:00+02", time_zone=zone, time_syntax="java") == "21:30:00"
    assert str(moment_reader(zone)("2024-05-10 12:00:00")) == "2024-05-10 12:00:00+00:00"


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "/etc/passwd", "Europe", "a\x00b"])
def test_an_unknown_time_zone_is_refused(name):
    with pytest.raises(ConfigError):
        converter(parse_type("timestamp"), ValueOptions(time_zone=name))


@pytest.mark.parametrize("type_name", ["date", "time", "timestamp", "timestamptz"])
def test_an_unknown_time_syntax_is_refused(type_name):
    with pytest.raises(ConfigError):
        converter(parse_type(type_name), ValueOptions(time_syntax="iso"))


@given(st.datetimes(), st.integers(0, 999_999_999))
@settings(deadline=None)
def test_all_nine_digits_of_a_fraction_are_kept(moment, nanoseconds):
    seconds = moment.replace(microsecond=0).isoformat(" ")
    text = f"{seconds}.{nanoseconds:09}"
    assert written("timestamp", text, time_syntax="canonical") == re.sub("[-:. ]", "", text)
    java = written("timestamp", text, time_syntax="java")
    assert java == f"{seconds}.{f'{nanoseconds:09}'.rstrip('0') or '0'}"
    assert written("timestamp", text) == written("timestamp", seconds)


# --- any text

ANY_TEXT = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=())),
    st.text(alphabet="0123456789+-.eE:TZ \t\n_,=/xinfa٣\x00\ud800", max_size=24),
)


@given(st.sampled_from(TYPES), st.sampled_from(SYNTAXES), st.sampled_from(["UTC", "Europe/Berlin"]), ANY_TEXT)
@settings(deadline=None, max_examples=500)
def test_a_converter_gives_xml_text_or_one_of_its_two_errors(type_name, time_syntax, time_zone, text):
    try:
        value = written(type_name, text, time_syntax=time_syntax, time_zone=time_zone)
    except (BadValue, BadXmlChar):
        return
    check_xml(value)


@given(st.sampled_from(TYPES), ANY_TEXT)
@settings(deadline=None, max_examples=500)
def test_a_normal_form_is_its_own_normal_form(type_name, text):
    try:
        normal = key(type_name, text)
    except BadValue:
        return
    assert key(type_name, normal) == normal


@pytest.mark.parametrize(
    "type_name", [name for name in TYPES if name not in ("char(8)", "varchar(64)", "text", "clob", "json")]
)
def test_messages_show_only_the_beginning_of_a_value(type_name):
    with pytest.raises(BadValue) as caught:
        key(type_name, "\U0010ffff" * 100_000)
    assert len(str(caught.value)) < 200
