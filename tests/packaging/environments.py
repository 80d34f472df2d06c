"""Wheels, and environments of their own, in which they are installed without their dependencies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def run(
    *command: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, text=True, capture_output=True,
        check=False, timeout=170,
    )  # fmt: skip


_BUILD = """
import os, sys, tomllib
from importlib import import_module
hook, directory, *sources = sys.argv[1:]
for source in sources:
    os.chdir(source)
    with open("pyproject.toml", "rb") as project:
        backend = tomllib.load(project)["build-system"]["build-backend"]
    getattr(import_module(backend), hook)(directory)
"""


def build(hook: str, directory: Path, *sources: Path) -> None:
    """Call ``build_wheel`` or ``build_sdist`` of each source's own backend, as pip and build do, but
    in one process for all: what they make is in the directory.
    """
    built = run(sys.executable, "-c", _BUILD, hook, directory, *sources, cwd=directory)
    assert built.returncode == 0, built.stdout + built.stderr


def install(directory: Path, wheels: Iterable[Path], dependencies: Iterable[str]) -> None:
    """Make an environment of a directory, with wheels.

    ``dependencies`` are directories that it searches for modules; the .pth files in them (our
    editable install) are not read. A module is compiled once it is imported.
    """
    made = run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
    assert made.returncode == 0, made.stderr
    installed = run(
        sys.executable, "-m", "pip", "--python", directory / "bin" / "python", "install",
        "--no-index", "--no-deps", "--no-compile", *wheels, cwd=directory,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    (own,) = directory.glob("lib/python3*/site-packages")
    (own / "dependencies.pth").write_text("".join(f"{path}\n" for path in dependencies))
