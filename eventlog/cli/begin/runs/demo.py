"""The run of ``eventlog demo``: all steps from changes to documents, on an embedded PostgreSQL."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table as Grid
from sqlalchemy import URL, make_url, text

from eventlog.cli.begin.demo import Demo
from eventlog.cli.context import CommandContext, engine_of, transaction
from eventlog.cli.install.runs.db import names
from eventlog.cli.stopping import if_stopped
from eventlog.config.load import Config, load
from eventlog.conversion import convert
from eventlog.core.rows.event_ids import record_id_of
from eventlog.errors import ConfigError, EventlogError, number_of
from eventlog.model import Event
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.declared import open_context, open_sink, planned_triggers
from eventlog.publisher.run import publish_once
from eventlog.sql import LOCK_TIMEOUT, embedded, migrations
from eventlog.sql.connect import connect
from eventlog.sql.log import EntryKind, count_by_status, read_entries, tail
from eventlog.sql.triggers import triggers_of
from eventlog.xds.reader import read_events
from eventlog.xds.writer import write_event

_WRITERS = 4
_TRANSACTIONS = 60
"""The number of random transactions of each writer."""

_CONFIG = """\
# Written by `eventlog demo`. Continue with `eventlog --config {file} status`, `publish`,
# `triggers plan`, ...

[database]
url = "{url}"
schema_name = "hr"

[publisher]
# The publisher is the owner of the tables here; the application is hr_app.
loopback_action = "mark"

[sink]
type = "files"
directory = "documents"

[[watch]]
table = "usr"
row_style = "field"

[[watch]]
table = "grp"
row_style = "row_query_back"
"""


_SCENES = (
    (
        "A new user: one row per column, one <add> for all",
        (
            "INSERT INTO hr.usr (idu, login, fname, lname, mail, hired, photo) VALUES "
            "(1, 'ada', 'Ada', 'Lovelace', 'ada@example.org', '2024-02-29', '\\xbbbb')",
        ),
    ),
    (
        "A change gives remove-value and add-value; NULL gives only remove-value",
        ("UPDATE hr.usr SET fname = 'Augusta Ada', mail = NULL WHERE idu = 1",),
    ),
    (
        "A child table: values of one multi-valued attribute of the owner",
        (
            "INSERT INTO hr.usr_phone VALUES (1, '555-1'), (1, '555-2')",
            "DELETE FROM hr.usr_phone WHERE phoneno = '555-1'",
        ),
    ),
    (
        "A group with a member: rows of types 5 and 8, so that the current row is read back",
        (
            "INSERT INTO hr.grp VALUES (1, 'analysts', 'They <count> & reckon')",
            "INSERT INTO hr.grp_member VALUES (1, 1)",
        ),
    ),
    (
        "A statement that changes nothing logs nothing",
        ("UPDATE hr.usr SET fname = fname WHERE idu = 1",),
    ),
    (
        "A user deleted together with phones, by cascade: one <delete>",
        (
            "INSERT INTO hr.usr (idu, login, fname, lname) VALUES (2, 'tmp', 'Temp', 'Worker')",
            "INSERT INTO hr.usr_phone VALUES (2, '555-9')",
            "DELETE FROM hr.usr WHERE idu = 2",
        ),
    ),
)
"""The scenes: a title, and the statements of one transaction each."""

_Rows: TypeAlias = tuple[int, int]
"""The first and the last record_id of the rows that a scene logged.

