"""The run of ``eventlog publish``: the daemon, one run, or a dry run."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from eventlog.changes.format import Report
from eventlog.cli.context import Advance, CommandContext, report_error
from eventlog.cli.context import progress as progress_bar
from eventlog.cli.publish.publish import Publish
from eventlog.cli.stopping import previous_handler
from eventlog.config.effective import non_default, receiver
from eventlog.config.load import Config, is_set
from eventlog.config.publishing import ignored_options, plain_credentials
from eventlog.config.settings import variable
from eventlog.core.clock import start_thread
from eventlog.core.extras import install_command
from eventlog.core.options import toml
from eventlog.errors import ConfigError, number_of
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context import (
    SILENT,
    Context,
    Counters,
    Observer,
    SnapshotProgress,
    Used,
    closing_summary,
    has_failed,
    join_observers,
    stream_summary,
    warn_of_loopback,
)
from eventlog.publisher.declared import (
    comparison,
    letters_of,
    open_sink,
    open_to_publish,
    open_unlocked,
    planned_triggers,
    refuse_other_masks,
    refuse_post_poll,
)
from eventlog.publisher.ledger import LOCK_WAIT, count_undone
from eventlog.publisher.run import (
    NOTHING_PUBLISHED,
    Liveness,
    StopRequest,
    liveness_of,
    publish_log,
    publish_once,
    reported_liveness,
    watched_over,
)
from eventlog.publisher.send import dry_run
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.stdout import StreamSink
from eventlog.registry import sink_named
from eventlog.sql.readers import ConsumerStart

_log = logging.getLogger("eventlog.publisher")

_MAX_COUNTED: Final = 100_000_000
"""The maximum number of waiting rows that are counted for the progress bar."""
_REDRAWN: Final = 0.2
"""The seconds between two updates of the progress bar."""
_DONE: Final = (
    *("rows_success", "rows_warning", "rows_error", "rows_fatal"),
    *("rows_invalid", "rows_loopback", "rows_dropped", "rows_gone", "rows_noop"),
)
"""The counters of rows that have their final status, or are about to get it."""


def run_publish(context: CommandContext, request: Publish, config: Config) -> ExitCode:
    """Run ``eventlog publish`` for a log."""
    _refuse_other_configuration(config, context)
    counters = Counters()
    if not _may_begin(request, config):
        return ExitCode.DONE
    if request.dry:
        _print_documents(config, counters)
        return ExitCode.DONE
    _log_settings(config, context.file, once=request.once)
    _log.info("%s", _start_line(config))
    stop = _stop_on_signals()
    quiet = context.quiet or not sys.stderr.isatty()
    quiet = quiet or (sink_named(config.sink.type).is_terminal and sys.stdout.isatty())
    ended = _Ended()
    unpublished: list[str] = []
    try:
        if request.once:
            with (
                # The log opens first, so that while a daemon runs, the message is that the log is
                # being published.
                open_to_publish(config, counters, lock_wait=LOCK_WAIT) as opened,
                _monitoring(config, counters, liveness := liveness_of(config)) as monitor,
                _traced(config) as (tracing, open_its_sink),
                closing(open_its_sink()) as sink,
                _bar(opened, quiet=quiet),
                _snapshot_bar(config, quiet=quiet) as bar,
            ):
                observer = join_observers(liveness, monitor, tracing, bar, ended)
                letters = letters_of(config)
                compare = comparison(config)
                unavailable = publish_once(opened, sink, stop, observer, compare, letters)
                unpublished += filter(opened.wants, unavailable)
        else:
            with (
                _watching(config, counters) as (watching, open_its_sink),
                _snapshot_bar(config, quiet=quiet) as bar,
            ):
                observer = join_observers(watching, bar, ended)
                publish_log(config, counters, Used(), open_its_sink, stop, observer)
    finally:
        ended.log_summary(counters)
    if request.once and stop.is_set():
        return _stopped(_STOPPED)
    return _code(request, has_failed(counters) or bool(unpublished))


def run_publish_of_source(context: CommandContext, request: Publish, config: Config) -> ExitCode:
    """Run ``eventlog publish`` for a followed source, which takes the place of the log."""
    from eventlog.publisher.stream.open_source import ignored_options, source_publisher

    counters, done = Counters(), Report()
    if not _may_begin(request, config):
        return ExitCode.DONE
    publish = source_publisher(config, counters, done, is_dry=request.dry)
    stop = _stop_on_signals()
    if request.dry:
        publish(lambda: StreamSink(sys.stdout), stop, True, SILENT)
    else:
        _log_settings(config, context.file, once=request.once)
        if ignored := ignored_options(config):
            _log.info("ignored because the source is not an event log: %s", ", ".join(ignored))
        try:
            with _watching(config, counters) as (observer, open_its_sink):
                publish(open_its_sink, stop, request.once, observer)
        finally:
            counted = (f", {number} {name}" for name, number in sorted(done.counters.items()))
            _log.info("%s%s", stream_summary(counters), "".join(counted))
    if request.once and stop.is_set():
        return _stopped(_STOPPED_AT_SOURCE)
    return _code(request, has_failed(counters))


def _may_begin(request: Publish, config: Config) -> bool:
    """Return True unless the publisher is disabled."""
    tune_collector()
    for warning in ignored_options(config):
        _log.warning("%s", warning)
    for warning, to_do in plain_credentials(config):
        _log.warning("%s; %s", warning, to_do, extra={"code": "plain_credentials"})
    is_disabled = config.publisher.publisher_disabled and not request.dry
    if is_disabled:
        _log.warning(NOTHING_PUBLISHED)
    return not is_disabled


def _code(request: Publish, failed: bool) -> ExitCode:
    is_reported = request.once and not request.allow_refused
    return ExitCode.FAILED if is_reported and failed else ExitCode.DONE


def _print_documents(config: Config, counters: Counters) -> None:
    """Print the documents that would be sent."""
    with open_unlocked(config, counters) as opened:
        refuse_post_poll(config, opened.log.table)
        refuse_other_masks(opened)
        for document in dry_run(opened):
            sys.stdout.write(document if document.endswith("\n") else document + "\n")
        warn_of_loopback(opened, counters.rows_loopback, "would be marked")


def _refuse_other_configuration(config: Config, context: CommandContext) -> None:
    """Raise ConfigError if only the command line names the consumer. The configuration then has the
    sink of another reader, and this sink would get the consumer's events (spec/event-log.md 13.4).
    """
    name = config.of_log.consumer
    if name is None or name == config.own_consumer:
        return
    names_sink = "sink.type" in context.flags or not is_set(config, "sink.type")
    if context.flags.get("source.consumer") == name and names_sink:
        return  # --set configures a whole reader
    where = "the configuration" if context.file is None else str(context.file)
    own = (
        "names no consumer"
        if config.own_consumer is None
        else f"is for the consumer {config.own_consumer}"
    )
    raise ConfigError(
        f"nothing is sent for the consumer {name}: {where} {own}, and its sink "
        f"({receiver(config)}) would get the events of {name}. Give --config the file of {name}, "
        f'with source.consumer = "{name}". If this sink is the right one, set '
        f"{variable('source', 'consumer')}={name}"
    )


def _start_line(config: Config) -> str:
    """Return the log line with which a publisher of a log begins."""
    log, start = config.database.log_table, ConsumerStart(receiver(config), config.of_log.classes)
    if config.of_log.consumer is None:
        return f"publishing the log {log}: {start}"
    return f"publishing the log {log} as consumer {config.of_log.consumer}: {start}"


@contextmanager
def _bar(opened: Context, *, quiet: bool) -> Iterator[None]:
    """Show on a terminal, while the block runs, how many of the rows that wait now are done."""
    if quiet or opened.ledger.loading() is not None:  # a snapshot has a separate bar
        yield
        return
    opened.ledger.recover()
    total = count_undone(opened.ledger, _MAX_COUNTED)
    opened.log.commit()
    ended = threading.Event()
    with progress_bar("Publish", total) as advance:

        def follow_counters() -> None:
            shown = 0
            while not ended.wait(_REDRAWN):
                done = min(sum(getattr(opened.counters, name) for name in _DONE), total)
                advance(done - shown)
                shown = done

        thread = start_thread(follow_counters, "eventlog-progress")
        try:
            yield
        finally:
            ended.set()
            thread.join()


class _SnapshotBar(Observer):
    """An observer that shows on a terminal how many objects of a class the snapshot of a consumer
    has sent, with one bar per class.
    """

    def __init__(self, shown: ExitStack) -> None:
        self._shown = shown
        self._class: str | None = None
        self._objects, self._total = 0, 0
        self._advance: Advance = lambda _done: None

    def loads(self, snapshot: SnapshotProgress | None) -> None:
        name = None if snapshot is None else snapshot.class_name
        if name != self._class:
            self._shown.close()
            self._class, self._objects = name, 0
        if snapshot is None or name is None:
            return
        if not self._objects:
            self._total = max(snapshot.expected, snapshot.objects)
            bar = progress_bar(f"Snapshot of {name}", self._total, unit="objects")
            self._advance = self._shown.enter_context(bar)
        objects = min(snapshot.objects, self._total)
        self._advance(objects - self._objects)
        self._objects = objects


class _Ended(Observer):
    """An observer that keeps what the last log line reports in addition to the counters."""

    def __init__(self) -> None:
        self._has_begun, self._parked, self._waiting = False, 0, 0

    def connected(self, *, again: bool) -> None:
        self._has_begun = True

    def left(self, parked: int, rows: int) -> None:
        self._parked, self._waiting = parked, rows

    def log_summary(self, counters: Counters) -> None:
        """Log the last line, as a warning if it reports failures; no line if nothing has begun."""
        if self._has_begun:
            line, needs_care = closing_summary(counters, self._parked, self._waiting)
            _log.log(logging.WARNING if needs_care else logging.INFO, "%s", line)


@contextmanager
def _snapshot_bar(config: Config, *, quiet: bool) -> Iterator[Observer]:
    """Show on a terminal, while the block runs, the progress of a consumer's snapshot."""
    if quiet or config.of_log.consumer is None:
        yield SILENT
        return
    with ExitStack() as shown:
        yield _SnapshotBar(shown)


