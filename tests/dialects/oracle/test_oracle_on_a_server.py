"""What only a server can tell: the points of Oracle that manuals leave open. Skipped where there is
none.

How to have one: docs/databases/oracle.md, "Test it on your server". The compliance suite beside runs on the
same server.

These points rest on the manuals or on common practice alone, since nothing has run on a server yet:

- Values and keys are VARCHAR2(4000) where the lengths of the columns allow it, otherwise CLOB: the
  bulk bind of either by ``FORALL ... INSERT`` of record fields within a trigger.
- Compound triggers clear their variables in BEFORE STATEMENT: when this section fires under MERGE,
  and when the server restarts a statement.
- A log whose schema has its name (``EVENTLOG.EVENTLOG``): ``EVENTLOG.SEQ_EVENTLOG_1.NEXTVAL`` as a
  default.
- ON DELETE CASCADE and SET NULL: the server's statement on the child fires its statement sections.
- ``DISABLE`` in the head of a new trigger, simple or compound.
- ``requeue`` and ``purge``: ``INSERT ... SELECT ... ORDER BY`` with a sequence as the default.
- The index of an expression: each statement of the queue uses it, and compares by bytes whatever
  NLS_COMP of the writer is. ``ALL_IND_EXPRESSIONS`` shows it as it was written, apart from blanks.
- MODULE and ACTION, the statement cache, ``call_timeout`` (DPY-4024 or DPY-4011), data frames with
  CLOB columns, as python-oracledb documents them.
- Triggers with ``FOLLOWS`` are in ALL_TRIGGER_ORDERING; ``ALL_SOURCE`` is compared from our comment on.
- ORA_HASH over ALL_TAB_COLS and ALL_CONSTRAINTS shows changes of the tables.
- ``UTL_RAW.CAST_TO_RAW`` takes NVARCHAR2; ``EXTRACT`` takes an interval parameter without a size;
  ``TO_CHAR`` of a date takes NLS_CALENDAR; ``TM9`` of BINARY_FLOAT and BINARY_DOUBLE.
- Which ORA- numbers are tried again: deadlock, no room, undo too short, switchover.
- A second ``DBMS_LOCK.REQUEST`` of one session returns 4.
- TLS: a listening socket has seen the handshake of the three ways to connect; no server has answered.
- ``RESETLOGS_CHANGE#`` of ``V$DATABASE`` changes with a failover and stays with a switchover.
- The profile ``oracle`` of docker/compose.yaml.
"""

from __future__ import annotations

import io
import subprocess
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import oracle_server
import pytest
import sqlalchemy as sa
from platforms import Platform
from shared import opened_log
from sqlalchemy.exc import DBAPIError

from eventlog.cli.context import transaction
from eventlog.errors import DatabaseUnavailable, PublisherAlreadyRunning
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.sql import migrations
from eventlog.sql.dialects.oracle import DIALECT
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.questions import Numbering, ask
from eventlog.sql.triggers import triggers_of

CAPTURES = pytest.mark.parametrize("trigger_level", ["row", "statement"])


def read_back(platform: Platform, key: str) -> dict[str, list[str | None]]:
    """The values of the only class's object now, by attribute."""
    catalog = platform.catalog()
    (cls,) = catalog.classes
    attributes = [one for one in cls.attributes if not one.is_key]
    with platform.session() as (conn, _):
        return platform.dialect.open(conn).query_back(catalog.schema, cls, [key], attributes)[key]


def test_what_runs_on_oracle_is_one_group_of_one_worker(request: pytest.FixtureRequest) -> None:
    def is_on_oracle(item: Any) -> bool:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        return "oracle_server_" in item.fixturenames or parameters.get("platform") == "oracle"

    found = [item for item in request.session.items if is_on_oracle(item)]
    assert found or len(request.session.items) == 1
    for item in found:
        assert [mark.args for mark in item.iter_markers("xdist_group")] == [("oracle",)]
        assert next(item.iter_markers("timeout")).args[0] > oracle_server.START


@pytest.mark.parametrize(
    ("image", "service"),
    [
        (oracle_server.IMAGE, "FREEPDB1"),
        ("gvenzl/oracle-xe:21-slim-faststart", "XEPDB1"),
        ("gvenzl/oracle-xe:18-slim", "XEPDB1"),
    ],
)
def test_the_service_is_that_of_the_image(image: str, service: str) -> None:
    assert oracle_server.service_of(image) == service


