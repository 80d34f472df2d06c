"""What a watch compiles to and how its objects are called, without a database (spec/triggers.md 1,
2, 9).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.catalog import Column, Database, ForeignKey, ObjectClass, Table
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ColumnType, Kind, parse_type
from eventlog.errors import TriggerError
from eventlog.model import EventType
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, literal, session_settings
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.sql_files import quote_identifier
from eventlog.sql.triggers import first_free
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, compile_watch, secret_names
from eventlog.sql.triggers.watch import Style, WatchedTable, excluded_columns

INTEGER, TEXT = parse_type("integer"), parse_type("text")


def column(name: str, type: ColumnType = TEXT) -> Column:
    return Column(name, type)


USR = Table(
    "usr", "table", (column("idu", INTEGER), column("fname"), column("lname")), primary_key=("idu",)
)
PHONE = Table(
    "usr_phone",
    "table",
    (column("idu", INTEGER), column("phoneno")),
    foreign_keys=(ForeignKey(("idu",), "usr", ("idu",)),),
    unique_keys=(("phoneno", "idu"),),
)
DATABASE = Database("postgresql", "indirect", (USR, PHONE))


def usr(database: Database = DATABASE) -> ObjectClass:
    return build_catalog(database, tables=["usr"]).class_named("usr")


def with_unique_keys(*keys: tuple[str, ...]) -> ObjectClass:
    phone = Table(
        "usr_phone", "table", PHONE.columns, foreign_keys=PHONE.foreign_keys, unique_keys=keys
    )
    return usr(Database("postgresql", "indirect", (USR, phone)))


def compiled(
    watch: WatchedTable, cls: ObjectClass | None = None
) -> tuple[ClassTriggers, list[ChildTriggers]]:
    own, *children = compile_watch(cls or usr(), watch, excluded_columns(DATABASE, watch, ["usr"]))
    assert isinstance(own, ClassTriggers)
    return own, [child for child in children if isinstance(child, ChildTriggers)]


@pytest.mark.parametrize(
    ("row_style", "insert", "update", "child"),
    [
        ("field", 1, 2, 2),
        ("remove_all", 1, 3, 2),
        ("field_query_back", 7, 8, 8),
        ("row_query_back", 5, 6, 8),
    ],
)
def test_each_style_has_its_event_types(
    row_style: Style, insert: int, update: int, child: int
) -> None:
    own, (phone,) = compiled(WatchedTable("usr", row_style))
    assert (own.insert_type, own.update_type, phone.event_type) == (insert, update, child)


@pytest.mark.parametrize("row_style", ["field", "remove_all", "field_query_back", "row_query_back"])
def test_an_insert_into_a_class_of_key_columns_alone_is_a_row(row_style: Style) -> None:
    own, _ = compiled(WatchedTable("usr", row_style, columns=("idu",)))
    assert own.columns == ()
    assert own.insert_type == EventType.INSERT_ROW_QUERY_BACK


@pytest.mark.parametrize(
    ("unique_keys", "event_type"),
    [
        ([("idu", "phoneno")], 2),
        ([("phoneno", "idu")], 2),
        ([], 8),
        ([("phoneno",)], 8),
        ([("idu", "phoneno", "kind")], 8),
    ],
)
def test_a_child_that_may_hold_a_value_twice_is_read_back(
    unique_keys: list[tuple[str, ...]], event_type: int
) -> None:
    _, (phone,) = compiled(WatchedTable("usr"), with_unique_keys(*unique_keys))
    assert phone.event_type == event_type


@pytest.mark.parametrize(
    ("watch", "columns", "children"),
    [
        (WatchedTable("usr"), ["fname", "lname"], ["usr_phone.phoneno"]),
        (WatchedTable("usr", exclude=("LNAME",)), ["fname"], ["usr_phone.phoneno"]),
        (WatchedTable("usr", columns=("lname",)), ["lname"], []),
        (
            WatchedTable("usr", columns=("idu", "lname", "usr_phone.phoneno")),
            ["lname"],
            ["usr_phone.phoneno"],
        ),
        (WatchedTable("usr", exclude=("usr_phone.phoneno",)), ["fname", "lname"], []),
        (WatchedTable("USR", exclude=("fname",)), ["lname"], ["usr_phone.phoneno"]),
    ],
)
def test_what_is_excluded_is_not_logged(
    watch: WatchedTable, columns: Sequence[str], children: Sequence[str]
) -> None:
    own, of_children = compiled(watch)
    assert [each.name for each in own.columns] == columns
    assert [each.attribute for each in of_children] == children
    # The same from a catalog that was built without what is excluded.
    catalog = build_catalog(
        DATABASE, tables=["usr"], exclude=excluded_columns(DATABASE, watch, ["usr"])
    )
    first, *rest = compile_watch(catalog.class_named("usr"), watch)
    assert isinstance(first, ClassTriggers)
    assert [each.name for each in first.columns] == columns
    assert [each.attribute for each in rest if isinstance(each, ChildTriggers)] == children


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        (WatchedTable("usr", exclude=("idu",)), "exclude: 'idu' is a key column"),
        (
            WatchedTable("usr", exclude=("name",)),
            "exclude: 'name' is not an attribute of the class; it has idu, fname, lname",
        ),
        (WatchedTable("usr", columns=("name",)), "columns: 'name' is not an attribute"),
    ],
)
def test_names_that_fit_nothing_are_refused(watch: WatchedTable, message: str) -> None:
    with pytest.raises(TriggerError, match=message):
        excluded_columns(DATABASE, watch)


def test_a_view_is_watched_by_its_base_tables() -> None:
    view = Table("view_usr", "view", (column("pk_idu", INTEGER), column("fname")))
    cls = build_catalog(Database("postgresql", "direct", (view,))).class_named("view_usr")
    with pytest.raises(TriggerError, match="view_usr is a view: name its base tables"):
        compile_watch(cls, WatchedTable("view_usr"))


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("password_hash", True),
        ("PWD", True),
        ("apiToken", True),
        ("salt", True),
        ("fname", False),
        ("passport", False),
    ],
)
def test_columns_that_look_like_secrets_are_named(name: str, is_secret: bool) -> None:
    triggers = ClassTriggers(
        watch=WatchedTable("usr"), class_name="t", table=USR, key=USR.columns[:1],
        columns=(column(name),), insert_type=EventType.INSERT_FIELD,
        update_type=EventType.UPDATE_FIELD,
    )  # fmt: skip
    assert secret_names(triggers) == ((name,) if is_secret else ())


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("eventlog", '"s"."proc_eventlog_status"'),
        ("a" * 51, f'"s"."proc_{"a" * 51}_status"'),
        ('we"ird', '"s"."proc_we""ird_status"'),
    ],
)
def test_the_function_of_statuses_is_named_after_the_log(table: str, name: str) -> None:
    (statement,) = DIALECT.before_log(LogTable("s", table, ()))
    assert statement.startswith(f"CREATE OR REPLACE FUNCTION {name}(")


def test_a_long_name_is_cut_and_marked_with_the_hash_of_all_of_it() -> None:
    full = f"proc_{'x' * 60}_status"
    expected = f"{full[:56]}_{hashlib.sha256(full.encode()).hexdigest()[:6]}"
    assert f'"{expected}"(' in DIALECT.before_log(LogTable("s", "x" * 60, ()))[0]
    assert len(expected) == MAX_IDENTIFIER


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1))
def test_every_name_fits_and_is_quoted_whole(table: str) -> None:
    (statement,) = DIALECT.before_log(LogTable(None, table, ()))
    name = statement.removeprefix("CREATE OR REPLACE FUNCTION ").split(
        "(status pg_catalog.bpchar)"
    )[0]
    assert name[0] == name[-1] == '"'
    assert '"' not in name[1:-1].replace('""', "")
    assert len(name[1:-1].replace('""', '"').encode()) <= MAX_IDENTIFIER


@pytest.mark.parametrize(
    ("taken", "name"),
    [([], "proc_usr_1"), (["proc_usr_1"], "proc_usr_2"), (["proc_usr_2"], "proc_usr_1")],
)
def test_names_count_from_one(taken: list[str], name: str) -> None:
    assert first_free(lambda number: f"proc_usr_{number}", taken.__contains__) == name


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("usr", '"usr"'),
        ('a"b', '"a""b"'),
        ("50% $1", '"50% $1"'),
        ("a\\b", '"a\\b"'),
        ("a\nb", '"a\nb"'),
    ],
)
def test_identifiers_are_always_quoted(name: str, sql: str) -> None:
    assert quote_identifier(name) == sql


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        ("", "''"),
        ("usr", "'usr'"),
        ("O'Brien", "'O''Brien'"),
        ("a\\'b", "E'a\\\\''b'"),
        ("100%", "'100%'"),
    ],
)
def test_literals_read_the_same_whatever_the_session(value: str, sql: str) -> None:
    assert literal(value) == sql


@pytest.mark.parametrize(
    ("type", "settings"),
    [
        (ColumnType(Kind.INTEGER, 32, "integer"), set()),
        (ColumnType(Kind.TIMESTAMPTZ, 0, "timestamp with time zone"), set()),
        (ColumnType(Kind.OTHER, 0, "jsonb"), set()),
        (ColumnType(Kind.OTHER, 0, "bit varying(5)"), set()),
        (ColumnType(Kind.OTHER, 0, "time(3) with time zone"), set()),
        (ColumnType(Kind.OTHER, 0, "mood"), set()),
        (ColumnType(Kind.APPROXIMATE, 32, "real"), {"extra_float_digits"}),
        (ColumnType(Kind.OTHER, 0, "point"), {"extra_float_digits"}),
        (ColumnType(Kind.OTHER, 0, "interval day to second(2)"), {"IntervalStyle"}),
        (ColumnType(Kind.OTHER, 0, "money"), {"lc_monetary"}),
        (ColumnType(Kind.OTHER, 0, "integer[]"), {"DateStyle", "TimeZone", "bytea_output"}),
        (ColumnType(Kind.OTHER, 0, "daterange"), {"DateStyle", "TimeZone", "bytea_output"}),
        (ColumnType(Kind.OTHER, 0, "hr.address"), {"DateStyle", "TimeZone", "bytea_output"}),
    ],
)
def test_only_what_a_session_can_change_is_pinned(type: ColumnType, settings: set[str]) -> None:
    pinned = session_settings([Column("c", type)], fixed_text=["mood"])
    assert settings <= set(pinned)
    assert bool(pinned) == bool(settings)
