"""The run of ``eventlog tail``: the documents that a publisher sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from eventlog.cli.command import CommandResult, report
from eventlog.cli.context import CommandContext, note, report_error, result
from eventlog.cli.inspect.runs.monitor import LEVELS, Read, Sent, monitor_url, read_monitor
from eventlog.cli.inspect.tail import Tail
from eventlog.cli.stopping import UNTIL_STOPPED, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, MonitorUnavailable, number_of


def run_tail(context: CommandContext, request: Tail, config: Config) -> None:
    """Run ``eventlog tail``."""
    if (url := monitor_url(config, request.url)) is None:
        raise ConfigError(
            "tail needs the monitor of a running publisher, since the database does not keep what "
            "was sent: give --url, or set listen in [monitor]. "
            "`eventlog status` shows what is being delivered"
        )
    read = read_monitor(url, config.monitor.client_token)
    if request.follow:
        if_stopped(UNTIL_STOPPED)
    for sent in _followed(read, request.limit, request.interval if request.follow else None):
        level = sent["level"]
        colour = None if level == "success" else LEVELS[level]
        report(
            context, CommandResult(sent, partial(result, _line(sent), colour=colour)), indent=None
        )


def _followed(read: Read, first: int, interval: float | None) -> Iterator[Sent]:
    """Yield the ``first`` newest documents. Then, unless ``interval`` is None, yield the documents
    that follow.
    """
    sent: Sequence[Sent] = read()["sent"] or ()
    yield from reversed(sent[:first])
    newest = sent[0] if sent else None
    while interval is not None:
        sleep(interval)
        try:
            sent = read()["sent"] or ()
        except MonitorUnavailable as error:  # the publisher may restart
            report_error(str(error))
            continue
        if newest is not None and newest not in sent and sent:
            note(
                f"some documents may be missing: the monitor keeps only the newest {len(sent)}, "
                "or it restarted"
            )
        new = sent[: sent.index(newest)] if newest in sent else sent
        yield from reversed(new)
        newest = sent[0] if sent else None


def _line(sent: Sent) -> str:
    moment = datetime.fromtimestamp(sent["at"], UTC)
    at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    ids = sent["first_id"]
    if sent["last_id"] != ids:
        ids = f"{ids} to {sent['last_id']}"
    reason = f": {sent['reason']}" if sent["reason"] else ""
    return (
        f"{at} delivery {sent['delivery']} document {sent['document']}: "
        f"{number_of(sent['events'], 'event')} ({ids}), {sent['level']} after "
        f"{sent['seconds'] * 1000:.1f} ms{reason}"
    )
