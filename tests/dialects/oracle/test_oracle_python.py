"""What is done in Python for Oracle: names, binds, keys, reflection. Statements are captured, not
run.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import oracledb
import pyarrow as pa
import pytest
from captured_statements import Recorder, conn
from hypothesis import given
from hypothesis import strategies as st
from oracle_catalogue import DATABASE, LOG, attributes_of, class_of, column
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import quoted_name

from eventlog.core.catalog import Column, ForeignKey
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.errors import BadValue, ConfigError, DatabaseError, ServerUnavailable
from eventlog.model import TIMED_FIELDS, EventType, LogRow
from eventlog.sql.connect.connection import connect, dialect_of
from eventlog.sql.dialects import oracle
from eventlog.sql.dialects.oracle import DIALECT, log, session
from eventlog.sql.dialects.oracle.objects import bound, database, values_statement
from eventlog.sql.dialects.oracle.session import CHUNKS, chunks, may_run
from eventlog.sql.dialects.oracle.text import (
    fold_name,
    key_value,
    named,
    quote_identifier,
    spelled,
    value_text,
)
from eventlog.sql.log_table import LogTable, named_after
from eventlog.sql.port.dialect import NoSuchValue
from eventlog.sql.port.driver_errors import as_database_errors, load_dialect
from eventlog.sql.port.log_operations import ResyncBatch, Selection, Walk, Window
from eventlog.sql.port.log_parts import arrow_schema
from eventlog.sql.port.sql_files import statements

# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [("usr", "USR"), ("Usr", "USR"), ('"Usr"', "Usr"), ("straße", "STRAßE"), ('""', '""')],
)
def test_a_name_without_quotes_is_kept_in_upper_case(name: str, kept: str) -> None:
    assert fold_name(name) == kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [("usr", "USR"), ("Usr", "Usr"), ("USR", "USR"), (quoted_name("usr", quote=True), "usr")],
)
def test_a_name_of_sqlalchemy_is_spelled_as_the_database_keeps_it(name: str, kept: str) -> None:
    assert spelled(name) == kept


@pytest.mark.parametrize("name", ['a"b', "", "a\0b", '" OR "1"="1'])
def test_a_name_that_could_leave_its_quotes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        quote_identifier(name)


def test_names_of_ours_have_at_most_128_bytes_and_the_case_of_what_they_are_of() -> None:
    name = partial(named_after, max_bytes=DIALECT.max_identifier, upper=True)
    assert name("proc_{}_quote", "EVENTLOG") == "PROC_EVENTLOG_QUOTE"
    assert name("proc_{}_quote", "Log") == "proc_Log_quote"
    cut = name("tgr_{}_i_1", "A" * 128)
    assert len(cut) == 128
    assert cut != name("tgr_{}_u_1", "A" * 128)


def test_updating_is_asked_by_name_only_where_it_finds_it() -> None:
    assert named(column("PHOTO", "BLOB")) == "UPDATING('PHOTO')"
    assert named(column("Photo", "BLOB")) == "UPDATING"


def test_the_dialect_is_found_by_its_url() -> None:
    assert dialect_of("oracle://u@host/?service_name=x") is load_dialect("oracle")
    assert dialect_of("oracle+oracledb://u@host").driver == "oracle+oracledb"


# --- the log --------------------------------------------------------------------------------------


def test_a_window_is_read_with_bound_values_and_rows_are_log_rows() -> None:
    row = (7, "N", 2, "2024-01-02 03:04:05.000000000", "U", "USR", "IDU=1", "FNAME", "a", "b", None)
    recorder = conn([row])
    assert DIALECT.open(recorder).log(LOG).read_window(Window(0, None, 10)) == [LogRow(*row)]
    ((statement, binds),) = recorder.run
    assert binds == {"first": 1, "last": DIALECT.last_record_id, "limit": 10}
    assert "ROWNUM <= :limit" in statement
    assert recorder.connection.driver_connection.outputtypehandler is None


def test_rows_of_one_user_are_left_alone_in_a_window() -> None:
    recorder = conn([])
    DIALECT.open(recorder).log(LOG).read_window(Window(5, 9, None, "EVENTLOG  "))
    assert recorder.run[0][1] == {
        "first": 5,
        "last": 9,
        "limit": DIALECT.last_record_id,
        "perpetrator": "EVENTLOG",
    }


def test_marks_are_one_array_bind_of_ranges() -> None:
    recorder = conn()
    assert DIALECT.open(recorder).log(LOG).mark("S", [(1, 3), (7, 7)]) == 2
    ((statement, binds),) = recorder.run
    assert statement.startswith("UPDATE")
    assert binds == [{"status": "S", "first": 1, "last": 3}, {"status": "S", "first": 7, "last": 7}]


def test_rows_are_read_by_long_ranges_and_by_lists_of_single_ids() -> None:
    def row(record_id: int) -> tuple[Any, ...]:
        return (record_id, "S", 4, None, None, "USR", "IDU=1", None, None, None)

    recorder = conn([row(100), row(101)], [row(2), row(7)])
    found = DIALECT.open(recorder).log(LOG).read_rows([(2, 2), (6, 7), (100, 1000)])
    assert [one.record_id for one in found] == [2, 7, 100, 101]
    (_, by_range), (listed, by_ids) = recorder.run
    assert by_range == {"first": 100, "last": 1000}
    assert by_ids == {f"id{place}": value for place, value in enumerate([2, 6, 7] + [7] * 7)}
    assert ":id9)" in listed


@pytest.mark.parametrize("code", [6550, 904, 1031, 41900])
def test_the_lock_package_is_tried_once_a_session_and_the_row_locked_on_refusal(code: int) -> None:
    recorder = Refusing(code)
    beside = conn([("0006",)], [("0006",)])
    beside.connection.driver_connection.is_healthy = lambda: True
    beside.close = lambda: None
    recorder.engine = SimpleNamespace(connect=lambda: beside)
    recorder.connection.driver_connection.cursor = lambda: SimpleNamespace(
        var=lambda _: None, close=lambda: None
    )
    asked = cast("Any", recorder)
    assert not DIALECT.open(asked).log(LOG).holds_lock()
    assert DIALECT.open(asked).log(LOG).try_lock()
    assert DIALECT.open(asked).log(LOG).holds_lock()
    DIALECT.open(asked).log(LOG).unlock()
    assert [statement for statement, _ in recorder.run] == [log.request_block(LOG)]
    assert {statement for statement, _ in beside.run} == {log.row_lock(LOG)}
    assert beside.connection.driver_connection.action == "lock"


def test_another_error_of_the_lock_package_is_no_refusal() -> None:
    recorder = Refusing(60)
    recorder.connection.driver_connection.cursor = lambda: SimpleNamespace(
        var=lambda _: None, close=lambda: None
    )
    with pytest.raises(DBAPIError):
        DIALECT.open(cast("Any", recorder)).log(LOG).try_lock()


def test_without_the_grant_and_without_a_row_to_lock_the_grant_is_asked_for() -> None:
    recorder = Refusing(6550)
    recorder.engine = SimpleNamespace(connect=lambda: Refusing(942))
    recorder.connection.driver_connection.cursor = lambda: SimpleNamespace(
        var=lambda _: None, close=lambda: None
    )
    position = LogTable("APP", "POSITIONS", ())
    with pytest.raises(
        DatabaseError, match=r"cannot lock APP\.POSITIONS.*grant EXECUTE on SYS\.DBMS_LOCK"
    ):
        DIALECT.open(cast("Any", recorder)).log(position).try_lock()


def test_no_range_is_no_statement() -> None:
    recorder = conn()
    assert DIALECT.open(recorder).log(LOG).mark("S", []) == 0
    assert DIALECT.open(recorder).log(LOG).delete([]) == 0
    assert recorder.run == []


def test_due_rows_are_read_after_a_position() -> None:
    recorder = conn([])
    list(
        DIALECT.open(recorder)
        .log(LOG)
        .due_chunks("2024-01-01 00:00:00", ("2023-12-31 00:00:00", 5), None, TIMED_FIELDS, 2)
    )
    assert recorder.run[0][1] == {
        "until": "2024-01-01 00:00:00",
        "after_time": "2023-12-31 00:00:00",
        "after_id": 5,
        "limit": DIALECT.last_record_id,
        "perpetrator": None,
    }


def test_a_place_among_due_rows_is_compared_in_utc_whether_event_time_has_a_zone_or_not() -> None:
    recorder = conn([])
    after = ("2023-12-31 00:00:00.000000000Z", 5)
    list(
        DIALECT.open(recorder)
        .log(LOG)
        .due_chunks("2024-01-01 00:00:00", after, None, TIMED_FIELDS, 2)
    )
    assert recorder.run[0][1]["after_time"] == "2023-12-31 00:00:00.000000000"


class Refusing(Recorder):
    """A connection that answers each statement with an error."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def close(self) -> None:
        pass

    def exec_driver_sql(
        self, statement: str, parameters: Any = None, execution_options: Any = None
    ) -> Any:
        self.run.append((statement, parameters))
        raise DBAPIError(
            statement, parameters, oracledb.DatabaseError(SimpleNamespace(code=self.code))
        )


