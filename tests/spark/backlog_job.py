"""A log with everything in it, a publisher to compare with, and what a job left in its
directory.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa
from shared import PlainSink

from eventlog.config.load import Config, load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, KafkaRecord
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.spark.backlog.backlog import Report, Request, run
from eventlog.sql import migrations

SCHEMA = "hr"
LOG = f"{SCHEMA}.eventlog"

_TABLES = f"""
CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.usr (idu integer PRIMARY KEY, fname varchar(40), lname text, age integer, photo bytea);
CREATE TABLE {SCHEMA}.usr_phone (idu integer REFERENCES {SCHEMA}.usr, phoneno varchar(20));
CREATE TABLE {SCHEMA}.grp (idg integer, branch char(4), name text, PRIMARY KEY (idg, branch));
CREATE TABLE {SCHEMA}.emp (empno integer PRIMARY KEY, fname text, phone text);
CREATE VIEW {SCHEMA}.view_emp AS SELECT empno AS pk_empno, fname AS sv_fname, phone AS mv_phone FROM {SCHEMA}.emp;
INSERT INTO {SCHEMA}.usr SELECT i, 'f' || i, CASE WHEN i % 97 = 0 THEN 'bad' || chr(1) ELSE '<l&' || i || '>' END,
    i % 90, CASE WHEN i % 3 = 0 THEN '\\xbbbb'::bytea END FROM generate_series(1, 3000) AS i WHERE i % 7 <> 0;
INSERT INTO {SCHEMA}.usr_phone SELECT idu, '555-' || idu || '-' || n FROM {SCHEMA}.usr, generate_series(1, 2) AS n
    WHERE idu % 4 = 0;
