"""``eventlog tail``: the envelopes that a publisher has sent, as its monitor knows them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from eventlog.cli.context import Context
from eventlog.cli.help import Command
from eventlog.cli.output import error_line, json_option, note, result
from eventlog.cli.top import Read, monitor_url, read_monitor, url_option
from eventlog.errors import ConfigError, DatabaseError, number_of

_COLOURS: Final = {"warning": "yellow", "error": "red", "retry": "red", "fatal": "red"}

Sent = Mapping[str, Any]


@click.command(cls=Command)
@url_option
@click.option("--lines", "-n", type=click.IntRange(min=0), default=10, metavar="N",
              help="Newest envelopes to begin with.")  # fmt: skip
@click.option("--follow/--no-follow", default=True, help="Go on with each envelope that is sent, or end.")
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS",
              help="Pause between two looks.")  # fmt: skip
@json_option
@click.pass_obj
def tail(context: Context, url: str | None, lines: int, follow: bool, interval: float, as_json: bool) -> None:
    """Show the envelopes that were sent lately, with their answers, and those that follow until Ctrl-C.

    Only the publisher's monitor knows them: the database keeps what became of each row, not what was sent when.
    `eventlog show` explains a row from the database alone.
    """
    config = context.config()
    if (url := monitor_url(config, url)) is None:
        raise ConfigError(
            "tail needs the monitor of a running publisher, since the database does not keep what was sent: give "
            "--url, or listen in [monitor]; `eventlog status` shows what is in flight"
        )
    read = read_monitor(url, config.monitor.token)
    for sent in _followed(read, lines, interval if follow else None):
        if as_json:
            click.echo(json.dumps(sent, ensure_ascii=False))
        else:
            result(_line(sent), colour=_COLOURS.get(sent["level"]))


def _followed(read: Read, first: int, interval: float | None) -> Iterator[Sent]:
    """The ``first`` newest envelopes in the order of sending, then those that follow unless ``interval`` is None."""
    sent: Sequence[Sent] = read()["sent"] or ()
    yield from reversed(sent[:first])
    newest = sent[0] if sent else None
    while interval is not None:
        time.sleep(interval)
        try:
            sent = read()["sent"] or ()
        except DatabaseError as error:  # the publisher may be started again
            error_line(str(error))
            continue
        if newest is not None and newest not in sent and sent:
            told = number_of(len(sent), "envelope")
            note(f"more was sent than the {told} that the monitor tells of at once, or it began anew")
        new = sent[: sent.index(newest)] if newest in sent else sent
        yield from reversed(new)
        newest = sent[0] if sent else None


def _line(sent: Sent) -> str:
    at = datetime.fromtimestamp(sent["at"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    ids = sent["first_id"] if sent["first_id"] == sent["last_id"] else f"{sent['first_id']} to {sent['last_id']}"
    reason = f": {sent['reason']}" if sent["reason"] else ""
    return (
        f"{at} flight {sent['flight']} envelope {sent['envelope']}: {number_of(sent['events'], 'event')} ({ids}), "
        f"{sent['level']} after {sent['seconds'] * 1000:.1f} ms{reason}"
    )
