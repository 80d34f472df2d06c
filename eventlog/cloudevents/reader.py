"""Read CloudEvents as changes: events in the JSON format, and files of such events
(formats/cloudevents.md 3, 4, 5; CloudEvents 1.0.2, JSON format 1.0.2).

A file has an event or a JSON array of events on each line; or the whole file is one pretty-printed
array or event.
"""

from __future__ import annotations

from base64 import b64decode
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
from eventlog.files.text import (
    LONGEST,
    numbered_lines,
    parsed_json,
    read_on,
    source_files,
    text_of,
)
from eventlog.model import Change, ChangeOp, JsonObject, Row, Value

_OPS: Final = {op.lower(): op for op in ChangeOp}


def change_of(
    event: Any, catalog: Catalog | None = None, encoding: JsonEncoding = DEFAULT_ENCODING
) -> Change | None:
    """Return the change of an event in the JSON format, or of the event that it contains if a
    router has wrapped it. Return None if eventlog did not write the data.

    Text stays text; JSON and arrays become the text of the database if the catalogue has their
    columns. Raises FormatError for a value that is not a CloudEvent, and for data that violate
    formats/cloudevents.md 4.
    """
    while True:
        _check_attributes(event)
        try:
            data = _data_of(event)
            if not isinstance(data, dict):
                return None
            if "operation" in data and "class" in data:
                return _change(event, data, catalog, encoding)
        except (FormatError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"event {shown(event['id'])} cannot be read: {error}") from error
        if "specversion" not in data:
            return None
        event = data


def _check_attributes(event: Any) -> None:
    """Raise FormatError for a value that is not a CloudEvent."""
    if not isinstance(event, dict):
        raise FormatError(f"a CloudEvent must be a JSON object, not {type(event).__name__}")
    if "specversion" not in event and "operation" in event and "class" in event:
        raise FormatError(
            "the data of an event without its attributes, as in binary mode; record the events in "
            "structured mode"
        )
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


def _data_of(event: JsonObject) -> Any:
    """Return the data of an event, None if they are not JSON (JSON format 3.1.2).

    A text that holds JSON is read as this JSON, since no data of eventlog are a text. Raises
    FormatError for ``data_base64`` that is not base64, and for ``data_base64`` without JSON if
    ``datacontenttype`` declares JSON.
    """
    data, encoded = event.get("data"), event.get("data_base64")
    if encoded is None:
        return _json_of(data) if isinstance(data, str) else data
    if data is not None:
        raise FormatError("it has both data and data_base64")
    if not isinstance(encoded, str):
        raise FormatError("data_base64 is not text")
    try:
        content = b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        raise FormatError("data_base64 is not base64") from None
    if _declares_json(event.get("datacontenttype")):
        return parsed_json(text_of(content))
    return _json_of(content)


def _json_of(text: str | bytes) -> Any:
    """Return the value of a text, None if it is not JSON."""
    try:
        return parsed_json(text if isinstance(text, str) else text_of(text))
    except FormatError:
        return None


def _declares_json(content_type: object) -> bool:
    """Return True for a ``datacontenttype`` that is missing or that declares JSON."""
    if not isinstance(content_type, str):
        return True
    subtype = content_type.partition(";")[0].strip().lower().rpartition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def _change(
    event: JsonObject,
    data: JsonObject,
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


def _operation(data: JsonObject) -> tuple[ChangeOp, str]:
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
    """Return the row before and the row after an operation, made from the key, the old values and
    the new values. ``key`` is the new key; a DELETE has only one key.
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


def _cells(data: JsonObject, name: str) -> Mapping[str, JsonObject]:
    cells = member(data, name, dict) or {}
    for column, cell in cells.items():
        if not isinstance(cell, dict):
            raise FormatError(
                f'{name}: {shown(column)} is not an object such as {{"old": 1, "new": 2}}'
            )
    return cells


def _moment(text: str) -> datetime:
    """Return an event's ``time`` (RFC 3339, where ``t`` and ``z`` may be lower-case) in UTC."""
    moment = datetime.fromisoformat(text.upper())
    if moment.tzinfo is None:
        raise FormatError(f"time {shown(text)} has no zone, which RFC 3339 requires")
    return moment.astimezone(UTC)


# --- files ----------------------------------------------------------------------------------------

_ENDINGS: Final = (".json", ".jsonl", ".ndjson")


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """Yield the changes of the events of a file, or of the files of a directory in the order of
    their names.

    An event that cannot be read is reported and skipped. An event that eventlog did not write is
    reported and skipped, too, and counted as ``unknown_events``.
    """
    catalog = catalog_of(options.catalog)
    encoding = JsonEncoding(nested_values=options.nested_values)
    for path in source_files(Path(source), f"{', '.join(_ENDINGS)} file", _ENDINGS):
        with path.open("rb") as file:
            for place, value in _values(file, path, report):
                events = enumerate(value, 1) if isinstance(value, list) else ((0, value),)
                for number, event in events:
                    where = f"{place}, event {number}" if number else place
                    try:
                        change = change_of(event, catalog, encoding)
                        if change is not None:
                            change = typed_change(change, catalog)
                    except FormatError as error:
                        report.skip(with_location(error, where))
                        continue
                    if change is None:
                        what = f"event {shown(event['id'])} of type {shown(event['type'])}"
                        report.pass_over("unknown_events", f"{where}: {what} holds no change")
                        continue
                    yield change


def _values(file: BinaryIO, path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file with their places: one value for each line, or one value for the
    whole file if its first value spans several lines.
    """
    is_first = True
    for number, line in numbered_lines(file, path):
        place = f"{path}, line {number}"
        if is_first and _is_continued(line):
            place = str(path)
            line = read_on(file, line)
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
