"""docs/examples/qlik_consumer.py reads what the writer of messages has put to a topic, with nothing
of eventlog.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal

import pytest
from documents import ROOT
from kafka_cluster import cluster
from shared import PATIENCE

from eventlog.changes.format import Report
from eventlog.model import Change, ChangeOp
from eventlog.qlik.messages.message_format import FORMAT

EXAMPLE = ROOT / "docs" / "examples" / "qlik_consumer.py"
KEY = (("id", 7),)
SEQUENCE = "202405101200000000000000000000000"
CHANGES = [
    Change("hr", "item", ChangeOp.INSERT, KEY, None, {"id": 7, "name": "nüt", "made": date(2024, 5,
           10)}, position=f"{SEQUENCE}01"),
    Change("hr", "item", ChangeOp.UPDATE, KEY, None, {"id": 7, "name": None}, frozenset({"name"}),
           position=f"{SEQUENCE}02"),
    Change("hr", "item", ChangeOp.UPDATE, KEY, None, {"id": 7, "price": Decimal("1.50")},
           frozenset({"price"}), position=f"{SEQUENCE}03"),
    Change("hr", "item", ChangeOp.DELETE, KEY, {"id": 7}, position=f"{SEQUENCE}04"),
]  # fmt: skip


def test_the_example_imports_nothing_of_ours() -> None:
    assert "import eventlog" not in EXAMPLE.read_text(encoding="utf-8")
    assert "from eventlog" not in EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_the_example_consumer_prints_the_changes(encoding: str) -> None:
    with cluster() as brokers:
        FORMAT.write(CHANGES, f"kafka://{brokers.brokers}", {"encoding": encoding}, Report())
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), brokers.brokers, "hr.item"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{SEQUENCE}01 INSERT hr.item "
        + '{"id": 7, "name": "n\\u00fct", "made": "2024-05-10"} ' + "['id', 'name', 'made']",
        f"{SEQUENCE}02 UPDATE hr.item " + '{"id": 7, "name": null} ' + "['name']",
        f"{SEQUENCE}03 UPDATE hr.item " + '{"id": 7, "price": "1.50"} ' + "['price']",
        f"{SEQUENCE}04 DELETE hr.item " + '{"id": 7} ' + "['id']",
    ]  # fmt: skip
