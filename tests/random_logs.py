#!/usr/bin/env python3
"""Publish random logs by two commits and say where they differ: documents, statuses, errors, counters, how a run ended.

``python tests/random_logs.py COMMIT [--logs 3000]`` compares COMMIT with the working tree; nothing said is equal. The
other commit is checked out beside a temporary directory and run with this environment. Log N is the same in every run:
``--first N --logs 1 --whole`` prints all that both made of it.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
VALUES = [None, "", "a", "b", "c<&>\"'", "é\u0001", "00ff", "x" * 70, "1", "2", " "]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the commit to compare the working tree with")
    parser.add_argument("--logs", type=int, default=3000, help="how many logs (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default %(default)s)")
    parser.add_argument("--whole", action="store_true", help="print what was made, not its digest")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.logs)
    if options.tree:
        for line in published(options.tree, numbers, whole=options.whole):
            print(line, flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="eventlog-logs-") as place:
        before = Path(place) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), options.commit], check=True)
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


def published(tree: Path, numbers: range, *, whole: bool) -> Iterator[str]:
    """What a tree's own code makes of each log: its number, its documents, and a digest of all that can be seen."""
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
            flight_rows=chance.choice([5, 10_000]),
            fold_distance=chance.choice([1, 2, 100]),
            driver_user=chance.choice([None, "own"]),
            delete_from_log=chance.random() < 0.2,
        )
        world = fake_publisher.FakePublisher(options, chance.choice(catalogs), _contents(chance))
        world.log(rows)
        sink = fake_publisher.Receiver(judge=_judge(random.Random(number + 1)), reads_back=True)
        try:
            run = world.run(sink)
            result = (run.result.value, run.reason)
        except Exception as error:
            result = (type(error).__name__, str(error))
        documents = [(one.flight, one.envelope, list(one.event_ids), one.body) for one in sink.documents]
        errors = [(record_id, code) for record_id, code, _ in world.errors()]
        seen = repr((result, documents, world.statuses(), errors, str(world.counters)))
        world.close()
        yield f"{number} {len(documents)} {seen if whole else hashlib.sha256(seen.encode()).hexdigest()[:16]}"


def random_rows(chance: random.Random) -> list[Any]:
    """One to forty rows of a few objects; one row in seven is of those that no trigger writes."""
    from eventlog.model import LogRow

    rows, record_id = [], 0
    for _ in range(chance.randint(1, 40)):
        record_id += chance.choice([1, 1, 1, 2, 3, 120])
        is_plain = chance.random() < 0.85
        rows.append(
            LogRow(
                record_id,
                chance.choice("NNNNNNNNSE") if chance.random() < 0.1 else "N",
                chance.choice([1, 2, 3, 4, 5, 6, 7, 8] if is_plain else [0, 9, None, 1, 2]),
                None,
                chance.choice(["app", "app", "app", "own", None]),
                chance.choice(
                    ["usr", "usr", "usr", "usr_phone", "tag"] if is_plain else ["USR", "nope", None, "indirect.usr"]
                ),
                chance.choice(PLAIN_KEYS if is_plain else KEYS),
                chance.choice(PLAIN_COLUMNS if is_plain else COLUMNS),
                chance.choice(VALUES),
                chance.choice(VALUES),
            )
        )
    return rows


def _contents(chance: random.Random) -> dict[str, Any]:
    """The rows that a query-back finds: some of the objects, under their keys and their full names."""
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
    return contents | {f"{key},table=usr,schema=indirect": values for key, values in contents.items()}


def _judge(chance: random.Random) -> Any:
    """A receiver's verdicts: the first time that an event comes by chance, then success."""
    judged: set[str] = set()

    def judge(event: Any) -> str:
        if event.event_id in judged:
            return "success"
        judged.add(event.event_id)
        return chance.choices(["success", "warning", "error", "retry"], [12, 1, 1, 1])[0]

    return judge


if __name__ == "__main__":
    sys.exit(main())
