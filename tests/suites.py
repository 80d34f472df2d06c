"""Newer suites of Debian in folders, for servers and Pythons that this machine lacks: made once, as
root, by mmdebstrap, and kept in EVENTLOG_TEST_SUITES (/var/cache/eventlog-suites).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(os.environ.get("EVENTLOG_TEST_SUITES", "/var/cache/eventlog-suites"))
MIRROR = "http://deb.debian.org/debian"


def suite(name: str, purpose: str, packages: str) -> Path:
    """The root of a suite (``forky``) with these packages, made at its first use. The test is
    skipped with the reason where it cannot be made, and fails if EVENTLOG_TEST_SUITES_REQUIRED is
    1.
    """
    for tool in ("mmdebstrap", "unshare"):
        if shutil.which(tool) is None:
            _give_up(f"no {tool} here")
    if os.getuid() != 0:
        _give_up("a suite in a folder is made and entered by root alone")
    FOLDER.mkdir(parents=True, exist_ok=True)
    root = FOLDER / f"{name}-{purpose}"
    with (FOLDER / f".{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            begun = root.with_name(f".{root.name}.part")
            subprocess.run(["rm", "-rf", "--one-file-system", begun], check=True)
            # Signatures are checked. A suite whose Release file is out of date serves a test as
            # well, but for continuous integration, which asks the archive itself.
            stale = [] if os.environ.get("CI") else ['--aptopt=Acquire::Check-Valid-Until "false"']
            command = [
                "mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", *stale,
                name, str(begun), MIRROR,
            ]  # fmt: skip
            # mmdebstrap holds the lock too: it goes on if this process is killed, and whoever comes
            # then waits for its end, and makes the folder from the beginning.
            made = subprocess.run(
                command, capture_output=True, text=True, check=False, pass_fds=[lock.fileno()]
            )
            if made.returncode:
                _give_up(f"Debian {name} cannot be had: {made.stderr.strip()[-300:]}")
            begun.rename(root)
    return root


def _give_up(reason: str) -> NoReturn:
    end = pytest.fail if os.environ.get("EVENTLOG_TEST_SUITES_REQUIRED") == "1" else pytest.skip
    end(reason)
