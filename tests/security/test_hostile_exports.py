"""Exports of drivers: each is read or refused, whatever its depth, its size and its texts."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from random import Random
from typing import Final

import hostile
import pytest
from fuzzing import ODD, damaged
from hostile import Border

from eventlog.config.driver_tags import DRIVER_TAGS
from eventlog.config.idm import read_driver, toml_text

_FRAMES: Final = ("driver-config", "publisher-options", "subscriber-options", "authentication-info",
                  "group", "subordinates", "definitions")  # fmt: skip
_NAMES: Final = (*DRIVER_TAGS, "sync-filter", "force-username-case", "auth-id", "server", "user")
_TEXTS: Final = (
    "jdbc:postgresql://h:1/d?a=b", "REMOTE(hostname=h)jdbc:oracle:thin:@//h/s", "~a~", "~b~", "list",
    "jdbc:sqlserver://h;a=b", "jdbc:mysql://[::1]:3/d", "DELETE FROM eventlog", "10", "true", "9" * 5000,
)  # fmt: skip


def driver(content: str) -> bytes:
    return f"<driver-config><log-table>a</log-table>{content}</driver-config>".encode()


KNOWN: Final[dict[str, Callable[[], bytes]]] = {
    "two thousand levels": lambda: driver("<a>" * 2000 + "</a>" * 2000),
    "drivers in drivers": lambda: driver(
        "<driver-config>" * 240 + "<a/>" * 100_000 + "</driver-config>" * 240
    ),
    "twenty thousand drivers": lambda: b"<a>" + driver("") * 20_000 + b"</a>",
    "twenty megabytes": lambda: driver(" " * (20 << 20)),
    "many elements": lambda: driver("<a/>" * 200_000),
}


def element(rnd: Random, depth: int) -> str:
    text = str(rnd.choice(ODD) if rnd.random() < 0.3 else rnd.choice(_TEXTS))
    text = "".join(f"&#{ord(c)};" for c in text if c not in "\0\ud800")
    name = rnd.choice(_NAMES)
    match rnd.randrange(6):
        case 0 if depth < 5:
            frame = rnd.choice(_FRAMES)
            inner = "".join(element(rnd, depth + 1) for _ in range(rnd.randrange(4)))
            return f'<{frame} active-value="{text}" name="{name}">{inner}</{frame}>'
        case 1:
            return f'<definition name="{name}" type="integer"><value>{text}</value></definition>'
        case 2:
            return (
                f'<definition name="{name}"><value><item>{text}</item><item/></value></definition>'
            )
        case 3:
            return f'<gcv-ref name="{name}" driver-param-name="{rnd.choice(_NAMES)}"/>'
        case 4:
            return f'<{name} value="{text}"/>'
    return f"<{name}>{text}</{name}>"


def case(rnd: Random) -> bytes:
    content = "".join(element(rnd, 0) for _ in range(rnd.randrange(1, 9)))
    if rnd.random() < 0.1:
        levels = rnd.choice((100, 251, 2000))
        content = "<a>" * levels + content + "</a>" * levels
    export = driver(content)
    return damaged(rnd, export) if rnd.random() < 0.3 else export


def read(data: bytes) -> None:
    tomllib.loads(toml_text(read_driver(data), "export.xml"))


EXPORTS: Final = Border(case, read, limit=32 << 20, factor=60, known=KNOWN, seconds=4, least=0.2)


def test_any_export_of_a_driver_is_read_or_refused() -> None:
    hostile.generate(f"{__name__}.EXPORTS")


@pytest.mark.parametrize("known", KNOWN)
def test_a_deep_or_long_export_is_read_or_refused_within_the_bounds(known: str) -> None:
    hostile.attack(f"{__name__}.EXPORTS", known)
