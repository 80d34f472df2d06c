"""The whole work of a role of each purpose, as commands (spec/event-log.md 11.1).

The owner prepares what a command finds, and the role does the work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from receiver import Receiver, answer, in_turn, reply, status
from shared import execute, fetch, url_of

from eventlog import cli
from eventlog.sql.rights import Purpose

SCHEMA: Final = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, UNIQUE (idu, phoneno));
"""
CONFIG: Final = """
[database]
schema_name = "hr"
[publisher]
loopback_rows = "consume"
[[watch]]
table = "usr"
"""


def fill(database: sa.Engine) -> None:
    """The tables, the log, and the triggers."""
    execute(database, SCHEMA)
    file = Path("eventlog.toml")
    file.write_text(CONFIG)
    for command in (("db", "upgrade"), ("triggers", "apply")):
        assert cli.run(["--quiet", "--database-url", url_of(database), *command]) == 0


_OF_TRANSACTIONS: Final = re.compile(r"\s*(SAVEPOINT|ROLLBACK|RELEASE|COMMIT|BEGIN)\b")


@dataclass
class Worker:
    """A role that works with the log of an owner. ``used`` are the statements that it has run."""

    owner: sa.Engine
    role: str
    used: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    @property
    def url(self) -> str:
        return self.owner.url.set(username=self.role).render_as_string(hide_password=False)

    def prepare(self, *arguments: str) -> None:
        """Run a command as the owner."""
        assert cli.run(["--quiet", "--database-url", url_of(self.owner), *arguments]) == 0

    def execute(self, *statements: str) -> None:
        """Run statements as the owner."""
        execute(self.owner, *statements)

    def write(self, count: int = 1) -> list[int]:
        """Change objects as the owner, and return their keys."""
        keys = [self.number + n for n in range(1, count + 1)]
        self.number += count
        for key in keys:
            self.execute(
                f"INSERT INTO hr.usr VALUES ({key}, 'Ada')",
                f"INSERT INTO hr.usr_phone VALUES ({key}, '1')",
            )
        return keys

    def write_bad(self) -> None:
        """Write a row that no publisher can read."""
        self.execute(
            "INSERT INTO hr.eventlog (event_type, table_name, table_key) "
            "VALUES (99, 'usr', 'idu=1')"
        )

    def move_server(self) -> None:
        """Let the log look as if another server had published it."""
        self.execute("""UPDATE hr.eventlog_epoch SET server = '{"timeline": "none"}'""")

    def run(self, *arguments: str, code: int = 0) -> None:
        """Run a command as the role, which ends with this exit code."""
        with self.recording():
            assert cli.run(["--quiet", "--database-url", self.url, *arguments]) == code, arguments

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the statements that the role runs."""

        def record(
            conn: sa.Connection,
            _cursor: object,
            statement: str,
            parameters: Any,
            _context: object,
            executemany: bool,
        ) -> None:
            if conn.engine.url.username == self.role and not _OF_TRANSACTIONS.match(statement):
                self.used.setdefault(statement, parameters)

        sa.event.listen(sa.Engine, "before_cursor_execute", record)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", record)


def _written(worker: Worker) -> str:
    """Change three objects, and return the id of the first event."""
    ((last,),) = fetch(worker.owner, "SELECT coalesce(max(record_id), 0) FROM hr.eventlog")
    worker.write(3)
    ((first,),) = fetch(
        worker.owner, f"SELECT min(record_id) FROM hr.eventlog WHERE record_id > {last}"
    )
    return str(first)


def _to(receiver: Receiver, *flags: str) -> tuple[str, ...]:
    return (
        *flags,
        "--set",
        "sink.type=http",
        "--set",
        f"sink.url={receiver.url}",
        "publish",
        "--once",
    )


def _through(worker: Worker, *flags: str) -> None:
    """Publish to a receiver that asks for one event of a document again."""
    again = reply(200, answer(status("retry", _written(worker))))
    with Receiver(in_turn(lambda _: again, lambda _: reply(200, answer()))) as receiver:
        worker.run(*_to(receiver, *flags), code=1)
        worker.run(*_to(receiver, *flags))


def publisher(worker: Worker) -> None:
    worker.write(2)
    worker.write_bad()
    worker.run("publish", "--once")
    _through(worker)
    worker.move_server()
    worker.execute("UPDATE hr.eventlog SET status = 'E' WHERE event_type = 5")
    worker.prepare("requeue", "--force")
    worker.run("publish", "--once")
    worker.execute("DELETE FROM hr.eventlog_epoch")
    worker.run("publish", "--once")
    worker.run("doctor", code=1)
    worker.run("status")


OF_CONSUMER: Final = ("--set", "source.type=eventlog", "--set", "source.consumer=search")


def consumer(worker: Worker) -> None:
    flags = (*OF_CONSUMER, "--set", "source.begin=snapshot")
    worker.write(2)
    worker.run(*flags, "publish", "--once")
    worker.write_bad()
    _through(worker, *flags)
    worker.move_server()
    worker.run(*flags, "publish", "--once")
    worker.execute("DELETE FROM hr.eventlog_epoch")
    worker.run(*flags, "publish", "--once")
    worker.run(*flags, "status")


def monitor(worker: Worker) -> None:
    (key,) = worker.write(1)
    worker.write_bad()
    worker.prepare(*OF_CONSUMER, "--set", "source.begin=first", "publish", "--once")
    worker.prepare("resync", "usr")
    for command in (
        ["status"], ["errors"], ["consumers", "list"], ["triggers", "plan"], ["doctor"],
        ["doctor", "--why", f"usr.idu={key}"], ["show", "1"], ["db", "current"],
        ["publish", "--dry-run"],
    ):  # fmt: skip
        with worker.recording():
            cli.run(["--quiet", "--database-url", worker.url, *command])


def requeue(worker: Worker) -> None:
    worker.write(3)
    worker.prepare("publish", "--once")
    worker.prepare(*OF_CONSUMER, "--set", "source.begin=first", "publish", "--once")
    worker.run("requeue", "--status", "S,W", "--force")
    worker.execute(
        "UPDATE hr.eventlog SET status = 'E', event_type = 1 WHERE column_name = 'fname'",
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, column_name, new_value)"
        " VALUES ('E', 2, 'usr', 'idu=1', 'fname', 'x'), ('S', 1, 'usr', 'idu=70', 'fname', 'x'), "
        "('E', 1, 'usr', 'idu=70', 'lname', 'x')",
    )
    worker.run("requeue", "--force")
    worker.run("requeue", "--loopback", "--force")
    worker.run("requeue", "--consumer", "search", "--ids", "1-3", "--force")


def skip(worker: Worker) -> None:
    for flags, of_consumer in (
        ((), ()), ((*OF_CONSUMER, "--set", "source.begin=first"), ("--consumer", "search"))
    ):  # fmt: skip
        first = int(_written(worker))
        later = [str(first), str(first + 2)]
        again = reply(200, answer(*(status("retry", event) for event in later)))
        with Receiver(lambda _, again=again: again) as receiver:
            # The owner has written the rows.
            every = ("--set", "publisher.allow_loopback=yes", *_to(receiver, *flags))
            cli.run(["--quiet", "--database-url", url_of(worker.owner), *every])
        for event in later:
            worker.run("skip", event, "--why", "no need", *of_consumer)


def resync(worker: Worker) -> None:
    worker.write(3)
    worker.run("resync", "usr")
    worker.run("resync", "usr", "--key", "idu=1")
    worker.run("resync", "usr", "--deleted")
    worker.run("resync", "usr", "--batch", "1", "--rate", "1000")


def purge(worker: Worker) -> None:
    worker.write(3)
    worker.write_bad()
    worker.prepare("publish", "--once")
    worker.prepare(*OF_CONSUMER, "--set", "source.begin=now", "publish", "--once")
    worker.execute(
        "UPDATE hr.eventlog SET event_time = event_time - interval '9 days'",
        "UPDATE hr.eventlog_error SET error_time = error_time - interval '9 days'",
    )
    worker.run("purge", "--older-than", "1d", "--dry-run")
    worker.run("purge", "--older-than", "1d")
    worker.execute("DELETE FROM hr.eventlog WHERE status = 'E'")
    worker.write(3)
    worker.prepare("publish", "--once")
    worker.execute("UPDATE hr.eventlog SET event_time = event_time - interval '9 days'")
    worker.prepare("consumers", "drop", "search", "--yes")
    worker.run("purge", "--older-than", "1d")


def reset(worker: Worker) -> None:
    worker.write(2)
    for name in ("one", "two"):
        worker.prepare(
            "--set", "source.type=eventlog", "--set", f"source.consumer={name}",
            "--set", "source.begin=first", "publish", "--once",
        )  # fmt: skip
    worker.run("consumers", "reset", "one", "--begin", "first", "--yes")
    worker.run("consumers", "reset", "one", "--begin", "now", "--yes")
    worker.run("consumers", "reset", "one", "--begin", "2", "--yes")
    worker.run("consumers", "drop", "two", "--yes")


def epoch(worker: Worker) -> None:
    worker.run("db", "new-epoch")
    worker.execute("DELETE FROM hr.eventlog_epoch")
    worker.run("db", "new-epoch")


WORK: Final[Mapping[Purpose, Callable[[Worker], None]]] = {
    Purpose.PUBLISHER: publisher,
    Purpose.CONSUMER: consumer,
    Purpose.MONITOR: monitor,
    Purpose.REQUEUE: requeue,
    Purpose.SKIP: skip,
    Purpose.RESYNC: resync,
    Purpose.PURGE: purge,
    Purpose.RESET: reset,
    Purpose.EPOCH: epoch,
}