The last record_id is less than the first if the scene logged no rows.
"""


def run_demo(context: CommandContext, request: Demo) -> None:
    """Run ``eventlog demo``."""
    keep, console = (
        request.keep,
        Console(highlight=False, width=None if sys.stdout.isatty() else 132),
    )
    with ExitStack() as stack:
        directory = keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-demo-"))
        )
        directory.mkdir(parents=True, exist_ok=True)
        directory = directory.resolve()
        _headline(console, "Starting an embedded PostgreSQL", str(directory / "postgres"))
        url = stack.enter_context(embedded.running(directory / "postgres"))
        config = _install(console, directory, url)
        if_stopped(
            "the demonstration's database is removed"
            if keep is None
            else f"the demonstration's database stays in {directory}"
        )
        played = _play(console, url, config)
        _show_published(console, config)
        _show_scenes(console, config, directory / "documents", played)
        _show_formats(console, config, played[1], directory / "formats")
        _show_status(console, config)
        if not request.no_backlog:
            _show_backlog(console, file=directory / "eventlog.toml", directory=directory)
    if keep is not None:
        file = directory / "eventlog.toml"
        _headline(
            console,
            "Continue with",
            f"eventlog --config {file} status   (the database starts when it is needed)",
        )


def _headline(console: Console, what: str, detail: str = "") -> None:
    console.print(f"[bold]{what}[/bold]  {detail}" if detail else f"[bold]{what}[/bold]")


def _install(console: Console, directory: Path, url: str) -> Config:
    """Create the schema, the log and its internal tables, the triggers, and the configuration
    file.
    """
    script = resources.files("eventlog.cli").joinpath("demo.sql").read_text(encoding="utf-8")
    with _session(url) as session:
        if session.execute("SELECT to_regclass('hr.usr')").fetchone() == (None,):
            session.execute(script.encode())
    file = directory / "eventlog.toml"
    embedded_url = URL.create("embedded", database=str(directory / "postgres")).render_as_string()
    file.write_text(_CONFIG.format(file=file, url=embedded_url), encoding="utf-8")
    config = load(file, {})
    with transaction(config) as db:
        migrations.upgrade(db.connection, **names(config))
        plan = planned_triggers(db, config)
        triggers_of(db.dialect).apply(db.connection, plan, LOCK_TIMEOUT)
    tables = ", ".join(action.table for action in plan.actions)
    _headline(console, "Installed", f"the log hr.eventlog and triggers on {tables}")
    return config


@contextmanager
def _session(url: str, user: str = "postgres") -> Iterator[psycopg.Connection]:
    address = (
        make_url(url)
        .set(drivername="postgresql", username=user)
        .render_as_string(hide_password=False)
    )
    with closing(psycopg.connect(address, autocommit=True)) as session:
        yield session


def _play(console: Console, url: str, config: Config) -> list[_Rows]:
    """Run the scenes one after the other, then a few hundred random changes in concurrent
    transactions. Returns the rows of the scenes.
    """
    played = []
    with _session(url, "hr_app") as session, _session(url) as owner:
        session.execute("DELETE FROM hr.grp")
        session.execute("DELETE FROM hr.usr")
        begin = _last_id(owner)
        for _, statements in _SCENES:
            with session.transaction():
                for statement in statements:
                    session.execute(statement.encode())
            end = _last_id(owner)
            played.append((begin + 1, end))
            begin = end
    with ThreadPoolExecutor(_WRITERS) as writers:
        for writer in [writers.submit(_write, url, seed) for seed in range(_WRITERS)]:
            writer.result()
    with _session(url) as owner:
        # Transactions that are rolled back draw numbers, too.
        (rows,) = owner.execute("SELECT count(*) FROM hr.eventlog").fetchone() or (0,)
    _headline(
        console,
        "Changed",
        f"{len(_SCENES)} scenes, then {_WRITERS * _TRANSACTIONS} transactions of {_WRITERS} "
        f"concurrent writers: {number_of(rows, 'row')} in the log",
    )
    return played


def _last_id(session: psycopg.Connection) -> int:
    (last,) = session.execute("SELECT coalesce(max(record_id), 0) FROM hr.eventlog").fetchone() or (
        0,
    )
    return int(last)


_FIRST_NAMES = ("Ann", "Béla", "Chloë", "Dmitri", "Eve", "Fatima", "Grace", "Hiro", "Igor", "Joan")
_LAST_NAMES = ("O'Brien", "Smith", "García", "Müller", "Ivanov", "Tanaka", "Le Guin", "Ng")


def _write(url: str, seed: int) -> None:
    """Run a writer: random transactions on users and groups, every tenth of them rolled back."""
    chance = random.Random(seed)  # noqa: S311 - a workload, not a secret
    with _session(url, "hr_app") as session:
        for number in range(_TRANSACTIONS):
            try:
                with session.transaction() as transaction:
                    for _ in range(chance.randint(1, 3)):
                        _change(session, chance, f"{seed}-{number}-{chance.randrange(10**6)}")
                    if chance.random() < 0.1:
                        raise psycopg.Rollback(transaction)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.ForeignKeyViolation):
                continue  # another writer was first, as in any application


_USER = "(SELECT idu FROM hr.usr WHERE idu > 1 ORDER BY md5(idu::text || %(unique)s::text) LIMIT 1)"
_GROUP = (
    "(SELECT idg FROM hr.grp WHERE idg > 1 ORDER BY md5(idg::text || %(unique)s::text) LIMIT 1)"
)
# now() is not used: two updates within a second would differ only in the fraction, which XDS does
# not send.
_NEXT_LOGIN = "coalesce(last_login, date_trunc('day', now())) + interval '1 hour'"
_CHANGES = (
    "INSERT INTO hr.usr (idu, login, fname, lname, mail, salary) "
    "VALUES (1000 + nextval('hr.usr_idu_seq'), %(unique)s, %(fname)s, %(lname)s, %(mail)s, 1000)",
    f"UPDATE hr.usr SET lname = %(lname)s, salary = salary * 1.02 WHERE idu = {_USER}",  # noqa: S608 - constants
    f"UPDATE hr.usr SET fname = %(fname)s, last_login = {_NEXT_LOGIN} WHERE idu = {_USER}",  # noqa: S608
    "INSERT INTO hr.usr_phone SELECT idu, '555-' || %(unique)s::text FROM hr.usr "  # noqa: S608
    f"WHERE idu = {_USER}",
    f"DELETE FROM hr.usr_phone WHERE idu = {_USER}",  # noqa: S608
    "INSERT INTO hr.grp (idg, name) VALUES (1000 + nextval('hr.grp_idg_seq'), 'group ' || "
    "%(unique)s::text)",
    f"INSERT INTO hr.grp_member SELECT idg, idu FROM hr.grp, hr.usr WHERE idg = {_GROUP} "  # noqa: S608
    f"AND idu = {_USER} "
    "ON CONFLICT DO NOTHING",
    f"DELETE FROM hr.usr WHERE idu = {_USER} AND idu %% 7 = 0",  # noqa: S608
)


def _change(session: psycopg.Connection, chance: random.Random, unique: str) -> None:
    values = {
        "unique": unique,
        "mail": f"{unique}@example.org",
        "fname": chance.choice(_FIRST_NAMES),
        "lname": chance.choice(_LAST_NAMES),
    }
    session.execute(chance.choice(_CHANGES).encode(), values)


def _publish(config: Config) -> Counters:
    """Publish the waiting rows, and return the counters."""
    counters = Counters()
    with open_context(config, counters) as context, closing(open_sink(config, sys.stdout)) as sink:
        publish_once(context, sink)
    return counters


def _show_published(console: Console, config: Config) -> None:
    counters = _publish(config)
    _headline(
        console,
        "Published",
        f"{number_of(counters.rows_read, 'row')} as {number_of(counters.events_sent, 'event')} in "
        f"{number_of(counters.documents_sent, 'document')}",
    )


def _show_scenes(
    console: Console, config: Config, documents: Path, played: Sequence[_Rows]
) -> None:
    """Show each scene: its statements, the rows that triggers logged, and the events sent."""
    events = [event for file in sorted(documents.glob("*.xmll")) for event in _events_of(file)]
    with open_context(config, Counters()) as context:
        for number, ((about, statements), (first, last)) in enumerate(
            zip(_SCENES, played, strict=True), 1
        ):
            console.print()
            console.rule(f"{number}  {about}", align="left")
            console.print(Syntax(";\n".join(statements) + ";", "sql", word_wrap=True))
            _show_rows(console, context, (first, last))
            caused = [event for event in events if first <= record_id_of(event.event_id) <= last]
            for event in caused:
                console.print(Syntax(_broken(write_event(event)), "xml", word_wrap=True))
            if not caused and first <= last:
                console.print(
                    "[dim]these rows closely follow other rows of the same object, so they are "
                    "part of the event above[/dim]"
                )


def _broken(event: str) -> str:
    """Return an event with one attribute per line, and its values below it."""
    broken = re.sub(r"(?=<(?:association|add-attr|modify-attr)\b)", "\n  ", event)
    broken = re.sub(
        r"(?=<(?:add|remove|remove-all)-values?\b)|(?<=\">)(?=<value\b)", "\n    ", broken
    )
    return re.sub(r"(?=</(?:add|modify|delete)>)", "\n", broken)


def _events_of(file: Path) -> list[Event]:
    with file.open("rb") as documents:
        return [event for document in documents for event in read_events(document).events]


_SHOWN: Final = (
    "status",
    "event_type",
    "perpetrator",
    "table_key",
    "column_name",
    "old_value",
    "new_value",
)
"""The columns of the log that a scene shows, and record_id."""


def _show_rows(console: Console, context: Context, logged: _Rows) -> None:
    """Show the rows of a scene. A value that all of them have stands above them, once."""
    rows = context.log.read_rows([logged])
    context.log.commit()
    if not rows:
        console.print("[dim]no rows in the log[/dim]")
        return
    columns = {
        name: ["" if (value := getattr(row, name)) is None else str(value) for row in rows]
        for name in _SHOWN
    }
    alike = {name for name, values in columns.items() if len({*values}) == 1}
    said = (f"{name} {columns[name][0]}" for name in _SHOWN if name in alike and columns[name][0])
    console.print(f"[dim]each row:[/dim] {', '.join(said)}")
    varying = [name for name in _SHOWN if name not in alike]
    grid = Grid("record_id", *varying, box=None, pad_edge=False, header_style="dim")
    for row, *values in zip(rows, *(columns[name] for name in varying), strict=True):
        grid.add_row(str(row.record_id), *values)
    console.print(grid)


def _show_status(console: Console, config: Config) -> None:
    with open_context(config, Counters()) as context:
        counts = count_by_status(context.log)
        waiting = tail(context.log) is not None
        in_flight = len(read_entries(context.log, EntryKind.DELIVERY))
        errors = context.log.connection.execute(
            text("SELECT count(*) FROM hr.eventlog_error")
        ).scalar_one()
        context.log.commit()
    by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    console.rule("Status", align="left")
    console.print(
        f"rows: {by_status}; waiting: {'yes' if waiting else 'none'}; "
        f"being delivered: {in_flight}; errors: {errors}"
    )


def _show_formats(console: Console, config: Config, logged: _Rows, directory: Path) -> None:
    """Show the change of a scene as XDS, as rows of a Qlik change table and as a Qlik message."""
    with open_context(config, Counters()) as context:
        rows = context.log.read_rows([logged])
        database = context.log.db.reflect(config.database.schema_name)
    console.print()
    console.rule("One change in three formats, by eventlog convert", align="left")
    directory.mkdir(exist_ok=True)
    log = directory / "rows.jsonl"
    log.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows), encoding="utf-8")

    def to(format_name: str, name: str, **options: Any) -> Path:
        target = directory / name
        convert("eventlog", format_name, str(log), str(target),
                {"reader": {"catalog": database, "schema": database.schema}, "writer": options,
                 "catalog": database})  # fmt: skip
        return target

    events = _events_of(to("xds", "event.xmll"))
    _show_format(
        console,
        "xds",
        *(Syntax(_broken(write_event(event)), "xml", word_wrap=True) for event in events),
    )

    table = to("qlik-change-table", "change_table", file_format="json")
    _show_format(
        console,
        "qlik-change-table",
        _side_by_side(list(_json_lines(*sorted(table.glob("*__ct/*.json*"))))),
    )

    messages = _json_lines(to("qlik-messages", "messages.jsonl", metadata="none"))
    _show_format(
        console, "qlik-messages", *(json.dumps(message, ensure_ascii=False) for message in messages)
    )


def _show_format(console: Console, format_name: str, *shown: Syntax | Grid | str) -> None:
    console.print(f"[dim]{format_name}[/dim]")
    for one in shown:
        console.print(one)


def _json_lines(*files: Path) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def _side_by_side(rows: Sequence[dict[str, Any]]) -> Grid:
    """Return a change table with one line per column, since it has many columns."""
    operations = (row["header__operation"].casefold() for row in rows)
    grid = Grid(
        "column of hr.usr__ct",
        *(f"row {name}" for name in operations),
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    for name in rows[0]:
        grid.add_row(name, *("NULL" if row[name] is None else str(row[name]) for row in rows))
    return grid


# --- a backlog, with Spark ------------------------------------------------------------------------

_BACKLOG_ROWS: Final = 100_000
"""The backlog has at least this number of rows."""

_NEW_USERS: Final = """
INSERT INTO hr.usr (idu, login, fname, lname, mail, salary)
SELECT n, 'user' || n, (ARRAY['Ann', 'Béla', 'Chloë', 'Dmitri'])[n % 4 + 1], 'O''Neil & ' || n,
       n || '@x.org', 1000
