"""The harness of hostile input reports each way in which a reader can fail, with the input."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import hostile
import pytest
from hostile import Border


def _fails(data: bytes) -> None:
    match data:
        case b"exception":
            raise RecursionError("of a reader")
        case b"memory":
            bytearray(30 << 20)
        case b"time":
            while True:
                pass
        case b"signal":
            os.kill(os.getpid(), signal.SIGSEGV)


WAYS = ("exception", "memory", "time", "signal")
TOY = Border(
    case=lambda rnd: rnd.choice(WAYS).encode(),
    read=_fails,
    limit=1 << 20,
    factor=1,
    known={way: way.encode for way in WAYS},
    seconds=0.1,
)
GENERATED = replace(TOY, known={})


@pytest.mark.parametrize(
    ("way", "reported"),
    [
        ("exception", "RecursionError: of a reader"),
        ("memory", "MemoryError"),
        ("time", "SIGXCPU"),
        ("signal", "SIGSEGV"),
    ],
)
def test_each_way_to_fail_is_reported_with_the_input(way: str, reported: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){reported}.*{way.encode().hex()}"):
        hostile.attack(f"{__name__}.TOY", way)


def test_a_generated_input_that_fails_is_reported_with_its_number() -> None:
    with pytest.raises(AssertionError, match=r"--seed day .*--case [0-9]+: "):
        hostile.generate(f"{__name__}.GENERATED")


def test_known_attacks_are_tried_before_generated_inputs() -> None:
    with pytest.raises(AssertionError, match="exception: \n"):
        hostile.generate(f"{__name__}.TOY")
