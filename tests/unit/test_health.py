"""The health of a publisher: each condition by the facts that make it hold (spec/event-log.md
11.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from types import MappingProxyType
from typing import Any, Final

import pytest

from eventlog.publisher.context.conditions import KINDS, Severity
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import (
    ConsumerStatus,
    Differences,
    Doing,
    Measured,
    OverduePurge,
    WaitFor,
)
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.run.health import (
    Condition,
    Facts,
    Health,
    Waiting,
    growth_in_a_day,
    joined,
    judge,
)
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.sql.doctor import HeldSnapshot, TableStorage
from eventlog.sql.log.pauses import Pause
from eventlog.sql.log.verifications import LastVerification

NOON: Final = datetime(2026, 3, 1, 12)
SNAPSHOT: Final = HeldSnapshot(
    "session", None, 7, "app", "report", None, None, 7200.0, 1000, "801", "SELECT 1"
)


def facts(**known: Any) -> Facts:
    return Facts(**{"state": "publishing", **known})


def measured(**known: Any) -> Facts:
    return facts(measured=Measured(**known))


def consumer(rows: int, still: float, *, runs: bool = False) -> ConsumerStatus:
    return ConsumerStatus("search", runs, "latest", NOON, rows, 5.0, 0, 7, 7, NOON, still, 0, None)


def verified(result: str) -> LastVerification:
    return LastVerification("publisher", "copy", result, NOON, NOON, 10, 3)


def table(part: str, dead: int, size: int = 0) -> TableStorage:
    return TableStorage(part, part, 1000, dead, None, True, size)


def waiting_for(whom: WaitFor, seconds: float = 45.0, advice: str = "") -> Facts:
    return facts(
        doing=Doing.WAITING, waits=Waiting(whom, seconds, "http://r: refused", advice, 6.0)
    )


def words_of(whom: WaitFor) -> str:
    return f"The {whom.value} has not answered for 45 s: http://r: refused. Next attempt in 6 s."


HOLDS: Final[Mapping[str, tuple[Facts, str]]] = MappingProxyType(
    {
        "process_hangs": (
            facts(is_alive=False, progress_seconds=300.0),
            "the process hangs: no progress for 5 minutes",
        ),
        "uncaptured_tables": (
            facts(differences=Differences(("a: x", "b: x"), (), ("a: x", "b: x"))),
            "2 tables not captured as declared: changes are not logged (a, b)",
        ),
        "captured_otherwise": (
            facts(differences=Differences(("a: x",), (), ("a: x",), ("a: x",))),
            "1 table captured otherwise than this configuration declares (a)",
        ),
        "class_unavailable": (
            facts(differences=Differences(refused=("doc: column x is gone",))),
            "1 class cannot be published as configured, and rows wait: doc",
        ),
        "no_progress": (
            facts(measured=Measured(queue_rows=4), progress_seconds=601.0),
            "4 rows to publish, and no progress for 10 minutes",
        ),
        "rows_missing": (
            facts(rows_missing=2),
            "2 rows deleted from the log before the answer was recorded",
        ),
        "dead_letters_wait": (
            measured(letters=3, oldest_letter_seconds=3601.0),
            "3 dead letters wait for the sink of [dead_letter], the oldest for 60 minutes",
        ),
        "verify_different": (
            measured(verified=[verified("different")]),
            "3 objects of copy differed at the last verification",
        ),
        "paused": (
            measured(pause=Pause("new index", "anna", NOON), paused_seconds=3600.0),
            "the publisher has been paused for 60 minutes by anna: new index",
        ),
        "database_unavailable": (waiting_for(WaitFor.DATABASE), words_of(WaitFor.DATABASE)),
        "receiver_misconfigured": (
            waiting_for(WaitFor.RECEIVER, advice="check sink.url"),
            words_of(WaitFor.RECEIVER),
        ),
        "receiver_unavailable": (waiting_for(WaitFor.RECEIVER), words_of(WaitFor.RECEIVER)),
        "source_unavailable": (waiting_for(WaitFor.SOURCE), words_of(WaitFor.SOURCE)),
        "not_connected": (facts(doing=Doing.CONNECTING, state="connecting"), "connecting"),
        "no_publisher": (facts(runs=False, state="no publisher runs"), "no publisher runs"),
        "refused_rows": (measured(refused_rows=4), "4 rows refused by the receiver"),
        "invalid_rows": (measured(invalid_rows=1), "1 row invalid, and not sent"),
        "consumer_waits": (
            facts(consumers=[consumer(2217, 720.0)]),
            "consumer search does not run and has not moved for 12 minutes: 2,217 rows to do",
        ),
        "parked_objects": (
            facts(parked=2),
            "2 objects parked: the receiver answers retry for their events, or fails for them",
        ),
        "queue_old": (
            facts(oldest_seconds=1200.0),
            "the oldest row has waited for 20 minutes",
        ),
        "resync_due": (
            measured(due_resyncs=["eventlog resync usr"]),
            "1 resync due: objects may differ from those of the receiver",
        ),
        "trigger_drifted": (
            facts(differences=Differences(("old: no [[watch]] names it",))),
            "1 table with triggers that the configuration does not declare",
        ),
        "open_transaction": (
            measured(
                oldest_open_transaction_age_seconds=3600.0, oldest_open_transaction="session 7"
            ),
            "a transaction that has written the log has been open for 60 minutes: session 7",
        ),
        "old_snapshot": (
            facts(measured=Measured(oldest_snapshot=SNAPSHOT), snapshot_seconds=7200.0),
            "for 2 hours, a database snapshot has blocked the removal of dead rows: "
            "session 7 of app (report)",
        ),
        "dead_rows": (
            facts(
                measured=Measured(tables=[table("log", 100_000), table("error", 5)]),
                dead_seconds=901.0,
            ),
            "100,000 rows dead in the log or an internal table: reading gets slow",
        ),
        "purge_overdue": (
            measured(
                overdue_purge=OverduePurge("leaf log_2 has only rows up to May", "row 7 waits")
            ),
            "a purge of the log is overdue: leaf log_2 has only rows up to May (row 7 waits)",
        ),
        "log_too_large": (
            measured(tables=[table("log", 0, 3 * 10**9)], keep_bytes=2 * 10**9),
            "the log has 3.0 GB, and keep_bytes is 2.0 GB",
        ),
        "log_grows": (
            facts(measured=Measured(tables=[table("log", 0, 2 * 10**9)]), bytes_in_a_day=3e9),
            "the log will have doubled within a day, to 5.0 GB",
        ),
    }
)
"""Facts by which each condition holds alone, and its words."""


@pytest.mark.parametrize("name", KINDS)
def test_each_condition_holds_by_its_facts_alone_and_has_an_action(name: str) -> None:
    known, words = HOLDS[name]
    (condition,) = judge(known).conditions
    assert (condition.name, condition.text) == (name, words)
    assert condition.severity is KINDS[name].severity
    assert condition.action.endswith(".")
    assert all(command.startswith("eventlog ") for command in condition.commands)


@pytest.mark.parametrize(
    "known",
    [
        facts(runs=True, measured=Measured(queue_rows=4), progress_seconds=601.0),
        facts(measured=Measured(queue_rows=0), progress_seconds=601.0),
        facts(measured=Measured(queue_rows=4), progress_seconds=599.0),
        facts(consumers=[consumer(0, 9999.0), consumer(7, 599.0)]),
        facts(oldest_seconds=899.0),
        facts(doing=Doing.RESTING),
        measured(verified=[verified("equal"), verified("undecided")]),
        measured(oldest_open_transaction_age_seconds=1799.0),
        measured(oldest_snapshot=SNAPSHOT._replace(seconds=3599.0)),
        measured(oldest_snapshot=SNAPSHOT._replace(transactions=999)),
        facts(measured=Measured(tables=[table("log", 100_000)]), dead_seconds=899.0),
        facts(measured=Measured(tables=[table("log", 0, 10**8)]), bytes_in_a_day=3e9),
        measured(tables=[table("log", 0, 10**9), table("error", 0, 10**9)], keep_bytes=10**9),
        facts(measured=Measured(tables=[table("log", 0, 2 * 10**9)]), bytes_in_a_day=1e9),
    ],
)
def test_what_is_usual_is_ok_and_the_sentence_is_what_the_process_does(known: Facts) -> None:
    health = judge(known)
    assert (health.severity, health.sentence) == (Severity.OK, "publishing")
    assert health.as_data()["conditions"] == []


OVER: Final[Sequence[tuple[str, float, Callable[[float], Facts]]]] = (
    ("no_progress", 600, lambda n: facts(measured=Measured(queue_rows=4), progress_seconds=n)),
    ("dead_letters_wait", 10_000, lambda n: measured(letters=n)),
    ("dead_letters_wait", 3600, lambda n: measured(letters=1, oldest_letter_seconds=n)),
    ("queue_old", 900, lambda n: facts(oldest_seconds=n)),
    ("consumer_waits", 600, lambda n: facts(consumers=[consumer(7, n)])),
    ("open_transaction", 1800, lambda n: measured(oldest_open_transaction_age_seconds=n)),
    (
        "dead_rows",
        900,
        lambda n: facts(measured=Measured(tables=[table("log", 100_000)]), dead_seconds=n),
    ),
    ("log_too_large", 7000, lambda n: measured(tables=[table("log", 0, int(n))], keep_bytes=7000)),
    (
        "log_grows",
        2 * 10**9,
        lambda n: facts(measured=Measured(tables=[table("log", 0, 2 * 10**9)]), bytes_in_a_day=n),
    ),
)
"""A condition, the most that is usual, and facts with a number."""


@pytest.mark.parametrize(("name", "most", "made"), OVER)
def test_a_condition_holds_from_one_above_what_is_usual(
    name: str, most: float, made: Callable[[float], Facts]
) -> None:
    found = [name in judge(made(most + step)).names for step in (-1, 0, 1)]
    assert found == [False, False, True]


def test_the_growth_of_a_log_is_judged_from_one_gigabyte() -> None:
    sizes = [10**9 - 1, 10**9, 10**9 + 1]
    found = [
        judge(facts(measured=Measured(tables=[table("log", 0, size)]), bytes_in_a_day=3e9)).names
        for size in sizes
    ]
    assert found == [set(), {"log_grows"}, {"log_grows"}]


def test_the_worst_condition_is_the_sentence_and_the_others_are_counted() -> None:
    health = judge(
        facts(
            parked=1,
            measured=Measured(refused_rows=4),
            differences=Differences(("a: x",), (), ("a: x",)),
        )
    )
    assert health.severity is Severity.ERROR
    assert health.sentence == (
        "1 table not captured as declared: changes are not logged (a) (and 2 more conditions)"
    )
    assert [one.name for one in health.conditions] == [
        "uncaptured_tables", "refused_rows", "parked_objects",
    ]  # fmt: skip
    assert health.as_data()["action"] == KINDS["uncaptured_tables"].action


def test_errors_come_before_warnings() -> None:
    levels = [kind.severity.level for kind in KINDS.values()]
    assert levels == sorted(levels, reverse=True)


def test_each_placeholder_of_the_words_is_filled() -> None:
    for known, words in HOLDS.values():
        assert not re.search(r"[{}]", words)
        assert isinstance(judge(known), Health)


def test_a_consumer_that_is_paused_does_not_wait_and_its_condition_names_it() -> None:
    paused = consumer(2217, 720.0)._replace(
        pause=Pause("new index", "anna", NOON, "my search"), paused_seconds=60.0
    )
    (condition,) = judge(facts(consumers=[paused])).conditions
    assert (condition.name, condition.text) == (
        "paused",
        "consumer my search has been paused for 60 s by anna: new index",
    )
    assert condition.commands == ("eventlog resume --consumer 'my search'",)


def test_what_is_wrong_here_names_the_option_and_what_is_wrong_there_needs_nothing_here() -> None:
    (ours,) = judge(HOLDS["receiver_misconfigured"][0]).conditions
    assert ours.action == "Check sink.url, then restart the publisher; until then it tries again."
    (theirs,) = judge(HOLDS["receiver_unavailable"][0]).conditions
    assert theirs.action.startswith("Nothing has to be done here")


@pytest.mark.parametrize("advice", ["", "check sink.url"])
def test_a_receiver_that_answers_nobody_for_ten_minutes_is_an_error_and_the_cause_of_no_progress(
    advice: str,
) -> None:
    known = waiting_for(WaitFor.RECEIVER, 600.0, advice)
    assert judge(known).severity is Severity.WARNING
    known = replace(
        waiting_for(WaitFor.RECEIVER, 601.0, advice),
        measured=Measured(queue_rows=4, refused_rows=1),
        progress_seconds=601.0,
    )
    names = [(one.name, one.severity.value) for one in judge(known).conditions]
    cause = "receiver_misconfigured" if advice else "receiver_unavailable"
    assert names == [(cause, "error"), ("no_progress", "error"), ("refused_rows", "warning")]


def test_a_reader_that_rests_on_purpose_is_no_warning() -> None:
    resting = consumer(2217, 7200.0, runs=True)
    sending = resting._replace(events_in_flight=1)
    paused = resting._replace(pause=Pause("new index", "anna", NOON, "search"))
    assert judge(facts(consumers=[resting])).names == set(), "it waits for a time of day"
    assert judge(facts(consumers=[sending])).names == {"consumer_waits"}
    assert judge(facts(consumers=[paused])).names == {"paused"}
    old = {"oldest_seconds": 7200.0, "progress_seconds": 7200.0}
    assert judge(facts(**old, measured=Measured(queue_rows=4), awaits_time=True)).names == set()
    pause = Measured(queue_rows=4, pause=Pause("new index", "anna", NOON))
    assert judge(facts(**old, measured=pause)).names == {"paused"}


def test_a_publisher_is_late_again_once_its_time_of_day_has_come() -> None:
    seconds = iter(range(0, 100_000, 1000))
    activity = Activity(
        Counters(), 1.0, LivenessClock(1e9, lambda: float(next(seconds))), has_times=True
    )
    activity.connected(again=False)
    activity.measured(Measured(queue_rows=4, oldest_seconds=7200.0))
    activity.does(Doing.RESTING)
    assert "queue_old" not in activity.health().names
    activity.waits(WaitFor.RECEIVER, "refused", 1e9)
    assert "queue_old" in activity.health().names


def test_the_sentence_has_the_status_or_the_first_line_of_the_reason_and_the_details_the_rest() -> (
    None
):
    reason = "http://r/xds: the receiver answers 503 Service Unavailable; busy with Jack"
    (condition,) = judge(
        facts(doing=Doing.WAITING, waits=Waiting(WaitFor.RECEIVER, 45.2, reason, "", 6.4))
    ).conditions
    assert condition.text == (
        "The receiver answers 503 Service Unavailable for 45 s. Next attempt in 6 s."
    )
    assert condition.details == reason
    several = "connection to server at db failed: refused\n\tIs it running?\nconnection to ::1"
    (condition,) = judge(
        facts(doing=Doing.WAITING, waits=Waiting(WaitFor.DATABASE, 180.0, several))
    ).conditions
    assert condition.text == (
        "The database has not answered for 3 minutes: connection to server at db failed: refused."
    )
    assert condition.details == several
    advised = "cannot connect to database 'd' at a: a:5466: refused, b:5467: read-only; check host"
    (condition,) = judge(
        facts(doing=Doing.WAITING, waits=Waiting(WaitFor.DATABASE, 9.0, advised, "", 1.0))
    ).conditions
    assert condition.text == (
        "The database has not answered for 9 s: cannot connect to database 'd' at a: a:5466: "
        "refused, b:5467: read-only. Next attempt in 1 s."
    )
    assert condition.details == advised


def test_conditions_of_two_places_are_joined_the_worst_first() -> None:
    of_database = judge(facts(measured=Measured(refused_rows=4), parked=1))
    of_process = judge(HOLDS["receiver_misconfigured"][0])
    told = [Condition.from_data(one.as_data()) for one in (*of_process.conditions,)]
    both = joined(of_database, [*told, *of_database.conditions])
    assert [one.name for one in both.conditions] == [
        "receiver_misconfigured", "refused_rows", "parked_objects",
    ]  # fmt: skip
    assert told == [*of_process.conditions]


def test_a_due_resync_is_the_command_to_run() -> None:
    (condition,) = judge(HOLDS["resync_due"][0]).conditions
    assert condition.commands == ("eventlog resync usr",)


@pytest.mark.parametrize(
    ("last", "bytes_a_day"), [((3599.0, 9), None), ((7200.0, 7300), 12 * 7200), ((7200.0, 100), 0)]
)
def test_growth_is_judged_by_an_hour_at_least(
    last: tuple[float, int], bytes_a_day: float | None
) -> None:
    assert growth_in_a_day((0.0, 100), last) == bytes_a_day


def test_the_growth_of_the_log_shows_when_it_reaches_its_limit() -> None:
    hours = count()
    activity = Activity(Counters(), 1.0, LivenessClock(1.0, lambda: next(hours) * 3600.0))
    assert (activity.bytes_in_a_day, activity.keep_bytes_reached_seconds) == (None, None)
    for size in (1000, 2000):
        activity.measured(Measured(tables=[table("log", 0, size)], keep_bytes=4000))
    growth = activity.bytes_in_a_day
    assert growth is not None
    assert growth > 0
    assert activity.keep_bytes_reached_seconds == pytest.approx(2000 / growth * 86_400)
    activity.measured(Measured(tables=[table("log", 0, 5000)], keep_bytes=4000))
    assert activity.keep_bytes_reached_seconds == 0.0


def test_more_letters_than_a_person_reads_are_an_error_however_young() -> None:
    assert not judge(measured(letters=10_000, oldest_letter_seconds=3600.0)).conditions
    assert judge(measured(letters=10_001, oldest_letter_seconds=1.0)).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("seconds", "words"), [(119, "119 s"), (120, "2 minutes"), (121, "2 minutes")]
)
def test_a_time_below_two_minutes_is_in_seconds(seconds: float, words: str) -> None:
    (condition,) = judge(waiting_for(WaitFor.DATABASE, seconds)).conditions
    assert f"for {words}:" in condition.text


@pytest.mark.parametrize(("length", "is_whole"), [(99, True), (100, True), (101, False)])
def test_a_cause_of_at_most_100_characters_is_shown_whole(length: int, is_whole: bool) -> None:
    cause = "refused: ".ljust(length, "x")
    waits = Waiting(WaitFor.DATABASE, 45.0, cause)
    assert (cause in waits.in_words) is is_whole
