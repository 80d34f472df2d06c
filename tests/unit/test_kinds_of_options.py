"""How the texts of options are read and written: truth values, TOML."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.core.options import parse_boolean, toml


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
