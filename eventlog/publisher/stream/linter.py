"""A Linter dispatch queue as a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventlog.changes.format import Report
from eventlog.config.kinds import SECRET, URL
from eventlog.core.options import TEXT, number, option, parse_options
from eventlog.errors import ConfigError
from eventlog.publisher.stream import Gives, Source, Stream, StreamOptions


@dataclass(frozen=True, slots=True)
class LinterOptions(StreamOptions):
    """Options of ``[source]`` of type ``linter``."""

    url: str | None = option(
        None,
        URL,
        "SQLAlchemy URL of the queue; if it contains a password, set url_file instead",
        example="postgresql+psycopg://reader@localhost/queue",
    )
    password: str | None = option(None, SECRET, "password of url", secret=True)
    queue_table: str = option("dispatch_queue", TEXT, "the queue")
    attrs_table: str = option(
        "dispatch_attrs", TEXT, "the table that describes the replicated tables"
    )
    schema_name: str | None = option(None, TEXT, "schema of both", example="replication")
    poll_interval: float = option(1.0, number(0.01, 3600), "seconds between polls of the queue")


class Linter(Source):
    """A dispatch queue of a Linter replication server (formats/linter-queue.md)."""

    name = "linter"
    title = "a Linter dispatch queue"
    options = LinterOptions
    reader_format = "linter"
    gives = frozenset({Gives.TYPES, Gives.TIMES, Gives.WHOLE_ROWS})

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        from eventlog.linter.options import SourceOptions
        from eventlog.linter.reader import ReaderOptions
        from eventlog.publisher.stream.dispatch_queue import DispatchQueue
        from eventlog.publisher.stream.position import url_with_password

        place = SourceOptions(
            queue_table=options.queue_table,
            attrs_table=options.attrs_table,
            schema=options.schema_name,
            dispatch_attrs=reader.get("dispatch_attrs", {}),
        )
        given = {name: value for name, value in reader.items() if name != "dispatch_attrs"}
        chosen = parse_options(ReaderOptions, {"on_row_error": "raw", **given}, "source.reader")
        if chosen.codec == "none":
            raise ConfigError(
                "source.reader.codec is none, but rows must be decoded to be published; name a "
                "row codec"
            )
        if options.url is None:
            raise ConfigError("set source.url, the database of the queue, or source.url_file")
        url = url_with_password(options.url, options.password)
        return DispatchQueue(url, chosen, place, options.poll_interval, report)

    def in_words(self, token: Any) -> str:
        return (
            f"after the COMMIT at {token.get('restart') if isinstance(token, Mapping) else token}"
        )
