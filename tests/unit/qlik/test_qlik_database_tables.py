"""Change tables in databases: created, appended, numbered in one transaction, read back
(formats/qlik.md 1.1, 3, 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from qlik_layouts import new_layout
from shared import refused
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, DatabaseError, FormatError
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.columns import CLASSES, columns_from_json
from eventlog.qlik.tables.change_table_format import FORMAT
from eventlog.qlik.tables.database_tables import change_table
from eventlog.sql.connect.connection import connect_any

NOON = datetime(2024, 5, 10, 12, 0, 0, 123456, UTC)
FULL: Row = {
    "id": 7,
    "Größe; DROP": "x\t\\N\n",
    "price": Decimal("1.50"),
    "made": datetime(2024, 1, 2, 3, 4, 5, 6000),
    "day": date(2024, 1, 2),
    "at": time(3, 4, 5, 6),
    "raw": b"\x00\xff",
    "weight": 0.1,
    "sold": True,
    "big": 2**64 - 1,
    'a "quoted" %(x)s :name': "",
}
NULLS: Row = dict.fromkeys(FULL) | {"id": 7}
TYPES = dict(
    zip(
        FULL,
        [
            "INT4",
            "STRING",
            "NUMERIC",
            "DATETIME",
            "DATE",
            "TIME",
            "BYTES",
            "REAL8",
            "BOOLEAN",
            "UINT8",
            "STRING",
        ],
        strict=True,
    )
)
TABLES = {
    "app.item": {
        "columns": [{"name": name, "type": type} for name, type in TYPES.items()],
        "key": ["id"],
    },
    "app.tag": {"columns": [{"name": "id", "type": "STRING", "length": 20}], "key": ["id"]},
}


def item(
    op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any
) -> Change:
    image = after or before
    key = None if image is None else (("id", image["id"]),)
    fields = {"key": key, "transaction_id": "A1".zfill(32), "commit_time": NOON} | fields
    return Change("app", "item", op, before=before, after=after, **fields)


def tag(hours: int = 0, id: str = "x") -> Change:
    time = NOON + timedelta(hours=hours)
    return Change("app", "tag", ChangeOp.INSERT, (("id", id),), None, {"id": id}, commit_time=time)


CHANGES = [
    item(ChangeOp.INSERT, after=FULL),
    item(ChangeOp.UPDATE, FULL, NULLS, changed=frozenset(FULL.keys() - {"id"})),
    tag(),
    item(ChangeOp.UPDATE, NULLS, {**NULLS, "id": 8}, changed=frozenset({"id"})),
    item(ChangeOp.TRUNCATE),
    item(ChangeOp.DELETE, {**FULL, "id": 8}, transaction_id="A2".zfill(32)),
]
COUNTED = [(1, False), (2, True), (None, None), (1, True), (None, None), (1, True)]


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/changes.db"
    else:
        database: sa.Engine = request.getfixturevalue("database")
        yield database.url.set(drivername="postgresql").render_as_string(hide_password=False)


def put(url: str, changes: list[Change] = CHANGES, **options: Any) -> Report:
    report = Report(strict=True)
    FORMAT.write(changes, url, {"tables": TABLES} | options, report)
    return report


def get(url: str, **options: Any) -> list[Change]:
    # SQLite has no schemas, so the option names what the changes bear; the tables hold whole rows,
    # so a NULL is one.
    reading = {"tables": TABLES, "schema": "app", "absent_nulls": "null"}
    return list(FORMAT.read(url, reading | options, Report(strict=True)))


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    engine = connect_any(url)
    with engine.begin() as connection:
        found = connection.exec_driver_sql(statement)
        return [tuple(row) for row in found] if found.returns_rows else []


def schema_of(url: str) -> str:
    return "" if url.startswith("sqlite") else "app."


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_is_written_is_read(url: str, partitioned: bool) -> None:
    assert put(url, partitioned=partitioned, close_partitions=partitioned).written == len(CHANGES)
    back = get(url, partitioned=partitioned)
    assert [one._replace(position=None) for one in back] == [
        one._replace(event_number=number, last_in_transaction=last)
        for one, (number, last) in zip(CHANGES, COUNTED, strict=True)
    ]
    assert [int(one.position[-3:]) for one in back if one.position] == [1, 3, 4, 6, 7, 8]


def test_numbers_go_on_where_they_ended(url: str) -> None:
    put(url)
    put(url, [tag(-1), tag(1)])
    query(url, "DELETE FROM eventlog_change_sequence")
    put(url, [tag(0)])
    assert [one.position for one in get(url)[-3:]] == [
        "2024051012000012" + "9".zfill(19),  # the clock went back
        "2024051013000012" + "10".zfill(19),
        "2024051013000012" + "11".zfill(19),
    ]


@pytest.mark.promise("option qlik-change-table.writer.task")
def test_each_task_has_its_own_numbers(url: str) -> None:
    put(url, [tag()], task="one")
    put(url, [tag()], task="two")
    put(url, [tag()], task="one")
    found = query(url, "SELECT task_name, number FROM eventlog_change_sequence ORDER BY task_name")
    assert found == [("one", "2"), ("two", "2")]


def test_rows_and_numbers_are_there_together_or_not_at_all(url: str) -> None:
    put(url, [tag()])
    stored = get(url), query(url, "SELECT * FROM eventlog_change_sequence")

    def failing() -> Iterator[Change]:
        yield from CHANGES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FORMAT.write(failing(), url, {"tables": TABLES}, Report())
    assert (get(url), query(url, "SELECT * FROM eventlog_change_sequence")) == stored


def test_many_rows_are_read_in_the_order_of_change_seq(url: str) -> None:
    tables = {"app.tag": TABLES["app.tag"], "app.other": TABLES["app.tag"]}
    changes = [
        tag(id=str(number))._replace(table=("tag", "other")[number % 3 == 0])
        for number in range(6000)
    ]
    put(url, changes, tables=tables)
    assert [one.key for one in get(url, tables=tables)] == [one.key for one in changes]


def test_a_table_that_is_there_is_appended_to_in_its_own_order(url: str) -> None:
    if schema_of(url):
        query(url, "CREATE SCHEMA app")
    columns = (
        "id varchar(20), header__change_oper varchar(1), header__change_seq varchar(35), "
        "header__change_mask bytea"
    )
    query(url, f"CREATE TABLE {schema_of(url)}tag__ct ({columns})")
    put(url, [tag()])
    ((id, oper, seq, mask),) = query(url, f"SELECT * FROM {schema_of(url)}tag__ct")
    assert (id, oper, seq, bytes(mask)) == ("x", "I", "2024051012000012" + "1".zfill(19), b"\x01")
    (back,) = get(url)
    assert back.after == {"id": "x"}


def test_nothing_is_lost_for_want_of_a_column(url: str) -> None:
    put(url, [tag()])
    tables = {"app.tag": {"columns": ["id", "name"], "key": ["id"]}}
    with pytest.raises(FormatError, match="'name'"):
        put(url, [tag()], tables=tables)
    with pytest.raises(FormatError, match="partition_name"):
        put(url, [tag()], partitioned=True)


def test_what_was_written_without_changes_is_read_without_changes(url: str) -> None:
    with pytest.raises(FormatError, match="no change table"):
        get(url)
    put(url, [])
    assert get(url) == []


def test_a_table_without_needed_headers_is_refused(url: str) -> None:
    query(url, "CREATE TABLE tag__ct (id varchar(20), header__change_oper varchar(1))")
    with refused("missing_header", match="header__change_seq"):
        get(url)


def test_the_key_is_read_from_the_masks_of_deletes(url: str) -> None:
    put(url, [tag(), tag()._replace(op=ChangeOp.DELETE, before={"id": "x"}, after=None)])
    first, _ = get(url, tables={"app.tag": {}})
    assert first.key == (("id", "x"),)


def test_a_delete_without_mask_does_not_hide_the_key(url: str) -> None:
    deleted = tag()._replace(op=ChangeOp.DELETE, before={"id": "x"}, after=None)
    put(url, [deleted, deleted])
    stored, seq = f"{schema_of(url)}tag__ct", "header__change_seq"
    query(
        url,
        f"UPDATE {stored} SET header__change_mask = NULL WHERE {seq} = (SELECT min({seq}) FROM "
        f"{stored})",
    )
    assert [one.key for one in get(url, tables={"app.tag": {}})] == [(("id", "x"),)] * 2


def test_values_come_as_the_driver_gives_them_without_columns(url: str) -> None:
    put(url)
    first = get(url, tables={"app.item": {}})[0]
    assert first.after is not None
    assert (first.after["id"], first.after["raw"]) == (7, b"\x00\xff")


def test_the_schema_is_that_of_the_table(url: str) -> None:
    put(url)
    schema = None if url.startswith("sqlite") else "app"
    tables = {"tag" if schema is None else "app.tag": {}}
    assert [one.schema for one in FORMAT.read(url, {"tables": tables}, Report())] == [schema]


def test_only_listed_partitions_are_read(url: str) -> None:
    put(url, [tag(0), tag(1)], partitioned=True)
    assert len(get(url)) == 2
    assert [one.extras["partition_name"] for one in get(url, partitioned=True)] == [
        "20240510T120000_20240510T130000"
    ]
    put(url, [tag(2)], partitioned=True)
    put(url, [], partitioned=True)
    assert len(get(url, partitioned=True)) == 2
    columns = '"SERVER_NAME", "TASK_NAME", "PARTITION_NAME", "TABLE_NAME"'
    assert query(url, f"SELECT {columns} FROM attrep_cdc_partitions ORDER BY 3") == [
        ("eventlog", "eventlog", "20240510T120000_20240510T130000", "tag"),
        ("eventlog", "eventlog", "20240510T130000_20240510T140000", "tag"),
    ]


def test_partitions_of_a_table_without_new_rows_end_too(url: str) -> None:
    put(url, [tag(0)], partitioned=True)
    put(
        url,
        [item(ChangeOp.INSERT, after=FULL, commit_time=NOON + timedelta(hours=1))],
        partitioned=True,
    )
    assert [one.table for one in get(url, partitioned=True)] == ["tag"]


def test_partitions_that_nobody_lists_cannot_be_read(url: str) -> None:
    put(url, [tag()])
    with pytest.raises(ConfigError, match="attrep_cdc_partitions"):
        get(url, partitioned=True)


def test_masks_are_read_with_the_column_list_of_their_time(url: str) -> None:
    columns = [{"name": "id", "type": "STRING"}, {"name": "name", "type": "STRING"}]
    tables = {"app.tag": {"columns": columns, "key": ["id"]}}
    update = Change(
        "app",
        "tag",
        ChangeOp.UPDATE,
        (("id", "x"),),
        None,
        {"id": "x", "name": "a"},
        frozenset({"name"}),
    )
    put(url, [update], tables=tables)
    query(
        url,
        'CREATE TABLE attrep_ddl_history ("CHANGE_SEQ" varchar(35), "TABLE_NAME" text, "DETAILS" '
        "text)",
    )
    details = '{"columns": {"old": {"action": "DROP", "ordinal": 1}}}'
    query(
        url,
        f"INSERT INTO attrep_ddl_history VALUES ('{'2024051012000000' + '1'.zfill(19)}', 'tag', "
        f"'{details}')",
    )
    (now,) = get(url, tables=tables)
    (then,) = get(url, tables=tables, ddl_history=True)
    assert (now.changed, then.changed) == ({"name"}, {"id"})


def test_two_schemas_do_not_become_one_table(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="the same table"):
        put(f"sqlite:///{tmp_path}/changes.db", [tag(), tag()._replace(schema="other")], tables={})


def test_what_the_database_refuses_is_reported_without_secrets(url: str, tmp_path: Path) -> None:
    if url.startswith("sqlite"):
        unusable = f"sqlite:///{tmp_path}/no/such/directory/changes.db"
    else:
        unusable = (
            sa.make_url(url)
            .set(password="secret", port=1, host="127.0.0.1")
            .render_as_string(False)
        )
    with pytest.raises(DatabaseError) as caught:
        put(unusable)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        put("nothing://user:secret@host/db")
    assert "secret" not in str(refused.value)


def test_rows_that_the_database_refuses_are_an_error(url: str) -> None:
    if schema_of(url):
        query(url, "CREATE SCHEMA app")
    headers = "header__change_seq varchar(35), header__change_oper varchar(1)"
    query(url, f"CREATE TABLE {schema_of(url)}tag__ct ({headers}, id varchar(20) CHECK (id = 'a'))")
    with pytest.raises(DatabaseError):
        put(url, [tag()])


def test_what_the_database_refuses_at_the_commit_does_not_count(database: sa.Engine) -> None:
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    query(url, "CREATE SCHEMA app")
    headers = "header__change_seq varchar(35), header__change_oper varchar(1)"
    query(
        url,
        f"CREATE TABLE app.tag__ct ({headers}, id varchar(20) UNIQUE DEFERRABLE INITIALLY "
        "DEFERRED)",
    )
    report = Report()
    with pytest.raises(DatabaseError):
        FORMAT.write([tag(), tag()], url, {"tables": TABLES}, report)
    assert report.written == 0


# --- types ----------------------------------------------------------------------------------------

DIALECTS: dict[str, Any] = {
    "postgresql": postgresql.dialect,
    "oracle": oracle.dialect,
    "mssql": mssql.dialect,
    "mysql": mysql.dialect,
    "sqlite": sqlite.dialect,
}
EXPECTED = {
    "postgresql": ("VARCHAR(35)", "BYTEA", "TIMESTAMP(6) WITHOUT TIME ZONE", "NUMERIC(9, 2)"),
    "oracle": ("VARCHAR2(35 CHAR)", "RAW(128)", "TIMESTAMP(6)", "NUMERIC(9, 2)"),
    "mssql": ("VARCHAR(35)", "VARBINARY(128)", "DATETIME2(6)", "NUMERIC(9, 2)"),
    "mysql": ("VARCHAR(35)", "VARBINARY(128)", "DATETIME(6)", "NUMERIC(9, 2)"),
    "sqlite": ("TEXT", "BLOB", "TEXT", "TEXT"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_types_by_dialect(name: str) -> None:
    columns = columns_from_json(
        [{"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2}], what="item"
    )
    headers = ["change_seq", "change_mask", "timestamp"]
    layout = new_layout(["price"], headers=headers, what="item")
    table = change_table(None, "item__ct", layout, columns)
    ddl = str(CreateTable(table).compile(dialect=DIALECTS[name]()))
    lines = [line.strip(" \t,") for line in ddl.splitlines()]
    found = [
        line.split(" ", 1)[1] for line in lines if line.startswith(("header__", '"', "[", "`"))
    ]
    assert tuple(type.removesuffix(" NULL") for type in found) == EXPECTED[name]
    assert "NOT NULL" not in ddl


@pytest.mark.parametrize("name", DIALECTS)
def test_every_column_type_has_a_type_in_every_dialect(name: str) -> None:
    names = sorted(CLASSES)
    columns = columns_from_json([{"name": type, "type": type} for type in names], what="item")
    columns += columns_from_json([{"name": "short", "type": "BYTES", "length": 16}], what="item")
    layout = new_layout([column.name for column in columns], what="item")
    CreateTable(change_table("app", "item__ct", layout, columns)).compile(dialect=DIALECTS[name]())
