"""Two hosts and a router between them, by network namespaces: the router can swallow all packets of
a host, without an answer to anybody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

SERVER: Final = "10.213.1.2"
CLIENT: Final = "10.213.2.2"
NETWORK: Final = "10.213.0.0/16"


class SilentNetwork:
    """``server`` and ``client`` are the namespaces of the hosts with these addresses."""

    def __init__(self) -> None:
        self.server, self.client, self._router = (
            f"el{os.getpid()}-{end}" for end in ("server", "client", "router")
        )
        self._all = (self.server, self.client, self._router)

    def make(self) -> None:
        for name in self._all:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for host, address in ((self.server, SERVER), (self.client, CLIENT)):
            gateway, end = address[:-1] + "1", address.rsplit(".", 2)[1]
            router = ("-n", self._router)
            _ip(*router, "link", "add", f"to{end}", "type", "veth", "peer", "eth0", "netns", host)
            _ip(*router, "addr", "add", f"{gateway}/24", "dev", f"to{end}")
            _ip(*router, "link", "set", f"to{end}", "up")
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "route", "add", "default", "via", gateway)
        _run(*self.inside(self._router), "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def remove(self) -> None:
        for name in self._all:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def inside(self, name: str) -> tuple[str, ...]:
        """What stands before a command that runs in a namespace."""
        return ("ip", "netns", "exec", name)

    def swallow(self) -> None:
        """Drop all packets to and from the client, without a word."""
        _ip("-n", self._router, "route", "replace", "blackhole", f"{CLIENT}/32")
        _ip("-n", self._router, "rule", "add", "from", CLIENT, "blackhole")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@contextmanager
def silent_network() -> Iterator[SilentNetwork]:
    """The network, removed at the end. The test is skipped where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("no command ip: install iproute2")
    network = SilentNetwork()
    try:
        try:
            network.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode()}")
        yield network
    finally:
        network.remove()
