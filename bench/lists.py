"""How long the lists, the search and the other questions of the status page take on a large log, as a
client of the monitor waits for them: each opens a connection and reads the classes.

One row in a thousand was refused and has an error row, the newest thousand wait, and all others are
done. So a list by a status or a class that no row has reads as much as it may.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import common
import psutil

from eventlog.config.load import Config, load
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.listing import Wanted
from eventlog.publisher.monitor.questions import Questions

_FILL = f"""
INSERT INTO {common.LOG}
    (status, event_type, event_time, perpetrator, table_name, table_key, column_name, old_value, new_value)
SELECT CASE WHEN :last - row < 1000 THEN 'N' WHEN row % 1000 = 0 THEN 'E' ELSE 'S' END, 2,
       timestamp '2026-01-01' + row * interval '1 ms', 'hr_app', 'usr', 'idu=' || row * 7919 % 199999 + 1,
       'mail', 'u' || row, 'v' || row
FROM generate_series(CAST(:first AS bigint), CAST(:until AS bigint)) AS row"""
_ERRORS = f"""
INSERT INTO {common.LOG}_error (record_id, code, message)
SELECT record_id, 'receiver', 'the receiver answers 422 Unprocessable Entity; no user ' || record_id
FROM {common.LOG} WHERE status = 'E' ORDER BY record_id"""
_AT_ONCE = 500_000

Question = Callable[[Questions], Mapping[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--times", type=int, default=10, help="of each question (default %(default)s)"
    )
    parser.add_argument(
        "--place", default="/var/tmp", help="directory for the data (default %(default)s)"
    )
    given = parser.parse_args()
    with common.server(given.place) as bench, tempfile.TemporaryDirectory() as directory:
        common.install(bench)
        fill(bench, given.rows)
        print(common.machine(bench), flush=True)
        file = common.configuration(Path(directory))
        config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
        rows = bench.value(f"SELECT max(record_id) FROM {common.LOG}")
        print(
            f"\n{given.rows:,} rows; milliseconds: median, least, greatest; CPU of client and server; read"
        )
        for name, ask in questions(rows).items():
            measure(bench, config, name, ask, given.times)


def fill(bench: common.Server, rows: int) -> None:
    for first in range(1, rows + 1, _AT_ONCE):
        bench.run(_FILL, first=first, until=min(rows, first + _AT_ONCE - 1), last=rows)
    bench.run(_ERRORS)
    bench.run(f"VACUUM (ANALYZE) {common.LOG}", f"ANALYZE {common.LOG}_error", "CHECKPOINT")


def questions(last: int) -> dict[str, Question]:
    """What is asked, by name; ``last`` is the newest record_id."""
    middle = last // 2

    def rows(**wanted: Any) -> Question:
        return lambda questions: questions.rows(Wanted(**wanted))

    return {
        "rows, the newest": rows(),
        "rows, from the middle": rows(before=middle),
        "rows with status S": rows(status="S"),
        "rows with a status that no row has": rows(status="W"),
        "rows with status W, from the middle": rows(status="W", before=middle),
        "rows of a class that does not exist": rows(class_name="nobody"),
        "rows of a time in the middle": rows(since="2026-01-01 01", until="2026-01-01 01"),
        "refused rows": rows(status="refused"),
        "refused rows of a class that does not exist": rows(status="refused", class_name="nobody"),
        "refused rows of status F, from the middle": rows(status="F", before=middle),
        "search of a key of a newest row": lambda one: one.search(f"usr.idu={key(last)}"),
        "search of a key that no row has": lambda one: one.search("usr.idu=99999999"),
        "a done row": lambda one: one.explain(str(middle + 1)),
        "a refused row": lambda one: one.explain(str(middle - middle % 1000)),
        "a row that waits": lambda one: one.explain(str(last)),
        "errors by cause": lambda one: one.errors(),
        "rows by class and status": lambda one: one.queue(),
    }


def key(row: int) -> int:
    return row * 7919 % 199999 + 1


def measure(bench: common.Server, config: Config, name: str, ask: Question, times: int) -> None:
    asking = Questions(config, planned_triggers)
    took, read = [], ""
    process, meter = psutil.Process(), common.Meter(bench)
    used = sum(process.cpu_times()[:2])
    for _ in range(times):
        begun = time.perf_counter()
        read = str(ask(asking).get("searched", ""))
        took.append((time.perf_counter() - begun) * 1000)
    client = (sum(process.cpu_times()[:2]) - used) * 1000 / times
    server = (meter.stop().server or 0.0) * 1000 / times
    print(f"{name}: {common.spread(took, 0)}; {client:.0f} + {server:.0f}; {read}", flush=True)


if __name__ == "__main__":
    main()
