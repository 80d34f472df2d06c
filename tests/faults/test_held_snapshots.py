"""What keeps dead rows of the log from being removed, beside a session: prepared transactions,
standbys and replication slots of real servers (spec/event-log.md 11).
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from postgres_clusters import primary, programs
from shared import opened_log, wait_until

from eventlog.model import LOG_COLUMNS
from eventlog.sql.doctor import HeldSnapshot
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.questions import ask

LOG = LogTable("public", "eventlog", LOG_COLUMNS)
pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(programs() is None, reason="no programs of PostgreSQL that can stream"),
]


def test_a_prepared_transaction_a_standby_and_a_slot_are_reported_with_what_ends_them() -> None:
    def held() -> list[HeldSnapshot]:
        with engine.connect() as conn:
            return ask(opened_log(conn, LOG), "snapshots", HeldSnapshot, limit=5)

    def feedback(*settings: str) -> None:
        copy.execute(
            *(f"ALTER SYSTEM SET {setting}" for setting in settings), "SELECT pg_reload_conf()"
        )

    with primary() as server, ExitStack() as cleanup:
        server.execute(
            "ALTER SYSTEM SET max_prepared_transactions = 5",
            "ALTER SYSTEM SET wal_level = logical",
            "CREATE TABLE t (k int)",
        )
        server.stop()
        server.start()
        engine = sa.create_engine(server.url, poolclass=sa.NullPool)
        server.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'half'")
        (prepared,) = held()
        assert (prepared.kind, prepared.name, prepared.fix) == (
            "prepared", "half", "ROLLBACK PREPARED 'half'",
        )  # fmt: skip
        server.execute("ROLLBACK PREPARED 'half'")
        # A slot of logical decoding holds back the catalogue alone.
        server.execute("SELECT pg_create_logical_replication_slot('decoded', 'pgoutput')")
        assert held() == []
        copy = server.standby("b")
        cleanup.callback(copy.stop)
        server.catch_up(copy)
        assert held() == []
        reader = sa.create_engine(copy.url, poolclass=sa.NullPool)
        with reader.connect().execution_options(isolation_level="REPEATABLE READ") as report:
            report.exec_driver_sql("SELECT count(*) FROM t")
            feedback("hot_standby_feedback = on", "wal_receiver_status_interval = 1")
            wait_until(held, "the standby's feedback holds rows back")
            (standby,) = held()
            assert (standby.kind, standby.user, standby.address) == (
                "standby", "postgres", "127.0.0.1",
            )  # fmt: skip
            server.execute("SELECT pg_create_physical_replication_slot('copy', true)")
            feedback("primary_slot_name = 'copy'")
            wait_until(lambda: [one.kind for one in held()] == ["slot"], "the slot holds them")
            (slot,) = held()
            assert slot.name == "copy"
            assert "read by session" in slot.who
        copy.stop()
        wait_until(lambda: held()[0].pid is None, "nobody reads the slot")
        (slot,) = held()
        assert slot.who == "replication slot 'copy', which nobody reads"
        assert slot.fix.startswith("SELECT pg_drop_replication_slot('copy')")
        engine.dispose()
