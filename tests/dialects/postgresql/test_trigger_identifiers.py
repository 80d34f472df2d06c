"""Names, those of others and hostile ones (spec/triggers.md 9)."""

from __future__ import annotations

import pytest
from trigger_log import LOG, Watched, drop_triggers, run

from eventlog.core import table_key
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.sql_files import quote_identifier
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable

NAMES = [
    "usr",
    "Usr",
    "select",
    'q"uote',
    "it's",
    "100% %s %(x)s",
    "$1 $eventlog$ $$",
    "back\\slash",
    "a+b=c",
    " blank ",
    "line\nbreak; DROP TABLE usr; --",
    "{{ table }}",
    ":colon",
    "Größe",
    "表",
    "a" * 63,
    "é" * 31,
    "new_key",
    "old",
    "o",
    "v",
]


SCHEMA = 'it\'s\\ "100%" %s $1 $$; é -- {{ x }} :x'


@pytest.mark.parametrize(
    ("names", "schema"),
    [
        pytest.param(NAMES, SCHEMA, id="all"),
        *(pytest.param([one], one, id=one, marks=pytest.mark.night) for one in NAMES),
    ],
)
@pytest.mark.parametrize("conforming", ["on", "off"])
def test_any_identifier_is_a_name_and_nothing_else(
    empty: Watched, names: list[str], schema: str, conforming: str
) -> None:
    """A table, its columns, and a child of each name, in one schema."""
    run(
        empty.conn,
        f"SET standard_conforming_strings = {conforming}",
        "SET escape_string_warning = off",
        f"CREATE SCHEMA {quote_identifier(schema)}",
        f"SET search_path = {quote_identifier(schema)}",
    )
    children = [f"child{number}" for number in range(len(names))]
    for name, child in zip(names, children, strict=True):
        quoted, value = quote_identifier(name), quote_identifier(name[:28] + "2")
        run(
            empty.conn,
            f"CREATE TABLE {quoted} ({quoted} text PRIMARY KEY, {value} text)",
            f"CREATE TABLE {child} ({quoted} text REFERENCES {quoted} ON DELETE CASCADE,"
            f" {value} text, UNIQUE ({quoted}, {value}))",
        )
    watches = [*map(WatchedTable, names)]
    empty.watch(*watches)
    assert {action.kind for action in empty.plan(*watches).actions} == {"unchanged"}
    for name, child in zip(names, children, strict=True):
        column, key = name[:28] + "2", table_key.key_text([(name, "x")])
        quoted, value = quote_identifier(name), quote_identifier(column)
        assert empty.logged(f"INSERT INTO {quoted} VALUES ('x', 'v')") == [
            (1, key, column, None, "v")
        ]
        assert empty.logged(f"UPDATE {quoted} SET {value} = 'w'") == [(2, key, column, "v", "w")]
        assert empty.logged(f"INSERT INTO {child} VALUES ('x', 'c')") == [
            (2, key, f"{child}.{column}", None, "c")
        ]
        assert empty.logged(f"DELETE FROM {quoted}") == [(4, key, None, None, None)]
    drop_triggers(empty.conn, LOG)
    for name in names:
        assert empty.logged(f"INSERT INTO {quote_identifier(name)} VALUES ('x', 'v')") == []


def test_the_printed_script_does_what_apply_does(committed_usr: Watched) -> None:
    run(
        committed_usr.conn,
        'CREATE TABLE "line\nDROP TABLE usr; --" ("it\'s 100%" integer PRIMARY KEY, v text)',
    )
    script = triggers_of(DIALECT).script(
        committed_usr.plan(WatchedTable("line\nDROP TABLE usr; --"))
    )
    settings = "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL lock_timeout = 5000;\n"
    assert script.startswith(f"BEGIN;\n{settings}\n-- create ")
    assert script.endswith("COMMIT;\n")
    run(committed_usr.conn, script)
    plan = committed_usr.plan(WatchedTable("line\nDROP TABLE usr; --"))
    assert [action.kind for action in plan.actions] == ["unchanged"]
    assert triggers_of(DIALECT).script(plan) == "-- Nothing to do: the triggers are as declared.\n"


def test_long_names_stay_apart_and_fit(empty: Watched) -> None:
    names = ["t" * 62 + last for last in "ab"]
    for name in names:
        run(empty.conn, f"CREATE TABLE {name} (k integer PRIMARY KEY, v text)")
    empty.watch(*map(WatchedTable, names))
    functions = (
        empty.conn.exec_driver_sql("SELECT proname FROM pg_proc WHERE prosecdef").scalars().all()
    )
    assert len(set(functions)) == 2
    assert all(len(name) == 63 and name.startswith("proc_tttt") for name in functions)
    for name in names:
        run(empty.conn, f"INSERT INTO {name} VALUES (1)")
    assert [row.table_name for row in empty.rows()] == names


def test_somebody_elses_function_and_trigger_keep_their_names(usr: Watched) -> None:
    theirs = (
        "CREATE FUNCTION proc_usr_1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; "
        "END $$",
        'CREATE TRIGGER "_tgr_usr_i_1" AFTER INSERT ON usr FOR EACH ROW EXECUTE FUNCTION '
        "proc_usr_1()",
    )
    run(usr.conn, *theirs)
    usr.watch(WatchedTable("usr"))
    assert {action.kind for action in usr.plan(WatchedTable("usr")).actions} == {"unchanged"}
    names = usr.conn.exec_driver_sql(
        "SELECT t.tgname, p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgrelid = 'usr'::regclass AND NOT t.tgisinternal ORDER BY 1"
    ).all()
    assert [tuple(row) for row in names] == [
        ("_tgr_usr_d_1", "proc_usr_2"),
        ("_tgr_usr_i_1", "proc_usr_1"),
        ("_tgr_usr_i_2", "proc_usr_2"),
        ("_tgr_usr_t_1", "proc_usr_2"),
        ("_tgr_usr_u_1", "proc_usr_2"),
    ]
    drop_triggers(usr.conn, LOG)
    assert (
        usr.conn.exec_driver_sql(
            "SELECT count(*) FROM pg_proc WHERE starts_with(proname, 'proc_usr')"
        ).scalar_one()
        == 1
    )
