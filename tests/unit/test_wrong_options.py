"""Options of a wrong type, as JSON and TOML let anybody write them: a line that names the option,
nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from loss_formats import CATALOG
from loss_samples import SAMPLES

from eventlog.changes.format import Format, Report
from eventlog.changes.publishing import EventWriter, Publishing
from eventlog.config.settings import SourceSettings
from eventlog.conversion import convert, in_own_options, write
from eventlog.errors import ConfigError, EventlogError
from eventlog.model import Change
from eventlog.publisher.stream.gbase import GbaseOptions
from eventlog.publisher.stream.linter import LinterOptions
from eventlog.publisher.stream.open_source import source_of as source_for
from eventlog.registry import format_named


class TriedFormat(NamedTuple):
    """A format, and a file of it."""

    name: str
    file: str


TRIED: Final = (
    TriedFormat("xds", "one.xmll"),
    TriedFormat("eventlog", "one.jsonl"),
    TriedFormat("cloudevents", "one.jsonl"),
    TriedFormat("jsonl", "one.jsonl"),
    TriedFormat("gbase", "one.cdc"),
    TriedFormat("linter", "one.csv"),
    TriedFormat("debezium", "one.jsonl"),
    TriedFormat("qlik-messages", "one.jsonl"),
    TriedFormat("qlik-change-table", "one"),
)
VALUES: Final = (
    None, True, 0, -1, 7, 1.5, 10**30, float("nan"), float("inf"), "", "x", "\ud800", "\0", "7",
    "none", [], [1], [None], [[]], ["x"], ["x", "x", "x"], [{}], {}, {"x": 1}, {"x": None},
    {"x": "y"}, {"x": []}, {"x": [{}]}, {"7": 1}, {"7": "y"}, {"7": [7]}, {"7": [{}]},
     {"7": {"x": "y"}}, {"": ""}, {"x": {"x": {"x": {}}}},
)  # fmt: skip
"""What no option wants, and what one wants where another does not."""


def source_of(tried: TriedFormat, directory: Path) -> Path:
    SAMPLES["E"](directory / "log.jsonl")
    if tried.name != "eventlog":
        convert(
            "eventlog",
            tried.name,
            str(directory / "log.jsonl"),
            str(directory / tried.file),
            {"catalog": CATALOG},
        )
        return directory / tried.file
    return directory / "log.jsonl"


def names(kinds: tuple[type, ...]) -> list[str]:
    return [one.name for kind in kinds for one in fields(kind)]


@pytest.mark.parametrize("tried", TRIED, ids=[tried.name for tried in TRIED])
@pytest.mark.parametrize("side", ["reader", "writer"])
def test_an_option_of_any_value_is_taken_or_refused(
    tried: TriedFormat, side: str, tmp_path: Path
) -> None:
    source = source_of(tried, tmp_path)
    changes = list(
        format_named("eventlog").read(str(tmp_path / "log.jsonl"), {"catalog": CATALOG}, Report())
    )[:3]
    format = format_named(tried.name)
    catalog = in_own_options(tried.name, side, {"catalog": CATALOG})

    def run(options: dict[str, Any]) -> None:
        if side == "reader":
            list(format.read(str(source), options, Report()))
        else:
            format.write(changes, str(tmp_path / "out" / tried.file), options, Report())

    (tmp_path / "out").mkdir()
    for name in names(getattr(format, f"{side}_options")):
        for value in VALUES:
            with contextlib.suppress(EventlogError, OSError):
                run({**catalog, name: value})


@pytest.mark.parametrize(
    ("format", "side", "options", "part"),
    [
        (
            "gbase",
            "reader",
            {"keys": {"item": 7}},
            r"keys = \{ item = 7 \} .*: an object: table -> list of columns",
        ),
        ("gbase", "reader", {"charset": 7}, "charset: 7 is not a character set"),
        ("gbase", "reader", {"charset": "hex"}, "charset: 'hex' is not a character set"),
        ("gbase", "reader", {"labels": {"1": 7}}, "labels.*: an object: label -> db"),
        ("gbase", "writer", {"tables": {"item": 7}}, "tables.*: an object: name -> text"),
        (
            "linter",
            "reader",
            {"charset": 7},
            "the linter reader: charset: 7 is not a character set",
        ),
        (
            "linter",
            "reader",
            {"codec": "eventlog-emulator-1", "charset": "hex"},
            "charset: 'hex' is not a character set",
        ),
        (
            "linter",
            "reader",
            {"time_zone": 7},
            "the linter reader: time_zone = 7 is not allowed; legal: UTC or a zone such as Europe/Berlin",
        ),
        (
            "linter",
            "reader",
            {"queue_table": 7},
            "the linter reader: queue_table = 7 is not allowed; legal: a text",
        ),
        (
            "linter",
            "writer",
            {"channel": "a"},
            "the linter writer: channel = .a. is not allowed; legal: a whole number",
        ),
        (
            "linter",
            "writer",
            {"files": 7},
            "the linter writer: files = 7 is not allowed; legal: a text",
        ),
        (
            "eventlog",
            "reader",
            {"column_map": 7},
            "column_map = 7 is not allowed; legal: an object: name -> text",
        ),
        (
            "eventlog",
            "reader",
            {"column_map": {"status": 7}},
            "column_map.*: an object: name -> text",
        ),
        ("eventlog", "reader", {"tables": ["item", 7]}, "tables.*: a list of texts"),
        (
            "eventlog",
            "reader",
            {"schema": 7},
            "the eventlog reader: schema = 7 is not allowed; legal: a text",
        ),
        (
            "eventlog",
            "writer",
            {"row_styles": {"item": 7}},
            r"row_styles.*: an object: table -> field \|",
        ),
        (
            "eventlog",
            "reader",
            {"catalog": 7},
            "the eventlog reader: catalog = 7 is not allowed; legal: a path, or an object",
        ),
        ("eventlog", "writer", {"existing_keys": {"item": 7}}, "keys of 'item' in existing_keys"),
        ("xds", "reader", {"limit": 0}, "the xds reader: limit = 0 is not allowed"),
        ("xds", "writer", {"indent": 10**30}, r"the xds writer: indent = .*; legal: 0\.\.16"),
        (
            "jsonl",
            "reader",
            {"catalog": []},
            r"the jsonl reader: catalog = \[\] is not allowed; legal: a path, or an object",
        ),
    ],
)
def test_an_option_of_a_wrong_type_is_named_with_what_is_needed(
    tmp_path: Path, format: str, side: str, options: dict[str, Any], part: str
) -> None:
    tried = next(tried for tried in TRIED if tried.name == format)
    source = source_of(tried, tmp_path)
    run: Callable[[], object] = lambda: list(  # noqa: E731
        format_named(format).read(str(source), options, Report())
    )
    if side == "writer":
        run = lambda: format_named(format).write(  # noqa: E731
            [], str(tmp_path / f"new-{tried.file}"), options, Report()
        )
    with pytest.raises(ConfigError, match=part):
        run()


@pytest.mark.parametrize("keys", [7, ["id"], "id", {"item": 7}])
def test_an_option_of_a_wrong_type_is_named_although_there_is_a_catalogue(
    tmp_path: Path, keys: Any
) -> None:
    source = source_of(TRIED[3], tmp_path)
    with pytest.raises(ConfigError, match="keys"):
        convert(
            "gbase",
            "jsonl",
            str(source),
            str(tmp_path / "out.jsonl"),
            {"keys": keys, "catalog": CATALOG},
        )
    settings = SourceSettings("gbase", GbaseOptions(path=source, reader={"keys": keys}))
    with pytest.raises(ConfigError, match="keys"):
        source_for(settings, Report())


@pytest.mark.parametrize(
    "reader", [{"dispatch_attrs": 7}, {"codec": 7}, {"tables": [1]}, {"destination": ["a"]}]
)
def test_an_option_of_a_source_of_a_wrong_type_is_named(reader: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(reader))):
        source_for(
            SourceSettings("linter", LinterOptions(url="sqlite:///queue.db", reader=reader)),
            Report(),
        )


def test_a_format_without_options_refuses_each(tmp_path: Path) -> None:
    class Bare(Format):
        """A format of a package, read and published, without options."""

        name = "bare"
        title = "nothing at all"

        def read_changes(self, source: str, report: Report) -> Iterator[Change]:
            return iter(())

        def publish(self, options: None, publishing: Publishing) -> EventWriter[Any]:
            raise AssertionError

    refused = "the bare {side}: indent is not known; there are no options"
    with pytest.raises(ConfigError, match=refused.format(side="reader")):
        Bare().read("in", {"indent": 2}, Report())
    with pytest.raises(ConfigError, match=refused.format(side="writer")):
        write(Bare(), [], str(tmp_path / "out"), {"indent": 2}, Report())
