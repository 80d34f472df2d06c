"""The rows of a group as one change, whoever reads them: what a receiver has of each format after
it is what the table has (spec/change-model.md 3.1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise, product
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG, database, good, row, table

from eventlog.changes.events import event_to_change, outgoing_reader
from eventlog.changes.publishing import Publishing
from eventlog.cloudevents.options import PublishOptions as CloudEventsOptions
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.events import EventOptions, Outgoing, build_event, public_event
from eventlog.core.rows.fold import Group, fold
from eventlog.core.values import ValueOptions
from eventlog.debezium.publish import DebeziumWriter
from eventlog.debezium.writer import PublishOptions as DebeziumOptions
from eventlog.log.reading import UNREAD, group_reader
from eventlog.model import LogRow, Op, Origins
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.qlik.messages.message_tables import PublishOptions as QlikOptions
from eventlog.qlik.messages.publish import QlikWriter

Value: TypeAlias = str | None
Rows: TypeAlias = Sequence[tuple[Value, Value]]
"""The old and the new value of each row of type 2 of a column, in queue order."""
Written: TypeAlias = dict[int, Value]
"""The value that a receiver writes into the column, by the object's number; no entry = none."""

VALUES: Sequence[Value] = (None, "a", "b", "c")
GROUPS: Sequence[Rows] = list(product(product(VALUES, VALUES), repeat=3))
"""All groups of three rows with four values. Where a row does not follow from the one before it, a
row that was set apart has written the value that it takes."""
NAMES = build_catalog(database(table("person", "id integer; name varchar(9)", "id")))
WHEN = datetime(2024, 5, 10, 12, tzinfo=UTC)


def logged(rows: Rows, number: int = 1, first: int = 1) -> list[LogRow]:
    return [
        row(first + place, 2, f"id={number}", "name", old, new, table="person")
        for place, (old, new) in enumerate(rows)
    ]


def held_before(rows: Rows) -> Value:
    """The value of a receiver that has what was set apart, when the group's event comes."""
    (value, _), *_ = rows
    for (_, new), (old, _) in pairwise(rows):
        if new != old:
            value = old
    return value


def events_of(groups: Sequence[Rows], noop_updates: str) -> list[Outgoing]:
    """The events of groups, each of an object of its own, numbered from 1."""
    rows = [one for n, each in enumerate(groups, 1) for one in logged(each, n, 3 * n - 2)]
    options = EventOptions(noop_updates=noop_updates)
    built = [build_event(group, options) for group in fold(good(rows, NAMES), 1000, 0)]
    return [event for event in built if event.operation is not None]


def delivery_of(events: Sequence[Outgoing]) -> Delivery:
    first = "20240510120000000000000010000000002"
    return Delivery(1, {1: events}, first, Origins({}, {}, {}))


def by_cloudevents(events: Sequence[Outgoing]) -> Written:
    writer = CloudEventWriter(CloudEventsOptions("/log", mode="structured"), Publishing())
    body = writer.document(NAMES, delivery_of(events), 1, events).body
    data = [json.loads(line)["data"] for line in body.splitlines()]
    return {one["key"]["id"]: one["columns"]["name"]["new"] for one in data}


def by_debezium(events: Sequence[Outgoing]) -> Written:
    options = DebeziumOptions(missing_columns="error", schemas_enable=False)
    body = (
        DebeziumWriter(options, Publishing()).document(NAMES, delivery_of(events), 1, events).body
    )
    return {one["after"]["id"]: one["after"]["name"] for one in map(json.loads, body.splitlines())}


def by_qlik_messages(events: Sequence[Outgoing]) -> Written:
    writer = QlikWriter(
        QlikOptions(metadata="none"), Publishing(ValueOptions("java"), utc_now=lambda: WHEN)
    )
    placed = [event._replace(place=place) for place, event in enumerate(events, 1)]
    made = writer.document(NAMES, delivery_of(placed), 1, placed)
    values = [json.loads(record.value) for records in made.records for record in records]
    for one in values:
        assert int(one["message"]["headers"]["changeMask"], 16) & 2  # it counts as changed
    return {one["message"]["data"]["id"]: one["message"]["data"]["name"] for one in values}


def by_stream(events: Sequence[Outgoing]) -> Written:
    """As the stream in Spark makes its rows, and formats of other packages their pieces."""
    read = outgoing_reader(NAMES, ValueOptions())
    written: Written = {}
    for event in events:
        change = read(event, None, None)
        assert change.changed == {"name"}
        written[int((change.after or {})["id"])] = (change.after or {})["name"]
    return written


RECEIVERS: Sequence[Callable[[Sequence[Outgoing]], Written]] = (
    by_cloudevents,
    by_debezium,
    by_qlik_messages,
    by_stream,
)


