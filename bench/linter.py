"""How many rows of a Linter queue a core takes from the columns of a table to Changes.

The rows are those of the emulator's workload (one server, rows of one part but for the DOCUMENT
table), held in memory
as a driver returns them. Measured by CPU time of this process, in turn:

columns    columns of any order -> rows of the queue
raw        columns -> Change without a codec: order, transactions, assembly
assembly   the same from rows that are there already
emulator   columns -> Change with the codec of the emulator
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import common

from eventlog.linter.dispatch_tables import QUEUE_COLUMNS, DispatchRow, column_values, dispatch_rows
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.testing.linter_emulator import ATTRS, Workload, emulate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=60_000, help="rows of the queue (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that each is run (default %(default)s)"
    )
    parser.add_argument(
        "--tables", default="ITEM", help="ITEM, READING, DOCUMENT (default %(default)s)"
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    values = _columns(options.rows, options.tables.split(","))
    rows = list(dispatch_rows(QUEUE_COLUMNS, values))
    gc.collect()
    gc.freeze()  # the input, which a driver would not hold in memory
    runs: dict[str, Callable[[], Iterable[Any]]] = {
        "columns": lambda: dispatch_rows(QUEUE_COLUMNS, values),
        "assembly": lambda: _changes(rows, "none"),
        "raw": lambda: _changes(dispatch_rows(QUEUE_COLUMNS, values), "none"),
        "emulator": lambda: _changes(dispatch_rows(QUEUE_COLUMNS, values), "eventlog-emulator-1"),
    }
    print(
        f"rows: {len(values):,} of {options.tables}; rows a second of CPU, median (least to "
        "greatest)\n"
    )
    for name, run in runs.items():
        speeds = []
        for _ in range(options.rounds):
            begin = time.process_time()
            for _ in run():
                pass
            speeds.append(len(values) / (time.process_time() - begin))
        print(f"{name:<10} {common.spread(speeds, 0)}", flush=True)


def _columns(count: int, tables: list[str]) -> list[tuple[Any, ...]]:
    steps = emulate(Workload(1, transactions=count, at_once=4, operations=12, tables=tables))
    return [
        column_values(row) for row in islice((row for step in steps for row in step.rows), count)
    ]


def _changes(rows: Iterable[DispatchRow], codec: str) -> Iterable[Any]:
    return QueueReader(ATTRS, ReaderOptions(codec=codec)).read(rows, final=True)


if __name__ == "__main__":
    main()
