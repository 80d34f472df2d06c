"""Every kind of statement that the Oracle dialect makes, over tables of all sorts, for golden
files, grammars, lints.

A case is a name and statements.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from eventlog.core.catalog import (
    Attribute,
    Catalog,
    Column,
    Database,
    ForeignKey,
    ObjectClass,
    Table,
)
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LOG_COLUMNS, EventType
from eventlog.sql import migrations
from eventlog.sql.dialects.oracle import DIALECT, log
from eventlog.sql.dialects.oracle.log import IDENTITY
from eventlog.sql.dialects.oracle.objects import (
    column_type,
    fingerprint_statement,
    values_statement,
)
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, named_statement
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Storage
from eventlog.sql.port.dialect import WORDS
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.log_operations import Selection, Walk, Window
from eventlog.sql.port.sql_files import statements
from eventlog.sql.triggers import Action, TriggerPlan, triggers_of
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.watch import WatchedTable, excluded_columns

Cases = Mapping[str, tuple[str, ...]]

LONG_NAME = "A" * 128
ODD_NAME = "It's 50% of :NEW & more; ü -- /*"


def column(
    name: str,
    data_type: str,
    length: int = 0,
    precision: int | None = None,
    scale: int | None = None,
) -> Column:
    """A column as ``ALL_TAB_COLS`` reports it."""
    type_ = column_type(data_type, length, precision, scale)
    assert type_ is not None, data_type
    return Column(name, type_)


def number(name: str) -> Column:
    return column(name, "NUMBER", 22, 10, 0)


def text(name: str, length: int = 64) -> Column:
    return column(name, "VARCHAR2", length)


def table(name: str, columns: Sequence[Column], key: Sequence[str] = (), **more: object) -> Table:
    unique = tuple(more.pop("unique", ())) + ((tuple(key),) if key else ())  # type: ignore[arg-type]
    return Table(name, "table", tuple(columns), tuple(key), unique_keys=unique, **more)  # type: ignore[arg-type]


EVERY_TYPE = table(
    "EVERY_TYPE",
    [
        number("ID"),
        column("N", "NUMBER"),
        column("N2", "NUMBER", 22, 12, 4),
        column("F", "FLOAT"),
        column("BF", "BINARY_FLOAT"),
        column("BD", "BINARY_DOUBLE"),
        column("C", "CHAR", 8),
        column("NC", "NCHAR", 16),
        column("V", "VARCHAR2", 4000),
        column("NV", "NVARCHAR2", 400),
        column("R", "RAW", 2000),
        column("D", "DATE"),
        column("T", "TIMESTAMP(9)"),
        column("TZ", "TIMESTAMP(6) WITH TIME ZONE"),
        column("LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        column("YM", "INTERVAL YEAR(2) TO MONTH"),
        column("DS", "INTERVAL DAY(2) TO SECOND(6)"),
        column("RI", "ROWID"),
        column("CL", "CLOB"),
        column("NCL", "NCLOB"),
        column("B", "BLOB"),
        column("BFI", "BFILE"),
        column("X", "XMLTYPE"),
        column("L", "LONG"),
        column("J", "JSON"),
    ],
    ["ID"],
)
USR = table(
    "USR", [number("IDU"), text("FNAME"), text("LNAME"), column("PHOTO", "LONG RAW")], ["IDU"]
)
USR_PHONE = table(
    "USR_PHONE",
    [number("IDU"), text("PHONENO")],
    unique=[("IDU", "PHONENO")],
    foreign_keys=(ForeignKey(("IDU",), "USR", ("IDU",)),),
)
USR_NOTE = table(
    "USR_NOTE",
    [number("IDU"), column("NOTE", "CLOB")],
    foreign_keys=(ForeignKey(("IDU",), "USR", ("IDU",)),),
)
ACC = table(
    "ACC",
    [
        text("BRANCH"),
        column("CODE", "CHAR", 4),
        column("HASH", "RAW", 16),
        column("AMOUNT", "NUMBER"),
        column("DAY", "DATE"),
        column("MOMENT", "TIMESTAMP(6) WITH TIME ZONE"),
        column("RATE", "BINARY_DOUBLE"),
        text("OWNER"),
    ],
    ["DAY", "BRANCH", "CODE", "HASH", "AMOUNT", "MOMENT", "RATE"],
)
ACC_TAG = table(
    "ACC_TAG",
    [*ACC.columns[:-1], text("TAG")],
    foreign_keys=(ForeignKey(ACC.primary_key, "ACC", ACC.primary_key),),
    unique=[(*ACC.primary_key, "TAG")],
)
LINK = table("LINK", [number("A"), number("B")], ["A", "B"])
WIDE_NAMES = table(
    LONG_NAME, [number("B" * 128), text("C" * 128), column("d" * 128, "BLOB")], ["B" * 128]
)
ODD_NAMES = table(
    ODD_NAME,
    [text(f"{ODD_NAME} k"), text(f"{ODD_NAME} v"), column("Photo", "BLOB")],
    [f"{ODD_NAME} k"],
)
WIDE_KEY = table(
    "WIDE_KEY",
    [*(text(f"{letter * 100}") for letter in "ABCDEFGHIJ"), text("V")],
    [letter * 100 for letter in "ABCDEFGHIJ"],
)
LONG_VALUES = table(
    "LONG_VALUES", [number("ID"), text("V", 32767), column("R", "RAW", 32767), text("W")], ["ID"]
)
EMP = table("EMP", [number("EMPNO"), text("FNAME"), number("MANAGER")], ["EMPNO"])
PHONE = table("PHONE", [number("EMPNO"), text("NO")], ["EMPNO", "NO"])
ACTIVE = table("ACTIVE", [number("EMPNO"), column("SINCE", "DATE")], ["EMPNO"])
VIEW_EMP = Table(
    "VIEW_EMP",
    "view",
    (number("PK_EMPNO"), text("SV_FNAME"), number("FK__EMPNO__MANAGER"), text("MV_PHONENO")),
)
GENERIC = Table(
    "generic",
    "table",
    tuple(
        Column(name, ColumnType(kind, bits, sql))
        for name, kind, bits, sql in [
            ("id", Kind.INTEGER, 64, "bigint"),
            ("t", Kind.CHARACTER, 0, "text"),
            ("b", Kind.BINARY, 0, "blob"),
            ("vb", Kind.BINARY, 0, "varbinary(64)"),
            ("d", Kind.DATE, 0, "date"),
            ("tz", Kind.TIMESTAMPTZ, 0, "timestamptz"),
            ("flag", Kind.BOOLEAN, 0, "boolean"),
        ]
    ),
    ("id",),
    unique_keys=(("id",),),
)

DATABASE = Database(
    "oracle",
    "APP",
    (
        EVERY_TYPE, USR, USR_PHONE, USR_NOTE, ACC, ACC_TAG, LINK, WIDE_NAMES, ODD_NAMES,
        LONG_VALUES, EMP, PHONE, ACTIVE, VIEW_EMP, GENERIC, WIDE_KEY,
    ),
)  # fmt: skip
BASE = {
    "EMP": {"EMPNO": "PK_EMPNO", "FNAME": "SV_FNAME", "MANAGER": "FK__EMPNO__MANAGER"},
    "PHONE": {"EMPNO": "PK_EMPNO", "NO": "MV_PHONENO"},
    "ACTIVE": {"EMPNO": "PK_EMPNO"},
}
LOG = LogTable("LOGS", "EVENTLOG", tuple(map(str.upper, LOG_COLUMNS)), (), 128, True)
OWN_LOG = LogTable("APP", "EVENTLOG", LOG.columns, (), 128, True)
ODD_LOG = LogTable(
    "Logs",
    "Ereignisse 'neu'",
    tuple(f"c{place}" for place in range(1, 11)),
    tuple(
        ColumnType(Kind.TIMESTAMPTZ if name == "event_time" else Kind.CHARACTER)
        for name in LOG_COLUMNS
    ),
    128,
    True,
)

WATCHES: Mapping[str, tuple[LogTable, WatchedTable]] = {
    "field": (LOG, WatchedTable("EVERY_TYPE")),
    "remove_all": (OWN_LOG, WatchedTable("EVERY_TYPE", "remove_all", exclude=("L", "X", "BFI"))),
    "field_query_back": (OWN_LOG, WatchedTable("EVERY_TYPE", "field_query_back")),
    "row_query_back": (OWN_LOG, WatchedTable("EVERY_TYPE", "row_query_back")),
    "statement": (
        OWN_LOG,
        WatchedTable("EVERY_TYPE", trigger_level="statement", columns=("V", "N", "D", "CL")),
    ),
    "statement_row_query_back": (OWN_LOG, WatchedTable("USR", "row_query_back", "statement")),
    "lob_values": (
        OWN_LOG,
        WatchedTable("EVERY_TYPE", columns=("V", "CL", "NCL", "B"), lob_values=True),
    ),
    "lob_values_by_statement": (
        OWN_LOG,
        WatchedTable("EVERY_TYPE", trigger_level="statement", columns=("V", "CL"), lob_values=True),
    ),
    "lob_capture_always": (
        OWN_LOG,
        WatchedTable("EVERY_TYPE", columns=("V", "CL", "B"), lob_capture_always=True),
    ),
    "children": (OWN_LOG, WatchedTable("USR")),
    "children_query_back": (OWN_LOG, WatchedTable("USR", "field_query_back")),
    "children_by_statement": (
        OWN_LOG,
        WatchedTable("USR", "remove_all", "statement", exclude=("PHOTO",)),
    ),
    "composite_key": (OWN_LOG, WatchedTable("ACC")),
    "key_only": (OWN_LOG, WatchedTable("LINK")),
    "long_names": (OWN_LOG, WatchedTable(LONG_NAME)),
    "odd_names": (OWN_LOG, WatchedTable(ODD_NAME)),
    "wide_key": (OWN_LOG, WatchedTable("WIDE_KEY")),
    "long_values": (OWN_LOG, WatchedTable("LONG_VALUES")),
    "view": (OWN_LOG, WatchedTable("VIEW_EMP", base=BASE)),
    "view_row_query_back": (OWN_LOG, WatchedTable("VIEW_EMP", "row_query_back", base=BASE)),
    "odd_log": (ODD_LOG, WatchedTable("EMP")),
    "generic_types": (OWN_LOG, WatchedTable("generic")),
}

CATALOG = build_catalog(DATABASE)


def class_of(name: str, catalog: Catalog = CATALOG) -> ObjectClass:
    return next(cls for cls in catalog.classes if cls.name == name)


def attributes_of(name: str) -> tuple[Attribute, ...]:
    return tuple(attribute for attribute in class_of(name).attributes if not attribute.is_key)


def triggers_on(to: LogTable, watch: WatchedTable) -> tuple[str, ...]:
    catalog = build_catalog(
        DATABASE, exclude=excluded_columns(DATABASE, watch, [cls.name for cls in CATALOG.classes])
    )
    declared, _, _ = declared_triggers(DATABASE, catalog, [watch])
    compiled = OracleTriggers().compile_declared(DATABASE.schema, to, declared)
    return tuple(trigger.statement for one in compiled for trigger in one.triggers)


@cache
def cases() -> Cases:
    """All cases, by name."""
    reflect = {
        **statements("eventlog.sql.dialects.oracle", "reflect.sql"),
        "fingerprint": fingerprint_statement(2),
    }
    return {
        **{f"trigger_{name}": triggers_on(*case) for name, case in WATCHES.items()},
        "functions": (*DIALECT.after_log(LOG), *DIALECT.drop_after_log(ODD_LOG)),
        "sequences": (
            *DIALECT.before_log(LOG),
            *DIALECT.after_internal_tables(LOG),
            *DIALECT.drop_before_log(LOG),
        ),
        "log_statements": tuple(_log_statements()),
        "query_back": tuple(_query_back()),
        "resync": tuple(_resync()),
        "catalogue": (
            *reflect.values(),
            *(
                named_statement(name, 2)
                for name in statements("eventlog.sql.dialects.oracle", "installed.sql")
            ),
            statements("eventlog.sql.dialects.oracle", "doctor.sql")["numberings"],
            statements("eventlog.sql.dialects.oracle", "doctor.sql")["scaled"],
        ),
        "identity": (IDENTITY,),
        "lock": (log.request_block(LOG), log.release_block(LOG), log.row_lock(LOG)),
        "bulk": (
            DIALECT.part_as_of(LOG, "4711", "N", LOG_COLUMNS),
            DIALECT.part_as_of(ODD_LOG, None, None, ("record_id", "event_time")),
        ),
    }


def _log_statements() -> Iterator[str]:
    for of in (LOG, ODD_LOG):
        for window in (Window(1, None, None), Window(1, None, None, "ANN")):
            yield DIALECT.window_statement(of, window, LOG_COLUMNS)
        for name in filter(lambda name: name not in (*WORDS, "read_window"), DIALECT.log_sql):
            yield DIALECT.log_statement(
                of, name, ids=":id0", has_status=DIALECT.has_status(of, "N")
            )


def _query_back() -> Iterator[str]:
    for name in ("EVERY_TYPE", "USR", "ACC", "VIEW_EMP", ODD_NAME):
        cls = class_of(name)
        own = tuple(a.column for a in attributes_of(name) if a.table == cls.table.name)
        yield values_statement("APP", cls, None, own, 1)
        yield values_statement("APP", cls, None, own[:1], 10)
        for child in cls.children:
            yield values_statement("APP", cls, child, (child.attribute.column,), 1)


def _resync() -> Iterator[str]:
    for name, where in (
        ("ACC", None),
        ("VIEW_EMP", None),
        ("USR", "FNAME LIKE 'J%' -- only these"),
    ):
        walk = Walk(
            LOG, "APP", class_of(name), Selection(name, EventType.INSERT_ROW_QUERY_BACK, where)
        )
        yield DIALECT.keys_statement(walk, continues=False)
        yield DIALECT.keys_statement(walk, continues=True)
    yield DIALECT.log_statement(LOG, "write_key")


ELSEWHERE = Storage("logs", '"Fast disk"', {"idx_eventlog_5": "log_queue", "PK_EVENTLOG": "log_pk"})
"""A storage of every kind."""


def migration_script(storage: Storage | None = None) -> str:
    """``eventlog db upgrade --sql --dialect oracle``."""
    out, made = io.StringIO(), {} if storage is None else {"storage": storage}
    migrations.upgrade(None, log_table="LOGS.EVENTLOG", sql=out, dialect_name="oracle", **made)
    return out.getvalue()


def downgrade_script() -> str:
    """``eventlog db downgrade base --sql --dialect oracle``."""
    out = io.StringIO()
    migrations.downgrade(None, log_table="LOGS.EVENTLOG", sql=out, dialect_name="oracle")
    return out.getvalue()


def script_statements(script: str) -> tuple[str, ...]:
    """What SQL*Plus would send to the server of a script, statement by statement."""
    found: list[str] = []
    open_: list[str] = []
    for line in script.split("\n"):
        if not open_ and (
            not line.strip() or line.startswith(("--", "SET ", "WHENEVER ", "COMMIT;"))
        ):
            continue
        is_block = (open_ or [line])[0].startswith(("BEGIN", "DECLARE", "CREATE OR REPLACE"))
        if is_block and line == "/":
            found.append("\n".join(open_))
            open_ = []
            continue
        open_.append(line)
        if not is_block and line.endswith(";"):
            found.append("\n".join(open_).removesuffix(";"))
            open_ = []
    assert not open_
    return tuple(found)


def of_scripts() -> Cases:
    """The statements of whole scripts, with the blocks that only a script has."""
    plan = TriggerPlan((Action("create", "APP.LINK", "new", cases()["trigger_key_only"]),))
    return {
        "upgrade": script_statements(migration_script()),
        "upgrade_elsewhere": script_statements(migration_script(ELSEWHERE)),
        "downgrade": script_statements(downgrade_script()),
        "script": script_statements(triggers_of(load_dialect("oracle")).script(plan, 5.0)),
    }
