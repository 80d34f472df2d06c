"""docs/examples/change_table_consumer.py reads a change table correctly, and imports nothing from
eventlog.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventlog.changes.format import Report
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "change_table_consumer.py"
COLUMNS = [
    {"name": "id", "type": "INT4", "pk": 1},
    *({"name": f"c{n:02}", "type": "STRING"} for n in range(1, 71)),
]


def test_it_needs_only_pyspark() -> None:
    nodes = ast.walk(ast.parse(EXAMPLE.read_text()))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported <= {"__future__", "pyspark.sql"}


def test_it_shows_every_column_that_was_set_at_any_width(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = (("id", 7),)
    changes = [
        Change("app", "item", ChangeOp.INSERT, key, None, {"id": 7, "c01": "nut"}),
        Change(
            "app",
            "item",
            ChangeOp.UPDATE,
            key,
            {"id": 7, "c01": "nut"},
            {"id": 7, "c01": None},
            frozenset({"c01"}),
        ),
        Change(
            "app", "item", ChangeOp.UPDATE, key, None, {"id": 7, "c70": "last"}, frozenset({"c70"})
        ),
        Change("app", "item", ChangeOp.DELETE, key, {"id": 7}),
    ]
    options = {"tables": {"app.item": {"columns": COLUMNS}}, "file_format": "parquet"}
    format_named("qlik-change-table").write(
        changes, str(tmp_path / "out"), options, Report(strict=True)
    )
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / "out" / "app.item__ct")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = [
        line.strip("|").split("|")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    told = [tuple(cell.strip() for cell in line)[1:] for line in lines[1:]]
    assert told == [
        ("INSERT", "c01", "NULL", "nut"),
        ("INSERT", "id", "NULL", "7"),
        ("UPDATE", "c01", "nut", "NULL"),
        ("UPDATE", "c70", "NULL", "last"),
        ("DELETE", "id", "7", "NULL"),
    ]
