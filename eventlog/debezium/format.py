"""The format ``debezium`` of the converter: files of JSON, a record a line (spec/debezium.md 5).

A line is the value of a record; or ``{"topic": ..., "key": ..., "value": ...}``, where key and value are JSON or its
text and ``value`` may be called ``payload``, as kcat has it; or key and value with a tab between them, as
kafka-console-consumer prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Format, Report, class_of_change, written
from eventlog.changes.json_form import catalog_of
from eventlog.debezium.options import ReadOptions, WriteOptions
from eventlog.debezium.reader import EnvelopeReader
from eventlog.debezium.writer import EnvelopeWriter
from eventlog.files.atomic import whole_file
from eventlog.files.lines import parsed_json, parsed_lines, text_of
from eventlog.model import Change, KafkaRecord

_NAME: Final = "debezium"


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of a file, or of the files of a directory in the order of their names (``ReadOptions``).

    A line that cannot be read is passed over; tombstones, and what is no change of a row, are counted.
    """
    reader = EnvelopeReader(options, catalog_of(options.catalog), report.count)

    def change_of(line: bytes) -> Change | None:
        return reader.change(*_record(line))

    for _, change in parsed_lines(Path(source), "file of records", change_of, report.skip):
        if change is not None:
            yield change


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Changes to a file, whole or not at all (``WriteOptions``). One that a row cannot hold is passed over."""
    catalog = catalog_of(options.catalog)
    writer = EnvelopeWriter(options, catalog)

    def records_of(change: Change, _: str) -> list[KafkaRecord]:
        complete = options.complete
        whole_row = None if complete is None else partial(complete, change.schema, change.table, change.key)
        return writer.records(change, class_of_change(catalog, change), whole_row, change.extras.get("record_ids"))

    with whole_file(target) as file:
        file.writelines(line_of(record, options.lines) for record in written(changes, records_of, report))


def line_of(record: KafkaRecord, lines: str = "records") -> bytes:
    """A record as a line of a file, with the line break; among ``values`` a tombstone has none."""
    if lines == "values":
        return b"" if record.value is None else record.value + b"\n"
    topic = encode_basestring(record.topic or "").encode()
    return b'{"topic":%b,"key":%b,"value":%b}\n' % (topic, record.key or b"null", record.value or b"null")


def _record(line: bytes) -> tuple[Any, Any]:
    """Key and value of a line. Raises FormatError."""
    if b"\t" in line:  # JSON of one line has none
        key, _, value = text_of(line).partition("\t")
        return parsed_json(key), parsed_json(value)
    value = parsed_json(text_of(line))
    if not isinstance(value, dict) or "op" in value or "schema" in value or not value.keys() & {"value", "payload"}:
        return None, value
    name = "value" if "value" in value else "payload"
    return _json_of(value.get("key")), _json_of(value[name])


def _json_of(value: Any) -> Any:
    """What a tool gives as the text of JSON."""
    return parsed_json(value) if isinstance(value, str) else value


FORMAT: Final = Format(_NAME, read, write, (ReadOptions,), (WriteOptions,))
