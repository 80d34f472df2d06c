"""Read the current values that the events of a delivery need, in bounded memory (spec/event-log.md
8.4).

The size of a row is unknown before it is read. So a class is read back by several statements. Each
statement reads up to sixteen times as many objects as the previous statement, but not more objects
than have room if they are as large as the last rows read. If the values have more than
``delivery_bytes``, the delivery gets fewer groups, and the values are read again. This is rare,
since most rows are small. With small rows, a class needs one statement for up to 16 objects, and
two statements for up to 256 objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventlog.changes.publishing import CurrentRows, Need, read_whole_rows
from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.rows.events import CurrentRow, Outgoing, QueryBack
from eventlog.core.rows.fold import Group
from eventlog.publisher.context.context import UNCHECKED, CatalogCheck, Context
from eventlog.publisher.feeds.queue import WindowResult, build_events, split_groups, with_values

_GROWTH: Final = 16


class Built(NamedTuple):
    """The groups of one delivery, their events, and the current rows for formats that need them."""

    groups: Sequence[Group]
    events: Sequence[Outgoing]
    current_rows: CurrentRows


class _DeliveryFull(Exception):
    """The values read back are too large for a delivery.

    ``objects`` is the number of objects read before the values became too large.
    """

    def __init__(self, objects: int) -> None:
        self.objects = objects


def built_deliveries(
    context: Context, window: WindowResult, sizes: dict[str, int], check: CatalogCheck = UNCHECKED
) -> Iterator[Built]:
    """Yield the deliveries of a window, which are limited by rows and by bytes. ``sizes`` has the
    size of a row in bytes, by class; it is kept between windows.

    ``check`` is called once, before the first values are read back, and may end the work with an
    error.
    """
    options = context.options
    query_back = _checked_first(context.query_back, check)
    for run in split_groups(
        window.groups, options.delivery_rows, options.delivery_bytes, window.sizes
    ):
        waiting: deque[Sequence[Group]] = deque([run])
        while waiting:
            groups = with_values(context, waiting.popleft(), window.unread)
            try:
                built = _build(context, groups, sizes, query_back)
            except _DeliveryFull as full:
                cut = min(max(1, full.objects), len(groups) - 1)
                waiting.extendleft((groups[cut:], groups[:cut]))
                continue
            yield built


def _checked_first(query_back: QueryBack, check: CatalogCheck) -> QueryBack:
    """Return a function that reads back as ``query_back`` does, after a check at its first call."""
    is_checked = False

    def checked(
        object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        nonlocal is_checked
        if not is_checked:
            check.before_read_back()
            is_checked = True
        return query_back(object_class, keys, attributes)

    return checked


def _build(
    context: Context, groups: Sequence[Group], sizes: dict[str, int], query_back: QueryBack
) -> Built:
    """Build the events of groups.

    Raises _DeliveryFull if there are several groups, and their values are too large.
    """
    if len(groups) > 1:
        query_back = _bounded(query_back, sizes, context.options.delivery_bytes)
    events, current_rows = with_current_rows(
        context, build_events(context, groups, query_back), query_back
    )
    return Built(groups, events, current_rows)


def with_current_rows(
    context: Context, events: Sequence[Outgoing], query_back: QueryBack | None = None
) -> tuple[Sequence[Outgoing], CurrentRows]:
    """Return the events, and the current rows of their objects if the format needs them. In that
    case a modify of a missing object makes no event.
    """
    if Need.WHOLE_ROWS not in context.output.needs:
        return events, {}
    return read_whole_rows(events, query_back or context.query_back)


def _bounded(query_back: QueryBack, sizes: dict[str, int], max_bytes: int) -> QueryBack:
    """Return a function that reads back as ``query_back`` does. All calls of the function together
    read at most ``max_bytes``.
    """
    left, objects = max_bytes, 0

    def bounded(
        object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        nonlocal left, objects
        rows: dict[str, CurrentRow] = {}
        name, done = object_class.name, 0
        most = _GROWTH if name in sizes else 1
        while done < len(keys):
            if left < 0:
                raise _DeliveryFull(objects)
            wanted = keys[done : done + max(1, min(most, left // sizes.get(name, 1)))]
            read = query_back(object_class, wanted, attributes)
            size = _bytes_of(read.values())
            sizes[name] = max(1, size // len(wanted))
            left -= size
            objects += len(wanted) if left >= 0 else 0
            done += len(wanted)
            most *= _GROWTH
            rows.update(read)
        return rows

    return bounded


def _bytes_of(rows: Iterable[CurrentRow]) -> int:
    # Unreadable values are empty here, and raise when they are used.
    return sum(
        len(text)
        for row in rows
        for texts in row.values()
        if texts
        for text in texts
        if text is not None
    )
