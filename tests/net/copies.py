"""A copy of the tree with a change of the product, and the first test that fails there.

The copy stays in ``build/net``. Each trial is a child that forks from this process, which has loaded other packages and
neither the product nor a test: pytest begins in a third of its time. The tests share one PostgreSQL server.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from reached import Reached, name_of

ROOT = Path(__file__).parents[2]
BY_DAY = "not night"
_LOADED_ONCE = (
    "alembic", "click", "confluent_kafka", "email.message", "fastavro", "http.server", "jinja2", "lxml.etree", "numpy",
    "oauthlib.oauth2", "orjson", "psycopg", "pyarrow", "rich.console", "rich.table", "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.oracle", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite", "sqlite3", "ssl",
    "starlette.applications", "tomllib", "unittest.mock", "uvicorn", "xml.etree.ElementTree", "zoneinfo",
)  # fmt: skip
"""What children find loaded. Plugins of pytest are not among it: pytest warns of these."""
_OF_A_MODULE = 0.2
"""The CPU seconds to import a module of tests."""
_MOST = 600
"""The most tests of one child."""


class Verdict(NamedTuple):
    """What became of a change: the first test that fails and how (empty = none), the tests that ran, CPU seconds."""

    found_by: str
    how: str
    tried: int
    seconds: float


class Copy:
    """A copy of the tree, and which of its tests pass there."""

    def __init__(self, place: Path) -> None:
        self.tree = place / "tree"
        self._reports = place / "reports.jsonl"
        self._output = place / "output.txt"
        self._numbers = count(int(time.time()))
        self._passed: set[str] = set()
        self.unfit: dict[str, str] = {}
        """Tests that fail in the copy without a change, and how."""
        place.mkdir(parents=True, exist_ok=True)
        self._lock = (place / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run changes {self.tree}; wait for its end")
        _bring_up_to_date(self.tree)

    @contextmanager
    def changed(self, files: Mapping[Path, str]) -> Iterator[None]:
        """Let files have other texts for a while."""
        for path, text in files.items():
            self._write(path, text)
        try:
            yield
        finally:
            for path in files:
                self._write(path, (ROOT / path).read_text())

    def _write(self, path: Path, text: str) -> None:
        target = self.tree / path
        target.write_text(text)
        moment = next(self._numbers)  # what Python compiled counts if time and size are the same
        os.utime(target, (moment, moment))

    def judge(self, files: Mapping[Path, str], tests: Sequence[str], seconds: float) -> Verdict:
        """Run tests with a change up to the first that fails, for so many CPU seconds. A test that fails without the
        change, too, does not count.
        """
        left = [test for test in tests if test not in self.unfit]
        tried, spent = 0, 0.0
        while left and spent < seconds:
            with self.changed(files):
                reports, used = self._run(left[:_MOST], seconds - spent)
            spent += used
            failed, how = _failure(reports)
            ended = {name_of(one["end"]) for one in reports if "end" in one} - {failed}
            self._passed |= ended
            tried += len(ended)
            if not failed:
                break
            tried += 1
            if failed in self._passed or not (why := self._fails_unchanged(failed)):
                return Verdict(failed, how, tried, spent)
            self.unfit[failed] = why
            print(f"    fails without a change: {failed}: {why}", flush=True)
            left = [test for test in left if test not in ended and test != failed]
        return Verdict("", "", tried, spent)

    def _fails_unchanged(self, test: str) -> str:
        reports, _ = self._run([test], 120.0)
        failed, how = _failure(reports)
        if not failed and name_of(test) in {name_of(one["end"]) for one in reports if "end" in one}:
            self._passed.add(test)
            return ""
        return how or "it does not run"

    def _run(self, tests: Sequence[str], seconds: float) -> tuple[list[Any], float]:
        """Run tests in a child, and return its reports and its CPU seconds."""
        self._reports.write_text("")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._lock.close()
            _be_child(self.tree, self._reports, self._output, tests, seconds)
        until = time.monotonic() + 60 + 15 * seconds
        while True:
            ended, _, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                until += 60
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):  # processes that a test has left
            os.killpg(pid, signal.SIGKILL)
        reports = [json.loads(line) for line in self._reports.read_text().splitlines()]
        return reports, usage.ru_utime + usage.ru_stime


def within(tests: Sequence[str], reached: Reached, seconds: float) -> list[str]:
    """Return the first of some tests that are still there, as many as take so many CPU seconds."""
    chosen, modules, spent = list[str](), set[str](), 0.0
    for test in tests:
        module, _, function = test.partition("::")
        path = ROOT / module
        if not path.exists() or f"def {function.rpartition('::')[2]}(" not in path.read_text():
            continue
        spent += reached.seconds.get(test, 0.0) + _OF_A_MODULE * (module not in modules)
        if spent > seconds and chosen:
            break
        modules.add(module)
        chosen.append(test)
    return chosen


def commit() -> str:
    """Return the name of the tree's commit."""
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def toml(table: Mapping[str, str | int | float]) -> str:
    """Return the lines of a table of TOML."""
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items()
    )


