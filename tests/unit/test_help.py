"""What ``--help`` says: whole sentences, by purpose, with examples that can be run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from eventlog import cli
from eventlog.cli.help import EXAMPLES


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its whole name."""
    context = click.Context(cli.cli)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", sub) for part, sub in command.commands.items())
        else:
            yield name, command


def help_of(*words: str) -> str:
    return CliRunner().invoke(cli.cli, [*words, "--help"], prog_name="eventlog").output


@pytest.mark.parametrize("name", [name for name, _ in leaves()])
def test_a_command_says_its_purpose_and_shows_two_examples(name: str) -> None:
    text = help_of(*name.split())
    assert text.partition("\n\n")[2].strip()
    assert len(EXAMPLES[name]) >= 2
    assert all(f"    {line}\n" in text for line in EXAMPLES[name])


def test_examples_are_of_commands_that_there_are() -> None:
    assert set(EXAMPLES) == {name for name, _ in leaves()}


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line in examples])
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line.partition(" >")[0].partition(" <")[0])[1:]
    context = cli.cli.make_context("eventlog", words)
    command: click.Command = cli.cli
    rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
    command.make_context(command.name, rest, parent=context)


@pytest.mark.parametrize("words", [(), ("db",), ("triggers",)])
def test_no_line_of_help_is_cut(words: tuple[str, ...]) -> None:
    assert "..." not in help_of(*words).partition("Options:")[2]
