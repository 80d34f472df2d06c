"""`eventlog db`: the log and its internal tables are made, brought up to date and taken away
without a trace.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import opened_log
from sqlalchemy import Connection, Engine

from eventlog.errors import ConfigError, DatabaseError, LogTableError
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.doctor.log import judge_indexes
from eventlog.sql.log.internal_tables import next_number
from eventlog.sql.port import questions
from eventlog.sql.port.log_operations import Window

CATALOGUE = """
SELECT 'class', relnamespace::regnamespace || '.' || relname || ' ' || relkind::text FROM pg_class
UNION ALL SELECT 'proc', oid::regprocedure::text FROM pg_proc
UNION ALL SELECT 'type', typnamespace::regnamespace || '.' || typname FROM pg_type
UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname FROM pg_constraint
UNION ALL SELECT 'description', objoid || ' ' || objsubid || ' ' || description FROM pg_description
UNION ALL SELECT 'namespace', nspname FROM pg_namespace
UNION ALL SELECT 'trigger', tgname FROM pg_trigger
ORDER BY 1, 2
"""


def catalogue(conn: Connection) -> set[tuple[str, str]]:
    """What the database has, but for the TOAST tables that are named after OIDs."""
    return {
        (row[0], row[1]) for row in conn.execute(sa.text(CATALOGUE)) if "pg_toast" not in row[1]
    }


def names(catalogue: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """A catalogue without the descriptions, which are found by OIDs."""
    return {what for what in catalogue if what[0] != "description"}


NAMES = [
    ("eventlog", "public"),
    ("EventLog", "public"),
    ('"My ""Log"" %s :x"', "public"),
    ('"журнал.событий"', "Схема ä"),
    ("l" * 63, "s" * 63),
    ("ж" * 31, "public"),
]


@pytest.mark.parametrize(("log_table", "schema"), NAMES, ids=range(len(NAMES)))
def test_a_downgrade_leaves_the_catalogue_as_it_was(
    database: Engine, log_table: str, schema: str
) -> None:
    with database.connect() as conn:
        if schema != "public":
            conn.execute(sa.text(f'CREATE SCHEMA "{schema}"'))
        before = catalogue(conn)
        migrations.upgrade(conn, log_table=log_table, schema=schema)
        made = catalogue(conn)
        assert made > before
        assert migrations.current(conn, log_table=log_table, schema=schema) == migrations.heads()
        log = locate_log(DIALECT.open(conn), name=log_table, schema=schema)
        assert next_number(opened_log(conn, log)) == 1
        migrations.upgrade(conn, log_table=log_table, schema=schema)
        assert catalogue(conn) == made
        migrations.downgrade(conn, log_table=log_table, schema=schema)
        assert catalogue(conn) == before
        assert migrations.current(conn, log_table=log_table, schema=schema) == ()


def test_the_log_is_as_the_specification_requires(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    inspector = sa.inspect(database)
    columns = {column["name"]: column for column in inspector.get_columns("eventlog")}
    assert {
        name: (str(column["type"]), column["nullable"]) for name, column in columns.items()
    } == {
        "record_id": ("BIGINT", False),
        "status": ("CHAR(1)", False),
        "event_type": ("SMALLINT", False),
        "event_time": ("TIMESTAMP", False),
        "perpetrator": ("TEXT", True),
        "table_name": ("TEXT", False),
        "table_key": ("TEXT", False),
        "column_name": ("TEXT", True),
        "old_value": ("TEXT", True),
        "new_value": ("TEXT", True),
    }
    assert columns["record_id"]["identity"]["cache"] == 1
    assert inspector.get_pk_constraint("eventlog")["constrained_columns"] == ["record_id"]
    (index,) = inspector.get_indexes("eventlog")
    assert (index["name"], index["column_names"]) == ("idx_eventlog_1", ["record_id"])
    with database.connect() as conn:
        assert (
            conn.execute(sa.text("SELECT pg_get_indexdef('idx_eventlog_1'::regclass)"))
            .scalar_one()
            .endswith(
                "WHERE ((status = 'N'::bpchar) OR ((status <> 'S'::bpchar) AND (status !~ "
                "'^[A-Za-z]$'::text) AND proc_eventlog_status(status)))"
            )
        )
        assert inspector.get_check_constraints("eventlog") == []


def test_everything_is_described(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    inspector = sa.inspect(database)
    for table in ("eventlog", "eventlog_error", "eventlog_inflight"):
        assert inspector.get_table_comment(table)["text"], table
        for column in inspector.get_columns(table):
            assert column["comment"], f"{table}.{column['name']}"


ROW = (
    "INSERT INTO eventlog (event_type, table_name, table_key{more}) VALUES ({type}, 'usr', "
    "'idu=1'{value})"
)


def test_a_row_gets_what_its_writer_leaves_out(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        conn.execute(sa.text("SET TimeZone = 'Asia/Tokyo'"))
        conn.execute(sa.text(ROW.format(more="", type=4, value="")))
        log = locate_log(DIALECT.open(conn), name="eventlog")
        (row,) = DIALECT.open(conn).log(log).read_window(Window(0, None, None))
        assert (row.record_id, row.status, row.perpetrator) == (1, "N", None)
        assert 0 <= (DIALECT.open(conn).log(log).queue("utc").oldest_seconds or -1) < 60


@pytest.mark.parametrize(
    "values",
    [
        {"type": "NULL"},
        *({"type": 1, "status": f"'{letter}'"} for letter in (" ", "", "1", "[", "é", "\t", "_")),
        {"type": 1, "status": "NULL"},
    ],
)
def test_rows_that_nobody_would_read_are_refused(
    database: Engine, values: dict[str, object]
) -> None:
    migrations.upgrade(database, log_table="eventlog")
    more = ", status" if "status" in values else ""
    value = f", {values['status']}" if more else ""
    with database.connect() as conn, pytest.raises(sa.exc.IntegrityError):
        conn.execute(sa.text(ROW.format(more=more, type=values["type"], value=value)))


def test_a_status_that_is_no_letter_is_refused_and_named(database: Engine) -> None:
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        conn.execute(
            sa.text(ROW.format(more=", status", type=1, value=", 'x'"))
        )  # any status is one
        conn.commit()
        for letter in ("", "7"):
            refused = r"the status of a row of eventlog must be a letter[\s\S]*It is '7?'\."
            with pytest.raises(sa.exc.IntegrityError, match=refused):
                conn.execute(sa.text("UPDATE eventlog SET status = :letter"), {"letter": letter})
            conn.rollback()
        assert conn.execute(sa.text("SELECT status FROM eventlog")).scalars().all() == ["x"]


def test_a_row_of_no_type_is_there_to_be_marked(database: Engine) -> None:
    """It is read, and becomes E (spec/event-log.md 5), in place of an error of the application's
    statement.
    """
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        for event_type in (0, 9):
            conn.execute(sa.text(ROW.format(more="", type=event_type, value="")))
        log = locate_log(DIALECT.open(conn), name="eventlog")
        assert [
            row.event_type for row in DIALECT.open(conn).log(log).read_window(Window(0, None, None))
        ] == [0, 9]


def test_no_check_is_compiled_for_the_statements_of_writers_and_the_doctor_takes_the_guard(
    database: Engine,
) -> None:
    migrations.upgrade(database, log_table="eventlog")
    with database.connect() as conn:
        log = locate_log(DIALECT.open(conn), name="eventlog")
        columns = questions.ask(opened_log(conn, log), "indexes", questions.row)
        assert list(judge_indexes(columns, log, DIALECT.quote, (), ())) == []
        found = (
            "SELECT conname FROM pg_constraint WHERE conrelid = 'eventlog'::regclass AND contype "
            "= 'c'"
        )
        assert conn.execute(sa.text(found)).all() == []


@pytest.mark.parametrize("branch", ["log", "internal"])
def test_a_branch_alone_is_taken_away_and_made_again(database: Engine, branch: str) -> None:
    with database.connect() as conn:
        migrations.upgrade(conn, log_table="eventlog")
        made = catalogue(conn)
        migrations.downgrade(conn, log_table="eventlog", revision=f"{branch}@base")
        (left,) = migrations.current(conn, log_table="eventlog")
        assert left == {"log": "internal_7", "internal": "log_1"}[branch]
        migrations.upgrade(conn, log_table="eventlog")
        assert names(catalogue(conn)) == names(made)


def test_the_way_back_from_a_log_that_is_gone(database: Engine) -> None:
    with database.connect() as conn:
        before = catalogue(conn)
        migrations.upgrade(conn, log_table="eventlog")
        conn.execute(sa.text("DROP TABLE eventlog"))
        migrations.downgrade(conn, log_table="eventlog")
        assert catalogue(conn) == before


@pytest.mark.parametrize("log_table", ["eventlog", '"My ""Log"" %s :x"', "l" * 63])
def test_the_printed_sql_does_the_same(database: Engine, log_table: str) -> None:
    with database.connect() as conn:
        before = catalogue(conn)
        migrations.upgrade(conn, log_table=log_table)
        by_us = catalogue(conn)
        conn.rollback()

        printed = io.StringIO()
        migrations.upgrade(None, log_table=log_table, sql=printed, dialect_name="postgresql")
        script(conn, printed.getvalue())
        assert names(catalogue(conn)) == names(by_us)
        assert migrations.current(conn, log_table=log_table) == migrations.heads()
        migrations.upgrade(conn, log_table=log_table)  # nothing more to do
        conn.rollback()

        printed = io.StringIO()
        migrations.downgrade(database, log_table=log_table, sql=printed)
        script(conn, printed.getvalue())
        assert catalogue(conn) == before


def script(conn: Connection, sql: str) -> None:
    """Run SQL as psql does: text with its own BEGIN and COMMIT."""
    conn.commit()
    driver = conn.connection.driver_connection
    assert driver is not None
    driver.set_autocommit(True)
    driver.execute(sql)
    driver.set_autocommit(False)


def test_a_connections_transaction_is_its_callers(database: Engine) -> None:
    with database.connect() as conn:
        migrations.upgrade(conn, log_table="eventlog")
        conn.rollback()
        assert migrations.current(conn, log_table="eventlog") == ()
        assert not sa.inspect(conn).has_table("eventlog")


def test_a_log_of_somebody_else_gets_its_internal_tables_alone(database: Engine) -> None:
    with database.connect() as conn:
        conn.execute(sa.text("CREATE TABLE theirs (LIKE pg_class)"))
        before = catalogue(conn)
        migrations.upgrade(conn, log_table="theirs", existing_log=True)
        new = {name for what, name in catalogue(conn) - before if what == "class"}
        assert new >= {
            "public.theirs_error r",
            "public.theirs_inflight r",
            "public.theirs_delivery S",
        }
        (reached,) = migrations.current(conn, log_table="theirs")
        assert reached in migrations.heads()
        migrations.upgrade(conn, log_table="theirs", existing_log=True)
        migrations.downgrade(conn, log_table="theirs")
        assert catalogue(conn) == before


def test_a_table_that_is_not_ours_is_not_taken_for_the_log(database: Engine) -> None:
    with database.connect() as conn:
        conn.execute(sa.text("CREATE TABLE eventlog (x integer)"))
        with pytest.raises(LogTableError, match=r"public\.eventlog already exists.*--existing-log"):
            migrations.upgrade(conn, log_table="eventlog")
        with pytest.raises(LogTableError, match=r"there is no log public\.theirs"):
            migrations.upgrade(conn, log_table="theirs", existing_log=True)


def test_the_schema_must_exist(database: Engine) -> None:
    with pytest.raises(DatabaseError, match="there is no schema 'indirect' for the log: create it"):
        migrations.upgrade(database, log_table="eventlog", schema="indirect")
    with pytest.raises(DatabaseError, match="there is no schema 'hr' for the log"):
        migrations.upgrade(database, log_table="hr.eventlog", schema="public")


def test_an_unknown_revision_is_refused(database: Engine) -> None:
    with pytest.raises(ConfigError, match="Can't locate revision identified by '9999'"):
        migrations.upgrade(database, log_table="eventlog", revision="9999")
    with pytest.raises(ConfigError, match="neither a database nor a file"):
        migrations.upgrade(None, log_table="eventlog")


UNKNOWN = (
    r"the log public\.eventlog is at revision 0008, 0011, which this version of eventlog "
    r"does not support: if a newer version made the log, install that version\. .*`eventlog db "
    r"downgrade base`\); then create the log with `eventlog db upgrade`"
)


def test_a_log_of_another_version_is_left_alone_and_the_message_explains_what_to_do(
    database: Engine,
) -> None:
    with database.connect() as conn:
        migrations.upgrade(conn, log_table="eventlog")
        conn.execute(sa.text("DELETE FROM eventlog_version"))
        conn.execute(sa.text("INSERT INTO eventlog_version VALUES ('0008'), ('0011')"))
        before = catalogue(conn)
        for work in (migrations.upgrade, migrations.downgrade):
            with pytest.raises(LogTableError, match=UNKNOWN):
                work(conn, log_table="eventlog")
        assert catalogue(conn) == before
        assert migrations.current(conn, log_table="eventlog") == ("0008", "0011")


def test_a_database_of_the_tables_before_these_is_refused_and_loses_nothing(
    database: Engine,
) -> None:
    earlier = Path(__file__).parent / "earlier" / "companions_2.sql"
    with database.connect() as conn:
        conn.execute(sa.text("CREATE SCHEMA earlier"))
        conn.commit()
        statements = earlier.read_text().replace("BEGIN;", "", 1).replace("COMMIT;", "")
        conn.connection.cursor().execute(statements)
        conn.exec_driver_sql(
            "INSERT INTO earlier.eventlog_inflight (flight_no, composition) VALUES (7, '{}')"
        )
        conn.commit()
        for work in (migrations.upgrade, migrations.downgrade):
            with pytest.raises(LogTableError) as refused:
                work(conn, log_table="eventlog", schema="earlier")
            assert "use that version to publish the waiting rows" in str(refused.value)
            assert "the 1 row of eventlog_inflight would be lost" in str(refused.value)
        left = conn.exec_driver_sql("SELECT flight_no FROM earlier.eventlog_inflight")
        assert left.scalars().all() == [7]


def test_two_logs_live_in_one_schema(database: Engine) -> None:
    with database.connect() as conn:
        migrations.upgrade(conn, log_table="one")
        migrations.upgrade(conn, log_table="two")
        migrations.downgrade(conn, log_table="one")
        assert locate_log(DIALECT.open(conn), name="two").name == "two"
