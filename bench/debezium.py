"""The CPU seconds that change events of an update of eight columns take, without schemas
(formats/debezium.md).
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal

import common

from eventlog.changes.json_form import database_from_json
from eventlog.core.catalog.builder import build_catalog
from eventlog.debezium.writer import EnvelopeWriter, Logged, WriteOptions
from eventlog.model import Change, ChangeOp, Value

COLUMNS = {
    "id": "integer", "a": "varchar(20)", "p": "decimal(9,2)", "t": "timestamp", "z": "timestamptz",
    "d": "date", "f": "double", "c": "time",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--events", type=int, default=30_000, help="events a round (default %(default)s)"
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    columns = [{"name": name, "type": type} for name, type in COLUMNS.items()]
    tables = [{"name": "t", "kind": "table", "columns": columns, "primary_key": ["id"]}]
    catalog = build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "app", "tables": tables})
    )
    moment = datetime(2024, 5, 10, 12, 0, 0, 5)
    row: dict[str, Value] = {
        "id": 1, "a": "abc", "p": Decimal("1.50"), "t": moment, "z": moment.replace(tzinfo=UTC),
        "f": 1.5, "d": date(2024, 1, 1), "c": clock(1, 2, 3),
    }  # fmt: skip
    key = (("id", 1),)
    change = Change(
        "app", "t", ChangeOp.UPDATE, key, before=row, after={**row, "a": "x"},
        changed=frozenset({"a"})
    )  # fmt: skip
    writer = EnvelopeWriter(WriteOptions(schemas_enable=False), catalog)
    for _ in range(3):
        start = time.process_time()
        for _ in range(options.events):
            writer.records(change, catalog.classes[0], None, Logged([1]))
        print(f"{options.events} events: {time.process_time() - start:.2f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
