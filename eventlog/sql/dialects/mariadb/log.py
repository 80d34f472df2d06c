"""A log on MariaDB in a session: its statements and its lock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eventlog.sql.dialects.mysql_family import text
from eventlog.sql.dialects.mysql_family.database import MySQLFamilyDatabase
from eventlog.sql.dialects.mysql_family.log import MySQLFamilyLog
from eventlog.sql.dialects.mysql_family.session import grants_of, rights_on
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.sql_files import fetch

if TYPE_CHECKING:
    from eventlog.sql.dialects.mariadb import MariaDB


class MariaDBDatabase(MySQLFamilyDatabase):
    """A session of MariaDB."""

    dialect: MariaDB

    def log(self, table: LogTable) -> MariaDBLog:
        return MariaDBLog(self, table)

    def writes_read_only(self) -> bool:
        grants = "\n".join(grants_of(self.connection))
        return re.search(r"READ_ONLY ADMIN|ALL PRIVILEGES ON \*\.\*", grants) is not None

    def guarded(self, statement: str) -> str:
        made = super().guarded(statement)
        made = re.sub(
            r"\A(\s*CREATE (?:UNIQUE )?INDEX) (?!IF NOT EXISTS)", r"\1 IF NOT EXISTS ", made
        )
        return re.sub(r"\A(\s*DROP INDEX) (?!IF EXISTS)", r"\1 IF EXISTS ", made)


class MariaDBLog(MySQLFamilyLog):
    """A log on MariaDB."""

    db: MariaDBDatabase
    dialect: MariaDB

    def server_parts(self) -> dict[str, str]:
        # Servers that replicate from each other have different values of server_id. The nodes of a
        # cluster have the same rows.
        database = {"database": self.identity()}
        cluster = fetch(
            self.connection,
            "SELECT variable_value FROM information_schema.global_status"
            " WHERE variable_name = 'WSREP_CLUSTER_STATE_UUID' AND variable_value <> ''",
            {},
        )
        if cluster:
            return {**database, "cluster": str(cluster[0][0])}
        return {
            **database,
            "server_id": str(self.db.scalar("SELECT @@GLOBAL.server_id")),
        }

    def lacking_to_draw(self) -> list[str]:
        # Only the grants show whether the user has a right on a sequence: it cannot be tested,
        # since every statement that needs it changes something.
        name = self.table.number_sequence
        granted = rights_on(self.connection, name)[name]
        return [
            f"{right} on sequence {name}"
            for right in self.dialect.drawing.split(", ")
            if right not in granted
        ]

    def next_number(self) -> int:
        number = f"NEXTVAL({text.bindable(self.dialect.quote(self.table.number_sequence))})"
        return int(self.db.scalar(f"SELECT {number}"))
