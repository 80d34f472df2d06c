"""The format ``qlik-messages`` as the registry, the converter and the publisher use it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from eventlog.changes.format import Format, Refusal
from eventlog.changes.losses import Loss
from eventlog.changes.publishing import Publishing
from eventlog.core.catalog import Database
from eventlog.core.options import GivenOptions
from eventlog.model import full_name
from eventlog.qlik.columns import columns_of
from eventlog.qlik.messages.message_files import read, write
from eventlog.qlik.messages.message_tables import PublishOptions, ReadOptions, WriteOptions
from eventlog.qlik.messages.publish import QlikWriter


class QlikMessagesFormat(Format):
    """Qlik messages: lines of a file, or records of Kafka (formats/qlik.md 5)."""

    name = "qlik-messages"
    title = "Qlik messages"
    schemes = ("kafka",)
    reader_options = (ReadOptions,)
    writer_options = (WriteOptions,)
    publish_options = PublishOptions
    backlog_options = WriteOptions
    is_of_rows = True
    is_numbered = True
    is_read_once = True
    loses = frozenset({Loss.USER, Loss.MICROSECONDS})

    read_changes = staticmethod(read)
    write_changes = staticmethod(write)
    publish = staticmethod(QlikWriter)

    def output_place(self, name: str, options: GivenOptions) -> str:
        return f"{name}/messages.jsonl"

    def offline(self, options: PublishOptions) -> PublishOptions:
        return replace(options, metadata="none", registry=None)

    def refusal(self, options: PublishOptions, publishing: Publishing) -> Refusal | None:
        if options.metadata == "registry" and (
            options.encoding != "avro" or options.registry is None
        ):
            return "metadata", "it needs encoding = avro, and registry set to the registry's URL"
        if not publishing.in_records:
            return (
                "type",
                "messages are records, which only a sink of records can send: set sink.type = "
                "kafka",
            )
        return None

    def options_of_catalog(self, side: str, database: Database) -> GivenOptions | None:
        columns = {
            full_name(database.schema, table.name): columns_of(table) for table in database.tables
        }
        return {"columns": {name: list(map(asdict, each)) for name, each in columns.items()}}


FORMAT: Final = QlikMessagesFormat()
