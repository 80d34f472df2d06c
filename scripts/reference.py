#!/usr/bin/env python3
"""Write the parts of the documentation that repeat the code: options, commands, metrics, error
codes.

They are between ``<!-- reference: NAME -->`` and ``<!-- end of reference -->``. Run it when an
option, a command, a metric or an error has changed (``make reference``);
``tests/packaging/test_documents.py`` fails if it was forgotten.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from html import escape
from inspect import cleandoc
from io import StringIO
from itertools import count, groupby, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from types import ModuleType
from typing import Final

import click
from prometheus_client.core import Metric

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import eventlog  # noqa: E402
import eventlog.spark  # noqa: E402
import eventlog.verify  # noqa: E402
from eventlog import cli  # noqa: E402
from eventlog.changes.format import Format  # noqa: E402
from eventlog.cli import examples_of, grouped_options  # noqa: E402
from eventlog.cli.begin.settings import SELF_EXPLAINING  # noqa: E402
from eventlog.config.settings import (  # noqa: E402
    ARRAYS,
    LETTERS,
    SECTIONS,
    Declared,
    installed_sections,
    listed_options,
    variable,
)
from eventlog.core.options import (  # noqa: E402
    BOOLEAN,
    FLAG,
    MANY,
    REQUIRED,
    Option,
    options_of,
    toml,
)
from eventlog.error_codes import ERRORS, texts_of  # noqa: E402
from eventlog.exit_codes import MEANINGS, OF_COMMANDS  # noqa: E402
from eventlog.model import LOG_COLUMNS  # noqa: E402
from eventlog.publisher.context.conditions import KINDS  # noqa: E402
from eventlog.publisher.context.context import Counters  # noqa: E402
from eventlog.publisher.context.observer import NO_DIFFERENCES, QUEUE_CAP, Measured  # noqa: E402
from eventlog.publisher.monitor.activity import Activity, JobActivity  # noqa: E402
from eventlog.publisher.monitor.openmetrics import SOURCE_LAG, JobMetrics, PublisherMetrics  # noqa: E402
from eventlog.publisher.monitor.status import MEMBERS  # noqa: E402
from eventlog.publisher.run.liveness import LivenessClock  # noqa: E402
from eventlog.publisher.stream.open_source import refusal_of  # noqa: E402
from eventlog.registry import FORMATS, SINKS, SOURCES, format_named, names, source_named  # noqa: E402
from eventlog.spark.changes.changes import OPTIONS as CHANGE_OPTIONS  # noqa: E402
from eventlog.sql import migrations  # noqa: E402
from eventlog.sql.connect.connection import dialect_of  # noqa: E402
from eventlog.sql.doctor import TableStorage  # noqa: E402
from eventlog.sql.doctor.codes import FINDINGS  # noqa: E402
from eventlog.sql.log.verifications import LastVerification  # noqa: E402
from eventlog.sql.log_table import LogTable  # noqa: E402
from eventlog.sql.port.rights import Addition, Part, Purpose, Right, name_of, rights_for  # noqa: E402
from scripts import formats_reference  # noqa: E402

_LONG: Final = 80
"""Characters from which on an example is left out."""

TRIGGER_SQL: Final = ROOT / "tests" / "dialects" / "postgresql" / "trigger_sql.md"
"""What the templates of PostgreSQL's triggers render, so that a change of a template shows."""

BLOCK: Final = re.compile(r"(<!-- reference: (\w+) -->\n).*?(<!-- end of reference -->)", re.DOTALL)
CODES: Final = "codes.md"
"""The page of the error codes, as the pages in the same folder link to it."""


def written(text: str) -> str:
    """Return the text of a page with its blocks as the code has them now."""
    return BLOCK.sub(
        lambda block: block[1] + "\n" + "\n".join(PARTS[block[2]]()) + "\n\n" + block[3], text
    )


def _settings() -> Iterator[str]:
    for section in installed_sections():
        yield from ("", f"### [{section}]", "", *_options(listed_options(section), section))
        if section == LETTERS:
            yield from ("", "Further options are those of [`[sink]`](#sink) for this type.")
    for name, kind in ARRAYS.items():
        yield from ("", f"### [[{name}]]", "", *_options(_declared([kind]), name))


