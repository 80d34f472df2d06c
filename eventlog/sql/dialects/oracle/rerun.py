"""The SQL of the migrations so that it can be run again: what is there already is left alone.

Oracle commits with every CREATE and DROP, so a migration that breaks off leaves what it has made, and Alembic's
statements are for one run. Here each stands in a block that takes "exists already" (or "does not exist", on the way
down) for success; in a script the lines of the version table are written only where they say something new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from eventlog.sql.dialects.oracle.script import terminated, unless

_NO_TABLE: Final = -942
_TAKEN_FOR_SUCCESS: Final = (
    (re.compile("CREATE TABLE "), (-955,)),  # the name is taken
    (re.compile("CREATE (UNIQUE )?INDEX "), (-955, -1408)),  # such columns are indexed
    (re.compile("ALTER TABLE .+ ADD "), (-1430,)),  # the column is there
    (re.compile("DROP TABLE "), (_NO_TABLE,)),
)
_OF_VERSION_TABLE: Final = re.compile("(UPDATE|DELETE FROM) ")
_FIRST: Final = re.compile(r"INSERT INTO (.+) \(version_num\) VALUES \('(\w+)'\)", re.DOTALL)
_NEXT: Final = re.compile(r"UPDATE .+ SET version_num='(\w+)' WHERE .+ = '(\w+)'")


def guarded(statement: str) -> str:
    """A statement of a migration that is run: CREATE, ALTER and DROP can be run again, all others are as they were."""
    bare = statement.strip()
    codes = next((codes for begins, codes in _TAKEN_FOR_SUCCESS if begins.match(bare)), ())
    return unless(bare, *codes) if codes else statement


def rerunnable(printed: str) -> str:
    """What Alembic printed, statements that are ended by a line ``/`` or by ``;``, as a script for every run."""
    later = {before: after for after, before in _NEXT.findall(printed)}
    lines: list[str] = []
    for comments, statement in _parted(printed):
        lines += [*comments, *terminated([_again(statement, later)]), ""]
    return "\n".join(lines)


def _parted(printed: str) -> Iterator[tuple[list[str], str]]:
    """Each statement, without what ends it, and the comments before it."""
    for part in re.split(r"^/$", printed, flags=re.MULTILINE):
        lines = [line.rstrip() for line in part.strip().split("\n")]
        start = next((at for at, line in enumerate(lines) if line and not line.startswith("--")), len(lines))
        statement = "\n".join(lines[start:])
        if statement:
            is_block = statement.startswith(("BEGIN", "DECLARE", "CREATE OR REPLACE"))
            yield [line for line in lines[:start] if line], statement if is_block else statement.removesuffix(";")


def _again(statement: str, later: Mapping[str, str]) -> str:
    first = _FIRST.fullmatch(statement)
    if first is not None:
        return _recorded(first[1], first[2], later)
    if _OF_VERSION_TABLE.match(statement):
        return unless(statement, _NO_TABLE)  # gone by an earlier run
    return guarded(statement)


def _recorded(table: str, revision: str, later: Mapping[str, str]) -> str:
    """The statement that records the first revision of a branch, unless the branch has got there or beyond."""
    known = [revision]
    while known[-1] in later:
        known.append(later[known[-1]])
    revisions = ", ".join(f"'{one}'" for one in known)
    return (
        f"INSERT INTO {table} (version_num)\n"  # noqa: S608 - names as Alembic quoted them
        f"SELECT '{revision}' FROM DUAL\n"
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE version_num IN ({revisions}))"
    )
