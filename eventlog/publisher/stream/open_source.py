"""The publisher of a source, composed from the configuration: the source, its position, and the
writer of its changes. The module also reads the status of a source for ``eventlog status --from``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from eventlog.changes.format import Format, Report
from eventlog.changes.json_form import database_of, read_catalog
from eventlog.changes.publishing import EventWriter, Need
from eventlog.config.load import Config
from eventlog.config.publishing import (
    chosen_format,
    publish_options,
    taken_by,
    taken_by_sink,
    value_options,
)
from eventlog.config.settings import PublisherSettings, SourceSettings
from eventlog.conversion import in_own_options
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.options import options_of, toml
from eventlog.errors import ConfigError, EventlogError, called
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.declared.configured_sink import SecondSink, second_sink
from eventlog.publisher.declared.opening import is_given, publisher_options
from eventlog.publisher.inspect.explanation import Explanation
from eventlog.publisher.inspect.skipping import Skipped
from eventlog.publisher.run.waiting import Stop
from eventlog.publisher.sinks import Owner, Sink
from eventlog.publisher.stream import BadToken, Gives, Source, Stream
from eventlog.publisher.stream.checked import CheckedStream
from eventlog.publisher.stream.explaining import explain_event, explain_key
from eventlog.publisher.stream.follow import Following, follow
from eventlog.publisher.stream.output import StreamOutput
from eventlog.publisher.stream.position import (
    FailureGroup,
    OpenPosition,
    SourceRecords,
    SourceStatus,
    TablePosition,
    UnmovedPosition,
    failures_in_table,
    position_table,
    records_in_table,
    status_in_table,
)
from eventlog.publisher.stream.recorded import RecordedEvent
from eventlog.publisher.stream.skipping import skip_recorded
from eventlog.registry import (
    SOURCES,
    as_plugin_errors,
    is_own,
    sink_named,
    source_named,
    writer_of,
)
from eventlog.sql.connect.connection import describe, parse_url


def source_publisher(
    config: Config, counters: Counters, report: Report, *, is_dry: bool = False
) -> Callable[[Callable[[], Sink], Stop, bool, Observer], None]:
    """Return the function ``follow`` with what a configuration gives it: the source, its position,
    ``standby``. The arguments of the returned function are the function that opens the sink,
    ``stop``, ``once`` and ``observer``.

    This function has the arguments and the errors of ``following`` and ``position_of``.
    """
    source, position = following(config, counters, report), position_of(config, is_dry=is_dry)
    letters = None if is_dry else config.of_letters
    open_letters = None
    if letters is not None:
        open_letters = partial(_open_letters, letters, _open_writer(letters))
    standby = config.publisher.standby
    return partial(follow, source, position, standby=standby, open_letters=open_letters)


def _open_letters(letters: Config, open_writer: Callable[[], EventWriter[Any]]) -> SecondSink:
    return second_sink(letters, open_writer())


def _open_writer(config: Config) -> Callable[[], EventWriter[Any]]:
    """Return the function that opens a writer of the source's events for the configured sink.
    Raises ConfigError.
    """
    kind, catalog = _kind_of(config.source), _catalog(config)
    publishing = replace(
        taken_by_sink(config), values=value_options(config), log=kind.name, catalog=catalog
    )
    format, options = chosen_format(config), publish_options(config)
    if why := _lacking(kind, format, writer_of(format, options, publishing).needs):
        raise ConfigError(f"format.type = {format.name} of the source {kind.name}: {why}")
    return partial(writer_of, format, options, publishing)


def following(config: Config, counters: Counters, report: Report) -> Following:
    """Return the source that ``[source]`` names, ready to be followed. ``report`` gets the reader's
    counts.

    Raises ConfigError for options that are missing, wrong, or only for a log.
    """
    source = source_of(config.source, report)
    _check_options(config)
    return Following(
        source,
        _open_writer(config),
        _catalog(config),
        publisher_options(config, ""),
        counters,
        value_options(config),
    )


def refusal_of(kind: Source, format: Format, sink: str) -> str | None:
    """Return why the changes of a source cannot be sent to a sink in a format with the default
    options of the format. Return None if they can be sent (spec/change-model.md 6.5).
    """
    options, publishing = format.publish_options and format.publish_options(), taken_by(sink)
    if why := format.refusal(options, publishing):
        return why[1]
    return _lacking(kind, format, writer_of(format, options, publishing).needs)


def _lacking(kind: Source, format: Format, needs: frozenset[Need]) -> str | None:
    """Return the reason if a writer needs more than the followed source provides, otherwise None.

    A log can read back values.
    """
    if kind.is_log or Need.WHOLE_ROWS not in needs or Gives.WHOLE_ROWS in kind.gives:
        return None
    return (
        f"{kind.title} may lack columns of a row, and there is no database to read them back "
        f"from: set format.{format.name}.missing_columns = placeholder or error, or choose "
        "another format"
    )


def _catalog(config: Config) -> Catalog | None:
    path = config.source.options.catalog
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
    """Return the progress of the source in ``[source]``. Raises ConfigError, DatabaseError."""
    settings = config.source
    status = status_in_table(*_position_at(settings))
    try:
        with as_plugin_errors():
            behind = source_of(settings, Report()).backlog(status.position.token)
        return replace(status, behind=behind)
    except EventlogError as error:
        return replace(status, unknown=str(error))


def source_failures(config: Config, most: int) -> list[FailureGroup]:
    """Return the failures of the source in ``[source]``, by code.

    Raises ConfigError, DatabaseError.
    """
    return failures_in_table(*_position_at(config.source), most)


def explained_events(
    config: Config, event_id: str | None, key: str = ""
) -> tuple[SourceRecords, list[Explanation]]:
    """Return what is recorded about the source in ``[source]``, and the explanation of the event of
    this event-id. If ``event_id`` is None, explain the unanswered events of the objects with this
    key.

    Raises ConfigError, DatabaseError.
    """
    source = config.source.type
    records = records_in_table(*_position_at(config.source), event_id)
    records = records._replace(max_attempts=config.publisher.max_attempts)
    with ExitStack() as opened:

        @cache
        def output() -> StreamOutput:
            writer = opened.enter_context(closing(_open_writer(config)()))
            return StreamOutput(writer, _catalog(config), value_options(config))

        def write(event: RecordedEvent) -> str:
            with as_plugin_errors():
                return output().shown(event)

        if event_id is None:
            return records, explain_key(source, records, key, write)
        return records, [explain_event(source, records, event_id, write)]


def skip_in_source(config: Config, event_ids: Iterable[str], why: str) -> list[Skipped]:
    """Give up events of the source in ``[source]`` that have no answer.

    Raises ConfigError if there is no such event, PublisherAlreadyRunning, DatabaseError; then no
    event is given up.
    """
    with position_table(*_position_at(config.source)) as position:
        return skip_recorded(position, event_ids, why)


def parked_in_source(config: Config) -> list[str]:
    """Return the event-ids of the events of the source in ``[source]`` that are parked, according
    to the tables of the position.
    """
    status = status_in_table(*_position_at(config.source))
    return [one.event_id for one in status.waiting if one.is_parked]


def place_in_words(source: str, token: Any) -> str:
    """Return a position in words for people."""
    if token is None:
        return "at the beginning of the source"
    try:
        kind: Source = source_named(source)()
        return kind.in_words(token)
    except Exception:  # it was changed by hand, or a package fails
        return json.dumps(token)


# --- the source -----------------------------------------------------------------------------------


def source_of(settings: SourceSettings, report: Report) -> Stream:
    """Return the source that the settings name. Raises ConfigError."""
    kind = _kind_of(settings)
    options = settings.options
    reader = dict(options.reader or {})
    for name in _NOT_GIVEN & reader.keys():
        raise ConfigError(
            f"source.reader.{name} cannot be used when following a source; "
            f"{_INSTEAD.get(name, 'remove it')}"
        )
    if options.catalog is not None and kind.reader_format is not None:
        reader["catalog"] = read_catalog(options.catalog)
        reader = dict(in_own_options(kind.reader_format, "reader", reader))
    stream: Stream = called(kind.open, options, reader, report)
    return stream if is_own(SOURCES, kind.name) else CheckedStream(stream, kind.open)


def _kind_of(settings: SourceSettings) -> Source:
    kind: Source = source_named(settings.type)()
    return kind


_INSTEAD: Final = {"properties": "set source.properties", "catalog": "set source.catalog"}
_NOT_GIVEN: Final = frozenset({"final", "follow", "properties", "catalog", "empty_transactions"})


# --- its position ---------------------------------------------------------------------------------


def position_of(config: Config, *, is_dry: bool = False) -> OpenPosition:
    """Return a function that opens the position of the source and claims the sink's place for the
    source.

    With ``is_dry`` the position does not move, and the sink's place is not written. Raises
    ConfigError unless exactly one database for the position is named.
    """
    url, table, source = _position_at(config.source)
    kind = UnmovedPosition if is_dry else TablePosition

    @contextmanager
    def opened() -> Iterator[TablePosition]:
        try:
            with position_table(url, table, source, kind) as position:
                if is_dry:
                    yield position
                    return
                place = f"{table} of {describe(parse_url(url))}"
                owner = Owner(
                    f"{source}/{place}", f"the source {source} with its position in {place}"
                )
                sink = sink_named(config.sink.type)
                sink.claim(
                    config.sink.options, lambda: owner, lambda _: position.load().delivery_no
                )
                if (letters := config.of_letters) is not None:
                    # Their numbers are moments, so that all that are there are of the past.
                    second = sink_named(letters.sink.type)
                    second.claim(letters.sink.options, lambda: owner, lambda latest: latest)
                yield position
        except BadToken as error:
            raise ConfigError(f"position_table {table}: {error}") from error

    return opened


def _position_at(settings: SourceSettings) -> tuple[str, str, str]:
    """Return the URL of the position's database, the table there, and the name of the source.

    Raises ConfigError unless a database is named.
    """
    options = settings.options
    if options.position_url is None:
        raise ConfigError(
            "the source needs a place for its position: set source.position_url to a database, "
            'such as a SQLite file: position_url = "sqlite:////var/lib/eventlog/position.db"'
        )
    return str(options.position_url), options.position_table, settings.type


# --- the options that have an effect --------------------------------------------------------------

_COUNTING: Final = frozenset({
    "profile", "publisher_disabled", "batch_size", "query_limit", "heartbeat_interval",
    "retry_initial", "retry_max", "on_retry", "max_parked", "concurrency", "delivery_rows",
    "mark_interval", "health_file", "standby", "isolate_after", "max_attempts",
})  # fmt: skip
"""The options of [publisher] that have an effect on a source that is not a log."""


def _check_options(config: Config) -> None:
    """Raise ConfigError if an option is set that has no effect on this source."""
    settings = config.source
    kind = _kind_of(settings)
    options = settings.options
    for name in (*settings.others, *kind.unused(options)):
        if is_given(config, f"source.{name}"):
            raise ConfigError(
                f"{config.sources[f'source.{name}']} has no effect for {kind.kind(options)}; "
                "remove it"
            )
    if config.publisher.time_of_day:
        raise ConfigError(
            f"{config.sources['publisher.time_of_day']} applies only to a log, since a source is "
            "followed all the time: remove it, then let a timer run `eventlog publish --once`"
        )
    for name, usual in (("emit_keys", False), ("noop_updates", "drop"), ("referential", "value")):
        value = getattr(config.format, name)
        if value == usual or (name == "referential" and options.catalog is not None):
            continue
        instead = (
            "needs source.catalog"
            if name == "referential"
            else "applies only to a log; remove this option"
        )
        raise ConfigError(f"{config.sources[f'format.{name}']} = {toml(value)} {instead}")


def ignored_options(config: Config) -> list[str]:
    """Return the options that are set but concern only a log, so that they have no effect here."""
    names = (f"publisher.{name}" for name in options_of(PublisherSettings) if name not in _COUNTING)
    return [name for name in names if is_given(config, name)]
