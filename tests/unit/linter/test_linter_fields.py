"""Columns of the queue: dates, addresses, names in any case (formats/linter-queue.md 1, 2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import refused, rows_of_objects

from eventlog.core.values.moments import time_zone_named
from eventlog.errors import ConfigError
from eventlog.linter.dispatch_tables import (
    QUEUE_COLUMNS,
    DispatchRow,
    MissingColumn,
    blob_attr,
    column_values,
    data_bytes,
    decode_oper_date,
    dispatch_rows,
    encode_oper_date,
    from_utc,
    oper_date_bytes,
    stripped,
    syslog_addr,
    to_utc,
)


@pytest.mark.promise("code error-bad_oper_date")
@pytest.mark.parametrize(
    "value", [b"12345", b"1234567", "00000000000", "00000000000g", "00 00000 000", "", None, 5]
)
def test_oper_date_is_six_bytes_or_twelve_hex_digits(value: Any) -> None:
    with refused("bad_oper_date"):
        oper_date_bytes(value)


def test_oper_date_is_unsigned() -> None:
    assert decode_oper_date(bytes.fromhex("ffffffffffff")) == datetime(
        2126, 2, 7, 6, 28, 15, 999985
    )


@given(st.binary(min_size=6, max_size=6))
def test_oper_date_survives_decoding_and_encoding(value: bytes) -> None:
    assert encode_oper_date(decode_oper_date(value)) == value


@pytest.mark.parametrize(
    "moment", [datetime(1989, 12, 31, 23, 59, 59), datetime(2126, 2, 7, 6, 28, 16)]
)
def test_a_time_out_of_range_is_refused(moment: datetime) -> None:
    with refused("value_range"):
        encode_oper_date(moment)


@pytest.mark.parametrize(
    ("oper_date", "utc"),
    [
        ("42414baf0000", datetime(2025, 3, 23, 9, 57, 51, tzinfo=UTC)),
        (
            encode_oper_date(datetime(2024, 10, 27, 2, 30)).hex(),
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
        ),
        ("000000000000", None),
    ],
)
def test_server_time_becomes_utc_and_of_two_equal_ones_the_first(
    oper_date: str, utc: datetime | None
) -> None:
    zone = time_zone_named("Europe/Berlin")
    assert to_utc(bytes.fromhex(oper_date), zone) == utc
    assert from_utc(utc, zone).hex() == oper_date


def test_an_unknown_zone_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="Middle/Earth"):
        time_zone_named("Middle/Earth")


def test_numbers_that_sql_returns_negative() -> None:
    assert syslog_addr(-(1 << 63)) == (1 << 31, 0)
    assert blob_attr(-1) == (0xFF, 0xFF)


@pytest.mark.parametrize(
    ("value", "text"),
    [("A \0 \0", "A"), ("  A", "  A"), (None, ""), (b"A  ", "A"), ("", ""), ("A\t", "A\t")],
)
def test_char_columns_lose_blanks_and_nul_bytes_at_their_end(value: Any, text: str) -> None:
    assert stripped(value) == text


@pytest.mark.parametrize(
    ("value", "data"), [("00fF", b"\0\xff"), (b"x", b"x"), (None, b""), (memoryview(b"x"), b"x")]
)
def test_data_is_bytes_or_hex_digits(value: Any, data: bytes) -> None:
    assert data_bytes(value) == data


@pytest.mark.promise("code error-bad_column_value")
@pytest.mark.parametrize("value", ["0", "zz", 5, ["00"]])
def test_data_of_another_kind_is_refused(value: Any) -> None:
    with refused("bad_column_value"):
        data_bytes(value)


VALUES: dict[str, Any] = dict(
    zip(
        QUEUE_COLUMNS,
        (b"\0" * 6, 0, "N  ", -1, -1, 2, 773, 3, 7, 9, 1, 0, "S ", "O", "T\0", b"x"),
        strict=True,
    )
)


def test_columns_are_found_in_any_case_and_order_among_others() -> None:
    given = {"more": 1} | {name.lower(): value for name, value in reversed(VALUES.items())}
    (row,) = dispatch_rows(list(given), [list(given.values())])
    assert row == DispatchRow(
        b"\0" * 6,
        0,
        "N",
        (1 << 64) - 1,
        (1 << 64) - 1,
        2,
        773,
        3,
        7,
        9,
        1,
        0,
        ("S", "O", "T"),
        b"x",
    )
    assert dict(zip(QUEUE_COLUMNS, column_values(row), strict=True)) == VALUES | {
        "DBNODE": "N".ljust(8),
        "DST_SERVER": "S".ljust(8),
        "DST_OWNER": "O".ljust(66),
        "DST_TABLE": "T".ljust(66),
        "DATA": b"x".ljust(3400, b"\0"),
    }


@pytest.mark.parametrize(
    ("extdata", "len1", "len2", "kept"),
    [(0, 1, 1, 2), (0, 0, 0, 0), (0, 9, 0, 4), (0, 5, -9, 4), (0, 3400, 1, 4), (1, 1, 1, 4)],
)
@pytest.mark.parametrize("data", [b"\1\2\3\4", "01020304"])
def test_padding_of_data_is_not_kept(
    data: Any, extdata: int, len1: int, len2: int, kept: int
) -> None:
    given = VALUES | {"EXTDATA": extdata, "LEN1": len1, "LEN2": len2, "DATA": data}
    (row,) = rows_of_objects([given])
    assert data_bytes(row.data) == b"\1\2\3\4"[:kept]


@pytest.mark.parametrize(
    "name", [name for name in QUEUE_COLUMNS if name not in ("CHANNEL", "ROWID_SRC")]
)
def test_a_missing_column_is_named(name: str) -> None:
    names = [other for other in QUEUE_COLUMNS if other != name]
    with pytest.raises(MissingColumn, match=f"column {name} of DISPATCH_QUEUE is missing"):
        list(dispatch_rows(names, []))


@pytest.mark.parametrize("name", ["CHANNEL", "ROWID_SRC"])
def test_channel_and_row_id_may_be_missing_or_null(name: str) -> None:
    (missing,) = rows_of_objects([{key: value for key, value in VALUES.items() if key != name}])
    (null,) = rows_of_objects([VALUES | {name: None}])
    assert missing == null
    assert getattr(null, name.lower()) is None


def test_numbers_of_text_exports_are_read() -> None:
    texts = {
        name: str(value) if isinstance(value, int) else value for name, value in VALUES.items()
    }
    assert list(rows_of_objects([texts])) == list(rows_of_objects([VALUES]))


@pytest.mark.parametrize("name", ["EXTDATA", "TRANSACT_ID", "SYSLOG_ADDR", "TYP", "LEN1", "LEN2"])
@pytest.mark.parametrize("value", [None, "", "x", 1.5, float("nan"), [1]])
def test_a_number_that_is_none_is_named(name: str, value: Any) -> None:
    with refused("bad_column_value", match=f"column {name} contains"):
        list(rows_of_objects([VALUES | {name: value}]))