@pytest.mark.parametrize(
    ("code", "may"), [(942, False), (1031, False), (2289, False), (41900, False), (1456, True)]
)
def test_a_right_is_known_by_the_error_also_in_a_transaction_that_is_read_only(
    code: int, may: bool
) -> None:
    assert may_run(cast("Any", Refusing(code)), "DELETE FROM T WHERE 1 = 0") is may


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (SimpleNamespace(code=60, isrecoverable=False), True),
        (SimpleNamespace(code=1653, isrecoverable=False), True),
        (SimpleNamespace(code=12514, isrecoverable=True), True),
        (SimpleNamespace(code=0, isrecoverable=False, full_code="DPY-4024"), True),
        (SimpleNamespace(code=942, isrecoverable=False), False),
        (SimpleNamespace(code=1, isrecoverable=False), False),
    ],
)
def test_errors_that_pass_are_tried_again_and_others_are_not(error: Any, is_away: bool) -> None:
    kind = ServerUnavailable if is_away else DatabaseError
    with pytest.raises(DatabaseError) as caught, as_database_errors(conn()):
        raise oracledb.DatabaseError(error)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("sequence", "answers", "disorder"),
    [
        ((1000, 1, "N", "Y", "N"), [[]], None),
        ((0, 1, "N", "N", "N"), [[]], None),
        ((20, 1, "N", "N", "N"), [[], 0], None),  # one instance
        ((20, 1, "N", "N", "N"), [[], 1], ("NOORDER", "ORDER")),
        ((20, 1, "N", "Y", "Y"), [], ("SESSION", "GLOBAL")),
        ((20, 1, "N", "Y", "N"), [[("LOGS", "SEQ_EVENTLOG_1")]], ("SCALE", "NOSCALE")),
        ((20, 1, "N", "Y", "N"), [904], None),  # 12.2 has no such column
    ],
)
def test_a_sequence_whose_numbers_do_not_rise_in_the_order_of_requests_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    sequence: tuple[Any, ...],
    answers: list[Any],
    disorder: tuple[str, str] | None,
) -> None:
    monkeypatch.setattr(session, "call", lambda *_: answers.pop(0))
    asked: list[Any] = [[("LOGS", "SEQ_EVENTLOG_1", *sequence)], *answers[:1]]
    del answers[:1]

    def fetched(_conn: Any, statement: str, _binds: Any) -> Any:
        found = asked.pop(0)
        if isinstance(found, int):
            raise DBAPIError(statement, {}, oracledb.DatabaseError(SimpleNamespace(code=found)))
        return found

    monkeypatch.setattr(session, "fetch", fetched)
    (found,) = DIALECT.answers["numberings"](DIALECT.open(conn()).log(LOG))
    assert (found.cache, answers) == (1, [])
    if disorder is None:
        assert found.disorder is None
    else:
        assert disorder[0] in str(found.disorder)
        assert found.fix == f'ALTER SEQUENCE "LOGS"."SEQ_EVENTLOG_1" {disorder[1]}'


