"""Current rows of many keys in one statement (spec/event-log.md 7.2, spec/triggers.md 6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine

from eventlog.core.catalog import ObjectClass
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.table_key import key_text
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.dialects.postgresql.objects import objects_statement
from eventlog.sql.dialects.postgresql.text import array_of
from eventlog.sql.port.dialect import CurrentRow


@pytest.fixture
def conn(never_committed: Engine) -> Iterator[Connection]:
    """A session of ours; what it makes is rolled back."""
    with connect(never_committed.url).connect() as conn:
        yield conn


@pytest.fixture
def own(database: Engine) -> Iterator[Connection]:
    """A session of ours that may commit."""
    with connect(database.url).connect() as conn:
        yield conn


def run(conn: Connection, script: str) -> None:
    """Several statements, as they are written."""
    if not conn.in_transaction():
        conn.begin()
    driver = conn.connection.driver_connection
    assert driver is not None
    driver.execute(script)


def can(conn: Connection, statement: str) -> bool:
    """Whether this server was built with what the statement needs."""
    try:
        with conn.begin_nested():
            conn.execute(sa.text(statement))
    except sa.exc.DBAPIError:
        return False
    return True


def class_named(conn: Connection, name: str, schema: str = "public") -> ObjectClass:
    return build_catalog(DIALECT.open(conn).reflect(schema)).class_named(name)


def read(
    conn: Connection, name: str, keys: list[str], *attributes: str, schema: str = "public"
) -> dict[str, CurrentRow]:
    """What is read back of these attributes, or of all."""
    cls = class_named(conn, name, schema)
    by_name = {attribute.name: attribute for attribute in cls.attributes}
    wanted = [by_name[name] for name in attributes] if attributes else cls.attributes
    return DIALECT.open(conn).query_back(schema, cls, keys, wanted)


USR = """
CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(64), lname varchar(64));
CREATE TABLE usr_phone (idu integer REFERENCES usr, phoneno varchar(32));
CREATE TABLE usr_mail (idu integer REFERENCES usr, mail varchar(32));
INSERT INTO usr VALUES (1, 'John', NULL), (2, '', 'Doe'), (3, 'x', 'y');
INSERT INTO usr_phone VALUES (1, '555-2'), (1, '555-1'), (1, '555-1'), (1, NULL), (2, '7'), (NULL, '8');
INSERT INTO usr_mail VALUES (1, 'a'), (1, 'b'), (1, 'c');
"""


def test_objects_come_with_the_values_of_their_row_and_of_their_children(conn: Connection) -> None:
    run(conn, USR)
    found = read(
        conn,
        "usr",
        ["idu=2", "idu=1", "idu=3"],
        "lname",
        "usr_phone.phoneno",
        "fname",
        "usr_mail.mail",
    )
    assert list(found["idu=1"]) == ["lname", "usr_phone.phoneno", "fname", "usr_mail.mail"]
    # two child tables do not multiply each other's rows
    found["idu=1"] = {name: sorted(values, key=str) for name, values in found["idu=1"].items()}
    assert found == {
        "idu=1": {
            "lname": [None],
            "fname": ["John"],
            "usr_phone.phoneno": ["555-1", "555-1", "555-2", None],
            "usr_mail.mail": ["a", "b", "c"],
        },
        "idu=2": {"lname": ["Doe"], "fname": [""], "usr_phone.phoneno": ["7"], "usr_mail.mail": []},
        "idu=3": {"lname": ["y"], "fname": ["x"], "usr_phone.phoneno": [], "usr_mail.mail": []},
    }


def test_objects_that_are_gone_are_left_out(conn: Connection) -> None:
    run(conn, USR)
    assert read(conn, "usr", ["idu=1", "idu=4", "idu=-2147483648"], "fname") == {
        "idu=1": {"fname": ["John"]}
    }
    assert read(conn, "usr", [], "fname") == {}
    assert read(conn, "usr", ["idu=4"], "usr_phone.phoneno") == {}


def test_only_what_is_asked_for_is_read(conn: Connection) -> None:
    run(conn, USR)
    run(
        conn,
        "CREATE ROLE reader_%s; GRANT SELECT (idu, fname) ON usr TO reader_%s"
        % (2 * (conn.engine.url.database,)),
    )
    cls = class_named(conn, "usr")
    run(conn, f"SET ROLE reader_{conn.engine.url.database}")
    fname = next(attribute for attribute in cls.attributes if attribute.name == "fname")
    assert DIALECT.open(conn).query_back("public", cls, ["idu=1"], [fname]) == {
        "idu=1": {"fname": ["John"]}
    }
    assert DIALECT.open(conn).query_back("public", cls, ["idu=1", "idu=9"], []) == {"idu=1": {}}
    conn.rollback()


def test_key_columns_can_be_read(conn: Connection) -> None:
    run(conn, USR)
    assert read(conn, "usr", ["idu=2"], "idu") == {"idu=2": {"idu": ["2"]}}


def test_composite_keys_are_read_whole(conn: Connection) -> None:
    run(
        conn,
        """CREATE TABLE acc (branch varchar(30), num integer, owner text, PRIMARY KEY (branch,
        num));
           CREATE TABLE acc_note (num integer, branch varchar(30), note text,
                                  FOREIGN KEY (num, branch) REFERENCES acc (num, branch));
           INSERT INTO acc VALUES ('North West', 7, 'a'), ('North West', 8, 'b'), ('S', 7, 'c'),
           ('O''B"\\', 1, 'd'); INSERT INTO acc_note VALUES (7, 'North West', 'n1'), (7, 'S', 'n2'),
           (1, 'O''B"\\', 'n3')""",
    )
    keys = [
        key_text([("branch", branch), ("num", num)])
        for branch, num in [("North West", "7"), ("O'B\"\\", "1")]
    ]
    assert read(conn, "acc", [*keys, "branch=S+num=8"], "owner", "acc_note.note") == {
        keys[0]: {"owner": ["a"], "acc_note.note": ["n1"]},
        keys[1]: {"owner": ["d"], "acc_note.note": ["n3"]},
    }


# Key types: SQL type, a value, keys that mean it, keys that mean nothing
KEYS = [
    ("smallint", "7", ["7"], ["8", "-32768"]),
    ("bigint", "-9223372036854775808", ["-9223372036854775808"], ["9223372036854775807"]),
    (
        "numeric(30,0)",
        "123456789012345678901234567890",
        ["123456789012345678901234567890"],
        ["9" * 400, "9" * 140_000],
    ),
    ("numeric", "1.50", ["1.5"], ["1.4", "1." + "1" * 20_000, "9" * 140_000]),
    ("numeric(5,2)", "1.50", ["1.5"], ["1.501", "123456789.1"]),
    ("real", "0.1", ["0.1", "1e-1"], ["0.2", "NaN", "Infinity"]),
    ("double precision", "1e300", ["1e300", "1E+300"], ["-Infinity", "nan", "1e-300"]),
    ("boolean", "true", ["true", "t", "YES", "1"], ["false", "off"]),
    ("char(5)", "'AB'", ["AB"], ["ab", "A", "AB   CDE", "ABCDEFGHI"]),
    ("bpchar", "'AB'", ["AB"], ["ab"]),
    ("varchar(5)", "'AB '", ["AB "], ["AB", "ab ", "longer than five"]),
    ("text", "'O''Brien \u2603'", ["O'Brien \u2603"], ["o'brien \u2603", ""]),
    ("bytea", r"'\xaaaa'", ["qqo="], ["u7s=", "AAAA"]),
    (
        "uuid",
        "'9F1C0D7E-0000-4000-8000-000000000001'",
        ["9f1c0d7e-0000-4000-8000-000000000001"],
        ["9f1c0d7e-0000-4000-8000-000000000002"],
    ),
    (
        "date",
        "'2024-02-29'",
        ["2024-02-29", "2024-02-29 00:00:00"],
        ["2024-03-01", "0001-01-01", "9999-12-31"],
    ),
    (
        "time",
        "'07:08:09.5'",
        ["07:08:09.5", "07:08:09.500000000"],
        ["07:08:09", "07:08:09.500000001"],
    ),
    (
        "timestamp",
        "'2024-05-06 07:08:09'",
        ["2024-05-06 07:08:09", "2024-05-06T07:08:09.000000", "2024-05-06 09:08:09+02"],
        [
            "2024-05-06",
            "2024-05-06 07:08:09.000000001",
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamptz",
        "'2024-05-06 09:08:09+02'",
        ["2024-05-06 07:08:09.000000Z", "2024-05-06 03:08:09-0400"],
        ["2024-05-06 09:08:09"],
    ),
    ("interval", "'1 day 2 hours'", ["1 day 02:00:00"], ["26:00:00", "no interval"]),
    ("inet", "'10.0.0.1'", ["10.0.0.1/32"], ["10.0.0.1", "no address"]),
    ("integer[]", "'{1,2}'", ["{1,2}"], ["{1, 2}", "{", "{1,x}"]),
    ("jsonb", """'{"a": 1}'""", ['{"a": 1}'], ['{"a":1}', "{"]),
    ("mood", "'glad'", ["glad"], ["GLAD", "no mood", "sad"]),
    ("short", "'ab'", ["ab"], ["AB", "abcdef"]),
    ("name", "'ab'", ["ab"], ["AB", "x" * 100]),
    ("text COLLATE blind", "'Ab'", ["Ab"], ["ab", "AB"]),
    ("varchar(9) COLLATE blind", "'Ab'", ["Ab"], ["ab", "AB"]),
    ("char(9) COLLATE blind", "'Ab'", ["Ab"], ["ab", "AB"]),
]

TYPES = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN short AS varchar(4) CHECK (value <> 'never');
"""
BLIND = "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@pytest.mark.parametrize(("sql", "value", "same", "others"), KEYS, ids=[case[0] for case in KEYS])
def test_keys_of_every_type_find_their_row_and_nothing_else(
    conn: Connection, sql: str, value: str, same: list[str], others: list[str]
) -> None:
    run(conn, TYPES)
    if "blind" in sql and not can(conn, BLIND):
        pytest.skip("this server was built without ICU")
    run(
        conn,
        f"CREATE TABLE t (k {sql} PRIMARY KEY, v text); INSERT INTO t VALUES ({value}, 'found')",
    )
    run(
        conn,
        f"CREATE TABLE t_c (k {sql} REFERENCES t, c text); INSERT INTO t_c VALUES ({value}, 'x'), "
        f"({value}, 'y')",
    )
    canonical = class_named(conn, "t").canonical_key
    keys = {canonical(key_text([("k", text)])) for text in [*same, *others]}
    wanted = {canonical(key_text([("k", text)])) for text in same}
    found = read(conn, "t", sorted(keys), "v", "t_c.c")
    assert {
        key: {name: sorted(map(str, values)) for name, values in row.items()}
        for key, row in found.items()
    } == {key: {"v": ["found"], "t_c.c": ["x", "y"]} for key in wanted}


