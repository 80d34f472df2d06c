"""The event log as a live table: read with its types and query-back, appended to in one
transaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.conversion import convert
from eventlog.errors import DatabaseError, FormatError, LogTableError
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named

TABLES = """
CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(64), paid numeric(9,2), photo bytea);
CREATE TABLE usr_phone (idu integer REFERENCES usr, phoneno varchar(32), UNIQUE (idu, phoneno));
CREATE TABLE eventlog (
    record_id bigint GENERATED ALWAYS AS IDENTITY, status char(1) NOT NULL, event_type smallint NOT NULL,
    event_time timestamp, perpetrator text, table_name text, table_key text, column_name text, old_value text,
    new_value text
);
CREATE TABLE eventlog_error (record_id bigint, error_time timestamp, code text, message text, consumer text,
    event_id text);
CREATE TABLE eventlog_inflight (entry_no bigint, owner text, kind text, started timestamp, content text);
CREATE TABLE eventlog_state (entry_no bigint, owner text, kind text, started timestamp DEFAULT now(), content text);
CREATE TABLE eventlog_epoch (epoch text, server text, raised timestamp, removed bigint);
INSERT INTO usr VALUES (1, 'John', 1.50, '\\xbbbb');
INSERT INTO usr_phone VALUES (1, '555-2'), (1, '555-1');
INSERT INTO eventlog(status, event_type, event_time, perpetrator, table_name, table_key, column_name, old_value, new_value)
VALUES ('N', 5, '2024-05-10 12:00:00.5', 'ann', 'usr', 'idu=1', NULL, NULL, NULL),
       ('S', 2, NULL, NULL, 'usr', 'idu=2', 'paid', '1', '2.50'),
       ('N', 6, NULL, NULL, 'usr', 'idu=9', NULL, NULL, NULL),
       ('N', 4, NULL, NULL, 'usr', 'idu=3', NULL, NULL, NULL)
"""

ROW = {
    "idu": 1,
    "fname": "John",
    "paid": 1.5,
    "photo": b"\xbb\xbb",
    "usr_phone.phoneno": ("555-1", "555-2"),
}


@pytest.fixture
def url(database: sa.Engine) -> str:
    """URL of a database with a log of four rows and the tables they are about."""
    with database.begin() as connection:
        for statement in TABLES.split(";"):
            connection.exec_driver_sql(statement)
    return database.url.render_as_string(hide_password=False)


def changes(source: str, **options: Any) -> tuple[list[Change], Report]:
    report = Report()
    return list(format_named("eventlog").read(source, options, report)), report


def test_a_live_log_is_read_with_the_types_of_the_database_and_queried_back(url: str) -> None:
    found, report = changes(url)
    first, second, third = found
    assert (first.op, first.schema, first.key, first.user) == (
        ChangeOp.INSERT,
        "public",
        (("idu", 1),),
        "ann",
    )
    assert first.after == ROW
    assert str(first.commit_time) == "2024-05-10 12:00:00.500000+00:00"
    assert (second.before, second.after) == ({"idu": 2, "paid": 1}, {"idu": 2, "paid": 2.5})
    assert third.op is ChangeOp.DELETE
    assert report.counters == {"groups_gone": 1}
    assert [change.position for change in changes(url, status="S")[0]] == ["2"]


def test_rows_in_a_file_are_queried_back_by_a_database_url(url: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "record_id,status,event_type,event_time,perpetrator,table_name,table_key,column_name,old_value,new_value\n"
        "1,N,8,,,usr,idu=1,fname,,\n"
    )
    (change,), _ = changes(str(path), database_url=url)
    assert (change.after, change.changed) == ({"idu": 1, "fname": "John"}, {"fname"})
    (change,), _ = changes(str(path))
    assert (change.after, change.extras["columns"]) == (None, ["fname"])


def test_what_the_server_copies_to_csv_is_read(
    url: str, database: sa.Engine, tmp_path: Path
) -> None:
    connection = database.raw_connection()
    try:
        copy = "COPY eventlog TO STDOUT (FORMAT csv, HEADER)"
        with connection.cursor().copy(copy) as data, (tmp_path / "log.csv").open("wb") as file:
            file.writelines(data)
    finally:
        connection.close()
    catalog = {
        "dialect": "postgresql",
        "schema": "public",
        "tables": [
            {
                "name": "usr",
                "kind": "table",
                "columns": [
                    {"name": "idu", "type": "integer"},
                    {"name": "paid", "type": "decimal(9,2)"},
                ],
                "primary_key": ["idu"],
            }
        ],
    }
    found, report = changes(str(tmp_path / "log.csv"), catalog=catalog)
    live, _ = changes(url)
    assert [change.position for change in found] == ["1", "2", "3", "4"]
    assert found[1] == live[1]
    assert found[3] == live[2]
    assert report.counters == {}


def test_changes_are_appended_to_a_live_log_which_numbers_them(
    url: str, database: sa.Engine, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"schema":"public","table":"usr","op":"DELETE","key":[["idu",3]],"commit_time":"2024-05-10T12:00:00.25Z"}\n'
        '{"table":"usr","op":"INSERT","key":[["idu",4]],"after":{"idu":4,"fname":"Zoe"},"user":"bob"}\n'
    )
    report = convert("jsonl", "eventlog", str(tmp_path / "in.jsonl"), url)
    assert report.written == 2
    with database.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT * FROM eventlog WHERE record_id > 4 ORDER BY record_id"
        ).all()
    deleted, inserted = found
    assert (deleted[0], str(deleted[3]), *deleted[4:7]) == (
        5,
        "2024-05-10 12:00:00.250000",
        None,
        "usr",
        "idu=3",
    )
    assert (*inserted[1:3], *inserted[4:]) == ("N", 1, "bob", "usr", "idu=4", "fname", None, "Zoe")


def test_what_a_live_log_has_no_place_for_is_passed_over_and_counted(url: str) -> None:
    key = (("idu", 7),)
    told = [
        Change("public", "usr", ChangeOp.INSERT, key, None, {"idu": 7, "fname": text})
        for text in ("a\0b", "a\x01\uffffb")
    ]
    report = Report()
    format_named("eventlog").write(told, url, {}, report)
    assert (report.written, report.counters) == (1, {"not_expressible": 1})
    assert (
        "new_value of a row of 'usr' contains U+0000, which the database cannot store"
        in report.problems[0]
    )
    found, _ = changes(url)
    assert [change.after for change in found if change.key == key] == [
        {"idu": 7, "fname": "a\x01\uffffb"}
    ]


def test_what_fails_on_the_way_leaves_the_log_as_it_was(
    url: str, database: sa.Engine, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"table":"usr","op":"DELETE","key":[["idu",3]]}\nnonsense\n'
    )
    with pytest.raises(FormatError):
        convert("jsonl", "eventlog", str(tmp_path / "in.jsonl"), url, strict=True)
    with database.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM eventlog").scalar() == 4


@pytest.mark.promise("option eventlog.reader.log_table")
def test_a_log_that_is_not_there_or_a_server_that_is_unavailable_is_reported(url: str) -> None:
    with pytest.raises(LogTableError, match="no log table 'nowhere'"):
        changes(url, log_table="nowhere")
    with pytest.raises(DatabaseError, match="cannot connect"):
        changes("postgresql://nobody@127.0.0.1:1/none")
