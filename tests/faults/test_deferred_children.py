"""Child rows that are inserted before their owners (spec/triggers.md 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import install
from shared import url_of

from eventlog import cli
from eventlog.config.load import load

TABLES = (
    "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)",
    "CREATE TABLE usr_phone (idu integer CONSTRAINT owner REFERENCES usr ON UPDATE CASCADE "
    "ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, phoneno text, UNIQUE (idu, phoneno))",
)
PARTITIONED = (
    TABLES[0],
    TABLES[1] + " PARTITION BY LIST (idu)",
    "CREATE TABLE odd PARTITION OF usr_phone FOR VALUES IN (1, 3, 5, 7, 9)",
    "CREATE TABLE even PARTITION OF usr_phone DEFAULT",
)
PHONE = "INSERT INTO usr_phone VALUES (1, 'a')"
JACK = "INSERT INTO usr VALUES (1, 'Jack')"
LOGGED = "SELECT event_type, table_key, column_name, new_value FROM eventlog ORDER BY record_id"
NAME = (1, "idu=1", "fname", "Jack")
BACK = (8, "idu=1", "usr_phone.phoneno", None)

Row = tuple[int, str, str | None, str | None]


class Tables:
    """A class with a child table, whose rows may come before their owners."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    def transaction(self, *statements: str, isolation: str = "READ COMMITTED") -> None:
        with self.engine.connect().execution_options(isolation_level=isolation) as conn:
            for statement in statements:
                conn.exec_driver_sql(statement)
            conn.commit()

    def logged(self, *statements: str, isolation: str = "READ COMMITTED") -> list[Row]:
        """What a transaction of these statements logs."""
        self.transaction("DELETE FROM eventlog")
        self.transaction(*statements, isolation=isolation)
        return self.log()

    def log(self) -> list[Row]:
        with self.engine.connect() as conn:
            return [tuple(row) for row in conn.exec_driver_sql(LOGGED)]


def watched(engine: sa.Engine, tables: tuple[str, ...], **watch: Any) -> None:
    with engine.begin() as conn:
        for statement in tables:
            conn.exec_driver_sql(statement)
    install(load({"database": {"url": url_of(engine)}, "watch": [{"table": "usr", **watch}]}, {}))


def by_row(engine: sa.Engine) -> None:
    watched(engine, TABLES)


def by_statement(engine: sa.Engine) -> None:
    watched(engine, TABLES, trigger_level="statement")


def partitioned(engine: sa.Engine) -> None:
    watched(engine, PARTITIONED)


@pytest.fixture(params=[by_row, by_statement, partitioned])
def tables(filled_database: Any, request: pytest.FixtureRequest) -> Iterator[Tables]:
    with filled_database(request.param) as engine:
        yield Tables(engine)


def test_a_data_migration_may_alter_and_truncate_its_tables_in_one_transaction(
    tables: Tables,
) -> None:
    migrated = (PHONE, JACK, "UPDATE usr_phone SET phoneno = 'b'")
    for checked in ("ALL", "owner"):
        assert tables.logged(
            *migrated,
            f"SET CONSTRAINTS {checked} IMMEDIATE",
            "ALTER TABLE usr_phone ADD COLUMN note text",
            "ALTER TABLE usr_phone DROP COLUMN note",
            "TRUNCATE usr, usr_phone",
        )
        assert tables.log()[-1] in (BACK, (4, "idu=1", None, None))


def test_a_value_is_logged_after_the_rows_of_its_owner(tables: Tables) -> None:
    assert tables.logged(PHONE, JACK) == [NAME, BACK]
    assert tables.logged("INSERT INTO usr_phone VALUES (1, 'b')") == [
        (2, "idu=1", "usr_phone.phoneno", "b")
    ]


def test_only_the_rows_without_owner_are_logged_at_the_commit(tables: Tables) -> None:
    tables.transaction(JACK)
    assert tables.logged(
        "INSERT INTO usr_phone VALUES (1, 'a'), (2, 'b')", "INSERT INTO usr VALUES (2, 'Jill')"
    ) == [
        (2, "idu=1", "usr_phone.phoneno", "a"),
        (1, "idu=2", "fname", "Jill"),
        (8, "idu=2", "usr_phone.phoneno", None),
    ]


def test_a_value_that_moves_to_an_owner_to_come_leaves_its_owner_at_once(tables: Tables) -> None:
    tables.transaction(JACK, PHONE)
    found = tables.logged("UPDATE usr_phone SET idu = 3", "INSERT INTO usr VALUES (3, 'Jill')")
    assert sorted(found[:-1]) == [
        (1, "idu=3", "fname", "Jill"),
        (2, "idu=1", "usr_phone.phoneno", None),
    ]
    assert found[-1] == (8, "idu=3", "usr_phone.phoneno", None)


