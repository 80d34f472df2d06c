"""What ``import eventlog.spark`` gives, and what it does not load."""

from __future__ import annotations

import pkgutil
import runpy
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
from documents import ROOT

import eventlog.spark

PAGE = ROOT / "docs" / "reference" / "api.md"


def run(code: str, cwd: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=cwd
    ).stdout


def test_importing_it_loads_no_pyspark() -> None:
    loaded = run("import eventlog.spark, sys; print(*sys.modules)").split()
    assert not {name.partition(".")[0] for name in loaded} & {
        "pyspark",
        "pyarrow",
        "pandas",
        "sqlalchemy",
    }
    assert [name for name in loaded if name.startswith("eventlog.spark.")] == []


def test_every_public_name_resolves() -> None:
    for name in eventlog.spark.__all__:
        assert getattr(eventlog.spark, name).__module__.startswith("eventlog.spark.")
    assert set(eventlog.spark.__all__) <= set(dir(eventlog.spark))
    with pytest.raises(AttributeError, match=r"'eventlog\.spark' has no attribute 'run_backlogs'"):
        eventlog.spark.run_backlogs  # noqa: B018


def test_no_public_name_is_that_of_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(eventlog.spark.__path__)}
    assert modules & set(eventlog.spark.__all__) == set()


def test_the_page_has_every_name_with_its_signature() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["_signature"]
    for name in eventlog.spark.__all__:
        public = getattr(eventlog.spark, name)
        assert f"### {name}\n" in page
        if not isinstance(public, type):
            assert f"\n{name}{shown(public)}\n" in page
            assert signature(public).return_annotation is not signature(public).empty


def test_modules_of_the_users_directory_hide_none_of_ours(tmp_path: Path) -> None:
    for name in ("spark", "fold", "session", "backlog", "output", "job", "write"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the user')\n")
    ours = (
        "import eventlog.spark.backlog.backlog, eventlog.spark.frames.convert, eventlog.spark.backlog.output.tables as "
        "last"
    )
    assert (
        run(f"{ours}; print(last.__file__)", cwd=tmp_path)
        .strip()
        .endswith("eventlog/spark/backlog/output/tables.py")
    )
