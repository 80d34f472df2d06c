"""Executed opcodes of ``eventlog publish`` per event: a count, which load cannot blur.

    python bench/opcodes.py                  this tree
    python bench/opcodes.py PATH [PATH ...]  the products of other trees after it, and its ratio to each

A case runs with some events and with twice as many, each time as the command line; the difference
belongs to the events alone, and not to the start. What opcodes do not show: the time within a
function that is written in C, such as a wait. For single changes the cycles of the publisher are
shown, too: it looks for more before it sleeps, three times or, under load, five, and a cycle that
finds nothing is 6,000 opcodes. Compare what has as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import common
import gbase
import http_sink
import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.gbase.options import WriteOptions
from eventlog.gbase.writer import write_stream

_ROOT = Path(__file__).resolve().parents[1]
_ROWS_AN_EVENT = 19, 10
"""The rows of ``common.fill``, and the events that they make."""
_PAUSE = 0.6
"""Seconds until a publisher sleeps again after a change, slow as it is."""
_INSERT = (
    f"INSERT INTO {common.LOG} (event_type, table_name, table_key, column_name, old_value, "
    "new_value) VALUES (2, 'usr', 'idu=' || CAST(:number AS text), 'mail', 'a@b.org', 'c@d.org')"
)

Counted = tuple[int, int]
"""The opcodes and the cycles of a command."""
Case = Callable[[common.Server, Path, Path, int], Counted]
"""A function that returns what a tree's command needs for this number of events; the first path is
an empty directory, the second one the tree.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--case", action="append", help="only cases with this text in their name")
    options = parser.parse_args()
    trees = [_ROOT, *(tree.resolve() for tree in options.trees)]
    print(common.python(), flush=True)
    print(f"\n| case | {' | '.join(tree.name for tree in trees)} | ratio |")
    print(f"|---|{'---|' * len(trees)}---|", flush=True)
    with http_sink.receiver() as address:
        for name, (events, case) in _cases(address).items():
            if not options.case or any(text in name for text in options.case):
                found = [_per_event(case, tree, events) for tree in trees]
                ratios = ", ".join(f"{found[0][0] / one[0]:.3f}" for one in found[1:])
                shown = " | ".join(map(_shown, found))
                print(f"| {name} | {shown} | {ratios or '-'} |", flush=True)


def _cases(address: str) -> dict[str, tuple[int, Case]]:
    """Return the cases by their names, each with its smaller number of events."""
    http = ("sink.type=http", f"sink.url={address}", "sink.response_format=status")
    cases: dict[str, tuple[int, Case]] = {
        "a change, from wake to mark": (40, _changes),
        "the same, a consumer": (40, partial(_changes, consumer="earliest")),
        "a drain to files": (2000, _drain),
    }
    for form in ("xds", "cloudevents"):
        for size, concurrency in ((128, 1), (16, 4)):
            settings = (
                *http,
                f"format.type={form}",
                f"publisher.batch_size={size}",
                f"publisher.concurrency={concurrency}",
            )
            name = f"a drain through HTTP, {form}, {size} events a document, {concurrency} at once"
            cases[name] = 2000, partial(_drain, settings=settings)
    return cases | {
        "a snapshot": (3000, _snapshot),
        "a followed source, gbase": (1000, _source),
    }


def _shown(found: tuple[float, float]) -> str:
    opcodes, cycles = found
    return f"{opcodes:,.0f} in {cycles:.2f} cycles" if cycles > 1 else f"{opcodes:,.0f}"


def _per_event(case: Case, tree: Path, events: int) -> tuple[float, float]:
    counts = []
    for number in (events, 2 * events):
        with (
            common.server() as bench,
            tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
        ):
            common.install(bench)
            counts.append(case(bench, Path(directory), tree, number))
    (before, cycles_before), (after, cycles_after) = counts
    return (after - before) / events, (cycles_after - cycles_before) / events


