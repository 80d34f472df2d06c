"""A package that a test puts in place, with entry points of eventlog."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog import registry

Install = Callable[..., None]
"""Puts a package in place: its name, its entry points by group, its module's text."""


@contextmanager
def installing(directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Yield the function that puts packages into a directory; afterwards they are gone."""
    patch.syspath_prepend(str(directory))

    def put(package: str, module: str, text: str, **entries: str) -> None:
        (directory / f"{module}.py").write_text(text)
        info = directory / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        groups = "".join(f"[eventlog.{group}]\n{lines}\n" for group, lines in entries.items())
        (info / "entry_points.txt").write_text(groups)
        _forget()

    modules = set(sys.modules)
    yield put
    _forget()
    for module in set(sys.modules) - modules:
        if str(directory) in str(getattr(sys.modules[module], "__file__", "")):
            del sys.modules[module]


def _forget() -> None:
    registry.installed_entries.cache_clear()
    registry.refused_entries.clear()
