"""``eventlog explain CODE``: what a code means and what to do. The site has a page with the same
text for each code (``scripts/site.py``).

An error, a finding of ``doctor`` and a condition of health can have the same code, such as
``invalid_rows``: each has its entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click

from eventlog.cli.context import JsonObject
from eventlog.core.options import nearest_name
from eventlog.error_codes import ERRORS
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context import KINDS
from eventlog.sql.doctor.codes import FINDINGS

_WORD: Final = re.compile("[a-z]+(?:[_-][a-z]+)*", re.IGNORECASE)

_SEEN_BY: Final = {
    "both": "the status page, `eventlog status` and `eventlog top`",
    "process": "the status page and `eventlog top`",
    "command": "`eventlog status`",
}


class CodeEntry(NamedTuple):
    """One meaning of a code. Texts have Markdown's backticks and asterisks."""

    code: str
    kind: str
    """What has the code, such as ``a finding of doctor: error``."""
    happened: str
    where: str
    fix: str
    exit_code: str
    """The exit code that this code decides, empty if there is none."""
    commands: tuple[str, ...]
    """The commands that show the code."""
    page: str
    """The page of the documentation to read next, by its path in the tree."""

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the label and the text of each part, in the order of reading."""
        yield "What happened", self.happened
        yield "What to do", self.fix
        yield "Where it appears", self.where
        yield (
            "Commands",
            ", ".join(
                command if " of " in command or command.startswith("every ") else f"`{command}`"
                for command in self.commands
            ),
        )
        if self.exit_code:
            yield "Exit code", self.exit_code

    def data(self) -> JsonObject:
        """Return the entry for JSON."""
        return {name: _plain(value) for name, value in self._asdict().items()}


def code_entries() -> dict[str, list[CodeEntry]]:
    """Return the entries of all codes: of errors, of findings, and of conditions of health."""
    found: dict[str, list[CodeEntry]] = {}
    for entry in (*_errors(), *_findings(), *_conditions()):
        found.setdefault(entry.code, []).append(entry)
    return found


def _errors() -> Iterator[CodeEntry]:
    for group in ERRORS:
        for code, text in group.codes.items():
            yield CodeEntry(
                code,
                f"an error: {group.title}",
                text.happened,
                f"In {group.where}.",
                text.fix,
                f"{text.exit_code or group.exit_code}.",
                group.commands,
                group.page,
            )


def _findings() -> Iterator[CodeEntry]:
    for group in FINDINGS:
        for code, text in group.codes.items():
            yield CodeEntry(
                code,
                f"a finding of doctor ({text.severity}): {group.title}",
                text.happened,
                "In the report of `eventlog doctor`; `--ignore CODE` leaves it out.",
                text.fix,
                f"`doctor` ends with {ExitCode.NO} for an error or a warning; an info does not "
                "change it.",
                ("doctor",),
                group.page,
            )


def _conditions() -> Iterator[CodeEntry]:
    for name, kind in KINDS.items():
        commands = " and ".join(f"`{command}`" for command in kind.commands)
        when = kind.when[0].upper() + kind.when[1:]
        yield CodeEntry(
            name,
            f"a condition of health ({kind.severity.value})",
            f"{when}.",
            f"In the health of a publisher: {_SEEN_BY[kind.known_to]}; also in `status.json` and "
            "the metric `eventlog_condition`.",
            f"{kind.action} Run {commands}." if commands else kind.action,
            "",
            ("top",) if kind.known_to == "process" else ("status", "top"),
            "docs/reference/metrics.md",
        )


def is_code(text: str) -> bool:
    """Return True if an argument of ``explain`` is a code: words without digits. Every record_id
    and every event-id has a digit.
    """
    return _WORD.fullmatch(text) is not None


def explained_code(text: str) -> list[CodeEntry]:
    """Return the entries of a code. An unknown code raises BadParameter, with the nearest code."""
    entries = code_entries()
    code = text.lower().replace("-", "_")
    if code in entries:
        return entries[code]
    near = nearest_name(code, entries)
    hint = (
        f"the nearest one is {near}"
        if near
        else "the code stands in brackets at the end of a message"
    )
    raise click.BadParameter(f"there is no code {text!r}; {hint}")


def code_lines(entries: list[CodeEntry]) -> Iterator[str]:
    """Yield the lines that a terminal shows for a code."""
    for number, entry in enumerate(entries):
        if number:
            yield ""
        yield f"{entry.code} is {entry.kind}"
        for label, text in entry.parts():
            yield f"{label}: {_plain(text)}"
        yield f"Read on: {entry.page}"


def _plain(value: Any) -> Any:
    """Return a text without Markdown's emphasis; backticks stay, as in all messages."""
    return re.sub(r"\*(\w+)\*", r"\1", value) if isinstance(value, str) else value
