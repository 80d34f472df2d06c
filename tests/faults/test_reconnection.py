"""A database that goes away, at whatever point: the publisher connects again, and says so on a line
(spec/event-log.md 8.4, 12).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from cutting_proxy import cutting_proxy
from publishers import LONG, Collecting, configuration, is_drained, make_log, publishing, write
from shared import statuses, wait_until

from eventlog.publisher import waiting


def test_a_reconnection_that_is_cut_after_any_message_is_made_once_more(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.01)
    make_log(database)
    sink = Collecting()
    with cutting_proxy(database.url) as (proxy, url):
        proxied = sa.create_engine(url)
        with publishing(configuration(proxied, polling_interval=LONG), sink) as running:
            write(database, 0)
            wait_until(lambda: is_drained(database, running), "it has connected")
            message = 0
            while not message or proxy.has_cut:
                message += 1
                proxy.cut_now(again_after=message)
                write(database, message)
                wait_until(lambda: is_drained(database, running), f"it goes on, cut after message {message}")
        proxied.dispose()
    assert message > 50  # as many are needed until it publishes
    assert set(statuses(database).values()) == {"S"}
