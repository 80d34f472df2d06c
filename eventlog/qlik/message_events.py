"""A publisher's events to messages, straight from their steps: what ``message_writer`` makes of their Changes, sooner
(spec/qlik.md 5.3).

Events of one shape are laid out alike. What follows from a shape is put together once, as in ``message_template``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from eventlog.changes.events import OPERATIONS, attribute_reader
from eventlog.changes.format import key_reader
from eventlog.core.catalog import ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.typed import ReadValue, value_reader
from eventlog.core.values import Kind, ValueOptions
from eventlog.errors import FormatError, RowError
from eventlog.model import ALL, KafkaRecord, Operation
from eventlog.qlik.columns import TEXT_TYPES
from eventlog.qlik.message_template import MOST_TEMPLATES, TableForm, with_values
from eventlog.qlik.sequence import next_sequence, transaction_text

if TYPE_CHECKING:
    from eventlog.qlik.message_writer import MessageWriter

_ADD: Final = Operation.ADD  # a bound name: an enumeration's members are looked up slowly
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


WriteOutgoing = Callable[[Outgoing, str, str | None], KafkaRecord | None]
"""An event of a class, the ``timestamp`` of its first row, its change sequence as of ``MessageWriter.messages`` -> its
message; None if the event is to go by way of Change.
"""


def outgoing_writer(
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
