"""The format ``gbase``: files of concatenated records (``.cdc``) read as Changes, and Changes written as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Format, Report
from eventlog.core.options import parse_options
from eventlog.errors import FormatError, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.lines import source_files
from eventlog.gbase.listing import listing
from eventlog.gbase.options import ReadOptions, WriteOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.writer import write_stream
from eventlog.model import Change

_CHUNK: Final = 1 << 18


class StoredCapture:
    """A capture: a file of records, or a directory whose files continue one another in the order of their names."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._begun: list[tuple[int, Path]] = []
        self._located: FormatError | None = None

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in bounded pieces. Raises FormatError if it cannot be read."""
        at = 0
        try:
            for file in source_files(Path(self._source), "file of a capture"):
                self._begun.append((at, file))
                with file.open("rb") as capture:
                    while data := capture.read(_CHUNK):
                        at += len(data)
                        yield data
        except OSError as error:
            raise FormatError(f"the capture {self._source} cannot be read: {error.strerror}") from error

    def with_location(self, error: FormatError) -> FormatError:
        """The error with the file in which its record begins, and with the offset there unless it is the first file."""
        if error.offset is not None and error is not self._located:
            begin, file = next(begun for begun in reversed(self._begun) if begun[0] <= error.offset)
            with_location(error, f"{file}, offset {error.offset - begin}" if begin else file)
            self._located = error
        return error

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Errors that are raised within are given their file."""
        try:
            yield
        except FormatError as error:
            raise self.with_location(error) from error.__cause__


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of a capture, whose end is declared; ``options`` are those of ``ReadOptions``.

    Counts in ``report`` what the specification counts; rows that cannot be read are passed over. Raises FormatError,
    ConfigError.
    """
    capture = StoredCapture(source)
    reader = StreamReader(options, on_bad_row=lambda error: report.skip(capture.with_location(error)))
    try:
        with capture.locating():
            for data in capture.chunks():
                yield from reader.feed(data)
            reader.finish()
    finally:
        reader.close()
        report.counters.update(reader.counters)


def listing_of(source: str, options: Mapping[str, Any], report: Report) -> Iterator[str]:
    """A capture as annotated text (``listing``); rows that cannot be read are passed over behind what is known of them.

    Raises FormatError, ConfigError.
    """
    capture = StoredCapture(source)
    chosen = parse_options(ReadOptions, options, "the gbase reader")
    with capture.locating():
        yield from listing(capture.chunks(), chosen, lambda error: report.skip(capture.with_location(error)))


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Changes to a file of records, whole or not at all; ``options`` are those of ``WriteOptions``.

    Changes that a stream cannot hold are passed over. Raises FormatError, ConfigError, OSError.
    """
    with whole_file(target) as file:
        for data in write_stream(changes, options, report):
            file.write(data)


FORMAT: Final = Format("gbase", read, write, (ReadOptions,), (WriteOptions,))
