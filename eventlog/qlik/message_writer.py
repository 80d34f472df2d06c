"""Changes to messages; and a publisher's events, straight from their steps: what is made of their Changes, sooner
(spec/qlik.md 5, 5.3, 7; spec/change-model.md 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

from eventlog.changes.events import OPERATIONS, attribute_reader
from eventlog.changes.format import Report, key_reader
from eventlog.core.catalog import ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.typed import ReadValue, value_reader
from eventlog.core.values import Kind, ValueOptions
from eventlog.errors import ConfigError, FormatError, NeedsQueryBack, NeedsRowCodec, NotExpressible, RowError
from eventlog.model import ALL, Change, ChangeOp, KafkaRecord, Operation, Row, differing, full_name
from eventlog.qlik.columns import TEXT_TYPES, ColumnsSeen, QlikColumn, columns_from_json
from eventlog.qlik.envelope import Registry
from eventlog.qlik.message_tables import MessageTable, WriteOptions
from eventlog.qlik.message_template import MOST_TEMPLATES, TableForm, new_form, timestamp_of, with_values
from eventlog.qlik.sequence import (
    LENGTH,
    PREFIX_LENGTH,
    WriterState,
    is_sequence,
    next_sequence,
    resume,
    time_prefix,
    transaction_text,
)

# Bound names: each saves two look-ups a message.
_ADD, _UPDATE, _DELETE, _TRUNCATE = Operation.ADD, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


class MessageWriter:
    """Writes the changes of one task, in their order.

    ``columns``: those of tables that the option ``columns`` does not name, by their full names; they may be others at
    any time. ``state`` is what it has numbered so far; ``generation`` rises whenever the functions of
    ``outgoing_writer`` are not valid any more; ``utc_now`` stamps metadata messages. The report counts what is skipped.
    """

    def __init__(
        self,
        options: WriteOptions,
        report: Report | None = None,
        registry: Registry | None = None,
        columns: Mapping[str, tuple[QlikColumn, ...]] | None = None,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.state: WriterState = resume(options.last_sequence)
        self._options = options
        self._report = Report() if report is None else report
        self._registry = registry
        self._utc_now = utc_now
        if (registry is None) == (options.metadata == "registry"):
            raise ConfigError("metadata = registry of the Qlik messages needs a registry, and only that takes one")
        self._described = {name: columns_from_json(each, what=name) for name, each in options.columns.items()}
        self.columns: Mapping[str, tuple[QlikColumn, ...]] = columns or {}
        self._seen: dict[tuple[str | None, str], ColumnsSeen] = {}
        self._forms: dict[tuple[str | None, str], TableForm] = {}
        self._announced: dict[tuple[str | None, str], TableForm] = {}
        self.generation = 0

    def messages(self, change: Change, sequence: str | None = None) -> tuple[KafkaRecord, ...]:
        """The messages of a change: none for TRUNCATE, an MD first where the table is new or has changed.

        ``sequence``: its change sequence, given by a caller who numbers changes himself; its position then is the
        stream position. Raises NotExpressible, ValueRange, NeedsQueryBack, NeedsRowCodec; RegistryError.
        """
        if change.op is _TRUNCATE:
            if self._options.on_truncate == "error":
                raise NotExpressible(f"TRUNCATE of {change.table!r} cannot be written as a message (on_truncate)")
            self._report.count("truncate_skipped")
            return ()
        state = self.state
        image = _image(change)
        try:
            form = self._form(change)
            message = self._message(change, form, image, sequence)
        except NotExpressible as error:
            self.state = state  # what is not written takes no number
            raise type(error)(f"{_place(change)}: {error}") from None
        except UnicodeEncodeError as error:
            self.state = state
            raise NotExpressible(f"{_place(change)}: text with half a character: {error.reason}") from None
        name = change.schema, change.table
        if self._announced.get(name) is form:
            return (message,)
        self._announced[name] = form
        return (message,) if form.announcement is None else (form.announcement, message)

    def outgoing_writer(
        self, object_class: ObjectClass, schema: str | None, values: ValueOptions
    ) -> WriteOutgoing | None:
        """The function that writes a publisher's events of a class straight from their steps, as ``messages`` writes
        their Changes; None as long as the metadata of the table are not written.

        ``values``: what the events were written with. The function is valid until ``generation`` is another number.
        """
        form = self._announced.get((schema, object_class.name))
        if form is None or form.rounded or (form.columns or self.columns.get(form.full_name)) is not form.table.columns:
            return None
        return _outgoing_writer(self, form, object_class, values)

    def announce_again(self) -> None:
        """Write each table's MD again before its next message, since what was written may be lost."""
        self._announced.clear()
        self.generation += 1

    # --- the table ---

    def _form(self, change: Change) -> TableForm:
        name = change.schema, change.table
        form = self._forms.get(name)
        if form is not None:
            columns = form.columns or self.columns.get(form.full_name)
            if columns is form.table.columns:  # as nearly always
                return form
        known_as = full_name(change.schema, change.table)
        described = self._described.get(known_as)
        columns = described or self.columns.get(known_as)
        if columns is None:
            seen = self._seen.setdefault(name, ColumnsSeen())
            seen.see(change)
            columns = seen.columns()
        if form is not None and form.table.columns == columns:
            return form
        version = 1 if form is None else form.table.version + 1
        table = MessageTable(change.schema, change.table, columns, version)
        form = self._forms[name] = new_form(table, described, self._options, self._registry, self._utc_now())
        self.generation += 1
        return form

    # --- the message ---

    def _message(self, change: Change, form: TableForm, image: Row, sequence: str | None) -> KafkaRecord:
        op, before = change.op, change.before
        if op is not _UPDATE:
            before = None
        elif before is not None and form.is_whole:
            before = self._whole_before(change, image, before, form)
        shape = op, tuple(image), None if before is None else tuple(before)
        template = form.templates.get(shape)
        if template is None:
            _refuse_others(form.table, image)
            template = form.new_template(shape)
        coding = form.coding
        null, digits = coding.null, coding.digits
        values = [null if (value := image[name]) is None else write(value) for name, write in template.data]
        if before is not None:
            values += [null if (value := before[name]) is None else write(value) for name, write in template.before]
        if form.rounded:
            self._count_rounded(form, image)
            self._count_rounded(form, before or {})
        if template.change_mask is not None:
            stream_position = change.position or ""
            if sequence is None:
                sequence, stream_position = self._numbered(change, with_before=before is not None)
            changed = change.changed
            if changed is None and change.before is not None and change.after is not None:
                changed = differing(change.before, change.after)
            values += (
                digits(sequence),
                digits(timestamp_of(change.commit_time)),
                coding.text(stream_position),
                digits(transaction_text(change.transaction_id)),
                template.change_mask if changed is None else coding.mask(changed),
            )
            number, is_last = change.event_number, change.last_in_transaction
        else:  # a REFRESH, which belongs to no transaction
            number = is_last = None
        key = form.key_of(None if template.key is None else [values[place] for place in template.key])
        values.append(null if number is None else coding.number(number))
        values.append(null if is_last is None else coding.flag(is_last))
        parts = template.parts.copy()
        parts[1::2] = values
        return _new(KafkaRecord, (form.topic, key, coding.wrap(parts), ()))

    def _whole_before(self, change: Change, after: Row, before: Row, form: TableForm) -> Row | None:
        """A row before that knows what the row after knows, since in Avro no column can be left out of it.

        What has not changed was the same before. None if a changed column is not known: what stood there would be
        read as NULL.
        """
        if after.keys() <= before.keys():  # as nearly always
            return before
        unknown = after.keys() - before.keys()
        if change.changed is None or change.changed & unknown or form.table.lobs & unknown:
            self._report.count(f"before_image_dropped {form.full_name}")
            return None
        return {**before, **{name: after[name] for name in unknown}}

    def _count_rounded(self, form: TableForm, row: Row) -> None:
        for name in form.rounded:
            if (clock := row.get(name)) is not None and getattr(clock, "microsecond", 0) % 1000:
                self._report.count(f"truncated {form.full_name}.{name}")

    def _numbered(self, change: Change, with_before: bool) -> tuple[str, str]:
        """Change sequence and stream position: a change that has a sequence keeps it (spec/change-model.md 4)."""
        position = change.position
        if position is not None and len(position) == LENGTH and position.isdigit() and position.isascii():
            prefix, number = position[:PREFIX_LENGTH], int(position[PREFIX_LENGTH:])
            greatest, last = self.state
            if prefix == greatest or _is_time(prefix):
                self.state = _new(
                    WriterState, (prefix if prefix > greatest else greatest, number if number > last else last)
                )
                return position, str(change.extras.get("stream_position") or "")
        self.state, sequence = next_sequence(self.state, time_prefix(change.commit_time), with_before=with_before)
        return sequence, position or ""


