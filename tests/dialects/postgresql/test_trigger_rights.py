"""Whose rights triggers have, and what options change (spec/triggers.md 7.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from shared import opened_log
from trigger_log import JACK, LOG, Watched, catalogue, drop_triggers, fields, run

from eventlog.errors import DatabaseError, TriggerError
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.log_operations import Window
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable


def test_a_writer_without_rights_on_the_log_is_the_perpetrator(usr: Watched, writer: str) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        f"SET SESSION AUTHORIZATION {writer}",
        JACK,
        "INSERT INTO usr_phone VALUES (1, 'a')",
    )
    run(usr.conn, "DELETE FROM usr_phone", "RESET SESSION AUTHORIZATION")
    assert [row.perpetrator for row in usr.rows()] == [writer] * 4


def test_nobody_else_may_use_the_trigger_function(usr: Watched, writer: str) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        f"GRANT CREATE ON SCHEMA public TO {writer}",
        f"SET SESSION AUTHORIZATION {writer}",
    )
    run(usr.conn, "CREATE TABLE forged (idu integer, fname text, lname text, photo bytea)")
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied for function proc_usr_1"):
        run(
            usr.conn,
            "CREATE TRIGGER t AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION proc_usr_1()",
        )


def test_hostile_functions_and_operators_are_not_called(usr: Watched, writer: str) -> None:
    run(usr.conn, "ALTER TABLE usr ADD COLUMN born date", "ALTER TABLE usr ADD COLUMN n numeric")
    run(
        usr.conn,
        f"GRANT CREATE ON SCHEMA public TO {writer}",
        f"SET SESSION AUTHORIZATION {writer}",
    )
    run(usr.conn, "SET search_path = public, pg_catalog, pg_temp")
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile'; END $$"
    for signature, result in [
        ("to_char(date, text)", "text"),
        ("replace(text, text, text)", "text"),
        ("encode(bytea, text)", "text"),
        ("clock_timestamp()", "timestamptz"),
        ("array_append(text[], text)", "text[]"),
        ("same(integer, integer)", "boolean"),
        ("joined(text, text)", "text"),
    ]:
        run(usr.conn, f"CREATE FUNCTION public.{signature} RETURNS {result} {body}")
    run(
        usr.conn,
        "CREATE OPERATOR public.= (FUNCTION = public.same, LEFTARG = integer, RIGHTARG = integer)",
        "CREATE OPERATOR public.|| (FUNCTION = public.joined, LEFTARG = text, RIGHTARG = text)",
        "CREATE TEMP TABLE eventlog (status text)",
        "RESET SESSION AUTHORIZATION",
    )
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        f"SET SESSION AUTHORIZATION {writer}",
        "SET search_path = public, pg_catalog, pg_temp",
    )
    logged = "INSERT INTO usr VALUES (1, 'J', 'D', '\\xAA', '2024-05-06', 1.0)"
    run(
        usr.conn,
        logged,
        "UPDATE usr SET n = 2, born = NULL",
        "INSERT INTO usr_phone VALUES (1, 'a')",
    )
    run(usr.conn, "DELETE FROM usr_phone", "RESET SESSION AUTHORIZATION", "RESET search_path")
    assert len(usr.rows()) == 9


def test_triggers_that_could_not_run_are_not_made(usr: Watched, writer: str) -> None:
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    planned = usr.plan(WatchedTable("usr"))
    assert planned.changes, "what a role may read, it may compare"
    with pytest.raises(TriggerError, match=f"role {writer} may not write"):
        triggers_of(DIALECT).apply(usr.conn, planned)
    run(usr.conn, "RESET SESSION AUTHORIZATION", f"GRANT USAGE ON SCHEMA log TO {writer}")
    run(
        usr.conn, f"GRANT INSERT ON log.eventlog TO {writer}", f"REVOKE SELECT ON usr FROM {writer}"
    )
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    assert 'may not read "public"."usr"' in usr.plan(WatchedTable("usr")).lacking[0]


def test_a_role_that_may_not_lock_what_follows_a_row_to_another_partition_gets_no_triggers(
    usr: Watched, writer: str
) -> None:
    run(
        usr.conn,
        "CREATE TABLE sale (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE note (id integer REFERENCES sale ON UPDATE CASCADE, txt text)",
        f"GRANT USAGE ON SCHEMA log TO {writer}",
        f"GRANT INSERT ON log.eventlog TO {writer}",
        f"GRANT SELECT ON sale, note TO {writer}",
        f"SET SESSION AUTHORIZATION {writer}",
    )
    (reason,) = usr.plan(WatchedTable("sale")).lacking
    assert 'may not lock rows of "public"."note", which the triggers of sale must do' in reason
    run(usr.conn, "RESET SESSION AUTHORIZATION", f"GRANT UPDATE (txt) ON note TO {writer}")
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    assert usr.plan(WatchedTable("sale")).changes


def test_always_captures_what_a_replication_applies(usr: Watched) -> None:
    plan = usr.watch(WatchedTable("usr", capture_replicated=True))
    assert not any("replica" in sentence for sentence in plan.not_captured)
    assert usr.plan(WatchedTable("usr", capture_replicated=True)).changes == ()
    run(usr.conn, "SET session_replication_role = replica")
    assert [row[0] for row in usr.logged(JACK, "INSERT INTO usr_phone VALUES (1, 'a')")] == [
        1,
        1,
        2,
    ]
    run(usr.conn, "SET session_replication_role = origin")
    run(usr.conn, "ALTER TABLE usr ENABLE TRIGGER _tgr_usr_i_1")
    (change,) = usr.plan(WatchedTable("usr", capture_replicated=True)).changes
    assert change.reason == "trigger _tgr_usr_i_1 was changed by hand"
    usr.watch(WatchedTable("usr"))
    run(usr.conn, "SET session_replication_role = replica")
    assert usr.logged("UPDATE usr SET fname = 'x'") == []


def test_large_values_are_ordinary_columns_regardless_of_lob_values(usr: Watched) -> None:
    assert usr.watch(WatchedTable("usr", lob_values=False)).changes
    assert usr.plan(WatchedTable("usr", lob_values=True)).changes == ()
    assert usr.logged(JACK) == fields(1, "idu=1", ("fname", None, "Jack"), ("photo", None, "qqo="))


def test_applying_does_not_wait_for_a_table_without_end(committed_usr: Watched) -> None:
    usr = committed_usr
    with usr.conn.engine.connect() as application:
        run(application, "SET application_name = 'payroll'", "INSERT INTO usr VALUES (1)")
        plan = usr.plan(WatchedTable("usr"), WatchedTable("keyed"))
        before = catalogue(usr.conn)
        with pytest.raises(
            DatabaseError, match=r"more than 0\.05 s by process .*payroll, idle in transaction"
        ):
            triggers_of(DIALECT).apply(usr.conn, plan, 0.05)
        assert catalogue(usr.conn) == before
        assert usr.conn.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"
    triggers_of(DIALECT).apply(usr.conn, plan)
    assert usr.conn.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"
    assert usr.plan(WatchedTable("usr"), WatchedTable("keyed")).changes == ()


@pytest.fixture
def owner(committed_usr: Watched) -> Iterator[str]:
    """A role that owns the table and sees of other roles' sessions the least."""
    conn, name = committed_usr.conn, "eventlog_test_owner"
    run(
        conn,
        f"DROP ROLE IF EXISTS {name}",
        f"CREATE ROLE {name}",
        f"ALTER TABLE usr OWNER TO {name}",
        f"GRANT ALL ON SCHEMA public, log TO {name}",
        f"GRANT INSERT ON log.eventlog TO {name}",
    )
    conn.commit()
    yield name
    conn.rollback()
    run(conn, "RESET SESSION AUTHORIZATION", f"REASSIGN OWNED BY {name} TO CURRENT_USER")
    run(conn, f"DROP OWNED BY {name}", f"DROP ROLE {name}")
    conn.commit()


