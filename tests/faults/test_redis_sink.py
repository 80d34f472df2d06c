"""Events in Redis Streams, on a real server: what an entry has, what is confirmed before a mark, and
what a user must do (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import io
import re
import time
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
    example,
    free_port,
    program,
    records,
    running,
    server_files,
)
from receiver import Receiver, reply
from test_follow_one_document import Objects

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, KafkaRecord, Level
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.sinks.redis import RedisOptions, RedisSink
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase

redis = pytest.importorskip("redis", reason="the package redis is not installed")
pytestmark = pytest.mark.night


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@contextmanager
def redis_server(directory: Path, *options: str) -> Iterator[Server]:
    path = program("redis-server")

    def command(port: int, directory: Path) -> list[str]:
        return [
            path, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory),
            "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0", *options,
        ]  # fmt: skip

    with running(command, directory, answers) as server:
        yield server


def answers(port: int) -> bool:
    try:
        return bool(client(port).ping())
    except redis.RedisError:
        return False


def client(port: int) -> Any:
    return redis.Redis(port=port, protocol=2)


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames or "sink_case" in request.fixturenames:
        client(request.getfixturevalue("server").port).flushall()


def url(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


@contextmanager
def to(server: Server, environ: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    settings = {"type": "redis", "redis_url": url(server), "timeout": 5, **options}
    with closing(open_sink(load({"sink": settings}, environ or {}), io.StringIO())) as sink:
        yield sink


def entries(server: Server, stream: str = "eventlog") -> list[dict[bytes, bytes]]:
    return [fields for _, fields in client(server.port).xrange(stream)]


@pytest.fixture
def sink_case(server: Server) -> SinkCase:
    def received() -> list[str]:
        ids = [
            one
            for entry in entries(server)
            for one in re.findall(r'event-id="([^"]+)"', entry[b"value"].decode())
        ]
        return list(dict.fromkeys(ids))

    options = RedisOptions(url(server), timeout=1)
    return SinkCase(RedisSink, options, received, server.stopped)


def test_an_entry_has_the_event_id_the_key_the_headers_and_the_value(server: Server) -> None:
    record = KafkaRecord("hr.usr", b"usr,id=1", b"<nds/>", (("traceparent", b"00-1"),))
    with to(server, stream="hr") as sink:
        assert sink.send(records(e7=(record,))) == Answer()
        sink.flush()
    assert entries(server, "hr") == [{
        b"event_id": b"7", b"topic": b"hr.usr", b"key": b"usr,id=1", b"traceparent": b"00-1",
        b"value": b"<nds/>",
    }]  # fmt: skip


def test_without_a_stream_the_topic_of_the_format_names_it(server: Server) -> None:
    with to(server) as sink:
        sink.send(records(e1=(KafkaRecord("hr.usr", None, b"a"),), e2=b"b"))
    assert [len(entries(server, name)) for name in ("hr.usr", "eventlog")] == [1, 1]


def test_a_followed_source_is_published_whole_and_in_order(server: Server, tmp_path: Path) -> None:
    source = Objects(tmp_path, 5)
    position = f"sqlite:///{tmp_path / 'position.db'}"
    config = {
        "source": {**source.settings, "position_url": position},
        "sink": {"type": "redis", "redis_url": url(server), "stream": "changes"},
    }
    for _ in range(2):  # the second run finds nothing new
        Publisher.from_config(config, environ={}).run_once()
    ids = [entry[b"event_id"].decode() for entry in entries(server, "changes")]
    assert ids == [event_id for event_id, *_ in source.whole]


def test_a_stream_gets_the_dead_letters_of_another_sink(server: Server, tmp_path: Path) -> None:
    source = Objects(tmp_path, 1)
    letters = {"type": "redis", "redis_url": url(server), "stream": "refused"}
    with Receiver(lambda _: reply(422, b"no")) as receiver:
        config = {
            "source": {**source.settings, "position_url": f"sqlite:///{tmp_path / 'position.db'}"},
            "sink": {"type": "http", "url": receiver.url, "response_format": "status"},
            "dead_letter": letters,
        }
        Publisher.from_config(config, environ={}).run_once()
    first, *_ = found = entries(server, "refused")
    assert len(found) == 3
    assert first[b"event_id"] == first[b"key"] == first[b"dead_letter_key"]
    assert first[b"dead_letter_code"] == b"receiver"
    assert first[b"value"].startswith(b"<?xml")


def test_the_example_of_the_guide_publishes(server: Server) -> None:
    settings = {**example("redis"), "redis_url": url(server)}
    with closing(open_sink(load({"sink": settings}, {}), io.StringIO())) as sink:
        sink.send(records(e1=b"a"))
        sink.flush()
    assert len(entries(server, "hr")) == 1


def test_a_tombstone_becomes_no_entry(server: Server) -> None:
    with to(server) as sink:
        sink.send(records(e1=(KafkaRecord(None, b"k", b"gone"), KafkaRecord(None, b"k", None))))
    assert [entry[b"value"] for entry in entries(server)] == [b"gone"]


def test_a_stream_keeps_all_entries_unless_a_length_is_set(server: Server) -> None:
    many = records(**{f"e{number}": b"x" for number in range(2000)})
    for options, left in (({}, 2000), ({"max_length": 500}, 700)):
        with to(server, stream=f"s{left}", **options) as sink:
            sink.send(many)
        assert len(entries(server, f"s{left}")) <= left
    assert len(entries(server, "s2000")) == 2000


def test_a_message_that_is_too_large_is_an_error_of_its_event_and_never_sent(
    tmp_path: Path,
) -> None:
    with redis_server(tmp_path, "--proto-max-bulk-len", "1mb") as server, to(server) as sink:
        answer = sink.send(records(e1=b"x" * (2**20 + 1), e2=b"y" * 2**20))
        assert [answer.result(one).level for one in ("1", "2")] == [Level.ERROR, Level.SUCCESS]
        assert answer.result("1").code == "too_large"
        assert "1048576, proto-max-bulk-len" in answer.result("1").message
        assert len(entries(server)) == 1


def test_what_was_flushed_outlives_a_kill_of_the_server_and_later_events_follow(
    server: Server,
) -> None:
    with to(server) as sink:
        sink.send(records(e1=b"a"))
        sink.flush()
        with server.killed(), pytest.raises(ReceiverUnavailable, match="and that the server runs"):
            sink.send(records(e2=b"b"))
        sink.send(records(e2=b"b"))
        sink.flush()
    assert [entry[b"value"] for entry in entries(server)] == [b"a", b"b"]


def test_a_flush_after_the_connection_broke_confirms_nothing(server: Server) -> None:
    with to(server, wait_replicas=1, timeout=0.5) as sink:
        sink.send(records(e1=b"a"))
        with server.killed():
            pass
        with pytest.raises(ReceiverUnavailable):
            sink.flush()


def test_a_flush_confirms_nothing_that_a_new_connection_has_not_written(server: Server) -> None:
    with to(server) as sink:
        sink.send(records(e1=b"a"))
        with server.killed():
            pass
        with pytest.raises(ReceiverUnavailable, match="broke before the entries were confirmed"):
            sink.send(records(e2=b"b"))
        sink.send(records(e2=b"b"))
        with pytest.raises(ReceiverUnavailable, match="broke before the entries were confirmed"):
            sink.flush()
        sink.send(records(e1=b"a"))
        sink.flush()


def test_the_marks_wait_for_replicas(server: Server, tmp_path: Path) -> None:
    with to(server, wait_replicas=1, timeout=0.3) as sink:
        sink.send(records(e1=b"a"))
        with pytest.raises(ReceiverUnavailable, match=r"0 of 1 replicas have the entries"):
            sink.flush()
    with redis_server(tmp_path, "--replicaof", "127.0.0.1", str(server.port)) as replica:
        with to(server, wait_replicas=1, timeout=20) as sink:
            sink.send(records(e1=b"a"))
            sink.flush()
        assert entries(replica)[-1][b"event_id"] == b"1"


def test_the_marks_wait_for_the_disk_or_the_server_is_too_old(server: Server) -> None:
    version = tuple(map(int, client(server.port).info()["redis_version"].split(".")[:2]))
    with to(server, wait_disk=True) as sink:
        if version >= (7, 2):
            sink.send(records(e1=b"a"))
            sink.flush()
            return
        with pytest.raises(
            ReceiverUnavailable, match=r"Redis 7\.2 or later, or remove sink\.wait_disk"
        ):
            sink.send(records(e1=b"a"))
    assert not client(server.port).exists("eventlog"), "each attempt would write the entry again"


def test_a_missing_right_to_wait_is_reported_before_an_entry_is_written(server: Server) -> None:
    admin = client(server.port)
    admin.execute_command("ACL", "SETUSER", "publisher", "on", ">hush", "~*", "+@all", "-wait")
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    with (
        to(server, environ, wait_replicas=1) as sink,
        pytest.raises(ReceiverUnavailable, match=r"\+wait if wait_replicas is set"),
    ):
        sink.send(records(e1=b"a"))
    assert not admin.exists("eventlog")


@pytest.mark.parametrize(
    ("setup", "environ", "advice"),
    [
        ((), {"PASSWORD": "wr0ng"}, "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD"),
        ((), {"USER": "publisher", "PASSWORD": "wr0ng"}, "check EVENTLOG_SINK_USER"),
        (
            ("ACL", "SETUSER", "publisher", "on", ">hush", "~other", "+@all"),
            {"USER": "publisher", "PASSWORD": "hush"},
            "grant the user its rights: ACL SETUSER USER ~STREAM +ping +xadd",
        ),
        (("SET", "eventlog", "1"), {}, "the key is not a stream: set sink.stream"),
        (("CONFIG", "SET", "maxmemory", "1"), {}, "free memory, or raise maxmemory"),
    ],
)
def test_a_refusal_of_the_server_names_what_to_do_and_no_secret(
    server: Server, setup: tuple[str, ...], environ: dict[str, str], advice: str
) -> None:
    admin = client(server.port)
    if setup:
        admin.execute_command(*setup)
    variables = {f"EVENTLOG_SINK_{name}": value for name, value in environ.items()}
    try:
        with to(server, variables) as sink, pytest.raises(ReceiverUnavailable) as caught:
            sink.send(records(e1=b"val7e"))
    finally:
        admin.config_set("maxmemory", 0)
        admin.acl_deluser("publisher")
    message = str(caught.value)
    assert advice in message
    assert advice in caught.value.in_short
    assert not any(secret in message for secret in ("wr0ng", "hush", "val7e"))
    is_full = "maxmemory" in advice
    assert caught.value.code == f"receiver_{'unavailable' if is_full else 'misconfigured'}"
    assert caught.value.reply is not None
    assert caught.value.reply.status in ("WRONGPASS", "NOPERM", "WRONGTYPE", "OOM")
    assert caught.value.reply.text in message, "the words of the server"
    assert not caught.value.is_suspicious


def test_a_user_with_the_rights_that_the_message_names_can_publish(server: Server) -> None:
    rights = "~eventlog +ping +xadd +multi +exec"
    admin = client(server.port)
    admin.execute_command("ACL", "SETUSER", "publisher", "on", ">hush", *rights.split())
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    with to(server, environ) as sink:
        sink.send(records(e1=b"a"))
        sink.flush()
    admin.acl_deluser("publisher")
    assert len(entries(server)) == 1


def test_an_encrypted_server_is_verified(tmp_path: Path) -> None:
    files = server_files(tmp_path)
    flags = [
        "--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.certificate),
        "--tls-ca-cert-file", str(files.authority), "--tls-auth-clients", "no",
    ]  # fmt: skip
    with redis_server(tmp_path, "--tls-port", str(port := free_port()), *flags) as server:
        secret = {"redis_url": f"rediss://127.0.0.1:{port}/0", "timeout": 5}
        with to(server, **secret, ca_file=str(files.authority)) as sink:
            sink.send(records(e1=b"a"))
        assert len(entries(server)) == 1
        with (
            to(server, **secret) as sink,
            pytest.raises(ReceiverUnavailable, match=r"set sink\.ca_file to the authorities"),
        ):
            sink.send(records(e2=b"b"))


def test_a_port_without_tls_is_named_within_the_timeout(server: Server) -> None:
    begun = time.monotonic()
    with (
        to(server, redis_url=url(server).replace("redis:", "rediss:"), timeout=2) as sink,
        pytest.raises(ReceiverUnavailable, match=r"TLS handshake within 2 s; check that this port"),
    ):
        sink.send(records(e1=b"a"))
    assert time.monotonic() - begun < 3


def test_a_publisher_loses_nothing_and_turns_no_order_while_its_server_is_killed(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    sink = {"type": "redis", "redis_url": url(server), "timeout": 5}
    publish_through_kills(database, tmp_path, sink, server)
    assert_whole_and_in_order([entry[b"value"] for entry in entries(server)])


def test_a_trial_reports_the_stream(server: Server) -> None:
    config = load({"sink": {"type": "redis", "redis_url": url(server)}}, {})
    assert (
        try_receiver(config, io.StringIO())
        == f"{url(server)} answers; stream eventlog has 0 entries"
    )
    client(server.port).set("eventlog", "1")
    with pytest.raises(ReceiverUnavailable, match="the key is not a stream"):
        try_receiver(config, io.StringIO())


def places(**bodies: tuple[str, bytes]) -> Any:
    """Events, each with the stream and the body of its message."""
    return records(
        **{
            name: (KafkaRecord(stream, name.encode(), body),)
            for name, (stream, body) in bodies.items()
        }
    )


@pytest.mark.parametrize("setup", [("SET", "b", "1"), ("ACL", "SETUSER", "default", "~a", "~c")])
def test_a_stream_that_takes_nothing_leaves_the_entries_of_all_others(
    server: Server, setup: tuple[str, ...]
) -> None:
    admin = client(server.port)
    with to(server) as sink:
        sink.limit()
        admin.execute_command(*(("ACL", "SETUSER", "default", "resetkeys", *setup[3:])
                                if setup[0] == "ACL" else setup))  # fmt: skip
        try:
            answer = sink.send(places(e1=("a", b"x"), e2=("b", b"y"), e3=("c", b"z")))
            sink.flush()
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "allkeys")
    assert [answer.result(one).place for one in "123"] == ["", "b", ""]
    assert [answer.result(one).level for one in "123"] == [
        Level.SUCCESS, Level.RETRY, Level.SUCCESS
    ]  # fmt: skip
    assert [len(entries(server, name)) for name in "ac"] == [1, 1]


def test_a_stream_that_takes_nothing_makes_only_its_own_classes_wait(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    client(server.port).set("hr.public.b", "x")
    sink = {"type": "redis", "redis_url": url(server)}
    publish_beside_a_place_that_waits(
        database, tmp_path, sink, lambda: client(server.port).delete("hr.public.b")
    )
    for table in "ab":
        found = entries(server, f"hr.public.{table}")
        assert_once_and_in_order([one[b"value"] for one in found])


def test_answers_that_are_cut_lose_nothing_and_repeat_only_what_is_in_flight(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    cuts = CutAnswers(server.port, 4)
    sink = {"type": "redis", "redis_url": f"redis://127.0.0.1:{cuts.port}/0", "timeout": 3}
    most = publish_through_cuts(database, tmp_path, sink, cuts)
    assert_few_copies([one[b"value"] for one in entries(server)], most)
