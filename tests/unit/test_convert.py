"""Converting from format to format: options, what goes wrong, the report (spec/change-model.md 4,
5.1).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from loss_formats import CATALOG
from shared import refused

from eventlog.changes import json_form as change_json
from eventlog.changes.format import PROBLEMS_KEPT, Format, NothingWritten, Report
from eventlog.conversion import by_reason, convert, read_map, read_options
from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.model import Change, ChangeOp
from eventlog.registry import FORMATS, format_named, names

EXAMPLE = (
    '{"schema":"app","table":"item","op":"UPDATE","key":[["id",7]],'
    '"before":{"id":7,"name":"nut","price":"1.50"},"after":{"id":7,"name":"nut","price":"1.75"},"changed":["price"],'
    '"position":"20240510120000000000000000000000012","transaction_id":"000000000000000000000000000000A1",'
    '"event_number":1,"last_in_transaction":true,"commit_time":"2024-05-10T12:00:00Z","user":null,"extras":{}}'
)
ITEM = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "name", "type": "varchar(20)"},
                {"name": "price", "type": "decimal(9,2)"},
            ],
            "primary_key": ["id"],
        }
    ],
}


def line(op: str = "INSERT", **fields: Any) -> str:
    """A change of ``item`` as a line."""
    row = {"id": 1, "name": "nut"}
    images = {"INSERT": {"after": row}, "DELETE": {"before": row}}.get(op, {})
    key = None if op == "TRUNCATE" else [["id", 1]]
    return json.dumps({"schema": "app", "table": "item", "op": op, "key": key, **images, **fields})


def converted(
    tmp_path: Path, lines: str, target_format: str, target: str, map: Any = None, **options: Any
) -> tuple[Report, Path]:
    source = tmp_path / "in.jsonl"
    source.write_text(lines)
    out = tmp_path / target
    return convert("jsonl", target_format, str(source), str(out), map, **options), out


# The worked example of spec/change-model.md 4


def test_the_worked_example_as_a_log_row(tmp_path: Path) -> None:
    _, out = converted(tmp_path, EXAMPLE, "eventlog", "log.jsonl", {"catalog": ITEM})
    assert json.loads(out.read_text()) == {
        "record_id": 1,
        "status": "N",
        "event_type": 2,
        "event_time": "2024-05-10 12:00:00",
        "perpetrator": None,
        "table_name": "item",
        "table_key": "id=7",
        "column_name": "price",
        "old_value": "1.50",
        "new_value": "1.75",
    }


@pytest.mark.promise("option xds.writer.product_version")
def test_the_worked_example_as_a_document(tmp_path: Path) -> None:
    _, out = converted(
        tmp_path, EXAMPLE, "xds", "out.xmll", {"writer": {"product_version": "test"}}
    )
    assert out.read_text() == (
        '<?xml version="1.0" encoding="UTF-8"?><nds dtdversion="2.0"><source><product '
        'version="test">eventlog</product>'
        '</source><input><modify class-name="item" event-id="20240510120000000000000000000000012">'
        "<association>id=7,table=item,schema=app</association>"
        '<modify-attr attr-name="price"><remove-value><value '
        'type="string">1.50</value></remove-value>'
        "<add-value><value "
        'type="string">1.75</value></add-value></modify-attr></modify></input></nds>\n'
    )


def test_the_worked_example_as_itself(tmp_path: Path) -> None:
    report, out = converted(tmp_path, EXAMPLE, "jsonl", "out.jsonl", {"catalog": ITEM})
    assert out.read_text() == EXAMPLE + "\n"
    assert (report.read, report.written, report.counters) == (1, 1, {})


# Formats and options


def test_formats_are_known_by_their_names() -> None:
    assert list(names(FORMATS)) == [
        "xds",
        "eventlog",
        "qlik-change-table",
        "qlik-messages",
        "gbase",
        "linter",
        "cloudevents",
        "debezium",
        "jsonl",
    ]
    with pytest.raises(ConfigError, match="the nearest known one is gbase"):
        format_named("gbas")
    with pytest.raises(ConfigError, match="format 'nonsense' is not known; the known ones are "):
        format_named("nonsense")


@pytest.mark.parametrize("name", ["xds", "eventlog", "jsonl"])
def test_a_format_bears_the_name_it_is_known_by(name: str) -> None:
    found = format_named(name)
    assert isinstance(found, Format)
    assert found.name == name


@pytest.mark.parametrize(
    ("map", "reader", "writer"),
    [
        ({}, {}, {}),
        ({"labels": {"1": "t"}}, {"labels": {"1": "t"}}, {}),
        ({"reader": {"a": 1}}, {"a": 1}, {}),
        ({"reader": {"a": 1}, "writer": {"b": 2}}, {"a": 1}, {"b": 2}),
        ({"catalog": ITEM, "a": 1}, {"catalog": ITEM, "a": 1}, {"catalog": ITEM}),
        (
            {"catalog": ITEM, "writer": {"catalog": CATALOG}},
            {"catalog": ITEM},
            {"catalog": CATALOG},
        ),
    ],
)
def test_a_map_holds_both_sides_or_the_options_of_the_reader(
    map: Any, reader: Any, writer: Any
) -> None:
    assert read_options(map) == {"reader": reader, "writer": writer}


def test_a_catalogue_may_be_a_file_perhaps_that_of_a_vector(tmp_path: Path) -> None:
    for name, content in (("own.json", ITEM), ("vector.json", {"database": ITEM, "log": {}})):
        (tmp_path / name).write_text(json.dumps(content))
        assert read_options({"catalog": str(tmp_path / name)})["reader"]["catalog"] == ITEM


@pytest.mark.parametrize(
    ("name", "content"),
    [("map.toml", '[reader]\nschema = "app"\n'), ("map.json", '{"reader": {"schema": "app"}}')],
)
def test_a_map_file_is_toml_or_json(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_map(tmp_path / name) == {"reader": {"schema": "app"}}


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("map.toml", "{", "is not TOML"),
        ("map.json", "schema = 1", "is not JSON"),
        ("map.json", "[]", "not an object of options"),
    ],
)
def test_a_map_file_that_is_none_is_named(
    tmp_path: Path, name: str, content: str, part: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=part):
        read_map(tmp_path / name)


@pytest.mark.parametrize(
    ("format", "map", "part"),
    [
        ("xds", {"reader": {}, "writter": {}}, "did you mean writer"),
        ("xds", {"reader": {}, "labels": {}}, "move it into reader or writer"),
        ("xds", {"reader": [], "writer": {}}, "not an object of options"),
        (
            "xds",
            {"catalogue": ITEM},
            "the jsonl reader: catalogue is not known; the nearest known one is catalog",
        ),
        ("xds", {"writer": {"time_sintax": "java"}}, "the xds writer: time_sintax is not known"),
        ("xds", {"writer": {"time_syntax": "iso"}}, "time_syntax = .iso. is not allowed"),
        ("xds", {"writer": {"char_padding": "cut"}}, "char_padding = .cut. is not allowed"),
        ("xds", {"writer": {"batch_size": 129}}, r"legal: 1\.\.128"),
        ("xds", {"writer": {"file_layout": "file"}}, r"legal: lines \| documents"),
        ("xds", {"writer": {"insert_query_back": "both"}}, r"legal: modify \| add"),
        ("xds", {"writer": {"indent": "2"}}, "the xds writer: indent = .2. is not allowed"),
        ("eventlog", {"writer": {"time_zone": "Mars"}}, "time_zone = .Mars. is not allowed"),
        ("xds", {"writer": {"existing_keys": ["item"]}}, "existing_keys must map each table"),
        ("xds", {"writer": {"existing_keys": {"item": [1]}}}, "must be an object of its columns"),
        ("eventlog", {"writer": {"row_style": "fields"}}, 'row_style = "fields" is not allowed'),
        ("eventlog", {"writer": {"file_format": "xlsx"}}, 'file_format = "xlsx" is not allowed'),
        (
            "jsonl",
            {"catalog": {"dialect": "x", "schema": None, "table": []}},
            "the catalog: table is not known; the nearest known one is tables",
        ),
    ],
)
def test_options_that_are_wrong_are_refused_with_what_is_right(
    tmp_path: Path, format: str, map: Any, part: str
) -> None:
    with pytest.raises(ConfigError, match=part):
        converted(tmp_path, line(), format, "out.jsonl", map)
    assert not (tmp_path / "out.jsonl").exists()


def test_values_go_over_by_the_types_of_the_catalogue(tmp_path: Path) -> None:
    lines = line(after={"id": 1, "price": "1.50", "name": "x"})
    _, out = converted(tmp_path, lines, "xds", "out.xmll", {"catalog": ITEM})
    assert '<add-attr attr-name="price"><value type="string">1.50</value>' in out.read_text()
    with pytest.raises(NothingWritten) as without:
        converted(tmp_path, line("DELETE", key=None), "eventlog", "log.csv")
    assert without.value.report.counters == {"not_expressible": 1}
    with_catalog, out = converted(
        tmp_path, line("DELETE", key=None), "eventlog", "log.csv", {"catalog": ITEM}
    )
    assert with_catalog.written == 1
    assert '"id=1"' in out.read_text()


def test_a_value_that_is_not_of_its_column_is_passed_over(tmp_path: Path) -> None:
    lines = line(after={"id": "seven"}) + "\n" + line(after={"id": 1})
    report, _ = converted(tmp_path, lines, "xds", "out.xmll", {"catalog": ITEM})
    assert (report.counters, report.written) == ({"invalid_format": 1}, 1)
    assert "line 1: INSERT of 'item' at None: 'seven' is not an integer" in report.problems[0]


@pytest.mark.parametrize(
    ("format", "target"),
    [
        ("xds", "o.xmll"),
        ("eventlog", "o.csv"),
        ("jsonl", "o.jsonl"),
        ("qlik-change-table", "o"),
        ("qlik-messages", "o.jsonl"),
        ("gbase", "o.cdc"),
        ("linter", "o.csv"),
        ("debezium", "o.jsonl"),
    ],
)
def test_every_format_takes_the_catalogue_on_both_sides(
    tmp_path: Path, format: str, target: str
) -> None:
    report, out = converted(tmp_path, EXAMPLE, format, target, {"catalog": ITEM})
    assert (report.read, report.written) == (1, 1)
    own = {"reader": {"catalog": ITEM}}
    if format == "gbase":
        own["reader"]["labels"] = {"1": "shop:app.item"}
    if format == "linter":
        own["reader"]["codec"] = "eventlog-emulator-1"
    back = convert(format, "jsonl", str(out), str(tmp_path / "back.jsonl"), own)
    change = change_json.loads((tmp_path / "back.jsonl").read_text())
    assert back.written == 1
    assert (change.op, change.key) == (ChangeOp.UPDATE, (("id", 7),))
    assert (change.after or {})["price"] == "1.75"


# What goes wrong


BAD = "\n".join(
    [line(), "nonsense", line("TRUNCATE"), line(after={"id": 1, "name": "bell \a"}), line("DELETE")]
)


def test_what_cannot_be_read_or_written_is_passed_over_and_counted(tmp_path: Path) -> None:
    report, out = converted(tmp_path, BAD, "xds", "out.xmll", report=True)
    assert (report.read, report.written) == (4, 2)
    assert report.counters == {
        "invalid_format": 1,
        "not_expressible": 1,
        "not_expressible app.item.name": 1,
    }
    assert out.read_text().count("<association>") == 2
    for part, problem in zip(["line 2", "TRUNCATE", "U+0007"], report.problems, strict=True):
        assert part in problem


@pytest.mark.promise("code error-not_expressible")
def test_without_report_counters_of_columns_are_added_up(tmp_path: Path) -> None:
    report, _ = converted(tmp_path, BAD, "xds", "out.xmll")
    assert report.counters == {"invalid_format": 1, "not_expressible": 2}
    assert by_reason({"truncated a.b": 2, "truncated a.c": 1, "other": 1}) == {
        "truncated": 3,
        "other": 1,
    }


@pytest.mark.parametrize(
    ("lines", "error", "part"),
    [
        (line() + "\nnonsense", FormatError, "in.jsonl, line 2: the line is not JSON"),
        (line() + "\n" + line("TRUNCATE"), NotExpressible, "existing_keys"),
        (
            line() + "\n" + line(after=None, extras={"query_back": "row"}),
            "needs_query_back",
            "has no row",
        ),
    ],
)
def test_strict_stops_at_the_first_and_leaves_nothing(
    tmp_path: Path, lines: str, error: Any, part: str
) -> None:
    (tmp_path / "out.xmll").write_text("what was there")
    with refused(error, match=part):
        converted(tmp_path, lines, "xds", "out.xmll", strict=True)
    assert (tmp_path / "out.xmll").read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.xmll"]


def test_a_report_keeps_the_first_problems_and_counts_all() -> None:
    report = Report()
    for _ in range(PROBLEMS_KEPT + 5):
        report.skip(NotExpressible("too wide"))
    assert report.counters == {"not_expressible": PROBLEMS_KEPT + 5}
    assert len(report.problems) == PROBLEMS_KEPT


@pytest.mark.promise("option xds.writer.file_layout")
def test_a_directory_of_documents_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    lines = "\n".join(line(key=[["id", number]]) for number in range(3))
    map = {"writer": {"file_layout": "documents", "batch_size": 2, "indent": 2}}
    _, out = converted(tmp_path, lines, "xds", "documents", map)
    assert [path.name for path in sorted(out.iterdir())] == ["000000001.xml", "000000002.xml"]
    back = list(format_named("xds").read(str(out), {}, Report(strict=True)))
    assert [change.key for change in back] == [(("id", str(number)),) for number in range(3)]
    with pytest.raises(ConfigError, match="not an empty directory"):
        converted(tmp_path, lines, "xds", "documents", map)
    with pytest.raises(FormatError):
        converted(tmp_path, "nonsense", "xds", "more", map, strict=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents", "in.jsonl"]


def test_progress_follows_the_changes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    lines = "\n".join([line(), line()])
    converted(
        tmp_path,
        lines,
        "jsonl",
        "o.jsonl",
        progress=lambda report: seen.append((report.read, report.written)),
    )
    assert seen == [(1, 1), (2, 2)]


# TRUNCATE, key changes, times


@pytest.mark.promise("option xds.writer.existing_keys")
@pytest.mark.parametrize(
    "keys", [{"item": [{"id": 1}, {"id": 2}]}, lambda table: [(("id", 1),), (("id", 2),)]]
)
def test_a_truncate_becomes_deletes_of_the_keys_that_are_given(tmp_path: Path, keys: Any) -> None:
    map = {"writer": {"existing_keys": keys}}
    _, out = converted(tmp_path, line("TRUNCATE", position="7"), "xds", "out.xmll", map)
    back = list(format_named("xds").read(str(out), {}, Report(strict=True)))
    assert [(change.op, change.position) for change in back] == [
        (ChangeOp.DELETE, "7"),
        (ChangeOp.DELETE, "7.2"),
    ]


def test_changes_without_a_position_are_named_by_their_number(tmp_path: Path) -> None:
    _, out = converted(tmp_path, "\n".join([line(), line("DELETE")]), "xds", "out.xmll")
    assert [f'event-id="{number}"' in out.read_text() for number in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_fractions_that_the_target_does_not_hold_are_named_by_column(tmp_path: Path) -> None:
    catalog = {**ITEM, "tables": [{**ITEM["tables"][0], "columns": [  # type: ignore[dict-item]
        {"name": "id", "type": "integer"}, {"name": "made", "type": "timestamp"}]}]}  # fmt: skip
    lines = line(after={"id": 1, "made": "2024-05-10T12:00:00.5"})
    report, _ = converted(tmp_path, lines, "xds", "out.xmll", {"catalog": catalog}, report=True)
    assert report.counters == {"truncated app.item.made": 1}


def test_tables_of_another_schema_do_not_fit_into_one_log(tmp_path: Path) -> None:
    report, _ = converted(
        tmp_path, "\n".join([line(), line(schema="hr"), line(schema=None)]), "eventlog", "log.csv"
    )
    assert (report.written, report.counters) == (2, {"not_expressible": 1})


def test_jsonl_keeps_what_no_other_format_has(tmp_path: Path) -> None:
    change = Change(
        None, "t", ChangeOp.DELETE, extras={"part1": b"\x01", "types": [1, 2], "os_user": None}
    )
    _, out = converted(tmp_path, change_json.dumps(change), "jsonl", "out.jsonl")
    assert change_json.loads(out.read_text()).extras == {
        "part1": b"\x01",
        "types": [1, 2],
        "os_user": None,
    }
