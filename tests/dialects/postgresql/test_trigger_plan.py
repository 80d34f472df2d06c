"""Planned, applied, dropped, warned of and refused (spec/triggers.md 7.1, 9, 10)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from shared import execute
from trigger_log import (
    JACK,
    LOG,
    LOG_DDL,
    PHONE,
    USR_DDL,
    UncommittedIn,
    Watched,
    catalogue,
    drop_triggers,
    run,
)

from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError, LogTableError, TriggerError
from eventlog.model import LOG_COLUMNS
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable


def test_drop_leaves_the_catalogue_as_it_was(usr: Watched) -> None:
    before = catalogue(usr.conn)
    usr.watch(WatchedTable("usr"), WatchedTable("keyed"))
    assert catalogue(usr.conn) != before
    dropped = drop_triggers(usr.conn, LOG)
    assert catalogue(usr.conn) == before
    assert [(action.kind, action.table) for action in dropped.actions] == [
        ("drop", "public.keyed"),
        ("drop", "public.usr"),
        ("drop", "public.usr_phone"),
    ]
    assert drop_triggers(usr.conn, LOG).actions == ()


def test_applying_twice_changes_nothing(usr: Watched) -> None:
    first = usr.watch(WatchedTable("usr"), WatchedTable("keyed", "row_query_back"))
    assert [(action.kind, action.reason) for action in first.actions] == [
        ("create", "watched, but not captured yet")
    ] * 3
    before = catalogue(usr.conn)
    second = usr.watch(WatchedTable("usr"), WatchedTable("keyed", "row_query_back"))
    assert {(action.kind, action.reason) for action in second.actions} == {
        ("unchanged", "as declared")
    }
    assert second.changes == ()
    assert catalogue(usr.conn) == before


def test_the_sessions_search_path_is_left_alone(usr: Watched) -> None:
    run(usr.conn, "SET search_path = public, log")
    usr.watch(WatchedTable("usr"))
    assert usr.conn.exec_driver_sql("SHOW search_path").scalar_one() == "public, log"


def test_a_plan_is_applied_as_a_whole_or_not_at_all(usr: Watched) -> None:
    plan = usr.plan(WatchedTable("usr"), WatchedTable("keyed"))
    before = catalogue(usr.conn)
    run(usr.conn, "ALTER TABLE keyed RENAME TO gone")
    with pytest.raises(DatabaseError, match="keyed"):
        triggers_of(DIALECT).apply(usr.conn, plan)
    assert catalogue(usr.conn) == before


def test_what_is_no_longer_watched_is_dropped(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"), WatchedTable("keyed"))
    plan = usr.watch(WatchedTable("usr", exclude=(PHONE,)))
    assert [(action.kind, action.table, action.reason) for action in plan.actions] == [
        ("unchanged", "public.usr", "as declared"),
        ("drop", "public.keyed", "no longer watched"),
        ("drop", "public.usr_phone", "no longer watched"),
    ]
    assert (
        usr.logged(
            JACK, "INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO keyed VALUES (1, 'x')"
        )[2:]
        == []
    )


def test_the_function_of_a_table_that_is_gone_is_dropped(usr: Watched) -> None:
    before = usr.conn.exec_driver_sql("SELECT count(*) FROM pg_proc").scalar_one()
    usr.watch(WatchedTable("keyed"))
    run(usr.conn, "DROP TABLE keyed")
    plan = usr.watch()
    assert [(action.table, action.reason) for action in plan.actions] == [
        ("public.proc_keyed_1", "a function without triggers")
    ]
    assert usr.conn.exec_driver_sql("SELECT count(*) FROM pg_proc").scalar_one() == before


def test_triggers_that_were_all_dropped_by_hand_come_back(usr: Watched) -> None:
    usr.watch(WatchedTable("keyed"))
    run(usr.conn, *(f"DROP TRIGGER _tgr_keyed_{operation}_1 ON keyed" for operation in "iudt"))
    assert [(action.kind, action.table) for action in usr.watch(WatchedTable("keyed")).changes] == [
        ("create", "public.keyed")
    ]
    assert usr.plan(WatchedTable("keyed")).changes == ()
    assert usr.logged("INSERT INTO keyed VALUES (1, 'x')") == [(5, "b=x+a=1", None, None, None)]


def test_a_table_that_was_renamed_gets_new_names(usr: Watched) -> None:
    usr.watch(WatchedTable("keyed"))
    run(usr.conn, "ALTER TABLE keyed RENAME TO locked")
    plan = usr.watch(WatchedTable("locked"))
    assert [(action.kind, action.reason) for action in plan.actions] == [
        (
            "replace",
            "its triggers call proc_keyed_1, made for the former name of the table, and log "
            "that name until they are replaced",
        )
    ]
    assert [action.kind for action in usr.plan(WatchedTable("locked")).actions] == ["unchanged"]
    assert usr.conn.exec_driver_sql(
        "SELECT proname FROM pg_proc WHERE prosecdef"
    ).scalars().all() == ["proc_locked_1"]
    assert usr.logged("INSERT INTO locked VALUES (1, 'x')") == [(5, "b=x+a=1", None, None, None)]


BY_HAND = [
    ("ALTER FUNCTION proc_usr_1() SECURITY INVOKER", "function proc_usr_1 was changed by hand"),
    ("ALTER FUNCTION proc_usr_1() RESET search_path", "function proc_usr_1 was changed by hand"),
    ("ALTER FUNCTION proc_usr_1() SET work_mem = '1MB'", "function proc_usr_1 was changed by hand"),
    (
        "CREATE OR REPLACE FUNCTION proc_usr_1() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'",
        "function proc_usr_1 was changed by hand",
    ),
    ("ALTER TABLE usr DISABLE TRIGGER _tgr_usr_i_1", "trigger _tgr_usr_i_1 is disabled"),
    (
        "ALTER TABLE usr ENABLE ALWAYS TRIGGER _tgr_usr_i_1",
        "trigger _tgr_usr_i_1 was changed by hand",
    ),
    ("DROP TRIGGER _tgr_usr_d_1 ON usr", "trigger _tgr_usr_d_1 is missing"),
    (
        "ALTER TRIGGER _tgr_usr_d_1 ON usr RENAME TO mine",
        "trigger _tgr_usr_d_1 is missing; trigger mine is superfluous",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_u_1 AFTER UPDATE ON usr FOR EACH ROW EXECUTE FUNCTION "
        "proc_usr_1()",
        "trigger _tgr_usr_u_1 was changed by hand",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_u_1 AFTER UPDATE ON usr FOR EACH ROW WHEN (OLD.fname "
        "<> NEW.fname) EXECUTE FUNCTION proc_usr_1()",
        "trigger _tgr_usr_u_1 was changed by hand",
    ),
    (
        "CREATE OR REPLACE TRIGGER _tgr_usr_i_1 AFTER INSERT ON usr FOR EACH ROW WHEN (NEW.idu > 9)"
        " EXECUTE FUNCTION proc_usr_1()",
        "trigger _tgr_usr_i_1 was changed by hand",
    ),
    ("COMMENT ON TRIGGER _tgr_usr_i_1 ON usr IS NULL", "trigger _tgr_usr_i_1 was changed by hand"),
    (
        "CREATE TRIGGER more AFTER INSERT ON usr FOR EACH ROW EXECUTE FUNCTION proc_usr_1()",
        "trigger more is superfluous",
    ),
]


def watched_usr(database: sa.Engine) -> None:
    execute(database, *LOG_DDL, *USR_DDL)
    with database.begin() as conn:
        Watched(conn).watch(WatchedTable("usr"))


@pytest.mark.parametrize(("statement", "reason"), BY_HAND)
def test_changes_by_hand_are_noticed_and_undone(
    uncommitted_in: UncommittedIn, statement: str, reason: str
) -> None:
    with uncommitted_in(watched_usr) as conn:
        usr = Watched(conn)
        run(usr.conn, statement)
        plan = usr.plan(WatchedTable("usr"))
        assert [(action.kind, action.reason) for action in plan.actions] == [
            ("replace", reason),
            ("unchanged", "as declared"),
        ]
        triggers_of(DIALECT).apply(usr.conn, plan)
        assert {action.kind for action in usr.plan(WatchedTable("usr")).actions} == {"unchanged"}
        assert usr.logged(JACK)[0] == (1, "idu=1", "fname", None, "Jack")
        drop_triggers(usr.conn, LOG)
        assert (
            usr.conn.exec_driver_sql(
                "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"
            ).scalar_one()
            == 0
        )


def test_triggers_restored_without_comments_count_as_those_of_another_program(
    usr: Watched,
) -> None:
    usr.watch(WatchedTable("usr"))
    marked = usr.conn.exec_driver_sql(
        "SELECT format('FUNCTION %s', oid::regprocedure) FROM pg_proc WHERE "
        "starts_with(obj_description(oid, 'pg_proc'), 'eventlog sha256:') UNION ALL SELECT "
        "format('TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger WHERE "
        "starts_with(obj_description(oid, 'pg_trigger'), 'eventlog sha256:')",
        execution_options={"no_parameters": True},
    ).scalars()
    run(usr.conn, *(f"COMMENT ON {one} IS NULL" for one in marked.all()))
    plan = usr.watch(WatchedTable("usr"))
    assert [action.kind for action in plan.actions] == ["create", "create"]
    assert "trigger _tgr_usr_d_1 of usr fires before eventlog's trigger" in plan.warnings[0]
    assert [row[:3] for row in usr.logged("INSERT INTO usr (idu, fname) VALUES (1, 'Jack')")] == [
        (1, "idu=1", "fname")
    ] * 2


def test_another_style_replaces_the_triggers(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    plan = usr.watch(WatchedTable("usr", "remove_all"))
    assert [action.kind for action in plan.actions] == ["replace", "unchanged"]
    run(usr.conn, JACK)
    assert usr.logged("UPDATE usr SET fname = 'John'") == [(3, "idu=1", "fname", "Jack", "John")]


def test_two_logs_of_one_table_do_not_touch_each_other(usr: Watched) -> None:
    other = LogTable("log", "second", LOG_COLUMNS)
    run(usr.conn, LOG_DDL[1].replace("log.eventlog", "log.second"))
    second = Watched(usr.conn, other)
    usr.watch(WatchedTable("usr"))
    assert {
        action.kind for action in second.watch(WatchedTable("usr", "row_query_back")).actions
    } == {"create"}
    for watched, row_style in ((usr, "field"), (second, "row_query_back")):
        assert {action.kind for action in watched.plan(WatchedTable("usr", row_style)).actions} == {
            "unchanged"
        }  # type: ignore[arg-type]
    run(usr.conn, "INSERT INTO usr (idu, fname) VALUES (1, 'Jack')")
    counts = [
        usr.conn.exec_driver_sql(f"SELECT event_type FROM log.{log}").scalars().all()
        for log in ("eventlog", "second")
    ]
    assert counts == [[1], [5]]
    drop_triggers(usr.conn, other)
    assert {action.kind for action in usr.plan(WatchedTable("usr")).actions} == {"unchanged"}


def test_a_log_may_have_its_own_names_and_order(usr: Watched) -> None:
    run(
        usr.conn,
        'CREATE TABLE log."Event ""Log""" ("%id" serial, tkey varchar(200), st varchar(4), typ '
        'integer, "when" timestamptz, who varchar(64), "table" text, col text, "OLD" text, "new" '
        "text)",
    )
    log = LogTable(
        "log",
        'Event "Log"',
        ("%id", "st", "typ", "when", "who", "table", "tkey", "col", "OLD", "new"),
        types=(
            *(ColumnType(Kind.CHARACTER),) * 3,
            ColumnType(Kind.TIMESTAMPTZ),
            *(ColumnType(Kind.CHARACTER),) * 6,
        ),
    )
    run(usr.conn, "SET TimeZone = 'Asia/Tokyo'")
    Watched(usr.conn, log).watch(WatchedTable("usr"))
    run(usr.conn, JACK)
    rows = usr.conn.exec_driver_sql(
        'SELECT st, typ, tkey, col, "OLD", "new", clock_timestamp() - "when" BETWEEN \'0 s\' AND '
        '\'1 min\' FROM log."Event ""Log""" ORDER BY 1',
        execution_options={"no_parameters": True},
    ).all()
    assert [tuple(row) for row in rows] == [
        ("N", 1, "idu=1", "fname", None, "Jack", True),
        ("N", 1, "idu=1", "photo", None, "qqo=", True),
    ]


