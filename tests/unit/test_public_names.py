"""What ``import eventlog`` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eventlog

HEAVY = ("sqlalchemy", "lxml", "pyarrow", "psycopg")


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_importing_eventlog_loads_nothing_heavy() -> None:
    loaded = run("import eventlog, sys; print(*sys.modules)").split()
    assert "eventlog" in loaded
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)
    assert not [name for name in loaded if name.startswith("eventlog.")]


def test_every_public_name_resolves_in_a_fresh_interpreter() -> None:
    resolved = run(
        "from eventlog import *\nimport eventlog\n"
        "for name in eventlog.__all__: print(name, globals()[name] is not None)\n"
        "print(Change.__name__, convert.__name__)"
    )
    *names, last = resolved.splitlines()
    assert names == [f"{name} True" for name in eventlog.__all__]
    assert last == "Change convert"


def test_names_are_listed_and_others_are_refused() -> None:
    assert set(eventlog.__all__) <= set(dir(eventlog))
    with pytest.raises(AttributeError, match="'eventlog' has no attribute 'converted'"):
        eventlog.converted  # noqa: B018


def test_the_classes_of_the_model_load_nothing_heavy_either() -> None:
    loaded = run(
        "import sys; from eventlog import Answer, Change, Event, EventlogError; print(*sys.modules)"
    ).split()
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)
