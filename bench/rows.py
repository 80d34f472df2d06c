"""What a row costs between the log and its text, in this process alone: check, fold, build,
in-flight line, write.

The rows are those of the other benchmarks, made in memory. Times are CPU of this process, the best
of several rounds. ``--format``: XDS in lines, as records of Kafka, or messages in JSON or Avro.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from time import process_time
from typing import Any, Final

import common

from eventlog.changes.json_form import database_from_json
from eventlog.changes.publishing import EventWriter, Publishing
from eventlog.cloudevents.options import PublishOptions as CloudEventsOptions
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.checks import check_rows
from eventlog.core.rows.events import EventOptions, build_event
from eventlog.core.rows.fold import fold
from eventlog.debezium.publish import DebeziumWriter
from eventlog.debezium.writer import PublishOptions as DebeziumOptions
from eventlog.model import LogRow, origins_of, queue_rows
from eventlog.publisher.ledger.delivery import encode, pack
from eventlog.qlik.messages.message_tables import PublishOptions
from eventlog.qlik.messages.publish import QlikWriter
from eventlog.xds.publish import XdsWriter
from eventlog.xds.writer import Header


def _cloudevents(mode: str, in_records: bool = False) -> CloudEventWriter:
    return CloudEventWriter(
        CloudEventsOptions("/bench/log", mode=mode), Publishing(in_records=in_records)
    )


_FORMATS: Final[Mapping[str, Callable[[], EventWriter[Any]]]] = {
    "lines": lambda: XdsWriter(Header()),
    "records": lambda: XdsWriter(Header(), Publishing(in_records=True)),
    "json": lambda: QlikWriter(PublishOptions(), Publishing()),
    "cloudevents": lambda: _cloudevents("structured"),
    "binary": lambda: _cloudevents("binary", in_records=True),
    "batched": lambda: _cloudevents("batched"),
    "debezium": lambda: DebeziumWriter(
        DebeziumOptions(missing_columns="placeholder", schemas_enable=False),
        Publishing(in_records=True),
    ),
    "avro": lambda: QlikWriter(PublishOptions(encoding="avro"), Publishing()),
}
_BEGIN = datetime(2026, 1, 1)
_WINDOW = 10_000
_NAMES = ("Ann", "Béla", "Chloë", "Dmitri", "Fatima", "Grace", "Hiro", "Joan")
_SURNAMES = ("O'Brien", "Smith & Sons", "García", "Müller", "Ivanov")
_TABLE = {
    "name": "usr",
    "kind": "table",
    "primary_key": ["idu"],
    "columns": [
        {"name": "idu", "type": "integer"},
        {"name": "fname", "type": "varchar(40)"},
        {"name": "lname", "type": "varchar(40)"},
        {"name": "mail", "type": "varchar(80)"},
        {"name": "salary", "type": "decimal(10,2)"},
        {"name": "hired", "type": "date"},
    ],
}


def catalog() -> Catalog:
    return build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "bench", "tables": [_TABLE]})
    )


def log_rows(count: int, *, with_transactions: bool = False) -> list[LogRow]:
    """Of ten changes three inserts of 3 rows, three updates of one column, three of two, one
    delete.
    """
    rows: list[LogRow] = []
    change = 0
    while len(rows) < count:
        change += 1
        kind, time = (
            change % 10,
            (_BEGIN + timedelta(milliseconds=change)).isoformat(" ", "milliseconds"),
        )
        idu = 1_000_000 + change if kind < 3 else change * 7919 % 199_999 + 1
        values = {
            "fname": _NAMES[idu % 8],
            "lname": f"{_SURNAMES[idu % 5]}{change}",
            "mail": f"user.{idu}.{change}@example.org",
        }
        event_type, columns = (
            (1, ("fname", "lname", "mail")) if kind < 3 else (2, ("mail",)) if kind < 6
            else (2, ("lname", "mail")) if kind < 9 else (4, (None,))
        )  # fmt: skip
        for column in columns:
            new = None if column is None else values[column]
            old = f"{new} before" if event_type == 2 else None
            key, number = f"idu={idu}", str(1_000_000 + change // 10) if with_transactions else None
            fields = "N", event_type, time, "hr_app", "usr", key, column, old, new, number
            rows.append(LogRow(len(rows) + 1, *fields))
    return rows[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="rows (default %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds, of which the best counts (%(default)s)"
    )
    parser.add_argument(
        "--format", choices=_FORMATS, default="lines", help="what is written (%(default)s)"
    )
    parser.add_argument(
        "--transaction-ids", action="store_true", help="the rows have the ids of transactions"
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    classes = catalog()
    rows = log_rows(options.rows, with_transactions=options.transaction_ids)
    windows = [rows[start : start + _WINDOW] for start in range(0, len(rows), _WINDOW)]
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for stage, seconds in run(windows, classes, _FORMATS[options.format]()).items():
            best[stage] = min(best.get(stage, seconds), seconds)
    for stage, seconds in [*best.items(), ("all", sum(best.values()))]:
        print(f"{stage:7} {seconds / len(rows) * 1e6:5.2f} us a row")


def run(
    windows: list[list[LogRow]], classes: Catalog, output: EventWriter[Any]
) -> dict[str, float]:
    options = EventOptions()
    spent = dict.fromkeys(("check", "fold", "build", "line", "write"), 0.0)

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        begun = process_time()
        result = work()
        spent[stage] += process_time() - begun
        return result

    gc.collect()
    gc.disable()  # as the publisher's windows are read
    for number, window in enumerate(windows, 1):
        valid = timed("check", partial(_valid, window, classes))
        groups = timed("fold", partial(fold, valid, 1000, 10_000))
        events = timed("build", partial(_built, groups, options))
        packed = partial(
            pack, number, events, 128, output.first(number, "", None), origins_of(window)
        )
        delivery = timed("line", packed)
        timed("line", partial(encode, delivery))
        timed("write", partial(_write, output, classes, delivery))
    gc.enable()
    return spent


def _valid(window: list[LogRow], classes: Catalog) -> Any:
    return check_rows(queue_rows(window), classes, "eventlog").valid


def _built(groups: Any, options: EventOptions) -> list[Any]:
    return [build_event(group, options) for group in groups]


def _write(output: EventWriter[Any], classes: Catalog, delivery: Any) -> None:
    for number, events in delivery.documents.items():
        output.document(classes, delivery, number, events)


if __name__ == "__main__":
    main()
