"""Which refusals of PostgreSQL a publisher waits for at its start, and which end it
(spec/event-log.md 12.1): by the messages that servers and libpq really write.
"""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import make_url

from eventlog.errors import DatabaseError, DatabaseUnavailable, ServerUnavailable
from eventlog.sql.connect.connection import SECRET, not_connected
from eventlog.sql.port.driver_errors import load_dialect

AT = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '
FATAL = AT + "FATAL:  "
BAD = "connection is bad: "
HBA = "allow this user"
OPTION = "correct the options after ?"


def several(*attempts: tuple[str, str]) -> str:
    """The text of psycopg for several hosts, or several addresses of a host."""
    lines = [
        f"- host: '{host}', port: '5432', hostaddr: '10.0.0.{number}': {text}"
        for number, (host, text) in enumerate(attempts)
    ]
    return "\n".join(
        [attempts[-1][1], "Multiple connection attempts failed. All failures were:", *lines]
    )


CLOSED = AT + "Connection refused\n\tIs the server running on that host and accepting connections?"
WRONG_PASSWORD = FATAL + 'password authentication failed for user "pub"'
NO_ENTRY = 'no pg_hba.conf entry for host "127.0.0.1", user "pub", database "d", '

ENDS = {
    "a wrong password": (WRONG_PASSWORD, SECRET),
    "no password": (AT + "fe_sendauth: no password supplied", SECRET),
    "a wrong certificate": (
        FATAL + 'certificate authentication failed for user "pub"',
        "check the user",
    ),
    "peer": (FATAL + 'Peer authentication failed for user "pub"', "check the user"),
    "an unknown user": (FATAL + 'role "pub" does not exist', "create the user"),
    "a user without LOGIN": (
        FATAL + 'role "pub" is not permitted to log in',
        "ALTER ROLE ... LOGIN",
    ),
    "an unknown database": (FATAL + 'database "d2" does not exist', "create the database"),
    "no CONNECT": (
        FATAL
        + 'permission denied for database "d"\nDETAIL:  User does not have CONNECT privilege.',
        "GRANT CONNECT ON DATABASE",
    ),
    "no entry in pg_hba.conf": (FATAL + NO_ENTRY + "no encryption", HBA),
    "no entry, tried with TLS and without": (
        f"{FATAL}{NO_ENTRY}SSL encryption\n"
        f"{FATAL.removeprefix('connection failed: ')}{NO_ENTRY}no encryption",
        HBA,
    ),
    "rejected by pg_hba.conf": (
        FATAL + 'pg_hba.conf rejects connection for host "::1", user "pub", database "d", SSL on',
        HBA,
    ),
    "a server without TLS": (AT + "server does not support SSL, but SSL was required", "sslmode"),
    "a root certificate that is not there": (
        AT + 'root certificate file "/nonexistent/ca.pem" does not exist\nEither provide the file',
        OPTION,
    ),
    "a wrong sslmode": (BAD + 'invalid sslmode value: "maybe"', OPTION),
    "a wrong port": (BAD + 'invalid port number: "70000"', OPTION),
    "a wrong number": (
        f"{BAD}{AT.removeprefix('connection failed: ')}"
        'invalid integer value "abc" for connection option "keepalives_idle"',
        OPTION,
    ),
    "a wrong TLS version": (BAD + 'invalid "ssl_min_protocol_version" value: "x"', OPTION),
    "an unknown service": (BAD + 'definition of service "nothere" not found', OPTION),
    "an unknown parameter of the server": (
        FATAL + 'unrecognized configuration parameter "nonsense"',
        OPTION,
    ),
    "a wrong value of a parameter": (
        FATAL + 'invalid value for parameter "work_mem": "abc"',
        OPTION,
    ),
    "a parameter of superusers": (
        FATAL + 'permission denied to set parameter "lc_messages"',
        OPTION,
    ),
    "a parameter of the server's start": (
        FATAL + 'parameter "max_connections" cannot be changed without restarting the server',
        OPTION,
    ),
    "an argument that is no parameter": (
        FATAL + "invalid command-line argument for server process: -Z\nHINT:  Try --help.",
        OPTION,
    ),
    "localhost, whose first address is closed": (
        several(("localhost", CLOSED), ("localhost", WRONG_PASSWORD)),
        SECRET,
    ),
    "two hosts that both refuse": (several(("a", WRONG_PASSWORD), ("b", WRONG_PASSWORD)), SECRET),
}

