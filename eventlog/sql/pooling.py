"""A connection pool between us and the database that lends sessions by the transaction, such as PgBouncer's mode
``transaction``: locks and settings of a session then belong to whoever gets it next (spec/event-log.md 12).
"""

from __future__ import annotations

from sqlalchemy import Connection

from eventlog.errors import DatabaseError
from eventlog.sql.dialect import Dialect


def is_pooled(conn: Connection, dialect: Dialect) -> bool:
    """Whether the transactions of this connection may run in different sessions. Ends its transaction.

    A second connection begins a transaction. A pool lends it the session that this one has just let go, or lends this
    one another session from then on; a database that is spoken to directly does neither.
    """
    own = dialect.session_id(conn)
    conn.commit()
    try:
        with conn.engine.connect() as other:
            if dialect.session_id(other) == own:
                return True
            pooled = dialect.session_id(conn) != own
    except DatabaseError:
        # The server lets no second connection in: as far as this one can tell.
        pooled = dialect.session_id(conn) != own
    conn.commit()
    return pooled


def refuse_pooling(conn: Connection, dialect: Dialect, place: str) -> None:
    """Raise DatabaseError if ``is_pooled``. ``place``: database and server for the message, without secrets."""
    if is_pooled(conn, dialect):
        raise DatabaseError(
            f"{place} is reached through a connection pool that changes sessions between transactions: the lock that "
            "keeps a second publisher away would not hold; connect to the database itself, or to a pool in session mode"
        )
