"""Statements as a script that SQL*Plus and SQLcl run as it is, and run again (spec/triggers.md 10)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from eventlog.errors import TriggerError
from eventlog.sql.dialects.oracle.text import literal, qualified
from eventlog.sql.triggers.plan import TriggerPlan

PROLOGUE: Final = (
    "SET DEFINE OFF",  # else & in a text would ask for a value
    "SET ESCAPE OFF",  # else a backslash in a text is gone
    "SET SQLBLANKLINES ON",
    "SET ECHO OFF",
    "WHENEVER OSERROR EXIT FAILURE ROLLBACK",
    "WHENEVER SQLERROR EXIT FAILURE ROLLBACK",
)
"""What every script begins with."""

_MADE: Final = re.compile(r'CREATE OR REPLACE (TRIGGER|FUNCTION) (?:"([^"]+)"\.)?"([^"]+)"')
_LINES_THAT_END: Final = re.compile(r"^\s*[/.]\s*$|^\s*#|-[ \t]*$", re.MULTILINE)
"""Lines that SQL*Plus takes for commands of its own, and those that it joins with the next one."""
_LONGEST_LINE: Final = 2499
_BLOCK: Final = re.compile(r"(?:CREATE OR REPLACE (?:TRIGGER|FUNCTION)|BEGIN|DECLARE)\b")


def made_by(statement: str) -> tuple[str, str | None, str] | None:
    """Type, schema and name of the object that a statement compiles, None for other statements."""
    found = _MADE.match(statement)
    return None if found is None else (found[1], found[2], found[3])


def unless(statement: str, *codes: int) -> str:
    """A block that runs a statement and takes some errors (``SQLCODE``) for success: so it can be run again."""
    others = f"SQLCODE <> {codes[0]}" if len(codes) == 1 else f"SQLCODE NOT IN ({', '.join(map(str, codes))})"
    return (
        f"BEGIN\n    EXECUTE IMMEDIATE {literal(statement)};\n"
        f"EXCEPTION\n    WHEN OTHERS THEN\n        IF {others} THEN\n            RAISE;\n        END IF;\nEND;"
    )


def script(plan: TriggerPlan, lock_timeout: float) -> str:
    """The statements of a plan as one script; a comment alone if there is nothing to do.

    ``lock_timeout``: seconds to wait for a table, 0 = without end. Raises TriggerError for a name that no script can
    hold.
    """
    if not plan.changes:
        return "-- Nothing to do: the triggers are as declared.\n"
    lines = [*PROLOGUE, "", f"{ddl_lock_timeout(lock_timeout)};", ""]
    for action in plan.changes:
        lines.append(f"-- {action.kind} {_one_line(action.table)}: {_one_line(action.reason)}")
        lines += terminated(action.statements)
        lines.append("")
    return "\n".join(lines)


def ddl_lock_timeout(seconds: float) -> str:
    """The statement that sets how long DDL waits for a table; 0 = without end, as near as Oracle has it."""
    return f"ALTER SESSION SET DDL_LOCK_TIMEOUT = {min(max(round(seconds), 1), 1_000_000) if seconds else 1_000_000}"


def terminated(statements: Iterable[str]) -> list[str]:
    """Statements with what ends them in SQL*Plus, and behind what compiles an object a block that fails if it did not.

    SQL*Plus takes a trigger with errors for a success, and the application's statements would fail by it: the block
    drops it. Raises TriggerError for a name that no script can hold.
    """
    lines = []
    for statement in statements:
        if _LINES_THAT_END.search(statement):
            raise TriggerError("a name holds a line that would end the statement in SQL*Plus: run it without --sql")
        if max(map(len, statement.split("\n"))) > _LONGEST_LINE:
            raise TriggerError("names make a line that is too long for SQL*Plus: run it without --sql")
        if _BLOCK.match(statement):
            lines += [statement, "/"]
        else:
            lines.append(f"{statement};")
        made = made_by(statement)
        if made is not None:
            lines += [_check(made), "/"]
    return lines


def _check(made: tuple[str, str | None, str]) -> str:
    type_, schema, name = made
    owner = "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')" if schema is None else literal(schema)
    drop = ""
    if type_ == "TRIGGER":
        drop = f"\n        EXECUTE IMMEDIATE {literal(f'DROP TRIGGER {qualified(schema, name)}')};"
    return _CHECK.format(owner=owner, name=literal(name), type=literal(type_), drop=drop)


_CHECK: Final = """\
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = {owner} AND name = {name} AND type = {type} AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, {name} || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN{drop}
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;"""


def _one_line(comment: str) -> str:
    # A name may hold a line break, and what follows it would be SQL.
    return " ".join(comment.split())
