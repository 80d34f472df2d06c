"""The format ``cloudevents`` of the converter: events in files (spec/cloudevents.md 5).

A file holds an event a line, or JSON arrays of events: a batch a line, or the whole file one array or one event, as
printed for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from eventlog.changes.events import association_text
from eventlog.changes.format import Format, Report, class_of_change, with_key, written
from eventlog.changes.json_form import catalog_of, typed_change
from eventlog.cloudevents.event import change_of, event_writer
from eventlog.cloudevents.options import BATCHED, ReadOptions, WriteOptions
from eventlog.core.catalog import Catalog
from eventlog.errors import FormatError, NotExpressible, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.lines import LONGEST, numbered_lines, parsed_json, source_files, text_of
from eventlog.model import Change, ChangeOp

_ENDINGS: Final = (".json", ".jsonl", ".ndjson")


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of the events of a file, or of the files of a directory in the order of their names.

    What cannot be read is passed over; events whose data are none of ours are counted as ``other_events``.
    """
    catalog = catalog_of(options.catalog)
    for path in source_files(Path(source), f"{', '.join(_ENDINGS)} file", _ENDINGS):
        with path.open("rb") as file:
            for place, value in _values(file, path, report):
                events = enumerate(value, 1) if isinstance(value, list) else ((0, value),)
                for number, event in events:
                    try:
                        change = change_of(event)
                        if change is None:
                            report.count("other_events")
                            continue
                        change = typed_change(change, catalog)
                    except FormatError as error:
                        report.skip(with_location(error, f"{place}, event {number}" if number else place))
                        continue
                    yield change


def _values(file: BinaryIO, path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    """The values of a file with their places: one a line, or, if its first line goes on, the file is one."""
    is_first = True
    for number, line in numbered_lines(file, path):
        place = f"{path}, line {number}"
        if is_first and _goes_on(line):
            place = str(path)
            line += file.read(LONGEST + 1 - len(line))
            if len(line) > LONGEST:
                raise FormatError(f"{path}: longer than {LONGEST} bytes: write an event, or an array of some, a line")
        is_first = False
        try:
            value = parsed_json(text_of(line))
        except FormatError as error:
            report.skip(with_location(error, place))
            continue
        yield place, value


def _goes_on(line: bytes) -> bool:
    """Whether a line begins a value that goes on behind it."""
    text = line.strip().removeprefix(b"\xef\xbb\xbf")
    return text[:1] in (b"{", b"[") and text[-1:] not in (b"}", b"]")


# --- writing ----------------------------------------------------------------------------------------------------------


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Changes as events in a file, whole or not at all. One that no event can hold is passed over."""
    catalog = catalog_of(options.catalog)
    event_of = event_writer(options.source, options.event_type)

    def text_of_event(change: Change, event_id: str) -> tuple[str]:
        change, subject = _named(change, catalog)
        return (event_of(change, event_id, subject).text(),)

    texts = written(changes, text_of_event, report)
    with whole_file(target) as file:
        if options.mode != BATCHED:
            file.writelines(f"{text}\n".encode() for text in texts)
            return
        while batch := list(islice(texts, options.batch_size)):
            file.write(f"[{','.join(batch)}]\n".encode())


def _named(change: Change, catalog: Catalog | None) -> tuple[Change, str | None]:
    """The change with the key that the catalogue knows, and the association of its object; None if there is none."""
    object_class = class_of_change(catalog, change)
    if change.op is ChangeOp.TRUNCATE:
        return change, None
    if object_class is not None:
        if change.schema is None and catalog is not None:
            change = change._replace(schema=catalog.schema)
        change = with_key(change, object_class)
    if change.key is None:
        return change, None
    try:
        return change, association_text(change, change.key, object_class)
    except NotExpressible:  # a key with NULL, or with characters that no association holds: the data have it
        return change, None


FORMAT: Final = Format("cloudevents", read, write, (ReadOptions,), (WriteOptions,))
