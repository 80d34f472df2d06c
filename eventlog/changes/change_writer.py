"""The base of writers that need only a ``Change`` to make a piece. With this base the writer of a
new format needs the least code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Generic

from eventlog.changes.events import outgoing_reader
from eventlog.changes.publishing import (
    DeliveryState,
    EventWriter,
    Need,
    P,
    Publishing,
    text_of_first_row,
    time_reader,
)
from eventlog.core.catalog import Catalog
from eventlog.core.rows.events import Outgoing
from eventlog.core.rows.transaction_ids import transaction_digits
from eventlog.errors import FormatError, RowError
from eventlog.model import EventResult, Level


class ChangeWriter(EventWriter[P], Generic[P]):
    """A writer that converts each event to a ``Change`` and writes the change. A format's writer
    extends this class with ``piece_of`` and ``body``.

    If ``piece_of`` raises FormatError or RowError, only that event is refused.
    """

    needs = frozenset({Need.TIMES})

    def __init__(self, publishing: Publishing) -> None:
        self.in_records = publishing.in_records
        self._time_of = time_reader(publishing.values.time_zone)
        self._reader_of = lru_cache(maxsize=1)(partial(outgoing_reader, values=publishing.values))

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[P | EventResult]:
        read = self._reader_of(catalog)
        times, users, transactions = delivery.origins
        written: list[P | EventResult] = []
        for event in events:
            assert event.object_id is not None
            time, user = (
                self._time_of(text_of_first_row(event, times)),
                text_of_first_row(event, users),
            )
            transaction = transaction_digits(event, transactions)
            try:
                change = read(event, time, user, transaction)
                piece = self.piece_of(change, event.sent_id, event.object_id[0])
            except (FormatError, RowError) as error:
                written.append(EventResult(Level.ERROR, str(error)))
                continue
            written.append(
                EventResult(Level.ERROR, "the format cannot represent it")
                if piece is None
                else piece
            )
        return written
