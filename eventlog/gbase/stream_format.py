"""The format ``gbase``: files of concatenated records (``.cdc``) read as Changes, and Changes written as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eventlog.errors import FormatError
from eventlog.formats import Format, Report, parse_options
from eventlog.gbase.options import ReadOptions, WriteOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.writer import write_stream
from eventlog.model import Change
from eventlog.whole_output import whole_file

_CHUNK: Final = 1 << 18


def chunks(source: str) -> Iterator[bytes]:
    """The bytes of a capture in bounded pieces: a file of records, or a directory whose files continue one another in
    the order of their names. Raises FormatError if it cannot be read.
    """
    path = Path(source)
    try:
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        for file in files:
            with file.open("rb") as capture:
                while data := capture.read(_CHUNK):
                    yield data
    except OSError as error:
        raise FormatError(f"the capture {source} cannot be read: {error.strerror}") from error


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of a capture, whose end is declared; ``options`` are those of ``ReadOptions``.

    Counts in ``report`` what the specification counts; rows that cannot be read are passed over. Raises FormatError,
    ConfigError.
    """
    reader = StreamReader(parse_options(ReadOptions, options, "the gbase reader"), on_bad_row=report.pass_over)
    try:
        for data in chunks(source):
            for change in reader.feed(data):
                report.read += 1
                yield change
        reader.finish()
    finally:
        reader.close()
        report.counters.update(reader.counters)


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Changes to a file of records, whole or not at all; ``options`` are those of ``WriteOptions``.

    Changes that a stream cannot hold are passed over. Raises FormatError, ConfigError.
    """
    parsed = parse_options(WriteOptions, options, "the gbase writer")
    try:
        with whole_file(target) as file:
            for data in write_stream(changes, parsed, report):
                file.write(data)
    except OSError as error:
        raise FormatError(f"the stream {target} cannot be written: {error.strerror}") from error


FORMAT: Final = Format("gbase", read, write)
