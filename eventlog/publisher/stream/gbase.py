"""A GBase 8s (Informix) CDC stream as a source: from files, from standard input, or from a session
with a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.config.kinds import LISTS
from eventlog.core.options import PATH, TEXT, number, option, parse_options
from eventlog.errors import ConfigError
from eventlog.publisher.stream import Gives, Source, Stream, StreamOptions

_STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class GbaseOptions(StreamOptions):
    """Options of ``[source]`` of type ``gbase``."""

    path: Path | None = option(
        None,
        PATH,
        "a file that grows, a directory of files that continue one another, "
        "or - for standard input",
        example="streams",
    )
    connect: str | None = option(
        None,
        TEXT,
        "in place of path: module:function that returns a DB-API connection to syscdcv1 and the "
        "function that reads a session",
        example="gbase_access:connect",
    )
    server: str | None = option(None, TEXT, "with connect: name of the server", example="gbase01")
    capture: Mapping[str, tuple[str, ...]] | None = option(
        None, LISTS, "with connect: db:owner.table and the columns to capture",
        example={"shop:app.item": ["id", "name"]},
    )  # fmt: skip
    poll_interval: float = option(
        1.0, number(0.01, 3600), "seconds between checks of the end of a file"
    )


class Gbase(Source):
    """A CDC stream of GBase 8s (formats/gbase-cdc.md)."""

    name = "gbase"
    title = "a CDC stream of GBase 8s"
    options = GbaseOptions
    reader_format = "gbase"
    gives = frozenset(Gives)

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        from eventlog.gbase.options import ReadOptions
        from eventlog.gbase.session import Capture
        from eventlog.publisher.stream.cdc_stream import ServerSession, StandardInput
        from eventlog.publisher.stream.stream_files import StreamFiles

        if (options.path is None) == (options.connect is None):
            raise ConfigError("a source gbase needs either source.path or source.connect")
        chosen = parse_options(ReadOptions, reader, "source.reader")
        if options.path is not None:
            if options.path.name == _STANDARD_INPUT:
                return StandardInput(chosen)
            return StreamFiles(options.path, chosen, options.poll_interval)
        if options.server is None or options.capture is None:
            raise ConfigError(
                "source.connect also needs source.server, the server's name, and source.capture, "
                "the tables with their columns"
            )
        # Labels come from the options; other tables get unused numbers.
        labels = {table: int(label) for label, table in chosen.labels.items()}
        free = (number for number in count(1) if number not in labels.values())
        captures = [
            Capture(table, columns, labels[table] if table in labels else next(free))
            for table, columns in options.capture.items()
        ]
        # A late import, since the module loads the reader of XDS answers.
        from eventlog.publisher.sinks.python import load_function

        connect = load_function(options.connect, "source.connect", Path.cwd())
        named = replace(chosen, labels={capture.label: capture.table for capture in captures})
        return ServerSession(connect, captures, options.server, named)

    def kind(self, options: Any) -> str:
        if options.path is None:
            return "a session with a server"
        return (
            "a stream on standard input"
            if options.path.name == _STANDARD_INPUT
            else "a stream in files"
        )

    def unused(self, options: Any) -> frozenset[str]:
        of_session = frozenset({"connect", "server", "capture"})
        if options.path is None:
            return frozenset({"path", "poll_interval"})
        return (
            of_session | {"poll_interval"} if options.path.name == _STANDARD_INPUT else of_session
        )

    def in_words(self, token: Any) -> str:
        words = ", ".join(f"{name} {token.get(name) or 'none'}" for name in ("restart", "commit"))
        place = token.get("capture")
        if place is None:
            return words
        return f"{words}; byte {place['restart']['offset']} of {place['restart']['file']}"
