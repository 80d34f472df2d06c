"""A snapshot of PostgreSQL proves what was read with it (spec/event-log.md 12.3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from eventlog.errors import SnapshotOutdated
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.snapshot_proof import SnapshotProof

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, a varchar(50), n int);
INSERT INTO t SELECT i, 'v' || i, i FROM generate_series(1, 5) i;
CREATE TABLE other (id int PRIMARY KEY, a varchar(50), n int);
INSERT INTO other VALUES (7, 'other', 7);
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
CREATE TABLE parts (id int PRIMARY KEY, a text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (1) TO (10);
CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
INSERT INTO parts SELECT i, 'p' FROM generate_series(1, 19) i;
CREATE TABLE loose (id int PRIMARY KEY, a text);
INSERT INTO loose VALUES (20, 'l');
CREATE TABLE parent (id int, a text);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE stranger (id int, a text);
INSERT INTO child VALUES (1, 'c');
INSERT INTO stranger VALUES (2, 's');
CREATE VIEW of_other AS SELECT id, a FROM other;
CREATE MATERIALIZED VIEW stored AS SELECT id, a FROM other;
CREATE VIEW of_stored AS SELECT * FROM stored;
CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql STABLE AS 'BEGIN RETURN (SELECT count(*) FROM other); END';
"""


def _fill(engine: Engine) -> None:
    with engine.begin() as conn:
        run(conn, TABLES)


@pytest.fixture
def engine(filled_database: Any) -> Iterator[Engine]:
    with filled_database(_fill) as database:
        yield database


