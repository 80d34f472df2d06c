"""The packages of ``examples/plugins``, built as wheels and installed in their own environment,
work by name.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path
from typing import Any

import environments
import pytest
from documents import ROOT

pytestmark = pytest.mark.xdist_group("plugins")  # one environment for all

PLUGINS = ROOT / "examples" / "plugins"
SIZE = 150
"""Lines that each package has at most, with its tests."""

MAIN = "import sys; from eventlog.cli import main; sys.exit(main())"
CHANGE = '{"schema":"app","table":"item","op":"INSERT","key":[["id",7]],"after":{"id":7,"name":"Ada"},"position":"12"}\n'


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **variables}
    return environments.run(*command, cwd=cwd, environment=environment)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheels of the plugins; eventlog and its dependencies are those of
    this tree.
    """
    directory = tmp_path_factory.mktemp("plugins")
    built = run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
        f"--wheel-dir={directory}", *sorted(PLUGINS.iterdir()), cwd=directory,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    wheels = sorted(directory.glob("*.whl"))
    assert len(wheels) == 3
    paths = [
        str(ROOT),
        *(path for path in sys.path if path.endswith("site-packages")),
        sysconfig.get_path("purelib"),
    ]
    environments.install(directory, wheels, dict.fromkeys(paths))
    return directory


def test_each_plugin_is_short_and_passes_its_tests(environment: Path, tmp_path: Path) -> None:
    for plugin in PLUGINS.iterdir():
        files = [path for path in plugin.iterdir() if path.suffix in (".py", ".toml")]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        assert lines < SIZE, plugin.name
        (tests,) = plugin.glob("test_*.py")
        (tmp_path / tests.name).write_text(tests.read_text(encoding="utf-8"), encoding="utf-8")
    # In its usual place pytest takes away the rights by which the servers of other tests reach their directories.
    own = "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "pytest"
    files_of_tests = sorted(tmp_path.glob("test_*.py"))
    done = run(environment / "bin" / "python", "-m", "pytest", *own, *files_of_tests, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_format_is_converted_to_and_from_by_its_name(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(CHANGE)

    def eventlog(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(environment / "bin" / "python", "-c", MAIN, *arguments, cwd=tmp_path)

    there = eventlog("convert", "--from", "jsonl", "--to", "messagepack", "in.jsonl", "out.msgpack")
    assert there.returncode == 0, there.stderr
    back = eventlog(
        "convert", "--from", "messagepack", "--to", "jsonl", "out.msgpack", "back.jsonl"
    )
    assert back.returncode == 0, back.stderr
    assert '"Ada"' in (tmp_path / "back.jsonl").read_text()
    assert "messagepack" in eventlog("convert", "--help").stdout


def test_a_log_is_published_in_the_format_to_the_sink_by_their_names(
    environment: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
    (tmp_path / "eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///shop.db"\n[sink]\ntype = "sqlite"\nfile = "copy.db"\n'
        '[[watch]]\ntable = "customer"\n'
    )

    def eventlog(*arguments: str) -> None:
        done = run(environment / "bin" / "python", "-c", MAIN, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    eventlog("db", "upgrade")
    eventlog("triggers", "apply", "--yes")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("INSERT INTO customer VALUES (1, 'Ada')")
    eventlog("publish", "--once")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("UPDATE customer SET name = 'Augusta'")
    eventlog("publish", "--once", "--format", "messagepack")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert db.execute("SELECT attributes FROM object").fetchall() == [
            ('{"name": ["Augusta"]}',)
        ]


def test_the_source_is_followed_by_its_name_with_types_of_a_catalogue(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "changes.jsonl").write_text(CHANGE)
    column = {"name": "id", "type": "integer"}
    table = {
        "name": "item",
        "kind": "table",
        "columns": [column, {"name": "name", "type": "varchar(20)"}],
    }
    tables = [{**table, "primary_key": ["id"], "foreign_keys": []}]
    (tmp_path / "catalog.json").write_text(
        json.dumps({"dialect": "postgresql", "schema": "app", "tables": tables})
    )
    (tmp_path / "eventlog.toml").write_text(
        '[source]\ntype = "jsonl-file"\npath = "changes.jsonl"\ncatalog = "catalog.json"\n'
        f'position_url = "sqlite:///{tmp_path / "position.db"}"\n'
        '[format]\ntype = "cloudevents"\n[sink]\ntype = "stdout"\n'
    )

    def published() -> list[dict[str, Any]]:
        done = run(environment / "bin" / "python", "-c", MAIN, "publish", "--once", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    (event,) = published()
    assert (event["data"]["key"], event["data"]["columns"]) == ({"id": 7}, {"name": {"new": "Ada"}})
    assert published() == []
    status = run(environment / "bin" / "python", "-c", MAIN, "status", cwd=tmp_path)
    assert f"byte {len(CHANGE)}" in status.stdout, status.stdout + status.stderr
