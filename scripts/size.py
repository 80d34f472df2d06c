#!/usr/bin/env python3
"""How large the tree is, in the terms that say whether it stays easy to find one's way in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_RECORD = re.compile(r"(?m)^@dataclass.*\nclass |^class \w+\((?:NamedTuple|[\w.]*Enum)\)")


def main() -> None:
    files = [*(ROOT / "eventlog").rglob("*")]
    python = [file for file in files if file.suffix == ".py"]
    texts = [file.read_text(encoding="utf-8") for file in python]
    sql = [file for file in files if file.suffix in {".sql", ".j2"}]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    golden = (ROOT / "tests" / "dialects").rglob("golden/*")
    table = {
        "Python files in eventlog/": len(python),
        "lines there, .py, .sql, .j2": sum(map(_lines, [*python, *sql])),
        "import-linter layers": len(contract[0]["layers"]),
        "loose modules in the root of eventlog/": len([*(ROOT / "eventlog").glob("*.py")]) - 1,
        "record classes": sum(len(_RECORD.findall(text)) for text in texts),
        "lines of golden files": sum(map(_lines, golden)),
    }
    for name, value in table.items():
        print(f"{name:40} {value:7,}")


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
