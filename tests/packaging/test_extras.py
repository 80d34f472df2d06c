"""The extras of the package: what each brings, and that every one that is named is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NAMED = re.compile(r"(?:eventlog-publisher|'\.|\"\.|pip install \.)\[([a-z0-9, -]+)\]")
COMMAND = re.compile(r"""(?:install_command\(|\bextra = )(['"][a-z', "-]+['"])""")


def packages(extra: str) -> set[str]:
    """The names of the packages that an extra brings, those of other extras among them."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        own = NAMED.match(requirement)
        if own is None:
            found.add(re.split(r"[><=\[]", requirement)[0])
        else:
            found = found.union(*(packages(one.strip()) for one in own[1].split(",")))
    return found


def test_every_extra_that_is_named_is_there() -> None:
    files = [
        ROOT / "README.md",
        ROOT / "pyproject.toml",
        ROOT / "scripts/setup",
        ROOT / "docker/Dockerfile",
    ]
    for folder in ("eventlog", "spark", "docs", "bench", "tests/packaging"):
        files += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".sh")
        ]
    named = {
        (extra.strip(" '\""), path.relative_to(ROOT).as_posix())
        for path in files
        for pattern in (NAMED, COMMAND)
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
        for extra in match[1].split(",")
    }
    assert {extra for extra, _ in named} >= {
        "kafka",
        "spark",
        "parquet",
        "oracle",
        "embedded",
        "avro",
    }
    assert [one for one in sorted(named) if one[0] not in EXTRAS] == []


def test_all_is_everything_that_users_may_need() -> None:
    others = [
        extra for extra in EXTRAS if extra not in ("all", "dev", "testing")
    ]  # for who extends it
    assert packages("all") == set().union(*map(packages, others))
    assert packages("dev") > packages("all")


def test_no_extra_installs_more_than_its_name_promises() -> None:
    assert packages("parquet") == {"pyarrow"}
    assert packages("spark") - packages("spark-cluster") == {"pandas", "pyspark"}
    assert packages("monitor") == {"h11", "prometheus-client", "starlette", "uvicorn"}
    assert packages("registry") == {"confluent-kafka", "fastavro"}


def test_no_later_python_is_shut_out() -> None:
    assert PROJECT["requires-python"] == ">=3.11"


def test_parquet_needs_arrow_alone(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"schema":"app","table":"item","op":"INSERT","key":[["id",7]],"after":{"id":7,"name":"nut"},"position":"12",'
        '"commit_time":"2024-05-10T12:00:00Z","transaction_id":"5","event_number":1,"last_in_transaction":true}\n'
    )
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pandas", "adbc_driver_manager", "adbc_driver_postgresql"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from eventlog.conversion import convert
options = {"file_format": "parquet"}
for target, out in (("qlik-change-table", "out"), ("eventlog", "out.parquet")):
    written = convert("jsonl", target, "in.jsonl", out, {"writer": options}, report=True)
    assert written.written, written
    read = convert(target, "jsonl", out, f"{target}.jsonl", {"reader": {}}, report=True)
    assert read.read, read
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.parquet").stat().st_size
    assert [path for path in (tmp_path / "out").rglob("*.parquet") if path.stat().st_size]
