"""Find the dialect of a database URL, and open sessions in the database.

Sessions are set up for reading the log and its values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    PoolProxiedConnection,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.engine.interfaces import Dialect as Driver
from sqlalchemy.exc import (
    ArgumentError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from eventlog.core.clock import monotonic
from eventlog.core.extras import install_command
from eventlog.errors import ConfigError, DatabaseError, DatabaseUnavailable, without_secrets
from eventlog.sql import SUPPORTED, embedded
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import CHANGING_POOL, WRITES
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import (
    EMBEDDED,
    as_database_errors,
    load_dialect,
    owner_advice,
    refused_between,
    set_purpose,
    unavailable,
)
from eventlog.sql.port.log_parts import LogPart
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.rights import Purpose

SECRET: Final = "EVENTLOG_DATABASE_PASSWORD or database.url_file"  # noqa: S105 - where it belongs
"""The place where the password of the configured database is set, for messages."""

_statements = logging.getLogger("eventlog.statements")


def dialect_of(url: str | URL) -> Dialect:
    """Return the dialect of a database URL, such as ``postgresql://user@host/db``.

    Raises ConfigError.
    """
    return load_dialect(parse_url(url).drivername.partition("+")[0])


def parse_url(url: str | URL) -> URL:
    """Parse a URL into its parts.

    Raises ConfigError. The message of the error leaves out the URL, which may contain a password.
    """
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "the database URL cannot be read: write it as postgresql://user@host:port/database"
        ) from None


def connect(
    url: str | URL, *, password: str | None = None, connect_timeout: int = 10, secret: str = SECRET
) -> Engine:
    """Return an engine for ``url`` (``postgresql://user@host/database``). The engine does not pool:
    each connection is new.

    ``password`` replaces the password in the URL; ``secret`` describes, for messages, where the
    password is set; ``connect_timeout`` is in seconds. ``embedded:///DIRECTORY`` is a PostgreSQL
    with its data in that directory. This server is started if it does not run, and stopped when
    this process ends. The sessions return values as the triggers write them (spec/triggers.md 6).

    No connection is made yet. ``Engine.connect`` raises ServerUnavailable if the server cannot be
    reached, DatabaseUnavailable if the file of a database cannot be opened, and DatabaseError if
    the database refuses the connection. No message contains a secret. Raises ConfigError for a URL
    that cannot be read, and for a database or driver that is not supported or not installed.
    """
    parsed = parse_url(url)
    if parsed.drivername == EMBEDDED:
        parsed = parse_url(embedded.start(Path(parsed.database or "")))
    dialect = dialect_of(parsed)
    if "+" in parsed.drivername and parsed.drivername != dialect.driver:
        raise ConfigError(
            f"the database URL names the driver {parsed.drivername}; write {dialect.driver}:// or "
            f"{dialect.name}://"
        )
    dialect.check_url(parsed)
    parsed = parsed.set(drivername=dialect.driver)
    if password is not None:
        parsed = parsed.set(password=password)
    arguments = dialect.driver_arguments(parsed)
    try:
        engine = create_engine(
            parsed,
            poolclass=NullPool,
            # When a connection is closed, the session and its transaction end. A rollback before
            # that would log a traceback if the server is unavailable.
            pool_reset_on_return=None,
            hide_parameters=True,
            connect_args={
                **_unless_given(parsed, dialect.keepalive_args()),
                **dialect.connect_args(connect_timeout),
            },
            **dialect.engine_options,
        )
    except (ImportError, NoSuchModuleError) as error:
        raise ConfigError(
            f"the driver {dialect.driver} of {describe(parsed)} is not installed: {error}; "
            f"{install_command(dialect.extra)}"
        ) from error

    def made(connection: Any) -> None:
        dialect.name_session(connection)
        dialect.guard_names(connection)
        _run_first(connection, dialect.first_statements(connection))

    _connect_by(
        engine, arguments, lambda error: not_connected(dialect, parsed, error, secret), made
    )

    if _statements.isEnabledFor(logging.DEBUG):
        _log_statements(engine)

    _begin_by(engine, dialect)
    dialect.listen(engine)

    @event.listens_for(engine, "handle_error")
    def explain(context: ExceptionContext) -> None:
        if context.connection is None:
            raise not_connected(
                dialect, parsed, context.original_exception, secret
            ) from context.original_exception
        # This is an error of the socket in the middle of a statement.
        if isinstance(context.original_exception, OSError):
            raise unavailable(
                dialect, f"the connection to the database was lost: {context.original_exception}"
            ) from None

    return engine


def _unless_given(url: URL, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the driver arguments that the URL does not have."""
    return {name: value for name, value in arguments.items() if name not in url.query}


def connect_any(url: str) -> Engine:
    """Return an engine without a pool for a database with a dispatch queue. SQLAlchemy must support
    the database.

    A URL without a driver gets the driver of its dialect if the dialect is one of ours. Raises
    ConfigError for an unusable URL, without its secrets.
    """
    try:
        parsed, arguments = make_url(url), None
        dialect: Dialect | None = None
        if parsed.drivername.partition("+")[0] in SUPPORTED:
            known = load_dialect(parsed.drivername.partition("+")[0])
            if parsed.drivername in (known.name, known.driver):
                arguments = known.driver_arguments(parsed)
                parsed = parsed.set(drivername=known.driver)
                dialect = known
        options = {} if dialect is None else dialect.engine_options
        engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True, **options)
    except (ArgumentError, ImportError, ValueError) as error:
        scheme = url.partition("://")[0]
        raise ConfigError(
            f"the database URL {scheme}://... cannot be used ({type(error).__name__}); write it as "
            "SQLAlchemy expects it, and install its driver"
        ) from None

    def made(connection: Any) -> None:
        if dialect is not None:
            dialect.guard_names(connection)
            _run_first(connection, dialect.plain_session)

    _connect_by(
        engine,
        arguments,
        lambda error: DatabaseUnavailable(
            f"cannot connect to the {parsed.drivername} database at {parsed.host}: {error}; "
            "check host and port in its URL"
        ),
        made,
    )
    return engine


