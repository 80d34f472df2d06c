"""How the texts of options are read and written: truth values, TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.config.kinds import HEADERS, TABLE, TIMES
from eventlog.core.options import (
    NAMES,
    TEXTS,
    OptionKind,
    options_of,
    parse_boolean,
    parse_options,
    toml,
)
from eventlog.errors import ConfigError
from eventlog.publisher.sinks.objects import ObjectOptions


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("yes", True),
        ("TRUE", True),
        ("0", False),
        ("No", False),
        ("false", False),
        (1, True),
        (0, False),
    ],
)
def test_booleans_are_written_in_any_case(text: Any, value: bool) -> None:
    assert parse_boolean(text) is value


@pytest.mark.parametrize("text", ["", "2", "on", "y", 2, 1.0, None])
def test_other_words_are_no_booleans(text: Any) -> None:
    with pytest.raises(ValueError):
        parse_boolean(text)


VALUES = st.recursive(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=5,
)


@given(VALUES)
@example("\x7f\x00\\\"'\n\t")
def test_what_is_written_as_toml_reads_back(value: Any) -> None:
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (NAMES, '["customer", "order"]', ("customer", "order")),
        (NAMES, "customer,order", ("customer", "order")),
        (TIMES, "[02:00:00]", (time(2),)),
        (TIMES, '["03:00:00", "02:00:00"]', (time(2), time(3))),
        (TIMES, "03:00:00,02:00:00", (time(2), time(3))),
        (ObjectOptions, '["class", "day"]', ("class", "day")),
        (TEXTS, '["a", "b"]', ("a", "b")),
        (HEADERS, '{ "X-Tenant" = "hr" }', {"X-Tenant": "hr"}),
        (HEADERS, "X-Tenant: hr", {"X-Tenant": "hr"}),
        (TABLE, '{ keys = { "app.item" = ["id"] } }', {"keys": {"app.item": ["id"]}}),
        (TABLE, '{"keys": {"app.item": ["id"]}}', {"keys": {"app.item": ["id"]}}),
    ],
)
def test_a_list_or_table_of_a_flag_is_toml_or_its_short_form(
    kind: Any, text: str, value: Any
) -> None:
    """As somebody writes it behind ``--set``; else ``["customer"]`` would be one odd name."""
    if not isinstance(kind, OptionKind):
        kind = options_of(kind)["partition_by"].kind
    assert kind.parse(kind.from_text(text)) == value


def test_a_list_that_is_not_closed_is_no_name() -> None:
    with pytest.raises(ValueError, match="write a list as"):
        NAMES.parse(NAMES.from_text('["customer"'))


def test_an_option_of_something_without_options_is_refused_in_words() -> None:
    @dataclass
    class Nothing:
        """The options of a format that has none."""

    with pytest.raises(ConfigError, match="x is not known; there are no options"):
        parse_options(Nothing, {"x": 1}, "the reader")
