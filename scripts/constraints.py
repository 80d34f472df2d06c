"""Write docker/constraints.txt: each package that the image installs, pinned, as the index has it.

python scripts/constraints.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
CONSTRAINTS = ROOT / "docker" / "constraints.txt"
HEAD = (
    "# The packages of the image, written by scripts/constraints.py; a test holds it against "
    "pyproject.toml.\n"
)


def image_requirements(project: dict[str, object], dockerfile: str) -> list[str]:
    """Return the requirements of the image: those of the package with the extras that the
    Dockerfile names, and those of its build.
    """
    metadata = project["project"]
    assert isinstance(metadata, dict)
    extras = re.search(r"'\.\[([\w,-]+)\]'", dockerfile)
    assert extras is not None, "the Dockerfile names no extras"
    found = list(metadata["dependencies"])
    waiting = extras[1].split(",")
    while waiting:
        for one in metadata["optional-dependencies"][waiting.pop()]:
            own = re.fullmatch(r"eventlog-publisher\[([\w,-]+)\]", one)
            if own is None:
                found.append(one)
            else:
                waiting += own[1].split(",")
    build = project["build-system"]
    assert isinstance(build, dict)
    return [*found, *build["requires"]]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dockerfile = DOCKERFILE.read_text(encoding="utf-8")
    version = re.search(r"FROM python:(\d+\.\d+)", dockerfile)
    assert version is not None
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
        "--report=-", "--only-binary=:all:", f"--python-version={version[1]}", "--target=/nowhere",
        *image_requirements(project, dockerfile),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - our own words
    report = json.loads(done.stdout)
    pinned = sorted(
        f"{one['metadata']['name'].lower().replace('_', '-')}=={one['metadata']['version']}\n"
        for one in report["install"]
    )
    CONSTRAINTS.write_text(HEAD + "".join(pinned), encoding="utf-8")


if __name__ == "__main__":
    main()
