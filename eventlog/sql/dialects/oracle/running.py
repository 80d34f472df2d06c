"""Statements that define objects, run one by one: Oracle takes for a success what does not compile."""

from __future__ import annotations

from sqlalchemy import Connection

from eventlog.errors import DatabaseError
from eventlog.sql.dialects.oracle.compare import drop_trigger
from eventlog.sql.dialects.oracle.script import made_by
from eventlog.sql.dialects.oracle.session import fetch
from eventlog.sql.statements import run_as_it_stands, statements


def run(conn: Connection, statement: str) -> None:
    """Run a statement as it stands; it is committed.

    Raises DatabaseError if it makes a trigger or function that does not compile. A trigger is dropped then, since the
    application's statements would fail by it.
    """
    run_as_it_stands(conn, statement)
    made = made_by(statement)
    if made is not None:
        _check(conn, *made)


def _check(conn: Connection, type_: str, schema: str | None, name: str) -> None:
    binds = {"owner": schema, "name": name, "object_type": type_}
    errors = fetch(conn, statements(__package__, "installed.sql")["errors"], binds)
    if not errors:
        return
    line, position, text = errors[0]
    what = f"{type_.lower()} {name if schema is None else f'{schema}.{name}'}"
    consequence = "grant its schema the rights on what it names, and run it again"
    if type_ == "TRIGGER":
        run_as_it_stands(conn, drop_trigger(schema, name))
        consequence = (
            "it was dropped, since the application's statements would fail by it, and nothing of its is captured: "
            "grant its schema the rights that `eventlog triggers plan` names"
        )
    raise DatabaseError(
        f"{what} does not compile: line {line}, column {position}: {' '.join(str(text).split())}; {consequence}"
    )
