"""What an answer means: spec/xds.md 7, spec/event-log.md 8.4."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import ReceiverUnavailable
from eventlog.model import EventResult, Level, max_statuses
from eventlog.publisher.sinks.http import read_results
from eventlog.xds.reader import read_answer

LEVELS = ["success", "warning", "error", "retry", "fatal"]


def answer(inside: str) -> bytes:
    return f'<nds dtdversion="2.0"><output>{inside}</output></nds>'.encode()


def status(level: str, event_id: str | None = None, text: str = "") -> str:
    named = "" if event_id is None else f' event-id="{event_id}"'
    return f'<status level="{level}"{named}>{text}</status>'


def levels(body: bytes, event_ids: tuple[str, ...] = ("1", "2")) -> list[Level]:
    read = read_answer(body, event_ids)
    return [read.result(event_id).level for event_id in event_ids]


def test_answer_of_the_specification() -> None:
    body = b"""<nds dtdversion="2.0"><output><status level="success" event-id="4"/>
      <status level="error" event-id="7" type="app-general"><description>no such container</description></status>
      </output></nds>"""
    read = read_answer(body, ["4", "7", "9"])
    assert read.result("4") == EventResult(Level.SUCCESS, "")
    assert read.result("7") == EventResult(Level.ERROR, "no such container")
    assert read.result("9") == EventResult(Level.SUCCESS, "")
    assert (read.general, read.unknown_ids, read.ignored) == (None, (), 0)


@pytest.mark.parametrize(("better", "worse"), list(itertools.pairwise(LEVELS)))
def test_worst_of_several_wins_in_either_order(better: str, worse: str) -> None:
    for first, second in ((better, worse), (worse, better)):
        assert levels(answer(status(first, "1") + status(second, "1"))) == [
            Level[worse.upper()],
            Level.SUCCESS,
        ]


def test_event_without_status_succeeded() -> None:
    assert levels(answer("")) == [Level.SUCCESS, Level.SUCCESS]


@pytest.mark.parametrize("level", ["Success", "FATAL", "", "info", " success"])
def test_unknown_level_is_an_error(level: str) -> None:
    assert levels(answer(status(level, "1"))) == [Level.ERROR, Level.SUCCESS]


def test_an_answer_of_very_many_statuses_is_none() -> None:
    assert levels(answer(status("success", "1") * 32)) == [Level.SUCCESS] * 2
    with pytest.raises(ReceiverUnavailable, match="more than 32 statuses"):
        levels(answer(status("success", "1") * 33))
    results = json.dumps({"results": [{"event_id": "1", "status": "success"}] * 17})
    with pytest.raises(ReceiverUnavailable, match="more than 16 results"):
        read_results(results.encode(), ("1",), str)


def test_missing_level_is_an_error() -> None:
    assert levels(answer('<status event-id="1"/>')) == [Level.ERROR, Level.SUCCESS]


def test_status_without_event_id_counts_for_every_event() -> None:
    read = read_answer(
        answer(status("warning", text="slow") + status("error", "2", "no")), ["1", "2"]
    )
    assert read.general == EventResult(Level.WARNING, "slow")
    assert read.result("1") == EventResult(Level.WARNING, "slow")
    assert read.result("2") == EventResult(Level.ERROR, "no")


def test_retry_with_and_without_event_id_can_be_distinguished() -> None:
    of_one = read_answer(answer(status("retry", "1")), ["1"])
    of_all = read_answer(answer(status("retry")), ["1"])
    assert of_one.result("1").level is of_all.result("1").level is Level.RETRY
    assert of_one.general is None
    assert of_all.general == EventResult(Level.RETRY)


def test_event_id_that_was_not_sent_is_ignored_and_named() -> None:
    body = answer(
        status("fatal", "9") + status("error", "8") + status("error", "9") + status("error", "")
    )
    read = read_answer(body, ["1", "2"])
    assert levels(body) == [Level.SUCCESS, Level.SUCCESS]
    assert read.unknown_ids == ("9", "8", "")


def test_answer_to_a_heartbeat_counts_without_events() -> None:
    assert read_answer(answer(status("fatal", text="out")), []).general == EventResult(
        Level.FATAL, "out"
    )


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (status("error", "1", "  two\n words "), "two\n words"),
        (status("error", "1", "<a>one<b> two</b></a> three"), "one two three"),
        (status("error", "1", "<![CDATA[<x>]]>&amp;<!-- comment --><?pi?>y"), "<x>&y"),
        (status("error", "1"), ""),
        (status("warning", "1", "warned") + status("error", "1", "failed"), "failed"),
        (status("error", "1", "first") + status("error", "1", "second"), "first"),
        (status("error", "1") + status("error", "1", "second"), "second"),
    ],
)
def test_message_is_the_whole_text_of_the_worst_status(inside: str, message: str) -> None:
    assert read_answer(answer(inside), ["1"]).result("1") == EventResult(Level.ERROR, message)


def test_statuses_are_found_at_any_depth_and_the_rest_is_counted() -> None:
    inside = (
        "<add-association>x</add-association><instance><attr><value/>"
        + status("warning", "1", "<description>deep</description>")
        + (
            '</attr></instance><o:x xmlns:o="urn:o"><o:status '
            f'level="fatal"/>{status("error", "2")}</o:x>'
        )
    )
    read = read_answer(answer(inside), ["1", "2"])
    assert read.result("1") == EventResult(Level.WARNING, "deep")
    assert read.result("2").level is Level.ERROR
    assert read.ignored == 6  # add-association, instance, attr, value, o:x, o:status
    assert read.general is None


def test_status_inside_a_status_counts() -> None:
    assert levels(answer(status("success", "1", status("fatal", "2", "out")))) == [
        Level.SUCCESS,
        Level.FATAL,
    ]


def test_the_source_is_no_part_of_the_answer() -> None:
    body = answer(status("error", "1")).replace(
        b"<output>", b"<source><product>engine</product></source><output>"
    )
    assert read_answer(body, ["1"]).ignored == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \r\n",
        b"OK",
        b"<html><body>502 Bad Gateway</body></html>",
        b"<html><output/></html>",
        b'<nds dtdversion="2.0"><output>',
        b'<nds dtdversion="2.0"/>',
        b'<nds dtdversion="2.0"><input/></nds>',
        b'<nds xmlns="urn:x"><output/></nds>',
        b"<output><status level='success'/></output>",
        b"<nds><output>\xff</output></nds>",
        b"<!DOCTYPE nds><nds><output/></nds>",
        b'<!DOCTYPE nds SYSTEM "http://127.0.0.1:1/nds.dtd"><nds><output/></nds>',
        b'<!DOCTYPE n [<!ENTITY e SYSTEM "file:///etc/passwd">]><nds><output><status>&e;</status></output></nds>',
        b'<!DOCTYPE n [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><nds '
        b'b="&b;"><output/></nds>',
        pytest.param(
            b"<nds><output>" + b"<a>" * 500_000 + b"</a>" * 500_000 + b"</output></nds>", id="depth"
        ),
    ],
)
def test_what_is_no_answer_means_that_the_receiver_is_unavailable(body: bytes) -> None:
    with pytest.raises(ReceiverUnavailable, match=r"^the receiver's answer "):
        read_answer(body, ["1"])


def test_answer_over_the_limit_is_no_answer() -> None:
    body = answer(status("success", "1"))
    assert read_answer(body, ["1"], limit=len(body)).result("1").level is Level.SUCCESS
    with pytest.raises(ReceiverUnavailable, match="more than the limit of"):
        read_answer(body, ["1"], limit=len(body) - 1)


def test_deep_nest_of_statuses_costs_no_more_than_its_length() -> None:
    body = answer(
        '<status level="error" event-id="1">' * 1500 + " " * 1_000_000 + "</status>" * 1500
    )
    event_ids = tuple(map(str, range(1, 101)))
    assert levels(body, event_ids)[:2] == [Level.ERROR, Level.SUCCESS]


@given(
    st.binary(max_size=200)
    | st.text(alphabet='<>/&;="! nds output status level', max_size=80).map(str.encode)
)
def test_any_bytes_are_an_answer_or_no_answer(body: bytes) -> None:
    for text in (body, answer(body.decode("latin-1"))):
        try:
            read_answer(text, ["1"])
        except ReceiverUnavailable:
            continue


@given(
    st.lists(
        st.tuples(st.sampled_from(LEVELS), st.sampled_from([None, "1", "2", "3"])),
        max_size=max_statuses(["1", "2"]),
    )
)
def test_the_status_of_an_event_is_the_worst_answer_for_it(
    said: list[tuple[str, str | None]],
) -> None:
    found = levels(answer("".join(status(level, event_id) for level, event_id in said)))
    for event_id, level in zip(("1", "2"), found, strict=True):
        own = [Level[name.upper()] for name, named in said if named in (None, event_id)]
        assert level == max(own, default=Level.SUCCESS)
