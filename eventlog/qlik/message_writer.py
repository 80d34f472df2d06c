"""Changes to messages (spec/qlik.md 5, 7; spec/change-model.md 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from eventlog.errors import ConfigError, NeedsQueryBack, NeedsRowCodec, NotExpressible
from eventlog.formats import Report
from eventlog.model import Change, ChangeOp, Row, differing
from eventlog.qlik import masks, message_key, metadata
from eventlog.qlik.columns import QlikColumn, columns_from_json
from eventlog.qlik.envelope import DATA, METADATA, json_envelope
from eventlog.qlik.message import Written
from eventlog.qlik.message_key import KeyOf
from eventlog.qlik.message_names import checked_topic, topic_of
from eventlog.qlik.message_options import WriteOptions
from eventlog.qlik.message_table import LearntColumns, MessageTable
from eventlog.qlik.message_values import Convert, avro_writer, json_writer
from eventlog.qlik.registry import Registry, prefix_of
from eventlog.qlik.sequence import LENGTH, PREFIX_LENGTH, WriterState, is_sequence, next_sequence, resume
from eventlog.qlik.transactions import transaction_text

_UNKNOWN_TIME: Final = "1970-01-01T00:00:00.000"
_MOST_MASKS: Final = 1024


class _Form(NamedTuple):
    """How the messages of one table version are written: a coding, and what only depends on the table."""

    table: MessageTable
    topic: str
    columns: tuple[tuple[str, str, Convert], ...]  # name, field, value -> what stands in the message
    mask: Callable[[frozenset[str]], str | bytes]
    has_absent_fields: bool  # whether a row may leave a column out
    key_of: KeyOf
    wrap: Callable[[dict[str, Any]], bytes]
    announcement: Written | None
    rounded: tuple[str, ...]  # columns that keep milliseconds only


class MessageWriter:
    """Writes the changes of one task, in their order.

    ``columns``: those of tables that the option ``columns`` does not name, by their full names; they may be others at
    any time. ``state`` is what it has numbered so far; ``utc_now`` stamps metadata messages. The report counts what is
    skipped.
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
        self._given = {name: columns_from_json(each, what=name) for name, each in options.columns.items()}
        self.columns: Mapping[str, tuple[QlikColumn, ...]] = columns or {}
        self._learnt: dict[tuple[str | None, str], LearntColumns] = {}
        self._forms: dict[tuple[str | None, str], _Form] = {}
        self._announced: dict[tuple[str | None, str], _Form] = {}

    def messages(self, change: Change) -> Iterator[Written]:
        """The messages of a change: none for TRUNCATE, an MD first where the table is new or has changed.

        Raises NotExpressible, ValueRange, NeedsQueryBack, NeedsRowCodec; RegistryError.
        """
        if change.op is ChangeOp.TRUNCATE:
            if self._options.on_truncate == "error":
                raise NotExpressible(f"TRUNCATE of {change.table!r} cannot be written as a message (on_truncate)")
            self._report.count("truncate_skipped")
            return
        _need_row(change)
        state = self.state
        try:
            form = self._form(change)
            record, key = self._record(change, form)
            message = Written(form.topic, key, form.wrap(record))
        except NotExpressible as error:
            self.state = state  # what is not written takes no number
            raise type(error)(f"{_place(change)}: {error}") from None
        except UnicodeEncodeError as error:
            self.state = state
            raise NotExpressible(f"{_place(change)}: text with half a character: {error.reason}") from None
        name = change.schema, change.table
        if form.announcement is not None and self._announced.get(name) is not form:
            self._announced[name] = form
            yield form.announcement
        yield message

    def announce_again(self) -> None:
        """Write each table's MD again before its next message, since what was written may be lost."""
        self._announced.clear()

    # --- the table ---

    def _form(self, change: Change) -> _Form:
        full_name = change.table if change.schema is None else f"{change.schema}.{change.table}"
        name = change.schema, change.table
        form = self._forms.get(name)
        columns = self._given.get(full_name) or self.columns.get(full_name)
        if columns is None:
            learnt = self._learnt.setdefault(name, LearntColumns())
            learnt.learn(change)
            columns = learnt.columns
        if form is not None and (form.table.columns is columns or form.table.columns == columns):
            return form
        version = 1 if form is None else form.table.version + 1
        form = self._forms[name] = self._formed(MessageTable(change.schema, change.table, columns, version))
        return form

    def _formed(self, table: MessageTable) -> _Form:
        options = self._options
        masks.check_capacity(table.layout)
        topic = topic_of(table.schema, table.name) if options.topic is None else checked_topic(options.topic)
        schema = metadata.text_of(metadata.data_schema(table, options))
        if options.metadata == "publish" or options.external_schema_id:
            table = replace(table, schema_id=metadata.schema_id(table, schema))
        is_json = options.encoding == "json"
        names = tuple((column.name, table.fields[column.name]) for column in table.columns)
        writers = [
            json_writer(column) if is_json else avro_writer(column, options.logical_types) for column in table.columns
        ]
        columns = tuple((*name, write) for name, write in zip(names, writers, strict=True))
        times = () if is_json or not options.logical_types else table.columns
        return _Form(
            table,
            topic,
            columns,
            _mask_writer(table, options),
            is_json,
            self._key_of(table, topic),
            self._wrap(table, topic, schema),
            self._announcement(table, schema),
            tuple(column.name for column in times if column.type == "TIME"),
        )

    def _key_of(self, table: MessageTable, topic: str) -> KeyOf:
        options = self._options
        if options.key == "table":
            return message_key.table_key(table)
        if options.key == "none" or not table.key:
            return message_key.no_key
        if options.encoding == "json":
            return message_key.primary_key(table)
        schema = metadata.text_of(metadata.key_schema(table, options))
        prefix = b"" if self._registry is None else prefix_of(self._registry.register(f"{topic}-key", schema))
        return message_key.avro_primary_key(table, schema, prefix, options.logical_types)

    def _wrap(self, table: MessageTable, topic: str, schema: str) -> Callable[[dict[str, Any]], bytes]:
        options = self._options
        schema_id = table.schema_id if options.metadata == "publish" else None
        if options.encoding == "json":
            return lambda record: json_envelope(DATA, schema_id, None, record)
        from eventlog.qlik import avro
        from eventlog.qlik.envelope import avro_envelope

        if self._registry is not None:
            prefix = prefix_of(self._registry.register(f"{topic}-value", schema))
            return lambda record: prefix + avro.to_bytes(schema, record)
        return lambda record: avro_envelope(DATA, schema_id, None, avro.to_bytes(schema, record))

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
            from eventlog.qlik import avro
            from eventlog.qlik.envelope import avro_envelope

            value = avro_envelope(METADATA, own_id, own_schema, avro.to_bytes(own_schema, message))
        return Written(checked_topic(options.metadata_topic), (table.schema_id or "").encode(), value)

    # --- the record ---

    def _record(self, change: Change, form: _Form) -> tuple[dict[str, Any], bytes | None]:
        """The payload of a data message, and the record's key."""
        table = form.table
        image: Row = change.before if change.op is ChangeOp.DELETE else change.after  # type: ignore[assignment]
        image = {**dict(change.key or ()), **(image or {})}
        if not image.keys() <= table.fields.keys():
            name = min(image.keys() - table.fields.keys())
            reason = "which has several values" if isinstance(image[name], tuple) else "name it in the option columns"
            raise NotExpressible(f"the columns of {table.full_name!r} have no {name!r}: {reason}")
        before = change.before if change.op is ChangeOp.UPDATE else None
        if before is not None and not form.has_absent_fields:
            before = self._whole_before(change, image, before, table)
        absent = change.op is ChangeOp.REFRESH and form.has_absent_fields
        record: dict[str, Any] = {}
        headers = self._headers(change, form, image, before is not None)
        if self._options.names != "off":
            holder = record if self._options.names == "message" else headers
            holder |= {"schema": table.schema or "", "table": table.name}
        record["data"] = self._row(form, image, table.fields.keys() - image.keys() if absent else ())
        record["beforeData"] = None
        if before is not None:
            record["beforeData"] = self._row(form, before, image.keys() - before.keys())
        record["headers"] = headers
        return record, form.key_of(image)

    def _row(self, form: _Form, image: Row, absent: Any) -> dict[str, Any]:
        for name in form.rounded:
            if (clock := image.get(name)) is not None and getattr(clock, "microsecond", 0) % 1000:
                self._report.count(f"truncated {form.table.full_name}.{name}")
        return {
            field: None if (value := image.get(name)) is None else write(value)
            for name, field, write in form.columns
            if name not in absent
        }

    def _whole_before(self, change: Change, after: Row, before: Row, table: MessageTable) -> Row | None:
        """A row before that knows what the row after knows, since in Avro no column can be left out of it.

        What has not changed was the same before. None where a changed column is not known: what stood there would be
        read as NULL.
        """
        unknown = after.keys() - before.keys()
        if not unknown:
            return before
        if change.changed is None or change.changed & unknown or table.lobs & unknown:
            self._report.count(f"before_image_dropped {table.full_name}")
            return None
        return {**before, **{name: after[name] for name in unknown}}

    def _headers(self, change: Change, form: _Form, image: Row, with_before: bool) -> dict[str, Any]:
        options, table = self._options, form.table
        if change.op is ChangeOp.REFRESH:
            headers: dict[str, Any] = {
                "operation": "REFRESH",
                "changeSequence": "",
                "timestamp": "",
                "streamPosition": "",
                "transactionId": "",
                "changeMask": None,
                "columnMask": None,
            }
        else:
            sequence, stream_position = self._numbered(change, with_before)
            headers = {
                "operation": change.op.value,
                "changeSequence": sequence,
                "timestamp": _timestamp(change.commit_time),
                "streamPosition": stream_position,
                "transactionId": transaction_text(change.transaction_id),
                "changeMask": form.mask(_mask_columns(change, table, image)),
                "columnMask": form.mask(frozenset(image)),
            }
        if options.external_schema_id:
            headers["externalSchemaId"] = None if change.op is ChangeOp.REFRESH else table.schema_id
        return headers | {
            "transactionEventCounter": change.event_number,
            "transactionLastEvent": change.last_in_transaction,
        }

    def _numbered(self, change: Change, with_before: bool) -> tuple[str, str]:
        """Change sequence and stream position: a change that has a sequence keeps it (spec/change-model.md 4)."""
        position = change.position
        if position is not None and _is_sequence(position):
            prefix, number = position[:PREFIX_LENGTH], int(position[PREFIX_LENGTH:])
            self.state = WriterState(max(self.state.prefix, prefix), max(self.state.number, number))
            return position, str(change.extras.get("stream_position") or "")
        self.state, sequence = next_sequence(self.state, change.commit_time, with_before=with_before)
        return sequence, position or ""


