"""What tests of several folders set up, in addition to the fixtures of ``conftest``."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from crosses import of_the_day
from lxml import etree

from eventlog.core import clock
from eventlog.errors import EventlogError, FormatError, XdsError
from eventlog.linter.dispatch_tables import DispatchRow, dispatch_rows
from eventlog.model import Event, Op, Operation
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import open_database
from eventlog.sql.port.open_log import OpenLog
from eventlog.xds.reader import parse_document

Run = Callable[..., tuple[int, str, str]]
"""Runs a command line: exit code, standard output, standard error."""


_WATCH = """
read word
[ "$word" = done ] && exit
for file in "$1"/postmaster.pid "$1"/*/postmaster.pid; do
    [ -f "$file" ] && kill -QUIT "$(head -n 1 "$file")"
done
sleep 1
rm -rf "$1"
"""
"""Waits for a word, or for the end of who would say it."""


def memory() -> Path | None:
    """Where files are memory, if there is room, and programs may be there: a database is some 300
    files, and each test may make one.
    """
    place = Path("/dev/shm")
    if not place.is_dir() or shutil.disk_usage(place).free < 4 << 30:
        return None
    return None if os.statvfs(place).f_flag & os.ST_NOEXEC else place


@contextmanager
def temporary_servers(prefix: str, memory: Path | None) -> Iterator[Path]:
    """A directory for PostgreSQL servers, in ``memory`` if given. It is removed at the end. If this
    process is killed, the servers in it are ended, and it is removed all the same.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=memory or "/tmp"))
    command = ["sh", "-c", _WATCH, "watch", str(directory)]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        watcher.communicate(b"done\n")


def opened_log(conn: sa.Connection, table: LogTable) -> OpenLog:
    """The log as the session of this connection sees it."""
    return open_database(conn).log(table)


@contextmanager
def refused(
    what: str | type[EventlogError], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[EventlogError]]:
    """Expect an error: a FormatError with this code, or an error of this class."""
    by_code = isinstance(what, str)
    with pytest.raises(FormatError if isinstance(what, str) else what, match=match) as caught:
        yield caught
    assert not by_code or caught.value.code == what


def examples(number: int) -> int:
    """How many examples of a property are tried, of the number that has found its faults: a quarter
    in each run, since the next run tries others, and EVENTLOG_TEST_EXAMPLES times as many where that
    is set, as in `make nightly`.
    """
    return max(10, round(number * float(os.environ.get("EVENTLOG_TEST_EXAMPLES", "0.25"))))


def met(*parameters: Sequence[Any], also: Iterable[tuple[Any, ...]] = ()) -> list[Any]:
    """Return the product of parameters as the cases of a test. By day run those of ``crosses``, with
    each value of each parameter, and those of ``also``; the others are for the night.
    """
    chosen = of_the_day([*map(len, parameters)])
    chosen |= {
        tuple(values.index(value) for values, value in zip(parameters, case, strict=True))
        for case in also
    }
    return _product(parameters, chosen)


def _product(parameters: Sequence[Sequence[Any]], of_ci: Container[tuple[int, ...]]) -> list[Any]:
    """Return all cases; those whose places are not in ``of_ci`` are for the night."""
    return [
        pytest.param(
            *(values[place] for values, place in zip(parameters, places, strict=True)),
            marks=[] if places in of_ci else pytest.mark.night,
        )
        for places in itertools.product(*(range(len(values)) for values in parameters))
    ]


def in_ci(values: Iterable[Any], *of_ci: Any) -> list[Any]:
    """Return the values of a parameter as the cases of a test: those of CI, and the others for the
    night.
    """
    return [
        pytest.param(value, marks=[] if value in of_ci else pytest.mark.night) for value in values
    ]


PATIENCE = 300.0
"""Seconds until a test that waits for something gives up; what it waits for takes far less."""


def validate(document: bytes | str) -> None:
    """Raise XdsError, with line and reason, for a document that is not of the vocabulary as
    ``xds.rng`` has it.
    """
    schema = _schema()
    if not schema.validate(parse_document(document)):
        # The first line alone names which alternative did not fit, which is not help; the innermost
        # element comes next.
        said = [
            error for error in schema.error_log if not error.message.startswith("failed to compare")
        ]
        raise XdsError(f"line {said[0].line}: {'; '.join(error.message for error in said[:2])}")


@cache
def _schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.fromstring(files("eventlog.xds").joinpath("xds.rng").read_bytes()))


_ports = itertools.count()


def free_port() -> int:
    """Return a port of this machine at which nobody listens, another one at each call.

    It is below those that the system gives to whoever asks for any port: another test would get one
    of them before a server listens there.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for number in _ports:
        port = 10_000 + worker * 1_000 + number % 1_000
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError


def wait_until(holds: Callable[[], object], what: str = "it holds") -> None:
    """Wait for something that a thread or another process does.

    What takes long is asked for less often: each question takes the time of those who work.
    """
    begun = time.monotonic()
    while not holds():
        waited = time.monotonic() - begun
        assert waited < PATIENCE, f"waited {PATIENCE:g} s in vain until {what}"
        time.sleep(min(0.2, max(0.01, waited / 10)))


class Restless(clock.Machine):
    """A machine on which a rest takes no time: its clock goes on by the rest. For what waits in vain,
    while nothing else happens.
    """

    def __init__(self) -> None:
        self.rested = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.rested

    def sleep(self, seconds: float) -> None:
        self.rested += seconds


class Unhesitating(clock.Machine):
    """A machine whose rests have no random part. On a server of MySQL's family a session that reads
    the open writers rests until the list of transactions is renewed, a part of it by chance, so that
    sessions which begin at the same time do not keep each other's lists. Here one begins at a time.
    """

    def chance(self) -> float:
        return 0.0


class ShortRests(threading.Event):
    """A request to stop, whose publisher rests for a twentieth of a second at most: no configuration
    has a shorter polling interval than one second.
    """

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.05 if timeout is None else min(timeout, 0.05))


# --- steps that a process dies at -----------------------------------------------------------------


def one_of_each(names: Sequence[str]) -> list[int]:
    """The number, from 1, of one step of each name, now an early one and now a late one."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(names, 1):
        places.setdefault(name, []).append(number)
    return sorted(found[turn % len(found)] for turn, found in enumerate(places.values()))


def each_step(names: Sequence[str]) -> list[int]:
    """The numbers, from 1, of all steps."""
    return [*range(1, len(names) + 1)]


# --- databases ------------------------------------------------------------------------------------


def url_of(database: sa.Engine) -> str:
    return database.url.render_as_string(hide_password=False)


def execute(database: sa.Engine, *scripts: str) -> None:
    """Run statements as they stand, and commit."""
    with database.begin() as conn:
        for script in scripts:
            conn.exec_driver_sql(script, execution_options={"no_parameters": True})


def fetch(database: sa.Engine, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement as it stands."""
    with database.connect() as conn:
        return [
            tuple(row)
            for row in conn.exec_driver_sql(statement, execution_options={"no_parameters": True})
        ]


def statuses(database: sa.Engine, log: str = "eventlog") -> dict[int, str]:
    """The letters of a log's rows by record_id, in its order."""
    return dict(fetch(database, f"SELECT record_id, status FROM {log} ORDER BY record_id"))  # type: ignore[arg-type]


def copied_log(file: Path, target: Path) -> Path:
    """A copy of a SQLite file with a log, which does not know what file it stood in: it is not a
    copy that was put back, and its event-ids carry no epoch.
    """
    shutil.copy(file, target)
    with closing(sqlite3.connect(target)) as copy, copy:
        copy.execute("UPDATE eventlog_epoch SET server = NULL")
    return target


# --- receivers ------------------------------------------------------------------------------------

Objects = dict[str, dict[str, set[str]]]
"""What a receiver holds: object -> attribute -> values."""


def apply_event(objects: Objects, event: Event, key: str | None = None) -> None:
    """What a receiver does with an event; ``key``: what it calls the object, None = by its
    association.
    """
    key = event.association if key is None else key
    if event.operation == Operation.DELETE:
        objects.pop(key, None)
        return
    if event.operation == Operation.ADD:  # it replaces what is there (receivers.md)
        objects.pop(key, None)
    attributes = objects.setdefault(key, {})
    for attribute in event.attributes:
        values = attributes.setdefault(attribute.name, set())
        for op, texts in attribute.steps:
            if op == Op.REMOVE_ALL:
                values.clear()
            elif op == Op.REMOVE:
                values.difference_update(texts)
            else:
                values.update(texts)
        if not values:
            del attributes[attribute.name]


class PlainSink:
    """A sink that has nothing to make durable and nothing to close; a test's own class shows what
    it answers.
    """

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def rows_of_objects(objects: Iterable[Mapping[str, Any]]) -> Iterator[DispatchRow]:
    """The rows of objects whose members are the columns; each names all of them."""
    for names, alike in groupby(objects, key=tuple):
        yield from dispatch_rows(names, (tuple(one.values()) for one in alike))
