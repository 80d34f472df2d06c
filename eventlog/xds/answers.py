"""A receiver's answer in XDS (spec/xds.md 7) to what it means for each event (spec/event-log.md 8.4)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lxml import etree

from eventlog.errors import ReceiverAway, XdsError
from eventlog.model import Answer, Level, Verdict
from eventlog.xds.reader import parse_document

DEFAULT_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of the largest answer that is read if nothing else is said."""

_LEVELS: Final = {level.name.lower(): level for level in Level}


def read_answer(body: bytes | str, event_ids: Collection[str], limit: int = DEFAULT_LIMIT) -> Answer:
    """Read the answer to an envelope of the events ``event_ids``; none for the answer to a heartbeat.

    ``limit`` in bytes. The message of a verdict is the whole text of its status, blanks at both ends taken off; of
    several equally bad statuses the first that has a text. Everything else that the answer holds is counted as ignored.
    Raises ReceiverAway if this is no answer: empty, not well-formed, a DOCTYPE, larger than ``limit``, no output in an
    nds. Nothing may be marked then.
    """
    if not body.strip():
        raise ReceiverAway("the receiver's answer is empty: nds with output needed")
    try:
        root = parse_document(body, limit)
    except XdsError as error:
        raise ReceiverAway(f"the receiver's answer cannot be read: {error}") from error
    outputs = root.findall("output")
    if root.tag != "nds" or not outputs:
        what = "nds without output" if root.tag == "nds" else f"root element {root.tag}"
        raise ReceiverAway(f"the receiver's answer is no XDS answer: {what}")

    known = frozenset(event_ids)
    worst: dict[str | None, Verdict] = {}
    unknown: dict[str, None] = {}
    statuses, ignored = _statuses(outputs)
    ignored += sum(child.tag not in ("source", "output") for child in root)
    for outer in statuses:
        message = "".join(str(text) for text in outer.itertext()).strip()
        for status in outer.iter("status"):  # one inside another counts as well, with the text of the outer one
            event_id = status.get("event-id")
            if event_id is not None and event_id not in known:
                unknown[event_id] = None
                continue
            level = _LEVELS.get(status.get("level", ""), Level.ERROR)
            before = worst.get(event_id)
            if before is None or level > before.level or (level == before.level and not before.message):
                worst[event_id] = Verdict(level, message)
    general = worst.pop(None, None)
    verdicts = {event_id: verdict for event_id, verdict in worst.items() if event_id is not None}
    return Answer(verdicts, general, tuple(unknown), ignored)


def _statuses(outputs: list[etree._Element]) -> tuple[list[etree._Element], int]:
    """The outermost statuses below the outputs, in document order, and how many elements are none."""
    statuses: list[etree._Element] = []
    ignored = 0
    waiting = [child for output in reversed(outputs) for child in reversed(output)]
    while waiting:
        element = waiting.pop()
        if element.tag == "status":
            statuses.append(element)
        else:
            ignored += 1
            waiting.extend(reversed(element))
    return statuses, ignored
