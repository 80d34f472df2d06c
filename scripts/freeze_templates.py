#!/usr/bin/env python3
"""Freeze the trigger templates in use as version ``eventlog.sql.triggers.templates.CURRENT``.

Copies each dialect's templates to its ``frozen/vN``, and writes the hashes of all frozen files, and of what is
compiled by them, to ``tests/dialects/frozen.json``. To be run until a version is released, and never for it again:
migrations that users have written depend on it. Whoever changes a template after that raises ``CURRENT`` first.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "dialects")]

from frozen_templates import FROZEN, frozen_hashes, templates_in_use  # noqa: E402

from eventlog.sql.triggers import templates  # noqa: E402


def main() -> None:
    for file in templates_in_use():
        target = file.parent / "frozen" / f"v{templates.CURRENT}" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    FROZEN.write_text(json.dumps(frozen_hashes(), indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
