"""Event log rows in files: where their columns stand, what is NULL, what is not a row
(spec/event-log.md 1).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_formats import CATALOG
from samples import row
from shared import examples

from eventlog.changes.format import Report
from eventlog.core.rows.fold import AT_A_TIME as WINDOW
from eventlog.errors import ConfigError, FormatError, RowError
from eventlog.files import tabular
from eventlog.log.storage import LogReaderOptions, read_rows, write_rows
from eventlog.model import LOG_COLUMNS, Change, ChangeOp, LogRow
from eventlog.registry import format_named

READ = format_named("eventlog").read


LIVE = """
CREATE TABLE eventlog (
    record_id integer PRIMARY KEY, status char(1), event_type integer, event_time timestamp, perpetrator text,
    table_name text, table_key text, column_name text, old_value text, new_value text
);
CREATE TABLE eventlog_error (record_id bigint, error_time timestamp, code text, message text, consumer text,
    event_id text);
CREATE TABLE eventlog_inflight (entry_no bigint, owner text, kind text, started timestamp, content text);
CREATE TABLE eventlog_state (entry_no bigint, owner text, kind text, started timestamp, content text);
CREATE TABLE eventlog_epoch (epoch text, server text, raised timestamp, removed bigint);
"""


def changes(path: Path | str, report: Report | None = None, **options: Any) -> list[Change]:
    return list(READ(str(path), options, report or Report(strict=True)))


def log_lines(*rows: LogRow) -> str:
    return "".join(json.dumps(one._asdict()) + "\n" for one in rows)


def rows_of(path: Path, **options: Any) -> list[LogRow]:
    def refuse(error: FormatError) -> None:
        raise error

    return list(read_rows(str(path), LogReaderOptions(**options), refuse))


TEXTS = st.none() | st.text(st.characters(codec="utf-8"))
ROWS = st.lists(
    st.builds(
        LogRow,
        st.integers(1, 2**62),
        st.sampled_from("NSWEFn"),
        st.none() | st.integers(0, 9),
        TEXTS,
        TEXTS,
        TEXTS,
        TEXTS,
        TEXTS,
        TEXTS,
        TEXTS,
        st.none(),
    ),
    max_size=4,
)


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet"])
def test_rows_come_back_as_they_were_written(file_format: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{file_format}"

    @settings(max_examples=examples(50), deadline=None)
    @given(ROWS)
    def keep(rows: Sequence[LogRow]) -> None:
        write_rows(rows, str(path), file_format)
        assert rows_of(path) == rows

    keep()


CSV = "record_id,status,event_type,event_time,perpetrator,table_name,table_key,column_name,old_value,new_value"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('1,N,2,2024-05-10 12:00:00,,item,id=1,name,,""\n', (None, None, "")),
        ('1,N,2,,"",item,"id=""a,b""",name,"x\r\ny","NULL"\r\n', ("", "x\r\ny", "NULL")),
        ("1,N,2,,ann,item,id=1,name, a ,b", ("ann", " a ", "b")),
    ],
)
def test_csv_distinguishes_null_from_the_empty_text(
    tmp_path: Path, text: str, values: tuple[str | None, ...]
) -> None:
    (tmp_path / "log.csv").write_bytes(f"{CSV}\r\n{text}".encode("utf-8-sig"))
    (found,) = rows_of(tmp_path / "log.csv")
    assert (found.perpetrator, found.old_value, found.new_value) == values


@pytest.mark.promise("option eventlog.reader.column_map")
@pytest.mark.parametrize(
    ("head", "options"),
    [
        (
            "TABLE_KEY,RECORD_ID,Status,event_type,event_time,perpetrator,table_name,column_name,old_value,new_value,x",
            {},
        ),
        ("rid,tk,st,et,tm,pp,tn,cn,ov,nv,x", {"layout": "3.5"}),
        (
            "tk,rid,st,et,tm,pp,tn,cn,ov,nv,x",
            {
                "column_map": dict(
                    zip(
                        LOG_COLUMNS,
                        ["RID", "st", "et", "tm", "pp", "tn", "tk", "cn", "ov", "nv"],
                        strict=True,
                    )
                )
            },
        ),
    ],
)
def test_columns_are_found_by_name_by_map_or_by_position(
    tmp_path: Path, head: str, options: Any
) -> None:
    first = "1,id=1" if options.get("layout") else "id=1,1"
    (tmp_path / "log.csv").write_text(f"{head}\n{first},N,4,2024-05-10,ann,item,,,,more\n")
    assert rows_of(tmp_path / "log.csv", **options) == [
        LogRow(1, "N", 4, "2024-05-10", "ann", "item", "id=1", None, None, None)
    ]


