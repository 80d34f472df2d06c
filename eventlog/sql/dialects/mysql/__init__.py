"""MySQL, 8.4 and later, through PyMySQL: its differences from MariaDB.

The numbers of deliveries come from a table with AUTO_INCREMENT, since there are no sequences
(spec/triggers.md 7.4, spec/event-log.md 10).
"""

from __future__ import annotations

from typing import ClassVar, Final

from sqlalchemy import Connection

from eventlog.errors import ConfigError
from eventlog.sql.dialects.mysql.log import MySQLDatabase
from eventlog.sql.dialects.mysql.triggers import TRIGGERS
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

_MIN_VERSION: Final = (8, 4)
"""The oldest release that is still maintained."""
_RUN: Final = ((9, 7),)
"""The releases on which the tests have run."""


class MySQL(Family):
    """MySQL, through PyMySQL."""

    name = "mysql"
    title = "MySQL"
    driver = "mysql+pymysql"
    extra = "mysql"
    session = (
        *FamilySessions.session,
        # Otherwise the server would return outdated, cached sizes of tables.
        "SET SESSION information_schema_stats_expiry = 0",
    )
    connect_advice: ClassVar = {
        **CONNECT_ADVICE,
        "cryptography": (
            "caching_sha2_password sends a password only over TLS or a socket: enable TLS on the "
            "server, or add ?ssl_ca=FILE to the URL"
        ),
    }
    reading_limit = "SET SESSION max_execution_time = {seconds}000"
    shows_grants_of_roles = False
    transaction_read_only = "@@SESSION.transaction_read_only"
    drawing = "SELECT, INSERT, DELETE"
    shared_lock = "FOR SHARE"
    xa_recover = "XA RECOVER CONVERT XID"
    global_status = "performance_schema.global_status"
    # information_schema.processlist fails while a session runs a statement with an emoji.
    processlist = "performance_schema.processlist"
    redo_log_positions = (
        "Innodb_redo_log_current_lsn",
        "Innodb_redo_log_flushed_to_disk_lsn",
    )
    rights_to_see_transactions = ("PROCESS", "XA_RECOVER_ADMIN")
    byte_collation = "utf8mb4_0900_bin"
    answers: ClassVar = {
        **ANSWERS,
        **trigger_answers(TRIGGERS, has_log),
    }
    prologue = (
        "-- mysql DATABASE < this script",
        "SET NAMES utf8mb4;",
        "SET default_storage_engine = InnoDB;",
        "",
    )

    def open(self, connection: Connection) -> MySQLDatabase:
        return MySQLDatabase(connection, self)

    def check_server(self, version: str) -> None:
        if is_mariadb(version):
            raise ConfigError(f"the server is MariaDB {version}: write mariadb:// in the URL")
        check_release(self.title, version, _MIN_VERSION, _RUN)

    def after_internal_tables(self, log: LogTable) -> list[str]:
        # The server generates the comment, so that a script gives each log a different one.
        create = (
            f"CREATE TABLE IF NOT EXISTS {self.quote(log.number_sequence)} "
            "(delivery_no bigint AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB COMMENT = "
        )
        return [
            f"SET @eventlog_deliveries = CONCAT({text.literal(create)}, QUOTE(UUID()))",
            "PREPARE eventlog_deliveries FROM @eventlog_deliveries",
            "EXECUTE eventlog_deliveries",
            "DEALLOCATE PREPARE eventlog_deliveries",
        ]

    def drop_after_internal_tables(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.quote(log.number_sequence)}"]


DIALECT: Final = MySQL()
