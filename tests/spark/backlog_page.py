"""docs/guides/convert-a-backlog.md as tests run it: verbatim, but for names of hosts and places."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from documents import ROOT, blocks

BACKLOG = ROOT / "docs" / "guides" / "convert-a-backlog.md"
SOURCES = "pyproject.toml", "README.md", "LICENSE", "eventlog"


def block(heading: str, number: int = 0, here: Mapping[str, str] | None = None) -> str:
    """A block below a heading. ``here``: by names of the page, all of which are in the block, those
    of a test.
    """
    text = blocks(BACKLOG)[heading, number]
    for name, own in (here or {}).items():
        assert name in text
        text = text.replace(name, own)
    return text


def copy_clone(place: Path) -> None:
    """Put what pip installs of the clone into a directory, for lines that are typed in it."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)


def skip_without_index(pip_said: str) -> None:
    """Skip a test whose pip has found nothing to install."""
    if "No matching distribution found" in pip_said:
        pytest.skip(f"the package index does not give it: {pip_said.strip().splitlines()[-1]}")
