"""The states of objects in files are those of the last change of each (spec/verify.md 4.2)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.core.catalog import Column, Database, Table
from eventlog.core.catalog_builder import build_catalog
from eventlog.core.values import parse_type
from eventlog.verify.targets import states
from eventlog.verify.targets.states import States

COLUMNS = (Column("id", parse_type("integer")), Column("name", parse_type("text")))
CLASS = build_catalog(
    Database("postgresql", None, (Table("item", "table", COLUMNS, ("id",)),)), tables=["item"]
).class_named("item")
KEYS = st.integers(1, 9).map("id={}".format)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.sampled_from(["a", None])),
    st.tuples(
        st.just("put all"), st.lists(KEYS, min_size=1, max_size=6), st.text("abc", max_size=2)
    ),
    st.tuples(st.just("read"), st.lists(KEYS, max_size=3), st.none()),
    st.tuples(st.just("get"), KEYS, st.none()),
    st.tuples(st.sampled_from(["clear", "write"]), KEYS, st.none()),
)


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=20))
def test_each_state_is_that_of_the_last_change(steps: list[tuple[str, Any, Any]]) -> None:
    expected: dict[str, list[Any]] = {}
    with pytest.MonkeyPatch.context() as patch, closing(States({CLASS: ["name"]})) as kept:
        patch.setattr(states, "_FEW", 3)
        patch.setattr(states, "_KEPT", 5)
        for what, given, name in steps:
            match what:
                case "put":
                    kept.put("item", given, None if name is None else [name])
                    expected.pop(given, None)
                    if name is not None:
                        expected[given] = [name]
                case "put all":
                    rows = [[f"{name}{place}"] for place in range(len(given))]
                    kept.put_all("item", given, rows)
                    expected |= dict(zip(given, rows, strict=True))
                case "read":
                    kept.read(("item", key) for key in given)
                    assert [kept.get("item", key) for key in given] == list(
                        map(expected.get, given)
                    )
                case "get":
                    assert kept.get("item", given) == expected.get(given)
                case "clear":
                    kept.clear("item")
                    expected = {}
                case "write":
                    kept.write()
        kept.write()
        assert kept.range("item", None, None, 99) == [
            (int(key[3:]), *state) for key, state in sorted(expected.items())
        ]
