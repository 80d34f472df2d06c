"""``xds/``: every case through the real publisher and a real database: PostgreSQL's own, and all of
them on SQLite.

The case's tables and log are made as it says, filled without triggers, published once. A view is
made over a base table that is nobody's class: it stands in its own schema, or has no key. SQLite
has no schemas, so there the case's is left out, and out of the associations that its documents
hold.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mysql_servers
import pytest
import sqlalchemy as sa
from shared import PlainSink
from vector_cases import Case, configuration, log_text, read_case, tree

from eventlog.core import table_key
from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import LOG_COLUMNS, Answer, Document
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql.dialects.mysql_family import Family
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import load_dialect

BASE_SCHEMA = "base of views"

_ENTRY_TEXTS = ("owner", "kind", "content")


@dataclass(frozen=True)
class Target:
    """A database that cases are built in."""

    dialect: Dialect
    engine: sa.Engine

    def quote(self, name: str) -> str:
        """A name as an identifier in SQL that is handed to the driver; psycopg and PyMySQL read
        ``%`` as their own.
        """
        quoted = self.dialect.quote(name)
        return quoted if self.dialect.name == "sqlite" else quoted.replace("%", "%%")

    def qualified(self, schema: str | None, name: str) -> str:
        return self.quote(name) if schema is None else f"{self.quote(schema)}.{self.quote(name)}"

    def names(self, columns: Iterable[str]) -> str:
        return ", ".join(map(self.quote, columns))

    @property
    def has_schemas(self) -> bool:
        return "schemas" in self.dialect.capabilities


@dataclass
class Receiver(PlainSink):
    """A sink that keeps the documents and answers as the case specifies."""

    case: Case
    documents: list[bytes] = field(default_factory=list)

    def send(self, document: Document) -> Answer:
        self.documents.append(document.body)
        return self.case.answer_to([event.event_id for event in document.events])


def column_type(target: Target, text: str) -> str:
    """A type of the vectors as the database spells it (spec/xds.md 9, 6.2)."""
    if isinstance(target.dialect, Family):
        return family_type(text, target.dialect.byte_collation)
    if not target.has_schemas:
        return "blob" if is_binary(text) else text
    text = re.sub(r"varbinary\(\d+\)|blob", "bytea", text)
    text = re.sub(r"^decimal", "numeric", text)
    return {"clob": "text", "double": "double precision"}.get(text, text)


FAMILY_TYPES = {
    "clob": "longtext",
    "text": "longtext",
    "boolean": "bit(1)",
    "real": "float",
    "timestamp": "datetime(6)",
    "timestamptz": "timestamp(6) NULL",
    "time": "time(6)",
}


def family_type(text: str, collation: str) -> str:
    """The same on MariaDB and MySQL, whose keys hold no text without a length, and compare by the
    collation that is given.
    """
    if is_binary(text):
        return "varbinary(500)"
    own = FAMILY_TYPES.get(text, text)
    return f"{own} COLLATE {collation}" if own.startswith(("varchar", "longtext")) else own


def is_binary(text: str) -> bool:
    return re.fullmatch(r"(var)?binary(\(\d+\))?|blob|bytea", text) is not None


def stored(target: Target, text: str, value: Any) -> tuple[str, Any]:
    """SQL of a bound value of a type of the vectors, and what is bound."""
    plain = log_text(value)
    if isinstance(target.dialect, Family):
        if is_binary(text) and plain is not None:
            return "%({})s", base64.b64decode(plain)
        return "%({})s", int(plain == "true") if text == "boolean" and plain is not None else plain
    if not target.has_schemas:
        if is_binary(text) and plain is not None:
            return ":{}", base64.b64decode(plain)
        return ":{}", int(plain == "true") if text == "boolean" and plain is not None else plain
    return (
        "decode(%({})s, 'base64')"
        if is_binary(text)
        else f"CAST(%({{}})s AS {column_type(target, text)})"
    ), plain


def create_table(
    target: Target,
    conn: sa.Connection,
    schema: str | None,
    table: str,
    columns: Iterable[tuple[str, str]],
    *more: str,
) -> None:
    lines = [
        *(f"{target.quote(name)} {column_type(target, text)}" for name, text in columns),
        *more,
    ]
    conn.exec_driver_sql(f"CREATE TABLE {target.qualified(schema, table)} ({', '.join(lines)})")


def insert(
    target: Target,
    conn: sa.Connection,
    schema: str | None,
    table: str,
    columns: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    for row in rows:
        bound = {}
        places = []
        for number, (name, value) in enumerate(row.items()):
            place, bound[f"p{number}"] = stored(target, columns[name], value)
            places.append(place.format(f"p{number}"))
        conn.exec_driver_sql(
            f"INSERT INTO {target.qualified(schema, table)} ({target.names(row)}) VALUES "
            f"({', '.join(places)})",
            bound,
        )


def build(target: Target, conn: sa.Connection, case: Case, log: LogTable) -> None:
    """Tables, views, contents, foreign keys, log, internal tables."""
    schema = case.database["schema"] if target.has_schemas else None
    base = BASE_SCHEMA if target.has_schemas else None
    if target.has_schemas:
        for name in (schema, base):
            conn.exec_driver_sql(f"CREATE SCHEMA {target.quote(str(name))}")
    tables = case.database["tables"]
    for table in tables:
        columns = {column["name"]: column["type"] for column in table["columns"]}
        is_view = table["kind"] == "view"
        key = table.get("primary_key")
        name, home = table["name"], schema
        if is_view:
            name, home = (table["name"], base) if base else (f"{BASE_SCHEMA} {table['name']}", None)
        more = [f"PRIMARY KEY ({target.names(key)})"] if key else []
        if not target.has_schemas:
            more += [
                f"FOREIGN KEY {_references(target, None, one)}"
                for one in table.get("foreign_keys") or ()
            ]
        create_table(target, conn, home, name, columns.items(), *more)
        insert(target, conn, home, name, columns, case.contents.get(table["name"], ()))
        if is_view:
            conn.exec_driver_sql(
                f"CREATE VIEW {target.qualified(schema, table['name'])} AS SELECT * FROM "
                f"{target.qualified(home, name)}"
            )
    if target.has_schemas:
        for table in tables:
            for one in table.get("foreign_keys") or ():
                # Not valid: contents may hold references to rows that are not there.
                own = target.qualified(schema, table["name"])
                conn.exec_driver_sql(
                    f"ALTER TABLE {own} ADD FOREIGN KEY {_references(target, schema, one)} NOT "
                    "VALID"
                )
    create_table(target, conn, schema, log.name, case.log_columns)
    insert(target, conn, schema, log.name, dict(case.log_columns), case.log_rows)
    now = "CURRENT_TIMESTAMP"
    create_table(
        target, conn, schema, log.error_table,
        [(name, "text") for name in ("code", "message", "consumer", "event_id")],
        "record_id bigint NOT NULL", f"error_time timestamp DEFAULT {now} NOT NULL",
    )  # fmt: skip
    create_table(
        target, conn, schema, log.inflight_table, [(name, "text") for name in _ENTRY_TEXTS],
        "entry_no bigint PRIMARY KEY", f"started timestamp DEFAULT {now} NOT NULL",
    )  # fmt: skip
    create_table(
        target, conn, schema, log.state_table, [(name, "text") for name in _ENTRY_TEXTS],
        "entry_no bigint NOT NULL", f"started timestamp DEFAULT {now} NOT NULL",
    )  # fmt: skip
    create_table(
        target,
        conn,
        schema,
        log.epoch_table,
        [("epoch", "text"), ("server", "text")],
        "raised timestamp",
        "removed bigint",
    )
    for statement in target.dialect.after_internal_tables(log):
        conn.exec_driver_sql(statement)


def _references(target: Target, schema: str | None, key: Mapping[str, Any]) -> str:
    other = target.qualified(schema, key["table"])
    return (
        f"({target.names(key['columns'])}) REFERENCES {other} ({target.names(key['ref_columns'])})"
    )


def can_be_stored(value: Any) -> bool:
    """PostgreSQL's text holds neither NUL nor lone surrogates."""
    if isinstance(value, str):
        return re.search("[\0\ud800-\udfff]", value) is None
    if isinstance(value, Mapping):
        return all(map(can_be_stored, value.values()))
    return not isinstance(value, Sequence) or all(map(can_be_stored, value))


