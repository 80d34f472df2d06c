"""The trigger of the log that wakes a sleeping publisher: its names, and who gets one
(spec/triggers.md 8).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from shared import opened_log
from sqlalchemy import Connection, Engine

from eventlog.model import LOG_COLUMNS
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.dialects.postgresql.session import WAKE, channel
from eventlog.sql.log_table import LogTable

ROW = "INSERT INTO {} (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')"


def log_table(name: str) -> LogTable:
    return LogTable("public", name, LOG_COLUMNS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eventlog", "eventlog_eventlog"),
        ("EventLog", "eventlog_eventlog"),
        ("l" * 63, "eventlog_" + "l" * 54),
        ("Ж" * 31, "eventlog_" + "ж" * 27),  # of two bytes each: none is cut through
    ],
)
def test_the_channel_is_in_lower_case_and_fits(name: str, expected: str) -> None:
    assert channel(log_table(name)) == expected
    assert len(channel(log_table(name)).encode()) <= 63


NAMES = ["eventlog", '"My ""Log"" %s :x"', "l" * 63, "ж" * 31, '"It\'s\\"']


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_any_name_wakes(database: Engine, name: str) -> None:
    migrations.upgrade(database, log_table=name)
    with database.connect() as conn, database.connect() as writer:
        log = locate_log(DIALECT.open(conn), name=name)
        assert WAKE.missing(opened_log(conn, log)) is None
        WAKE.listen(opened_log(conn, log))
        conn.commit()
        insert(writer, log)
        conn.commit()
        assert not WAKE.was_notified(conn)  # awake
        assert WAKE.fall_asleep(opened_log(conn, log))
        conn.commit()
        insert(writer, log)
        insert(writer, log)
        conn.exec_driver_sql("SELECT")
        conn.commit()
        assert WAKE.was_notified(conn)
        assert not WAKE.was_notified(conn)
        WAKE.wake_up(opened_log(conn, log))
        conn.commit()
        insert(writer, log)
        conn.exec_driver_sql("SELECT")
        conn.commit()
        assert not WAKE.was_notified(conn)


def insert(writer: Connection, log: LogTable) -> None:
    statement = ROW.format(DIALECT.quote(log.name))
    writer.exec_driver_sql(statement, execution_options={"no_parameters": True})
    writer.commit()


def test_nobody_falls_asleep_while_a_writer_is_open_that_will_not_notify(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn, database.connect() as writer:
        log = locate_log(DIALECT.open(conn), name="eventlog")
        writer.exec_driver_sql(ROW.format("eventlog"))
        assert not WAKE.fall_asleep(opened_log(conn, log))
        writer.rollback()
        assert WAKE.fall_asleep(opened_log(conn, log))
        WAKE.wake_up(opened_log(conn, log))


def test_logs_have_their_own_locks_and_none_is_that_of_the_publisher(database: Engine) -> None:
    migrations.upgrade(database, log_table="one")
    migrations.upgrade(database, log_table="two")
    with database.connect() as conn, database.connect() as other:
        one, two = (locate_log(DIALECT.open(conn), name=name) for name in ("one", "two"))
        assert DIALECT.open(conn).log(one).try_lock()
        assert WAKE.fall_asleep(opened_log(conn, one))
        assert WAKE.fall_asleep(opened_log(other, two))
        assert not WAKE.fall_asleep(opened_log(other, one))


def test_two_logs_of_one_name_wake_their_own_publishers(database: Engine) -> None:
    with database.begin() as conn:
        conn.execute(sa.text("CREATE SCHEMA other"))
    migrations.upgrade(database, log_table="eventlog")
    migrations.upgrade(database, log_table="other.eventlog")
    with database.connect() as conn, database.connect() as writer:
        log = locate_log(DIALECT.open(conn), name="other.eventlog")
        WAKE.listen(opened_log(conn, log))
        assert WAKE.fall_asleep(opened_log(conn, log))
        conn.commit()
        insert(writer, locate_log(DIALECT.open(writer), name="eventlog"))
        conn.exec_driver_sql("SELECT")
        conn.commit()
        assert not WAKE.was_notified(conn)


def test_the_function_runs_with_its_owners_rights(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        owns = (
            "SELECT prosecdef AND NOT has_function_privilege('pg_monitor', oid, 'EXECUTE') "
            "FROM pg_proc WHERE oid = 'proc_eventlog_wake()'::regprocedure"
        )
        assert conn.execute(sa.text(owns)).scalar_one()


HOSTILE = [
    ("pg_try_advisory_xact_lock_shared(integer, integer)", "boolean"),
    ("pg_try_advisory_xact_lock_shared(bigint, bigint)", "boolean"),
    ("pg_try_advisory_xact_lock_shared(integer, oid)", "boolean"),
    ("current_setting(text)", "text"),
    ("pg_notify(text, text)", "void"),
    ("int4(oid)", "integer"),
    ("same(text, text)", "boolean"),
    ("opposite(boolean)", "boolean"),
]


@pytest.mark.parametrize("path", ["public, pg_catalog, pg_temp", "pg_temp, public, pg_catalog"])
def test_no_function_operator_or_type_of_a_writer_is_used_with_its_owners_rights(
    database: Engine, path: str
) -> None:
    """The function sets no search_path, so that nothing in it may be looked up by one."""
    migrations.upgrade(database, log_table="eventlog")
    role = f"writer_{database.url.database}"
    with database.begin() as conn:
        conn.execute(sa.text(f"CREATE ROLE {role}"))
        conn.execute(sa.text(f"GRANT CREATE, USAGE ON SCHEMA public TO {role}"))
        conn.execute(sa.text(f"GRANT INSERT ON eventlog TO {role}"))
    try:
        with database.connect() as conn, database.connect() as writer:
            log = locate_log(DIALECT.open(conn), name="eventlog")
            WAKE.listen(opened_log(conn, log))
            conn.commit()
            writer.execute(sa.text(f"SET ROLE {role}"))
            for signature, result in HOSTILE:
                body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile'; END $$"
                writer.exec_driver_sql(
                    f"CREATE FUNCTION public.{signature} RETURNS {result} {body}"
                )
            writer.exec_driver_sql(
                "CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = text, RIGHTARG = "
                "text);CREATE DOMAIN public.int4 AS text CHECK (false);CREATE TEMP TABLE pg_class "
                "(x integer); CREATE TEMP TABLE pg_settings (x integer)"
            )
            writer.exec_driver_sql(f"SET search_path = {path}")
            for asleep in (False, True):  # both ways through the function
                if asleep:
                    assert WAKE.fall_asleep(opened_log(conn, log))
                    conn.commit()
                writer.exec_driver_sql(ROW.format("public.eventlog"))
                writer.commit()
                conn.exec_driver_sql("SELECT")
                conn.commit()
                assert WAKE.was_notified(conn) is asleep
            writer.invalidate()
    finally:
        with database.begin() as conn:
            conn.execute(sa.text(f"DROP OWNED BY {role} CASCADE"))
            conn.execute(sa.text(f"DROP ROLE {role}"))


def test_a_server_with_prepared_transactions_is_never_notified(database: Engine) -> None:
    """PREPARE TRANSACTION fails after a NOTIFY: the application's statement must not."""
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        allowed = conn.execute(sa.text("SHOW max_prepared_transactions")).scalar_one()
        log = locate_log(DIALECT.open(conn), name="eventlog")
        body = conn.execute(
            sa.text("SELECT prosrc FROM pg_proc WHERE proname = 'proc_eventlog_wake'")
        ).scalar_one()
        assert "current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0'" in body
        if allowed == "0":
            pytest.skip("this server allows none")
        assert "prepared transactions" in (WAKE.missing(opened_log(conn, log)) or "")
        assert WAKE.fall_asleep(opened_log(conn, log))
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as writer:
            writer.exec_driver_sql("BEGIN")
            writer.exec_driver_sql(ROW.format("eventlog"))
            writer.exec_driver_sql("PREPARE TRANSACTION 'eventlog_test'")
            writer.exec_driver_sql("COMMIT PREPARED 'eventlog_test'")


