"""The monitor of a running publisher, as ``eventlog top`` and ``tail`` read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from eventlog.cli.inspect.health_lines import Status
from eventlog.config.load import Config
from eventlog.errors import ConfigError, MonitorUnavailable
from eventlog.transport.http import HttpClient, HttpFailed

_TIMEOUT: Final = 10.0
_MAX_BYTES: Final = 16 * 1024 * 1024
LEVELS: Final = {
    "success": "green",
    "warning": "yellow",
    "error": "red",
    "retry": "red",
    "fatal": "red",
    "no answer": "red",
}

Sent = Mapping[str, Any]
Read = Callable[[], Status]


def monitor_url(config: Config, url: str | None) -> str | None:
    """Return the URL of a publisher's monitor: --url, else the configured URL, else None."""
    if url is not None or config.monitor.listen is None:
        return url
    return f"{'http' if config.monitor.certificate is None else 'https'}://{config.monitor.listen}/"


def read_monitor(url: str, token: str | None, path: str = "/status.json") -> Read:
    """Return a function that on each call reads the monitor's status, or what is at another
    ``path``.

    The function raises MonitorUnavailable if no monitor answers there, ConfigError if the token is
    refused.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: write it as http://127.0.0.1:9464/")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def read() -> Status:
        with closing(HttpClient(url, timeout=_TIMEOUT, max_response_bytes=_MAX_BYTES)) as client:
            try:
                answer = client.request("GET", headers, path=path)
                if answer.status == 401:
                    raise ConfigError(f"{client.shown} needs a token: set EVENTLOG_MONITOR_TOKEN")
                if answer.status != 200:
                    raise MonitorUnavailable(
                        f"{client.shown} returned {answer.status}; "
                        "check that it is a publisher's monitor"
                    )
                status: Status = json.loads(answer.body)
            except (HttpFailed, ValueError) as error:
                raise MonitorUnavailable(
                    f"{client.shown} does not answer: {error}; check that the publisher runs"
                ) from None
            return status

    return read
