"""What needs no database loads no SQLAlchemy, and neither a driver, a parser of XML nor Spark: the
help of every command, and the commands that work without a database. Modules are counted, not
seconds.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from eventlog import cli
from eventlog.exit_codes import ExitCode

HEAVY = ("sqlalchemy", "alembic", "psycopg", "lxml", "rich", "pyspark")
WRITTEN = ("xds", "eventlog", "cloudevents", "debezium", "qlik-messages")
"""The formats that the changes of a file are converted to."""

RECORD = f"""
import importlib.abc, json, sys

HEAVY = {HEAVY!r}

class Recorder(importlib.abc.MetaPathFinder):
    loaded, now = {{}}, ""

    def find_spec(self, name, path=None, target=None):
        if name in HEAVY and name not in self.loaded:
            chain, frame = [name], sys._getframe()
            while frame is not None:
                module = frame.f_globals.get("__name__", "")
                if module.startswith("eventlog") and module != chain[-1]:
                    chain.append(module)
                frame = frame.f_back
            self.loaded[name] = (self.now, " <- ".join(chain))

recorder = Recorder()
sys.meta_path.insert(0, recorder)
"""
"""The beginning of a program: from here on, who loads a heavy module first is recorded."""

HELPS = """
import click
from eventlog import cli

def show(command, path, parent=None):
    recorder.now = " ".join(path)
    context = click.Context(command, info_name=path[-1], parent=parent)
    command.get_help(context)
    shown.append(recorder.now)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            recorder.now = " ".join([*path, name])
            show(command.get_command(context, name), [*path, name], context)

shown = []
show(cli.cli, ["eventlog"])
print(json.dumps({"shown": shown, "loaded": recorder.loaded}))
"""

COMMANDS = """
from eventlog import cli

for arguments, code in json.loads(sys.argv[1]):
    recorder.now = " ".join(arguments)
    assert cli.run(arguments) == code, arguments
print(json.dumps({"loaded": recorder.loaded}), file=sys.stderr)
"""


def commands(command: click.Command, path: Sequence[str] = ("eventlog",)) -> list[str]:
    """The names of a command and of all commands below it, as they are typed."""
    context = click.Context(command)
    below = []
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            below += commands(one, (*path, name))
    return [" ".join(path), *below]


def run(program: str, *arguments: str, cwd: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", RECORD + program, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The commands whose help one process has shown, and the heavy modules that this has loaded."""
    return json.loads(run(HELPS, cwd=tmp_path_factory.mktemp("helps")).stdout)


@pytest.mark.parametrize("command", commands(cli.cli))
def test_the_help_of_a_command_loads_no_heavy_module(helps: Any, command: str) -> None:
    assert command in helps["shown"]
    assert [chain for first, chain in helps["loaded"].values() if first == command] == []


def test_what_needs_no_database_loads_no_heavy_module(tmp_path: Path) -> None:
    change = {"op": "INSERT", "table": "item", "key": [["id", 7]], "after": {"id": 7, "name": "x"}}
    (tmp_path / "changes.jsonl").write_text(f"{json.dumps(change)}\n")
    convert = ("--quiet", "convert", "--from", "jsonl", "--to")
    lines = [
        (("init",), ExitCode.DONE),
        (("config",), ExitCode.DONE),
        (("explain", "invalid_rows"), ExitCode.DONE),
        (("health", "--file", "no-publisher-runs"), ExitCode.FAILED),
        *(((*convert, one, "changes.jsonl", f"{one}.jsonl"), ExitCode.DONE) for one in WRITTEN),
    ]
    done = run(COMMANDS, json.dumps(lines), cwd=tmp_path)
    assert json.loads(done.stderr.splitlines()[-1])["loaded"] == {}
