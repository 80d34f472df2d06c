"""The address of a database for python-oracledb: the arguments of a URL, converted to arguments of
the driver.

SQLAlchemy makes a descriptor from host, port and service only, with ``(PROTOCOL=TCP)`` whatever the
URL requests. SQLAlchemy passes all other arguments to the driver, where the descriptor takes
precedence: a session that requests TLS would be unencrypted. So the driver gets each part by its
name, and an argument without effect is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from sqlalchemy import URL

from eventlog.errors import ConfigError


def _truth(text: str) -> bool:
    known = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    return known[text.lower()]


def _protocol(text: str) -> str:
    return {"tcp": "tcp", "tcps": "tcps"}[text.lower()]


_ADDRESS: Final[Mapping[str, Callable[[str], object]]] = {
    "service_name": str,
    "sid": str,
    "instance_name": str,
    "server_type": str,
    "protocol": _protocol,
    "https_proxy": str,
    "https_proxy_port": int,
    "retry_count": int,
    "retry_delay": int,
    "sdu": int,
    "use_sni": _truth,
}
"""The arguments for the server's location. For an alias, these are in its descriptor."""
_SESSION: Final[Mapping[str, Callable[[str], object]]] = {
    "config_dir": str,
    "wallet_location": str,
    "wallet_password": str,
    "ssl_server_dn_match": _truth,
    "ssl_server_cert_dn": str,
    "edition": str,
    "tcp_connect_timeout": float,
    "expire_time": int,
    "stmtcachesize": int,
}
"""The other arguments of a session."""
_ALL: Final = {**_ADDRESS, **_SESSION}
_EXAMPLE: Final = "oracle://user@host:1521/?service_name=NAME"


def arguments_of(url: URL) -> dict[str, Any]:
    """Return the arguments of ``oracledb.connect`` for a URL.

    Raises ConfigError for a URL that the driver cannot use.
    """
    given = _given(url)
    arguments = {"user": url.username, "password": url.password, **given}
    if url.database:
        if "service_name" in given or "sid" in given:
            raise ConfigError(
                "the database URL names a SID after the host and a service or SID after the "
                f"question mark: remove one of them, as in {_EXAMPLE}"
            )
        arguments["sid"] = url.database
    if "service_name" in arguments or "sid" in arguments:
        return {**arguments, "host": url.host, "port": url.port or 1521}
    for name in ("port", *_ADDRESS):
        if name in given or (name == "port" and url.port is not None):
            raise ConfigError(
                f"the database URL names neither service_name nor SID, so {url.host!r} is an alias "
                f"in tnsnames.ora. This file has the location of the server, so {name} would have "
                f"no effect: add the service, as in {_EXAMPLE}, or remove {name}"
            )
    return {**arguments, "dsn": url.host}


def _given(url: URL) -> dict[str, Any]:
    """Return the arguments after the question mark. Raises ConfigError for an unknown argument."""
    given: dict[str, Any] = {}
    for name, value in url.query.items():
        if name not in _ALL:
            near = get_close_matches(name, _ALL, 1)
            instead = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_ALL)}"
            raise ConfigError(f"unknown parameter {name} in the Oracle URL: {instead}")
        try:
            given[name] = _ALL[name](value if isinstance(value, str) else value[-1])
        except (KeyError, ValueError):
            raise ConfigError(
                f"parameter {name} of the Oracle URL has an invalid value; correct it"
            ) from None
    return given
