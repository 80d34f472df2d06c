"""The whole work of a role of each purpose, as commands (spec/event-log.md 11.1).

The owner prepares what a command finds, and the role does the work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from receiver import Receiver, answer, in_turn, reply, status
from roles import Worker
from shared import url_of

from eventlog import cli
from eventlog.exit_codes import ExitCode
from eventlog.sql.port.rights import Purpose


def _written(worker: Worker) -> str:
    """Change three objects, and return the id of the first event."""
    last = worker.value("max(record_id)")
    worker.write(3)
    return str(worker.value(f"min(CASE WHEN record_id > {last} THEN record_id END)"))


def _to(receiver: Receiver, *flags: str) -> tuple[str, ...]:
    return (
        *flags,
        "--set",
        "sink.type=http",
        "--set",
        f"sink.url={receiver.url}",
        "publish",
        "--once",
        "--allow-refused",
    )


def _through(worker: Worker, *flags: str) -> None:
    """Publish to a receiver that asks for one event of a document again, until all is published."""
    first = _written(worker)
    again = reply(200, answer(status("retry", first)))
    with Receiver(in_turn(lambda _: again, lambda _: reply(200, answer()))) as receiver:
        worker.run(*_to(receiver, *flags), code=1)
        worker.run(*_to(receiver, *flags))
    assert not worker.value(f"count(CASE WHEN record_id >= {first} AND status = 'E' THEN 1 END)")


def publisher(worker: Worker) -> None:
    worker.write(2)
    worker.write_bad()
    worker.prepare("resync", "usr")
    worker.run("publish", "--once", "--allow-refused")
    _through(worker)
    worker.move_server()
    worker.execute("UPDATE eventlog SET status = 'E' WHERE event_type = 5")
    worker.prepare("requeue", "--force")
    worker.run("publish", "--once", "--allow-refused")
    worker.execute("DELETE FROM eventlog_epoch")
    worker.run("publish", "--once", "--allow-refused")
    worker.run("doctor", code=ExitCode.NO)
    worker.run("status")


OF_CONSUMER: Final = ("--set", "source.type=eventlog", "--set", "source.consumer=search")


def _prepare_consumer(worker: Worker, begin: str) -> None:
    """Let the owner publish as a consumer, where the database has them."""
    if worker.has_consumers:
        worker.prepare(
            *OF_CONSUMER,
            "--set",
            f"source.start_from={begin}",
            "publish",
            "--once",
            "--allow-refused",
        )


def consumer(worker: Worker) -> None:
    flags = (*OF_CONSUMER, "--set", "source.start_from=snapshot")
    worker.write(2)
    worker.run(*flags, "publish", "--once", "--allow-refused")
    worker.write_bad()
    _through(worker, *flags)
    worker.move_server()
    worker.run(*flags, "publish", "--once", "--allow-refused")
    worker.execute("DELETE FROM eventlog_epoch")
    worker.run(*flags, "publish", "--once", "--allow-refused")
    worker.run(*flags, "status")


def monitor(worker: Worker) -> None:
    (key,) = worker.write(1)
    worker.write_bad()
    _prepare_consumer(worker, "earliest")
    worker.prepare("resync", "usr")
    for command in (
        ["status"], ["errors"], ["consumers", "list"], ["triggers", "plan"], ["doctor"],
        ["explain", "1"], ["db", "current"],
        ["publish", "--dry-run"],
    ):  # fmt: skip
        worker.run_alike(*command)
    worker.run("explain", "--key", f"usr.idu={key}")
    if worker.has_consumers:
        worker.run_alike(*OF_CONSUMER, "doctor")


def requeue(worker: Worker) -> None:
    worker.write(3)
    worker.prepare("publish", "--once", "--allow-refused")
    _prepare_consumer(worker, "earliest")
    worker.run("requeue", "--status", "S,W", "--force")
    worker.execute(
        "UPDATE eventlog SET status = 'E', event_type = 1 WHERE column_name = 'fname'",
        *(
            "INSERT INTO eventlog (status, event_type, table_name, table_key, column_name, "
            f"new_value) VALUES ({values}, 'x')"
            for values in (
                "'E', 2, 'usr', 'idu=1', 'fname'", "'S', 1, 'usr', 'idu=70', 'fname'",
                "'E', 1, 'usr', 'idu=70', 'lname'",
            )
        ),
    )  # fmt: skip
    worker.run("requeue", "--force")
    worker.run("requeue", "--loopback", "--force")
    if worker.has_consumers:
        worker.run("requeue", "--consumer", "search", "--ids", "1-3", "--force")


def skip(worker: Worker) -> None:
    of_consumers = [
        ((*OF_CONSUMER, "--set", "source.start_from=earliest"), ("--consumer", "search"))
    ]
    for flags, of_consumer in [((), ()), *(of_consumers if worker.has_consumers else [])]:
        first = int(_written(worker))
        later = [str(first), str(first + 2)]
        again = reply(200, answer(*(status("retry", event) for event in later)))
        with Receiver(lambda _, again=again: again) as receiver:
            # The owner has written the rows.
            every = ("--set", "publisher.allow_loopback=yes", *_to(receiver, *flags))
            cli.run(["--quiet", "--database-url", url_of(worker.owner), *every])
        for event in later:
            worker.run("skip", event, "--reason", "no need", *of_consumer)
        worker.execute(f"UPDATE eventlog SET status = 'E' WHERE record_id = {first + 1}")
        worker.run("skip", "--refused", "--reason", "no need", *of_consumer)


def operate(worker: Worker) -> None:
    """The actions of the status page: those of three other purposes, pause and resume."""
    requeue(worker)
    skip(worker)
    (key,) = worker.write(1)
    worker.run("resync", "usr", "--key", f"idu={key}")
    for of_consumer in [(), *([("--consumer", "search")] if worker.has_consumers else [])]:
        worker.run("pause", "--reason", "no need", *of_consumer)
        worker.run("resume", *of_consumer)


def resync(worker: Worker) -> None:
    (key, *_) = worker.write(3)
    schema = f"{worker.words.schema}." if worker.words.schema else ""
    settled = f"max((SELECT count(*) FROM {schema}eventlog_error WHERE code = 'superseded'))"
    before = worker.value(settled)
    worker.execute(
        f"UPDATE eventlog SET status = 'E' WHERE table_key = 'idu={key}' AND event_type <> 5",
        "INSERT INTO eventlog_error (record_id, code, message) SELECT max(record_id), 'receiver', "
        f"'no' FROM eventlog WHERE table_key = 'idu={key}' AND event_type <> 5",
    )
    worker.run("resync", "usr")
    assert worker.value(settled) == before + 1
    worker.run("resync", "usr", "--key", "idu=1")
    worker.execute(
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
        " VALUES (1, 'usr', 'idu=990', 'fname', 'an object that is gone')"
    )
    worker.run("resync", "usr", "--deletes")
    worker.run("resync", "usr", "--batch", "1", "--max-rows-per-second", "1000")


def purge(worker: Worker) -> None:
    worker.write(3)
    worker.write_bad()
    worker.prepare("publish", "--once", "--allow-refused")
    _prepare_consumer(worker, "latest")
    worker.execute(
        "UPDATE eventlog SET event_time = event_time - INTERVAL '9' DAY",
        "UPDATE eventlog_error SET error_time = error_time - INTERVAL '9' DAY",
    )
    worker.run("purge", "--older-than", "1d", "--dry-run")
    worker.run("purge", "--older-than", "1d")
    worker.execute("DELETE FROM eventlog WHERE status = 'E'")
    worker.write(3)
    worker.prepare("publish", "--once", "--allow-refused")
    worker.execute("UPDATE eventlog SET event_time = event_time - INTERVAL '9' DAY")
    if worker.has_consumers:
        worker.prepare("consumers", "drop", "search", "--yes")
    worker.run("purge", "--older-than", "1d")


def reset(worker: Worker) -> None:
    worker.write(2)
    for name in ("one", "two"):
        worker.prepare(
            "--set", "source.type=eventlog", "--set", f"source.consumer={name}",
            "--set", "source.start_from=earliest", "publish", "--once", "--allow-refused",
        )  # fmt: skip
    worker.run("consumers", "reset", "one", "--start-from", "earliest", "--yes")
    worker.run("consumers", "reset", "one", "--start-from", "latest", "--yes")
    worker.run("consumers", "reset", "one", "--start-from", "2", "--yes")
    worker.run("consumers", "drop", "two", "--yes")


def epoch(worker: Worker) -> None:
    worker.run("db", "start-epoch")
    worker.execute("DELETE FROM eventlog_epoch")
    worker.run("db", "start-epoch")


def verify(worker: Worker) -> None:
    worker.write(3)
    worker.prepare("--set", "publisher.allow_loopback=yes", "publish", "--once", "--allow-refused")
    # The consumer of a verification that was killed.
    worker.execute(
        "INSERT INTO eventlog_consumer (name, begins, done) VALUES ('verify-x', 'latest', '[0]')"
    )
    schema = f"{worker.words.schema}." if worker.words.schema else ""
    copy = f"copy{worker.number}"
    worker.execute(f"CREATE TABLE {copy} AS SELECT * FROM usr")
    worker.grant(f"GRANT SELECT ON {schema}{copy} TO {worker.role}")
    with tempfile.TemporaryDirectory() as directory:
        map_file = Path(directory) / "map.toml"
        map_file.write_text(f'[tables.usr]\ntable = "{schema}{copy}"\n', encoding="utf-8")
        target = worker.url.render_as_string(hide_password=False)
        command = ("verify", "usr", "--target", target, "--options", str(map_file), "--wait", "0")
        worker.run(*command)
        worker.execute(f"DELETE FROM {copy} WHERE idu = {worker.number}")
        last = worker.value("max(record_id)")
        worker.run(*command, "--repair", code=ExitCode.NO)
        assert worker.value("max(record_id)") > last
        # Files have the values of child tables, too.
        documents = str(Path(directory) / "documents")
        worker.prepare("resync", "usr")
        sink = ("--set", "sink.type=files", "--set", f"sink.directory={documents}")
        worker.prepare(
            "--set", "publisher.allow_loopback=yes", *sink, "publish", "--once", "--allow-refused"
        )
        worker.run("verify", "usr", "--target", documents, "--wait", "0")


WORK: Final[Mapping[Purpose, Callable[[Worker], None]]] = {
    Purpose.PUBLISHER: publisher,
    Purpose.CONSUMER: consumer,
    Purpose.MONITOR: monitor,
    Purpose.REQUEUE: requeue,
    Purpose.SKIP: skip,
    Purpose.OPERATE: operate,
    Purpose.RESYNC: resync,
    Purpose.VERIFY: verify,
    Purpose.PURGE: purge,
    Purpose.RESET: reset,
    Purpose.EPOCH: epoch,
}