def _formats() -> Iterator[str]:
    """Yield a table of each format's options. An option that its reader and its writer have in the
    same form is in one row, and one of ``[format]`` is only named.
    """
    written_once = {
        (key, _option_cells(key, declared, section)): section
        for section in installed_sections()
        if section.startswith("format")
        for key, declared in listed_options(section).items()
    }
    for name in names(FORMATS):
        format = format_named(name)
        sides = {
            side: {
                key: _option_cells(key, declared, f"{name}.{side}")
                for key, declared in _declared(kinds).items()
            }
            for side, kinds in (
                ("reader", format.reader_options),
                ("writer", format.writer_options),
            )
        }
        rows, named = [], []
        for side, other in (("reader", "writer"), ("writer", "reader")):
            for key, cells in sides[side].items():
                of = "both" if sides[other].get(key) == cells else side
                if of == "both" and side == "writer":
                    continue
                if section := written_once.get((key, cells)):
                    named.append(
                        f"{_format_place(name, key, of)}[`{key}`](#{section}.{key})"
                        + ("" if of == "both" else f" ({of})")
                    )
                else:
                    rows.append(_format_row(name, key, of, cells))
        yield from ("", f"### {name}", "")
        if rows:
            yield from (
                "| option | of | default | values | what it does |",
                "|---|---|---|---|---|",
            )
            yield from rows
        if named:
            yield from ("", f"As in the configuration: {', '.join(named)}.")


def _format_row(format: str, key: str, of: str, cells: tuple[str, str, str]) -> str:
    """Return the row of an option of a format."""
    return f"| {_format_place(format, key, of)}`{key}` | {of} | {' | '.join(cells)} |"


def _format_place(format: str, key: str, of: str) -> str:
    """Return the anchor of an option of a format. If reader and writer have it, it is the
    reader's.
    """
    side = "reader" if of == "both" else of
    return f'<a id="{format}.{side}.{key}"></a>'


def _plain(options: Mapping[str, Option]) -> dict[str, Declared]:
    """Return options that all types have."""
    return {key: Declared(option) for key, option in options.items()}


def _declared(kinds: Iterable[type]) -> dict[str, Declared]:
    """Return the options that classes declare."""
    return {key: Declared(option) for kind in kinds for key, option in options_of(kind).items()}


def _options(options: Mapping[str, Declared], section: str) -> Iterator[str]:
    """Yield a table of options."""
    yield from ("| option | default | values | what it does |", "|---|---|---|---|")
    for key, declared in options.items():
        cells = " | ".join(_option_cells(key, declared, section))
        yield f'| <a id="{section}.{key}"></a>`{key}` | {cells} |'


def _option_cells(key: str, declared: Declared, section: str) -> tuple[str, str, str]:
    """Return the default of an option, its values, and what it does."""
    option = declared.option
    if option.secret:
        return "", f"[secret](#secrets), `{variable(section, key)}`", _cell(declared.help)
    default = "" if option.default in (None, (), {}, "", REQUIRED) else f"`{toml(option.default)}`"
    if option.idm is not None and section in SECTIONS:
        default += f"; profile idm: `{toml(option.idm)}`"
    return default, _values(option), _cell(declared.help)


def _values(option: Option) -> str:
    if option.kind in (BOOLEAN, FLAG):
        return "" if isinstance(option.default, bool) else "`true`, `false`"
    legal = option.kind.legal
    for longer, shorter in _SHORTER:
        legal = re.sub(longer, shorter, legal)
    if option.kind in SELF_EXPLAINING and option.example:
        legal = ""
    example = toml(option.example) if option.example else ""
    shows_one = len(example) >= _LONG or re.search(r"\d|\||such as", legal)
    such_as = f"like {_cell(f'`{example}`')}" if example and not shows_one else ""
    return "; ".join(filter(None, (_cell(legal), such_as)))


_SHORTER: Final = (
    (rf"^(\d+)\.\.{MANY}$", r"\1 or more"),
    (r"^a number from (\S+) to (\S+)$", r"\1..\2"),
    (r"^(?:a text|text that is not empty)$", "text"),
    (r'^a list of texts, such as \["one", "two"\]$', "a list of texts"),
)
"""How the legal values of an option are shown in a cell, where a message has a sentence."""


def _commands() -> Iterator[str]:
    commands = dict(_all_commands())
    rows = Counter(row for command in commands.values() for row in _option_rows(command).items())
    several: dict[str, tuple[str, str]] = {}
    for (name, row), number in rows.most_common():
        if number >= _SHARED:
            several.setdefault(name, row)  # of several texts the most frequent one
    shared = set(several.values())
    yield from ("### All commands", "", *_parameters("eventlog", _option_rows(cli.cli)))
    yield from ("", "### Options of several commands", "", *_parameters("several", several))
    for name, command in commands.items():
        yield from _command(name, command, shared)


_SHARED: Final = 3
"""The number of commands from which on an option with the same text is described once."""


