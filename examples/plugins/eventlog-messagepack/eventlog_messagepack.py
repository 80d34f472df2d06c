"""The format ``messagepack``: each change is a MessagePack object, with the members of eventlog's
``jsonl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from eventlog.changes.change_writer import ChangeWriter
from eventlog.changes.format import Format, Report
from eventlog.changes.json_form import (
    CATALOG,
    CatalogOption,
    catalog_of,
    from_json,
    to_json,
    typed_change,
)
from eventlog.changes.publishing import Publishing
from eventlog.core.catalog import ObjectClass
from eventlog.core.options import FLAG, CheckedOptions, option, shared
from eventlog.errors import FormatError
from eventlog.model import Change


@dataclass(frozen=True, slots=True)
class ReadOptions(CheckedOptions):
    """Options of the reader."""

    catalog: CatalogOption = shared(CATALOG)


@dataclass(frozen=True, slots=True)
class PublishOptions(CheckedOptions):
    """Options in ``[format.messagepack]``."""

    event_ids: bool = option(True, FLAG, "each object has the event-id as position")


class MessagePackWriter(ChangeWriter[bytes]):
    """Changes to MessagePack."""

    media_type = "application/vnd.msgpack"
    is_text = False
    joins_new_key = True

    def __init__(self, options: PublishOptions, publishing: Publishing) -> None:
        super().__init__(publishing)
        self._has_ids = options.event_ids

    def piece_of(self, change: Change, event_id: str, object_class: ObjectClass | None) -> bytes:
        value = to_json(change._replace(position=event_id) if self._has_ids else change)
        try:
            return bytes(msgpack.packb(value, unicode_errors="surrogatepass"))
        except OverflowError as error:
            raise FormatError(
                f"{change.op} of {change.table!r}: a number has more than 64 bits: {error}"
            ) from error

    def body(self, pieces: list[bytes]) -> bytes:  # type: ignore[override]  # several, one behind the other
        return b"".join(pieces)


class MessagePack(Format):
    """Changes as MessagePack."""

    name = "messagepack"
    title = "changes as MessagePack"
    endings = {"lines": ".msgpack", "documents": ".msgpack"}  # noqa: RUF012 - read only
    reader_options = (ReadOptions,)
    publish_options = PublishOptions
    backlog_options = PublishOptions
    suffixes = frozenset({".msgpack"})
    has_single_files = True

    def read_changes(self, source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
        catalog = catalog_of(options.catalog)
        with Path(source).open("rb") as file:
            unpacker = msgpack.Unpacker(file, unicode_errors="surrogatepass")
            try:
                for number, value in enumerate(unpacker, 1):
                    yield from self._change(value, f"{source}, object {number}", catalog, report)
            except (ValueError, msgpack.exceptions.UnpackException) as error:
                report.skip(FormatError(f"{source}: no MessagePack of changes: {error}"))

    def _change(self, value: Any, place: str, catalog: Any, report: Report) -> Iterator[Change]:
        if not isinstance(value, dict):
            report.skip(FormatError(f"{place}: an object is needed, not {type(value).__name__}"))
            return
        try:
            yield typed_change(from_json(value), catalog)
        except FormatError as error:
            report.skip(FormatError(f"{place}: {error}"))

    def publish(self, options: PublishOptions, publishing: Publishing) -> MessagePackWriter:
        return MessagePackWriter(options, publishing)


FORMAT = MessagePack()