def test_case_insensitive_keys_are_compared_exactly(conn: Connection) -> None:
    run(conn, 'CREATE SCHEMA "Ext"')
    if not can(conn, 'CREATE EXTENSION citext SCHEMA "Ext"'):
        pytest.skip("this server has no citext")
    run(
        conn,
        """CREATE TABLE t (k "Ext".citext PRIMARY KEY, v text); INSERT INTO t VALUES ('Ab',
        'found');
           CREATE TABLE t_c (k "Ext".citext REFERENCES t, c text); INSERT INTO t_c VALUES ('ab',
           'x'), ('AB', 'y')""",
    )
    found = read(conn, "t", ["k=Ab", "k=ab"], "v", "t_c.c")
    # The foreign key takes ab for Ab, so its rows are Ab's; the object ab is none
    # (spec/event-log.md 7.2).
    assert {key: sorted(map(str, row["t_c.c"])) for key, row in found.items()} == {
        "k=Ab": ["x", "y"]
    }


def test_a_childs_key_may_be_of_another_type(conn: Connection) -> None:
    run(
        conn,
        """CREATE TABLE a (k bigint PRIMARY KEY, v text); INSERT INTO a VALUES (1, 'v'),
        (5000000000, 'w');
           CREATE TABLE a_c (k smallint REFERENCES a, c text); INSERT INTO a_c VALUES (1, 'x');
           CREATE TABLE b (k varchar(9) PRIMARY KEY, v text); INSERT INTO b VALUES ('AB', 'v');
           CREATE TABLE b_c (k text REFERENCES b, c text); INSERT INTO b_c VALUES ('AB', 'x');
           CREATE TABLE d (k text COLLATE "C" PRIMARY KEY, v text); INSERT INTO d VALUES ('AB',
           'v'); CREATE TABLE d_c (k text COLLATE "POSIX" REFERENCES d, c text); INSERT INTO d_c
           VALUES ('AB', 'x')""",
    )
    assert read(conn, "a", ["k=1", "k=5000000000"]) == {
        "k=1": {"k": ["1"], "v": ["v"], "a_c.c": ["x"]},
        "k=5000000000": {"k": ["5000000000"], "v": ["w"], "a_c.c": []},
    }
    assert read(conn, "b", ["k=AB"], "b_c.c") == {"k=AB": {"b_c.c": ["x"]}}
    assert read(conn, "d", ["k=AB"], "d_c.c") == {"k=AB": {"d_c.c": ["x"]}}


