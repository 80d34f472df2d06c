"""A backlog job in a database that is not UTF-8: only the rows with texts that cannot be converted
are invalid (spec/event-log.md 5.6).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backlog_job import convert, documents_of, statuses_of
from pyspark.sql import SparkSession
from shared import execute, url_of

from eventlog import cli
from eventlog.config.load import load


def test_a_job_passes_over_texts_that_cannot_be_converted(
    spark: SparkSession, new_database: Any, tmp_path: Path
) -> None:
    with new_database(encoding="WIN1252") as engine:
        execute(engine, "CREATE TABLE usr (k text PRIMARY KEY, v text)")
        config = tmp_path / "eventlog.toml"
        config.write_text(
            f'[database]\nurl = "{url_of(engine)}"\n[publisher]\nallow_loopback = true\n'
            '[[watch]]\ntable = "usr"\n',
            encoding="utf-8",
        )
        for command in (["db", "upgrade"], ["triggers", "apply"]):
            assert cli.run(["--config", str(config), *command]) == 0
        execute(
            engine,
            "INSERT INTO usr VALUES ('a', 'ok'), ('b', convert_from('\\x81', 'WIN1252')), "
            "(convert_from('\\x81', 'WIN1252'), 'x'), (convert_from('\\xfc', 'WIN1252'), 'y')",
            "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (6, 'usr', 'k=b')",
        )
        out = tmp_path / "out"
        report = convert(load(config, {}), out)
        assert statuses_of(out, report) == {1: "S", 2: "E", 3: "E", 4: "S", 5: "E"}
        text = "".join(documents_of(out))
        assert ("k=a" in text, "k=ü" in text, "k=b" in text) == (True, True, False)
