"""PostgreSQL, by psycopg."""

from __future__ import annotations

from typing import Final

from eventlog.sql.database import CAPABILITIES
from eventlog.sql.dialects.postgresql import text
from eventlog.sql.dialects.postgresql.bulk import PostgresBulk
from eventlog.sql.dialects.postgresql.log import PostgresLog
from eventlog.sql.dialects.postgresql.objects import PostgresObjects
from eventlog.sql.dialects.postgresql.session import PostgresSessions
from eventlog.sql.dialects.postgresql.tables import PostgresTables
from eventlog.sql.dialects.postgresql.triggers import PostgresTriggers
from eventlog.sql.dialects.postgresql.wake import WAKE


class PostgreSQL(PostgresSessions, PostgresObjects, PostgresLog, PostgresBulk, PostgresTables):
    """PostgreSQL by psycopg."""

    name = "postgresql"
    capabilities = frozenset(CAPABILITIES)
    max_identifier = text.MAX_IDENTIFIER
    triggers = PostgresTriggers()
    wake = WAKE
    fold_name = staticmethod(text.fold_name)
    bindable = staticmethod(text.bindable)
    value_text = staticmethod(text.value_text)


DIALECT: Final = PostgreSQL()
