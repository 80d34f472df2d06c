"""change_seq: form, order, the writer that never runs backwards, partitions (formats/qlik.md 3,
4).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import refused

from eventlog.errors import FormatError, NotExpressible
from eventlog.qlik import sequence
from eventlog.qlik.sequence import (
    WriterState,
    has_ended,
    parse_partition_name,
    partition_at,
    partition_name,
    partition_of,
)

TIMES = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
STEPS = st.lists(st.tuples(st.none() | TIMES, st.booleans()), min_size=1, max_size=30)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2023091103232500000000000000000005",
        "202309110323250000000000000000000050",
        "20231311032325000000000000000000005",
        "20230230032325000000000000000000005",
        "20230911240000000000000000000000005",
        "20230911032360000000000000000000005",
        "00000911032300000000000000000000005",
        "2023091103232500000000000000000000x",
        "２０２３0911032325000000000000000000005",
        " 2023091103232500000000000000000005",
    ],
)
def test_other_texts_are_no_sequences(text: str) -> None:
    with refused("bad_sequence"):
        sequence.parse(text)
    assert not sequence.is_sequence(text)


@given(STEPS)
def test_the_writer_gives_ever_greater_sequences(steps: list[tuple[datetime | None, bool]]) -> None:
    state, last = WriterState(), ""
    for commit_time, with_before in steps:
        state, change_seq = sequence.next_sequence(
            state, sequence.time_prefix(commit_time), with_before=with_before
        )
        assert sequence.check(change_seq) > last
        assert sequence.resume(change_seq) == state
        last = change_seq
    assert state.number == sum(2 if with_before else 1 for _, with_before in steps)


@given(STEPS, STEPS)
def test_a_writer_that_resumes_from_what_is_stored_goes_on(
    before: list[tuple[datetime | None, bool]], after: list[tuple[datetime | None, bool]]
) -> None:
    def written(state: WriterState, steps: list[tuple[datetime | None, bool]]) -> list[str]:
        texts = []
        for commit_time, with_before in steps:
            state, text = sequence.next_sequence(
                state, sequence.time_prefix(commit_time), with_before=with_before
            )
            texts.append(text)
        return texts

    at_once = written(WriterState(), [*before, *after])
    stored = written(WriterState(), before)
    assert stored + written(sequence.resume(max(stored)), after) == at_once


def test_a_writer_without_anything_stored_begins() -> None:
    assert sequence.resume(None) == WriterState("", 0)


def test_a_kept_sequence_raises_the_state_and_never_lowers_it() -> None:
    state = WriterState("2024051012000000", 50)
    assert sequence.raise_to(state, "2024051011000000" + "9".zfill(19)) == state
    assert sequence.raise_to(state, "2024051013000000" + "7".zfill(19)) == ("2024051013000000", 50)
    assert sequence.raise_to(state, "2024051011000000" + "70".zfill(19)) == ("2024051012000000", 70)


@pytest.mark.promise("code error-sequence_exhausted")
def test_the_last_number_is_given_and_none_after_it() -> None:
    state, text = sequence.next_sequence(WriterState("", 10**19 - 2), sequence.UNKNOWN_TIME)
    assert text == "1970010100000000" + "9" * 19
    with refused("sequence_exhausted"):
        sequence.next_sequence(state, sequence.UNKNOWN_TIME)


@pytest.mark.parametrize(
    ("time", "prefix"),
    [
        (None, "1970010100000000"),
        (datetime(2024, 2, 29, 12, 0, 0, 999_999, UTC), "2024022912000099"),
        (datetime(2024, 2, 29, 12, 0, 0, 999_999), "2024022912000099"),
        (datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=2))), "2024022910000000"),
        (datetime(987, 1, 1), "0987010100000000"),
    ],
)
def test_prefix_of_a_time(time: datetime | None, prefix: str) -> None:
    assert sequence.time_prefix(time) == prefix


# --- partitions -----------------------------------------------------------------------------------


@given(TIMES, st.integers(1, 10**7), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))
def test_every_time_is_in_one_half_open_partition(
    time: datetime, seconds: int, base: datetime
) -> None:
    try:
        start, end = found = partition_at(time, seconds, base.replace(microsecond=0))
    except NotExpressible:
        assert time.year in (1, 9999)
        return
    assert start <= time < end
    assert end - start == timedelta(seconds=seconds)
    assert parse_partition_name(partition_name(found)) == found


def test_a_partition_ends_when_the_prefix_reaches_its_end() -> None:
    name = partition_of("2024051012595999" + "1".zfill(19))
    assert name == "20240510T120000_20240510T130000"
    partition = parse_partition_name(name)
    assert not has_ended(partition, WriterState("2024051012595999", 1))
    assert has_ended(partition, WriterState("2024051013000000", 1))


@pytest.mark.parametrize(
    "name", ["", "20240510T120000", "20240510T120000-20240510T130000", "20240510_20240511", "a_b"]
)
def test_other_names_are_no_partitions(name: str) -> None:
    with pytest.raises(FormatError):
        parse_partition_name(name)


# --- the epoch of a log ---------------------------------------------------------------------------

RAISED = datetime(2026, 11, 21, 20, 45, tzinfo=UTC)


@pytest.mark.parametrize("last", [None, "20261121204459990000000000000000007"])
def test_a_new_epoch_continues_from_its_time_with_numbers_far_above_those_given_before(
    last: str | None,
) -> None:
    before = sequence.resume(last)
    assert sequence.raised_to(before, RAISED) == WriterState(
        "2026112120450000", before.number + 10**12
    )


def test_what_was_numbered_under_the_epoch_is_followed_without_a_jump() -> None:
    state = WriterState("2026112120450001", 10**12 + 7)
    assert sequence.raised_to(state, RAISED) == state
    assert sequence.raised_to(WriterState("2020010100000000", 3), None) == WriterState(
        "2020010100000000", 3
    )
