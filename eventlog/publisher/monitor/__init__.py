"""The monitor of a publisher or a backlog job: metrics, health, a status page (``[monitor]``, extra
``monitor``).

The server's modules are loaded only when a monitor starts. The status of a publisher has the same
shape on the command line, which needs no server.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from eventlog.config.kinds import named_tokens
from eventlog.config.load import Config
from eventlog.core.clock import start_thread
from eventlog.core.extras import install_command
from eventlog.errors import ConfigError
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.registry import sink_named

if TYPE_CHECKING:
    from eventlog.publisher.inspect.doctor import Compare
    from eventlog.publisher.monitor.activity import JobActivity

_log = logging.getLogger("eventlog.publisher")

_SHORTEST_TOKEN: Final = 16
"""The characters of a token below which a warning is logged: a short token can be guessed."""
_JOB_PATIENCE: Final = 900.0
"""The seconds for which a job may show no progress: it reads a part of the log as a whole, and a
cluster may be busy.
"""


@contextmanager
def monitoring(
    config: Config, listen: str, counters: Counters, liveness: LivenessClock, compare: Compare
) -> Iterator[Observer]:
    """Serve the monitor at ``listen`` while the block runs, and yield the observer of the
    publisher's work. ``liveness`` shows whether the publisher is alive.

    ``compare`` is as in ``Questions``. Raises ConfigError if the extra is missing, if other
    machines could read the monitor without a token, or if other users could write a file of tokens.
    """
    _check_tokens(config)
    settings, name = config.monitor, config.publication
    with _extra():
        from eventlog.publisher.monitor.actions import Actions
        from eventlog.publisher.monitor.activity import Activity
        from eventlog.publisher.monitor.openmetrics import PublisherMetrics
        from eventlog.publisher.monitor.questions import Questions, SourceQuestions
        from eventlog.publisher.monitor.server import Monitor, serving
        from eventlog.publisher.monitor.status import documents_data, process_status, seen_of
    has_times = bool(config.publisher.time_of_day)
    activity = Activity(counters, settings.interval, liveness, has_times=has_times)
    consumer = config.of_log.consumer
    labels = {"log": name, "sink": config.sink.type}
    if consumer is not None:
        labels["consumer"] = consumer
        name += f", consumer {consumer}"
    metrics = PublisherMetrics(activity, labels)
    status = partial(
        process_status,
        activity,
        name,
        config.sink.type,
        config.format.type,
        shows_values=settings.show_values,
        consumer=consumer,
        source=config.source.type if config.follows else None,
        patience=sink_named(config.sink.type).answer_timeout(config.sink.options),
    )
    seen = partial(seen_of, activity, shows_values=settings.show_values)
    documents = partial(documents_data, activity, shows_values=settings.show_values)
    questions = (
        SourceQuestions(config, seen) if config.follows else Questions(config, compare, seen)
    )
    if settings.database_url is not None and settings.tokens is None:
        raise ConfigError(
            "monitor.database_url allows the actions of the status page, which record who acts: "
            "set tokens_file in [monitor] to a file with a line name:token for each user"
        )
    actions = Actions(config)
    with serving(
        Monitor(listen, activity, metrics, status, questions, settings, seen, documents, actions)
    ):
        if actions.names:
            start_thread(actions.check, "eventlog-monitor-actions")
        yield activity


@contextmanager
def monitoring_job(
    config: Config, listen: str, directory: str, format_name: str, compare: Compare
) -> Iterator[JobActivity]:
    """Serve the monitor of a backlog job that writes files of the format ``format_name`` to
    ``directory``. In all else the function is like ``monitoring``.
    """
    _check_tokens(config)
    settings, name = config.monitor, config.publication
    with _extra():
        from eventlog.publisher.monitor.activity import JobActivity
        from eventlog.publisher.monitor.openmetrics import JobMetrics
        from eventlog.publisher.monitor.questions import Questions
        from eventlog.publisher.monitor.server import Monitor, serving
        from eventlog.publisher.monitor.status import job_status
    activity = JobActivity(
        settings.interval, LivenessClock(settings.liveness_timeout or _JOB_PATIENCE)
    )
    metrics = JobMetrics(activity, {"log": name, "format": format_name})
    status = partial(job_status, activity, name, directory, format_name)
    with serving(Monitor(listen, activity, metrics, status, Questions(config, compare), settings)):
        yield activity


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"monitor.listen needs {error.name}: {install_command('monitor')}; or remove "
            "monitor.listen"
        ) from None


def _check_tokens(config: Config) -> None:
    """Log a warning for each short token, and for each file of tokens that other users may read.
    Raise ConfigError if other users may write or replace such a file.
    """
    settings = config.monitor
    named = {} if settings.tokens is None else named_tokens(settings.tokens)
    tokens = {
        **({} if settings.token is None else {"monitor.token": settings.token}),
        **{f"the token of {name} in monitor.tokens": token for name, token in named.items()},
    }
    for name, token in tokens.items():
        if len(token) < _SHORTEST_TOKEN:
            _warn(f"{name} has fewer than {_SHORTEST_TOKEN} characters and can be guessed")
    for name in ("monitor.token", "monitor.tokens"):
        if (given := config.secret_files.get(name)) is None:
            continue
        try:
            file = given.resolve()
            mode, around = file.stat().st_mode, file.parent.stat().st_mode
        except OSError:  # a pipe, or the file is gone now
            continue
        if mode & stat.S_IWOTH or (around & stat.S_IWOTH and not around & stat.S_ISVTX):
            raise ConfigError(
                f"{name}_file = {given}: every user of this machine may write this file or replace "
                "it, and so add a token: run `chmod o-w` on the file and on its directory"
            )
        if mode & stat.S_IROTH:
            _warn(f"{name}_file = {given}: every user of this machine may read this file: run "
                  "`chmod o-r` on it")  # fmt: skip


def _warn(message: str) -> None:
    _log.warning("%s", message, extra={"code": ConfigError.code})
