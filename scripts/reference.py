#!/usr/bin/env python3
"""Write the parts of the documentation that repeat the code: options, commands, error codes.

They stand between ``<!-- reference: NAME -->`` and ``<!-- end of reference -->``. To be run when an option, a command
or an error has changed (``make reference``); ``tests/packaging/test_documents.py`` says so when it was forgotten.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from pkgutil import walk_packages
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import eventlog  # noqa: E402
from eventlog import cli  # noqa: E402
from eventlog.cli.help import EXAMPLES  # noqa: E402
from eventlog.cli.init import SELF_EXPLAINING  # noqa: E402
from eventlog.config.settings import SECTIONS, WatchSettings, variable  # noqa: E402
from eventlog.core.options import BOOLEAN, Option, options_of, toml  # noqa: E402
from eventlog.core.parameters import MANY  # noqa: E402
from eventlog.errors import EventlogError  # noqa: E402

_LONG: Final = 80
"""Characters from which on an example is left out."""

BLOCK: Final = re.compile(r"(<!-- reference: (\w+) -->\n).*?(<!-- end of reference -->)", re.DOTALL)


def written(text: str) -> str:
    """The text of a page with its blocks as the code has them now."""
    return BLOCK.sub(lambda block: block[1] + "\n" + "\n".join(PARTS[block[2]]()) + "\n\n" + block[3], text)


def _settings() -> Iterator[str]:
    for section, settings in SECTIONS.items():
        yield from ("", f"### [{section}]", "", *_options(settings, section))
    yield from ("", "### [[watch]]", "", *_options(WatchSettings, None))


def _options(settings: type, section: str | None) -> Iterator[str]:
    """A table of options. ``section`` is None for [[watch]], which no variable and no flag sets."""
    yield from ("| option | default | values | what it does |", "|---|---|---|---|")
    for key, option in options_of(settings).items():
        name = f'<a id="{section or "watch"}.{key}"></a>`{key}`'
        if option.secret and section is not None:
            yield f"| {name} | | by `{variable(section, key)}` alone | {_cell(option.help)} |"
            continue
        default = "" if option.default in (None, ()) else f"`{toml(option.default)}`"
        if option.idm is not None:
            default += f"; profile idm: `{toml(option.idm)}`"
        yield f"| {name} | {default} | {_values(option)} | {_cell(option.help)} |"


def _values(option: Option) -> str:
    if option.kind is BOOLEAN:
        return "`true`, `false`"
    legal = re.sub(rf"^(\d+)\.\.{MANY}$", r"\1 or more", option.kind.legal)
    legal = "" if option.kind in SELF_EXPLAINING and option.example else _cell(legal)
    example = toml(option.example) if option.example else ""
    return "; ".join(filter(None, (legal, f"such as `{_cell(example)}`" if 0 < len(example) < _LONG else "")))


def _commands() -> Iterator[str]:
    yield from ("### All commands", "", *_parameters(cli.cli))
    for name in cli.COMMANDS:
        command = cli.cli.get_command(click.Context(cli.cli), name)
        if isinstance(command, click.Group):
            for part, sub in command.commands.items():
                yield from _command(f"{name} {part}", sub)
        elif command is not None:
            yield from _command(name, command)


def _command(name: str, command: click.Command) -> Iterator[str]:
    usage = " ".join(("eventlog", name, *command.collect_usage_pieces(click.Context(command))))
    yield from ("", f"### {name}", "", f"`{usage}`", "")
    yield from (paragraph.replace("\n", " ") + "\n" for paragraph in cleandoc(command.help or "").split("\n\n"))
    yield from _parameters(command)
    if examples := EXAMPLES.get(name):
        width = max(map(len, examples))
        lines = (f"{line.ljust(width)}  # {purpose}" for line, purpose in examples.items())
        yield from ("", "```sh", *lines, "```")


def _parameters(command: click.Command) -> Iterator[str]:
    options = [one for one in command.params if isinstance(one, click.Option)]
    if not options:
        return
    yield from ("| option | what it does |", "|---|---|")
    context = click.Context(command)
    for option in options:
        record = option.get_help_record(context)
        assert record is not None
        yield f"| `{_cell(record[0])}` | {_cell(' '.join(record[1].split()))} |"


def _errors() -> Iterator[str]:
    for module in walk_packages(eventlog.__path__, "eventlog."):
        if ".migrations." not in module.name:  # what Alembic alone can import
            import_module(module.name)
    yield from ("| code | error | what it says |", "|---|---|---|")
    for code, name, about in sorted({(one.code, one.__name__, _first_sentence(one)) for one in _below(EventlogError)}):
        yield f'| <a id="error-{code}"></a>`{code}` | {name} | {_cell(about)} |'


def _below(error: type[EventlogError]) -> Iterator[type[EventlogError]]:
    for one in error.__subclasses__():
        if one.__module__.startswith("eventlog."):  # no errors of tests, which may run in this process
            yield one
        yield from _below(one)


def _first_sentence(error: type[EventlogError]) -> str:
    paragraph = " ".join((error.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")
    return re.sub(r" \(spec/[^)]*\)| of spec/\S+ [\d.]+", "", paragraph).split(". ")[0].rstrip(".")


_COUNTED: Final = ("Counters", "Report")
"""What a program reads the fields of; eventlog itself calls the methods."""


def _interface() -> Iterator[str]:
    """The public names of the package, each with its signature and its docstring."""
    for name in eventlog.__all__:
        public = getattr(eventlog, name)
        if issubclass(type(public), type) and issubclass(public, Exception):
            yield from (f"### {name}", "", f"An error, `{public.code}`. {_prose(public)}", "")
            continue
        if not inspect.isclass(public):
            yield from (f"### {name}", "", f"```text\n{name}{_signature(public)}\n```", "", _prose(public), "")
            continue
        yield from (f"### {name}", "", _prose(public), "")
        for member, value in () if name in _COUNTED else vars(public).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if member.startswith("_") or not inspect.isfunction(function):
                continue
            shown = f".{member}" if isinstance(value, property) else f".{member}{_signature(getattr(public, member))}"
            yield from (f"```text\n{name}{shown}\n```", "", _prose(function), "")
        if issubclass(public, Enum):
            yield from (f"Members: {', '.join(f'`{member}`' for member in public.__members__)}.", "")
        elif fields := list(getattr(public, "_fields", getattr(public, "__dataclass_fields__", ()))):
            yield from (f"Fields: {', '.join(f'`{field}`' for field in fields)}.", "")


def _signature(function: Callable[..., object]) -> str:
    return re.sub(r"^\(self(, )?", "(", str(inspect.signature(function)).replace("'", ""))


def _prose(public: object) -> str:
    """A docstring as Markdown."""
    text = cleandoc(public.__doc__ or "").replace("``", "`")
    return text if text and not text.startswith(f"{getattr(public, '__name__', '')}(") else "A tuple by names."


_REFERENCE: Final = re.compile(r"spec/([a-z-]+\.md)((?:[ ,]*(?:and )?\d+(?:\.\d+)*(?![\w/]))*)")
_UNBUILT: Final = {
    ("gbase-cdc.md", "5"): "tests/conformance/vectors/gbase.json",
    ("gbase-cdc.md", "7"): "tests/conformance/vectors/gbase.json",
    ("qlik.md", "2.3"): "tests/conformance/vectors/qlik.json",
    ("triggers.md", "7.3"): "not built: SQL Server",
    ("triggers.md", "7.4"): "not built: MySQL, MariaDB",
}
"""Sections that no function holds, and where they are instead."""


def _rules() -> Iterator[str]:
    """The sections of the specification, each with what says in its docstring that it follows it."""
    holders = _holders()
    for page in sorted((ROOT / "docs" / "spec").glob("*.md")):
        sections = re.findall(r"(?m)^#{2,4} (\d+(?:\.\d+)*)\.? (.*)$", page.read_text(encoding="utf-8"))
        if not sections:
            continue
        yield from (f"### {page.name}", "", "| section | what | where |", "|---|---|---|")
        for number, title in sections:
            where = holders.get((page.name, number), [])
            below = [section for section, _ in sections if section.startswith(f"{number}.")]
            if (page.name, number) in _UNBUILT:
                words = _UNBUILT[page.name, number]
            elif where:
                words = ", ".join(f"`{name}`" for name in where[:_MOST_HOLDERS])
                words += f" and {len(where) - _MOST_HOLDERS} more" if len(where) > _MOST_HOLDERS else ""
            elif below:
                words = f"{below[0]} to {below[-1]}" if len(below) > 1 else below[0]
            else:
                raise SystemExit(f"docs/spec/{page.name} {number} {title}: no docstring refers to it")
            yield f"| {number} | {_cell(re.sub(r'[*`]', '', title)).strip()} | {words} |"
        yield ""


_MOST_HOLDERS: Final = 6


def _holders() -> dict[tuple[str, str], list[str]]:
    """By page and section: the modules, classes and functions whose docstrings refer to it, functions first."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    modules: dict[tuple[str, str], dict[str, None]] = {}
    for file in sorted(file for folder in ("eventlog", "spark") for file in (ROOT / folder).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) or not ast.get_docstring(node):
                continue
            is_module = isinstance(node, ast.Module)
            name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
            for page, numbers in _REFERENCE.findall(re.sub(r"\s+", " ", ast.get_docstring(node) or "")):
                for number in re.findall(r"\d+(?:\.\d+)*", numbers):
                    (modules if is_module else found).setdefault((page, number), {})[name.removeprefix("eventlog.")] = (
                        None
                    )
    return {key: [*found.get(key, ()), *modules.get(key, ())] for key in found.keys() | modules.keys()}


def _cell(text: str) -> str:
    """Text for a cell of a table: outside of code, what Markdown would take for an element is shown as it is."""
    text = text.replace("|", "\\|")
    return "".join(part if code else part.replace("<", "&lt;") for part, code in _code(text))


def _code(text: str) -> Iterator[tuple[str, bool]]:
    for number, part in enumerate(re.split(r"(`[^`]*`)", text)):
        yield part, number % 2 == 1


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "settings": _settings,
    "commands": _commands,
    "errors": _errors,
    "interface": _interface,
    "rules": _rules,
}


def main() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        before = page.read_text(encoding="utf-8")
        if (after := written(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
