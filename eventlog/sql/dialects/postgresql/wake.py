"""A publisher that sleeps is woken by NOTIFY; one that is awake gets no notification (spec/triggers.md 8).

A lock tells the two apart. A writer of the log shares it until its transaction ends; the publisher takes it for itself
before it sleeps and gives it back when it wakes. A writer that cannot share it notifies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.sql.database import Wake
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, literal
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified, quote_identifier, statements

_SQL: Final = statements(__package__, "wake.sql")
_CLASS: Final = int.from_bytes(b"Ewak")
"""First half of the lock's key; the second is the log's OID. Another lock than the publisher's."""


def channel(log: LogTable) -> str:
    """The channel of a log: ``eventlog_<log table>`` in lower case, cut to 63 bytes.

    Logs of one name in several schemas share it: their publishers wake each other once too often.
    """
    return f"eventlog_{log.name}".lower().encode()[:MAX_IDENTIFIER].decode(errors="ignore")


class PostgresWake(Wake):
    """How this is done for a log."""

    def create(self, log: LogTable) -> list[str]:
        return [_statement(log, name) for name in ("function", "drop_trigger", "trigger", "always")]

    def drop(self, log: LogTable) -> list[str]:
        return [_statement(log, name) for name in ("drop_trigger", "drop_function")]

    def may_create(self, conn: Connection, log: LogTable) -> bool:
        return bool(conn.exec_driver_sql(_SQL["owns"], {"log": _names(log)["log"]}).scalar())

    def missing(self, conn: Connection, log: LogTable) -> str | None:
        parameters = {"log": _names(log)["log"], "trigger": _trigger(log), "function": f"{_names(log)['function']}()"}
        reason = conn.exec_driver_sql(_SQL["missing"], parameters).scalar()
        return None if reason is None else str(reason)

    def listen(self, conn: Connection, log: LogTable) -> None:
        conn.exec_driver_sql(f"LISTEN {quote_identifier(channel(log))}", execution_options={"no_parameters": True})

    def fall_asleep(self, conn: Connection, log: LogTable) -> bool:
        statement = "SELECT pg_try_advisory_lock(%(class)s, %(log)s::regclass::oid::integer)"
        return bool(conn.exec_driver_sql(statement, _key(log)).scalar_one())

    def wake_up(self, conn: Connection, log: LogTable) -> None:
        conn.exec_driver_sql("SELECT pg_advisory_unlock(%(class)s, %(log)s::regclass::oid::integer)", _key(log))

    def socket(self, conn: Connection) -> int:
        return int(_driver(conn).fileno())

    def heard(self, conn: Connection) -> bool:
        # All of them are taken, so that each counts once.
        return len(list(_driver(conn).notifies(timeout=0))) > 0


WAKE: Final = PostgresWake()


def _driver(conn: Connection) -> Any:
    return conn.connection.driver_connection


def _key(log: LogTable) -> dict[str, object]:
    return {"class": _CLASS, "log": _names(log)["log"]}


def _trigger(log: LogTable) -> str:
    return log.own_name("_tgr_{}_i_1")


def _statement(log: LogTable, name: str) -> str:
    return _SQL[name].format(**_names(log))


@lru_cache(maxsize=32)
def _names(log: LogTable) -> Mapping[str, str]:
    return {
        "log": qualified(log.schema, log.name),
        "trigger": quote_identifier(_trigger(log)),
        "function": qualified(log.schema, log.own_name("proc_{}_wake")),
        "channel": literal(channel(log)),
        "lock_class": str(_CLASS),
    }
