"""Rows of change tables to changes and back (formats/qlik.md 1, 4, 7; spec/change-model.md 3.3,
4).
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from qlik_layouts import new_layout, read_layout, row_writer
from shared import refused

from eventlog.errors import EventlogError, FormatError, NotExpressible
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.columns import columns_from_json
from eventlog.qlik.masks import HISTORY_TABLE, entry_of, layout, layouts_by_history
from eventlog.qlik.sequence import (
    Waiting,
    WriterState,
    count_events,
    transaction_from_text,
    transaction_text,
)
from eventlog.qlik.tables.change_rows import DEFAULT_HEADERS, ChangeRow, row_reader
from eventlog.qlik.tables.change_tables import (
    SourceTable,
    TargetTable,
    change_of,
    changes_of_rows,
    key_from_deletes,
    rows_of,
)
from eventlog.qlik.tables.stored_tables import WriteOptions

SEQ = "20240510120000000000000000000000012"
NOON = datetime(2024, 5, 10, 12, tzinfo=UTC)
A1 = "000000000000000000000000000000A1"
NUT: Row = {"id": 7, "name": "nut", "price": Decimal("1.50")}
DEARER: Row = {**NUT, "price": Decimal("1.75")}
ITEM = columns_from_json(["id", "name", "price"], ["id"], what="item")
DOC = columns_from_json(["id", "name", {"name": "doc", "type": "CLOB"}], ["id"], what="doc")
SOURCE = SourceTable("app", "item", ("id",))
COLUMNS = [*(f"header__{name}" for name in DEFAULT_HEADERS), "id", "name", "price"]


def change(
    op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any
) -> Change:
    image = after or before
    key = None if image is None or "id" not in image else (("id", image["id"]),)
    return Change(
        "app", "item", op, **{"key": key, "commit_time": NOON} | fields, before=before, after=after
    )


def written(
    *changes: Change, columns: Any = ITEM, **options: Any
) -> list[tuple[str, str, set[str], Row]]:
    """Number, change_oper, mask and data of the rows that changes are written as."""
    table, state, rows = TargetTable("item", columns, WriteOptions(**options)), WriterState(), []
    for one in changes:
        state, more = rows_of(one, table, state, Counter())
        rows += more
    return [
        (str(int(row.change_seq[16:])), row.change_oper, set(row.mask or ()), row.data)
        for row in rows
    ]


# --- rows per operation ---------------------------------------------------------------------------


@pytest.mark.promise("format qlik-change-table")
def test_rows_of_each_operation() -> None:
    assert written(
        change(ChangeOp.INSERT, after=NUT),
        change(ChangeOp.UPDATE, NUT, DEARER),
        change(ChangeOp.UPDATE, None, DEARER, changed=frozenset({"price"})),
        change(ChangeOp.DELETE, DEARER),
        change(ChangeOp.TRUNCATE),
    ) == [
        ("1", "I", {"id", "name", "price"}, NUT),
        ("3", "B", set(), NUT),
        ("3", "U", {"price"}, DEARER),
        ("4", "U", {"price"}, DEARER),
        ("5", "D", {"id"}, DEARER),
        ("6", "T", set(), {}),
    ]


@pytest.mark.promise("option qlik-change-table.writer.before_images")
def test_before_images_can_be_off() -> None:
    assert written(change(ChangeOp.UPDATE, NUT, DEARER), before_images=False) == [
        ("1", "U", {"price"}, DEARER)
    ]


@pytest.mark.parametrize(
    ("before", "after", "changed", "bits"),
    [
        (
            {"id": 1, "name": None},
            {"id": 1, "name": None},
            {"name"},
            {"name"},
        ),  # the source's own statement
        ({"id": 1, "name": None}, {"id": 1, "name": ""}, None, {"name"}),
        ({"id": 1, "name": None, "price": 1}, {"id": 1, "name": None, "price": 2}, None, {"price"}),
        (None, {"id": 1, "name": "a"}, None, {"id", "name"}),  # unknown: all that are present
        ({"id": 1}, {"id": 1, "name": "a"}, None, {"id", "name"}),
    ],
)
def test_bits_of_an_update(
    before: Row | None, after: Row, changed: set[str] | None, bits: set[str]
) -> None:
    own = None if changed is None else frozenset(changed)
    assert written(change(ChangeOp.UPDATE, before, after, changed=own))[-1][2] == bits


def test_an_update_that_changes_nothing_takes_no_row_and_no_number() -> None:
    no_ops = [
        change(ChangeOp.UPDATE, NUT, NUT),
        change(ChangeOp.UPDATE, None, NUT, changed=frozenset()),
        change(ChangeOp.REFRESH, after=NUT),
    ]
    assert written(*no_ops, change(ChangeOp.INSERT, after=NUT)) == [
        ("1", "I", {"id", "name", "price"}, NUT)
    ]
    counters: Counter[str] = Counter()
    for one in no_ops:
        assert rows_of(one, TargetTable("item", ITEM, WriteOptions()), WriterState(), counters) == (
            WriterState(),
            (),
        )
    assert counters == {"no_op_skipped": 2, "refresh_skipped": 1}


def test_in_a_table_with_lobs_only_equal_images_are_no_change() -> None:
    row: Row = {"id": 1, "name": "a", "doc": "text"}
    assert written(change(ChangeOp.UPDATE, None, row, changed=frozenset()), columns=DOC) == [
        ("1", "U", set(), row)
    ]
    assert written(change(ChangeOp.UPDATE, row, row), columns=DOC) == []


def test_lobs_have_a_bit_on_inserts_only() -> None:
    row: Row = {"id": 1, "name": "a", "doc": "text"}
    changed = change(ChangeOp.UPDATE, row, {**row, "name": "b", "doc": "other"})
    rows = written(change(ChangeOp.INSERT, after=row), changed, columns=DOC)
    assert [bits for _, _, bits, _ in rows] == [{"id", "name", "doc"}, set(), {"name"}]


@pytest.mark.promise("option qlik-change-table.writer.refresh")
def test_refresh_may_be_inserted() -> None:
    assert written(change(ChangeOp.REFRESH, after=NUT), refresh="insert") == [
        ("1", "I", {"id", "name", "price"}, NUT)
    ]


def test_a_delete_of_which_only_the_key_is_known() -> None:
    assert written(change(ChangeOp.DELETE, key=(("id", 7),))) == [("1", "D", {"id"}, {"id": 7})]


def test_a_delete_in_a_table_without_key_marks_all_columns() -> None:
    columns = columns_from_json(["id", "name", "price"], what="item")
    assert written(change(ChangeOp.DELETE, NUT, key=None), columns=columns)[0][2] == {
        "id",
        "name",
        "price",
    }
    assert written(change(ChangeOp.DELETE, NUT), columns=columns)[0][2] == {
        "id"
    }  # the change has its key


def test_every_row_contains_its_key() -> None:
    update = change(ChangeOp.UPDATE, {"price": 1}, {"price": 2}, key=(("id", 7),))
    assert [row for *_, row in written(update)] == [{"id": 7, "price": 1}, {"id": 7, "price": 2}]
    moved = change(ChangeOp.UPDATE, {"price": 1}, {"id": 7, "price": 1}, changed=frozenset({"id"}))
    assert written(moved)[0][3] == {"price": 1}  # the old key is not known


@pytest.mark.parametrize(
    ("one", "error", "message"),
    [
        (change(ChangeOp.INSERT, after={"id": 1, "colour": "red"}), NotExpressible, "'colour'"),
        (change(ChangeOp.INSERT, extras={"query_back": "row"}), "needs_query_back", "no row"),
        (change(ChangeOp.UPDATE, extras={"part1": b""}), "needs_row_codec", "codec"),
        (change(ChangeOp.DELETE, extras={"part1": b""}), "needs_row_codec", "codec"),
    ],
)
def test_what_cannot_be_written_is_refused(
    one: Change, error: str | type[EventlogError], message: str
) -> None:
    with refused(error, match=message):
        written(one)


def test_a_change_sequence_is_kept_and_other_positions_become_the_stream_position() -> None:
    table, counters = TargetTable("item", ITEM, WriteOptions()), Counter[str]()
    kept = change(ChangeOp.INSERT, after=NUT, position=SEQ, extras={"stream_position": "p:12"})
    state, (row,) = rows_of(kept, table, WriterState("2024051011000000", 3), counters)
    assert (state, row.change_seq, row.stream_position) == (("2024051012000000", 12), SEQ, "p:12")
    state, (row,) = rows_of(
        change(ChangeOp.INSERT, after=NUT, position="lsn:9"), table, state, counters
    )
    assert (row.change_seq[16:], row.stream_position) == ("13".zfill(19), "lsn:9")


@pytest.mark.promise("option qlik-change-table.writer.partition_seconds")
def test_rows_are_partitioned_by_the_time_of_their_sequence() -> None:
    table = TargetTable("item", ITEM, WriteOptions(partitioned=True, partition_seconds=1800))
    _, (row,) = rows_of(
        change(ChangeOp.INSERT, after=NUT), table, WriterState("2024051012595900", 1), Counter()
    )
    assert row.partition_name == "20240510T123000_20240510T130000"


# --- reading --------------------------------------------------------------------------------------


def row(
    oper: str,
    data: Row,
    mask: set[str] | None = None,
    number: int = 12,
    transaction: str | None = A1,
) -> ChangeRow:
    change_seq = f"2024051012000000{number:019}"
    return ChangeRow(change_seq, oper, frozenset(mask or ()), "p:12", transaction, NOON, None, data)


def test_a_pair_is_an_update() -> None:
    before, update = row("B", NUT), row("U", DEARER, {"price"})
    assert change_of(before, update, SOURCE) == Change(
        "app",
        "item",
        ChangeOp.UPDATE,
        (("id", 7),),
        NUT,
        DEARER,
        frozenset({"price"}),
        SEQ,
        A1,
        commit_time=NOON,
    )
    assert change_of(None, update, SOURCE).before is None
    assert change_of(None, update, SOURCE).extras == {"change_seq": SEQ, "stream_position": "p:12"}


def test_the_changed_columns_of_a_row_without_masks_follow_from_its_images() -> None:
    update = row("U", DEARER)._replace(mask=None)
    assert change_of(row("B", NUT), update, SOURCE).changed == {"price"}
    assert change_of(None, update, SOURCE).changed is None


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        (None, {"id": 1, "name": None, "price": None}, {"id", "price"}),
        (
            {"id": 1, "name": None, "price": 2},
            {"id": 1, "name": None, "price": None},
            {"id", "price"},
        ),
        (
            {"id": 1, "name": "a", "price": 2},
            {"id": 1, "name": None, "price": None},
            {"id", "name", "price"},
        ),
    ],
)
def test_null_under_a_clear_bit_may_be_not_known(
    before: Row | None, after: Row, known: set[str]
) -> None:
    pair = (None if before is None else row("B", before), row("U", after, {"price"}))
    whole = SourceTable("app", "item", ("id",), absent_nulls="null")
    assert change_of(*pair, whole).after == after
    assert set(change_of(*pair, SOURCE).after or ()) == known


def test_null_under_a_clear_bit_is_not_known_before_either() -> None:
    old: Row = {"id": 7, "name": None, "price": None, "note": "a"}
    change = change_of(
        row("B", old), row("U", {**old, "price": 2, "note": None}, {"price"}), SOURCE
    )
    assert change.before == {"id": 7, "price": None, "note": "a"}
    assert change.after == {"id": 7, "price": 2, "note": None}


def test_an_inserted_null_is_known_by_its_bit() -> None:
    data: Row = {"id": 7, "name": None, "price": None}
    assert change_of(None, row("I", data, {"id", "price"}), SOURCE).after == {
        "id": 7,
        "price": None,
    }
    assert (
        change_of(None, row("I", data), SOURCE).after == data
    )  # without any bit, as of a table without masks


def test_a_deleted_row_of_which_only_the_key_is_known() -> None:
    data: Row = {"id": 7, "name": None, "price": None}
    assert change_of(None, row("D", data, {"id"}), SOURCE).before == {"id": 7}
    full = change_of(None, row("D", NUT, {"id"}), SOURCE)
    assert (full.before, full.key) == (NUT, (("id", 7),))


def test_the_key_is_read_from_the_masks_of_deletes() -> None:
    rows = [row("I", NUT, {"id", "name", "price"}), row("D", NUT, {"name", "id"})]
    assert key_from_deletes(rows) == ("id", "name")
    assert key_from_deletes(rows[:1]) is None
    assert change_of(None, rows[0], SourceTable("app", "item")).key is None
    assert change_of(None, rows[1], SourceTable("app", "item")).key == (("id", 7), ("name", "nut"))


def test_lobs_are_never_known_to_have_changed() -> None:
    source = SourceTable("app", "doc", ("id",), frozenset({"doc"}))
    read = change_of(None, row("U", {"id": 1, "doc": "x"}, {"doc"}), source)
    assert read.changed == frozenset()
    assert read.extras["changed_unknown"] == ["doc"]


def test_truncate_is_read() -> None:
    read = change_of(None, row("T", {"id": None, "name": None, "price": None}), SOURCE)
    assert (read.op, read.key, read.before, read.after) == (ChangeOp.TRUNCATE, None, None, None)


# --- pairs and transactions -----------------------------------------------------------------------


@pytest.mark.promise("code error-unpaired_before_image")
@pytest.mark.parametrize(
    "rows",
    [
        [row("B", NUT)],
        [row("B", NUT), row("I", NUT)],
        [row("B", NUT), row("U", NUT, number=13)],
        [row("B", NUT), row("B", NUT), row("U", NUT)],
    ],
)
def test_a_before_image_alone_is_refused(rows: list[ChangeRow]) -> None:
    with refused("unpaired_before_image", match=SEQ):
        list(changes_of_rows(rows, SOURCE, input_complete=True))


def test_the_last_before_image_waits_where_more_may_come() -> None:
    rows = [row("I", NUT, number=11), row("B", NUT)]
    insert, waiting = changes_of_rows(rows, SOURCE, input_complete=False)
    assert (insert, waiting) == (change_of(None, rows[0], SOURCE), Waiting(SEQ, A1))


def test_a_lone_before_image_can_be_passed_over() -> None:
    errors: list[FormatError] = []
    rows = [row("B", NUT), row("U", NUT, number=13), row("B", NUT, number=14)]
    found = list(changes_of_rows(rows, SOURCE, input_complete=True, skip=errors.append))
    assert found == [change_of(None, rows[1], SOURCE)]
    assert len(errors) == 2


def numbered(
    *given: tuple[str, str | None], input_complete: bool = True
) -> list[tuple[int | None, bool | None]]:
    changes = [
        change_of(None, row(oper, NUT, number=place, transaction=transaction), SOURCE)
        for place, (oper, transaction) in enumerate(given, 1)
    ]
    counted = list(count_events(changes, input_complete=input_complete))
    assert [one.position for one in counted] == [one.position for one in changes]
    return [(one.event_number, one.last_in_transaction) for one in counted]


def test_consecutive_rows_of_one_id_are_a_transaction() -> None:
    given = ("I", "A"), ("U", "A"), ("D", "B"), ("I", "A")
    assert numbered(*given) == [(1, False), (2, True), (1, True), (1, True)]
    assert numbered(*given, input_complete=False)[-1] == (1, None)


def test_truncate_is_not_counted() -> None:
    assert numbered(("T", "A"), ("I", "A"), ("T", "A"), ("I", "A"), ("T", "A")) == [
        (None, None), (1, False), (None, None), (2, True), (None, None),
    ]  # fmt: skip
    assert numbered(("I", "A"), ("T", "A"), input_complete=False) == [(1, None), (None, None)]
    assert numbered(("I", "A"), ("T", "B"), input_complete=False) == [(1, True), (None, None)]


@pytest.mark.parametrize(("transaction", "last"), [("A", None), ("B", True)])
def test_a_before_image_that_waits_ends_another_transaction(
    transaction: str, last: bool | None
) -> None:
    rows = [
        row("I", NUT, number=11, transaction="A"),
        row("B", NUT, number=12, transaction=transaction),
    ]
    changes = changes_of_rows(rows, SOURCE, input_complete=False)
    (counted,) = count_events(changes, input_complete=False)
    assert (counted.event_number, counted.last_in_transaction) == (1, last)
    assert list(count_events([counted], input_complete=False)) == [
        counted
    ]  # once known it stays known


def test_a_change_without_transaction_is_not_counted() -> None:
    assert numbered(("I", None), ("I", None), ("I", "A")) == [(None, None), (None, None), (1, True)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "0" * 32),
        ("a1", A1),
        ("f" * 32, "F" * 32),
        ("f" * 33, transaction_text("f" * 33)),
        ("tx-1", transaction_text("tx-1")),
        ("", transaction_text("")),
    ],
)
def test_transaction_ids_are_32_digits(given: str | None, text: str) -> None:
    assert transaction_text(given) == text
    assert len(text) == 32
    assert transaction_from_text(text) == (None if given is None else text)


def test_an_opaque_transaction_id_is_hashed() -> None:
    assert transaction_text("tx-1") == sha256(b"tx-1").hexdigest()[:32].upper()


# --- DDL history ----------------------------------------------------------------------------------


def ddl(number: int, columns: dict[str, dict[str, Any]], *, name: str = "item") -> dict[str, Any]:
    return {
        "change_seq": f"2024051012000000{number:019}",
        "TABLE_OWNER": "app",
        "TABLE_NAME": name,
        "DDL_TYPE": "ALTER_TABLE",
        "DETAILS": {"columns": columns},
    }


def test_a_mask_is_read_with_the_columns_of_its_time() -> None:
    entries = [
        entry_of(ddl(10, {"old": {"action": "DROP", "ordinal": 2}})),
        entry_of(ddl(20, {"price": {"action": "ADD", "ordinal": 3}})),
        entry_of(ddl(30, {"label": {"action": "ALTER", "columnNewName": "name", "ordinal": 2}})),
    ]
    at = layouts_by_history(read_layout(COLUMNS, what="item").masks, entries)
    for number, place_2, place_3 in (
        (9, None, "name"),
        (10, "name", None),
        (20, "name", "price"),
        (31, "name", "price"),
    ):
        places = at(f"2024051012000000{number:019}").places
        found = dict(enumerate(places[7:]))
        assert (found.get(0), found.get(1), found.get(2)) == ("id", place_2, place_3), number


def test_entries_are_read_from_json_text() -> None:
    text = '{"columns": {"price": {"action": "ADD"}}}'
    assert entry_of(ddl(1, {}) | {"DETAILS": text}).details == {
        "columns": {"price": {"action": "ADD"}}
    }
    assert entry_of(ddl(1, {}) | {"DETAILS": None}).details == {}
    for bad in ({"DETAILS": "{"}, {"change_seq": "1"}):
        with pytest.raises(FormatError):
            entry_of(ddl(1, {}) | bad)
    with pytest.raises(FormatError, match=HISTORY_TABLE):
        entry_of({"CHANGE_SEQ": SEQ})
    details = (
        "[1]",
        "7",
        "[" * 2000,
        '{"columns": [1]}',
        '{"columns": {"a": {"ordinal": "x", "action": "DROP"}}}',
    )
    more = (
        '{"columns": {"a": {"ordinal": Infinity}}}',
        '{"columns": {"a": {"ordinal": 1e9999999, "action": "DROP"}}}',
    )
    for bad_details in (*details, *more, '{"columns": {"a": {"columnNewName": [1]}}}'):
        with pytest.raises(FormatError, match="DETAILS"):
            layouts_by_history(layout(["id"]), [entry_of(ddl(1, {}) | {"DETAILS": bad_details})])


# --- there and back -------------------------------------------------------------------------------

VALUES = st.none() | st.text(max_size=3) | st.integers(-9, 9)
ROWS = st.fixed_dictionaries({"id": st.integers(0, 3), "name": VALUES, "price": VALUES})
TIMES = st.none() | st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@st.composite
def changes(draw: st.DrawFn) -> Change:
    op = draw(
        st.sampled_from([ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE])
    )
    fields = {"commit_time": draw(TIMES), "transaction_id": draw(st.sampled_from([A1, "B" * 32]))}
    before, after = draw(ROWS), draw(ROWS)
    if op is ChangeOp.INSERT:
        return change(op, None, after, **fields)
    if op is ChangeOp.DELETE:
        assume(
            before["name"] is not None or before["price"] is not None
        )  # else it reads as the key alone
        return change(op, before, **fields)
    if op is ChangeOp.TRUNCATE:
        return change(op, **fields)
    changed = frozenset(name for name, value in after.items() if before[name] != value)
    assume(changed)
    return change(op, draw(st.sampled_from([None, before])), after, changed=changed, **fields)


@given(st.lists(changes(), max_size=12), st.sampled_from(["binary", "text"]), st.booleans())
def test_changes_are_read_as_they_were_written(
    given: list[Change], form: Any, before_images: bool
) -> None:
    layout = new_layout(["id", "name", "price"], what="item")
    target = TargetTable("item", ITEM, WriteOptions(before_images=before_images))
    write = row_writer(layout, mask_form=form, what="item")
    read = row_reader(layout, counters=Counter(), what="item")
    state, stored = WriterState(), []
    for one in given:
        state, rows = rows_of(one, target, state, Counter())
        stored += map(write, rows)
    whole = SourceTable("app", "item", ("id",), absent_nulls="null")
    back = list(changes_of_rows(map(read, stored), whole, input_complete=True))
    expected = (
        given
        if before_images
        else [one._replace(before=None) if one.after else one for one in given]
    )
    assert [one._replace(position=None) for one in back] == expected
    assert sorted(one.position or "" for one in back) == [one.position for one in back]


def test_a_key_of_which_a_column_is_not_known_is_not_known() -> None:
    source = SourceTable("app", "item", ("region", "id"), absent_nulls="absent")
    row = ChangeRow(
        SEQ,
        "U",
        frozenset({"name"}),
        None,
        None,
        None,
        None,
        {"id": 7, "region": None, "name": "nut"},
    )
    assert change_of(None, row, source).key is None
    assert change_of(None, row._replace(data={"id": 7, "name": "nut"}), source).key is None
    whole = row._replace(mask=frozenset({"name", "region"}))
    assert change_of(None, whole, source).key == (
        ("region", None),
        ("id", 7),
    )  # NULL in a unique index