def test_values_are_log_text_regardless_of_the_databases_settings(own: Connection) -> None:
    run(own, f"ALTER DATABASE {own.engine.url.database} SET DateStyle = 'German'")
    run(
        own,
        r"""CREATE TABLE t (id integer PRIMARY KEY, b bytea, d date, ts timestamp, tz timestamptz, c char(5),
                            n numeric, f float8, i interval, far date, bo boolean, j json, a text[],
                            "we%ird ""name" text);
            INSERT INTO t VALUES (1, '\xaaaa', '2024-02-29', '2024-05-06 07:08:09', '2024-05-06 09:08:09+02', 'ab',
                1.50, 0.1, '1 day', 'infinity', true, '{"a":  1}', '{NULL,"x y"}', '%s')""",
    )
    own.commit()
    with connect(own.engine.url).connect() as new:
        (row,) = read(new, "t", ["id=1"]).values()
    assert row == {
        "id": ["1"],
        "b": ["qqo="],
        "d": ["2024-02-29"],
        "ts": ["2024-05-06 07:08:09"],
        "tz": ["2024-05-06 07:08:09+00"],
        "c": ["ab"],
        "n": ["1.50"],
        "f": ["0.1"],
        "i": ["1 day"],
        "far": ["infinity"],
        "bo": ["true"],
        "j": ['{"a":  1}'],
        "a": ['{NULL,"x y"}'],
        'we%ird "name': ["%s"],
    }


