"""The checks that each row of the log passes before it is folded (spec/event-log.md 5, 8.3).

A checked row is a plain tuple. The row is also the step *remove old, add new* of its event, so no
further object is made for the row until the document is written.

``check_rows`` is a hot path. It unpacks rows by position, compares the user, table and key of each
row with the previous row, remembers classes, keys and attributes by their spelling in dictionaries,
and catches the errors of all checks in one place. The price: one loop has all checks in the order
of the specification, and ``_Table`` fills its dictionaries as a side effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from eventlog.core.catalog import Attribute, Catalog, ObjectClass, ObjectId
from eventlog.core.catalog.masks import told_apart
from eventlog.core.values import TEMPORAL
from eventlog.core.values.moments import fraction_of
from eventlog.errors import BadValue, BadXmlChar, RowError, shown
from eventlog.model import ALL, All, EventType, QueueRow

# Plain numbers, since millions of rows are compared with them.
(
    INSERT_FIELD,
    UPDATE_FIELD,
    UPDATE_FIELD_REMOVE_ALL,
    DELETE_ROW,
    INSERT_ROW_QUERY_BACK,
    UPDATE_ROW_QUERY_BACK,
    INSERT_FIELD_QUERY_BACK,
    UPDATE_FIELD_QUERY_BACK,
) = map(int, EventType)

ROW_TYPES: Final = (DELETE_ROW, INSERT_ROW_QUERY_BACK, UPDATE_ROW_QUERY_BACK)
"""The types of rows about a whole object.

Rows of all other types, ``FIELD_TYPES``, name a column.
"""

FIELD_TYPES: Final = (
    INSERT_FIELD, UPDATE_FIELD, UPDATE_FIELD_REMOVE_ALL, INSERT_FIELD_QUERY_BACK,
    UPDATE_FIELD_QUERY_BACK,
)  # fmt: skip

Texts: TypeAlias = str | tuple[str, ...] | None
"""A value as it is written: one text, several of a multi-valued attribute, or NULL."""

CheckedRow: TypeAlias = tuple[int, int, ObjectId, Attribute | None, Texts | Literal[All.ALL], Texts]
"""A valid row: record_id, event_type, object_id, attribute, old (the value that is removed), new
(the value that is added), both converted.

