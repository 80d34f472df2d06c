"""The health of a publisher, a consumer or a backlog job, judged in one place from all known facts
(spec/event-log.md 11.2).

The status page, its title, ``status``, ``top``, ``/readyz``, the metrics and the alerts show what
``judge`` returns: the same severity and the same words everywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.errors import first_of, number_of
from eventlog.publisher.context.conditions import KINDS, Severity
from eventlog.publisher.context.observer import (
    NO_DIFFERENCES,
    NOT_MEASURED,
    Differences,
    Doing,
    Measured,
    WaitFor,
)
from eventlog.sql.doctor import Limits, age

if TYPE_CHECKING:
    from eventlog.publisher.context.observer import ConsumerStatus

_LIMITS: Final = Limits()
NO_PROGRESS: Final = 600.0
"""Seconds without progress after which waiting rows count as stuck."""
OLD_ROW: Final = 900.0
"""Seconds that the oldest row may wait."""
OLD_TRANSACTION: Final = 1800.0
"""The seconds that a transaction which has written to the log may stay open."""
OLD_DEAD_ROWS: Final = 900.0
"""The seconds that the log may have many dead rows: a busy log has them between two vacuums."""
LARGE_LOG: Final = 1_000_000_000
"""If a log and its internal tables have at least this number of bytes, their growth is judged."""
MANY_LETTERS: Final = 10_000
"""The maximum number of dead letters that may wait."""
OLD_LETTER: Final = 3600.0
"""The seconds that a dead letter may wait."""
SECONDS_A_DAY: Final = 86_400.0
_STATUS: Final = re.compile(r"\bthe receiver answers ([1-5][0-9]{2})\b")
_MAX_NAMED: Final = 3
"""The maximum number of tables or commands that one condition names."""


class Condition(NamedTuple):
    """A condition: something about a publisher is not as it should be."""

    name: str
    severity: Severity
    text: str
    action: str
    commands: tuple[str, ...]
    details: str = ""
    """All that is known about the condition, if the text leaves a part of it out."""

    def as_data(self) -> dict[str, Any]:
        """Return the condition as data for JSON."""
        return {**self._asdict(), "severity": self.severity.value, "commands": [*self.commands]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Condition:
        """Return the condition from the data of ``as_data``."""
        severity, commands = Severity(data["severity"]), tuple(data["commands"])
        text, action = data["text"], data["action"]
        return cls(data["name"], severity, text, action, commands, data.get("details", ""))


class Health(NamedTuple):
    """The conditions that hold now, the most severe first; none if all is well."""

    conditions: Sequence[Condition]
    state: str
    """What the process does, in words. This sentence is shown if all is well."""

    @property
    def severity(self) -> Severity:
        """The severity of the worst condition."""
        return self.conditions[0].severity if self.conditions else Severity.OK

    @property
    def sentence(self) -> str:
        """The most severe condition in words, and the number of all others."""
        if not self.conditions:
            return self.state
        others = len(self.conditions) - 1
        more = f" (and {number_of(others, 'more condition')})" if others else ""
        return f"{self.conditions[0].text}{more}"

    @property
    def names(self) -> frozenset[str]:
        """The names of the conditions that hold."""
        return frozenset(one.name for one in self.conditions)

    def as_data(self) -> dict[str, Any]:
        """Return the health as data for JSON."""
        return {
            "severity": self.severity.value,
            "sentence": self.sentence,
            "action": self.conditions[0].action if self.conditions else "",
            "conditions": [one.as_data() for one in self.conditions],
        }


_LONGEST_CAUSE: Final = 100
"""If a database's text has more characters, the words of its driver appear only in the details."""


class Waiting(NamedTuple):
    """What a process waits for before it tries again."""

    who: WaitFor
    seconds: float
    """The time without any answer."""
    reason: str = ""
    advice: str = ""
    """The option to correct, as in ``ReceiverUnavailable``."""
    next_seconds: float | None = None
    """The time until the next attempt, None if it is unknown."""

    @classmethod
    def from_file(cls, data: Mapping[str, Any], now: float) -> Waiting:
        """Return what a health file shows (``Liveness.waiting``) at ``now``, seconds since 1970."""
        seconds = max(0.0, now - data["since"])
        return cls(WaitFor(data["who"]), seconds, data["reason"], data["advice"])

    @property
    def in_words(self) -> str:
        """One sentence for people, and one about the next attempt."""
        seconds = _short(self.seconds)
        cause = re.split(r"\n|; ", self.reason.strip(), maxsplit=1)[0]
        if self.who is WaitFor.DATABASE and len(cause) > _LONGEST_CAUSE:
            cause = cause.partition(": ")[0]
        if answered := answered_status(cause):
            words = f"The{answered.removeprefix('the')} for {seconds}."
        else:
            words = f"The {self.who.value} has not answered for {seconds}"
            words += f": {cause}." if cause else "."
        if self.next_seconds is not None:
            words += f" Next attempt in {_short(self.next_seconds)}."
        return words

    def condition(self) -> Condition:
        """Return the condition that holds while the process waits."""
        is_misconfigured = self.who is WaitFor.RECEIVER and bool(self.advice)
        name = "receiver_misconfigured" if is_misconfigured else f"{self.who.value}_unavailable"
        text, advice = self.in_words, self.advice[:1].upper() + self.advice[1:]
        found = _condition(name, state=text, advice=advice)
        if self.who is WaitFor.RECEIVER and self.seconds > NO_PROGRESS:
            found = found._replace(severity=Severity.ERROR)
        return found._replace(details="" if self.reason in text else self.reason)