@lru_cache(maxsize=1024)
def _is_time(prefix: str) -> bool:
    """Whether a position of digits is a change sequence; times are few, since changes come many at a time."""
    return is_sequence(prefix.ljust(LENGTH, "0"))


def _place(change: Change) -> str:
    return f"{change.op} of {change.table!r}, position {change.position}"


def _image(change: Change) -> Row:
    """What is known of the row that the message has: that before a DELETE, else that after; and the key.

    Raises NeedsQueryBack, NeedsRowCodec where nothing is.
    """
    op, key = change.op, change.key
    image = change.before if op is _DELETE else change.after
    if image is None:
        if op is _DELETE and key:
            return dict(key)
        if "part1" in change.extras:
            raise NeedsRowCodec(f"{op} of {change.table!r}: its row image has no codec, which messages need")
        raise NeedsQueryBack(f"{op} of {change.table!r}, position {change.position}: its row is to be read back")
    for name, _ in key or ():
        if name not in image:
            return {**dict(key or ()), **image}
    return image


def _refuse_others(table: MessageTable, image: Row) -> None:
    """Raise NotExpressible for a column that the table does not have."""
    if not image.keys() <= table.fields.keys():
        name = min(image.keys() - table.fields.keys())
        if isinstance(image[name], tuple):
            raise NotExpressible(f"{name!r} of {table.full_name!r} has several values: a message has one a column")
        raise NotExpressible(f"the columns of {table.full_name!r} have no {name!r}: name it in the option columns")


