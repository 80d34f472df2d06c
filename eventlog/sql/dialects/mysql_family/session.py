"""A session on MariaDB or MySQL: how it begins, how its rows are fetched, its lock on a log, its
rights, and the answers for ``doctor``.

GET_LOCK ensures that each log has one publisher. A lock of GET_LOCK belongs to its session,
whatever is committed (spec/event-log.md 12).
"""

from __future__ import annotations

import logging
import re
import socket
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError

from eventlog.errors import ConfigError
from eventlog.sql.dialects.mysql_family.text import bindable, in_text, quote_identifier
from eventlog.sql.dialects.rights_by_trial import TriedRights
from eventlog.sql.port.database import KEEPALIVE, Answer, AnswerFunction
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import Numbering
from eventlog.sql.port.sql_files import Binds, PlainRows, fetch, qualified, statements

if TYPE_CHECKING:
    from eventlog.sql.dialects.mysql_family.log import MySQLFamilyLog

_logger = logging.getLogger(__name__)

_SQL_MODE: Final = "STRICT_ALL_TABLES,ANSI_QUOTES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO"
"""The SQL mode of sessions. Names may be in double quotes, as in other databases, and the server
refuses a value that does not fit instead of truncating it.
"""

_ACCESS: Final = (
    "check the user in the URL, and {secret}; the user must be allowed to connect "
    "from this host, such as 'eventlog'@'10.0.0.%'"
)
CONNECT_ADVICE: Final = {
    "(1045,": _ACCESS,
    "(1698,": _ACCESS,
    "(1044,": "grant the user a right on the database, or correct its name in the URL",
    "(1049,": "correct the database in the URL, as in //user@host:3306/DATABASE",
    "(1130,": "the server accepts no user from this host: create 'USER'@'HOST' on it",
    "(1820,": "the password has expired: set a new one",
    "(1862,": "the password has expired: set a new one",
}
_REFUSED_BY: Final = {
    "(1665,": (
        "a server with binlog_format = STATEMENT, which refuses writes of READ COMMITTED sessions "
        "such as eventlog's: set binlog_format = MIXED, or ROW"
    ),
    "(1419,": "a server with a binary log, on which only some users may create triggers: set "
    "log_bin_trust_function_creators = 1, or grant SUPER",
}
_PASSING: Final = frozenset(
    {
        *(1205, 1213),  # a lock that another session holds for too long, a deadlock
        *(1021, 1041, 1114, 1135),  # out of disk space, memory or threads
        *(1040, 1203, 1226),  # too many connections
        *(
            1053,
            1077,
            1078,
            1079,
            1152,
            1158,
            1159,
            1160,
            1161,
            1184,
        ),  # a shutdown, a connection that broke
        *(1290, 1836),  # a server that is read-only for a while, as during a switchover
        *(
            1317,
            1927,
            1969,
            3024,
            3169,
            4031,
        ),  # a statement or session that was ended, a statement that took too long
        *(1020, 1412),  # the rows to read or write have been changed in the meantime
        *(
            1047,
            1180,
            3101,
        ),  # a cluster node that is not ready, or whose commit conflicted with another node's
        *(
            2002,
            2003,
            2005,
            2006,
            2013,
            2014,
            2027,
            2055,
        ),  # errors of the client: the connection was lost
    }
)
"""The numbers of transient errors."""