@pytest.mark.parametrize(
    ("before", "by"),
    [
        ("SELECT 1", r" by process \d+ \(\w+, payroll\); nothing was changed"),
        ("REVOKE SELECT ON pg_stat_activity FROM PUBLIC", "; nothing was changed"),
    ],
)
def test_applying_reports_a_lock_whose_holder_the_server_hides(
    committed_usr: Watched, owner: str, before: str, by: str
) -> None:
    usr = committed_usr
    with usr.conn.engine.connect() as application:
        run(application, "SET application_name = 'payroll'", "INSERT INTO usr VALUES (1)")
        plan = usr.plan(WatchedTable("usr"))
        run(usr.conn, before)
        usr.conn.commit()
        run(usr.conn, f"SET SESSION AUTHORIZATION {owner}")
        with pytest.raises(DatabaseError, match=rf"more than 0\.05 s{by}"):
            triggers_of(DIALECT).apply(usr.conn, plan, 0.05)


def test_a_session_that_sees_no_other_sessions_learns_only_that_the_log_is_locked(
    usr: Watched, writer: str
) -> None:
    run(
        usr.conn,
        f"GRANT USAGE ON SCHEMA log TO {writer}",
        "REVOKE SELECT ON pg_stat_activity FROM PUBLIC",
        f"SET SESSION AUTHORIZATION {writer}",
    )
    log = opened_log(usr.conn, LOG)
    assert log.try_lock()
    assert log.lock_holder() is None
    assert log.try_consumer_lock("search")
    assert log.consumer_holder("search") is None
    assert log.is_locked()
    log.unlock()


