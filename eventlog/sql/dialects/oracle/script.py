"""Scripts that SQL*Plus and SQLcl can run unchanged and more than once (spec/triggers.md 10).

Oracle commits with every CREATE and DROP, so an interrupted migration leaves some objects, and
Alembic's statements can be run only once. In these scripts, each statement is in a block that
treats "already exists" (or "does not exist", in a downgrade) as success. A script writes the lines
of the version table only if the revision changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from eventlog.errors import ConfigError, TriggerError
from eventlog.sql.dialects.oracle.text import fold_name, qualified, quote_identifier
from eventlog.sql.port.database import Storage
from eventlog.sql.port.sql_files import literal

PROLOGUE: Final = (
    "SET DEFINE OFF",  # otherwise & in a text would prompt for a value
    "SET ESCAPE OFF",  # otherwise a backslash in a text would disappear
    "SET SQLBLANKLINES ON",
    "SET ECHO OFF",
    "WHENEVER OSERROR EXIT FAILURE ROLLBACK",
    "WHENEVER SQLERROR EXIT FAILURE ROLLBACK",
)
"""The lines at the beginning of every script."""

_MADE: Final = re.compile(r'CREATE OR REPLACE (TRIGGER|FUNCTION) (?:"([^"]+)"\.)?"([^"]+)"')
_HEADER: Final = re.compile(r"\n(?=DECLARE\n|COMPOUND TRIGGER\n)")
"""The end of the text before the body of an eventlog trigger."""
_LINES_THAT_END: Final = re.compile(r"^\s*[/.]\s*$|^\s*#|-[ \t]*$", re.MULTILINE)
"""Lines that SQL*Plus would take for its commands, and lines that it would join with the next
line.
"""
_LONGEST_LINE: Final = 2499
_NO_TRIGGER: Final = -4080
_NO_TABLE: Final = -942
_BLOCK: Final = re.compile(r"(?:CREATE OR REPLACE (?:TRIGGER|FUNCTION)|BEGIN|DECLARE)\b")


def made_by(statement: str) -> tuple[str, str | None, str] | None:
    """Return type, schema and name of the object that a statement compiles, None for other
    statements.
    """
    match = _MADE.match(statement)
    return None if match is None else (match[1], match[2], match[3])


def disabled(statement: str) -> str:
    """Return the statement changed so that it creates the trigger as disabled."""
    text, found = _HEADER.subn("\nDISABLE\n", statement, count=1)
    assert found, statement
    return text


def enabled(schema: str | None, name: str) -> str:
    """Return the statement that enables a trigger."""
    return f"ALTER TRIGGER {qualified(schema, name)} ENABLE"


def drop_trigger(schema: str | None, name: str) -> str:
    """Return a statement that drops a trigger if it exists."""
    return unless(f"DROP TRIGGER {qualified(schema, name)}", _NO_TRIGGER)


def unless(statement: str, *codes: int) -> str:
    """Return a block that runs a statement and treats some errors (``SQLCODE``) as success, so that
    the block can be run again.
    """
    others = (
        f"SQLCODE <> {codes[0]}"
        if len(codes) == 1
        else f"SQLCODE NOT IN ({', '.join(map(str, codes))})"
    )
    return (
        f"BEGIN\n    EXECUTE IMMEDIATE {literal(statement)};\nEXCEPTION\n    WHEN OTHERS THEN\n   "
        f"     IF {others} THEN\n            RAISE;\n        END IF;\nEND;"
    )


def ddl_lock_timeout(seconds: float) -> str:
    """Return the statement that sets how long DDL waits for a table. 0 = as long as Oracle
    allows.
    """
    return (
        "ALTER SESSION SET DDL_LOCK_TIMEOUT = "
        f"{min(max(round(seconds), 1), 1_000_000) if seconds else 1_000_000}"
    )


def terminated(statements: Iterable[str]) -> list[str]:
    """Return statements with the lines that end them in SQL*Plus. After each statement that
    compiles an object, a block fails if the object has errors.

    SQL*Plus treats a trigger with errors as a success, although the trigger would make the
    application's statements fail: so the block drops the trigger. Raises TriggerError for a name
    that no script can contain.
    """
    lines = []
    for statement in statements:
        if _LINES_THAT_END.search(statement):
            raise TriggerError(
                "a name contains a line that would end the statement in SQL*Plus: run the command "
                "without --sql"
            )
        if max(map(len, statement.split("\n"))) > _LONGEST_LINE:
            raise TriggerError(
                "the names are so long that a line is too long for SQL*Plus: run the command "
                "without --sql"
            )
        if _BLOCK.match(statement):
            lines += [statement, "/"]
        else:
            lines.append(f"{statement};")
        compiled = made_by(statement)
        if compiled is not None:
            lines += [_check(compiled), "/"]
    return lines


def _check(compiled: tuple[str, str | None, str]) -> str:
    type_, schema, name = compiled
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


# --- tablespaces of tables and indexes
# --------------------------------------------------------------

_TABLE_MADE: Final = re.compile(r'(CREATE TABLE (?:"[^"]+"\.)?"[^"]+" \(\n.*?\n\))', re.DOTALL)
_KEY_MADE: Final = re.compile(r"(PRIMARY KEY \([^)\n]*\))")
_INDEX_MADE: Final = re.compile(r"(CREATE (?:UNIQUE )?INDEX [^\n]*\))")
_NAMED: Final = re.compile(r'((?:INDEX|CONSTRAINT) (?:"[^"]+"\.)?)"([^"]+)"')


def placed(text: str, storage: Storage) -> str:
    """Add the configured tablespaces, and the configured names of indexes and constraints, to a
    statement or a whole script.
    """
    if storage.tablespace is not None:
        text = _TABLE_MADE.sub(rf"\1 TABLESPACE {_written(storage.tablespace)}", text)
    if storage.index_tablespace is not None:
        place = f"TABLESPACE {_written(storage.index_tablespace)}"
        text = _INDEX_MADE.sub(rf"\1 {place}", _KEY_MADE.sub(rf"\1 USING INDEX {place}", text))
    names = {fold_name(old): _written(new) for old, new in storage.names.items()}
    return _NAMED.sub(lambda made: made[1] + names.get(made[2], f'"{made[2]}"'), text)


def _written(name: str) -> str:
    folded = fold_name(name)
    if "'" in folded or "\n" in folded or "\\" in folded:
        raise ConfigError(
            f"{name!r} cannot be the name of a tablespace, an index or a constraint here: "
            "correct it"
        )
    return quote_identifier(folded)


# --- migrations -----------------------------------------------------------------------------------

_TAKEN_FOR_SUCCESS: Final = (
    (re.compile("CREATE TABLE "), (-955,)),  # the name is taken
    (re.compile("CREATE (UNIQUE )?INDEX "), (-955, -1408)),  # these columns already have an index
    (re.compile("ALTER TABLE .+ ADD "), (-1430,)),  # the column exists
    (re.compile("ALTER TABLE .+ DROP COLUMN "), (-904, _NO_TABLE)),  # the column is gone
    (re.compile("DROP TABLE "), (_NO_TABLE,)),
)
_OF_VERSION_TABLE: Final = re.compile("(UPDATE|DELETE FROM) ")
_FIRST: Final = re.compile(r"INSERT INTO (.+) \(version_num\) VALUES \('(\w+)'\)", re.DOTALL)
_NEXT: Final = re.compile(r"UPDATE .+ SET version_num='(\w+)' WHERE .+ = '(\w+)'")


def guarded(statement: str) -> str:
    """Return a statement of a migration in a form that can be run again: CREATE, ALTER and DROP are
    guarded, other statements are unchanged.
    """
    bare = statement.strip()
    codes = next((codes for begins, codes in _TAKEN_FOR_SUCCESS if begins.match(bare)), ())
    return unless(bare, *codes) if codes else statement


def rerunnable(printed: str) -> str:
    """Convert Alembic's printed statements to a script that can be run again. Each statement ends
    with a line ``/`` or with ``;``.
    """
    later = {before: after for after, before in _NEXT.findall(printed)}
    lines: list[str] = []
    for comments, statement in _parted(printed):
        lines += [*comments, *terminated([_again(statement, later)]), ""]
    return "\n".join(lines)


def _parted(printed: str) -> Iterator[tuple[list[str], str]]:
    """Yield each statement, without its end mark, and the comments before it."""
    for part in re.split(r"^/$", printed, flags=re.MULTILINE):
        lines = [line.rstrip() for line in part.strip().split("\n")]
        start = next(
            (at for at, line in enumerate(lines) if line and not line.startswith("--")), len(lines)
        )
        statement = "\n".join(lines[start:])
        if statement:
            is_block = statement.startswith(("BEGIN", "DECLARE", "CREATE OR REPLACE"))
            yield (
                [line for line in lines[:start] if line],
                statement if is_block else statement.removesuffix(";"),
            )


def _again(statement: str, later: Mapping[str, str]) -> str:
    first = _FIRST.fullmatch(statement)
    if first is not None:
        return _recorded(first[1], first[2], later)
    if _OF_VERSION_TABLE.match(statement):
        return unless(statement, _NO_TABLE)  # an earlier run dropped the table
    return guarded(statement)


def _recorded(table: str, revision: str, later: Mapping[str, str]) -> str:
    """Return the statement that records the first revision of a branch, unless the branch is
    already at this revision or a later one.
    """
    known = [revision]
    while known[-1] in later:
        known.append(later[known[-1]])
    revisions = ", ".join(f"'{one}'" for one in known)
    return (
        f"INSERT INTO {table} (version_num)\n"  # noqa: S608 - names as Alembic quoted them
        f"SELECT '{revision}' FROM DUAL\n"
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE version_num IN ({revisions}))"
    )