class FamilySessions(Dialect):
    """Sessions through PyMySQL. These sessions use READ COMMITTED whatever the server's default is,
    lock a log by name, and test rights by EXPLAIN.
    """

    title: str
    """The name of the database for people."""
    reading_limit: str
    """The statement that limits the time of a session's statements to ``{seconds}``."""
    transaction_read_only: str
    """SQL that is 1 if the session's transactions are read-only."""
    shows_grants_of_roles: ClassVar[bool] = True
    """True if SHOW GRANTS includes the rights of the current role."""
    shared_lock: ClassVar[str]
    """The end of a SELECT that locks its rows against changes without needing a further right."""
    xa_recover: ClassVar[str]
    """The statement that lists the prepared transactions, with their names in ASCII."""
    global_status: ClassVar[str]
    """The table of the server's status variables."""
    processlist: ClassVar[str]
    """The table of the server's sessions. Rows of other users' sessions need the right PROCESS."""
    redo_log_positions: ClassVar[tuple[str, str]]
    """Two status variables: the position up to which InnoDB has written its redo log, and the
    position up to which the log is on the disk.
    """
    rights_to_see_transactions: ClassVar[tuple[str, ...]]
    """The rights that a user needs to see the open and the prepared transactions of other users."""
    byte_collation: ClassVar[str]
    """The collation of utf8mb4 that compares bytes, including trailing blanks."""

    connect_advice: ClassVar[Mapping[str, str]] = CONNECT_ADVICE
    refused_by: ClassVar = _REFUSED_BY
    # DEFAULT would be the value of the server. After a commit, CHAIN begins the next transaction
    # and RELEASE ends the session. A limit cuts results off in silence. SQLAlchemy reads tables
    # from SHOW CREATE TABLE, and needs the names in quotes.
    plain_session: Sequence[str] = (
        "SET SESSION completion_type = NO_CHAIN, sql_select_limit = 18446744073709551615, "
        "sql_big_selects = ON, sql_quote_show_create = ON",
    )
    session: Sequence[str] = (
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        # With a database snapshot that lasts for the transaction, a publisher would not see new
        # rows.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION time_zone = '+00:00', sql_safe_updates = OFF, sql_auto_is_null = OFF, "
        "autocommit = OFF, wait_timeout = 86400, net_write_timeout = 600, "
        "default_storage_engine = InnoDB",
    )

    @property
    def doctor_sql(self) -> Mapping[str, str]:
        both = {**_SQL, **super().doctor_sql}
        return {
            name: sql.replace("{byte_collation}", self.byte_collation) for name, sql in both.items()
        }

    def connect_args(self, timeout: int) -> dict[str, object]:
        return {
            "connect_timeout": timeout,
            "charset": "utf8mb4",
            "program_name": "eventlog",
            "local_infile": False,
            # This must come before SQLAlchemy reads how names are quoted.
            "sql_mode": _SQL_MODE,
        }

    def name_session(self, driver_connection: Any) -> None:
        # PyMySQL has neither an option for it nor another way to reach its socket.
        _keep_alive(driver_connection._sock)
        self.check_server(str(driver_connection.get_server_info()))

    @abstractmethod
    def check_server(self, version: str) -> None:
        """Check the server's version text. Raise ConfigError for another database or a release that
        is too old; warn about a release on which the tests have never run.
        """

    def check_url(self, url: URL) -> None:
        if not url.database:
            raise ConfigError(
                f"the database URL names no database: write it as "
                f"{self.name}://user@host:3306/database"
            )

    def refuses(self, error: BaseException) -> bool:
        return _code_of(error) not in {*_PASSING, 0}

    def passes(self, error: BaseException) -> bool:
        return _code_of(error) in _PASSING

    def lacks_right(self, error: BaseException) -> bool:
        return _code_of(error) in _NO_RIGHT

    def may_quote_rows(self, error: BaseException) -> bool:
        # A function can SIGNAL any number of the server; the driver's own are from 2000 on.
        return not 2000 <= _code_of(error) < 3000

    def error_name(self, error: BaseException) -> str:
        code, sqlstate = _code_of(error), getattr(error, "sqlstate", None)
        name = _names().get(code, "").lower().replace("_", " ")
        return " ".join(filter(None, (str(code), sqlstate and f"({sqlstate})", name)))


@cache
def _names() -> Mapping[int, str]:
    """Return the names of errors by number."""
    constants = vars(import_module("pymysql.constants.ER"))
    return {code: name for name, code in constants.items() if isinstance(code, int)}


