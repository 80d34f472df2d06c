"""``xds/``: every case through the functions of the publisher, on rows in memory instead of a
database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_log import fake_log
from shared import validate
from vector_cases import Case, configuration, log_text, read_case, tree

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.rows.events import Outgoing
from eventlog.core.table_key import key_text
from eventlog.model import EventResult, Level, LogRow, Status
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.configured_classes import catalog_of, class_names
from eventlog.publisher.declared.configured_writer import event_writer
from eventlog.publisher.declared.opening import publisher_options
from eventlog.publisher.feeds.queue import build_events, read_window
from eventlog.publisher.ledger.delivery import pack
from eventlog.publisher.ledger.ledger import ledger_of
from eventlog.publisher.send.marks import Marks
from eventlog.publisher.send.policy import Document as SentDocument
from eventlog.sql.connect.locate import find_columns
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import CurrentRow


@dataclass
class MemoryLog:
    """The log and the tables of a case."""

    case: Case
    columns: tuple[str, ...]
    statuses: dict[int, str] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [LogRow(*(row[name] for name in self.columns)) for row in self.case.log_rows]
        self.statuses = {row.record_id: row.status for row in self.rows}

    def waiting(self) -> list[LogRow]:
        rows = [row for row in self.rows if self.statuses[row.record_id].rstrip(" ") == Status.NEW]
        return sorted(rows, key=lambda row: row.record_id)

    def read_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> dict[str, CurrentRow]:
        own = self._by_key(
            object_class, object_class.table.name, [column.name for column in object_class.key]
        )
        children = {
            child.attribute: self._by_key(object_class, child.table.name, child.owner_columns)
            for child in object_class.children
        }
        return {
            key: {
                attribute.name: [
                    log_text(row.get(attribute.column.name))
                    for row in children.get(attribute, own).get(key, ())
                ]
                for attribute in attributes
            }
            for key in keys
            if key in own
        }  # fmt: skip

    def _by_key(
        self, object_class: ObjectClass, table: str, columns: Sequence[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows of a table by the canonical key of the object that they belong to."""
        names = [column.name for column in object_class.key]
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self.case.contents.get(table, ()):
            values = [log_text(row[column]) for column in columns]
            if None not in values:
                pairs = [
                    (name, value)
                    for name, value in zip(names, values, strict=True)
                    if value is not None
                ]
                found.setdefault(object_class.canonical_key(key_text(pairs)), []).append(dict(row))
        return found

    def write(self, marks: Marks, delete: bool) -> None:
        for status, record_ids in marks.statuses.items():
            deleted = delete and status in (Status.SUCCESS, Status.WARNING)
            for record_id in record_ids:
                assert self.statuses[record_id].rstrip(" ") == Status.NEW
                self.statuses[record_id] = "deleted" if deleted else status
        self.errors += [(row.record_id, row.code) for row in marks.errors]


def publish(case: Case, tmp_path: Path) -> tuple[list[bytes], MemoryLog]:
    """One pass over the queue: windows, groups, events, documents, answers, marks."""
    config = configuration(case, tmp_path)
    columns = find_columns(
        case.columns_of_log,
        layout=config.publisher.layout,
        column_map=config.publisher.column_map,
        column_sort=config.publisher.column_sort,
    )
    database = case.catalog
    log = LogTable(database.schema, "eventlog", columns)
    memory = MemoryLog(case, columns)
    opened = fake_log(log, memory.waiting, memory.read_back)
    context = Context(
        log=opened,
        ledger=ledger_of(opened),
        catalog=catalog_of(config, database, class_names(config)[1], log),
        options=publisher_options(config, "eventlog"),
        output=event_writer(config, log),
        counters=Counters(),
    )
    outgoing: list[Outgoing] = []
    in_flight: set[int] = set()
    first: int | None = 1
    while first is not None:
        taken = read_window(context, first, None, in_flight, ())
        marks = Marks(context.counters)
        marks.add_invalid(taken.invalid)
        marks.add(Status.SUCCESS, taken.loopback)
        for event in build_events(context, taken.groups, context.query_back):
            if event.operation is not None:
                outgoing.append(event)
                in_flight.update(event.ids)
            elif event.outcomes is not None:
                marks.add_outcomes([event.outcomes])
        memory.write(marks, context.options.delete_from_log)
        first = taken.next_first
    documents = []
    delivery = pack(1, outgoing, context.options.batch_size)
    for number, events in delivery.documents.items():
        document = context.output.document(context.catalog, delivery, number, events)
        documents.append(document.body)
        answer = case.answer_to(document.event_ids)
        marks = Marks(context.counters)
        retried = set()
        for event in events:
            verdict: EventResult = answer.result(event.sent_id)
            # Retry keeps the rows of the event, and those of later events of its object, at N.
            if verdict.level is Level.RETRY:
                retried.add(event.object_id)
            if verdict.level is Level.FATAL or event.object_id not in retried:
                marks.add_answered([event], verdict, SentDocument((1,), [event]))
        memory.write(marks, context.options.delete_from_log)
    return documents, memory


def test_case(xds_case_file: Path, tmp_path: Path) -> None:
    case = read_case(xds_case_file)
    documents, memory = publish(case, tmp_path)
    assert len(documents) == 1
    validate(documents[0])
    assert tree(documents[0]) == tree(case.document)
    unchanged = {row.record_id: row.status for row in memory.rows}
    assert memory.statuses == {**unchanged, **case.statuses}
    assert sorted(memory.errors) == case.errors


def test_document_is_valid(xds_case_file: Path) -> None:
    validate(xds_case_file.with_suffix(".xml").read_bytes())
