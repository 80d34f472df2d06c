"""A publisher or consumer that prints what it sends: run by test_consumer_promise.py, which kills
it at random.

    python consumer_driver.py CONFIG OUT

Each event is a line of JSON in OUT, written before its document goes to the sink: the event-id, the
record_ids of its rows, the class and the key of its object, the operation, and its steps:
attribute, what goes, what comes. Gaps of a consumer's set are passed over as soon as may be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Any

from eventlog.core.rows.events import Outgoing
from eventlog.model import ALL, Answer
from eventlog.publisher.publisher import Publisher
from eventlog.publisher.send.log_feed import LogFeed
from eventlog.publisher.send.policy import Document
from eventlog.sql.readers import followed_set


def told(event: Outgoing) -> list[Any]:
    assert event.object_id is not None
    assert event.operation is not None
    object_class, key = event.object_id
    steps = [
        [attribute.name, "*" if goes is ALL else goes, comes]
        for _, _, _, attribute, goes, comes in event.steps or ()
        if attribute is not None
    ]
    return [event.sent_id, list(event.ids), object_class.name, key, event.operation.value, steps]


def tell(out: IO[str]) -> None:
    original = LogFeed.send

    def send(feed: LogFeed, document: Document[Outgoing]) -> Answer:
        out.writelines(json.dumps(told(event)) + "\n" for event in document.events)
        out.flush()
        return original(feed, document)

    LogFeed.send = send  # type: ignore[method-assign]


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a", encoding="utf-8") as lines:
        tell(lines)
        followed_set.OLD = 0.1  # type: ignore[misc]
        Publisher.from_config(Path(sys.argv[1])).run()
