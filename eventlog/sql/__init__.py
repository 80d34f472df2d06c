"""All code that works with SQL, for every supported database.

``connection``, ``embedded``
    From a URL to sessions, and their errors; a PostgreSQL in a directory.
``database``
    The differences between databases as such: sessions, names, values, the catalogue, a log's
    tables.
``dialect``
    A log's operations on its database: read, mark, query back, resync, in parts; in terms of
    ``windows``.
``dialects``
    The databases, one package per database.
``statements``
    The parts of statements, the files that contain them, and how they run.
``log_table``
    A log and its internal tables: by name, as a new log has them, or found and checked.
``rows``
    The rows of a log and of its internal tables, by statements that every database understands.
``resync``
    Objects written into the log again.
``triggers``
    Watches, the rows that their tables log, and the plan that makes the triggers for it.
``doctor``
    The queries that `doctor` runs, and its findings about a log.
``migrations``
    Creating a log, by eventlog's commands or in a user's own Alembic tree.
"""

from typing import Final

SUPPORTED: Final = ("postgresql", "oracle", "sqlite", "mariadb", "mysql")
"""The databases, by the names of their packages below ``eventlog.sql.dialects``."""
LOCK_TIMEOUT: Final = 5.0
"""The seconds for which `triggers apply` waits for the lock of a table. Writers of the table wait
meanwhile.
"""