def _is_sequence(position: str) -> bool:
    """``is_sequence``, whose dates are few: changes come many at a time."""
    return len(position) == LENGTH and position.isascii() and position.isdigit() and _is_time(position[:PREFIX_LENGTH])


@lru_cache(maxsize=1024)
def _is_time(prefix: str) -> bool:
    return is_sequence(prefix.ljust(LENGTH, "0"))


def _place(change: Change) -> str:
    return f"{change.op} of {change.table!r}, position {change.position}"


def _need_row(change: Change) -> None:
    """Raises NeedsQueryBack, NeedsRowCodec for a change whose row is not known."""
    if change.after is not None or (change.op is ChangeOp.DELETE and (change.before is not None or change.key)):
        return
    if "part1" in change.extras:
        raise NeedsRowCodec(f"{change.op} of {change.table!r}: its row image has no codec, which messages need")
    raise NeedsQueryBack(f"{change.op} of {change.table!r}, position {change.position}: its row is to be read back")


def _mask_columns(change: Change, table: MessageTable, image: Row) -> frozenset[str]:
    """The columns of the changeMask (spec/qlik.md 5.3)."""
    if change.op is ChangeOp.DELETE:
        return frozenset(table.key or table.fields)
    if change.op is ChangeOp.INSERT:
        return frozenset(image) - table.lobs
    changed = change.changed
    if changed is None and change.before is not None and change.after is not None:
        changed = differing(change.before, change.after)
    if changed is None:
        changed = frozenset(image) - frozenset(table.key)
    return changed - table.lobs


def _mask_writer(table: MessageTable, options: WriteOptions) -> Callable[[frozenset[str]], str | bytes]:
    """The mask of a set of columns. Statements are few, so few sets come again and again."""
    layout = table.layout
    order: Literal["big", "little"] = "big" if options.byteorder == "big" else "little"

    @lru_cache(maxsize=_MOST_MASKS)
    def mask(columns: frozenset[str]) -> str | bytes:
        bits = layout.bits(columns & table.fields.keys())
        if options.encoding == "json":
            return masks.message_text(layout, bits)
        return masks.message_bytes(layout, bits, order)

    return mask


def _timestamp(moment: datetime | None) -> str:
    if moment is None:
        return _UNKNOWN_TIME
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6]  # without the zone
