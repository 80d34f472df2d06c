"""The consumers that ``peers.py`` runs beside eventlog, each a process of its own that ends when
everything is read.

They take every row or change as text into Python and look no further. Nothing of eventlog is
imported, so that their start is theirs alone.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

WINDOW = 10_000
"""Rows a transaction: as many as a window of the publisher takes."""


def connect(options: dict[str, Any]) -> Any:
    """A session that leaves times as text."""
    import psycopg
    from psycopg.types.string import TextLoader

    connection = psycopg.connect(options["dsn"])
    for name in ("timestamp", "timestamptz"):
        connection.adapters.register_loader(name, TextLoader)
    return connection


def mark_by_hand(options: dict[str, Any]) -> int:
    """Read a window of the log, mark it by its ids, commit; until nothing is left."""
    log, columns = options["log"], options["columns"]
    read = (
        f"SELECT {columns} FROM {log} WHERE status = 'N' AND record_id > %s ORDER BY record_id "
        f"LIMIT {WINDOW}"
    )
    count, last = 0, 0
    with connect(options) as connection:
        while rows := connection.execute(read, (last,)).fetchall():
            ids = [row[0] for row in rows]
            connection.execute(f"UPDATE {log} SET status = 'S' WHERE record_id = ANY(%s)", (ids,))
            connection.commit()
            count, last = count + len(rows), ids[-1]
    return count


def delete_by_hand(options: dict[str, Any]) -> int:
    """Delete a window of the log and read it by the same statement, commit; until nothing is
    left.
    """
    log, columns = options["log"], options["columns"]
    window = (
        f"SELECT record_id FROM {log} WHERE status = 'N' AND record_id > %s ORDER BY record_id "
        f"LIMIT {WINDOW}"
    )
    take = (
        f"WITH gone AS (DELETE FROM {log} WHERE record_id = ANY(ARRAY({window})) RETURNING "
        f"{columns}) SELECT * FROM gone ORDER BY record_id"
    )
    count, last = 0, 0
    with connect(options) as connection:
        while rows := connection.execute(take, (last,)).fetchall():
            connection.commit()
            count, last = count + len(rows), rows[-1][0]
    return count


def consume_pgq(options: dict[str, Any]) -> int:
    """PgQ's loop: a batch, its events, finished, commit; until there is no further batch."""
    count = 0
    with connect(options) as connection:
        while True:
            following = "SELECT pgq.next_batch(%s, %s)"
            batch = connection.execute(
                following, (options["queue"], options["consumer"])
            ).fetchone()[0]
            if batch is None:
                return count
            count += len(
                connection.execute("SELECT * FROM pgq.get_batch_events(%s)", (batch,)).fetchall()
            )
            connection.execute("SELECT pgq.finish_batch(%s)", (batch,))
            connection.commit()


def consume_debezium(options: dict[str, Any]) -> int:
    """Debezium's engine within this process; closed as soon as all expected changes have come and
    are acknowledged.
    """
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

    class Counter(BasePythonChangeHandler):  # type: ignore[misc]
        count = 0

        def handleJsonBatch(self, records: Any) -> None:  # noqa: N802
            self.count += len([str(record.value()) for record in records])

    done = threading.Event()
    handler = Counter()
    engine = DebeziumJsonEngine(properties=options["properties"], handler=handler)
    consume = engine.consumer.handleBatch

    def consume_and_tell(records: Any, committer: Any) -> None:
        consume(records, committer)  # the batch is acknowledged after the handler has returned
        if handler.count >= options["changes"]:
            done.set()

    engine.consumer.handleBatch = consume_and_tell
    running = threading.Thread(target=engine.run, daemon=True)
    running.start()
    while not done.wait(0.05):
        if not running.is_alive():
            raise SystemExit(
                f"Debezium's engine ended after {handler.count} of {options['changes']} changes"
            )
    engine.close()
    running.join()
    return handler.count


CLIENTS: dict[str, Callable[[dict[str, Any]], int]] = {
    "mark": mark_by_hand,
    "delete": delete_by_hand,
    "pgq": consume_pgq,
    "debezium": consume_debezium,
}


if __name__ == "__main__":
    print("read:", CLIENTS[sys.argv[1]](json.loads(sys.argv[2])))
