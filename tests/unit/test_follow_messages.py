"""Topics of Qlik messages as a source, on librdkafka's mock cluster."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import message_samples
import pytest
from followed_stream import (
    ITEM,
    PATIENCE,
    RECORDS,
    Receiver,
    Stream,
    failures,
    files,
    following,
    position_at,
    running,
    save_at,
    saved_at,
    token_at_open,
)
from kafka_cluster import QUICK, Cluster
from lxml import etree
from shared import met, wait_until

from eventlog.changes.format import Report
from eventlog.changes.to_events import change_to_events
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer, Change, ChangeOp, Document, KafkaRecord
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.sinks.kafka import KafkaSink
from eventlog.publisher.stream import Backlog, Read, SourceLost, SourceUnavailable
from eventlog.publisher.stream import topics as qlik_messages
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.position import Saved
from eventlog.publisher.stream.topics import Topics
from eventlog.qlik.messages.envelope import Message, UnknownSchema
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions
from eventlog.transport import kafka
from eventlog.xds import publish as xds_publish

COLUMNS = {
    "app.item": [{"name": "id", "type": "INT4", "pk": 1}, {"name": "name", "type": "STRING"}]
}


def sequence(number: int) -> str:
    return f"2024051012000000{number:019}"


def insert(number: int, key: int | None = None, op: ChangeOp = ChangeOp.INSERT) -> Change:
    key = number if key is None else key
    moment = datetime(2024, 5, 10, 12, tzinfo=UTC)
    position = None if op is ChangeOp.REFRESH else sequence(number)
    return Change(
        "app", "item", op, (("id", key),), None, {"id": key, "name": f"n{number}"}, None, position,
        f"{number:032X}", 1, True, moment,
    )  # fmt: skip


def write(brokers: Cluster, *changes: Change, **options: Any) -> None:
    brokers.write(message_samples.write(changes, columns=COLUMNS, **options))


def send(brokers: Cluster, topic: str, *values: bytes) -> None:
    brokers.write(KafkaRecord(topic, b"1", value) for value in values)


def topics(brokers: Cluster, *names: str, **options: Any) -> Topics:
    return Topics(
        brokers.brokers, names or ("app.item",), ReadOptions(**options), QUICK, Report(), timeout=20
    )


def once(source: Topics, place: Path, **options: Any) -> Receiver:
    receiver = Receiver()
    follow(
        following(source, **options), position_at(place, "qlik-messages"), receiver.sink,
        StopRequest(), once=True
    )  # fmt: skip
    return receiver


@pytest.mark.promise("source qlik-messages")
def test_what_was_answered_is_not_read_again(brokers: Cluster, place: Path) -> None:
    write(brokers, *(insert(number) for number in range(1, 21)))
    first = once(topics(brokers), place)
    assert sorted(first.heard) == sorted(f"add {number} n{number}" for number in range(1, 21))
    assert set(first.meanings) == {sequence(number) for number in range(1, 21)}
    token = saved_at(place, "qlik-messages").token
    assert sum(token["app.item"].values()) == 20
    write(brokers, insert(21))
    assert topics(brokers).backlog(None) == Backlog(21, "messages")
    assert topics(brokers).backlog(token) == Backlog(1, "messages")
    assert once(topics(brokers), place).heard == ["add 21 n21"]  # its metadata were read again


def test_topics_are_followed_over_brokers_that_hang(brokers: Cluster, place: Path) -> None:
    write(brokers, insert(1))
    receiver = Receiver()
    with running(following(topics(brokers)), position_at(place, "qlik-messages"), receiver):
        wait_until(lambda: len(receiver.heard) == 1)
        with brokers.stopped():
            time.sleep(0.3)
        for number in range(2, 8):
            write(brokers, insert(number, key=1))
        wait_until(lambda: len(receiver.heard) == 7)
    assert receiver.heard == [f"add 1 n{number}" for number in range(1, 8)]


def test_a_row_of_an_initial_load_is_named_after_its_place(brokers: Cluster, place: Path) -> None:
    write(brokers, insert(1, op=ChangeOp.REFRESH), insert(2, key=1, op=ChangeOp.REFRESH))
    first = once(topics(brokers), place)
    place.unlink()
    again = once(topics(brokers), place)
    assert first.meanings == again.meanings
    assert len(first.meanings) == 2
    assert all(name.startswith("app.item:") for name in first.meanings)


@pytest.mark.promise(
    "option qlik-messages.reader.metadata_topic",
    "option qlik-messages.writer.metadata_topic",
)
def test_a_message_waits_for_its_metadata_and_holds_the_position(
    brokers: Cluster, place: Path
) -> None:
    write(brokers, insert(1), insert(2, key=1), metadata_topic="other.metadata")
    (described,) = [record.value for record in brokers.records("other.metadata")]
    receiver = Receiver()
    with running(following(topics(brokers)), position_at(place, "qlik-messages"), receiver):
        wait_until(lambda: token_at_open(place))
        time.sleep(0.3)
        assert receiver.heard == []
        assert sum(token_at_open(place)["app.item"].values()) == 0
        send(brokers, "eventlog.metadata", described)  # type: ignore[arg-type]  # a topic that was not there before
        wait_until(lambda: len(receiver.heard) == 2)
    assert receiver.heard == ["add 1 n1", "add 1 n2"]


def test_metadata_that_come_while_a_message_waits_release_it(brokers: Cluster, place: Path) -> None:
    write(brokers, insert(1), metadata_topic="other.metadata")
    (described,) = [record.value for record in brokers.records("other.metadata")]
    send(brokers, "eventlog.metadata", b'{"magic":"atMSG","type":"MD","message":{}}')
    receiver = Receiver()
    with running(following(topics(brokers)), position_at(place, "qlik-messages"), receiver):
        wait_until(lambda: token_at_open(place))
        write(brokers, insert(2, key=1), metadata_topic="other.metadata")
        time.sleep(0.3)
        assert receiver.heard == []
        send(brokers, "eventlog.metadata", described)  # type: ignore[arg-type]
        wait_until(lambda: len(receiver.heard) == 2)
    assert receiver.heard == ["add 1 n1", "add 1 n2"]
    (failure,) = failures(place)  # the metadata message that contains nothing
    assert failure["event_id"].startswith("eventlog.metadata:")


def test_metadata_in_the_topic_of_the_data_are_read_again(brokers: Cluster, place: Path) -> None:
    write(brokers, insert(1), topic="all", metadata_topic="all", key="none")
    source = topics(brokers, "all", topic="all", metadata_topic="all")
    assert once(source, place).heard == ["add 1 n1"]
    described = next(
        record.value for record in brokers.records("all") if b'"MD"' in (record.value or b"")
    )
    assert described is not None
    write(brokers, insert(2), topic="all", metadata_topic="elsewhere", key="none")
    assert once(source, place).heard == ["add 2 n2"]


@pytest.mark.promise("option qlik-messages.reader.metadata_wait")
def test_metadata_that_do_not_come_stop_the_source(brokers: Cluster, place: Path) -> None:
    write(brokers, insert(1), metadata_topic="other.metadata")
    with pytest.raises(UnknownSchema):
        once(topics(brokers, metadata_wait=0.1), place)
    assert saved_at(place, "qlik-messages").token["app.item"] is not None
    assert once(topics(brokers, metadata_topic="other.metadata"), place).heard == ["add 1 n1"]


@pytest.mark.promise("code error-bad_envelope", "code error-bad_magic")
def test_a_message_that_cannot_be_read_is_recorded_under_its_place(
    brokers: Cluster, place: Path
) -> None:
    good = {
        "data": {"id": 1, "name": "x"},
        "headers": {"operation": "INSERT", "changeSequence": sequence(1)},
    }
    bad = {**good, "headers": {"operation": "EXPLODE", "changeSequence": sequence(2)}}
    huge = json.dumps({**good, "headers": {**good["headers"], "transactionEventCounter": "N"}})
    poison = (
        huge.replace('"N"', "1e9999999"),
        huge.replace('"N"', "Infinity"),
        '{"data":' + "[" * 2000,
    )
    more = [one.encode() for one in (json.dumps(good), json.dumps(bad), *poison)]
    send(brokers, "app.item", b"[]", *more, b"\xff")
    receiver = once(topics(brokers, columns=COLUMNS), place)
    assert receiver.heard == ["add 1 x"]
    codes = [
        "bad_magic",
        "unknown_operation",
        "bad_envelope",
        "bad_envelope",
        "bad_envelope",
        "bad_magic",
    ]
    assert [failure["code"] for failure in failures(place)] == codes
    assert len({failure["event_id"] for failure in failures(place)}) == 6


def message(number: int, table: str = "item", **envelope: Any) -> bytes:
    """A message of a table; ``envelope``: members next to its payload."""
    payload = {
        "data": {"id": number, "name": f"n{number}"},
        "headers": {
            "operation": "INSERT",
            "changeSequence": sequence(number),
            "schema": "app",
            "table": table,
        },
    }
    return json.dumps(
        {"magic": "atMSG", "type": "DT", "message": payload, **envelope} if envelope else payload
    ).encode()


POISON = {
    "the prefix of a registry that is not given": b"\0\0\0\0\x07abc",
    "an id whose metadata never come": message(9, "unheard_of", messageSchemaId="00"),
    "no schema, in Avro": b"atMSG\x04DT\0\0\0\x02\x01",
}


@pytest.mark.promise("code error-unknown_schema")
@pytest.mark.parametrize(("kind", "place_of_it"), met([*POISON], [0, 1, 2]))
def test_one_message_whose_schema_is_not_known_is_recorded_and_passed_over(
    brokers: Cluster, place: Path, kind: str, place_of_it: int
) -> None:
    values = [message(1), message(2)]
    values.insert(place_of_it, POISON[kind])
    send(brokers, "app.item", *values)
    source = topics(brokers, columns=COLUMNS, metadata_wait=0.1)
    assert once(source, place).heard == ["add 1 n1", "add 2 n2"]
    (failure,) = failures(place)
    assert (failure["code"], failure["event_id"].rpartition(":")[2]) == (
        "unknown_schema",
        str(place_of_it),
    )
    assert sum(saved_at(place, "qlik-messages").token["app.item"].values()) == 3
    assert once(source, place).heard == []


def test_a_topic_of_which_nothing_can_be_read_is_not_passed_over(
    brokers: Cluster, place: Path
) -> None:
    poison = POISON["the prefix of a registry that is not given"]
    send(brokers, "app.item", poison, poison)
    send(brokers, "app.other", *(message(number, "other") for number in range(1, 6)))
    source = topics(
        brokers, "app.item", "app.other", columns={**COLUMNS, "app.other": COLUMNS["app.item"]}
    )
    receiver = Receiver()
    for _ in range(2):
        with pytest.raises(
            UnknownSchema,
            match=r"the schema of 2 messages is unknown.*app.item:[0-9]:0.*no registry is configured",
        ):
            follow(
                following(source),
                position_at(place, "qlik-messages"),
                receiver.sink,
                StopRequest(),
                once=True,
            )
    assert len(receiver.heard) == 5  # the other topic goes on
    assert sum(saved_at(place, "qlik-messages").token["app.item"].values()) == 0
    assert failures(place) == []


def test_too_many_messages_without_schema_stop_the_source(
    brokers: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qlik_messages, "MAX_UNDECODED", 3)
    send(brokers, "app.item", *[POISON["the prefix of a registry that is not given"]] * 5)
    with pytest.raises(UnknownSchema, match="4 messages"):
        follow(
            following(topics(brokers)),
            position_at(place, "qlik-messages"),
            Receiver().sink,
            StopRequest(),
        )


def test_a_running_publisher_goes_on_when_a_message_can_be_read_again(
    brokers: Cluster, place: Path
) -> None:
    source = topics(brokers, columns=COLUMNS)
    receiver = Receiver()
    send(brokers, "app.item", POISON["the prefix of a registry that is not given"])
    with running(following(source), position_at(place, "qlik-messages"), receiver):
        wait_until(lambda: token_at_open(place))
        time.sleep(0.3)
        assert sum(token_at_open(place)["app.item"].values()) == 0
        send(brokers, "app.item", message(1))
        wait_until(
            lambda: (
                token_at_open(place)["app.item"]
                and sum(token_at_open(place)["app.item"].values()) == 2
            )
        )
    assert receiver.heard == ["add 1 n1"]
    assert [failure["code"] for failure in failures(place)] == ["unknown_schema"]


def test_whatever_a_message_does_to_its_reader_it_is_recorded_and_passed_over(
    brokers: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = MessageReader.changes

    def fails(reader: MessageReader, one: Message) -> Iterator[Change]:
        if one.value == b"boom":
            raise RecursionError("maximum recursion depth exceeded")
        yield from changes(reader, one)

    monkeypatch.setattr(MessageReader, "changes", fails)
    send(brokers, "app.item", b"boom", message(1))
    source = topics(brokers, columns=COLUMNS)
    assert once(source, place).heard == ["add 1 n1"]
    (failure,) = failures(place)
    why = "message app.item:[0-9]:0: RecursionError: maximum recursion depth exceeded"
    assert re.fullmatch(why, failure["message"])
    assert once(source, place).heard == []


def test_whatever_a_change_does_to_its_events_it_is_recorded_and_passed_over(
    brokers: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(change: Change, *arguments: Any) -> Any:
        if dict(change.key or ())["id"] == 1:
            raise OverflowError("too large")
        return change_to_events(change, *arguments)

    monkeypatch.setattr(xds_publish, "change_to_events", fails)
    send(brokers, "app.item", message(1), message(2))
    assert once(topics(brokers, columns=COLUMNS), place).heard == ["add 2 n2"]
    assert [failure["message"] for failure in failures(place)] == ["OverflowError: too large"]


def test_a_position_that_the_brokers_do_not_have_is_not_passed_over(
    brokers: Cluster, place: Path
) -> None:
    write(brokers, insert(1))
    save_at(place, Saved({"app.item": {"0": 1000}}, 1), "qlik-messages")
    with pytest.raises(SourceLost, match="1000"):
        once(topics(brokers), place)


def test_a_topic_or_brokers_that_are_not_there_are_reported(brokers: Cluster, place: Path) -> None:
    with pytest.raises(SourceUnavailable):
        once(Topics("127.0.0.1:1", ("t",), ReadOptions(), {}, Report(), timeout=0.5), place)
    refused = Topics(brokers.brokers, ("t",), ReadOptions(), {"no.such.setting": "hush"}, Report())
    with pytest.raises(ConfigError) as error:
        next(refused.steps(None, once=True))
    assert "hush" not in str(error.value)


def test_what_kafka_had_no_room_for_is_not_taken_for_stored(
    brokers: Cluster, place: Path, tmp_path: Path
) -> None:
    stream = Stream(tmp_path / "capture.cdc")
    for key in range(1, 31):
        stream.insert(key)
    write(brokers, insert(1))  # so that there is a topic
    settings = {"queue.buffering.max.messages": 10, "linger.ms": 100}
    stop, is_full = StopRequest(), threading.Event()

    class Noting(KafkaSink):
        def send(self, document: Document) -> Answer:
            try:
                return super().send(document)
            except ReceiverUnavailable:
                is_full.set()
                raise

    followed = following(files(stream.path), RECORDS, batch_size=4, mark_interval=60.0)
    with brokers.stopped():
        thread = threading.Thread(
            target=follow,
            args=(
                followed,
                position_at(place),
                lambda: Noting(brokers.brokers, "t", settings, 1),
                stop,
            ),
        )
        thread.start()
        assert is_full.wait(PATIENCE)
    expected = {b"id=%d" % key for key in range(1, 31)}

    def stored() -> set[bytes]:
        try:
            records = brokers.records("t")
        except kafka.KafkaUnavailable:  # nobody has written to the topic yet, and asking makes it
            return set()
        return {record.key.partition(b",")[0] for record in records if record.key is not None}

    wait_until(lambda: stored() >= expected)
    stop.set()
    thread.join(PATIENCE)
    assert stored() == expected


def test_records_of_a_key_keep_their_order_and_a_new_key_begins_with_its_add(
    brokers: Cluster, place: Path, tmp_path: Path
) -> None:
    stream = Stream(tmp_path / "capture.cdc")
    names = dict.fromkeys(range(1, 8), "new")
    stream.insert(*names)
    for number in range(30):
        key = number % 7 + 1
        stream.update(key, names[key], f"v{number}")
        names[key] = f"v{number}"
    moved = stream.begin()
    moved.update(ITEM, {"id": 1, "name": names[1]}, {"id": 100, "name": names[1]})
    moved.commit()
    stream.update(100, names[1], "last")
    followed = following(files(stream.path), RECORDS, batch_size=3)
    follow(
        followed,
        position_at(place),
        lambda: KafkaSink(brokers.brokers, "t"),
        StopRequest(),
        once=True,
    )
    order = [
        event.event_id
        for step in files(stream.path).steps(None, once=True)
        if isinstance(step, Read)
        for event in change_to_events(step.change, step.event_id)
    ]
    records = brokers.records("t")
    assert len(records) == len(order)
    for key in {record.key for record in records}:
        own = [
            etree.fromstring(record.value or b"").find("input")[0]
            for record in records
            if record.key == key
        ]
        places = [order.index(event.attrib["event-id"]) for event in own]
        assert places == sorted(places)
        assert own[0].tag == "add"
        assert [event.tag for event in own[1:-1]] == ["modify"] * (len(own) - 2)
        assert (own[-1].tag == "delete") == (key is not None and key.startswith(b"id=1,"))