def test_warnings(usr: Watched) -> None:
    run(
        usr.conn,
        "CREATE TABLE heap (a integer)",
        "CREATE TABLE shifting (k integer PRIMARY KEY DEFERRABLE, api_token text)",
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        'CREATE TRIGGER "A first" AFTER INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()',
        "CREATE TRIGGER behind AFTER INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()",
        'CREATE TRIGGER "A before" BEFORE INSERT ON shifting FOR EACH ROW EXECUTE FUNCTION app()',
        'CREATE TRIGGER "A statement" AFTER INSERT ON shifting EXECUTE FUNCTION app()',
    )
    watches = (WatchedTable("heap"), WatchedTable("shifting"))
    heap, secret, key, order = usr.plan(*watches, tables=["shifting"]).warnings
    assert "heap has no primary key" in heap
    assert "shifting.api_token looks like a secret" in secret
    assert "primary key of shifting is DEFERRABLE" in key
    assert "trigger A first of shifting fires before eventlog's trigger" in order


def test_child_tables_whose_rows_may_come_before_their_owners_are_named(usr: Watched) -> None:
    run(
        usr.conn,
        "CREATE TABLE usr_mail (idu integer REFERENCES usr DEFERRABLE, mail text)",
        "CREATE TABLE usr_fax (idu integer REFERENCES usr DEFERRABLE, fax text)",
    )
    plan = usr.plan(WatchedTable("usr"))
    named = [one.split()[4] for one in plan.not_captured if "before their owners" in one]
    assert (named, plan.warnings) == (["usr_fax", "usr_mail"], ())


