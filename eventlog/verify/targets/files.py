"""Documents in files or objects as a target (spec/verify.md 4.2): the events are applied one after
the other, which gives the last state of each object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from eventlog.changes.format import Format, Report, RowTexts
from eventlog.changes.keys import key_text, with_key
from eventlog.changes.publishing import row_attributes
from eventlog.conversion import read_texts
from eventlog.core.catalog import Attribute, Database, ObjectClass
from eventlog.core.values import ValueOptions
from eventlog.core.values.typed_values import to_text, values_of, xds_value_reader
from eventlog.errors import ConfigError
from eventlog.model import Change, ChangeOp, Row, Value, old_key
from eventlog.verify.comparison import UNKNOWN, Entry, StoredAs
from eventlog.verify.targets.places import Place, PlacedFile
from eventlog.verify.targets.states import State, States, StatesTarget

_AT_ONCE: Final = 1_000
"""The maximum number of changes whose earlier states are read with one statement."""


class _RowText(NamedTuple):
    """A change of ``RowTexts``."""

    key: str
    is_insert: bool
    texts: Mapping[str, str | None]


class _Class(NamedTuple):
    """A class, and those of its attributes that documents hold, each with its place in a state."""

    cls: ObjectClass
    attributes: Mapping[str, tuple[int, Attribute]]
    nothing: State
    """The state of an object whose values are all NULL."""

    @property
    def is_multi_valued(self) -> bool:
        """True if an attribute can have several values."""
        return [] in self.nothing


class FilesTarget(StatesTarget):
    """The documents at a place.

    ``dialect`` and ``schema`` belong to the source; ``options`` are the options of the format's
    reader; ``values`` are the options with which the publisher wrote the values, if the format is
    XDS.
    """

    def __init__(
        self,
        place: Place,
        format: Format,
        dialect: str,
        options: Mapping[str, Any],
        values: ValueOptions | None = None,
    ) -> None:
        if not format.can("read_changes"):
            raise format.lacks("read_changes")
        self._place, self._format, self._dialect = place, format, dialect
        self._options, self._values = options, values
        self._applied: dict[str, PlacedFile] = {}
        self._classes: dict[str, _Class] = {}

    def __str__(self) -> str:
        return f"{self._format.name} in {self._place}"

    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        if self._format.is_of_rows:
            return row_attributes(cls)
        return [one for one in cls.attributes if not one.is_key]

    def stored_as(self, cls: ObjectClass) -> Mapping[str, StoredAs]:
        if self._values is None:
            return {}
        return {one.name: _as_document(one, self._values) for one in self.attributes(cls)}

    def pin(self, classes: Collection[ObjectClass]) -> None:
        """Apply the documents that were not applied yet; apply all documents again if an applied
        document has changed or is missing, or if a new document comes before an applied document.
        """
        files = sorted(self._place.files(self._format.suffixes), key=lambda one: one.order)
        if not files and not self._applied:
            raise ConfigError(
                f"{self._place} has no {self._format.title}: correct --target or --format"
            )
        before = [one for one in files if one.name in self._applied]
        new = [one for one in files if one.name not in self._applied]
        last = max((one.order for one in before), default=None)
        if (
            self.states is None
            or {one.name: one for one in before} != self._applied
            or (new and last is not None and new[0].order < last)
        ):
            self.close()
            self._classes = {cls.name: _class(cls, self.attributes(cls)) for cls in classes}
            self.states = States({one.cls: list(one.attributes) for one in self._classes.values()})
            self._applied = {}
            new = files
        described = _described(self._dialect, classes)
        for file in new:
            self._apply_file(file, described)
            self._applied[file.name] = file
        self.kept.write()

    def _apply_file(self, file: PlacedFile, described: Database) -> None:
        options = {"catalog": described, **self._options}
        with self._place.opened(file.name) as path:
            # An unreadable input ends the verification, since the state of its objects would be
            # wrong.
            report = Report(strict=True)
            changes = read_texts(self._format, path, report, options)
            waiting: list[_Named] = []
            for change in changes:
                of = self._classes.get(change.table)
                if of is None:
                    continue
                if not isinstance(change, RowTexts):
                    waiting.append(_named(of, change))
                elif of.attributes.keys() <= set(change.names):
                    self._apply_all(waiting)
                    self._put_all(of, change)
                    waiting = []
                else:
                    waiting += _partial(of, change)
                if len(waiting) >= _AT_ONCE:
                    self._apply_all(waiting)
                    waiting = []
            self._apply_all(waiting)

    def _put_all(self, of: _Class, change: RowTexts) -> None:
        """Set the states of objects from rows that have all values."""
        names, rows = tuple(of.attributes), change.rows
        if names != tuple(change.names):
            places = [change.names.index(name) for name in names]
            rows = [[row[place] for place in places] for row in rows]
        self.kept.put_all(of.cls.name, change.keys, rows)

    def _apply_all(self, changes: Sequence[_Named]) -> None:
        """Apply changes one after the other. The states that the changes need are read first."""
        self.kept.read((one.of.cls.name, one.before) for one in changes if one.needs_state)
        for one in changes:
            self._apply(one)

    def _apply(self, one: _Named) -> None:
        states, of, change = self.kept, one.of, one.change
        class_name = of.cls.name
        if isinstance(change, _RowText):
            is_insert = change.is_insert
        elif change.op is ChangeOp.TRUNCATE:
            states.clear(class_name)
            return
        elif change.op is ChangeOp.DELETE:
            states.put(class_name, one.key, None)
            return
        else:
            is_insert = change.op is not ChangeOp.UPDATE
        state = states.get(class_name, one.before) if one.needs_state else None
        if one.before != one.key:
            states.put(class_name, one.before, None)
        if state is None:
            # An insert leaves NULLs out. If there is only an update, the values of all other
            # columns are unknown.
            state = list(of.nothing) if is_insert else [UNKNOWN] * len(of.nothing)
        elif is_insert and any(entry is UNKNOWN for entry in state):
            # An update came before the insert: a receiver that replaces the object on an insert
            # loses the values that only the update has.
            state = [
                nothing if entry is UNKNOWN or entry == nothing else UNKNOWN
                for entry, nothing in zip(state, of.nothing, strict=True)
            ]
        if isinstance(change, _RowText):
            for name, text in change.texts.items():
                if name in of.attributes:
                    state[of.attributes[name][0]] = text
        else:
            for name, value in (change.after or {}).items():
                if name in of.attributes:
                    place, attribute = of.attributes[name]
                    state[place] = _entry(state[place], attribute, value, change.before)
        states.put(class_name, one.key, state)


class _Named(NamedTuple):
    """A change, and the canonical keys of its object before and after the change. The keys are
    empty for TRUNCATE.
    """

    of: _Class
    change: Change | _RowText
    before: str
    key: str
    needs_state: bool
    """True if the object's earlier state has values that the change does not have."""


