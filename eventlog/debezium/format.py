"""The format ``debezium`` as an object of ``eventlog.changes.format.Format``."""

from __future__ import annotations

from typing import Final

from eventlog.changes.format import Format
from eventlog.changes.losses import Loss
from eventlog.debezium.publish import DebeziumWriter
from eventlog.debezium.records import ReadOptions, read, write
from eventlog.debezium.writer import PublishOptions, WriteOptions


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

    read_changes = staticmethod(read)
    write_changes = staticmethod(write)
    publish = staticmethod(DebeziumWriter)


FORMAT: Final = DebeziumFormat()
