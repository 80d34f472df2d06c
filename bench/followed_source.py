"""Events per second of a followed source, end to end: read, sent to files as XDS, and saved with the
position.

A capture file of GBase 8s has inserts of eight columns, a hundred in a transaction; a dispatch queue
of Linter in a SQLite file has inserts of the same table. Each run begins with a new position.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import common
import gbase

from eventlog.changes.format import Report
from eventlog.config.load import load
from eventlog.gbase.options import WriteOptions
from eventlog.gbase.writer import write_stream
from eventlog.model import Change
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.open_source import following, position_of
from eventlog.registry import format_named

_COLUMNS = [
    {"name": name, "type": kind}
    for name, kind in (
        ("id", "integer"),
        ("big", "bigint"),
        ("price", "decimal(10,2)"),
        ("day", "date"),
        ("made", "timestamp"),
        ("code", "varchar(10)"),
        ("name", "varchar(40)"),
        ("note", "varchar(80)"),
    )
]
_ITEM = {
    "name": "item",
    "kind": "table",
    "columns": _COLUMNS,
    "primary_key": ["id"],
    "foreign_keys": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=40_000, help="inserts of each source (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each is run (default %(default)s)"
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    print("\n| source | events/s | client CPU us an event |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        directory = Path(place)
        sources = {
            "gbase": _capture(directory / "capture.cdc", options.rows),
            "linter": _queue(directory / "queue.db", options.rows),
        }
        for name, source in sources.items():
            taken = [_publish(directory, name, source, options.rows) for _ in range(options.rounds)]
            speeds, costs = zip(*taken, strict=True)
            cost = common.spread([one * 1e6 for one in costs], 1)
            print(f"| {name} | {median(speeds):,.0f} | {cost} |", flush=True)


def _capture(path: Path, rows: int) -> dict[str, Any]:
    options = WriteOptions(tables={"app.item": gbase.COLUMNS}, labels={1: "shop:app.item"})
    path.write_bytes(b"".join(write_stream(gbase.changes(rows), options, Report())))
    reader = {"labels": {"1": "shop:app.item"}, "keys": {"app.item": ["id"]}}
    return {"path": str(path), "reader": reader}


def _queue(path: Path, rows: int) -> dict[str, Any]:
    url = f"sqlite:///{path}"
    catalog = {"dialect": "postgresql", "schema": "app", "tables": [_ITEM]}
    format_named("linter").write(_with_keys(rows), url, {"catalog": catalog}, Report())
    return {"url": url, "reader": {"codec": "eventlog-emulator-1"}}


def _with_keys(rows: int) -> Iterator[Change]:
    for change in gbase.changes(rows):
        assert change.after is not None
        yield change._replace(key=(("id", change.after["id"]),))


def _publish(directory: Path, name: str, source: dict[str, Any], rows: int) -> tuple[float, float]:
    """Return the events per second, and the client's CPU seconds per event."""
    to, position = directory / "documents", directory / "position.db"
    shutil.rmtree(to, ignore_errors=True)
    position.unlink(missing_ok=True)
    config = load(
        {
            "source": {"type": name, "position_url": f"sqlite:///{position}", **source},
            "sink": {"type": "files", "directory": str(to), "file_layout": "lines"},
        },
        {},
    )
    counters = Counters()
    followed = following(config, counters, Report())
    with closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        begun, used = time.perf_counter(), time.process_time()
        follow(followed, position_of(config), lambda: sink, StopRequest(), once=True)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
    assert counters.events_sent == rows, counters.events_sent
    return rows / seconds, cpu / rows


if __name__ == "__main__":
    main()