# Logs that somebody else made


@pytest.fixture
def theirs(database: Engine) -> Engine:
    with database.begin() as conn:
        conn.execute(
            sa.text(
                "CREATE TABLE theirs (record_id bigserial, status char(1) DEFAULT 'N', event_type "
                "smallint, event_time timestamp, perpetrator text, table_name text, table_key "
                "text, column_name text, old_value text, new_value text)"
            )
        )
    return database


@pytest.fixture
def role(theirs: Engine) -> Iterator[str]:
    """Somebody who may make tables and read the log, but does not own it."""
    name = f"somebody_{theirs.url.database}"
    with theirs.begin() as conn:
        conn.execute(sa.text(f"CREATE ROLE {name}"))
        conn.execute(sa.text(f"GRANT CREATE, USAGE ON SCHEMA public TO {name}"))
        conn.execute(sa.text(f"GRANT SELECT, UPDATE, TRIGGER ON theirs TO {name}"))
    yield name
    with theirs.begin() as conn:
        conn.execute(sa.text(f"DROP OWNED BY {name}"))
        conn.execute(sa.text(f"DROP ROLE {name}"))


def test_its_owner_gets_the_trigger_with_the_internal_tables(theirs: Engine) -> None:
    with theirs.connect() as conn:
        migrations.upgrade(conn, log_table="theirs", existing_log=True)
        log = locate_log(DIALECT.open(conn), name="theirs")
        assert WAKE.missing(opened_log(conn, log)) is None
        migrations.downgrade(conn, log_table="theirs")
        assert "no trigger that notifies" in (WAKE.missing(opened_log(conn, log)) or "")


def test_without_the_owners_rights_there_are_only_internal_tables(
    theirs: Engine, role: str
) -> None:
    with theirs.connect() as conn:
        conn.execute(sa.text(f"SET ROLE {role}"))
        migrations.upgrade(conn, log_table="theirs", existing_log=True)
        log = locate_log(DIALECT.open(conn), name="theirs")
        assert "its owner makes it with `eventlog db upgrade`" in (
            WAKE.missing(opened_log(conn, log)) or ""
        )
        migrations.downgrade(conn, log_table="theirs")


def test_printed_sql_has_it_for_the_owner_to_run(theirs: Engine) -> None:
    printed = io.StringIO()
    migrations.upgrade(
        None, log_table="theirs", existing_log=True, sql=printed, dialect_name="postgresql"
    )
    assert (
        'CREATE TRIGGER "_tgr_theirs_i_1" BEFORE INSERT ON "theirs" FOR EACH STATEMENT'
        in printed.getvalue()
    )
