"""The run of ``eventlog explain``: one row of the log, or the change of one object, explained
(spec/event-log.md 11); or an event of a followed source (spec/change-model.md 6.6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import click

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, check_consumer, result, table
from eventlog.cli.inspect.explain import Explain
from eventlog.cli.inspect.runs.process import ask_seen
from eventlog.config.load import Config
from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import ConfigError, visible
from eventlog.publisher.context import Counters, Seen
from eventlog.publisher.declared import for_consumer, open_unlocked, planned_triggers
from eventlog.publisher.inspect import (
    Explanation,
    KeyExplanation,
    Source,
    explain_key,
    explain_object,
    explanation_data,
)
from eventlog.publisher.inspect import explain as explain_row
from eventlog.publisher.stream.explaining import nothing_waits
from eventlog.publisher.stream.open_source import explained_events, place_in_words
from eventlog.sql.port import Purpose
from eventlog.sql.readers import consumer_row

_WIDEST: Final = 1000
"""The maximum number of characters of a row's value to show; ``--json`` has all characters."""
_MAX_NAMED: Final = 10
_SOURCES: Final = {
    "in_flight": "as recorded for its delivery",
    "queue": "as the next cycle would fold it",
    "reconstructed": "reconstructed",
    "nearby": "unknown; these are the nearest processed rows of the same object",
}


def run_explain(context: CommandContext, request: Explain, config: Config) -> CommandResult:
    """Run ``eventlog explain`` for a log."""
    if request.row is None:
        check_consumer(config, request.consumer or config.of_log.consumer)
        answers = explain_key(
            config,
            request.key or "",
            planned_triggers,
            request.consumer,
            shows_rows=request.show_values,
        )
        return CommandResult(
            {"objects": [one.as_data() for one in answers]},
            "\n".join(visible(line) for one in answers for line in _lines_of_key(one)),
        )
    row = row_or_object(request.row)
    if row is None:
        raise click.BadParameter(f"{request.row!r} is neither a record_id nor an event-id")
    explanation = explanation_of(config, row, request.consumer, shows_rows=request.show_values)
    explanation = replace(explanation, seen=ask_seen(config, explanation.event_id or request.row))
    return CommandResult(explanation_data(explanation), partial(_print_explanation, explanation))


def _lines_of_key(one: KeyExplanation) -> Iterator[str]:
    yield from one.sentences
    if one.rows:
        newest = ", ".join(str(row.record_id) for row in one.rows[:_MAX_NAMED])
        more = f" and {len(one.rows) - _MAX_NAMED} more" if len(one.rows) > _MAX_NAMED else ""
        yield f"rows of the object, the newest first: {newest}{more}"
    yield f"searched: {one.searched}"


def run_explain_of_source(
    context: CommandContext, request: Explain, config: Config
) -> CommandResult:
    """Run ``eventlog explain`` for a followed source: explain an event, or the events of a key."""
    if request.show_values:
        raise ConfigError("--show-values is for a log; a followed source has no masks and filters")
    records, explained = explained_events(config, request.row, request.key or "")
    if request.row is not None:
        explained = [replace(one, seen=ask_seen(config, request.row)) for one in explained]
    source, token = config.source.type, records.position.token

    def show() -> None:
        for one in explained:
            _print_explanation(one)
        if not explained:
            result(visible(nothing_waits(request.key or "")))
        result(f"position: {place_in_words(source, token)}")

    return CommandResult(
        {
            "source": source,
            "position_in": records.place,
            "position": token,
            "publisher_runs": records.publisher_runs,
            "events": [explanation_data(one) for one in explained],
        },
        show,
    )


def explanation_of(
    config: Config, row: int | str, consumer: str | None, *, shows_rows: bool = False
) -> Explanation:
    """Return the explanation of a row, or of an object of a consumer's snapshot. ``shows_rows`` is
    as in ``open_unlocked``.
    """
    with open_unlocked(config, Counters(), Purpose.MONITOR, shows_rows=shows_rows) as opened:
        opened = for_consumer(opened, consumer)
        if opened.ledger.consumer:
            consumer_row(opened.log, opened.ledger.consumer)  # refuses an unknown consumer
            opened.log.commit()
        return explain_row(opened, row) if isinstance(row, int) else explain_object(opened, row)


