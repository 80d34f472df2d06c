"""Which lines of the product each test reaches, and the CPU seconds that it takes.

    python tests/net/reached.py build/reached [ARGUMENTS OF pytest]

runs the tests with this module as a plugin, and writes ``build/reached/reached.json``. Tests that did not run this time
stay there as they were, so that a folder can be recorded again, or after another. A test is its function: the values of
its parameters are taken together. Lines that a process of a test runs count too, unless it is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PLACE = "EVENTLOG_TEST_REACHED"
_SETTINGS = """\
[run]
parallel = true
data_file = {place}/process
source = {product}
context = $PYTEST_CURRENT_TEST
concurrency = thread
disable_warnings = module-not-imported,module-not-measured,no-data-collected,already-imported,no-sysmon,couldnt-parse
"""


@dataclass(frozen=True, slots=True)
class Reached:
    """What each test took and ran: CPU seconds by test, and by module and line the tests."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, frozenset[str]]]

    @classmethod
    def read(cls, path: Path) -> Reached:
        """Read what a run wrote."""
        if not path.exists():
            return cls({}, {})
        kept = json.loads(path.read_text())
        names = list(kept["seconds"])
        return cls(
            kept["seconds"],
            {
                module: {
                    int(line): frozenset(names[number] for number in numbers)
                    for line, numbers in lines.items()
                }
                for module, lines in kept["lines"].items()
            },
        )

    @property
    def folders(self) -> str:
        """The folders of tests that were recorded."""
        return ", ".join(sorted({"/".join(test.split("/")[:2]) for test in self.seconds}))

    def with_newer(self, other: Reached) -> Reached:
        """Return this with what another run recorded in place of what the same tests did before."""
        kept = self.seconds.keys() - other.seconds.keys()
        lines: dict[str, dict[int, frozenset[str]]] = defaultdict(dict)
        for module in self.lines.keys() | other.lines.keys():
            old, new = self.lines.get(module, {}), other.lines.get(module, {})
            for line in old.keys() | new.keys():
                if tests := (old.get(line, frozenset()) & kept) | new.get(line, frozenset()):
                    lines[module][line] = tests
        return Reached({**self.seconds, **other.seconds}, lines)

    def write(self, path: Path) -> None:
        """Write it to a file."""
        numbers = {test: number for number, test in enumerate(self.seconds)}
        lines = {
            module: {
                line: sorted(numbers[test] for test in tests) for line, tests in by_line.items()
            }
            for module, by_line in self.lines.items()
        }
        path.write_text(json.dumps({"seconds": self.seconds, "lines": lines}))

    def of(self, module: str, first: int, last: int) -> list[str]:
        """Return the tests that run any of some lines of a module, the cheapest first."""
        lines = self.lines.get(module, {})
        found = frozenset[str]().union(*(lines.get(line, ()) for line in range(first, last + 1)))
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))


def name_of(test: str) -> str:
    """Return a test's function: its name without a phase, parameters and a group of pytest-xdist."""
    for phase in ("setup", "call", "teardown"):
        test = test.removesuffix(f" ({phase})")
    return test.partition("[")[0].partition("@")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Record in each process that runs tests."""
    place = os.environ.get(_PLACE)
    if place is not None and (
        hasattr(config, "workerinput") or not config.getoption("numprocesses", 0)
    ):
        config.pluginmanager.register(_Recorder(Path(place)))


class _Recorder:
    def __init__(self, place: Path) -> None:
        from coverage import Coverage

        self._place = place
        self._seconds: dict[str, float] = defaultdict(float)
        self._coverage = Coverage(
            data_file=str(place / f"worker.{os.getpid()}"),
            source=[str(ROOT / "eventlog")],
            concurrency=["thread"],
            config_file=False,
            messages=False,
        )
        self._coverage.set_option(
            "run:disable_warnings",
            ["module-not-imported", "module-not-measured", "no-data-collected", "already-imported"],
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        name = name_of(item.nodeid)
        self._coverage.switch_context(name)
        before = os.times()
        try:
            return (yield)
        finally:
            after = os.times()
            self._seconds[name] += sum(after[:4]) - sum(before[:4])
            self._coverage.switch_context("")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        (self._place / f"seconds.{os.getpid()}").write_text(json.dumps(self._seconds))


def _recorded(place: Path) -> list[Path]:
    """Return the files of coverage."""
    return [*place.glob("worker.*"), *place.glob("process*")]


def merged(place: Path) -> Reached:
    """Read what the processes of a run recorded."""
    from coverage import CoverageData

    seconds: dict[str, float] = defaultdict(float)
    for path in place.glob("seconds.*"):
        for test, taken in json.loads(path.read_text()).items():
            seconds[test] += taken
        path.unlink()
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in _recorded(place):
        data = CoverageData(basename=str(path))
        try:
            data.read()
        except Exception as error:  # of a process that was killed as it wrote
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        for file in data.measured_files():
            module = str(Path(file).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(file).items():
                lines[module][line].update(
                    name for context in contexts if (name := name_of(context)) in seconds
                )
    return Reached(
        dict(seconds),
        {
            module: {line: frozenset(tests) for line, tests in by_line.items() if tests}
            for module, by_line in lines.items()
        },
    )


def main(place: Path, arguments: list[str]) -> int:
    """Run the tests, and write what they reach."""
    place.mkdir(parents=True, exist_ok=True)
    place = place.resolve()
    settings = place / "coveragerc"
    settings.write_text(_SETTINGS.format(place=place, product=ROOT / "eventlog"))
    hook = Path(sysconfig.get_paths()["purelib"]) / "eventlog_reached.pth"
    hook.write_text(
        "import os; os.environ.get('COVERAGE_PROCESS_START') and os.environ.get('PYTEST_CURRENT_TEST') "
        "and __import__('coverage').process_startup()\n"
    )
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "reached", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "COVERAGE_PROCESS_START": str(settings),
                _PLACE: str(place),
            },
        ).returncode
    finally:
        hook.unlink()
    found = merged(place)
    for path in _recorded(place):
        path.unlink()
    Reached.read(place / "reached.json").with_newer(found).write(place / "reached.json")
    print(
        f"{len(found.seconds)} tests, {sum(found.seconds.values()):.0f} CPU s, {time.monotonic() - began:.0f} s"
    )
    return ended


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
