"""The formats of the loss matrix: how each is written and read, and the table that all of them
know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.conversion import in_own_options
from eventlog.gbase.options import WriteOptions
from eventlog.gbase.writer import write_stream
from eventlog.linter.format import write_export
from eventlog.linter.writer import QueueWriter, WriterOptions, first_address
from eventlog.model import Change, ChangeOp, Row, Value
from eventlog.qlik.sequence import is_sequence
from eventlog.registry import format_named

LETTERS: Final[Mapping[str, str]] = {
    "E": "eventlog",
    "X": "xds",
    "T": "qlik-change-table",
    "K": "qlik-messages",
    "G": "gbase",
    "L": "linter",
    "C": "cloudevents",
    "D": "debezium",
}

COLUMNS: Final = {
    "id": "integer",
    "code": "varchar(9)",
    "name": "varchar(64)",
    "price": "decimal(9,2)",
    "made": "timestamp",
    "note": "varchar(64)",
}
"""Types that all formats hold (spec/change-model.md 5.1): what a type loses is no matter of the
matrix.
"""

KEY: Final = ("id", "code")

CATALOG: Final = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [{"name": name, "type": type} for name, type in COLUMNS.items()],
            "primary_key": list(KEY),
        },
        {
            "name": "item_tag",
            "kind": "table",
            "columns": [{"name": name, "type": COLUMNS[name]} for name in KEY]
            + [{"name": "tag", "type": "varchar(9)"}],
            "primary_key": None,
            "foreign_keys": [{"columns": list(KEY), "table": "item", "ref_columns": list(KEY)}],
        },
    ],
}
"""A table with a key of two columns, and its child table."""

TAGS: Final = "item_tag.tag"
"""The multi-valued attribute that the child table makes."""

LABELS: Final = {"1": "shop:app.item"}
"""What a CDC stream calls the table."""


def complete(schema: str | None, table: str, key: Sequence[tuple[str, Value]] | None) -> Row:
    """The row of a key as it is now: the option ``complete`` of the writers that need whole
    rows.
    """
    now: dict[str, Any] = {
        "name": "now",
        "price": Decimal("9.99"),
        "made": datetime(2001, 2, 3),
        "note": None,
    }
    return {**dict(key or ()), **now}


# --- the formats ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TriedFormat:
    """A format to be tried.

    ``target`` is the name of the file or directory that is written, ``reader`` and ``writer`` the
    options that JSON can hold, ``complete`` whether the writer takes that option. ``write_parts``
    makes a source of several lists of changes, each written for itself, as sources have them that
    no single run of the writer makes; None: there is nothing that only such a source shows.
    ``kept`` is what a change that was read back holds of the position ``native`` that it was
    written from; ``gains`` the change without what the target gave it of its own, where the
    expected one knows nothing.
    """

    letter: str
    target: str
    reader: Mapping[str, Any]
    writer: Mapping[str, Any]
    kept: Callable[[Change, str | None], str | None]
    gains: Callable[[Change, Change], Change] = lambda read, expected: read
    complete: bool = False
    write_parts: Callable[[Path, Sequence[Sequence[Change]]], None] | None = None

    @property
    def format(self) -> str:
        """The format's name."""
        return LETTERS[self.letter]

    @property
    def completing_writer(self) -> Mapping[str, Any]:
        """The writer's options, with ``complete`` where there is such an option."""
        return {**self.writer, "complete": complete} if self.complete else self.writer

    def write(self, changes: Sequence[Change], path: Path) -> None:
        """A source of these changes; what the format cannot hold is an error."""
        options = in_own_options(self.format, "writer", self.writer)
        format_named(self.format).write(iter(changes), str(path), options, Report(strict=True))

    def read(self, path: Path, *, with_keys: bool = True) -> list[Change]:
        """The changes of a source or of what was written; without the keys that only options tell,
        if not wanted.
        """
        options = in_own_options(self.format, "reader", self.reader)
        if not with_keys:
            options = {name: value for name, value in options.items() if name != "keys"}
        return list(format_named(self.format).read(str(path), options, Report(strict=True)))