@pytest.mark.parametrize(
    ("head", "options", "part"),
    [
        ("a,b", {}, "too few"),
        ("a,b,c,d,e,f,g,h,i,j", {"layout": "4"}, 'layout = "4" is not allowed'),
        (
            CSV,
            {"column_map": {"record_id": "rid"}},
            "column_map gives no column of .* for record_id",
        ),
    ],
)
def test_columns_that_are_not_there_are_named(
    tmp_path: Path, head: str, options: Any, part: str
) -> None:
    (tmp_path / "log.csv").write_text(f"{head}\n{','.join('x' * len(head.split(',')))}\n")
    with pytest.raises(ConfigError, match=part):
        rows_of(tmp_path / "log.csv", **options)


def test_parquet_columns_may_have_the_types_of_the_database(tmp_path: Path) -> None:
    moment = datetime(2024, 5, 10, 12, 0, 0, 500_000)
    values = [5, "N   ", 4, moment, None, "item", "id=1", None, None, None]
    types = [pa.decimal128(38, 0), pa.string(), pa.int32(), pa.timestamp("us"), *[pa.string()] * 6]
    arrays = [pa.array([value], type=kind) for value, kind in zip(values, types, strict=True)]
    pq.write_table(pa.table(dict(zip(LOG_COLUMNS, arrays, strict=True))), tmp_path / "log.parquet")
    (change,) = changes(tmp_path / "log.parquet", schema="app")
    assert (change.position, change.key) == ("5", (("id", "1"),))
    assert change.commit_time is not None
    assert change.commit_time.isoformat() == "2024-05-10T12:00:00.500000+00:00"


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "part-2.jsonl").write_text(log_lines(row(2, 4, "idu=2")))
    (tmp_path / "part-1.csv").write_text(f"{CSV}\n1,N,4,,,usr,idu=1,,,\n")
    (tmp_path / "_SUCCESS").write_text("")
    assert [change.position for change in changes(tmp_path)] == ["1", "2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="contains no"):
        changes(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("log.jsonl", "{", "line 1: not JSON"),
        ("log.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("log.jsonl", "7", "a row must be a JSON object"),
        ("log.jsonl", '{"record_id": null, "event_type": 1}', "line 1: it has no record_id"),
        ("log.jsonl", '{"record_id": "x", "event_type": 1}', "line 1: record_id is not a number"),
        (
            "log.jsonl",
            '{"record_id": 1, "event_type": 1, "status": "N", "table_key": {}}',
            "line 1: {} is not text",
        ),
        ("log.csv", f"{CSV}\n1,N", "line 2: 2 fields, but the first line names 10"),
        ("log.csv", f'{CSV}\n1,N"x",4,,,,,,,""', "a quote"),
        ("log.csv", f'{CSV}\n1,"N', "line 2: a quoted field has no end"),
        ("log.parquet", "PAR0", "not Parquet"),
        ("log.csv", b"\xff\xfe", "not UTF-8"),
        ("log.txt", "", "does not show its format"),
    ],
)
def test_what_is_no_row_or_no_file_is_named(
    tmp_path: Path, name: str, content: str | bytes, part: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises((FormatError, ConfigError)) as caught:
        rows_of(path)
    assert part in str(caught.value)


def test_a_quote_that_is_not_closed_does_not_take_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f'{CSV}\n1,"N\n' + "x" * 2000)
    monkeypatch.setattr(tabular, "LONGEST", 1000)
    with pytest.raises(
        FormatError,
        match=r"log.csv, line 2: longer than 1000 characters; check whether a quote is not closed",
    ):
        rows_of(path)


def test_text_that_we_write_we_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [LogRow(1, "N", 1, None, "\ud800", "item", "id=ж", "a", None, 'x"\r\ny')]
    write_rows(rows, str(path), "csv")
    assert rows_of(path) == rows


@pytest.mark.promise(
    "code error-bad_event_type",
    "code error-bad_table_key",
    "code error-unknown_table",
)
def test_invalid_rows_are_passed_over_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = {"table": "item", "key": "id=1+code=x"}
    path.write_text(
        log_lines(
            row(1, 9, **good),
            row(2, 2, column="price", old="1", new="dear", **good),
            row(3, 2, column="nothing", **good),
            row(4, 4, **good),
            row(5, 4, table="item", key="id=1"),
            row(6, 4, table="thing"),
        )
        + "nonsense\n"
    )
    report = Report()
    assert [change.position for change in changes(path, report, catalog=CATALOG)] == ["4"]
    assert report.counters == {
        "bad_event_type": 1,
        "bad_value": 1,
        "unknown_column": 1,
        "bad_table_key": 1,
        "unknown_table": 1,
        "invalid_format": 1,
    }
    assert any(
        "log.jsonl, record_id 2: 'dear' is not a decimal number" in problem
        for problem in report.problems
    )
    path.write_text(log_lines(row(1, 9, **good)))
    with pytest.raises(RowError, match=r"log\.jsonl, record_id 1: event_type is 9"):
        changes(path, catalog=CATALOG)


def test_statuses_and_loopback_decide_which_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        log_lines(
            row(1, 4, status="N  "),
            row(2, 4, status="S"),
            row(3, 4, status="n"),
            row(4, 4, perpetrator="eventlog"),
        )
    )
    report = Report()
    assert [change.position for change in changes(path, report, driver_user="eventlog")] == [
        "1",
        "2",
    ]
    assert report.counters == {"rows_of_reserved_status": 1, "rows_loopback": 1}
    assert [change.position for change in changes(path, status="N")] == ["1", "4"]
    with pytest.raises(ConfigError, match=r"status = .n. is not allowed; legal: letters of NSWEF"):
        changes(path, status="n")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tables": "usr"}, "tables = .usr. is not allowed; legal: a list of texts"),
        (
            {"sort": "yes"},
            r"the eventlog reader: sort = .yes. is not allowed; legal: true \| false",
        ),
        ({"time_zone": "Mars/Olympus"}, "time_zone = .Mars/Olympus. is not allowed"),
        ({"catalog": "nowhere.json"}, "nowhere.json"),
        ({"catalog": {"dialect": "x", "tables": []}, "tables": ["usr"]}, "no table or view 'usr'"),
    ],
)
def test_options_that_are_wrong_are_refused(tmp_path: Path, options: Any, part: str) -> None:
    (tmp_path / "log.jsonl").write_text(log_lines(row(1, 4)))
    with pytest.raises((ConfigError, OSError), match=part):
        changes(tmp_path / "log.jsonl", **options)


