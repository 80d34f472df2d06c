"""Names of formats, sinks and sources: ours, and what packages bring by entry points
(docs/developers/extend.md).
"""

from __future__ import annotations

import logging
from io import StringIO
from pathlib import Path

import click
import pytest
from installed_package import Install
from shared import Run

from eventlog import cli, registry
from eventlog.changes.format import Format
from eventlog.cli.begin.settings import template
from eventlog.config.effective import effective
from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.model import Answer, Document
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.registry import FORMATS, SINKS, SOURCES, check_name, format_named, installed, names

FORMAT = """
from eventlog.changes.format import Format
class Acme(Format):
    name = {name!r}
    title = "what ACME sends"
FORMAT = Acme()
"""


def test_every_name_of_ours_leads_to_what_bears_it() -> None:
    for group in (FORMATS, SINKS, SOURCES):
        assert [found.name for _, found in installed(group)] == list(names(group))


def test_a_format_of_a_package_is_found_by_its_name(install: Install) -> None:
    install("acme-msg", "acme_msg", FORMAT.format(name="acme"), formats="acme = acme_msg:FORMAT")
    assert isinstance(format_named("acme"), Format)
    assert names(FORMATS)[-1] == "acme"
    check_name(FORMATS, "acme")


def test_names_of_ours_are_known_without_looking_through_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        registry, "installed_entries", lambda group: pytest.fail("packages were looked through")
    )
    check_name(FORMATS, "debezium")
    assert format_named("debezium").name == "debezium"


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        (
            FORMATS,
            "cloudevnts",
            "format 'cloudevnts' is not known; the nearest known one is cloudevents",
        ),
        (
            FORMATS,
            "messagepack",
            "install the package eventlog-messagepack, which provides messagepack",
        ),
        (SINKS, "sqlite", "install the package eventlog-sqlite-sink, which provides sqlite"),
        (SINKS, "xds", "xds is the name of a format"),
    ],
)
def test_for_an_unknown_name_the_nearest_one_and_its_package_are_suggested(
    group: str, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_name(group, name)


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_a_format_that_cannot_be_published_is_answered_with_those_that_can(
    run: Run, name: str
) -> None:
    able = "formats that can be published are xds, qlik-messages, cloudevents, debezium"
    for arguments in (["publish", "--format", name], ["--set", f"format.type={name}", "publish"]):
        code, _, err = run("--database-url", "sqlite:///none.db", *arguments)
        assert (code, able in err, "nearest" in err) == (2, True, False)


SINK = """
from dataclasses import dataclass
from eventlog.core.options import TEXT, integer, option
from eventlog.model import Answer
from eventlog.publisher.sinks import Sink

@dataclass(frozen=True)
class Options:
    queue: str | None = option(None, TEXT, "name of the queue", example="changes")
    lanes: int = option(1, integer(1, 8), "lanes to drive on")
    pin: str | None = option(None, TEXT, "a secret", secret=True)

class Acme(Sink):
    name = "acme"
    title = "ACME's queue"
    options = Options
    needs = {"queue": "where documents go"}
    sent = []
    def __init__(self, options):
        self.options_of_mine = options
    @classmethod
    def open(cls, options, opening):
        return cls(options)
    def send(self, document):
        self.sent.append(document.body)
        return Answer()
"""


def test_options_of_a_sink_of_a_package_are_like_ours(install: Install, tmp_path: Path) -> None:
    install("acme-queue", "acme_queue", SINK, sinks="acme = acme_queue:Acme")
    text = '[sink]\ntype = "acme"\nqueue = "q"\nurl = "https://of.another.type/"\n'
    (tmp_path / "eventlog.toml").write_text(text)
    config = load(
        tmp_path / "eventlog.toml", {"EVENTLOG_SINK_LANES": "3", "EVENTLOG_SINK_PIN": "1234"}
    )
    assert (config.sink.options.queue, config.sink.options.lanes) == ("q", 3)
    shown = {one.key: one.value for one in effective(config) if one.section == "sink"}
    assert (shown["lanes"], shown["pin"]) == (3, "***")
    assert "#lanes = 1" in template()
    assert "# acme: lanes to drive on: 1..8" in template()
    completed = [
        one.value for one in cli.cli.params[4].shell_complete(click.Context(cli.cli), "sink.l")
    ]
    assert sorted(completed) == ["sink.lanes="]
    for wrong, message in (
        ("lanes = 9", r"sink\.lanes = 9 is not allowed; legal: 1\.\.8"),
        ("quueue = 1", r"the nearest known one is sink\.queue"),
        ('type = "acme"', r"acme needs sink\.queue, where documents go"),
    ):
        (tmp_path / "eventlog.toml").write_text(f"[sink]\n{wrong}\n")
        with pytest.raises(ConfigError, match=message):
            load(tmp_path / "eventlog.toml", {})


def test_a_sink_of_a_package_is_opened_by_its_name(install: Install) -> None:
    install("acme-queue", "acme_queue", SINK, sinks="acme = acme_queue:Acme")
    sink = open_sink(load({"sink": {"type": "acme", "queue": "q"}}, {}), StringIO())
    assert sink.send(Document(1, 1, ["1"], b"x")) == Answer()
    assert registry.sink_named("acme").sent == [b"x"]


def test_a_broken_package_does_not_keep_a_publisher_from_starting_that_does_not_use_it(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install(
        "acme-queue",
        "acme_queue",
        "1 / 0",
        sinks="acme = acme_queue:Acme",
        formats="acme = acme_queue:F",
    )
    config = load(
        {
            "sink": {"type": "stdout", "url": "https://of.another.type/"},
            "format": {"acme": {"x": 1}},
        },
        {},
    )
    open_sink(config, StringIO()).close()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    with pytest.raises(ConfigError, match="sink 'acme' of the package acme-queue cannot be used"):
        load({"sink": {"type": "acme"}}, {})


def test_a_package_cannot_take_a_name_of_ours(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme-msg", "acme_msg", FORMAT.format(name="xds"), formats="xds = acme_msg:FORMAT")
    with caplog.at_level(logging.WARNING):
        assert names(FORMATS).count("xds") == 1
        assert names(FORMATS).count("xds") == 1
        assert "acme" not in type(format_named("xds")).__module__
    (record,) = caplog.records
    assert "acme-msg" in record.getMessage()


def test_of_two_packages_with_one_name_one_counts_always(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("b-second", "second", FORMAT.format(name="acme"), formats="acme = second:FORMAT")
    install("a-first", "first", FORMAT.format(name="acme"), formats="acme = first:FORMAT")
    with caplog.at_level(logging.WARNING):
        assert names(FORMATS).count("acme") == 1
    assert "a-first and b-second" in caplog.text


@pytest.mark.parametrize(
    ("text", "entry", "why"),
    [
        ("import nothing_like_it", "acme = acme_msg:FORMAT", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "acme = acme_msg:FORMAT", "SystemExit"),
        ("1 / 0", "acme = acme_msg:FORMAT", "ZeroDivisionError"),
        ("", "acme = acme_msg:FORMAT", "AttributeError"),
        ("FORMAT = 7", "acme = acme_msg:FORMAT", "it is a int"),
        (FORMAT.format(name="other"), "acme = acme_msg:FORMAT", "its attribute `name` is 'other'"),
    ],
)
def test_a_broken_package_costs_one_warning_that_names_it(
    install: Install, caplog: pytest.LogCaptureFixture, text: str, entry: str, why: str
) -> None:
    install("acme-msg", "acme_msg", text, formats=entry)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert "acme" not in dict(installed(FORMATS))
            with pytest.raises(
                ConfigError, match=f"of the package acme-msg cannot be used: .*{why}"
            ):
                format_named("acme")
    (record,) = caplog.records
    assert "acme-msg" in record.getMessage()
    assert record.exc_info is None


def test_entry_points_that_cannot_be_read_cost_one_warning(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("acme-msg", "acme_msg", "", formats="no line of an entry point")
    with caplog.at_level(logging.WARNING):
        assert "xds" in names(FORMATS)
    (record,) = caplog.records
    assert "acme-msg" in record.getMessage()


# --- packages that fail at run time ---------------------------------------------------------------

SOURCE = """
import sqlite3
from eventlog.publisher import stream

class Acme(stream.Source):
    name = "acme"
    title = "ACME's changes"
    gives = frozenset()
    def open(self, options, reader, report):
        return Changes()
    def in_words(self, token):
        return token["nothing"]

class Changes:
    def steps(self, token, *, once):
        yield stream.Mark(7)
        sqlite3.connect(":memory:").execute("SELECT * FROM gone")
    def backlog(self, token):
        raise LookupError("no such backlog")
"""


def test_a_source_of_a_package_that_fails_is_named_and_is_not_the_database(
    install: Install, tmp_path: Path, run: Run
) -> None:
    """The position stands in SQLite, too, whose errors of a connection that is lost are retried."""
    install("acme-src", "acme_src", SOURCE, sources="acme = acme_src:Acme")
    config = tmp_path / "eventlog.toml"
    config.write_text(
        f'[source]\ntype = "acme"\nposition_url = "sqlite:///{tmp_path}/position.db"\n'
        '[sink]\ntype = "stdout"\n'
    )
    code, _, err = run("-c", str(config), "publish")
    assert code == 1
    assert err.splitlines()[-1] == (
        "eventlog: the package acme-src (source acme) failed: OperationalError: no such "
        "table: gone (acme_src, line 17) [plugin]"
    )


def test_status_reports_a_package_that_fails_and_continues(
    install: Install, tmp_path: Path, run: Run
) -> None:
    install(
        "acme-src",
        "acme_src",
        SOURCE.replace('sqlite3.connect(":memory:").execute("SELECT * FROM gone")', ""),
        sources="acme = acme_src:Acme",
    )
    config = tmp_path / "eventlog.toml"
    config.write_text(
        f'[source]\ntype = "acme"\nposition_url = "sqlite:///{tmp_path}/position.db"\n'
        '[sink]\ntype = "stdout"\n'
    )
    assert run("-q", "-c", str(config), "publish", "--once")[0] == 0
    code, out, _ = run("-c", str(config), "status")
    assert code == 0
    assert "position: 7\n" in out
    assert (
        "what follows the position is unknown: the package acme-src (source acme) failed: "
        "LookupError: no such backlog (acme_src, line 19)"
    ) in out
