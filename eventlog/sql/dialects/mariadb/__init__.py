"""MariaDB, 10.11 and later, through PyMySQL: its differences from MySQL.

The numbers of deliveries come from a sequence (spec/triggers.md 7.4, spec/event-log.md 10).
"""

from __future__ import annotations

from typing import ClassVar, Final

from sqlalchemy import Connection

from eventlog.errors import ConfigError
from eventlog.sql.dialects.mariadb.log import MariaDBDatabase
from eventlog.sql.dialects.mariadb.triggers import TRIGGERS
from eventlog.sql.dialects.mysql_family import Family, text
from eventlog.sql.dialects.mysql_family.session import (
    ANSWERS,
    CONNECT_ADVICE,
    check_release,
    has_log,
    is_mariadb,
)
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.log_table import LogTable

_MIN_VERSION: Final = (10, 11)
"""The oldest release that is still maintained. AUTO_INCREMENT survives a restart."""
_RUN: Final = ((10, 11), (11, 8))
"""The releases on which the tests have run."""


class MariaDB(Family):
    """MariaDB, through PyMySQL."""

    name = "mariadb"
    title = "MariaDB"
    capabilities = Family.capabilities | {"sequences"}
    driver = "mariadb+pymysql"
    extra = "mariadb"
    connect_advice: ClassVar = {
        **CONNECT_ADVICE,
        "caching_sha2_password": "this is probably MySQL: write mysql:// in the URL",
    }
    reading_limit = "SET SESSION max_statement_time = {seconds}"
    transaction_read_only = "@@SESSION.tx_read_only"
    drawing = "SELECT, INSERT"
    shared_lock = "LOCK IN SHARE MODE"
    xa_recover = "XA RECOVER FORMAT='SQL'"
    global_status = "information_schema.global_status"
    processlist = "information_schema.processlist"
    redo_log_positions = ("Innodb_lsn_current", "Innodb_lsn_flushed")
    rights_to_see_transactions = ("PROCESS",)
    byte_collation = "utf8mb4_nopad_bin"
    answers: ClassVar = {
        **ANSWERS,
        **trigger_answers(TRIGGERS, has_log),
    }
    prologue = (
        "-- mariadb DATABASE < this script",
        "SET NAMES utf8mb4;",
        "SET default_storage_engine = InnoDB;",
        "",
    )

    def open(self, connection: Connection) -> MariaDBDatabase:
        return MariaDBDatabase(connection, self)

    def check_server(self, version: str) -> None:
        if not is_mariadb(version):
            raise ConfigError(f"the server is MySQL {version}: write mysql:// in the URL")
        check_release(self.title, version, _MIN_VERSION, _RUN)

    def after_internal_tables(self, log: LogTable) -> list[str]:
        # The server generates the comment, so that a script gives each log a different one.
        create = f"CREATE SEQUENCE IF NOT EXISTS {self.quote(log.number_sequence)} COMMENT = "
        return [f"EXECUTE IMMEDIATE CONCAT({text.literal(create)}, QUOTE(UUID()))"]

    def drop_after_internal_tables(self, log: LogTable) -> list[str]:
        return [f"DROP SEQUENCE IF EXISTS {self.quote(log.number_sequence)}"]

    def next_number(self, schema: str | None, sequence: str) -> str:
        return f"NEXTVAL({self.qualified(schema, sequence)})"


DIALECT: Final = MariaDB()
