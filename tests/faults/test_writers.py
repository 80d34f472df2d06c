"""Many writers at once and a publisher among them: nothing lost, nothing out of order
(spec/event-log.md 12).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from publishers import (
    Collecting,
    install,
    is_drained,
    publishing,
    session,
    unless_refused,
    write_config,
)
from replay import Objects, Replay
from shared import execute, fetch, in_ci, url_of, wait_until

from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level

TABLES = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name text, num integer)",
    """CREATE TABLE phone (id integer REFERENCES usr ON DELETE CASCADE ON UPDATE CASCADE, no text
    NOT NULL,
                           UNIQUE (id, no))""",
    # Without a unique key: its values are always read back.
    "CREATE TABLE note (id integer REFERENCES usr ON DELETE CASCADE ON UPDATE CASCADE, txt text)",
    "CREATE TABLE grp (code varchar(20), part integer, about text, PRIMARY KEY (code, part))",
)
WATCHES = [{"table": "usr"}, {"table": "grp", "row_style": "row_query_back"}]
KEYS = range(1, 11)

Change = Callable[[psycopg.Cursor[Any], random.Random, int], Any]

UPSERT_USR = """INSERT INTO usr VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE
                SET name = excluded.name, num = excluded.num"""
UPSERT_GRP = """INSERT INTO grp VALUES (%s, %s, %s) ON CONFLICT (code, part) DO UPDATE SET about = excluded.about"""
CHANGES: list[Change] = [
    lambda c, r, key: c.execute(
        UPSERT_USR, (key, r.choice(["a", "b", "", None]), r.choice([1, 2, None]))
    ),
    lambda c, r, key: c.execute(
        UPSERT_USR, (key, r.choice(["a", "b", "", None]), r.choice([1, 2, None]))
    ),
    lambda c, r, key: c.execute("UPDATE usr SET num = num + 1 WHERE id = %s", (key,)),
    lambda c, r, key: c.execute("DELETE FROM usr WHERE id = %s", (key,)),
    lambda c, r, key: c.execute("UPDATE usr SET id = %s WHERE id = %s", (r.choice(KEYS), key)),
    lambda c, r, key: c.execute(
        "INSERT INTO phone SELECT id, %s FROM usr WHERE id = %s ON CONFLICT DO NOTHING",
        (str(r.randrange(4)), key),
    ),
    lambda c, r, key: c.execute(
        "DELETE FROM phone WHERE id = %s AND no = %s", (key, str(r.randrange(4)))
    ),
    lambda c, r, key: c.execute(
        "UPDATE phone SET no = no || 'x' WHERE id = %s AND length(no) < 3", (key,)
    ),
    lambda c, r, key: c.execute(
        "INSERT INTO note SELECT id, %s FROM usr WHERE id = %s", (r.choice("pq"), key)
    ),
    lambda c, r, key: c.execute("DELETE FROM note WHERE id = %s", (key,)),
    lambda c, r, key: c.execute(
        UPSERT_GRP, (r.choice(["x y", "it's", 'q"+']), key, r.choice(["k", None]))
    ),
    lambda c, r, key: c.execute("DELETE FROM grp WHERE part = %s", (key,)),
]


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def write(engine: sa.Engine, seed: int, transactions: int, failures: list[BaseException]) -> None:
    """Transactions of 1 to 3 random keys, with pauses; a fifth of them is rolled back."""
    chance = random.Random(seed)
    try:
        with session(engine) as connection:
            for _ in range(transactions):
                with unless_refused(connection):
                    with connection.cursor() as cursor:
                        for key in chance.sample(KEYS, chance.randint(1, 3)):
                            chance.choice(CHANGES)(cursor, chance, key)
                            if chance.random() < 0.3:
                                time.sleep(chance.random() * 0.01)
                    if chance.random() < 0.2:
                        connection.rollback()
                    else:
                        connection.commit()
    except BaseException as error:
        failures.append(error)
        raise


def contents(engine: sa.Engine) -> Objects:
    """The tables as the objects that a receiver should have."""
    objects: Objects = {}
    for key, name, num, phones, notes in fetch(
        engine,
        """SELECT id::text, name, num::text, ARRAY(SELECT no FROM phone p WHERE p.id = u.id),
                  ARRAY(SELECT DISTINCT txt FROM note n WHERE n.id = u.id) FROM usr u""",
    ):
        found = {
            "name": [name],
            "num": [num],
            "phone.no": sorted(phones),
            "note.txt": sorted(notes),
        }
        objects[f"id={key},table=usr,schema=public"] = found
    for code, part, about in fetch(engine, "SELECT code, part::text, about FROM grp"):
        quoted = {"x y": "x y", "it's": '"it\'s"', 'q"+': '"q\\"+"'}[code]
        objects[f"code={quoted}+part={part},table=grp,schema=public"] = {"about": [about]}
    return {
        association: {
            name: values for name, values in attributes.items() if values not in ([], [None])
        }
        for association, attributes in objects.items()
    }


def careless(chance: random.Random) -> Callable[[Document], Answer | None]:
    """A receiver that loses some of its answers, and warns of some events."""

    def receive(document: Document) -> Answer | None:
        if chance.random() < 0.1:
            raise ReceiverUnavailable("the answer was lost")
        return Answer(
            {
                event.event_id: EventResult(Level.WARNING)
                for event in document.events
                if chance.random() < 0.1
            }
        )

    return receive


def write_and_publish(
    database: sa.Engine, tmp_path: Path, seed: int, transactions: int, **options: Any
) -> None:
    execute(database, *TABLES)
    config = load(
        write_config(
            tmp_path,
            url_of(database),
            WATCHES,
            publisher={"allow_loopback": True, "polling_interval": 1, **options},
        ),
        {},
    )
    install(config)
    sink, failures = Collecting(careless(random.Random(seed))), []
    writers = [
        threading.Thread(
            target=write, args=(database, seed * 1000 + number, transactions, failures)
        )
        for number in range(8)
    ]
    with publishing(config, sink, retry_initial=0.01, retry_max=0.02) as running:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert not failures
    assert {status for (status,) in fetch(database, "SELECT DISTINCT status FROM eventlog")} <= {
        "S",
        "W",
    }
    assert fetch(database, "SELECT * FROM eventlog_error") == []

    # With a small distance the rows of one INSERT make several adds.
    folds = config.publisher.fold_distance >= 20 and config.publisher.fold_span >= 100
    deleting = fetch(database, "SELECT record_id::text FROM eventlog WHERE event_type = 4")
    replay = Replay(
        strict=frozenset({"usr"} if folds else ()),
        deleting=frozenset(record_id for (record_id,) in deleting),
    )
    replay.documents(sink.bodies)
    assert replay.objects == contents(database)
    assert replay.repeated > 0
    # What is sent for an event-id is always the same rows: for those logged by value, the same
    # text.
    assert len(replay.applied) == len(set(sink.event_ids))


@pytest.mark.parametrize("number", in_ci([30, 60], 30))
@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, {"batch_size": 3, "mark_interval": 0}),
        (2, {"batch_size": 128, "query_limit": 7, "delivery_rows": 5}),
        (
            3,
            {
                "batch_size": 2,
                "query_limit": 50,
                "fold_distance": 20,
                "fold_span": 100,
                "delete_from_log": False,
            },
        ),
    ],
)
def test_no_row_is_lost_and_none_is_out_of_order_among_eight_writers(
    database: sa.Engine, tmp_path: Path, seed: int, options: dict[str, Any], number: int
) -> None:
    write_and_publish(database, tmp_path, seed, number, **options)


@pytest.mark.night
@pytest.mark.parametrize("seed", range(100, 110))
def test_no_row_is_lost_and_none_is_out_of_order_in_a_long_run(
    database: sa.Engine, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    options = {
        "batch_size": chance.choice([1, 2, 10, 128]),
        "query_limit": chance.choice([1, 5, 100, 10000]),
        "delivery_rows": chance.choice([1, 10, 10000]),
        "mark_interval": chance.choice([0, 0.01, 1]),
        "fold_distance": chance.choice([0, 1, 10, 1000]),
        "fold_span": chance.choice([0, 10, 10000]),
        "notify": chance.random() < 0.5,
    }
    write_and_publish(database, tmp_path, seed, 1000, **options)
