"""The places that count: situations in which a fault of the product would hurt, and that hardly any
schedule meets by itself.

Each has a kind of step that aims at it. A part of the plans have this step (``share``), and
``simulate.py --floors`` fails if fewer than ``FLOOR`` of the schedules have met the place. A place
is met as a function of the product returns, or as a step finds that the world is there. Both are
counted in the ``stats`` of the world, under the name of the place.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from eventlog.cli.repair.runs import skip
from eventlog.model import ChangeOp
from eventlog.publisher.ledger import ledger
from eventlog.publisher.ledger.ledger import StatusLedger, are_registered
from eventlog.publisher.publisher import Publisher
from eventlog.publisher.send import log_feed, policy, snapshot_chunks
from eventlog.publisher.send.outbox import Outbox, Settled
from eventlog.publisher.send.policy import Document, Failed, Kind
from eventlog.publisher.stream import follow, source_feed
from eventlog.publisher.stream.failures import Failures
from eventlog.sql import resync
from eventlog.sql.readers import consumers

FLOOR = 0.05
"""The least share of the schedules that have to meet each place."""
ENOUGH = 2000
"""The schedules over which the floor is judged."""
_SHARE = 0.13
"""The share of the plans that have the step of a place."""
SINKS: Mapping[str, float] = {"python": 0.6, "files": 0.3, "objects": 0.1}
"""The sinks of plans, with their shares."""

Met = Callable[..., object]
"""Returns whether a call meets a place, from the result and the arguments of the call."""


class Watched(NamedTuple):
    """A function of the product, and which calls of it meet a place."""

    owner: Any
    name: str
    is_met: Met = lambda *_, **__: True


class Place(NamedTuple):
    """``what`` is a sentence about the place, ``step`` the kind of step that aims at it. Without a
    ``watched`` function, steps note it. Plans with other ``sinks`` do not have the step. ``share`` is
    that of the plans that have it for this place; several places may have one step.
    """

    name: str
    what: str
    step: str
    watched: Watched | None = None
    sinks: tuple[str, ...] = tuple(SINKS)
    share: float = _SHARE

    def share_of(self, sink: str) -> float:
        """Return the share of the plans with a sink that have the step: ``share`` of all plans."""
        return self.share / sum(SINKS[one] for one in self.sinks) if sink in self.sinks else 0.0


def _is_of(document: Document[Any], kind: Kind) -> bool:
    return document.attempts is not None and document.attempts.kind is kind


def _fails_alone(_: object, document: Document[Any], *__: object, **___: object) -> bool:
    return _is_of(document, Kind.PART) and len(document.events) == 1


def _cuts_part(ended: Failed[Any], document: Document[Any], *_: object, **__: object) -> bool:
    return _is_of(document, Kind.PART) and len(ended.documents) > 1


def _rests(due: float, document: Document[Any], rests_until: float) -> bool:
    return document.attempts is not None and document.attempts.due < due == rests_until


def _refuses_half(settled: Settled[Any], _: object, document: Document[Any], *__: object) -> bool:
    return bool(settled.refused) and _is_of(document, Kind.HALF)


def _refuses_beside_others(settled: Settled[Any], outbox: Any, *_: object) -> bool:
    return bool(settled.refused) and bool(outbox.in_air) and isinstance(outbox, Outbox)


def _waits_with_new_key(_: object, outbox: Any, *__: object) -> bool:
    return any(
        len(event.queues) > 1
        for document in outbox.documents()
        if document.attempts is None
        for event in document.events
        if any(one in outbox for one in event.queues)
    )


def _is_fatal(settled: Settled[Any], *_: object) -> bool:
    return settled.judged is not None and settled.judged.fatal is not None


def _removes_beside_consumers(_: object, ledger: Any, *__: Any, **given: Any) -> bool:
    return bool(given.get("deletes")) and are_registered(ledger.log)


def _changes_answers(_: object, __: object, refused: object, *___: object) -> bool:
    return bool(refused)


PLACES = (
    Place(
        "rows asked for by a consumer",
        "A consumer takes up the request of an operator to send rows again.",
        "ask_for_rows",
        Watched(ledger, "take_requests", lambda asked, _, who="": who and asked.rows),
        share=0.1,
    ),
    Place(
        "objects asked for by a consumer",
        "A consumer takes up the request to send refused objects of its snapshot again.",
        "ask_for_objects",
        Watched(ledger, "take_requests", lambda asked, *_: asked.objects),
    ),
    Place(
        "a request that outlasts a purge and a kill",
        "A purge runs while a consumer has not taken up its request, and the consumer is killed as "
        "it takes it up.",
        "purge_beside_request",
    ),
    Place(
        "a restart before a request is taken up",
        "A consumer starts with a request for rows that its receiver has applied before.",
        "restart_with_request",
    ),
    Place(
        "a reset with something in flight",
        "A consumer is reset while the log has a delivery of it.",
        "reset_in_flight",
    ),
    Place(
        "rows that are deleted although consumers exist",
        "A publisher with delete_from_log marks rows that a consumer may not have read.",
        "delete_beside_consumers",
        Watched(StatusLedger, "write", _removes_beside_consumers),
        share=0.1,
    ),
    Place(
        "a class that is unavailable within a snapshot",
        "A snapshot comes to a class whose table is not there, and waits for it.",
        "unavailable_in_snapshot",
        Watched(snapshot_chunks, "wait_for_class"),
    ),
    Place(
        "an event of a consumer that is skipped",
        "An operator gives up an event in flight to a consumer.",
        "skip_of_consumer",
        Watched(skip, "skip_events", lambda _, __, ledger, *___: ledger.consumer),
    ),
    Place(
        "refused rows that are skipped",
        "An operator records that refused rows need nothing more.",
        "skip_refused",
        Watched(skip, "skip_refused", lambda found, *_, dry: not dry and found.rows),
    ),
    Place(
        "parked events that are skipped",
        "An operator gives up all parked events.",
        "skip_all_parked",
        Watched(skip, "parked_events", lambda events, *_: events),
    ),
    Place(
        "a part of one event that fails again",
        "The receiver fails for an event that is tried by itself, while it answers others.",
        "fail_for_one",
        Watched(policy, "failed", _fails_alone),
        share=0.05,
    ),
    Place(
        "a part that is put off",
        "A part of a document may not be tried yet, and its objects wait.",
        "fail_for_one",
        Watched(policy, "due_of", _rests),
        share=0.05,
    ),
    Place(
        "a part that is cut again",
        "The receiver fails for a part of several events, whose halves are tried next.",
        "fail_for_one",
        Watched(policy, "failed", _cuts_part),
        share=0.05,
    ),
    Place(
        "an event that is given up",
        "The receiver has failed for an event alone as often as max_attempts allows.",
        "give_up",
        Watched(policy, "failed", lambda ended, *_, **__: ended.given_up),
    ),
    Place(
        "a half that is refused and cut again",
        "The receiver refuses a half of a document without naming an event.",
        "refuse_unnamed",
        Watched(Outbox, "settle", _refuses_half),
    ),
    Place(
        "a late request whose object is deleted",
        "A receiver finishes a request after its event came again as a delete.",
        "finish_late",
        share=0.25,
    ),
    Place(
        "a late request under an id that was replaced",
        "A receiver finishes a request after it has applied an event of it under a new id.",
        "finish_late_in_parts",
    ),
    Place(
        "a refusal at a flush",
        "A sink reports at its flush that events were refused which it had accepted.",
        "refuse_at_flush",
        Watched(log_feed, "as_flushed", _changes_answers),
    ),
    Place(
        "a refusal at a flush of a stream",
        "The same of a followed source, before its position passes the events.",
        "refuse_at_flush_of_source",
        Watched(source_feed, "as_flushed", _changes_answers),
        share=0.32,
    ),
    Place(
        "a fatal answer",
        "The receiver answers fatal, and the publisher ends.",
        "answer_fatal",
        Watched(Outbox, "settle", _is_fatal),
    ),
    Place(
        "deletes that a resync writes",
        "resync --deletes finds objects that are gone, and that the log does not show as deleted.",
        "resync_deletes",
        Watched(resync, "write_deleted", lambda gone, *_, **__: gone),
        share=0.16,
    ),
    Place(
        "a torn file",
        "A publisher is killed while it writes a file.",
        "tear_file",
        sinks=("files",),
    ),
    Place(
        "a run with --once",
        "A process sends what waits at its start, and ends.",
        "publish_once",
        Watched(Publisher, "run_once"),
    ),
    Place(
        "a consumer that begins at a time",
        "A consumer is registered with the rows since a moment.",
        "consumer_since",
        Watched(consumers, "first_row_from"),
    ),
    Place(
        "a verification while rows are asked for",
        "An operator verifies a receiver that has not got the requested rows again.",
        "verify_beside",
        share=0.28,
    ),
    Place(
        "a verification that continues",
        "An operator stops a verification, and another process continues it from its file.",
        "verify_in_parts",
        share=0.14,
    ),
    Place(
        "a reader that is paused with something in flight",
        "An operator pauses a reader that has sent events without an answer.",
        "pause_in_flight",
    ),
    Place(
        "a row that is explained with one in flight",
        "An operator asks why a row waits whose object has an event in flight.",
        "explain_in_flight",
    ),
    Place(
        "a TRUNCATE of a source",
        "A followed source reads that its table was emptied.",
        "truncate_source",
        Watched(follow.Run, "add_events", lambda _, __, read: read.change.op is ChangeOp.TRUNCATE),
    ),
    Place(
        "a recorded document of a stream",
        "A followed source begins with events that its position has passed without an answer.",
        "park_in_source",
        Watched(follow, "decode", lambda document, *_: document.events),
    ),
    Place(
        "a settled event of a stream",
        "A source is read again, and an event that was refused ahead of its position is left out.",
        "refuse_in_source",
        Watched(Failures, "is_settled", lambda is_settled, *_: is_settled),
    ),
    Place(
        "a new key of a source that has to wait",
        "A followed source reads that a row gets the key of another one, whose events wait.",
        "move_keys_in_source",
        Watched(Outbox, "waiting", _waits_with_new_key),
        share=0.3,
    ),
    Place(
        "a document of a stream that is cut while later ones are sent",
        "The receiver refuses a document of a source without naming an event, and later ones are "
        "being sent.",
        "refuse_unnamed_in_source",
        Watched(Outbox, "settle", _refuses_beside_others),
    ),
    Place(
        "a flush of a stream that fails",
        "The receiver of a followed source reports at the flush that it has lost documents.",
        "lose_at_flush_of_source",
    ),
)
"""The places, each with the step that aims at it."""


@contextmanager
def counting(stats: Counter[str]) -> Iterator[None]:
    """Count in ``stats`` which places are met while the block runs."""
    with ExitStack() as stack:
        for place in PLACES:
            if place.watched is not None:
                owner, name, _ = place.watched
                watching = _watching(getattr(owner, name), place.name, place.watched.is_met, stats)
                stack.enter_context(patch.object(owner, name, watching))
        yield


def _watching(
    call: Callable[..., Any], place: str, is_met: Met, stats: Counter[str]
) -> Callable[..., Any]:
    @functools.wraps(call)
    def watching(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if is_met(result, *args, **kwargs):
            stats[place] += 1
        return result

    return watching


def met_places(stats: Mapping[str, int]) -> set[str]:
    """Return the names of the places that a schedule has met."""
    return {place.name for place in PLACES if stats.get(place.name)}


def below_floor(counts: Mapping[str, int], schedules: int) -> list[Place]:
    """Return the places that fewer than ``FLOOR`` of the schedules have met."""
    return [place for place in PLACES if counts.get(place.name, 0) < FLOOR * schedules]
