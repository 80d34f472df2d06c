"""The format ``linter`` of the converter: files, directories, databases; and inputs that are
none.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared import examples, rows_of_objects

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, DatabaseError, FormatError, NotExpressible
from eventlog.linter.database import create_tables
from eventlog.linter.dispatch_tables import (
    ATTRS_COLUMNS,
    QUEUE_COLUMNS,
    DispatchRow,
    MissingColumn,
    column_values,
)
from eventlog.linter.format import FORMAT
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.model import Change, ChangeOp
from eventlog.sql.connect.connection import connect_any
from eventlog.testing.linter_emulator import ATTRS, DOCUMENT, ITEM, READING, Workload, emulate

EMULATOR = {"codec": "eventlog-emulator-1"}
WRITER: dict[str, Any] = {
    "tables": {7: "APP.ITEM", 8: "APP.READING", 9: "APP.DOCUMENT"},
    "dispatch_attrs": {
        table.tabnum: [
            {"name": one.name, "typ": one.typ, "pkey": one.pkey, "len": one.length}
            for one in table.columns
        ]
        for table in (ITEM, READING, DOCUMENT)
    },
}
STEPS = list(emulate(Workload(5, transactions=40)))
CHANGES = [change for step in STEPS for change in step.changes]
ROWS = [row for step in STEPS for row in step.rows]


def read(source: object, report: Report | None = None, **options: Any) -> list[Change]:
    return list(FORMAT.read(str(source), {**EMULATOR, **options}, report or Report()))


def write(
    target: object, changes: list[Change] = CHANGES, *, strict: bool = False, **options: Any
) -> Report:
    report = Report(strict=strict)
    FORMAT.write(iter(changes), str(target), {**WRITER, **options}, report)
    return report


def comparable(changes: list[Change]) -> list[Change]:
    return [change._replace(position=None, transaction_id=None, changed=None) for change in changes]


@pytest.mark.promise("option linter.writer.files", "format linter")
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_files_and_directories_are_written_and_read_back(suffix: str, tmp_path: Path) -> None:
    assert write(tmp_path / f"queue.{suffix}").written == len(CHANGES)
    write(tmp_path / "all", files=suffix)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        f"dispatch_attrs.{suffix}",
        f"dispatch_queue.{suffix}",
    ]
    report = Report()
    assert comparable(read(tmp_path / f"queue.{suffix}", report)) == comparable(CHANGES)
    assert report.read == len(CHANGES)
    assert read(tmp_path / "all") == read(tmp_path / f"queue.{suffix}")


def test_exports_of_one_queue_in_several_files_are_one_input(tmp_path: Path) -> None:
    write(tmp_path / "all")
    whole = read(tmp_path / "all")
    header, *lines = (tmp_path / "all" / "dispatch_queue.csv").read_text().splitlines(keepends=True)
    Random(1).shuffle(lines)
    (tmp_path / "all" / "dispatch_queue.csv").write_text(header + "".join(lines[:50]))
    (tmp_path / "all" / "b.CSV").write_text(header + "".join(lines[50:]))
    (tmp_path / "all" / "readme.txt").write_text("not an export")
    assert read(tmp_path / "all") == whole


@pytest.mark.promise("option linter.reader.dispatch_attrs")
def test_what_is_open_at_the_end_of_an_export_is_dropped_and_counted(tmp_path: Path) -> None:
    rows = [
        row for step in emulate(Workload(5, transactions=40, unfinished=True)) for row in step.rows
    ]
    lines = [dict(zip(QUEUE_COLUMNS, column_values(row), strict=True)) for row in rows]
    table = pyarrow.Table.from_pylist(lines)
    pyarrow.parquet.write_table(table, tmp_path / "q.parquet")
    report = Report()
    options = {"dispatch_attrs": WRITER["dispatch_attrs"], **EMULATOR}
    assert list(FORMAT.read(str(tmp_path / "q.parquet"), options, report))
    assert report.counters["open_transactions"] > 0


@pytest.mark.promise("option linter.reader.attrs")
def test_attrs_are_taken_from_the_file_next_to_the_queue_from_another_or_from_the_option(
    tmp_path: Path,
) -> None:
    write(tmp_path / "q.csv")
    whole = read(tmp_path / "q.csv")
    (tmp_path / "dispatch_attrs.csv").rename(tmp_path / "q.jsonl.txt")
    assert all(change.after is None for change in read(tmp_path / "q.csv", codec="none"))
    with pytest.raises(FormatError, match="not described by DISPATCH_ATTRS"):
        read(tmp_path / "q.csv")
    assert read(tmp_path / "q.csv", dispatch_attrs=WRITER["dispatch_attrs"]) == whole
    (tmp_path / "q.jsonl.txt").rename(tmp_path / "columns.csv")
    assert read(tmp_path / "q.csv", attrs=str(tmp_path / "columns.csv")) == whole


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    bad = [*CHANGES, Change("APP", "ITEM", ChangeOp.TRUNCATE)]
    write(tmp_path / "q.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(NotExpressible):
        write(tmp_path / "q.csv", bad, strict=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with pytest.raises(NotExpressible):
        write(url, bad, strict=True)
    assert read(url) == []


@pytest.mark.parametrize("url", ["postgresql://ann@h/db", "postgresql+psycopg://ann@h/db"])
def test_postgresql_is_spoken_to_through_psycopg(url: str) -> None:
    assert connect_any(url).driver == "psycopg"


def test_a_database_without_a_queue_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no table 'dispatch_attrs'"):
        read(f"sqlite:///{tmp_path / 'q.db'}")


def test_a_database_is_written_read_and_written_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    write(url)
    assert comparable(read(url, batch_rows=7)) == comparable(CHANGES)
    write(url)
    assert comparable(read(url)) == comparable(CHANGES + CHANGES)
    with pytest.raises(FormatError, match="already describes table 7 with other columns"):
        write(url, tables={7: "APP.ITEM"}, dispatch_attrs={7: [{"name": "ID", "typ": 2, "len": 8}]})


def test_names_that_attack_the_sql_are_names(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    options = {"queue_table": 'q"; DROP TABLE x; --', "attrs_table": "a'\"b c"}
    write(url, **options)
    assert comparable(read(url, **options)) == comparable(CHANGES)


def test_tables_are_found_in_any_case(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    write(url, queue_table="Dispatch_QUEUE")
    assert comparable(read(url)) == comparable(CHANGES)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("q.csv", "OPER_DATE,TYP\n000000000000,1\n", "column EXTDATA of DISPATCH_QUEUE is missing"),
        (
            "q.csv",
            ",".join(QUEUE_COLUMNS) + "\n1,2\n",
            "q.csv, line 2: 2 fields, but the first line names 16",
        ),
        ("q.csv", b"\xff\xfe", "q.csv, line 1: the text is not UTF-8"),
        ("q.jsonl", "{", "q.jsonl, line 1: not JSON"),
        ("q.jsonl", "[1]", "q.jsonl, line 1: a row must be a JSON object"),
        ("q.jsonl", "{}", "column OPER_DATE of DISPATCH_QUEUE is missing"),
        ("q.parquet", "PAR1", "q.parquet, after row 0: not Parquet"),
        ("q.xml", "<a/>", "is not a .csv, .jsonl, .parquet file"),
        ("none.csv", None, "cannot be read"),
    ],
)
def test_files_that_are_no_export_are_named(
    name: str, content: str | bytes | None, error: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FormatError, match=error):
        read(tmp_path / name)


def test_a_directory_without_exports_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="contains no"):
        read(tmp_path)
    with pytest.raises(FormatError, match="cannot be read"):
        read(tmp_path / "missing" / "q.csv")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"codecs": "none"}, "nearest known one is codec"),
        ({"order_by": "x"}, "order_by"),
        ({"batch_row": 1}, "not known"),
    ],
)
def test_options_that_are_not_known_are_refused(
    options: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=error):
        read(tmp_path, **options)
    with pytest.raises(ConfigError):
        write(tmp_path / "q.xml")


def test_urls_that_cannot_be_used_show_no_secret() -> None:
    with pytest.raises(ConfigError, match="nosuchdb") as caught:
        read("nosuchdb://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_attrs_without_a_column_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "q.csv")
    (tmp_path / "dispatch_attrs.csv").write_text("TABNUM_SRC,NAME\n7,ID\n")
    with pytest.raises(MissingColumn, match="column ATRNUM of DISPATCH_ATTRS"):
        read(tmp_path / "q.csv")


def test_created_tables_have_the_columns_of_the_manual() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        queue, attrs = create_tables(connection)
        assert tuple(column.name.upper() for column in queue.columns) == QUEUE_COLUMNS
        assert tuple(column.name.upper() for column in attrs.columns) == ATTRS_COLUMNS
    engine.dispose()


# --- fuzz: a clear error or a clean result, nothing else ------------------------------------------

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=12),
    st.text("0123456789abcdef", max_size=14), st.just([]), st.just({"a": 1}), st.sampled_from([0, 1,
    3400, 3401, -1]),
)  # fmt: skip


@st.composite
def damaged_queues(draw: st.DrawFn) -> list[dict[str, Any]]:
    start = draw(st.integers(0, len(ROWS) - 1))
    lines = [_line(row) for row in ROWS[start : start + draw(st.integers(1, 25))]]
    for _ in range(draw(st.integers(1, 4))):
        line = draw(st.sampled_from(lines))
        line[draw(st.sampled_from(QUEUE_COLUMNS))] = draw(JUNK)
    return draw(st.permutations(lines))


def _line(row: DispatchRow) -> dict[str, Any]:
    values = (value.hex() if isinstance(value, bytes) else value for value in column_values(row))
    return dict(zip(QUEUE_COLUMNS, values, strict=True))


def test_a_damaged_queue_gives_a_clear_error_or_clean_changes() -> None:
    outcomes: set[str] = set()

    @given(
        damaged_queues(),
        st.sampled_from(["fields", "prose"]),
        st.sampled_from(["first", "all"]),
        st.sampled_from(["none", "eventlog-emulator-1"]),
        st.sampled_from(["error", "raw"]),
        st.booleans(),
    )
    @example([_line(row) for row in ROWS], "fields", "all", "eventlog-emulator-1", "error", True)
    @settings(max_examples=examples(300), deadline=None)
    def read(
        lines: list[dict[str, Any]],
        typ_table: str,
        destinations: str,
        codec: str,
        on_row_error: str,
        final: bool,
    ) -> None:
        options = ReaderOptions(
            typ_table=typ_table, destinations=destinations, codec=codec, on_row_error=on_row_error
        )
        reader = QueueReader(ATTRS, options)
        try:
            for part in (lines[: len(lines) // 2], lines):
                for change in reader.read(rows_of_objects(part), final=final):
                    assert change.position is not None
                    outcomes.add("change")
        except FormatError:
            outcomes.add("error")

    read()
    assert outcomes == {"change", "error"}


@given(data=st.data(), suffix=st.sampled_from(["csv", "jsonl", "parquet"]))
@settings(max_examples=examples(60), deadline=None)
def test_a_damaged_file_gives_a_clear_error_or_clean_changes(
    data: st.DataObject, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"linter-{suffix}"
    if not directory.exists():
        write(directory, CHANGES[:12], files=suffix)
    path = directory / data.draw(
        st.sampled_from([f"dispatch_queue.{suffix}", f"dispatch_attrs.{suffix}"])
    )
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(damaged[:cut] if data.draw(st.booleans()) else damaged)
    try:
        read(directory)
    except FormatError:
        pass
    finally:
        path.write_bytes(whole)


def test_the_fuzzed_lines_are_read_when_they_are_whole() -> None:
    lines = json.loads(json.dumps([_line(row) for row in ROWS]))
    reader = QueueReader(ATTRS, ReaderOptions(**EMULATOR))
    assert list(reader.read(rows_of_objects(lines), final=True)) == CHANGES
    assert csv.field_size_limit() > 2 * 3400
