"""``eventlog show RECORD_ID``: one row of the log explained."""

from __future__ import annotations

from typing import Final

import click

from eventlog.cli.context import Context
from eventlog.cli.output import json_option, print_json, result, table
from eventlog.publisher.context import Counters
from eventlog.publisher.explain import Explanation, explain, explanation_data
from eventlog.publisher.open import open_unlocked

SOURCES: Final = {
    "in_flight": "as its in-flight line records it",
    "queue": "as the next cycle would fold it",
    "reconstructed": "reconstructed",
}


@click.command()
@click.argument("record_id", type=click.IntRange(min=1), metavar="RECORD_ID")
@json_option
@click.pass_obj
def show(context: Context, record_id: int, as_json: bool) -> None:
    """Explain a row of the log: what it is, whether it is good, its group, what precedence did, what became of it.

    The document that its event makes, or would make now, comes last. Nothing is marked or sent.
    """
    with open_unlocked(context.config(), Counters()) as opened:
        found = explain(opened, record_id)
    if as_json:
        print_json(explanation_data(found))
    else:
        _print(found)


def _print(found: Explanation) -> None:
    row = found.row
    result(f"row {row.record_id} of {found.log}: {found.state}")
    table(("column", "value"), [(name, value) for name, value in row._asdict().items() if name != "record_id"])
    if found.problem is not None:
        result(f"it fails a check: {found.problem.code}: {found.problem.message}")
    else:
        spelled = "" if found.key == row.table_key else ", spelled otherwise in the row"
        result(f"it passes all checks: object {found.key} of class {found.class_name}{spelled}")
    for line in found.errors:
        result(f"error line of {line.error_time} UTC: {line.code}: {line.message}")
    if found.in_flight is not None and found.in_flight.sendings > 1:
        result(f"its event is sent under its event-id number {found.in_flight.sendings}")
    if found.source is not None:
        result(f"its group, {SOURCES[found.source]}:")
        table(
            ("record_id", "status", "type", "column", "old", "new", "what becomes of it"),
            [
                (one.record_id, one.status, one.event_type, one.column_name, _short(one.old), _short(one.new), one.fate)
                for one in found.members
            ],
        )
        if found.read_back is not None:
            result(f"read back from the object: {', '.join(found.read_back) or 'its existence'}")
        if found.event_id is None:
            result("it makes no event")
        else:
            result(f"it makes the event {found.event_id} ({found.operation}):")
    for sentence in found.notes:
        result(f"note: {sentence}")
    if found.document is not None:
        result(found.document, end="" if found.document.endswith("\n") else "\n")


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= 40 else value[:40] + "..."
