"""Codes of errors: each has one meaning for a class, a cause, and a fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import eventlog
from eventlog.error_codes import FIXES, FORMAT_CODES, ROW_CODES
from eventlog.errors import BadValue, EventlogError, FormatError, RowError

SOURCES = [path.read_text(encoding="utf-8") for path in Path(eventlog.__path__[0]).rglob("*.py")]


def below(error: type[EventlogError]) -> Iterator[type[EventlogError]]:
    for one in error.__subclasses__():
        if one.__module__.startswith("eventlog."):
            yield one
        yield from below(one)


@pytest.fixture(scope="module")
def classes() -> list[type[EventlogError]]:
    for module in walk_packages(eventlog.__path__, "eventlog."):
        if ".migrations." not in module.name:  # what Alembic alone can import
            import_module(module.name)
    return [EventlogError, *below(EventlogError)]


def raised_with(pattern: str) -> set[str]:
    return {code for source in SOURCES for code in re.findall(pattern, source)}


def test_no_two_classes_have_one_code(classes: list[type[EventlogError]]) -> None:
    codes = [one.code for one in classes if "code" in vars(one)]
    assert len(codes) == len(set(codes))


def test_a_code_without_a_class_has_a_cause() -> None:
    assert raised_with(r'\bcode="(\w+)"') == FORMAT_CODES.keys()
    of_classes = {"bad_table_key", "bad_value", "bad_xml_char"}
    assert raised_with(r'\bRowError\(\s*"(\w+)"') <= ROW_CODES.keys() | of_classes


def test_each_code_has_a_fix_and_each_fix_a_code(classes: list[type[EventlogError]]) -> None:
    assert {one.code for one in classes} | FORMAT_CODES.keys() | ROW_CODES.keys() == FIXES.keys()


def test_an_error_has_the_fix_of_its_code() -> None:
    assert FormatError("no").fix == FIXES["invalid_format"]
    assert FormatError("no", code="bad_mask").fix == FIXES["bad_mask"]
    assert RowError("unknown_table", "no").fix == FIXES["unknown_table"]
    assert (BadValue("no").code, BadValue.code) == ("bad_value", "bad_value")


def test_a_code_of_another_package_has_the_general_fix() -> None:
    assert FormatError("no", code="of_a_plugin").fix == FIXES["unspecified"]
