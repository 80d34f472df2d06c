"""Secrets that settings refer to, and the hosts to which they may go without TLS. A secret is in an
environment variable ``NAME``, or in a file that ``NAME_FILE`` names, as orchestrators provide
secrets.
"""

from __future__ import annotations

import ipaddress
import re
from os import environ
from pathlib import Path
from typing import Final

from eventlog.errors import ConfigError

REFERENCE: Final = re.compile(r"env:(?P<variable>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>/.+)")
"""A reference to a secret, in a setting that is not a secret itself."""
PLAIN_HTTP: Final = "credentials are not sent over plain http to another machine; use https"


def is_loopback(host: str) -> bool:
    """Return True if a name or an address leads to this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secret_variable(name: str) -> str | None:
    """Return the secret of the variable ``name``, or of the file that ``<name>_FILE`` names; None
    if neither is set.

    Raises ConfigError if both are set, and for a file that cannot be read or is empty.
    """
    file = environ.get(f"{name}_FILE")
    if file is None:
        return environ.get(name)
    source = f"environment variable {name}_FILE"
    if name in environ:
        raise ConfigError(f"{source} and {name} are both set; remove one of them")
    return read_secret(Path(file), source)


def referenced_secret(reference: str, source: str) -> str:
    """Return the secret to which a ``REFERENCE`` refers. ``source`` names the setting that contains
    the reference.

    Raises ConfigError.
    """
    place = REFERENCE.fullmatch(reference)
    assert place is not None
    if place["file"] is not None:
        return read_secret(Path(place["file"]), source)
    if not environ.get(place["variable"]):
        raise ConfigError(
            f"{source}: the environment variable {place['variable']} is not set, or empty"
        )
    return environ[place["variable"]]


def read_secret(file: Path, source: str) -> str:
    """Return the secret that a file holds, without its last line break.

    Raises ConfigError, which begins with ``source``.
    """
    try:
        text = file.read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise ConfigError(f"{source}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{source}: {file} cannot be read: it is not UTF-8 (byte {error.start})"
        ) from None
    if not text.strip():
        raise ConfigError(f"{source}: {file} is empty; write the secret to it")
    return text
