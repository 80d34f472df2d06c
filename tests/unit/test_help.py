"""What ``--help`` says: purpose, options in groups, examples that can be run; what a shell
completes; near names.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never, get_args, get_type_hints

import click
import pytest
from click.testing import CliRunner
from shared import Run

from eventlog import cli
from eventlog.cli import EXAMPLES, OPTIONS, examples_of, grouped_options
from eventlog.cli.command import AddressedRequest, CommandResult, Request
from eventlog.cli.context import CommandContext
from eventlog.exit_codes import MEANINGS, OF_COMMANDS, ExitCode


def walk(name: str = "", command: click.Command = cli.cli) -> Iterator[tuple[str, click.Command]]:
    """Every command and group, by its name behind ``eventlog``."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            below = command.get_command(context, part)
            assert below is not None
            yield from walk(f"{name} {part}".strip(), below)


COMMANDS = dict(walk())
every_command = pytest.mark.parametrize("name", COMMANDS, ids=lambda name: name or "eventlog")


def help_of(name: str, width: int = 80) -> str:
    arguments = [*name.split(), "--help"]
    shown = CliRunner().invoke(
        cli.cli, arguments, prog_name="eventlog", env={"COLUMNS": str(width)}
    )
    assert shown.exit_code == 0, shown.output
    return shown.output


@every_command
def test_a_command_states_its_purpose(name: str) -> None:
    purpose = help_of(name).split("\n\n")[1].strip()
    assert purpose[0].isupper()
    assert purpose.endswith(".")


@every_command
def test_a_command_shows_two_examples(name: str) -> None:
    lines = help_of(name).partition("Examples:\n")[2].splitlines()
    assert len(examples_of(name)) >= 2
    assert lines == [
        text
        for line, purpose in examples_of(name).items()
        for text in (f"  {line}", f"      {purpose}")
    ]


def test_examples_are_of_commands_that_there_are() -> None:
    assert EXAMPLES.keys() == {
        name for name, one in COMMANDS.items() if not name or not isinstance(one, click.Group)
    }


@every_command
def test_the_exit_codes_that_help_names_are_of_the_table(name: str) -> None:
    shown = help_of(name, 200)
    listed = [
        int(code) for code in re.findall(r"(?m)^  (\d+)  ", shown.partition("Exit codes:\n")[2])
    ]
    assert listed == list(OF_COMMANDS.get(name, {}) if name else MEANINGS)
    mentioned = re.findall(r"(?i)(?:exit code|ends? with|exits? with) (?:code )?(\d+)", shown)
    assert set(map(int, mentioned)) <= {*OF_COMMANDS.get(name, {}), ExitCode.DONE}


def requests_of(command: click.Command) -> list[type[Request]]:
    """The classes of the requests that a command makes."""
    if isinstance(command, click.Group):
        return []
    made: Any = command.callback
    return [made] if isinstance(made, type) else list(get_args(get_type_hints(made)["return"]))


def runs_of(request: type[Request]) -> list[Callable[..., Any]]:
    """The functions that run a request: its own, or those for a log and for a followed source."""
    if "run" in vars(request):
        return [request.run]
    made = object.__new__(request)
    addresses = ("", "_of_source") if issubclass(request, AddressedRequest) else ("",)
    return [made.runner(address) for address in addresses]


@every_command
def test_a_command_has_a_run_for_its_request_that_returns_a_result_or_an_exit_code(
    name: str,
) -> None:
    for request in requests_of(COMMANDS[name]):
        for one in runs_of(request):
            hints = get_type_hints(one)
            returned = hints["return"]
            assert {*(get_args(returned) or (returned,))} <= {
                CommandResult, ExitCode, type(None), Never,
            }  # fmt: skip
            assert hints["context"] is CommandContext
            assert hints.get("request", request) in (request, object)


@every_command
def test_wrong_usage_of_any_command_is_exit_code_2(name: str, run: Run) -> None:
    assert run(*name.split(), "--no-such-option")[0] == ExitCode.USAGE


def test_exit_codes_are_documented_for_commands_that_there_are() -> None:
    assert OF_COMMANDS.keys() <= COMMANDS.keys()
    assert MEANINGS.keys() == set(ExitCode)


