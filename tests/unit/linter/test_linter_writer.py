"""Changes written as rows of the queue (spec/change-model.md 4, 5.1; formats/linter-queue.md 8)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from shared import refused

from eventlog.changes.format import Report
from eventlog.changes.json_form import database_from_json
from eventlog.errors import ConfigError, NotExpressible
from eventlog.linter.codec import RowEncodeError, Typ
from eventlog.linter.dispatch_tables import QUEUE_COLUMNS, DispatchRow, column_values, dispatch_rows
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.writer import QueueWriter, WriterOptions
from eventlog.model import Change, ChangeOp, Lob, Row, Value
from eventlog.testing.linter_emulator import ATTRS, DOCUMENT, ITEM, READING, Workload, emulate

TABLES = {7: "APP.ITEM", 8: "APP.READING", 9: "APP.DOCUMENT"}
DESCRIBED = {
    table.tabnum: [
        {"name": column.name, "typ": column.typ, "pkey": column.pkey, "len": column.length}
        for column in table.columns
    ]
    for table in (ITEM, READING, DOCUMENT)
}
ITEM_ROW: Row = {"ID": 1, "NAME": "a", "PRICE": Decimal("1.5"), "NOTE": "n"}


def writer(report: Report | None = None, **options: Any) -> QueueWriter:
    return QueueWriter(
        WriterOptions(**{"tables": TABLES, "dispatch_attrs": DESCRIBED, **options}), report
    )


def written(*changes: Change, **options: Any) -> list[DispatchRow]:
    return list(writer(**options).rows(changes))


def read_back(rows: Iterable[DispatchRow], **options: Any) -> list[Change]:
    options = {"codec": "eventlog-emulator-1", **options}
    table = dispatch_rows(QUEUE_COLUMNS, map(column_values, rows))
    return list(QueueReader(ATTRS, ReaderOptions(**options)).read(table, final=True))


def item(op: ChangeOp, **given: Any) -> Change:
    images: dict[str, Any] = {
        ChangeOp.INSERT: {"after": ITEM_ROW},
        ChangeOp.REFRESH: {"after": ITEM_ROW},
        ChangeOp.UPDATE: {"before": ITEM_ROW, "after": {**ITEM_ROW, "NAME": "b"}},
        ChangeOp.DELETE: {"before": ITEM_ROW},
        ChangeOp.TRUNCATE: {},
    }[op]
    key = None if op is ChangeOp.TRUNCATE else (("ID", 1),)
    return Change("APP", "ITEM", op, **{"key": key, **images, **given})


def kinds(rows: Iterable[DispatchRow]) -> list[int]:
    return [row.typ for row in rows]


# --- operations and transactions ------------------------------------------------------------------


def test_each_operation_and_the_end_of_its_transaction() -> None:
    insert, refresh, update, delete = map(
        item, (ChangeOp.INSERT, ChangeOp.REFRESH, ChangeOp.UPDATE, ChangeOp.DELETE)
    )
    changes = [change._replace(transaction_id="A1") for change in (insert, update, delete, refresh)]
    rows = written(*changes)
    assert kinds(rows) == [2, 3, 1, 2, 4]
    end = rows[-1]
    assert (end.tabnum_src, end.rowid_src, end.len1, end.len2) == (0, 0, 0, 0)
    assert (end.destination, end.data) == (("", "", ""), bytes(3400))
    assert {row.transact_id for row in rows} == {0xA1}
    assert [row.syslog_addr for row in rows] == [
        1 << 32 | address
        for address in (24, 120, 248, 344, 440)  # 64 and the bytes used
    ]


@pytest.mark.parametrize("servers", [("S",), ("B", "A")])
@pytest.mark.parametrize("lengths", ["per_row", "total"])
@pytest.mark.parametrize("seed", range(4))
def test_the_committed_work_of_an_emulator_is_written_and_read_back(
    seed: int, lengths: str, servers: Any
) -> None:
    workload = Workload(seed, servers=servers, continuation_lengths=lengths)
    changes = [change for step in emulate(workload) for change in step.changes]
    assert any(len(step.rows) > 2 * len(servers) for step in emulate(workload)), (
        "no row of several parts"
    )
    report = Report()
    rows = list(
        writer(
            report,
            continuation_lengths=lengths,
            destinations=[(server, None, None) for server in servers],
        ).rows(changes)
    )
    again = read_back(rows)
    lost = {"position": None, "transaction_id": None}
    as_updates = [change._replace(**lost) for change in again]
    assert [change._replace(changed=None) for change in as_updates] == [
        change._replace(changed=None, **lost) for change in changes
    ]
    assert report.written == len(changes)


def test_transactions_end_with_their_last_change_or_with_another_id() -> None:
    insert = item(ChangeOp.INSERT)
    ids = [("A", None), ("A", True), ("B", None), ("C", False), (None, None), (None, None)]
    changes = [
        insert._replace(transaction_id=number, last_in_transaction=last) for number, last in ids
    ]
    assert kinds(written(*changes)) == [2, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4]


def test_a_transaction_is_not_written_before_its_last_change_is_known() -> None:
    asked = []

    def changes() -> Iterable[Change]:
        for number in range(3):
            asked.append(number)
            yield item(ChangeOp.INSERT, transaction_id="A", last_in_transaction=number == 2)

    next(iter(writer().rows(changes())))
    assert asked == [0, 1, 2]


def test_transaction_ids_keep_their_low_64_bits_where_those_are_unique() -> None:
    ids = ["FF" + "0" * 15 + "7", "AA" + "0" * 15 + "7", "8" + "0" * 15, "gtid:5", None, "1" * 33]
    changes = [item(ChangeOp.INSERT, transaction_id=number) for number in ids]
    numbers = [row.transact_id for row in written(*changes) if row.typ == 4]
    assert numbers[0] == 7
    assert numbers[2] == 1 << 63
    assert len(set(numbers)) == len(ids)


@pytest.mark.promise("option linter.reader.time_zone")
def test_commit_time_is_oper_date_in_the_zone_of_the_server() -> None:
    moment = datetime(2025, 3, 23, 7, 57, 52, 250_000, tzinfo=UTC)
    rows = written(item(ChangeOp.INSERT, commit_time=moment), time_zone="Europe/Moscow")
    assert {row.oper_date.hex() for row in rows} == {"42414bb04000"}
    assert {row.oper_date for row in written(item(ChangeOp.INSERT))} == {bytes(6)}
    with refused("value_range"):
        written(item(ChangeOp.INSERT, commit_time=datetime(1980, 1, 1, tzinfo=UTC)))


def test_an_update_that_changes_nothing_is_written() -> None:
    assert kinds(written(item(ChangeOp.UPDATE, after=ITEM_ROW, changed=frozenset()))) == [3, 4]


@pytest.mark.promise("option linter.writer.destinations")
def test_destinations_take_owner_and_table_of_the_change_unless_named() -> None:
    rows = written(
        item(ChangeOp.INSERT), destinations=[("S", None, None), ("T", "O", "X"), ("S", None, None)]
    )
    assert [row.destination for row in rows] == [
        ("S", "APP", "ITEM"),
        ("T", "O", "X"),
        ("", "", ""),
    ]
    assert rows[0].syslog_addr == rows[1].syslog_addr


@pytest.mark.promise("option linter.writer.dbnode")
@pytest.mark.parametrize(
    "options", [{"destinations": [("SERVER789", None, None)]}, {"dbnode": "NÖDENAME"}]
)
def test_names_that_are_too_wide_are_refused(options: dict[str, Any]) -> None:
    with refused("value_range"):
        written(item(ChangeOp.INSERT), **options)


def test_the_log_goes_on_in_the_next_file() -> None:
    start = (5 << 32) | ((1 << 31) - 70)
    rows = list(QueueWriter(writer().options, address=start).rows([item(ChangeOp.INSERT)]))
    assert [row.syslog_addr for row in rows] == [start, 6 << 32 | 24]


# --- truncate -------------------------------------------------------------------------------------


@pytest.mark.promise("option linter.writer.truncate")
def test_truncate_is_refused_or_written_as_deletes_of_the_known_rows() -> None:
    truncate = item(ChangeOp.TRUNCATE)
    with pytest.raises(NotExpressible, match="truncate = deletes"):
        written(truncate)
    second = {**ITEM_ROW, "ID": 2}
    changes = [
        item(ChangeOp.INSERT),
        item(ChangeOp.INSERT, key=(("ID", 2),), after=second),
        item(ChangeOp.UPDATE, key=(("ID", 3),), after={**ITEM_ROW, "ID": 3}),
        truncate,
        truncate,
    ]
    made = read_back(written(*changes, truncate="deletes"))
    assert [change.key for change in made if change.op is ChangeOp.DELETE] == [
        (("ID", 2),),
        (("ID", 3),),
    ]


def test_a_truncate_that_is_not_counted_is_of_the_transaction_before_it() -> None:
    inserted = item(ChangeOp.INSERT, transaction_id="A", event_number=1, last_in_transaction=True)
    changes = [inserted, item(ChangeOp.TRUNCATE, transaction_id="A"), inserted]
    assert kinds(writer(truncate="deletes").rows(changes)) == [2, 1, 4, 2, 4]


@pytest.mark.promise("code error-row_encode")
def test_what_cannot_be_written_is_passed_over_and_counted_or_stops() -> None:
    good = item(ChangeOp.INSERT, transaction_id="A")
    long = item(ChangeOp.INSERT, transaction_id="A", after={**ITEM_ROW, "NAME": "x" * 21})
    early = item(ChangeOp.INSERT, commit_time=datetime(1980, 1, 1, tzinfo=UTC))
    changes = [good, item(ChangeOp.TRUNCATE, transaction_id="A"), long, good, early]
    report = Report()
    assert kinds(writer(report).rows(changes)) == [2, 2, 4]
    assert report.written == 2
    assert report.counters == {
        "not_expressible": 1,
        "row_encode APP.ITEM.NAME": 1,
        "value_range": 1,
    }
    assert len(report.problems) == 3
    with pytest.raises(NotExpressible):
        list(writer(Report(strict=True)).rows(changes))


# --- columns that are not known -------------------------------------------------------------------


def test_a_row_that_is_not_whole_is_refused_naming_key_and_columns() -> None:
    with pytest.raises(
        NotExpressible,
        match=r"INSERT of 'APP.ITEM' with key \{'ID': 1\} lacks the columns NOTE, PRICE",
    ):
        written(item(ChangeOp.INSERT, after={"NAME": "a"}))
    with pytest.raises(NotExpressible, match="NAME"):
        written(item(ChangeOp.UPDATE, before=None))
    with pytest.raises(NotExpressible, match="NOTE"):
        written(item(ChangeOp.INSERT, after={"NAME": "a"}), complete=lambda *_: None)
    with pytest.raises(NotExpressible, match="lacks the columns NOTE, PRICE"):
        written(item(ChangeOp.INSERT, after={"NAME": "a"}), complete=lambda *_: {"ID": 1})


@pytest.mark.promise("option linter.writer.complete")
def test_complete_fills_rows_before_and_after() -> None:
    asked = []

    def complete(schema: str | None, table: str, key: Any) -> Row:
        asked.append((schema, table, key))
        return {**ITEM_ROW, "NAME": "now"}

    (change,) = read_back(
        written(
            item(ChangeOp.UPDATE, before={"PRICE": None}, after={"NAME": "b"}), complete=complete
        )
    )
    assert change.before == {**ITEM_ROW, "NAME": "now", "PRICE": None}
    assert change.after == {**ITEM_ROW, "NAME": "b"}
    assert asked == [("APP", "ITEM", (("ID", 1),))]
    (change,) = read_back(written(item(ChangeOp.UPDATE, before=None), complete=complete))
    assert change.before == {**ITEM_ROW, "NAME": "now"}


def test_a_row_that_must_be_queried_back_comes_from_complete() -> None:
    queried = item(ChangeOp.INSERT, after=None, extras={"query_back": "row"})
    (change,) = read_back(written(queried, complete=lambda *_: ITEM_ROW))
    assert change.after == ITEM_ROW


def test_a_row_before_has_the_key_of_its_change() -> None:
    before = {name: value for name, value in ITEM_ROW.items() if name != "ID"}
    (change,) = read_back(
        written(item(ChangeOp.UPDATE, before=before, after={**ITEM_ROW, "NAME": "b"}))
    )
    assert (change.before, change.changed) == (ITEM_ROW, {"NAME"})


def test_unknown_columns_of_a_deleted_row_are_null_and_never_completed() -> None:
    (change,) = read_back(
        written(
            item(ChangeOp.DELETE, before={"NAME": "a"}),
            complete=lambda *_: pytest.fail("the row is gone"),
        )
    )
    assert change.before == {"ID": 1, "NAME": "a", "PRICE": None, "NOTE": None}


def test_a_column_that_is_not_described_is_refused() -> None:
    with pytest.raises(NotExpressible, match=r"'phone\.no'"):
        written(item(ChangeOp.INSERT, after={**ITEM_ROW, "phone.no": ("1", "2")}))


def test_changes_without_their_row_are_refused() -> None:
    with refused("needs_row_codec"):
        written(item(ChangeOp.INSERT, after=None, extras={"part1": b""}))
    with refused("needs_row_codec"):
        written(item(ChangeOp.DELETE, key=None, before=None, extras={"part1": b""}))
    with refused("needs_query_back"):
        written(item(ChangeOp.INSERT, after=None, extras={"query_back": "row"}))


# --- values ---------------------------------------------------------------------------------------

VALUES: list[tuple[int, int, Any, Value]] = [
    (Typ.VARCHAR, 20, "", ""),
    (Typ.CHAR, 5, "", ""),
    (Typ.VARCHAR, 20, 15, "15"),
    (Typ.VARCHAR, 20, Decimal("1E+2"), "100"),
    (Typ.VARCHAR, 20, True, "true"),
    (Typ.VARCHAR, 20, date(2024, 2, 29), "2024-02-29"),
    (Typ.INTEGER, 4, "15", 15),
    (Typ.INTEGER, 4, Decimal("15.0"), 15),
    (Typ.INTEGER, 4, True, 1),
    (Typ.DECIMAL, 16, "1.50", Decimal("1.5")),
    (Typ.DECIMAL, 16, 3, Decimal(3)),
    (Typ.REAL, 8, Decimal("0.5"), 0.5),
    (Typ.BOOLEAN, 1, "false", False),
    (Typ.BOOLEAN, 1, 1, True),
    (Typ.DATE, 16, date(2024, 2, 29), datetime(2024, 2, 29)),
    (Typ.DATE, 16, "2024-02-29 01:02:03.5", datetime(2024, 2, 29, 1, 2, 3, 500_000)),
    (
        Typ.DATE,
        16,
        datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=3))),
        datetime(2024, 2, 28, 22),
    ),
    (Typ.BLOB, 2, Lob(b"ab"), b"ab"),
    (Typ.VARBYTE, 2, Lob(b"ab"), b"ab"),
    (Typ.NVARCHAR, 8, "漢字", "漢字"),
]


def one_column(typ: int, length: int) -> dict[str, Any]:
    columns = [
        {"name": "K", "typ": 2, "len": 4, "pkey": 1},
        {"name": "C", "typ": typ, "len": length},
    ]
    return {"tables": {3: "T"}, "dispatch_attrs": {"3": columns}}


@pytest.mark.parametrize(("typ", "length", "value", "stored"), VALUES)
def test_values_become_those_of_their_columns(
    typ: int, length: int, value: Any, stored: Value
) -> None:
    options = one_column(typ, length)
    made = writer(**options)
    rows = list(made.rows([Change(None, "T", ChangeOp.INSERT, None, None, {"K": 1, "C": value})]))
    (change,) = QueueReader(made.attrs, ReaderOptions(codec="eventlog-emulator-1")).read(
        rows, final=True
    )
    assert change.after == {"K": 1, "C": stored}
    assert type(change.after["C"]) is type(stored)


@pytest.mark.parametrize(
    ("typ", "length", "value", "error"),
    [
        (Typ.VARCHAR, 20, time(1, 2), NotExpressible),
        (Typ.DATE, 16, time(1, 2), NotExpressible),
        (Typ.VARCHAR, 20, ("a", "b"), NotExpressible),
        (Typ.VARCHAR, 20, b"a", NotExpressible),
        (Typ.VARBYTE, 20, "a", NotExpressible),
        (Typ.INTEGER, 4, "x", NotExpressible),
        (Typ.INTEGER, 4, 1.0, NotExpressible),
        (Typ.INTEGER, 4, Decimal("NaN"), NotExpressible),
        (Typ.INTEGER, 2, 40_000, RowEncodeError),
        (Typ.DECIMAL, 16, Decimal("1E21"), RowEncodeError),
        (Typ.DATE, 16, "soon", NotExpressible),
        (Typ.BOOLEAN, 1, "maybe", NotExpressible),
        (Typ.VARCHAR, 2, "abc", RowEncodeError),
    ],
)
def test_values_that_a_column_cannot_hold_are_refused(
    typ: int, length: int, value: Any, error: Any
) -> None:
    change = Change(None, "T", ChangeOp.INSERT, None, None, {"K": 1, "C": value})
    with refused(error, match="'C'"):
        written(change, **one_column(typ, length))


def test_truncated_times_are_counted_by_column() -> None:
    report = Report()
    change = Change(
        None, "T", ChangeOp.INSERT, None, None, {"K": 1, "C": datetime(2024, 1, 1, 0, 0, 0, 19_999)}
    )
    list(writer(report, **one_column(Typ.DATE, 16)).rows([change]))
    assert report.counters == {"truncated T.C": 1}


# --- descriptions ---------------------------------------------------------------------------------

CATALOG = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "thing",
            "kind": "table",
            "primary_key": ["b", "a"],
            "columns": [
                {"name": name, "type": kind}
                for name, kind in {
                    "a": "integer", "b": "varchar(10)", "c": "smallint", "d": "bigint",
                    "e": "decimal(9,2)", "f": "real", "g": "double", "h": "boolean", "i": "char(3)",
                    "j": "text", "k": "varbinary(16)", "l": "blob", "m": "date", "n": "timestamp",
                    "o": "timestamptz", "p": "uuid", "q": "decimal(9)",
                }.items()
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.promise("option linter.reader.catalog")
@pytest.mark.parametrize("catalog", [CATALOG, database_from_json(CATALOG)])
def test_tables_of_the_catalog_are_described(catalog: Any) -> None:
    made = writer(tables={}, dispatch_attrs={}, catalog=catalog)
    assert [(one.typ, one.length) for one in made.attrs[1].columns] == [
        (2, 4), (8, 40), (2, 2), (2, 8), (5, 16), (3, 4), (3, 8), (10, 1), (1, 12), (8, 4000), (9,
        16), (9, 4000), (4, 16), (4, 16), (4, 16), (1, 36), (5, 16),
    ]  # fmt: skip
    assert made.attrs[1].key == ("b", "a")


def test_catalog_tables_are_numbered_by_tables_and_next_to_those_described() -> None:
    assert sorted(writer(catalog=CATALOG).attrs) == [7, 8, 9, 10]
    assert sorted(writer(catalog=CATALOG, tables={**TABLES, 5: "app.thing"}).attrs) == [5, 7, 8, 9]


def test_a_column_of_times_cannot_be_described() -> None:
    table = {"name": "t", "kind": "table", "columns": [{"name": "at", "type": "time"}]}
    with pytest.raises(NotExpressible, match="'at'"):
        writer(catalog={"dialect": "postgresql", "schema": None, "tables": [table]})


def test_a_table_is_found_without_its_schema_where_its_name_is_unique() -> None:
    assert kinds(
        written(
            item(
                ChangeOp.INSERT,
            )._replace(schema=None)
        )
    ) == [2, 4]
    with refused("schema_missing", match=r"OTHER\.ITEM is not described"):
        written(item(ChangeOp.INSERT)._replace(schema="OTHER"))


@pytest.mark.promise("option linter.writer.codec")
@pytest.mark.parametrize(
    "options",
    [
        {"codec": "none"}, {"truncate": "skip"}, {"continuation_lengths": "both"}, {"complete": 1},
        {"destinations": []}, {"destinations": ["ABC"]}, {"destinations": 1},
        {"dispatch_attrs": []}, {"tables": []}, {"tables": {}},
        {"dispatch_attrs": {"7": [{"name": "A"}]}}, {"dispatch_attrs": {"7": [{"name": "A",
         "typ": 1, "len": 1, "size": 1}]}}, {"dispatch_attrs": {"x": []}},
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_configuration_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        writer(**options)
