"""A file of SQLite that is replaced, moved or put back under a publisher (spec/event-log.md 7.4,
12).
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from shared import Restless, Run, ShortRests, wait_until

from eventlog.cli.context import transaction
from eventlog.config.load import Config, load
from eventlog.core import clock
from eventlog.errors import (
    DatabaseUnavailable,
    LogTableError,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
)
from eventlog.model import Event
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.publisher import Publisher
from eventlog.publisher.send import dry_run
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.triggers import LOCK_TIMEOUT, triggers_of


def configuration(file: Path) -> dict[str, object]:
    return {
        "database": {"url": f"sqlite:///{file}"},
        "publisher": {"polling_interval": 1},
        "watch": [{"table": "usr"}],
    }


def config(file: Path) -> Config:
    return load(configuration(file), {})


class Receiver:
    """Applies each event-id once, and keeps the objects that it has."""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.ids: list[str] = []

    def __call__(self, _document: str, events: Sequence[Event]) -> None:
        for event in events:
            if event.event_id not in self.ids:
                self.ids.append(event.event_id)
                self.objects.add(event.association.partition(",")[0])

    def has(self, *keys: int) -> None:
        wait_until(lambda: self.objects >= {f"idu={key}" for key in keys}, f"{keys} are there")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose table ``usr`` is watched."""
    path = tmp_path / "app.db"
    sqlite3.connect(path).close()
    engine = connect(f"sqlite:///{path}")
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE usr (idu INTEGER PRIMARY KEY, fname TEXT)")
    migrations.upgrade(engine, log_table="eventlog")
    with transaction(config(path)) as db:
        triggers_of(db.dialect).apply(
            db.connection, planned_triggers(db, config(path)), LOCK_TIMEOUT
        )
    return path


def insert(file: Path, *keys: int) -> None:
    with closing(sqlite3.connect(file, timeout=30)) as conn, conn:
        conn.executemany("INSERT INTO usr VALUES (?, 'x')", [(key,) for key in keys])


def copy(file: Path, name: str) -> Path:
    """A copy by the backup of SQLite."""
    target = file.with_name(name)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(target)) as to:
        source.backup(to)
    return target


def put_back(older: Path, file: Path) -> None:
    """What ``.restore`` does."""
    with (
        closing(sqlite3.connect(older)) as source,
        closing(sqlite3.connect(file, timeout=30)) as to,
    ):
        source.backup(to)


def replace(file: Path, by: Path) -> None:
    """What ``mv`` does, with what belongs to the old file."""
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    by.replace(file)


def recorded(file: Path) -> list[tuple[object, ...]]:
    """The entries of deliveries."""
    with closing(sqlite3.connect(file)) as conn:
        return conn.execute("SELECT * FROM eventlog_inflight ORDER BY entry_no").fetchall()


def waiting(file: Path) -> int:
    with closing(sqlite3.connect(file)) as conn:
        return int(conn.execute("SELECT count(*) FROM eventlog WHERE status = 'N'").fetchone()[0])


@contextmanager
def publishing(file: Path, receiver: Receiver) -> Iterator[None]:
    stop, failed = ShortRests(), []

    def run() -> None:
        try:
            Publisher.from_config(configuration(file), sink=receiver, environ={}).run(stop)
        except Exception as error:  # told at the end
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not failed


def raises(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage() for one in caplog.records if "may have been put back" in one.getMessage()
    ]