def test_a_sequence_of_ours_is_cached_in_order() -> None:
    assert 'SEQUENCE "LOGS"."SEQ_EVENTLOG_1" CACHE 1000 ORDER' in DIALECT.before_log(LOG)[0]


def test_a_publisher_does_not_wait_for_ever_for_an_answer() -> None:
    recorder = conn()
    load_dialect("oracle").open(recorder).begin_publishing()
    assert recorder.connection.driver_connection.call_timeout == 600_000
    assert recorder.connection.driver_connection.action == "publish"
    arguments = {"tcp_connect_timeout": 7, "expire_time": 1, "stmtcachesize": 200}
    assert load_dialect("oracle").connect_args(7) == arguments


@pytest.mark.parametrize(
    ("reason", "advice_"),
    [
        (
            "DPY-3001: Native Network Encryption is only supported in python-oracledb thick mode",
            "CRYPTO_CHECKSUM",
        ),
        ("DPY-3015: password verifier type 0x939 is not supported", "set the password again"),
        (
            "DPY-6000: Listener refused connection. (Similar to ORA-12660)",
            "native network encryption",
        ),
        ("DPY-6000: Listener refused connection. (Similar to ORA-12520)", "lsnrctl services"),
        ("ORA-28040: No matching authentication protocol", "ALLOWED_LOGON_VERSION_SERVER"),
    ],
)
def test_what_hinders_a_session_is_reported_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, reason: str, advice_: str
) -> None:
    def refuse(**_: Any) -> None:
        raise oracledb.DatabaseError(reason)

    monkeypatch.setattr(oracledb, "connect", refuse)
    with pytest.raises(DatabaseError, match=advice_):
        connect("oracle://ann@db.example/?service_name=HR").connect()