INSERT INTO {SCHEMA}.grp SELECT i, 'B' || i % 3, 'group "' || i || '"' FROM generate_series(1, 200) AS i;
INSERT INTO {SCHEMA}.emp SELECT i, 'e' || i, 'p' || i FROM generate_series(1, 100) AS i
"""

# Logs that others made take rows that ours refuses.
_LET_IN = f"""
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT conname FROM pg_constraint WHERE conrelid = '{LOG}'::regclass AND contype = 'c' LOOP
        EXECUTE format('ALTER TABLE {LOG} DROP CONSTRAINT %I', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['event_type', 'table_name', 'table_key'] LOOP
        EXECUTE format('ALTER TABLE {LOG} ALTER COLUMN %I DROP NOT NULL', name);
    END LOOP;
END $$"""

CLASSES = ("usr", "grp", "view_emp")


def make_tables(database: sa.Engine) -> None:
    with database.connect() as connection:
        connection.exec_driver_sql(_TABLES.replace("%", "%%"))
        connection.commit()
        migrations.upgrade(connection, log_table="eventlog", schema=SCHEMA)
        connection.exec_driver_sql(_LET_IN.replace("%", "%%"))
        connection.commit()


def config_of(database: sa.Engine, **options: str) -> Config:
    """``options``: ``publisher__batch_size="5"``, ..."""
    flags = {name.replace("__", "."): value for name, value in options.items()}
    url = database.url.render_as_string(hide_password=False)
    return load(None, {"EVENTLOG_DATABASE_URL": url}, {
        "database.schema_name": SCHEMA, "publisher.driver_user": "publisher", **flags,
    })  # fmt: skip


Row = tuple[int, int | None, str | None, str | None, str | None, str | None, str | None, str | None]
"""record_id, event_type, perpetrator, table_name, table_key, column_name, old_value, new_value."""


def random_rows(number: int, seed: int, first: int = 1) -> Iterator[Row]:
    """Rows of every type, of objects that interleave, are deleted and come again; bad and loopback
    ones among them.
    """
    chance = random.Random(seed)
    record_id = first - 1
    recent = [1]
    for _ in range(number):
        record_id += 1 if chance.random() < 0.97 else chance.randint(2, 40)
        perpetrator = chance.choice(("app", "app", "app", None, "Publisher"))
        if chance.random() < 0.01:
            perpetrator = "publisher"
        if chance.random() < 0.01:
            yield record_id, *_bad(chance, perpetrator)
            continue
        user = chance.choice(recent) if chance.random() < 0.6 else chance.randint(1, 3000)
        recent = [*recent[-20:], user]
        yield record_id, *_good(chance, perpetrator, user)


def _good(chance: random.Random, perpetrator: str | None, user: int) -> tuple[object, ...]:
    kind = chance.choices(("usr", "phone", "grp", "view"), (70, 10, 12, 8))[0]
    value = chance.choice(
        ("a", "b & c", "Grüße", "x<y", "tab\tline\nend", "", None, f"v{chance.randint(1, 99)}")
    )
    if kind == "phone":
        event_type = chance.choice((1, 2, 2, 3, 7, 8))
        old = "555-1" if event_type == 2 else None
        return event_type, perpetrator, "usr_phone", f"idu={user}", "phoneno", old, value
    if kind == "grp":
        group = user % 250
        event_type = chance.choice((5, 6, 6, 8, 4, 1))
        column = "name" if event_type in (1, 8) else None
        key = (
            f"idg={group}+branch=B{group % 3}"
            if chance.random() < 0.8
            else f'branch = "B{group % 3}"+idg=0{group}'
        )
        return event_type, perpetrator, "grp", key, column, None, value
    if kind == "view":
        event_type = chance.choice((2, 5, 6, 7, 8))
        column = chance.choice(("sv_fname", "mv_phone")) if event_type in (2, 7, 8) else None
        return event_type, perpetrator, "view_emp", f"pk_empno={user % 120}", column, "old", value
    event_type = chance.choices((1, 2, 3, 4, 5, 6, 7, 8), (30, 40, 6, 5, 3, 5, 5, 6))[0]
    column = (
        chance.choice(("fname", "lname", "age", "photo")) if event_type not in (4, 5, 6) else None
    )
    key = f"idu={user}" if chance.random() < 0.9 else f' idu = "+{user}"'
    if column == "age":
        return event_type, perpetrator, "usr", key, column, str(user % 7), f"0{user % 5}"
    if column == "photo":
        return event_type, perpetrator, "usr", key, column, "qqo=", "u7s="
    table = "usr" if chance.random() < 0.9 else f"{SCHEMA}.USR"
    return (
        event_type,
        perpetrator,
        table,
        key,
        column,
        chance.choice((value, "before", None)),
        value,
    )


def _bad(chance: random.Random, perpetrator: str | None) -> tuple[object, ...]:
    return chance.choice((
        (9, perpetrator, "usr", "idu=1", "fname", None, "x"),
        (None, perpetrator, "usr", "idu=1", "fname", None, "x"),
        (1, perpetrator, None, "idu=1", "fname", None, "x"),
        (1, perpetrator, "nobody", "idu=1", "fname", None, "x"),
        (4, perpetrator, "usr_phone", "idu=1", None, None, None),
        (2, perpetrator, "usr", "idu=", "fname", "a", "x"),
        (6, perpetrator, "usr", None, None, None, None),
        (1, perpetrator, "usr", "idu=1", "nothing", None, "x"),
        (1, perpetrator, "usr", "idu=1", None, None, "x"),
        (1, perpetrator, "usr", "idu=1", "age", None, "old"),
        (2, perpetrator, "usr", "idu=1", "fname", "a\x01", "x"),
        (1, perpetrator, "grp", 'idg=1+branch="\x02"', "name", None, "x"),
    ))  # fmt: skip


def log_rows(database: sa.Engine, rows: Iterator[Row] | Sequence[Row]) -> None:
    columns = (
        "record_id, event_type, perpetrator, table_name, table_key, column_name, old_value, "
        "new_value"
    )
    raw = database.raw_connection()
    try:
        with raw.cursor() as cursor, cursor.copy(f"COPY {LOG} ({columns}) FROM STDIN") as copy:  # type: ignore[union-attr]
            for row in rows:
                copy.write_row(row)
        raw.cursor().execute(
            f"SELECT setval(pg_get_serial_sequence('{LOG}', 'record_id'), (SELECT max(record_id) "
            f"FROM {LOG}))"
        )
        raw.commit()
    finally:
        raw.close()
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ANALYZE {LOG}")


def fetch(database: sa.Engine, statement: str) -> list[tuple[object, ...]]:
    with database.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


def statuses(database: sa.Engine) -> dict[int, str]:
    return {
        int(str(i)): str(letter)
        for i, letter in fetch(database, f"SELECT record_id, status FROM {LOG}")
    }


def errors(database: sa.Engine) -> list[tuple[object, ...]]:
    return sorted(fetch(database, f"SELECT record_id, code, message FROM {LOG}_error"))


def convert(config: Config, out: Path, **options: object) -> Report:
    return run(config, Request(str(out), quiet=True, **options))  # type: ignore[arg-type]


def copy(config: Config, out: Path, **options: object) -> Report:
    """A conversion that leaves the rows to the publisher, to compare with it."""
    return convert(config, out, no_claim=True, **options)


# The publisher


@dataclass
class Collector(PlainSink):
    """A receiver that stores its documents, and is unavailable after some of them."""

    documents: list[str]
    most: int = 2**62

    def send(self, document: Document) -> Answer:
        if len(self.documents) >= self.most:
            raise ReceiverUnavailable("away")
        self.documents.append(document.body.decode())
        return Answer()


def publish(config: Config) -> list[str]:
    """The events that the publisher sends, all of the queue."""
    sink = Collector([])
    with open_context(config, Counters()) as context, closing(sink):
        publish_once(context, sink)
    return list(events_of(sink.documents))


def leave_in_flight(config: Config, documents: int) -> list[str]:
    """Run a publisher that dies in its first delivery, after the answers to this number of
    documents; return their events.
    """
    sink = Collector([], documents)
    with open_context(config, Counters()) as context:
        run_cycle(PublisherSession(context, recover(context), sink))
    return list(events_of(sink.documents))


@dataclass
class Topics(PlainSink):
    """A receiver that stores its records, and is unavailable after some documents."""

    records: list[KafkaRecord] = field(default_factory=list)
    most: int = 2**62

    def send(self, document: Document) -> Answer:
        if self.most <= 0:
            raise ReceiverUnavailable("away")
        self.most -= 1
        refused = {}
        for event_id, own in zip(document.event_ids, document.records, strict=True):
            if isinstance(own, EventResult):
                refused[event_id] = own
            else:
                self.records += own
        return Answer(refused)


def published_records(config: Config, documents: int = 2**62) -> list[KafkaRecord]:
    """What the publisher sends of the queue, or before it dies."""
    sink = Topics(most=documents)
    with open_context(config, Counters()) as context, closing(sink):
        if documents < 2**62:
            run_cycle(PublisherSession(context, recover(context), sink))
        else:
            publish_once(context, sink)
    return sink.records


_EVENT = re.compile(r"<(add|modify|delete) class-name=.*?</\1>", re.DOTALL)


def events_of(documents: Sequence[str]) -> Iterator[str]:
    """The events of documents, as they are written."""
    for document in documents:
        body = document[document.index("<input>") + len("<input>") : document.rindex("</input>")]
        found = [match[0] for match in _EVENT.finditer(body)]
        assert "".join(found) == body
        yield from found


# What a job left


def files_of(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.name.startswith("part-"))


def documents_of(out: Path) -> list[str]:
    """The documents of a directory in the order of its files' names."""
    documents: list[str] = []
    for path in files_of(out):
        if path.suffix == ".parquet":
            documents += pq.read_table(path).column("document").to_pylist()
            continue
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        elif path.suffix == ".zst":
            content = unzstd(content)
        text = content.decode()
        documents += [text] if ".xml" in path.suffixes else text.splitlines()
    return documents


def unzstd(content: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())


def statuses_of(out: Path, report: Report) -> dict[int, str]:
    """Which letter each row is to get, as the files of the job say."""
    letters: dict[int, str] = {}
    for ids in [
        *(part.ids for part in report.manifest.parts),
        *(delivery.ids for delivery in report.manifest.in_flight),
    ]:
        for row in pq.read_table(out / ids).to_pylist():
            for record_id in range(row["first"], row["last"] + 1):
                assert record_id not in letters
                letters[record_id] = row["status"]
    return letters
