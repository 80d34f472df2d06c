"""A log on MySQL in a session: its statements and its lock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from eventlog.sql.dialects.mysql_family import text
from eventlog.sql.dialects.mysql_family.database import MySQLFamilyDatabase
from eventlog.sql.dialects.mysql_family.log import MySQLFamilyLog
from eventlog.sql.dialects.mysql_family.session import RIGHTS, grants_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.port.sql_files import fetch

if TYPE_CHECKING:
    from eventlog.sql.dialects.mysql import MySQL

_NAME: Final = r"(`[^`]+`|\"[^\"]+\"|\S+)"
_INDEX: Final = re.compile(rf"\s*CREATE (?:UNIQUE )?INDEX {_NAME} ON {_NAME}")


class MySQLDatabase(MySQLFamilyDatabase):
    """A session of MySQL."""

    dialect: MySQL

    def log(self, table: LogTable) -> MySQLLog:
        return MySQLLog(self, table)

    def writes_read_only(self) -> bool:
        if self.scalar("SELECT @@GLOBAL.super_read_only"):
            return False
        return (
            re.search(r"\b(CONNECTION_ADMIN|SUPER)\b", "\n".join(grants_of(self.connection)))
            is not None
        )

    def guarded(self, statement: str) -> str:
        # There is no IF NOT EXISTS for indexes.
        made = _INDEX.match(statement)
        if made is not None and self._has_index(*map(_unquoted, made.groups())):
            return "DO 0"
        return super().guarded(statement)

    def _has_index(self, index: str, table: str) -> bool:
        asked = (
            "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()"
            " AND table_name = %(table)s AND index_name = %(index)s LIMIT 1"
        )
        return bool(fetch(self.connection, asked, {"table": table, "index": index}))


class MySQLLog(MySQLFamilyLog):
    """A log on MySQL."""

    db: MySQLDatabase
    dialect: MySQL

    def server_parts(self) -> dict[str, str]:
        server = str(self.db.scalar("SELECT @@GLOBAL.server_uuid"))
        return {"database": self.identity(), "server_uuid": server}

    def lacking_to_draw(self) -> list[str]:
        rights = (Right(right) for right in self.dialect.drawing.split(", "))
        return RIGHTS.lacking(self, ((Part.NUMBERS, right) for right in rights))

    def next_number(self) -> int:
        table = text.bindable(self.dialect.quote(self.table.number_sequence))
        number = self.connection.exec_driver_sql(f"INSERT INTO {table} () VALUES ()").lastrowid  # noqa: S608 - quoted names
        # Other readers of the log draw numbers, too. A row that one of them has locked is skipped,
        # since two sessions that wait for each other's rows would deadlock.
        former = fetch(
            self.connection,
            f"SELECT delivery_no FROM {table} "  # noqa: S608 - quoted names
            "WHERE delivery_no < %(number)s FOR UPDATE SKIP LOCKED",
            {"number": number},
        )
        if former:
            listed = ", ".join(str(int(one)) for (one,) in former)
            self.connection.exec_driver_sql(f"DELETE FROM {table} WHERE delivery_no IN ({listed})")  # noqa: S608 - quoted names
        return int(number)


def _unquoted(name: str) -> str:
    return name[1:-1].replace(2 * name[0], name[0]) if name[0] in '`"' else name
