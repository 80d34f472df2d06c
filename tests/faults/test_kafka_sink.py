"""The Kafka sink with brokers that answer, hang, refuse, die (spec/event-log.md 8.4, 12): a real
log.
"""

from __future__ import annotations

import io
import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import trustme
from cryptography.hazmat.primitives import serialization
from kafka_cluster import Cluster, cluster, quiet_clients
from killed_servers import assert_once_and_in_order, publish_beside_a_place_that_waits
from publishers import install, is_drained, publishing, write_config
from shared import execute, fetch, statuses, url_of, wait_until

from eventlog import cli
from eventlog.changes.format import Report
from eventlog.config.effective import effective
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, Document, EventResult, KafkaRecord, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.run.liveness import ReportingSink
from eventlog.publisher.sinks.kafka import KafkaSink
from eventlog.qlik.messages.message_format import FORMAT
from eventlog.transport import kafka

SCHEMA = (
    "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, born timestamp(6))",
    "CREATE TABLE usr_phone (idu integer REFERENCES usr, phoneno text, PRIMARY KEY (idu, phoneno))",
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_clients()


def install_tables(database: sa.Engine) -> None:
    execute(database, *SCHEMA)
    install(load({"database": {"url": url_of(database)}, "watch": [{"table": "usr"}]}, {}))


@pytest.fixture
def database(filled_database: Any) -> Iterator[sa.Engine]:
    """A database with the tables of ``SCHEMA``, a log and its triggers."""
    with filled_database(install_tables) as database:
        yield database


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def configure(database: sa.Engine, brokers: Cluster, tmp_path: Path) -> Any:
    """A log with triggers, and configurations that publish it to the cluster."""

    def make(
        *, sink: dict[str, Any] | None = None, properties: str = "", **sections: dict[str, Any]
    ) -> Config:
        settings = {"type": "kafka", "brokers": brokers.brokers, "timeout": 20, **(sink or {})}
        publisher = {"allow_loopback": True, "batch_size": 3, **sections.pop("publisher", {})}
        path = write_config(
            tmp_path,
            url_of(database),
            [{"table": "usr"}],
            sink=settings,
            publisher=publisher,
            **sections,
        )
        return load(path, {"EVENTLOG_SINK_PROPERTIES": properties} if properties else {})

    return make


def publish(config: Config, sink: Any = None) -> None:
    with (
        open_context(config, Counters()) as context,
        closing(sink or open_sink(config, None)) as opened,
    ):  # type: ignore[arg-type]
        publish_once(context, opened)


def payloads(found: list[kafka.KafkaRecord]) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"")["message"] for record in found]


def sequences(found: list[kafka.KafkaRecord]) -> list[str]:
    return [payload["headers"]["changeSequence"] for payload in payloads(found)]


QLIK = {"type": "qlik-messages"}
SHORT = 0.1
"""Seconds, less than a configuration allows, to wait for brokers that never answer."""