def test_an_image_that_was_not_pulled_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(oracle_server.URL_VARIABLE, raising=False)
    monkeypatch.setenv(oracle_server.IMAGE_VARIABLE, "gvenzl/oracle-xe:21-slim")
    monkeypatch.setattr(oracle_server, "_docker", lambda *arguments: arguments == ("info",))
    with pytest.raises(oracle_server.NoServerError, match="docker pull gvenzl/oracle-xe:21-slim"):
        oracle_server.server().__enter__()


def test_a_server_that_is_named_is_spoken_to_by_our_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(oracle_server.URL_VARIABLE, "oracle://ann:secret@db:1522/?service_name=HR")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with oracle_server.server() as found:
        assert found.url.drivername == "oracle+oracledb"
        assert found.sqlplus() == ["/bin/sqlplus", "-S", "-L", "ann@//db:1522/HR"]
        assert found.with_password("EXIT\n") == "secret\nEXIT\n"
        in_docker = oracle_server.Server(found.url, "abc").sqlplus()
        assert [word for word in in_docker if "secret" in word] == []


def test_without_a_server_tests_are_skipped_unless_one_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(oracle_server.REQUIRED_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Oracle"):
        oracle_server.give_up("no Oracle")
    monkeypatch.setenv(oracle_server.REQUIRED_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match=r"no Oracle .*REQUIRED"):
        oracle_server.give_up("no Oracle")


def test_the_user_of_the_tests_is_dropped_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Session:
        def __enter__(self) -> Session:
            return self

        def __exit__(self, *_: object) -> None: ...

        def connect(self) -> Session:
            return self

        def exec_driver_sql(self, statement: str) -> None:
            asked.append(statement)

    monkeypatch.setattr(oracle_server.sa, "create_engine", lambda *_, **__: Session())
    oracle_server._with_user(sa.make_url("oracle+oracledb://system:x@db/"))
    assert "'DROP USER eventlog_test CASCADE'" in asked[0]
    assert "-1918" in asked[0]
    assert asked[1].startswith("CREATE USER eventlog_test ")


# --- keys that move -------------------------------------------------------------------------------


@CAPTURES
def test_keys_that_all_move_by_one(oracle: Platform, trigger_level: str) -> None:
    oracle.run("CREATE TABLE n (id NUMBER(10) PRIMARY KEY, v VARCHAR2(40))")
    oracle.watch("n", trigger_level=trigger_level)
    oracle.run(*(f"INSERT INTO n VALUES ({n}, 'was {n}')" for n in (1, 2, 3)))
    assert sorted(oracle.logged("UPDATE n SET id = id + 1"), key=str) == [
        (1, "id=4", "v", None, "was 3"),
        (4, "id=1", None, None, None),
        (6, "id=2", None, None, None),
        (6, "id=3", None, None, None),
    ]


@CAPTURES
@pytest.mark.parametrize("rule", ["SET NULL", "CASCADE"])
def test_what_the_server_does_to_children_of_a_deleted_row_is_logged(
    oracle: Platform, trigger_level: str, rule: str
) -> None:
    oracle.run(
        "CREATE TABLE usr (idu NUMBER(10) PRIMARY KEY, fname VARCHAR2(40))",
        f"CREATE TABLE usr_phone (idu NUMBER(10) REFERENCES usr ON DELETE {rule}, phoneno "
        "VARCHAR2(40), UNIQUE (idu, phoneno))",
        "INSERT INTO usr VALUES (1, 'Jack')",
        "INSERT INTO usr_phone VALUES (1, 'a')",
        "INSERT INTO usr_phone VALUES (1, 'b')",
    )
    oracle.watch("usr", trigger_level=trigger_level)
    assert sorted(oracle.logged("DELETE FROM usr"), key=str) == [
        (2, "idu=1", "usr_phone.phoneno", "a", None),
        (2, "idu=1", "usr_phone.phoneno", "b", None),
        (4, "idu=1", None, None, None),
    ]


# --- values ---------------------------------------------------------------------------------------

LARGE = ["small", "x" * 5000, "\u00e4" * 40_000]


@CAPTURES
@pytest.mark.parametrize("text", LARGE, ids=map(str, map(len, LARGE)))
def test_a_clob_is_logged_by_value_however_long(
    oracle: Platform, trigger_level: str, text: str
) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v VARCHAR2(4000), c CLOB)")
    oracle.watch("t", trigger_level=trigger_level, lob_values=True)
    oracle.rows()
    oracle.insert("T", [{"ID": 1, "V": "y" * 4000, "C": text}])
    assert [(row.event_type, row.new_value) for row in oracle.rows()] == [
        (1, "y" * 4000),
        (1, text),
    ]
    assert oracle.logged("UPDATE t SET c = 'z', v = 'z'") == [
        (2, "id=1", "v", "y" * 4000, "z"),
        (2, "id=1", "c", text, "z"),
    ]
    assert oracle.logged("UPDATE t SET id = 2") == [
        (4, "id=1", None, None, None),
        (1, "id=2", "v", None, "z"),
        (7, "id=2", "c", None, None),
    ]