@every_command
def test_every_option_is_in_one_group_and_its_help_explains_it(name: str) -> None:
    command = COMMANDS[name]
    context = click.Context(command)
    grouped = [
        option for options in grouped_options(command, context).values() for option in options
    ]
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    assert sorted(one.opts for one in grouped) == sorted(one.opts for one in options)
    for option in options:
        text = (option.help or "").partition("  [default: ")[0]
        assert text[0].isupper()
        assert text.endswith(".")


@every_command
def test_a_metavar_shows_what_a_value_is(name: str) -> None:
    context = click.Context(COMMANDS[name])
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option) and not option.is_flag and not option.count:
            shown = option.make_metavar(context)
            assert shown not in (
                "TEXT",
                "INTEGER",
                "FLOAT",
                "PATH",
                "INTEGER RANGE",
                "FLOAT RANGE",
            ), option.opts


def test_every_group_of_options_is_shown_somewhere() -> None:
    shown = {flag for one in COMMANDS.values() for param in one.params for flag in param.opts}
    assert [
        flag for flags in OPTIONS.values() for flag in flags if flag not in shown | {"--help"}
    ] == []


@every_command
@pytest.mark.parametrize("width", [80, 120])
def test_help_fits_the_terminal_and_nothing_of_it_is_cut(name: str, width: int) -> None:
    text = help_of(name, width)
    assert max(map(len, text.splitlines())) <= width
    assert "..." not in re.sub(r"\[?(ARGS|CLASS|EVENT_ID|TABLE)\]?\.\.\.", "", text)


def test_a_command_prints_json_or_its_help_explains_why_not() -> None:
    commands = [name for name, one in COMMANDS.items() if not isinstance(one, click.Group)]
    assert [name for name in commands if "--json" not in help_of(name)] == []


@every_command
def test_help_shows_where_the_options_of_all_commands_are_listed(name: str) -> None:
    assert ("stand before or after the command" in help_of(name)) is bool(name)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["publsh"], "the nearest is publish; see `eventlog --help`"),
        (["db", "upgrad"], "the nearest is upgrade; see `eventlog db --help`"),
        (["triggers", "nonsense"], "the commands are accept, apply, drop, list, plan"),
        (["publish", "--dry-rn"], "? See `eventlog publish --help`"),
        (["--databas-url", "x", "status"], "--database-url"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(
    run: Run, arguments: list[str], hint: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err


# --- completion -----------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What is offered for the last word."""
    environment = {"_EVENTLOG_COMPLETE": "bash_complete", "COMP_WORDS": shlex.join(["eventlog",
                   *words]), "COMP_CWORD": str(len(words))}  # fmt: skip
    shown = CliRunner().invoke(cli.cli, prog_name="eventlog", env=environment)
    return [line.partition(",")[2] for line in shown.output.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("pu",), ["publish", "purge"]),
        (
            ("db", ""),
            ["current", "downgrade", "partition", "start-epoch", "unpartition", "upgrade"],
        ),
        (("publish", "--on"), ["--once"]),
        (("convert", "--from", "g"), ["gbase"]),
        (("publsh", ""), sorted(cli.COMMANDS)),
    ],
)
def test_a_shell_completes_commands_options_and_values(
    words: tuple[str, ...], offered: list[str]
) -> None:
    assert sorted(completed(*words)) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_line_of_the_page_makes_bash_complete(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(
        encoding="utf-8"
    )
    line = next(
        line
        for line in page.splitlines()
        if line.startswith('eval "$(_EVENTLOG_COMPLETE=bash_source')
    )
    script = (
        f"{line}\nCOMP_WORDS=(eventlog heal); COMP_CWORD=1; _eventlog_completion eventlog; echo "
        "${COMPREPLY[@]}"
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["health"], "")


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line in examples])
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line.partition(" >")[0].partition(" <")[0])[1:]
    context = cli.cli.make_context("eventlog", words)
    command: click.Command = cli.cli
    rest = (
        [*context._protected_args, *context.args]
        if hasattr(context, "_protected_args")
        else context.args
    )
    while isinstance(command, click.Group):
        _, below, rest = command.resolve_command(context, rest)
        assert below is not None
        command = below
    command.make_context(command.name, rest, parent=context)
