"""MariaDB, 10.11 and later, through PyMySQL: what it does in another way than MySQL.

A sequence numbers flights (spec/triggers.md 7.4, spec/event-log.md 10).
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from sqlalchemy import Connection

from eventlog.errors import ConfigError
from eventlog.sql.dialects.mariadb.triggers import MariaDBTriggers
from eventlog.sql.dialects.mysql_family import Family, text
from eventlog.sql.dialects.mysql_family.session import (
    ANSWERS,
    CONNECT_ADVICE,
    check_release,
    has_log,
    is_mariadb,
    rights_on,
)
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch

_LEAST_VERSION: Final = (10, 11)
"""The oldest release that is still maintained. It keeps AUTO_INCREMENT over a restart."""
_RUN: Final = ((10, 11), (11, 8))
"""The releases that the tests have run on."""


class MariaDB(Family):
    """MariaDB, through PyMySQL."""

    name = "mariadb"
    title = "MariaDB"
    capabilities = Family.capabilities | {"sequences"}
    driver = "mariadb+pymysql"
    package = "eventlog-publisher[mariadb]"
    connect_advice: ClassVar = {
        **CONNECT_ADVICE,
        "caching_sha2_password": "this is most likely MySQL: write mysql:// in the URL",
    }
    reading_limit = "SET SESSION max_statement_time = {seconds}"
    transaction_read_only = "@@SESSION.tx_read_only"
    drawing = "SELECT, INSERT"
    byte_collation = "utf8mb4_nopad_bin"
    triggers = MariaDBTriggers()
    answers: ClassVar = {**ANSWERS, **trigger_answers(triggers, has_log)}
    prologue = (
        "-- mariadb DATABASE < this script",
        "SET NAMES utf8mb4;",
        "SET default_storage_engine = InnoDB;",
        "",
    )

    def check_server(self, version: str) -> None:
        if not is_mariadb(version):
            raise ConfigError(f"the server is MySQL {version}: write mysql:// in the URL")
        check_release(self.title, version, _LEAST_VERSION, _RUN)

    def writes_read_only(self, conn: Connection) -> bool:
        grants = "\n".join(self.grants_of(conn))
        return re.search(r"READ_ONLY ADMIN|ALL PRIVILEGES ON \*\.\*", grants) is not None

    def server_parts(self, conn: Connection, log: LogTable) -> dict[str, str]:
        # Servers that replicate one another have their own numbers.
        # The nodes of a cluster have the same rows.
        database = {"database": self.identity(conn, log)}
        cluster = fetch(
            conn,
            "SELECT variable_value FROM information_schema.global_status"
            " WHERE variable_name = 'WSREP_CLUSTER_STATE_UUID' AND variable_value <> ''",
            {},
        )
        if cluster:
            return {**database, "cluster": str(cluster[0][0])}
        return {**database, "server_id": str(fetch(conn, "SELECT @@GLOBAL.server_id", {})[0][0])}

    def lacking_to_draw(self, conn: Connection, log: LogTable) -> list[str]:
        # A right on a sequence shows in the grants alone: no harmless statement needs it.
        name = log.flight_sequence
        granted = rights_on(conn, name)[name]
        return [
            f"{right} on sequence {name}"
            for right in self.drawing.split(", ")
            if right not in granted
        ]

    def after_companions(self, log: LogTable) -> list[str]:
        # The server draws the comment, so that a script gives each log its own.
        create = f"CREATE SEQUENCE IF NOT EXISTS {self.quote(log.flight_sequence)} COMMENT = "
        return [f"EXECUTE IMMEDIATE CONCAT({text.literal(create)}, QUOTE(UUID()))"]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP SEQUENCE IF EXISTS {self.quote(log.flight_sequence)}"]

    def next_number(self, schema: str | None, sequence: str) -> str:
        return f"NEXTVAL({self.qualified(schema, sequence)})"

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        number = f"NEXTVAL({text.bindable(self.quote(log.flight_sequence))})"
        return int(fetch(conn, f"SELECT {number}", {})[0][0])

    def guarded(self, conn: Connection, statement: str) -> str:
        made = super().guarded(conn, statement)
        made = re.sub(
            r"\A(\s*CREATE (?:UNIQUE )?INDEX) (?!IF NOT EXISTS)", r"\1 IF NOT EXISTS ", made
        )
        return re.sub(r"\A(\s*DROP INDEX) (?!IF EXISTS)", r"\1 IF EXISTS ", made)


DIALECT: Final = MariaDB()