def test_the_fingerprint_of_tables_is_one_statement_for_many() -> None:
    recorder = conn([("7-1-2",)])
    catalog = build_catalog(DATABASE, tables=["USR"])
    assert load_dialect("oracle").open(recorder).fingerprint(catalog) == "7-1-2"
    ((statement, binds),) = recorder.run
    assert binds["owner"] == "APP"
    assert set(binds.values()) == {"APP", "USR", "USR_NOTE", "USR_PHONE"}
    assert statement.count(":t9") == 2


def test_the_lock_of_a_log_has_its_own_number_that_programs_may_use() -> None:
    other = LogTable("LOGS", "OTHER", LOG.columns)
    assert log.lock_id(LOG) != log.lock_id(other)
    assert 0 <= log.lock_id(LOG) <= 1073741823


# --- query-back -----------------------------------------------------------------------------------


@given(st.integers(0, 2500))
def test_keys_are_bound_in_fragments_of_few_sizes_and_none_is_lost(count: int) -> None:
    keys = [(n,) for n in range(count)]
    fragments = list(chunks(keys))
    assert all(len(fragment) in CHUNKS and len(fragment) < 1000 for fragment in fragments)
    assert list(dict.fromkeys(key for fragment in fragments for key in fragment)) == keys


def test_a_row_is_found_by_every_spelling_of_its_key_and_a_gone_one_is_left_out() -> None:
    cls, attributes = (
        class_of("USR"),
        [a for a in attributes_of("USR") if a.name in ("FNAME", "PHOTO")],
    )
    recorder = conn([("1", "Jack", b"\xaa\xaa")])
    found = DIALECT.open(recorder).query_back("APP", cls, ["IDU=1", "IDU=2"], attributes)
    assert found == {"IDU=1": {"FNAME": ["Jack"], "PHOTO": ["qqo="]}}
    ((statement, binds),) = recorder.run
    assert binds["k0_0"] == 1
    assert binds["k1_0"] == binds["k9_0"] == 2
    assert ":k10_0" not in statement


def test_the_values_of_a_child_table_are_read_by_a_separate_statement() -> None:
    cls, attributes = (
        class_of("USR"),
        [a for a in attributes_of("USR") if a.name in ("FNAME", "USR_PHONE.PHONENO")],
    )
    recorder = conn([("1", "Jack"), ("2", None)], [("1", "555"), ("1", "777")])
    found = DIALECT.open(recorder).query_back("APP", cls, ["IDU=1", "IDU=2"], attributes)
    assert found == {
        "IDU=1": {"FNAME": ["Jack"], "USR_PHONE.PHONENO": ["555", "777"]},
        "IDU=2": {"FNAME": [None], "USR_PHONE.PHONENO": []},
    }
    assert ['"APP"."USR" p' in recorder.run[0][0], '"APP"."USR_PHONE" p' in recorder.run[1][0]] == [
        True,
        True,
    ]


