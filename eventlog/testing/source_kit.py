"""The tests that a source must pass. Each change is read once and in order. It has the same
event-id whenever it is read again. Reading continues from each position, the backlog is counted,
and lost changes are reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from eventlog.changes.format import Report
from eventlog.publisher.stream import (
    BadToken,
    Failure,
    Mark,
    Read,
    Source,
    SourceLost,
    SourceStep,
    Stream,
)

_MAX_STEPS = 10_000
_LONGEST_ID = 255


@dataclass(frozen=True)
class SourceCase:
    """A source under test."""

    source: type[Source]
    options: Any
    """The options of the source's class."""
    feed: Callable[[int], None]
    """A function that appends this number of changes to the source's input."""
    lose: Callable[[], None] | None = None
    """A function that removes the source's input, so that reading cannot continue after a position;
    None = the input cannot be lost.
    """
    reader: Mapping[str, Any] = field(default_factory=dict)
    """The options of ``[source.reader]``."""

    def open(self) -> Stream:
        """Return a new stream of the source."""
        return self.source().open(self.options, self.reader, Report())

    def steps(self, token: Any = None) -> list[SourceStep]:
        """Return the steps of a new stream from a token to the present end."""
        with closing(self.open().steps(token, once=True)) as steps:
            return list(steps)


def _reads(steps: Sequence[SourceStep]) -> list[Read]:
    return [step for step in steps if isinstance(step, Read)]


def _tokens(steps: Sequence[SourceStep]) -> list[Any]:
    return [step.token for step in steps if isinstance(step, Mark)]


def test_each_change_is_read_once_and_followed_by_a_position(source_case: SourceCase) -> None:
    source_case.feed(3)
    steps = source_case.steps()
    ids = [read.event_id for read in _reads(steps)]
    assert len(ids) == len(set(ids)) == 3
    assert all(0 < len(one) <= _LONGEST_ID for one in ids)
    last = max(number for number, step in enumerate(steps) if isinstance(step, Read | Failure))
    assert _tokens(steps[last:]), "the source yields no Mark (a position) after the last change"


def test_a_change_has_the_same_event_id_whenever_it_is_read(source_case: SourceCase) -> None:
    source_case.feed(3)
    assert _reads(source_case.steps()) == _reads(source_case.steps())


def test_reading_continues_after_every_position(source_case: SourceCase) -> None:
    source_case.feed(3)
    steps = source_case.steps()
    for number, step in enumerate(steps):
        if isinstance(step, Mark):
            token = json.loads(json.dumps(step.token))  # as it is stored
            assert _reads(source_case.steps(token)) == _reads(steps[number:])


def test_later_changes_are_read_from_the_last_position(source_case: SourceCase) -> None:
    source_case.feed(2)
    before = source_case.steps()
    source_case.feed(2)
    later = _reads(source_case.steps(_tokens(before)[-1]))
    assert [*_reads(before), *later] == _reads(source_case.steps())
    assert len(later) == 2


def test_a_source_that_is_followed_marks_that_it_is_idle(source_case: SourceCase) -> None:
    source_case.feed(2)
    reads = 0
    with closing(source_case.open().steps(None, once=False)) as steps:
        for number, step in enumerate(steps):
            reads += isinstance(step, Read)
            if isinstance(step, Mark) and step.is_idle and reads == 2:
                break
            assert number < _MAX_STEPS, "no Mark has is_idle"


def test_a_position_of_another_source_is_refused(source_case: SourceCase) -> None:
    source_case.feed(1)
    with pytest.raises(BadToken):
        source_case.steps({"of": ["another", "source"]})


def test_the_backlog_counts_the_changes_after_a_position(source_case: SourceCase) -> None:
    source_case.feed(3)
    tokens, stream = _tokens(source_case.steps()), source_case.open()
    first, last = stream.backlog(None), stream.backlog(tokens[-1])
    if first is None:
        assert last is None
        pytest.skip("the source does not count its backlog")
    assert last is not None
    assert (first.number > 0, last.number, first.unit) == (True, 0, last.unit)


def test_a_position_can_be_described_in_words(source_case: SourceCase) -> None:
    source_case.feed(1)
    for token in _tokens(source_case.steps()):
        assert token is None or source_case.source().in_words(token)


def test_changes_lost_after_a_position_are_an_error(source_case: SourceCase) -> None:
    if source_case.lose is None:
        pytest.skip("the source cannot lose changes")
    source_case.feed(2)
    token = _tokens(source_case.steps())[-1]
    source_case.lose()
    with pytest.raises(SourceLost):
        source_case.steps(token)
