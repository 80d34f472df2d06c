"""What is planned and applied on Oracle. Statements are captured, not run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from captured_statements import conn
from oracle_catalogue import DATABASE, LOG, WATCHES, column, number, table, text, triggers_on

from eventlog.core.catalog import Column, ForeignKey, Table
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError, TriggerError
from eventlog.model import LOG_COLUMNS
from eventlog.sql.dialects.oracle import DIALECT, session
from eventlog.sql.dialects.oracle.script import ddl_lock_timeout, disabled
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, create_functions
from eventlog.sql.doctor.log import judge_indexes
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.log_operations import Window
from eventlog.sql.triggers import Action, TriggerPlan
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.marked import stored_trigger
from eventlog.sql.triggers.planner import Compiled, Installed, StoredTrigger, by_place
from eventlog.sql.triggers.watch import WatchedTable

TRIGGERS = OracleTriggers()


def compared(compiled: Sequence[Compiled], there: Installed) -> Action:
    """The actions for the one table of what is compiled."""
    (action,) = TRIGGERS.actions(compiled, there)
    return action


def compiled_link() -> list[Compiled]:
    declared, _, _ = declared_triggers(DATABASE, build_catalog(DATABASE), [WatchedTable("LINK")])
    return TRIGGERS.compile_declared("APP", LOG, declared)


def installed(*triggers_: StoredTrigger) -> Installed:
    own = [one.log == '"LOGS"."EVENTLOG"' for one in triggers_]
    return Installed(
        by_place(one for one, is_ours in zip(triggers_, own, strict=True) if is_ours),
        by_place(one for one, is_ours in zip(triggers_, own, strict=True) if not is_ours),
    )


def there(statement: str, name: str, **more: Any) -> StoredTrigger:
    """A trigger as the database reports it: the beginning in its own spelling."""
    source = statement.replace('CREATE OR REPLACE TRIGGER "APP"."', 'TRIGGER "').rstrip() + "\n"
    return stored_trigger(
        "APP", name, ("APP", "LINK"), source, type="AFTER EACH ROW", event="INSERT", **more
    )


def all_there(compiled: Sequence[Compiled], **more: Any) -> list[StoredTrigger]:
    return [there(one.statement, one.name, **more) for table in compiled for one in table.triggers]


def test_a_table_without_triggers_gets_them() -> None:
    action = compared(compiled_link(), installed())
    assert (action.kind, action.table, len(action.statements)) == ("create", "APP.LINK", 3)


def test_what_is_there_as_declared_is_left_alone() -> None:
    compiled = compiled_link()
    action = compared(compiled, installed(*all_there(compiled)))
    assert (action.kind, action.statements) == ("unchanged", ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda made: all_there(made)[1:], "TGR_LINK_I_1 is missing"),
        (lambda made: all_there(made, is_enabled=False), "is disabled"),
        (lambda made: all_there(made, is_valid=False), "is invalid"),
        (lambda made: [*all_there(made), there(made[0].triggers[0].statement, "TGR_OLD")],
         "TGR_OLD is superfluous"),
        (
            lambda made: [*all_there(made)[1:], there(made[0].triggers[0].statement + "--",
            "TGR_LINK_I_1")], "changed by hand",
        ),
        (
            lambda made: [
                *all_there(made)[1:],
                there(made[0].triggers[0].statement.replace("sha256:", "sha256:0", 1)[:-1],
                "TGR_LINK_I_1"),
            ],
            "missing",
        ),
    ],
)  # fmt: skip
def test_a_difference_is_named_and_fixed(change: Any, reason: str) -> None:
    compiled = compiled_link()
    action = compared(compiled, installed(*change(compiled)))
    assert action.kind == "replace"
    assert reason in action.reason
    assert len(action.statements) >= 3


def test_a_disabled_trigger_is_enabled_after_it_is_made_again() -> None:
    compiled = compiled_link()
    action = compared(compiled, installed(*all_there(compiled, is_enabled=False)))
    assert action.statements[3:] == tuple(
        f'ALTER TRIGGER "APP"."TGR_LINK_{letter}_1" ENABLE' for letter in "IUD"
    )


def test_what_is_no_longer_watched_is_dropped_and_what_is_not_ours_stays() -> None:
    compiled = compiled_link()
    foreign = stored_trigger("APP", "TGR_X", ("APP", "LINK"), "TRIGGER x BEGIN END;")
    action = compared([], installed(*all_there(compiled), foreign))
    assert (action.kind, action.reason) == ("drop", "no longer watched")
    assert len(action.statements) == 3
    assert not any("TGR_X" in statement for statement in action.statements)


class Schema:
    """Triggers by name, as a server keeps them: a name is the schema's, and stays when its table is
    renamed.
    """

    def __init__(self, compiled: Sequence[Compiled]) -> None:
        self.triggers = {
            one.name: (table.place[1], one.statement)
            for table in compiled
            for one in table.triggers
        }

    def rename(self, old: str, new: str) -> None:
        self.triggers = {
            name: (new if table == old else table, statement)
            for name, (table, statement) in self.triggers.items()
        }

    def run(self, statement: str) -> None:
        dropped = re.search(r'DROP TRIGGER "APP"\."([^"]+)"', statement)
        if dropped:
            self.triggers.pop(dropped[1], None)
            return
        made = re.match(
            r'CREATE OR REPLACE TRIGGER "APP"\."([^"]+)"\n.* ON "APP"\."([^"]+)"', statement
        )
        assert made, statement
        assert self.triggers.get(made[1], (made[2], ""))[0] == made[2], (
            f"ORA-04095: {made[1]} is on another table"
        )
        self.triggers[made[1]] = made[2], statement

    def installed(self) -> Installed:
        return installed(
            *(
                stored_trigger("APP", name, ("APP", where), statement)
                for name, (where, statement) in self.triggers.items()
            )
        )

    def apply(self, *watched: str) -> list[str]:
        """The statements that watching these tables runs."""
        declared, _, _ = declared_triggers(
            DATABASE, build_catalog(DATABASE), [WatchedTable(table) for table in watched]
        )
        compiled = TRIGGERS.compile_declared("APP", LOG, declared)
        statements = [
            text
            for action in TRIGGERS.actions(compiled, self.installed())
            for text in action.statements
        ]
        for statement in statements:
            self.run(statement)
        return statements


@pytest.mark.parametrize(
    "renamed", [[("LINK", "LINK_OLD")], [("LINK", "X"), ("EMP", "LINK"), ("X", "EMP")]]
)
def test_a_renamed_table_gives_the_names_of_its_triggers_to_the_new_one(
    renamed: list[tuple[str, str]],
) -> None:
    declared, _, _ = declared_triggers(
        DATABASE, build_catalog(DATABASE), [WatchedTable("LINK"), WatchedTable("EMP")]
    )
    schema = Schema(TRIGGERS.compile_declared("APP", LOG, declared))
    for old, new in renamed:
        schema.rename(old, new)
    assert schema.apply("LINK", "EMP")
    assert {name: table for name, (table, _) in schema.triggers.items()} == {
        f"TGR_{table}_{letter}_1": table for table in ("LINK", "EMP") for letter in "IUD"
    }
    assert schema.apply("LINK", "EMP") == []


def test_a_schema_of_many_tables_is_compared_in_time_that_grows_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = table("LINK", [number("ID")], ("ID",))
    database = replace(DATABASE, tables=tuple(replace(link, name=f"T{n}") for n in range(100)))
    declared, _, _ = declared_triggers(
        database, build_catalog(database), [WatchedTable(one.name) for one in database.tables]
    )
    compiled = TRIGGERS.compile_declared("APP", LOG, declared)
    there, looked_at = Schema(compiled).installed(), []
    read_digest = StoredTrigger.digest.__get__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        StoredTrigger,
        "digest",
        property(lambda one: (looked_at.append(one.name), read_digest(one))[1]),
    )
    actions = TRIGGERS.actions(compiled, there)
    assert {action.kind for action in actions} == {"unchanged"}
    assert len(looked_at) < 10 * len({*looked_at})


def test_always_is_reported_to_have_no_effect() -> None:
    for watch, said in (
        (WatchedTable("LINK"), 0),
        (WatchedTable("LINK", capture_replicated=True), 1),
    ):
        declared, _, _ = declared_triggers(DATABASE, build_catalog(DATABASE), [watch])
        warnings = TRIGGERS.warnings(
            LOG, TRIGGERS.compile_declared("APP", LOG, declared), installed()
        )
        assert (
            sum("capture_replicated has no effect on LINK" in warning for warning in warnings)
            == said
        )
        assert "changes that GoldenGate or another apply process writes" in TRIGGERS.not_captured(
            declared
        )


@pytest.mark.parametrize("deferrable", [False, True])
def test_child_tables_whose_rows_may_come_before_their_owners_are_warned_of(
    deferrable: bool,
) -> None:
    key = ForeignKey(("A",), "OWNER", ("A",), deferrable=deferrable)
    child = table("OF_OWNER", [number("A"), text("NOTE")], foreign_keys=(key,))
    database = replace(DATABASE, tables=(table("OWNER", [number("A")], ["A"]), child))
    declared, _, _ = declared_triggers(database, build_catalog(database), [WatchedTable("OWNER")])
    compiled = TRIGGERS.compile_declared("APP", LOG, declared)
    warnings = list(TRIGGERS.warnings(LOG, compiled, installed()))
    found = ["the foreign key of OF_OWNER is DEFERRABLE" in one for one in warnings]
    assert any(found) == deferrable


def foreign(event: str = "INSERT OR UPDATE OR DELETE", schema: str = "APP") -> StoredTrigger:
    return StoredTrigger(schema, "BILL", ("APP", "LINK"), type="AFTER EACH ROW", event=event)


def order_warnings(trigger: StoredTrigger, *follows: tuple[str, str]) -> list[str]:
    declared, _, _ = declared_triggers(DATABASE, build_catalog(DATABASE), [WatchedTable("LINK")])
    there = installed(replace(trigger, follows=frozenset(follows)))
    warnings = TRIGGERS.warnings(LOG, TRIGGERS.compile_declared("APP", LOG, declared), there)
    return [
        warning.partition("give it FOLLOWS ")[2]
        for warning in warnings
        if "give it FOLLOWS" in warning
    ]


def test_a_trigger_of_others_is_to_follow_ours_of_all_its_operations() -> None:
    assert order_warnings(foreign()) == ['"TGR_LINK_I_1", "TGR_LINK_U_1", "TGR_LINK_D_1"']
    assert order_warnings(foreign("UPDATE")) == ['"TGR_LINK_U_1"']
    assert order_warnings(foreign("UPDATE", "OTHER")) == ['"APP"."TGR_LINK_U_1"']


def test_the_script_leaves_a_trigger_that_follows_ours_alone() -> None:
    assert order_warnings(foreign("UPDATE"), ("APP", "TGR_LINK_U_1")) == []
    assert order_warnings(foreign("INSERT OR UPDATE"), ("APP", "TGR_LINK_U_1")) == [
        '"TGR_LINK_I_1"'
    ]


def test_what_follows_a_trigger_that_goes_is_warned_of_before() -> None:
    ours = all_there(compiled_link())
    there = installed(*ours, replace(foreign(), follows=frozenset({("APP", "TGR_LINK_U_1")})))
    assert list(TRIGGERS.drop_warnings(there, ours[:1])) == []
    (warning,) = TRIGGERS.drop_warnings(there, ours)
    assert warning.startswith(
        "trigger BILL of APP.LINK FOLLOWS TGR_LINK_U_1, which will be dropped. Then BILL is invalid"
    )
    assert "ORA-04098" in warning


def rows_of_dictionary(
    *triggers_: StoredTrigger, follows: Sequence[tuple[str, str, str, str]] = ()
) -> list[list[Any]]:
    """What installed.sql answers: the tables that may have ours, the triggers, their sources, their
    order.
    """
    sources = [(one.schema, one.name, one.text) for one in triggers_ if one.text]
    tables = sorted({one.table for one in triggers_ if one.name.startswith("TGR_")})
    rows = [
        (
            one.schema,
            one.name,
            *one.table,
            one.type,
            one.event,
            "ENABLED" if one.is_enabled else "DISABLED",
            "VALID",
        )
        for one in triggers_
    ]
    return [tables, rows, sources, list(follows)]


def test_dropping_all_triggers_reports_what_that_breaks() -> None:
    ours = all_there(compiled_link())
    answers = rows_of_dictionary(*ours, foreign(), follows=[("APP", "BILL", "APP", "TGR_LINK_D_1")])
    plan = TRIGGERS.plan_drop(DIALECT.open(conn([("LOGS", "EVENTLOG")], *answers)).log(LOG))
    assert len(plan.changes) == 1
    assert [warning.partition(",")[0] for warning in plan.warnings] == [
        "trigger BILL of APP.LINK FOLLOWS TGR_LINK_D_1"
    ]


def test_triggers_that_a_user_may_not_see_are_not_reported_as_missing() -> None:
    recorder = conn([("LOGS", "EVENTLOG")], [], [("PUBLISHER",)])
    with pytest.raises(
        DatabaseError,
        match=r"does not show the triggers of schema APP to user PUBLISHER, .* run the command as APP",
    ):
        TRIGGERS.plan(
            DIALECT.open(recorder).log(LOG),
            DATABASE,
            build_catalog(DATABASE),
            [WatchedTable("LINK")],
        )
    assert recorder.run[1][1] == {"owner": "APP"}
    assert not load_dialect("oracle").open(conn([])).sees_triggers("APP")
    assert load_dialect("oracle").open(conn([(1,)])).sees_triggers("APP")


def test_a_name_that_somebody_else_has_is_left_to_him() -> None:
    declared, _, _ = declared_triggers(DATABASE, build_catalog(DATABASE), [WatchedTable("LINK")])
    (made,) = TRIGGERS.compile_declared("APP", LOG, declared, {("APP", "TGR_LINK_I_1")})
    assert [trigger.name for trigger in made.triggers] == [
        "TGR_LINK_I_2",
        "TGR_LINK_U_1",
        "TGR_LINK_D_1",
    ]


def test_the_sql_of_a_table_has_a_way_back_and_a_digest_that_follows_it() -> None:
    (made,) = TRIGGERS.compile(DATABASE, build_catalog(DATABASE), LOG, [WatchedTable("LINK")])
    assert len(made.create) == len(made.drop) == 3
    other = WatchedTable("LINK", "field_query_back", "statement")
    assert (
        TRIGGERS.compile(DATABASE, build_catalog(DATABASE), LOG, [other])[0].digest != made.digest
    )


def test_compiling_twice_gives_the_same_text() -> None:
    for to, watch in WATCHES.values():
        assert triggers_on(to, watch) == triggers_on(to, watch)


def test_a_class_that_no_trigger_can_hold_is_refused_with_advice() -> None:
    wide = table("WIDE", [number("ID"), *(text(f"C{n:03}_{'X' * 60}") for n in range(200))], ["ID"])
    database_ = type(DATABASE)("oracle", "APP", (wide,))
    declared, _, _ = declared_triggers(database_, build_catalog(database_), [WatchedTable("WIDE")])
    with pytest.raises(TriggerError, match="32768"):
        TRIGGERS.compile_declared("APP", LOG, declared)


def test_applying_runs_each_statement_and_looks_whether_it_compiled() -> None:
    recorder = conn()
    action = compared(compiled_link(), installed())
    TRIGGERS.apply(recorder, TriggerPlan((action,)), 5.0)
    statements = [statement for statement, _ in recorder.run]
    assert statements[0] == "ALTER SESSION SET DDL_LOCK_TIMEOUT = 5"
    assert [one.replace("\nDISABLE\n", "\n") for one in statements[2::4]] == list(action.statements)
    assert all("all_errors" in statement for statement in statements[3::4])


def test_a_new_trigger_fires_once_it_is_known_to_compile() -> None:
    recorder = conn()
    TRIGGERS.apply(recorder, TriggerPlan((compared(compiled_link(), installed()),)), 5.0)
    looked, made, checked, enabled = [statement for statement, _ in recorder.run[1:5]]
    assert "FROM all_triggers" in looked
    assert re.search(r"\nFOR EACH ROW\nDISABLE\nDECLARE\n", made)
    assert "FROM all_errors" in checked
    assert enabled == 'ALTER TRIGGER "APP"."TGR_LINK_I_1" ENABLE'
    compound = next(statement for statement, _ in recorder.run if "COMPOUND TRIGGER" in statement)
    assert re.search(r'\nFOR UPDATE ON "APP"."LINK"\nDISABLE\nCOMPOUND TRIGGER\n', compound)


def test_a_trigger_that_is_there_goes_on_to_fire_while_it_is_replaced() -> None:
    statement = compiled_link()[0].triggers[0].statement
    recorder = conn([(1,)])
    DIALECT.open(recorder).run(statement)
    assert [one for one, _ in recorder.run][1] == statement
    assert not any("ENABLE" in one for one, _ in recorder.run)


@pytest.mark.parametrize("name", WATCHES)
def test_every_trigger_can_be_made_disabled(name: str) -> None:
    for statement in triggers_on(*WATCHES[name]):
        assert disabled(statement).replace("\nDISABLE\n", "\n", 1) == statement


def test_the_dictionary_is_asked_for_the_declared_tables_and_those_of_ours() -> None:
    ours = all_there(compiled_link())
    tables, rows, *rest = rows_of_dictionary(*ours, foreign())
    recorder = conn(tables, rows, [], *rest)
    found = TRIGGERS.all_triggers(recorder, [("APP", "LINK"), ("APP", "EMP"), ("OTHER", "T")])
    assert [one.name for one in found] == [*(one.name for one in ours), "BILL"]
    marked, triggers, *_ = recorder.run
    assert "all_source" not in marked[0]
    assert triggers[1] == {
        "owner": "APP",
        **{f"n{place}": ("EMP" if not place else "LINK") for place in range(10)},
    }
    assert not any("LIKE" in statement for statement, _ in recorder.run[1:])
    assert [
        binds["owner"] for statement, binds in recorder.run if "table_name IN" in statement
    ] == ["APP", "OTHER"]


def test_a_trigger_that_does_not_compile_is_dropped_and_reported() -> None:
    recorder = conn([], [], [], [(3, 7, "PL/SQL: ORA-00942: table or view does not exist")])
    with pytest.raises(
        DatabaseError,
        match=r"trigger APP\.TGR_LINK_I_1 does not compile: line 3, column 7.*was dropped",
    ):
        TRIGGERS.apply(recorder, TriggerPlan((compared(compiled_link(), installed()),)), 5.0)
    assert "DROP TRIGGER" in recorder.run[-1][0]


def test_a_function_that_does_not_compile_fails_the_migration() -> None:
    recorder = conn([], [(2, 1, "PLS-00201: identifier 'UTL_ENCODE' must be declared")])
    with pytest.raises(
        DatabaseError,
        match=r"function LOGS\.PROC_EVENTLOG_BASE64 does not compile: line 2.*run the command again",
    ):
        DIALECT.open(recorder).run(create_functions(LOG)[1])
    assert "DROP" not in recorder.run[-1][0]


def test_a_log_is_known_for_ours_by_its_sequence_when_its_migration_broke_off() -> None:
    assert DIALECT.open(conn([(1,)])).log(LOG).is_half_made()
    recorder = conn([])
    assert not DIALECT.open(recorder).log(LOG).is_half_made()
    assert recorder.run[0][1] == {"owner": "LOGS", "name": "SEQ_EVENTLOG_1"}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(5.0, 5), (0.2, 1), (0, 1_000_000), (10**9, 1_000_000)]
)
def test_ddl_waits_as_long_as_configured(seconds: float, expected: int) -> None:
    assert ddl_lock_timeout(seconds) == f"ALTER SESSION SET DDL_LOCK_TIMEOUT = {expected}"


def test_nothing_to_do_is_a_comment() -> None:
    assert TRIGGERS.script(TriggerPlan(()), 5.0).startswith("-- Nothing to do")


def test_a_name_that_would_end_a_statement_of_the_script_is_refused() -> None:
    action = compared(compiled_link(), installed())
    broken = type(action)("create", "T", "", (action.statements[0].replace("LINK", "A\n/\nB"),))
    with pytest.raises(TriggerError, match="without --sql"):
        TRIGGERS.script(TriggerPlan((broken,)), 5.0)


def types_of(watched: Table, field: str = "table_key") -> set[str]:
    """The types of a field of the log rows that the triggers of a table keep."""
    database_ = type(DATABASE)("oracle", "APP", (watched,))
    declared, _, _ = declared_triggers(
        database_, build_catalog(database_), [WatchedTable(watched.name)]
    )
    (made,) = TRIGGERS.compile_declared("APP", LOG, declared)
    found = [
        re.search(rf"^        {field} ([^,\n]+)", one.statement, re.MULTILINE)
        for one in made.triggers
    ]
    return {one[1] for one in found if one is not None}


def test_texts_whose_length_is_known_are_bound_as_what_sql_takes() -> None:
    # Beyond 4000 bytes a text of PL/SQL is bound as a LONG.
    short = table("T", [number("K"), text("V", 4000), column("N", "NVARCHAR2", 2000)], ["K"])
    assert types_of(short) == types_of(short, "new_value") == {"VARCHAR2(4000)"}
    long = table("T", [text("K", 2000), text("V", 4001)], ["K"])
    assert types_of(long) == {"VARCHAR2(32767)"}
    assert types_of(long, "new_value") == {"CLOB", "VARCHAR2(4000)"}  # a DELETE logs no value
    characters = table(
        "T", [number("K"), Column("V", ColumnType(Kind.CHARACTER, 0, "varchar(1001)"))], ["K"]
    )
    assert "CLOB" in types_of(characters, "new_value")
    unknown = table(
        "T", [number("K"), Column("V", ColumnType(Kind.CHARACTER, 0, "varchar"))], ["K"]
    )
    assert types_of(unknown, "old_value") == {"VARCHAR2(32767)", "VARCHAR2(4000)"}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('CASE  "STATUS" WHEN \'N\' THEN "RECORD_ID" END ', 0),  # as the dictionary spells it
        ('CASE "STATUS" WHEN \'S\' THEN "RECORD_ID" END', 1),
        (None, 1),
    ],
)
def test_the_index_of_the_queue_is_the_one_that_the_statements_look_for(
    key: str | None, said: int
) -> None:
    columns = [
        ("PK", 1, "RECORD_ID", None),
        ("OLD", 1, "STATUS", None),
        ("OLD", 1, "RECORD_ID", None),
    ]
    rows = [*columns, ("NEW", 1, "SYS_NC00011$", key)] if key else columns
    answers = session.ANSWERS["indexes"](DIALECT.open(conn(rows)).log(LOG))
    found = list(judge_indexes(answers, LOG, DIALECT.quote, ["CREATE ..."], [], by_expression=True))
    assert [one.code for one in found] == ["index_missing"] * said


def test_every_statement_of_the_queue_asks_for_the_expression_of_its_index() -> None:
    expression = 'CASE "STATUS" WHEN \'N\' THEN "RECORD_ID" END'
    assert f"({expression})" in DIALECT.create_queue_index(LOG)
    windows = (Window(1, None, None), Window(1, None, None, "ANN"))
    for statement in (
        *(DIALECT.window_statement(LOG, window, LOG_COLUMNS) for window in windows),
        *(DIALECT.log_statement(LOG, name) for name in ("read_due", "queue", "mark", "delete")),
    ):
        assert f"WHERE {expression}" in statement
        assert "\"STATUS\" = 'N'" not in statement
