"""MySQL, 8.4 and later, through PyMySQL: what it does in another way than MariaDB.

A table with AUTO_INCREMENT numbers flights, since there are no sequences (spec/triggers.md 7.4,
spec/event-log.md 10).
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from sqlalchemy import Connection

from eventlog.errors import ConfigError
from eventlog.sql.dialects.mysql.triggers import MySQLTriggers
from eventlog.sql.dialects.mysql_family import Family, text
from eventlog.sql.dialects.mysql_family.session import (
    ANSWERS,
    CONNECT_ADVICE,
    FamilySessions,
    check_release,
    has_log,
    is_mariadb,
)
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.log_table import LogTable
from eventlog.sql.rights import Part, Right
from eventlog.sql.statements import fetch

_LEAST_VERSION: Final = (8, 4)
"""The oldest release with maintenance."""
_RUN: Final = ((9, 7),)
"""The releases that the tests have run on."""
_NAME: Final = r"(`[^`]+`|\"[^\"]+\"|\S+)"
_INDEX: Final = re.compile(rf"\s*CREATE (?:UNIQUE )?INDEX {_NAME} ON {_NAME}")


class MySQL(Family):
    """MySQL, through PyMySQL."""

    name = "mysql"
    title = "MySQL"
    driver = "mysql+pymysql"
    package = "eventlog-publisher[mysql]"
    session = (
        *FamilySessions.session,
        # The sizes of tables are those of now.
        "SET SESSION information_schema_stats_expiry = 0",
    )
    connect_advice: ClassVar = {
        **CONNECT_ADVICE,
        "cryptography": (
            "a password of caching_sha2_password crosses a socket or TLS alone: let the server "
            "offer TLS, or write ?ssl_ca=FILE"
        ),
    }
    reading_limit = "SET SESSION max_execution_time = {seconds}000"
    transaction_read_only = "@@SESSION.transaction_read_only"
    drawing = "SELECT, INSERT, DELETE"
    byte_collation = "utf8mb4_0900_bin"
    triggers = MySQLTriggers()
    answers: ClassVar = {**ANSWERS, **trigger_answers(triggers, has_log)}
    prologue = (
        "-- mysql DATABASE < this script",
        "SET NAMES utf8mb4;",
        "SET default_storage_engine = InnoDB;",
        "",
    )

    def check_server(self, version: str) -> None:
        if is_mariadb(version):
            raise ConfigError(f"the server is MariaDB {version}: write mariadb:// in the URL")
        check_release(self.title, version, _LEAST_VERSION, _RUN)

    def writes_read_only(self, conn: Connection) -> bool:
        if fetch(conn, "SELECT @@GLOBAL.super_read_only", {})[0][0]:
            return False
        return (
            re.search(r"\b(CONNECTION_ADMIN|SUPER)\b", "\n".join(self.grants_of(conn))) is not None
        )

    def grants_of(self, conn: Connection) -> list[str]:
        # SHOW GRANTS leaves out what a role gives.
        ((roles,),) = fetch(conn, "SELECT CURRENT_ROLE()", {})
        if roles == "NONE":
            return super().grants_of(conn)
        asked = f"SHOW GRANTS FOR CURRENT_USER() USING {text.bindable(str(roles))}"
        return [str(grant) for (grant,) in fetch(conn, asked, {})]

    def server_parts(self, conn: Connection, log: LogTable) -> dict[str, str]:
        server = str(fetch(conn, "SELECT @@GLOBAL.server_uuid", {})[0][0])
        return {"database": self.identity(conn, log), "server_uuid": server}

    def lacking_to_draw(self, conn: Connection, log: LogTable) -> list[str]:
        rights = (Right(right) for right in self.drawing.split(", "))
        return self.rights_by_trying(conn, log, ((Part.NUMBERS, right) for right in rights))

    def after_companions(self, log: LogTable) -> list[str]:
        # The server draws the comment, so that a script gives each log its own.
        create = (
            f"CREATE TABLE IF NOT EXISTS {self.quote(log.flight_sequence)} "
            "(flight_no bigint AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB COMMENT = "
        )
        return [
            f"SET @eventlog_flights = CONCAT({text.literal(create)}, QUOTE(UUID()))",
            "PREPARE eventlog_flights FROM @eventlog_flights",
            "EXECUTE eventlog_flights",
            "DEALLOCATE PREPARE eventlog_flights",
        ]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.quote(log.flight_sequence)}"]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        table = text.bindable(self.quote(log.flight_sequence))
        number = conn.exec_driver_sql(f"INSERT INTO {table} () VALUES ()").lastrowid  # noqa: S608
        conn.exec_driver_sql(f"DELETE FROM {table} WHERE flight_no < %s", (number,))  # noqa: S608
        return int(number)

    def guarded(self, conn: Connection, statement: str) -> str:
        # There is no IF NOT EXISTS for indexes.
        made = _INDEX.match(statement)
        if made is not None and self._has_index(conn, *map(_unquoted, made.groups())):
            return "DO 0"
        return super().guarded(conn, statement)

    def _has_index(self, conn: Connection, index: str, table: str) -> bool:
        asked = (
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()"
            " AND table_name = %(table)s AND index_name = %(index)s LIMIT 1"
        )
        return bool(fetch(conn, asked, {"table": table, "index": index}))


def _unquoted(name: str) -> str:
    return name[1:-1].replace(2 * name[0], name[0]) if name[0] in '`"' else name


DIALECT: Final = MySQL()
