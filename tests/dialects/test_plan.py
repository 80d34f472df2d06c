"""From what is declared to what is installed, and back, on every database (spec/triggers.md 9,
10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, cast

import pytest
import sqlalchemy as sa
from platforms import STYLES, Platform
from shared import Run, each_step, one_of_each, opened_log
from trigger_log import downgrade, upgrade

from eventlog.cli.context import transaction
from eventlog.errors import ConfigError, DatabaseError, LogTableError, TriggerError
from eventlog.publisher.declared.configured_classes import catalog_of, class_names, declared_watches
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.doctor import examine
from eventlog.sql import migrations
from eventlog.sql.triggers import TriggerPlan, triggers_of

USR: dict[str, Any] = {"table": "usr"}


def catalogue(platform: Platform) -> list[Any]:
    """Everything that stands in the database."""
    statements = {
        "sqlite": (
            "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY 1, 2"
        ),
        # The server numbers what it names itself, and keeps what is dropped for a while.
        "oracle": (
            "SELECT object_type, CASE WHEN object_name LIKE 'SYS!_%' ESCAPE '!' THEN 'SYS_' ELSE "
            "object_name END FROM user_objects WHERE object_name NOT LIKE 'BIN$%' ORDER BY 1, 2"
        ),
        **dict.fromkeys(
            ("mariadb", "mysql"),
            "SELECT table_type, table_name FROM information_schema.tables WHERE table_schema = "
            "DATABASE() UNION ALL SELECT 'TRIGGER', trigger_name FROM information_schema.triggers "
            "WHERE trigger_schema = DATABASE() ORDER BY 1, 2",
        ),
        "postgresql": (
            "SELECT 'relation', relname::text FROM pg_class WHERE relnamespace = "
            "'public'::regnamespace UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger "
            "WHERE NOT tgisinternal UNION ALL SELECT 'function', proname::text FROM pg_proc WHERE "
            "pronamespace = 'public'::regnamespace UNION ALL SELECT 'type', typname::text FROM "
            "pg_type WHERE typnamespace = 'public'::regnamespace ORDER BY 1, 2"
        ),
    }
    with platform.engine.connect() as conn:
        return list(map(tuple, conn.exec_driver_sql(statements[platform.name])))


def kinds(platform: Platform, *watches: dict[str, Any]) -> list[str]:
    return [action.kind for action in platform.plan(*watches).actions]


def test_uninstalling_leaves_nothing(usr_platform: Platform) -> None:
    with transaction(usr_platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    before = catalogue(usr_platform)
    usr_platform.install()
    usr_platform.watch("usr")
    assert catalogue(usr_platform) != before
    with usr_platform.session() as (conn, log):
        plan = triggers_of(usr_platform.dialect).plan_drop(opened_log(conn, log))
    usr_platform.apply(plan)
    with transaction(usr_platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    assert catalogue(usr_platform) == before


def test_installing_twice_changes_nothing(usr_platform: Platform) -> None:
    usr_platform.watch("usr")
    before = catalogue(usr_platform)
    usr_platform.install()
    assert kinds(usr_platform, USR) == ["unchanged", "unchanged"]
    usr_platform.watch("usr")
    assert catalogue(usr_platform) == before


def test_a_table_of_the_logs_name_is_not_taken(platform: Platform) -> None:
    with transaction(platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    platform.run("CREATE TABLE eventlog (x {integer})")
    with (
        pytest.raises(LogTableError, match="not created by"),
        transaction(platform.config()) as db,
    ):
        migrations.upgrade(db.connection, log_table="eventlog")


def test_a_log_that_was_dropped_by_hand_is_missed_and_what_is_left_of_it_goes(
    platform: Platform,
) -> None:
    with transaction(platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    nothing = catalogue(platform)
    platform.install()
    platform.run("DROP TABLE eventlog")
    with pytest.raises(LogTableError, match="does not exist, but"):
        platform.install()
    with transaction(platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    assert catalogue(platform) == nothing


def test_a_table_of_an_internal_tables_name_is_not_taken(platform: Platform) -> None:
    with transaction(platform.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    for ending in ("error", "inflight", "resync"):
        platform.run(f"CREATE TABLE eventlog_{ending} (x {{integer}})")
        before = catalogue(platform)
        with pytest.raises(LogTableError, match=f"(?i)table eventlog_{ending} already exists"):
            platform.install()
        assert catalogue(platform) == before, ending
        platform.run(f"DROP TABLE eventlog_{ending}")


def test_another_style_replaces_the_triggers(usr_platform: Platform) -> None:
    usr_platform.watch("usr", STYLES[0])
    for row_style in STYLES[1:]:
        assert kinds(usr_platform, {**USR, "row_style": row_style})[0] == "replace", row_style
        usr_platform.watch("usr", row_style)
        assert kinds(usr_platform, {**USR, "row_style": row_style}) == ["unchanged", "unchanged"]


def test_the_plan_names_the_tables_whose_triggers_write_a_log_that_is_gone(
    usr_platform: Platform, run: Run
) -> None:
    usr_platform.watch("usr")
    usr_platform.run("DROP TABLE eventlog")
    usr_platform.watches = [USR]
    usr_platform.config()
    command = "--config", str(usr_platform.place / "eventlog.toml"), "triggers"
    code, out, _ = run(*command, "plan")
    assert (code, "usr has triggers that write" in out) == (0, True)
    assert run(*command, "apply")[0] == 1


def test_triggers_of_a_renamed_log_are_replaced_and_each_change_is_logged_once(
    usr_platform: Platform,
) -> None:
    usr_platform.watch("usr")
    for of_log in ("", "_error", "_inflight", "_state", "_epoch"):
        usr_platform.run(f"ALTER TABLE eventlog{of_log} RENAME TO journal{of_log}")
    usr_platform.watches = [USR]
    usr_platform.settings["database"] = {
        "url": usr_platform.engine.url.render_as_string(hide_password=False),
        "log_table": "journal",
    }
    with transaction(usr_platform.config()) as db:
        plan = planned_triggers(db, usr_platform.config())
        assert [action.kind for action in plan.changes] == ["replace", "replace"]
        assert all("which does not exist any more" in action.reason for action in plan.changes)
        triggers_of(db.dialect).apply(db.connection, plan)
        assert not planned_triggers(db, usr_platform.config()).changes
    usr_platform.run("INSERT INTO usr (idu, fname) VALUES (1, 'a')")
    with usr_platform.engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM journal").scalar_one() == 1


def test_what_is_no_longer_watched_is_dropped(usr_platform: Platform) -> None:
    usr_platform.apply(usr_platform.plan(USR, {"table": "keyed"}))
    assert sorted(kinds(usr_platform, {"table": "keyed"})) == ["drop", "drop", "unchanged"]
    usr_platform.watch("keyed")
    assert usr_platform.logged("INSERT INTO usr (idu) VALUES (1)") == []
    assert len(usr_platform.logged("INSERT INTO keyed VALUES (1, 'x')")) == 1


def test_a_column_more_and_one_less_show_in_the_plan(usr_platform: Platform) -> None:
    usr_platform.watch("usr")
    usr_platform.run("ALTER TABLE usr ADD nick {string}")
    assert kinds(usr_platform, USR) == ["replace", "unchanged"]
    usr_platform.watch("usr")
    assert usr_platform.logged("INSERT INTO usr (idu, nick) VALUES (1, 'n')") == [
        (1, "idu=1", "nick", None, "n")
    ]
    if usr_platform.name == "sqlite":
        # It refuses to drop a column that a trigger names.
        with usr_platform.session() as (conn, log):
            plan = triggers_of(usr_platform.dialect).plan_drop(opened_log(conn, log))
        usr_platform.apply(plan)
    usr_platform.run("ALTER TABLE usr DROP COLUMN nick")
    assert kinds(usr_platform, USR)[0] in ("replace", "create")
    usr_platform.watch("usr")
    assert usr_platform.logged("INSERT INTO usr (idu, fname) VALUES (2, 'n')") == [
        (1, "idu=2", "fname", None, "n")
    ]


def test_a_column_that_was_renamed_shows_in_the_plan(usr_platform: Platform) -> None:
    usr_platform.watch("usr")
    usr_platform.run("ALTER TABLE usr RENAME COLUMN lname TO surname")
    assert kinds(usr_platform, USR)[0] == "replace"
    usr_platform.watch("usr")
    assert usr_platform.logged("INSERT INTO usr (idu, surname) VALUES (1, 'n')") == [
        (1, "idu=1", "surname", None, "n")
    ]
    assert kinds(usr_platform, USR) == ["unchanged", "unchanged"]


RETYPE = {
    "postgresql": "ALTER TABLE usr ALTER lname TYPE integer USING NULL",
    "oracle": "ALTER TABLE usr MODIFY lname NUMBER(10)",
}


def test_a_column_of_another_type_shows_in_the_plan(usr_platform: Platform) -> None:
    if usr_platform.name not in RETYPE:
        pytest.skip(f"{usr_platform.name} cannot give a column another type")
    usr_platform.watch("usr")
    usr_platform.run(RETYPE[usr_platform.name])
    assert kinds(usr_platform, USR) == ["replace", "unchanged"]
    usr_platform.watch("usr")
    assert usr_platform.logged("INSERT INTO usr (idu, lname) VALUES (1, 7)") == [
        (1, "idu=1", "lname", None, "7")
    ]
    assert kinds(usr_platform, USR) == ["unchanged", "unchanged"]


def test_a_trigger_dropped_by_hand_comes_back(usr_platform: Platform) -> None:
    usr_platform.watch("usr")
    with usr_platform.session() as (conn, log):
        one = triggers_of(usr_platform.dialect).installed(opened_log(conn, log))[0]
    quote = usr_platform.dialect.quote
    place = " ON usr" if usr_platform.name == "postgresql" else ""
    usr_platform.run(f"DROP TRIGGER {quote(one.trigger)}{place}")
    assert sorted(kinds(usr_platform, USR)) == ["replace", "unchanged"]
    usr_platform.watch("usr")
    assert kinds(usr_platform, USR) == ["unchanged", "unchanged"]


def test_the_digest_of_what_is_installed_is_that_of_what_was_compiled(
    usr_platform: Platform,
) -> None:
    usr_platform.watch("usr")
    config, dialect = usr_platform.config(), usr_platform.dialect
    with usr_platform.session() as (conn, log):
        schema, tables = class_names(config)
        database = dialect.open(conn).reflect(schema)
        catalog = catalog_of(config, database, tables, log)
        facts = triggers_of(dialect).facts(opened_log(conn, log), database, ["usr", "usr_phone"])
        made = triggers_of(dialect).compile(database, catalog, log, declared_watches(config), facts)
        assert triggers_of(dialect).digests(opened_log(conn, log)) == {
            one.table: one.digest for one in made
        }


def test_what_is_compiled_without_a_database_captures_and_goes(usr_platform: Platform) -> None:
    dialect = usr_platform.dialect
    usr_platform.plan(USR)
    config = usr_platform.config()
    with usr_platform.session() as (conn, log):
        schema, tables = class_names(config)
        database = dialect.open(conn).reflect(schema)
        made = triggers_of(dialect).compile(
            database, catalog_of(config, database, tables, log), log, declared_watches(config)
        )
    before = catalogue(usr_platform)

    def execute(statements: tuple[str, ...]) -> None:
        with usr_platform.engine.begin() as conn:
            for statement in statements:
                conn.exec_driver_sql(statement, execution_options={"no_parameters": True})

    for one in made:
        execute(one.create)
    assert usr_platform.logged("INSERT INTO usr (idu, fname) VALUES (1, 'x')") == [
        (1, "idu=1", "fname", None, "x")
    ]
    assert usr_platform.logged("INSERT INTO usr_phone VALUES (1, 'a')") == [
        (2, "idu=1", "usr_phone.phoneno", None, "a")
    ]
    for one in made:
        execute(one.drop)
    assert catalogue(usr_platform) == before


def test_nothing_is_left_of_a_plan_that_fails(usr_platform: Platform) -> None:
    usr_platform.needs("transactional_ddl")
    plan = usr_platform.plan(USR)
    usr_platform.run("DROP TABLE usr_phone")
    with pytest.raises(Exception, match="usr_phone"):
        usr_platform.apply(plan)
    with usr_platform.session() as (conn, log):
        assert triggers_of(usr_platform.dialect).installed(opened_log(conn, log)) == []


# --- broken off in the middle ---------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [one_of_each, pytest.param(each_step, marks=pytest.mark.night)])
def test_a_migration_that_breaks_off_anywhere_leaves_nothing_or_is_ended_by_the_next(
    platform: Platform, chosen: Callable[[Sequence[str]], list[int]]
) -> None:
    whole = catalogue(platform)
    dropped = platform.statements_of(downgrade)
    nothing = catalogue(platform)
    made = platform.statements_of(upgrade)
    assert min(len(dropped), len(made)) > 9
    down, up = (
        chosen([" ".join(statement.split()[:2]) for statement in statements])
        for statements in (dropped, made)
    )
    # Where nothing is left, the next one breaks off at once. Elsewhere each is ended, and then the
    # way back is the next to break off: nothing is migrated only to be where it was.
    rounds = (
        [(down, up)]
        if platform.has("transactional_ddl")
        else zip_longest(((step,) for step in down), ((step,) for step in up), fillvalue=())
    )
    for steps_down, steps_up in rounds:
        for work, steps, before, ended in (
            (downgrade, steps_down, whole, nothing),
            (upgrade, steps_up, nothing, whole),
        ):
            for step in steps:
                assert platform.broken_off(step - 1, work) is None
                if platform.has("transactional_ddl"):
                    assert catalogue(platform) == before
            platform.statements_of(work)
            assert catalogue(platform) == ended


def test_triggers_that_break_off_anywhere_leave_nothing_or_are_ended_by_the_next(
    usr_platform: Platform,
) -> None:
    def run(plan: TriggerPlan, after: int = 1_000_000) -> int | None:
        return usr_platform.broken_off(
            after, lambda conn: triggers_of(usr_platform.dialect).apply(conn, plan, 5.0)
        )

    def drop_all() -> TriggerPlan:
        with usr_platform.session() as (conn, log):
            return triggers_of(usr_platform.dialect).plan_drop(opened_log(conn, log))

    def watch(row_style: str) -> TriggerPlan:
        return usr_platform.plan({**USR, "row_style": row_style})

    for planned in (lambda: watch("field"), lambda: watch("remove_all"), drop_all):
        before, after = catalogue(usr_platform), 0
        while run(planned(), after) is None:
            assert catalogue(usr_platform) == before or not usr_platform.has("transactional_ddl")
            after = 2 * after + 1
        assert after > 1
        assert planned().changes == ()


def test_watches_that_cannot_be_are_refused(usr_platform: Platform) -> None:
    for watch, words in [
        ({"table": "nobody"}, "no table or view|no such table"),
        ({**USR, "exclude": ["idu"]}, "key column"),
        ({**USR, "exclude": ["nothing"]}, "not an attribute"),
    ]:
        with pytest.raises((TriggerError, ConfigError), match=words):
            usr_platform.plan(watch)


def test_capture_by_statement_is_refused_where_there_is_none(usr_platform: Platform) -> None:
    if usr_platform.has("statement_capture"):
        usr_platform.watch("keyed", trigger_level="statement")
        assert len(usr_platform.logged("INSERT INTO keyed VALUES (1, 'x')")) == 1
        return
    with pytest.raises(TriggerError, match="trigger_level = row"):
        usr_platform.plan({**USR, "trigger_level": "statement"})


def test_secrets_are_warned_of_and_what_is_not_captured_is_reported(platform: Platform) -> None:
    platform.run("CREATE TABLE account (id {integer} PRIMARY KEY, password_hash {string})")
    plan = platform.plan({"table": "account"})
    assert any("looks like a secret" in warning for warning in plan.warnings)
    assert plan.not_captured


def test_two_logs_of_one_table_do_not_touch_each_other(usr_platform: Platform) -> None:
    usr_platform.watch("usr")
    with transaction(usr_platform.config()) as db:
        conn = db.connection
        migrations.upgrade(conn, log_table="other")
    other = usr_platform.config(
        database={"url": usr_platform.engine.url.render_as_string(False), "log_table": "other"}
    )
    with transaction(other) as db:
        triggers_of(db.dialect).apply(db.connection, planned_triggers(db, other), 5.0)
    assert kinds(usr_platform, USR) == ["unchanged", "unchanged"]
    usr_platform.run("INSERT INTO usr (idu, fname) VALUES (1, 'x')")
    name = sa.sql.quoted_name("OTHER" if usr_platform.name == "oracle" else "other", quote=True)
    with usr_platform.engine.connect() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(sa.table(name))) == 1
    assert len(usr_platform.rows()) == 1


def test_a_table_that_was_renamed_makes_room_for_a_new_one_of_its_name(
    usr_platform: Platform,
) -> None:
    # Where names of triggers are a schema's, those of the renamed table stand in the way.
    usr_platform.watch("keyed")
    usr_platform.run(
        "ALTER TABLE keyed RENAME TO keyed_old",
        "CREATE TABLE keyed (a {integer}, b {string}, PRIMARY KEY (b, a))",
    )
    usr_platform.watch("keyed")
    assert kinds(usr_platform, {"table": "keyed"}) == ["unchanged"]
    assert usr_platform.logged("INSERT INTO keyed_old VALUES (1, 'x')") == []
    assert len(usr_platform.logged("INSERT INTO keyed VALUES (1, 'x')")) == 1


def test_tables_that_exchanged_their_names_are_each_logged_as_what_they_are_called(
    platform: Platform,
) -> None:
    columns = "(id {integer} PRIMARY KEY, v {string})"
    platform.run(f"CREATE TABLE one {columns}", f"CREATE TABLE two {columns}")
    watches = {"table": "one"}, {"table": "two"}
    platform.apply(platform.plan(*watches))
    platform.run(
        *(
            f"ALTER TABLE {old} RENAME TO {new}"
            for old, new in [("one", "x"), ("two", "one"), ("x", "two")]
        )
    )
    platform.apply(platform.plan(*watches))
    assert kinds(platform, *watches) == ["unchanged", "unchanged"]
    platform.rows()
    platform.run("INSERT INTO one VALUES (1, 'a')", "INSERT INTO two VALUES (2, 'b')")
    assert [(str(row.table_name).lower(), row.new_value) for row in platform.rows()] == [
        ("one", "a"),
        ("two", "b"),
    ]


def test_triggers_that_the_user_is_not_shown_are_not_called_missing(
    usr_platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    usr_platform.watches = [USR]

    def refuse(*_: object) -> TriggerPlan:
        raise DatabaseError("missing ones cannot be detected")

    codes = {one.code for one in examine(usr_platform.config(), refuse)}
    assert {"trigger_missing", "triggers_not_compared"} <= codes
    monkeypatch.setattr(
        type(usr_platform.dialect.open(cast(Any, None))), "sees_triggers", lambda *_: False
    )
    found = examine(usr_platform.config(), refuse)
    assert "trigger_missing" not in {one.code for one in found}
    (not_compared,) = [one for one in found if one.code == "triggers_not_compared"]
    assert "missing ones cannot be detected" in not_compared.text
