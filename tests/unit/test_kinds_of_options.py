"""How the texts of options are read and written: truth values, TOML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.core.options import NAMES, parse_boolean, parse_options, toml
from eventlog.errors import ConfigError


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


def test_names_of_a_flag_may_be_a_list_of_toml() -> None:
    """As somebody writes it behind ``--set``; else ``["customer"]`` would be one odd name."""
    assert NAMES.parse('["customer", "order"]') == ("customer", "order")
    assert NAMES.parse("customer,order") == ("customer", "order")
    with pytest.raises(tomllib.TOMLDecodeError):
        NAMES.parse('["customer"')


def test_an_option_of_something_without_options_is_refused_in_words() -> None:
    @dataclass
    class Nothing:
        """The options of a format that has none."""

    with pytest.raises(ConfigError, match="x is not known; there are no options"):
        parse_options(Nothing, {"x": 1}, "the reader")
