"""Order, transactions, destinations, restart, and what happens to operations
(formats/linter-queue.md 5, 6).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linter_queue import DATE, TO, addresses, commit, counted, read, rollback, row
from shared import examples, refused

from eventlog.errors import ConfigError, NotExpressible
from eventlog.linter.codec import RowDecodeError
from eventlog.linter.dispatch_tables import Destination, DispatchRow, TableAttrs
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.model import Change, ChangeOp, Value
from eventlog.testing.linter_codec import EmulatorCodec
from eventlog.testing.linter_emulator import ATTRS, DOCUMENT, ITEM, Workload, emulate

LATER = bytes.fromhex("42414bb00000")
EMULATOR: dict[str, Any] = {"codec": "eventlog-emulator-1"}


def of(address: int, transaction: int = 1, **given: Any) -> DispatchRow:
    return row(2, address, b"a", transaction=transaction, **given)


# --- order and transactions -----------------------------------------------------------------------


def test_transactions_come_in_order_of_their_commits_each_whole() -> None:
    rows = [
        of(1, 1),
        of(2, 2),
        of(3, 1),
        commit(4, transact_id=2),
        of(5, 1),
        commit(6, transact_id=1),
    ]
    assert addresses(read(*rows)) == [2, 1, 3, 5]


def test_addresses_are_ordered_unsigned() -> None:
    high = (1 << 63) + 5
    assert addresses(read(commit(high + 9), of(high), of(7))) == [7, high]


def test_rolled_back_work_is_not_handed_out_and_its_number_may_be_used_again() -> None:
    rows = [of(1), rollback(2), of(3), commit(4), of(5), commit(6)]
    made = read(*rows)
    assert addresses(made) == [3, 5]
    assert [change.event_number for change in made] == [1, 1]


def test_ends_without_operations_give_nothing() -> None:
    assert read(commit(1), rollback(2), commit(3)) == []


def test_a_second_commit_with_the_same_address_is_ignored() -> None:
    assert addresses(read(of(1), commit(2), commit(2, destination=TO), rollback(2))) == [1]


def test_transactions_of_two_databases_are_distinguished() -> None:
    rows = [of(1), of(2, dbnode="OTHER"), commit(3), rollback(4, dbnode="OTHER")]
    assert addresses(read(*rows)) == [1]


@pytest.mark.promise("option linter.reader.dbnode")
def test_dbnode_limits_the_reader_to_one_database() -> None:
    rows = [of(1), of(2, dbnode="OTHER"), commit(3), commit(4, dbnode="OTHER")]
    assert addresses(read(*rows, dbnode="OTHER")) == [2]


def test_oper_date_orders_where_file_numbers_wrap() -> None:
    wrapped = [of(0xFFFFFFFF00000000), of(5, oper_date=LATER), commit(9, oper_date=LATER)]
    assert addresses(read(*wrapped, order_by="oper_date")) == [0xFFFFFFFF00000000, 5]


@pytest.mark.promise("option linter.reader.order_tolerance")
def test_late_dates_are_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        of(1, oper_date=LATER),
        of(2, oper_date=bytes(6)),
        of(3),
        of(4, oper_date=bytes(6)),
        commit(5),
    ]
    with caplog.at_level(logging.WARNING):
        assert counted(*rows) == {"log_order": 2}
    assert len(caplog.records) == 1
    assert counted(*rows, order_tolerance=0) == {"log_order": 4}
    assert "log_order" not in counted(*rows, order_by="oper_date")


def test_the_tolerance_is_in_seconds() -> None:
    two_hours = (int.from_bytes(LATER, "big") - (7200 << 16)).to_bytes(6, "big")
    a_bit_more = (int.from_bytes(two_hours, "big") - 1).to_bytes(6, "big")
    assert counted(of(1, oper_date=LATER), commit(2, oper_date=two_hours)) == {}
    assert counted(of(1, oper_date=LATER), commit(2, oper_date=a_bit_more)) == {"log_order": 1}


# --- several reads --------------------------------------------------------------------------------


def test_open_operations_are_kept_for_the_next_read_and_no_row_is_taken_twice() -> None:
    reader = QueueReader(ATTRS)
    assert list(reader.read([of(1)])) == []
    assert list(reader.read([of(1), of(2)])) == []
    assert addresses(list(reader.read([of(2), commit(3)]))) == [1, 2]
    assert list(reader.read([of(1), of(2), commit(3)])) == []
    assert reader.restart_token == "0000000000000003"


def test_rows_that_their_commit_has_left_out_do_not_join_a_later_transaction() -> None:
    reader = QueueReader(ATTRS)
    list(reader.read([of(1), commit(2)]))
    assert list(reader.read([of(1)])) == []
    assert addresses(list(reader.read([of(1), of(3), commit(4)]))) == [3]


def test_final_drops_open_transactions_and_counts_them() -> None:
    assert counted(of(1), of(2), of(3, 2), of(4, 3), commit(5, transact_id=3)) == {
        "open_transactions": 2
    }


def test_a_read_after_an_error_in_a_row_goes_on_from_the_token() -> None:
    rows = [of(1), commit(2), of(3, len1=9), commit(4)]
    reader = QueueReader(ATTRS)
    made: list[Change] = []
    with pytest.raises(Exception, match="LEN1 9"):
        made.extend(reader.read(rows))
    assert reader.restart_token == "0000000000000002"
    rows[2] = of(3)
    assert addresses(
        list(QueueReader(ATTRS, ReaderOptions(restart=reader.restart_token)).read(rows))
    ) == [3]


@given(
    st.integers(0, 50), st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 30)
)
@settings(max_examples=examples(40), deadline=None)
def test_any_split_and_any_order_give_the_same_changes(
    seed: int, sizes: list[int], again: int
) -> None:
    servers = ("B", "A") if seed % 3 == 0 else ("S",)
    steps = list(
        emulate(Workload(seed, transactions=25, servers=servers, unfinished=seed % 2 == 0))
    )
    rows = [one for step in steps for one in step.rows]
    expected = [change for step in steps for change in step.changes]
    shuffled = Random(seed).sample(rows, len(rows))
    assert (
        list(QueueReader(ATTRS, ReaderOptions(**EMULATOR)).read(shuffled, final=True)) == expected
    )
    reader = QueueReader(ATTRS, ReaderOptions(**EMULATOR))
    made: list[Change] = []
    at = 0
    for size in [*sizes, len(rows)]:
        window = rows[max(0, at - again) : at + size]  # some rows are met again, some are gone
        made.extend(reader.read(Random(size).sample(window, len(window))))
        at += size
    assert made == expected


@given(st.integers(0, 50), st.integers(0, 400))
@settings(max_examples=examples(25), deadline=None)
def test_a_reader_that_starts_from_a_token_gives_what_came_after_it(seed: int, cut: int) -> None:
    start = (0xFFFFFFFF << 32) | ((1 << 31) - 40_000) if seed % 2 else 24
    steps = list(emulate(Workload(seed, transactions=25, address=start)))
    rows = [one for step in steps for one in step.rows]
    options = {"order_by": "oper_date" if seed % 2 else "syslog", **EMULATOR}
    first = QueueReader(ATTRS, ReaderOptions(**options))
    before = list(first.read(rows[:cut]))
    second = QueueReader(ATTRS, ReaderOptions(restart=first.restart_token, **options))
    assert before + list(second.read(rows, final=True)) == [
        change for step in steps for change in step.changes
    ]


# --- restart tokens -------------------------------------------------------------------------------


def token(*rows: DispatchRow, **options: Any) -> str | None:
    reader = QueueReader(ATTRS, ReaderOptions(**options))
    list(reader.read(rows, final=True))
    return reader.restart_token


def test_the_token_is_the_commit_of_the_last_transaction_that_gave_a_change() -> None:
    rows = [of(1), commit(2), of(3), rollback(4), row(7, 5, b"x"), commit(6), commit(7)]
    assert token(*rows) == "0000000000000002"
    assert token(*rows, order_by="oper_date") == f"{DATE.hex()}:0000000000000002"
    assert token(rollback(1)) is None


def test_transactions_up_to_the_token_are_skipped_in_the_order_in_force() -> None:
    rows = [of(1), commit(2), of(3), commit(4)]
    assert addresses(read(*rows, restart="0000000000000002")) == [3]
    assert token(*rows, restart="0000000000000004") == "0000000000000004"
    wrapped = [of(8), commit(9), of(1, oper_date=LATER), commit(2, oper_date=LATER)]
    assert addresses(
        read(*wrapped, order_by="oper_date", restart=f"{DATE.hex()}:0000000000000009")
    ) == [1]


@pytest.mark.promise("option linter.reader.restart")
def test_an_operation_before_the_token_is_returned_with_a_commit_after_it() -> None:
    assert addresses(
        read(of(1), of(3, 2), commit(4, transact_id=2), commit(5), restart="0000000000000004")
    ) == [1]


@pytest.mark.promise("code error-several_nodes")
def test_a_token_does_not_go_with_several_databases() -> None:
    rows = [of(1), commit(2), of(1, dbnode="OTHER"), commit(3, dbnode="OTHER")]
    assert len(read(*rows)) == 2
    with refused("several_nodes"):
        read(*rows, restart="0000000000000001")
    assert addresses(read(*rows, restart="0000000000000001", dbnode="SRCDB")) == [1]
    reader = QueueReader(ATTRS)
    list(reader.read(rows[:2]))
    with refused("several_nodes", match="choose a node with the option dbnode"):
        list(reader.read(rows))


# --- destinations ---------------------------------------------------------------------------------

SERVERS = [
    Destination("Z", "APP", "T"),
    Destination("A", "APP", "T2"),
    Destination("A", "APP", "Ä"),
]


def sent(*data: bytes) -> list[DispatchRow]:
    parts = [
        of(1, destination=to)._replace(data=part)
        for to, part in zip(SERVERS, data or [b"a"] * 3, strict=False)
    ]
    return [*parts, commit(2)]


def test_first_takes_the_smallest_destination_in_byte_order() -> None:
    (change,) = read(*sent())
    assert (change.table, change.extras["destination"]) == ("T2", ("A", "APP", "T2"))


def test_all_gives_a_change_for_each_in_byte_order() -> None:
    made = read(*sent(b"a", b"b"), destinations="all")
    assert [change.table for change in made] == ["T2", "T"]
    assert [(change.event_number, change.last_in_transaction) for change in made] == [
        (1, False),
        (2, True),
    ]


@pytest.mark.promise("code error-destinations_differ")
def test_parts_that_differ_between_destinations_are_an_error_of_first() -> None:
    with refused("destinations_differ", match=r"Z\.APP\.T differ from the data for A\.APP\.T2"):
        read(*sent(b"a", b"b"))


@pytest.mark.promise("option linter.reader.destination")
@pytest.mark.parametrize(
    ("wanted", "tables"),
    [
        (("Z", None, None), ["T"]),
        ((None, "APP", "T2"), ["T2"]),
        (("A", None, None), ["T2"]),
        (("X", None, None), []),
    ],
)
def test_a_filter_takes_rows_of_its_destination_only(
    wanted: tuple[str | None, ...], tables: list[str]
) -> None:
    assert [change.table for change in read(*sent(), destination=wanted)] == tables


# --- changes --------------------------------------------------------------------------------------

BEFORE: dict[str, Value] = {"ID": 1, "NAME": "a", "PRICE": None, "NOTE": "n"}
AFTER: dict[str, Value] = {"ID": 2, "NAME": "a", "PRICE": None, "NOTE": None}
PAGE: dict[str, Value] = {"ID": 1, "TITLE": "t", "BODY": None, "APPENDIX": None, "SCAN": b"\1" * 16}


def image(values: Mapping[str, Value], table: TableAttrs = ITEM) -> bytes:
    return EmulatorCodec().encode(table, values)


def test_fields_of_a_change() -> None:
    old, new = image(BEFORE), image(AFTER)
    update = row(3, 5, old + new, len1=len(old), len2=len(new))
    (change,) = read(update, commit(9, oper_date=LATER), time_zone="Europe/Moscow", **EMULATOR)
    assert change == Change(
        "APP",
        "ITEM",
        ChangeOp.UPDATE,
        (("ID", 2),),
        BEFORE,
        AFTER,
        frozenset({"ID", "NOTE"}),
        "0000000000000009:0000000000000005",
        "0" * 31 + "1",
        1,
        True,
        datetime(2025, 3, 23, 7, 57, 52, tzinfo=UTC),
    )
    assert change.extras == {
        "dbnode": "SRCDB", "oper_date": DATE.hex(), "table_number": 7, "destination": ("DSTSRV",
        "APP", "ITEM"), "syslog_addr": 5, "channel": 3, "row_id": 1,
    }  # fmt: skip


def test_what_is_not_known_of_a_row_is_left_out() -> None:
    (change,) = read(of(1, channel=None, rowid_src=None), commit(2, oper_date=bytes(6)))
    assert change.commit_time is None
    assert not {"channel", "row_id"} & change.extras.keys()


@pytest.mark.promise("option linter.reader.tables")
@pytest.mark.parametrize(
    ("name", "schema", "table"),
    [("app.item", "app", "item"), ("item", None, "item"), ("a.b.c", "a", "b.c")],
)
def test_tables_are_named_by_option(name: str, schema: str | None, table: str) -> None:
    (change,) = read(of(1), commit(2), tables={"7": name})
    assert (change.schema, change.table) == (schema, table)


def test_a_destination_without_owner_has_no_schema() -> None:
    (change,) = read(of(1, destination=Destination("", "", "T")), commit(2))
    assert (change.schema, change.table) == (None, "T")


def test_clear_blob_is_an_update_of_its_column() -> None:
    clear = row(9, 1, image(PAGE, DOCUMENT), tabnum_src=9, blobatr=0x0305)
    (change,) = read(clear, commit(2), **EMULATOR)
    assert (change.op, change.changed) == (ChangeOp.UPDATE, {"SCAN"})
    assert (change.before, change.after) == (PAGE, PAGE | {"SCAN": None})
    (raw,) = read(clear, commit(2))
    assert (raw.op, raw.before, raw.after, raw.changed) == (ChangeOp.UPDATE, None, None, None)
    (prose,) = read(clear._replace(typ=4), commit(2, typ=5), typ_table="prose", **EMULATOR)
    assert prose == change
    with refused("schema_missing", match="column 99"):
        read(clear._replace(blobatr=99), commit(2), **EMULATOR)


@pytest.mark.promise("option linter.reader.blob_operations")
def test_blob_operations_are_counted_or_refused() -> None:
    rows = [row(7, 1, b"x"), of(2), row(8, 3, b"x"), commit(4)]
    (change,) = read(*rows)
    assert (change.event_number, change.last_in_transaction) == (1, True)
    assert counted(*rows) == {"blob_operations": 2}
    with pytest.raises(NotExpressible):
        read(*rows, blob_operations="error")


def test_a_table_that_is_not_described_stops_a_reader_with_codec() -> None:
    with refused("schema_missing", match="table 77"):
        read(of(1, tabnum_src=77), commit(2), **EMULATOR)
    assert len(read(of(1, tabnum_src=77), commit(2))) == 1


def test_a_row_that_cannot_be_decoded_stops_or_goes_on_raw() -> None:
    with pytest.raises(
        RowDecodeError,
        match=r"SYSLOG_ADDR 0:1 of 'SRCDB': row of APP\.ITEM \(table 7\): column 'ID'",
    ) as caught:
        read(of(1), commit(2), **EMULATOR)
    assert caught.value.column == "APP.ITEM.ID"
    (change,) = read(of(1), commit(2), on_row_error="raw", **EMULATOR)
    assert (change.key, change.after, change.extras["part1"]) == (None, None, b"a")
    assert counted(of(1), commit(2), on_row_error="raw", **EMULATOR) == {"row_errors": 1}


class FixedCodec:
    """A codec of somebody else."""

    name = "fixed"

    def decode(self, table: TableAttrs, image: bytes) -> dict[str, Value]:
        return {"ID": image[0], "WORD": 1 // (image[0] - 98)}

    def encode(self, table: TableAttrs, row: Mapping[str, Value]) -> bytes:
        return b""


@pytest.mark.promise("option linter.reader.codec")
def test_a_codec_of_the_users_own() -> None:
    (change,) = read(of(1), commit(2), codec=FixedCodec())
    assert (change.key, change.after) == ((("ID", 97),), {"ID": 97, "WORD": -1})
    with pytest.raises(RowDecodeError, match="by zero"):
        read(row(2, 1, b"b"), commit(2), codec=FixedCodec())


@pytest.mark.parametrize(
    "options",
    [
        {"order_by": "time"}, {"destinations": "some"}, {"on_row_error": "skip"},
        {"blob_operations": "keep"}, {"codec": "linter"}, {"time_zone": "Nowhere"},
        {"restart": "12"}, {"restart": f"{DATE.hex()}:{1:016x}"}, {"restart": f"{1:016x}",
        "order_by": "oper_date"}, {"destination": "ABC"}, {"destination": 5}, {"destination": [1, 2,
        3]}, {"tables": ["a"]}, {"order_by": []}, {"tables": {"x": "a.b"}},
        {"order_tolerance": "long"}, {"charset": "klingon", "codec": "eventlog-emulator-1"},
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_configuration_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read(of(1), **options)