def test_a_trigger_that_is_deferred_to_the_commit_does_not_fire_before_ours(usr: Watched) -> None:
    trigger = (
        'CREATE CONSTRAINT TRIGGER "A {0}" AFTER UPDATE ON usr DEFERRABLE INITIALLY {0} '
        "FOR EACH ROW EXECUTE FUNCTION app()"
    )
    run(
        usr.conn,
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        trigger.format("DEFERRED"),
        trigger.format("IMMEDIATE"),
    )
    for level in ("row", "statement"):
        warnings = usr.plan(WatchedTable("usr", trigger_level=level), tables=["usr"]).warnings
        assert [sentence.split(" of ")[0] for sentence in warnings] == ["trigger A IMMEDIATE"]


def test_what_is_not_captured_is_reported(usr: Watched) -> None:
    run(
        usr.conn,
        "CREATE TABLE p (k integer PRIMARY KEY) PARTITION BY LIST (k)",
        "CREATE TABLE base (k integer PRIMARY KEY)",
        "CREATE TABLE heir () INHERITS (base)",
    )
    said = usr.plan(WatchedTable("p"), WatchedTable("base")).not_captured
    assert [sentence.split(":")[0] for sentence in said[:2]] == ["p", "base"]
    assert any("session_replication_role" in sentence for sentence in said)
    assert usr.plan().not_captured == ()


