"""A publisher process with a monitor, and what it says."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from publishers import LONG, configuration, process, write
from shared import PATIENCE, execute, free_port, wait_until

from eventlog.cli.context import changing_log
from eventlog.publisher.inspect.pausing import pause_reader, resume_reader

Ask = Callable[[str], Any]


def read(url: str, token: str = "") -> tuple[int, str]:
    """The status and the body; metrics as OpenMetrics."""
    headers = {"Accept": "application/openmetrics-text"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply_:
            return reply_.status, reply_.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def watched(
    log: sa.Engine,
    directory: Path,
    *,
    first: str = "/readyz",
    arguments: Sequence[str] = (),
    **options: object,
) -> Iterator[tuple[subprocess.Popen[bytes], str, Ask]]:
    """A publisher process with a monitor that has answered 200 at ``first``: the process, where it
    listens, and what gives a path's JSON. ``arguments`` come before the command.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    options = {
        "monitor__listen": f"127.0.0.1:{port}",
        "monitor__interval": 1,
        "polling_interval": LONG,
        **options,
    }
    with process(log, directory, first=arguments, **options) as running:

        def ask(path: str) -> Any:
            code, body = read(address + path)
            assert code == 200, (path, code, body)
            return json.loads(body)

        wait_until(lambda: read(f"{address}{first}")[0] == 200, f"it answers {first}")
        yield running, address, ask


def pause(log: sa.Engine) -> None:
    """Pause a publisher, before it starts or while it rests.

    A publisher measures right after what it sends at the end of a pause. Otherwise what was refused
    or parked is shown by its next measurement, which comes after a hundred times the seconds of the
    one before: 3 to 15 s, since the first in a process is slow.
    """
    with changing_log(configuration(log)) as opened:
        pause_reader(opened, None, "the test writes", "the test")
        opened.commit()
    wake(log)


def wake(log: sa.Engine) -> None:
    """Let a publisher at rest begin its next cycle now."""
    execute(log, "NOTIFY eventlog_eventlog")


def resume(log: sa.Engine) -> None:
    with changing_log(configuration(log)) as opened:
        resume_reader(opened, None)
        opened.commit()


def write_and_resume(log: sa.Engine, address: str, *keys: int, token: str = "") -> None:
    """Write a row for each of these objects once the publisher, which listens at ``address``, has
    seen its pause, end the pause, and wait until the publisher has measured after it.
    """

    def status() -> Any:
        code, body = read(f"{address.rstrip('/')}/status.json", token)
        assert code == 200, (code, body)
        return json.loads(body)

    wait_until(lambda: status()["state"]["name"] == "paused", "the publisher is paused")
    write(log, *keys)
    resume(log)
    wait_until(lambda: status()["paused"] is None, "it has measured")


def metrics(address: str) -> dict[str, float]:
    """The samples of a scrape by name; of those with more labels than log and sink the sum."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(read(f"{address}/metrics")[1]):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0) + sample.value
    return values