VIEW = """
CREATE SCHEMA direct;
CREATE TABLE direct.emp (empno integer, fname text, phoneno text);
INSERT INTO direct.emp VALUES (1, 'John', '2'), (1, 'John', '1'), (2, 'Ann', NULL), (3, 'A', 'x'), (3, 'B', 'x');
CREATE VIEW direct.view_usr AS SELECT empno AS pk_empno, fname AS sv_fname, phoneno AS mv_phoneno FROM direct.emp;
"""


def test_a_view_gives_a_value_for_each_row(conn: Connection) -> None:
    run(conn, VIEW)
    found = read(
        conn, "view_usr", ["pk_empno=1", "pk_empno=2", "pk_empno=3", "pk_empno=4"], schema="direct"
    )
    found = {
        key: {name: sorted(values, key=str) for name, values in row.items()}
        for key, row in found.items()
    }
    assert found == {
        "pk_empno=1": {"pk_empno": ["1", "1"], "fname": ["John", "John"], "phoneno": ["1", "2"]},
        "pk_empno=2": {"pk_empno": ["2"], "fname": ["Ann"], "phoneno": [None]},
        "pk_empno=3": {"pk_empno": ["3", "3"], "fname": ["A", "B"], "phoneno": ["x", "x"]},
    }
    assert read(
        conn, "view_usr", ["pk_empno=1", "pk_empno=4"], "fname", schema="direct"
    ).keys() == {"pk_empno=1"}


def test_rows_of_a_view_stay_together(conn: Connection) -> None:
    run(conn, VIEW)
    (row,) = read(conn, "view_usr", ["pk_empno=3"], "fname", "phoneno", schema="direct").values()
    assert set(zip(row["fname"], row["phoneno"], strict=True)) == {("A", "x"), ("B", "x")}


