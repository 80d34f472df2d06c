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

REFUSE = f"""
import importlib.abc, json, sys

HEAVY = {HEAVY!r}

class Refusal(importlib.abc.MetaPathFinder):
    loaded, now = [], ""

    def find_spec(self, name, path=None, target=None):
        if name not in HEAVY:
            return None
        chain, frame = [name], sys._getframe()
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("eventlog") and module != chain[-1]:
                chain.append(module)
            frame = frame.f_back
        self.loaded.append((self.now, " <- ".join(chain)))
        raise ImportError(chain)

refusal = Refusal()
sys.meta_path.insert(0, refusal)
"""
"""The beginning of a program: from here on, each command that would load a heavy module is
recorded, with the chain of modules that leads to it. The module is not loaded, so that the next
command is recorded too.
"""

HELPS = """
import click
from contextlib import suppress
from eventlog import cli

def show(name, group=None):
    path = [name] if group is None else [group.command_path, name]
    refusal.now = " ".join(path)
    shown.append(refusal.now)
    with suppress(ImportError):
        command = cli.cli if group is None else group.command.get_command(group, name)
        context = click.Context(command, info_name=name, parent=group)
        command.get_help(context)
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                show(below, context)

shown = []
show("eventlog")
print(json.dumps({"shown": shown, "loaded": refusal.loaded}))
"""

COMMANDS = """
from contextlib import suppress
from eventlog import cli

for arguments, code in json.loads(sys.argv[1]):
    refusal.now = " ".join(arguments)
    with suppress(ImportError):
        assert cli.run(arguments) == code, arguments
print(json.dumps({"loaded": refusal.loaded}), file=sys.stderr)
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
        [sys.executable, "-c", REFUSE + program, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The commands whose help one process shows, and the heavy modules that this would load."""
    return json.loads(run(HELPS, cwd=tmp_path_factory.mktemp("helps")).stdout)


@pytest.mark.parametrize("command", commands(cli.cli))
def test_the_help_of_a_command_loads_no_heavy_module(helps: Any, command: str) -> None:
    assert command in helps["shown"]
    assert [chain for now, chain in helps["loaded"] if now == command] == []


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
    assert json.loads(done.stderr.splitlines()[-1])["loaded"] == []
