"""A receiver of a view has what the view has, whatever happens to the rows of its base tables
(spec/event-log.md 15.4).
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import mysql_servers
import pytest
import sqlalchemy as sa
from applied import Killed, Receiver, change, select
from publishers import install
from shared import Run, execute, in_ci, met, url_of

from eventlog import Operation, Publisher
from eventlog.cli.context import changing_log
from eventlog.config.load import load
from eventlog.publisher.declared.configured_classes import filters_of, read_catalog
from eventlog.sql.log.accepted_filters import accept_filters

STYLES: Final = ("field", "remove_all", "field_query_back", "row_query_back")
TABLES: Final = (
    "CREATE TABLE emp (no integer PRIMARY KEY, fname varchar(9), team varchar(9), tenant varchar(9))",
    "CREATE TABLE phone (no integer, number varchar(9), UNIQUE (no, number))",
    "CREATE VIEW staff AS SELECT emp.no AS pk_no, fname AS sv_fname, team AS sv_team, number AS mv_phone"
    " FROM emp LEFT JOIN phone ON phone.no = emp.no WHERE tenant = 'a' AND team <> 'none'",
)
BASE: Final = {
    "emp": {"no": "pk_no", "fname": "sv_fname", "team": "sv_team"},
    "phone": {"no": "pk_no", "number": "mv_phone"},
}
OBJECTS: Final = 10
ROUNDS: Final = pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.night)])


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        for table in TABLES:
            conn.execute(table)
    return f"sqlite:///{file}"


@pytest.fixture
def postgres(logged: sa.Engine) -> str:
    for table in TABLES:
        execute(logged, table)
    return url_of(logged)


@pytest.fixture
def mariadb(started_server: Callable[[str], mysql_servers.Server]) -> Iterator[str]:
    with started_server("mariadb").database() as url:
        text = url.render_as_string(hide_password=False)
        change(text, *TABLES)
        yield text


@pytest.fixture(params=in_ci(["sqlite", "postgres", "mariadb"], "sqlite", "postgres"))
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def configuration(url: str, style: str = "field", **more: Any) -> dict[str, Any]:
    watch = {"view": "staff", "row_style": style, "base": BASE, "membership": ["tenant", "team"]}
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "format": {"type": "xds", "xds": {"insert_query_back": "add"}},
        "watch": [watch],
        **more,
    }


def rows(receiver: Receiver) -> list[tuple[Any, ...]]:
    return sorted(
        (
            key,
            *(next(iter(one.get(name, ())), None) for name in ("fname", "team")),
            tuple(sorted(one.get("phone", ()))),
        )
        for key, one in receiver.objects.items()
    )


def in_view(url: str, where: str = "1 = 1") -> list[tuple[Any, ...]]:
    """What SELECT from the view finds."""
    found: dict[int, tuple[Any, ...]] = {}
    phones: dict[int, set[str]] = {}
    for key, fname, team, phone in select(url, f"SELECT * FROM staff WHERE {where}"):
        found[key] = (key, fname, team)
        phones.setdefault(key, set()).update([phone] if phone else [])
    return sorted((*one, tuple(sorted(phones[key]))) for key, one in found.items())


def random_change(chance: random.Random) -> list[str]:
    """The statements of a transaction: objects enter, leave and return, change their key and their
    values, come and go.
    """
    key, new = chance.randrange(1, OBJECTS), chance.randrange(1, OBJECTS)
    match chance.randrange(9):
        case 0 | 1:
            return [f"UPDATE emp SET tenant = '{chance.choice('ab')}' WHERE no = {key}"]
        case 2:
            return [f"UPDATE emp SET team = '{chance.choice(('none', 'x'))}' WHERE no = {key}"]
        case 3:
            value = chance.choice(("NULL", f"'f{chance.randrange(100)}'"))
            return [f"UPDATE emp SET fname = {value} WHERE no = {key}"]
        case 4:
            return [f"DELETE FROM phone WHERE no = {key}", f"DELETE FROM emp WHERE no = {key}"]
        case 5 | 6:
            tenant, team = chance.choice("ab"), chance.choice(("none", "x"))
            return [
                f"INSERT INTO emp SELECT {key}, 'f{key}', '{team}', '{tenant}' "
                f"WHERE NOT EXISTS (SELECT 1 FROM emp WHERE no = {key})"
            ]
        case 7:
            number = chance.choice(("1", "2", "3"))
            return [
                f"INSERT INTO phone SELECT {key}, '{number}' WHERE EXISTS (SELECT 1 FROM emp WHERE "
                f"no = {key}) AND NOT EXISTS (SELECT 1 FROM phone WHERE no = {key} AND number = '{number}')"
            ]
        case _:
            return [
                f"DELETE FROM phone WHERE no = {key}",
                f"UPDATE emp SET no = {new} WHERE no = {key} AND NOT EXISTS (SELECT 1 FROM "
                f"(SELECT no FROM emp) other WHERE no = {new})",
            ]


def write(url: str, chance: random.Random, transactions: int) -> None:
    engine = sa.create_engine(url)
    for _ in range(transactions):
        with engine.begin() as conn:
            for statement in random_change(chance):
                conn.exec_driver_sql(statement)
    engine.dispose()


# Each style meets each database in tests/dialects/test_views.py, and at random in test_filters.py.
@ROUNDS
@pytest.mark.parametrize(
    ("database", "style"),
    [
        *met(["postgres", "sqlite"], STYLES),
        *(pytest.param("mariadb", style, marks=pytest.mark.night) for style in STYLES),
    ],
    indirect=["database"],
)
def test_after_each_run_the_receiver_has_what_the_view_has(
    database: str, style: str, rounds: int
) -> None:
    chance = random.Random(style)
    config = configuration(database, style)
    install(load(config, {}))
    receiver = Receiver(chance, failing=0.2)
    for _ in range(rounds):
        write(database, chance, 25)
        receiver.run(config)
        assert rows(receiver) == in_view(database)
    assert {event.operation for event in receiver.events} >= {Operation.ADD, Operation.DELETE}


@pytest.mark.parametrize("style", in_ci(STYLES, "field"))
def test_after_kills_the_receiver_has_what_the_view_has(
    postgres: str, tmp_path: Path, style: str
) -> None:
    config = configuration(postgres, style)
    config["publisher"] |= {"batch_size": 4, "delivery_rows": 12}
    install(load(config, {}))
    killed = Killed(config, tmp_path / "journal")
    for seed in range(2):
        write(postgres, random.Random(seed), 15)
        assert rows(killed.run(seed)) == in_view(postgres)
    assert killed.kills > 0


@pytest.mark.parametrize("style", in_ci(STYLES, "field"))
def test_a_filter_of_a_view_chooses_among_what_the_view_has(database: str, style: str) -> None:
    where = "sv_fname LIKE 'f%' AND pk_no > 3"
    config = configuration(database, style, filter=[{"table": "staff", "where": where}])
    install(load(config, {}))
    with changing_log(load(config, {})) as log:
        accept_filters(log, None, filters_of(load(config, {})))
        log.commit()
    receiver, chance = Receiver(), random.Random(style)
    for _ in range(3):
        write(database, chance, 25)
        receiver.run(config)
        assert rows(receiver) == in_view(database, where.replace("%", "%%"))


def operations(receiver: Receiver) -> list[tuple[str, str]]:
    return [
        (event.association.partition(",")[0], event.operation.value) for event in receiver.events
    ]


def test_objects_enter_leave_and_return(database: str) -> None:
    config = configuration(database)
    install(load(config, {}))
    receiver = Receiver()
    for statement in (
        "INSERT INTO emp VALUES (1, 'f1', 'x', 'b')",
        "UPDATE emp SET tenant = 'a' WHERE no = 1",
        "UPDATE emp SET fname = 'f2' WHERE no = 1",
        "UPDATE emp SET tenant = 'b' WHERE no = 1",
        "UPDATE emp SET tenant = 'a' WHERE no = 1",
        "DELETE FROM emp WHERE no = 1",
    ):
        change(database, statement)
        receiver.run(config)
    assert operations(receiver) == [
        ("pk_no=1", one) for one in ("delete", "add", "modify", "delete", "add", "delete")
    ]


def test_a_column_that_only_decides_is_in_no_document(database: str) -> None:
    config = configuration(database, format={"type": "debezium"})
    install(load(config, {}))
    bodies: list[str] = []

    def receive(body: bytes, _: object) -> None:
        bodies.append(body.decode())

    publisher = Publisher.from_config(config, sink=receive, environ={})
    for statement in (
        "INSERT INTO emp VALUES (1, 'f1', 'x', 'a')",
        "UPDATE emp SET tenant = 'A' WHERE no = 1",
        "UPDATE emp SET tenant = 'a' WHERE no = 1",
    ):
        change(database, statement)
        publisher.run_once()
    assert bodies
    assert "tenant" not in "".join(bodies)


def test_one_statement_reads_the_view_and_its_main_table(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(sqlite)
    install(load(config, {}))
    change(
        sqlite,
        *(f"INSERT INTO emp VALUES ({n}, 'f', 'x', '{'ab'[n % 2]}')" for n in range(1, 11)),
    )
    read: list[str] = []

    def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "FROM k" in statement and "emp" in statement:
            read.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        receiver = Receiver()
        receiver.run(config)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(receiver.objects) == 5
    # As every class that is read back: one object, then up to sixteen.
    assert len(read) == 2


def test_a_view_over_a_table_with_keys_of_another_type_is_followed(postgres: str) -> None:
    change(
        postgres,
        "CREATE VIEW named AS SELECT no::text AS pk_no, fname AS sv_fname FROM emp WHERE tenant = 'a'",
    )
    watch = {
        "view": "named",
        "base": {"emp": {"no": "pk_no", "fname": "sv_fname"}},
        "membership": ["tenant"],
    }
    config = configuration(postgres, watch=[watch])
    install(load(config, {}))
    receiver = Receiver()
    for statement in (
        "INSERT INTO emp VALUES (1, 'f1', 'x', 'a')",
        "UPDATE emp SET tenant = 'b'",
        "UPDATE emp SET tenant = 'a'",
    ):
        change(postgres, statement)
        receiver.run(config)
    assert operations(receiver) == [("pk_no=1", one) for one in ("add", "delete", "add")]


def test_with_profile_idm_rows_of_objects_outside_the_view_are_sent(sqlite: str) -> None:
    config = configuration(sqlite)
    install(load(config, {}))
    config["publisher"]["profile"] = "idm"
    change(sqlite, "INSERT INTO emp VALUES (1, 'f1', 'x', 'b')")
    receiver = Receiver()
    receiver.run(config)
    assert operations(receiver) == [("pk_no=1", "add")]


def test_a_role_that_may_not_read_the_main_table_is_warned_and_granted(
    postgres: str, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configuration(postgres)
    install(load(config, {}))
    file = tmp_path / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{postgres}"\n[[watch]]\nview = "staff"\n'
        'base = { emp = { no = "pk_no", fname = "sv_fname" } }\n'
    )
    change(postgres, "DROP ROLE IF EXISTS view_reader", "CREATE ROLE view_reader LOGIN")
    code, out, error = run("--config", str(file), "grants", "view_reader", "--purpose", "publisher")
    assert code == 0, error
    statements = [line.rstrip(";") for line in out.splitlines() if line.startswith("GRANT")]
    (reading,) = [one for one in statements if "staff" in one]
    assert '"emp"' in reading
    change(postgres, *statements, "REVOKE SELECT ON emp FROM view_reader")
    change(postgres, "INSERT INTO emp VALUES (1, 'f1', 'x', 'b')")
    url = sa.make_url(postgres).set(username="view_reader")
    receiver = Receiver()
    receiver.run({**config, "database": {"url": url.render_as_string(hide_password=False)}})
    assert operations(receiver) == [("pk_no=1", "add")]
    assert "this role may not read its base table emp" in caplog.text


def test_an_unknown_column_of_the_membership_makes_the_class_unavailable(sqlite: str) -> None:
    config = configuration(sqlite)
    install(load(config, {}))
    config["watch"][0]["membership"] = ["tenat"]
    with changing_log(loaded := load(config, {})) as log:
        (error,) = read_catalog(log, loaded).unavailable.values()
    assert "membership: 'tenat' is neither a column of the view nor of emp" in str(error)
