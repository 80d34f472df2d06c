"""The golden files: what the Oracle dialect is to make of every case, each line of it written down
once.

The files of ``WHOLE`` stand as they are; every style and every capture is among them. The others
hold only lines of their own, and ``-- lines 3 to 27 of FILE`` for a run that stands in a whole
file. In a script a block follows each trigger that drops it if it does not compile; ``check.sql``
holds that block once, for all files of triggers.

    python tests/dialects/oracle/golden_files.py               writes all files again
    python tests/dialects/oracle/golden_files.py trigger_view  prints the whole text of one
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from oracle_catalogue import cases, downgrade_script, migration_script
from oracle_core import MODULES, core_cases
from oracle_driver import VERSIONS

from eventlog.sql.dialects.oracle.script import terminated
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.triggers import Action, TriggerPlan, triggers_of

GOLDEN: Final = Path(__file__).parent / "golden"
WHOLE: Final = (
    "trigger_field",
    "trigger_remove_all",
    "trigger_children_query_back",  # style field_query_back, with child tables
    "trigger_row_query_back",
    "trigger_statement",  # capture statement
    *("script", "migrations"),
    *(
        "bulk",
        "catalogue",
        "identity",
        "lock",
        "log_statements",
        "query_back",
        "resync",
        "sequences",
    ),
    *MODULES,
)
CHECK: Final = "check"

_RUN: Final = re.compile(r"-- lines (\d+) to (\d+) of (\w+)")
_TRIGGER: Final = re.compile(r'CREATE OR REPLACE TRIGGER "APP"\."([^"]+)"')
_END: Final = "/"


def texts() -> dict[str, str]:
    """What the dialect makes of every case now, by the file's name."""
    plan = TriggerPlan(
        (
            Action(
                "create", "APP.LINK", "watched, and not captured yet", cases()["trigger_key_only"]
            ),
            Action(
                "drop", "APP.OLD\nONE", "no longer watched", ('DROP TRIGGER "APP"."TGR_OLD_I_1"',)
            ),
            Action("unchanged", "APP.SAME", "as declared"),
        )
    )
    every = {**cases(), **core_cases(VERSIONS[-1])}
    return {
        **{name: "\n".join(terminated(statements)) + "\n" for name, statements in every.items()},
        "script": triggers_of(load_dialect("oracle")).script(plan, 5.0),
        "migrations": migration_script(),
        "migrations_down": downgrade_script(),
    }


def expected(name: str) -> str:
    """The whole text that a golden file stands for."""
    lines: list[str] = []
    for line in _read(name):
        run = _RUN.fullmatch(line)
        lines += [line] if run is None else _read(run[3])[int(run[1]) - 1 : int(run[2])]
    return "\n".join([*(_with_checks(lines) if name.startswith("trigger_") else lines), ""])


def _with_checks(lines: Sequence[str]) -> Iterator[str]:
    trigger = ""
    for line in lines:
        found = _TRIGGER.match(line)
        trigger = trigger if found is None else found[1]
        yield line
        if line == _END:
            yield from _check(trigger)


def _check(trigger: str) -> list[str]:
    # The name stands in literals alone.
    return [line.replace("NAME", trigger.replace("'", "''")) for line in _read(CHECK)]


def _read(name: str) -> list[str]:
    return (GOLDEN / f"{name}.sql").read_text(encoding="utf-8").removesuffix("\n").split("\n")


# --- written again
# ---------------------------------------------------------------------------------


def write_all() -> None:
    """Write every file, and remove those of cases that are gone."""
    for file in GOLDEN.glob("*.sql"):
        file.unlink()
    _write(CHECK, terminated(['CREATE OR REPLACE TRIGGER "APP"."NAME"'])[2:])
    lines = {name: _without_checks(name, text) for name, text in texts().items()}
    for name in lines:
        _write(
            name,
            lines[name]
            if name in WHOLE
            else [*_shortened(lines[name], {one: lines[one] for one in WHOLE})],
        )


def _write(name: str, parts: Sequence[str]) -> None:
    (GOLDEN / f"{name}.sql").write_text("\n".join([*parts, ""]), encoding="utf-8")


def _without_checks(name: str, text: str) -> list[str]:
    for trigger in _TRIGGER.findall(text) if name.startswith("trigger_") else ():
        text = text.replace("\n".join([*_check(trigger), ""]), "")
    return text.removesuffix("\n").split("\n")


def _shortened(lines: Sequence[str], whole: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Lines with a reference for each run of two or more that stands in a whole file, the longest
    first.
    """
    place = 0
    while place < len(lines):
        length, file, start = max(
            (
                (_common(lines[place:], there[start:]), file, start)
                for file, there in whole.items()
                for start, line in enumerate(there)
                if line == lines[place]
            ),
            key=lambda run: run[0],
            default=(1, "", 0),
        )
        yield lines[place] if length == 1 else f"-- lines {start + 1} to {start + length} of {file}"
        place += length


def _common(lines: Sequence[str], others: Sequence[str]) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(lines, others, strict=False))
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(expected(sys.argv[1]), end="")
    else:
        write_all()
