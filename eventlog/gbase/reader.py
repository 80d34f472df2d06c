"""A stream to Changes (spec/gbase-cdc.md 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from eventlog.gbase.layout import Layout, Layouts
from eventlog.gbase.open_transaction import Entry
from eventlog.gbase.options import ReadOptions, Token
from eventlog.gbase.records import ColumnError, Framer, at_offset, moment
from eventlog.gbase.transactions import Committed, Operation, Transactions
from eventlog.model import Change, ChangeOp, Row, Value, differing

_LAST: Final = Change._fields.index("last_in_transaction")
_NOTHING: Final[frozenset[str]] = frozenset()


class StreamReader:
    """Reads one stream: ``feed`` it bytes in any cut, tell it the declared end by ``finish``.

    ``counters`` hold what was skipped or odd, by the names of the specification. ``token`` is from where to read again
    after the changes that ``feed`` has given and its caller has come back from: save it once those are delivered.
    ``on_idle`` is called at each TIMEOUT record with the sequence of the last data; ``on_bad_row`` with what is wrong
    with a row that cannot be read, which is left out then; without it the error is raised. A reader that goes on within
    a stream is given the ``size_order`` that the ``layouts`` of the one before it have shown.
    """

    def __init__(
        self,
        options: ReadOptions | None = None,
        on_idle: Callable[[int], None] | None = None,
        on_bad_row: Callable[[ColumnError], None] | None = None,
    ) -> None:
        self._options = options or ReadOptions()
        self._on_bad_row = on_bad_row
        self.counters: Counter[str] = Counter()
        self._framer = Framer(self._options.max_record)
        self.layouts = Layouts(self._options, self.counters)
        self._transactions = Transactions(self._options, self.layouts, self.counters, on_idle)

    @property
    def token(self) -> Token:
        """The restart token (spec/gbase-cdc.md 4.1)."""
        return self._transactions.token

    def transactions(self, data: bytes | bytearray | memoryview) -> Iterator[Committed]:
        """The transactions that are committed with ``data``; with ``empty_transactions`` empty ones too."""
        return self._transactions.take(self._framer.feed(data))

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Change]:
        """The changes that are committed with ``data``, in the order of their COMMTX records.

        Raises FormatError: what is wrong with a record or a row, and SchemaMissing.
        """
        for committed in self.transactions(data):
            yield from self.changes(committed)

    def finish(self) -> None:
        """The declared end of the stream: open transactions are dropped. Raises TruncatedStream inside a record."""
        self._transactions.close()
        self._framer.finish()

    def close(self) -> None:
        """Give back what is held, at an end that is no declared one."""
        self._transactions.close()

    def changes(self, committed: Committed) -> Iterator[Change]:
        """The changes of a transaction."""
        make, on_bad_row = _maker(self._options, committed), self._on_bad_row
        event_number = 1
        waiting: Change | None = None
        for operation in committed.operations:
            try:
                change = make(operation, event_number)
            except ColumnError as error:
                at_offset(error, _offset(error, operation))
                if on_bad_row is None:
                    raise
                on_bad_row(error)
                continue
            if waiting is not None:
                yield waiting
            waiting = change
            event_number += 1
        if waiting is not None:
            yield tuple.__new__(Change, (*waiting[:_LAST], True, *waiting[_LAST + 1 :]))


def _offset(error: ColumnError, operation: Operation) -> int:
    """Where the record begins that the error is about: that of the row, or of the row before it."""
    _, entry, old = operation
    return old.offset if old is not None and error.sequence == old.sequence != entry.sequence else entry.offset


def _maker(options: ReadOptions, committed: Committed) -> Callable[[Operation, int], Change]:
    """The function that makes the changes of one transaction, of operation and event number, as not the last one."""
    os_user, begin_seq = committed.os_user, committed.begin_seq
    position = f"{committed.commit_seq:016x}:%016x"
    time = moment(committed.commit_time, committed.offset)
    transaction_id = f"{begin_seq:032X}"
    user = str(os_user)
    extras: dict[int, Mapping[str, str | int]] = {}
    delete, make = ChangeOp.DELETE, tuple.__new__

    def change(operation: Operation, event_number: int) -> Change:
        op, entry, old = operation
        label, layout = entry.label, entry.layout
        if label not in extras:
            extras[label] = {"os_user": os_user, "label": label, "begin_seq": f"{begin_seq:016x}"}
        key = changed = None
        before: Row | None = None
        after: Row | None = None
        if layout is None:
            schema, table = options.name_of(label)
        else:
            schema, table = layout.schema, layout.table
            values = layout.decode(entry.record, entry.header_size)
            row = dict(zip(layout.names, values))  # noqa: B905  # of one length; the check takes a third of the time
            if layout.key_of is not None:
                key = layout.key_of(row)
            if op is delete:
                before = row
            else:
                after = row
                if old is not None:
                    before, changed = _updated(layout, values, row, old)
        # Without the checks of Change, which hold by what stands above: they would cost a tenth of the reading.
        return make(
            Change,
            (
                schema, table, op, key, before, after, changed, position % entry.sequence, transaction_id,
                event_number, False, time, user, extras[label],
            ),
        )  # fmt: skip

    return change


def _updated(layout: Layout, values: list[Value], row: Row, old: Entry) -> tuple[Row, frozenset[str] | None]:
    """The row before and the columns that differ."""
    old_layout = old.layout
    assert old_layout is not None
    before = dict(zip(old_layout.names, olds := old_layout.decode(old.record, old.header_size), strict=True))
    if old_layout is not layout:
        return before, differing(before, row)
    if olds == values:
        return before, _NOTHING
    names = [name for name, was, now in zip(layout.names, olds, values, strict=True) if was != now]
    return before, frozenset(names)
