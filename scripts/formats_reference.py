"""The generated parts of the pages on formats (scripts/reference.py): one change in every format,
types and their encodings, the names of types in a catalog, what each conversion loses, and the
tables of a followed source.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import date, datetime, time
from decimal import Decimal
from io import StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any, Final

from eventlog import cli, convert
from eventlog.cloudevents.values import JsonEncoding, text_converter
from eventlog.core.catalog import Column, Table
from eventlog.core.values import TYPE_NAMES, Kind, ValueOptions, converter, parse_type, xds_type
from eventlog.core.values.json_bytes import json_bytes
from eventlog.core.values.typed_values import value_reader
from eventlog.debezium.fields import field_of
from eventlog.errors import EventlogError
from eventlog.gbase import records
from eventlog.gbase.layout import parse_type as gbase_type
from eventlog.gbase.values import codec
from eventlog.linter.codec import Typ
from eventlog.model import Row, Value
from eventlog.publisher.stream.position import position_ddl
from eventlog.qlik.columns import CLASSES, QlikColumn, columns_of
from eventlog.qlik.messages.message_tables import MessageTable, WriteOptions, data_schema
from eventlog.qlik.values import json_writer

ROOT: Final = Path(__file__).resolve().parent.parent
_WIDTH: Final = 100

# --- one change in every format -------------------------------------------------------------------

_CATALOG: Final = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "primary_key": ["id"],
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "name", "type": "varchar(20)"},
                {"name": "price", "type": "decimal(9,2)"},
            ],
        }
    ],
}
_NUT: Final = {"id": 7, "name": "nut", "price": "1.50"}
_DEARER: Final = {**_NUT, "price": "1.75"}
_MOVED: Final = {**_DEARER, "id": 8}
_CHANGES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "insert": (
        "INSERT INTO item VALUES (7, 'nut', 1.50)",
        {"op": "INSERT", "key": [["id", 7]], "after": _NUT},
    ),
    "update": (
        "UPDATE item SET price = 1.75 WHERE id = 7",
        {
            "op": "UPDATE",
            "key": [["id", 7]],
            "before": _NUT,
            "after": _DEARER,
            "changed": ["price"],
        },
    ),
    "new_key": (
        "UPDATE item SET id = 8 WHERE id = 7",
        {
            "op": "UPDATE",
            "key": [["id", 8]],
            "before": _DEARER,
            "after": _MOVED,
            "changed": ["id"],
        },
    ),
    "delete": (
        "DELETE FROM item WHERE id = 8",
        {"op": "DELETE", "key": [["id", 8]], "before": _MOVED},
    ),
}
"""By name: the statement, and the change that it makes."""

_WRITERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "xds": ("documents.xmll", {}),
    "cloudevents": ("events.jsonl", {"source": "/hr/app/eventlog"}),
    "debezium": ("values.jsonl", {"schemas_enable": False, "topic_prefix": "hr"}),
    "qlik-messages": ("messages.jsonl", {"metadata": "none"}),
    "qlik-change-table": ("tables", {"file_format": "json"}),
    "gbase": ("capture.cdc", {"labels": {"111": "shop:app.item"}}),
    "linter": ("queue", {}),
}
"""By format: the file or directory that is written, and options of the writer."""


def payload(change: str) -> Iterator[str]:
    """Yield one change as the rows of a log, and what each format makes of these rows."""
    statement, fields = _CHANGES[change]
    with TemporaryDirectory() as made:
        directory = Path(made)
        source = directory / "changes.jsonl"
        common = {
            "schema": "app",
            "table": "item",
            "commit_time": "2026-05-10T12:00:00Z",
            "user": "ann",
        }
        source.write_text(json.dumps({**common, **fields}), encoding="utf-8")
        log = directory / "log.csv"
        convert("jsonl", "eventlog", str(source), str(log), {"catalog": _CATALOG})
        yield from ("```sql", statement, "```", "", *_log_rows(log))
        row = {**_NUT, **(fields.get("after") or {})}

        def whole(schema: str | None, table: str, key: object) -> Row:
            return row

        for name, (target, options) in _WRITERS.items():
            out = directory / target
            writer = {"catalog": _CATALOG, **options}
            if name in ("debezium", "gbase", "linter"):
                writer["complete"] = whole
            maps = {"reader": {"catalog": _CATALOG}, "writer": writer}
            convert("eventlog", name, str(log), str(out), maps)
            yield from ("", f"`{name}`", "", *_SHOWN[name](out))


def _log_rows(log: Path) -> Iterator[str]:
    columns = ("record_id", "event_type", "table_key", "column_name", "old_value", "new_value")
    yield from ("Rows of the log:", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")
    with log.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield f"| {' | '.join(row[column] for column in columns)} |"


def _wrapped(line: str) -> Iterator[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    joined = line.replace('": ', '":\xa0')  # a name stays with its value
    for part in wrap(joined, _WIDTH, subsequent_indent=indent, break_long_words=False):
        yield part.replace("\xa0", " ")


def _fence(language: str, lines: Iterable[str]) -> list[str]:
    """Return a block of code. Long lines of JSON are broken between members."""
    if language == "json":
        lines = (part for line in lines for part in _wrapped(line))
    return [f"```{language}", *lines, "```"]


def _xds(path: Path) -> list[str]:
    (inner,) = re.findall(r"<input>(.*)</input>", path.read_text(encoding="utf-8"))
    parts = re.split(r"(?<=>)(?=<(?:\w+-attr |add |modify |delete |/add>|/modify>))", inner)
    return _fence(
        "text", ["  " * part.startswith(("<add-attr", "<modify-attr")) + part for part in parts]
    )


def _json_lines(path: Path) -> Iterator[Any]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _cloudevents(path: Path) -> list[str]:
    lines = []
    for event in _json_lines(path):
        data = event.pop("data")
        lines += [f"{_compact(event)[:-1]},", f' "data": {_compact(data)}}}']
    return _fence("json", lines)


def _debezium(path: Path) -> list[str]:
    lines = []
    for record in _json_lines(path):
        value = record["value"]
        begin = f'{{"topic": "{record["topic"]}", "key": {_compact(record["key"])}, "value":'
        if value is None:
            lines.append(f"{begin} null}}")
            continue
        lines.append(begin)
        shown = {name: value[name] for name in ("op", "before", "after")}
        source = {name: value["source"][name] for name in ("schema", "table", "ts_ms", "event_id")}
        lines += [f" {_compact(shown)[:-1]},", f'  "source": {_compact(source)}}}}}']
    return _fence("json", lines)


def _messages(path: Path) -> list[str]:
    lines = []
    for record in _json_lines(path):
        message = record["value"]["message"]
        headers = message.pop("headers")
        lines += [
            f'{{"topic": "{record["topic"]}", "key": "{record["key"]}",',
            ' "value": {"magic": "atMSG", "type": "DT", "message":',
            f"  {_compact(message)[:-1]},",
            f'   "headers": {_compact(headers)}}}}}}}',
        ]
    return _fence("json", lines)


def _change_table(path: Path) -> list[str]:
    (file,) = (path / "app.item__ct").glob("*.jsonl")
    rows = list(_json_lines(file))
    columns = [
        "header__change_seq",
        "header__change_oper",
        "header__change_mask",
        "id",
        "name",
        "price",
    ]
    return [
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        *(
            f"| {' | '.join('NULL' if row[one] is None else str(row[one]) for one in columns)} |"
            for row in rows
        ),
    ]


def _decoded(format: str, path: Path, options: Mapping[str, Any]) -> list[str]:
    with (
        TemporaryDirectory() as made,
        redirect_stdout(StringIO()) as listing,
        redirect_stderr(StringIO()),
    ):
        file = Path(made, "options.json")
        file.write_text(json.dumps(options), encoding="utf-8")
        if cli.run(["decode", "--from", format, "--options", str(file), str(path)]):
            raise SystemExit(f"`eventlog decode --from {format}` of the example failed")
    return listing.getvalue().splitlines()


_GBASE_FIELD: Final = re.compile(
    r"  [0-9a-f]{8}  (\S+) +(?:(?:id|name|price) \w|size of).*|[0-9a-f]{8}  (?!TABSCHEM|end ).*"
)


def _gbase(path: Path) -> list[str]:
    lines = _decoded("gbase", path, {"labels": {"111": "shop:app.item"}})
    kept = [line for line in lines if _GBASE_FIELD.fullmatch(line)]
    return _fence("text", kept[: kept.index("")] if "" in kept else kept)


def _linter(path: Path) -> list[str]:
    lines = _decoded("linter", path, {})
    kept = lines[: lines.index("")] if "" in lines else lines
    return _fence(
        "text", [line for line in kept if not line.strip().startswith(("table ", "OPER"))]
    )


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_SHOWN: Final = {
    "xds": _xds,
    "cloudevents": _cloudevents,
    "debezium": _debezium,
    "qlik-messages": _messages,
    "qlik-change-table": _change_table,
    "gbase": _gbase,
    "linter": _linter,
}

# --- types ----------------------------------------------------------------------------------------

TYPES: Final[Sequence[tuple[str, str, str]]] = (
    ("smallint", "smallint, NUMBER(4), SMALLINT", "7"),
    ("integer", "integer, NUMBER(9), INTEGER", "42"),
    ("bigint", "bigint, NUMBER(18), BIGINT", "9007199254740993"),
    ("decimal(9,2)", "numeric(9,2), NUMBER(9,2), DECIMAL(9,2)", "1.50"),
    ("decimal(12,0)", "numeric(12,0), NUMBER(12)", "7"),
    ("real", "real, BINARY_FLOAT", "1.5"),
    ("double", "double precision, BINARY_DOUBLE, REAL", "0.1"),
    ("boolean", "boolean, BOOLEAN", "true"),
    ("char(4)", "char(4), CHAR(4)", "ab"),
    ("varchar(20)", "varchar(20), VARCHAR2(20), VARCHAR(20)", "Zoë"),
    ("text", "text, CLOB, TEXT", "two words"),
    ("varbinary", "bytea, RAW, BLOB", "AP8="),
    ("date", "date, DATE of SQLite", "2024-05-10"),
    ("time", "time", "12:30:00"),
    ("timestamp", "timestamp, DATE and TIMESTAMP of Oracle", "2024-05-10 12:30:00.500000"),
    ("timestamptz", "timestamptz, TIMESTAMP WITH TIME ZONE", "2024-05-10 12:30:00Z"),
    ("uuid", "uuid", "0b9e1c0c-1d2e-4f5a-8b6c-7d8e9f0a1b2c"),
    ("jsonb", "json, jsonb", '{"a": [1, 2]}'),
)
"""A type of a catalog, types of databases that are of this kind, and a value as the log has it."""


def types() -> Iterator[str]:
    """Yield what the published formats make of a value of each type."""
    yield from (
        "| type | in the database | in the log | XDS: type and value | CloudEvents | Debezium "
        "| Qlik message |",
        "|---" * 7 + "|",
    )
    for name, of_databases, text in TYPES:
        cells = " | ".join(f"`{one}`" for one in (text, *published(name, text)))
        yield f"| `{name}` | {of_databases} | {cells} |"


def published(name: str, text: str) -> tuple[str, str, str, str]:
    """Return what XDS, CloudEvents, Debezium and Qlik messages make of the log's text of a column
    of this type.
    """
    type, values = parse_type(name), ValueOptions()
    xds = f"{xds_type(type, values)} {converter(type, values)(text)}"
    value = value_reader(type)(text)
    (column,) = columns_of(Table("t", "table", (Column("c", type),)))
    return (
        xds,
        json_bytes(text_converter(type, JsonEncoding())(text)).decode(),
        json.dumps(field_of(type).encode(value), ensure_ascii=False),
        json.dumps(json_writer(column)(value), ensure_ascii=False),
    )


def column_types() -> Iterator[str]:
    """Yield the types that the writers give a column of each type of a catalog."""
    yield from (
        "| type | Debezium | Qlik | GBase 8s | Linter |",
        "|---" * 5 + "|",
    )
    with TemporaryDirectory() as made:
        for name, _, text in TYPES:
            type = parse_type(name)
            (column,) = columns_of(Table("t", "table", (Column("c", type),)))
            field = field_of(type).schema
            debezium = " ".join(filter(None, (field["type"], field.get("name", "").split(".")[-1])))
            cells = (
                debezium,
                column.type,
                _gbase_type(name, text, Path(made)),
                _linter_type(name, text, Path(made)),
            )
            shown = (one if one == "none" else f"`{one}`" for one in cells)
            yield f"| `{name}` | {' | '.join(shown)} |"


def _written(name: str, text: str, format: str, out: Path) -> bool:
    """Write a row with a column of the type; False if the format has no type for it."""
    source = out.with_name("log.csv")
    source.write_text(
        "record_id,status,event_type,event_time,perpetrator,table_name,table_key,column_name,old_value,new_value\n"
        f'1,N,1,,,t,id=1,c,,"{text.replace(chr(34), chr(34) * 2)}"\n',
        encoding="utf-8",
    )
    columns = [{"name": "id", "type": "integer"}, {"name": "c", "type": name}]
    table = {"name": "t", "kind": "table", "primary_key": ["id"], "columns": columns}
    catalog = {"dialect": "postgresql", "schema": "app", "tables": [table]}
    maps = {"reader": {"catalog": catalog}, "writer": {"catalog": catalog}}
    try:
        convert("eventlog", format, str(source), str(out), maps)
    except EventlogError:
        return False
    return True


def _gbase_type(name: str, text: str, directory: Path) -> str:
    out = directory / f"{name}.cdc"
    _written(name if name != "varbinary" else "text", text, "gbase", out)
    if name == "varbinary":
        return "none"
    header, payload = (int.from_bytes(out.read_bytes()[at : at + 4]) for at in (0, 4))
    columns = out.read_bytes()[header : header + payload - 1].decode()
    (of_column,) = re.findall(r"(?:^|, )c (.+?)(?=, id |$)", columns)
    return of_column


def _linter_type(name: str, text: str, directory: Path) -> str:
    out = directory / f"{name}-queue"
    if not _written(name, text, "linter", out):
        return "none"
    with (out / "dispatch_attrs.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["NAME"].strip(): row for row in csv.DictReader(file)}
    names = {code: name for name, code in vars(Typ).items() if isinstance(code, int)}
    return f"{names[int(rows['c']['TYP'])]} ({rows['c']['LEN']})"


_KINDS: Final = {
    (Kind.INTEGER, 16): "whole numbers of 16 bits",
    (Kind.INTEGER, 32): "of 32 bits",
    (Kind.INTEGER, 64): "of 64 bits",
    (Kind.EXACT, 0): "exact numbers; with a scale of 0 whole numbers",
    (Kind.APPROXIMATE, 32): "approximate numbers, single; also `float(1)` to `float(24)`",
    (Kind.APPROXIMATE, 64): "approximate numbers, double",
    (Kind.BOOLEAN, 0): "true or false",
    (Kind.FIXED, 0): "text of a fixed length",
    (Kind.CHARACTER, 0): "text",
    (Kind.BINARY, 0): "bytes",
    (Kind.DATE, 0): "dates",
    (Kind.TIME, 0): "times of day",
    (Kind.TIMESTAMP, 0): "date and time",
    (Kind.TIMESTAMPTZ, 0): "date and time with a zone",
    (Kind.UUID, 0): "UUIDs",
    (Kind.OTHER, 0): "everything else, as the database's text; also arrays such as `integer[]`",
}


def type_names() -> Iterator[str]:
    """Yield the names of types that a catalog may have, by what a column of the type holds."""
    yield from ("| column holds | `type` |", "|---|---|")
    for kind, names in TYPE_NAMES.items():
        yield f"| {_KINDS[kind]} | {', '.join(f'`{name}`' for name in names.split(', '))} |"


# --- encodings of single formats ------------------------------------------------------------------

_STRUCT_CODES: Final = {"Q": "u64", "q": "i64", "I": "u32", "i": "i32"}


def gbase_records() -> Iterator[str]:
    """Yield the records of a GBase 8s stream: those with the same header in one row."""
    yield from ("| no. | record | header_size | fields from offset 16 |", "|---|---|---|---|")
    for fields, numbers in groupby(records.RECORD_NAMES, records.FIELD_NAMES.__getitem__):
        group = list(numbers)
        codes = records.FIELDS[group[0]].format.lstrip(">")
        cells = (
            ", ".join(map(str, group)),
            ", ".join(records.RECORD_NAMES[number] for number in group),
            f"{records.HEADER_SIZES[group[0]]}{' + 4 nvar' if group[0] in records.ROWS else ''}",
            ", ".join(
                f"`{name}` {_STRUCT_CODES[code]}" for name, code in zip(fields, codes, strict=True)
            ),
        )
        yield f"| {' | '.join(cells)} |"


_GBASE_VALUES: Final[tuple[tuple[str, Value], ...]] = (
    ("SMALLINT", -2),
    ("INTEGER", 7),
    ("BIGINT", 7),
    ("INT8", -7),
    ("FLOAT", 1.5),
    ("SMALLFLOAT", 1.5),
    ("DATE", date(2024, 5, 10)),
    ("BOOLEAN", "true"),
    ("CHAR(4)", "ab"),
    ("VARCHAR(20)", "ab"),
    ("LVARCHAR(20)", "ab"),
    ("DECIMAL(4,2)", Decimal("56.78")),
    ("DECIMAL(4,2)", Decimal("-56.78")),
    ("DECIMAL(5,1)", Decimal("1234.5")),
    ("DECIMAL(4,2)", Decimal("0.05")),
    ("DECIMAL(16)", Decimal("77.323")),
    ("DATETIME YEAR TO FRACTION(5)", datetime(2023, 12, 20, 15, 20, 10, 987650)),
    ("DATETIME HOUR TO FRACTION(5)", time(0, 5, 9, 420)),
    ("INTERVAL DAY(3) TO SECOND", "123 04:05:06"),
    ("INTERVAL YEAR TO MONTH", "5-03"),
)
"""A type of GBase 8s and a value: each kind of column, and what its rules make of digits."""


def gbase_values() -> Iterator[str]:
    """Yield the bytes of a value of each type, and of its NULL."""
    yield from ("| type | value | bytes | NULL |", "|---|---|---|---|")
    for spelled, value in _GBASE_VALUES:
        for prefix in (1, 2) if spelled.startswith("VARCHAR") else (2,):
            null, write, _ = codec(gbase_type(spelled, "c"), varchar_prefix=prefix)
            of_prefix = f", {prefix}-byte length" if spelled.startswith("VARCHAR") else ""
            yield (
                f"| {spelled}{of_prefix} | `{value}` | `{write(value).hex().upper()}` "
                f"| `{null.hex().upper()}` |"
            )


_QLIK_VALUES: Final[Mapping[type, Value]] = {
    date: date(2024, 5, 10),
    time: time(12, 30),
    datetime: datetime(2024, 5, 10, 12, 30, 0, 500000),
    Decimal: Decimal("1.50"),
    bool: True,
    str: "nut",
    bytes: b"\x00\xff",
    float: 1.5,
    int: 7,
}


def qlik_values() -> Iterator[str]:
    """Yield what a value of each of Qlik's types is in JSON and in Avro, equal types in one row."""
    yield from ("| type | JSON | Avro | without logical types |", "|---|---|---|---|")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, kind in CLASSES.items():
        column = QlikColumn("c", name, precision=9, scale=2)
        value = json.dumps(json_writer(column)(_QLIK_VALUES[kind]))
        table = MessageTable(None, "t", (column,))
        avro, plain = (
            _avro_name(json.loads(data_schema(table, WriteOptions(logical_types=logical))))
            for logical in (True, False)
        )
        rows.setdefault((value, avro, plain), []).append(name)
    for (value, avro, plain), names in rows.items():
        yield f"| {' '.join(names)} | `{value}` | {avro} | {plain if plain != avro else ''} |"