WAITS = {
    "the limit of the user": (
        FATAL + 'too many connections for role "pub"',
        "end sessions of this user",
    ),
    "the limit of the database": (
        FATAL + 'too many connections for database "d"',
        "end sessions of the database",
    ),
    "all slots in use": (FATAL + "sorry, too many clients already", "max_connections"),
    "reserved slots": (
        FATAL + "remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "max_connections",
    ),
    "a database that is restored": (
        FATAL + 'database "d" is not currently accepting connections',
        "ALLOW_CONNECTIONS",
    ),
    "starting": (FATAL + "the database system is starting up", "check host and port"),
    "shutting down": (FATAL + "the database system is shutting down", "check host and port"),
    "no hot standby": (
        FATAL
        + "the database system is not accepting connections\nDETAIL:  Hot standby mode is disabled.",
        "check host and port",
    ),
    "closed": (CLOSED, "check host and port"),
    "an unknown host": (
        "failed to resolve host 'db': [Errno -2] Name or service not known",
        "check host and port",
    ),
    "a silent host": ("connection timeout expired", "check host and port"),
    "a web server": (
        AT + "received invalid response to SSL negotiation: H",
        "check host and port",
    ),
    "no socket": (
        BAD
        + 'connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory',
        "check host and port",
    ),
    "only standbys": (AT + "session is read-only", "check host and port"),
    "a directory server": (
        FATAL + 'LDAP authentication failed for user "pub"',
        "the authentication server",
    ),
    "a RADIUS server": (
        FATAL + 'RADIUS authentication failed for user "pub"',
        "the authentication server",
    ),
    "words of another language": (
        FATAL + "Passwort-Authentifizierung für Benutzer »pub« fehlgeschlagen",
        "check host and port",
    ),
    # A fragment decides nothing: a name may hold any words.
    "a name with other words in it": (
        FATAL + 'too many connections for role "role "x" does not exist"',
        "end sessions of this user",
    ),
    "two hosts, one closed": (several(("a", CLOSED), ("b", WRONG_PASSWORD)), "check host and port"),
    "full with TLS, not let in without": (
        f"{FATAL}sorry, too many clients already\n"
        f"{FATAL.removeprefix('connection failed: ')}{NO_ENTRY}no encryption",
        "max_connections",
    ),
}


def refused(error: BaseException) -> DatabaseError:
    url = make_url("postgresql+psycopg://pub:hunter2@127.0.0.1:5432/d")
    return not_connected(load_dialect("postgresql"), url, error, SECRET)


@pytest.mark.parametrize(("text", "advice"), ENDS.values(), ids=ENDS)
def test_a_refusal_that_only_people_can_change_ends_a_publisher_at_its_start(
    text: str, advice: str
) -> None:
    error = refused(psycopg.OperationalError(text))
    assert not isinstance(error, DatabaseUnavailable)
    assert advice in str(error)


@pytest.mark.parametrize(("text", "advice"), WAITS.values(), ids=WAITS)
def test_a_refusal_that_may_pass_or_that_nobody_understands_is_waited_for(
    text: str, advice: str
) -> None:
    error = refused(psycopg.OperationalError(text))
    assert isinstance(error, ServerUnavailable)
    assert advice in str(error)


def test_an_option_that_libpq_does_not_have_ends_a_publisher() -> None:
    error = refused(psycopg.ProgrammingError('invalid connection option "nonsense"\n'))
    assert not isinstance(error, DatabaseUnavailable)
    assert OPTION in str(error)


def test_several_hosts_have_one_reason_each_and_no_hints() -> None:
    read_only = FATAL.replace("FATAL:  ", "") + "session is read-only"
    text = several(("a", CLOSED), ("a", CLOSED), ("b", read_only))
    message = str(refused(psycopg.OperationalError(text)))
    reasons = "a:5432: Connection refused, b:5432: session is read-only"
    assert message.startswith(f"cannot connect to database 'd' at 127.0.0.1:5432: {reasons}; ")
    assert len(message) < 250
