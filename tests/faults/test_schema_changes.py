"""An application's write never fails by our triggers, whatever DDL came before (spec/triggers.md
7.6).

Sessions that have fired the triggers before, and so hold their plans, write on after each change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from publishers import install, session, write_config
from shared import execute, fetch, in_ci, met, url_of, wait_until

from eventlog.cli.context import reading, transaction
from eventlog.config.load import Config, load
from eventlog.publisher.declared.opening import find_log
from eventlog.publisher.declared.trigger_plan import differences, planned_triggers
from eventlog.publisher.inspect.doctor import examine
from eventlog.sql.triggers import TriggerPlan, triggers_of

CAPTURES = ("row", "statement")
Logged = tuple[int, str, str | None, str | None, str | None]


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def watched(
    database: sa.Engine, directory: Path, *watches: dict[str, Any], schema: str = "public"
) -> Config:
    where = {"schema_name": schema, "log_table": "public.eventlog"}
    path = write_config(directory, url_of(database), (), database=where)
    with path.open("a", encoding="utf-8") as file:
        for watch in watches:
            file.write(
                "\n[[watch]]\n"
                + "".join(f"{key} = {toml(value)}\n" for key, value in watch.items())
            )
    config = load(path, {})
    install(config)
    return config


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


class Writers:
    """Two sessions that last: one has written each operation, the other one is new after the
    change.
    """

    def __init__(self, database: sa.Engine, lasting: psycopg.Connection[Any]) -> None:
        self._database, self._lasting = database, lasting

    def warm(self, *statements: str) -> None:
        """Six times, so that no plan is made for one time only."""
        for _ in range(6):
            for statement in statements:
                self._lasting.execute(statement.encode())
        self._lasting.commit()

    def logged(self, *statements: str) -> list[Logged]:
        """What the statements log, in the old session; a new one then logs the same, and is rolled
        back.
        """
        execute(self._database, "DELETE FROM eventlog")
        with session(self._database) as fresh:
            for statement in statements:
                fresh.execute(statement.encode())
            found = log_of(fresh)
            fresh.rollback()
        assert self.logged_by_the_old(*statements) == found
        return found

    def logged_by_the_old(self, *statements: str) -> list[Logged]:
        """What the statements log in the session that has written before."""
        self._lasting.execute("DELETE FROM eventlog")
        for statement in statements:
            self._lasting.execute(statement.encode())
        found = log_of(self._lasting)
        self._lasting.commit()
        return found


def log_of(connection: psycopg.Connection[Any]) -> list[Logged]:
    return connection.execute(
        "SELECT event_type, table_key, column_name, old_value, new_value FROM eventlog ORDER BY "
        "record_id"
    ).fetchall()


@contextmanager
def writers(database: sa.Engine) -> Iterator[Writers]:
    with session(database) as lasting:
        yield Writers(database, lasting)


USR = "CREATE TABLE usr (id integer PRIMARY KEY, name varchar(10), age integer, nick text)"
WARM = (
    "INSERT INTO usr VALUES (100, 'a', 1, 'b')",
    "UPDATE usr SET name = 'c', age = 2 WHERE id = 100",
    "UPDATE usr SET id = 101 WHERE id = 100",
    "DELETE FROM usr WHERE id = 101",
)
JACK = "INSERT INTO usr VALUES (1, 'Jack', 7, 'Jay')"


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_retyped_column_leaves_rows_to_be_read_back(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(database, USR, JACK)
    config = watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(database, "ALTER TABLE usr ALTER name TYPE text, ALTER age TYPE bigint")
        assert writer.logged("UPDATE usr SET name = 'John' WHERE id = 1") == [
            (6, "id=1", None, None, None)
        ]
        assert writer.logged("INSERT INTO usr VALUES (2, 'Joe')") == [(5, "id=2", None, None, None)]
        assert writer.logged("UPDATE usr SET id = 3 WHERE id = 2") == [
            (4, "id=2", None, None, None),
            (5, "id=3", None, None, None),
        ]
        assert writer.logged("DELETE FROM usr WHERE id = 3") == [(4, "id=3", None, None, None)]
        assert writer.logged("TRUNCATE usr") == [(4, "id=1", None, None, None)]
        install(config)
        assert writer.logged("INSERT INTO usr VALUES (1, 'Jack')") == [
            (1, "id=1", "name", None, "Jack")
        ]


@pytest.mark.promise("guarantee The application's writes")
@pytest.mark.parametrize(
    ("change", "trigger_level"),
    met(["DROP nick", "RENAME nick TO alias", "ALTER nick TYPE json USING '{}'"], CAPTURES),
)
def test_writes_go_on_without_a_column(
    database: sa.Engine, tmp_path: Path, trigger_level: str, change: str
) -> None:
    execute(database, USR, JACK)
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(database, f"ALTER TABLE usr {change}")
        assert writer.logged("UPDATE usr SET name = 'John'") == [(6, "id=1", None, None, None)]


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_change_that_the_triggers_do_not_meet_changes_nothing(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(database, USR, JACK)
    watched(
        database, tmp_path, {"table": "usr", "trigger_level": trigger_level, "exclude": ["nick"]}
    )
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(database, "ALTER TABLE usr DROP nick, ADD mail text, ALTER name TYPE varchar(40)")
        assert writer.logged("UPDATE usr SET name = 'John'") == [
            (2, "id=1", "name", "Jack", "John")
        ]


TO_A_DOMAIN = "ALTER TABLE usr ALTER name TYPE word", "ALTER TABLE usr ALTER name TYPE varchar(10)"
# How an enumeration loses a value: a new type under the old one's name.
TO_A_TYPE_OF_THE_SAME_NAME = tuple(
    f"BEGIN; CREATE TYPE mood_new AS ENUM ({values});"
    " ALTER TABLE usr ALTER mood TYPE mood_new USING mood::text::mood_new; DROP TYPE mood;"
    " ALTER TYPE mood_new RENAME TO mood; COMMIT"
    for values in ("'sad', 'glad'", "'sad'")
)


@pytest.mark.parametrize(
    ("changes", "trigger_level"), met([TO_A_DOMAIN, TO_A_TYPE_OF_THE_SAME_NAME], CAPTURES)
)
def test_a_type_that_only_its_identity_distinguishes_fails_no_session(
    database: sa.Engine, tmp_path: Path, trigger_level: str, changes: Sequence[str]
) -> None:
    execute(
        database,
        "CREATE DOMAIN word AS varchar(10)",
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE TABLE usr (id integer PRIMARY KEY, name varchar(10), mood mood)",
        "INSERT INTO usr VALUES (1, 'a', 'sad')",
    )
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    write = "UPDATE usr SET mood = NULL, name = NULL", "UPDATE usr SET mood = 'sad', name = 'a'"
    by_value = [
        (2, "id=1", "name", "a", None),
        (2, "id=1", "mood", "sad", None),
        (2, "id=1", "name", None, "a"),
        (2, "id=1", "mood", None, "sad"),
    ]
    with writers(database) as old:
        old.warm(*write, "INSERT INTO usr VALUES (2, 'b', 'sad')", "DELETE FROM usr WHERE id = 2")
        for change in changes:
            execute(database, change)
            with session(database) as new:
                new.execute("DELETE FROM eventlog")
                for statement in write:
                    new.execute(statement.encode())
                assert log_of(new) == by_value
                new.rollback()
            # Where rows are logged one by one, a session that held plans before has the row read
            # back.
            assert old.logged_by_the_old(*write) in (by_value, [(6, "id=1", None, None, None)] * 2)


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_key_is_logged_as_it_is_now(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(
        database,
        "CREATE TABLE usr (id integer PRIMARY KEY, name text)",
        "INSERT INTO usr VALUES (1, 'a')",
    )
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    changes = [
        ("ALTER id TYPE numeric USING id + 0.50", "id=1.5"),
        ("ALTER id TYPE double precision", "id=1.5"),
        ("ALTER id TYPE text USING 'a, ' || id", 'id="a, 1.5"'),
        (
            "ALTER id TYPE timestamptz USING '2024-05-06 07:08:09+02'",
            "id=2024-05-06 05:08:09.000000Z",
        ),
        ("ALTER id TYPE timestamp USING '2024-05-06 07:08:09'", "id=2024-05-06 07:08:09.000000"),
        ("ALTER id TYPE date", "id=2024-05-06"),
        ("ALTER id TYPE bytea USING '\\xAAAA'", 'id="qqo="'),
        ("ALTER id TYPE char(4) USING 'x'", "id=x"),
        ("ALTER id TYPE boolean USING true", "id=true"),
        ('RENAME id TO "n o"', "n o=true"),
    ]
    with writers(database) as writer:
        writer.warm("UPDATE usr SET name = 'b'", "UPDATE usr SET name = 'a'")
        for change, key in changes:
            execute(database, f"ALTER TABLE usr {change}")
            assert writer.logged("UPDATE usr SET name = name || 'x'") == [
                (6, key, None, None, None)
            ], change
        # Without any key nothing can be said of an object, but the statement does not fail.
        execute(database, 'ALTER TABLE usr DROP "n o"')
        assert writer.logged("UPDATE usr SET name = 'c'", "DELETE FROM usr") == []


def test_a_renamed_column_of_a_views_base_leaves_rows_to_be_read_back(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE emp (empno integer PRIMARY KEY, fname text)",
        "CREATE TABLE phone (empno integer, no text, UNIQUE (empno, no))",
        "CREATE VIEW view_emp AS SELECT e.empno AS pk_empno, fname AS sv_fname, no AS mv_no"
        " FROM emp e LEFT JOIN phone p ON p.empno = e.empno",
        "INSERT INTO emp VALUES (1, 'a')",
    )
    base = {
        "emp": {"empno": "pk_empno", "fname": "sv_fname"},
        "phone": {"empno": "pk_empno", "no": "mv_no"},
    }
    watched(database, tmp_path, {"view": "view_emp", "base": base})
    with writers(database) as writer:
        writer.warm(
            "UPDATE emp SET fname = fname || 'b'",
            "INSERT INTO phone VALUES (1, '1')",
            "DELETE FROM phone",
        )
        execute(
            database,
            "ALTER TABLE emp RENAME fname TO first_name",
            "ALTER TABLE phone RENAME no TO number",
        )
        assert writer.logged("UPDATE emp SET first_name = 'c'") == [
            (6, "pk_empno=1", None, None, None)
        ]
        assert writer.logged("INSERT INTO phone VALUES (1, '2')") == [
            (8, "pk_empno=1", "mv_no", None, None)
        ]
        execute(database, "ALTER TABLE emp RENAME empno TO number")
        assert writer.logged("UPDATE emp SET first_name = 'd'") == [
            (6, "pk_empno=1", None, None, None)
        ]
        assert writer.logged("UPDATE phone SET number = '3'") == [
            (8, "pk_empno=1", "mv_no", None, None)
        ]


CHILD = (
    "CREATE TABLE phone (id integer REFERENCES usr ON DELETE CASCADE ON UPDATE CASCADE, no text, "
    "UNIQUE (id, no))"
)


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_values_of_child_tables_are_read_back_too(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(database, USR, CHILD, JACK)
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    with writers(database) as writer:
        writer.warm(
            "INSERT INTO phone VALUES (1, '1')", "UPDATE phone SET no = '2'", "DELETE FROM phone"
        )
        execute(database, "ALTER TABLE phone RENAME no TO number")
        assert writer.logged("INSERT INTO phone VALUES (1, '1')") == [
            (8, "id=1", "phone.no", None, None)
        ]
        execute(database, "ALTER TABLE phone RENAME id TO usr")
        assert writer.logged("UPDATE phone SET number = '2'") == [
            (8, "id=1", "phone.no", None, None)
        ]
        execute(database, "ALTER TABLE usr RENAME id TO no")
        assert writer.logged("DELETE FROM phone") == [(8, "no=1", "phone.no", None, None)]
        execute(database, "ALTER TABLE usr RENAME TO person")
        assert writer.logged("INSERT INTO phone VALUES (1, '3')") == [
            (8, "no=1", "phone.no", None, None)
        ]


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_renamed_table_is_logged_by_its_old_name(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(database, USR, JACK)
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(database, "ALTER TABLE usr RENAME TO person")
        assert writer.logged("UPDATE person SET name = 'John'") == [
            (2, "id=1", "name", "Jack", "John")
        ]
        execute(database, "CREATE SCHEMA hr", "ALTER TABLE person SET SCHEMA hr")
        assert writer.logged("DELETE FROM hr.person") == [(4, "id=1", None, None, None)]
        execute(database, "INSERT INTO hr.person VALUES (5)")
        assert writer.logged("TRUNCATE hr.person") == [(4, "id=5", None, None, None)]
        # A view that keeps the old name for others changes nothing.
        execute(database, "CREATE VIEW usr AS SELECT * FROM hr.person")
        assert writer.logged("INSERT INTO usr VALUES (6)") == [(5, "id=6", None, None, None)]


@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_table_whose_schema_was_renamed_is_written_on(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    execute(database, "CREATE SCHEMA hr", "CREATE TABLE hr.usr (id integer PRIMARY KEY, name text)")
    execute(database, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level}, schema="hr")
    with writers(database) as writer:
        writer.warm("UPDATE hr.usr SET name = 'a'", "UPDATE hr.usr SET name = 'b'")
        execute(database, "ALTER SCHEMA hr RENAME TO people")
        assert writer.logged("UPDATE people.usr SET name = 'John'") == [
            (6, "id=1", None, None, None)
        ]
        assert writer.logged("INSERT INTO people.usr VALUES (2)") == [(5, "id=2", None, None, None)]


MOVES = {
    "the schema is renamed": (
        "hr",
        "hr.eventlog",
        ["ALTER SCHEMA hr RENAME TO people"],
        ("people", "people.eventlog"),
    ),
    "the schema of the log is renamed": (
        "hr",
        "log.eventlog",
        ["ALTER SCHEMA log RENAME TO journal"],
        ("hr", "journal.eventlog"),
    ),
}


def of_log(
    database: sa.Engine, directory: Path, schema: str, log: str, *watches: dict[str, Any]
) -> Config:
    where = {"schema_name": schema, "log_table": log}
    return load(write_config(directory, url_of(database), watches, database=where), {})


def plan_of(config: Config) -> TriggerPlan:
    with reading(config) as db:
        return planned_triggers(db, config)


@pytest.mark.parametrize("move", MOVES)
def test_triggers_whose_log_was_moved_are_named_and_replaced_and_writes_pass_again(
    database: sa.Engine, tmp_path: Path, move: str
) -> None:
    schema, log, moved, now = MOVES[move]
    execute(
        database,
        "CREATE SCHEMA hr",
        "CREATE SCHEMA log",
        "CREATE TABLE hr.usr (id integer PRIMARY KEY, name text)",
        "CREATE TABLE hr.phone (id integer REFERENCES hr.usr, no text, UNIQUE (id, no))",
        "CREATE TABLE hr.part (id integer PRIMARY KEY, name text) PARTITION BY LIST (id)",
        "CREATE TABLE hr.part_1 PARTITION OF hr.part FOR VALUES IN (1)",
    )
    watches = {"table": "usr"}, {"table": "part", "trigger_level": "row"}
    config = of_log(database, tmp_path, schema, log, *watches)
    install(config)
    with transaction(config) as db:
        planned = planned_triggers(db, config)
        triggers_of(db.dialect).record(find_log(db, config), planned)
    names = tuple(triggers_in(database))
    execute(database, *moved)
    config = of_log(database, tmp_path, *now, *watches)
    writes = (
        f"INSERT INTO {now[0]}.usr VALUES (1, 'a')",
        f"INSERT INTO {now[0]}.phone VALUES (1, '2')",
        f"INSERT INTO {now[0]}.part VALUES (1, 'b')",
        f"TRUNCATE {now[0]}.part_1",
    )
    for write in (writes[0], writes[2]):
        with pytest.raises(sa.exc.ProgrammingError, match="does not exist"):
            execute(database, write)
    plan = plan_of(config)
    quoted = ".".join(f'"{part}"' for part in log.split("."))
    assert {(action.kind, action.reason) for action in plan.changes} == {
        (
            "replace",
            f"its triggers were made for {quoted}, which does not exist any more: writes to the table fail until "
            "they are applied",
        )
    }
    assert (len(plan.changes), plan.uncaptured) == (3, ())
    install(config)
    assert (triggers_in(database), plan_of(config).changes) == (list(names), ())
    execute(database, *writes)
    assert fetch(
        database,
        f"SELECT event_type, table_name, column_name, new_value FROM {now[1]} ORDER BY record_id",
    ) == [
        (1, "usr", "name", "a"),
        (2, "usr", "phone.no", "2"),
        (1, "part", "name", "b"),
        (4, "part", None, None),
    ]


def triggers_in(database: sa.Engine) -> list[Any]:
    """The triggers that log, by table, each with its function."""
    return fetch(
        database,
        "SELECT c.relname, t.tgname, p.proname FROM pg_trigger t JOIN pg_class c ON c.oid = "
        "t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgname LIKE '\\_tgr%' AND "
        "p.proname NOT LIKE '%\\_wake' ORDER BY 1, 2, 3",
    )


def test_triggers_of_another_log_that_is_gone_are_left_to_it_and_reported(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE SCHEMA hr", "CREATE TABLE hr.usr (id integer PRIMARY KEY, name text)")
    logs = "hr.eventlog", "hr.audit"
    for log in logs:
        install(of_log(database, tmp_path, "hr", log, {"table": "usr"}))
    execute(database, "ALTER SCHEMA hr RENAME TO people")
    first, second = (
        of_log(database, tmp_path, "people", log.replace("hr", "people"), {"table": "usr"})
        for log in logs
    )
    for config, other in ((first, "audit"), (second, None)):
        plan = plan_of(config)
        assert [action.kind for action in plan.changes] == ["replace"]
        told = [one for one in plan.warnings if "which does not exist" in one]
        assert [f'made for "hr"."{other}"' in one for one in told] == [True] * (other is not None)
        install(config)
    execute(database, "INSERT INTO people.usr VALUES (1, 'a')")
    for log in ("eventlog", "audit"):
        assert fetch(database, f"SELECT table_key FROM people.{log}") == [("id=1",)]


def test_drop_takes_away_the_triggers_of_a_log_whose_schema_was_renamed(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE SCHEMA hr", "CREATE TABLE hr.usr (id integer PRIMARY KEY, name text)")
    install(of_log(database, tmp_path, "hr", "hr.eventlog", {"table": "usr"}))
    execute(database, "ALTER SCHEMA hr RENAME TO people")
    config = of_log(database, tmp_path, "people", "people.eventlog")
    with transaction(config) as db:
        planned = triggers_of(db.dialect).plan_drop(find_log(db, config))
        triggers_of(db.dialect).apply(db.connection, planned)
    execute(database, "INSERT INTO people.usr VALUES (1, 'a')")
    assert {table for table, *_ in triggers_in(database)} == {"eventlog_deferred"}


def test_a_session_that_first_writes_to_a_renamed_table_remembers_its_types(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR, JACK, "CREATE DOMAIN word AS varchar(10)")
    watched(database, tmp_path, {"table": "usr"})
    execute(database, "ALTER TABLE usr RENAME TO person")
    with writers(database) as writer:
        writer.warm(*(statement.replace(" usr", " person") for statement in WARM))
        execute(database, "ALTER TABLE person ALTER name TYPE word")
        write = "UPDATE person SET name = 'John'"
        assert writer.logged_by_the_old(write) == [(6, "id=1", None, None, None)]


# --- tables that take each other's names ----------------------------------------------------------

SWAPS = {
    # pg-osc and the like: a copy that triggers of the tool's own keep up, two renames in one
    # transaction, a drop.
    "pg-osc": (
        "CREATE TABLE pgosc_st_usr (LIKE usr INCLUDING ALL)",
        "ALTER TABLE pgosc_st_usr ADD mail text",
        "INSERT INTO pgosc_st_usr SELECT *, NULL FROM usr",
        "BEGIN; LOCK TABLE usr IN ACCESS EXCLUSIVE MODE; ALTER TABLE usr RENAME TO "
        "pgosc_op_table_usr; ALTER TABLE pgosc_st_usr RENAME TO usr; COMMIT",
    ),
    # What rails' "large_hadron" style scripts and many by hand do: without a transaction between
    # the renames.
    "by hand": (
        "CREATE TABLE usr_new AS SELECT * FROM usr",
        "ALTER TABLE usr_new ADD PRIMARY KEY (id)",
        "ALTER TABLE usr RENAME TO usr_old",
        "ALTER TABLE usr_new RENAME TO usr",
    ),
}


@pytest.mark.parametrize(("tool", "trigger_level"), met([*SWAPS], CAPTURES))
def test_a_table_whose_name_is_now_anothers_is_not_logged(
    database: sa.Engine, tmp_path: Path, trigger_level: str, tool: str
) -> None:
    execute(database, USR, JACK)
    config = watched(database, tmp_path, {"table": "usr", "trigger_level": trigger_level})
    old = {"pg-osc": "pgosc_op_table_usr", "by hand": "usr_old"}[tool]
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(database, *SWAPS[tool])
        for statement in ("DELETE", "UPDATE", "INSERT", "TRUNCATE"):
            write = {
                "DELETE": f"DELETE FROM {old}",
                "UPDATE": f"UPDATE {old} SET name = 'x'",
                "INSERT": f"INSERT INTO {old} VALUES (9)",
                "TRUNCATE": f"TRUNCATE {old}",
            }[statement]
            assert writer.logged(write) == [], statement
        assert writer.logged("UPDATE usr SET name = 'John'") == []
        install(config)
        assert writer.logged("UPDATE usr SET name = 'Joe'") == [(2, "id=1", "name", "John", "Joe")]
        assert writer.logged(f"INSERT INTO {old} VALUES (9)") == []


def test_a_rewrite_in_place_leaves_the_triggers_as_they_were(
    database: sa.Engine, tmp_path: Path
) -> None:
    """pg_repack and pg_squeeze exchange the files of two tables, as CLUSTER does: the table keeps
    its identity.
    """
    execute(database, USR, JACK)
    watched(database, tmp_path, {"table": "usr"})
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(
            database,
            # pg_repack's own: its log trigger first, at the end the exchange, here by the server's
            # own statement.
            "CREATE FUNCTION repack() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON usr FOR EACH ROW"
            " EXECUTE FUNCTION repack()",
            "ALTER TABLE usr ENABLE ALWAYS TRIGGER repack_trigger",
            "CLUSTER usr USING usr_pkey",
            "DROP TRIGGER repack_trigger ON usr",
        )
        assert writer.logged("UPDATE usr SET name = 'John'") == [
            (2, "id=1", "name", "Jack", "John")
        ]


def test_versions_of_a_schema_as_pgroll_makes_them_lose_nothing(
    database: sa.Engine, tmp_path: Path
) -> None:
    """pgroll: a view a version, a new column that its trigger fills; at the end that takes the old
    one's name.
    """
    execute(database, USR, JACK)
    config = watched(database, tmp_path, {"table": "usr"})
    with writers(database) as writer:
        writer.warm(*WARM)
        execute(
            database,
            'ALTER TABLE usr ADD "_pgroll_new_age" text',
            "CREATE SCHEMA v2",
            'CREATE VIEW v2.usr AS SELECT id, name, "_pgroll_new_age" AS age, nick FROM usr',
            "CREATE FUNCTION sync() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN NEW._pgroll_new_age := NEW.age::text; RETURN NEW; END'",
            "CREATE TRIGGER _pgroll_trigger BEFORE INSERT OR UPDATE ON usr FOR EACH ROW EXECUTE "
            "FUNCTION sync()",
            "UPDATE usr SET id = id",
        )
        assert writer.logged("UPDATE usr SET age = 8") == [(2, "id=1", "age", "7", "8")]
        execute(
            database,
            "DROP FUNCTION sync CASCADE",
            "ALTER TABLE usr DROP age",
            'ALTER TABLE usr RENAME "_pgroll_new_age" TO age',
        )
        assert writer.logged("UPDATE usr SET age = '9'") == [(6, "id=1", None, None, None)]
        install(config)
        assert writer.logged("UPDATE usr SET age = '10'") == [(2, "id=1", "age", "9", "10")]


PARTED = (
    "CREATE TABLE part (id integer PRIMARY KEY, name text, num integer) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF part FOR VALUES FROM (0) TO (5)",
    "CREATE TABLE high (num integer, name text, id integer NOT NULL)",
    "ALTER TABLE part ATTACH PARTITION high FOR VALUES FROM (5) TO (100)",
    "INSERT INTO part VALUES (1, 'a', 1), (6, 'b', 2)",
)


def test_partitions_follow_their_root(database: sa.Engine, tmp_path: Path) -> None:
    execute(database, *PARTED)
    config = watched(database, tmp_path, {"table": "part"})
    with writers(database) as writer:
        writer.warm(
            "UPDATE part SET num = num + 1", "UPDATE part SET id = 10 - id WHERE id IN (1, 9)"
        )
        assert writer.logged("UPDATE part SET num = 0 WHERE id = 6") == [
            (2, "id=6", "num", "8", "0")
        ]
        execute(database, "ALTER TABLE part ALTER num TYPE bigint")
        assert sorted(writer.logged("UPDATE part SET num = 5")) == [
            (6, "id=1", None, None, None),
            (6, "id=6", None, None, None),
        ]
        assert writer.logged("UPDATE high SET num = 6") == [(6, "id=6", None, None, None)]
        install(config)
        execute(database, "ALTER TABLE part RENAME TO part_old")
        assert writer.logged("DELETE FROM high") == [(4, "id=6", None, None, None)]
        execute(database, "CREATE TABLE part (id integer PRIMARY KEY, name text, num bigint)")
        assert writer.logged("DELETE FROM low") == []
        assert writer.logged("TRUNCATE part_old") == []


def test_a_transaction_whose_snapshot_is_older_than_the_change_writes_on(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR, JACK, "CREATE TABLE other (n integer)")
    watched(database, tmp_path, {"table": "usr"})
    with session(database) as old:
        for statement in WARM:
            old.execute(statement.encode())
        old.commit()
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM other")
        execute(
            database, "ALTER TABLE usr RENAME name TO called", "ALTER TABLE usr ALTER age TYPE text"
        )
        old.execute("INSERT INTO usr VALUES (2)")
        old.commit()
    assert fetch(
        database, "SELECT event_type, table_key FROM eventlog WHERE table_key = 'id=2'"
    ) == [(5, "id=2")]


# --- every type to every type ---------------------------------------------------------------------

VALUES = {
    **dict.fromkeys(
        ("smallint", "integer", "bigint", "numeric", "numeric(9,2)", "numeric(9,0)", "real"), "7"
    ),
    **dict.fromkeys(
        ("double precision", "money", "oid", "text", "varchar(40)", "char(8)", "name", "bytea"), "7"
    ),
    **dict.fromkeys(("timestamp", "timestamptz", "date"), "2024-05-06"),
    **dict.fromkeys(("time", "timetz", "interval"), "04:05:06"),
    **dict.fromkeys(("json", "jsonb", "xml", "tsvector", '"char"'), "1"),
    **dict.fromkeys(("inet", "cidr"), "10.0.0.1"),
    **dict.fromkeys(("bit(8)", "varbit"), "10101010"),
    **dict.fromkeys(("integer[]", "text[]"), "{1,2}"),
    "boolean": "true",
    "uuid": "6F9619FF-8B86-D011-B42D-00C04FC964FF",
    "point": "(1,2)",
    "box": "(1,2),(3,4)",
    "circle": "<(1,2),3>",
    "macaddr": "08:00:2b:01:02:03",
    "int4range": "[1,3)",
    "mood": "sad",
    "word": "x",
    "pair": "(1,x)",
}
"""Each type, and a value of it."""
SHORT = ("bigint", "text", "timestamp", "json", "point", "text[]", "word")
"""A type of each kind: a number, a text, a time, one without equality, one without order, an array,
a domain.
"""
DEFINITIONS = (
    "CREATE TYPE mood AS ENUM ('sad')",
    "CREATE DOMAIN word AS varchar(8)",
    "CREATE TYPE pair AS (a integer, b text)",
)


@pytest.mark.parametrize("trigger_level", in_ci(CAPTURES, "row"))
def test_a_column_of_some_types_becomes_any_other(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    change_types(database, tmp_path, trigger_level, SHORT)


@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trigger_level", CAPTURES)
def test_a_column_of_every_type_becomes_any_other(
    database: sa.Engine, tmp_path: Path, trigger_level: str
) -> None:
    change_types(database, tmp_path, trigger_level, tuple(VALUES))


def change_types(
    database: sa.Engine, directory: Path, trigger_level: str, types: Sequence[str]
) -> None:
    """The column of a table a type becomes each other type and its own again; so does the key of
    another table.
    """
    execute(database, *DEFINITIONS)
    tables = {}
    if "xml" in types:
        try:
            fetch(database, "SELECT '1'::xml")
        except sa.exc.DBAPIError:  # the server was built without it
            types = [kind for kind in types if kind != "xml"]
    for place, kind in enumerate(types):
        execute(database, f"CREATE TABLE v{place} (id integer PRIMARY KEY, v {kind})")
        tables[f"v{place}"] = ("v", kind)
        with suppress(sa.exc.ProgrammingError):  # a type without order is not a key
            execute(database, f"CREATE TABLE k{place} (id {kind} PRIMARY KEY, v integer)")
            tables[f"k{place}"] = ("id", kind)
    watched(
        database, directory, *({"table": table, "trigger_level": trigger_level} for table in tables)
    )
    tried = 0
    with session(database) as lasting, session(database) as ddl:
        lasting.autocommit = ddl.autocommit = True
        for table, (column, kind) in tables.items():
            write(lasting, table, column, kind)
            for goal in types:
                for becomes in (goal, kind):
                    change = (
                        f"ALTER TABLE {table} ALTER {column} TYPE {becomes} USING "
                        f"'{VALUES[becomes]}'::{becomes}"
                    )
                    with suppress(psycopg.errors.UndefinedObject):
                        ddl.execute(change.encode())
                        write(lasting, table, column, becomes)
                        tried += 1
    assert tried > len(tables) * len(types)


def write(connection: psycopg.Connection[Any], table: str, column: str, kind: str) -> None:
    """Insert a row, change it and delete it: each is logged."""
    value = f"'{VALUES[kind]}'::{kind}"
    row = f"7, {value}" if column == "v" else f"{value}, 1"
    connection.execute("TRUNCATE eventlog")
    connection.execute(f"INSERT INTO {table} VALUES ({row})".encode())
    connection.execute(f"UPDATE {table} SET v = NULL".encode())
    connection.execute(f"DELETE FROM {table}".encode())
    logged = [event_type for event_type, *_ in log_of(connection)]
    assert logged in ([1, 2, 4], [5, 6, 4]), (table, kind, logged)


def test_a_view_whose_base_lacks_a_column_is_an_error_of_doctor_and_in_the_status(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE emp (empno integer PRIMARY KEY, fname text)",
        "CREATE VIEW view_emp AS SELECT empno AS pk_empno, fname AS sv_fname FROM emp",
    )
    config = watched(
        database,
        tmp_path,
        {"view": "view_emp", "base": {"emp": {"empno": "pk_empno", "fname": "sv_fname"}}},
    )
    execute(database, "ALTER TABLE emp RENAME fname TO first_name")
    words = "watch view_emp, base emp: the table has no column 'fname'; it has empno, first_name"
    assert ("watch_refused", "error", f"its triggers stay as they are: {words}") in {
        (one.code, one.severity, one.text) for one in examine(config, planned_triggers)
    }
    with reading(config) as db:
        assert differences(find_log(db, config), config).refused == (words,)


def test_apply_never_makes_a_session_that_uses_two_tables_the_victim_of_a_deadlock(
    database: sa.Engine, tmp_path: Path
) -> None:
    """The session holds the one table and wants the other one, while apply holds that one and wants
    the first.
    """
    execute(database, USR, "CREATE TABLE item (id integer PRIMARY KEY, name text)", JACK)
    config = watched(database, tmp_path, {"table": "usr"}, {"table": "item"})
    execute(database, "ALTER TABLE usr ADD mail text", "ALTER TABLE item ADD mail text")
    with session(database) as writer, ThreadPoolExecutor() as other:
        writer.execute("INSERT INTO item VALUES (1, 'a')")
        applied = other.submit(install, config)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'item'::regclass"
        wait_until(lambda: fetch(database, waits) == [(1,)], "apply waits for the other table")
        writer.execute("UPDATE usr SET name = 'John'")
        writer.commit()
        applied.result()
    assert fetch(database, "SELECT name FROM usr") == [("John",)]
