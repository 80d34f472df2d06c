"""Write docker/constraints.txt: each package that the image installs, pinned, with the hashes of
the archives that the index has.

python scripts/constraints.py
"""

from __future__ import annotations

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
_PIN = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=\S+)*)$", re.MULTILINE)


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


def pins(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the version of each package in a file of pins, and the hashes of its archives."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, version, rest in _PIN.findall(text):
        found[name] = (version, tuple(re.findall(r"--hash=(sha256:[0-9a-f]{64})", rest)))
    return found


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dockerfile = DOCKERFILE.read_text(encoding="utf-8")
    version = re.search(r"FROM python:(\d+\.\d+)", dockerfile)
    assert version is not None
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes",
        "--no-annotate", "--no-header", "--only-binary=:all:",
        f"--python-version={version[1]}", "-",
    ]  # fmt: skip
    needed = "\n".join(image_requirements(project, dockerfile))
    done = subprocess.run(command, check=True, input=needed, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own words
    CONSTRAINTS.write_text(HEAD + done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