def test_row_level_security_that_hides_rows_from_the_triggers_is_named(
    usr: Watched, writer: str
) -> None:
    run(
        usr.conn,
        f"GRANT USAGE ON SCHEMA log TO {writer}",
        f"GRANT INSERT ON log.eventlog TO {writer}",
        "ALTER TABLE usr ENABLE ROW LEVEL SECURITY",
    )
    assert usr.plan(WatchedTable("usr")).warnings == ()
    run(usr.conn, f"SET SESSION AUTHORIZATION {writer}")
    (warning,) = usr.plan(WatchedTable("usr")).warnings
    assert "row level security filters public.usr" in warning


def test_a_log_of_somebody_else_is_written_by_its_own_columns(usr: Watched) -> None:
    run(
        usr.conn,
        # Layout 3.5 under other names, numbered by a trigger, with more columns behind.
        "CREATE TABLE log.theirs (rid numeric(18) NOT NULL, tk varchar(4000), st char(1), et "
        "numeric(1), tm timestamp, usr varchar(64), tn varchar(64), cn varchar(64), ov text, nv "
        "text, remark text DEFAULT 'x')",
        "CREATE SEQUENCE log.numbers",
        "CREATE FUNCTION log.number() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.rid := nextval('log.numbers'); RETURN NEW; END $$",
        "CREATE TRIGGER number BEFORE INSERT ON log.theirs FOR EACH ROW EXECUTE FUNCTION "
        "log.number()",
    )
    migrations.upgrade(usr.conn, log_table="theirs", schema="log", existing_log=True)
    log = locate_log(DIALECT.open(usr.conn), name="theirs", schema="log", layout="3.5")
    theirs = Watched(usr.conn, log)
    changes = theirs.watch(WatchedTable("usr"), WatchedTable("keyed")).changes
    assert [action.table for action in changes] == [
        "public.usr",
        "public.usr_phone",
        "public.keyed",
    ]
    statement = Watched(usr.conn, log, "statement")
    for watched in (theirs, statement):
        watched.watch(WatchedTable("usr"), WatchedTable("keyed"))
        run(
            usr.conn,
            JACK,
            "INSERT INTO keyed VALUES (1, 'a+b')",
            "DELETE FROM usr",
            "DELETE FROM keyed",
        )
    rows = DIALECT.open(usr.conn).log(log).read_window(Window(0, None, None))
    assert [
        (row.event_type, row.table_name, row.table_key, row.column_name, row.new_value)
        for row in rows
    ] == [
        (1, "usr", "idu=1", "fname", "Jack"),
        (1, "usr", "idu=1", "photo", "qqo="),
        (5, "keyed", 'b="a+b"+a=1', None, None),
        (4, "usr", "idu=1", None, None),
        (4, "keyed", 'b="a+b"+a=1', None, None),
    ] * 2
    assert [row.record_id for row in rows] == list(range(1, 11))
    drop_triggers(usr.conn, log)
    migrations.downgrade(usr.conn, log_table="theirs", schema="log")
