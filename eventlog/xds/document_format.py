"""The change format ``xds``: XDS documents in files (spec/change-model.md 2, 3.2, 4, spec/xds.md 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from eventlog.changes.events import EventWriting, change_to_events, event_to_change
from eventlog.changes.format import EXISTING_KEYS, Format, Report, keys_of, written
from eventlog.changes.json_form import CATALOG, CatalogOption, catalog_of
from eventlog.core.catalog import Catalog
from eventlog.core.options import (
    BATCH_SIZE,
    CHAR_PADDING,
    INDENT,
    INSERT_QUERY_BACK,
    META_IDENTIFIERS,
    PRODUCT_NAME,
    PRODUCT_VERSION,
    REFERENTIAL,
    SPECIAL_TIMES,
    STRING,
    TIME_SYNTAX,
    TIME_ZONE,
    CheckedOptions,
    choice,
    integer,
    option,
    shared,
)
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, XdsError
from eventlog.files.atomic import whole_directory, whole_file
from eventlog.files.text import source_files
from eventlog.model import Change
from eventlog.xds.reader import DEFAULT_LIMIT, Document, read_events
from eventlog.xds.writer import Header, file_form, line_form, write_event

_HIGHEST_LIMIT: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class DocumentOptions(CheckedOptions):
    """Options of reader and writer, those of spec/event-log.md 9 under their names there."""

    catalog: CatalogOption = shared(CATALOG)
    time_syntax: str = shared(TIME_SYNTAX)
    time_zone: str = shared(TIME_ZONE)
    char_padding: str = shared(CHAR_PADDING)
    special_times: str = shared(SPECIAL_TIMES)
    meta_identifiers: bool = shared(META_IDENTIFIERS)
    referential: str = shared(REFERENTIAL)

    def values(self) -> ValueOptions:
        """How values are spelled."""
        return ValueOptions(self.time_syntax, self.time_zone, self.char_padding, self.special_times)

    def classes(self, values: ValueOptions) -> Catalog | None:
        """The classes of the catalogue, None without one. Raises ConfigError."""
        return catalog_of(
            self.catalog, values=values, meta_identifiers=self.meta_identifiers, referential=self.referential
        )


@dataclass(frozen=True, slots=True)
class DocumentReaderOptions(DocumentOptions):
    """Options of the reader; the others say how the documents were written."""

    limit: int = option(DEFAULT_LIMIT, integer(1, _HIGHEST_LIMIT), "bytes of the largest document")


@dataclass(frozen=True, slots=True)
class DocumentWriterOptions(DocumentOptions):
    """Options of the writer."""

    insert_query_back: str = shared(INSERT_QUERY_BACK)
    batch_size: int = shared(BATCH_SIZE)
    product_name: str = shared(PRODUCT_NAME, kind=STRING)
    product_version: str = shared(PRODUCT_VERSION, kind=STRING)
    form: str = option("lines", choice("lines", "directory"), "an envelope a line, or an envelope a file")
    indent: int = shared(INDENT)
    existing_keys: Any = shared(EXISTING_KEYS)


def read(source: str, options: DocumentReaderOptions, report: Report) -> Iterator[Change]:
    """The changes of the events of a file or of the files of a directory, in the order of their names.

    A file is one document, or one document a line. What cannot be read is passed over; elements that are no changes
    are counted as ``other_elements``.
    """
    values = options.values()
    catalog = options.classes(values)
    for path in source_files(Path(source), ".xml or .xmll file", (".xml", ".xmll")):
        for place, document in _documents(path, options.limit):
            if isinstance(document, XdsError):
                report.skip(document)
                continue
            if document.others:
                report.count("other_elements", len(document.others))
            for event in document.events:
                try:
                    change = event_to_change(event, catalog, values)
                except FormatError as error:
                    report.skip(FormatError(f"{place}: {error}"))
                    continue
                yield change


def _documents(path: Path, limit: int) -> Iterator[tuple[str, Document | XdsError]]:
    """The documents of a file with their places: one a line if the first line ends an envelope.

    None in a file of nothing, which is what no changes are written as. The file is read once, front to back.
    """
    with path.open("rb") as file:
        blank, line, number = bytearray(), file.readline(limit + 1), 1
        while line.isspace():
            blank += line
            line, number = file.readline(limit + 1), number + 1
        if b"</nds>" not in line:
            if line:
                yield str(path), _document(bytes(blank) + line + file.read(limit + 1), limit, path, None)
            return
        while line:
            if len(line) > limit:
                raise XdsError(f"{path}, line {number}: longer than {limit} bytes: raise the option limit")
            if not line.isspace():
                yield f"{path}, line {number}", _document(line, limit, path, number)
            line, number = file.readline(limit + 1), number + 1


_WITHIN: Final = re.compile("line ([0-9]+): ")
_PARSER_PLACE: Final = re.compile(", line [0-9]+, column ([0-9]+)$")


def _document(data: bytes, limit: int, path: Path, number: int | None) -> Document | XdsError:
    """A document, or what is wrong with it, with file and line: ``number`` where the document is one line."""
    try:
        return read_events(data, limit)
    except XdsError as error:
        within = _WITHIN.match(str(error))
        line = number or (within and within[1])
        message = _PARSER_PLACE.sub(r", column \1", str(error)[within.end() if within else 0 :])
        return XdsError(f"{path}, line {line}: {message}" if line else f"{path}: {message}")


def write(changes: Iterable[Change], target: str, options: DocumentWriterOptions, report: Report) -> None:
    """Changes as documents of up to ``batch_size`` events: lines of a file, or files of a directory; whole or not."""
    values = options.values()
    catalog = options.classes(values)
    writing = EventWriting(
        values,
        options.insert_query_back,
        keys_of(options.existing_keys, catalog),
        lambda column: report.count(f"truncated {column}"),
    )
    header = Header(options.product_name, options.product_version)
    events_of = partial(change_to_events, catalog=catalog, options=writing)
    events = map(write_event, written(changes, events_of, report))
    with ExitStack() as stack:
        if options.form == "lines":
            file = stack.enter_context(whole_file(target))
            while envelope := list(islice(events, options.batch_size)):
                file.write(line_form(envelope, header).encode())
            return
        directory = stack.enter_context(whole_directory(target))
        number = 0
        while envelope := list(islice(events, options.batch_size)):
            number += 1
            (directory / f"{number:09}.xml").write_bytes(file_form(envelope, header, options.indent).encode())


FORMAT: Final = Format("xds", read, write, (DocumentReaderOptions,), (DocumentWriterOptions,))
