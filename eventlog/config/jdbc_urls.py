"""Convert JDBC URLs to URLs of SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import unquote

from sqlalchemy import URL

from eventlog.errors import ConfigError
from eventlog.sql.port.driver_errors import load_dialect

_SERVERS: Final = r"//(?P<hosts>[^/?;]*)/(?P<database>[^?]*)(?:\?(?P<query>.*))?"
_ORACLE: Final = r"(?:thin|oci8?):(?:(?P<login>.*?)(?:/.*)?)?@"


def _postgresql_query(properties: dict[str, str]) -> dict[str, str]:
    """Remove the ``properties`` that the database's own driver supports. Return the removed
    properties in the form of that driver.
    """
    query = {}
    mode = properties.pop("sslmode", None)
    encrypted = properties.pop("ssl", None)
    if mode is None and encrypted is not None and encrypted.casefold() in ("", "true"):
        mode = "verify-full"  # the default of the Java driver
    if mode is not None:
        query["sslmode"] = mode
    schema = properties.pop("currentschema", None)
    if schema is not None:
        query["options"] = "-csearch_path=" + re.sub(r"([\\ ])", r"\\\1", schema)
    return query


_Form: TypeAlias = tuple[str, tuple[str, ...], Callable[[dict[str, str]], dict[str, str]]]

_FORMS: Final[Mapping[str, _Form]] = {
    "postgresql": (
        "postgresql+psycopg",
        (_SERVERS, r"(?P<database>[^/?]+)(?:\?(?P<query>.*))?"),
        _postgresql_query,
    ),
    "oracle": (
        "oracle+oracledb",
        (
            rf"{_ORACLE}(?://)?(?P<hosts>[^/:?@()]+(?::[0-9]+)?)/(?P<service>[^?:]+)(?:[?:].*)?",
            rf"{_ORACLE}(?P<hosts>[^/:?@()]+:[0-9]+):(?P<database>[^/?:]+)",
            rf"{_ORACLE}(?P<hosts>[^/:?@()]+)",
        ),
        lambda _: {},
    ),
    "mariadb": ("mariadb+pymysql", (_SERVERS,), lambda _: {}),
    "mysql": ("mysql+pymysql", (_SERVERS,), lambda _: {}),
}
"""For each database: the driver, the forms of the JDBC URL after ``jdbc:<database>:``, and the
function that moves properties into the query of the URL if the driver supports them.
"""


def jdbc_url(text: str) -> tuple[URL, list[str]]:
    """Return the SQLAlchemy URL for a JDBC URL, and the names of the properties that were left out.
    The user is taken from the JDBC URL, but never a password.

    Raises ConfigError, without the text, for a database or a form that is not supported.
    """
    head = re.match(r"jdbc:(?:(?:microsoft|jtds):)?(\w*):?", text.strip(), re.IGNORECASE)
    name, rest = (head[1].lower(), text.strip()[head.end() :]) if head else ("", "")
    load_dialect(name)
    drivername, forms, query_of = _FORMS.get(name, ("", (), dict))
    found = (re.fullmatch(form, rest, re.IGNORECASE) for form in forms)
    match = next(filter(None, found), None)
    if match is None:
        raise ConfigError(f"a JDBC URL of {name} in this form is not supported")
    parts = match.groupdict()
    given = (part.partition("=") for part in (parts.get("query") or "").split("&"))
    properties = {
        name.strip().lower(): unquote(value.strip()) for name, _, value in given if name.strip()
    }
    user = properties.pop("user", None) or (parts.get("login") or "").strip('"') or None
    query = query_of(properties)
    if parts.get("service"):
        query["service_name"] = parts["service"]
    host, port = _server(parts.get("hosts") or "", query)
    database = unquote(parts.get("database") or "") or None
    return URL.create(drivername, user, None, host, port, database, query), sorted(properties)


def _server(hosts: str, query: dict[str, str]) -> tuple[str | None, int | None]:
    """Return host and port; several hosts go into ``query``, as libpq expects them."""
    # A URL of this form has no @, but a password could precede one.
    servers = [_host(part.rpartition("@")[2]) for part in hosts.split(",") if part]
    if len(servers) > 1:
        query["host"] = ",".join(host for host, _ in servers)
        query["port"] = ",".join(str(port or 5432) for _, port in servers)
        return None, None
    return servers[0] if servers else ("localhost", None)


def _host(text: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?", text)
    return (
        (text, None)
        if match is None
        else (match[1].strip("[]"), int(match[2]) if match[2] else None)
    )
