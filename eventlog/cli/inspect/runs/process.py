"""What only a process can show of its health: whether it hangs, and what it waits for.

The process is asked at the address of ``[monitor]``, else by its health file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from eventlog.cli.context import JsonObject
from eventlog.cli.inspect.runs.monitor import monitor_url, read_monitor
from eventlog.config.load import Config
from eventlog.core.clock import unix_time
from eventlog.errors import EventlogError
from eventlog.files.health_file import read_health
from eventlog.publisher.context import KINDS, Seen
from eventlog.publisher.run import Condition, Health, Waiting, joined


class Process(NamedTuple):
    """What a process has shown of itself."""

    asked: str | None = None
    """The URL of its monitor, or the path of its health file; None = the process has neither."""
    problem: str = ""
    """Why nothing is known, empty if the process was asked."""
    conditions: Sequence[Condition] = ()
    """The conditions of the process that only the process can determine."""

    def as_data(self) -> JsonObject:
        """Return what was asked as data for JSON."""
        return {"asked": self.asked, "problem": self.problem}


def ask_process(config: Config) -> Process:
    """Return what the publisher or the consumer of this configuration shows of itself."""
    url, file = monitor_url(config, None), config.publisher.health_file
    answer = Process(None, "neither monitor.listen nor publisher.health_file is set")
    if url is not None:
        answer = _ask_monitor(config, url)
    if answer.problem and file is not None:
        state = read_health(file, unix_time())
        if not state.is_healthy:
            return answer._replace(asked=answer.asked or str(file), problem=state.reason)
        waits = state.waits and Waiting.from_file(state.waits, unix_time())
        return Process(str(file), "", [waits.condition()] if waits else [])
    return answer


def _ask_monitor(config: Config, url: str) -> Process:
    consumer, log = config.of_log.consumer, config.publication
    try:
        status = read_monitor(url, config.monitor.token)()
    except EventlogError as error:
        return Process(url, str(error))
    if status["log"] != (log if consumer is None else f"{log}, consumer {consumer}"):
        return Process(url, f"the process at {url} publishes {status['log']}")
    conditions = [
        Condition.from_data(one)
        for one in status["health"]["conditions"]
        if one["name"] in KINDS and KINDS[one["name"]].known_to == "process"
    ]
    return Process(url, "", conditions)


def ask_seen(config: Config, event_id: str) -> Seen | None:
    """Return what the running process has seen of an event, from its monitor. None = the process
    has no monitor, or the monitor does not answer.
    """
    url = monitor_url(config, None)
    if url is None or _ask_monitor(config, url).problem:
        return None
    path = f"/seen/{quote(event_id, safe='')}.json"
    with suppress(EventlogError):
        return Seen.from_data(read_monitor(url, config.monitor.token, path)())
    return None


def with_process(config: Config, health: Health, runs: bool | None) -> JsonObject:
    """Return the members ``health`` and ``process`` of a status. The health is what the database
    shows, joined with what the process shows unless ``runs`` is False.
    """
    if runs is False:
        return {"health": health.as_data(), "process": None}
    process = ask_process(config)
    return {
        "health": joined(health, process.conditions).as_data(),
        "process": process.as_data(),
    }
