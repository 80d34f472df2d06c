"""Keys by which the objects of a class are read in ranges (spec/verify.md 1.1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.catalog import Column, Database, ObjectClass, Table
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import Kind, parse_type
from eventlog.verify.ordered_keys import OrderedKeys, ordered_keys

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = {"bigint": INTEGERS, "uuid": st.uuids().map(str), "text": TEXTS}


def of(*types: str) -> ObjectClass:
    columns = tuple(Column(f"k{i}", parse_type(type)) for i, type in enumerate(types))
    table = Table("item", "table", columns, tuple(one.name for one in columns))
    database = Database("postgresql", None, (table,))
    return build_catalog(database, tables=["item"]).class_named("item")


def keys_of(*types: str) -> OrderedKeys:
    keys = ordered_keys(of(*types))
    assert keys is not None
    return keys


def by_bytes(values: tuple[Any, ...]) -> list[Any]:
    return [one.encode() if isinstance(one, str) else one for one in values]


@given(st.data())
def test_places_are_sorted_like_the_values_of_their_keys(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3))
    keys = keys_of(*types)
    # Many values begin alike.
    few = [
        st.sampled_from(data.draw(st.lists(VALUES[one], min_size=1, max_size=3))) for one in types
    ]
    one, other = data.draw(st.tuples(*few)), data.draw(st.tuples(*few))
    places = [keys.place_of(one), keys.place_of(other)]
    if isinstance(places[0], str):
        places = [place.encode() for place in places]
    assert (places[0] < places[1]) == (by_bytes(one) < by_bytes(other))
    assert (places[0] == places[1]) == (one == other)


@given(st.tuples(st.text(st.characters(exclude_characters="\0")), INTEGERS, st.uuids().map(str)))
def test_the_values_of_a_canonical_key_are_those_it_was_made_of(values: tuple[Any, ...]) -> None:
    types = "text", "bigint", "uuid"
    key = keys_of(*types).text_of((*values, "an attribute"))
    assert keys_of(*types).values_of(key) == values
    assert of(*types).canonical_key(key) == key


@pytest.mark.parametrize("type", ["numeric", "char(3)", "date", "double precision", "citext"])
def test_other_types_have_no_ranges(type: str) -> None:
    assert ordered_keys(of("integer", type)) is None


def test_an_integer_of_any_size_has_no_ranges() -> None:
    assert parse_type("numeric(20)").kind is Kind.INTEGER
    assert ordered_keys(of("numeric(20)")) is None