def test_a_file_that_is_replaced_is_opened_again_under_a_new_epoch(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    receiver, other = Receiver(), copy(file, "copy.db")
    with publishing(file, receiver):
        insert(file, 1, 2, 3)
        receiver.has(1, 2, 3)
        wait_until(lambda: not waiting(file), "all is marked")
        replace(file, other)
        # SQLite takes away the log of the file of this name when the last connection to the old one
        # ends.
        wait_until(lambda: raises(caplog), "the publisher has opened the other file")
        insert(file, 11, 12, 13)
        receiver.has(11, 12, 13)
        wait_until(lambda: not waiting(file), "all is marked")
    assert receiver.ids[:3] == ["1", "2", "3"]
    assert [event_id.partition(".")[0] for event_id in receiver.ids[3:]] == ["1", "2", "3"]
    assert len(raises(caplog)) == 1


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_publisher_waits_for_a_file_that_is_gone_for_a_moment(file: Path, mode: str) -> None:
    other = copy(file, "copy.db")
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(f"PRAGMA journal_mode = {mode}")

    class Mover(Receiver):
        """Takes the file away before the row that it was given is marked: without WAL mode SQLite
        then refuses the session every write (SQLITE_READONLY_DBMOVED).
        """

        def __call__(self, document: str, events: Sequence[Event]) -> None:
            super().__call__(document, events)
            if len(self.ids) == 1:
                file.rename(file.with_name("old.db"))

    receiver = Mover()
    with publishing(file, receiver):
        insert(file, 1)
        wait_until(lambda: not file.exists(), "the file is unavailable")
        threading.Event().wait(0.2)
        replace(file, other)
        insert(file, 11)
        receiver.has(11)


def test_a_session_whose_file_was_moved_may_try_again(file: Path) -> None:
    engine = connect(f"sqlite:///{file}")
    with engine.connect() as conn:
        conn.exec_driver_sql("SELECT count(*) FROM usr")
        conn.commit()
        file.rename(file.with_name("old.db"))
        with pytest.raises(DatabaseUnavailable), as_database_errors(conn):
            conn.exec_driver_sql("INSERT INTO usr VALUES (1, 'x')")


def test_an_older_copy_that_is_restored_into_the_file_gives_no_id_a_second_meaning(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, older = Receiver(), copy(file, "older.db")
    with publishing(file, receiver):
        insert(file, 1, 2, 3)
        receiver.has(1, 2, 3)
        wait_until(lambda: not waiting(file), "all is marked")
        put_back(older, file)
        insert(file, 11, 12, 13)
        receiver.has(11, 12, 13)
    assert len(set(receiver.ids)) == 6
    assert len(raises(caplog)) == 1


def test_a_copy_from_before_the_first_connection_begins_a_new_epoch(file: Path) -> None:
    receiver, older = Receiver(), copy(file, "older.db")
    insert(file, 1)
    Publisher.from_config(configuration(file), sink=receiver, environ={}).run_once()
    replace(file, older)
    insert(file, 2)
    Publisher.from_config(configuration(file), sink=receiver, environ={}).run_once()
    assert receiver.ids[0] == "1"
    assert receiver.ids[1].startswith("1.e")


def test_a_second_publisher_of_a_moved_file_is_refused(file: Path) -> None:
    moved = file.with_name("moved.db")
    with open_context(config(file), Counters()) as context:
        for ending in ("", "-wal", "-shm"):
            if file.with_name(file.name + ending).exists():
                file.with_name(file.name + ending).rename(moved.with_name(moved.name + ending))
        with pytest.raises(PublisherAlreadyRunning), open_context(config(moved), Counters()):
            pass
        with closing(sqlite3.connect(moved)) as _, connect(f"sqlite:///{moved}").connect() as other:
            assert context.log.on(other).is_locked()
    with open_context(config(moved), Counters()) as again:
        assert again.epoch == "", "the same file under another name is no other state"


def test_a_file_that_was_moved_by_hand_and_put_back_begins_a_new_epoch_by_the_command(
    file: Path, run: Run, empty_home: Path
) -> None:
    receiver, older = Receiver(), copy(file, "older.db")
    insert(file, 1, 2)
    Publisher.from_config(configuration(file), sink=receiver, environ={}).run_once()
    put_back(older, file)
    code, out, error = run("--database-url", f"sqlite:///{file}", "db", "start-epoch", "--json")
    assert code == 0, error
    assert '"before": null' in out
    insert(file, 11, 12)
    Publisher.from_config(configuration(file), sink=receiver, environ={}).run_once()
    assert receiver.objects == {"idu=1", "idu=2", "idu=11", "idu=12"}


def test_no_new_epoch_is_drawn_by_hand_while_a_publisher_runs(
    file: Path, run: Run, empty_home: Path
) -> None:
    with open_context(config(file), Counters()), clock.simulated(Restless()):
        code, _, error = run("--database-url", f"sqlite:///{file}", "db", "start-epoch")
    assert code != 0
    assert "is already being published" in error


def test_a_log_without_the_table_is_refused(file: Path) -> None:
    with connect(f"sqlite:///{file}").begin() as conn:
        conn.exec_driver_sql("DROP TABLE eventlog_epoch")
    with (
        pytest.raises(
            LogTableError,
            match="no internal table eventlog_epoch: create it with `eventlog db upgrade`",
        ),
        open_context(config(file), Counters()),
    ):
        pass


def test_a_directory_of_documents_continues_after_its_highest_delivery(
    file: Path, tmp_path: Path
) -> None:
    older, documents = copy(file, "older.db"), tmp_path / "documents"
    sections = {**configuration(file), "sink": {"type": "files", "directory": str(documents)}}
    for key in (1, 2, 3):
        insert(file, key)
        Publisher.from_config(sections, environ={}).run_once()
    before = {path.name: path.read_bytes() for path in documents.glob("*.xmll")}
    put_back(older, file)
    insert(file, 11)
    Publisher.from_config(sections, environ={}).run_once()
    after = {path.name: path.read_bytes() for path in documents.glob("*.xmll")}
    assert len(after) == 4
    assert after.items() >= before.items(), "no document was replaced"
    assert max(after) not in before


def test_a_recorded_delivery_of_an_older_copy_replaces_no_document_of_the_state_that_is_lost(
    file: Path, tmp_path: Path, run: Run, empty_home: Path
) -> None:
    """Both states give the delivery's documents new numbers, each for other events."""
    documents = tmp_path / "documents"
    sections = {
        **configuration(file),
        "publisher": {"batch_size": 2},
        "watch": [{"table": "usr"}, {"table": "grp"}],
        "sink": {"type": "files", "directory": str(documents), "file_layout": "documents"},
    }

    def unavailable(_document: str, _events: Sequence[Event]) -> None:
        raise ConnectionError("no connection")

    def publish_without(table: str) -> dict[str, bytes]:
        """The documents after a run without this table, and one with it."""
        for before, after in ((table, "other"), ("other", table)):
            with closing(sqlite3.connect(file)) as conn, conn:
                conn.execute("PRAGMA legacy_alter_table = ON")
                conn.execute(f"ALTER TABLE {before} RENAME TO {after}")
            Publisher.from_config(sections, environ={}).run_once()
        return {path.name: path.read_bytes() for path in documents.glob("*.xml")}

    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("CREATE TABLE grp (id INTEGER PRIMARY KEY)")
    with transaction(load(sections, {})) as db:
        plan = planned_triggers(db, load(sections, {}))
        triggers_of(db.dialect).apply(db.connection, plan, LOCK_TIMEOUT)
    with closing(sqlite3.connect(file)) as conn, conn:
        for key in (1, 2, 3):
            conn.execute("INSERT INTO usr VALUES (?, 'x')", (key,))
            conn.execute("INSERT INTO grp VALUES (?)", (key,))
    to_nobody = {name: section for name, section in sections.items() if name != "sink"}
    with pytest.raises(ReceiverUnavailable):
        Publisher.from_config(to_nobody, sink=unavailable, environ={}).run_once()
    older = copy(file, "older.db")
    lost = publish_without("usr")
    put_back(older, file)
    code, _, error = run("--database-url", f"sqlite:///{file}", "db", "start-epoch")
    assert code == 0, error
    with open_unlocked(load(sections, {}), Counters()) as context:
        before = recorded(file)
        assert "".join(dry_run(context)).count("event-id=") == 6
        assert recorded(file) == before, "who only looks writes nothing"
    found = publish_without("grp")
    assert found.items() >= lost.items(), "no document was replaced"
    assert not waiting(file)
    ids = re.findall(
        r'event-id="([^"]+)"', b"".join(found[name] for name in found.keys() - lost.keys()).decode()
    )
    assert sorted(ids) == ["1", "2", "3", "4", "5", "6"]