def _all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its name, such as ``db upgrade``."""
    for name in cli.COMMANDS:
        command = cli.cli.get_command(click.Context(cli.cli), name)
        if isinstance(command, click.Group):
            for part, sub in command.commands.items():
                yield f"{name} {part}", sub
        elif command is not None:
            yield name, command


def _command(name: str, command: click.Command, shared: Set[tuple[str, str]]) -> Iterator[str]:
    pieces = command.collect_usage_pieces(click.Context(command))
    yield from ("", f"### {name}", "")
    if pieces != ["[OPTIONS]"]:
        yield from (f"`{' '.join(('eventlog', name, *pieces))}`", "")
    yield from (
        paragraph.replace("\n", " ") + "\n"
        for paragraph in cleandoc(command.help or "").split("\n\n")
    )
    rows = _option_rows(command)
    yield from _parameters(name, {one: row for one, row in rows.items() if row not in shared})
    if also := [f"[`{one}`](#several{one})" for one, row in rows.items() if row in shared]:
        yield from ("", f"Also {', '.join(also)}.")
    examples = {
        line: purpose
        for line, purpose in examples_of(name).items()
        if not purpose.endswith("as JSON")
    }
    examples = dict(islice(examples.items(), _MOST_EXAMPLES))
    width = max(map(len, examples))
    yield from (
        "",
        "```sh",
        *(f"{line.ljust(width)}  # {purpose}" for line, purpose in examples.items()),
        "```",
    )


_MOST_EXAMPLES: Final = 2
"""The number of a command's examples on the page; --help shows all of them."""


def _option_rows(command: click.Command) -> dict[str, tuple[str, str]]:
    """Return the flags and the text of each option of a command by its longest name, in the order
    of the groups of --help.
    """
    context = click.Context(command, show_default=True)
    rows = {}
    for group in grouped_options(command, context).values():
        for option in group:
            if "--help" not in option.opts:
                flags, text = option.get_help_record(context) or ("", "")
                rows[max(option.opts, key=len)] = f"`{flags}`", _escaped(" ".join(text.split()))
    return rows


