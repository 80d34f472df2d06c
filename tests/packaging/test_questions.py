"""Questions that a new user has (questions.toml): the answer is on a page that README leads to by at
most two links.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

CLICKS = 2

QUESTIONS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("questions.toml").read_text(encoding="utf-8")
)["question"]

each_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one["asks"])


def links_of(page: Path) -> set[Path]:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+\.md)", text)
    return {Path(os.path.normpath(page.parent / target)) for target in targets}


@cache
def clicks() -> dict[Path, int]:
    """How many links lead from README to each page."""
    found = {ROOT / "README.md": 0}
    waiting = deque(found)
    while waiting:
        page = waiting.popleft()
        for target in links_of(page) - found.keys():
            found[target] = found[page] + 1
            if target.exists():
                waiting.append(target)
    return found


def section(text: str, anchor: str) -> str | None:
    """The part of a page below a heading, up to the next heading of its level or a higher one."""
    fences = 0
    lines: list[str] | None = None
    level = 0
    for line in text.splitlines():
        fences += line.startswith("```")
        heading = None if fences % 2 else re.match(r"(#+) (.*)$", line)
        if heading is not None:
            if lines is not None and len(heading[1]) <= level:
                break
            name = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
            if lines is None and name == anchor:
                lines, level = [], len(heading[1])
        if lines is not None:
            lines.append(line)
    return None if lines is None else "\n".join(lines)


def test_there_are_twenty_questions_at_least() -> None:
    assert len({one["asks"] for one in QUESTIONS}) == len(QUESTIONS) >= 20


@each_question
def test_its_answer_is_where_the_list_has_it(question: dict[str, Any]) -> None:
    text = (ROOT / question["page"]).read_text(encoding="utf-8")
    if "anchor" in question:
        found = section(text, question["anchor"])
        assert found is not None, "the heading is missing"
        text = found
    plain = " ".join(text.lower().split())
    assert [words for words in question["words"] if words not in plain] == []


@each_question
def test_two_links_lead_from_readme_to_its_answer(question: dict[str, Any]) -> None:
    assert clicks()[ROOT / question["page"]] <= CLICKS
