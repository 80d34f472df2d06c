"""The last part of ``eventlog demo``: Spark converts a backlog; the publisher's events are compared with its own."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from sqlalchemy import text

from eventlog.cli.context import engine_of, transaction
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError, EventlogError, number_of
from eventlog.publisher.context import Counters
from eventlog.publisher.daemon import publish_once
from eventlog.publisher.open import open_context, open_sink
from eventlog.sql.connection import connect

ROWS: Final = 100_000
"""Rows of the backlog, at least."""

_NEW_USERS: Final = """
INSERT INTO hr.usr (idu, login, fname, lname, mail, salary)
SELECT n, 'user' || n, (ARRAY['Ann', 'Béla', 'Chloë', 'Dmitri'])[n % 4 + 1], 'O''Neil & ' || n, n || '@x.org', 1000
FROM (SELECT greatest(max(idu), 1000000) AS last FROM hr.usr) AS users, generate_series(last + 1, last + 12000) AS n"""
_RAISES: Final = "UPDATE hr.usr SET salary = salary * 1.02, title = 'senior' WHERE idu > 1000000 AND idu % 3 = 0"
_LEAVERS: Final = "DELETE FROM hr.usr WHERE idu > 1000000 AND idu % 50 = 0"


def show_backlog(console: Console, *, file: Path, directory: Path) -> None:
    """Make a backlog of many rows, convert it by Spark, publish it as well, and compare.

    ``file`` is the configuration, ``directory`` where documents go. Without Spark a line says why this part is left
    out. Raises EventlogError if the events differ.
    """
    console.rule("A backlog, by Spark", align="left")
    try:
        spark = import_module("spark.backlog")
        import_module("spark.session").check_java()
    except (ImportError, ConfigError) as error:
        console.print(f"left out: {error}")
        return
    config = load(file, {})
    rows = 0
    while rows < ROWS:
        _change(config)
        with transaction(config) as (connection, _):
            rows = connection.execute(text("SELECT count(*) FROM hr.eventlog WHERE status = 'N'")).scalar_one()
    console.print(f"made: {number_of(rows, 'waiting row')}, by the triggers")

    out, published = directory / "backlog", directory / "published"
    for old in (out, published):
        shutil.rmtree(old, ignore_errors=True)
    report: Any = spark.run(config, spark.Request(str(out), quiet=True, copy=True))
    by_spark = list(_events(sorted(out.glob("part-*.xmll"))))

    config = load(file, {}, {"sink.directory": str(published)})
    counters = Counters()
    began = time.monotonic()
    with open_context(config, counters) as context, closing(open_sink(config, sys.stdout)) as sink:
        publish_once(context, sink)
    seconds = time.monotonic() - began
    by_publisher = list(_events(sorted(published.glob("*.xmll"))))

    if by_spark != by_publisher:
        raise EventlogError(f"the events of Spark ({len(by_spark)}) and of the publisher ({len(by_publisher)}) differ")
    read = report.manifest.totals["rows_read"]
    console.print(f"Spark:     {read / report.converting_seconds:>9,.0f} rows/s ({report.converting_seconds:.1f} s, "
                  "start of Java included; made for millions of rows)")  # fmt: skip
    console.print(f"publisher: {counters.rows_read / seconds:>9,.0f} rows/s ({seconds:.1f} s, marks included)")
    if not by_spark:
        raise EventlogError("the backlog gave no events")
    console.print(f"equal: {number_of(len(by_spark), 'event')}, byte for byte, in the same order")


def _change(config: Config) -> None:
    """Some ten thousand changes by the application's user: the publisher's own would be loopback."""
    engine, _ = engine_of(config)
    with engine.connect():  # an embedded server runs from here on
        application = connect(engine.url.set(username="hr_app"))
    with application.begin() as connection:
        for statement in (_NEW_USERS, _RAISES, _LEAVERS):
            connection.execute(text(statement))
    application.dispose()


_EVENT: Final = re.compile(r"<(add|modify|delete) class-name=.*?</\1>")


def _events(files: list[Path]) -> Iterator[str]:
    """The events of files with an envelope a line, as text."""
    for file in files:
        with file.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield from (match[0] for match in _EVENT.finditer(line))