def test_xds_is_one_document_per_event_under_its_association(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    execute(
        database,
        "INSERT INTO usr VALUES (1, 'Ada'), (2, E'line\\nbreak \\u0085 \\u2028')",
        "DELETE FROM usr WHERE idu = 1",
    )
    config = configure(sink={"topic": "hr.xds"})
    assert "there is no topic hr.xds yet" in str(try_receiver(config, sys.stdout))
    publish(config)
    assert "topic hr.xds has " in str(try_receiver(config, sys.stdout))
    found = brokers.records("hr.xds")
    assert sorted(record.key or b"" for record in found) == [
        b"idu=1,table=usr,schema=public", b"idu=1,table=usr,schema=public",
        b"idu=2,table=usr,schema=public",
    ]  # fmt: skip
    assert all((record.value or b"").count(b"<association>") == 1 for record in found)
    assert [b"<delete" in (record.value or b"") for record in found if (record.key or b"").startswith(b"idu=1,")] == [
        False, True,
    ]  # fmt: skip
    assert set(statuses(database).values()) == {"S"}


@pytest.mark.promise("sink kafka")
def test_events_become_messages_that_read_back_as_changes(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    execute(
        database,
        "INSERT INTO usr VALUES (1, 'Ada', '1815-12-10 01:02:03.456789')",
        "UPDATE usr SET fname = NULL WHERE idu = 1",
        "DELETE FROM usr WHERE idu = 1",
    )
    for encoding in ("json", "avro"):
        execute(database, "UPDATE eventlog SET status = 'N'")
        topic = f"hr.{encoding}"
        publish(
            configure(
                sink={"topic": topic},
                format={
                    **QLIK,
                    "qlik-messages": {"encoding": encoding, "metadata_topic": f"m.{encoding}"},
                },
            )
        )
        report = Report()
        options = {"topic": topic, "metadata_topic": f"m.{encoding}"}
        changes = list(FORMAT.read(f"kafka://{brokers.brokers}/{topic}", options, report))
        assert [
            (change.op.value, change.schema, change.table, change.key) for change in changes
        ] == [(op, "public", "usr", (("idu", 1),)) for op in ("INSERT", "UPDATE", "DELETE")]
        insert, update, delete = changes
        assert insert.after is not None
        assert str(insert.after["born"]) == "1815-12-10 01:02:03.456789"
        assert (update.before, update.after) == (
            {"idu": 1, "fname": "Ada"},
            {"idu": 1, "fname": None},
        )
        assert update.changed == {"fname"}
        assert delete.before == {"idu": 1}
        times = fetch(database, "SELECT min(event_time), max(event_time) FROM eventlog")
        assert all(
            times[0][0].replace(microsecond=0) <= change.commit_time.replace(tzinfo=None)
            for change in changes
        )  # type: ignore[union-attr]
        assert [change.extras["stream_position"] for change in changes] == ["1", "3", "4"]
        positions = [change.position or "" for change in changes]
        assert positions == sorted(set(positions))


def test_a_row_that_was_inserted_and_read_back_is_an_insert(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    config = configure(format=QLIK)
    execute(
        database,
        "INSERT INTO usr (idu, fname) VALUES (1, 'Ada')",
        "DELETE FROM eventlog",
        "INSERT INTO eventlog (status, event_type, event_time, table_name, table_key) "
        "VALUES ('N', 5, now(), 'usr', 'idu=1')",
    )
    publish(config)
    ((payload),) = payloads(brokers.records("public.usr"))
    assert payload["headers"]["operation"] == "INSERT"
    assert payload["data"]["fname"] == "Ada"


def test_nothing_is_marked_before_the_brokers_have_acknowledged(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    config = configure(sink={"topic": "hr.xds"})
    execute(database, *(f"INSERT INTO usr (idu, fname) VALUES ({n}, 'n')" for n in range(1, 11)))
    with (
        brokers.stopped(),
        pytest.raises(ReceiverUnavailable, match="Kafka has not accepted all records"),
    ):
        publish(config, KafkaSink(brokers.brokers, "hr.xds", timeout=SHORT))
    assert set(statuses(database).values()) == {"N"}
    assert len(fetch(database, "SELECT * FROM eventlog_inflight")) == 1
    publish(config)
    assert set(statuses(database).values()) == {"S"}
    assert fetch(database, "SELECT * FROM eventlog_inflight") == []
    assert {record.key for record in brokers.records("hr.xds")} == {
        f"idu={n},table=usr,schema=public".encode() for n in range(1, 11)
    }


class Unheard:
    """A sink whose records are stored, and whose publisher dies before it hears of it."""

    def __init__(self, sink: KafkaSink) -> None:
        self.sink = sink

    def send(self, document: Document) -> Answer:
        return self.sink.send(document)

    def flush(self) -> None:
        self.sink.flush()
        raise ReceiverUnavailable("lost")

    def close(self) -> None:
        self.sink.close()


class CountsLosses:
    """A sink, and how often its receiver was unavailable."""

    def __init__(self, sink: KafkaSink) -> None:
        self.sink = sink
        self.losses = 0

    def send(self, document: Document) -> Answer:
        with self._counted():
            return self.sink.send(document)

    def flush(self) -> dict[str, EventResult]:
        with self._counted():
            return self.sink.flush()

    def close(self) -> None:
        self.sink.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except ReceiverUnavailable:
            self.losses += 1
            raise


def test_what_is_sent_again_bears_the_same_change_sequences(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    config = configure(format=QLIK)
    execute(database, "INSERT INTO usr (idu, fname) SELECT n, 'a' FROM generate_series(1, 10) n")
    with pytest.raises(ReceiverUnavailable, match="lost"):
        publish(config, Unheard(open_sink(config, None)))  # type: ignore[arg-type]
    execute(
        database, "UPDATE eventlog SET status = 'S' WHERE table_key = 'idu=4'"
    )  # somebody else has dealt with it
    execute(database, "UPDATE usr SET fname = 'b' WHERE idu = 7")
    publish(config)
    found = brokers.records("public.usr")
    first: dict[str, list[bytes | None]] = {}
    for sequence, record in zip(sequences(found), found, strict=True):
        first.setdefault(sequence, []).append(record.value)
    assert sorted(map(len, first.values())) == [
        1,
        1,
        *[2] * 9,
    ]  # 4 once, the update once, the others again
    assert all(len(set(values)) == 1 for values in first.values())
    updated = next(p for p in payloads(found) if p["headers"]["operation"] == "UPDATE")
    assert updated["headers"]["changeSequence"] == max(first)
    assert set(statuses(database).values()) == {"S"}


def test_brokers_that_hang_in_the_middle_lose_nothing_and_turn_no_order(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    config = configure(
        format=QLIK, publisher={"delivery_rows": 20, "retry_initial": 0.05, "retry_max": 0.1}
    )
    execute(database, "INSERT INTO usr (idu, fname) SELECT n, '0' FROM generate_series(1, 20) n")
    # What takes longer is lost, too, and sent again.
    sink = CountsLosses(KafkaSink(brokers.brokers, "t", {"linger.ms": 0}, 1))
    with publishing(config, sink) as publisher:  # type: ignore[arg-type]
        for step in range(1, 7):
            execute(database, f"UPDATE usr SET fname = '{step}'")
            if step in (2, 4):
                with brokers.stopped():
                    execute(database, "UPDATE usr SET born = now() WHERE idu = 3")
                    sink.losses = 0
                    wait_until(lambda: sink.losses > 0, "a delivery is lost")
                    assert fetch(
                        database, "SELECT status FROM eventlog ORDER BY record_id DESC LIMIT 1"
                    ) == [("N",)]
        wait_until(lambda: is_drained(database, publisher), "all is published")
    assert set(statuses(database).values()) == {"S"}
    for number in range(1, 21):
        history = [
            (payload["headers"]["changeSequence"], payload["data"]["fname"])
            for payload in payloads(brokers.records("public.usr"))
            if payload["data"]["idu"] == number and payload["data"]["fname"] is not None
        ]
        values = [fname for _, fname in sorted(set(history))]
        assert values[-1] == "6"
        assert values == sorted(values)
        # What was sent again came before what was new.
        assert history[-1][1] == "6"


def test_brokers_that_are_gone_leave_the_rows_new(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    execute(database, "INSERT INTO usr (idu) VALUES (1)")
    brokers.kill()
    with pytest.raises(ReceiverUnavailable, match="Kafka has not accepted all records"):
        publish(configure(), KafkaSink(brokers.brokers, "t", timeout=SHORT))
    assert set(statuses(database).values()) == {"N"}


def test_what_was_handed_over_before_kafka_went_away_is_not_marked(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    class Full(kafka.Transmitter):
        """Drops what it has at the third record, as where the brokers hang until its queue is
        full.
        """

        def send(self, topic: str, key: bytes | None, value: bytes | None, *headers: object) -> int:
            if self._sent == 2:
                self.abandon()
                raise kafka.KafkaUnavailable("no room")
            return super().send(topic, key, value)

    execute(database, *(f"INSERT INTO usr (idu) VALUES ({n})" for n in range(1, 5)))
    sink = KafkaSink(brokers.brokers, "t")
    sink.transmitter = Full(brokers.brokers)
    with pytest.raises(ReceiverUnavailable, match="no room"):
        publish(configure(publisher={"batch_size": 1}), sink)
    assert set(statuses(database).values()) == {"N"}


def test_a_record_that_is_too_large_is_an_error_of_its_event_alone(
    database: sa.Engine, brokers: Cluster, configure: Any
) -> None:
    execute(
        database,
        *(
            f"INSERT INTO usr (idu, fname) VALUES ({n}, repeat('x', {n} * 800))"
            for n in range(1, 4)
        ),
    )
    publish(configure(sink={"topic": "t"}, properties="message.max.bytes=2000"))
    assert list(statuses(database).values()) == ["S", "S", "E"]
    ((code, message),) = fetch(database, "SELECT code, message FROM eventlog_error")
    assert code == "receiver"
    assert "Message size too large" in message
    assert len(brokers.records("t")) == 2


def test_a_batch_that_the_brokers_refuse_is_sent_again_record_by_record(brokers: Cluster) -> None:
    sink = KafkaSink(brokers.brokers, "t")

    class Refusing(kafka.Transmitter):
        """Brokers that refuse the batch in which a record is malformed, as real ones do; the mock
        ones refuse none.
        """

        batch: tuple[bytes, ...] = ()

        def send(self, topic: str, key: bytes | None, value: bytes | None, *headers: object) -> int:
            self.batch += (value,)
            return super().send(topic, key, value)

        def flush(self) -> dict[int, str]:
            batch, self.batch = self.batch, ()
            refused = super().flush()
            return {1: "malformed", 2: "malformed"} if b"2" in batch and len(batch) > 1 else (
                {0: "malformed"} if b"2" in batch else refused)  # fmt: skip

    sink.transmitter.close()
    sink.transmitter = Refusing(brokers.brokers)
    event_ids = ("1", "2", "3", "4")
    records = tuple((KafkaRecord("t", None, event_id.encode()),) for event_id in event_ids)
    assert sink.send(Document(1, 1, event_ids, b"", records)) == Answer(is_pending=True)
    refused = sink.flush()
    assert {event_id: verdict.level for event_id, verdict in (refused or {}).items()} == {
        "2": Level.ERROR
    }
    sink.close()


def placed(*places: tuple[str, str]) -> Document:
    """Events, each with the topic and the key of its record."""
    event_ids = tuple(map(str, range(1, len(places) + 1)))
    records = tuple(
        (KafkaRecord(topic, key.encode(), event_id.encode()),)
        for event_id, (topic, key) in zip(event_ids, places, strict=True)
    )
    return Document(1, 1, event_ids, b"", records)


@pytest.mark.parametrize("code", [29, 3], ids=["without permission", "missing"])
def test_a_topic_that_takes_nothing_leaves_the_records_of_all_others(code: int) -> None:
    with cluster(closed=code) as made:
        soon = {"topic.metadata.propagation.max.ms": 1}
        with closing(KafkaSink(made.brokers, "t", soon, timeout=5)) as sink:
            for _ in range(2):
                answer = sink.send(placed(("open", "a"), ("closed", "a"), ("open", "b")))
                results = {**answer.results, **sink.flush()}
                assert {name: one.place for name, one in results.items()} == {"2": "closed"}
                assert "the topic closed, or correct" in results["2"].message
        stored = [record.value for record in made.records("open")]
        assert sorted(stored) == [b"1", b"1", b"3", b"3"], "each once for each document"


def test_a_topic_that_takes_nothing_makes_only_its_own_classes_wait(
    database: sa.Engine, tmp_path: Path
) -> None:
    with cluster(**{"hr.public.b": 29}) as made:
        sink = {"type": "kafka", "brokers": made.brokers, "timeout": 5}
        publish_beside_a_place_that_waits(database, tmp_path, sink, None)
        bodies = [record.value for record in made.records("hr.public.a")]
    assert_once_and_in_order([body for body in bodies if body is not None], last=2)


def test_what_the_brokers_have_acknowledged_before_they_failed_is_confirmed() -> None:
    with cluster() as made, closing(KafkaSink(made.brokers, "t", timeout=2)) as sink:
        sink.send(placed(("t", "a"), ("t", "b")))

        def are_stored() -> bool:
            with suppress(kafka.KafkaUnavailable):  # the first record makes the topic
                return len(made.records("t")) == 2
            return False

        wait_until(are_stored, "two records are stored")
        with made.stopped():
            sink.send(placed(*[("t", "c")] * 4)._replace(event_ids=("3", "4", "5", "6")))
            with pytest.raises(ReceiverUnavailable) as caught:
                sink.flush()
    assert caught.value.answered == dict.fromkeys("12", SUCCESS)


def test_accepted_records_of_a_refused_batch_are_not_sent_again_unless_their_object_needs_it(
    brokers: Cluster,
) -> None:
    class Refusing(kafka.Transmitter):
        """Brokers that refuse the second record together with others."""

        sent = 0

        def send(self, *record: Any) -> int:
            self.sent += 1
            return super().send(*record)

        def flush(self) -> dict[int, str]:
            sent, self.sent = self.sent, 0
            return super().flush() | ({1: "malformed"} if sent > 1 else {})

    with closing(KafkaSink(brokers.brokers, "once")) as sink:
        sink.transmitter.close()
        sink.transmitter = Refusing(brokers.brokers)
        sink.send(placed(("once", "a"), ("once", "b"), ("once", "c"), ("once", "b")))
        assert sink.flush() == {"4": EventResult(Level.RETRY)}, "it follows a record that came late"
    values = sorted(record.value or b"" for record in brokers.records("once"))
    assert values == [b"1", b"2", b"2", b"3", b"4"]


def test_a_verdict_of_the_flush_takes_the_place_of_the_answer(
    database: sa.Engine, configure: Any
) -> None:
    class Late(Unheard):
        def flush(self) -> Any:
            refused = self.sink.flush()
            return {**refused, "2": EventResult(Level.ERROR, "why")}

    config = configure(sink={"topic": "t"})
    execute(database, "INSERT INTO usr (idu, fname) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    counters = Counters()
    beats: list[int] = []

    class Beats(Observer):
        def progressed(self) -> None:
            beats.append(1)

    with open_context(config, counters) as context, closing(Late(open_sink(config, None))) as sink:  # type: ignore[arg-type]
        publish_once(context, ReportingSink(sink, Beats()))  # as the daemon does
    assert beats  # of the flush, since the brokers speak only then
    assert list(statuses(database).values()) == ["S", "E", "S"]
    assert fetch(database, "SELECT record_id, code, message FROM eventlog_error") == [
        (2, "receiver", "why")
    ]
    assert (counters.answers_success, counters.answers_error) == (2, 1)


def test_what_a_message_cannot_hold_is_an_error_of_its_event(
    database: sa.Engine, configure: Any
) -> None:
    execute(
        database,
        "INSERT INTO usr (idu, fname) VALUES (1, 'a')",
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
        " VALUES (3, 'usr_phone', 'idu=1', 'phoneno', '555')",
    )
    publish(configure(format=QLIK, database={"tables": ["usr"]}))
    assert list(statuses(database).values()) == ["S", "E"]
    assert "several values" in str(fetch(database, "SELECT message FROM eventlog_error"))


def test_the_command_publishes_in_the_format_that_is_configured(
    database: sa.Engine,
    brokers: Cluster,
    configure: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    configure()
    path = str(tmp_path / "eventlog.toml")
    execute(database, "INSERT INTO usr (idu, fname) VALUES (1, 'Ada')")
    assert cli.run(["--config", path, "publish", "--dry-run", "--format", "qlik-messages"]) == 0
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["topic"] for line in shown] == ["eventlog.metadata", "public.usr"]
    assert cli.run(["--config", path, "publish", "--once", "--format", "qlik-messages"]) == 0
    (record,) = brokers.records("public.usr")
    assert record.key == b"1"
    assert json.loads(record.value or b"")["message"]["data"]["fname"] == "Ada"
    assert len(brokers.records("eventlog.metadata")) == 1


def test_secrets_are_in_no_file_and_are_not_shown(configure: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a secret") as refused:
        configure(properties="sasl.password=hush")
    assert "hush" not in str(refused.value)
    configure()
    environ = {"EVENTLOG_SINK_USER": "u", "EVENTLOG_SINK_PASSWORD": "hush"}
    config = load(tmp_path / "eventlog.toml", environ)
    assert "hush" not in str(list(effective(config)))
    assert "hush" not in repr(config)


@contextmanager
def _container() -> Iterator[str]:
    import subprocess
    import warnings

    try:
        answers = (
            subprocess.run(["docker", "info"], capture_output=True, timeout=20).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        answers = False
    if not answers:
        pytest.skip("no Docker engine answers `docker info` here: a real Kafka is not started")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.kafka import KafkaContainer

        with KafkaContainer() as container:
            yield container.get_bootstrap_server()


@pytest.mark.docker
def test_a_real_kafka_takes_what_the_publisher_sends(database: sa.Engine, configure: Any) -> None:
    with _container() as address:
        execute(
            database, "INSERT INTO usr (idu, fname) SELECT n, 'a' FROM generate_series(1, 100) n"
        )
        publish(configure(sink={"brokers": address}, format=QLIK))
        assert set(statuses(database).values()) == {"S"}
        changes = list(FORMAT.read(f"kafka://{address}/public.usr", {}, Report()))
        assert {change.key for change in changes} == {(("idu", n),) for n in range(1, 101)}


def test_the_passphrase_of_a_key_comes_from_the_place_in_secret_properties(
    tmp_path: Path, brokers: Cluster
) -> None:
    issued = trustme.CA().issue_cert("publisher")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"geheim")
    (tmp_path / "client.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    issued.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    properties = {
        "security.protocol": "ssl",
        "ssl.certificate.location": f"{tmp_path}/client.pem",
        "ssl.key.location": f"{tmp_path}/client.key",
    }
    listed = ",".join(f"{name}={value}" for name, value in properties.items())
    environ = {
        "EVENTLOG_SINK_TYPE": "kafka",
        "EVENTLOG_SINK_BROKERS": brokers.brokers,
        "EVENTLOG_SINK_PROPERTIES": listed,
        "EVENTLOG_SINK_SECRET_PROPERTIES": f"ssl.key.password=file:{tmp_path}/passphrase",
    }
    (tmp_path / "passphrase").write_text("geheim\n")
    open_sink(load(None, environ), io.StringIO()).close()
    (tmp_path / "passphrase").write_text("unlikely\n")
    with pytest.raises(ConfigError, match="librdkafka refuses the Kafka settings") as refused:
        open_sink(load(None, environ), io.StringIO())
    assert "unlikely" not in str(refused.value)


# --- what brokers refuse --------------------------------------------------------------------------

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "publisher",
    "sasl.password": "hush",
}


@dataclass(frozen=True)
class Mistake:
    """Brokers or properties with which no record is accepted, and what the publisher reports."""

    brokers: str
    topic: str
    properties: dict[str, Any]
    status: str
    advice: str

    def refusal(self) -> ReceiverUnavailable:
        """Why a record is not accepted."""
        with closing(KafkaSink(self.brokers, self.topic, self.properties, 3.0)) as sink:
            record = KafkaRecord(None, b"k", b"val7e")
            sink.send(Document(1, 1, ("1",), b"", [(record,)]))
            with pytest.raises(ReceiverUnavailable) as caught:
                sink.flush()
        return caught.value


@contextmanager
def unknown_authority(directory: Path) -> Iterator[Mistake]:
    """A broker with a certificate that the client does not trust."""
    trusted = directory / "ca.pem"
    trustme.CA().cert_pem.write_to_path(trusted)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def shake_hands() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(connection, server_side=True):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=shake_hands, daemon=True).start()
        tls = {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        yield Mistake(address, "open", tls, "_SSL", "ssl.ca.location")
        listener.shutdown(socket.SHUT_RDWR)


def test_what_brokers_refuse_for_good_is_a_mistake_here_with_the_option_and_their_words(
    tmp_path: Path,
) -> None:
    with (
        cluster(closed=29, missing=3) as refusing,
        unknown_authority(tmp_path) as distrusted,
        cluster() as gone,
        # Each waits for its time-out, and all at the same time.
        ThreadPoolExecutor(6) as pool,
    ):
        gone.kill()
        gone_refusal = pool.submit(Mistake(gone.brokers, "open", {}, "", "").refusal)
        soon = {"topic.metadata.propagation.max.ms": 1}
        address, names = refusing.brokers, "nowhere.invalid:9092"
        mistakes = [
            Mistake(
                address, "closed", {}, "TOPIC_AUTHORIZATION_FAILED",
                "permit the user to write to and describe",
            ),
            Mistake(
                address, "missing", soon, "UNKNOWN_TOPIC_OR_PART",
                "create the topic missing, or correct sink.topic",
            ),
            Mistake(
                address, "open", SASL, "_AUTHENTICATION",
                "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD",
            ),
            Mistake(names, "open", {}, "_RESOLVE", "check the names in sink.brokers"),
            distrusted,
        ]  # fmt: skip
        refusals = list(pool.map(Mistake.refusal, mistakes))
    for mistake, refused in zip(mistakes, refusals, strict=True):
        assert refused.code == "receiver_misconfigured", mistake
        assert mistake.advice in refused.advice, mistake
        assert refused.advice in str(refused), mistake
        assert refused.reply is not None, mistake
        assert refused.reply.status == mistake.status
        assert refused.reply.text in str(refused), "the words of the client"
        assert not any(secret in str(refused) for secret in ("hush", "val7e")), mistake
    # Brokers that are gone are no mistake here.
    refused = gone_refusal.result()
    assert (refused.code, refused.advice) == ("receiver_unavailable", "")
