"""From the configuration to what ``follow`` takes: the source, its position, and how changes become documents; and to
what ``eventlog status --from`` tells of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from eventlog.changes.events import EventWriting
from eventlog.changes.format import Report
from eventlog.changes.json_form import database_of, read_catalog
from eventlog.config.kafka import kafka_properties
from eventlog.config.kinds import read_url
from eventlog.config.load import Config
from eventlog.config.publishing import insert_query_back, publish_options, taken_by_sink, value_options
from eventlog.config.settings import PublisherSettings, SourceSettings
from eventlog.conversion import in_own_options
from eventlog.core.catalog import Catalog, build_catalog, complete_catalog
from eventlog.core.options import options_of, parse_options, toml
from eventlog.errors import ConfigError, EventlogError
from eventlog.publisher.context import Counters
from eventlog.publisher.open_log import is_given, publisher_options
from eventlog.publisher.sinks import Owner
from eventlog.publisher.stream import BadToken, Failure, Source
from eventlog.publisher.stream.follow import Following
from eventlog.publisher.stream.position import (
    OpenPosition,
    Position,
    Saved,
    SourceStatus,
    position_file,
    position_table,
    status_in_file,
    status_in_table,
)
from eventlog.registry import sink_named
from eventlog.sql.connection import describe, parse_url
from eventlog.xds.publish import XdsWriter
from eventlog.xds.writer import Header


def following(config: Config, counters: Counters, report: Report) -> Following:
    """What ``[source]`` names, ready to be followed. ``report`` gets what the reader counts.

    Raises ConfigError for what is missing, wrong, or does not go with a source that is no log.
    """
    if config.format.type != "xds":
        raise ConfigError(f"format.type = {config.format.type} is for a log; a source is published as xds")
    settings, source = publish_options(config), source_of(config.source, report)
    _check_options(config)
    return Following(
        source,
        EventWriting(value_options(config), insert_query_back(config)),
        _catalog(config),
        XdsWriter(Header(settings.product_name, settings.product_version), taken_by_sink(config), settings.indent),
        publisher_options(config, ""),
        counters,
    )


def _catalog(config: Config) -> Catalog | None:
    path = config.source.catalog
    database = None if path is None else database_of(read_catalog(path))
    if database is None:
        return None
    return complete_catalog(
        build_catalog(
            database,
            values=value_options(config),
            meta_identifiers=config.format.meta_identifiers,
            referential=config.format.referential,
        )
    )


def source_status(config: Config) -> SourceStatus:
    """How far the source of ``[source]`` has been published. Raises ConfigError, DatabaseError."""
    settings = config.source
    source, kept = settings.type or "", _place_of(settings)
    if isinstance(kept, Path):
        status = status_in_file(kept, source)
    else:
        status = status_in_table(kept, settings.position_table, source)
    try:
        return replace(status, behind=source_of(settings, Report()).backlog(status.position.token))
    except EventlogError as error:
        return replace(status, unknown=str(error))


# --- the source -------------------------------------------------------------------------------------------------------


def source_of(settings: SourceSettings, report: Report) -> Source:
    """The source that the settings name. Raises ConfigError."""
    reader = dict(settings.reader or {})
    for name in _NOT_GIVEN & reader.keys():
        raise ConfigError(f"source.reader.{name} does not go with following: {_INSTEAD.get(name, 'leave it out')}")
    if settings.catalog is not None:
        reader = dict(
            in_own_options(settings.type or "", "reader", {**reader, "catalog": read_catalog(settings.catalog)})
        )
    match settings.type:
        case "gbase":
            return _stream(settings, reader)
        case "linter":
            return _queue(settings, reader, report)
        case "qlik-messages":
            return _topics(settings, reader, report)
    raise ConfigError("what is to be followed: set source.type, or --from, to gbase, linter or qlik-messages")


_INSTEAD: Final = {"properties": "set source.properties", "catalog": "set source.catalog"}
_NOT_GIVEN: Final = frozenset({"final", "follow", "properties", "catalog", "empty_transactions"})
_STANDARD_INPUT: Final = "-"


def _stream(settings: SourceSettings, reader: Mapping[str, Any]) -> Source:
    from eventlog.gbase.options import ReadOptions
    from eventlog.gbase.session import Capture
    from eventlog.publisher.stream.capture_files import CaptureFiles
    from eventlog.publisher.stream.gbase import CaptureSession, StandardInput

    if (settings.path is None) == (settings.connect is None):
        raise ConfigError("a source gbase needs either source.path or source.connect")
    options = parse_options(ReadOptions, reader, "source.reader")
    if settings.path is not None:
        if settings.path.name == _STANDARD_INPUT:
            return StandardInput(options)
        return CaptureFiles(settings.path, options, settings.poll_interval)
    if settings.connect is None or settings.server is None or settings.capture is None:
        raise ConfigError("source.connect needs source.server, its name, and source.capture, the tables with columns")
    # The labels of the options, numbers that are free for the rest.
    labels = {table: int(label) for label, table in options.labels.items()}
    free = (number for number in count(1) if number not in labels.values())
    captures = [
        Capture(table, columns, labels[table] if table in labels else next(free))
        for table, columns in settings.capture.items()
    ]
    # Here, since it brings the reader of XDS answers.
    from eventlog.publisher.sinks.python import load_function

    connect = load_function(settings.connect, "source.connect", Path.cwd())
    named = replace(options, labels={capture.label: capture.table for capture in captures})
    return CaptureSession(connect, captures, settings.server, named)


def _queue(settings: SourceSettings, reader: dict[str, Any], report: Report) -> Source:
    from eventlog.linter.format import SourceOptions
    from eventlog.linter.reader import ReaderOptions
    from eventlog.publisher.stream.linter import DispatchQueue

    place = SourceOptions(
        queue_table=settings.queue_table,
        attrs_table=settings.attrs_table,
        schema=settings.schema_name,
        dispatch_attrs=reader.pop("dispatch_attrs", {}),
    )
    options = parse_options(ReaderOptions, {"on_row_error": "raw", **reader}, "source.reader")
    if options.codec == "none":
        raise ConfigError("source.reader.codec is none: rows have to be decoded to be published; name a row codec")
    return DispatchQueue(
        _url(settings.url, settings.url_file, settings.password, "url"),
        options,
        place,
        settings.poll_interval,
        report,
    )


def _topics(settings: SourceSettings, reader: Mapping[str, Any], report: Report) -> Source:
    from eventlog.publisher.stream.qlik_messages import Topics
    from eventlog.qlik.message_tables import ReadOptions

    if settings.brokers is None or not settings.topics:
        raise ConfigError("a source qlik-messages needs source.brokers and source.topics")
    if (settings.user is None) != (settings.password is None):
        raise ConfigError("Kafka needs both EVENTLOG_SOURCE_USER and EVENTLOG_SOURCE_PASSWORD, or neither")
    properties = kafka_properties(settings, "source")
    options = parse_options(ReadOptions, reader, "source.reader")
    return Topics(settings.brokers, settings.topics, options, properties, report)


# --- its position -----------------------------------------------------------------------------------------------------


def position_of(config: Config, *, is_dry: bool = False) -> OpenPosition:
    """What opens the position of the source, and makes the directory of the files sink, if it is that, the source's.

    ``is_dry``: the position does not move, and no directory is written to. Raises ConfigError unless exactly one place
    is named.
    """
    settings = config.source
    source, kept = settings.type or "", _place_of(settings)
    open_position: OpenPosition
    if isinstance(kept, Path):
        option, place = f"position_file {kept}", str(kept.resolve())
        open_position = partial(position_file, kept, source)
    else:
        table = settings.position_table
        option, place = f"position_table {table}", f"{table} of {describe(parse_url(kept))}"
        open_position = partial(position_table, kept, table, source)

    @contextmanager
    def opened() -> Iterator[Position]:
        try:
            with open_position() as position:
                if is_dry:
                    yield _Unmoved(position)
                    return
                owner = Owner(f"{source}/{place}", f"the source {source} with its position in {place}")
                sink = sink_named(config.sink.type)
                sink.claim(config.sink.options, lambda: owner, lambda _: position.load().flight)
                yield position
        except BadToken as error:
            raise ConfigError(f"{option}: {error}") from error

    return opened


def _place_of(settings: SourceSettings) -> Path | str:
    """What keeps the position: a file, or the database at a URL with its password.

    Raises ConfigError unless exactly one is named.
    """
    in_table = settings.position_url is not None or settings.position_url_file is not None
    if (settings.position_file is not None) == in_table:
        raise ConfigError("where the position is kept: set either source.position_file or source.position_url")
    if settings.position_file is not None:
        return settings.position_file
    return _url(settings.position_url, settings.position_url_file, settings.position_password, "position_url")


class _Unmoved:
    """A position that is read, and not saved."""

    def __init__(self, position: Position) -> None:
        self.load = position.load

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Nothing is saved."""


