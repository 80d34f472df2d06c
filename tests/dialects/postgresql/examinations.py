"""What the tests of `eventlog doctor` share: a log with triggers, and rows in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from shared import execute

from eventlog import cli
from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import LogTable

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, UNIQUE (idu, phoneno));
"""
CONFIG = """
[database]
schema_name = "hr"
[publisher]
loopback_action = "mark"   # one user does all here
[[watch]]
table = "usr"
"""
LOG = LogTable("hr", "eventlog", LOG_COLUMNS)

Doctor = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]


def fill(database: sa.Engine) -> None:
    execute(database, SCHEMA)
    url = database.url.render_as_string(hide_password=False)
    with TemporaryDirectory() as directory:
        file = Path(directory, "eventlog.toml")
        file.write_text(CONFIG)
        for command in (("db", "upgrade"), ("triggers", "apply")):
            assert cli.run(["--quiet", "--config", str(file), "--database-url", url, *command]) == 0


def rows(database: sa.Engine, *values: str) -> None:
    """Rows of the log: status, type, table, key, column, new value, then perpetrator and
    event_time.
    """
    for value in values:
        execute(
            database,
            "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, column_name, "
            f"new_value, perpetrator, event_time) VALUES ({value})",
        )


NOW = "now() AT TIME ZONE 'UTC'"
GOOD = f"'N', 2, 'usr', 'idu=1', 'fname', 'Ada', 'app', {NOW}"
