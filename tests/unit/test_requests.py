"""A command line becomes a request, which refuses options that contradict each other. No command
line is parsed here, and no database is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest

from eventlog.cli.begin.settings import Init
from eventlog.cli.convert.convert import Convert
from eventlog.cli.inspect.explain import Explain
from eventlog.cli.install.db import Downgrade, Upgrade
from eventlog.cli.install.triggers import List
from eventlog.cli.publish.publish import Publish
from eventlog.cli.repair.purge import Purge
from eventlog.cli.repair.requeue import Requeue
from eventlog.cli.repair.resync import Resync
from eventlog.cli.repair.skip import Skip
from eventlog.errors import ConfigError
from eventlog.model import EventType

FILE: Final = Path("a_file")
CONTRADICTIONS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    # requeue
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
    # skip
    "nothing to skip": (lambda: Skip("why"), "give either EVENT_ID"),
    "an event and all parked ones": (
        lambda: Skip("why", event_ids=("1",), parked=True),
        "give either EVENT_ID",
    ),
    "record_ids of parked events": (lambda: Skip("why", parked=True, ids="1"), "--refused too"),
    "an event of a class": (
        lambda: Skip("why", event_ids=("1",), class_name="usr"),
        "leave EVENT_ID out",
    ),
    # purge, resync
    "a detached leaf by age": (lambda: Purge(age="30d", table="log_2"), "without --older-than"),
    "objects by key and by condition": (
        lambda: Resync("usr", keys=("id=1",), where="true"),
        "give only one of",
    ),
    "a file of keys and all deleted objects": (
        lambda: Resync("usr", keys_file=FILE, deletes=True),
        "give only one of",
    ),
    "one transaction to continue": (
        lambda: Resync("usr", keys=("id=1",), resume=True),
        "nothing to resume",
    ),
    "to continue and to start over": (lambda: Resync("usr", resume=True, restart=True), "not both"),
    "deletes as updates": (lambda: Resync("usr", deletes=True, as_update=True), "type 4"),
    # publish, explain
    "refused rows of a daemon": (lambda: Publish(allow_refused=True), "goes with --once"),
    "nothing to explain": (lambda: Explain(None, None, False, None, None), "give either RECORD_ID"),
    "a row and a key": (lambda: Explain("7", "id=7", False, None, None), "give either RECORD_ID"),
    # install, begin
    "a database for an upgrade that runs": (
        lambda: Upgrade("head", False, None, None, (), False, "oracle"),
        "--dialect needs --sql",
    ),
    "a database for a downgrade that runs": (
        lambda: Downgrade("base", False, False, False, False, False, "oracle"),
        "--dialect needs --sql",
    ),
    "triggers of a catalogue without a database": (
        lambda: List(as_sql=True, catalog_file=FILE),
        "--dialect and --catalog together",
    ),
    "a list of the triggers of a catalogue": (
        lambda: List(dialect_name="oracle", catalog_file=FILE),
        "with --sql",
    ),
    "tables for a file that is overwritten": (lambda: Init(force=True, fill=True), "only adds"),
    # convert
    "a master without Spark": (
        lambda: Convert("jsonl", "jsonl", "a", "b", master="local"),
        "--master needs --spark",
    ),
    "Spark from a pipe": (
        lambda: Convert("jsonl", "jsonl", "-", "b", on_spark=True),
        "IN and OUT are directories",
    ),
    "several files to a pipe": (
        lambda: Convert("jsonl", "qlik-change-table", "a", "-"),
        "written to several files",
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


def test_a_resync_writes_rows_of_the_type_that_is_asked_for() -> None:
    assert Resync("usr").event_type is EventType.INSERT_ROW_QUERY_BACK
    assert Resync("usr", as_update=True).event_type is EventType.UPDATE_ROW_QUERY_BACK
    assert Resync("usr", deletes=True).event_type is EventType.DELETE_ROW
