"""Read CloudEvents as changes: events in the JSON format, and files of such events
(formats/cloudevents.md 3, 4, 5; CloudEvents 1.0.2, JSON format 1.0.2).

A file has an event or a JSON array of events on each line; or the whole file is one pretty-printed
array or event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from eventlog.changes.format import Report
from eventlog.changes.json_form import catalog_of, member, typed_change
from eventlog.changes.keys import class_of, may_be_one
from eventlog.cloudevents.events import SPECVERSION, types_of
from eventlog.cloudevents.options import ReadOptions
from eventlog.cloudevents.values import DEFAULT_ENCODING, JsonEncoding, read_json
from eventlog.core.catalog import Catalog
from eventlog.errors import FormatError, shown, with_location
from eventlog.files.text import LONGEST, numbered_lines, parsed_json, source_files, text_of
from eventlog.model import Change, ChangeOp, Row, Value

_OPS: Final = {op.lower(): op for op in ChangeOp}


def change_of(
    event: Any, catalog: Catalog | None = None, encoding: JsonEncoding = DEFAULT_ENCODING
) -> Change | None:
    """Return the change of an event in the JSON format; None if eventlog did not write its data.

    Text stays text; JSON and arrays become the text of the database if the catalogue has their
    columns. Raises FormatError for a value that is not a CloudEvent, or whose data violate
    formats/cloudevents.md 4.
    """
    if not isinstance(event, dict):
        raise FormatError(f"a CloudEvent must be a JSON object, not {type(event).__name__}")
    for name in ("specversion", "id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            raise FormatError(
                f"{name} of a CloudEvent must be a text that is not empty, not "
                f"{shown(repr(event.get(name)))}"
            )
    if event["specversion"] != SPECVERSION:
        raise FormatError(
            f"specversion {shown(event['specversion'])} is not supported; only {SPECVERSION} is"
        )
    data = event.get("data")
    if not isinstance(data, dict) or "operation" not in data or "class" not in data:
        return None
    try:
        return _change(event, data, catalog, encoding)
    except (FormatError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"event {shown(event['id'])} cannot be read: {error}") from error


def _change(
    event: Mapping[str, Any],
    data: Mapping[str, Any],
    catalog: Catalog | None,
    encoding: JsonEncoding,
) -> Change:
    op, table = _operation(data)
    key = member(data, "key", dict)
    named = catalog is not None and may_be_one(member(data, "schema", str), catalog.schema)
    types = types_of(class_of(catalog, table) if named else None)

    def value_of(name: str, value: Any) -> Value:
        return read_json(value, types.get(name), encoding)

    key_values = None if key is None else {name: value_of(name, one) for name, one in key.items()}
    columns, unchanged = _cells(data, "columns"), _cells(data, "unchanged")
    known = [*columns.items(), *unchanged.items()]
    olds = {name: value_of(name, cell["old"]) for name, cell in known if "old" in cell}
    news = {name: value_of(name, cell["new"]) for name, cell in known if "new" in cell}
    before, after = _images(op, key_values, olds, news)
    transaction = member(data, "transaction", dict) or {}
    time = member(event, "time", str)
    return Change(
        member(data, "schema", str),
        table,
        op,
        None if key_values is None else tuple(key_values.items()),
        before,
        after,
        frozenset(columns) if op is ChangeOp.UPDATE else None,
        event["id"],
        member(transaction, "id", str),
        member(transaction, "number", int),
        member(transaction, "last", bool),
        None if time is None else _moment(time),
        member(data, "user", str),
        {"source": event["source"], "type": event["type"]},
    )


def _operation(data: Mapping[str, Any]) -> tuple[ChangeOp, str]:
    """Return the operation and the class name of an event. Raises FormatError."""
    operation, table = data["operation"], data["class"]
    if not isinstance(operation, str) or operation not in _OPS:
        raise FormatError(
            f"unknown operation {shown(repr(operation))}; expected one of {', '.join(_OPS)}"
        )
    if not isinstance(table, str):
        raise FormatError(f"class is {shown(repr(table))}, which is not text")
    return _OPS[operation], table


def _images(op: ChangeOp, key: Row | None, olds: Row, news: Row) -> tuple[Row | None, Row | None]:
    """Return the rows before and after an operation from the key, the old and the new values.
    ``key`` is the new key; for a DELETE it is the only one.
    """
    of_key = key or {}
    match op:
        case ChangeOp.INSERT | ChangeOp.REFRESH:
            return None, {**of_key, **news}
        case ChangeOp.UPDATE:
            return {**of_key, **olds} if olds else None, {**news, **of_key}
        case ChangeOp.DELETE:
            return {**of_key, **olds} if olds or key is not None else None, None
        case _:
            return None, None


def _cells(data: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    cells = member(data, name, dict) or {}
    for column, cell in cells.items():
        if not isinstance(cell, dict):
            raise FormatError(
                f'{name}: {shown(column)} is not an object such as {{"old": 1, "new": 2}}'
            )
    return cells


def _moment(text: str) -> datetime:
    """Return an event's ``time`` (RFC 3339) in UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise FormatError(f"time {shown(text)} has no zone, which RFC 3339 requires")
    return moment.astimezone(UTC)


# --- files ----------------------------------------------------------------------------------------

_ENDINGS: Final = (".json", ".jsonl", ".ndjson")


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """Yield the changes of the events of a file, or of the files of a directory in the order of
    their names.

    An event that cannot be read is reported and skipped. Events with data of other programs are
    counted as ``other_events``.
    """
    catalog = catalog_of(options.catalog)
    encoding = JsonEncoding(nested_values=options.nested_values)
    for path in source_files(Path(source), f"{', '.join(_ENDINGS)} file", _ENDINGS):
        with path.open("rb") as file:
            for place, value in _values(file, path, report):
                events = enumerate(value, 1) if isinstance(value, list) else ((0, value),)
                for number, event in events:
                    try:
                        change = change_of(event, catalog, encoding)
                        if change is None:
                            report.pass_over("other_events")
                            continue
                        change = typed_change(change, catalog)
                    except FormatError as error:
                        report.skip(
                            with_location(error, f"{place}, event {number}" if number else place)
                        )
                        continue
                    yield change


def _values(file: BinaryIO, path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file with their places: one for each line, or one for the file if its
    first value spans lines.
    """
    is_first = True
    for number, line in numbered_lines(file, path):
        place = f"{path}, line {number}"
        if is_first and _is_continued(line):
            place = str(path)
            line += file.read(LONGEST + 1 - len(line))
            if len(line) > LONGEST:
                raise FormatError(
                    f"{path}: longer than {LONGEST} bytes: write one event, or an array of some "
                    "events, per line"
                )
        is_first = False
        try:
            value = parsed_json(text_of(line))
        except FormatError as error:
            report.skip(with_location(error, place))
            continue
        yield place, value


def _is_continued(line: bytes) -> bool:
    """Return True if a line begins a value that later lines continue."""
    text = line.strip().removeprefix(b"\xef\xbb\xbf")
    return text[:1] in (b"{", b"[") and text[-1:] not in (b"}", b"]")