@pytest.mark.parametrize("noop_updates", ["drop", "emit"])
@pytest.mark.parametrize("written_by", RECEIVERS)
def test_a_receiver_that_has_the_rows_set_apart_has_what_the_table_has(
    written_by: Callable[[Sequence[Outgoing]], Written], noop_updates: str
) -> None:
    written = written_by(events_of(GROUPS, noop_updates))
    assert len(written) > 3000
    for number, rows in enumerate(GROUPS, 1):
        assert written.get(number, held_before(rows)) == rows[-1][1], rows


def change_of(group: Group, rows: Sequence[LogRow]) -> Any:
    """The change that change tables and ``convert`` have of a group."""
    return group_reader("indirect")(group, None, UNREAD, {one.record_id: one for one in rows})


def test_change_tables_have_the_first_old_and_the_last_new_value_of_every_group() -> None:
    for rows in GROUPS:
        of_log = logged(rows)
        change = change_of(good(of_log, NAMES), of_log)
        assert (change.before["name"], change.after["name"]) == (rows[0][0], rows[-1][1])
        assert change.changed == {"name"}


def test_ends_that_are_equal_are_sent_as_changed() -> None:
    """NULL to a by the application; a to b by the publisher's own user; b to NULL again."""
    (event,) = events_of([[(None, "a"), ("b", None)]], "drop")
    writer = CloudEventWriter(CloudEventsOptions("/log", mode="structured"), Publishing())
    data = json.loads(writer.document(NAMES, delivery_of([event]), 1, [event]).body)["data"]
    assert data["columns"] == {"name": {"old": None, "new": None}}


def test_the_document_of_xds_keeps_its_steps() -> None:
    steps = {
        noop_updates: [
            (step.op, *step.values)
            for event in events_of([[("a", "b"), ("c", "c"), ("c", None)]], noop_updates)
            for attribute in public_event(event).attributes
            for step in attribute.steps
        ]
        for noop_updates in ("drop", "emit")
    }
    begin, end = [(Op.REMOVE, "a"), (Op.ADD, "b")], [(Op.REMOVE, "c")]
    assert steps["drop"] == [*begin, *end]
    assert steps["emit"] == [*begin, (Op.REMOVE, "c"), (Op.ADD, "c"), *end]


# --- both ways from rows to a change --------------------------------------------------------------

LOGGED = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 2, 3]),
        st.sampled_from([("usr", "fname"), ("usr", "lname"), ("usr_phone", "phoneno")]),
        st.none() | st.sampled_from(["a", "b", ""]),
        st.none() | st.sampled_from(["a", "b", ""]),
    ),
    min_size=1,
    max_size=6,
)


@given(LOGGED, st.sampled_from(["drop", "emit"]))
def test_an_event_on_its_way_is_read_as_the_rows_of_the_log_are(
    logged: list[tuple[int, tuple[str, str], Value, Value]], noop_updates: str
) -> None:
    rows = [
        row(number, kind, column=column, old=old, new=new, table=name)
        for number, (kind, (name, column), old, new) in enumerate(logged, 1)
    ]
    read = outgoing_reader(CATALOG, ValueOptions())
    for group in fold(good(rows), 1000, 0):
        event = build_event(group, EventOptions(noop_updates=noop_updates))
        if event.operation is None:
            continue
        of_event, of_rows = read(event, None, None), change_of(group, rows)
        assert of_event.op == of_rows.op
        # Columns without a row that has an effect, and NULLs of an insert, are not written.
        said = of_event.after or {}
        assert said == {name: of_rows.after[name] for name in said}
        before = {name: value for name, value in (of_rows.before or {}).items() if name in said}
        assert (of_event.before or {"idu": 1}) == (before or {"idu": 1})


@given(LOGGED)
def test_rows_that_follow_from_each_other_read_as_their_document_does(
    logged: list[tuple[int, tuple[str, str], Value, Value]],
) -> None:
    values: dict[str, Value] = {}
    removed: set[Value] = set()
    rows = []
    for number, (kind, (name, column), old, new) in enumerate(logged, 1):
        if name == "usr":
            old, values[column] = values.get(column, old), new
            if kind == 2 and old == new:
                continue
        elif kind == 2 and old == new and old in removed:
            continue  # a value that is gone does not stay
        else:
            removed = (removed | {old}) - {new}
        rows.append(row(number, kind, column=column, old=old, new=new, table=name))
    read = outgoing_reader(CATALOG, ValueOptions())
    for group in fold(good(rows), 1000, 0):
        event = build_event(group, EventOptions())
        if event.operation is not None:
            assert read(event, None, None) == event_to_change(public_event(event), CATALOG)
