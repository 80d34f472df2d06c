"""The glossary: at most forty terms, each of which is used (docs/concepts/how-it-works.md)."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "concepts" / "how-it-works.md"

_LIST = GLOSSARY.read_text(encoding="utf-8").partition("\n## Glossary\n")[2]
ENTRIES = re.findall(r"^- \*\*([^*]+)\*\*: (.+)$", _LIST, re.MULTILINE)
TERMS = [term.strip() for entry, _ in ENTRIES for term in entry.split(",")]


@cache
def uses() -> str:
    """The text of all pages and of the package, without the glossary."""
    pages = (
        path.read_text(encoding="utf-8").replace(_LIST, "")
        for path in (ROOT / "docs").rglob("*.md")
    )
    modules = (path.read_text(encoding="utf-8") for path in (ROOT / "eventlog").rglob("*.py"))
    return "\n".join([*pages, *modules]).casefold()


def test_the_glossary_has_at_most_forty_entries() -> None:
    assert 20 <= len(ENTRIES) <= 40
    assert len(set(TERMS)) == len(TERMS)


def is_used(term: str) -> bool:
    """Return True if at least three words of the pages and the package begin with a term."""
    text = uses()
    # To look for the text alone is many times faster than for a word that begins with it.
    found = re.finditer(re.escape(term.casefold()), text)
    words = (one for one in found if not re.match(r"\w", text[one.start() - 1]))
    return len([*islice(words, 3)]) == 3


def test_each_term_of_the_glossary_is_used() -> None:
    assert [term for term in TERMS if not is_used(term)] == []


def test_there_is_one_table_of_terms() -> None:
    headings = [
        f"{path.name}: {heading}"
        for path in (ROOT / "docs").rglob("*.md")
        for heading in re.findall(
            r"(?m)^#+ ((?:Words|Glossary|Terms)\b.*)$", path.read_text("utf-8")
        )
    ]
    assert headings == ["how-it-works.md: Glossary"]


def test_no_term_that_was_given_up_stands_in_the_package() -> None:
    allowed = (ROOT / "scripts" / "prose_allowed.txt").read_text(encoding="utf-8")
    assert [line for line in allowed.splitlines() if line.startswith("eventlog/")] == []
