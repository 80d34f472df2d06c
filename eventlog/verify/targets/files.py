"""Documents in files or objects as a target (spec/verify.md 4.2): the events are applied one after
the other, which gives the last state of each object.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eventlog.changes.format import Format, Report
from eventlog.changes.keys import key_text, with_key
from eventlog.changes.publishing import row_attributes
from eventlog.conversion import read_changes
from eventlog.core.catalog import Attribute, Database, ObjectClass
from eventlog.core.typed import to_text, values_of, xds_value_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError
from eventlog.model import Change, ChangeOp, Row, Value, old_key
from eventlog.verify.comparison import StoredAs, TargetRow
from eventlog.verify.targets import Target
from eventlog.verify.targets.places import Place, PlacedFile
from eventlog.verify.targets.states import State, States


class FilesTarget(Target):
    """The documents at a place.

    ``dialect`` and ``schema`` belong to the source; ``options`` are the options of the format's
    reader; ``values`` are the options with which the publisher wrote the values, if the format is
    XDS.
    """

    is_pinned = True

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
        self._states: States | None = None

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
        """Apply the documents that were not applied yet; apply all of them again if an applied
        document has changed or is missing, or if a new one comes before it.
        """
        files = self._place.files(self._format.suffixes)
        if not files and not self._applied:
            raise ConfigError(
                f"{self._place} has no {self._format.title}: correct --target or --format"
            )
        before = [one for one in files if one.name in self._applied]
        new = [one for one in files if one.name not in self._applied]
        last = max((one.order for one in before), default=None)
        if (
            self._states is None
            or {one.name: one for one in before} != self._applied
            or (new and last is not None and new[0].order < last)
        ):
            self.close()
            self._states, self._applied = States(), {}
            new = files
        for file in new:
            self._apply_file(file, classes)
            self._applied[file.name] = file
        self._target_states.write()

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        return self._target_states.rows(cls.name, keys)

    def other_keys(self, cls: ObjectClass, size: int) -> Generator[list[str], None, None]:
        return self._target_states.other_keys(cls.name, size)

    def close(self) -> None:
        if self._states is not None:
            self._states.close()

    @property
    def _target_states(self) -> States:
        assert self._states is not None
        return self._states

    def _apply_file(self, file: PlacedFile, classes: Collection[ObjectClass]) -> None:
        by_name = {cls.name: cls for cls in classes}
        options = {"catalog": _described(self._dialect, classes), **self._options}
        with self._place.opened(file.name) as path:
            # An unreadable input ends the verification, since the state of its objects would be
            # wrong.
            report = Report(strict=True)
            for change in read_changes(self._format.name, path, report=report, **options):
                cls = by_name.get(change.table)
                if cls is not None:
                    self._apply(cls, change)

    def _apply(self, cls: ObjectClass, change: Change) -> None:
        states = self._target_states
        if change.op is ChangeOp.TRUNCATE:
            states.clear(cls.name)
            return
        change = with_key(change, cls)
        assert change.key is not None
        key = key_text(change, change.key, cls)
        if change.op is ChangeOp.DELETE:
            states.put(cls.name, key, None)
            return
        former = old_key(change)
        before = key if former in (None, change.key) else key_text(change, former, cls)
        state = states.get(cls.name, before)
        if before != key:
            states.put(cls.name, before, None)
        if state is None:
            # An insert leaves NULLs out. If there is only an update, the values of all other
            # columns are unknown.
            is_new = change.op is not ChangeOp.UPDATE
            state = {one.name: [] for one in self.attributes(cls)} if is_new else {}
        names = {one.name: one for one in self.attributes(cls)}
        for name, value in (change.after or {}).items():
            if name in names:
                _set(state, names[name], value, change.before)
        states.put(cls.name, key, state)


def _set(state: State, attribute: Attribute, value: Value, before: Row | None) -> None:
    """Give an attribute its new value; a multi-valued attribute gets the added values and loses the
    removed ones (spec/change-model.md 3.1).
    """
    texts: list[str | None] = [to_text(one) for one in values_of(value)]
    name = attribute.name
    if attribute.multi_valued and before is not None and name in before:
        removed = {to_text(one) for one in values_of(before[name])}
        texts = [one for one in state.get(name, ()) if one not in removed] + texts
    state[name] = list(dict.fromkeys(texts))


def _described(dialect: str, classes: Iterable[ObjectClass]) -> Database:
    """Return the tables of classes as a catalogue for readers. Child tables have no key in it,
    since with a key they would be classes.
    """
    tables = [cls.table for cls in classes]
    tables += [replace(child.table, primary_key=()) for cls in classes for child in cls.children]
    return Database(dialect, None, tuple(tables))


def _as_document(attribute: Attribute, values: ValueOptions) -> StoredAs:
    """Return the function that converts a value to its XDS form and back."""
    read = xds_value_reader(attribute.value_type, attribute.column.type, values)
    return lambda text: to_text(read(attribute.convert(text)))