def _print_explanation(explanation: Explanation) -> None:
    if explanation.kind == "event":
        _print_event(explanation)
    else:
        _print_row_and_checks(explanation)
    for entry in explanation.errors:
        result(f"error row of {entry.error_time} UTC: {entry.code}: {visible(entry.message)}")
    if explanation.in_flight is not None and explanation.in_flight.event_id_number > 1:
        result(
            "the event is sent again under a new event-id, which ends in "
            f".{explanation.in_flight.event_id_number}"
        )
    if explanation.source is not None:
        _print_group(explanation, explanation.source)
    if explanation.source not in (None, "nearby") or explanation.kind == "object":
        if explanation.operation is None:
            result("it makes no event")
        else:
            result(f"it makes the event {explanation.event_id} ({explanation.operation}):")
    _print_seen(explanation.seen)
    for one in explanation.remedies:
        result(f"{one.text}: {visible(one.command)}")
    for sentence in explanation.notes:
        result(f"note: {sentence}")
    if explanation.document is not None:
        result(explanation.document, end="" if explanation.document.endswith("\n") else "\n")


def _print_seen(seen: Seen | None) -> None:
    """Print what the running process has seen of the event; None = the process was not asked."""
    if seen is None:
        return
    if seen.waits:
        result(f"the publisher has the event {visible(seen.waits)}")
    if seen.attempts:
        result("the newest attempts to send the event since the start of the publisher:")
        table(
            ("at (UTC)", "delivery", "document", "after", "answer", "status", "message"),
            [
                (
                    f"{datetime.fromtimestamp(one.at, UTC):%Y-%m-%d %H:%M:%S}",
                    one.delivery,
                    one.document,
                    f"{one.seconds:.3f} s",
                    one.level,
                    one.status or None,
                    one.message or one.answer or None,
                )
                for one in seen.attempts
            ],
        )


def _print_event(explanation: Explanation) -> None:
    """Print an event of a followed source, with the place of its document and its change."""
    event_id, place = explanation.event_id or "", explanation.in_flight
    result(f"event {visible(event_id)} of {explanation.log}: {visible(explanation.state)}")
    if place is not None:
        table(
            ("document", "table", "key", "attempts", "last answer", "next attempt (UTC)"),
            [
                (
                    place.document,
                    explanation.class_name,
                    explanation.key,
                    place.attempts or None,
                    place.last_answer or None,
                    place.next_attempt or None,
                )
            ],
        )
    if explanation.change is not None:
        result(f"its change: {json.dumps(explanation.change, ensure_ascii=False)}")


def _print_row_and_checks(explanation: Explanation) -> None:
    """Print the row, or the object of a snapshot, and whether it passes the checks."""
    row, spelled = explanation.row, ""
    if row is None:
        result(f"object {explanation.event_id} of {explanation.log}: {explanation.state}")
    else:
        result(f"row {row.record_id} of {explanation.log}: {explanation.state}")
        fields = {name: value for name, value in row._asdict().items() if name != "record_id"}
        table(
            ("column", "value"),
            [
                (name, _short(value, _WIDEST) if isinstance(value, str) else value)
                for name, value in fields.items()
            ],
        )
        if explanation.key != row.table_key:
            spelled = ", spelled otherwise in the row"
    if explanation.problem is not None:
        result(f"it fails a check: {explanation.problem.code}: {explanation.problem.message}")
    elif explanation.class_name is None:
        result("it belongs to no published class")
    else:
        of_class = f"object {explanation.key} of class {explanation.class_name}"
        result(f"it passes all checks: {of_class}{spelled}")


def _print_group(explanation: Explanation, source: Source) -> None:
    """Print the rows that fold together, what happens to each, and what is read back."""
    result(f"the group, {_SOURCES[source]}:")
    table(
        ("record_id", "status", "type", "column", "old", "new", "what happens to it"),
        [one._replace(old=_short(one.old), new=_short(one.new)) for one in explanation.members],
    )
    if explanation.read_back is not None:
        result(f"read back from the object: {', '.join(explanation.read_back) or 'its existence'}")


def _short(value: str | None, most: int = 40) -> str | None:
    """Return the value cut to a length, before its width is measured."""
    return value if value is None or len(value) <= most else value[:most] + "..."
