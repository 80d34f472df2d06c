"""Files of a configuration, and options in the environment: settings, or a ConfigError."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import hostile
from fuzzing import ODD, damaged
from hostile import Border

from eventlog.config.load import load
from eventlog.config.settings import SECTIONS
from eventlog.core.options import options_of

GOOD = b"""[database]
url = "postgresql://h/db"
[publisher]
batch_size = 10
[sink]
type = "http"
url = "https://h/x"
headers = { X-Tenant = "hr" }
[[watch]]
table = "usr"
exclude = ["x"]
"""
VALUES = ("9" * 5000, "0x" + "F" * 5000, "[" * 3000 + "]" * 3000, "{a=" * 3000, "1e400", "-nan",
          "1979-05-27T07:32:00Z", '"\\ud800"', "{ a.b.c = 1 }", "{ " + ".".join("a" * 300) + " = 1 }",
          "[[1], {a = 1}]", "true", '""', '"\\u0000"', "{}", "[]")  # fmt: skip
NAMES = [(section, name) for section, kind in SECTIONS.items() for name in options_of(kind)]


def file_of(rnd: Random) -> bytes:
    match rnd.randrange(4):
        case 0:
            return damaged(rnd, GOOD)
        case 1:
            section, name = rnd.choice(NAMES)
            return f"[{section}]\n{name} = {rnd.choice(VALUES)}\n".encode()
        case 2:  # an option in the environment
            section, name = rnd.choice(NAMES)
            text = str(rnd.choice((*VALUES, *ODD, "[" * 100_000))).replace("\0", "")
            return (
                f"EVENTLOG_{section}_{name}".upper().encode()
                + b"\0"
                + text.encode("utf-8", "replace")
            )
        case _:
            return GOOD


def read(data: bytes) -> object:
    name, is_variable, text = data.partition(b"\0")
    if is_variable and name.startswith(b"EVENTLOG_"):
        return load(None, {name.decode(): text.decode("utf-8", "replace")})
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        return load(Path(file.name), {})


SETTINGS = Border(
    case=file_of,
    read=read,
    limit=12 << 20,
    factor=1200,
    seconds=8.0,
    known={
        "brackets": lambda: b"a = " + b"[" * 500_000,
        "keys with many dots": lambda: b".".join([b"a"] * 50_000) + b" = 1",
        "keys with as many dots as may be": lambda: b"\n".join(
            b"a%d" % number + b".a" * 240 + b" = 1" for number in range(50)
        ),
        "many keys with many dots": lambda: b"\n".join(
            b".".join([b"a"] * 200) + b".b%d = 1" % number for number in range(200)
        ),
        "tables with many dots": lambda: b"\n".join(
            b"[" + b".".join([b"a"] * 200) + b".b%d]" % number for number in range(200)
        ),
        "tables": lambda: b"".join(b"[a%d]\n" % number for number in range(100)),
        "watches": lambda: b"[[watch]]\n" * 1_000,
        "a text without an end": lambda: b'a = """' + b'"" ' * 200_000,
        "an array of arrays": lambda: b"a = [" + b"[]," * 30_000 + b"]",
        "brackets in a variable": lambda: b"EVENTLOG_SINK_HEADERS\0" + b"[" * 100_000,
        "objects in a variable": lambda: b"EVENTLOG_SINK_HEADERS\0" + b'{"a":' * 100_000,
        "a large file": lambda: b"# " + b"x" * (16 << 20),
    },
)  # fmt: skip


def test_no_configuration_ends_the_process() -> None:
    hostile.generate(f"{__name__}.SETTINGS")