# --- a publisher's events ---------------------------------------------------------------------------------------------

WriteOutgoing = Callable[[Outgoing, str, str | None], KafkaRecord | None]
"""An event of a class, the ``timestamp`` of its first row, its change sequence as of ``MessageWriter.messages`` -> its
message; None if the event is to go by way of Change.

Events of one shape are laid out alike: what follows from a shape is put together once, as in ``message_template``.
"""


def _outgoing_writer(
    writer: MessageWriter, form: TableForm, object_class: ObjectClass, values: ValueOptions
) -> WriteOutgoing | None:
    """The function that writes the events of a class; None if its columns are not those of the form's table.

    ``values``: what the events were written with.
    """
    coding, topic, key_of = form.coding, form.topic, form.key_of
    null, digits, text, wrap = coding.null, coding.digits, coding.text, coding.wrap
    key_names = [column.name for column in object_class.key]
    if not {*key_names, *form.table.key} <= coding.writers.keys() & set(key_names):
        return None  # columns of the options that are not those of the class
    write_key = _key_writer(form, object_class)
    key_places = [key_names.index(name) for name in form.table.key]
    is_in_order = key_places == list(range(len(key_names)))
    writers = {
        attribute: _text_writer(
            form,
            attribute.name,
            attribute_reader(attribute.value_type, attribute, values),
            is_integer=attribute.value_type == "int",
        )
        for attribute in object_class.attributes
        if not attribute.multi_valued and attribute.name in coding.writers and attribute.name not in key_names
    }
    layouts: dict[_EventShape, _Layout | None] = {}

    def write(event: Outgoing, timestamp: str, sequence: str | None) -> KafkaRecord | None:
        event_id, _, object_id, operation, steps, _, _, _, _ = event
        assert object_id is not None
        assert steps is not None
        state = writer.state
        is_add = operation is _ADD
        shape: list[Any] = [operation]
        try:
            forms = write_key(object_id[1])
            key = key_of(forms if is_in_order else [forms[place] for place in key_places])
            for _, _, _, attribute, old, new in steps:
                write_text = writers[attribute]  # type: ignore[index]
                forms.append(null if new is None else write_text(new))  # type: ignore[arg-type]
                shape.append(attribute)
                if old is not None and old is not ALL:
                    shape.append(_KNOWN)
                    forms.append(write_text(old))  # type: ignore[arg-type]
                elif old is None and not is_add:
                    shape.append(_KNOWN)
                    forms.append(null)
            known = tuple(shape)
            layout = layouts.get(known)
            if layout is None:
                layout = _layout(form, key_names, known)
                if layout is None:
                    return None
                if len(layouts) >= MOST_TEMPLATES:
                    layouts.clear()
                layouts[known] = layout
            constants, pick, has_before = layout
            if sequence is None:
                writer.state, sequence = next_sequence(writer.state, sequence_prefix(timestamp), with_before=has_before)
            forms += (digits(sequence), digits(timestamp), text(event_id))
            parts = constants.copy()
            parts[1::2] = pick(forms)
            return _new(KafkaRecord, (topic, key, wrap(parts), ()))
        except (FormatError, RowError, LookupError, TypeError, AttributeError, ValueError):
            writer.state = state
            return None  # by way of Change it is said what is wrong

    return write


