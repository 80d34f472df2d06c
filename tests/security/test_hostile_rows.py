"""Rows that others wrote: of a Linter queue, of change tables, of the log, and the keys of the log.
Each becomes changes, or is refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import hostile
import pytest
from fuzzing import ODD, damaged, dumped, replaced
from hostile import Border
from loss_formats import CATALOG, TRIED
from loss_samples import SAMPLES

from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json
from eventlog.conversion import convert
from eventlog.core import table_key
from eventlog.core.values import parse_type
from eventlog.registry import format_named


def _files(format: str, sample: str, source: str, target: str, **options: Any) -> dict[str, bytes]:
    """The files of a sample of changes, converted to a format, by their paths."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        SAMPLES[sample](home / source)
        convert(
            "linter" if sample == "L" else "eventlog",
            format,
            str(home / source),
            str(home / target),
            options,
        )
        place = home / target
        return {
            str(one.relative_to(home)): one.read_bytes()
            for one in place.rglob("*")
            if one.is_file()
        } or {target: place.read_bytes()}


QUEUE: Final = _files(
    "linter", "L", TRIED["L"].target, "export",
    reader=TRIED["L"].reader, writer={**TRIED["L"].writer, "files": "jsonl"},
)  # fmt: skip
TABLES: Final = _files(
    "qlik-change-table", "E", "log.jsonl", "tables", catalog=CATALOG, writer={"file_format": "json"}
)

KEYS: Final = table_key.canonicalizer(
    [("id", parse_type("integer")), ("n", parse_type("numeric(9,2)")), ("t", parse_type("timestamp")),
     ("s", parse_type("varchar(9)"))]
)  # fmt: skip


def _changed(rnd: Random, files: dict[str, bytes]) -> bytes:
    """Files as one input, one of them with a line of which something is damaged or replaced."""
    name = rnd.choice(sorted(files))
    lines = files[name].splitlines() or [b"{}"]
    at = rnd.randrange(len(lines))
    change = damaged if rnd.random() < 0.4 or not lines[at].startswith(b"{") else replaced
    lines[at] = change(rnd, lines[at])
    lines *= rnd.choice((1, 1, 50))
    return json.dumps(
        {one: data.decode("latin-1") for one, data in {**files, name: b"\n".join(lines)}.items()}
    ).encode()


def _read(format: str, place: str, options: dict[str, Any]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            for name, content in json.loads(data).items():
                path = Path(directory) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode("latin-1"))
            for change in format_named(format).read(
                str(Path(directory) / place), options, Report()
            ):
                json.dumps(to_json(change))

    return read


def _log(rnd: Random) -> bytes:
    row = {
        "record_id": 1, "event_type": 5, "status": "N", "event_time": "2024-01-01 00:00:00",
        "table_name": "app.item", "table_key": "id=1+code=a", "column_name": "name", "old_value": "a",
        "new_value": "b", "perpetrator": "x",
    }  # fmt: skip
    lines = []
    for number in range(1, 9):
        one = {**row, "record_id": number, "event_type": rnd.randrange(1, 9)}
        for name in rnd.sample(sorted(one), rnd.randrange(3)):
            one[name] = rnd.choice(ODD)
        lines.append(dumped(one))
    content = b"\n".join(lines)
    return json.dumps(
        {"log.jsonl": (damaged(rnd, content) if rnd.random() < 0.2 else content).decode("latin-1")}
    ).encode()


def _key(rnd: Random) -> bytes:
    parts = (
        "id",
        "n",
        "t",
        "s",
        "=",
        "+",
        '"',
        "\\",
        "1",
        "-0",
        "1e9",
        " ",
        "\t",
        "x",
        "\0",
        "é",
        "9" * 40,
    )
    good = 'id=1+n=2.50+t="2024-01-01 00:00:00"+s=a'
    text = "".join(rnd.choice(parts) for _ in range(rnd.randrange(20))) * rnd.choice((1, 1, 1000))
    at = rnd.randrange(len(good))
    return rnd.choice((good, text, good[:at] + text + good[at:])).encode()


def _read_key(data: bytes) -> None:
    KEYS(data.decode("utf-8", "surrogateescape"))


def _log_of(table_key: str) -> bytes:
    row = {
        "record_id": 1, "event_type": 5, "status": "N", "event_time": "2024-01-01 00:00:00",
        "table_name": "app.item", "table_key": table_key, "column_name": "name",
    }  # fmt: skip
    return json.dumps({"log.jsonl": json.dumps(row)}).encode()


LOG_KNOWN: Final[dict[str, Callable[[], bytes]]] = {
    "a key of 10 MB": lambda: _log_of("id=" + "9" * 10_000_000),
    "a key of many parts": lambda: _log_of("+".join(f"a{n}=1" for n in range(150_000))),
    "a key of five million quotes": lambda: _log_of('id="' + '\\"' * 5_000_000 + '"+code=a'),
}
_QUEUE_OPTIONS: Final = {"codec": "eventlog-emulator-1", "on_row_error": "raw", "time_zone": "UTC"}
LINTER: Final = Border(
    lambda rnd: _changed(rnd, QUEUE), _read("linter", "export", _QUEUE_OPTIONS), 32 << 20, 60
)
CHANGE_TABLES: Final = Border(
    lambda rnd: _changed(rnd, TABLES), _read("qlik-change-table", "tables", {}), 32 << 20, 60
)
LOG: Final = Border(
    _log, _read("eventlog", "log.jsonl", {"catalog": CATALOG, "sort": True}), 32 << 20, 40,
    known=LOG_KNOWN, seconds=4,
)  # fmt: skip
KEY: Final = Border(_key, _read_key, 32 << 20, 40)


@pytest.mark.parametrize("border", ["LINTER", "CHANGE_TABLES", "LOG", "KEY"])
def test_any_row_becomes_changes_or_is_refused(border: str) -> None:
    hostile.generate(f"{__name__}.{border}")


@pytest.mark.parametrize("known", LOG_KNOWN)
def test_a_long_key_takes_bounded_memory_and_time(known: str) -> None:
    hostile.attack(f"{__name__}.LOG", known)
