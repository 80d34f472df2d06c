"""A backlog job with a monitor, which shows the stages while they run, and what was done."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from backlog_job import config_of, convert, log_rows, random_rows
from shared import free_port

from eventlog.publisher.monitor import monitoring_job


def test_stages_rows_and_rates_are_shown_while_a_job_runs(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(2_000, seed=21))
    listen = f"127.0.0.1:{free_port()}"
    config = config_of(log, monitor__interval="1")
    told: list[dict[str, Any]] = []

    def read(path: str) -> str:
        with urllib.request.urlopen(f"http://{listen}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    with monitoring_job(config, listen, str(tmp_path / "out"), "xds", lambda *_: None) as activity:  # type: ignore[arg-type, return-value]

        @contextmanager
        def watch(stage: str, progress: Any) -> Iterator[None]:
            done = threading.Event()

            def look() -> None:
                while not done.wait(0.2):
                    told.append(json.loads(read("/status.json")))

            looking = threading.Thread(target=look)
            with activity.during(stage, progress):
                looking.start()
                try:
                    yield
                finally:
                    done.set()
                    looking.join()

        report = convert(config, tmp_path / "out", mark=True, progress=watch)
        assert read("/livez") == "ok\n"
        metrics = read("/metrics")
        page = read("/")
    converting = [each for each in told if each["state"]["name"] == "converting"]
    assert converting
    assert {each["job"]["stage"] for each in converting} == {"converting"}
    assert all(
        each["log"] == "hr.eventlog" and each["is_alive"] and each["is_ready"]
        for each in converting
    )
    rows = report.manifest.totals["rows_read"]
    assert (
        f'eventlog_backlog_rows_read_total{{format="xds",log="hr.eventlog"}} {float(rows)}'
        in metrics
    )
    assert "eventlog_backlog_rows_marked_total" in metrics
    assert 'id="tiles"' in page
