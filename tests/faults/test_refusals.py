"""A real publisher, a real log, and receivers that answer by their status: refusals, halves,
pauses, a kill between halves (spec/event-log.md 8.4).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import make_log, process, write
from receiver import CUT, Receiver, Request, reply
from shared import PATIENCE, fetch, statuses, wait_until

OK = reply(204)


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def ids(request: Request) -> list[str]:
    return re.findall('event-id="([^"]*)"', request.body)


def refusing(*culprits: int, code: int = 422) -> Callable[[Request], bytes]:
    """The script of a receiver that takes a document whole, or not at all."""
    names = set(map(str, culprits))
    return lambda request: reply(code, b"no such container") if names & set(ids(request)) else OK


def publish(log: sa.Engine, directory: Path, receiver: Receiver, **options: object) -> int:
    """Publish once to the receiver, which may refuse rows; the exit code."""
    with publishing(log, directory, receiver, "--once", "--allow-refused", **options) as running:
        running.communicate(timeout=PATIENCE)
        return int(running.returncode)


def publishing(
    log: sa.Engine, directory: Path, receiver: Receiver, *more: str, **options: object
) -> Any:
    chosen = {
        "sink__type": "http",
        "sink__url": receiver.url,
        "sink__response_format": "status",
        **options,
    }
    return process(log, directory, *more, **chosen)


def test_bad_event_among_128_is_found_by_15_requests_and_alone_marked(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, *range(1, 129))
    with Receiver(refusing(77)) as receiver:
        assert publish(log, tmp_path, receiver) == 0
    assert statuses(log) == {i: "E" if i == 77 else "S" for i in range(1, 129)}
    (failure,) = fetch(log, "SELECT record_id, code, message FROM eventlog_error")
    assert failure[:2] == (77, "receiver")
    assert failure[2].startswith("the receiver answers 422 ")
    assert failure[2].endswith("; no such container")
    assert len(receiver.requests) == 15
    numbers = [
        (r.headers["Eventlog-Delivery"], r.headers["Eventlog-Document"]) for r in receiver.requests
    ]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.promise("guarantee A refused event may come again under the same event-id")
@pytest.mark.parametrize(
    "last", [1, 8, *(pytest.param(last, marks=pytest.mark.night) for last in (3, 4, 6))]
)
def test_publisher_killed_between_halves_repeats_only_what_is_undecided(
    log: sa.Engine, tmp_path: Path, last: int
) -> None:
    write(log, *range(1, 17))
    refuse, taken = refusing(6), []

    def script(request: Request) -> bytes:
        if len(receiver.requests) == last:
            running.kill()
            running.wait()
            return CUT
        answer = refuse(request)
        taken.extend(ids(request) if answer == OK else [])
        return answer

    with Receiver(script) as receiver, publishing(log, tmp_path, receiver, "--once") as running:
        running.communicate(timeout=PATIENCE)
        decided = {str(i) for i, letter in statuses(log).items() if letter != "N"}
        assert set(taken) <= decided
        receiver.script = lambda request: (
            answer := refuse(request),
            answer == OK and taken.extend(ids(request)),
        )[0]
        before = len(receiver.requests)
        assert publish(log, tmp_path, receiver) == 0
        assert decided.isdisjoint(
            name for request in receiver.requests[before:] for name in ids(request)
        )
    assert taken == [str(i) for i in range(1, 17) if i != 6]
    assert statuses(log) == {i: "E" if i == 6 else "S" for i in range(1, 17)}
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight") == [(0,)]


def test_document_that_is_too_large_goes_in_parts_and_an_event_that_is_too_large_alone_is_an_error(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, *range(1, 33))
    with log.begin() as conn:
        conn.exec_driver_sql(
            "UPDATE eventlog SET new_value = repeat('x', 5000) WHERE record_id = 9"
        )
    with Receiver(lambda request: reply(413) if len(request.raw) > 4000 else OK) as receiver:
        assert publish(log, tmp_path, receiver, sink__compression="none") == 0
    assert statuses(log) == {i: "E" if i == 9 else "S" for i in range(1, 33)}


def test_with_concurrency_only_the_culprits_are_marked(log: sa.Engine, tmp_path: Path) -> None:
    write(log, *range(1, 201))
    with Receiver(refusing(3, 50, 51, 199, code=400)) as receiver:
        assert publish(log, tmp_path, receiver, concurrency=4, batch_size=16) == 0
    assert {i for i, letter in statuses(log).items() if letter == "E"} == {3, 50, 51, 199}
    assert set(statuses(log).values()) == {"E", "S"}


def test_one_event_of_several_that_json_names_costs_no_further_request(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, *range(1, 6))
    body = b'{"results": [{"event_id": "4", "status": "error", "message": "locked"}]}'
    with Receiver(lambda _: reply(200, body, "Content-Type: application/json")) as receiver:
        assert publish(log, tmp_path, receiver, sink__response_format="json") == 0
    assert len(receiver.requests) == 1
    assert receiver.requests[0].headers["Accept"] == "application/json"
    assert fetch(log, "SELECT record_id, message FROM eventlog_error") == [(4, "locked")]


def test_receiver_that_is_gone_stops_the_publisher(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1, 2)
    with Receiver(lambda _: reply(410, b"switched off")) as receiver:
        assert publish(log, tmp_path, receiver) == 3
    assert statuses(log) == {1: "F", 2: "F"}


@pytest.mark.parametrize("code", [429, 503])
def test_busy_receiver_is_left_alone_for_as_long_as_it_asks(
    log: sa.Engine, tmp_path: Path, code: int
) -> None:
    write(log, 1, 2)
    moments: list[float] = []

    def busy_at_first(_request: Request) -> bytes:
        moments.append(time.monotonic())
        return reply(code, b"", "Retry-After: 1") if len(moments) == 1 else OK

    with (
        Receiver(busy_at_first) as receiver,
        publishing(log, tmp_path, receiver, retry_initial=0.01, retry_max=60),
    ):
        wait_until(lambda: set(statuses(log).values()) == {"S"}, "all is published")
    assert moments[1] - moments[0] >= 1
    assert [ids(request) for request in receiver.requests] == [["1", "2"], ["1", "2"]]


def test_retry_after_is_bounded_by_the_longest_back_off(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1)
    answers = iter([reply(503, b"", "Retry-After: 86400")])
    with (
        Receiver(lambda _: next(answers, OK)) as receiver,
        publishing(log, tmp_path, receiver, retry_initial=0.01, retry_max=0.2),
    ):
        wait_until(lambda: set(statuses(log).values()) == {"S"}, "all is published")


@pytest.mark.parametrize(("code", "tries"), [(301, 1), (404, 1), (500, 7)])
def test_other_refusals_leave_every_row_new(
    log: sa.Engine, tmp_path: Path, code: int, tries: int
) -> None:
    """The cause of 500 may be one document, so it is tried ``isolate_after`` times, and then in
    halves.
    """
    write(log, 1, 2)
    with Receiver(lambda _: reply(code)) as receiver:
        assert publish(log, tmp_path, receiver, retry_initial=0.01, retry_max=0.1) == 1
        assert len(receiver.requests) == tries
        receiver.script = lambda _: OK
        assert publish(log, tmp_path, receiver) == 0
    assert statuses(log) == {1: "S", 2: "S"}


def test_one_run_delivers_all_others_of_the_only_document(log: sa.Engine, tmp_path: Path) -> None:
    """Nothing else is in the queue, so its halves tell that the receiver is available."""
    write(log, *range(1, 17))
    fails = lambda request: reply(500) if "11" in ids(request) else OK  # noqa: E731
    with Receiver(fails) as receiver:
        assert publish(log, tmp_path, receiver, retry_initial=0.01, retry_max=0.1) == 1
    assert {row for row, letter in statuses(log).items() if letter == "N"} == {11}


def test_one_run_ends_although_a_later_event_of_the_culprit_cannot_be_tried(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, 1, 2)
    write(log, 1, 3, event_type=2)
    write(log, 4)
    apart = {"fold_distance": 0, "batch_size": 4, "retry_initial": 0.01, "retry_max": 0.1}
    fails = lambda request: reply(500) if "1" in ids(request) else OK  # noqa: E731
    with Receiver(fails) as receiver:
        assert publish(log, tmp_path, receiver, **apart) == 1
    assert {row for row, letter in statuses(log).items() if letter == "N"} == {1, 3}
