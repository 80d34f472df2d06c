"""Each role can do its whole work with what `eventlog grants` prints, and no right is superfluous
(spec/event-log.md 11.1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from rights_work import CONFIG, WORK, Worker, fill
from shared import Run, execute, url_of

from eventlog.sql.rights import RIGHTS, Part, Purpose


@pytest.fixture
def worker(filled_database: Any, empty_home: Path) -> Iterator[Worker]:
    Path("eventlog.toml").write_text(CONFIG)
    with filled_database(fill) as owner:
        role = f"worker_{os.getpid()}"
        execute(owner, f"CREATE ROLE {role} LOGIN")
        try:
            yield Worker(owner, role)
        finally:
            execute(owner, f"DROP OWNED BY {role}; DROP ROLE {role}")


def refused(owner: sa.Engine, role: str, used: dict[str, Any], revoked: str = "") -> set[str]:
    """The statements that the role may not run, after a right was revoked."""
    found = set()
    with owner.connect() as conn:
        if revoked:
            conn.exec_driver_sql(revoked)
        conn.exec_driver_sql(f"SET LOCAL ROLE {role}")
        for statement, parameters in used.items():
            savepoint = conn.begin_nested()
            try:
                conn.exec_driver_sql(statement, parameters or None)
            except sa.exc.DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") == "42501":
                    found.add(statement)
            savepoint.rollback()
        conn.rollback()
    return found


def each_right(statements: list[str]) -> Iterator[str]:
    """A REVOKE for each single right of GRANTs."""
    for statement in statements:
        granted, on = statement.removeprefix("GRANT ").split(" ON ", 1)
        rights = granted.split(", ") if "(" not in granted else _split(granted)
        tables, role = on.split(" TO ")
        names = tables.split(", ")
        for right in rights:
            for name in names:
                yield f"REVOKE {right} ON {name} FROM {role}"


def _split(granted: str) -> list[str]:
    rights, depth = [""], 0
    for char in granted:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            rights.append("")
        else:
            rights[-1] += char
    single = []
    for right in map(str.strip, rights):
        if "(" in right:
            verb, columns = right.rstrip(")").split(" (")
            single += [f"{verb} ({column})" for column in columns.split(", ")]
        else:
            single.append(right)
    return single


@pytest.mark.parametrize("purpose", [*WORK])
def test_a_role_works_with_its_rights_and_needs_each_of_them(
    worker: Worker, run: Run, purpose: Purpose
) -> None:
    printed = run(
        "--database-url", url_of(worker.owner), "grants", worker.role, "--for", purpose.value
    )[1]
    statements = [line.rstrip(";") for line in printed.splitlines()]
    execute(worker.owner, *statements)
    WORK[purpose](worker)
    assert worker.used
    may_read_revision = Part.VERSION in RIGHTS[purpose]
    refusals = {
        statement
        for statement in refused(worker.owner, worker.role, worker.used)
        if may_read_revision or "eventlog_version" not in statement  # `doctor` goes on without it
    }
    assert refusals == set()
    superfluous = [
        revoke
        for revoke in each_right(statements)
        if not refused(worker.owner, worker.role, worker.used, revoke)
    ]
    # Oracle and MySQL show no table on which a role has no right.
    seen_by = f'REVOKE SELECT ON "hr"."eventlog" FROM "{worker.role}"'
    assert "\n".join(one for one in superfluous if one != seen_by) == ""
