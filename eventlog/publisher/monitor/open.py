"""From ``[monitor]`` to a server that runs beside a publisher or a backlog job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.publisher.context import Counters
from eventlog.publisher.doctor import Compare
from eventlog.publisher.liveness import patience
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.monitor.questions import Questions
from eventlog.publisher.monitor.status import answers_data, process_status
from eventlog.publisher.observer import Observer

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from eventlog.publisher.monitor.job import JobActivity
    from eventlog.publisher.monitor.server import Watched

_JOB_PATIENCE: Final = 900.0
"""Seconds that a job may show no progress: a part of the log is read as a whole, and a cluster may be busy."""


@contextmanager
def monitoring(config: Config, listen: str, counters: Counters, compare: Compare) -> Iterator[Observer]:
    """Serve the monitor at ``listen`` while the block runs; gives who is to be told of the publisher's work.

    ``compare`` as of ``Questions``.

    Raises ConfigError if the extra is missing, if the address cannot be had, or if others could look without a token.
    """
    settings = config.monitor
    with _extra():
        from eventlog.publisher.monitor.openmetrics import Labels, PublisherMetrics
    activity = Activity(counters, settings.interval, settings.patience or patience(config))
    is_log = config.source.type is None
    name = config.publication

    def status() -> dict[str, Any]:
        return process_status(activity, name, config.sink.type, config.format.type, shows_values=settings.values)

    questions = Questions(config, compare, settings.values)

    def explain(record_id: int) -> dict[str, Any]:
        found = questions.explain(record_id)
        return {**found, "answers": answers_data(activity, found["event_id"], shows_values=settings.values)}

    metrics = PublisherMetrics(activity, Labels(name, config.sink.type))
    with _serving(config, listen, activity, metrics, status, questions if is_log else None, explain):
        yield activity


@contextmanager
def monitoring_job(config: Config, listen: str, directory: str, form: str, compare: Compare) -> Iterator[JobActivity]:
    """As ``monitoring``, of a backlog job that writes files of the format ``form`` to ``directory``."""
    settings = config.monitor
    with _extra():
        from eventlog.publisher.monitor.job import JobActivity, JobMetrics
    activity = JobActivity(settings.interval, settings.patience or _JOB_PATIENCE)
    name = config.publication

    def status() -> dict[str, Any]:
        return activity.status(name, directory, form)

    questions = Questions(config, compare, settings.values)

    def explain(record_id: int) -> dict[str, Any]:
        return {**questions.explain(record_id), "answers": []}

    metrics = JobMetrics(activity, {"log": name, "format": form})
    with _serving(config, listen, activity, metrics, status, questions, explain):
        yield activity


@contextmanager
def _serving(
    config: Config,
    listen: str,
    activity: Watched,
    metrics: Collector,
    status: Callable[[], dict[str, Any]],
    questions: Questions | None,
    explain: Callable[[int], dict[str, Any]],
) -> Iterator[None]:
    """Serve. ``questions``: None if there is no log to ask."""
    with _extra():
        from eventlog.publisher.monitor.server import Monitor, parse_address, serving
    settings = config.monitor
    monitor = Monitor(
        parse_address(listen),
        activity,
        metrics,
        status,
        _without_log if questions is None else explain,
        _without_log if questions is None else questions.errors,
        _without_log if questions is None else questions.queue,
        _without_log if questions is None else questions.doctor,
        settings.allowed_hosts,
        settings.token,
        settings.certificate,
        settings.private_key,
    )
    with serving(monitor):
        yield


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"monitor.listen needs {error.name}: pip install 'eventlog-publisher[monitor]', or take monitor.listen out"
        ) from None


def _without_log(*_: Any) -> dict[str, Any]:
    raise ConfigError("a source is followed in place of a log: `eventlog status --from` tells of it")
