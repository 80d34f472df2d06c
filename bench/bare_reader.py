"""The least that a reader of the log can do, for `bench/crowd.py --bare`: it shows what a database
and a directory cost a process, without any of our code.

As our readers do, it reads the new rows with one prepared statement, records them with a second,
whose commit waits for the disk, writes a file that is on disk under its name, and marks them with a
third, whose commit does not wait. Then it rests by the rule of our readers. It does nothing else:
no gaps, no key, no event of several rows, no answer. Its file has just the lines that the benchmark
looks for. The entry of its last rows is its position: after a crash it writes them again.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import common
import psycopg

from eventlog.core.clock import cpu_time
from eventlog.publisher.run.waiting import rest_after

_TABLE = f"{common.SCHEMA}.bare_reader"
_POLL = f"""
SELECT record_id, event_type, perpetrator, table_name, table_key, column_name, old_value, new_value
FROM {common.LOG} WHERE record_id > (SELECT %s::bigint) ORDER BY record_id LIMIT 10000"""
_RECORD = f"INSERT INTO {_TABLE} (name, first, last) VALUES (%s, %s, %s) RETURNING number"
_MARK = f"""
WITH one AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS off)
DELETE FROM {_TABLE} WHERE name = %s AND number < %s AND (SELECT off FROM one) = 'off'"""
_POSITION = f"SELECT coalesce(max(first) - 1, 0) FROM {_TABLE} WHERE name = %s"
_SETTINGS = (
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET enable_sort = off",
    "SET plan_cache_mode = force_generic_plan",
)


def create(bench: common.Server) -> None:
    """Create the table of these readers."""
    bench.run(
        f"CREATE TABLE {_TABLE} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "name text, first bigint, last bigint)"
    )


def _write(place: Path, number: int, rows: list[tuple[object, ...]]) -> None:
    lines = "".join(
        f'<association>{key}</association><add-value><value type="string">{new}</value></add-value>\n'
        for _, _, _, _, key, _, _, new in rows
    )
    target = place / f"{number:012}.xmll"
    part = place / f".{target.name}.part"
    with part.open("wb") as file:
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    folder = os.open(place, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def main() -> None:
    url, name, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with psycopg.connect(url, autocommit=True) as session:
        session.prepare_threshold = 0
        for setting in _SETTINGS:
            session.execute(setting)
        found = session.execute(_POSITION, (name,)).fetchone()
        assert found is not None
        last = int(found[0])
        while True:
            begun, used = time.monotonic(), cpu_time()
            if rows := session.execute(_POLL, (last,)).fetchall():
                first, last = last + 1, rows[-1][0]
                recorded = session.execute(_RECORD, (name, first, last)).fetchone()
                assert recorded is not None
                _write(place, recorded[0], rows)
                session.execute(_MARK, (name, recorded[0]))
            time.sleep(rest_after(time.monotonic() - begun, cpu_time() - used))


if __name__ == "__main__":
    main()