def test_an_update_does_not_overtake_the_insert_of_its_row(tables: Tables) -> None:
    change = "UPDATE usr_phone SET phoneno = phoneno || '+'"
    assert tables.logged(PHONE, change, JACK) == [NAME, BACK, BACK]


def test_a_rolled_back_subtransaction_logs_nothing(tables: Tables) -> None:
    other = "INSERT INTO usr_phone VALUES (2, 'x')"
    assert tables.logged(
        "SAVEPOINT one", PHONE, other, "ROLLBACK TO one", PHONE, "RELEASE one", JACK
    ) == [NAME, BACK]


def test_an_owner_that_another_session_inserts_comes_first(tables: Tables) -> None:
    with tables.engine.connect() as conn:
        conn.exec_driver_sql(PHONE)
        tables.transaction(JACK)
        conn.commit()
    assert tables.log() == [NAME, BACK]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level_logs_the_same(tables: Tables, isolation: str) -> None:
    assert tables.logged(PHONE, JACK, isolation=isolation) == [NAME, BACK]


def test_serializable_transactions_that_log_at_the_commit_do_not_meet(tables: Tables) -> None:
    one, two = (
        tables.engine.connect().execution_options(isolation_level="SERIALIZABLE") for _ in range(2)
    )
    with one, two:
        for conn, key in ((one, 1), (two, 2)):
            conn.exec_driver_sql(f"INSERT INTO usr_phone VALUES ({key}, 'a')")
        for conn, key in ((one, 1), (two, 2)):
            conn.exec_driver_sql(f"INSERT INTO usr VALUES ({key}, 'x')")
        one.commit()
        two.commit()
    assert len(tables.log()) == 4


def test_an_object_that_is_deleted_and_inserted_again_has_its_values_read_back(
    tables: Tables,
) -> None:
    found = tables.logged(PHONE, JACK, "DELETE FROM usr", PHONE, JACK)
    assert found == [NAME, (4, "idu=1", None, None), NAME, BACK, BACK]


def test_a_key_that_is_checked_at_once_refuses_what_it_refused(tables: Tables) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        tables.transaction("SET CONSTRAINTS owner IMMEDIATE", PHONE)
    with pytest.raises(sa.exc.IntegrityError):
        tables.transaction(PHONE)
    assert tables.log() == []


def test_many_values_leave_no_row_in_the_internal_table(tables: Tables) -> None:
    many = "SELECT n, 'x' FROM generate_series(1, 20000) AS n"
    found = tables.logged(f"INSERT INTO usr_phone {many}", f"INSERT INTO usr {many}")
    assert [one[0] for one in found] == [1] * 20_000 + [8] * 20_000
    with tables.engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM eventlog_deferred").scalar() == 0


def test_a_child_row_that_waits_follows_the_new_key_of_its_owner(tables: Tables) -> None:
    found = tables.logged(PHONE, JACK, "UPDATE usr SET idu = 5")
    moved = (2, "idu=5", "usr_phone.phoneno", "a")
    gone = (4, "idu=1", None, None)
    assert found == [NAME, gone, (1, "idu=5", "fname", "Jack"), moved, BACK]


def test_a_log_in_leaves_has_the_rows_of_the_commit(tables: Tables, tmp_path: Path) -> None:
    config = tmp_path / "eventlog.toml"
    config.write_text(f'[database]\nurl = "{url_of(tables.engine)}"\n[[watch]]\ntable = "usr"\n')
    command = ["--quiet", "--config", str(config), "db"]
    for conversion in (["partition", "--leaf-size", "2"], ["unpartition"]):
        assert cli.run([*command, *conversion]) == 0
        assert tables.logged(PHONE, JACK) == [NAME, BACK]
        tables.transaction("DELETE FROM usr")


def test_a_role_without_the_right_logs_at_once_as_before(tables: Tables) -> None:
    tables.transaction("DROP TABLE eventlog_deferred")
    assert tables.logged(PHONE, JACK) == [(2, "idu=1", "usr_phone.phoneno", "a"), NAME]


def replicated(engine: sa.Engine) -> None:
    watched(engine, TABLES, capture_replicated=True)


def test_replicated_rows_are_logged_at_the_commit_too(filled_database: Any) -> None:
    with filled_database(replicated) as engine:
        replica = "SET LOCAL session_replication_role = replica"
        assert Tables(engine).logged(replica, PHONE, JACK) == [NAME, BACK]