def _keep_alive(end: socket.socket) -> None:
    """Let this end of a TCP connection detect that the server's host is gone."""
    if end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": KEEPALIVE.idle,
        "TCP_KEEPINTVL": KEEPALIVE.interval,
        "TCP_KEEPCNT": KEEPALIVE.probes,
        "TCP_USER_TIMEOUT": KEEPALIVE.milliseconds,
    }
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):  # not available on every system
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def begin_snapshot(conn: Connection) -> None:
    """Begin a read-only transaction with one database snapshot."""
    conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    conn.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def is_mariadb(version: str) -> bool:
    """Return True if this is the version text of a MariaDB server."""
    return "-mariadb" in version.lower()


def check_release(
    title: str, version: str, least: tuple[int, int], run: Sequence[tuple[int, int]]
) -> None:
    """Check the release in a server's version text.

    Args:
        title: The database (``MariaDB``).
        version: The text, as the driver gives it.
        least: The oldest accepted release.
        run: The releases on which the tests have run. Any other release causes a warning, once.

    Raises ConfigError for a release that is too old.
    """
    # MariaDB may put 5.5.5- before its version, for old clients.
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.", version)
    release = None if found is None else (int(found[1]), int(found[2]))
    if release is not None and release < least:
        raise ConfigError(
            f"{title} {'.'.join(map(str, release))} is too old: upgrade the server to "
            f"{'.'.join(map(str, least))} or later"
        )
    if release not in run:
        _warn_of_release(title, version, " and ".join(".".join(map(str, one)) for one in run))


@cache
def _warn_of_release(title: str, version: str, run: str) -> None:
    """Warn once about a release on which the tests have never run."""
    _logger.warning(
        "eventlog has never been tested on %s %s, only on %s; try it on a copy first",
        title,
        version,
        run,
    )


def _code_of(error: BaseException) -> int:
    """Return the number of a driver's error, 0 if it has none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def error_code(error: DBAPIError) -> int:
    """Return the number of an error, 0 if it has none."""
    return 0 if error.orig is None else _code_of(error.orig)


_NOT_SHOWN: Final = 3854
"""The error of MySQL for a query that lists sessions with their statements. MySQL raises it while a
session runs a statement that utf8mb3 cannot represent.
"""
NO_RIGHT_ON_TABLE: Final = 1142
"""The error for a table on which the user has no right."""
_NO_RIGHT: Final = frozenset({1044, 1045, NO_RIGHT_ON_TABLE, 1143, 1227, 1370})
RIGHTS: Final = TriedRights(
    # EXPLAIN checks the rights of its statement and runs nothing.
    statements={
        "SELECT": "EXPLAIN SELECT 1 FROM {table} WHERE 1 = 0",
        "INSERT": (
            "EXPLAIN INSERT INTO {table} ({column}) SELECT NULL FROM (SELECT 1 AS one) AS nothing "
            "WHERE 1 = 0"
        ),
        "UPDATE": "EXPLAIN UPDATE {table} SET {column} = NULL WHERE 1 = 0",
        "DELETE": "EXPLAIN DELETE FROM {table} WHERE 1 = 0",
    },
    no_right=_NO_RIGHT,
    # a column without a value; a read-only transaction or server; a statement that is not shown
    otherwise_refused=frozenset({1290, 1364, 1792, _NOT_SHOWN}),
    error_code=error_code,
)
may_run: Final = RIGHTS.may_run


def has_process(conn: Connection) -> bool:
    """Return True if the user of a session has the right PROCESS, which ``innodb_trx`` requires.

    The right is tried on another table that requires it: a reading of ``innodb_trx`` would make
    the next one wait, since the server keeps that list for a tenth of a second.
    """
    return may_run(conn, "SELECT 1 FROM information_schema.innodb_cmp LIMIT 1")


def fetch_transactions(conn: Connection, statement: str, binds: Binds) -> PlainRows | None:
    """Return the rows of a SELECT that reads ``information_schema.innodb_trx``. Return None if
    MySQL cannot show this table now, since a transaction runs a statement with an emoji or with raw
    bytes.
    """
    try:
        return fetch(conn, statement, binds)
    except DBAPIError as error:
        if error_code(error) != _NOT_SHOWN:
            raise
        return None


def family_of(conn: Connection) -> FamilySessions:
    """Return the dialect of a session."""
    dialect = load_dialect(conn.dialect.name)
    assert isinstance(dialect, FamilySessions)
    return dialect


def grants_of(conn: Connection) -> list[str]:
    """Return the grants of a session's user as SQL, including those of its current role."""
    asked = "SHOW GRANTS"
    if not family_of(conn).shows_grants_of_roles:
        ((roles,),) = fetch(conn, "SELECT CURRENT_ROLE()", {})
        if roles != "NONE":
            asked = f"SHOW GRANTS FOR CURRENT_USER() USING {bindable(str(roles))}"
    return [str(grant) for (grant,) in fetch(conn, asked, {})]


