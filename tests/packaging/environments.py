"""Environments of their own, in which wheels are installed without their dependencies."""

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


def install(directory: Path, wheels: Iterable[Path], dependencies: Iterable[str]) -> None:
    """Make an environment of a directory, with wheels.

    ``dependencies`` are directories that it searches for modules; the .pth files in them (our
    editable install) are not read.
    """
    made = run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
    assert made.returncode == 0, made.stderr
    installed = run(
        sys.executable, "-m", "pip", "--python", directory / "bin" / "python", "install",
        "--no-index", "--no-deps", *wheels, cwd=directory,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    (own,) = directory.glob("lib/python3*/site-packages")
    (own / "dependencies.pth").write_text("".join(f"{path}\n" for path in dependencies))
