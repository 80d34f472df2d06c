"""The format ``cloudevents`` as an object of ``eventlog.changes.format.Format``."""

from __future__ import annotations

from typing import Final

from eventlog.changes.format import Format, Refusal
from eventlog.changes.publishing import Publishing
from eventlog.cloudevents.events import write
from eventlog.cloudevents.options import (
    FileOptions,
    PublishOptions,
    ReadOptions,
    WriteOptions,
    refused_mode,
)
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.cloudevents.reader import read


class CloudEventsFormat(Format):
    """CloudEvents in JSON, one event or one array of events on each line
    (formats/cloudevents.md).
    """

    name = "cloudevents"
    title = "CloudEvents"
    reader_options = (ReadOptions,)
    writer_options = (WriteOptions,)
    publish_options = PublishOptions
    backlog_options = FileOptions
    has_single_files = True
    is_read_once = True

    read_changes = staticmethod(read)
    write_changes = staticmethod(write)
    publish = staticmethod(CloudEventWriter)

    def refusal(self, options: PublishOptions, publishing: Publishing) -> Refusal | None:
        why = refused_mode(options.mode, publishing)
        return ("mode", why) if why else None


FORMAT: Final = CloudEventsFormat()
