"""One event in a terminal, for ``eventlog top``: the content of ``eventlog explain --json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eventlog.cli.inspect.runs.monitor import LEVELS

_SHORT = 60


def event_picture(event_id: str, explained: Mapping[str, Any]) -> Group:
    """Return the picture of an event from the data of its explanation."""
    return Group(*_parts(event_id, explained))


def _parts(event_id: str, explained: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield Text(f"event {event_id}", style="bold")
    yield Text(explained["state"])
    seen = explained["seen"] or {"attempts": (), "waits": ""}
    if seen["waits"]:
        yield Text(f"the publisher has the event {seen['waits']}")
    for one in explained["remedies"]:
        yield Text(f"  {one['text']}:")
        yield Text(f"    {one['command'] or 'eventlog explain names the command'}")
    for entry in explained["errors"]:
        yield Text(f"error row of {entry['error_time']} UTC: {entry['code']}: {entry['message']}")
    if seen["attempts"]:
        yield _attempts(seen["attempts"])
    if explained["members"]:
        yield _members(explained["members"])
    for note in explained["notes"]:
        yield Text(note, style="dim")
    if explained["document"]:
        yield Text(explained["document"])


def _attempts(attempts: Any) -> Table:
    columns = ("at (UTC)", "delivery", "document", "after", "answer", "status", "message")
    table = Table(*columns, title="attempts", title_justify="left", expand=False)
    for one in attempts:
        table.add_row(
            f"{datetime.fromtimestamp(one['at'], UTC):%Y-%m-%d %H:%M:%S}",
            str(one["delivery"]),
            str(one["document"]),
            f"{one['seconds'] * 1000:.1f} ms",
            Text(one["level"], style=LEVELS.get(one["level"], "")),
            one["status"] or "-",
            Text(one["message"] or one["answer"] or "-"),
        )
    return table


def _members(members: Any) -> Table:
    columns = ("record_id", "status", "type", "column", "old", "new", "what happens to it")
    table = Table(*columns, title="rows of the event", title_justify="left", expand=False)
    for one in members:
        values = (one["column_name"], one["old"], one["new"], one["outcome"])
        shown = [Text("-" if value is None else value[:_SHORT]) for value in values]
        table.add_row(str(one["record_id"]), one["status"], str(one["event_type"]), *shown)
    return table
