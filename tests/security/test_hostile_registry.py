"""Answers of a schema registry: a message names a schema, and the registry chooses how it is read."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import hostile
from answering import response, server
from fuzzing import ODD, changed, damaged, dumped
from hostile import Border
from test_hostile_avro import body_of, record, schema_of
from test_hostile_http import answer_of

from eventlog.errors import EventlogError
from eventlog.model import Change
from eventlog.qlik.messages.envelope import Message, open_registry, prefix_of
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions

ROW = {"type": "record", "name": "Data", "fields": [{"name": "id", "type": ["null", "int"]}]}
HEADERS = {
    "type": "record",
    "name": "Headers",
    "fields": [{"name": "operation", "type": "string"}, {"name": "changeSequence", "type": "string"}],
}  # fmt: skip
GOOD = {
    "type": "record",
    "name": "DataRecord",
    "fields": [
        {"name": "data", "type": ["null", ROW]},
        {"name": "beforeData", "type": ["null", "Data"]},
        {"name": "headers", "type": HEADERS},
    ],
}
SEQUENCE = b"20240510120000000000000000000000012"
BODY = b"\2\2\x0e\0\x0cINSERT\x46" + SEQUENCE


def answer(schema: Any, **more: Any) -> bytes:
    return response(
        dumped({"schema": schema if isinstance(schema, str) else json.dumps(schema), **more})
    )


def registry_answer_of(rnd: Random) -> bytes:
    match rnd.randrange(6):
        case 0:
            return answer_of(rnd)
        case 1:
            return answer(changed(rnd, json.loads(json.dumps(GOOD))))
        case 2:
            return answer(damaged(rnd, dumped(GOOD)).decode("latin-1"))
        case 3:
            return answer(record("R", *(schema_of(rnd, 4, ["R"]) for _ in range(2))))
        case 4:
            return answer(rnd.choice(ODD), schemaType=rnd.choice(("AVRO", "JSON", *ODD)))
        case _:
            return answer(GOOD)


def read(data: bytes) -> list[Change]:
    """The changes of messages whose values, and then keys, have the schema that is answered."""
    server().data = data
    registry = open_registry(server().url)
    reader = MessageReader(ReadOptions(schema="app", table="item"), None, registry)
    changes: list[Change] = []
    for body in (BODY, body_of(Random(data))):
        for key in (None, prefix_of(2) + b"\2"):
            with suppress(EventlogError):
                changes += reader.changes(Message("t", key, prefix_of(1) + body))
    if not changes:
        raise EventlogError("no change")
    return changes


ANSWERS = Border(
    case=registry_answer_of,
    read=read,
    limit=12 << 20,
    factor=60,
    known={
        "a record in itself": lambda: answer(record("R", "R")),
        "a list": lambda: answer([GOOD]),
        "a text": lambda: answer('"string"'),
        "deep JSON": lambda: response(b"[" * 30_000),
        "deep JSON in the schema": lambda: answer("[" * 30_000),
        "surrogates": lambda: answer('"\ud800"'),
        "a schema with many fields": lambda: answer(record("R", *["int"] * 30_000)),
        "a schema with many digits": lambda: answer('{"type": %s}' % ("9" * 30_000)),
        "an answer of lists": lambda: response(b"[" + b"[]," * 80_000 + b"[]]"),
    },
)


def test_no_answer_of_a_registry_ends_the_process() -> None:
    hostile.generate(f"{__name__}.ANSWERS")