def _parameters(name: str, rows: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield a list of options, each with what it does."""
    for option, (flags, text) in rows.items():
        place = f"{name}{option}".replace(" ", "-")
        yield f'- <a id="{place}"></a>{flags}: {text}'


def _metrics() -> Iterator[str]:
    # A followed source has one metric for its lag: that of the unit in which it counts.
    labels = {"log": "", "sink": ""}
    metrics = {
        metric.name: metric
        for unit in SOURCE_LAG
        for metric in PublisherMetrics(_measured_activity(unit), labels).collect()
    }
    yield from _metric_table(metrics.values(), labels, "metric")


def _measured_activity(lag_unit: str) -> Activity:
    """Return an activity whose metrics all exist, with a source that counts in this unit."""
    hours = count()  # the clock: the log is measured twice, and has grown
    activity = Activity(Counters(), 1.0, LivenessClock(1.0, lambda: next(hours) * 3600.0))
    for size in (1, 2):
        activity.measured(_measured(lag_unit, size))
    activity.compared(NO_DIFFERENCES)
    return activity


def _measured(lag_unit: str, size: int) -> Measured:
    return Measured(
        queue_rows=0,
        cap=QUEUE_CAP,
        clock=datetime.now(UTC),
        behind=0,
        behind_unit=lag_unit,
        tables=[
            TableStorage(part, part, 0, 0, None, None, size)
            for part in ("log", "error", "inflight", "consumer", "epoch", "captured", "resync")
        ],
        keep_bytes=1000,
        verified=[LastVerification("", "", "equal", datetime.now(UTC), datetime.now(UTC), 0, 0)],
    )


def _conditions() -> Iterator[str]:
    yield from (
        "| condition | severity | holds while | words | what to do | known to |",
        "|---|---|---|---|---|---|",
    )
    for name, kind in KINDS.items():
        words = re.sub(r"\{(\w+)\}", r"*\1*", kind.words)
        action = " ".join([kind.action, *(f"`{command}`" for command in kind.commands)])
        cells = (kind.severity.value, kind.when, words, action, kind.known_to)
        yield f'| <a id="condition-{name}"></a>`{name}` | {" | ".join(map(_cell, cells))} |'


def _status_members() -> Iterator[str]:
    yield from ("| member | from | what it is |", "|---|---|---|")
    for members in MEMBERS:
        names = ", ".join(f"`{name}`" for name in members.names)
        yield f"| {names} | {members.known_to} | {_cell(members.text)} |"


def _job_metrics() -> Iterator[str]:
    labels = {"log": "", "format": ""}
    yield from _metric_table(
        JobMetrics(JobActivity(1.0, LivenessClock(1.0)), labels).collect(), labels, "job-metric"
    )


_ENDINGS: Final = {"counter": "_total", "info": "_info"}
"""What OpenMetrics adds to the names of metrics, by their type."""


def _metric_table(metrics: Iterable[Metric], common: Iterable[str], place: str) -> Iterator[str]:
    """Yield a table of metrics. ``common``: the labels that all of them have. ``place`` begins
    their anchors.
    """
    yield from ("| metric | type, unit | what it is, and its labels |", "|---|---|---|")
    for metric in metrics:
        labels: dict[str, dict[str, None]] = {}
        for sample in metric.samples:
            for label in sorted(sample.labels.keys() - {*common, "le"}):
                labels.setdefault(label, {})[sample.labels[label]] = None
        about = metric.documentation.rstrip(".")
        for label, values in labels.items():
            about += f"; `{label}`" + (f": {', '.join(values)}" if len(values) > 1 else "")
        name = metric.name + _ENDINGS.get(metric.type, "")
        kind = f"{metric.type}, {metric.unit}" if metric.unit else metric.type
        yield f'| <a id="{place}-{name}"></a>`{name}` | {kind} | {_cell(about)} |'


def _errors() -> Iterator[str]:
    before = None
    for group in ERRORS:
        place = f"In {group.where}. Exit code: {group.exit_code}."
        yield from ("", f"### {group.title}", "")
        yield "The same." if place == before else place
        before = place
        yield from ("", "| code | what happened | what to do |", "|---|---|---|")
        for code, text in group.codes.items():
            first = texts_of(code)[0][0] is group  # the anchor of a code in two groups
            anchor = f'<a id="error-{code}"></a>' if first else ""
            code_of_exit = f" Exit code {text.exit_code}." if text.exit_code else ""
            yield f"| {anchor}`{code}` | {_cell(text.happened)}{code_of_exit} | {_cell(text.fix)} |"


def _exit_codes() -> Iterator[str]:
    """Yield the table of the exit codes, and what they mean for single commands."""
    yield from ("| exit code | means |", "|---|---|")
    for code, text in MEANINGS.items():
        yield f"| {code} | {_cell(text)} |"
    yield from ("", "For these commands a code means more:", "")
    yield from ("| command | exit code | means |", "|---|---|---|")
    for command, codes in OF_COMMANDS.items():
        for code, text in codes.items():
            yield f"| `{command}` | {code} | {_cell(text)} |"


def _findings() -> Iterator[str]:
    for group in FINDINGS:
        yield from ("", f"### {group.title}", "")
        yield from ("| code | severity | what it means | what to do |", "|---|---|---|---|")
        for code, text in group.codes.items():
            cells = (text.severity, _cell(text.happened), _cell(text.fix))
            yield f'| <a id="finding-{code}"></a>`{code}` | {" | ".join(cells)} |'


_COUNTED: Final = ("Counters", "Report")
"""What a program reads the fields of; eventlog itself calls the methods."""


_METHODS_OF_OURS: Final = ("class_report", "leave_out")
"""Public methods that only eventlog calls."""


def _interface(package: ModuleType, before: str = "") -> Iterator[str]:
    """Yield the public names of a package, each with its signature and its docstring. ``before``
    begins the headings.
    """
    for name in package.__all__:
        public = getattr(package, name)
        if issubclass(type(public), type) and issubclass(public, Exception):
            yield from (
                f"### {before}{name}",
                "",
                f"[`{public.code}`]({CODES}#error-{public.code}). {_prose(public)}",
                "",
            )
            continue
        if not inspect.isclass(public):
            yield from (
                f"### {before}{name}",
                "",
                f"```text\n{name}{_signature(public)}\n```",
                "",
                _prose(public),
                "",
            )
            continue
        yield from (f"### {before}{name}", "", _prose(public), "")
        for member, value in () if name in _COUNTED else vars(public).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if (
                member.startswith("_")
                or member in _METHODS_OF_OURS
                or not inspect.isfunction(function)
            ):
                continue
            shown = (
                f".{member}"
                if isinstance(value, property)
                else f".{member}{_signature(getattr(public, member))}"
            )
            yield from (f"```text\n{name}{shown}\n```", "", _prose(function), "")
        if issubclass(public, Enum):
            yield from (
                f"Members: {', '.join(f'`{member}`' for member in public.__members__)}.",
                "",
            )
        elif fields := list(
            getattr(public, "_fields", getattr(public, "__dataclass_fields__", ()))
        ):
            texts = {
                field: text
                for kind in reversed(public.__mro__)
                if kind.__module__.startswith("eventlog")
                for node in ast.parse(dedent(inspect.getsource(kind))).body
                for field, text in _field_texts(node).items()
            }
            if not texts:
                yield from (f"Fields: {', '.join(f'`{field}`' for field in fields)}.", "")
                continue
            yield from ("Fields:", "")
            for has_text, some in groupby(fields, texts.__contains__):
                if not has_text:
                    yield f"- {', '.join(f'`{field}`' for field in some)}"
                    continue
                for field in some:
                    yield f"- `{field}`: {' '.join(texts[field].split()).replace('``', '`')}"
            yield ""


def _field_texts(node: ast.AST) -> dict[str, str]:
    """Return the docstrings of the fields of a class, by the names of the fields."""
    texts = {}
    for field, text in pairwise(getattr(node, "body", ())):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(said))),
            ):
                texts[name] = said
    return texts


def _signature(function: Callable[..., object]) -> str:
    shown = re.sub(r"^\(self(, )?", "(", str(inspect.signature(function)).replace("'", ""))
    return shown.replace(" | None = None", " = None")


def _prose(public: object) -> str:
    """Return a docstring as Markdown."""
    text = cleandoc(public.__doc__ or "").replace("``", "`")
    return (
        text
        if text and not text.startswith(f"{getattr(public, '__name__', '')}(")
        else "A tuple by names."
    )


_REFERENCE: Final = re.compile(
    r"((?:spec|formats)/[a-z-]+\.md)((?:[ ,]*(?:and )?\d+(?:\.\d+)*(?![\w/]))*)"
)
_UNBUILT: Final = {
    ("formats/gbase-cdc.md", "5"): "tests/conformance/vectors/gbase.json",
    ("formats/qlik.md", "2.3"): "tests/conformance/vectors/qlik.json",
}
"""Sections that no function holds, and where they are instead."""


_ROOMY: Final = ("publisher", "sql", "spark", "cli", "core", "qlik")
"""The packages whose folders each hold one idea."""


def _rooms() -> Iterator[str]:
    """Yield a table of the rooms of each package, with the first sentence of each docstring; where
    they are layers, the lowest first.
    """
    contracts = tomllib.loads((ROOT / "rooms.toml").read_text(encoding="utf-8"))["tool"]
    layers = {
        contract["containers"][0].removeprefix("eventlog."): [
            name for layer in reversed(contract["layers"]) for name in layer.split(" | ")
        ]
        for contract in contracts["importlinter"]["contracts"]
    }
    yield from ("| room | content | modules |", "|---|---|---|")
    for package in _ROOMY:
        place = ROOT / "eventlog" / package
        names = {path.stem for path in place.glob("[a-z]*.py")}
        folders = {path.parent.name for path in place.glob("[a-z]*/__init__.py")}
        names = names | folders if package in layers else folders
        for name in layers.get(package, sorted(names)):
            room = place / name
            inside = sorted(
                {path.stem for path in room.glob("[a-z]*.py")}
                | {path.parent.name for path in room.glob("[a-z]*/__init__.py")}
            )
            path = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
            shown = f"{package}/{name}" + ("" if room.is_dir() else ".py")
            modules = ", ".join(f"`{one}`" for one in inside)
            yield f"| `{shown}` | {_cell(_first_sentence(path))} | {modules} |"


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = re.sub(r"\s+\([a-z]+/[^)]*\)", "", text)  # the section of the specification
    first = re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
    sentence = " ".join(first.replace("``", "`").split()).rstrip(".")
    head = re.split(r"[:;] |, (?:for|with|which|so that|found|run) ", sentence, maxsplit=1)[0]
    return head if len(head.split()) >= _TELLING else sentence


_TELLING: Final = 4
"""Words from which on the part of a sentence before its colon is enough."""


def _rules() -> Iterator[str]:
    """Yield the sections of the specification, each with the first place of the code whose
    docstring refers to it.
    """
    holders = _holders()
    docs = ROOT / "docs"
    pages = [*(docs / "spec").glob("*.md"), *(docs / "formats").glob("*.md")]
    for page in sorted(pages, key=lambda page: page.name):
        place = f"{page.parent.name}/{page.name}"
        sections = re.findall(
            r"(?m)^#{2,4} (\d+(?:\.\d+)*)\.? (.*)$", page.read_text(encoding="utf-8")
        )
        if not sections:
            continue
        yield from (f"### {page.name}", "")
        for number, title in sections:
            where = holders.get((place, number), [])
            below = [section for section, _ in sections if section.startswith(f"{number}.")]
            if (place, number) in _UNBUILT:
                words = _UNBUILT[place, number]
            elif where:
                words = f"`{where[0]}`"
            elif below:
                continue
            else:
                raise SystemExit(f"docs/{place} {number} {title}: no docstring refers to it")
            yield f"- `{number}` {re.sub(r'[*`]', '', title).strip()}: {words}"
        yield ""


def _holders() -> dict[tuple[str, str], list[str]]:
    """By page and section: the modules, classes and functions whose docstrings refer to it, or the
    texts of whose fields; functions first.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    modules: dict[tuple[str, str], dict[str, None]] = {}
    for file in sorted((ROOT / "eventlog").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
                continue
            texts = _field_texts(node).values() if isinstance(node, ast.ClassDef) else ()
            said = " ".join([ast.get_docstring(node) or "", *texts])
            is_module = isinstance(node, ast.Module)
            name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
            for page, numbers in _REFERENCE.findall(re.sub(r"\s+", " ", said)):
                for number in re.findall(r"\d+(?:\.\d+)*", numbers):
                    (modules if is_module else found).setdefault((page, number), {})[
                        name.removeprefix("eventlog.")
                    ] = None
    return {
        key: [*found.get(key, ()), *modules.get(key, ())] for key in found.keys() | modules.keys()
    }


def _escaped(text: str) -> str:
    """Return text outside a table, with what Markdown would take for HTML escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts)


def _cell(text: str) -> str:
    """Text for a cell of a table, as every kind of Markdown shows it: a bar within code needs
    HTML's own elements.
    """
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [part.replace("<", "&lt;").replace("|", "\\|") for part in parts[::2]]
    parts[1::2] = [
        f"<code>{escape(part.strip('`')).replace('|', '&#124;')}</code>" if "|" in part else part
        for part in parts[1::2]
    ]
    return "".join(parts)


def _cells() -> Iterator[str]:
    """Yield a table of what is followed: the sinks of each source and format, and the reasons for
    those that are refused. Sources with the same cells are in one row.
    """
    yield from ("| format | from | sinks | not to |", "|---|---|---|---|")
    for name in names(FORMATS):
        format = format_named(name)
        if not format.can("publish"):
            continue
        sources: dict[str, list[str]] = {}
        for source in names(SOURCES):
            sources.setdefault(_sink_cells(source, format), []).append(f"`{source}`")
        for cells, some in sources.items():
            yield f"| `{name}` | {', '.join(some)} | {cells} |"


def _sink_cells(source: str, format: Format) -> str:
    """Return two cells: the sinks to which a source is published in a format, and the others with
    the reasons.
    """
    kind = source_named(source)()
    refusals = {sink: refusal_of(kind, format, sink) for sink in names(SINKS)}
    takes = ", ".join(f"`{sink}`" for sink, why in refusals.items() if why is None)
    reasons: dict[str, list[str]] = {}
    for sink, why in refusals.items():
        if why is not None:
            reasons.setdefault(why, []).append(sink)
    texts = (
        f"{', '.join(f'`{sink}`' for sink in sinks)}: {_cell(why)}"
        for why, sinks in reasons.items()
    )
    return f"{takes or 'none'} | {'; '.join(texts)}"


# --- what the trigger functions of PostgreSQL log -------------------------------------------------

_TRIGGER_EXAMPLE: Final = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "primary_key": ["id"],
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "name", "type": "text"},
                {"name": "price", "type": "numeric"},
            ],
        },
        {
            "name": "item_tag",
            "kind": "table",
            "primary_key": ["id", "tag"],
            "columns": [{"name": "id", "type": "integer"}, {"name": "tag", "type": "text"}],
            "foreign_keys": [{"columns": ["id"], "table": "item", "ref_columns": ["id"]}],
        },
    ],
}

_TRIGGER_PARTS: Final = {
    ("class", "row"): {
        "delete": ("IF TG_OP = 'DELETE' THEN", "    RETURN NULL;\n    ELSIF"),
        "truncate": ("ELSIF TG_OP = 'TRUNCATE' THEN", "    RETURN NULL;\n    END IF;"),
        "update": ("IF TG_OP = 'UPDATE' THEN", "END IF;\n\n    INSERT"),
        "insert": ("END IF;\n\n(?=    INSERT)", "RETURN NULL;\nEND"),
    },
    ("class", "statement"): {
        "delete": ("IF TG_OP = 'DELETE' THEN", "    RETURN NULL;\n    ELSIF"),
        "insert": ("ELSIF TG_OP = 'INSERT' THEN", "    RETURN NULL;\n    ELSIF"),
        "update": ("ELSIF TG_OP = 'UPDATE' THEN", "    RETURN NULL;\n    END IF;"),
    },
    ("child", "row"): {
        "truncate": ("IF TG_OP = 'TRUNCATE' THEN", "    RETURN NULL;\n    END IF;"),
        "delete": ("IF TG_OP = 'DELETE' THEN", "    RETURN NULL;\n    END IF;"),
        "update": ("IF TG_OP = 'UPDATE' THEN", "    RETURN NULL;\n    END IF;"),
        "insert": ("END IF;\n\n(?=    IF new_key)", "RETURN NULL;\nEND"),
    },
}
"""By template of a body and capture, the operations, each with the expressions of what comes before
and after it.
"""


def _triggers() -> Iterator[str]:
    """Yield what the templates of ``trigger_templates`` render: by row for a table and its child
    table, by statement for the table.
    """
    for capture in ("row", "statement"):
        yield from ("", f"### By {capture}")
        functions = dict(zip(("class", "child"), _trigger_functions(capture), strict=True))
        for kind, function in functions.items():
            for operation, (before, behind) in _TRIGGER_PARTS.get((kind, capture), {}).items():
                name = (
                    f"{kind}_{operation}.sql.j2"
                    if operation == "truncate"
                    else f"{kind}_{operation}_by_{capture}.sql.j2"
                )
                found = re.search(f".*\n    {before}(.*?)\n    {behind}", function, re.DOTALL)
                if found is None:
                    raise SystemExit(f"{name}: its part of the function is not found")
                text = dedent(found[1]).strip("\n").replace(_LOG_COLUMNS, "(...)")
                yield from ("", f"`{name}`", "", "```sql", text, "```")


_LOG_COLUMNS: Final = (
    '("status", "event_type", "event_time", "perpetrator", "table_name", "table_key", '
    '"column_name", "old_value", "new_value")'
)
"""The columns of the log in an INSERT, which the page shows once."""


def _trigger_functions(capture: str) -> list[str]:
    """Return the texts of the trigger functions of the example, captured by row or by statement."""
    with (
        TemporaryDirectory() as directory,
        redirect_stdout(StringIO()) as script,
        redirect_stderr(StringIO()) as said,
    ):
        catalog, config = Path(directory, "catalog.json"), Path(directory, "eventlog.toml")
        catalog.write_text(json.dumps(_TRIGGER_EXAMPLE), encoding="utf-8")
        config.write_text(
            f'[[watch]]\ntable = "item"\ntrigger_level = "{capture}"\n', encoding="utf-8"
        )
        command = [
            "triggers",
            "list",
            "--sql",
            "--dialect",
            "postgresql",
            "--catalog",
            str(catalog),
        ]
        if cli.run(["--config", str(config), *command]):
            raise SystemExit(f"`eventlog triggers list` of the example: {said.getvalue()}")
    return re.findall(
        r"RETURNS pg_catalog\.trigger\n.*?AS \$eventlog\$(.*?)\$eventlog\$",
        script.getvalue(),
        re.DOTALL,
    )


_LETTERS: Final = {
    Right.SELECT: "S",
    Right.INSERT: "I",
    Right.UPDATE: "U",
    Right.DELETE: "D",
    Right.MARK: "U (status)",
    Right.REWRITE: "U (event_type, old_value)",
    Right.DRAW: "draws",
    Right.LOCK: "locks",
}
_RIGHTS_OF: Final = {
    Part.LOG: "log",
    Part.ERROR: "`_error`",
    Part.INFLIGHT: "`_inflight`",
    Part.STATE: "`_state`",
    Part.EPOCH: "`_epoch`",
    Part.CONSUMER: "`_consumer`",
    Part.CAPTURED: "`_captured`",
    Part.RESYNC: "`_resync`",
    Part.DEFERRED: "`_deferred`",
    Part.VERSION: "`_version`",
    Part.NUMBERS: "delivery numbers",
    Part.WRITERS: "open writers",
    Part.RECORD_IDS: "record_ids",
    Part.CLASSES: "tables",
    Part.TABLES: "tables with child tables",
}


def _rights() -> Iterator[str]:
    yield f"| `--purpose` | for | {' | '.join(_RIGHTS_OF.values())} |"
    yield "|---" * (2 + len(_RIGHTS_OF)) + "|"
    for purpose in Purpose:
        rights = rights_for(purpose, Addition.POSITION, Addition.SUPERSEDE)
        cells = [_shown_rights(rights.get(part, ())) for part in _RIGHTS_OF]
        yield f"| `{purpose}` | {purpose.work} | {' | '.join(cells)} |"


def _shown_rights(rights: Collection[Right]) -> str:
    """Return rights for a cell: letters in one word, such as SIU, then those that need words."""
    shown = [text for right, text in _LETTERS.items() if right in rights]
    letters = "".join(text for text in shown if len(text) == 1)
    return ", ".join(filter(None, [letters, *(text for text in shown if len(text) > 1)]))


def _grants() -> Iterator[str]:
    """Yield what `eventlog grants publisher` prints on PostgreSQL for the example of the page, with
    names unquoted.
    """
    dialect = dialect_of("postgresql+psycopg://")
    log = LogTable("hr", "eventlog", LOG_COLUMNS)
    yield from ("```sql", "GRANT USAGE ON SCHEMA hr TO publisher;")
    for part, rights in rights_for(Purpose.PUBLISHER).items():
        if part in (Part.TABLES, Part.RECORD_IDS, Part.WRITERS):
            continue
        kind = "SEQUENCE " if part is Part.NUMBERS else ""
        granted = dialect.granted(log, part, rights).replace('"', "")
        yield f"GRANT {granted} ON {kind}hr.{name_of(log, part)} TO publisher;"
    yield "GRANT SELECT ON SEQUENCE hr.eventlog_record_id_seq TO publisher;"
    yield "GRANT SELECT ON hr.usr, hr.usr_phone, hr.grp, hr.grp_member TO publisher;"
    yield "```"


_COMMENT: Final = re.compile(
    r"""COMMENT ON (TABLE|COLUMN) "shop_log(\w*)"(?:\."?(\w+)"?)? IS '((?:[^']|'')*)';"""
)
"""A comment in the SQL that makes a log ``shop_log``, with its kind, the table, the column and the
text.
"""


