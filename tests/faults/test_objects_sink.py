"""The sink ``objects`` on moto's S3 server: names, kill -9 at every step, a store that becomes
unavailable, refused keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from bucket import ACCESS_KEY, KEYS, SECRET_KEY, Store
from publishers import install, write_config
from shared import each_step, execute, fetch, statuses, url_of
from test_kill import EACH, QUEUE, TABLES, Publisher, among

from eventlog import cli
from eventlog.config.effective import effective
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Document, Event, Operation
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.declared.opening import open_to_publish
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.sinks import Owner
from eventlog.publisher.sinks import objects as objects_sink
from eventlog.publisher.sinks.objects import STATE, ObjectsSink

OWNER = Owner("log 1", "the log eventlog")


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    store = Store()
    yield store
    store.close()


@pytest.fixture
def store(server: Store) -> Store:
    server.clear()
    return server


@contextmanager
def sink_of(config: Config) -> Iterator[ObjectsSink]:
    ObjectsSink.claim(config.sink.options, lambda: OWNER, lambda _: 1000)
    with closing(open_sink(config, StringIO())) as sink:
        assert isinstance(sink, ObjectsSink)
        yield sink


def document(delivery_no: int, document_no: int, text: str) -> Document:
    return Document(
        delivery_no, document_no, [f"{delivery_no}.{document_no}"], f"<nds>{text}</nds>\n".encode()
    )


def test_a_location_is_tried_by_a_list_and_its_state(store: Store) -> None:
    told = try_receiver(store.config(), StringIO())
    assert told is not None
    assert told.endswith("can be listed, read and written; it has no owner yet")
    with sink_of(store.config()):
        assert OWNER.name in str(try_receiver(store.config(), StringIO()))
    assert [name for name in store.names() if name] == [STATE]  # "" is the folder's marker


# Names


@pytest.mark.promise("sink objects")
def test_a_delivery_is_one_object_that_appears_when_it_is_flushed(store: Store) -> None:
    with sink_of(store.config()) as sink:
        for document_no in (1, 2, 3):
            sink.send(document(7, document_no, str(document_no)))
        assert store.names() == [STATE]
        sink.flush()
        assert store.names() == ["000000000007-000001.xmll", STATE]
        assert (
            store.read("000000000007-000001.xmll") == b"<nds>1</nds>\n<nds>2</nds>\n<nds>3</nds>\n"
        )
        sink.send(document(8, 1, "kept by nobody"))
    assert len(store.names()) == 2


def test_a_document_that_is_sent_again_replaces_itself(store: Store) -> None:
    for text in ("first", "again"):
        with sink_of(store.config()) as sink:
            sink.send(document(7, 2, text))
            sink.flush()
    assert [name for name in store.names() if name != STATE] == ["000000000007-000002.xmll"]
    assert store.read("000000000007-000002.xmll") == b"<nds>again</nds>\n"


@pytest.mark.parametrize("by", [{}, {"partition_by": ["class", "day"]}], ids=["whole", "divided"])
def test_an_object_that_is_there_already_gains_no_events(
    store: Store, by: dict[str, list[str]]
) -> None:
    def events(document_no: int) -> list[Event]:
        return [Event(Operation.DELETE, "usr", "id=1", f"7.{document_no}", ())]

    config = load({"sink": store.sink(**by), "publisher": {"batch_size": 1}}, KEYS)
    for documents in ((1,), (1, 2, 3)):  # the first process is killed before its marks
        with sink_of(config) as sink:
            for document_no in documents:
                body = f"<nds>{document_no}</nds>\n".encode()
                make_events = partial(events, document_no)
                sink.send(Document(7, document_no, [f"7.{document_no}"], body, (), make_events))
            sink.flush()
    held = [store.read(name) for name in store.names() if name != STATE]
    assert held == [b"<nds>1</nds>\n", b"<nds>2</nds>\n<nds>3</nds>\n"]


def test_a_delivery_that_is_sent_again_on_another_day_keeps_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [4]
    monkeypatch.setattr(
        objects_sink, "utc_now", lambda: datetime(2024, 5, days[-1], 12, tzinfo=UTC)
    )
    config = store.config(partition_by=["day"])

    def put(*deliveries: int) -> None:
        with sink_of(config) as sink:
            for delivery_no in deliveries:
                sink.send(document(delivery_no, 1, "x"))
                sink.flush()

    put(1, 2)
    days.append(5)
    put(2, 3)
    days.append(8)
    put(4)
    assert [name for name in store.names() if name != STATE] == [
        "day=2024-05-04/000000000001-000001.xmll",
        "day=2024-05-04/000000000002-000001.xmll",
        "day=2024-05-05/000000000003-000001.xmll",
        "day=2024-05-08/000000000004-000001.xmll",
    ]


# Whose the objects are


def test_a_location_of_another_log_is_refused(store: Store) -> None:
    with sink_of(store.config()):
        pass
    with pytest.raises(ConfigError, match=r"belongs to the log eventlog, not to the log other"):
        ObjectsSink.claim(
            store.config().sink.options, lambda: Owner("log 2", "the log other"), lambda _: 1000
        )


def test_a_log_that_was_put_back_is_refused(store: Store) -> None:
    with sink_of(store.config()) as sink:
        for delivery_no in (1, 500):
            sink.send(document(delivery_no, 1, "x"))
            sink.flush()
    with pytest.raises(
        ConfigError,
        match="has objects of delivery 500, but the newest delivery of the log eventlog is 499",
    ):
        ObjectsSink.claim(store.config().sink.options, lambda: OWNER, lambda _: 499)


def test_a_log_that_was_put_back_goes_on_beyond_all_deliveries_that_may_have_objects(
    store: Store,
) -> None:
    """The state is ahead of the deliveries: those up to its number may have been put."""
    with sink_of(store.config()) as sink:
        for number in (1, 90):
            sink.send(document(number, 1, "x"))
            sink.flush()
    beyond: list[int] = []

    def newest_delivery(latest: int) -> int:
        beyond.append(latest)
        return latest

    ObjectsSink.claim(store.config().sink.options, lambda: OWNER, newest_delivery)
    assert beyond[0] >= 90


def test_the_publisher_of_a_copy_of_the_database_never_replaces_an_object(store: Store) -> None:
    with sink_of(store.config()) as original, sink_of(store.config()) as copy:
        for sink, number in ((original, 1), (copy, 102), (original, 101)):
            sink.send(document(number, 1, "x"))
            sink.flush()
        original.send(document(102, 1, "y"))
        with pytest.raises(ReceiverUnavailable, match="another publisher has changed"):
            original.flush()
    assert store.read("000000000102-000001.xmll") == b"<nds>x</nds>\n"


def test_a_state_whose_answer_was_lost_is_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = objects_sink.ObjectStore.write_object
    with sink_of(store.config()) as sink:

        def lose_once(self: Any, name: str, content: bytes) -> None:
            write(self, name, content)
            if name == STATE:
                monkeypatch.setattr(objects_sink.ObjectStore, "write_object", write)
                raise OSError("the answer was lost")

        monkeypatch.setattr(objects_sink.ObjectStore, "write_object", lose_once)
        for is_lost in (True, False):
            sink.send(document(1, 1, "x"))
            if is_lost:
                with pytest.raises(ReceiverUnavailable):
                    sink.flush()
            else:
                sink.flush()
    assert store.read("000000000001-000001.xmll") == b"<nds>x</nds>\n"


# A store that refuses, or is unavailable


def test_a_store_that_becomes_unavailable_means_that_nothing_counts(store: Store) -> None:
    other = Store()
    with sink_of(other.config()) as sink:
        sink.send(document(1, 1, "x"))
        sink.flush()
        other.close()
        sink.send(document(2, 1, "x"))
        with pytest.raises(
            ReceiverUnavailable,
            match=r"cannot put 000000000002-000001\.xmll: .*the store cannot be reached",
        ) as away:
            sink.flush()
        assert away.value.code == "receiver_unavailable"
        assert sink.flush() is None  # what was lost is sent again


def test_a_bucket_that_is_not_there_is_reported_at_the_start(store: Store) -> None:
    with (
        pytest.raises(
            ConfigError,
            match=r"s3://nowhere/hr cannot be .*there is no such bucket; check sink\.bucket_url",
        ),
        sink_of(store.config(bucket_url="s3://nowhere/hr")),
    ):
        pass


def test_refused_keys_are_a_clear_error_that_shows_none(store: Store) -> None:
    other = Store()
    try:
        config = other.config()
        with sink_of(config) as sink:
            other.count_keys_after(0)
            with pytest.raises(
                ReceiverUnavailable, match="the keys are refused; check EVENTLOG_SINK_ACCESS_KEY"
            ) as away:
                sink.send(document(1, 1, "x"))
            assert away.value.code == "receiver_misconfigured"
            assert away.value.reply is not None
            assert away.value.reply.status == "ACCESS_DENIED"
            assert away.value.reply.text in str(away.value), "the words of the store"
        with (
            pytest.raises(
                ConfigError, match="the keys are refused; check EVENTLOG_SINK_ACCESS_KEY"
            ) as refused,
            sink_of(config),
        ):
            pass
        for shown in (
            str(away.value),
            str(refused.value),
            repr(config),
            str(list(effective(config))),
        ):
            assert ACCESS_KEY not in shown
            assert SECRET_KEY not in shown
    finally:
        other.count_keys_after(1_000_000)
        other.close()


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ({}, {}, r"objects needs sink\.bucket_url"),
        ({"bucket_url": "/a/path"}, {}, r"it must be a URI such as s3://bucket/prefix"),
        (
            {"bucket_url": "s3://A:b@bucket/x"},
            {},
            "the URL contains a key or token; remove it, and set EVENTLOG_SINK_ACCESS_KEY",
        ),
        ({"bucket_url": "s3://b/x", "partition_by": ["month"]}, {}, "a list of class and day"),
        (
            {"bucket_url": "s3://b/x", "partition_by": ["class"]},
            {},
            "a line of the format xds holds all events",
        ),
        ({"bucket_url": "gs://b/x", "region": "eu"}, {}, r"sink\.region applies only to s3://"),
        (
            {"bucket_url": "abfss://b/x?enable_tls=false"},
            {},
            "abfss asks for TLS; remove enable_tls",
        ),
        (
            {"bucket_url": "s3://b/x"},
            {"EVENTLOG_SINK_ACCESS_KEY": "A"},
            ", or neither",
        ),
        (
            {"bucket_url": "s3://b/x", "access_key": "A"},
            {},
            "a secret does not belong in this file",
        ),
    ],
)
def test_wrong_options_are_refused_and_no_key_is_shown(
    tmp_path: Path, options: dict[str, Any], environ: dict[str, str], message: str
) -> None:
    path = write_config(tmp_path, "sqlite:///x.db", sink={"type": "objects", **options})
    with pytest.raises(ConfigError, match=message) as refused:
        load(path, environ)
    assert "A:b" not in str(refused.value)


def test_documents_of_one_event_are_divided_by_class_in_any_format(tmp_path: Path) -> None:
    sink = {"type": "objects", "bucket_url": "s3://b/x", "partition_by": ["class"]}
    path = write_config(tmp_path, "sqlite:///x.db", sink=sink, publisher={"batch_size": 1})
    assert load(path, {}).sink.options.partition_by == ("class",)


# With a publisher


def test_classes_and_days_are_folders_and_an_object_holds_one_class(
    database: sa.Engine, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        database,
        "CREATE TABLE usr (id integer PRIMARY KEY, a text)",
        "CREATE TABLE grp (id integer PRIMARY KEY, a text)",
    )
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr"}, {"table": "grp"}],
        publisher={"allow_loopback": True}, sink=store.sink(partition_by=["class", "day"]),
        format={"type": "cloudevents"},
    )  # fmt: skip
    config = load(path, KEYS)
    install(config)
    execute(
        database,
        *(f"INSERT INTO {table} VALUES ({i}, 'x')" for i in range(3) for table in ("usr", "grp")),
    )
    with (
        open_to_publish(config, Counters()) as context,
        closing(open_sink(config, StringIO())) as sink,
    ):
        publish_once(context, sink)
    found = {
        name.partition("/")[0]: [
            json.loads(line)["data"]["class"] for line in store.read(name).splitlines()
        ]
        for name in store.names()
        if name != STATE
    }
    assert found == {"class=usr": ["usr"] * 3, "class=grp": ["grp"] * 3}
    assert all("/day=20" in name for name in store.names() if name != STATE)
    assert set(fetch(database, "SELECT status FROM eventlog")) == {("S",)}


def test_nothing_is_marked_while_the_store_is_unavailable_and_all_is_when_it_is_back(
    database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    execute(database, *TABLES)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    path = write_config(tmp_path, url_of(database), sink=store.sink())
    config = load(path, KEYS)
    install(config)
    execute(database, QUEUE)
    with (
        open_to_publish(config, Counters()) as context,
        closing(open_sink(config, StringIO())) as sink,
    ):
        monkeypatch.setattr(
            objects_sink.ObjectStore,
            "write_object",
            lambda *_: (_ for _ in ()).throw(OSError("curlCode: 7")),
        )
        with pytest.raises(ReceiverUnavailable):
            publish_once(context, sink)
    assert set(statuses(database).values()) - {"E"} == {"N"}
    monkeypatch.undo()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["--config", str(path), "publish", "--once"]) == 0
    assert set(statuses(database).values()) == {"S", "E"}
    assert SECRET_KEY not in capfd.readouterr().err


class ObjectsPublisher(Publisher):
    """A publisher of objects, which is killed at its steps."""

    marker = STATE
    store: Store

    def sink(self, form: str) -> dict[str, Any]:
        return self.store.sink(partition_by=["day"])

    def clear(self) -> None:
        self.store.clear()

    def markers(self) -> list[str]:
        return [name for name in self.store.names() if name == STATE]

    def bodies(self) -> list[bytes]:
        names = [name for name in self.store.names() if name != STATE]
        return [line for name in names for line in self.store.read(name).splitlines()]


@pytest.mark.timeout(900)  # some hundred publishers, each of which dies
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(among("object", "state", "mark"), id="its_steps"),
        pytest.param(each_step, id="each_step", marks=EACH),
    ],
)
def test_killed_at_any_step_every_event_is_in_one_object(
    database: sa.Engine,
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    chosen: Callable[[Sequence[str]], list[int]],
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setattr(ObjectsPublisher, "store", store, raising=False)
    with closing(ObjectsPublisher(database, tmp_path, "lines", mark_interval=0)) as killed:
        steps = killed.steps()
        names = killed.die_at(chosen(steps))
    assert len(set(names)) > 6
    assert set(steps) >= {
        "before the state is put",
        "after the state is put",
        "before an object is put",
        "after an object is put",
        "the entry is committed",
        "rows are marked",
        "the marks are committed",
    }
