"""A table as its messages describe it: its columns with their ordinals, types and key, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.model import Change
from eventlog.qlik import masks
from eventlog.qlik.columns import QlikColumn, infer_columns, infer_type, key_of, lobs_of
from eventlog.qlik.masks import MaskLayout
from eventlog.qlik.message_names import field_names


@dataclass(frozen=True, slots=True)
class MessageTable:
    """A table and one version of its structure. ``version`` is raised with every change of ``columns``.

    ``schema_id`` names the payload schema, None = the messages name none.
    """

    schema: str | None
    name: str
    columns: tuple[QlikColumn, ...]
    version: int = 1
    schema_id: str | None = None
    fields: dict[str, str] = field(init=False, compare=False)
    layout: MaskLayout = field(init=False, compare=False)
    key: tuple[str, ...] = field(init=False, compare=False)
    lobs: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for attribute, value in (
            ("fields", field_names(names, self.name)),
            ("layout", masks.layout(names)),
            ("key", key_of(self.columns)),
            ("lobs", lobs_of(self.columns)),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def full_name(self) -> str:
        """``<schema>.<table>``, the name that options know it by."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class LearntColumns:
    """The columns of a table that nothing describes, learnt from its changes; new ones come behind the known."""

    __slots__ = ("_examples", "_types", "columns")

    def __init__(self) -> None:
        self.columns: tuple[QlikColumn, ...] = ()
        self._types: dict[str, str] = {}
        self._examples: list[Change] = []

    def learn(self, change: Change) -> bool:
        """Take a change into account. Whether the columns are others now."""
        if self._fits(change):
            return False
        columns = infer_columns([*self._examples, change])
        if columns == self.columns:
            return False
        self._examples.append(change)
        self.columns, self._types = columns, {column.name: column.type for column in columns}
        return True

    def _fits(self, change: Change) -> bool:
        types = self._types
        rows = (dict(change.key or ()), change.after or {}, change.before or {})
        return all(
            name in types and (value is None or infer_type(value) == types[name])
            for row in rows
            for name, value in row.items()
        )