CAPABILITY_OF = {"char": "fixed_char", "timestamptz": "time_zones", "real": "single_precision"}
"""What a type of the vectors needs."""


def lacking(target: Target, case: Case) -> str | None:
    """The capability that a column of the case needs and the database has not."""
    types = {
        column["type"].partition("(")[0]
        for table in case.database["tables"]
        for column in table["columns"]
    }
    needed = {CAPABILITY_OF[one] for one in types if one in CAPABILITY_OF}
    values = [
        str(log_text(value))
        for rows in case.contents.values()
        for row in rows
        for value in row.values()
    ]
    if "decimal" in types and any(len(re.sub(r"^0+|[^0-9]", "", value)) > 15 for value in values):
        needed.add("exact_decimals")
    return (
        min(needed - target.dialect.capabilities, default=None) if not target.has_schemas else None
    )


@pytest.fixture(params=["postgresql", "sqlite", *mysql_servers.params()])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "postgresql":
        yield Target(load_dialect(request.param), request.getfixturevalue("database"))
    elif request.param == "sqlite":
        yield Target(
            load_dialect(request.param),
            sa.create_engine(f"sqlite:///{tmp_path}/case.db", poolclass=sa.NullPool),
        )
    else:
        server = request.getfixturevalue("started_server")(request.param)
        with server.database() as url:
            engine = sa.create_engine(url, poolclass=sa.NullPool)
            # Contents may hold references to rows that are not there.
            settings = "SET time_zone = '+00:00', sql_mode = '', foreign_key_checks = OFF"
            sa.event.listen(engine, "connect", lambda driver, _: driver.query(settings))
            yield Target(load_dialect(server.build.dialect), engine)