def run(conn: Connection, *statements: str) -> None:
    for statement in statements:
        conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction of one snapshot."""
    with engine.connect() as conn:
        yield conn.execution_options(**DIALECT.snapshot_options)


def proof(engine: Engine, read: str, *changes: str) -> SnapshotProof:
    """The proof of a session that joins a snapshot after these changes, and then reads."""
    with reading(engine) as holder:
        snapshot = DIALECT.open(holder).export_snapshot()
        with engine.begin() as other:
            run(other, *changes)
        with reading(engine) as reader:
            DIALECT.open(reader).join_snapshot(snapshot)
            run(reader, read)
            return DIALECT.open(reader).prove_snapshot()


def changed(found: SnapshotProof) -> list[tuple[str, str]]:
    return [(one.name, one.why) for one in found.changed]


READ_T = "SELECT count(*) FROM t"

CHANGES = {
    "a type with USING": (READ_T, ["ALTER TABLE t ALTER a TYPE varchar(60) USING (a || '')"], [("t", "rewritten")]),
    "int to bigint": (READ_T, ["ALTER TABLE t ALTER n TYPE bigint"], [("t", "rewritten")]),
    "a volatile default": (READ_T, ["ALTER TABLE t ADD x float DEFAULT random()"], [("t", "rewritten")]),
    "SET LOGGED": ("SELECT count(*) FROM unlogged", ["ALTER TABLE unlogged SET LOGGED"], [("unlogged", "rewritten")]),
    "TRUNCATE": (READ_T, ["TRUNCATE t"], [("t", "rewritten")]),
    "a swap with an older table": (READ_T, ["ALTER TABLE t RENAME TO was", "ALTER TABLE other RENAME TO t"], [("t", "renamed")]),
    "a swap with a new table": (READ_T, ["CREATE TABLE new (LIKE t)", "ALTER TABLE t RENAME TO was", "ALTER TABLE new RENAME TO t"], [("t", "created")]),
    "DROP and CREATE": (READ_T, ["DROP TABLE t", "CREATE TABLE t (id int)"], [("t", "created")]),
    "a swap of schemas": ("SELECT count(*) FROM public.t", ["CREATE SCHEMA two", "CREATE TABLE two.t ()", "ALTER SCHEMA public RENAME TO was", "ALTER SCHEMA two RENAME TO public"], [("t", "created")]),
    "a move to another schema": ("SELECT count(*) FROM two.t", ["CREATE SCHEMA two", "ALTER TABLE t SET SCHEMA two"], [("t", "renamed")]),
    "a column that was made again": (READ_T, ["ALTER TABLE t DROP a", "ALTER TABLE t ADD a text"], [("t", "columns")]),
    "columns that swapped their names": (READ_T, ["ALTER TABLE t RENAME a TO x", "ALTER TABLE t RENAME n TO a"], [("t", "columns")]),
    "DETACH": ("SELECT count(*) FROM parts", ["ALTER TABLE parts DETACH PARTITION p1"], [("parts", "children")]),
    "DETACH, and ATTACH again": ("SELECT count(*) FROM parts", ["ALTER TABLE parts DETACH PARTITION p1", "ALTER TABLE parts ATTACH PARTITION p1 FOR VALUES FROM (1) TO (10)"], [("p1", "columns"), ("parts", "children")]),
    "a dropped partition": ("SELECT count(*) FROM parts", ["DROP TABLE p1"], [("parts", "children")]),
    "a truncated partition": ("SELECT count(*) FROM parts", ["TRUNCATE p1"], [("p1", "rewritten")]),
    "ATTACH": ("SELECT count(*) FROM parts", ["ALTER TABLE parts ATTACH PARTITION loose FOR VALUES FROM (20) TO (30)"], [("loose", "columns")]),
    "a new partition": ("SELECT count(*) FROM parts", ["CREATE TABLE p3 PARTITION OF parts FOR VALUES FROM (20) TO (30)"], [("p3", "created")]),
    "NO INHERIT": ("SELECT count(*) FROM parent", ["ALTER TABLE child NO INHERIT parent"], [("parent", "children")]),
    "INHERIT": ("SELECT count(*) FROM parent", ["ALTER TABLE stranger INHERIT parent"], [("stranger", "columns")]),
    "a table of a view": ("SELECT count(*) FROM of_other", ["TRUNCATE other"], [("other", "rewritten")]),
    "a table of a function": ("SELECT counted()", ["TRUNCATE other"], [("other", "rewritten")]),
    "a materialized view of a view": ("SELECT count(*) FROM of_stored", ["REFRESH MATERIALIZED VIEW stored"], [("stored", "rewritten")]),
    "another definition": ("SELECT count(*) FROM of_other", ["CREATE OR REPLACE VIEW of_other AS SELECT id, a FROM other WHERE id < 3"], [("of_other", "definition")]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_snapshot_is_found(engine: Engine, change: str) -> None:
    read, statements, found = CHANGES[change]
    assert changed(proof(engine, read, *statements)) == found


HARMLESS = {
    "changes of rows": ["UPDATE t SET n = 0", "DELETE FROM t WHERE id = 1"],
    "a new column": ["ALTER TABLE t ADD x int DEFAULT 5"],
    "an index": ["CREATE INDEX ON t (a)", "REINDEX TABLE t"],
    "a right": ["GRANT SELECT ON t TO PUBLIC"],
    "a change of a table that was not read": ["TRUNCATE other"],
    "statistics": ["ANALYZE t"],
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_change_that_takes_no_row_from_the_snapshot_is_no_difference(
    engine: Engine, change: str
) -> None:
    assert proof(engine, READ_T, *HARMLESS[change]) == SnapshotProof()


ROLLED_BACK = [
    "ALTER TABLE t ALTER n TYPE bigint",
    "ALTER TABLE t ALTER a SET STATISTICS 5",
    "ALTER TABLE parts DETACH PARTITION p1",
    "ALTER TABLE child NO INHERIT parent",
    "CREATE OR REPLACE VIEW of_other AS SELECT id, a FROM other WHERE id < 3",
]
READ_ALL = "SELECT FROM t, parts, parent, of_other"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_that_was_rolled_back_is_no_difference(engine: Engine, when: str) -> None:
    """It leaves its number in the rows of the catalogue."""
    statements = ["SAVEPOINT s", *ROLLED_BACK, "ROLLBACK TO s"]
    if when == "before":
        with engine.begin() as conn:
            run(conn, *statements)
    assert proof(engine, READ_ALL, *statements) == SnapshotProof()


def test_a_change_before_the_snapshot_is_no_difference(engine: Engine) -> None:
    with engine.begin() as conn:
        run(conn, *ROLLED_BACK)
    assert proof(engine, READ_ALL) == SnapshotProof()


def test_a_snapshot_that_waited_for_an_alter_is_not_proven(engine: Engine) -> None:
    """A statement has its snapshot before it waits for the lock, and reads the new table with it."""
    with reading(engine) as reader:
        run(reader, "SELECT 1")  # takes the snapshot
        with engine.begin() as other:
            run(other, "ALTER TABLE t ALTER n TYPE bigint")
        assert reader.exec_driver_sql(READ_T).scalar_one() == 0
        assert changed(DIALECT.open(reader).prove_snapshot()) == [("t", "rewritten")]


def test_a_table_cannot_change_between_its_reading_and_the_proof(engine: Engine) -> None:
    with reading(engine) as reader:
        run(reader, READ_T)
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"), engine.begin() as other:
            run(other, "SET LOCAL lock_timeout = '10ms'", "TRUNCATE t")
        assert DIALECT.open(reader).prove_snapshot() == SnapshotProof()


def test_each_statement_of_a_transaction_is_proven(engine: Engine) -> None:
    """A proof in the middle of a transaction does not hide what a later statement meets."""
    with reading(engine) as reader:
        run(reader, "SELECT FROM other")
        db = DIALECT.open(reader)
        assert db.prove_snapshot() == SnapshotProof()
        with engine.begin() as other:
            run(other, "TRUNCATE t")
        run(reader, READ_T)
        assert changed(db.prove_snapshot()) == [("t", "rewritten")]


def test_a_foreign_table_is_reported_apart(engine: Engine) -> None:
    with engine.begin() as conn:
        run(
            conn,
            "CREATE FOREIGN DATA WRAPPER nothing",
            "CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing",
            "CREATE FOREIGN TABLE far (line text) SERVER nowhere",
            "CREATE VIEW of_far AS SELECT line FROM far",
        )
    # Without a handler nothing can be read, but preparing the statement locks the same tables.
    found = proof(engine, "PREPARE far AS SELECT line FROM of_far")
    assert [str(one) for one in found.foreign] == [
        "public.far is a foreign table, which has no database snapshot"
    ]
    found.refuse_changed()


def test_the_refusal_names_the_table_and_what_to_do(engine: Engine) -> None:
    found = proof(engine, READ_T, "TRUNCATE t")
    with pytest.raises(SnapshotOutdated, match=r"public\.t was rewritten .* run the command again"):
        found.refuse_changed()
