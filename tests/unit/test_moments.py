"""Dates and times: the text that they are written as, special ones, zones (spec/xds.md 6.3)."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_samples import SYNTAXES, key, written

from eventlog.core.values import (
    ValueOptions,
    converter,
    key_normalizer,
    parse_type,
    with_special_values,
)
from eventlog.core.values.typed_values import moment_reader, value_reader
from eventlog.errors import BadValue, ConfigError


@pytest.mark.promise("type date 0", "type time 0", "type timestamp 0", "type timestamptz 0")
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
        ("timestamp", "1969-12-31 "
"23:59:58.500", "-2", "19691231235958500000000", "1969-12-31 "
"23:59:58.5"),
        ("timestamp", "2000-02-29", "951782400", "20000229000000000000000", "2000-02-29 "
"00:00:00.0"),
        ("timestamp", "2024-05-06T07:08:09Z", "1714979289", "20240506070809000000000", "2024-05-06 "
"07:08:09.0"),
        ("timestamp", "2024-05-06 "
"07:08:09.", "1714979289", "20240506070809000000000", "2024-05-06 "
"07:08:09.0"),
        ("timestamp", "2024-05-06 07:08:09.123456789", "1714979289", "20240506070809123456789",
         "2024-05-06 07:08:09.123456789"),
        ("timestamptz", "2001-09-09 "
"03:46:40+02", "1000000000", "20010909014640000000000", "2001-09-09 "
"01:46:40.0"),
        ("timestamptz", "2001-09-09 03:46:40.0000000 "
"+02:00", "1000000000", "20010909014640000000000",
         "2001-09-09 01:46:40.0"),
        ("timestamptz", "2001-09-08T20:16:40-0530", "1000000000", "20010909014640000000000",
         "2001-09-09 "
"01:46:40.0"),
        ("timestamptz", "0001-01-01 "
"00:00:00-01", "-62135593200", "00010101010000000000000", "0001-01-01 "
"01:00:00.0"),
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
    assert written("timestamp", moment, time_syntax="full") == written(
        "timestamp", moment, time_syntax="java"
    )


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(
            ("date", text)
            for text in ("", "2024-02-30", "2023-02-29", "0000-01-01", "10000-01-01", "2024-2-3")
        ),
        *(
            ("date", text)
            for text in ("2024-02-29 00:00:01", "2024-02-29 00:00:00Z", "20240229", "2024-02-29\n")
        ),
        *(("date", text) for text in ("infinity", "٢٠٢٤-02-29", "2024-13-01", "2024-02-29 ")),
        *(
            ("time", text)
            for text in (
                "",
                "24:00:00",
                "23:59:60",
                "7:08:09",
                "07:08",
                "07:08:09.1234567890",
                "-01:00:00",
            )
        ),
        *(("time", text) for text in ("838:59:59", "07:08:09\n", "07:08:09+16")),
        *(
            ("timestamp", text)
            for text in ("", "2024-05-06 24:00:00", "2024-05-06 23:59:60", "2024-05-06Z")
        ),
        *(
            ("timestamp", text)
            for text in ("2024-05-06  07:08:09", "2024-05-06t07:08:09", "2024-05-06 07:08:09z")
        ),
        *(
            ("timestamp", text)
            for text in ("2024-05-06 07:08:09.1234567890", "2024-05-06 07:08:09+16", "infinity")
        ),
        *(
            ("timestamp", text)
            for text in ("0044-03-15 00:00:00 BC", "2024-05-06 07:08:09+2", "2024-05-06 07:08:09\n")
        ),
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
    *(
        ("date", text)
        for text in ("infinity", "-infinity", "10000-01-01", "5874897-12-31", "12345-02-28")
    ),
    *(
        ("date", text)
        for text in ("0044-03-15 BC", "0001-12-31 BC", "0001-02-29 BC", "4714-11-24 BC")
    ),
    ("time", "24:00:00"),
    *(
        ("timestamp", text)
        for text in (
            "infinity",
            "-infinity",
            "10000-01-01 00:00:00",
            "294276-12-31 23:59:59.999999",
        )
    ),
    *(
        ("timestamp", text)
        for text in ("0044-03-15 10:00:00 BC", "4714-11-24 00:00:00 BC", "12345-01-01T01:02:03.5")
    ),
    *(
        ("timestamptz", text)
        for text in ("infinity", "12345-01-01 00:00:00Z", "0044-03-15 10:00:00+05:30 BC")
    ),
]


@pytest.mark.parametrize("time_syntax", SYNTAXES)
@pytest.mark.parametrize(("type_name", "text"), SPECIAL)
def test_a_special_time_is_written_as_its_text(type_name, text, time_syntax):
    assert converter(special(type_name), ValueOptions(time_syntax=time_syntax))(text) == text
    assert key_normalizer(special(type_name))(text) == text
    assert value_reader(special(type_name))(text) == text


@pytest.mark.parametrize(("type_name", "text"), SPECIAL)
def test_a_special_time_is_bad_where_it_is_not_wanted_and_where_the_database_has_none(
    type_name, text
):
    unwanted = special(type_name, special_times="error")
    elsewhere = with_special_values(parse_type(type_name), "oracle", ValueOptions())
    for type in (unwanted, elsewhere):
        for read in (converter(type, ValueOptions()), key_normalizer(type), value_reader(type)):
            with pytest.raises(BadValue):
                read(text)


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(
            ("date", text)
            for text in ("Infinity", "infinity BC", "infinity ", "x BC", " BC", "2024-02-29 BC BC")
        ),
        *(
            ("date", text)
            for text in (
                "12345-02-29",
                "12345-13-01",
                "0044-02-29 BC",
                "4714-11-23 BC",
                "0000-01-01 BC",
            )
        ),
        *(
            ("date", text)
            for text in ("5874898-01-01", "012345-01-01", "12345-01-01 10:00:00", "24:00:00")
        ),
        *(
            ("time", text)
            for text in ("24:00:01", "24:00:00.5", "25:00:00", "infinity", "24:00:00 BC")
        ),
        *(
            ("timestamp", text)
            for text in ("2024-05-06 24:00:00", "12345-01-01 24:00:00", "294277-01-01 00:00:00")
        ),
        *(
            ("timestamp", text)
            for text in ("12345-01-01 00:00:00.1234567", "infinityZ", "4714-11-23 23:59:59 BC")
        ),
        ("timestamptz", "294276-12-31 23:59:59-01"),
        ("timestamptz", "4714-11-24 00:00:00+01 BC"),
    ],
)
def test_what_postgresql_does_not_have_is_no_special_time(type_name, text):
    for read in (converter(special(type_name), ValueOptions()), key_normalizer(special(type_name))):
        with pytest.raises(BadValue):
            read(text)


@pytest.mark.parametrize("type_name", ["date", "time", "timestamp", "timestamptz"])
def test_special_times_leave_all_other_times_unchanged(type_name):
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
    ("text", "word"),
    [("nan", "NaN"), (" NaN", "NaN"), ("INFINITY", "Infinity"), ("-infinity", "-Infinity")],
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


def test_special_words_leave_exact_numbers_unchanged():
    for text in ("01.50", "1E2", "-0", "1.50", "  7 "):
        assert converter(special("decimal(10,2)"), ValueOptions())(text) == written(
            "decimal(10,2)", text
        )
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
def test_values_without_a_zone_are_in_time_zone_and_the_others_are_brought_there(
    type_name, text, integer, java
):
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


@pytest.mark.parametrize(
    "name", ["Europe/Atlantis", "", "../etc/passwd", "/etc/passwd", "Europe", "a\x00b"]
)
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
