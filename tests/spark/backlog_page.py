"""docs/convert-a-backlog.md and docs/sizing.md as tests run them: verbatim, but for names of hosts and places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from documents import ROOT, blocks

BACKLOG = ROOT / "docs" / "convert-a-backlog.md"
SIZING = ROOT / "docs" / "sizing.md"


def block(heading: str, number: int = 0, here: Mapping[str, str] | None = None, page: Path = BACKLOG) -> str:
    """A block below a heading. ``here``: by names of the page, all of which are in the block, those of a test."""
    text = blocks(page)[heading, number]
    for name, own in (here or {}).items():
        assert name in text
        text = text.replace(name, own)
    return text