@CAPTURES
def test_clobs_of_many_rows_are_those_of_their_rows(oracle: Platform, trigger_level: str) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, c CLOB)")
    oracle.watch("t", trigger_level=trigger_level, lob_values=True)
    rows = oracle.logged(
        "INSERT INTO t SELECT LEVEL, TO_CLOB(RPAD('x', 4000, 'x')) || TO_CLOB(RPAD('y', LEVEL, "
        "'y')) FROM DUAL CONNECT BY LEVEL <= 5"
    )
    assert [row[4] for row in rows] == ["x" * 4000 + "y" * n for n in range(1, 6)]


def test_what_a_trigger_cannot_read_is_read_back(oracle: Platform) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, b BLOB, l LONG, x XMLTYPE, c CLOB)")
    oracle.watch("t")
    names = ("b", "l", "x", "c")
    inserted = oracle.logged(
        "INSERT INTO t VALUES (1, HEXTORAW('AAAA'), 'long', XMLTYPE('<a>1</a>'), 'clob')"
    )
    assert sorted(inserted, key=str) == sorted(
        ((7, "id=1", name, None, None) for name in names), key=str
    )
    values = read_back(oracle, "ID=1")
    assert (values["B"], values["L"], values["C"]) == (["qqo="], ["long"], ["clob"])
    assert "<a>1</a>" in str(values["X"][0])
    assert oracle.logged("UPDATE t SET b = HEXTORAW('BBBB')") == [(8, "id=1", "b", None, None)]
    assert oracle.logged("UPDATE t SET l = 'other'") == [(8, "id=1", "l", None, None)]
    assert oracle.logged("UPDATE t SET x = XMLTYPE('<b/>')") == [(8, "id=1", "x", None, None)]
    assert read_back(oracle, "ID=1")["L"] == ["other"]


@pytest.mark.parametrize(
    "type_", ["TIMESTAMP(9) WITH TIME ZONE", "TIMESTAMP(9) WITH LOCAL TIME ZONE"]
)
def test_a_moment_with_a_zone_is_reported_in_utc_whatever_the_session_is_in(
    oracle: Platform, type_: str
) -> None:
    oracle.run(f"CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v {type_})")
    oracle.watch("t")
    oracle.rows()
    with oracle.engine.begin() as conn:
        conn.exec_driver_sql("ALTER SESSION SET TIME_ZONE = 'Asia/Kolkata'")
        conn.exec_driver_sql("ALTER SESSION SET NLS_CALENDAR = 'Thai Buddha'")
        conn.exec_driver_sql("INSERT INTO t VALUES (1, TIMESTAMP '2024-05-06 07:08:09.5 +02:00')")
    (row,) = oracle.rows()
    assert row.new_value == "2024-05-06 05:08:09.500000000Z"
    assert read_back(oracle, "ID=1")["V"] == [row.new_value]


@CAPTURES
def test_national_texts_beyond_4000_bytes_are_logged_whole(
    oracle: Platform, trigger_level: str
) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v NVARCHAR2(1500), w NVARCHAR2(1500))")
    oracle.watch("t", trigger_level=trigger_level)
    long = "RPAD(UNISTR('\\65E5'), 1500, UNISTR('\\65E5'))"
    rows = oracle.logged(
        f"INSERT INTO t SELECT LEVEL, {long}, UNISTR('\\00E9') FROM DUAL CONNECT BY LEVEL <= 2"
    )
    assert [row[4] for row in rows] == ["\u65e5" * 1500, "\u00e9"] * 2
    assert oracle.logged("UPDATE t SET v = v, w = UNISTR('\\00C9') WHERE id = 1") == [
        (2, "id=1", "w", "\u00e9", "\u00c9")
    ]


