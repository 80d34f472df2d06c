"""Avro from outside: a message carries its own schema, so its sender chooses both (formats/qlik.md 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from random import Random
from typing import Any

import hostile
from fuzzing import changed, damaged
from hostile import Border

from eventlog.model import Change, ChangeOp
from eventlog.qlik.messages.envelope import Message, avro_envelope
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter

COLUMNS = {
    "app.item": (
        {"name": "id", "type": "INT4", "pk": 1},
        {"name": "name", "type": "STRING"},
        {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2},
        {"name": "raw", "type": "BYTES"},
    )
}
ROW = {"id": 7, "name": "nut", "price": Decimal("1.50"), "raw": b"\0\1"}
INSERT = Change("app", "item", ChangeOp.INSERT, (("id", 7),), None, ROW)
GOOD = [
    record.value
    for record in MessageWriter(WriteOptions(encoding="avro", columns=COLUMNS)).messages(INSERT)
    if record.value is not None
]
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
WORDS = (*PRIMITIVES, "array", "map", "record", "enum", "fixed", "union", "error")
NUMBERS = (0, 1, 2, 3, 7, 16, 63, -1, 2**20, 2**31, 2**48, 2**62, 2**63 - 1, -(2**63), 10**400)


def record(name: str, *fields: Any) -> dict[str, Any]:
    """A record type whose fields have the given types."""
    numbered = [{"name": f"f{number}", "type": one} for number, one in enumerate(fields)]
    return {"type": "record", "name": name, "fields": numbered}


def message(schema: Any, body: bytes, type: str = "MD") -> bytes:
    """A metadata message, or another, that has its schema."""
    return avro_envelope(type, "id1", json.dumps(schema))(body)


def data_message(kind: Any, body: bytes) -> bytes:
    """An insert whose row has one column of this type."""
    data, headers = record("Data", kind), record("Headers", "string", "string")
    for field, name in zip(headers["fields"], ("operation", "changeSequence"), strict=True):
        field["name"] = name
    fields = [{"name": "data", "type": data}, {"name": "headers", "type": headers}]
    head = b"\x0cINSERT" + zigzag(35) + b"20240510120000000000000000000000012"
    return message({"type": "record", "name": "DR", "fields": fields}, body + head, "DT")


def zigzag(number: int) -> bytes:
    """A whole number as Avro has it."""
    rest = (number << 1 if number >= 0 else ~(number << 1)) & (1 << 64) - 1
    groups = bytearray()
    while rest > 127:
        groups.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*groups, rest])


def read(value: bytes) -> list[Change]:
    """The changes of our metadata message and then this one."""
    reader = MessageReader(ReadOptions(schema="app", table="item"))
    changes = [
        change for one in (GOOD[0], value) for change in reader.changes(Message("t", None, one))
    ]
    reader.finish()
    return changes


# --- generated ------------------------------------------------------------------------------------


def schema_of(rnd: Random, depth: int, names: list[str]) -> Any:
    """Any type: also types that no value has an end of, that take no byte, or that are no types."""
    kind = rnd.randrange(12 if depth else 5)
    match kind:
        case 0 | 1 | 2:
            return rnd.choice(PRIMITIVES)
        case 3:
            return rnd.choice(names) if names else "R0"
        case 4:
            return {
                "type": rnd.choice(("bytes", "fixed", "int", "long", "string")),
                "name": f"F{rnd.randrange(9)}",
                "size": rnd.choice(NUMBERS),
                "logicalType": rnd.choice(("decimal", "date", "uuid", "timestamp-micros", "time-millis")),
                "precision": rnd.choice(NUMBERS),
                "scale": rnd.choice(NUMBERS),
            }  # fmt: skip
        case 5 | 6:
            return {"type": "array", "items": schema_of(rnd, depth - 1, names)}
        case 7:
            return {"type": "map", "values": schema_of(rnd, depth - 1, names)}
        case 8:
            return {
                "type": "enum",
                "name": f"E{rnd.randrange(9)}",
                "symbols": rnd.sample("ABCD", 3),
            }
        case 9:
            return [schema_of(rnd, depth - 1, names) for _ in range(rnd.randrange(4))]
        case _:
            name = rnd.choice((f"R{len(names)}", rnd.choice(WORDS)))
            names.append(name)
            return record(
                name, *(schema_of(rnd, depth - 1, names) for _ in range(rnd.randrange(4)))
            )


def body_of(rnd: Random) -> bytes:
    parts: list[Callable[[], bytes]] = [
        lambda: zigzag(rnd.choice(NUMBERS)),
        lambda: bytes([rnd.randrange(8)]) * rnd.choice((1, 2, 50)),
        lambda: rnd.randbytes(rnd.randrange(9)),
        lambda: b"\2" * rnd.choice((1, 3000)),
    ]
    return b"".join(rnd.choice(parts)() for _ in range(rnd.randrange(6)))


def message_of(rnd: Random) -> bytes:
    """A message that brings its schema, or a message of ours that was damaged."""
    match rnd.randrange(4):
        case 0:
            good = rnd.choice(GOOD)
            start = good.index(b"{") if b"{" in good and rnd.random() < 0.7 else 0
            return good[:start] + damaged(rnd, good[start:])
        case 1:
            return rnd.choice(GOOD)
        case 2:
            return message(changed(rnd, record("R", schema_of(rnd, 3, []))), body_of(rnd))
        case _:
            fields = [schema_of(rnd, 5, ["R"]) for _ in range(rnd.randrange(1, 4))]
            return message(record("R", *fields), body_of(rnd))


def doubled(levels: int) -> Iterable[Any]:
    """Types of which each holds the one before twice: 2 to the power of ``levels`` values."""
    yield record("R0", "null", "null")
    for level in range(1, levels):
        yield record(f"R{level}", f"R{level - 1}", f"R{level - 1}")


def nested(levels: int, inner: Any) -> Any:
    for level in range(levels):
        inner = record(f"R{level}", inner)
    return inner


COUNT = zigzag(2**48)
MESSAGES = Border(
    case=message_of,
    read=read,
    limit=16 << 20,
    factor=400,
    known={
        "a record in itself": lambda: message(record("R", "R"), b""),
        "a list of records without an end": lambda: message(
            record("R", ["null", "R"]), b"\2" * 200_000
        ),
        "a record in an array of itself": lambda: message(
            record("R", {"type": "array", "items": "R"}), b"\2" * 200_000
        ),
        "an array of nulls": lambda: message(
            record("R", {"type": "array", "items": "null"}), COUNT + b"\0"
        ),
        "an array of nulls that have the name of a record": lambda: message(
            record("R", record("null", "long"), {"type": "array", "items": "null"}),
            b"\0" + COUNT + b"\0",
        ),
        "an array of empty records": lambda: message(
            record("R", {"type": "array", "items": record("E")}), COUNT + b"\0"
        ),
        "an array of nothing": lambda: message(
            record("R", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
            COUNT + b"\0",
        ),
        "records of records of nulls": lambda: message(record("R", *doubled(60)), b""),
        "an array of records with a thousand nulls": lambda: message(
            record("R", {"type": "array", "items": record("W", "int", *["null"] * 1000)}),
            zigzag(100_000) + bytes(100_000) + b"\0",
        ),
        "an array of deep records": lambda: message(
            record("R", {"type": "array", "items": nested(40, "int")}),
            zigzag(100_000) + bytes(100_000) + b"\0",
        ),
        "a column of records whose field has a long name": lambda: data_message(
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "L",
                    "fields": [{"name": "n" * 10_000, "type": "int"}],
                },
            },
            zigzag(200_000) + bytes(200_000) + b"\0",
        ),
        "a column with a huge decimal": lambda: data_message(
            {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9},
            b"\2\7",
        ),
        "a decimal of a megabyte": lambda: message(
            record("R", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            zigzag(1 << 20) + b"\x7f" * (1 << 20),
        ),
        "a decimal with a huge scale": lambda: message(
            record(
                "R",
                {"type": "bytes", "logicalType": "decimal", "precision": 10**17, "scale": 10**17},
            ),
            b"\2\7",
        ),
        "a schema that calls itself parsed": lambda: message(
            {**record("R", "R"), "__fastavro_parsed": True, "__named_schemas": {"R": {}}}, b""
        ),
    },
)  # fmt: skip


def test_no_avro_ends_the_process() -> None:
    hostile.generate(f"{__name__}.MESSAGES")
