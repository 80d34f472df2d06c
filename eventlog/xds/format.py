"""The change format ``xds``: documents in files (spec/change-model.md 2, 3.2, 4).

The parser of documents, ``reader``, is imported when a document is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

from eventlog.changes.answers import AnswerForm
from eventlog.changes.format import Format, Refusal, Report, RowTexts, written
from eventlog.changes.json_form import CATALOG, CatalogOption, catalog_of
from eventlog.changes.keys import EXISTING_KEYS, keys_of
from eventlog.changes.losses import Loss
from eventlog.changes.publishing import Publishing
from eventlog.changes.to_events import EventWriting, change_to_events
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
    GivenOptions,
    choice,
    integer,
    option,
    parse_options,
    shared,
)
from eventlog.core.values import ValueOptions
from eventlog.files.atomic import whole_directory, whole_file
from eventlog.model import Answer, Change
from eventlog.xds.plain import DEFAULT_LIMIT
from eventlog.xds.publish import XdsWriter
from eventlog.xds.writer import Header, file_form, line_form, write_event


@dataclass(frozen=True, slots=True)
class DocumentOptions(CheckedOptions):
    """Options that reader and writer share, under the names of spec/event-log.md 9."""

    catalog: CatalogOption = shared(CATALOG)
    time_syntax: str = shared(TIME_SYNTAX)
    time_zone: str = shared(TIME_ZONE)
    char_padding: str = shared(CHAR_PADDING)
    special_times: str = shared(SPECIAL_TIMES)
    meta_identifiers: bool = shared(META_IDENTIFIERS)
    referential: str = shared(REFERENTIAL)

    def values(self) -> ValueOptions:
        """Return the options that decide the form of values."""
        return ValueOptions(self.time_syntax, self.time_zone, self.char_padding, self.special_times)

    def classes(self, values: ValueOptions) -> Catalog | None:
        """Return the classes of the catalogue, None without a catalogue. Raises ConfigError."""
        return catalog_of(
            self.catalog,
            values=values,
            meta_identifiers=self.meta_identifiers,
            referential=self.referential,
        )


@dataclass(frozen=True, slots=True)
class DocumentReaderOptions(DocumentOptions):
    """Options of the reader. All of them except ``limit`` must be the options with which the
    documents were written.
    """

    limit: int = option(DEFAULT_LIMIT, integer(1, 1 << 40), "maximum size of a document in bytes")


@dataclass(frozen=True, slots=True)
class PublishOptions(CheckedOptions):
    """Options of the documents of a publisher or a backlog."""

    insert_query_back: str = shared(INSERT_QUERY_BACK)
    time_syntax: str = shared(TIME_SYNTAX)
    indent: int = shared(INDENT)
    product_name: str = shared(PRODUCT_NAME)
    product_version: str = shared(PRODUCT_VERSION)


@dataclass(frozen=True, slots=True)
class DocumentWriterOptions(DocumentOptions):
    """Options of the writer."""

    insert_query_back: str = shared(INSERT_QUERY_BACK)
    batch_size: int = shared(BATCH_SIZE)
    product_name: str = shared(PRODUCT_NAME, kind=STRING)
    product_version: str = shared(PRODUCT_VERSION, kind=STRING)
    file_layout: str = option(
        "lines",
        choice("lines", "documents"),
        "one document per line, or one document per file",
    )
    indent: int = shared(INDENT)
    existing_keys: Any = shared(EXISTING_KEYS)


def _answer(body: bytes, event_ids: Collection[str], limit: int, _: object) -> Answer:
    from eventlog.xds.reader import read_answer

    return read_answer(body, event_ids, limit)


class XdsFormat(Format):
    """XDS documents, one for each line or for each file (spec/xds.md)."""

    name = "xds"
    title = "XDS documents"
    endings = {"lines": ".xmll", "documents": ".xml"}  # noqa: RUF012 - read only
    reader_options = (DocumentReaderOptions,)
    written_by = DocumentReaderOptions
    writer_options = (DocumentWriterOptions,)
    publish_options = PublishOptions
    response_format = "xds"
    answer_form = AnswerForm(
        "application/xml",
        _answer,
        status_refuses=False,
    )
    loses = frozenset({
        Loss.NULLS, Loss.UNCHANGED, Loss.UNCHANGED_BEFORE, Loss.DELETED, Loss.REFRESH,
        Loss.KEY_CHANGE, Loss.TRANSACTION, Loss.COMMIT_TIME, Loss.USER,
    })  # fmt: skip
    suffixes = frozenset({".xml", ".xmll"})
    has_single_files = True
    is_read_once = True

    def output_place(self, name: str, options: GivenOptions) -> str:
        return (
            name
            if options.get("file_layout") == "documents"
            else super().output_place(name, options)
        )

    def read_changes(
        self, source: str, options: DocumentReaderOptions, report: Report
    ) -> Iterator[Change]:
        """Yield the changes of the events of a file, or of the files of a directory in the order of
        their names.

        A file holds one document, or one document per line. A document or event that cannot be read
        is reported and skipped; elements that are not of the vocabulary are counted as
        ``other_elements``, by their names.
        """
        from eventlog.xds.reader import changes_in

        values = options.values()
        yield from changes_in(source, options.limit, options.classes(values), values, report)

    def texts(
        self, source: str, options: GivenOptions, report: Report
    ) -> Iterator[Change | RowTexts]:
        from eventlog.xds.reader import texts_in

        chosen = parse_options(DocumentReaderOptions, options, "the xds reader")
        values = chosen.values()
        yield from texts_in(source, chosen.limit, chosen.classes(values), values, report)

    def write_changes(
        self, changes: Iterable[Change], target: str, options: DocumentWriterOptions, report: Report
    ) -> None:
        """Write documents of up to ``batch_size`` events. A document is a line of a file, or a
        file.
        """
        values = options.values()
        catalog = options.classes(values)
        writing = EventWriting(
            values,
            options.insert_query_back,
            keys_of(options.existing_keys, catalog),
            lambda column: report.count(f"truncated {column}"),
            lambda column: report.count(f"null_unchanged {column}"),
            lambda column: report.count(f"old_unreadable {column}"),
        )
        header = Header(options.product_name, options.product_version)
        events_of = partial(change_to_events, catalog=catalog, options=writing)
        events = map(write_event, written(changes, events_of, report))
        with ExitStack() as stack:
            if options.file_layout == "lines":
                file = stack.enter_context(whole_file(target))
                while chunk := list(islice(events, options.batch_size)):
                    file.write(line_form(chunk, header).encode())
                return
            directory = stack.enter_context(whole_directory(target))
            number = 0
            while chunk := list(islice(events, options.batch_size)):
                number += 1
                (directory / f"{number:09}.xml").write_bytes(
                    file_form(chunk, header, options.indent).encode()
                )

    def publish(self, options: PublishOptions, publishing: Publishing) -> XdsWriter:
        return XdsWriter(
            Header(options.product_name, options.product_version), publishing, options.indent
        )

    def ignored(self, options: PublishOptions, publishing: Publishing) -> Refusal | None:
        if options.indent and publishing.in_records:
            return "indent", "on records of Kafka, which are not indented"
        if options.indent and publishing.file_layout == "lines":
            why = 'with file_layout = "lines", which writes a document on one line'
            return "indent", f'{why}: set file_layout = "documents" in [sink], or remove indent'
        return None

    def values(self, options: PublishOptions, shared: ValueOptions) -> ValueOptions:
        return replace(shared, time_syntax=options.time_syntax, characters="xml")

    def insert_query_back(self, options: PublishOptions) -> str:
        return options.insert_query_back


FORMAT: Final = XdsFormat()
