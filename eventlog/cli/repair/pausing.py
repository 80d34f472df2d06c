"""The commands ``eventlog pause`` and ``resume``: their requests, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import consumer_option, json_option


@click.option(
    "--reason",
    required=True,
    metavar="REASON",
    help="Reason that status and health show, with your name.",
)
@consumer_option
@json_option
@dataclass(frozen=True)
class Pause(AddressedRequest):
    """Let the publisher send nothing until `eventlog resume`; with --consumer, let a consumer send
    nothing.

    It finishes the documents in the air, and marks their rows. Then the queue grows. The process
    keeps running, with its lock; a restart and a standby obey the pause too. If nothing runs, the
    next start obeys it. `publish --once` sends nothing and fails. Health warns about the pause, and
    shows the reason.

    If a reader is paused already, the pause stays, and the command fails with the pause's reason. A
    followed source has no pause: stop its publisher, which continues at its position later.
    """

    overriding = ()
    reason: str
    consumer: str | None = None


@consumer_option
@json_option
@dataclass(frozen=True)
class Resume(AddressedRequest):
    """Let the publisher, or with --consumer a consumer, send again. A running process begins within
    a second.
    """

    overriding = ()
    consumer: str | None = None


pause = command(Pause)
resume = command(Resume)
