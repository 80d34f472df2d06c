"""How long it takes to publish a full log to files, against the least that the database itself needs for the same rows.

The floor: COPY of the ten columns in record_id order to nowhere, and one UPDATE of their status. Both are run in turn
on the same server and the same rows, each on a log that has been loaded anew, vacuumed and checkpointed.
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
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the log (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="times that floor and publisher are run (%(default)s)")
    parser.add_argument("--delete", action="store_true", help="delete_from_log, and a floor that deletes")
    options = parser.parse_args()
    floors, drains = [], []
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        common.install(bench)
        common.fill(bench, options.rows)
        bench.run(f"CREATE UNLOGGED TABLE {_SAVED} AS SELECT * FROM {common.LOG} ORDER BY record_id")
        file = common.configuration(Path(directory), delete=options.delete)
        print(common.machine(bench), flush=True)
        print("\n| round | floor s | publish s | of it client CPU | server CPU | ratio |\n|---|---|---|---|---|---|")
        for number in range(1, options.rounds + 1):
            _load(bench)
            floor = _floor(bench, options.delete)
            _load(bench)
            drain = _publish(bench, file, options.rows, options.delete)
            floors.append(floor.wall)
            drains.append(drain.wall)
            server = "-" if drain.server is None else f"{drain.server:.2f}"
            print(
                f"| {number} | {floor.wall:.2f} | {drain.wall:.2f} | {drain.client:.2f} | {server} "
                f"| {drain.wall / floor.wall:.2f} |",
                flush=True,
            )
    ratios = [drain / floor for drain, floor in zip(drains, floors, strict=True)]
    print(f"\nrows: {options.rows}, {'deleted' if options.delete else 'marked'}; median (least to greatest)")
    print(f"floor    {common.spread(floors)} s, {options.rows / median(floors):,.0f} rows/s")
    print(f"publish  {common.spread(drains)} s, {options.rows / median(drains):,.0f} rows/s")
    print(f"ratio    {common.spread(ratios)}; of the medians {median(drains) / median(floors):.2f}")


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
        raise SystemExit(f"eventlog publish ended with {code}: {marked} of {in_log} rows in the log are marked")
    return cost


if __name__ == "__main__":
    main()