def _tables(*, internal: bool) -> Iterator[str]:
    """Yield the columns of the log, or of its internal tables, as their comments describe them."""
    script = StringIO()
    migrations.upgrade(None, log_table="shop_log", dialect_name="postgresql", sql=script)
    comments = _COMMENT.findall(script.getvalue())
    tables = list(dict.fromkeys(table for _, table, _, _ in comments))
    # A later revision adds columns after all tables.
    for kind, table, column, text in sorted(comments, key=lambda one: tables.index(one[1])):
        if bool(table) is not internal:
            continue
        words = text.replace("''", "'").replace("shop_log", "the log")
        if kind == "TABLE":
            yield from ("", f"### `<log>{table}`", "") if internal else ()
            yield from (f"{words}.", "", "| column | holds |", "|---|---|")
        else:
            yield f"| `{column}` | {_cell(words)} |"


def _key_errors() -> Iterator[str]:
    """Yield the errors of a table_key, each with vectors whose offsets differ."""
    file = ROOT / "tests" / "conformance" / "vectors" / "table_key.json"
    examples: dict[str, dict[int, str]] = {}
    for vector in json.loads(file.read_text(encoding="utf-8"))["invalid"]:
        text = re.sub(r"[\0-\x1f]", lambda found: chr(0x2400 + ord(found[0])), vector["text"])
        names = ", ".join(name for name, _ in vector.get("key_columns", ()))
        shown = f"`{text.replace(chr(127), chr(0x2421))}`" if text.strip() else "blanks"
        of = examples.setdefault(vector["error"], {})
        of.setdefault(vector["offset"], f"{shown} (key {names})" if names else shown)
    yield from ("| error | examples: offset |", "|---|---|")
    for error, texts in examples.items():
        found = [f"{text}: {offset}" for offset, text in texts.items()]
        yield f"| {error} | {'; '.join(found[:_MAX_EXAMPLES])} |"