@CAPTURES
def test_many_long_values_are_written_by_one_array(oracle: Platform, trigger_level: str) -> None:
    columns = ", ".join(f"v{n} VARCHAR2(4000)" for n in range(4))
    oracle.run(f"CREATE TABLE t (id NUMBER(10) PRIMARY KEY, {columns})")
    oracle.watch("t", trigger_level=trigger_level)
    values = ", ".join(f"RPAD('{n}', 4000, 'x')" for n in range(4))
    rows = oracle.logged(f"INSERT INTO t SELECT LEVEL, {values} FROM DUAL CONNECT BY LEVEL <= 300")
    assert len(rows) == 1200
    assert {len(str(row[4])) for row in rows} == {4000}


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE PRECISION", "NUMBER"])
def test_a_number_keeps_its_digits_as_a_value_and_as_a_key(oracle: Platform, type_: str) -> None:
    digits = "0.1234567890123456789012345678901234567"
    oracle.run(f"CREATE TABLE t (k {type_} PRIMARY KEY, v {type_})")
    oracle.watch("t")
    ((_, key, _, _, value),) = oracle.logged(f"INSERT INTO t VALUES ({digits}, {digits})")
    assert key == f"k={digits}"
    assert Decimal(str(value)) == Decimal(digits)
    assert read_back(oracle, key.replace("k=", "K=")) == {"V": [value]}


@pytest.mark.parametrize(
    ("type_", "text"), [("CHAR(8)", "AB"), ("NCHAR(8)", "\u65e5"), ("NCHAR(600)", "\u65e5" * 600)]
)
def test_a_key_of_fixed_length_is_found_by_its_text(
    oracle: Platform, type_: str, text: str
) -> None:
    oracle.run(f"CREATE TABLE t (k {type_} PRIMARY KEY, v VARCHAR2(40))")
    oracle.watch("t")
    oracle.insert("T", [{"K": text, "V": "x"}])
    (row,) = oracle.rows()
    assert row.table_key == f"K={text}"
    assert read_back(oracle, f"K={text}") == {"V": ["x"]}


# --- triggers of others, scripts, the dictionary --------------------------------------------------


def test_a_trigger_that_follows_ours_fires_after_and_is_warned_of_before_ours_are_dropped(
    oracle: Platform,
) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v VARCHAR2(40))")
    oracle.watch("t")
    create = "CREATE TRIGGER bill AFTER INSERT OR UPDATE ON t FOR EACH ROW {} BEGIN NULL; END;"
    oracle.run(create.format(""))
    (warning,) = [one for one in oracle.plan({"table": "t"}).warnings if "give it FOLLOWS" in one]
    advice = warning[warning.index("FOLLOWS") :]
    assert advice == 'FOLLOWS "TGR_T_I_1", "TGR_T_U_1"'
    oracle.run("DROP TRIGGER bill", create.format(advice))
    assert not any("FOLLOWS" in one for one in oracle.plan({"table": "t"}).warnings)
    with oracle.session() as (conn, log):
        plan = triggers_of(oracle.dialect).plan_drop(opened_log(conn, log))
    assert ["BILL" in one and "ORA-04098" in one for one in plan.warnings] == [True]
    oracle.apply(plan)
    with pytest.raises(DBAPIError, match="ORA-04098"):
        oracle.run("INSERT INTO t VALUES (1, 'x')")


@pytest.fixture
def sqlplus(oracle_server_: oracle_server.Server) -> Callable[[str], None]:
    """Runs a script as the user of the tests."""
    try:
        command = oracle_server_.sqlplus()
    except oracle_server.NoServerError as error:
        oracle_server.give_up(str(error))

    def run(script: str) -> None:
        given = oracle_server_.with_password(script)
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_scripts_do_in_sqlplus_what_they_say_and_can_be_run_twice(
    oracle: Platform, sqlplus: Callable[[str], None]
) -> None:
    with transaction(oracle.config()) as db:
        conn = db.connection
        migrations.downgrade(conn, log_table="eventlog")
    out = io.StringIO()
    migrations.upgrade(None, log_table="eventlog", sql=out, dialect_name="oracle")
    log = out.getvalue()
    sqlplus(f"SET ESCAPE ON\n{log}")
    sqlplus(log)
    oracle.run("CREATE TABLE t (k NUMBER PRIMARY KEY, v VARCHAR2(40))")
    script = triggers_of(oracle.dialect).script(oracle.plan({"table": "t"}), 5.0)
    sqlplus(f"SET ESCAPE ON\n{script}")
    sqlplus(script)
    assert oracle.plan({"table": "t"}).changes == ()
    assert oracle.logged("INSERT INTO t VALUES (-0.5, 'x')") == [(1, "k=-0.5", "v", None, "x")]