@contextmanager
def _watching(config: Config, counters: Counters) -> Iterator[tuple[Observer, _OpenSink]]:
    """Yield the observer of the work (signs of life, monitor, traces, service manager), and the
    function that opens the sink.
    """
    with (
        reported_liveness(config) as liveness,
        _monitoring(config, counters, liveness) as monitor,
        _traced(config) as (tracing, open_its_sink),
        watched_over(liveness) as status,
    ):
        yield join_observers(liveness, monitor, tracing, status), open_its_sink


def _monitoring(
    config: Config, counters: Counters, liveness: Liveness
) -> AbstractContextManager[Observer]:
    """Return the monitor as an observer of the work. The monitor is imported only if it is
    configured.
    """
    if config.monitor.listen is None:
        return nullcontext(SILENT)
    from eventlog.publisher.monitor import monitoring

    return monitoring(config, config.monitor.listen, counters, liveness, planned_triggers)


_OpenSink = Callable[[], Sink]


@contextmanager
def _traced(config: Config) -> Iterator[tuple[Observer, _OpenSink]]:
    """Yield the observer that makes traces, and the function that opens a sink whose documents are
    traced. OpenTelemetry is imported only if its variables name a target for traces.
    """
    open_its_sink = partial(open_sink, config, sys.stdout)
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    is_off = exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or not (exporter or endpoint):
        yield SILENT, open_its_sink
        return
    with ExitStack() as stack:
        try:
            from eventlog.publisher.monitor.tracing import TracedSink, tracing

            observer = stack.enter_context(tracing(config))
        except ModuleNotFoundError as error:
            # This is not an error, since an operator may set the variables for a whole cluster.
            _log.warning("no traces: %s is missing; %s", error.name, install_command("otel"))
            yield SILENT, open_its_sink
        else:
            yield observer, lambda: TracedSink(open_its_sink(), observer)


