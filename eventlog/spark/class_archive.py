"""Create Java's class data archive, which holds the classes of Spark in Java's memory format.
Without the archive, Java loads these classes from jars each time.

``python -m eventlog.spark.class_archive`` creates the archive from a small job, once for an
environment and its Java. Every later job of the environment starts with the archive. Java itself
ignores an archive that was made by another Java or with other jars, and then loads classes as
usual.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from eventlog.config.load import load
from eventlog.errors import EventlogError
from eventlog.spark.backlog import backlog
from eventlog.spark.session.session import (
    LOCAL_JAVA_OPTIONS,
    SparkFailed,
    archive_of,
    check_java,
    open_session,
    size_of,
)
from eventlog.sql.connect import connect
from eventlog.sql.migrations import upgrade

_JAVA_SECONDS: Final = 600
"""The longest time, in seconds, to wait for Java to write the archive; it takes about 20 s."""
_ROWS: Final = (
    "INSERT INTO eventlog (event_type, event_time, table_name, table_key, column_name, new_value) "
)
_JOB: Final = f"""
CREATE TABLE usr (idu integer PRIMARY KEY, fname text);
{_ROWS} VALUES (1, '2026-01-01 00:00:00', 'usr', 'idu=1', 'fname', 'Ann');
{_ROWS} VALUES (5, '2026-01-01 00:00:00', 'usr', 'idu=2', NULL, NULL);
"""


def make() -> Path:
    """Create the archive of this environment and its Java, in place of an existing one, and return
    its path.

    Raises ConfigError without a suitable Java, SparkFailed if Java writes no archive, OSError if
    there is no space.
    """
    archive = archive_of(check_java())
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=archive.parent) as place:
        new = Path(place, archive.name)
        options = f'{LOCAL_JAVA_OPTIONS} "-XX:ArchiveClassesAtExit={new}" -Xlog:cds*=off'
        spark = open_session("local[2]", conf={"spark.driver.extraJavaOptions": options})
        _convert(Path(place))
        _end(spark)
        if not new.exists():
            raise SparkFailed(
                f"Java wrote no class archive to {archive.parent}; jobs run without it"
            )
        size_of(archive).unlink(missing_ok=True)
        new.replace(archive)
        size_of(archive).write_text(str(archive.stat().st_size))
    return archive


def _convert(place: Path) -> None:
    """Convert a backlog of two rows in SQLite."""
    file = place / "log.db"
    file.touch()
    engine = connect(f"sqlite:///{file}")
    upgrade(engine, log_table="eventlog")
    engine.dispose()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(_JOB)
    config = load({"database": {"url": f"sqlite:///{file}"}, "watch": [{"table": "usr"}]}, {})
    backlog.run(config, backlog.Request(str(place / "documents"), quiet=True, mark=True))


def _end(spark: SparkSession) -> None:
    """Stop Spark, and wait for its Java to end. Java ends when its standard input is closed."""
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    java = gateway.proc
    gateway.shutdown()
    java.stdin.close()
    java.wait(_JAVA_SECONDS)


def main() -> None:
    """Create the archive and print its path."""
    print("Running a small job, in which Java writes the archive: this takes a minute", flush=True)
    try:
        archive = make()
    except (EventlogError, OSError) as error:
        sys.exit(f"eventlog: {error}")
    print(
        f"{archive}: {archive.stat().st_size / 2**20:,.0f} MiB; jobs of this environment use it "
        "from now on"
    )


if __name__ == "__main__":
    main()
