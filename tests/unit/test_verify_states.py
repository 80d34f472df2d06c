"""The states of objects in files are those of the last change of each (spec/verify.md 4.2)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.core.catalog import Column, Database, Table
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import parse_type
from eventlog.verify.comparison import SEVERAL
from eventlog.verify.targets import states
from eventlog.verify.targets.states import States
from eventlog.verify.targets.table import each_key_once

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


@settings(max_examples=examples(200))
@given(st.lists(STEPS, max_size=20))
def test_each_state_is_that_of_the_last_change(steps: list[tuple[str, Any, Any]]) -> None:
    expected: dict[str, list[Any]] = {}
    with pytest.MonkeyPatch.context() as patch, closing(States({CLASS: ["name"]})) as kept:
        patch.setattr(states, "FEW", 3)
        patch.setattr(states, "KEPT", 5)
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


@given(st.lists(st.integers(1, 6).map("id={}".format), max_size=20))
def test_an_object_of_which_rows_are_added_twice_has_no_values(keys: list[str]) -> None:
    with closing(States({CLASS: ["name"]})) as kept:
        kept.add_all("item", ((key, [str(place)]) for place, key in enumerate(keys)))
        assert kept.range("item", None, None, 99) == [
            (int(key[3:]), SEVERAL if keys.count(key) > 1 else str(keys.index(key)))
            for key in sorted(set(keys))
        ]


@given(
    st.lists(st.integers(1, 8), max_size=30),
    st.sampled_from([None, 0, 3]),
    st.sampled_from([None, 6, 9]),
    st.integers(1, 9),
)
def test_a_table_without_a_unique_key_is_read_with_each_key_once(
    keys: list[int], behind: int | None, last: int | None, limit: int
) -> None:
    rows = [(key, str(place)) for place, key in enumerate(sorted(keys))]

    def read(behind: Any, last: Any, limit: int) -> list[tuple[Any, ...]]:
        low, high = behind or (-1,), last or (99,)
        return [row for row in rows if low < row[:1] <= high][:limit]

    bounds = [None if one is None else (one,) for one in (behind, last)]
    expected = [
        (key, SEVERAL) if keys.count(key) > 1 else next(row for row in rows if row[0] == key)
        for key in sorted({key for (key, _) in read(*bounds, 99)})
    ]
    assert each_key_once(read, 1)(*bounds, limit) == expected[:limit]
