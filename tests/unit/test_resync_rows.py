"""What ``resync`` writes: each row whole, and no other (spec/event-log.md 11)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventlog import cli


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the objects 1 to 3 of ``part`` and an object of another table. The log has
    rows of 1, and of 4 to 6, which are gone: no delete of 4 is logged, and that of 6 was refused.
    """
    place = tmp_path_factory.mktemp("resync")
    with closing(sqlite3.connect(place / "log.db")) as conn:
        for table in ("part", "other"):
            conn.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, name text)")
        conn.execute("INSERT INTO part VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        conn.execute("INSERT INTO other VALUES (1, 'a')")
        conn.commit()
    (place / "eventlog.toml").write_text(
        f'[database]\nurl = "sqlite:///{place / "log.db"}"\n'
        '[[watch]]\ntable = "part"\n[[watch]]\ntable = "other"\n'
    )
    for words in ("db upgrade", "triggers apply"):
        assert cli.run(["--config", str(place / "eventlog.toml"), *words.split()]) == 0
    with closing(sqlite3.connect(place / "log.db")) as conn:
        for status, kind, key in (("S", 6, 1), ("S", 6, 4), ("S", 4, 5), ("E", 4, 6)):
            conn.execute(
                "INSERT INTO eventlog (status, event_type, event_time, table_name, table_key) "
                f"VALUES ('{status}', {kind}, '2020-01-01 00:00:00', 'part', 'id={key}')"
            )
        conn.commit()
    return place


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ("", [(5, "id=1"), (5, "id=2"), (5, "id=3")]),
        ("--batch 1", [(5, "id=1"), (5, "id=2"), (5, "id=3")]),
        ("--as-update", [(6, "id=1"), (6, "id=2"), (6, "id=3")]),
        ("--key id=2", [(5, "id=2")]),
        ("--key id=2 --as-update", [(6, "id=2")]),
        ("--where id>=2", [(5, "id=2"), (5, "id=3")]),
        ("--deletes", [(4, "id=4"), (4, "id=6")]),
        ("--dry-run", []),
        ("--deletes --dry-run", []),
    ],
)
def test_resync_writes_one_new_row_per_object_without_values(
    template: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    written: list[tuple[int, str]],
) -> None:
    database, file = tmp_path / "log.db", tmp_path / "eventlog.toml"
    shutil.copy(template / "log.db", database)
    text = (template / "eventlog.toml").read_text()
    file.write_text(text.replace(str(template / "log.db"), str(database)))

    def rows() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(database)) as conn:
            return list(conn.execute("SELECT * FROM eventlog ORDER BY record_id"))

    before = rows()
    capsys.readouterr()
    assert cli.run(["--config", str(file), "resync", "part", *options.split(), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    new = rows()[len(before) :]
    assert rows()[: len(before)] == before
    assert new == [
        (record_id, "N", event_type, row[3], None, "part", key, None, None, None)
        for record_id, row, (event_type, key) in zip(range(5, 9), new, written, strict=False)
    ]
    assert len(new) == len(written)
    for row in new:
        moment = datetime.fromisoformat(row[3]).replace(tzinfo=UTC)
        assert 0 <= (datetime.now(UTC) - moment).total_seconds() < 600
    is_dry, deletes = "--dry-run" in options, "--deletes" in options
    assert {name: report[name] for name in ("class_name", "rows", "missing", "dry_run")} == {
        "class_name": "part",
        "rows": (2 if deletes else 3) if is_dry else len(written),
        "missing": 0,
        "dry_run": is_dry,
    }
