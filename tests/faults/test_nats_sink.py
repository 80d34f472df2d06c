"""Events in streams of NATS JetStream, on a real server: what a message has, what is confirmed, and
what a user must do (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from killed_servers import (
    CutAnswers,
    assert_few_copies,
    assert_once_and_in_order,
    assert_whole_and_in_order,
    publish_beside_a_place_that_waits,
    publish_through_cuts,
    publish_through_kills,
)
from message_servers import (
    Server,
    accepts,
    example,
    program,
    records,
    running,
    server_files,
)

from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, KafkaRecord, Level
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.sinks.nats import NatsOptions, NatsSink
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase

nats = pytest.importorskip("nats", reason="the package nats-py is not installed")
pytestmark = pytest.mark.night

CONFIGURATION = """
max_payload: 262144
jetstream { store_dir: "%s" }
authorization {
  users = [
    { user: admin, password: admin }
    { user: publisher, password: hush, permissions: { publish: ["eventlog"], subscribe: ["_INBOX.>"] } }
    { user: other, password: hush, permissions: { publish: ["other"], subscribe: ["_INBOX.>"] } }
  ]
}
no_auth_user: admin
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("nats")
    (directory / "nats.conf").write_text(CONFIGURATION % (directory / "store"))
    with nats_server(directory) as server:
        yield server


@contextmanager
def nats_server(directory: Path) -> Iterator[Server]:
    """A server with the configuration nats.conf of a directory."""
    path = program("nats-server")

    def command(port: int, directory: Path) -> list[str]:
        return [path, "-a", "127.0.0.1", "-p", str(port), "-c", str(directory / "nats.conf")]

    with running(command, directory, accepts) as server:
        yield server