def test_a_number_of_32_bits_is_compared_as_such() -> None:
    # 0.1 as a double is another number than 0.1 as a float.
    assert bound(column("K", "BINARY_FLOAT", 4), ":k0") == "TO_BINARY_FLOAT(:k0)"
    assert bound(column("K", "BINARY_DOUBLE", 8), ":k0") == "TO_BINARY_DOUBLE(:k0)"


def test_a_float_is_a_number_whose_digits_are_all_kept() -> None:
    float_, digits = column("K", "FLOAT", 22, 126), "0.1234567890123456789012345678901234567"
    assert bound(float_, ":k0") == ":k0"
    assert converter(float_.type, ValueOptions())(digits) == digits
    assert key_value(float_, ":NEW.K") == key_value(column("K", "NUMBER"), ":NEW.K")


def test_a_national_char_is_compared_in_its_own_length_whatever_its_character_set() -> None:
    # NCHAR(1000) is too long where the national character set is UTF8 (ORA-00910).
    assert bound(column("K", "NCHAR", 16), ":k0") == "CAST(:k0 AS NCHAR(8))"
    assert bound(column("K", "NCHAR", 2000), ":k0") == "CAST(:k0 AS NCHAR(1000))"
    assert (
        "c.char_length * 2" in statements("eventlog.sql.dialects.oracle", "reflect.sql")["columns"]
    )


@pytest.mark.parametrize("type_", ["INTERVAL YEAR(2) TO MONTH", "INTERVAL DAY(2) TO SECOND(6)"])
def test_an_interval_has_one_text_in_a_trigger_and_when_it_is_read_back(type_: str) -> None:
    interval = column("K", type_)
    text = value_text(interval, "x")
    assert "TO_CHAR(x)" not in text  # as many digits as the type was declared with
    cls = class_of("EVERY_TYPE")
    statement = values_statement("APP", cls, None, (interval,), 1)
    assert value_text(interval, 'p."K"') in statement
    assert key_value(interval, "x") == text


def test_a_national_text_is_read_back_whole_and_logged_in_the_database_character_set() -> None:
    national = column("NV", "NVARCHAR2", 400)
    assert value_text(national, ":NEW.NV") == key_value(national, ":NEW.NV") == "TO_CHAR(:NEW.NV)"
    assert 'p."NV"\n' in values_statement("APP", class_of("EVERY_TYPE"), None, (national,), 1)


def test_keys_that_no_row_can_have_are_not_asked_for() -> None:
    recorder = conn([])
    assert DIALECT.open(recorder).query_back("APP", class_of("USR"), [f"IDU={'9' * 50}"], ()) == {}
    assert recorder.run == []


@pytest.mark.parametrize(
    ("key", "spelled_so", "value"),
    [
        (column("K", "NUMBER", 22, 9, 0), "007", 7),
        (column("K", "NUMBER"), "1.50", Decimal("1.5")),
        (column("K", "NUMBER"), "1E3", 1000),
        (column("K", "NUMBER"), "1E125", 10**125),
        (column("K", "NUMBER"), f"0.{'3' * 40}", Decimal(f"0.{'3' * 40}")),
        (column("K", "FLOAT", 22, 126), "0.1", Decimal("0.1")),
        (column("K", "FLOAT", 22, 126), "12345678901234567890123456789",
        12345678901234567890123456789), (column("K", "CHAR", 4), "AB  ", "AB"),
        (column("K", "CHAR", 4), "", " "),
        (column("K", "NCHAR", 2000), "\u65e5" * 1000 + "  ", "\u65e5" * 1000),
        (column("K", "VARCHAR2", 9), "AB  ", "AB  "),
        (column("K", "RAW", 9), "qqo=", b"\xaa\xaa"),
        (column("K", "DATE"), "2024-05-06 07:08:09", "2024-05-06 07:08:09"),
        (column("K", "DATE"), "2024-05-06", "2024-05-06 00:00:00"),
        (column("K", "TIMESTAMP(9)"), "2024-05-06T07:08:09.5", "2024-05-06 07:08:09.500000000"),
        (column("K", "TIMESTAMP(6) WITH "
"TIME ZONE"), "2024-05-06 "
"07:08:09+02", "2024-05-06 "
"05:08:09.000000000"),
        (Column("K", ColumnType(Kind.DATE, 0, "date")), "2024-05-06", "2024-05-06"),
    ],
)  # fmt: skip
def test_a_key_value_is_bound_as_one_value_for_all_its_spellings(
    key: Column, spelled_so: str, value: object
) -> None:
    assert DIALECT.key_column_reader(key)(spelled_so) == value


