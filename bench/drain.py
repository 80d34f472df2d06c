"""How long it takes to publish a full log to files, against the least that the database itself
needs for the same rows.

The floor: COPY of the ten columns in record_id order to nowhere, and one UPDATE of their status.
Both are run in turn on the same server and the same rows, each on a log that has been loaded again,
vacuumed and checkpointed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median

import common

_SAVED = f"{common.SCHEMA}.saved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=500_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that floor and publisher are run (%(default)s)"
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete_from_log, and a floor that deletes"
    )
    options = parser.parse_args()
    floors: list[common.Cost] = []
    drains: list[common.Cost] = []
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        common.fill(bench, options.rows)
        bench.run(
            f"CREATE UNLOGGED TABLE {_SAVED} AS SELECT * FROM {common.LOG} ORDER BY record_id",
            # now, so that autovacuum does not come to it while something is measured
            f"VACUUM (ANALYZE) {_SAVED}",
        )
        file = common.configuration(Path(directory), delete=options.delete)
        print(common.machine(bench), flush=True)
        print(
            "\n| round | floor s | its CPU | publish s | client CPU | server CPU | ratio | CPU "
            "ratio |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for number in range(1, options.rounds + 1):
            _load(bench)
            floor = _floor(bench, options.delete)
            _load(bench)
            drain = _publish(bench, file, options.rows, options.delete)
            floors.append(floor)
            drains.append(drain)
            print(
                f"| {number} | {floor.wall:.2f} | {_cpu(floor.server)} | {drain.wall:.2f} | "
                f"{drain.client:.2f} | {_cpu(drain.server)} | {drain.wall / floor.wall:.2f} | "
                f"{_cpu(_cpu_ratio(drain, floor))} |",
                flush=True,
            )
    print(
        f"\nrows: {options.rows}, {'deleted' if options.delete else 'marked'}; median (least to "
        "greatest)"
    )
    for name, costs in (("floor", floors), ("publish", drains)):
        walls = [cost.wall for cost in costs]
        print(f"{name}: {common.spread(walls)} s, {options.rows / median(walls):,.0f} rows/s")
    pairs = list(zip(drains, floors, strict=True))
    print(f"ratio: {common.spread([drain.wall / floor.wall for drain, floor in pairs])}")
    cpu_ratios = [
        ratio for drain, floor in pairs if (ratio := _cpu_ratio(drain, floor)) is not None
    ]
    if cpu_ratios:
        print(f"CPU ratio, client and server: {common.spread(cpu_ratios)}")


def _cpu_ratio(drain: common.Cost, floor: common.Cost) -> float | None:
    return (
        None
        if drain.server is None or not floor.server
        else (drain.client + drain.server) / floor.server
    )


def _cpu(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _load(bench: common.Server) -> None:
    bench.run(
        f"TRUNCATE {common.LOG}",
        f"INSERT INTO {common.LOG} SELECT * FROM {_SAVED} ORDER BY record_id",
        f"VACUUM (ANALYZE) {common.LOG}",
        "CHECKPOINT",
    )


def _floor(bench: common.Server, delete: bool) -> common.Cost:
    mark = f"DELETE FROM {common.LOG}" if delete else f"UPDATE {common.LOG} SET status = 'S'"
    with bench.engine.connect() as connection:
        meter = common.Meter(bench)
        connection.exec_driver_sql(
            f"COPY (SELECT {common.COLUMNS} FROM {common.LOG} ORDER BY record_id) TO '/dev/null'"
        )
        connection.exec_driver_sql(f"{mark} WHERE status = 'N'")
        return meter.stop()


def _publish(bench: common.Server, file: Path, rows: int, delete: bool) -> common.Cost:
    shutil.rmtree(file.with_name("documents"), ignore_errors=True)
    meter = common.Meter(bench)
    code = common.start_publisher(bench, file).wait()
    cost = meter.stop()
    in_log = bench.value(f"SELECT count(*) FROM {common.LOG}")
    marked = bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status = 'S'")
    if code or (in_log, marked) != ((0, 0) if delete else (rows, rows)):
        raise SystemExit(
            f"eventlog publish ended with {code}: {marked} of {in_log} rows in the log are marked"
        )
    return cost


if __name__ == "__main__":
    main()
