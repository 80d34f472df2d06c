"""A driver of a live copy is killed many times: Delta's log and Iceberg's manifests, read by hand,
contain the table and each of its changes once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")
pytest.importorskip("fastavro", reason="the extra avro is not installed")

import fastavro
import killed_copy

Read = Callable[[Path, str], Iterator[dict[str, Any]]]


def rows_of_delta(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Delta table, by its log from the first commit on."""
    files = dict[str, None]()
    log = directory / name / "_delta_log"
    commits = sorted(log.glob("[0-9]*.json"))
    assert [int(path.stem) for path in commits] == list(range(len(commits)))
    for commit in commits:
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                del files[action["remove"]["path"]]
        for action in actions:
            if "add" in action:
                assert action["add"]["path"] not in files
                files[action["add"]["path"]] = None
    for path in files:
        yield from pq.ParquetFile(directory / name / unquote(path)).read().to_pylist()


def rows_of_iceberg(directory: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Iceberg table, by the catalogue, the metadata and the manifests."""
    with sqlite3.connect(directory / "catalogue.db") as catalogue:
        ((place,),) = catalogue.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", (name,)
        )
    metadata = json.loads(_path(place).read_text())
    (snapshot,) = _with(metadata["snapshots"], "snapshot-id", metadata["current-snapshot-id"])
    (schema,) = _with(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    names = {str(field["id"]): field["name"] for field in schema["fields"]}
    for manifest in _records(snapshot["manifest-list"]):
        assert manifest["content"] == 0, "a copy has no files of deletes"
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] == 2:  # deleted
                continue
            table = pq.ParquetFile(_path(entry["data_file"]["file_path"])).read()
            ids = (field.metadata[b"PARQUET:field_id"].decode() for field in table.schema)
            yield from table.rename_columns([names[one] for one in ids]).to_pylist()


def _with(objects: list[Any], member: str, value: Any) -> list[Any]:
    return [one for one in objects if one[member] == value]


def _path(place: str) -> Path:
    return Path(place.removeprefix("file://"))


def _records(place: str) -> list[Any]:
    with _path(place).open("rb") as file:
        return list(fastavro.reader(file))


READ: dict[str, Read] = {"delta": rows_of_delta, "iceberg": rows_of_iceberg}


@pytest.mark.night
@pytest.mark.parametrize("made", READ)
def test_a_hundred_kills_leave_the_table_and_each_of_its_changes_once(
    tmp_path: Path, made: str
) -> None:
    kills, seed = int(os.environ.get("EVENTLOG_TEST_KILLS", "100")), 1
    command = [sys.executable, killed_copy.__file__, made, str(tmp_path), str(kills), str(seed)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(command, env=environment, check=True)
    last, amidst = map(int, (tmp_path / "last").read_text().split())
    assert amidst > kills / 2
    told = killed_copy.told_by(seed, last)
    copied = list(READ[made](tmp_path, "t"))
    assert sorted(row["id"] for row in copied) == sorted(told.rows)
    assert {row.pop("id"): row for row in copied} == told.rows
    history = list(READ[made](tmp_path, "t_history"))
    changes = [row for row in history if row["_operation"] not in ("truncate", "load")]
    changes.sort(key=lambda row: row["_position"])
    assert len(history) - len(changes) == 1 + 4  # one load, of four rows
    assert [{name: row[name] for name in told.history[0]} for row in changes] == told.history