_MAX_EXAMPLES: Final = 2


PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "settings": _settings,
    "formats": _formats,
    "commands": _commands,
    "metrics": _metrics,
    "conditions": _conditions,
    "job_metrics": _job_metrics,
    "status_members": _status_members,
    "errors": _errors,
    "exit_codes": _exit_codes,
    "findings": _findings,
    "interface": partial(_interface, eventlog),
    "verification": partial(_interface, eventlog.verify, "eventlog.verify."),
    "spark": partial(_interface, eventlog.spark),
    "rooms": _rooms,
    "change_options": partial(_options, _plain(CHANGE_OPTIONS), "eventlog-changes"),
    "rules": _rules,
    "cells": _cells,
    "triggers": _triggers,
    "rights": _rights,
    "grants": _grants,
    "log": partial(_tables, internal=False),
    "internal_tables": partial(_tables, internal=True),
    "key_errors": _key_errors,
    "payload_insert": partial(formats_reference.payload, "insert"),
    "payload_update": partial(formats_reference.payload, "update"),
    "payload_new_key": partial(formats_reference.payload, "new_key"),
    "payload_delete": partial(formats_reference.payload, "delete"),
    "types": formats_reference.types,
    "column_types": formats_reference.column_types,
    "type_names": formats_reference.type_names,
    "losses": formats_reference.losses,
    "gbase_records": formats_reference.gbase_records,
    "gbase_values": formats_reference.gbase_values,
    "qlik_values": formats_reference.qlik_values,
    "position_tables": formats_reference.position_tables,
}


def pages() -> list[Path]:
    """Return the files that may have generated parts."""
    return [*sorted((ROOT / "docs").rglob("*.md")), TRIGGER_SQL]


def main() -> None:
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := written(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