def _partial(of: _Class, change: RowTexts) -> Iterator[_Named]:
    """Yield the changes of rows that lack values."""
    for key, row in zip(change.keys, change.rows, strict=True):
        texts = dict(zip(change.names, row, strict=True))
        yield _Named(of, _RowText(key, change.is_insert, texts), key, key, needs_state=True)


def _named(of: _Class, change: Change) -> _Named:
    if change.op is ChangeOp.TRUNCATE:
        return _Named(of, change, "", "", needs_state=False)
    change = with_key(change, of.cls)
    assert change.key is not None
    before = key = key_text(change, change.key, of.cls)
    former = change.key if change.before is None else old_key(change)
    if change.op is ChangeOp.DELETE:
        return _Named(of, change, key, key, needs_state=False)
    if former is not None and former != change.key:
        before = key_text(change, former, of.cls)
    return _Named(of, change, before, key, not _is_whole(of, change))


def _class(cls: ObjectClass, attributes: Sequence[Attribute]) -> _Class:
    return _Class(
        cls,
        {one.name: (place, one) for place, one in enumerate(attributes)},
        [[] if one.multi_valued else None for one in attributes],
    )


def _is_whole(of: _Class, change: Change) -> bool:
    """Return True if a change has all values, so that the earlier state does not matter."""
    after, before = change.after, change.before
    return (
        after is not None
        and after.keys() >= of.attributes.keys()
        and (before is None or not of.is_multi_valued)
    )


def _entry(entry: Entry, attribute: Attribute, value: Value, before: Row | None) -> Entry:
    """Return the new entry of an attribute; a multi-valued attribute gets the added values and
    loses the removed values (spec/change-model.md 3.1).
    """
    if not attribute.multi_valued:
        if value is None or isinstance(value, str):
            return value
        texts = list(dict.fromkeys(map(to_text, values_of(value))))
        return texts[0] if len(texts) == 1 else [*texts] or None
    added = map(to_text, values_of(value))
    if before is None or attribute.name not in before:
        return list(dict.fromkeys(added))
    former = entry if isinstance(entry, list) else []
    removed = {to_text(one) for one in values_of(before[attribute.name])}
    return list(dict.fromkeys([*(one for one in former if one not in removed), *added]))


def _described(dialect: str, classes: Iterable[ObjectClass]) -> Database:
    """Return the tables of classes as a catalogue for readers. Child tables have no key in this
    catalogue, since with a key they would be classes.
    """
    tables = [cls.table for cls in classes]
    tables += [replace(child.table, primary_key=()) for cls in classes for child in cls.children]
    return Database(dialect, None, tuple(tables))


def _as_document(attribute: Attribute, values: ValueOptions) -> StoredAs:
    """Return the function that converts a value to its XDS form and back."""
    read = xds_value_reader(attribute.value_type, attribute.column.type, values)
    return lambda text: to_text(read(attribute.convert(text)))