(old, new) is (None, v) for type 1, (old, new) for type 2, and (ALL, v) for type 3. A row of type 2
whose old value cannot be converted has (ALL, v), too (spec/xds.md 4.3). Rows of types 4 to 8 have
no old and new value until their values are read back. A row of a column that is not written never
has an old or new value. Rows with the same spelling of a key share one object_id.
"""


class InvalidRow(NamedTuple):
    """An invalid row: it gets status E, and its code and message go to the error table."""

    record_id: int
    code: str
    message: str


class Remark(NamedTuple):
    """An observation on a valid row. A remark is counted under the name ``counter``
    (spec/event-log.md 11); ``reason`` is for people.
    """

    record_id: int
    attribute: Attribute
    counter: str
    reason: str


class Checked(NamedTuple):
    """The result of the checks. Each list is in queue order."""

    valid: list[CheckedRow]
    invalid: list[InvalidRow]
    loopback: list[int]
    """The record_ids of loopback rows."""
    remarks: list[Remark]
    """The remarks on valid rows. Few valid rows have one."""
    waiting: list[int]
    """The record_ids of waiting rows: the rows of unavailable classes."""


def check_rows(rows: Iterable[QueueRow], catalog: Catalog, loopback_user: str | None) -> Checked:
    """Sort rows into valid, invalid, loopback and waiting rows.

    Rows whose perpetrator is ``loopback_user`` are loopback rows; they are separated before any
    check. With None, no row is a loopback row.
    """
    valid: list[CheckedRow] = []
    invalid: list[InvalidRow] = []
    loopback: list[int] = []
    remarks: list[Remark] = []
    waiting: list[int] = []
    tables: dict[str | None, _Table] = {}
    add = valid.append
    # Most rows have the user, table and key of the previous row, so these are compared first.
    of_user, is_loopback = None, False
    of_table: object = _NONE
    of_key: object = _NONE
    for record_id, event_type, perpetrator, table_name, table_key, column_name, old, new in rows:
        if perpetrator != of_user:
            of_user = perpetrator
            is_loopback = is_of(perpetrator, loopback_user)
        if is_loopback:
            loopback.append(record_id)
            continue
        try:
            if event_type is None or not INSERT_FIELD <= event_type <= UPDATE_FIELD_QUERY_BACK:
                raise RowError("bad_event_type", f"event_type is {event_type}, not 1 to 8")  # noqa: TRY301
            if table_name != of_table:
                table = tables.get(table_name) or tables.setdefault(
                    table_name, _Table(catalog, table_name)
                )
                of_table, of_key = table_name, _NONE
            if event_type == DELETE_ROW and table.is_child:
                raise RowError(  # noqa: TRY301
                    "bad_event_type",
                    f"a row of type 4 that names child table {table_name!r} would delete the "
                    "object of the parent table",
                )
            if table_key != of_key:
                object_id = table.objects.get(table_key) or table.object_id(table_key)
                of_key = table_key
            if DELETE_ROW <= event_type <= UPDATE_ROW_QUERY_BACK:  # the row is about a whole object
                add((record_id, event_type, object_id, None, None, None))
                continue
            attribute = table.attributes.get(column_name) or table.attribute(column_name)
            if event_type >= INSERT_FIELD_QUERY_BACK or not attribute.is_written:
                add((record_id, event_type, object_id, attribute, None, None))
                continue
            convert = attribute.mask or attribute.convert
            goes: Texts | Literal[All.ALL] = None
            if event_type == UPDATE_FIELD_REMOVE_ALL:
                goes = ALL
            elif event_type == UPDATE_FIELD and old is not None:
                try:
                    goes = convert(old)
                except (BadValue, BadXmlChar) as unreadable:
                    goes = _removed_instead(attribute, new, unreadable)
                    remarks.append(Remark(record_id, attribute, "old_unreadable", str(unreadable)))
            comes = None if new is None else convert(new)
            if comes == goes and event_type == UPDATE_FIELD and old != new:
                if attribute.mask is not None:
                    goes = told_apart(comes)
                remarks += _truncated(record_id, attribute, old, new)
            add((record_id, event_type, object_id, attribute, goes, comes))
        except RowError as error:
            former = (
                _former_object(tables.get(table_name), table_key)
                if event_type == DELETE_ROW
                else None
            )
            if former is None:
                invalid.append(InvalidRow(record_id, error.code, str(error)))
            else:
                add((record_id, DELETE_ROW, former, None, None, None))
        except _ClassUnavailable:
            waiting.append(record_id)
    return Checked(valid, invalid, loopback, remarks, waiting)


class _ClassUnavailable(Exception):
    """A row of a class that is unavailable now."""


def _former_object(table: _Table | None, text: str | None) -> ObjectId | None:
    """Return the object whose key consists of the former key columns of its class. Return None if
    the text is not a key of these columns.
    """
    former = None if table is None or table.is_child else table.former
    if former is None:
        return None
    try:
        key = former.canonical_key(text)
        former.check_characters(key)
    except RowError:
        return None
    return former, key


def is_of(perpetrator: str | None, user: str | None) -> bool:
    """Return True if a row's perpetrator is this user, False if ``user`` is None.

    CHAR padding is ignored.
    """
    return user is not None and perpetrator is not None and perpetrator.rstrip(" ") == user


def _removed_instead(
    attribute: Attribute, new: str | None, unreadable: BadValue | BadXmlChar
) -> Literal[All.ALL] | None:
    """Return what a modify removes in place of an old value that cannot be written (spec/xds.md
    4.3). For a single-valued attribute, it removes all values. A value that XML cannot hold was
    never sent, so nothing is removed from a multi-valued attribute, which keeps its other values.

    Raises the error of the row: the error of a new value that cannot be written either, or the
    error of the old value of a multi-valued attribute.
    """
    if isinstance(unreadable, BadXmlChar):
        if new is not None:
            attribute.convert(new)
        return None if attribute.multi_valued else ALL
    if attribute.multi_valued:
        raise unreadable
    if new is not None:
        try:
            attribute.convert(new)
        except RowError:
            raise unreadable from None
    return ALL


def _truncated(
    record_id: int, attribute: Attribute, old: str | None, new: str | None
) -> list[Remark]:
    """Return a remark if the two times of a row are written alike because their fractions are cut
    off.
    """
    if attribute.column.type.kind not in TEMPORAL or fraction_of(old or "") == fraction_of(
        new or ""
    ):
        return []
    return [
        Remark(
            record_id,
            attribute,
            "truncated",
            f"{shown(old or '')} and {shown(new or '')} are written alike",
        )
    ]


_NONE: Final = object()
"""A value that no row has."""


class _Table:
    """The lookups that rows with the same table_name share during a call, since their keys and
    columns repeat.
    """

    __slots__ = ("_log_name", "attributes", "is_child", "objects")

    def __init__(self, catalog: Catalog, table_name: str | None) -> None:
        if not table_name:
            raise RowError("missing_table", "table_name is empty")
        log_name = catalog.log_name(table_name)
        if log_name is None and catalog.unavailable_class(table_name) is not None:
            raise _ClassUnavailable
        if log_name is None:
            raise RowError(
                "unknown_table",
                f"table_name {table_name!r} is neither a class nor a child table; if the table was "
                f"renamed, add renamed_from = {table_name!r} to its [[watch]], then run `eventlog "
                "requeue`",
            )
        self._log_name, self.is_child = log_name, log_name.child is not None
        self.objects: dict[str | None, ObjectId] = {}
        self.attributes: dict[str | None, Attribute] = {}

    @property
    def former(self) -> ObjectClass | None:
        """The class with its former key."""
        return self._log_name.object_class.former

    def object_id(self, table_key: str | None) -> ObjectId:
        object_class = self._log_name.object_class
        key = object_class.canonical_key(table_key)
        object_class.check_characters(key)
        object_id = self.objects[table_key] = object_class, key
        return object_id

    def attribute(self, column_name: str | None) -> Attribute:
        if not column_name:
            raise RowError("missing_column", "column_name is empty")
        attribute = self._log_name.attribute(column_name)
        if attribute is None:
            name = self._log_name.object_class.name
            raise RowError(
                "unknown_column",
                f"column_name {column_name!r} is not an attribute of class {name!r}",
            )
        self.attributes[column_name] = attribute
        return attribute
