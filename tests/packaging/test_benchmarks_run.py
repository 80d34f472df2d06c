"""Each benchmark that needs no other product runs in its smallest form: nothing else notices that an
option of ours has another name.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from documents import ROOT

SMALLEST = {
    "backlog": "--rows 2000 --rounds 1 --scale 1000 2000",
    "capture": "--rows 200 --rounds 1 --seconds 1 --batches 2",
    "changes": "--rows 2000 --rounds 1 --batches 2 --idle 1 --spark",
    "concurrency": "--rows 40 --rounds 1",
    "consumers": "--rows 2000 --rounds 1 --seconds 2 --open 1 --changes 20",
    "crowd": "--seconds 3 --consumers 1 --objects 100",
    "culprits": "--rounds 1 --rate 10",
    "debezium": "--events 200",
    "drain": "--rows 2000 --rounds 1",
    "followed_source": "--rows 500 --rounds 1",
    "gbase": "--rows 500 --rounds 1",
    "horizon": "--rows 100 200 --times 5 --leaves 2",
    "http_sink": "--rows 400 --rounds 1",
    "kafka": "--rows 500 --rounds 1",
    "latency": "--changes 40 --rounds 1 --seconds 1 --sessions 2",
    "linter": "--rows 500 --rounds 1",
    "lists": "--rows 3000 --times 1",
    "live_copy": "--rows 500 --rate 10 --seconds 10",
    "masks": "--masks 20",
    "memory": "--rows 5000 --deliveries 2",
    "monitor": "--rows 2000 --rounds 1",
    "mysql_family": "--rows 2000 --drained 2000 --rounds 1 --servers mariadb",
    "open_writers": "--servers mariadb --rows 200 --rounds 1",
    "partitions": "--rows 4000 --seconds 1 --times 5",
    "qlik": "--rows 500 --rounds 1",
    "rows": "--rows 2000",
    "sizing": "--rows 2000 --publish 2000 --cluster 0 --rounds 1",
    "spark_hooks": "--rows 200 --rounds 1",
    "spark_part": "--rows 2000 --rounds 1",
    "suite": "true",
    "verify": "500",
}


@pytest.mark.night
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs(name: str) -> None:
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), *SMALLEST[name].split()]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("EVENTLOG_")}
    environ["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
