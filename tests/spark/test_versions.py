"""The oldest and the newest PySpark and Java that can be had: on each, all of this folder passes.

EVENTLOG_TEST_SPARK names other pairs, ``"4.1.*:21 4.2.*:25"``: a version as pip takes it, and a
Java of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from backlog_page import skip_without_index
from documents import ROOT

PAIRS = [
    pair.split(":")
    for pair in os.environ.get("EVENTLOG_TEST_SPARK", "4.0.0:oldest 4.*:newest").split()
]
SECONDS = 1_800


def javas() -> dict[int, Path]:
    """Where the Javas of this machine are, by their version; Spark needs 17 or later."""
    return {version: home for version, home in _javas() if version >= 17}


def _javas() -> Iterator[tuple[int, Path]]:
    homes = sorted(Path("/usr/lib/jvm").glob("*"))
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parents[1])
    if "JAVA_HOME" in os.environ:
        homes.append(Path(os.environ["JAVA_HOME"]))
    for home in homes:
        if (home / "release").is_file() and (home / "bin" / "java").exists():
            version = re.search(
                r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE
            )
            if version is not None:
                yield int(version[1]), home


@pytest.fixture
def java(request: pytest.FixtureRequest) -> Path:
    asked, found = request.param, javas()
    if not found:
        pytest.skip("there is no Java 17 or later in JAVA_HOME, PATH or /usr/lib/jvm")
    version = {"oldest": min(found), "newest": max(found)}.get(asked) or int(asked)
    if version not in found:
        pytest.skip(f"there is no Java {version} in JAVA_HOME, PATH or /usr/lib/jvm")
    return found[version]


@pytest.fixture
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Python of an environment with what pip brings for this PySpark; test tools are those that
    are here.
    """
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [
        environment / "bin" / "pip",
        "install",
        "--editable",
        f"{ROOT}[spark]",
        f"pyspark=={request.param}",
    ]
    done = subprocess.run(install, capture_output=True, text=True)
    skip_without_index(done.stderr)
    assert done.returncode == 0, done.stderr
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "zz-tools.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    return environment / "bin" / "python"


@pytest.mark.night
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(("python", "java"), PAIRS, indirect=True)
def test_every_test_of_spark_passes(java: Path, python: Path, tmp_path: Path) -> None:
    named = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "PYSPARK_"))
    }
    command = [python, "-m", "pytest", ROOT / "tests" / "spark", "-m", "not night", "-n", "0"]
    # In its usual place pytest takes away the rights by which servers reach the directories of this run's tests.
    command += ["-r", "s", "-p", "no:cacheprovider", "--basetemp", tmp_path / "pytest"]
    command += ["-o", "filterwarnings=default"]  # its own warnings make no test fail
    done = subprocess.run(
        command,
        env={**named, "JAVA_HOME": str(java)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    # Without a Java that it runs on, this PySpark has been asked nothing.
    assert not [
        line for line in done.stdout.splitlines() if line.startswith("SKIPPED") and "Java" in line
    ]
