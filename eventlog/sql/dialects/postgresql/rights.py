"""The statement that takes the rights of other roles on new objects of a log, which default
privileges or a former purpose gave (spec/event-log.md 11.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from eventlog.sql.dialects.postgresql.text import literal
from eventlog.sql.port.sql_files import statements

_SQL: Final = statements(__package__, "rights.sql")


def deny_others(
    relations: Iterable[str] = (), functions: Iterable[str] = (), readers: Iterable[str] = ()
) -> str:
    """Return the statement that takes all rights on tables and sequences, the sequences of their
    identity columns, and functions from every role but the owner. ``readers`` get SELECT.

    Names of relations are quoted, names of functions also have their arguments. What does not exist
    is left out.
    """
    body = _SQL["deny_others"].format(
        relations=_oids("to_regclass", relations),
        functions=_oids("to_regprocedure", functions),
        readers=f"ARRAY[{', '.join(map(literal, readers))}]::pg_catalog.text[]",
    )
    end = "$eventlog$"
    while end in body:  # a name may contain it
        end = f"{end[:-1]}_$"
    return f"DO {end}\n{body}\n{end}"


def _oids(function: str, names: Iterable[str]) -> str:
    listed = ", ".join(f"pg_catalog.{function}({literal(name)})" for name in names)
    return f"ARRAY[{listed}]::pg_catalog.oid[]"


def denied(conn: Connection) -> list[str]:
    """Return the GRANTs that give back what ``deny_others`` has taken in this transaction, and
    forget them.
    """
    (text, _) = conn.exec_driver_sql(_SQL["denied"]).one()
    return (text or "").split("\x1f")[:-1]