@pytest.mark.parametrize(
    ("watches", "tables", "message"),
    [
        ([WatchedTable("nothing")], ["usr"], "there is no such table in schema public"),
        ([WatchedTable("keyed")], ["usr"], "keyed is not a class"),
        ([WatchedTable("usr"), WatchedTable("USR")], ["usr"], "usr is watched twice"),
        ([WatchedTable("usr", exclude=("idu",))], ["usr"], "'idu' is a key column"),
        ([WatchedTable("usr", columns=("age",))], ["usr"], "'age' is not an attribute"),
    ],
)
def test_watches_that_cannot_be_are_refused(
    usr: Watched, watches: list[WatchedTable], tables: list[str], message: str
) -> None:
    with pytest.raises(TriggerError, match=message):
        usr.plan(*watches, tables=tables)


def test_the_log_itself_is_not_watched(empty: Watched) -> None:
    run(empty.conn, "SET search_path = log")
    with pytest.raises(TriggerError, match="eventlog is the log"):
        empty.plan(WatchedTable("eventlog"))


def test_what_the_publisher_itself_writes_feeds_no_view(empty: Watched) -> None:
    deliveries = (
        "CREATE TABLE IF NOT EXISTS eventlog_inflight (entry_no bigint PRIMARY KEY, started "
        "timestamp)"
    )
    view = (
        "CREATE VIEW deliveries AS SELECT entry_no AS pk_entry_no, started AS sv_started FROM "
        "eventlog_inflight"
    )
    run(empty.conn, "SET search_path = log", deliveries, view)
    base = {"eventlog_inflight": {"entry_no": "pk_entry_no", "started": "sv_started"}}
    with pytest.raises(
        TriggerError, match="eventlog_inflight is the log or one of its internal tables"
    ):
        empty.plan(WatchedTable("deliveries", base=base))


def test_a_log_that_is_missing_is_named(usr: Watched) -> None:
    missing = Watched(usr.conn, LogTable("log", "nothing", LOG_COLUMNS))
    with pytest.raises(LogTableError, match=r"the log log\.nothing does not exist"):
        missing.plan(WatchedTable("usr"))