def _key_writer(form: TableForm, object_class: ObjectClass) -> Callable[[str], list[Any]]:
    """What writes the values of a class's canonical keys, in key order."""
    read = key_reader(object_class)
    writers = [form.coding.writers[column.name] for column in object_class.key]
    first, *more = object_class.key
    start = len(first.name) + 1
    write_first = _text_writer(form, first.name, value_reader(first.type), is_integer=first.type.kind is Kind.INTEGER)

    def write(text: str) -> list[Any]:
        if not more and '"' not in text:  # as most are: name and value stand as they are
            return [write_first(text[start:])]
        return [write_value(value) for write_value, (_, value) in zip(writers, read(text), strict=True)]

    return write


_SAFE_LENGTHS: Final = {"INT2": 4, "INT4": 9, "INT8": 18}
"""Integers in normal form of so many characters are in range whatever they are."""


def _text_writer(form: TableForm, name: str, read: ReadValue, *, is_integer: bool) -> Callable[[str], Any]:
    """What writes the texts of a column, whose values ``read`` gives. ``is_integer``: integers in normal form."""
    column = next(column for column in form.table.columns if column.name == name)
    write = form.coding.writers[name]
    if read is str:
        return form.coding.string if column.type in TEXT_TYPES else write
    if is_integer and form.coding.has_text_numbers and column.type in _SAFE_LENGTHS:
        longest = _SAFE_LENGTHS[column.type]
        return lambda text: text if len(text) <= longest else write(read(text))
    return lambda text: write(read(text))


_KNOWN: Final = True

_EventShape: TypeAlias = tuple[Any, ...]
"""What is known of an event, without the values: the operation, then the attribute of each step, with ``_KNOWN`` behind
it if its old value is known.
"""

_Layout = tuple[list[Any], Callable[[Sequence[Any]], tuple[Any, ...]], bool]
"""The parts of a message, what picks the values of its odd places out of those of an event, and whether it holds the
row before.
"""


def _layout(form: TableForm, key_names: Sequence[str], shape: _EventShape) -> _Layout | None:
    """The layout of all events of a shape.

    None if they go by way of Change: an attribute has several steps, or old values are known of some attributes alone
    and nothing can be left out.
    """
    operation, *known_of_steps = shape
    # Where the value of each column stands among those of an event: that after it, and that before.
    after = {name: place for place, name in enumerate(key_names)}
    before = dict(after)
    name = ""
    for place, known in enumerate(known_of_steps, len(key_names)):
        if known is _KNOWN:
            before[name] = place
            continue
        name = known.name
        if name in after:
            return None
        after[name] = place
    changed = after.keys() - key_names
    if changed and operation == Operation.DELETE:
        return None
    has_before = operation == Operation.MODIFY and len(before) > len(key_names)
    if has_before and form.is_whole and len(before) < len(after):
        return None
    coding = form.coding
    image = OPERATIONS[operation], tuple(after), tuple(before) if has_before else None
    template = form.templates.get(image) or form.new_template(image)
    change_mask = coding.mask(frozenset(changed)) if operation == Operation.MODIFY else template.change_mask
    places = [after[name] for name, _ in template.data] + [before[name] for name, _ in template.before]
    end = len(key_names) + len(known_of_steps)
    # The last are sequence, timestamp and stream position; of a transaction nothing is known.
    known_values = [
        *[None] * (len(places) + 3), coding.digits(transaction_text(None)), change_mask, coding.null, coding.null,
    ]  # fmt: skip
    return with_values(template, known_values), itemgetter(*places, end, end + 1, end + 2), has_before


_NOT_OF_PREFIXES: Final = str.maketrans("", "", "-:T.")


def sequence_prefix(timestamp: str) -> str:
    """The prefix of the change sequence of a change that has this timestamp."""
    return timestamp[:22].translate(_NOT_OF_PREFIXES)