def _changes(
    bench: common.Server, directory: Path, tree: Path, number: int, consumer: str = ""
) -> Counted:
    """Changes that come one at a time, while the publisher sleeps in between. ``consumer``: where
    a consumer begins; empty = the publisher.
    """
    settings = (
        "publisher.polling_interval=3600",
        "publisher.allow_loopback=yes",
        "sink.type=stdout",
    )
    file = _configuration(directory, consumer)
    with (
        bench.engine.connect() as connection,
        _started(bench, directory, tree, file, settings) as publisher,
    ):
        assert publisher.stdout is not None
        for change in range(number):
            connection.execute(sa.text(_INSERT), {"number": change})
            if f"idu={change}," not in publisher.stdout.readline().decode():
                raise SystemExit("the document of another change came")
            time.sleep(_PAUSE)
        publisher.terminate()
    return _count(directory)


def _drain(
    bench: common.Server, directory: Path, tree: Path, number: int, settings: Sequence[str] = ()
) -> Counted:
    rows, events = _ROWS_AN_EVENT
    common.fill(bench, number * rows // events)
    return _once(bench, directory, tree, common.configuration(directory), settings)


def _snapshot(bench: common.Server, directory: Path, tree: Path, number: int) -> Counted:
    bench.run(
        f"INSERT INTO {common.SCHEMA}.usr SELECT i, 'Ann', 'Smith ' || i, 'u' || i || "
        f"'@example.org', i % 1000, date '2020-01-01' + i % 1000 FROM generate_series(1, {number}) "
        "AS i"
    )
    return _once(bench, directory, tree, _configuration(directory, "snapshot"))


def _source(bench: common.Server, directory: Path, tree: Path, number: int) -> Counted:
    """Inserts of a capture file; the server is not used."""
    options = WriteOptions(tables={"app.item": gbase.COLUMNS}, labels={1: "shop:app.item"})
    capture = directory / "capture.cdc"
    capture.write_bytes(b"".join(write_stream(gbase.changes(number), options, Report())))
    file = directory / "eventlog.toml"
    file.write_text(
        f'[source]\ntype = "gbase"\npath = "{capture}"\n'
        f'position_url = "sqlite:///{directory}/position.db"\n'
        '[source.reader]\nlabels = { 1 = "shop:app.item" }\nkeys = { "app.item" = ["id"] }\n'
        '[sink]\ntype = "files"\ndirectory = "documents"\nfile_layout = "lines"\n'
    )
    return _once(bench, directory, tree, file)


def _configuration(directory: Path, consumer: str) -> Path:
    file = common.configuration(directory)
    if consumer:
        source = f'[source]\ntype = "eventlog"\nconsumer = "counted"\nstart_from = "{consumer}"\n'
        file.write_text(file.read_text() + source)
    return file


# --- a counted command ----------------------------------------------------------------------------


def _once(
    bench: common.Server, directory: Path, tree: Path, file: Path, settings: Sequence[str] = ()
) -> Counted:
    with _started(bench, directory, tree, file, settings, "--once") as running:
        if running.wait():
            raise SystemExit(f"eventlog publish ended with {running.returncode}")
    return _count(directory)


def _started(
    bench: common.Server,
    directory: Path,
    tree: Path,
    file: Path,
    settings: Sequence[str],
    *flags: str,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            str(_ROOT / "bench" / "counted.py"),
            str(directory / "count"),
            "--quiet",
            f"--config={file}",
            *(f"--set={setting}" for setting in settings),
            "publish",
            *flags,
        ],
        stdout=subprocess.PIPE,
        env=os.environ | {"EVENTLOG_DATABASE_URL": bench.url, "PYTHONPATH": str(tree)},
    )


def _count(directory: Path) -> Counted:
    opcodes, cycles = map(int, (directory / "count").read_text().split())
    return opcodes, cycles


if __name__ == "__main__":
    main()
