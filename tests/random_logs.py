#!/usr/bin/env python3
"""Publish random logs by two commits and say where they differ: documents, statuses, errors,
counters, how a run ended.

``python tests/random_logs.py COMMIT [--logs 3000] [--format NAME]`` compares COMMIT with the
working tree; nothing said is equal. XDS and Avro are compared byte for byte, JSON parsed. The other
commit is checked out next to a temporary directory and run with this environment. Log N is the same
in every run: ``--first N --logs 1 --whole`` prints all that both made of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
PLAIN_KEYS = ["idu=1", "idu=2", "idu=3"]
KEYS = [
    *PLAIN_KEYS,
    "IDU=1",
    "idu=1+fname=x",
    "idu=",
    "idu=x",
    None,
    'idu="4"',
    "table=usr,idu=2",
    "code=ab",
    "idu=0x5",
]
PLAIN_COLUMNS = ["fname", "lname", "photo"]
COLUMNS = [*PLAIN_COLUMNS, "idu", "FNAME", "nope", None, "phoneno", "usr_phone.phoneno"]
TIMES = [None, "2026-05-06 07:08:09.123", "2026-05-06 07:08:09.123", "2026-05-06 07:08:10", "soon"]
VALUES = [None, "", "a", "b", "c<&>\"'", "é\u0001", "00ff", "x" * 70, "1", "2", " "]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="the commit to compare the working tree with")
    parser.add_argument(
        "--logs", type=int, default=3000, help="how many logs (default %(default)s)"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first one (default %(default)s)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="xds", help="what is published (default %(default)s)"
    )
    parser.add_argument("--whole", action="store_true", help="print what was made, not its digest")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.logs)
    if options.tree:
        for line in published(options.tree, numbers, options.format, whole=options.whole):
            print(line, flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="eventlog-logs-") as place:
        before = Path(place) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(before), options.commit], check=True
        )
        try:
            sides = [_run(tree) for tree in (before, HERE)]
            different = 0
            for old, new in zip_longest(*(side.stdout for side in sides if side.stdout)):
                if old != new:
                    different += 1
                    print(f"before: {old}now:    {new}")
            failed = [side for side in sides if side.wait()]
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    print(f"{different} of {options.logs} logs differ")
    return 2 if failed else int(different > 0)


def _run(tree: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *sys.argv[1:], "--tree", str(tree)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# --- formats --------------------------------------------------------------------------------------

NOW = datetime(2026, 5, 6, 8, 0, tzinfo=UTC)
SOURCE, TYPE = "/hr", "{schema}.{class}.{operation}"
_QLIK = {"qlik-json": "json", "qlik-avro": "avro"}
_MODES = {
    "cloudevents": "structured",
    "cloudevents-batched": "batched",
    "cloudevents-binary": "binary",
}
_IN_RECORDS = ("cloudevents-binary", "debezium", *_QLIK)
FORMATS = ("xds", *_MODES, *_QLIK, "debezium")


def _writer(name: str) -> Any:
    """The writer of a format, of the tree that is loaded."""
    from eventlog.changes.publishing import Publishing
    from eventlog.registry import format_named

    publishing = Publishing(in_records=name in _IN_RECORDS, utc_now=lambda: NOW)
    if name in _MODES:
        format, chosen = (
            format_named("cloudevents"),
            {"source": SOURCE, "event_type": TYPE, "mode": _MODES[name]},
        )
    elif name in _QLIK:
        format, chosen = format_named("qlik-messages"), {"encoding": _QLIK[name]}
    elif name == "debezium":
        format, chosen = format_named(name), {"missing_columns": "read_back"}
    else:
        format, chosen = format_named(name), {}
    assert format.publish_options is not None
    return format.publish(format.publish_options(**chosen), publishing)


def _content(body: str | bytes | None) -> Any:
    """What a body says: of JSON its values without the time of processing, else its characters or
    bytes.
    """
    if body is None:
        return None
    data = body.encode() if isinstance(body, str) else body
    try:
        lines = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return data
    for line in lines:
        change = line.get("payload", line) if isinstance(line, Mapping) else line
        if isinstance(change, dict):
            for unit in ("ts_ms", "ts_us", "ts_ns"):
                change.pop(unit, None)
    return lines


def _said(document: Any) -> Any:
    records = [
        [(one.topic, one.key, _content(one.value), one.headers) for one in each]
        if isinstance(each, list | tuple) and not hasattr(each, "level")
        else str(each)
        for each in document.records
    ]
    return (
        document.delivery_no,
        document.document_no,
        list(document.event_ids),
        _content(document.body),
        records,
    )


def published(tree: Path, numbers: range, format: str, *, whole: bool) -> Iterator[str]:
    """What a tree's own code makes of each log: its number, its documents, and a digest of all that
    can be seen.
    """
    sys.path[:0] = [str(tree), str(tree / "tests" / "unit"), str(tree / "tests")]
    import fake_publisher
    from samples import catalog

    if not str(fake_publisher.__file__).startswith(str(tree)):
        raise SystemExit(f"{tree} is not what was loaded, but {fake_publisher.__file__}")
    logging.disable(logging.CRITICAL)
    catalogs = [catalog(), catalog(emit_keys=True), catalog(meta_identifiers=False)]
    for number in numbers:
        chance = random.Random(number)
        rows = random_rows(chance)
        options = fake_publisher.with_options(
            batch_size=chance.choice([1, 2, 7, 128]),
            query_limit=chance.choice([0, 3, 1000]),
            delivery_rows=chance.choice([5, 10_000]),
            fold_distance=chance.choice([1, 2, 100]),
            driver_user=chance.choice([None, "own"]),
            delete_from_log=chance.random() < 0.2,
        )
        world = fake_publisher.FakePublisher(
            options, chance.choice(catalogs), contents=_contents(chance)
        )
        world.log(rows)
        writer, made = _writer(format), world.context
        world.context = partial(_context_with, made, writer)
        sink = _receiver(fake_publisher.Receiver)(judge=_judge(number), reads_back=True)
        try:
            run = world.run(sink)
            result = (run.result.value, run.reason)
        except Exception as error:
            result = (type(error).__name__, str(error))
        documents = [_said(one) for one in sink.documents]
        errors = [(record_id, code) for record_id, code, _ in world.errors()]
        seen = repr((result, documents, world.statuses(), errors, str(world.counters)))
        world.close()
        yield (
            f"{number} {len(documents)} "
            f"{seen if whole else hashlib.sha256(seen.encode()).hexdigest()[:16]}"
        )


def _receiver(kind: Any) -> Any:
    """A receiver that answers for records which a writer has refused, as the sink of Kafka does."""

    class Receiver(kind):
        def send(self, document: Any) -> Any:
            answer, records = super().send(document), document.records
            answers = zip(document.event_ids, records, strict=bool(records))
            refused = {event_id: one for event_id, one in answers if hasattr(one, "level")}
            return replace(answer, results={**answer.results, **refused})

    return Receiver


def _context_with(made: Callable[[], Any], writer: Any) -> Any:
    return replace(made(), output=writer)


def random_rows(chance: random.Random) -> list[Any]:
    """One to forty rows of a few objects; one row in seven is of those that no trigger writes."""
    from eventlog.model import LogRow

    rows, record_id = [], 0
    times = random.Random(chance.randint(0, 2**32))
    for _ in range(chance.randint(1, 40)):
        record_id += chance.choice([1, 1, 1, 2, 3, 120])
        is_plain = chance.random() < 0.85
        rows.append(
            LogRow(
                record_id,
                chance.choice("NNNNNNNNSE") if chance.random() < 0.1 else "N",
                chance.choice([1, 2, 3, 4, 5, 6, 7, 8] if is_plain else [0, 9, None, 1, 2]),
                times.choice(TIMES),
                chance.choice(["app", "app", "app", "own", None]),
                chance.choice(
                    ["usr", "usr", "usr", "usr_phone", "tag"]
                    if is_plain
                    else ["USR", "nope", None, "indirect.usr"]
                ),
                chance.choice(PLAIN_KEYS if is_plain else KEYS),
                chance.choice(PLAIN_COLUMNS if is_plain else COLUMNS),
                chance.choice(VALUES),
                chance.choice(VALUES),
            )
        )
    return rows


def _contents(chance: random.Random) -> dict[str, Any]:
    """The rows that a query-back finds: some of the objects, under their keys and their full
    names.
    """
    contents = {
        key: {
            "fname": chance.choice([["F"], [None], ["<z>"]]),
            "lname": ["L"],
            "photo": [None],
            "usr_phone.phoneno": chance.choice([["1", "2"], [], ["9"]]),
        }
        for key in PLAIN_KEYS
        if chance.random() < 0.6
    }
    return contents | {
        f"{key},table=usr,schema=indirect": values for key, values in contents.items()
    }


def _judge(seed: int) -> Any:
    """A receiver's verdicts: the first time that an event comes by chance, then success.

    They hang on the event alone, not on those before it: what a writer refuses is judged by some
    trees and not by others.
    """
    judged: set[str] = set()

    def judge(event: Any) -> str:
        if event.event_id in judged:
            return "success"
        judged.add(event.event_id)
        chance = random.Random(f"{seed} {event.event_id}")
        return chance.choices(["success", "warning", "error", "retry"], [12, 1, 1, 1])[0]

    return judge


if __name__ == "__main__":
    sys.exit(main())
