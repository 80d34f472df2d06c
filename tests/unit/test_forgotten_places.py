"""The places that a further option or a further sink needs: each that was forgotten is named
(docs/developers/architecture.md, "A further option" and "A further sink").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from source_trees import PACKAGE, READS_TREES, package_trees

from eventlog import registry
from eventlog.config.settings import (
    DatabaseSettings,
    FormatSettings,
    LogSettings,
    MonitorSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
)
from eventlog.publisher.context.context import PublisherOptions

pytestmark = READS_TREES
DOCS = PACKAGE.parent / "docs"

SECTIONS = (
    DatabaseSettings,
    PublisherSettings,
    SinkSettings,
    FormatSettings,
    WatchSettings,
    SourceSettings,
    LogSettings,
    MonitorSettings,
)


@cache
def reads() -> frozenset[tuple[str, str]]:
    """Each attribute that the package reads, with the last name of the object that has it."""

    def found() -> Iterator[tuple[str, str]]:
        for tree in package_trees().values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    owner = node.value
                    yield getattr(owner, "attr", getattr(owner, "id", "")), node.attr

    return frozenset(found())


WHILE_LOADING = {"profile", "publication_mode"}
"""The settings that work while a configuration is loaded: the first chooses defaults, the second
refuses all values but 1.
"""


def read_of_settings() -> set[str]:
    """The names that are read of settings, whose fields become options in no other way."""
    owners = {"settings", "publisher", "database", "sink", "format", "log", "monitor", "watch"}
    return {name for owner, name in reads() if owner in owners}


def test_a_setting_of_the_publisher_is_an_option_of_publishers_or_is_read_as_a_setting() -> None:
    options = {one.name for one in fields(PublisherOptions)}
    forgotten = [
        f"publisher.{one.name}: give PublisherOptions in publisher/context/context.py a field of this name"
        for one in fields(PublisherSettings)
        if one.name not in options | read_of_settings() | WHILE_LOADING
    ]
    assert forgotten == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_a_setting_has_an_effect(section: type) -> None:
    read = {name for _, name in reads()}
    assert [one.name for one in fields(section) if one.name not in read | WHILE_LOADING] == []


def test_an_option_of_publishers_has_an_effect() -> None:
    read = {name for owner, name in reads() if owner in ("options", "self", "config")}
    assert [one.name for one in fields(PublisherOptions) if one.name not in read] == []


SINKS = registry.names(registry.SINKS)


@pytest.mark.parametrize("name", SINKS)
def test_each_option_of_a_sink_is_read(name: str) -> None:
    sink = registry.sink_named(name)
    read = {attribute for _, attribute in reads()}
    assert [one.name for one in fields(sink.options) if one.name not in read] == []


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_has_its_places(name: str) -> None:
    sink = registry.sink_named(name)
    module = Path(str(sink.__module__).replace(".", "/")).name
    kits = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("unit", "faults", "packaging")
        for path in (PACKAGE.parent / "tests" / folder).rglob("test_*.py")
        if "sink_kit" in path.read_text(encoding="utf-8")
    )
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    places = {
        "title: the name in help and pages": bool(sink.title),
        "options: a dataclass, whose fields are made by option or shared": bool(sink.options),
        "an example in docs/": re.search(rf'type = "{name}"|sink\.type={name}\b', pages)
        is not None,
        "a test with the kit of eventlog.testing.sink_kit": (
            re.search(rf"sinks\.{module}\b", kits) is not None
        ),
    }
    assert [place for place, is_there in places.items() if not is_there] == []
