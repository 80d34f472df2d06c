"""The documentation as a whole: links lead somewhere, configurations can be read, commands
exist.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from documents import ROOT, fenced, runnable, shown_output
from processes import command_in
from shared import free_port

from eventlog import cli
from eventlog.config.load import load
from eventlog.conversion import read_map
from eventlog.publisher.monitor.status import shape

DOCS = ROOT / "docs"
SPECIFICATION = (DOCS / "spec", DOCS / "formats")
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if page.parent != DOCS / "spec"),
]
ids = [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file_of_the_tree(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [
        link
        for link in links
        if link[1] not in anchors(page if not link[0] else page.parent / link[0])
    ] == []


def anchors(page: Path) -> set[str]:
    """What headings and entries are called in links."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    entries = set(re.findall(r'<a id="([^"]+)"></a>', text))
    return entries | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


BY_HAND, GENERATED = 69_150, 29_400
"""The most words of the pages of docs/, without and within their generated parts, code included:
what has a letter or a digit, so that the bars of a table are none. README has its own limit. Only
lower them.
"""


def test_the_pages_have_no_more_words_than_they_had() -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    block = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["BLOCK"]
    by_hand = sum(words(block.sub("", text)) for text in texts)
    generated = sum(map(words, texts)) - by_hand
    assert (by_hand <= BY_HAND, generated <= GENERATED) == (True, True), (by_hand, generated)


def words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_the_readme_is_short_and_names_a_dozen_pages() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    section = text.partition("## Where to read on\n")[2]
    listed = re.findall(r"\]\(([^)]+)\)", section)
    assert len(set(listed)) == len(listed) <= 14  # and the licence


def test_the_event_of_the_readme_is_one_that_the_code_writes() -> None:
    payloads = (DOCS / "formats" / "payloads.md").read_text(encoding="utf-8")
    (event,) = fenced(PAGES[0], "json")
    assert event in payloads


# --- versions -------------------------------------------------------------------------------------


def versions(column: str) -> dict[str, list[str]]:
    """A column of the table of versions (docs/reference/tables.md), which says them once, by what they are
    of.
    """
    text = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.partition("## Versions\n")[2].partition("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    place = rows[0].index(column)
    return {row[0]: re.findall(r"\d+(?:\.\d+)*", row[place]) for row in rows[2:]}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_page_that_names_tested_versions_names_those_of_the_table(page: Path) -> None:
    tested = versions("tested")
    text = page.read_text(encoding="utf-8")
    for name, listed in re.findall(
        r"(Python|PostgreSQL|SQLite|Oracle)[^.(\n]*\(tested: ([^)]+)\)", text
    ):
        assert re.findall(r"\d+(?:\.\d+)*", listed) == tested[name]
    assert re.findall(r"(?:has run on|tried on|tested on) (?:PostgreSQL )?\d", text) == []


def test_the_needed_versions_are_the_least_that_a_page_or_the_package_takes() -> None:
    needed = versions("needed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={needed['Python'][0]}"
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, version in re.findall(
            r"(Python|PostgreSQL|SQLite) (\d+(?:\.\d+)*) or later", text
        ):
            assert version == needed[name][0], page.name


def test_the_package_names_the_versions_of_python_that_the_workflows_run_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    named = [one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)]
    assert named == versions("in the workflows")["Python"]
    assert set(versions("tested")["Python"]) <= set(named)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_configuration_can_be_read(page: Path, tmp_path: Path) -> None:
    (tmp_path / "monitor-tokens").write_text(f"anna:{'4f' * 16}\n")  # a file that a page names
    for number, text in enumerate(fenced(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        if text.startswith("# map.toml"):  # options of a format, for --options
            read_map(file)
        else:
            load(file, {})


def test_every_reference_to_the_specification_leads_to_a_section() -> None:
    sections = {
        f"{folder.name}/{page.name}": set(
            re.findall(r"(?m)^#{2,4} (\d+(?:\.\d+)*)", page.read_text(encoding="utf-8"))
        )
        for folder in SPECIFICATION
        for page in folder.glob("*.md")
    }
    sources = [
        file
        for folder in ("eventlog", "spark", "tests", "bench", "scripts")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".sql", ".j2"}
    ]
    references = [
        (file.name, page, section)
        for file in sources
        for page, tail in re.findall(
            r"((?:spec|formats)/[a-z-]+\.md)((?:[ ,]*(?:and )?\d+(?:\.\d+)*(?![\w/]))*)",
            re.sub(r"\s+", " ", file.read_text(encoding="utf-8")),
        )
        for section in re.findall(r"\d+(?:\.\d+)*", tail) or [""]
    ]
    assert len(references) > 700
    assert [
        one
        for one in references
        if one[2] not in {"", *sections.get(one[1], ())} or one[1] not in sections
    ] == []


def commands(page: Path) -> list[list[str]]:
    """The command lines of ``eventlog`` in the shell blocks of a page, and in its text."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line for block in fenced(page, "sh") for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`(eventlog [^`|]*)`", re.sub(r"(?s)```.*?```", "", text))
    parts = [part.strip().partition(" | ")[0] for line in lines for part in line.split("&&")]
    return [shlex.split(part, comments=True)[1:] for part in parts if part.startswith("eventlog ")]


MAP = (ROOT / "docs" / "developers" / "architecture.md").read_text(encoding="utf-8")
PLACES = re.findall(
    r"^\| (.+?) \| (.+) \|$", MAP.partition("## Where is")[2].partition("\n## ")[0], re.MULTILINE
)[2:]


@pytest.mark.parametrize(("what", "where"), PLACES, ids=[what for what, _ in PLACES])
def test_the_map_names_what_is_in_the_files_that_it_names(what: str, where: str) -> None:
    words = re.findall(r"`([^`]+)`", where)
    paths = [
        path
        for word in words
        for folder in ("eventlog", "", "eventlog/sql/dialects/postgresql")
        for path in [ROOT / folder / word.replace("<database>", "postgresql")]
        if path.exists()
    ]
    assert paths, what
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    defined = {name for file in files for name in names_defined_in(file)}
    names = [
        word
        for word in words
        if re.fullmatch(r"\w+(\.\w+)?", word) and not word.endswith((".py", ".sql"))
    ]
    assert [name for name in names if name.rpartition(".")[2] not in defined] == []


FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("eventlog", "tests", "scripts", "bench", "docs", "examples")
    for path in (ROOT / folder).rglob("*.*")
]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/.-]+\.(?:py|sql|j2))`", MAP))))
def test_the_architecture_names_no_file_that_does_not_exist(name: str) -> None:
    assert any(f"/{path}".endswith(f"/{name}") for path in FILES)


INVARIANTS = re.findall(
    r"^\| (.+) \| (.+?) \| (`test_.+?) \|$",
    MAP.partition("## Invariants of the publisher")[2].partition("\n## ")[0],
    re.MULTILINE,
)


@pytest.mark.parametrize(("where", "tests"), [row[1:] for row in INVARIANTS])
def test_each_invariant_names_code_and_tests_that_exist(where: str, tests: str) -> None:
    words = re.findall(r"`([^`]+)`", where)
    files = [ROOT / "eventlog" / word for word in words if word.endswith(".py")]
    defined = {name for file in files for name in names_defined_in(file)}
    names = [word.rpartition(".")[2] for word in words if not word.endswith(".py")]
    assert names
    assert [name for name in names if name not in defined] == []
    assert [one for one in re.findall(r"`([^`]+)`", tests) if one not in all_tests()] == []


@cache
def all_tests() -> frozenset[str]:
    """The names of all test functions."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"(?m)^def (test_\w+)", text))


@cache
def names_defined_in(file: Path) -> frozenset[str]:
    """The names that a file defines: functions, classes, parameters, variables, members, and the
    statements of SQL. A name that a module only imports is none.
    """
    if file.suffix == ".sql":
        return frozenset(re.findall(r"(?m)^-- name: (\w+)", file.read_text(encoding="utf-8")))
    if file.suffix != ".py":
        return frozenset({file.stem})
    names = {file.stem}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Constant(value=str(name)):
                names.add(name)  # an option, a key of a table
    return frozenset(names)


@pytest.mark.parametrize(
    "module",
    sorted(
        path.relative_to(ROOT / "eventlog" / "publisher").with_suffix("").as_posix()
        for path in (ROOT / "eventlog" / "publisher").glob("*/[a-z]*.py")
    ),
)
def test_the_map_leads_to_each_module_of_the_publisher(module: str) -> None:
    room, _, name = module.partition("/")
    (row,) = re.findall(rf"(?m)^\| `publisher/{room}` \|.*$", MAP)
    assert f"`{name}`" in row


def test_the_walk_of_one_row_names_what_is_there() -> None:
    walk = MAP.partition("## The way of one row")[2].partition("\n## ")[0]
    for name in re.findall(r"`(\w+\.[\w.]+)`", walk):
        path = ROOT / "eventlog" / name.replace(".", "/")
        if name.endswith((".py", ".sql")) or path.is_dir() or path.with_suffix(".py").exists():
            continue
        module = (
            path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
        )
        assert re.search(
            rf"^(?:def|class) {path.name}\b", module.read_text(encoding="utf-8"), re.MULTILINE
        ), name


def test_the_pages_show_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_its_options_exist(page: Path) -> None:
    for words in commands(page):
        command: click.Command = cli.cli
        rest = words
        context: click.Context | None = None
        while isinstance(command, click.Group):
            context = click.Context(command, parent=context)
            _, rest, _ = command.make_parser(context).parse_args(rest)
            assert rest, words
            found = command.get_command(context, rest[0])
            assert found is not None, words
            command, rest = found, rest[1:]
        with contextlib.suppress(click.BadOptionUsage):  # an option without its value, in the text
            command.make_parser(click.Context(command, parent=context)).parse_args(rest)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that is empty, with a path that is short enough for the socket of a database."""
    with tempfile.TemporaryDirectory(prefix="el-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda p: p.name)
def test_a_page_that_writes_a_configuration_begins_in_an_empty_directory(page: Path) -> None:
    """A reader comes from the directory of another page, whose configuration and database are
    there.
    """
    before, _, blocks = page.read_text(encoding="utf-8").partition("<!-- runs -->")
    if "eventlog.toml" in blocks.partition("\n## ")[0]:
        assert re.search(r"empty\s+directory|^mkdir | && mkdir ", before, re.MULTILINE)


_LONG = ("changes-of-an-application.md", "convert-a-backlog.md", "consumers.md")
"""Pages whose blocks start Spark, or many processes: they run at night."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.night] if page.name in _LONG else [])
        for page in PAGES
        if runnable(page)
    ],
    ids=lambda page: page.name,
)
def test_blocks_that_need_nothing_run_and_print_what_the_page_shows(
    page: Path, directory: Path, tmp_path: Path
) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    # A block of a long page ends by a signal what it has started.
    inherited = [] if page.name in _LONG else command_in(commands)
    path = os.pathsep.join(map(str, (commands, Path(sys.executable).parent, os.environ["PATH"])))
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")
    } | {"PATH": path}
    port = str(free_port())
    output, sessions = tmp_path / "output", []
    try:
        with output.open("w") as file:  # no pipe: what runs in the background would hold it open
            for language, text in runnable(page):
                text = text.replace("8080", port)
                command = (
                    [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", text]
                )
                block = subprocess.Popen(
                    command,
                    cwd=directory,
                    env=environ,
                    stdout=file,
                    stderr=file,
                    pass_fds=inherited,
                    start_new_session=True,
                )
                sessions.append(block.pid)
                assert block.wait() == 0, output.read_text(encoding="utf-8")
    except BaseException:  # a page ends what it starts, if it comes to its end
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGTERM)
        raise
    printed = output.read_text(encoding="utf-8")
    promised = [shown for shown in fenced(page, "xml") if shown.startswith("<?xml")] + shown_output(
        page
    )
    assert [shown for shown in promised if shown not in printed] == []


def test_the_reference_is_generated_from_the_code() -> None:
    reference = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
    written = reference["written"]
    old = [
        page.name
        for page in reference["pages"]()
        if written(text := page.read_text(encoding="utf-8")) != text
    ]
    assert old == [], "run `make reference`"


def test_every_place_to_link_to_is_there_once() -> None:
    for page in PAGES:
        entries = re.findall(r'<a id="([^"]+)"></a>', page.read_text(encoding="utf-8"))
        assert len(entries) == len(set(entries)), page.name


def test_every_finding_of_doctor_is_explained() -> None:
    files = [
        ROOT / "eventlog" / "publisher" / "inspect" / "doctor.py",
        *(ROOT / "eventlog" / "sql" / "doctor").glob("*.py"),
    ]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    codes = set(re.findall(r'\b(?:Finding|error|warning|info)\(\s*"(\w+)"', sources))
    page = (ROOT / "docs" / "reference" / "codes.md").read_text(encoding="utf-8")
    assert len(codes) > 30
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_every_message_that_the_quick_start_explains_is_one() -> None:
    page = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "eventlog").rglob("*.py")
    )
    explained = re.findall(r"(?m)^\| (`.*?) \|", page)
    messages = {message for cell in explained for message in re.findall("`([^`]+)`", cell)}
    of_the_database = {
        "no password supplied",
        "password authentication failed",
        "permission denied",
    }
    assert len(messages) > 10
    assert sorted(message for message in messages - of_the_database if message not in sources) == []


def test_the_reference_explains_each_member_of_status_json() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    section = page.partition("## status.json\n")[2].partition("\n## ")[0]
    table = re.findall(r"(?m)^\| (`.*?) \| (?:both|process|command) \|", section)
    explained = [name for cell in table for name in re.findall("`([^`]+)`", cell)]
    assert sorted(explained) == sorted(shape())