@contextmanager
def any_database_errors(place: str) -> Iterator[None]:
    """Turn errors of an engine of ``connect_any`` into DatabaseUnavailable (worth trying again) or
    DatabaseError.

    ``place`` names the database in the messages. The messages contain neither statements nor
    values.
    """
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise DatabaseUnavailable(f"{place} fails: {_reason(error)}") from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"{place} refuses: {_reason(error)}") from error


def _reason(error: SQLAlchemyError) -> str:
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _log_statements(engine: Engine) -> None:
    """Log each statement with its duration and its number of rows, but without values."""

    @event.listens_for(engine, "before_cursor_execute", named=True)
    def begin(context: Any, **_: object) -> None:
        context.begun = monotonic()

    @event.listens_for(engine, "after_cursor_execute", named=True)
    def end(cursor: Any, statement: str, context: Any, **_: object) -> None:
        seconds = monotonic() - context.begun
        _statements.debug(
            "%.4f s, %s rows: %s", seconds, cursor.rowcount, " ".join(statement.split())
        )


def _connect_by(
    engine: Engine,
    given: Mapping[str, object] | None,
    translated: Callable[[OSError | UnicodeError], DatabaseError],
    made: Callable[[Any], None] = lambda _: None,
) -> None:
    """Let an engine connect with the driver arguments that a dialect has ``given``. If ``given`` is
    None, SQLAlchemy's arguments are used.

    ``translated`` makes the error to raise in place of a socket error. Some drivers pass socket
    errors through, and SQLAlchemy recognizes only the drivers' own errors. ``made`` is called with
    each connection before SQLAlchemy uses it.
    """

    @event.listens_for(engine, "do_connect")
    def connect_with_own_errors(
        driver: Driver, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> Any:
        if given is not None:
            place = engine.dialect.create_connect_args(engine.url)[1]
            kept = {name: value for name, value in options.items() if name not in place}
            arguments, options = [], {**kept, **given}
        try:
            connection = driver.connect(*arguments, **options)
        except (OSError, UnicodeError) as error:  # a name of a host may not be encodable
            raise translated(error) from error
        made(connection)
        return connection


def _run_first(connection: DBAPIConnection, statements: Sequence[str]) -> None:
    """Run statements in a new session, before SQLAlchemy reads the settings of the session or ends
    a transaction in it.
    """
    if not statements:
        return
    cursor = connection.cursor()
    try:
        for statement in statements:
            cursor.execute(statement)
    finally:
        cursor.close()
    connection.commit()


def _begin_by(engine: Engine, dialect: Dialect) -> None:
    """Let a dialect begin the transactions of an engine.

    The dialect begins the transactions, not a listener: if a "begin" listener fails, SQLAlchemy
    stops starting transactions on that connection, and later statements would autocommit.
    """
    begin = engine.dialect.do_begin

    def begin_both(dbapi_connection: PoolProxiedConnection) -> None:
        begin(dbapi_connection)
        dialect.begin(dbapi_connection)

    engine.dialect.do_begin = begin_both  # type: ignore[method-assign]


def will_write(conn: Connection) -> None:
    """Mark a session whose transactions are going to write.

    In a database with one writer at a time, a marked transaction waits for the write lock when it
    begins. If the transaction began by reading instead, the database would refuse its first write
    after another session has written.
    """
    conn.info[WRITES] = True


@contextmanager
def open_session(
    url: URL, purpose: Purpose | None = None, *, writes: bool = True, hides_rows: bool = False
) -> Iterator[OpenDatabase]:
    """Open a session; the caller commits. If a right is missing, the error names the rights for
    ``purpose`` (None = the owner's rights). With ``hides_rows`` no message quotes a row, unless the
    session is the owner's. Raises ConfigError, DatabaseError.
    """
    engine = connect(url)
    if purpose is not None:
        set_purpose(engine, purpose, hides_rows=hides_rows)
    with as_database_errors(engine, owner_advice(engine)), engine.connect() as conn:
        if writes:
            will_write(conn)
        yield dialect_of(url).open(conn)


def describe(url: URL) -> str:
    """Return database and server of a URL for messages, without user and secret."""
    if "server" not in dialect_of(url).capabilities:
        return f"database file {url.database!r}"
    host = url.host or url.query.get("host") or "the local socket"
    place = host if isinstance(host, str) else ", ".join(host)
    return f"database {url.database or url.username!r} at {place}" + (
        f":{url.port}" if url.port else ""
    )


def reason_of(error: object, url: URL) -> str:
    """Return the text of a driver's error on one line, without the password of the URL."""
    secrets = [str(url.password)] if url.password else []
    return " ".join(without_secrets(str(error), secrets).split())


def unreadable_part(log: LogTable, part: LogPart, url: URL, error: object) -> DatabaseError:
    """Return the error to raise if the driver cannot read a part of a log."""
    rows = f"rows {part.first} to {part.last} of the log {log}"
    return DatabaseError(f"{rows} cannot be read from {describe(url)}: {reason_of(error, url)}")


def not_connected(dialect: Dialect, url: URL, error: BaseException, secret: str) -> DatabaseError:
    if refused := refused_between(dialect, error):
        return refused
    refusal = dialect.refusal(error)
    advice = (refusal.advice or _unreachable(dialect)).replace("{secret}", secret)
    reason = reason_of(refusal.reason or error, url)
    message = f"cannot connect to {describe(url)}: {reason}; {advice}"
    return unavailable(dialect, message) if refusal.passes else DatabaseError(message)


def _unreachable(dialect: Dialect) -> str:
    """Return the advice for a database that cannot be reached."""
    if "server" in dialect.capabilities:
        return (
            "check host and port in the database URL, and that the server runs and accepts "
            "connections from this machine"
        )
    return "check the path in the database URL, and the rights on the file and its directory"


def is_pooled(conn: Connection, dialect: Dialect) -> bool:
    """Return True if the transactions of this connection may run in different sessions. Ends the
    transaction of the connection.

    To find out, a second connection begins a transaction. A pool gives the second connection the
    session that this connection has just released, or later gives this connection another session.
    Direct connections keep their sessions.
    """
    session = dialect.open(conn).session_id()
    conn.commit()
    try:
        with as_database_errors(conn), conn.engine.connect() as other:
            if dialect.open(other).session_id() == session:
                return True
            pooled = dialect.open(conn).session_id() != session
    except DatabaseError:
        if conn.invalidated:  # this connection itself was lost
            raise
        # The server accepts no second connection, so only this one's session can be compared.
        pooled = dialect.open(conn).session_id() != session
    conn.commit()
    return pooled


def refuse_pooling(conn: Connection, dialect: Dialect, place: str) -> None:
    """Raise DatabaseError if ``is_pooled`` returns True.

    ``place`` names the database and the server in the message, without secrets.
    """
    if is_pooled(conn, dialect):
        raise DatabaseError(f"{place} is reached through {CHANGING_POOL}")
