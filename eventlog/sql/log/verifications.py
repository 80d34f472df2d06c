"""The last verifications of targets, each in an entry of ``<log>_state`` (spec/verify.md 5.2).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.port.open_log import OpenLog

_MAX_KEPT: Final = 20


class LastVerification(NamedTuple):
    """The last verification of a target. Times are UTC."""

    reader: str
    """``publisher``, or the name of a consumer."""
    target: str
    result: str
    ended: datetime
    verified_through: datetime | None
    objects: int
    """The number of objects that were compared."""
    differences: int

    def as_data(self) -> dict[str, Any]:
        """Return the verification as data for JSON."""
        through = self.verified_through
        return {
            **self._asdict(),
            "ended": self.ended.isoformat(timespec="seconds"),
            "verified_through": None if through is None else through.isoformat(timespec="seconds"),
        }


def read_verifications(log: OpenLog) -> list[LastVerification]:
    """Return the last verification of each target, newest first. Raises DatabaseError for an entry
    that cannot be read.
    """
    found = []
    for entry in read_entries(log, EntryKind.VERIFIED):
        try:
            content = json.loads(entry.content)
            through = content["verified_through"]
            found.append(
                LastVerification(
                    str(content["reader"]),
                    str(content["target"]),
                    str(content["result"]),
                    entry.started,
                    None if through is None else datetime.fromisoformat(through),
                    int(content["objects"]),
                    int(content["differences"]),
                )
            )
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.VERIFIED, entry.number, error) from None
    return found[::-1]


def write_verification(log: OpenLog, last: LastVerification) -> None:
    """Write a verification, in place of the earlier verification of the same target. ``ended`` is
    the time of the database. The twenty newest verifications are kept.
    """
    others: list[int] = []
    for entry in read_entries(log, EntryKind.VERIFIED):
        content = json.loads(entry.content)
        if (content.get("reader"), content.get("target")) == (last.reader, last.target):
            delete_entry(log, EntryKind.VERIFIED, entry.number)
        else:
            others.append(entry.number)
    for number in others[: 1 - _MAX_KEPT]:
        delete_entry(log, EntryKind.VERIFIED, number)
    through = last.verified_through
    content = last._asdict() | {
        "verified_through": None if through is None else through.isoformat(),
    }
    del content["ended"]
    add_entry(
        log,
        EntryKind.VERIFIED,
        next_number(log),
        json.dumps(content),
    )
