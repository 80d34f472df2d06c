"""What the tests of `eventlog resync` share: a schema with classes, the log in it, and a
receiver.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from shared import Objects, apply_event, execute, opened_log

from eventlog.cli.repair.runs.resync import fingerprint
from eventlog.core.catalog import ObjectClass
from eventlog.core.catalog.builder import build_catalog
from eventlog.model import LOG_COLUMNS, EventType
from eventlog.sql import migrations
from eventlog.sql import resync as batches
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import ResyncBatch, Selection
from eventlog.xds.reader import read_events

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, UNIQUE (idu, phoneno));
CREATE TABLE hr.desk (branch varchar(40), num integer, label text, PRIMARY KEY (branch, num));
CREATE VIEW hr.view_usr AS
    SELECT u.idu AS pk_idu, u.fname AS sv_fname, p.phoneno AS mv_phone
    FROM hr.usr u LEFT JOIN hr.usr_phone p USING (idu);
"""


def fill(hr: sa.Engine) -> None:
    execute(hr, SCHEMA)
    migrations.upgrade(hr, log_table="eventlog", schema="hr")


LOG = LogTable("hr", "eventlog", LOG_COLUMNS)


def class_named(hr: sa.Engine, name: str) -> ObjectClass:
    with hr.connect() as conn:
        return build_catalog(DIALECT.open(conn).reflect("hr"), tables=[name]).class_named(name)


def rows(
    hr: sa.Engine, columns: str = "table_key", log: str = "hr.eventlog"
) -> list[tuple[object, ...]]:
    with hr.connect() as conn:
        return [
            tuple(row)
            for row in conn.exec_driver_sql(f"SELECT {columns} FROM {log} ORDER BY record_id")
        ]


def keys(hr: sa.Engine) -> list[str]:
    return [str(key) for (key,) in rows(hr)]


def positions(hr: sa.Engine) -> list[tuple[object, ...]]:
    with hr.connect() as conn:
        return [
            tuple(row)
            for row in conn.exec_driver_sql(
                "SELECT class_name, position, rows_written FROM hr.eventlog_resync"
            )
        ]


def others(hr: sa.Engine) -> int:
    """How many sessions others have."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
        "application_name = 'eventlog'"
    )
    with hr.connect() as conn:
        return int(conn.exec_driver_sql(asked).scalar_one())


def users(hr: sa.Engine, count: int) -> None:
    execute(
        hr, f"INSERT INTO hr.usr SELECT n, 'f' || n, 'l' || n FROM generate_series(1, {count}) AS n"
    )


def stopped(
    hr: sa.Engine, name: str, *, after: int, keys_file: str | None = None, size: int = 1
) -> None:
    """A resync that stops after some batches, as one that is killed between them does."""
    cls = class_named(hr, name)
    digest = None if keys_file is None else fingerprint(Path(keys_file))
    selection = Selection(cls.name, EventType.INSERT_ROW_QUERY_BACK, keys=digest)
    engine = connect(hr.url)
    with engine.connect() as conn:
        batches.begin(opened_log(conn, LOG), selection, resume=False, restart=False)
        walk = DIALECT.open(conn).log(LOG).start_walk("hr", cls, selection)
        conn.commit()
        if keys_file is None:
            steps = batches.run(
                opened_log(conn, LOG),
                selection,
                lambda conn, position: (
                    DIALECT.open(conn).log(walk.log).write_batch(walk, position, size)
                ),
            )
        else:
            lines = Path(keys_file).read_text().splitlines()

            def write(conn: sa.Connection, position: str | None) -> ResyncBatch:
                done = int(position or 0)
                DIALECT.open(conn).log(LOG).write_keys(selection, lines[done : done + size])
                return ResyncBatch(size, 0, str(done + size), is_last=False)

            steps = batches.run(opened_log(conn, LOG), selection, write)
        for _ in range(after):
            next(steps)
        steps.close()
    engine.dispose()


class Receiver:
    """Applies events to objects by association; what is not there is made, as a directory does."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.events = 0

    def take(self, documents: str) -> None:
        for document in documents.splitlines():
            for event in read_events(document).events:
                self.events += 1
                apply_event(self.objects, event, event.association.split(",table=")[0])
