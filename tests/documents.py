"""The commands and the SQL of a page of the documentation, as a reader runs them.

A block counts if its first line is ``# as ROLE`` (sh) or ``-- as ROLE`` (sql); ``<!-- scenario:
NAME -->`` begins a scenario, and ``<!-- scenario: NAME, after OTHER -->`` one that goes on where
another one ends. A block under ``<!-- runs -->`` needs nothing but an empty directory and what the
blocks of its page before it left there; what a block under ``<!-- prints -->`` shows, they print.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Block(NamedTuple):
    """``language`` is sh or sql; ``text`` without the line that names the role."""

    language: str
    role: str
    text: str


class Scenario(NamedTuple):
    after: str | None
    blocks: tuple[Block, ...]


_SCENARIO = re.compile(
    r"^<!-- scenario: (?P<name>[^,>]*?)(?:, after (?P<after>[^>]*?))? -->$", re.MULTILINE
)
_BLOCK = re.compile(
    r"^```(?P<language>sh|sql)\n(?:#|--) as (?P<role>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def scenarios(page: Path) -> dict[str, Scenario]:
    text = page.read_text(encoding="utf-8")
    found = list(_SCENARIO.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {
        match["name"]: Scenario(
            match["after"],
            tuple(
                Block(b["language"], b["role"], b["text"])
                for b in _BLOCK.finditer(text, match.end(), end)
            ),
        )
        for match, end in zip(found, ends, strict=True)
    }


def runnable(page: Path) -> list[tuple[str, str]]:
    """Language (sh or python) and text of the blocks that run by themselves, in order."""
    return re.findall(
        r"^<!-- runs -->\n```(sh|python)\n(.*?)^```$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )


_FENCED = re.compile(
    r"^#{1,6} (?P<heading>[^\n]*)$|^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page: Path) -> dict[tuple[str, int], str]:
    """All blocks of a page, by the heading that they stand below and their number there, from 0."""
    found: dict[tuple[str, int], str] = {}
    heading, number = "", 0
    for match in _FENCED.finditer(page.read_text(encoding="utf-8")):
        if match["language"] is None:
            heading, number = match["heading"], 0
        else:
            found[heading, number] = match["text"]
            number += 1
    return found


def fenced(page: Path, language: str) -> list[str]:
    """All blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def shown_output(page: Path) -> list[str]:
    """What the blocks that run by themselves print, as the page shows it."""
    return re.findall(
        r"^<!-- prints -->\n```text\n(.*?)^```$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