def answered_status(text: str) -> str:
    """Return the status in a receiver's text, such as ``the receiver answers 503 ...; ...``, and
    nothing else of the text; empty if it has no status.
    """
    found = _STATUS.search(text)
    if found is None:
        return ""
    return f"the receiver answers {found[1]} {responses.get(int(found[1]), '')}".rstrip()


def _short(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else age(seconds)


@dataclass(frozen=True, slots=True)
class Facts:
    """The known facts about a publisher, a consumer or a job. A fact that is None or empty is
    unknown, or there is nothing.
    """

    state: str
    """The activity of the process, in words."""
    doing: Doing | None = None
    """What the process does; None for a command that reads the database, and for a job."""
    waits: Waiting | None = None
    is_alive: bool = True
    runs: bool | None = None
    """True if the lock is held; None if the process judges itself."""
    progress_seconds: float = 0.0
    """The seconds since the last progress; in a command, the age of the oldest row."""
    measured: Measured = NOT_MEASURED
    oldest_seconds: float | None = None
    """The age of the oldest row now."""
    snapshot_seconds: float | None = None
    """The age of the oldest database snapshot."""
    differences: Differences = NO_DIFFERENCES
    consumers: Sequence[ConsumerStatus] = ()
    parked: int = 0
    refused: int = 0
    """Changes of a followed source that the receiver has refused."""
    invalid: int = 0
    """Changes of a followed source that could not be sent."""
    rows_missing: int = 0
    dead_seconds: float = 0.0
    """Seconds since the log, or an internal table, has had many dead rows."""
    bytes_in_a_day: float | None = None
    """The bytes by which the log and its internal tables grow in a day, as measured so far."""
    awaits_time: bool = False
    """True if nothing is sent before a time of day (``publisher.time_of_day``)."""

    @property
    def is_at_rest(self) -> bool:
        """True if rows wait on purpose: for a time of day, or because the reader is paused."""
        return self.awaits_time or self.measured.pause is not None


def judge(facts: Facts) -> Health:
    """Return the health that these facts show."""
    found = [*_process(facts), *_capture(facts), *_rows(facts), *_log(facts)]
    return Health(sorted(found, key=_rank), facts.state)


def joined(health: Health, more: Iterable[Condition]) -> Health:
    """Return the health with these further conditions, which were found elsewhere."""
    others = [one for one in more if one.name not in health.names]
    return health._replace(conditions=sorted([*health.conditions, *others], key=_rank))


def _rank(condition: Condition) -> tuple[int, float]:
    """Return the place of a condition in the order in which the worst condition is first. A
    condition that has become an error comes before ``no_progress``, since it is the cause of
    ``no_progress``.
    """
    order = list(KINDS)
    place = float(order.index(condition.name))
    if condition.severity is not KINDS[condition.name].severity:
        place = order.index("no_progress") - 0.5
    return -condition.severity.level, place


def _condition(name: str, /, *commands: str, **words: object) -> Condition:
    kind = KINDS[name]
    text, action = kind.words.format(**words), kind.action.format(**words)
    return Condition(name, kind.severity, text, action, commands or kind.commands)


def _process(facts: Facts) -> Iterator[Condition]:
    """Judge whether the process works, and what it waits for."""
    if not facts.is_alive:
        yield _condition("process_hangs", age=age(facts.progress_seconds))
    if facts.waits is not None:
        yield facts.waits.condition()
    elif facts.doing is Doing.CONNECTING:
        yield _condition("not_connected", state=facts.state)
    if facts.runs is False:
        yield _condition("no_publisher", state=facts.state)
    yield from _pauses(facts)
    rows = facts.measured.queue_rows or 0
    is_late = facts.progress_seconds > NO_PROGRESS and not facts.is_at_rest
    if rows and is_late and facts.runs is not True:
        since = age(facts.progress_seconds)
        yield _condition("no_progress", rows=number_of(rows, "row"), age=since)
    if facts.rows_missing:
        yield _condition("rows_missing", rows=number_of(facts.rows_missing, "row"))


def _pauses(facts: Facts) -> Iterator[Condition]:
    """Yield a condition for each reader that is paused."""
    pauses = [(facts.measured.pause, facts.measured.paused_seconds)]
    pauses += [(one.pause, one.paused_seconds) for one in facts.consumers]
    for pause, seconds in pauses:
        if pause is not None:
            of_consumer = f" --consumer {shlex.quote(pause.consumer)}" if pause.consumer else ""
            yield _condition(
                "paused",
                f"eventlog resume{of_consumer}",
                reader=pause.reader,
                age=_short(seconds),
                by=pause.by,
                reason=pause.reason,
            )


def _capture(facts: Facts) -> Iterator[Condition]:
    """Judge whether changes are logged and can be published."""
    differences, measured = facts.differences, facts.measured
    lost = [one for one in differences.uncaptured if one not in differences.otherwise]
    for kind, sentences in (
        ("uncaptured_tables", lost),
        ("captured_otherwise", differences.otherwise),
    ):
        if sentences:
            names = [sentence.partition(":")[0] for sentence in sentences]
            yield _condition(
                kind, tables=number_of(len(names), "table"), names=first_of(names, _MAX_NAMED)
            )
    drifted = len(differences.tables) - len(differences.uncaptured)
    if drifted > 0:
        yield _condition("trigger_drifted", tables=number_of(drifted, "table"))
    if unavailable := (*differences.refused, *measured.unavailable):
        names = [*dict.fromkeys(sentence.partition(":")[0] for sentence in unavailable)]
        classes = f"{len(names):,} {'class' if len(names) == 1 else 'classes'}"
        yield _condition("class_unavailable", classes=classes, names=first_of(names, _MAX_NAMED))
    if measured.due_resyncs:
        due = measured.due_resyncs
        yield _condition("resync_due", *due[:_MAX_NAMED], resyncs=number_of(len(due), "resync"))


def _rows(facts: Facts) -> Iterator[Condition]:
    """Yield the conditions for refused, parked and waiting rows."""
    measured = facts.measured
    for name, rows in (
        ("refused_rows", measured.refused_rows + facts.refused),
        ("invalid_rows", measured.invalid_rows + facts.invalid),
    ):
        if rows:
            yield _condition(name, rows=number_of(rows, "row"))
    oldest = measured.oldest_letter_seconds or 0.0
    if measured.letters > MANY_LETTERS or oldest > OLD_LETTER:
        letters = number_of(measured.letters, "dead letter")
        verb = "waits" if measured.letters == 1 else "wait"
        yield _condition("dead_letters_wait", letters=f"{letters} {verb}", age=age(oldest))
    if facts.parked:
        yield _condition("parked_objects", objects=number_of(facts.parked, "object"))
    if (facts.oldest_seconds or 0.0) > OLD_ROW and not facts.is_at_rest:
        yield _condition("queue_old", age=age(facts.oldest_seconds or 0.0))
    for one in facts.consumers:
        if not one.rests and one.rows_behind and one.still_seconds > _LIMITS.in_flight:
            yield _condition(
                "consumer_waits",
                consumer=one.name,
                runs="runs" if one.runs else "does not run",
                age=age(one.still_seconds),
                rows=number_of(one.rows_behind, "row"),
            )
    for verified in measured.verified:
        if verified.result == "different":
            yield _condition(
                "verify_different",
                objects=number_of(verified.differences, "object"),
                target=verified.target,
            )


def _log(facts: Facts) -> Iterator[Condition]:
    """Yield the conditions that make the log slow to read or let it grow."""
    measured = facts.measured
    seconds = measured.oldest_open_transaction_age_seconds
    if seconds is not None and seconds > OLD_TRANSACTION:
        yield _condition(
            "open_transaction", age=age(seconds), who=measured.oldest_open_transaction or "unknown"
        )
    snapshot = measured.oldest_snapshot
    if snapshot is not None and snapshot.is_old(_LIMITS):
        yield _condition("old_snapshot", age=age(facts.snapshot_seconds or 0.0), who=snapshot.who)
    if facts.dead_seconds > OLD_DEAD_ROWS:
        dead = sum(table.dead or 0 for table in measured.tables if table.slows_reading(_LIMITS))
        yield _condition("dead_rows", rows=number_of(dead, "row"))
    if measured.overdue_purge.what:
        what, why = measured.overdue_purge
        yield _condition("purge_overdue", what=what, why=why)
    if measured.keep_bytes is not None and measured.log_bytes > measured.keep_bytes:
        large, limit = measured.log_bytes, measured.keep_bytes
        yield _condition(
            "log_too_large", bytes=f"{large / 1e9:,.1f} GB", limit=f"{limit / 1e9:,.1f} GB"
        )
    now = sum(table.bytes for table in measured.tables)
    day = facts.bytes_in_a_day
    if day is not None and now >= LARGE_LOG and now + day > 2 * now:
        yield _condition("log_grows", bytes=f"{(now + day) / 1e9:,.1f} GB")


def growth_in_a_day(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    """Return the bytes by which a log grows in a day, from two measurements of its size, each with
    its time in seconds; None if the measurements are less than an hour apart.
    """
    seconds = last[0] - first[0]
    return None if seconds < 3600 else (last[1] - first[1]) / seconds * SECONDS_A_DAY
