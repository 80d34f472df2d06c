"""Keys, rows and transactions of changes as the writers of formats need them (spec/change-model.md 1, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from eventlog.core import table_key
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.typed import to_text, type_of, value_reader
from eventlog.core.values import check_xml, key_normalizer
from eventlog.errors import NeedsQueryBack, NeedsRowCodec, NotExpressible, RowError
from eventlog.model import Change, ChangeOp, Row, Value, column_name, differing, full_name, old_key

_WITHOUT_ROW_AFTER: Final = frozenset((ChangeOp.DELETE, ChangeOp.TRUNCATE))

Key: TypeAlias = tuple[tuple[str, Value], ...]
"""Key columns with their values, in key order."""


def class_of(catalog: Catalog | None, table: str) -> ObjectClass | None:
    """The class of exactly this name, None without a catalog or if it has none."""
    log_name = None if catalog is None else catalog.log_names.get(table)
    return None if log_name is None or log_name.child is not None else log_name.object_class


def may_be_one(schema: str | None, other: str | None) -> bool:
    """Whether two schemas are one, as far as they are known."""
    return schema is None or other is None or schema == other


def class_of_change(catalog: Catalog | None, change: Change) -> ObjectClass | None:
    """The class of a change's table, unless the catalogue is of another schema."""
    if catalog is None or not may_be_one(change.schema, catalog.schema):
        return None
    return class_of(catalog, change.table)


def typed_key(parts: Sequence[table_key.Part], object_class: ObjectClass | None) -> Key:
    """The key of a table_key's parts: text without a class, else typed and in key order.

    Raises BadTableKey against the class's key columns.
    """
    if object_class is None:
        return tuple((part.name, part.value) for part in parts)
    return key_reader(object_class)(object_class.canonical_key(table_key.canonical(parts)))


ReadKey = Callable[[str], Key]
"""The canonical table_key of a class -> its typed key; raises BadValue."""


@lru_cache(maxsize=1024)
def key_reader(object_class: ObjectClass) -> ReadKey:
    """The function that reads the canonical table_keys of the class."""
    columns = [(column.name, len(column.name) + 1, value_reader(column.type)) for column in object_class.key]
    (first, start_of_first, read_first), *more = columns

    def read(text: str) -> Key:
        if '"' in text:
            texts = {part.name: part.value for part in table_key.parse(text)}
            return tuple([(name, read_value(texts[name])) for name, _, read_value in columns])
        # Canonical text without quotes, as nearly all is: names and values stand as they are.
        if not more:
            return ((first, read_first(text[start_of_first:])),)
        parts = zip(columns, text.split("+"), strict=True)
        return tuple([(name, read_value(part[start:])) for (name, start, read_value), part in parts])

    return read


def with_key(change: Change, object_class: ObjectClass | None) -> Change:
    """The change with its key, taken from its images by the class's key columns if it does not say it.

    Raises NotExpressible if the key cannot be known.
    """
    if change.key is not None:
        return change
    image = change.before if change.op is ChangeOp.DELETE else change.after
    if object_class is None or image is None or not all(column.name in image for column in object_class.key):
        raise NotExpressible(
            f"{change.op} of {change.table!r} at {change.position} has no key, which is needed to name its row: "
            "give the key columns by the option of its reader, or by a catalog"
        )
    return change._replace(key=tuple((column.name, image[column.name]) for column in object_class.key))


def refuse_without_row(change: Change) -> None:
    """Raise NeedsRowCodec or NeedsQueryBack for a change whose row is not known (spec/change-model.md 3.1, 3.4)."""
    is_gone = change.op in _WITHOUT_ROW_AFTER
    if (change.before if is_gone else change.after) is not None or (is_gone and change.key is not None):
        return
    what = f"{change.op} of {change.table!r} at {change.position}"
    if "part1" in change.extras:
        raise NeedsRowCodec(f"{what} has its row in raw parts alone: give the reader a row codec")
    if not is_gone:
        raise NeedsQueryBack(f"{what} has no row: read it with a connection to its database")


def old_and_new_key(change: Change) -> tuple[Key, Key]:
    """The key before and after a change that has one; both are the key where it did not move."""
    assert change.key is not None
    old = old_key(change) if change.op is ChangeOp.UPDATE else change.key
    assert old is not None
    return old, change.key


def key_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """The canonical table_key (spec/event-log.md 4.3) of a key of the change's table.

    Raises NotExpressible: a NULL or a value that the class's key column or XML cannot hold.
    """
    try:
        parts = [(name, _normal_text(change, name, value)) for name, value in key]
        text = table_key.key_text(parts)
        if object_class is not None:
            text = object_class.canonical_key(text)
        check_xml(text)
    except RowError as error:
        raise NotExpressible(f"the key of {change.op} of {change.table!r} at {change.position}: {error}") from error
    return text


