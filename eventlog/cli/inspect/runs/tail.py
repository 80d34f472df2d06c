"""The run of ``eventlog tail``: the documents that a publisher sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from eventlog.cli.context import CommandContext, error_line, note, print_json, result
from eventlog.cli.inspect.runs.monitor import LEVELS, Read, Sent, monitor_url, read_monitor
from eventlog.cli.stopping import UNTIL_STOPPED, if_stopped
from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, MonitorUnavailable, number_of


def run_tail(
    context: CommandContext,
    url: str | None,
    limit: int,
    interval: float,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog tail``: the parameters are its argument and options."""
    config = context.config()
    if (url := monitor_url(config, url)) is None:
        raise ConfigError(
            "tail needs the monitor of a running publisher, since the database does not keep what "
            "was sent: give --url, or set listen in [monitor]. "
            "`eventlog status` shows what is being delivered"
        )
    read = read_monitor(url, config.monitor.token)
    if follow:
        if_stopped(UNTIL_STOPPED)
    for sent in _followed(read, limit, interval if follow else None):
        if as_json:
            print_json(sent, indent=None)
        else:
            level = sent["level"]
            result(_line(sent), colour=None if level == "success" else LEVELS[level])


def _followed(read: Read, first: int, interval: float | None) -> Iterator[Sent]:
    """Yield the ``first`` newest documents, then those that follow unless ``interval`` is None."""
    sent: Sequence[Sent] = read()["sent"] or ()
    yield from reversed(sent[:first])
    newest = sent[0] if sent else None
    while interval is not None:
        sleep(interval)
        try:
            sent = read()["sent"] or ()
        except MonitorUnavailable as error:  # the publisher may restart
            error_line(str(error))
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
