"""A command line becomes a request, which refuses options that contradict each other. No command
line is parsed here, and no database is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
import pytest

from eventlog.cli.repair.requeue import Requeue
from eventlog.errors import ConfigError

CONTRADICTIONS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "a consumer and statuses": (
        lambda: Requeue(statuses="E").of_consumer("search"),
        "a consumer's rows have no status",
    ),
    "a consumer and rows of the publisher's own user": (
        lambda: Requeue(loopback=True, consumer="search").of_consumer(None),
        "a consumer's rows have no status",
    ),
    "an object of a snapshot without a consumer": (
        lambda: Requeue(event_ids=("snap:1",)).of_consumer(None),
        "give --consumer too",
    ),
    "rows of the publisher's own user by status": (
        lambda: Requeue(loopback=True, statuses="S").of_consumer(None),
        "leave --status out",
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_request_that_contradicts_itself_cannot_be_made(what: str) -> None:
    make, why = CONTRADICTIONS[what]
    with pytest.raises((click.UsageError, ConfigError), match=why):
        make()


def test_a_requeue_is_for_the_configured_consumer_unless_it_names_another() -> None:
    assert Requeue().of_consumer("search").consumer == "search"
    assert Requeue(consumer="cache").of_consumer("search").consumer == "cache"