def refused_column(change: Change, column: str, error: RowError) -> NotExpressible:
    """What a writer raises for a value of a column that has no text in its format."""
    return NotExpressible(f"{change.op} of {change.table!r}, column {column!r}: {error}", column_name(change, column))


def _normal_text(change: Change, name: str, value: Value) -> str:
    if value is None:
        raise NotExpressible(f"key column {name!r} of {change.op} of {change.table!r} at {change.position} is NULL")
    return key_normalizer(type_of(value))(to_text(value))


def written_columns(change: Change) -> list[str]:
    """The non-key columns that an UPDATE is written with, in the order of ``after`` (spec/change-model.md 4).

    Those changed, else those that differ, else all known; and those of ``extras["changed_unknown"]`` that are known.
    """
    after = change.after or {}
    names = change.changed
    if names is None and change.before is not None:
        names = differing(change.before, after)
    if names is None:
        names = frozenset(after)
    names = names | frozenset(change.extras.get("changed_unknown") or ())
    key = dict(change.key or ())
    return [name for name in after if name in names and name not in key]


def transactions(changes: Iterable[Change]) -> Iterator[Iterator[Change]]:
    """The changes of one transaction after the other; each is read to its end before the next.

    A change without a transaction id is a transaction of its own; the end of any other shows by the change behind it,
    since a TRUNCATE that change tables do not count may come behind the last counted one (spec/change-model.md 4).
    """
    coming = iter(changes)
    following: Change | None = None

    def transaction_of(change: Change) -> Iterator[Change]:
        nonlocal following
        yield change
        ended = bool(change.last_in_transaction)
        while change.transaction_id is not None:
            following = next(coming, None)
            if following is None or following.transaction_id != change.transaction_id:
                return
            if ended and (following.op is not ChangeOp.TRUNCATE or following.event_number is not None):
                return
            ended = ended or bool(following.last_in_transaction)
            yield following

    while True:
        first = next(coming, None) if following is None else following
        if first is None:
            return
        following = None
        yield transaction_of(first)


Complete: TypeAlias = Callable[[str | None, str, Key | None], Row | None]
"""Gives the whole row of (schema, table, key), None if there is none (spec/change-model.md 4)."""


def whole_images(
    change: Change, names: frozenset[str], complete: Complete | None, *, needs_before: bool
) -> list[dict[str, Value]]:
    """The rows of a change in a format of whole rows (spec/change-model.md 4): of an UPDATE the old and the new one.

    ``names``: the columns of the table there. ``complete`` is asked once for what is not known; of a deleted row that
    is NULL. ``needs_before``: an UPDATE of which no old row is known has one all the same. Raises NeedsRowCodec,
    NeedsQueryBack if nothing is known of the row, and NotExpressible naming columns that remain unknown or are none of
    ``names``.
    """
    table = full_name(change.schema, change.table)
    if change.before is None and change.after is None and "part1" in change.extras:
        raise NeedsRowCodec(f"a row of {table!r} is there in raw parts alone: give the reader a row codec")
    key = dict(change.key or ())
    is_deleted = change.op is ChangeOp.DELETE
    images = [{**key, **((change.before if is_deleted else change.after) or {})}]
    if change.op is ChangeOp.UPDATE and (change.before or needs_before):
        images.insert(0, {**dict(old_key(change) or ()), **(change.before or {})})
    for image in images:
        if unknown := image.keys() - names:
            raise NotExpressible(
                f"{change.op} of {table!r} has the column {min(unknown)!r}, which its description in the target does "
                "not list: add it there, with a type that the format has",
                column_name(change, min(unknown)),
            )
    if is_deleted:
        return [{**dict.fromkeys(names), **images[0]}]
    if all(names <= image.keys() for image in images):
        return images
    row = None if complete is None else complete(change.schema, change.table, change.key)
    way_out = "read a format that has them, or give the writer's option complete from Python"
    if row is None and change.after is None:
        raise NeedsQueryBack(f"a change of {table!r} has no row: {way_out}")
    row = row or {}
    for image in images:
        if missing := names - image.keys() - row.keys():
            raise NotExpressible(
                f"{change.op} of {table!r} with key {key} lacks the columns {', '.join(sorted(missing))}, and the "
                f"format holds whole rows: {way_out}"
            )
    return [{**{name: row[name] for name in names - image.keys()}, **image} for image in images]
