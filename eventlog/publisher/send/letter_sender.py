"""Send dead letters to the second sink, while nothing else waits for this sink (spec/event-log.md
8.7).

A thread sends the letters of one batch. The thread that has the connection reads and removes the
entries of letters: ``step`` does what can be done now, and never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Final, NamedTuple, Protocol

from eventlog.config.settings import as_of_letters
from eventlog.core.clock import executor, monotonic, wait_for_all
from eventlog.core.ranges import to_ranges
from eventlog.errors import EventlogError, ReceiverUnavailable, number_of
from eventlog.model import Document, EventResult, Level
from eventlog.publisher.context.context import Context, Counters, PublisherOptions
from eventlog.publisher.feeds.letters import BuiltLetter, build_letters
from eventlog.publisher.ledger.letters import (
    read_letters,
    remove_letters,
    waiting_letters,
)
from eventlog.publisher.send.policy import back_off
from eventlog.publisher.send.serving import rules_of
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.letters import LetterFacts, LetterForm, letter_document, moment_text
from eventlog.sql.log.errors import DEAD_LETTER, add_errors, add_object_errors

_log = logging.getLogger("eventlog.publisher")

BATCH: Final = 100
"""The maximum number of letters that are sent before their entries are removed."""
_SECONDS: Final = 1.0
"""For how many seconds letters of one batch are sent. Then the confirmed letters are removed."""
_POLLS: Final = (0.05, 1.0)
"""The first and the longest time in seconds between two checks of whether a batch is sent."""


class ReadyLetter(NamedTuple):
    """A letter that can be sent."""

    number: int
    key: str
    event_id: str
    row: int
    """The first row of the event, 0 = the event has no row."""
    write: Callable[[tuple[int, int]], Document]
    """A function that makes the document for a delivery number and a document number. Another
    thread calls it. Raises ReceiverUnavailable if a registry does not answer.
    """


Refused = Sequence[tuple[ReadyLetter, str]]
"""Letters that the second sink has refused, each with the reason."""


class Letters(Protocol):
    """The letters that wait in the database. The methods of this class end the transaction."""

    def read(self, most: int) -> Sequence[ReadyLetter]:
        """Return the first letters, at most ``most``."""
        ...

    def remove(self, sent: Sequence[ReadyLetter], refused: Refused) -> None:
        """Remove letters that were sent, and refused letters, each of which gets an error row."""
        ...

    def left(self) -> int:
        """Return how many letters wait, counted up to a limit."""
        ...


class _Sent(NamedTuple):
    """What has become of a batch."""

    results: Sequence[tuple[ReadyLetter, EventResult]]
    """The letters with a result, in order."""
    failure: ReceiverUnavailable | None = None
    """Why the next letter could not be sent, None if no attempt failed."""
    retry_after: float | None = None


class LetterSender:
    """The sender of letters to one sink. The letters themselves are set in ``letters`` before they
    are sent, since they are read through the present session of the database.
    """

    letters: Letters

    def __init__(
        self, sink: Sink, form: LetterForm, options: PublisherOptions, counters: Counters
    ) -> None:
        self.form = form
        self._sink, self._options, self._counters = sink, options, counters
        self._stack = ExitStack()
        self._threads: Executor | None = None
        self._in_air: Future[_Sent] | None = None
        self._batch: Sequence[ReadyLetter] = ()
        self._polls = 0
        self._due, self._failures = 0.0, 0
        self._seen = -1  # the letters recorded when none was left
        self._is_closing = False

    def step(self) -> float | None:
        """Remove what was sent, and begin to send what is due. Return the seconds until there is
        more to do, None = only a new letter changes anything. No transaction may be open, and none
        is left open.
        """
        if self._in_air is not None and not self._in_air.done():
            self._polls += 1
        else:
            self._settle()
            if self._may_have_any and monotonic() >= self._due and not self._is_closing:
                self._begin()
        if self._in_air is not None:
            return 0.0 if self._in_air.done() else back_off(self._polls + 1, *_POLLS)
        return max(0.0, self._due - monotonic()) if self._may_have_any else None

    def drain(self, is_stopping: Callable[[], bool]) -> None:
        """Send until no letter is left, a letter fails, or the process must stop; warn if letters
        are left.
        """
        self._due = 0.0
        while True:
            failures = self._failures
            self.step()
            if self._in_air is None or self._failures > failures or is_stopping():
                break
            wait_for_all([self._in_air])
        if left := self.letters.left():
            _log.warning(
                "%s left for the next run", number_of(left, "dead letter"),
                extra={"code": DEAD_LETTER},
            )  # fmt: skip

    def finish(self) -> None:
        """End after the letter that is being sent, and remove what was sent."""
        self._is_closing = True
        if self._in_air is not None:
            wait_for_all([self._in_air])
        self._settle()

    def close(self) -> None:
        """Wait for the thread, and close the sink."""
        self._is_closing = True
        self._stack.close()
        self._sink.close()
        self.form.writer.close()

    @property
    def _may_have_any(self) -> bool:
        return self._seen != self._counters.letters_written

    def _begin(self) -> None:
        recorded = self._counters.letters_written
        self._batch = self.letters.read(BATCH)
        if not self._batch:
            self._seen = recorded
            return
        if self._threads is None:
            self._threads = self._stack.enter_context(executor(1, "eventlog-letters"))
        self._polls = 0
        self._in_air = self._threads.submit(self._send, self._batch)

    def _send(self, batch: Sequence[ReadyLetter]) -> _Sent:
        """Send letters until one fails or ``_SECONDS`` have passed; another thread calls this."""
        results: list[tuple[ReadyLetter, EventResult]] = []
        failure, retry_after, begun = None, None, monotonic()
        delivery_no = batch[0].number
        for letter in batch:
            if results and (self._is_closing or monotonic() - begun >= _SECONDS):
                break
            try:
                # The document number depends on nothing but the two letters, so that no name means
                # another letter if letters between them are gone.
                place = delivery_no, letter.number - delivery_no + 1
                answer = self._sink.send(letter.write(place))
            except ReceiverUnavailable as error:
                failure = error
                break
            result = answer.result(letter.key)
            if result.level in (Level.RETRY, Level.FATAL):
                why = f"{result.level.name.lower()} for letter {letter.key}: {result.message}"
                failure, retry_after = ReceiverUnavailable(why), answer.retry_after
                break
            results.append((letter, result))
        try:
            found = self._sink.flush() or {}
        except ReceiverUnavailable as error:
            failure, found = failure or error, error.answered
            results = [(letter, result) for letter, result in results if letter.key in found]
        results = [(letter, found.get(letter.key, result)) for letter, result in results]
        waiting = [result for _, result in results if result.level is Level.RETRY]
        if waiting:
            failure = failure or ReceiverUnavailable(waiting[0].message)
        final = [one for one in results if one[1].level is not Level.RETRY]
        return _Sent(final, failure, retry_after)

    def _settle(self) -> None:
        """Remove the letters of a batch that was sent, if there is one. After a failure, determine
        when to try again.
        """
        future, self._in_air = self._in_air, None
        if future is None:
            return
        try:
            results, failure, retry_after = future.result()
        except EventlogError as error:
            results, failure, retry_after = [], ReceiverUnavailable(str(error)), None
        except Exception as error:
            _log.exception("a dead letter could not be sent", extra={"code": DEAD_LETTER})
            why = f"{type(error).__name__}: {error}"
            results, failure, retry_after = [], ReceiverUnavailable(why), None
        refused = [
            (letter, result.message or "no message")
            for letter, result in results
            if result.level is Level.ERROR
        ]
        sent = [letter for letter, result in results if result.level is not Level.ERROR]
        if results:
            self.letters.remove(sent, refused)
            self._counters.letters_sent += len(sent)
            self._counters.letters_refused += len(refused)
        for letter, why in refused:
            _log.warning("%s", refusal_in_words(letter, why), extra={"code": DEAD_LETTER})
        if failure is None:
            self._failures, self._due = 0, 0.0
        else:
            self._wait(failure, retry_after, is_first=bool(results))

    def _wait(
        self, failure: ReceiverUnavailable, retry_after: float | None, *, is_first: bool
    ) -> None:
        self._failures = 1 if is_first else self._failures + 1
        pause = rules_of(self._options).pause(self._failures, retry_after)
        self._due = monotonic() + pause
        _log.warning(
            "dead letters wait: %s; trying again in %.3g s",
            as_of_letters(str(failure)),
            pause,
            extra={"code": ReceiverUnavailable.code},
        )


@contextmanager
def letter_sender(
    open_sink: Callable[[], tuple[Sink, LetterForm]] | None,
    options: PublisherOptions,
    counters: Counters,
) -> Iterator[LetterSender | None]:
    """Open the sink of dead letters until the block ends; None if there is none."""
    if open_sink is None:
        yield None
        return
    sink, form = open_sink()
    with closing(LetterSender(sink, form, options, counters)) as sender:
        yield sender


def warn_without_sink(waiting: int) -> None:
    """Warn about letters that an earlier start recorded, if no sink takes them now."""
    if waiting:
        _log.warning(
            "%s from an earlier run not sent, because [dead_letter] has no type: restore the type "
            "until the letters are sent",
            number_of(waiting, "dead letter"),
            extra={"code": DEAD_LETTER},
        )


# --- the letters of a log -------------------------------------------------------------------------


class LogLetters:
    """The letters of a publisher or a consumer of a log."""

    def __init__(self, context: Context, form: LetterForm) -> None:
        self._context, self._form = context, form

    def read(self, most: int) -> Sequence[ReadyLetter]:
        context = self._context
        letters = read_letters(context.log, context.ledger.consumer, most)
        built = build_letters(context, letters, self._form.writer)
        return [
            ReadyLetter(
                one.letter.number,
                one.letter.key,
                one.letter.event_id,
                one.letter.rows[0] if one.letter.rows else 0,
                partial(_written, self._form, one),
            )
            for one in built
        ]

    def remove(self, sent: Sequence[ReadyLetter], refused: Refused) -> None:
        log, consumer = self._context.log, self._context.ledger.consumer
        rows = [
            (letter.row, DEAD_LETTER, refusal_in_words(letter, why))
            for letter, why in refused
            if letter.row
        ]
        objects = [
            (letter.event_id, DEAD_LETTER, refusal_in_words(letter, why))
            for letter, why in refused
            if not letter.row
        ]
        add_errors(log, rows, consumer)
        add_object_errors(log, objects, consumer)
        remove_letters(log, [letter.number for letter in (*sent, *(one for one, _ in refused))])
        log.commit()

    def left(self) -> int:
        log = self._context.log
        found = waiting_letters(log, self._context.ledger.consumer).entries
        log.commit()
        return found


def refusal_in_words(letter: ReadyLetter, why: str) -> str:
    """Return the message about a letter that the second sink has refused."""
    return f"dead letter {letter.key} was refused: {as_of_letters(why)}"


def _facts(built: BuiltLetter) -> LetterFacts:
    """Return the facts that go with the event of a letter. A message that may quote a hidden value
    is left out.
    """
    letter, message = built.letter, built.letter.message
    ranges = to_ranges(sorted(letter.rows))
    if letter.is_row and built.is_hidden:
        message = "the error table has the message, which may quote a value"
    return LetterFacts(
        letter.key,
        letter.event_id,
        letter.code,
        message,
        ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges),
        letter.attempts,
        moment_text(letter.moment),
    )


def _written(form: LetterForm, built: BuiltLetter, place: tuple[int, int]) -> Document:
    """Return the document of a letter, with rows in place of an event that the format fails to
    write.
    """
    event = None
    if built.event is not None:
        try:
            event = form.writer.document(built.catalog, built.delivery, 1, [built.event])
        except ReceiverUnavailable:
            raise
        except Exception as error:
            _log.warning(
                "dead letter %s has rows in place of its event: %s", built.letter.key, error,
                extra={"code": DEAD_LETTER},
            )  # fmt: skip
    document = letter_document(form, _facts(built), event, built.rows, place)
    return document._replace(nonce=built.letter.nonce)
