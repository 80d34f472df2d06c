"""Thousands of parked objects, on a real database: the others go on, order is kept, a restart loses
nothing (spec/event-log.md 8.4).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import execute, statuses, url_of

from eventlog.config.load import load
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession

MANY = 2000
NEW = 100_000


def test_thousands_of_parked_objects_let_the_others_go_on_and_keep_their_order(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE usr (id integer PRIMARY KEY, num integer)")
    config = load(
        write_config(
            tmp_path, url_of(database), [{"table": "usr"}], publisher={"allow_loopback": True}
        ),
        {},
    )
    install(config)
    execute(database, f"INSERT INTO usr SELECT n, 0 FROM generate_series(1, {MANY}) AS n")
    refuses = True
    accepted: dict[int, list[str]] = defaultdict(list)

    def judge(document: Document) -> Answer:
        verdicts = {}
        for event in document.events:
            key = int(event.association.partition(",")[0].removeprefix("id="))
            if refuses and key <= MANY:
                verdicts[event.event_id] = EventResult(Level.RETRY, "later")
            else:
                accepted[key] += [
                    text for each in event.attributes for _, texts in each.steps for text in texts
                ]
        return Answer(verdicts)

    sink = Collecting(judge)
    always_due = {"retry_initial": 0, "retry_max": 0}
    with opened(config, query_limit=200, max_parked=MANY, **always_due) as context:
        state = recover(context)
        while run_cycle(PublisherSession(context, state, sink)).more:
            pass
        assert (len(state.parked_objects()), accepted) == (MANY, {})
        execute(
            database,
            "UPDATE usr SET num = 1",
            f"INSERT INTO usr SELECT n, 0 FROM generate_series({NEW + 1}, {NEW + 400}) AS n",
        )
        for _ in range(2):
            sink.documents.clear()
            before = len(accepted)
            run_cycle(PublisherSession(context, state, sink))
            # Half a window, and the rest of a document.
            assert 100 <= len(sink.event_ids) - (len(accepted) - before) < 100 + 128
        assert len(accepted) == 400
    with opened(config, query_limit=200, max_parked=MANY, **always_due) as context:
        state, refuses = recover(context), False
        while run_cycle(PublisherSession(context, state, sink)).more or state.outbox.count:
            pass
    assert set(statuses(database).values()) == {"S"}
    assert {key: texts for key, texts in accepted.items() if key <= MANY} == {
        key: ["0", "0", "1"] for key in range(1, MANY + 1)
    }