FROM (SELECT greatest(max(idu), 1000000) AS last FROM hr.usr) AS users,
     generate_series(last + 1, last + 12000) AS n"""
_RAISES: Final = (
    "UPDATE hr.usr SET salary = salary * 1.02, title = 'senior' WHERE idu > 1000000 AND idu % 3 = 0"
)
_LEAVERS: Final = "DELETE FROM hr.usr WHERE idu > 1000000 AND idu % 50 = 0"


def _show_backlog(console: Console, *, file: Path, directory: Path) -> None:
    """Make a backlog of many rows, convert it with Spark, publish it as well, and compare the
    events.

    ``file`` is the configuration, and ``directory`` is the place for documents. Without Spark one
    line reports why this part is left out. Raises EventlogError if the events differ.
    """
    console.rule("A backlog, by Spark", align="left")
    try:
        spark = import_module("eventlog.spark.backlog.backlog")
        import_module("eventlog.spark.session.session").check_java()
    except (ImportError, ConfigError) as error:
        console.print(f"left out: {error}")
        return
    config = load(file, {})
    rows = 0
    while rows < _BACKLOG_ROWS:
        _change_many(config)
        with transaction(config) as db:
            rows = db.connection.execute(
                text("SELECT count(*) FROM hr.eventlog WHERE status = 'N'")
            ).scalar_one()
    console.print(f"made: {number_of(rows, 'waiting row')}, by the triggers")

    out, published = directory / "backlog", directory / "published"
    for old in (out, published):
        shutil.rmtree(old, ignore_errors=True)
    report: Any = spark.run(config, spark.Request(str(out), quiet=True, no_claim=True))
    by_spark = list(_event_texts(sorted(out.glob("part-*.xmll"))))

    config = load(file, {}, {"sink.directory": str(published)})
    began = time.monotonic()
    counters = _publish(config)
    seconds = time.monotonic() - began
    by_publisher = list(_event_texts(sorted(published.glob("*.xmll"))))

    if by_spark != by_publisher:
        raise EventlogError(
            f"the events of Spark ({len(by_spark)}) and of the publisher "
            f"({len(by_publisher)}) differ"
        )
    read = report.manifest.totals["rows_read"]
    console.print(
        f"Spark:     {read / report.converting_seconds:>9,.0f} rows/s "
        f"({report.converting_seconds:.1f} s, start of Java included; Spark suits millions of rows)"
    )
    console.print(
        f"publisher: {counters.rows_read / seconds:>9,.0f} rows/s ({seconds:.1f} s, marks included)"
    )
    if not by_spark:
        raise EventlogError("the backlog gave no events")
    console.print(f"equal: {number_of(len(by_spark), 'event')}, byte for byte, in the same order")


def _change_many(config: Config) -> None:
    """Make many changes as the application's user: changes of the publisher's user would be
    loopback.
    """
    engine, _ = engine_of(config)
    with engine.connect():  # this starts the embedded server
        application = connect(engine.url.set(username="hr_app"))
    with application.begin() as connection:
        for statement in (_NEW_USERS, _RAISES, _LEAVERS):
            connection.execute(text(statement))
    application.dispose()


_EVENT: Final = re.compile(r"<(add|modify|delete) class-name=.*?</\1>")


def _event_texts(files: list[Path]) -> Iterator[str]:
    """Yield the events of files with one document per line, as text."""
    for file in files:
        with file.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield from (match[0] for match in _EVENT.finditer(line))