_GRANT: Final = re.compile(
    r"""GRANT\ (?P<rights>.*?)\ ON\ (?P<schema>\*|`(?:[^`]|``)*`|"(?:[^"]|"")*")
    \.(?P<table>\*|`(?:[^`]|``)*`|"(?:[^"]|"")*")\ TO\ """,
    re.DOTALL | re.VERBOSE,
)
_SUPER: Final = re.compile(r"(\bSUPER\b|ALL PRIVILEGES).* ON \*\.\*")
_OF_TABLES: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "TRIGGER"})


def rights_on(conn: Connection, *tables: str) -> Mapping[str, set[str]]:
    """Return, by table, the rights that the user of a session has on whole tables of its database.

    For a name that is not a table, the result has the rights on all tables of the database.
    """
    database = str(fetch(conn, "SELECT DATABASE()", {})[0][0])
    found: dict[str, set[str]] = {table: set() for table in tables}
    for grant in grants_of(conn):
        match = _GRANT.match(grant)
        if match is None or not _means(match["schema"], database):
            continue
        # Rights on some columns do not count as rights on the table.
        rights = set(re.sub(r"\w+ \([^)]*\)", "", match["rights"]).replace(", ", ",").split(","))
        if "ALL PRIVILEGES" in rights:
            rights |= _OF_TABLES
        for table in tables:
            if match["table"] == "*" or _unquoted(match["table"]) == table:
                found[table] |= rights
    return found


def _unquoted(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0])


def _means(written: str, database: str) -> bool:
    """Return True if the database name in a grant matches this database. In the name, _ and % are
    wildcards unless escaped.
    """
    if written == "*":
        return True
    parts = re.findall(r"\\.|.", _unquoted(written), re.DOTALL)
    wild = {"_": ".", "%": ".*"}
    pattern = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(pattern, database, re.DOTALL) is not None


# --- what doctor queries in addition to doctor.sql
# --------------------------------------------------

_SQL: Final = statements(__package__, "doctor.sql")


def _numberings(log: OpenLog) -> Iterator[Numbering]:
    """Yield the numbering of record_ids. If several servers divide the numbers between them, later
    requests may get smaller numbers.
    """
    conn, table = log.connection, log.table
    ((increment, offset),) = fetch(
        conn, "SELECT @@GLOBAL.auto_increment_increment, @@GLOBAL.auto_increment_offset", {}
    )
    name, step, cycles = f"{quote_identifier(table.name)} (AUTO_INCREMENT)", 0, False
    if table.sequence is not None:  # all sessions share the cache of AUTO_INCREMENT
        name = qualified(*table.sequence, quote_identifier)
        ((step, cycles),) = fetch(conn, f"SELECT increment, cycle_option FROM {name}", {})  # noqa: S608
    disorder = None
    if not step and int(increment) > 1:
        disorder = (
            f"counts in steps of {increment} from {offset} on, as in a setup with several "
            "writable servers"
        )
    fix = (
        "let applications write to only one server, and run SET GLOBAL auto_increment_increment = 1"
    )
    yield Numbering(name, 1, int(step) or 1, bool(cycles), disorder, fix)


def _indexes(log: OpenLog) -> Answer:
    statement = bindable(_SQL["indexes"]).replace(":log_name", "%(log_name)s")
    rows = fetch(log.connection, statement, {"log_name": log.table.name})
    return [(name, True, column, None) for name, column in rows]


