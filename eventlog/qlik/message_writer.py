"""Changes to messages (spec/qlik.md 5, 7; spec/change-model.md 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.core.catalog import ObjectClass
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, NeedsQueryBack, NeedsRowCodec, NotExpressible
from eventlog.model import Change, ChangeOp, KafkaRecord, Row, differing, full_name
from eventlog.qlik import avro, masks
from eventlog.qlik.columns import ColumnsSeen, QlikColumn, columns_from_json
from eventlog.qlik.envelope import (
    DATA,
    METADATA,
    Registry,
    avro_envelope,
    avro_envelope_start,
    json_envelope,
    json_envelope_start,
    prefix_of,
)
from eventlog.qlik.message_events import WriteOutgoing, outgoing_writer
from eventlog.qlik.message_tables import (
    MessageTable,
    WriteOptions,
    checked_topic,
    data_schema,
    id_of_schema,
    key_schema,
    metadata_message,
    metadata_schema,
    topic_of,
)
from eventlog.qlik.message_template import (
    Coding,
    KeyOf,
    TableForm,
    avro_coding,
    avro_key,
    constant_key,
    json_coding,
    json_key,
    timestamp_of,
)
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
_UPDATE, _DELETE, _TRUNCATE = ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE
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
        return outgoing_writer(self, form, object_class, values)

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
        table = full_name(change.schema, change.table)
        described = self._described.get(table)
        columns = described or self.columns.get(table)
        if columns is None:
            seen = self._seen.setdefault(name, ColumnsSeen())
            seen.see(change)
            columns = seen.columns()
        if form is not None and form.table.columns == columns:
            return form
        version = 1 if form is None else form.table.version + 1
        form = self._forms[name] = self._formed(MessageTable(change.schema, change.table, columns, version), described)
        self.generation += 1
        return form

    def _formed(self, table: MessageTable, described: tuple[QlikColumn, ...] | None) -> TableForm:
        options = self._options
        masks.check_capacity(table.layout)
        topic = topic_of(table.schema, table.name) if options.topic is None else checked_topic(options.topic)
        schema = data_schema(table, options)
        if options.metadata == "publish" or options.external_schema_id:
            table = replace(table, schema_id=id_of_schema(table, schema))
        times = table.columns if options.encoding == "avro" and options.logical_types else ()
        key_of = self._key_of(table, topic)
        return TableForm(
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
            return constant_key((table.name if table.schema is None else f"{table.schema}+{table.name}").encode())
        if options.key == "none" or not table.key:
            return constant_key(None)
        if options.encoding == "json":
            return json_key
        schema = key_schema(table, options)
        return avro_key(b"" if self._registry is None else prefix_of(self._registry.register(f"{topic}-key", schema)))

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

    def _announcement(self, table: MessageTable, schema: str) -> KafkaRecord | None:
        options = self._options
        if options.metadata != "publish":
            return None
        message = metadata_message(table, schema, options, self._utc_now())
        own_schema = metadata_schema(table)
        own_id = id_of_schema(table, own_schema)
        if options.encoding == "json":
            value = json_envelope(METADATA, own_id, own_schema, message)
        else:
            value = avro_envelope(METADATA, own_id, own_schema, avro.to_bytes(own_schema, message))
        return KafkaRecord(checked_topic(options.metadata_topic), (table.schema_id or "").encode(), value)

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
