"""Refused connections: which errors are transient, and what to do about each (spec/event-log.md
12.1).

libpq gives no SQLSTATE for a connection that fails, only text. So the whole message, in
PostgreSQL's English, decides. Any other message, including one in another language, counts as
transient.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from eventlog.sql.port.database import Refusal

_USER: Final = "check the user in the URL, and {secret}"
_ALLOW_IN_HBA: Final = "allow this user by a line in the server's pg_hba.conf, or correct the URL"
_OPTIONS: Final = "correct the options after ? in the URL"
_SLOTS: Final = "end unused sessions, or raise max_connections of the server"

_LASTING: Final = {
    "fe_sendauth: no password supplied": _USER,
    '(password|Peer|certificate|GSSAPI|SSPI) authentication failed for user ".*"': _USER,
    'no pg_hba.conf entry for host ".*", user ".*", database ".*".*': _ALLOW_IN_HBA,
    'pg_hba.conf rejects connection for host ".*", user ".*", database ".*".*': _ALLOW_IN_HBA,
    'role ".*" does not exist': "create the user, or correct the URL",
    'role ".*" is not permitted to log in': (
        "allow it by ALTER ROLE ... LOGIN, or correct the user in the URL"
    ),
    'database ".*" does not exist': "create the database, or correct the URL",
    'permission denied for database ".*"': (
        "grant the right by GRANT CONNECT ON DATABASE, or correct the URL"
    ),
    "server does not support SSL, but SSL was required": (
        "enable TLS on the server, or correct sslmode in the URL"
    ),
    'unrecognized configuration parameter ".*"': _OPTIONS,
    'invalid value for parameter ".*": ".*"': _OPTIONS,
    'permission denied to set parameter ".*"': _OPTIONS,
    'parameter ".*" cannot be (changed|set) .*': _OPTIONS,
    "invalid command-line argument for server process: .*": _OPTIONS,
    # From libpq, before it contacts a server.
    "invalid port number: .*": _OPTIONS,
    'invalid "?\\w+"? value: ".*"': _OPTIONS,
    'invalid integer value ".*" for connection option ".*"': _OPTIONS,
    'invalid connection option ".*"': _OPTIONS,
    'weak sslmode ".*" may not be used with .*': _OPTIONS,
    'definition of service ".*" not found': _OPTIONS,
    'service file ".*" not found': _OPTIONS,
    'root certificate file ".*" does not exist': _OPTIONS,
}
"""Patterns for the whole text of messages whose cause only people can fix, each with its advice."""
_PASSING: Final = {
    'too many connections for role ".*"': (
        "end sessions of this user, or raise its CONNECTION LIMIT"
    ),
    'too many connections for database ".*"': (
        "end sessions of the database, or raise its CONNECTION LIMIT"
    ),
    "sorry, too many clients already": _SLOTS,
    "remaining connection slots are reserved for .*": _SLOTS,
    'database ".*" is not currently accepting connections': (
        "wait until its maintenance has ended, or allow connections by ALTER DATABASE ... "
        "ALLOW_CONNECTIONS true"
    ),
    '(LDAP|RADIUS|PAM|BSD|Ident) authentication failed for user ".*"': (
        f"check the authentication server, which may be unavailable; otherwise {_USER}"
    ),
}
"""Patterns for the whole text of messages of transient errors, each with its advice."""
_REFUSALS: Final = [
    *((re.compile(message), Refusal(advice)) for message, advice in _LASTING.items()),
    *((re.compile(message), Refusal(advice, passes=True)) for message, advice in _PASSING.items()),
]
_UNKNOWN: Final = Refusal(None, passes=True)

_SERVER: Final = (
    r'connection to server (?:at ".*?"(?: \(.*?\))?, port \d+|on socket ".*?") failed: '
)
_MESSAGE: Final = re.compile(
    rf"(?:connection (?:is bad|failed): )?(?P<server>{_SERVER})?(?:FATAL:\s+)?(?P<message>.*)"
)
_ATTEMPT: Final = re.compile(
    r"^- host: '?(?P<host>.*?)'?, port: '?(?P<port>.*?)'?, hostaddr: (?:'.*?'|None): ", re.MULTILINE
)
_ATTEMPTS: Final = "All failures were:\n"


def refusal_of(text: str) -> Refusal:
    """Return whether a failed connection is final or transient, with the advice.

    ``text`` is the message of psycopg. The message describes one attempt for each address of each
    host. An attempt has two messages if it was made with TLS and without TLS.

    An address refuses finally if all messages of its attempts are final. A host refuses finally if
    one of its addresses does. The URL is refused finally only if all hosts refuse finally, since a
    host that is unavailable may accept connections later.

    For several attempts, the reason is one message per host. This reason is shorter than psycopg's
    text, which repeats the last message and adds server and hints to each message.
    """
    hosts: dict[str, list[Refusal]] = {}
    reasons: dict[str, None] = {}
    for host, attempt in _attempts(text):
        messages = [*_messages(attempt)]
        hosts.setdefault(host, []).append(_unless_one_passes(map(_refusal, messages)))
        if host:
            reasons[f"{host}: {messages[0] if messages else attempt.strip()}"] = None
    found = _unless_one_passes(
        next((one for one in addresses if not one.passes), addresses[0])
        for addresses in hosts.values()
    )
    return found._replace(reason=", ".join(reasons))


def _attempts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each attempt with its host and port; both are left out if there is only one attempt."""
    _, is_list, listed = text.partition(_ATTEMPTS)
    if not is_list:
        yield "", text
        return
    starts = list(_ATTEMPT.finditer(listed))
    ends = [*(match.start() for match in starts[1:]), len(listed)]
    for match, end in zip(starts, ends, strict=False):
        yield f"{match['host']}:{match['port']}", listed[match.end() : end]


def _messages(attempt: str) -> Iterator[str]:
    """Yield the messages of an attempt, without the details and hints in further lines."""
    for number, line in enumerate(attempt.splitlines()):
        match = _MESSAGE.fullmatch(line)
        if match is not None and (number == 0 or match["server"]):
            yield match["message"]


def _refusal(message: str) -> Refusal:
    return next((refusal for pattern, refusal in _REFUSALS if pattern.fullmatch(message)), _UNKNOWN)


def _unless_one_passes(refusals: Iterable[Refusal]) -> Refusal:
    """Return the first transient refusal, else the last refusal; ``_UNKNOWN`` without refusals."""
    last = _UNKNOWN
    for last in refusals:
        if last.passes:
            break
    return last