def _url(url: str | None, file: Path | None, password: str | None, name: str) -> str:
    """A URL with its password, out of the settings or a file. Raises ConfigError."""
    if (url is None) == (file is None):
        raise ConfigError(f"set either source.{name} or source.{name}_file")
    if file is not None:
        url = read_url(file, f"source.{name}_file")
    parsed = parse_url(url or "")
    if password is not None:
        parsed = parsed.set(password=password)
    return parsed.render_as_string(hide_password=False)


# --- the options that count -------------------------------------------------------------------------------------------

_COUNTING: Final = frozenset({
    "profile", "publisher_disabled", "batch_size", "query_limit", "heartbeat_interval", "retry_initial", "retry_max",
    "on_retry", "max_parked", "concurrency", "flight_rows", "mark_interval", "health_file",
})  # fmt: skip
"""Of [publisher]: what counts for a source that is no log."""

_OF_FILE: Final = frozenset({"position_file"})
_OF_TABLE: Final = frozenset({"position_url", "position_url_file", "position_password", "position_table"})
_OF_KIND: Final = {
    "a capture in files": frozenset({"path", "poll_interval"}),
    "a capture on standard input": frozenset({"path"}),
    "a session with a server": frozenset({"connect", "server", "capture"}),
}
"""Of the options for gbase, those that count for each kind of its sources."""


