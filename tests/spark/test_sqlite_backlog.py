"""A file of SQLite, from its triggers to Spark: separate sessions read the parts, since no snapshot
is shared.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from backlog_job import convert, documents_of, events_of, publish
from pyspark.sql import SparkSession
from shared import copied_log

from eventlog import cli
from eventlog.config.load import load

TABLES = """
CREATE TABLE usr (idu integer PRIMARY KEY, fname text, pay numeric(10, 2), born date);
CREATE TABLE usr_phone (idu integer REFERENCES usr ON DELETE CASCADE, phoneno text, PRIMARY KEY (idu, phoneno));
CREATE TABLE grp (idg integer PRIMARY KEY, name text);
"""
CONFIG = """
[database]
url = "sqlite:///{file}"

[[watch]]
table = "usr"

[[watch]]
table = "grp"
row_style = "row_query_back"
"""


def installed(directory: Path) -> tuple[Path, Path]:
    """The file and its configuration."""
    file, config = directory / "app.db", directory / "eventlog.toml"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(TABLES)
    config.write_text(CONFIG.format(file=file), encoding="utf-8")
    for command in (["db", "upgrade"], ["triggers", "apply"]):
        assert cli.run(["--config", str(config), *command]) == 0
    return file, config


def change(file: Path, seed: int) -> None:
    chance = random.Random(seed)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for number in range(800):
            key = chance.randint(1, 60)
            connection.execute(
                "INSERT INTO usr VALUES (?, ?, ?, '2024-02-29') ON CONFLICT DO UPDATE SET fname = "
                "excluded.fname",
                (key, f"<l & {number}>", number / 4),
            )
            connection.execute(
                "INSERT OR IGNORE INTO usr_phone VALUES (?, ?)", (key, f"555-{number % 3}")
            )
            connection.execute(
                "INSERT INTO grp VALUES (?, 'g') ON CONFLICT DO UPDATE SET name = name || 'x'",
                (key,),
            )
            if number % 20 == 0:
                connection.execute("DELETE FROM usr WHERE idu = ?", (chance.randint(1, 60),))


def test_the_job_gives_the_events_of_the_publisher_and_marks_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, config = installed(tmp_path)
    change(file, seed=5)
    copied_log(file, tmp_path / "copy.db")
    expected = publish(load(config, {"EVENTLOG_DATABASE_URL": f"sqlite:///{tmp_path / 'copy.db'}"}))

    report = convert(load(config, {}), tmp_path / "out", mark=True, partition_rows=700)

    assert len(report.manifest.parts) > 2
    assert list(events_of(documents_of(tmp_path / "out"))) == expected
    assert len(expected) > 100
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT DISTINCT status FROM eventlog").fetchall() == [("S",)]


def test_rows_of_an_old_name_and_deletes_by_an_old_key_are_converted_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, config = installed(tmp_path)
    change(file, seed=6)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE grp RENAME TO team")
        connection.execute(
            "INSERT INTO eventlog (status, event_type, table_name, table_key) VALUES ('N', 4, "
            "'grp', 'name=g'), ('N', 6, 'team', 'idg=1')"
        )
    text = config.read_text(encoding="utf-8").replace(
        'table = "grp"', 'table = "team"\nrenamed_from = "grp"\nprevious_key = "name"'
    )
    config.write_text(text, encoding="utf-8")
    copied_log(file, tmp_path / "copy.db")
    expected = publish(load(config, {"EVENTLOG_DATABASE_URL": f"sqlite:///{tmp_path / 'copy.db'}"}))

    convert(load(config, {}), tmp_path / "out", mark=True, partition_rows=700)

    written = list(events_of(documents_of(tmp_path / "out")))
    assert written == expected
    assert any("name=g,table=team" in str(event) for event in written)
    assert not any("table=grp" in str(event) for event in written)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT DISTINCT status FROM eventlog").fetchall() == [("S",)]
