"""``xds/``: every PostgreSQL case through the real publisher and a real server.

The case's tables and log are made as it says, filled without triggers, published once. A view is made over a base table
that stands in a schema of its own, so that it is nobody's class.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from vector_cases import Case, configuration, log_text, read_case, tree

from eventlog.answer import Answer
from eventlog.errors import FatalAnswer, ReceiverAway
from eventlog.publisher.daemon import publish_once
from eventlog.publisher.metrics import Counters
from eventlog.publisher.opening import open_context
from eventlog.publisher.sinks import Document
from eventlog.sql.dialects import load
from eventlog.sql.log_table import LogTable

BASE_SCHEMA = "base of views"


def quote(name: str) -> str:
    """A name as an identifier in SQL that is handed to the driver, which reads ``%`` as its own."""
    return load("postgresql").quote(name).replace("%", "%%")


@dataclass
class Receiver:
    """A sink that keeps the documents and answers as the case says."""

    case: Case
    documents: list[bytes] = field(default_factory=list)

    def send(self, document: Document) -> Answer:
        self.documents.append(document.body.encode())
        return self.case.answer_to([event.event_id for event in document.events])

    def flush(self) -> None: ...

    def close(self) -> None: ...


def column_type(text: str) -> str:
    """A type of the vectors as PostgreSQL spells it (spec/xds.md 9, 6.2)."""
    text = re.sub(r"varbinary\(\d+\)|blob", "bytea", text)
    text = re.sub(r"^decimal", "numeric", text)
    return {"clob": "text", "double": "double precision"}.get(text, text)


def from_text(parameter: str, text: str) -> str:
    """SQL of a bound log text as a value of a type of the vectors."""
    if column_type(text) == "bytea":
        return f"decode({parameter}, 'base64')"
    return f"CAST({parameter} AS {column_type(text)})"


def create_table(conn: sa.Connection, schema: str, table: str, columns: Iterable[tuple[str, str]], *more: str) -> None:
    lines = [*(f"{quote(name)} {column_type(text)}" for name, text in columns), *more]
    conn.exec_driver_sql(f"CREATE TABLE {quote(schema)}.{quote(table)} ({', '.join(lines)})")


def names(columns: Iterable[str]) -> str:
    return ", ".join(map(quote, columns))


def insert(
    conn: sa.Connection, schema: str, table: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> None:
    for row in rows:
        bound = {f"p{number}": log_text(value) for number, value in enumerate(row.values())}
        values = (from_text(f"%({name})s::text", columns[column]) for name, column in zip(bound, row, strict=True))
        conn.exec_driver_sql(
            f"INSERT INTO {quote(schema)}.{quote(table)} ({names(row)}) VALUES ({', '.join(values)})".replace(
                "%%", "%"
            ),
            bound,
        )


def build(conn: sa.Connection, case: Case, log: LogTable) -> None:
    """Tables, views, contents, foreign keys, log, companions."""
    schema = case.database["schema"]
    for name in (schema, BASE_SCHEMA):
        conn.exec_driver_sql(f"CREATE SCHEMA {quote(name)}")
    tables = case.database["tables"]
    for table in tables:
        columns = {column["name"]: column["type"] for column in table["columns"]}
        is_view = table["kind"] == "view"
        home = BASE_SCHEMA if is_view else schema
        key = table.get("primary_key")
        create_table(conn, home, table["name"], columns.items(), *([f"PRIMARY KEY ({names(key)})"] if key else ()))
        insert(conn, home, table["name"], columns, case.contents.get(table["name"], ()))
        if is_view:
            view, base = (f"{quote(place)}.{quote(table['name'])}" for place in (schema, BASE_SCHEMA))
            conn.exec_driver_sql(f"CREATE VIEW {view} AS SELECT * FROM {base}")
    for table in tables:
        for key in table.get("foreign_keys") or ():
            # Not valid: contents may hold references to rows that are not there.
            conn.exec_driver_sql(
                f"ALTER TABLE {quote(schema)}.{quote(table['name'])} ADD FOREIGN KEY ({names(key['columns'])}) "
                f"REFERENCES {quote(schema)}.{quote(key['table'])} ({names(key['ref_columns'])}) NOT VALID"
            )
    create_table(conn, schema, log.name, case.log_columns)
    insert(conn, schema, log.name, dict(case.log_columns), case.log_rows)
    create_table(
        conn, schema, log.error_table, [(name, "text") for name in ("code", "message")],
        "record_id bigint NOT NULL", "error_time timestamp NOT NULL DEFAULT now()",
    )  # fmt: skip
    create_table(
        conn, schema, log.inflight_table, [("composition", "text")],
        "flight_no bigint PRIMARY KEY", "started timestamp NOT NULL DEFAULT now()",
    )  # fmt: skip
    conn.exec_driver_sql(f"CREATE SEQUENCE {quote(schema)}.{quote(log.flight_sequence)}")


def can_be_stored(value: Any) -> bool:
    """PostgreSQL's text holds neither NUL nor lone surrogates."""
    if isinstance(value, str):
        return re.search("[\0\ud800-\udfff]", value) is None
    if isinstance(value, Mapping):
        return all(map(can_be_stored, value.values()))
    return not isinstance(value, Sequence) or all(map(can_be_stored, value))


@pytest.fixture
def case(xds_case_file: Path) -> Case:
    case = read_case(xds_case_file)
    if case.database["dialect"] != "postgresql":
        pytest.skip(f"a case of {case.database['dialect']}")
    if not can_be_stored(case.log_rows) or not can_be_stored(case.contents):
        pytest.skip("PostgreSQL cannot hold NUL or lone surrogates")
    return case


def test_case(case: Case, database: sa.Engine, tmp_path: Path) -> None:
    schema = case.database["schema"]
    log = LogTable(schema, "eventlog", ())
    with database.begin() as conn:
        build(conn, case, log)
        # So that names without schema are the case's own, as its options may give them.
        conn.exec_driver_sql(f"ALTER DATABASE {quote(str(database.url.database))} SET search_path = {quote(schema)}")
    url = database.url.render_as_string(hide_password=False)
    receiver = Receiver(case)
    with (
        open_context(configuration(case, tmp_path, url=url), Counters()) as context,
        # A fatal answer stops the publisher, a retry leaves rows behind: what became of them is compared below.
        contextlib.suppress(FatalAnswer, ReceiverAway),
    ):
        publish_once(context, receiver)
    assert len(receiver.documents) == 1
    assert tree(receiver.documents[0]) == tree(case.envelope)
    record_id, status = context.log.columns[:2]
    with database.connect() as conn:
        statuses = dict(conn.execute(select(schema, log.name, record_id, status)).all())
        errors = conn.execute(select(schema, log.error_table, "record_id", "code")).all()
        in_flight = conn.execute(select(schema, log.inflight_table, "composition")).all()
    before = {row[record_id]: row[status] for row in case.log_rows}
    assert {**dict.fromkeys(before, "deleted"), **statuses} == {**before, **case.statuses}
    assert sorted(map(tuple, errors)) == case.errors
    assert case.answer is not None or not in_flight


def select(schema: str, table: str, *columns: str) -> sa.Select[Any]:
    return sa.select(*map(sa.column, columns)).select_from(sa.table(table, schema=schema))