@pytest.mark.parametrize(
    ("key", "spelled_so"),
    [
        (column("K", "NUMBER"), "1E126"),
        (column("K", "NUMBER"), "1E-131"),
        (column("K", "NUMBER"), "1" * 41),
        (column("K", "NUMBER"), f"3.{'3' * 39}"),  # 40 digits, in 21 pairs
        (column("K", "DATE"), "2024-05-06 07:08:09.5"),
        (column("K", "DATE"), "rubbish"),
        (column("K", "VARCHAR2", 9), ""),
        (column("K", "VARCHAR2", 9), "x" * 4001),
        (column("K", "RAW", 9), "AAAA" * 1000),
        (column("K", "NCHAR", 8), "12345"),
    ],
)
def test_a_key_value_that_no_column_holds_is_refused(key: Column, spelled_so: str) -> None:
    with pytest.raises((NoSuchValue, BadValue)):
        DIALECT.key_column_reader(key)(spelled_so)


# --- reflection -----------------------------------------------------------------------------------


def test_a_schema_is_read_from_the_rows_of_the_catalogue() -> None:
    found = database(
        "HR",
        columns=[
            ("GRP", "table", "IDG", "NUMBER", 22, 9, 0, "NO"),
            ("USR", "table", "IDU", "NUMBER", 22, None, 0, "YES"),
            ("USR", "table", "FNAME", "NVARCHAR2", 80, None, None, "YES"),
            ("USR", "table", "SHAPE", "OBJECT", 1, None, None, "YES"),
            ("USR", "table", "IDG", "NUMBER", 22, 9, 0, "YES"),
            ("V", "view", "PK_IDU", "NUMBER", 22, None, None, "NO"),
        ],
        keys=[
            ("GRP", "GRP_PK", "P", "NOT DEFERRABLE", "IDG"),
            ("USR", "USR_PK", "P", "DEFERRABLE", "IDU"),
            ("USR", "USR_U", "U", "NOT DEFERRABLE", "FNAME"),
            ("USR", "USR_U", "U", "NOT DEFERRABLE", "IDG"),
        ],
        unique_indexes=[("USR", "USR_X", "FNAME")],
        foreign_keys=[
            ("USR", "USR_GRP", "HR", "GRP", "IDG", "IDG", "DEFERRABLE"),
            ("USR", "USR_OUT", "SYS", "T", "FNAME", "N", "NOT DEFERRABLE"),
        ],
    )
    grp, usr, view = found.tables
    assert (found.dialect, found.schema, grp.primary_key, view.kind) == (
        "oracle",
        "HR",
        ("IDG",),
        "view",
    )
    assert [(one.name, one.type.kind, one.type.sql) for one in usr.columns] == [
        ("IDU", Kind.INTEGER, "NUMBER(*,0)"),
        ("FNAME", Kind.CHARACTER, "NVARCHAR2(80)"),
        ("IDG", Kind.INTEGER, "NUMBER(9,0)"),
    ]
    assert usr.key_deferrable
    assert usr.partitioned
    assert usr.unique_keys == (("FNAME", "IDG"), ("FNAME",))
    assert usr.foreign_keys == (
        ForeignKey(("FNAME",), "SYS.T", ("N",)),
        ForeignKey(("IDG",), "GRP", ("IDG",), deferrable=True),
    )


def test_keys_over_columns_that_are_left_out_are_left_out() -> None:
    (usr,) = database(
        "HR",
        columns=[("USR", "table", "IDU", "NUMBER", 22, 9, 0, "NO")],
        keys=[
            ("USR", "USR_PK", "P", "NOT DEFERRABLE", "VIRTUAL"),
            ("USR", "USR_U", "U", "NOT DEFERRABLE", "IDU"),
        ],
        unique_indexes=[("USR", "USR_X", "IDU"), ("USR", "USR_X", "VIRTUAL")],
        foreign_keys=[("USR", "USR_GRP", "HR", "GRP", "VIRTUAL", "IDG", "DEFERRABLE")],
    ).tables
    assert (usr.primary_key, usr.unique_keys, usr.foreign_keys) == ((), (("IDU",),), ())