def asked(server: Server, question: Any, password: str = "admin") -> Any:
    """The answer to a coroutine function of JetStream's context, asked by the user admin."""

    async def ask() -> Any:
        client = await nats.connect(url(server), user="admin", password=password)
        try:
            return await question(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(ask())


def url(server: Server) -> str:
    return f"nats://127.0.0.1:{server.port}"


@pytest.fixture(autouse=True)
def stream(server: Server) -> None:
    make_stream(server)


def make_stream(server: Server) -> None:
    """An empty stream of the subjects eventlog, hr.>."""

    async def make(context: Any) -> None:
        for name in [one.config.name for one in await context.streams_info()]:
            await context.delete_stream(name)
        await context.add_stream(name="EVENTLOG", subjects=["eventlog", "hr.>"])
        await context.purge_stream("EVENTLOG")

    asked(server, make)


def stored(server: Server, stream: str = "EVENTLOG") -> list[Any]:
    async def read(context: Any) -> list[Any]:
        state = (await context.stream_info(stream)).state
        numbers = range(state.first_seq, state.last_seq + 1)
        return [await context.get_msg(stream, number) for number in numbers if number]

    found: list[Any] = asked(server, read)
    return found


@contextmanager
def to(server: Server, environ: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    settings = {"type": "nats", "nats_url": url(server), "timeout": 5, **options}
    with closing(open_sink(load({"sink": settings}, environ or {}), io.StringIO())) as sink:
        yield sink


@pytest.fixture
def sink_case(server: Server) -> SinkCase:
    def received() -> list[str]:
        return [
            one
            for message in stored(server)
            for one in re.findall(r'event-id="([^"]+)"', message.data.decode())
        ]

    return SinkCase(NatsSink, NatsOptions(url(server), timeout=1), received, server.stopped)


def test_a_message_has_the_event_id_the_key_the_headers_and_the_body(server: Server) -> None:
    record = KafkaRecord("hr.usr", "usr,id=Ü\n".encode(), b"<nds/>", (("traceparent", b"00-1"),))
    with to(server) as sink:
        assert sink.send(records(e7=(record,))) == Answer()
    (message,) = stored(server)
    assert (message.subject, message.data) == ("hr.usr", b"<nds/>")
    assert message.headers == {
        "Nats-Msg-Id": "7", "event_id": "7", "topic": "hr.usr", "key": "usr,id=%C3%9C%0A",
        "traceparent": "00-1",
    }  # fmt: skip


def test_the_example_of_the_guide_publishes(server: Server) -> None:
    settings = {**example("nats"), "nats_url": url(server)}
    with closing(open_sink(load({"sink": settings}, {}), io.StringIO())) as sink:
        sink.send(records(e1=b"a"))
    assert [message.subject for message in stored(server)] == ["hr.changes"]


def test_a_message_that_comes_again_is_stored_once(server: Server) -> None:
    for _ in range(2):
        with to(server) as sink:
            sink.send(records(e1=b"a", e2=b"b"))
    assert len(stored(server)) == 2


def test_events_of_one_object_keep_their_order(server: Server) -> None:
    made = {f"e{number}": (KafkaRecord(None, b"k", b"%d" % number),) for number in range(50)}
    with to(server) as sink:
        sink.send(records(**made))
    assert [message.data for message in stored(server)] == [b"%d" % number for number in range(50)]


def test_a_message_that_is_too_large_is_an_error_of_its_event_and_never_sent(
    server: Server,
) -> None:
    with to(server) as sink:
        answer = sink.send(records(e1=b"x" * 262_100, e2=b"y" * 262_000, e3=b"z"))
    levels = [answer.result(one).level for one in ("1", "2", "3")]
    assert levels == [Level.ERROR, Level.SUCCESS, Level.SUCCESS]
    assert answer.result("1").code == "too_large"
    assert "262144, max_payload" in answer.result("1").message
    assert len(stored(server)) == 2


def test_a_message_that_the_stream_alone_does_not_take_is_an_error_of_its_event(
    server: Server,
) -> None:
    asked(server, lambda context: context.update_stream(
        name="EVENTLOG", subjects=["eventlog"], max_msg_size=1000
    ))  # fmt: skip
    with to(server) as sink:
        answer = sink.send(records(e1=b"x" * 2000, e2=b"y"))
    assert [answer.result(one).level for one in ("1", "2")] == [Level.ERROR, Level.SUCCESS]
    assert "the stream takes no message of this size" in answer.result("1").message


def test_what_was_confirmed_outlives_a_kill_of_the_server_and_later_events_follow(
    server: Server,
) -> None:
    with to(server, timeout=2) as sink:
        sink.send(records(e1=b"a"))
        with server.killed(), pytest.raises(ReceiverUnavailable):
            sink.send(records(e2=b"b"))
        sink.send(records(e2=b"b"))
    assert [message.data for message in stored(server)] == [b"a", b"b"]


def test_a_full_stream_makes_everything_wait(server: Server) -> None:
    asked(server, lambda context: context.update_stream(
        name="EVENTLOG", subjects=["eventlog"], max_msgs=1, discard="new"
    ))  # fmt: skip
    with to(server) as sink:
        sink.send(records(e1=b"a"))
        with pytest.raises(ReceiverUnavailable, match="raise the limits of the stream"):
            sink.send(records(e2=b"b"))


@pytest.mark.parametrize(
    ("options", "environ", "advice"),
    [
        ({"subject": "nowhere"}, {}, "nats stream add EVENTLOG --subjects 'nowhere'"),
        ({}, {"USER": "publisher", "PASSWORD": "wr0ng"}, "check EVENTLOG_SINK_USER"),
        ({}, {"TOKEN": "wr0ng"}, "EVENTLOG_SINK_TOKEN or sink.credentials_file"),
        (
            {}, {"USER": "other", "PASSWORD": "hush"},
            'permit the user: publish = ["eventlog"], subscribe = ["_INBOX.>"]',
        ),
    ],
)  # fmt: skip
def test_a_refusal_of_the_server_names_what_to_do_and_no_secret(
    server: Server, options: dict[str, Any], environ: dict[str, str], advice: str
) -> None:
    variables = {f"EVENTLOG_SINK_{name}": value for name, value in environ.items()}
    with to(server, variables, **options) as sink, pytest.raises(ReceiverUnavailable) as caught:
        sink.send(records(e1=b"val7e"))
    message = str(caught.value)
    assert advice in message
    assert advice in caught.value.in_short
    assert not any(secret in message for secret in ("wr0ng", "hush", "val7e"))
    assert caught.value.code == "receiver_misconfigured", "an option is wrong"
    assert not caught.value.is_suspicious


def of_topics(*topics: str) -> dict[str, tuple[KafkaRecord, ...]]:
    """An event of each topic."""
    return {
        f"e{number}": (KafkaRecord(topic, b"k", b"a"),) for number, topic in enumerate(topics, 1)
    }


def test_an_error_of_one_message_names_its_subject(server: Server) -> None:
    with (
        to(server) as sink,
        pytest.raises(ReceiverUnavailable, match=r"takes the subject zz\.b; make one"),
    ):
        sink.send(records(**of_topics("hr.a", "zz.b", "hr.c")))


def test_a_forbidden_subject_is_the_one_that_is_named(server: Server) -> None:
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    with (
        to(server, environ) as sink,
        pytest.raises(ReceiverUnavailable, match=r'permit the user: publish = \["hr\.b"\]'),
    ):
        sink.send(records(**of_topics("eventlog", "hr.b")))


def test_a_topic_that_is_no_subject_stops_no_other(server: Server) -> None:
    with to(server) as sink:
        sink.send(records(**of_topics("hr..lead", "hr.trail.", "hr.a b", "hr.*", "hr.ok")))
    assert [message.subject for message in stored(server)] == [
        "hr._lead", "hr.trail_", "hr.a_b", "hr._", "hr.ok",
    ]  # fmt: skip
    assert stored(server)[0].headers["topic"] == "hr..lead"


def test_a_user_with_the_permissions_that_the_message_names_can_publish(server: Server) -> None:
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    with to(server, environ) as sink:
        sink.send(records(e1=b"a"))
    assert len(stored(server)) == 1


def test_an_encrypted_server_is_verified(tmp_path: Path) -> None:
    files = server_files(tmp_path)
    (tmp_path / "nats.conf").write_text(
        f'jetstream {{ store_dir: "{tmp_path}/store" }}\n'
        f'tls {{ cert_file: "{files.certificate}", key_file: "{files.certificate}" }}\n'
    )
    with nats_server(tmp_path) as server:
        secret = {"nats_url": url(server).replace("nats:", "tls:"), "timeout": 5}
        with (
            to(server, **secret, ca_file=str(files.authority)) as sink,
            pytest.raises(ReceiverUnavailable, match="no stream takes the subject eventlog"),
        ):
            sink.send(records(e1=b"a"))
        with (
            to(server, **secret) as sink,
            pytest.raises(ReceiverUnavailable, match=r"set sink\.ca_file to the authorities"),
        ):
            sink.send(records(e1=b"a"))


def test_a_publisher_loses_nothing_and_turns_no_order_while_its_server_is_killed(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    sink = {"type": "nats", "nats_url": url(server), "timeout": 5}
    publish_through_kills(database, tmp_path, sink, server)
    assert_whole_and_in_order([message.data for message in stored(server)])


def test_a_trial_reports_the_stream_and_its_window(server: Server) -> None:
    def trial(**options: Any) -> str | None:
        sink = {"type": "nats", "nats_url": url(server), "timeout": 2, **options}
        return try_receiver(load({"sink": sink}, {}), io.StringIO())

    found = trial()
    assert found is not None
    assert "stream EVENTLOG takes eventlog, and recognizes" in found
    assert found.endswith("within 120 s")
    with pytest.raises(ReceiverUnavailable, match="nats stream add EVENTLOG --subjects 'x'"):
        trial(subject="x")


@pytest.mark.parametrize(
    ("limits", "reported"),
    [
        (
            {"max_msgs": 5, "max_age": 600.0},
            "; beyond max_msgs = 5, max_age = 600 it drops its oldest",
        ),
        ({"max_msgs": 5, "discard": "new"}, ""),
        (
            {"max_msgs_per_subject": 2, "discard": "new"},
            "; beyond max_msgs_per_subject = 2 it drops",
        ),
    ],
)
def test_a_trial_reports_the_limits_by_which_a_stream_drops_messages(
    server: Server, limits: dict[str, Any], reported: str
) -> None:
    asked(server, lambda context: context.update_stream(
        name="EVENTLOG", subjects=["eventlog"], **limits
    ))  # fmt: skip
    sink = {"type": "nats", "nats_url": url(server), "timeout": 2}
    found = try_receiver(load({"sink": sink}, {}), io.StringIO()) or ""
    assert "within 120 s" + reported in found
    assert ("drops its oldest" in found) is bool(reported)


@pytest.mark.parametrize(
    ("subject", "user"), [("nowhere", ""), ("hr.Bad", "publisher")], ids=["no stream", "no right"]
)
def test_a_subject_that_takes_nothing_leaves_the_messages_of_all_others(
    server: Server, subject: str, user: str
) -> None:
    names = {"USER": user, "PASSWORD": "hush"} if user else {"USER": "admin", "PASSWORD": "admin"}
    environ = {f"EVENTLOG_SINK_{name}": value for name, value in names.items()}
    made = [("e1", "eventlog"), ("e2", subject), ("e3", "eventlog"), ("e4", subject)]
    with to(server, environ, timeout=4) as sink:
        answer = sink.send(
            records(
                **{
                    name: (KafkaRecord(place, name.encode(), name.encode()),)
                    for name, place in made
                }
            )
        )
    assert [answer.result(one).place for one in "1234"] == ["", subject, "", subject]
    assert [one.data for one in stored(server)] == [b"e1", b"e3"]


def test_a_missing_stream_makes_only_its_own_classes_wait(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    asked(server, lambda context: context.update_stream(
        name="EVENTLOG", subjects=["hr.public.a"]
    ))  # fmt: skip

    def add() -> None:
        asked(server, lambda context: context.add_stream(name="B", subjects=["hr.public.b"]))

    sink = {"type": "nats", "nats_url": url(server)}
    publish_beside_a_place_that_waits(database, tmp_path, sink, add)
    assert_once_and_in_order([one.data for one in stored(server)])
    assert_once_and_in_order([one.data for one in stored(server, "B")])


def test_answers_that_are_cut_lose_nothing_and_repeat_only_what_is_in_flight(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    cuts = CutAnswers(server.port, 4)
    sink = {"type": "nats", "nats_url": f"nats://127.0.0.1:{cuts.port}", "timeout": 3}
    most = publish_through_cuts(database, tmp_path, sink, cuts)
    assert_few_copies([one.data for one in stored(server)], most)
