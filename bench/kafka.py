"""What it costs to publish a full log to Kafka: messages in JSON and in Avro against XDS, on the
same rows.

Each run is the real command on a log that has been loaded again, vacuumed and checkpointed, with
topics of its own on librdkafka's mock cluster, which runs in a process of its own. The three take
turns; the client's CPU is what decides, since database, brokers and client share the machine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

import common

_SAVED: Final = f"{common.SCHEMA}.saved"
_XDS: Final = "XDS"
_FORMATS: Final[Mapping[str, str]] = {
    _XDS: 'type = "xds"',
    "JSON messages": 'type = "qlik-messages"\n[format.qlik-messages]\nencoding = "json"',
    "Avro messages": 'type = "qlik-messages"\n[format.qlik-messages]\nencoding = "avro"',
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that each format is published (%(default)s)"
    )
    options = parser.parse_args()
    costs: dict[str, list[common.Cost]] = {name: [] for name in _FORMATS}
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        common.install(bench)
        common.fill(bench, options.rows)
        bench.run(
            f"CREATE UNLOGGED TABLE {_SAVED} AS SELECT * FROM {common.LOG} ORDER BY record_id"
        )
        print(common.machine(bench), flush=True)
        print(
            "\n| round | format | publish s | client CPU | of XDS | its CPU "
            "|\n|---|---|---|---|---|---|"
        )
        for number in range(1, options.rounds + 1):
            for name in _FORMATS:
                cost = _publish(bench, Path(place), name, options.rows)
                costs[name].append(cost)
                xds = costs[_XDS][-1]
                print(
                    f"| {number} | {name} | {cost.wall:.2f} | {cost.client:.2f} | "
                    f"{cost.wall / xds.wall:.2f} | {cost.client / xds.client:.2f} |",
                    flush=True,
                )
    print(f"\nrows: {options.rows}; median (least to greatest)")
    for name, each in costs.items():
        pairs = list(zip(each, costs[_XDS], strict=True))
        print(
            f"{name}: {options.rows / median(cost.wall for cost in each):,.0f} rows/s; "
            f"time {common.spread([cost.wall / xds.wall for cost, xds in pairs])} of XDS, "
            f"client CPU {common.spread([cost.client / xds.client for cost, xds in pairs])}, "
            f"{1e6 * median(cost.client for cost in each) / options.rows:.1f} us a row"
        )


def _publish(bench: common.Server, place: Path, name: str, rows: int) -> common.Cost:
    bench.run(
        f"TRUNCATE {common.LOG}",
        f"INSERT INTO {common.LOG} SELECT * FROM {_SAVED} ORDER BY record_id",
        f"VACUUM (ANALYZE) {common.LOG}",
        "CHECKPOINT",
    )
    with common.kafka_brokers() as brokers:
        file = place / "eventlog.toml"
        file.write_text(
            "[database]\nschema_name = "
            f'"{common.SCHEMA}"\n[format]\n{_FORMATS[name]}\n[sink]\ntype = "kafka"\nbrokers = '
            f'"{brokers}"\ntopic = "bench"\n[[watch]]\ntable = "usr"\n'
        )
        meter = common.Meter(bench)
        code = common.start_publisher(bench, file).wait()
        cost = meter.stop()
    marked = bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status = 'S'")
    if code or marked != rows:
        raise SystemExit(
            f"eventlog publish of {name} ended with {code}: {marked} of {rows} rows are marked"
        )
    return cost


if __name__ == "__main__":
    main()
