"""The key of a class changes: what the receiver has by the old key can be deleted
(spec/event-log.md 5.4).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from publishers import Collecting, install, is_drained, publishing, write_config
from shared import Objects, apply_event, execute, fetch, statuses, url_of, wait_until

from eventlog.cli import cli
from eventlog.config.load import Config, load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.catalog_watcher import CatalogWatcher
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.feeds.queue import read_claimed_objects
from eventlog.publisher.ledger.in_flight import BacklogClaim
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.sending import Delivered
from eventlog.publisher.send.session import PublisherSession
from eventlog.xds.reader import read_events

USR = "CREATE TABLE usr (id integer PRIMARY KEY, code text NOT NULL UNIQUE, name text)"
ROWS = "INSERT INTO usr VALUES (1, 'a', 'Jack'), (2, 'b', 'Jill'), (3, 'c', 'Joe')"

CHANGES = {
    "the column is renamed": (("ALTER TABLE usr RENAME id TO no",), "no={id}"),
    "the key moves to another column": (
        ("ALTER TABLE usr DROP CONSTRAINT usr_pkey, ADD PRIMARY KEY (code)",),
        "code={code}",
    ),
    "the key moves, and its column is dropped": (
        ("ALTER TABLE usr DROP CONSTRAINT usr_pkey, ADD PRIMARY KEY (code), DROP id",),
        "code={code}",
    ),
}


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def configured(engine: sa.Engine, directory: Path, *, form: str = "xds", **settings: Any) -> Config:
    options = {"polling_interval": 1, "allow_loopback": True}
    sections: dict[str, Any] = {"publisher": options, "format": {"type": form}}
    return load(
        write_config(directory, url_of(engine), ({"table": "usr"} | settings,), **sections), {}
    )


def published(engine: sa.Engine, config: Config, sink: Collecting) -> list[str]:
    """The documents of a publisher that runs until the queue is empty."""
    before = len(sink.documents)
    with publishing(config, sink) as running:
        wait_until(lambda: is_drained(engine, running), "all is published")
    return sink.bodies[before:]


def command(directory: Path, *words: str) -> str:
    ran = CliRunner().invoke(cli, ["--config", str(directory / "eventlog.toml"), *words])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def replayed(bodies: list[str]) -> Objects:
    """What a receiver has that applies all events by their associations."""
    objects: Objects = {}
    for body in bodies:
        for document in body.splitlines():
            for event in read_events(document).events:
                apply_event(objects, event, event.association.split(",table=")[0])
    return objects


@pytest.mark.parametrize("case", CHANGES)
def test_after_the_recipe_the_receiver_has_each_object_once_by_the_new_key(
    database: sa.Engine, tmp_path: Path, case: str
) -> None:
    statements, key = CHANGES[case]
    execute(database, USR)
    config = configured(database, tmp_path)
    install(config)
    execute(database, ROWS)
    sink = Collecting()
    published(database, config, sink)
    assert set(replayed(sink.bodies)) == {"id=1", "id=2", "id=3"}
    execute(database, "DELETE FROM usr WHERE id = 3")  # which waits when the key changes

    execute(database, *statements)
    config = configured(database, tmp_path, previous_key="id")
    install(config)
    assert (
        json.loads(command(tmp_path, "resync", "usr", "--deletes", "--dry-run", "--json"))["rows"]
        == 2
    )
    command(tmp_path, "resync", "usr", "--deletes")
    assert json.loads(command(tmp_path, "resync", "usr", "--deletes", "--json"))["rows"] == 0
    command(tmp_path, "resync", "usr")
    published(database, config, sink)
    assert set(statuses(database).values()) == {"S"}
    wanted = {
        key.format(id=id, code=code): {name}
        for id, code, name in ((1, "a", "Jack"), (2, "b", "Jill"))
    }
    assert {key: values["name"] for key, values in replayed(sink.bodies).items()} == wanted


def cycles(session: PublisherSession) -> list[Delivered]:
    """Run six cycles without the pauses between them."""
    ends = []
    for _ in range(6):
        session.state.outbox.resume_at = 0.0
        ends.append(run_cycle(session))
    return ends


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_snapshot_waits_for_a_class_whose_triggers_still_log_another_key(
    database: sa.Engine, tmp_path: Path, comes_back: bool
) -> None:
    """The triggers would log the delete of an object by a name that the snapshot does not have."""
    execute(
        database, USR, "CREATE TABLE zone (id integer PRIMARY KEY)", "INSERT INTO zone VALUES (7)"
    )
    install(configured(database, tmp_path))
    command(tmp_path, "triggers", "apply")  # and records what it captures
    execute(database, ROWS, "ALTER TABLE usr RENAME id TO no")
    config = load(
        write_config(
            tmp_path,
            url_of(database),
            ({"table": "usr", "previous_key": "id"}, {"table": "zone"}),
            source={"type": "eventlog", "consumer": "search", "start_from": "snapshot"},
        ),
        {},
    )
    sink = Collecting()
    if comes_back:  # the class was unavailable when the consumer started
        execute(database, "ALTER TABLE usr RENAME TO away")
    with open_context(config, Counters()) as context:
        watcher = CatalogWatcher(context)
        if comes_back:
            execute(database, "ALTER TABLE away RENAME TO usr")
            assert watcher.refresh()
        session = PublisherSession(watcher.context, recover(context), sink)
        ends = cycles(session)
        assert "class usr: its triggers log the key id, and its key is no" in ends[-1].reason
        assert "eventlog triggers apply" in ends[-1].reason
        assert set(replayed(sink.bodies)) == {"id=7"}, "no other class waits"
        execute(database, "DELETE FROM usr WHERE no = 3")
        command(tmp_path, "triggers", "apply")
        cycles(session)
    assert set(replayed(sink.bodies)) == {"id=7", "no=1", "no=2"}


def test_a_row_of_another_type_by_the_old_key_stays_bad(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR, "ALTER TABLE usr RENAME id TO no")
    config = configured(database, tmp_path, previous_key=["id"])
    install(config)
    row = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES ({}, 'usr', '{}')"
    execute(
        database,
        *(
            row.format(*one)
            for one in ((6, "id=1"), (4, "id=1"), (4, "id=x+no=1"), (4, "nonsense"))
        ),
    )
    published(database, config, Collecting())
    assert list(statuses(database).values()) == ["E", "S", "E", "E"]
    assert fetch(database, "SELECT DISTINCT code FROM eventlog_error") == [("bad_table_key",)]


@pytest.mark.parametrize(
    ("form", "written"),
    [("debezium", '"before":{"id":7},"after":null'), ("cloudevents", '"key":{"id":7}')],
)
def test_other_formats_name_the_old_key_and_no_object_of_now(
    database: sa.Engine, tmp_path: Path, form: str, written: str
) -> None:
    execute(
        database, USR, "ALTER TABLE usr DROP CONSTRAINT usr_pkey, ADD COLUMN no integer PRIMARY KEY"
    )
    config = configured(database, tmp_path, form=form, previous_key="id")
    install(config)
    execute(
        database,
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'id=7')",
    )
    sink = Collecting()
    published(database, config, sink)
    assert statuses(database) == {1: "S"}
    assert written in sink.bodies[0]


def test_requeue_names_a_command_for_a_stale_row_of_a_renamed_key_column(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE usr (code text PRIMARY KEY, name text)")
    install(configured(database, tmp_path))
    execute(
        database,
        "INSERT INTO eventlog (status, event_type, table_name, table_key, column_name, new_value) "
        "VALUES ('E', 2, 'usr', 'code=\"a+b\"', 'name', 'Jack'), "
        "('S', 2, 'usr', 'code=\"a+b\"', 'name', 'Jill')",
        "ALTER TABLE usr RENAME code TO code2",
    )
    configured(database, tmp_path, previous_key=["code"])
    file = str(tmp_path / "eventlog.toml")
    ran = CliRunner().invoke(cli, ["--config", file, "requeue", "--status", "E"])
    assert ran.exception is None, ran.output
    assert "eventlog resync usr --key" in ran.output


def test_a_delete_by_the_old_key_waits_for_the_add_that_a_backlog_job_has(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE usr (code text PRIMARY KEY, name text)")
    config = configured(database, tmp_path, previous_key=["code"])
    install(config)
    row = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES ({}, 'usr', 'code=a')"
    execute(database, row.format(5), "ALTER TABLE usr RENAME code TO code2", row.format(4))
    claim = BacklogClaim(1, "job", "files", "", "", 1, 1, (), frozenset())
    with open_context(config, Counters()) as context:
        claimed = read_claimed_objects(context, claim)
        (former,) = (cls.former for cls in context.catalog.classes)
        context.log.commit()
        assert (former, "code=a") in claimed