@pytest.mark.parametrize(
    ("row", "kind", "bits"),
    [
        (("NUMBER", 22, None, None), Kind.EXACT, 0),
        (("NUMBER", 22, 9, 0), Kind.INTEGER, 0),
        (("NUMBER", 22, 9, -2), Kind.EXACT, 0),
        (("FLOAT", 22, 126, None), Kind.EXACT, 0),
        (("BINARY_DOUBLE", 8, None, None), Kind.APPROXIMATE, 64),
        (("BINARY_FLOAT", 4, None, None), Kind.APPROXIMATE, 32),
        (("CHAR", 4, None, None), Kind.FIXED, 0),
        (("JSON", 8200, None, None), Kind.OTHER, 0),
        (("LONG", 0, None, None), Kind.CHARACTER, 0),
        (("LONG RAW", 0, None, None), Kind.BINARY, 0),
        (("DATE", 7, None, None), Kind.TIMESTAMP, 0),
        (("TIMESTAMP(6) WITH LOCAL TIME ZONE", 11, None, 6), Kind.TIMESTAMPTZ, 0),
        (("INTERVAL DAY(2) TO SECOND(6)", 11, 2, 6), Kind.OTHER, 0),
    ],
)  # fmt: skip
def test_types_have_the_class_of_the_specification(
    row: tuple[Any, ...], kind: Kind, bits: int
) -> None:
    found = column("C", *row).type
    assert (found.kind, found.bits) == (kind, bits)


# --- resync, bulk ---------------------------------------------------------------------------------


def test_a_resync_reads_keys_and_writes_them_by_an_array() -> None:
    walk = Walk(LOG, "APP", class_of("USR"), Selection("USR", EventType.INSERT_ROW_QUERY_BACK))
    recorder = conn([("3",), ("4",)])
    batch = DIALECT.open(recorder).log(walk.log).write_batch(walk, "IDU=2", 2)
    assert (batch.rows, batch.reached, batch.is_last) == (2, "IDU=4", False)
    (_, keys), (insert, rows) = recorder.run
    assert keys == {"k0": 2, "limit": 2}
    assert insert.startswith('INSERT INTO "LOGS"."EVENTLOG"')
    assert [row["table_key"] for row in rows] == ["IDU=3", "IDU=4"]


def test_the_last_batch_of_a_resync_is_known_by_its_size() -> None:
    walk = Walk(LOG, "APP", class_of("USR"), Selection("USR", EventType.UPDATE_ROW_QUERY_BACK))
    assert DIALECT.open(conn([])).log(walk.log).write_batch(walk, None, 2) == ResyncBatch(
        0, 0, None, True
    )


def test_parts_cover_all_record_ids() -> None:
    recorder = conn([(25, 90)], [(11,), (41,), (80,)])
    parts = DIALECT.open(recorder).log(LOG).log_parts("N", 0, 10**40, 10, 1)
    assert [part[:3] for part in parts] == [(1, 40, 9), (41, 79, 9), (80, 90, 7)]


def test_what_is_no_system_change_number_never_gets_into_a_statement() -> None:
    with pytest.raises(DatabaseError):
        DIALECT.part_as_of(LOG, "1; DROP TABLE x", None, ("record_id",))
    with pytest.raises(ConfigError):
        DIALECT.has_status(LOG, "N' OR '1'='1")


def test_a_data_frame_becomes_a_batch_of_the_fields_asked_for() -> None:
    fields = ("record_id", "event_time", "table_key")
    columns = [
        pa.array([1], pa.int64()),
        pa.array([0], pa.timestamp("ns")),
        pa.array(["x"], pa.large_string()),
    ]
    frame = pa.Table.from_arrays(columns, names=["A", "B", "C"])
    assert oracle.typed(frame, arrow_schema(fields)).schema == arrow_schema(fields)
