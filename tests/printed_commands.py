"""The commands that our programs print: the templates in the source, and those in an output."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import click
from source_trees import PACKAGE, package_trees

from eventlog import cli

EXAMPLES: Final = PACKAGE / "cli" / "__init__.py"
"""The examples of the help, which test_help.py tries."""

_QUOTED: Final = re.compile(r"`(eventlog [^`]+)`")
_LINE: Final = re.compile(r"^(?:\s*|.*: )(eventlog [a-z].*?)\s*(?:  +#.*)?$", re.MULTILINE)
_TEXT_AFTER: Final = re.compile(r"(?:, (?:then|with|when) | shows | \(|; ).*$", re.DOTALL)
_WORDS: Final = {
    "CLASS": "item",
    "NAME": "search",
    "RECORD_ID": "1",
    "REASON": "'no need'",
    "CODE": "receiver",
    "ROLE": "me",
    "PURPOSE": "publisher",
    "DIR": "documents",
    "...": "earliest",
}
"""What people put in place of these words, in the states of the tests."""


_COMMANDS: Final = frozenset(cli.cli.list_commands(click.Context(cli.cli)))


def _is_command(text: str) -> bool:
    first, *_ = text.split()[1:]
    return first.split("{")[0] in _COMMANDS or first.startswith("-")


def _texts(node: ast.AST) -> Iterator[str]:
    """The texts of a module with ``{}`` in place of what is filled in, without docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant | ast.JoinedStr):
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        elif isinstance(child, ast.JoinedStr):
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else "{}" for one in child.values
            )
        else:
            yield from _texts(child)


def templates() -> set[str]:
    """The commands that the product prints, without the text that follows them."""
    found: set[str] = set()
    for path, tree in package_trees().items():
        if path == EXAMPLES:
            continue
        for text in _texts(tree):
            texts = [*_QUOTED.findall(text), *([text] if text.startswith("eventlog ") else [])]
            bare = (re.sub(r"\{\w+\}", "{}", _TEXT_AFTER.sub("", one)).strip() for one in texts)
            found |= set(filter(_is_command, bare))
    return found


def printed_in(output: str) -> list[str]:
    """The commands in an output, with words of the state in place of those for people."""
    found = [*_QUOTED.findall(output), *_LINE.findall(output)]
    return list(dict.fromkeys(_TEXT_AFTER.sub("", one) for one in found if _is_command(one)))


def arguments_of(command: str) -> Sequence[str]:
    """The arguments of a printed command. A daemon is run once."""
    words = [_WORDS.get(word, word) for word in shlex.split(command)[1:]]
    more = {"publish": ["--once"], "tail": ["--no-follow"]}
    return [*words, *more.get(words[0], ())]


def example_of(template: str) -> Sequence[str]:
    """The arguments of a command that is made of a template."""
    filled = re.sub(r"(?<=\w)\{\}", "", template).replace("{}", "publisher").replace("%s", "search")
    words = [_WORDS.get(word, word) for word in shlex.split(filled)[1:]]
    needs_value = words[-1] in ("--finish", "--from", "--from-driver", "--out", "--tables")
    return [*words, "gbase"] if needs_value else words


def is_of(command: str, template: str) -> bool:
    """Whether a printed command was made of a template."""
    parts = map(re.escape, re.split(r"\{\}|%s", template))
    return re.fullmatch(".*".join(parts), command) is not None
