"""The epoch of a log: read and write its internal table, and detect that the log was restored
(spec/event-log.md 7.4).

No function commits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.rows.event_ids import new_epoch, raised_at
from eventlog.errors import DatabaseError
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of

_PASSED_OVER: Final = 100
"""How many delivery numbers a raise of the epoch skips: the number of a Qlik sequence jumps by
10^12 (formats/qlik.md 3).
"""


class Epoch(NamedTuple):
    """The row of ``<log>_epoch``: the epoch, empty at first, and the server's identity as it was
    last seen (``OpenLog.server_parts``).
    """

    epoch: str
    server: Mapping[str, str]


@lru_cache(maxsize=32)
def _epochs(log: LogTable) -> sa.TableClause:
    columns = [
        sa.column("epoch"),
        sa.column("server"),
        sa.column("raised", sa.TIMESTAMP()),
        sa.column("removed"),
    ]
    return sa.table(quoted(log.epoch_table), *columns, schema=schema_of(log))


def read_epoch(log: OpenLog, *, is_locked: bool = False) -> Epoch:
    """Return the epoch of a log. With ``is_locked`` no other session can write it until the end of
    the transaction.

    Raises DatabaseError.
    """
    epochs = _epochs(log.table)
    statement = sa.select(epochs.c.epoch, epochs.c.server)
    entries = log.connection.execute(statement.with_for_update() if is_locked else statement).all()
    try:
        known = [
            Epoch(epoch or "", {} if server is None else _parts(server))
            for epoch, server in entries
        ]
        newest = max(known, key=lambda one: one.epoch, default=Epoch("", {}))
        raised_at(newest.epoch)
    except (TypeError, ValueError) as error:
        raise DatabaseError(
            f"{log.table.epoch_table} cannot be read ({error}). If it was changed by hand, undo "
            "the change"
        ) from None
    return newest


def _parts(server: object) -> dict[str, str]:
    return {str(part): str(text) for part, text in dict(json.loads(str(server))).items()}


def write_epoch(log: OpenLog, entry: Epoch, *, is_raise: bool) -> None:
    """Rewrite the row of the internal table; with ``is_raise``, also set the time when the epoch
    was drawn.
    """
    epochs = _epochs(log.table)
    values: dict[str, Any] = {
        "epoch": entry.epoch or None,
        "server": json.dumps(entry.server, sort_keys=True),
    }
    if is_raise:
        values["raised"] = sa.literal_column(log.dialect.utc_now)
    if not log.connection.execute(sa.update(epochs).values(values)).rowcount:
        log.connection.execute(sa.insert(epochs).values(values))


def read_removed(log: OpenLog) -> int:
    """Return the highest record_id that was removed from the log, 0 = none."""
    return int(
        log.connection.execute(sa.select(sa.func.max(_epochs(log.table).c.removed))).scalar() or 0
    )


def note_removed(log: OpenLog, record_id: int) -> None:
    """Record that rows up to this record_id may have been removed from the log."""
    epochs = _epochs(log.table)
    is_higher = sa.or_(epochs.c.removed.is_(None), epochs.c.removed < record_id)
    log.connection.execute(sa.update(epochs).where(is_higher).values(removed=record_id))


def forget_removed(log: OpenLog, record_id: int) -> None:
    """Record that no rows from this record_id on were removed, since the log will use these
    record_ids again.
    """
    epochs = _epochs(log.table)
    is_removed = epochs.c.removed >= record_id
    log.connection.execute(sa.update(epochs).where(is_removed).values(removed=record_id - 1))


def differing(known: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return, in words, the parts whose values in ``known`` and in ``present`` differ."""
    parts = sorted(known.keys() & present.keys())
    return [
        f"{part} is {present[part]}, was {known[part]}"
        for part in parts
        if known[part] != present[part]
    ]


def raise_epoch(log: OpenLog, server: Mapping[str, str], beyond: int = 0) -> tuple[str, int]:
    """Draw a new epoch and write it. Return the epoch, and the last delivery number that was
    skipped.

    ``server`` has the ``server_parts`` as they are now. ``beyond`` is a delivery number that was
    used before; the next delivery numbers are greater.
    """
    epoch = new_epoch(log.db.utc_now())
    write_epoch(log, Epoch(epoch, server), is_raise=True)
    return epoch, pass_over(log, beyond, _PASSED_OVER)


def pass_over(log: OpenLog, beyond: int, least: int = 1) -> int:
    """Draw ``least`` delivery numbers, and more until they exceed ``beyond``; return the last
    number.
    """
    last = log.draw_numbers(least)
    if last < beyond:
        last = log.draw_numbers(beyond - last)
    return last
