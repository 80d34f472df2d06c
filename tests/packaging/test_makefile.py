"""What `make` runs, as `make --dry-run` prints it."""

from __future__ import annotations

import re
import subprocess

import pytest
from documents import ROOT


def printed(*words: str) -> tuple[int, str]:
    """Return the exit code of a dry run, and what it prints; .venv needs no set-up."""
    command = ["make", "--dry-run", "--no-print-directory", "--assume-old=setup", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_rooms_are_the_folders_of_these_names_and_their_vectors() -> None:
    code, text = printed("test", "ROOMS=gbase lake")
    assert code == 0, text
    assert re.findall(r"tests/\S+", text) == [
        "tests/unit/gbase",
        "tests/conformance/test_gbase_vectors.py",
        "tests/spark/lake",
    ]
    assert not re.search("ruff|mypy|mkdocs|prose", text)


def test_a_room_that_is_not_there_is_refused() -> None:
    code, text = printed("test", "ROOMS=gbase linnter")
    assert code != 0
    assert "there is no folder linnter below tests/" in text


@pytest.mark.parametrize("part", ["ruff", "mypy", "mkdocs", "pytest"])
def test_without_rooms_all_is_checked(part: str) -> None:
    code, text = printed("test")
    assert code == 0, text
    assert re.search(part, text)
