"""How many column masks of 1,000 columns are decoded a second of one core's time (formats/qlik.md
2).

Each mask is different unless the line says otherwise; masks that come again are looked up.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import common

from eventlog.qlik import masks
from eventlog.qlik.masks import MaskLayout

AIM = 200_000
COLUMNS = [f"column_{number:04}" for number in range(1000)]
HEADERS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--masks", type=int, default=20_000, help="masks a line (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=6, help="of the masks (default %(default)s)")
    options = parser.parse_args()
    print(common.python(), flush=True)
    random.seed(options.seed)
    print("| columns set of 1,000 | form | masks/s |\n|---|---|---|", flush=True)
    updates: list[float] = []
    for changed in (1, 8, 24, 500):
        for form, rate in _rates(_updates(changed, options.masks)):
            print(f"| {changed}, at random | {form} | {rate:,.0f} |", flush=True)
            if changed <= 8:
                updates.append(rate)
    inserts = [frozenset(COLUMNS)] * options.masks
    for form, rate in _rates(inserts):
        print(f"| all, the same mask again | {form} | {rate:,.0f} |", flush=True)
        updates.append(rate)
    if min(updates) < AIM:
        raise SystemExit(f"fewer than {AIM:,} masks/s")


def _updates(changed: int, number: int) -> list[frozenset[str]]:
    return [frozenset(random.sample(COLUMNS, changed)) for _ in range(number)]


def _rates(sets: Sequence[frozenset[str]]) -> list[tuple[str, float]]:
    layout = masks.layout(COLUMNS, HEADERS)
    values = [layout.bits(names) for names in sets]
    binary = [masks.table_bytes(layout, value) for value in values]
    text = [masks.table_text(layout, value) for value in values]
    return [
        ("binary", _rate(binary, masks.read_bytes)),
        ("text", _rate(text, masks.read_text)),
    ]


def _rate(stored: Sequence[Any], read: Callable[[MaskLayout, Any], object]) -> float:
    layout = masks.layout(COLUMNS, HEADERS)  # new, so that nothing of it has been read yet
    begin = time.process_time()
    for one in stored:
        read(layout, one)
    return len(stored) / (time.process_time() - begin)


if __name__ == "__main__":
    main()