def _avro_name(schema: Mapping[str, Any]) -> str:
    """Return the type of the single column of a DataRecord, with its logical type."""
    (data,) = (field["type"] for field in schema["fields"] if field["name"] == "data")
    kind = data["fields"][0]["type"][1]
    if isinstance(kind, str):
        return kind
    digits = f"({kind['precision']},{kind['scale']})" if "precision" in kind else ""
    return f"{kind['type']} / {kind['logicalType']}{digits}"


def position_tables() -> Iterator[str]:
    """Yield the statements that create the tables of a followed source's position, with type names
    that most databases have.
    """
    yield "```sql"
    for statement in position_ddl("eventlog_position", "postgresql").split(";\n"):
        text = " ".join(statement.split()).replace("( ", "(").replace(" )", ")")
        text = text.replace(" WITHOUT TIME ZONE", "")
        yield from wrap(f"{text};" if text else "", 110, subsequent_indent="    ")
    yield "```"


# --- what each conversion loses -------------------------------------------------------------------


def losses() -> Iterator[str]:
    """Yield the loss matrix of the tests, and what its codes mean."""
    sys.path.append(str(ROOT / "tests"))
    from loss_formats import LETTERS
    from loss_matrix import CODES, CODES_OF, MATRIX

    yield from (
        f"| from \\ to | {' | '.join(LETTERS.values())} |",
        "|---" * (1 + len(LETTERS)) + "|",
    )
    for source, cells in groupby(
        sorted(MATRIX, key=lambda pair: [*LETTERS].index(pair[0])), lambda pair: pair[0]
    ):
        of_target = {target: MATRIX[source, target] for _, target in cells}
        texts = [
            " ".join(code for code in CODES if code in of_target[target]) or "none"
            for target in LETTERS
        ]
        yield f"| **{LETTERS[source]}** | {' | '.join(texts)} |"
    reported = {code: f"`{loss}`" for loss, code in CODES_OF.items()}
    yield from ("", "| code | lost | in the report |", "|---|---|---|")
    for code, what in CODES.items():
        yield f"| {code} | {what} | {reported.get(code, '')} |"
