"""A Change: its invariants, and what is derived from it (spec/change-model.md 1)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from eventlog.errors import InvalidChange
from eventlog.model import Change, ChangeOp, Operation, Status, changes_nothing, differing, old_key

INSERT, UPDATE, DELETE = ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE
TRUNCATE, REFRESH = ChangeOp.TRUNCATE, ChangeOp.REFRESH
KEY = (("id", 7),)
ROW: dict[str, Any] = {"id": 7, "name": "nut"}


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        (INSERT, {"after": ROW}),
        (INSERT, {"extras": {"query_back": "row"}}),
        (INSERT, {"extras": {"part1": b""}}),
        (REFRESH, {"after": ROW}),
        (UPDATE, {"after": ROW}),
        (UPDATE, {"before": {"name": "old"}, "after": ROW, "changed": frozenset({"name"})}),
        (UPDATE, {"after": ROW, "changed": frozenset()}),
        (UPDATE, {"changed": frozenset({"name"}), "extras": {"query_back": "field"}}),
        (DELETE, {"key": KEY}),
        (DELETE, {"before": ROW}),
        (DELETE, {"extras": {"part1": b""}}),
        (TRUNCATE, {}),
    ],
)
def test_a_change_that_keeps_the_invariants_is_made(op: ChangeOp, fields: dict[str, Any]) -> None:
    assert Change("app", "item", op, **fields).op is op


@pytest.mark.parametrize(
    ("op", "fields", "wrong"),
    [
        (INSERT, {}, "after"),
        (INSERT, {"before": ROW, "after": ROW}, "before"),
        (INSERT, {"after": ROW, "changed": frozenset()}, "changed"),
        (REFRESH, {"before": ROW, "after": ROW}, "before"),
        (REFRESH, {}, "after"),
        (UPDATE, {"before": ROW}, "after"),
        (UPDATE, {"after": ROW, "changed": frozenset({"price"})}, "changed"),
        (DELETE, {}, "before"),
        (DELETE, {"key": KEY, "after": ROW}, "after"),
        (DELETE, {"key": KEY, "changed": frozenset()}, "changed"),
        (TRUNCATE, {"key": KEY}, "key"),
        (TRUNCATE, {"before": ROW}, "before"),
        (TRUNCATE, {"after": ROW}, "after"),
        (TRUNCATE, {"changed": frozenset()}, "changed"),
        (DELETE, {"key": KEY, "commit_time": datetime(2024, 5, 10)}, "commit_time"),
    ],
)
def test_a_change_against_the_invariants_names_the_field(
    op: ChangeOp, fields: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(InvalidChange) as caught:
        Change("app", "item", op, **fields)
    assert caught.value.field == wrong
    assert "'item'" in str(caught.value)


def test_a_changed_copy_is_checked_like_a_new_change() -> None:
    with pytest.raises(InvalidChange):
        Change("app", "item", INSERT, KEY, after=ROW)._replace(after=None)


def test_equality_compares_all_fields_but_extras() -> None:
    change = Change("app", "item", INSERT, KEY, after=ROW, extras={"event_id": "1"})
    assert change == change._replace(extras={})
    assert change != change._replace(user="scott")
    assert change != tuple(change)


@pytest.mark.parametrize(
    ("before", "after", "present"),
    [(None, ROW, {"id", "name"}), ({"id": 1}, None, {"id"}), ({"id": 1}, {"name": "x"}, {"name"})],
)
def test_present_names_what_is_known_after_else_before(
    before: Any, after: Any, present: set[str]
) -> None:
    op = DELETE if after is None else UPDATE
    assert Change(None, "item", op, before=before, after=after).present == present


def test_nothing_is_present_in_a_truncate() -> None:
    assert Change(None, "item", TRUNCATE).present == frozenset()


@pytest.mark.parametrize(
    ("before", "old"),
    [(None, KEY), ({"name": "x"}, KEY), ({"id": 7}, KEY), ({"id": 3, "name": "x"}, (("id", 3),))],
)
def test_the_old_key_is_that_of_the_row_before_where_it_is_known(before: Any, old: Any) -> None:
    change = Change(None, "item", UPDATE, KEY, before, ROW)
    assert old_key(change) == old


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({"a": 1, "b": None}, {"a": 1, "b": None}, set()),
        ({"a": None}, {"a": ""}, {"a"}),
        ({"a": 1, "b": 2}, {"b": 3}, {"b"}),
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({}, {"a": 1}, None),
    ],
)
def test_differing_columns_are_known_if_both_images_know_them(
    before: Any, after: Any, names: set[str] | None
) -> None:
    assert differing(before, after) == (None if names is None else frozenset(names))


@pytest.mark.parametrize(
    ("fields", "nothing"),
    [
        ({"after": ROW, "changed": frozenset()}, True),
        ({"after": ROW, "changed": frozenset({"name"})}, False),
        ({"before": ROW, "after": ROW}, True),
        ({"before": {"id": 7}, "after": ROW}, False),
        ({"after": ROW}, False),
        ({"after": ROW, "changed": frozenset(), "extras": {"changed_unknown": ["name"]}}, False),
    ],
)
def test_an_update_is_known_to_change_nothing(fields: dict[str, Any], nothing: bool) -> None:
    assert changes_nothing(Change(None, "item", UPDATE, KEY, **fields)) is nothing


@pytest.mark.parametrize("member", [*Status, *Operation, *ChangeOp])
def test_a_member_of_an_enumeration_is_written_as_its_value(
    member: Status | Operation | ChangeOp,
) -> None:
    assert f"{member}" == "".join([member]) == member.value
    assert json.loads(json.dumps({member: member})) == {member.value: member.value}
    assert pa.array([member]).to_pylist() == [member.value]