def test_tables_that_inherit_and_partitions(conn: Connection) -> None:
    run(
        conn,
        """CREATE TABLE t (k integer PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'own');
           CREATE TABLE heir () INHERITS (t); INSERT INTO heir VALUES (1, 'other'), (2, 'other');
           CREATE TABLE p (k integer PRIMARY KEY, v text) PARTITION BY RANGE (k);
           CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10);
           INSERT INTO p VALUES (1, 'in a partition')""",
    )
    assert read(conn, "t", ["k=1", "k=2"], "v") == {"k=1": {"v": ["own"]}}
    assert read(conn, "p", ["k=1"], "v") == {"k=1": {"v": ["in a partition"]}}


def test_many_keys_are_onestatement_that_reads_each_table_once(own: Connection) -> None:
    run(
        own,
        """CREATE TABLE t (k integer PRIMARY KEY, v text); INSERT INTO t SELECT n, 'v' FROM
        generate_series(1, 20000) n;
           CREATE TABLE t_c (k integer REFERENCES t, c integer); -- and no index on k
           INSERT INTO t_c SELECT n, m FROM generate_series(1, 20000) n, generate_series(1, 3) m""",
    )
    own.commit()
    cls = class_named(own, "t")
    executed = []

    @sa.event.listens_for(own, "before_cursor_execute")
    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        executed.append(statement)

    keys = [f"k={n}" for n in range(1, 10_001)]
    found = DIALECT.open(own).query_back("public", cls, keys, cls.attributes)
    assert len(executed) == 1
    assert len(found) == 10_000
    assert all(sorted(map(str, row["t_c.c"])) == ["1", "2", "3"] for row in found.values())
    values = {"k0": [str(n) for n in range(1, 10_001)]}
    statement = "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) " + objects_statement(
        "public", cls, cls.attributes
    )
    plan = "\n".join(row[0] for row in own.exec_driver_sql(statement, values))
    scans = [line for line in plan.splitlines() if "on t_c" in line]
    assert len(scans) == 1, plan
    assert "loops=1)" in scans[0], plan


def test_a_few_keys_of_a_large_table_are_found_by_index(conn: Connection) -> None:
    run(
        conn,
        """CREATE TABLE t (k varchar(20) PRIMARY KEY, v text);
           INSERT INTO t SELECT n::text, 'v' FROM generate_series(1, 50000) n""",
    )
    cls = class_named(conn, "t")
    statement = "EXPLAIN " + objects_statement("public", cls, cls.attributes)
    plan = "\n".join(row[0] for row in conn.exec_driver_sql(statement, {"k0": ["1", "2", "3"]}))
    assert "Index" in plan, plan
    assert "Seq Scan" not in plan, plan


TEXTS = st.one_of(
    st.sampled_from(["", "NULL", " ", "a,b", "{}", '"', "\\", "\n", "é"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_an_array_has_the_texts_of_keys_unchanged(conn: Connection, texts: list[str]) -> None:
    read = "SELECT CAST(%(texts)s AS text[])"
    assert conn.exec_driver_sql(read, {"texts": array_of(texts)}).scalar_one() == texts


def test_a_few_thousand_of_many_keys_are_found_by_an_index(conn: Connection) -> None:
    run(
        conn,
        "CREATE TABLE usr (code text PRIMARY KEY, name text);"
        "INSERT INTO usr SELECT 'u' || n, 'x' FROM generate_series(1, 60000) AS n; ANALYZE usr",
    )
    cls = class_named(conn, "usr")
    statement = objects_statement("public", cls, tuple(cls.attributes[-1:]))
    keys = array_of([f"u{n}" for n in range(5000)])
    plan = conn.exec_driver_sql(f"EXPLAIN {statement}", {"k0": keys}).scalars().all()
    assert any("Index" in line for line in plan), plan
    assert not any("Seq Scan" in line for line in plan), plan


def test_only_the_columns_that_are_read_need_rights(conn: Connection) -> None:
    run(
        conn,
        "CREATE TABLE usr (code text PRIMARY KEY, name text, secret text);"
        "INSERT INTO usr VALUES ('a', 'x', 'y');"
        "CREATE ROLE eventlog_test_reader; GRANT SELECT (code, name) ON usr TO eventlog_test_reader",
    )
    cls = class_named(conn, "usr")
    name = [attribute for attribute in cls.attributes if attribute.name == "name"]
    run(conn, "SET LOCAL ROLE eventlog_test_reader")
    assert DIALECT.open(conn).query_back("public", cls, ["code=a"], name) == {
        "code=a": {"name": ["x"]}
    }
