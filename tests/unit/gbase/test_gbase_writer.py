"""Changes to a stream (spec/change-model.md 4, 5.1, column G), and the format ``gbase`` on
files.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from shared import refused

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, EventlogError, FormatError, NotExpressible
from eventlog.gbase.format import FORMAT
from eventlog.gbase.layout import Column, parse_type, split_columns
from eventlog.gbase.options import ReadOptions, WriteOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import RECORD_NAMES, Framer
from eventlog.gbase.writer import write_stream
from eventlog.model import Change, ChangeOp, Lob
from eventlog.testing.gbase_workload import ALL_TYPES, play, random_value

COLUMNS = "id integer, name varchar(40,0), price decimal(10,2)"
ROW = {"id": 7, "name": "nut", "price": Decimal("1.50")}
LABELS = {1: "shop:app.item"}
AT = datetime(2024, 5, 10, 12, tzinfo=UTC)
EXAMPLE = Change(
    "app", "item", ChangeOp.UPDATE, (("id", 7),), ROW, {**ROW, "price": Decimal("1.75")},
    frozenset({"price"}), "20240510120000000000000000000000012", "000000000000000000000000000000A1",
    1, True, AT,
)  # fmt: skip


def change(op: ChangeOp, transaction_id: str | None = "A", **fields: Any) -> Change:
    return Change("app", "item", op, transaction_id=transaction_id, **fields)


def insert(number: int, transaction_id: str | None = "A", **fields: Any) -> Change:
    return change(ChangeOp.INSERT, transaction_id, after={**ROW, "id": number}, **fields)


def written(changes: Iterable[Change], report: Report | None = None, **options: Any) -> bytes:
    options = {"tables": {"app.item": COLUMNS}, "labels": LABELS, **options}
    return b"".join(
        write_stream(
            changes, WriteOptions(**options), Report(strict=True) if report is None else report
        )
    )


def read(data: bytes, **options: Any) -> list[Change]:
    reader = StreamReader(ReadOptions(labels=LABELS, **options))
    changes = list(reader.feed(data))
    reader.finish()
    return changes


def names(data: bytes) -> list[str]:
    return [RECORD_NAMES[number] for _, number, _, _ in Framer().feed(data)]


def test_the_worked_example_is_an_update_pair() -> None:
    data = written([EXAMPLE])
    assert names(data) == ["TABSCHEM", "BEGINTX", "UPDBEF", "UPDAFT", "COMMTX"]
    (found,) = read(data, keys={"item": ["id"]})
    same = (
        "schema",
        "table",
        "op",
        "key",
        "before",
        "after",
        "changed",
        "event_number",
        "last_in_transaction",
    )
    assert [getattr(found, name) for name in same] == [getattr(EXAMPLE, name) for name in same]
    assert found.commit_time == AT


@pytest.mark.promise("option gbase.writer.varchar_prefix", "format gbase")
@pytest.mark.parametrize("prefix", [1, 2])
@pytest.mark.parametrize("order", ["little", "big"])
def test_what_is_written_reads_back(prefix: int, order: str) -> None:
    rnd = random.Random(8)
    columns = [
        Column(name, parse_type(spelled, name)) for name, spelled in split_columns(ALL_TYPES)
    ]

    def row() -> dict[str, Any]:
        return {column.name: random_value(rnd, column) for column in columns}

    changes = []
    for number in range(200):
        op = rnd.choice([ChangeOp.INSERT, ChangeOp.DELETE, ChangeOp.UPDATE, ChangeOp.TRUNCATE])
        before, after = row(), row()
        changes.append(
            change(
                op,
                str(number // 7),
                before=before if op in (ChangeOp.DELETE, ChangeOp.UPDATE) else None,
                after=after if op in (ChangeOp.INSERT, ChangeOp.UPDATE) else None,
                changed=frozenset(n for n in after if before[n] != after[n])
                if op is ChangeOp.UPDATE
                else None,
                event_number=number % 7 + 1,
                last_in_transaction=number % 7 == 6 or number == 199,
                commit_time=AT,
                user="1001",
            )
        )
    data = written(changes, tables={"item": ALL_TYPES}, varchar_prefix=prefix, size_order=order)
    found = [
        one._replace(position=None, transaction_id=None)
        for one in read(data, varchar_prefix=prefix)
    ]
    assert found == [one._replace(transaction_id=None) for one in changes]


def test_a_transaction_is_written_when_its_last_change_is_known() -> None:
    taken: list[int] = []

    def coming() -> Iterator[Change]:
        for number, (transaction, last) in enumerate(
            [("A", None), ("A", None), ("B", True), (None, None), ("C", None)]
        ):
            taken.append(number)
            yield insert(number, transaction, last_in_transaction=last)

    fragments = write_stream(coming(), WriteOptions(tables={"item": COLUMNS}), Report())
    assert names(next(fragments)) == ["TABSCHEM"]
    assert names(next(fragments)) == ["BEGINTX", "INSERT", "INSERT", "COMMTX"]
    assert taken == [0, 1, 2]  # the change behind the transaction shows its end
    assert names(next(fragments)) == ["BEGINTX", "INSERT", "COMMTX"]
    assert taken == [
        0,
        1,
        2,
        3,
    ]  # behind the last flag a TRUNCATE of the same transaction may come, which none counts
    assert names(next(fragments)) == ["BEGINTX", "INSERT", "COMMTX"]
    assert taken == [0, 1, 2, 3]  # without an id every change is a transaction
    assert names(b"".join(fragments)) == ["BEGINTX", "INSERT", "COMMTX"]


@pytest.mark.parametrize("truncates", [1, 2])
def test_a_truncate_that_is_not_counted_ends_the_transaction_before_it(truncates: int) -> None:
    changes = [
        insert(1, "A", event_number=1, last_in_transaction=False),
        insert(2, "A", event_number=2, last_in_transaction=True),
        *[change(ChangeOp.TRUNCATE, "A")] * truncates,
        insert(
            3, "A", event_number=1, last_in_transaction=True
        ),  # the same id again: another transaction
        change(ChangeOp.TRUNCATE, None),
    ]
    assert names(written(changes)) == [
        "TABSCHEM", "BEGINTX", "INSERT", "INSERT", *["TRUNCATE"] * truncates, "COMMTX",
        "BEGINTX", "INSERT", "COMMTX", "BEGINTX", "TRUNCATE", "COMMTX",
    ]  # fmt: skip


def test_nothing_of_a_transaction_is_written_that_cannot_be_whole() -> None:
    fragments = write_stream(
        [insert(1, "A", last_in_transaction=True), insert(2, "B"), insert(-(2**31), "B")],
        WriteOptions(tables={"item": COLUMNS}),
        report := Report(strict=True),
    )
    assert names(next(fragments) + next(fragments)) == ["TABSCHEM", "BEGINTX", "INSERT", "COMMTX"]
    with refused("value_range", match=r"'id' of 'app\.item'"):
        next(fragments)
    assert report.written == 1


def test_what_is_passed_over_is_counted_and_the_rest_of_its_transaction_written() -> None:
    report = Report()
    data = written(
        [
            insert(1),
            insert(2**31),
            insert(3),
            insert(2**31, "B"),
            Change(None, "x", ChangeOp.TRUNCATE),
        ],
        report,
    )
    assert names(data) == ["TABSCHEM", "BEGINTX", "INSERT", "INSERT", "COMMTX"]
    assert report.written == 2
    assert report.counters == {"value_range app.item.id": 2, "schema_missing": 1}


@pytest.mark.promise("option gbase.writer.complete")
def test_missing_columns_are_completed_or_refused() -> None:
    part = change(
        ChangeOp.UPDATE, key=(("id", 7),), before={"price": Decimal(1)}, after={"price": Decimal(2)}
    )
    with pytest.raises(NotExpressible, match="lacks the columns id, name"):
        written([part._replace(key=None)])
    with pytest.raises(NotExpressible, match=r"id.*lacks the columns name"):
        written([part])
    with pytest.raises(NotExpressible, match="lacks the columns name"):
        written([part], complete=lambda schema, table, key: None)
    (found,) = read(
        written([part], complete=lambda schema, table, key: {**ROW, "id": dict(key)["id"]})
    )
    assert (found.before, found.after) == ({**ROW, "price": 1}, {**ROW, "price": 2})
    assert found.changed == {"price"}


@pytest.mark.parametrize("before", [None, {}])
def test_an_update_without_its_row_before_is_an_after_image_alone(before: Any) -> None:
    data = written([change(ChangeOp.UPDATE, before=before, after=ROW)])
    assert names(data) == ["TABSCHEM", "BEGINTX", "UPDAFT", "COMMTX"]
    assert read(data)[0].before is None


def test_a_deleted_row_has_null_where_it_is_not_known() -> None:
    (found,) = read(written([change(ChangeOp.DELETE, key=(("id", 7),))], complete=lambda *_: ROW))
    assert found.before == {"id": 7, "name": None, "price": None}


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (change(ChangeOp.INSERT, extras={"query_back": "row"}), "needs_query_back"),
        (change(ChangeOp.INSERT, extras={"part1": b"x"}), "needs_row_codec"),
        (change(ChangeOp.DELETE, extras={"part1": b"x"}), "needs_row_codec"),
        (change(ChangeOp.INSERT, after={**ROW, "phone.number": ("1", "2")}), NotExpressible),
        (change(ChangeOp.INSERT, after={**ROW, "name": Lob(b"x")}), NotExpressible),
        (change(ChangeOp.INSERT, after={**ROW, "name": b"x"}), NotExpressible),
        (change(ChangeOp.INSERT, after={**ROW, "price": Decimal("0.001")}), "value_range"),
        (Change("app", "other", ChangeOp.TRUNCATE), "schema_missing"),
    ],
)
def test_what_a_stream_cannot_hold_is_refused(
    one: Change, error: str | type[EventlogError]
) -> None:
    with refused(error):
        written([one])


def test_an_inserted_row_comes_from_complete() -> None:
    queried = change(ChangeOp.INSERT, key=(("id", 7),), extras={"query_back": "row"})
    assert read(written([queried], complete=lambda *_: ROW))[0].after == ROW


def test_a_large_object_cannot_be_written_even_as_a_locator() -> None:
    with pytest.raises(NotExpressible, match="large object"):
        written([change(ChangeOp.INSERT, after={"b": Lob(bytes(76))})], tables={"item": "b blob"})
    assert read(written([change(ChangeOp.INSERT, after={"b": None})], tables={"item": "b blob"}))[
        0
    ].after == {"b": None}


def test_a_refreshed_row_is_an_insert_and_a_truncate_itself() -> None:
    data = written([change(ChangeOp.REFRESH, after=ROW), change(ChangeOp.TRUNCATE)])
    assert [one.op for one in read(data)] == [ChangeOp.INSERT, ChangeOp.TRUNCATE]


@pytest.mark.promise("option gbase.writer.user_ids")
@pytest.mark.parametrize(
    ("user", "expected", "counted"),
    [
        ("2005", "2005", 0),
        ("ann", "77", 0),
        ("bob", "0", 1),
        (None, "0", 0),
        ("99999999999", "0", 1),
        ("9" * 5000, "0", 1),
        ("²", "0", 1),
    ],
)
def test_users_are_numbers(user: str | None, expected: str, counted: int) -> None:
    report = Report()
    (found,) = read(written([insert(1, user=user)], report, user_ids={"ann": 77}))
    assert found.user == expected
    assert report.counters["user_unknown"] == counted


def test_what_is_cut_off_is_counted_by_column_and_times_are_whole_seconds() -> None:
    report = Report()
    row = {"id": 1, "at": datetime(2024, 1, 1, 0, 0, 0, 123456), "day": datetime(2024, 1, 1)}
    columns = "id integer, at datetime year to fraction(5), day date"
    late = datetime(1969, 12, 31, 23, 59, 58, 500000, tzinfo=UTC)
    (found,) = read(
        written(
            [change(ChangeOp.INSERT, after=row, commit_time=late)],
            report,
            tables={"app.item": columns},
        )
    )
    assert (found.after or {})["at"] == datetime(2024, 1, 1, 0, 0, 0, 123450)
    assert found.commit_time == late.replace(microsecond=0)
    assert report.counters == {"truncated app.item.at": 1}
    assert read(written([insert(1)]))[0].commit_time is None


def test_a_commit_time_is_never_rounded_up() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert read(written([insert(1)._replace(commit_time=last)]))[0].commit_time == last.replace(
        microsecond=0
    )


def test_labels_are_those_given_and_numbers_that_are_free() -> None:
    changes = [
        insert(1),
        Change("app", "other", ChangeOp.TRUNCATE),
        Change(None, "third", ChangeOp.TRUNCATE),
    ]
    data = written(
        changes,
        tables={"item": COLUMNS, "other": "c integer", "third": "c integer"},
        labels={"1": "shop:app.other", "3": "shop:third"},
    )
    reader = StreamReader()
    assert [one.table for one in reader.feed(data)] == ["label_2", "label_1", "label_3"]


@pytest.mark.promise("option gbase.writer.catalog")
def test_columns_come_from_a_catalog() -> None:
    catalog = {
        "dialect": "postgresql",
        "schema": "app",
        "tables": [
            {
                "name": "item",
                "kind": "table",
                "columns": [
                    {"name": name, "type": spelled}
                    for name, spelled in [
                        ("id", "bigint"), ("s", "smallint"), ("n", "decimal(12)"), ("p",
                        "decimal(10,2)"), ("x", "decimal"), ("r", "real"), ("d", "double"), ("b",
                        "boolean"), ("c", "char(3)"), ("v", "varchar(20)"), ("w", "varchar(20000)"),
                        ("t", "text"), ("day", "date"), ("at", "timestamp"), ("tm", "time"), ("u",
                         "uuid"), ("raw", "varbinary(9)"), ("j", "json"),
                    ]
                ],
            }
        ],
    }  # fmt: skip
    row = {
        "id": 1, "s": 2, "n": 3, "p": Decimal("4.50"), "x": Decimal("5.5"), "r": 6.5, "d": 7.5,
        "b": True, "c": "数", "v": "数" * 20, "w": "w", "t": "t", "day": AT.date(),
        "at": AT.replace(tzinfo=None), "tm": AT.time(), "u": "0" * 36, "j": "{}",
    }  # fmt: skip
    data = written([change(ChangeOp.INSERT, after=row)], tables={}, catalog=catalog)
    (found,) = read(data)
    assert found.after == row
    with pytest.raises(NotExpressible, match="'raw'"):
        written([change(ChangeOp.INSERT, after={**row, "raw": b"x"})], tables={}, catalog=catalog)


# --- files ----------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all_and_read(tmp_path: Path) -> None:
    target = tmp_path / "out.cdc"
    options = {"tables": {"app.item": COLUMNS}, "labels": LABELS}
    report = Report()
    FORMAT.write([insert(1), insert(2)], str(target), options, report)
    assert report.written == 2
    before = target.read_bytes()
    with refused("value_range"):
        FORMAT.write(
            [insert(3, "A"), insert(2**31, "B")], str(target), options, Report(strict=True)
        )
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]
    report = Report()
    assert [one.after for one in FORMAT.read(str(target), {"labels": LABELS}, report)] == [
        {**ROW, "id": 1},
        {**ROW, "id": 2},
    ]
    assert report.read == 2


def test_a_row_that_cannot_be_read_is_passed_over_and_the_last_one_left_is_the_last(
    tmp_path: Path,
) -> None:
    data = written([insert(number, event_number=number) for number in (1, 2, 3)])
    broken = data[: data.rindex(b"nut")] + b"\xff" + data[data.rindex(b"nut") + 1 :]
    (tmp_path / "a.cdc").write_bytes(broken)
    report = Report()
    changes = list(FORMAT.read(str(tmp_path), {"labels": LABELS}, report))
    assert [(one.event_number, one.last_in_transaction) for one in changes] == [
        (1, False),
        (2, True),
    ]
    assert report.counters == {"decode app.item.name": 1}
    with refused("decode"):
        list(FORMAT.read(str(tmp_path), {}, Report(strict=True)))


def test_the_files_of_a_directory_continue_one_another(tmp_path: Path) -> None:
    data = play("long_transaction")
    for number in range(0, len(data), 100):
        (tmp_path / f"{number:08}.cdc").write_bytes(data[number : number + 100])
    whole = list(StreamReader().feed(data))
    assert list(FORMAT.read(str(tmp_path), {}, Report())) == whole


def test_what_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        list(FORMAT.read(str(tmp_path / "missing.cdc"), {}, Report()))
    with pytest.raises(ConfigError, match="does not exist; create it"):
        FORMAT.write([], str(tmp_path / "missing" / "out.cdc"), {}, Report())
    with pytest.raises(ConfigError, match="nearest known one is labels"):
        list(FORMAT.read(str(tmp_path), {"label": {}}, Report()))
    with pytest.raises(
        ConfigError, match=r"size_order = .auto. is not allowed; legal: little \| big"
    ):
        FORMAT.write([], str(tmp_path / "out.cdc"), {"size_order": "auto"}, Report())


@pytest.mark.parametrize(
    "options",
    [{"tables": ["item"]}, {"user_ids": {"ann": "77"}}, {"complete": "yes"}, {"varchar_prefix": 4}],
)
def test_wrong_option_of_the_writer_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WriteOptions(**options)


def test_counters_are_reported_even_when_reading_fails(tmp_path: Path) -> None:
    (tmp_path / "a.cdc").write_bytes(play("fragment_move")[:-1])
    report = Report()
    with pytest.raises(FormatError, match="ends inside"):
        list(FORMAT.read(str(tmp_path), {}, report))
    (tmp_path / "a.cdc").write_bytes(play("fragment_move"))
    list(FORMAT.read(str(tmp_path), {}, report))
    assert report.counters == {"unpaired_updbef": 1}