def _snapshots(log: OpenLog, limit: int) -> Iterator[Sequence[object]]:
    """Yield the open transactions that may prevent the purge of old versions of rows, the oldest
    first. Yield nothing if this user lacks the right PROCESS, or if the server cannot show them
    now.

    The server does not show which transactions have a read view; a transaction of REPEATABLE READ
    may have a read view, and so may a transaction that is reading now. For each transaction, the
    number of later transactions is the length of the server's history list.
    """
    conn = log.connection
    if not has_process(conn):
        return
    ((history,),) = fetch(conn, family_of(conn).doctor_sql["history"], {}) or ((0,),)
    readers = bindable(_SQL["readers"]).replace(":limit", "%(limit)s")
    readers = readers.replace("{processlist}", family_of(conn).processlist)
    for pid, user, program, host, state, seconds, started in (
        fetch_transactions(conn, readers, {"limit": limit}) or ()
    ):
        session = "session", None, pid, user, program, host, state, seconds
        yield *session, int(history), started, f"KILL {pid}"


def _storage(log: OpenLog) -> Iterator[Sequence[object]]:
    """Yield the tables of a log with their sizes. InnoDB does not report the dead rows
    of a table.
    """
    table = log.table
    parts = {
        table.name: "log",
        table.error_table: "error",
        table.inflight_table: "inflight",
        table.state_table: "state",
        table.consumer_table: "consumer",
        table.epoch_table: "epoch",
        table.captured_table: "captured",
        table.resync_table: "resync",
    }
    statement = bindable(_SQL["size"]).replace(":table", "%(table)s")
    for name, part in parts.items():
        for (size,) in fetch(log.connection, statement, {"table": name}):
            yield part, quote_identifier(name), None, None, None, None, size or 0


def has_log(conn: Connection, name: str) -> bool:
    """Return True if a log named in the text of a trigger exists."""
    return name in {
        in_text(quote_identifier(str(table))) for (table,) in fetch(conn, _SQL["tables"], {})
    }


def _unreadable(log: OpenLog, tables: Sequence[str], columns: Sequence[str], **_: Any) -> Answer:
    """Return the columns that this user may not read."""

    def read(table: str, names: Sequence[str]) -> str:
        listed = ", ".join(map(quote_identifier, names))
        return f"EXPLAIN SELECT {listed} FROM {quote_identifier(table)} WHERE 1 = 0"  # noqa: S608

    return RIGHTS.unreadable(log, tables, columns, read)


def _rights_to_apply(log: OpenLog, tables: Sequence[str], **_: Any) -> Iterator[tuple[str]]:
    """Yield, in words, the rights that this user lacks for applying triggers to tables."""
    conn = log.connection
    rights = rights_on(conn, *tables)
    for table in tables:
        if "TRIGGER" not in rights[table]:
            yield (f"TRIGGER on table {table}",)
    asked = "SELECT @@GLOBAL.log_bin, @@GLOBAL.log_bin_trust_function_creators"
    ((has_binary_log, trusts),) = fetch(conn, asked, {})
    is_super = any(_SUPER.search(grant) for grant in grants_of(conn))
    if has_binary_log and not trusts and not is_super:
        yield ("SUPER (the server has a binary log, and log_bin_trust_function_creators is 0)",)


def sees_triggers(conn: Connection, schema: str) -> bool:
    """Return True if this session sees the triggers of the database: its user needs the right
    TRIGGER on all tables of the database.
    """
    return "TRIGGER" in rights_on(conn, "")[""]


def _transactions(log: MySQLFamilyLog, limit: int) -> Iterator[Sequence[object]]:
    """Return at most ``limit`` open writers of a log."""
    return islice(log.writers.transactions(), limit)


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "numberings": _numberings,
    "transactions": _transactions,
    "indexes": _indexes,
    "snapshots": _snapshots,
    "storage": _storage,
    "unreadable": _unreadable,
    "rights_to_apply": _rights_to_apply,
}
