"""``eventlog decode``: the changes of a file as text, for people who look into a dump."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from eventlog import conversion
from eventlog.changes.format import Report
from eventlog.changes.json_form import value_to_json
from eventlog.cli.context import Context
from eventlog.cli.convert import FORMAT, FORMATS, map_option, print_report, standard_input, with_password
from eventlog.cli.help import Command
from eventlog.model import Change, Lob, Value, full_name, old_key


@click.command(cls=Command)
@click.option("--from", "source_format", required=True, type=FORMAT, metavar="FORMAT", help=f"Format of IN: {FORMATS}.")
@map_option
@click.option("--strict", is_flag=True, help="Stop at the first thing that cannot be read.")
@click.argument("source", metavar="IN")
@click.pass_obj
def decode(context: Context, source_format: str, map_file: Path | None, strict: bool, source: str) -> None:
    """Show the changes of IN, a path or `-` for standard input, as text for people.

    Of gbase and linter each record is listed with its place in the file.
    """
    chosen = conversion.read_options({} if map_file is None else conversion.read_map(map_file))["reader"]
    options = conversion.in_own_options(source_format, "reader", chosen)
    report = Report(strict=strict)
    source = with_password(context, source_format, source)
    with standard_input(source, source_format) as place:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal cannot show
        try:  # not flushed line by line: a dump has millions
            sys.stdout.writelines(f"{line}\n" for line in readable(source_format, place.path, options, report))
        finally:
            sys.stdout.flush()
    report.problems = [place.named(problem) for problem in report.problems]
    if not context.quiet and (report.read or report.counters):
        print_report(report, ("read",), err=True)


def readable(source_format: str, source: str, options: Mapping[str, Any], report: Report) -> Iterator[str]:
    """The lines of text that show a source. Raises FormatError after the lines of what could be read."""
    conversion.check_source(source_format, source)
    if source_format == "gbase":
        from eventlog.gbase.format import listing_of

        yield from listing_of(source, options, report)
        return
    if source_format == "linter" and "://" not in source:
        from eventlog.linter.format import queue_listing

        yield from queue_listing(source, options)
        yield ""
    for change in conversion.format_named(source_format).read(source, options, report):
        yield from block(change)
        yield ""


def block(change: Change) -> list[str]:
    """A change as lines: its operation and key, where and when it happened, and its columns, old -> new."""
    table = full_name(change.schema, change.table)
    return [f"{change.op} {_line(table)}{_key(change)}", *_circumstances(change), *_columns(change), *_extras(change)]


def _key(change: Change) -> str:
    if change.key is None:
        return ""
    old = old_key(change) or ()
    text = ", ".join(f"{name}={_shown(value)}" for name, value in change.key)
    return f" {text}" if old == change.key else f" {', '.join(f'{n}={_shown(v)}' for n, v in old)} -> {text}"


def _circumstances(change: Change) -> list[str]:
    last = " (the last)" if change.last_in_transaction else ""
    named = {
        "position": change.position,
        "transaction": change.transaction_id,
        "event": None if change.event_number is None else f"{change.event_number}{last}",
        "committed": None if change.commit_time is None else change.commit_time.isoformat(sep=" "),
        "user": change.user,
    }
    return [f"  {name}: {_line(str(value))}" for name, value in named.items() if value is not None]


def _columns(change: Change) -> list[str]:
    before, after = change.before or {}, change.after or {}
    names = list(dict.fromkeys([*before, *after]))
    width = max(map(len, names), default=0)
    lines = []
    for name in names:
        mark = "*" if change.changed is not None and name in change.changed else " "
        if change.before is None or change.after is None:
            text = _shown(after[name] if name in after else before[name])
        else:
            old = _shown(before[name]) if name in before else "(not known)"
            new = _shown(after[name]) if name in after else "(not known)"
            text = old if old == new and mark == " " else f"{old} -> {new}"
        lines.append(f"  {mark} {name.ljust(width)}  {text}")
    return lines


def _extras(change: Change) -> list[str]:
    return [
        f"  ({name}: {value.hex().upper() if isinstance(value, bytes) else _line(str(value))})"
        for name, value in change.extras.items()
        if value is not None
    ]


def _shown(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return repr(value)
        case bytes(data) | Lob(data):
            return data.hex().upper()
        case tuple():
            return f"({', '.join(map(_shown, value))})"
        case _:
            return str(value_to_json(value))


def _line(text: str) -> str:
    """Text fit for a terminal: one line, control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]
