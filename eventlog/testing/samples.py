"""The table, changes and events that the kits use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventlog.changes.json_form import database_from_json
from eventlog.changes.publishing import CurrentRows
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.events import Outgoing
from eventlog.model import Change, ChangeOp, Operation, Origins

CATALOG: Final[Mapping[str, Any]] = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "primary_key": ["id"],
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "name", "type": "varchar(40)"},
                {"name": "price", "type": "numeric(10,2)"},
                {"name": "made", "type": "date"},
                {"name": "photo", "type": "bytea"},
            ],
        }
    ],
}
"""A catalogue in the form of ``--options``: the table ``app.item``."""

_ROW: Final = {
    "id": 1,
    "name": "Ünï <&> \"'\n",
    "price": Decimal("12.50"),
    "made": date(2024, 2, 29),
    "photo": b"\0\xff",
}
_TIME: Final = datetime(2024, 5, 10, 12, 0, tzinfo=UTC)


def _change(op: ChangeOp, position: str, **fields: Any) -> Change:
    return Change(
        "app", "item", op, (("id", 1),), position=position, commit_time=_TIME, user="app", **fields
    )


CHANGES: Final = (
    _change(ChangeOp.INSERT, "1", after=_ROW),
    _change(
        ChangeOp.UPDATE, "2", before=_ROW, after={**_ROW, "name": None}, changed=frozenset({"name"})
    ),
    _change(ChangeOp.DELETE, "3", before={**_ROW, "name": None}),
)
"""An insert, an update and a delete of one row."""


def catalog() -> Catalog:
    """Return the classes of the catalogue."""
    return build_catalog(database_from_json(CATALOG))


class DeliverySample(NamedTuple):
    """A delivery with the attributes that a writer uses."""

    number: int = 1
    first: str = ""
    origins: Origins = Origins({}, {}, {})
    current_rows: CurrentRows = MappingProxyType({})


def events(classes: Catalog, number: int = 3, size: int = 0) -> Sequence[Outgoing]:
    """Return events of different objects, with their whole rows. ``size`` is the number of
    characters added to each name.
    """
    (cls,) = classes.classes
    values = {"name": "Ünï" + "x" * size, "price": "12.50", "made": "2024-02-29", "photo": "AP8="}
    return [
        Outgoing(
            str(record_id),
            [record_id],
            (cls, f"id={record_id}"),
            Operation.ADD,
            [
                (
                    record_id,
                    1,
                    (cls, f"id={record_id}"),
                    attribute,
                    None,
                    attribute.convert(values[attribute.name]),
                )
                for attribute in cls.attributes
                if attribute.name in values
            ],
            place=record_id,
        )
        for record_id in range(1, number + 1)
    ]


def origins(written: Sequence[Outgoing]) -> Origins:
    """Return the times, users and transactions of the events' rows."""
    ids = [record_id for event in written for record_id in event.ids]
    return Origins(
        dict.fromkeys(ids, "2024-05-10 12:00:00"),
        dict.fromkeys(ids, "app"),
        dict.fromkeys(ids, "7"),
    )
