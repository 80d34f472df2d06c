"""Changes to messages (spec/qlik.md 5, 7; spec/change-model.md 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.changes.from_events import OPERATIONS, attribute_reader
from eventlog.changes.keys import key_reader
from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, FormatError, NeedsQueryBack, NeedsRowCodec, NotExpressible, RowError
from eventlog.model import ALL, Change, ChangeOp, Operation, Row, differing, full_name
from eventlog.qlik import avro, masks, message_template, metadata
from eventlog.qlik.columns import TEXT_TYPES, QlikColumn, columns_from_json
from eventlog.qlik.envelope import (
    DATA,
    METADATA,
    Written,
    avro_envelope,
    avro_envelope_start,
    json_envelope,
    json_envelope_start,
)
from eventlog.qlik.message_options import WriteOptions
from eventlog.qlik.message_template import Coding, KeyOf, Shape, Template, avro_coding, json_coding, with_values
from eventlog.qlik.metadata import LearntColumns, MessageTable, checked_topic, topic_of
from eventlog.qlik.registry import Registry, prefix_of
from eventlog.qlik.sequence import (
    LENGTH,
    PREFIX_LENGTH,
    WriterState,
    is_sequence,
    next_sequence,
    resume,
    transaction_text,
)

_UNKNOWN_TIME: Final = "1970-01-01T00:00:00.000"
_MOST_TEMPLATES: Final = 256
# Bound names: each saves two look-ups a message.
_UPDATE, _DELETE, _TRUNCATE = ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


@dataclass(frozen=True, slots=True)
class _Form:
    """How the messages of one table version are written: what only depends on the table, and what was made of it.

    ``columns``: those that the options give it, None = they do not. ``rounded``: columns that keep milliseconds only.
    ``is_whole``: a row before can leave nothing out.
    """

    table: MessageTable
    columns: tuple[QlikColumn, ...] | None
    full_name: str
    topic: str
    coding: Coding[Any]
    key_of: KeyOf
    announcement: Written | None
    rounded: tuple[str, ...]
    is_whole: bool
    templates: dict[Shape, Template[Any]] = field(default_factory=dict)


WriteOutgoing = Callable[[Outgoing, datetime | None, str | None], Written | None]
"""An event of a class, the time of its first row, its change sequence as of ``MessageWriter.messages`` -> its message;
None if the event is to go by way of Change.
"""


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
        self._learnt: dict[tuple[str | None, str], LearntColumns] = {}
        self._forms: dict[tuple[str | None, str], _Form] = {}
        self._announced: dict[tuple[str | None, str], _Form] = {}
        self.generation = 0

    def messages(self, change: Change, sequence: str | None = None) -> tuple[Written, ...]:
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

    def _form(self, change: Change) -> _Form:
        name = change.schema, change.table
        form = self._forms.get(name)
        if form is not None:
            columns = form.columns or self.columns.get(form.full_name)
            if columns is form.table.columns:  # as nearly always
                return form
        table = full_name(change.schema, change.table)
        described = self._described.get(table)
        columns = described or self.columns.get(table)
        if columns is None:
            learnt = self._learnt.setdefault(name, LearntColumns())
            learnt.learn(change)
            columns = learnt.columns
        if form is not None and form.table.columns == columns:
            return form
        version = 1 if form is None else form.table.version + 1
        form = self._forms[name] = self._formed(MessageTable(change.schema, change.table, columns, version), described)
        self.generation += 1
        return form

    def _formed(self, table: MessageTable, described: tuple[QlikColumn, ...] | None) -> _Form:
        options = self._options
        masks.check_capacity(table.layout)
        topic = topic_of(table.schema, table.name) if options.topic is None else checked_topic(options.topic)
        schema = metadata.text_of(metadata.data_schema(table, options))
        if options.metadata == "publish" or options.external_schema_id:
            table = replace(table, schema_id=metadata.schema_id(table, schema))
        times = table.columns if options.encoding == "avro" and options.logical_types else ()
        key_of = self._key_of(table, topic)
        return _Form(
            table,
            described,
            table.full_name,
            topic,
            self._coding(table, topic, schema),
            key_of,
            self._announcement(table, schema),
            tuple(column.name for column in times if column.type == "TIME"),
            options.encoding == "avro",
        )

    def _key_of(self, table: MessageTable, topic: str) -> KeyOf:
        options = self._options
        if options.key == "table":
            return message_template.table_key(table)
        if options.key == "none" or not table.key:
            return message_template.no_key
        if options.encoding == "json":
            return message_template.primary_key(table)
        schema = metadata.text_of(metadata.key_schema(table, options))
        prefix = b"" if self._registry is None else prefix_of(self._registry.register(f"{topic}-key", schema))
        return message_template.avro_primary_key(table, prefix, options.logical_types)

    def _coding(self, table: MessageTable, topic: str, schema: str) -> Coding[Any]:
        options = self._options
        schema_id = table.schema_id if options.metadata == "publish" else None
        if options.encoding == "json":
            return json_coding(table, options, json_envelope_start(DATA, schema_id, None))
        avro.parsed(schema)  # columns that no schema can describe are refused here
        if self._registry is not None:
            prefix = prefix_of(self._registry.register(f"{topic}-value", schema))
            return avro_coding(table, options, lambda record: prefix + record)
        start = avro_envelope_start(DATA, schema_id, None)
        return avro_coding(table, options, lambda record: start + avro.data(record))

    def _announcement(self, table: MessageTable, schema: str) -> Written | None:
        options = self._options
        if options.metadata != "publish":
            return None
        message = metadata.metadata_message(table, schema, options, self._utc_now())
        own_schema = metadata.text_of(metadata.metadata_schema(table))
        own_id = metadata.schema_id(table, own_schema)
        if options.encoding == "json":
            value = json_envelope(METADATA, own_id, own_schema, message)
        else:
            value = avro_envelope(METADATA, own_id, own_schema, avro.to_bytes(own_schema, message))
        return Written(checked_topic(options.metadata_topic), (table.schema_id or "").encode(), value)

    # --- the message ---

    def _message(self, change: Change, form: _Form, image: Row, sequence: str | None) -> Written:
        op, before = change.op, change.before
        if op is not _UPDATE:
            before = None
        elif before is not None and form.is_whole:
            before = self._whole_before(change, image, before, form)
        shape = op, tuple(image), None if before is None else tuple(before)
        template = form.templates.get(shape) or _new_template(form, shape, image)
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
                digits(_timestamp(change.commit_time)),
                coding.text(stream_position),
                digits(transaction_text(change.transaction_id)),
                template.change_mask if changed is None else coding.mask(changed),
            )
            number, is_last = change.event_number, change.last_in_transaction
        else:  # a REFRESH, which belongs to no transaction
            number = is_last = None
        values.append(null if number is None else coding.number(number))
        values.append(null if is_last is None else coding.flag(is_last))
        parts = template.parts.copy()
        parts[1::2] = values
        return _new(Written, (form.topic, form.key_of(image), coding.wrap(parts)))

    def _whole_before(self, change: Change, after: Row, before: Row, form: _Form) -> Row | None:
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

    def _count_rounded(self, form: _Form, row: Row) -> None:
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
        self.state, sequence = next_sequence(self.state, change.commit_time, with_before=with_before)
        return sequence, position or ""


@lru_cache(maxsize=1024)
def _is_time(prefix: str) -> bool:
    """Whether a position of digits is a change sequence; times are few, since changes come many at a time."""
    return is_sequence(prefix.ljust(LENGTH, "0"))


def _outgoing_writer(
    writer: MessageWriter, form: _Form, object_class: ObjectClass, values: ValueOptions
) -> WriteOutgoing | None:
    coding, topic, key_of = form.coding, form.topic, form.key_of
    null, digits, text, wrap = coding.null, coding.digits, coding.text, coding.wrap
    key_names = [column.name for column in object_class.key]
    if not {*key_names, *form.table.key} <= coding.writers.keys() & set(key_names):
        return None  # columns of the options that are not those of the class
    read_key = key_reader(object_class)
    key_writers = [coding.writers[name] for name in key_names]
    writers = {
        attribute: _text_writer(form, attribute, values)
        for attribute in object_class.attributes
        if not attribute.multi_valued and attribute.name in coding.writers and attribute.name not in key_names
    }
    layouts: dict[tuple[object, ...], _Layout | None] = {}

    def write(event: Outgoing, time: datetime | None, sequence: str | None) -> Written | None:
        event_id, _, object_id, operation, steps, _, _, _, _ = event
        assert object_id is not None
        assert steps is not None
        state = writer.state
        shape: list[object] = [operation]
        try:
            key = read_key(object_id[1])
            forms = [write_key(value) for write_key, (_, value) in zip(key_writers, key, strict=True)]
            for _, _, _, attribute, old, new in steps:
                write_text = writers[attribute]  # type: ignore[index]
                forms.append(null if new is None else write_text(new))  # type: ignore[arg-type]
                if old is ALL:
                    shape.append(attribute)
                else:
                    shape += (attribute, True)
                    forms.append(null if old is None else write_text(old))  # type: ignore[arg-type]
            known = tuple(shape)
            layout = layouts.get(known)
            if layout is None:
                layout = _layout(form, key_names, event)
                if layout is None:
                    return None
                if len(layouts) >= _MOST_TEMPLATES:
                    layouts.clear()
                layouts[known] = layout
            constants, pick, has_before = layout
            record_key = key_of(dict(key))
            if sequence is None:
                writer.state, sequence = next_sequence(writer.state, time, with_before=has_before)
            forms += (digits(sequence), digits(_timestamp(time)), text(event_id))
            parts = constants.copy()
            parts[1::2] = pick(forms)
            return _new(Written, (topic, record_key, wrap(parts)))
        except (FormatError, RowError, LookupError, TypeError, AttributeError, ValueError):
            writer.state = state
            return None  # by way of Change it is said what is wrong

    return write


def _text_writer(form: _Form, attribute: Attribute, values: ValueOptions) -> Callable[[str], Any]:
    """What writes the texts of an attribute as its values are written."""
    read = attribute_reader(attribute.value_type, attribute, values)
    write = form.coding.writers[attribute.name]
    if read is not str:
        return lambda text: write(read(text))
    column = next(column for column in form.table.columns if column.name == attribute.name)
    return form.coding.string if column.type in TEXT_TYPES else write


_Layout = tuple[list[Any], Callable[[Sequence[Any]], tuple[Any, ...]], bool]
"""The parts of a message, what picks the values of its odd places out of those of an event, and whether it holds the
row before.
"""


def _layout(form: _Form, key_names: Sequence[str], event: Outgoing) -> _Layout | None:
    """The layout of all events that have the operation, the attributes and the known old values of this one.

    None if they go by way of Change: an attribute has several steps, or old values are known of some attributes alone
    and nothing can be left out.
    """
    operation, steps = event.operation, event.steps or ()
    assert operation is not None
    names = [attribute.name for _, _, _, attribute, _, _ in steps if attribute is not None]
    if len(set(names)) < len(names) or (names and operation == Operation.DELETE):
        return None
    # Where the value of each column stands among those of an event: that after it, and that before.
    after = {name: place for place, name in enumerate(key_names)}
    before = dict(after)
    end = len(after)
    for (_, _, _, _, old, _), name in zip(steps, names, strict=True):
        after[name] = end
        end += 1
        if old is not ALL:
            before[name] = end
            end += 1
    has_before = operation == Operation.MODIFY and len(before) > len(key_names)
    if has_before and form.is_whole and len(before) < len(after):
        return None
    coding = form.coding
    shape = OPERATIONS[operation], tuple(after), tuple(before) if has_before else None
    template = form.templates.get(shape) or _new_template(form, shape, {})
    change_mask = coding.mask(frozenset(names)) if operation == Operation.MODIFY else template.change_mask
    places = [after[name] for name, _ in template.data] + [before[name] for name, _ in template.before]
    # The last are sequence, timestamp and stream position; of a transaction nothing is known.
    known = [*[None] * (len(places) + 3), coding.digits(transaction_text(None)), change_mask, coding.null, coding.null]
    return with_values(template, known), itemgetter(*places, end, end + 1, end + 2), has_before


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


def _new_template(form: _Form, shape: Shape, image: Row) -> Template[Any]:
    table = form.table
    if not image.keys() <= table.fields.keys():
        name = min(image.keys() - table.fields.keys())
        if isinstance(image[name], tuple):
            raise NotExpressible(f"{name!r} of {table.full_name!r} has several values: a message has one a column")
        raise NotExpressible(f"the columns of {table.full_name!r} have no {name!r}: name it in the option columns")
    if len(form.templates) >= _MOST_TEMPLATES:
        form.templates.clear()
    template = form.templates[shape] = form.coding.template(shape)
    return template


def _timestamp(moment: datetime | None) -> str:
    """``YYYY-MM-DDTHH:MM:SS.mmm`` of an aware moment, in UTC; the epoch if it is not known."""
    if moment is None:
        return _UNKNOWN_TIME
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # Half the time of isoformat, which asks for the zone once more, and of an f-string.
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03d" % (  # noqa: UP031
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond // 1000,
    )  # fmt: skip