@contextmanager
def server() -> Iterator[None]:
    """One PostgreSQL for all children, and what they find loaded."""
    for name in _LOADED_ONCE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "EVENTLOG_TEST_POSTGRES_URL" in os.environ:
        yield
        return
    command = [sys.executable, str(Path(__file__)), "server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        os.environ["EVENTLOG_TEST_POSTGRES_URL"] = process.stdout.readline().strip()
        try:
            yield
        finally:
            process.communicate("")


def _serve() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    import sqlalchemy as sa
    from shared import memory, temporary_servers

    from eventlog.sql import embedded

    with temporary_servers("el-", memory()) as directory, embedded.running(directory / "pg") as url:
        with sa.create_engine(url, isolation_level="AUTOCOMMIT").connect() as conn:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                conn.execute(sa.text(f"ALTER SYSTEM SET {setting} = off"))
            conn.execute(sa.text("SELECT pg_reload_conf()"))
        print(url, flush=True)
        sys.stdin.read()


def _bring_up_to_date(tree: Path) -> None:
    """Copy what differs from the files of the working tree, with their times."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {path for path in listed.split("\0") if path and (ROOT / path).is_file()}
    tree.mkdir(parents=True, exist_ok=True)
    for old in tree.rglob("*"):
        if (
            old.is_file()
            and "__pycache__" not in old.parts
            and str(old.relative_to(tree)) not in there
        ):
            old.unlink()
    for path in sorted(there):
        source, target = ROOT / path, tree / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    if not (tree / ".venv").exists():
        (tree / ".venv").symlink_to(ROOT / ".venv")


class _Reporter:
    """It writes what happens to a file, and ends the run when its CPU seconds are spent."""

    def __init__(self, reports: Path, seconds: float) -> None:
        self._reports = reports
        self._seconds = seconds

    def _report(self, **what: str) -> None:
        with self._reports.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report(failed=report.nodeid, how=_line(str(report.longrepr)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report(begin=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._report(
                failed=report.nodeid, how=_line(crash.message if crash else str(report.longrepr))
            )

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._report(end=nodeid)
        if sum(os.times()[:4]) > self._seconds:
            self._session.shouldstop = "its CPU seconds are spent"


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:160]


def _failure(reports: Sequence[Any]) -> tuple[str, str]:
    """Return the first test that failed or did not end, and how."""
    for one in reports:
        if "failed" in one:
            return name_of(one["failed"]), one["how"]
    begun = [one["begin"] for one in reports if "begin" in one]
    ended = {one["end"] for one in reports if "end" in one}
    return next(((name_of(one), "it does not end") for one in begun if one not in ended), ("", ""))


def _be_child(
    tree: Path, reports: Path, output: Path, tests: Sequence[str], seconds: float
) -> None:
    try:
        os.setsid()
        with output.open("w") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        limit = int(120 + 4 * seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        own = str(ROOT / "tests")
        for name, module in list(sys.modules.items()):
            if name != "__main__" and str(getattr(module, "__file__", "")).startswith(own):
                del sys.modules[name]
        sys.path[:] = [str(tree), *(one for one in sys.path if not one.startswith(own))]
        sys.argv = ["pytest"]
        options = [
            "-x",
            "-p",
            "no:cacheprovider",
            "--assert=plain",
            "--tb=short",
            "--hypothesis-seed=0",
            "-m",
            BY_DAY,
        ]
        pytest.main([*options, *tests], plugins=[_Reporter(reports, seconds)])
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    _serve()