# --- the log, documents ---------------------------------------------------------------------------


def _time_of_writing(read: Change, expected: Change) -> Change:
    """A change without a commit time is logged with the time of writing (spec/change-model.md
    4).
    """
    return read._replace(commit_time=None) if expected.commit_time is None else read


def _event_id(read: Change, native: str | None) -> str | None:
    """Events without a position are numbered; those of a key change are ``id`` and ``id.2``."""
    return None if native is None or read.position is None else read.position.partition(".")[0]


# --- change tables, messages ----------------------------------------------------------------------


def _stream_position(read: Change, native: str | None) -> str | None:
    """A sequence is kept; any other position becomes the stream position under a new one; a REFRESH
    has neither.
    """
    if read.op is ChangeOp.REFRESH:
        return native
    return read.position if is_sequence(native) else read.extras.get("stream_position")


def _but_of_a_refresh(read: Change, native: str | None) -> str | None:
    """A row of an initial load has no position of its own."""
    return native if read.op is ChangeOp.REFRESH else read.position


# --- streams, queues ------------------------------------------------------------------------------


def _own_transaction(read: Change, expected: Change) -> Change:
    """A change without a transaction is one of its own (spec/change-model.md 2); OS user 0 is
    nobody.
    """
    if expected.transaction_id is None:
        assert (read.event_number, read.last_in_transaction) == (1, True)
        read = read._replace(
            transaction_id=None,
            event_number=expected.event_number,
            last_in_transaction=expected.last_in_transaction,
        )
    return read._replace(user=None) if expected.user is None and read.user == "0" else read


def _captures(path: Path, parts: Sequence[Sequence[Change]]) -> None:
    """Streams behind each other whose sequences are the same, as when a server sends a part
    again.
    """
    options = WriteOptions(labels=LABELS, catalog=CATALOG)
    path.write_bytes(
        b"".join(
            data for part in parts for data in write_stream(part, options, Report(strict=True))
        )
    )


def _queues(path: Path, parts: Sequence[Sequence[Change]]) -> None:
    """Exports behind each other, in which a number of a transaction comes again."""
    writers = [
        QueueWriter(WriterOptions(catalog=CATALOG), address=first_address(file))
        for file in range(1, len(parts) + 1)
    ]
    rows = [row for writer, part in zip(writers, parts, strict=True) for row in writer.rows(part)]
    write_export(
        path / "dispatch_queue.csv", path / "dispatch_attrs.csv", rows, writers[0].attrs.values()
    )


_CATALOG: Final = {"catalog": CATALOG}
_LABELS: Final = {"labels": LABELS}

TRIED: Final = {
    tried.letter: tried
    for tried in (
        TriedFormat("E", "log.jsonl", _CATALOG, _CATALOG, lambda read, native: None,
        _time_of_writing), TriedFormat("X", "documents.xmll", _CATALOG, _CATALOG, _event_id),
        TriedFormat("T", "tables", {**_CATALOG, "absent_nulls": "null"}, _CATALOG,
        _stream_position), TriedFormat("K", "messages.jsonl", _CATALOG, _CATALOG, _stream_position),
        TriedFormat(
            "G", "capture.cdc", {**_CATALOG, **_LABELS}, {**_CATALOG, **_LABELS},
            lambda read, native: read.position, _own_transaction, complete=True,
            write_parts=_captures,
        ),
        TriedFormat(
            "L", "queue", {"codec": "eventlog-emulator-1"}, _CATALOG,
            lambda read, native: read.position, _own_transaction, complete=True,
            write_parts=_queues,
        ),
        TriedFormat("C", "events.jsonl", _CATALOG, _CATALOG, _event_id),
        TriedFormat("D", "topics.jsonl", _CATALOG, _CATALOG, _but_of_a_refresh, complete=True),
    )
}  # fmt: skip
"""Letter -> format."""
