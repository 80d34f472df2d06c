#!/usr/bin/env python3
"""Keep the text of trigger templates that have changed since they were released.

Whoever changes a template that is released raises ``eventlog.sql.statements.TEMPLATE_VERSION`` and runs this: the text
as the last version had it is taken from git and copied to ``frozen/vN`` of the dialect, and the hashes of the new
version, and of what is compiled by it, are added to ``tests/dialects/frozen.json``. It may run again until the new
version is released. The hashes of earlier versions stay as they are: migrations that users have written depend on them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dialects")]

from frozen_templates import FROZEN, PACKAGES, hash_of, names_in_use, sha256  # noqa: E402

from eventlog.sql.connection import SUPPORTED  # noqa: E402
from eventlog.sql.statements import TEMPLATE_VERSION  # noqa: E402


def main() -> None:
    known = json.loads(FROZEN.read_text(encoding="utf-8"))
    for name, digest in known.items():
        place, _, version = name.rpartition(" v")
        if place in SUPPORTED or int(version) != TEMPLATE_VERSION - 1 or hash_of(name) == digest:
            continue
        file = PACKAGES / place
        copy = file.parent / "frozen" / f"v{TEMPLATE_VERSION - 1}" / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text_in_git(file, digest), encoding="utf-8")
        print(f"{copy.relative_to(ROOT)} written")
    known |= {name: hash_of(name) for name in names_in_use()}
    FROZEN.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def text_in_git(file: Path, digest: str) -> str:
    """The newest text of a file, as git has it, that has this hash."""
    path = file.relative_to(ROOT).as_posix()
    for commit in git("log", "--format=%H", "--", path).split():
        text = git("show", f"{commit}:{path}")
        if sha256(text) == digest:
            return text
    sys.exit(f"{path}: git has no text of it that is that of version {TEMPLATE_VERSION - 1}")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout


if __name__ == "__main__":
    main()
