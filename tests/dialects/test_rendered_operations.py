"""Operations as a migration holds them: written and read again."""

from __future__ import annotations

import ast
import io
import re

import pytest
from alembic.autogenerate import render_python_code
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import UpgradeOps
from alembic.runtime.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.catalog import Column, Database, ForeignKey, Table
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, EventlogError, TriggerError
from eventlog.sql.migrations import run_or_print
from eventlog.sql.migrations.operations import (
    TEMPLATE_VERSION,
    CreateEventLogOp,
    DropEventLogOp,
    UnwatchTableOp,
    WatchDefinition,
    WatchTableOp,
    compile_definition,
    from_literals,
    with_tables,
)
from eventlog.sql.triggers.watch import WatchedTable

STYLES = ("field", "remove_all", "field_query_back", "row_query_back")

# --- operations as text ---------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
TYPES = st.builds(ColumnType, st.sampled_from(Kind), st.sampled_from([0, 16, 32, 64]), NAMES)
COLUMNS = st.builds(Column, NAMES, TYPES, st.booleans())
LISTS = st.lists(NAMES, max_size=3).map(tuple)
TABLES = st.builds(
    Table,
    NAMES,
    st.sampled_from(["table", "view"]),
    st.lists(COLUMNS, max_size=3).map(tuple),
    LISTS,
    st.lists(st.builds(ForeignKey, LISTS, NAMES, LISTS), max_size=2).map(tuple),
    st.lists(LISTS, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
)
WATCHES = st.builds(
    WatchedTable,
    NAMES,
    st.sampled_from(STYLES),
    st.sampled_from(["row", "statement"]),
    st.none() | LISTS,
    LISTS,
    LISTS,
    LISTS,
    st.none() | st.dictionaries(NAMES, st.dictionaries(NAMES, NAMES, max_size=2), max_size=2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
)
DEFINITIONS = st.builds(
    WatchDefinition,
    WATCHES,
    NAMES,
    st.none() | NAMES,
    st.none() | NAMES,
    st.none() | st.lists(TABLES, max_size=3).map(tuple),
    st.integers(1, 9),
    st.dictionaries(NAMES, st.lists(st.lists(NAMES, max_size=2), max_size=2), max_size=2),
)


@given(DEFINITIONS)
def test_a_definition_is_the_same_after_writing_and_reading_it(definition: WatchDefinition) -> None:
    table, keywords = definition.arguments()
    assert from_literals(table, ast.literal_eval(repr(keywords))) == definition


@given(DEFINITIONS)
def test_rendered_operations_are_the_operations(definition: WatchDefinition) -> None:
    for operation in (WatchTableOp(definition), UnwatchTableOp(definition)):
        assert rerun(operation).definition == definition  # type: ignore[attr-defined]
        assert isinstance(operation.reverse().reverse(), type(operation))


def test_rendered_operations_of_the_log_are_the_operations() -> None:
    for kind in (CreateEventLogOp, DropEventLogOp):
        operation = kind('"Ev.log"', "hr", ("internal_2", "log_2"), ("log_1",))
        assert vars(rerun(operation)) == vars(operation)
        assert vars(operation.reverse()) == vars(operation)


def rerun(operation: MigrateOperation) -> MigrateOperation:
    """What the rendered text of an operation invokes."""

    class Recorder(Operations):
        def __init__(self) -> None:
            self.invoked: list[MigrateOperation] = []

        def invoke(self, operation: MigrateOperation) -> None:  # type: ignore[override]
            self.invoked.append(operation)

    text = render_python_code(UpgradeOps([operation]))
    recorder = Recorder()
    exec(re.sub(r"^    ", "", text, flags=re.MULTILINE), {"op": recorder})
    (found,) = recorder.invoked
    return found


def test_an_argument_that_is_unknown_is_named() -> None:
    with pytest.raises(TriggerError, match=r"watch_table\('usr'\): unknown argument 'stile'"):
        from_literals("usr", {"stile": "field"})
    with pytest.raises(
        TriggerError,
        match="watch usr: row_style 'fields' is not one of field, remove_all, field_query",
    ):
        from_literals("usr", {"row_style": "fields"})
    with pytest.raises(TriggerError, match="'columns' of `tables` is missing or invalid"):
        from_literals("usr", {"tables": [{"name": "usr"}]})


# --- what cannot be compiled ----------------------------------------------------------------------


def test_a_version_that_is_not_there_yet_is_refused() -> None:
    definition = WatchDefinition(
        WatchedTable("usr"), "eventlog", "hr", "hr", (), TEMPLATE_VERSION + 1
    )
    with pytest.raises(
        ConfigError, match="watch usr: template_version 2 is unknown; this version supports only 1"
    ):
        compile_definition(definition, "postgresql")


def test_a_watch_of_no_table_is_refused() -> None:
    definition = WatchDefinition(WatchedTable("nobody"), "eventlog", "hr", "hr", None)
    with pytest.raises(
        EventlogError, match="watch nobody: there is no such table; create it before it is watched"
    ):
        with_tables(definition, Database("postgresql", "hr", ()))


def test_a_printed_statement_has_its_percent_signs_and_colons_as_they_stand() -> None:
    printed = io.StringIO()
    # As an env.py may have it: without its own paramstyle, under which SQLAlchemy doubles percent
    # signs.
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": printed}
    )
    statement = "DO $$ BEGIN EXECUTE format('DROP TRIGGER %I ON %s', 'a:b'::text, 1); END $$"
    run_or_print(context, [statement])
    assert printed.getvalue() == f"{statement};\n\n"