def _check_options(config: Config) -> None:
    """Raises ConfigError for an option that was set and would have no effect on this source."""
    settings, kind = config.source, _kind(config.source)
    place = _OF_FILE if settings.position_file is not None else _OF_TABLE
    for name, option in options_of(SourceSettings).items():
        if not is_given(config, f"source.{name}"):
            continue
        only_for = option.only_for
        if only_for and (settings.type not in only_for.split(", ") or name not in _OF_KIND.get(kind, {name})):
            raise ConfigError(f"{config.sources[f'source.{name}']} has no meaning for {kind}: leave it out")
        if name in (_OF_FILE | _OF_TABLE) - place:
            raise ConfigError(
                f"{config.sources[f'source.{name}']} has no meaning where the position is in "
                f"{'position_file' if place is _OF_FILE else 'a table'}: leave it out"
            )
    if config.publisher.time_of_day:
        raise ConfigError(
            f"{config.sources['publisher.time_of_day']} is for a log; a source is followed all the time: leave it out, "
            "or run `eventlog publish --once` at these times"
        )
    for name, usual in (("emit_keys", False), ("noop_updates", "drop"), ("referential", "value")):
        value = getattr(config.format, name)
        if value == usual or (name == "referential" and settings.catalog is not None):
            continue
        instead = "needs source.catalog" if name == "referential" else "is for a log: leave it out"
        raise ConfigError(f"{config.sources[f'format.{name}']} = {toml(value)} {instead}")


def ignored_options(config: Config) -> list[str]:
    """The options about a log that were set and do not count."""
    names = (f"publisher.{name}" for name in options_of(PublisherSettings) if name not in _COUNTING)
    return [name for name in names if is_given(config, name)]


def _kind(settings: SourceSettings) -> str:
    if settings.type != "gbase":
        return settings.type or ""
    if settings.path is None:
        return "a session with a server"
    return "a capture on standard input" if settings.path.name == _STANDARD_INPUT else "a capture in files"
