"""Determine which record_id a log uses next, and which record_ids it has used before
(spec/event-log.md 7.4, 13.2).
"""

from __future__ import annotations

from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.rows import extent
from eventlog.sql.port.open_log import OpenLog


def next_unused(log: OpenLog) -> int | None:
    """Return the lowest record_id that the log has certainly not used yet; None if neither its
    sequence nor a row shows it.
    """
    following = log.next_record_id() or 0
    given = _highest_given(log)
    return max(following, given + 1) if following or given else None


def next_given(log: OpenLog) -> int | None:
    """Return the record_id that the next row gets: the next number of the sequence, or, if this
    role cannot read the sequence, the number after all rows. None if neither the sequence nor a row
    shows it.
    """
    following = log.next_record_id()
    if following is not None:
        return following
    given = _highest_given(log)
    return given + 1 if given else None


def _highest_given(log: OpenLog) -> int:
    """Return the highest record_id of all rows that the log has, or had before they
    were removed.
    """
    _, highest = extent(log) or (0, 0)
    return max(read_removed(log), highest)
