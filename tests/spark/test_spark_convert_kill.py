"""kill -9 of the driver in the middle of a conversion: the same command again does all of it,
once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import claimed_conversion
import psutil
import pytest
from loss_formats import TRIED
from loss_samples import SAMPLES
from pyspark.sql import SparkSession

from eventlog.changes.json_form import dumps
from eventlog.conversion import convert as convert_row_by_row
from eventlog.errors import ConfigError
from eventlog.spark.frames.convert import convert

TESTS = Path(__file__).parents[1]


def wait_until(seen: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not seen():
        assert process.poll() is None, "the conversion has ended"
        time.sleep(0.02)


def environment(target: Path) -> dict[str, str]:
    """What the command is run with; without the session of the tests."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    return kept | {
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "spark"))),
        claimed_conversion.HELD: str(target),
    }


@pytest.mark.night
def test_a_driver_that_is_killed_leaves_an_unfinished_target_and_no_processes(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("a", "b"):
        SAMPLES["K"](source / f"{name}.jsonl")
    process = subprocess.Popen(
        [sys.executable, claimed_conversion.__file__, source, target], env=environment(target)
    )
    try:
        wait_until((target / "a").exists, process)
        wait_until(lambda: any((target / "_temporary").iterdir()), process)  # b has begun
        others = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert len(others) >= 2  # Java, and its workers
    assert psutil.wait_procs(others, timeout=60)[1] == [], "they end with the driver"
    assert not (target / "_SUCCESS").exists()
    with pytest.raises(ConfigError, match=r"an option differs\. Give another directory"):
        convert("qlik-messages", "jsonl", str(source), str(target), spark=spark)

    done = claimed_conversion.run(str(source), str(target), spark=spark)
    assert [one.written for one in done.inputs] == [10, 10]
    map = {"reader": TRIED["K"].reader, "writer": TRIED["G"].completing_writer}
    convert_row_by_row(
        "qlik-messages", "gbase", str(source / "a.jsonl"), str(tmp_path / "alone.cdc"), map
    )
    alone = [dumps(change) for change in TRIED["G"].read(tmp_path / "alone.cdc")]
    for name in ("a", "b"):
        assert [dumps(change) for change in TRIED["G"].read(target / name / "capture.cdc")] == alone
    assert sorted(path.name for path in target.iterdir()) == [
        "_SUCCESS",
        "_manifest.json",
        "a",
        "b",
    ]
