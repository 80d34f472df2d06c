"""Short forms of events and changes of one class, for the tests of both directions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from samples import database, table

from eventlog.core.catalog.builder import build_catalog
from eventlog.model import AttributeSteps, Change, ChangeOp, Event, Op, Operation, Step

INSERT, UPDATE, DELETE, TRUNCATE = (
    ChangeOp.INSERT,
    ChangeOp.UPDATE,
    ChangeOp.DELETE,
    ChangeOp.TRUNCATE,
)
USR_1 = "idu=1,table=usr,schema=indirect"
KEY = (("idu", 1),)


def add(*values: str) -> Step:
    return Step(Op.ADD, values)


def remove(*values: str) -> Step:
    return Step(Op.REMOVE, values)


def modify(name: str, *steps: Step, value_type: str = "string") -> Event:
    return Event(Operation.MODIFY, "usr", USR_1, "9", (AttributeSteps(name, value_type, steps),))


TYPES = build_catalog(
    database(
        table(
            "t",
            "id integer; n integer; d decimal(9,2); f double; b boolean; c char(5); s varchar(9); "
            "x varbinary(9);day date; at time; ts timestamp; tz timestamptz",
            "id",
        ),
        table("ref", "id integer; t integer", "id", [("t", "t", "id")]),
    ),
    referential="dn",
)
NOON = datetime(2024, 5, 10, 12)


def usr(op: ChangeOp, **fields: Any) -> Change:
    return Change("indirect", "usr", op, KEY, position="7", **fields)