@pytest.fixture
def case(xds_case_file: Path, target: Target) -> Case:
    case = read_case(xds_case_file)
    if target.has_schemas and case.database["dialect"] != "postgresql":
        pytest.skip(f"a case of {case.database['dialect']}")
    if isinstance(target.dialect, Family) and xds_case_file.stem == "special_times":
        pytest.skip("moments that PostgreSQL alone has")
    if not can_be_stored(case.log_rows) or not can_be_stored(case.contents):
        pytest.skip("text columns cannot hold NUL or lone surrogates")
    if capability := lacking(target, case):
        pytest.skip(f"{target.dialect.name} has no capability {capability}")
    return case if target.has_schemas else without_schema(case)


def without_schema(case: Case) -> Case:
    """The case as a database without schemas has it."""
    schema = case.database["schema"]
    options = {
        name: value
        for name, value in case.options.items()
        if name not in ("schema_name", "sync-schema")
    }
    if schema is None:
        return replace(case, options=options)
    document = case.document.replace(f",schema={table_key.quote(schema)}".encode(), b"")
    rows = [
        {
            name: value.replace(f"{schema}.", "") if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in case.log_rows
    ]
    return replace(case, options=options, document=document, log_rows=rows)


def test_case(case: Case, target: Target, tmp_path: Path) -> None:
    schema = case.database["schema"] if target.has_schemas else None
    log = LogTable(schema, "eventlog", LOG_COLUMNS, max_identifier=target.dialect.max_identifier)
    with target.engine.begin() as conn:
        build(target, conn, case, log)
        if target.has_schemas:
            # So that names without schema are the case's own, as its options may give them.
            database = target.quote(str(target.engine.url.database))
            conn.exec_driver_sql(
                f"ALTER DATABASE {database} SET search_path = {target.quote(str(schema))}"
            )
    url = target.engine.url.render_as_string(hide_password=False)
    receiver = Receiver(case)
    with (
        open_context(configuration(case, tmp_path, url=url), Counters()) as context,
        # A fatal answer stops the publisher, a retry leaves rows behind: what became of them is
        # compared below.
        contextlib.suppress(FatalAnswer, ReceiverUnavailable),
    ):
        publish_once(context, receiver)
    assert len(receiver.documents) == 1
    assert tree(receiver.documents[0]) == tree(case.document)
    record_id, status = context.log.table.columns[:2]
    with target.engine.connect() as conn:
        statuses = dict(conn.execute(select(schema, log.name, record_id, status)).all())
        errors = conn.execute(select(schema, log.error_table, "record_id", "code")).all()
        in_flight = conn.execute(select(schema, log.inflight_table, "content")).all()
    before = {row[record_id]: row[status] for row in case.log_rows}
    assert {**dict.fromkeys(before, "deleted"), **statuses} == {**before, **case.statuses}
    assert sorted(map(tuple, errors)) == case.errors
    assert case.answer is not None or not in_flight


def select(schema: str | None, table: str, *columns: str) -> sa.Select[Any]:
    return sa.select(*map(sa.column, columns)).select_from(sa.table(table, schema=schema))
