"""All code that works with SQL, for every supported database. docs/developers/architecture.md
describes the packages of ``eventlog.sql``.
"""

from typing import Final

SUPPORTED: Final = ("postgresql", "oracle", "sqlite", "mariadb", "mysql")
"""The databases, by the names of their packages below ``eventlog.sql.dialects``."""
LOCK_TIMEOUT: Final = 5.0
"""The seconds for which `triggers apply` waits for the lock of a table. Writers of the table wait
during this time.
"""
