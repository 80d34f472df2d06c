"""The run of ``eventlog requeue``: put rows back into the queue (spec/event-log.md 11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Never

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, reading, result, shown_commands, table, transaction
from eventlog.cli.repair.requeue import Requeue
from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode
from eventlog.publisher.declared import find_log
from eventlog.publisher.inspect import (
    AskedAgain,
    RequeuedRows,
    instead_of_refused,
    requeue_rows,
)
from eventlog.publisher.ledger import CLAIM_WAYS_OUT
from eventlog.sql.port import Purpose


def run_requeue(context: CommandContext, request: Requeue, config: Config) -> CommandResult:
    """Run ``eventlog requeue``."""
    request = request.of_consumer(config.of_log.consumer)
    asked = AskedAgain(
        request.chosen,
        request.ranges,
        request.consumer,
        request.event_ids,
        request.loopback,
        request.force,
        request.dry,
    )
    purpose = Purpose.REQUEUE
    with reading(config, purpose) if request.dry else transaction(config, purpose) as db:
        log = find_log(db, config)
        requeued = requeue_rows(log, config, asked)
        commands = instead_of_refused(log, config, requeued.done)
    refused_rows = requeued.done.refused

    def show() -> None:
        result(requeued.sentence)
        if refused_rows:
            table(("record_id", "type", "table", "key"), refused_rows)

    of_snapshot = {} if requeued.objects is None else {"objects": requeued.objects}
    return CommandResult(
        {
            **requeued.done._asdict(),
            **of_snapshot,
            "refused": [row._asdict() for row in refused_rows],
            "commands": commands,
            "dry_run": request.dry,
        },
        show,
        ExitCode.FAILED if refused_rows else ExitCode.DONE,
        notes=[*_notes(requeued, commands)],
    )


def run_requeue_of_source(context: CommandContext, request: Requeue, config: Config) -> Never:
    """Refuse ``eventlog requeue`` for a followed source."""
    source = config.source
    raise ConfigError(
        f"requeue needs the rows of a log, but {config.sources['source.type']} = "
        f"{source.type} is followed, which has no queue. The table "
        f"{source.options.position_table}_error has what was refused, and `eventlog errors` "
        "shows it. To send rows again, change them at the source"
    )


def _notes(requeued: RequeuedRows, commands: Sequence[str]) -> Iterator[str]:
    """Yield what a user should notice, and what to do about refused rows."""
    done = requeued.done
    yield from requeued.remarks()
    if not done.refused:
        return
    yield requeued.refusal()
    if commands:
        yield "To send their objects as they are now, run:"
        yield from shown_commands(commands)
    yield "--force requeues the rows all the same"
    if any(row.record_id < done.removed for row in done.refused):
        yield (
            f"Rows up to record_id {done.removed} were removed from the log, by `eventlog purge` "
            "or when they were done. A row of types 1 to 4 with a lower record_id is refused, "
            "because the log does not show whether its object had later rows"
        )
    if requeued.claim:
        yield (
            f"{requeued.claim}. A row of status E or F up to that record_id is refused, since "
            "later rows of its object would be sent before it; requeue it after "
            f"{', '.join(CLAIM_WAYS_OUT)}"
        )
