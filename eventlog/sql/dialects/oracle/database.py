"""A database in a session of Oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import DatabaseError
from eventlog.sql.dialects.oracle import script
from eventlog.sql.dialects.oracle.log import INSTALLED_SQL, OracleLog
from eventlog.sql.dialects.oracle.objects import SQL, database, fingerprint_statement
from eventlog.sql.dialects.oracle.session import chunks, current_user, fetch, own_types
from eventlog.sql.dialects.oracle.text import scn, spelled
from eventlog.sql.dialects.oracle.triggers import shows_triggers
from eventlog.sql.dialects.stepwise import KeyedDatabase
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Answer
from eventlog.sql.port.snapshot_proof import PROVEN, SnapshotProof
from eventlog.sql.port.sql_files import (
    AS_ANY,
    Binds,
    Options,
    PlainRows,
    RowChunks,
    missing_schema,
    run_as_it_stands,
)

if TYPE_CHECKING:
    from eventlog.sql.dialects.oracle import Oracle

_QUESTIONS: Final = ("columns", "keys", "unique_indexes", "foreign_keys")
_CALL_TIMEOUT: Final = 600
"""How many seconds a publisher waits for the answer to one call; without a limit, a lost answer
would block it forever.
"""


class OracleDatabase(KeyedDatabase):
    """A session of Oracle."""

    dialect: Oracle

    def log(self, table: LogTable) -> OracleLog:
        return OracleLog(self, table)

    def begin_publishing(self) -> None:
        # A call that takes longer ends with a temporary error.
        driver: Any = self.connection.connection.driver_connection
        driver.call_timeout = _CALL_TIMEOUT * 1000
        driver.action = "publish"

    def limit_statements(self, seconds: int) -> None:
        driver: Any = self.connection.connection.driver_connection
        driver.call_timeout = seconds * 1000

    def begin_reading(self, seconds: int) -> None:
        self.limit_statements(seconds)
        driver: Any = self.connection.connection.driver_connection
        driver.action = "read"
        self.connection.exec_driver_sql("SET TRANSACTION READ ONLY")

    def fetch(
        self,
        statement: str,
        parameters: Binds,
        options: Options = AS_ANY,
    ) -> PlainRows:
        return fetch(self.connection, statement, parameters)

    def fetch_chunks(self, statement: str, parameters: Binds, size: int) -> RowChunks:
        with own_types(self.connection):
            yield from super().fetch_chunks(statement, parameters, size)

    def unverified(self) -> tuple[str, str, str] | None:
        # The protocol is NULL if there is no network.
        protocol = self.scalar("SELECT SYS_CONTEXT('USERENV', 'NETWORK_PROTOCOL') FROM DUAL")
        if protocol in (None, "tcps"):
            return None
        return self.connection.engine.url.host or "", f"no TLS ({protocol})", "protocol=tcps"

    def current_user(self) -> str:
        return current_user(self.connection)

    def session_id(self) -> str:
        # Session number and audit number: no other session has both at the same time.
        statement = (
            "SELECT SYS_CONTEXT('USERENV', 'SID'), SYS_CONTEXT('USERENV', 'SESSIONID') FROM DUAL"
        )
        return "-".join(map(str, fetch(self.connection, statement)[0]))

    def reflect(self, schema: str | None) -> Database:
        name = None if schema is None else spelled(schema)
        schemas = fetch(self.connection, SQL["schema"], {"owner": name})
        if not schemas:
            raise missing_schema(name)
        owner = str(schemas[0][0])
        return database(
            owner,
            **{which: fetch(self.connection, SQL[which], {"owner": owner}) for which in _QUESTIONS},
        )

    def fingerprint(self, catalog: Catalog) -> str:
        # Hashes of the data dictionary.
        return "/".join(
            str(digest)
            for tables in chunks(sorted(catalog.table_names))
            for (digest,) in fetch(
                self.connection,
                fingerprint_statement(len(tables)),
                {"owner": catalog.schema, **{f"t{n}": name for n, name in enumerate(tables)}},
            )
        )

    def fetch_answer(
        self,
        statement: str,
        names: Mapping[str, str],
        binds: Binds,
    ) -> Answer:
        return fetch(self.connection, statement.format(**names), binds)

    guarded = staticmethod(script.guarded)

    def run(self, statement: str) -> None:
        # Oracle commits the statement, and reports success even if the object does not compile.
        compiled = script.made_by(statement)
        if compiled is None:
            run_as_it_stands(self.connection, statement)
            return
        type_, schema, name = compiled
        binds = {"owner": schema, "name": name}
        is_new = type_ == "TRIGGER" and not fetch(self.connection, INSTALLED_SQL["trigger"], binds)
        # An existing trigger stays enabled, since changes would otherwise be lost.
        run_as_it_stands(self.connection, script.disabled(statement) if is_new else statement)
        _check_compiled(self.connection, *compiled)
        if is_new:
            run_as_it_stands(self.connection, script.enabled(schema, name))

    def has_table(self, schema: str | None, name: str) -> bool | None:
        if super().has_table(schema, name):
            return True
        # A user sees the tables that it owns, and tables of others on which it has a right.
        own = self.dialect.spelled(self.connection.dialect.default_schema_name or "")
        return False if schema in (None, own) else None

    def sees_triggers(self, schema: str) -> bool:
        return shows_triggers(self.connection, schema)

    def export_snapshot(self) -> str:
        # Needs EXECUTE on DBMS_FLASHBACK.
        return str(
            self.scalar("SELECT TO_CHAR(SYS.DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER) FROM DUAL")
        )

    def join_snapshot(self, snapshot: str) -> None:
        # This must be set before the transaction begins. A session that has joined one already must
        # leave it first (ORA-08184).
        self.connection.exec_driver_sql(
            "BEGIN\n    SYS.DBMS_FLASHBACK.DISABLE();\n"
            "    SYS.DBMS_FLASHBACK.ENABLE_AT_SYSTEM_CHANGE_NUMBER(:scn);\nEND;",
            {"scn": int(scn(snapshot))},
        )

    def prove_snapshot(self) -> SnapshotProof:
        # The server refuses a table whose definition is newer than the database snapshot
        # (ORA-01466). It does so even for changes that leave the rows as they are.
        return PROVEN


def _check_compiled(conn: Connection, type_: str, schema: str | None, name: str) -> None:
    """Raise DatabaseError if a trigger or function does not compile.

    A trigger that does not compile is dropped, since it would make the application's statements
    fail.
    """
    binds = {"owner": schema, "name": name, "object_type": type_}
    errors = fetch(conn, INSTALLED_SQL["errors"], binds)
    if not errors:
        return
    line, position, problem = errors[0]
    what = f"{type_.lower()} {name if schema is None else f'{schema}.{name}'}"
    consequence = (
        "grant its schema the rights on the objects that the function uses, and run the command "
        "again"
    )
    if type_ == "TRIGGER":
        run_as_it_stands(conn, script.drop_trigger(schema, name))
        consequence = (
            "the trigger was dropped, since it would make the application's statements fail, and "
            "changes of its table are not captured: grant its schema the rights that `eventlog "
            "triggers plan` lists, and apply again"
        )
    raise DatabaseError(
        f"{what} does not compile: line {line}, column {position}: "
        f"{' '.join(str(problem).split())}; {consequence}"
    )