def test_the_fingerprint_changes_when_a_table_does(oracle: Platform) -> None:
    oracle.run("CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v VARCHAR2(40))")
    oracle.watch("t")
    catalog, seen = oracle.catalog(), []
    for change in ("ADD w NUMBER", "MODIFY v VARCHAR2(41)", "DROP PRIMARY KEY"):
        with oracle.session() as (conn, _):
            seen += [
                DIALECT.open(conn).fingerprint(catalog),
                DIALECT.open(conn).fingerprint(catalog),
            ]
        oracle.run(f"ALTER TABLE t {change}")
    with oracle.session() as (conn, _):
        seen.append(DIALECT.open(conn).fingerprint(catalog))
    assert seen[::2] == list(dict.fromkeys(seen))


def test_the_sequence_of_a_log_is_found_in_order(oracle: Platform) -> None:
    with oracle.session() as (conn, log):
        (found,) = ask(opened_log(conn, log), "numberings", Numbering)
    assert (found.cache, found.increment, found.cycles, found.disorder) == (1, 1, False, None)


# --- sessions that end ----------------------------------------------------------------------------


def lose_the_session(context: Context, oracle: Platform) -> None:
    """Kill a publisher's session, and use it. Skips where this user may not."""
    sid, serial = context.log.connection.exec_driver_sql(
        "SELECT SYS_CONTEXT('USERENV', 'SID'), DBMS_DEBUG_JDWP.CURRENT_SESSION_SERIAL FROM DUAL"
    ).one()
    try:
        oracle.run(f"ALTER SYSTEM KILL SESSION '{sid},{int(serial)}' IMMEDIATE")
    except DBAPIError as error:
        oracle_server.give_up(f"this user may kill no session: {error.orig}")
    context.log.queue("utc")


def test_a_publisher_whose_session_is_killed_can_begin_again(oracle: Platform) -> None:
    config = oracle.config()
    with pytest.raises(DatabaseUnavailable), open_context(config, Counters()) as context:
        lose_the_session(context, oracle)
    for _ in range(60):
        try:
            with open_context(config, Counters()) as context:
                assert context.log.holds_lock()
                return
        except PublisherAlreadyRunning:  # the server has not noticed yet
            time.sleep(1)
    raise AssertionError("the lock of a killed session stays")


def test_a_call_that_takes_too_long_ends_as_an_error_that_passes(oracle: Platform) -> None:
    with oracle.session() as (conn, _):
        oracle.dialect.open(conn).begin_publishing()
        driver: Any = conn.connection.driver_connection
        driver.call_timeout = 1000
        with pytest.raises(DatabaseUnavailable), as_database_errors(conn):
            conn.exec_driver_sql("BEGIN SYS.DBMS_LOCK.SLEEP(20); END;")


def test_what_a_statement_begun_again_logged_before_counts_once(oracle: Platform) -> None:
    """A row that another session changes while an UPDATE waits for it makes the server begin the
    statement again.
    """
    oracle.run(
        "CREATE TABLE t (id NUMBER(10) PRIMARY KEY, v NUMBER(10))", "INSERT INTO t VALUES (1, 1)"
    )
    oracle.run("INSERT INTO t VALUES (2, 1)")
    oracle.watch("t", trigger_level="statement")
    oracle.rows()
    with oracle.engine.connect() as first:
        first.exec_driver_sql("UPDATE t SET v = 5 WHERE id = 2")
        other = threading.Thread(target=oracle.run, args=("UPDATE t SET v = v + 1 WHERE v < 3",))
        other.start()
        time.sleep(2)
        first.commit()
        other.join(60)
    rows = sorted(
        (str(row.table_key), row.event_type, row.old_value, row.new_value) for row in oracle.rows()
    )
    assert rows == [("ID=1", 2, "1", "2"), ("ID=2", 2, "1", "5")]
