"""The format ``debezium`` as an object of ``eventlog.changes.format.Format``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from eventlog.changes.format import Format, Report
from eventlog.changes.losses import Loss
from eventlog.changes.publishing import Publishing
from eventlog.debezium.publish import DebeziumWriter
from eventlog.debezium.records import ReadOptions, read, write
from eventlog.debezium.writer import PublishOptions, WriteOptions
from eventlog.model import Change


class DebeziumFormat(Format):
    """Change events of Debezium (formats/debezium.md)."""

    name = "debezium"
    title = "Debezium's change events"
    reader_options = (ReadOptions,)
    writer_options = (WriteOptions,)
    publish_options = PublishOptions
    backlog_options = WriteOptions
    is_read_once = True
    is_of_rows = True
    loses = frozenset({
        Loss.KEY_CHANGE, Loss.CHANGED, Loss.TRANSACTION, Loss.USER, Loss.BEFORE,
    })  # fmt: skip

    def read_changes(self, source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
        return read(source, options, report)

    def write_changes(
        self, changes: Iterable[Change], target: str, options: WriteOptions, report: Report
    ) -> None:
        write(changes, target, options, report)

    def publish(self, options: PublishOptions, publishing: Publishing) -> DebeziumWriter:
        return DebeziumWriter(options, publishing)


FORMAT: Final = DebeziumFormat()
