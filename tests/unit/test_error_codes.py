"""Codes of errors and findings: each has one meaning for a class, and a text for users."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import eventlog
from eventlog.error_codes import ERRORS, FIXES, texts_of
from eventlog.errors import BadValue, EventlogError, FormatError, RowError
from eventlog.sql.doctor.codes import FINDINGS

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


def test_a_code_with_which_an_error_is_raised_is_declared() -> None:
    assert raised_with(r'\bcode="(\w+)"') <= FIXES.keys()
    assert raised_with(r'\bRowError\(\s*"(\w+)"') <= codes_of("Rows of the log")


def test_a_declared_code_is_that_of_a_class_or_is_raised(
    classes: list[type[EventlogError]],
) -> None:
    raised = raised_with(r'\bcode="(\w+)"') | raised_with(r'\bRowError\(\s*"(\w+)"')
    named = raised_with(
        r'"(receiver|receiver_misconfigured|dead_letter|bad_event_type|bad_filter|missing_table'
        r'|unknown_table)"'
    )
    assert {one.code for one in classes} | raised | named == FIXES.keys()


def codes_of(title: str) -> set[str]:
    return {code for group in ERRORS if group.title == title for code in group.codes}


def test_the_text_of_an_error_is_a_sentence_and_an_instruction() -> None:
    for code in FIXES:
        for _, text in texts_of(code):
            assert len(text.happened.split()) >= 4 or code == "missing_table", code
            assert text.happened.endswith("."), code
            assert text.fix.endswith("."), code
            assert text.happened[0].isupper() or "_" in text.happened.split()[0], code


def test_findings_have_the_codes_that_are_declared() -> None:
    declared = {code for group in FINDINGS for code in group.codes}
    assert len(declared) == sum(len(group.codes) for group in FINDINGS)
    found = {
        code
        for source in SOURCES
        for code in re.findall(
            r'\b(?:error|warning|info|finding|Finding)\(\s*"([a-z][a-z_]+)",', source
        )
    }
    assert found | {"deferrable_key", "trigger_warning"} == declared


def test_a_finding_has_the_severity_that_its_code_declares() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for source in SOURCES:
        for severity, code in re.findall(r'\b(error|warning|info)\(\s*"(\w+)",', source):
            used[code].add(severity)
        for code, severity in re.findall(r'\bFinding\(\s*"(\w+)",\s*"(\w+)"', source):
            used[code].add(severity)
    for group in FINDINGS:
        for code, text in group.codes.items():
            severities = set(re.split(", | or ", text.severity))
            assert severities <= {"error", "warning", "info"}, code
            assert used[code] <= severities, code


def test_an_error_has_the_fix_of_its_code() -> None:
    assert FormatError("no").fix == FIXES["invalid_format"]
    assert FormatError("no", code="bad_mask").fix == FIXES["bad_mask"]
    assert RowError("unknown_table", "no").fix == FIXES["unknown_table"]
    assert (BadValue("no").code, BadValue.code) == ("bad_value", "bad_value")


def test_a_code_of_another_package_has_the_general_fix() -> None:
    assert FormatError("no", code="of_a_plugin").fix == FIXES["unspecified"]