@pytest.mark.promise("option eventlog.reader.sort")
def test_rows_out_of_order_are_refused_or_sorted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(log_lines(row(2, 4), row(1, 4, "idu=2")))
    with pytest.raises(FormatError, match=r"log\.jsonl: record_id 1 comes after record_id 2"):
        changes(path)
    assert [change.position for change in changes(path, sort=True)] == ["1", "2"]


def test_a_record_id_that_is_none_or_stands_twice_costs_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        log_lines(
            row(1, 4), row(1, 4, "idu=2"), row(-1, 4, "idu=3"), row(2**63, 4), row(2, 4, "idu=4")
        )
    )
    report = Report()
    assert [change.position for change in changes(path, report)] == ["1", "2"]
    assert report.counters == {"invalid_format": 3}
    assert "record_id 1 is repeated" in report.problems[0]
    assert "record_id '-1' is not a positive integer of at most 8 bytes" in report.problems[1]


@pytest.mark.parametrize(
    "bad",
    [
        row(2, 4, "i\ud800=1", table="odd"),
        row(2, 2, "idu=1", "\ud800", "a", "b"),
        row(2, 4, "idu=1", table="\ud800"),
    ],
    ids=["key", "column", "table"],
)
def test_a_name_that_no_document_can_carry_costs_its_row_alone(tmp_path: Path, bad: LogRow) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(log_lines(row(1, 4), bad, row(3, 4, "idu=3")))
    report = Report()
    assert [change.position for change in changes(path, report)] == ["1", "3"]
    assert sum(report.counters.values()) == 1


