"""What ``--help`` says beside the options: the commands by purpose, whole sentences, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Begin": {
        "init": "Write a commented eventlog.toml.",
        "config": "Show the settings in effect and where each came from.",
        "demo": "Show all of it on a PostgreSQL of its own.",
    },
    "Install": {
        "db": "Create, upgrade or remove the log and its companions.",
        "triggers": "Compare, apply or drop the triggers of the watched tables.",
    },
    "Publish": {
        "publish": "Publish the log: the daemon, or one run with --once.",
        "backlog": "Convert a whole backlog to files of documents, by Spark.",
    },
    "Look": {
        "status": "Show the queue, what is in flight and who publishes.",
        "top": "Show live in a terminal what a publisher does.",
        "tail": "Show what a publisher sent lately, and what follows.",
        "errors": "Show what was refused, by cause, and what puts it back.",
        "show": "Explain one row of the log: its group, its document, what became of it.",
        "doctor": "Say what is wrong with log, triggers and rows, and what mends it.",
        "health": "Say whether the publisher makes progress, by its health file.",
    },
    "Repair": {
        "requeue": "Put rows with status E or F back into the queue.",
        "resync": "Write objects into the log once more: repair and first load.",
        "purge": "Remove processed rows by age.",
    },
    "Convert": {
        "convert": "Convert changes from any format to any other.",
        "decode": "Show changes of any format as readable text.",
    },
}
"""Each command with its line of help, by purpose."""

EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "init": {
        "eventlog init": "a file to fill in, every option in it",
        "eventlog --database-url postgresql+psycopg://me@db/shop init --tables": "with a [[watch]] for each table",
    },
    "config": {
        "eventlog config": "all settings, and where each came from",
        "eventlog --set publisher.batch_size=1 config --json": "what a flag would change, for a program",
    },
    "db upgrade": {
        "eventlog db upgrade": "the log and its companions, in one transaction",
        "eventlog db upgrade --sql > log.sql": "the same for a DBA to run",
    },
    "db current": {
        "eventlog db current": "what is installed, and what is not applied yet",
        "eventlog db current --json": "for a program",
    },
    "db downgrade": {
        "eventlog db downgrade base": "take everything away again; asks first",
        "eventlog db downgrade log@0003 --sql": "what one step back would run",
    },
    "triggers plan": {
        "eventlog triggers plan": "what apply would do, and what to know before",
        "eventlog triggers plan --check": "exit code 1 if something is to be done",
    },
    "triggers apply": {
        "eventlog triggers apply": "bring the triggers to what is declared",
        "eventlog triggers apply --sql > triggers.sql": "the same for a DBA to run",
    },
    "triggers drop": {
        "eventlog triggers drop --dry-run": "what would go",
        "eventlog triggers drop --drop-log --yes": "the log too, without asking",
    },
    "triggers show": {
        "eventlog triggers show": "what is installed, declared or not",
        "eventlog triggers show --sql": "its whole text",
    },
    "publish": {
        "eventlog publish": "the daemon, until SIGTERM or Ctrl-C",
        "eventlog publish --once": "what the queue holds now",
        "eventlog publish --dry-run": "print it; send and mark nothing",
    },
    "status": {
        "eventlog status": "the queue, what is in flight, who publishes",
        "eventlog status --watch 5": "anew every five seconds",
    },
    "top": {
        "eventlog top": "the monitor of eventlog.toml, or the database",
        "eventlog top --url http://127.0.0.1:9464": "a publisher elsewhere",
    },
    "tail": {
        "eventlog tail": "the last ten envelopes, then each that is sent",
        "eventlog tail -n 50 --no-follow --json": "the last fifty, for a program",
    },
    "health": {
        "eventlog health": "exit code 0 if there is progress",
        "eventlog health --file /run/eventlog/health": "another publisher's file",
    },
    "doctor": {
        "eventlog doctor": "findings, each with what mends it",
        "eventlog doctor --ignore letters_unknown --json": "for a program, one finding left out",
    },
    "show": {
        "eventlog show 4711": "why this row became what it became",
        "eventlog show 4711 --json": "for a program",
    },
    "errors": {
        "eventlog errors": "rows with E and F by cause",
        "eventlog errors --json": "for a program",
    },
    "requeue": {
        "eventlog requeue --dry-run": "how many rows E and F would wait again",
        "eventlog requeue --ids 1,2,5-9": "these rows",
    },
    "resync": {
        "eventlog resync customer --dry-run": "how many objects would be sent as they are now",
        "eventlog resync customer --key id=7": "one object",
    },
    "purge": {
        "eventlog purge --older-than 30d --dry-run": "how many processed rows would go",
        "eventlog purge --older-than 30d --yes": "remove them, without asking",
    },
    "backlog": {
        "eventlog backlog --out documents": "files of the documents that publish would send",
        "eventlog backlog --out documents --mark": "and mark their rows afterwards",
    },
    "convert": {
        "eventlog convert --from gbase --to jsonl capture.cdc changes.jsonl": "a capture as lines of JSON",
        "eventlog convert --from jsonl --to xds - - < changes.jsonl": "from a pipe to a pipe",
    },
    "decode": {
        "eventlog decode --from gbase capture.cdc": "records as text, byte offsets beside them",
        "eventlog decode --from xds documents.xmll": "events as text",
    },
    "demo": {
        "eventlog demo --no-backlog": "without the part that needs Spark",
        "eventlog demo --keep shop": "and leave the database to go on with",
    },
}
"""Command lines to begin with, by the command's name, each with what it does."""


class Group(click.Group):
    """A group whose help says the whole first sentence of each command, and whose commands have their examples."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command = super().get_command(ctx, name)
        return None if command is None else with_examples(f"{self.name} {name}", command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(1000)) for name, command in self.commands.items()])


def with_examples(name: str, command: click.Command) -> click.Command:
    """The command, its help ended by its examples."""
    if examples := EXAMPLES.get(name):
        lines = "\n".join(f"  {line}\n      {purpose}" for line, purpose in examples.items())
        command.epilog = f"\b\nExamples:\n{lines}"
    return command
