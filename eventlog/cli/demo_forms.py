"""A part of ``eventlog demo``: one change in three forms, by the same function as ``eventlog convert``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table as Grid

from eventlog.convert import convert
from eventlog.core.catalog import Database
from eventlog.model import LogRow
from eventlog.xds.reader import read_lines
from eventlog.xds.writer import write_event


def show_forms(
    console: Console, rows: Sequence[LogRow], database: Database, directory: Path, broken: Callable[[str], str]
) -> None:
    """The rows of one change as an XDS event, as rows of a Qlik change table and as a Qlik message.

    ``database`` is the catalogue, ``directory`` where the files of the forms go; ``broken`` breaks an event into lines.
    """
    console.print()
    console.rule("One change in three forms, by eventlog convert", align="left")
    directory.mkdir(exist_ok=True)
    log = directory / "rows.jsonl"
    log.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows), encoding="utf-8")

    def to(form: str, name: str, **options: Any) -> Path:
        target = directory / name
        convert("eventlog", form, str(log), str(target),
                {"reader": {"catalog": database, "schema": database.schema}, "writer": options,
                 "catalog": database})  # fmt: skip
        return target

    with to("xds", "event.xmll").open("rb") as stream:
        events = [event for document in read_lines(stream) for event in document.events]
    _show(console, "xds", *(Syntax(broken(write_event(event)), "xml", word_wrap=True) for event in events))

    table = to("qlik-change-table", "change_table", file_format="json")
    _show(console, "qlik-change-table", _side_by_side(list(_json_lines(*sorted(table.glob("*__ct/*.json*"))))))

    messages = to("qlik-messages", "messages.jsonl", metadata="none")
    _show(console, "qlik-messages", *(json.dumps(message, ensure_ascii=False) for message in _json_lines(messages)))


def _show(console: Console, form: str, *shown: Syntax | Grid | str) -> None:
    console.print(f"[dim]{form}[/dim]")
    for one in shown:
        console.print(one)


def _json_lines(*files: Path) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def _side_by_side(rows: Sequence[dict[str, Any]]) -> Grid:
    """A line for each column of the table: there are many."""
    grid = Grid("column", *("row" for _ in rows), box=None, pad_edge=False, header_style="dim")
    for name in rows[0]:
        grid.add_row(name, *("NULL" if row[name] is None else str(row[name]) for row in rows))
    return grid
