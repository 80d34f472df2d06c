"""From ``[monitor]`` to a server that runs beside the publisher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.publisher.context import Counters
from eventlog.publisher.doctor import Compare
from eventlog.publisher.liveness import patience
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.monitor.questions import Questions
from eventlog.publisher.monitor.status import answers_data, process_status
from eventlog.publisher.observer import Observer


@contextmanager
def monitoring(config: Config, listen: str, counters: Counters, compare: Compare) -> Iterator[Observer]:
    """Serve the monitor at ``listen`` while the block runs; gives who is to be told of the publisher's work.

    ``compare`` as of ``Questions``.

    Raises ConfigError if the extra is missing, if the address cannot be had, or if others could look without a token.
    """
    settings = config.monitor
    try:
        from eventlog.publisher.monitor.openmetrics import Labels
        from eventlog.publisher.monitor.server import Monitor, parse_address, serving
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"monitor.listen needs {error.name}: pip install 'eventlog-publisher[monitor]', or take monitor.listen out"
        ) from None
    activity = Activity(counters, settings.interval, settings.patience or patience(config))
    is_log = config.source.type is None
    name = config.database.log_table if is_log else f"source {config.source.type}"
    if is_log and config.database.schema_name is not None and "." not in name:
        name = f"{config.database.schema_name}.{name}"

    def status() -> dict[str, Any]:
        return process_status(activity, name, config.sink.type, config.format.type, shows_values=settings.values)

    def about_log(ask: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        return ask if is_log else _without_log

    questions = Questions(config, compare, settings.values)

    def explain(record_id: int) -> dict[str, Any]:
        found = questions.explain(record_id)
        return {**found, "answers": answers_data(activity, found["event_id"], shows_values=settings.values)}

    monitor = Monitor(
        parse_address(listen),
        activity,
        Labels(name, config.sink.type),
        status,
        about_log(explain),
        about_log(questions.errors),
        about_log(questions.queue),
        about_log(questions.doctor),
        settings.allowed_hosts,
        settings.token,
        settings.certificate,
        settings.private_key,
    )
    with serving(monitor):
        yield activity


def _without_log(*_: Any) -> dict[str, Any]:
    raise ConfigError("a source is followed in place of a log: `eventlog status --from` tells of it")
