"""Which faults the tests by day find, and which they would find without some of their files.

    python tests/net/baseline.py build/reached/reached.json [--seconds 30] [--only PART] [FILE.patch ...]
    python tests/net/baseline.py build/reached/reached.json --without FILE ...
    python tests/net/baseline.py --compare OLD.toml NEW.toml

It applies each fault of ``tests/simulation/faults`` and each patch to a copy of the tree, and runs the tests that reach
the changed lines, the cheapest first, until one fails. A fault's ``found_by``, and the test of the last result, come
before them. ``baseline.toml`` keeps the result; a run tries again what has no test yet, at the test where it stopped, and
``--all`` everything. ``--without`` asks who else finds the faults that tests of these files find. Exit code 1 if one is lost.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "simulation"))

from copies import ROOT, Copy, commit, server, toml, within
from faulty import DoesNotApply, changed_files, faults
from reach import touched_spans
from reached import Reached

RESULT = Path(__file__).with_name("baseline.toml")
FAULTS = ROOT / "tests" / "simulation" / "faults"


class Fault(NamedTuple):
    """A change of the product. ``hints`` are tests that should find it, by their names."""

    name: str
    source: str
    files: Mapping[Path, str]
    hints: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    """The statements of SQL that it changes."""


def of_tree() -> Iterator[Fault | tuple[str, str, str]]:
    """Yield each fault of ``tests/simulation/faults``; for a fault that does not apply, its name, file and
    reason.
    """
    for path in sorted(FAULTS.glob("*.toml")):
        results = {one["name"]: one for one in tomllib.loads(path.read_text())["fault"]}
        for name, fault in faults(path.stem).items():
            hints = re.findall(r"\btest_\w+", results[name].get("unseen", ""))
            found_by = results[name].get("found_by", ())
            hints += [found_by] if isinstance(found_by, str) else found_by
            try:
                files = changed_files(fault)
            except DoesNotApply as error:
                yield name, path.stem, str(error)
                continue
            statements = tuple(change.inside for change in fault.changes if change.inside.islower())
            yield Fault(name, path.stem, files, tuple(hints), statements)


def of_patch(patch: Path) -> Fault | tuple[str, str, str]:
    """Return the fault of a patch."""
    listed = subprocess.run(
        ["git", "apply", "--numstat", "--recount", str(patch.resolve())],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    paths = [Path(line.split("\t")[2]) for line in listed.splitlines()]
    if gone := [path for path in paths if not (ROOT / path).exists()]:
        return patch.stem, "patch", f"does not apply: {gone[0]} is gone"
    with tempfile.TemporaryDirectory() as directory:
        for path in paths:
            target = Path(directory) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text((ROOT / path).read_text())
        applied = subprocess.run(
            ["git", "apply", "--recount", str(patch.resolve())],
            cwd=directory, env={"GIT_DIR": "/dev/null", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        )  # fmt: skip
        if applied.returncode:
            return patch.stem, "patch", f"does not apply: {applied.stderr.strip()}"
        return Fault(
            patch.stem, "patch", {path: (Path(directory) / path).read_text() for path in paths}
        )


def reaching(fault: Fault, copy: Copy, reached: Reached) -> list[str]:
    """Return the tests that reach what a fault changes, the cheapest first."""
    with copy.changed(fault.files):
        spans = touched_spans(ROOT, copy.tree)
    if any(path.suffix == ".sql" for path in fault.files):
        spans += [span for name in fault.statements for span in _uses_of_statement(name)]
    found = {test for span in spans for test in reached.of(*span)}
    return sorted(found, key=lambda test: (reached.seconds.get(test, 0.0), test))


def _uses_of_statement(name: str) -> Iterator[tuple[str, int, int]]:
    for path in sorted((ROOT / "eventlog").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if f'"{name}"' in line:
                yield str(path.relative_to(ROOT)), number, number


def hinted(fault: Fault, before: Mapping[str, Any]) -> list[str]:
    """Return the tests that are known to find a fault."""
    hints = [*fault.hints, before.get("found_by", "")]
    tests = [hint for hint in hints if "::" in hint]
    named = {f"def {hint}(": hint for hint in hints if hint and "::" not in hint}
    for path in sorted((ROOT / "tests").rglob("test_*.py")) if named else ():
        text = path.read_text()
        tests += [
            f"{path.relative_to(ROOT)}::{hint}" for part, hint in named.items() if part in text
        ]
    return [test.partition("[")[0] for test in dict.fromkeys(tests)]


def known(path: Path) -> dict[str, dict[str, Any]]:
    """Return the result of each fault."""
    results = tomllib.loads(path.read_text()).get("fault", []) if path.exists() else []
    return {one["name"]: one for one in results}


def write(results: Mapping[str, Mapping[str, Any]], reached: Reached) -> None:
    """Write a result."""
    head: dict[str, str | int] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "tests": len(reached.seconds),
        "folders": reached.folders,
        "faults": len(results),
        "found": sum("found_by" in one for one in results.values()),
    }
    lines = [f"# tests/net/baseline.py writes this file.\n{toml(head)}"]
    lines += [f"[[fault]]\n{toml(one)}" for one in results.values()]
    RESULT.write_text("\n".join(lines))


def compare(old: Path, new: Path) -> int:
    """Print which faults are found no longer, and the share of those that are."""
    before = {name for name, one in known(old).items() if "found_by" in one}
    after = {name for name, one in known(new).items() if "found_by" in one}
    for name in sorted(before - after):
        print(f"lost: {name}, once found by {known(old)[name]['found_by']}")
    for name in sorted(after - before):
        print(f"new: {name}, found by {known(new)[name]['found_by']}")
    share = len(before & after) / max(1, len(before))
    print(f"{len(before & after)} of {len(before)} are found still: {share:.1%}")
    return int(bool(before - after))


def without(
    files: Sequence[str], given: Sequence[Fault], copy: Copy, reached: Reached, seconds: float
) -> int:
    """Print who finds the faults that tests of these files find, if those go."""
    results, lost = known(RESULT), 0
    asked = [
        fault
        for fault in given
        if results.get(fault.name, {}).get("found_by", "").startswith(tuple(files))
    ]
    for fault in asked:
        tests = [
            test
            for test in dict.fromkeys([*hinted(fault, {}), *reaching(fault, copy, reached)])
            if not test.startswith(tuple(files))
        ]
        verdict = copy.judge(fault.files, within(tests, reached, seconds), seconds)
        lost += not verdict.found_by
        print(
            f"{fault.name}: {verdict.found_by or f'LOST: none of {verdict.tried} of {len(tests)}'}",
            flush=True,
        )
    print(f"{lost} of {len(asked)} faults would be lost")
    return int(bool(lost))


def main() -> int:
    """Try faults."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reached", type=Path, nargs="?")
    parser.add_argument("patches", nargs="*", type=Path, metavar="FILE.patch")
    parser.add_argument("--seconds", type=float, default=30.0, help="CPU seconds per fault")
    parser.add_argument(
        "--only", default="", metavar="PART", help="faults with a part in their names"
    )
    parser.add_argument("--all", action="store_true", help="also what is known to be found")
    parser.add_argument("--without", nargs="+", metavar="FILE", help="files of tests that might go")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    given = parser.parse_intermixed_args()
    if given.compare:
        return compare(*given.compare)
    reached, results = Reached.read(given.reached), known(RESULT)
    tried = [one for one in [*of_tree(), *map(of_patch, given.patches)] if given.only in one[0]]
    there = {one[0] for one in tried}
    if not given.only:
        results = {
            name: one for name, one in results.items() if name in there or one["source"] == "patch"
        }
    for name, source, why in (one for one in tried if not isinstance(one, Fault)):
        results[name] = {"name": name, "source": source, "why_not": why}
        print(f"{name}: {why}")
    left = [one for one in tried if isinstance(one, Fault)]
    copy = Copy(ROOT / "build" / "net" / "baseline")
    with server():
        if given.without:
            return without(given.without, left, copy, reached, given.seconds)
        for number, fault in enumerate(left, 1):
            before = results.get(fault.name, {})
            if "found_by" in before and not given.all:
                continue
            reach = reaching(fault, copy, reached)
            tests = list(dict.fromkeys([*hinted(fault, before), *reach]))
            done = before.get("tried", 0) if before.get("reaching") == len(reach) else 0
            done = 0 if given.all else done
            verdict = copy.judge(
                fault.files, within(tests[done:], reached, given.seconds), given.seconds
            )
            one: dict[str, Any] = {
                "name": fault.name,
                "source": fault.source,
                "reaching": len(reach),
            }
            one |= (
                {"found_by": verdict.found_by}
                if verdict.found_by
                else {"tried": done + verdict.tried}
            )
            results[fault.name] = one
            write(results, reached)
            outcome = (
                f"{verdict.found_by}: {verdict.how}"
                if verdict.found_by
                else f"NOT FOUND by {one['tried']} of {len(reach)}"
            )
            print(
                f"{number}/{len(left)} {fault.name}: {outcome} ({verdict.tried} tests, {verdict.seconds:.0f} s)",
                flush=True,
            )
    write(results, reached)
    print(f"{sum('found_by' in one for one in results.values())} of {len(results)} found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
