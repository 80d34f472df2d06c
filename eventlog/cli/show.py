"""``eventlog show``: one row of the log explained."""

from __future__ import annotations

from typing import Final

import click

from eventlog.cli.context import Context
from eventlog.cli.help import Command
from eventlog.cli.output import json_option, print_json, result, table
from eventlog.publisher.context import Counters
from eventlog.publisher.explain import Explanation, explain, explanation_data
from eventlog.publisher.open import open_unlocked

SOURCES: Final = {
    "in_flight": "as its in-flight line records it",
    "queue": "as the next cycle would fold it",
    "reconstructed": "reconstructed",
}


@click.command(cls=Command)
@click.argument("record_id", type=click.IntRange(min=1), metavar="RECORD_ID")
@json_option
@click.pass_obj
def show(context: Context, record_id: int, as_json: bool) -> None:
    """Explain the row RECORD_ID of the log: its checks, its group, what precedence did, and what became of it.

    Last comes the document of its event, or the one that it would make now. Nothing is marked or sent.
    """
    with open_unlocked(context.config(), Counters()) as opened:
        explanation = explain(opened, record_id)
    if as_json:
        print_json(explanation_data(explanation))
    else:
        _print(explanation)


def _print(explanation: Explanation) -> None:
    row = explanation.row
    result(f"row {row.record_id} of {explanation.log}: {explanation.state}")
    table(("column", "value"), [(name, value) for name, value in row._asdict().items() if name != "record_id"])
    if explanation.problem is not None:
        result(f"it fails a check: {explanation.problem.code}: {explanation.problem.message}")
    else:
        spelled = "" if explanation.key == row.table_key else ", spelled otherwise in the row"
        result(f"it passes all checks: object {explanation.key} of class {explanation.class_name}{spelled}")
    for line in explanation.errors:
        result(f"error line of {line.error_time} UTC: {line.code}: {line.message}")
    if explanation.in_flight is not None and explanation.in_flight.sendings > 1:
        result(f"its event is sent under its event-id number {explanation.in_flight.sendings}")
    if explanation.source is not None:
        result(f"its group, {SOURCES[explanation.source]}:")
        table(
            ("record_id", "status", "type", "column", "old", "new", "what becomes of it"),
            [
                (one.record_id, one.status, one.event_type, one.column_name, _short(one.old), _short(one.new), one.fate)
                for one in explanation.members
            ],
        )
        if explanation.read_back is not None:
            result(f"read back from the object: {', '.join(explanation.read_back) or 'its existence'}")
        if explanation.event_id is None:
            result("it makes no event")
        else:
            result(f"it makes the event {explanation.event_id} ({explanation.operation}):")
    for sentence in explanation.notes:
        result(f"note: {sentence}")
    if explanation.document is not None:
        result(explanation.document, end="" if explanation.document.endswith("\n") else "\n")


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= 40 else value[:40] + "..."