@pytest.mark.parametrize("target", ["log.parquet", "log.csv", "log.jsonl", "sqlite"])
def test_half_a_surrogate_pair_is_passed_over_since_no_reader_of_a_log_takes_it(
    tmp_path: Path, target: str
) -> None:
    good = Change("app", "item", ChangeOp.DELETE, (("id", 1), ("code", "a")), user="scott")
    bad = good._replace(user="\ud800")
    place = str(tmp_path / target)
    if target == "sqlite":
        place = f"sqlite:///{tmp_path / 'log.db'}"
        with closing(sqlite3.connect(tmp_path / "log.db")) as made, made:
            made.executescript(LIVE)
    report = Report()
    format_named("eventlog").write([bad, good], place, {"catalog": CATALOG}, report)
    assert report.counters == {"not_expressible": 1}
    assert "perpetrator of a row of 'item' contains an unpaired surrogate" in report.problems[0]
    assert [change.user for change in changes(place, catalog=CATALOG)] == ["scott"]


@pytest.mark.parametrize("target", ["log.parquet", "log.csv", "log.jsonl", "sqlite"])
def test_characters_that_only_xml_lacks_go_into_a_log_and_come_back(
    tmp_path: Path, target: str
) -> None:
    key, text = (("id", 1), ("code", "\x01\ufffe")), "a\0b\x01c\ufffed\uffffe"
    change = Change("app", "item", ChangeOp.INSERT, key, None, {**dict(key), "name": text})
    place = str(tmp_path / target)
    if target == "sqlite":
        place = f"sqlite:///{tmp_path / 'log.db'}"
        with closing(sqlite3.connect(tmp_path / "log.db")) as made, made:
            made.executescript(LIVE)
    report = Report(strict=True)
    format_named("eventlog").write([change], place, {"catalog": CATALOG}, report)
    (read,) = changes(place, report, catalog=CATALOG)
    assert (read.key, read.after) == (change.key, change.after)
    assert not report.counters


def test_windows_do_not_change_the_groups(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    size = WINDOW + 5
    # The object of the rows around the end of the first window is changed in both.
    rows = [row(number, 4, f"idu={number}") for number in range(1, size + 1)]
    rows[WINDOW - 3] = row(WINDOW - 2, 2, "idu=0", "fname", "a", "b")
    rows[WINDOW + 2] = row(WINDOW + 3, 2, "idu=0", "fname", "b", "c")
    write_rows(rows, str(path), "csv")
    found = changes(path)
    assert len(found) == size - 1
    folded = found[WINDOW - 3]
    assert (folded.position, folded.after) == (str(WINDOW - 2), {"idu": "0", "fname": "c"})
    assert (folded.before or {})["fname"] == "a"


def test_without_a_catalogue_tables_are_what_the_rows_name(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        log_lines(
            row(1, 2, "b=2+a=1", "fname", "x", "y"),
            row(2, 2, "a=1+b=2", "FNAME", "y", "z"),
            row(3, 2, "a=1+b=2", "usr_phone.phoneno", None, "5"),
            row(4, 1, "broken", "fname"),
            row(5, 4, "a=7", table="other"),
        )
        + "nonsense\n"
    )
    report = Report()
    usr, other = changes(path, report, schema="app")
    assert usr.key == (("b", "2"), ("a", "1"))
    assert usr.after == {"b": "2", "a": "1", "fname": "z", "usr_phone.phoneno": ("5",)}
    assert (other.schema, other.table, other.before) == ("app", "other", {"a": "7"})
    assert report.counters == {"bad_table_key": 1, "invalid_format": 1}


def test_a_log_keeps_the_fraction_of_a_time_of_day(tmp_path: Path) -> None:
    source = tmp_path / "log.jsonl"
    columns = [{"name": "id", "type": "integer"}, {"name": "at", "type": "time"}]
    item = {"name": "item", "kind": "table", "columns": columns, "primary_key": ["id"]}
    rows = [LogRow(1, "N", 2, None, None, "item", "id=1", "at", "10:00:00.25", "10:00:00.5")]
    source.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    report = Report()
    (change,) = format_named("eventlog").read(
        str(source),
        {"catalog": {"dialect": "postgresql", "schema": None, "tables": [item]}},
        report,
    )
    assert change.before == {"id": 1, "at": time(10, 0, 0, 250000)}
    assert change.after == {"id": 1, "at": time(10, 0, 0, 500000)}
    assert not report.counters
