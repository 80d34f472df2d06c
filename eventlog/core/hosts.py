"""Hosts to which credentials may go without TLS."""

from __future__ import annotations

import ipaddress
from typing import Final

PLAIN_HTTP: Final = "credentials are not sent over plain http to another machine; use https"


def is_loopback(host: str) -> bool:
    """Return True if a name or an address leads to this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
