"""Two PL/SQL grammars take every statement for Oracle.

sqlfluff's is always asked about some statements of every kind, at night about all; ANTLR's takes most
of a minute to get warm. So the hashes of the statements that both have taken stand in
accepted.json, and only other ones are parsed: what changes, is parsed. EVENTLOG_UPDATE_GOLDEN=1
writes the file again after that; without the file all statements are parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from oracle_catalogue import cases, of_scripts
from oracle_core import core_cases
from oracle_driver import VERSIONS

HERE: Final = Path(__file__).parent
ACCEPTED: Final = HERE / "accepted.json"
UPDATES: Final = bool(os.environ.get("EVENTLOG_UPDATE_GOLDEN"))
CASES: Final = {**cases(), **of_scripts(), **core_cases(VERSIONS[-1])}
ALWAYS: Final = frozenset(
    {
        "trigger_key_only",
        "functions",
        "sequences",
        "resync",
        "lock",
        "bulk",
        "core_sessions",
        "core_storage",
    }
)

# What sqlfluff refuses although Oracle takes it (ANTLR's grammar does too), and what it is shown
# instead.
FALSE_REFUSALS: Final = (
    # An associative array among the declarations of a trigger: known in packages and procedures
    # only.
    (r" INDEX BY [A-Z0-9_()]+", ""),
    # A field of a record of a collection, as a value of an INSERT in FORALL.
    (r"(\w+_rows\(i\))\.\w+", r"\1"),
    # The method DELETE of a collection, which it takes for the statement.
    (r"\b\w+\.DELETE(\([^;]*\))?;", "NULL;"),
    # A length in bytes within CAST.
    (r"(CHAR\(\d+) BYTE\)", r"\1)"),
    # An expression as the only one of an index.
    (
        r'(?<=^CREATE INDEX )(.*) \(CASE "STATUS" WHEN \'N\' THEN "RECORD_ID" END\)',
        r'\1 ("RECORD_ID")',
    ),
    # What SQLAlchemy and a session that only reads say of their transaction.
    (r"^(SAVEPOINT \w+|SET TRANSACTION READ ONLY)(?=;)", "COMMIT"),
)
# The same of ANTLR's grammar.
ANTLR_FALSE_REFUSALS: Final = (
    # JSON as text, since 18c.
    (r"JSON_SERIALIZE\(([^ ]+) RETURNING CLOB\)", r"TO_CLOB(\1)"),
    # A parameter of a session whose value is a number.
    (r"(SET DDL_LOCK_TIMEOUT = )(\d+)", r"\1X\2"),
    # An index that is made while its table is written.
    (r"(?<=\)) ONLINE(?=;)", ""),
)


def digest(statement: str) -> str:
    return hashlib.sha256(statement.encode()).hexdigest()


def ended(statement: str) -> str:
    """A statement as it stands in a script."""
    is_block = statement.lstrip().upper().startswith(("CREATE OR REPLACE", "BEGIN", "DECLARE"))
    return statement + ("\n/\n" if is_block else ";\n")


def instead_of(refusals: Sequence[tuple[str, str]], statement: str) -> str:
    """A statement without what a grammar does not know."""
    for pattern, instead in refusals:
        statement = re.sub(pattern, instead, statement)
    return statement


def accepted(grammar: str) -> frozenset[str]:
    if not ACCEPTED.exists():
        return frozenset()
    return frozenset(json.loads(ACCEPTED.read_text(encoding="utf-8")).get(grammar, ()))


def accept(grammar: str) -> None:
    """Remember that a grammar took all statements."""
    if not UPDATES:
        return
    known = json.loads(ACCEPTED.read_text(encoding="utf-8")) if ACCEPTED.exists() else {}
    known[grammar] = sorted({digest(statement) for texts in CASES.values() for statement in texts})
    ACCEPTED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def oracle_linter() -> Any:
    """sqlfluff's linter, which is loaded where it is needed: that takes half a second."""
    from sqlfluff.core import FluffConfig, Linter

    options = {"dialect": "oracle", "large_file_skip_byte_limit": 0}
    return Linter(config=FluffConfig(overrides=options))


def one_of_each_form() -> frozenset[str]:
    """The shortest statement of each verb, and of what is shown instead of it, in the cases
    ALWAYS.
    """
    found: dict[object, str] = {}
    for name in ALWAYS:
        for statement in sorted(CASES[name], key=len):
            text = ended(statement)
            replaced = tuple(bool(re.search(pattern, text)) for pattern, _ in FALSE_REFUSALS)
            found.setdefault((name, text.split()[0], replaced), statement)
    return frozenset(found.values())


def every_statement() -> frozenset[str]:
    return frozenset(statement for texts in CASES.values() for statement in texts)


@pytest.mark.timeout(1200)  # where every statement is new, on a busy machine
@pytest.mark.parametrize(
    "always",
    [one_of_each_form, pytest.param(every_statement, marks=pytest.mark.night)],
    ids=["new", "all"],
)
def test_sqlfluff_takes_every_statement(always: Callable[[], frozenset[str]]) -> None:
    name_of_version = f"sqlfluff {version('sqlfluff')}"
    known = accepted(name_of_version)
    linter = oracle_linter()
    asked = always()
    problems = []
    for name, texts in CASES.items():
        for statement in texts:
            if statement not in asked and digest(statement) in known:
                continue
            shown = instead_of(FALSE_REFUSALS, ended(statement))
            problems += [
                f"{name}: {problem.desc()}" for problem in linter.parse_string(shown).violations
            ]
    assert problems == []
    accept(name_of_version)


def test_sqlfluff_refuses_what_is_broken() -> None:
    assert oracle_linter().parse_string('SELECT "A" FROM FROM "T";\n').violations


@pytest.mark.night
@pytest.mark.timeout(1200)
def test_the_plsql_grammar_of_antlr_takes_every_statement(tmp_path: Path) -> None:
    known = accepted("antlr")
    unknown = [
        statement
        for texts in CASES.values()
        for statement in texts
        if digest(statement) not in known
    ]
    problems = [
        problem for found in (antlr(unknown, tmp_path) if unknown else []) for problem in found
    ]
    assert problems == []
    accept("antlr")


def antlr(statements: Sequence[str], place: Path) -> list[list[str]]:
    """The errors that ANTLR's grammar finds in each statement, by one process. Skips where there is
    no node.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(
            f"{len(statements)} statements are new, and there is no node to parse them with"
        )
    package = HERE / "node_modules" / "@griffithswaite" / "ts-plsql-parser"
    if not package.exists():
        command = [npm, "ci", "--prefer-offline", "--no-audit", "--no-fund"]
        installed = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120)
        if installed.returncode:
            pytest.skip(
                f"{len(statements)} statements are new, and npm cannot install the grammar: "
                f"{installed.stderr}"
            )
    file = place / "statements.json"
    file.write_text(
        json.dumps(
            [instead_of(ANTLR_FALSE_REFUSALS, ended(statement)) for statement in statements]
        ),
        encoding="utf-8",
    )
    parsed = subprocess.run(
        [node, "parse.mjs", file],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=1100,
        check=True,
    )
    found: list[list[str]] = json.loads(parsed.stdout)
    return found
