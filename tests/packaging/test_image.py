"""The image, built of docker/Dockerfile by buildah on a Python 3.14 of Debian, and run as process 1
of its own, as compose runs it (the forge's workflow does the same with Docker).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from documents import ROOT
from shared import PATIENCE, execute, statuses, wait_until
from suites import FOLDER, suite

pytestmark = [
    pytest.mark.night,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="no buildah here"),
]

PYTHON = "docker.io/library/python:3.14-slim"
UNAVAILABLE = "postgresql+psycopg://publisher@127.0.0.1:1/hr"
FILE = (
    b'{"schema": "hr", "table": "usr", "op": "INSERT", "key": [["idu", 1]], "after": {"idu": 1}}\n'
)

_ENTER = """
root=$1 sockets=$2; shift 2
mount --bind "$root" "$root"; cd "$root"
mount -t proc proc proc
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=1777 tmpfs dev/shm
[ -z "$sockets" ] || mount --bind "$sockets" mnt
mount --bind "$EVENTLOG_ROOT/docker" etc/eventlog
mount -o remount,bind,ro "$root"
exec chroot --userspec=10001:10001 . sh -c 'cd /etc/eventlog && exec "$@"' enter "$@"
"""
"""A container in short: a mount namespace with a root that can be read only."""


def _buildah(*arguments: object) -> str:
    """Run buildah with a store of the tests' own."""
    command = [
        "buildah",
        f"--root={FOLDER / 'store'}",
        f"--runroot={FOLDER / 'run'}",
        "--storage-driver=vfs",
    ]
    ran = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout.strip()


def _build(*more: object) -> str:
    certificates = os.environ.get("SSL_CERT_FILE", "")
    given = [f"--volume={certificates}:{certificates}:ro"] if certificates else []
    return _buildah(
        "build", "--isolation=chroot", "--format=docker", "--pull=never", "--layers", *given,
        f"--file={ROOT / 'docker/Dockerfile'}", f"--ignorefile={ROOT / 'docker/Dockerfile.dockerignore'}",
        "--tag=eventlog-publisher", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The root of a container of the image."""
    python = suite("forky", "python", "python3,python3-venv,python3-pip,ca-certificates")
    if PYTHON not in _buildah("images", "--format={{.Name}}:{{.Tag}}"):
        (python / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for mark in python.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        base = _buildah("from", "scratch")
        _buildah("add", "--quiet", base, python, "/")
        _buildah("commit", "--quiet", base, PYTHON)
        _buildah("rm", base)
    _build(ROOT)
    container = _buildah("from", "--pull=never", "localhost/eventlog-publisher")
    try:
        yield Path(_buildah("mount", container))
    finally:
        _buildah("rm", container)


@contextmanager
def run(
    image: Path, *command: str, sockets: str = "", **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command as process 1: the process that waits for it, and its own number outside."""
    waiting = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _ENTER, "enter", image, sockets, *command],
        env={"PATH": "/opt/eventlog/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "EVENTLOG_ROOT": str(ROOT),
             "EVENTLOG_PUBLISHER_HEALTH_FILE": "/dev/shm/eventlog-health", **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    try:
        wait_until(lambda: children.read_text() or waiting.poll() is not None, "it has begun")
        yield waiting, int(children.read_text() or 0)
    finally:
        waiting.kill()
        waiting.communicate()


def test_a_change_of_the_code_builds_without_a_network(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "context"
    for name in ("pyproject.toml", "README.md", "LICENSE", "docker/constraints.txt"):
        (changed / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy2(ROOT / name, changed / name)
    shutil.copytree(ROOT / "eventlog", changed / "eventlog")
    (changed / "eventlog" / "new.py").touch()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    _build(changed)


def test_the_flow_of_compose_goes_to_the_document_on_standard_output(
    image: Path, database: sa.Engine
) -> None:
    url = sa.make_url(database.url)
    sockets = url.query.get("host", "")
    if not isinstance(sockets, str) or not sockets.startswith("/"):
        pytest.skip("the server of the tests has no socket")
    Path(sockets).chmod(0o755)  # for the image's user
    raw = database.raw_connection()
    raw.cursor().execute((ROOT / "eventlog/cli/demo.sql").read_text())
    raw.commit()
    inside = url.update_query_dict({"host": "/mnt"}).render_as_string(hide_password=False)

    for command in (["db", "upgrade"], ["triggers", "apply"]):
        with run(image, "eventlog", *command, sockets=sockets, EVENTLOG_DATABASE_URL=inside) as (
            done,
            _,
        ):
            _, told = done.communicate(timeout=PATIENCE)
            assert done.returncode == 0, told.decode()
    with run(
        image, "eventlog", "publish", sockets=sockets, EVENTLOG_DATABASE_URL=inside,
        EVENTLOG_PUBLISHER_ALLOW_LOOPBACK="true",
    ) as (publisher, first):  # fmt: skip
        execute(
            database, "INSERT INTO hr.usr (login, fname, lname) VALUES ('ada', 'Ada', 'Lovelace')"
        )
        wait_until(
            lambda: set(statuses(database, "hr.eventlog").values()) == {"S"}, "it is published"
        )
        os.kill(first, signal.SIGTERM)
        document, told = publisher.communicate(timeout=PATIENCE)
    assert publisher.returncode == 0, told.decode()
    assert b"<add " in document
    assert b"Lovelace" in document


@pytest.mark.parametrize("load", [0, 4])
def test_sigterm_ends_process_1_from_its_first_moment_on(image: Path, load: int) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        for seconds in (0.1, 0.3, 0.6, 1.0, 2.0):
            with run(image, "eventlog", "publish", EVENTLOG_DATABASE_URL=UNAVAILABLE) as (
                publisher,
                first,
            ):
                wait_until(lambda one=first: _heeds(one), "it heeds signals")
                time.sleep(seconds - 0.1)
                os.kill(first, signal.SIGTERM)
                publisher.communicate(timeout=10)
                assert publisher.returncode in (0, 143)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _heeds(process: int) -> bool:
    """Whether the process has a handler for SIGTERM."""
    caught = Path(f"/proc/{process}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_under_a_root_that_is_read_only_what_outgrows_memory_goes_to_tmp(image: Path) -> None:
    with run(image, "eventlog", "convert", "--from", "jsonl", "--to", "jsonl", "-", "-") as (
        done,
        _,
    ):
        written, told = done.communicate(FILE, timeout=PATIENCE)
        assert done.returncode == 0, told.decode()
    assert json.loads(written)["after"] == {"idu": 1}
    with run(image, "touch", "/opt/eventlog/x") as (done, _):
        _, told = done.communicate(timeout=PATIENCE)
    assert b"Read-only file system" in told or b"Permission denied" in told
