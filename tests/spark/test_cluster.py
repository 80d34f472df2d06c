"""A job on a standalone cluster, whose database asks for a password, as docs/guides/convert-a-backlog.md
has it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa
from backlog_job import config_of, documents_of, events_of, log_rows, publish, random_rows, statuses
from backlog_page import SOURCES, block, copy_clone, skip_without_index
from spark_cluster import HOME, Cluster, spark_cluster

PASSWORD = "s3cret of the cluster"
ROLE = "clustered"


@pytest.fixture
def guarded(log: sa.Engine) -> Iterator[sa.URL]:
    """The URL of the log for a role that the server asks for a password, without it."""
    with log.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        file = Path(str(connection.exec_driver_sql("SHOW hba_file").scalar_one()))
        if not os.access(file, os.W_OK):
            pytest.skip(
                "the server's pg_hba.conf is not here, so that no role can be made to need a "
                "password"
            )
        rules = file.read_text()
        connection.exec_driver_sql(f"CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        file.write_text(
            f"local all {ROLE} scram-sha-256\nhost all {ROLE} all scram-sha-256\n{rules}"
        )
        connection.exec_driver_sql("SELECT pg_reload_conf()")
        time.sleep(0.5)
        try:
            yield log.url.set(username=ROLE)
        finally:
            file.write_text(rules)
            connection.exec_driver_sql("SELECT pg_reload_conf()")
            connection.exec_driver_sql(f"DROP ROLE {ROLE}")


@pytest.fixture
def place(tmp_path: Path, guarded: sa.URL) -> Path:
    """A directory to run commands in, with the configuration and a file that holds the URL."""
    url_file = tmp_path / "url"
    url_file.write_text(guarded.set(password=PASSWORD).render_as_string(hide_password=False))
    url_file.chmod(0o600)
    (tmp_path / "eventlog.toml").write_text(
        f'[database]\nurl_file = "{url_file}"\nschema_name = "hr"\n[publisher]\ndriver_user = '
        '"publisher"\n'
    )
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    named = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **more}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "EVENTLOG_DATABASE_URL"):
        named.pop(name, None)
    return named


def backlog(place: Path, cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        Path(sys.executable).with_name("eventlog"),
        "backlog",
        "run",
        "--config",
        "eventlog.toml",
        "--out",
        "out",
    ]
    settings = ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    return subprocess.run(
        [*command, "--master", cluster.url, *settings, *arguments],
        env=environment(), cwd=place, capture_output=True, text=True, timeout=380,
    )  # fmt: skip


def assert_as_published(log: sa.Engine, out: Path) -> None:
    """Assert that a directory whose rows are marked holds what the publisher sends, and that it
    marks them alike.
    """
    letters = statuses(log)
    assert "N" not in letters.values()
    with log.begin() as connection:
        connection.exec_driver_sql("UPDATE hr.eventlog SET status = 'N'")
    assert list(events_of(documents_of(out))) == publish(config_of(log))
    assert statuses(log) == letters


@pytest.mark.night
@pytest.mark.timeout(400)
def test_an_executor_without_the_password_is_reported_in_one_line_before_anything_begins(
    log: sa.Engine, place: Path, tmp_path: Path
) -> None:
    log_rows(log, random_rows(100, seed=95))
    with spark_cluster(tmp_path / "spark", workers=1) as cluster:
        alone = backlog(place, cluster)
    assert alone.returncode == 1
    assert re.search(r"the executor on \S+ cannot run tasks: .*password", alone.stderr), (
        alone.stderr
    )
    assert PASSWORD not in alone.stdout + alone.stderr
    assert list((place / "out").iterdir()) == []


@pytest.mark.night
@pytest.mark.timeout(600)
def test_a_job_on_a_cluster_gives_what_the_publisher_sends_and_marks_it(
    log: sa.Engine, place: Path, tmp_path: Path
) -> None:
    log_rows(log, random_rows(4_000, seed=95))
    known = {"EVENTLOG_DATABASE_URL_FILE": str(place / "url")}
    with spark_cluster(tmp_path / "spark", environment=known, memory="5g") as cluster:
        line = block(
            "On a cluster", 2, {"spark://master:7077": cluster.url, "/shared": str(place)}
        ).rstrip("\n")
        converted = _shell(f"{line} --partition-rows 700", place)
        assert converted.returncode == 0, converted.stderr
        assert set(statuses(log).values()) == {"N"}
        marked = _shell(f"{line} --mark", place)
    assert marked.returncode == 0, marked.stderr
    assert PASSWORD not in converted.stdout + converted.stderr + marked.stdout + marked.stderr
    assert_as_published(log, place / "documents")


@pytest.mark.night
@pytest.mark.timeout(600)
def test_the_documented_lines_run_by_spark_submit_while_an_executor_is_killed(
    log: sa.Engine, place: Path, tmp_path: Path
) -> None:
    log_rows(log, random_rows(40_000, seed=96))
    packed = tmp_path / "packed" / "bin"
    packed.mkdir(parents=True)
    (packed / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (packed / "python").chmod(0o755)
    with tarfile.open(place / "eventlog-env.tar.gz", "w:gz") as archive:
        archive.add(packed, "bin")
    (place / "pyenv").symlink_to(Path(sys.executable).parents[1])
    killed: list[int] = []

    with spark_cluster(tmp_path / "spark") as cluster:
        over = threading.Event()

        def kill_one() -> None:
            while not over.is_set() and not killed:
                if list((place / "out" / "_temporary").glob("*")):
                    for executor in cluster.executors()[:1]:
                        executor.kill()
                        killed.append(executor.pid)
                time.sleep(0.05)

        killer = threading.Thread(target=kill_one)
        killer.start()
        try:
            done = _shell(
                block("On a cluster", 1),
                place,
                MASTER=cluster.url,
                OUT="out",
                URL_FILE=str(place / "url"),
            )
        finally:
            over.set()
            killer.join()
    assert done.returncode == 0, done.stderr
    assert killed
    assert PASSWORD not in done.stdout + done.stderr
    assert_as_published(log, place / "out")
    assert not psutil.pid_exists(killed[0])


@pytest.mark.night
@pytest.mark.timeout(1_500)
def test_executors_run_from_the_environment_that_the_documented_lines_pack(
    log: sa.Engine, place: Path, tmp_path: Path
) -> None:
    log_rows(log, random_rows(40_000, seed=98))
    copy_clone(place)
    packing = _shell(block("On a cluster", 0), place)
    skip_without_index(packing.stderr)
    assert packing.returncode == 0, packing.stderr
    with tarfile.open(place / "eventlog-env.tar.gz") as archive:
        names = archive.getnames()
    assert any(name.endswith("site-packages/eventlog/__init__.py") for name in names)
    assert not [name for name in names if re.search(r"/(pyspark|pandas)/", name)]

    for name in SOURCES:  # what runs is what was installed
        (shutil.rmtree if (place / name).is_dir() else os.unlink)(place / name)
    (home,) = (place / "pyenv" / "lib").glob("python*/site-packages/pyspark")
    with spark_cluster(
        tmp_path / "cluster", environment={"PYSPARK_PYTHON": "/nowhere"}, home=home
    ) as cluster:
        done = _shell(
            block("On a cluster", 1),
            place,
            home,
            MASTER=cluster.url,
            OUT="out",
            URL_FILE=f"{place}/url",
        )
    assert done.returncode == 0, done.stderr
    parts = json.loads((place / "out" / "_manifest.json").read_text())["parts"]
    assert len(parts) == 4  # two for each of the cores that have registered
    assert_as_published(log, place / "out")


def _shell(
    lines: str, place: Path, home: Path = HOME, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run lines; ``home``: of the Spark whose spark-submit they find."""
    path = [str(home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    named: Mapping[str, str] = environment(**variables, PATH=os.pathsep.join(path))
    return subprocess.run(
        ["bash", "-eu", "-c", lines],
        env=named,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=500,
    )
