"""The suite on a Python that is newer than this machine's, of Debian, without Spark and a browser
(the forge's workflow runs all of it on each Python).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ROOT
from suites import suite

pytestmark = [pytest.mark.night, pytest.mark.timeout(3 * 3600)]

_ENTER = """
root=$1 project=$2
mount --bind "$root" "$root"; cd "$root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --bind "$project" mnt
cp --dereference /etc/resolv.conf etc/resolv.conf
cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ca-certificates.crt
exec chroot . sh -euc '
    cd /mnt
    # A run that was killed leaves an environment without its last file.
    [ -e /opt/tests/made ] || { python3 -m venv --clear /opt/tests && touch /opt/tests/made; }
    PATH=/opt/tests/bin:$PATH
    pip install --quiet --editable ".[dev]"
    exec python -m pytest -q -n 2 --dist loadgroup -m "not night" -p no:cacheprovider \\
        --ignore tests/spark --ignore tests/browser --ignore tests/packaging tests'
"""


def test_the_suite_passes_on_python_3_14(tmp_path: Path) -> None:
    root = suite("forky", "tests", "python3,python3-venv,ca-certificates,git,procps")
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".venv", ".*_cache", "site"))
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", _ENTER, "enter", root, project],
        env=os.environ | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5000:]
