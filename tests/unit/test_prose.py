"""The check of our prose, ``scripts/prose.py``, by sentences that it finds and passes."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "scripts" / "prose.py"


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose_script", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("The driver knows the table.", "program-speaks"),
        ("It is told by the receiver.", "program-speaks"),
        ("It prints a line a failure.", "a-row-a-table"),
        ("The class is loaded anew.", "again"),
        ("A consumer runs beside the publisher.", "behind-beside"),
        ("The row is to be read back.", "is-to-be"),
        ("It has a table of its own.", "of-its-own"),
        ("It works. Of two rows the first counts.", "sentence-start"),
        ("The flight has ended.", "given-up-term"),
    ],
)
def test_a_sentence_that_breaks_a_rule_is_found(
    prose: ModuleType, sentence: str, rule: str
) -> None:
    assert [found.rule for found in prose.findings("page.md", sentence)] == [rule]


@pytest.mark.parametrize(
    "sentence",
    [
        "It reads `a flight` and ``anew``.",
        "One row per table.",
        "A consumer is 20 rows behind.",
        "The server stands behind a proxy.",
        "Run it with --existing-log, or without.",
        "Rows in flight stand in an in-flight line.",
        "```sh\nthe driver knows\n```\nThe rest is prose.",
        "### 13.4 As a consumer",
    ],
)
def test_code_and_ordinary_sentences_pass(prose: ModuleType, sentence: str) -> None:
    assert list(prose.findings("page.md", sentence)) == []


def test_comments_docstrings_messages_and_test_names_are_read(prose: ModuleType) -> None:
    source = (
        '"""The module knows it."""\n'
        "# a comment that goes on\n# in the flight after it\n"
        "def test_a_row_is_sent_anew() -> None:\n"
        '    raise ValueError(f"the table {1} is read once more")\n'
    )
    found = [(finding.line, finding.rule) for finding in prose.findings("x.py", source)]
    assert sorted(found) == [
        (1, "program-speaks"),
        (2, "given-up-term"),
        (4, "again"),
        (5, "again"),
    ]


def test_a_term_of_somebody_else_passes_where_it_is_theirs(prose: ModuleType) -> None:
    assert list(prose.findings("eventlog/qlik/x.py", "# the envelope of a message\n")) == []


def test_the_list_of_allowed_places_only_shrinks(prose: ModuleType) -> None:
    allowed = prose.read_allowed("# a comment\ndocs/a.md again 2\n")
    assert list(prose.compare(Counter({("docs/a.md", "again"): 2}), allowed)) == []
    assert "3 found" in next(prose.compare(Counter({("docs/a.md", "again"): 3}), allowed))
    assert "--write" in next(prose.compare(Counter({("docs/a.md", "again"): 1}), allowed))


def test_no_entry_covers_a_directory(prose: ModuleType) -> None:
    with pytest.raises(ValueError, match="names a file"):
        prose.read_allowed("docs/ again 2\n")