_STOPPED: Final = (
    "documents that were sent are answered, and their rows are marked; all other rows wait for the "
    "next run"
)
_STOPPED_AT_SOURCE: Final = (
    "documents that were sent are answered, and the position has passed them; the next run "
    "continues there"
)


def _stopped(sentence: str) -> ExitCode:
    """Print what a run did before a signal stopped it. Returns the exit code."""
    report_error(f"stopped: {sentence}")
    return ExitCode.STOPPED


def _log_settings(config: Config, file: Path | None, *, once: bool) -> None:
    """Log the settings that differ from their defaults, one line per section, secrets masked. With
    ``once`` the function logs one line with the number of these settings, unless the log is
    verbose.
    """
    sections: dict[str, list[str]] = {}
    for section, key, value, _ in non_default(config):
        if value not in (None, ()):
            sections.setdefault(section, []).append(f"{key} = {toml(value)}")
    if once and not _log.isEnabledFor(logging.DEBUG):
        changed = sum(map(len, sections.values()))
        _log.info(
            "settings: %s%s, %s not the default (`eventlog config` shows them)",
            "" if file is None else f"{file}, ",
            f"{len(config.watches)} [[watch]]",
            number_of(changed, "setting"),
        )
        return
    for section, settings in sections.items():
        _log.info("settings [%s]: %s", section, ", ".join(settings))


def _stop_on_signals() -> StopRequest:
    """Return a stop request that SIGTERM and SIGINT set.

    A second signal ends the process immediately.
    """
    stop = StopRequest()
    at_once = previous_handler()

    def ask_to_stop(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)
    return stop


def tune_collector() -> None:
    """Let the garbage collector run rarely: there are many rows and events, but they have no
    reference cycles.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
