"""The search path of a session, and the schemas in it that are unsafe (spec/event-log.md 12.5).

PostgreSQL prefers an operator or a function whose arguments have exactly the types of the call.
Somebody who may create objects in a schema of the search path can therefore let a session call
functions, which run with the rights of the session's user. A session with an unsafe search path
keeps the path, since SQL of users depends on it, and sends its own statements with the schema of
each name (``qualify``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Self

import psycopg
from sqlalchemy import Connection

from eventlog.sql.dialects.postgresql.qualify import CannotQualify, with_schemas
from eventlog.sql.port.database import UnsafeSchema
from eventlog.sql.port.sql_files import quote_identifier

_UNSAFE: Final = """
    SELECT n.nspname, CASE WHEN c.creator OPERATOR(pg_catalog.<>) 0 THEN person.rolname END,
           c.creator OPERATOR(pg_catalog.=) n.nspowner
    FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS path (name, place)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) path.name
    CROSS JOIN LATERAL (
        SELECT n.nspowner AS creator
        UNION
        SELECT acl.grantee FROM pg_catalog.aclexplode(n.nspacl) AS acl
        WHERE acl.privilege_type OPERATOR(pg_catalog.=) 'CREATE') AS c
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) c.creator
    LEFT JOIN pg_catalog.pg_database AS d
        ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
        AND r.rolname OPERATOR(pg_catalog.=) 'pg_database_owner'
    LEFT JOIN pg_catalog.pg_roles AS person
        ON person.oid OPERATOR(pg_catalog.=) COALESCE(d.datdba, r.oid)
    WHERE person.oid IS NULL
       OR (NOT person.rolsuper AND person.rolname OPERATOR(pg_catalog.<>) current_user
           AND NOT EXISTS (
               SELECT FROM pg_catalog.pg_class AS t
               WHERE t.relnamespace OPERATOR(pg_catalog.=) n.oid
                 AND t.relowner OPERATOR(pg_catalog.=) person.oid
                 AND t.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}')))
    ORDER BY path.place, 2 NULLS FIRST"""
"""The roles that may create objects in a schema of the search path, and are neither superusers, nor
the user of this session, nor owners of a table or view in the schema. NULL = every role.
"""
_OTHERS: Final = """
    SELECT pg_catalog.current_database(), current_user, pg_catalog.current_schemas(false)"""
_log: Final = logging.getLogger(__name__)


def unsafe_schemas(conn: Connection) -> Sequence[UnsafeSchema]:
    """Return who else may create objects in the search path of a session."""
    found = conn.exec_driver_sql(_UNSAFE).all()
    if not found:
        return ()
    database, user, path = conn.exec_driver_sql(_OTHERS).one()
    left = [
        name for name in path if name not in {schema for schema, _, is_owner in found if is_owner}
    ]
    names = ", ".join(map(quote_identifier, left or ["pg_catalog"]))
    role, place = quote_identifier(user), quote_identifier(database)
    return [
        UnsafeSchema(
            schema,
            creator,
            f"ALTER ROLE {role} IN DATABASE {place} SET search_path = {names}"
            if is_owner
            else f"REVOKE CREATE ON SCHEMA {quote_identifier(schema)} FROM "
            + ("PUBLIC" if creator is None else quote_identifier(creator)),
        )
        for schema, creator, is_owner in found
    ]


def guard_names(driver: psycopg.Connection[Any]) -> None:
    """Let a new session send its statements with the schema of each name, if its search path is
    unsafe. The session is in a transaction afterwards.
    """
    try:
        is_unsafe = driver.execute(_UNSAFE).fetchone() is not None
    except psycopg.Error:  # a server that only speaks PostgreSQL's protocol
        if driver.closed:
            raise
        driver.rollback()
        return
    if is_unsafe:
        driver.cursor_factory = _Cursor


class _Cursor(psycopg.Cursor[Any]):
    """A cursor that runs statements with the schema of each name."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(_with_schemas(query), params, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        super().executemany(_with_schemas(query), params_seq, **options)


@lru_cache(maxsize=2048)
def _with_schemas(statement: str) -> str:
    try:
        return with_schemas(statement)
    except CannotQualify as error:
        _log.warning(
            "a statement is sent without the schemas of its names, so objects in unsafe schemas of "
            "the search path may be called: %s",
            error,
        )
        return statement
