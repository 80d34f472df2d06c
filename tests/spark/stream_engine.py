"""Spark's contract with a stream's reader, without Java: offsets are written before a batch runs,
its commit after it, and a batch without a commit is run again with the offsets that were written.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eventlog import cli
from eventlog.spark.changes.changes import ChangesDataSource


def reader_of(**options: object) -> Any:
    """The reader of a stream with these options."""
    source = ChangesDataSource({name: str(value) for name, value in options.items()})
    return source.streamReader(source.schema())


def configured(database: sa.Engine, directory: Path, *tables: str) -> Path:
    """Return the configuration of a database whose triggers watch tables."""
    config = directory / "eventlog.toml"
    url = database.url.render_as_string(hide_password=False)
    watches = "".join(f'[[watch]]\ntable = "{table}"\n' for table in tables)
    config.write_text(f'[database]\nurl = "{url}"\n{watches}')
    return config


def watched(database: sa.Engine, directory: Path, *tables: str) -> Path:
    """Return the configuration of a database that gets a log and triggers of tables."""
    config = configured(database, directory, *tables)
    for command in (["db", "upgrade"], ["triggers", "apply"]):
        assert cli.run(["--config", str(config), "--quiet", *command]) == 0
    return config


class Engine:
    """``at``: called with the names of places where a kill makes a difference."""

    def __init__(
        self, reader: Any, place: Path, at: Callable[[str], None] = lambda _: None
    ) -> None:
        self.reader, self.at = reader, at
        self.limit = reader.getDefaultReadLimit()
        assert isinstance(self.limit, ReadAllAvailable | ReadMaxRows)
        self.offsets, self.commits = place / "offsets", place / "commits"
        self.offsets.mkdir(parents=True, exist_ok=True)
        self.commits.mkdir(exist_ok=True)
        logged = sorted(int(path.name) for path in self.offsets.glob("[0-9]*"))
        self.number = logged[-1] if logged else 0
        # As Spark does, which asks again while no batch is done.
        self.start = self._logged(self.number - 1) or json.loads(json.dumps(reader.initialOffset()))
        if (self.commits / str(self.number)).exists():
            self.start = self._logged(self.number)
            self.number += 1

    def _logged(self, number: int) -> Any:
        path = self.offsets / str(number)
        return json.loads(path.read_text()) if path.exists() else None

    def step(self, sink: Callable[[int, list[dict[str, Any]]], None]) -> bool:
        """Run a batch if there is one."""
        end = self._logged(self.number)
        if end is None:
            end = json.loads(json.dumps(self.reader.latestOffset(self.start, self.limit)))
            if self.number and end == self.start:  # the first batch runs in any case
                return False
            self.at("before the offsets")
            written = self.offsets / f".{self.number}"
            written.write_text(json.dumps(end))
            written.replace(self.offsets / str(self.number))
            before = self._logged(self.number - 1)
            if before is not None:
                self.reader.commit(before)
        self.at("behind the offsets")
        sink(self.number, rows_of(self._read(end)))
        self.at("before the commit")
        (self.commits / str(self.number)).write_text("")
        self.at("behind the commit")
        self.start, self.number = end, self.number + 1
        return True

    def _read(self, end: Any) -> Iterator[pa.RecordBatch]:
        # What goes to a task goes there as bytes.
        task = pickle.loads(pickle.dumps(self.reader))
        for partition in self.reader.partitions(self.start, end):
            yield from task.read(pickle.loads(pickle.dumps(partition)))

    def rest(self) -> list[dict[str, Any]]:
        """The rows of all batches that there are now."""
        found: list[dict[str, Any]] = []
        while self.step(lambda _, rows: found.extend(rows)):
            pass
        return found


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows in the order of the batches; maps as dictionaries."""
    tables = list(batches)
    rows = pa.Table.from_batches(tables).to_pylist(maps_as_pydicts="strict") if tables else []
    return list(rows)
