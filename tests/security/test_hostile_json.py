"""JSON from outside: Debezium, CloudEvents, Qlik messages, changes and exports of a log, read from files."""

from __future__ import annotations

import json
import tempfile
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import fuzzing
import hostile
from fuzzing import ODD, changed, damaged, dumped
from hostile import Border
from loss_formats import CATALOG
from loss_samples import SAMPLES

from eventlog.conversion import convert
from eventlog.registry import format_named

WRITERS: dict[str, dict[str, Any]] = {
    "jsonl": {},
    "debezium": {},
    "cloudevents": {},
    "qlik-messages": {},
    "eventlog": {},
}
PLACE = Path(tempfile.gettempdir())


@cache
def good_lines() -> dict[str, list[bytes]]:
    """Good lines of each format."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log.jsonl"
        SAMPLES["E"](log)
        for name, writer in WRITERS.items():
            if name != "eventlog":
                target = Path(directory) / f"{name}.jsonl"
                options = {"catalog": CATALOG, "writer": writer}
                convert("eventlog", name, str(log), str(target), options)
        return {
            name: (Path(directory) / f"{'log' if name == 'eventlog' else name}.jsonl")
            .read_bytes()
            .splitlines()
            for name in WRITERS
        }


def of_format(name: str, *lines: bytes) -> bytes:
    """An input: the name of the format in its first line."""
    return b"\n".join([name.encode(), *lines])


def lines_of(rnd: Random) -> bytes:
    """Some lines of a format, of which one is damaged or has members of other types."""
    name = rnd.choice(list(WRITERS))
    lines = [rnd.choice(good_lines()[name]) for _ in range(rnd.randrange(1, 4))]
    place = rnd.randrange(len(lines))
    match rnd.randrange(4):
        case 0:
            lines[place] = damaged(rnd, lines[place])
        case 1:
            value = json.loads(lines[place])
            value[rnd.choice(list(value))] = rnd.choice(ODD)
            lines[place] = dumped(value)
        case _:
            lines[place] = dumped(changed(rnd, json.loads(lines[place])))
    return of_format(name, *lines)


def read(data: bytes) -> int:
    """How many changes a format gives; raises only what is no EventlogError."""
    name, _, content = data.partition(b"\n")
    with tempfile.NamedTemporaryFile(suffix=".jsonl", dir=PLACE) as file:
        file.write(content)
        file.flush()
        options = {"catalog": CATALOG} if len(content) % 2 else {}
        return fuzzing.read(format_named(name.decode()), Path(file.name), options)


def everywhere(name: str) -> bytes:
    """Good lines of a format, with each of these values in the place of each member."""
    lines = []
    for line in good_lines()[name][:2]:
        for member in json.loads(line):
            placed = dumped({**json.loads(line), member: "HERE"})
            lines += [placed.replace(b'"HERE"', value) for value in VALUES]
    return of_format(name, *lines)


VALUES = (
    b"[" * 20_000 + b"]" * 20_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    b"[" * 90 + b"]" * 90,
    b"9" * 50_000,
    b"1e999999999",
    b"1e-999999999",
    rb'"\ud800"',
    b"[" + b"[]," * 20_000 + b"[]]",
)
LINES = Border(
    case=lines_of,
    read=read,
    limit=24 << 20,
    factor=40,
    seconds=5.0,
    prepare=good_lines,
    known={name: partial(everywhere, name) for name in WRITERS},
)


def test_no_json_ends_the_process() -> None:
    hostile.generate(f"{__name__}.LINES")
