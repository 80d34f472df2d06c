"""Change events of Debezium from a real log: to Kafka, over HTTP, to files, and read by Flink
(formats/debezium.md).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
import sqlalchemy as sa
from kafka_cluster import Cluster
from publishers import install, write_config
from shared import execute, fetch, statuses, url_of

from eventlog import cli
from eventlog.config.load import Config, load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession

SCHEMA = (
    "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, salary numeric(9,2), born "
    "timestamp(6))",
    "CREATE TABLE usr_phone (idu integer REFERENCES usr, phoneno text, PRIMARY KEY (idu, phoneno))",
)
DEBEZIUM: Final = {"topic_prefix": "hr", "schemas_enable": False}
FLINK: Final = os.environ.get("EVENTLOG_FLINK_PYTHON")
"""A Python that has apache-flink, which wants other versions of libraries than we do."""


Configure = Callable[..., Config]


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


@pytest.fixture
def configure(database: sa.Engine, tmp_path: Path) -> Configure:
    """A log with triggers, and configurations that publish it as change events."""

    def make(sink: dict[str, Any], watch: dict[str, Any] | None = None, **format: Any) -> Config:
        path = write_config(
            tmp_path, url_of(database), [{"table": "usr", **(watch or {})}], sink=sink,
            publisher={"allow_loopback": True}, format={"type": "debezium", "debezium": {**DEBEZIUM,
            **format}},
        )  # fmt: skip
        return load(path, {})

    execute(database, *SCHEMA)
    return make


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.documents: list[Document] = []

    def send(self, document: Document) -> Answer:
        self.documents.append(document)
        return Answer()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def values(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for document in self.documents for line in document.body.splitlines()
        ]


def publish(config: Config, sink: Any = None) -> Counters:
    counters = Counters()
    with (
        open_context(config, counters) as context,
        closing(sink or open_sink(config, None)) as opened,
    ):  # type: ignore[arg-type]
        publish_once(context, opened)
    return counters


def test_kafka_gets_the_key_the_event_and_the_tombstone(
    database: sa.Engine, brokers: Cluster, configure: Configure
) -> None:
    config = configure({"type": "kafka", "brokers": brokers.brokers, "timeout": 20})
    install(config)
    execute(
        database,
        "INSERT INTO usr VALUES (1, 'Ada', 1.50, '1815-12-10 01:02:03.456789')",
        "UPDATE usr SET fname = 'Augusta' WHERE idu = 1",
    )
    publish(config)
    execute(database, "DELETE FROM usr WHERE idu = 1")
    publish(config)
    found = brokers.records("hr.public.usr")
    assert {record.key for record in found} == {b'{"idu":1}'}
    *events, tombstone = found
    assert tombstone.value is None
    created, updated, deleted = [json.loads(record.value or b"") for record in events]
    ada = {"idu": 1, "fname": "Ada", "salary": "AJY=", "born": -4861724276543211}
    assert (created["op"], created["before"], created["after"]) == ("c", None, ada)
    assert (updated["op"], updated["before"], updated["after"]) == (
        "u",
        ada,
        {**ada, "fname": "Augusta"},
    )
    assert (deleted["op"], deleted["before"], deleted["after"]) == ("d", {"idu": 1}, None)
    source = created["source"]
    assert (source["name"], source["schema"], source["table"], source["snapshot"]) == (
        "hr",
        "public",
        "usr",
        "false",
    )
    assert source["db"] == database.url.database
    assert source["event_id"] == str(source["record_ids"][0])
    assert source["ts_us"] > 10**15
    assert set(statuses(database).values()) == {"S"}


def test_a_column_that_the_log_does_not_hold_is_read_back(
    database: sa.Engine, configure: Configure
) -> None:
    """An upserting consumer would take what is missing for NULL."""
    config = configure({"type": "stdout"})
    execute(database, "INSERT INTO usr VALUES (1, 'Ada', 1.50)")
    install(config)
    sink = Kept()
    for update in ("fname = 'Augusta'", "salary = 2"):
        execute(database, f"UPDATE usr SET {update} WHERE idu = 1")
        publish(config, sink)
    first, second = sink.values
    assert first["after"]["fname"] == "Augusta"
    assert first["before"]["fname"] == "Ada"
    assert second["after"] == {"idu": 1, "fname": "Augusta", "salary": "AMg=", "born": None}


def test_an_update_whose_row_is_gone_is_left_to_its_delete(
    database: sa.Engine, configure: Configure
) -> None:
    config = configure({"type": "stdout"})
    execute(database, "INSERT INTO usr VALUES (1, 'Ada')")
    install(config)
    execute(
        database, "UPDATE usr SET fname = 'Augusta' WHERE idu = 1", "DELETE FROM usr WHERE idu = 1"
    )
    sink = Kept()
    counters = publish(config, sink)
    assert [value["op"] for value in sink.values] == ["d"]
    assert counters.rows_gone == 1
    assert set(statuses(database).values()) == {"S"}


@pytest.mark.parametrize(
    ("options", "sent", "letters"),
    [
        ({"missing_columns": "placeholder"}, ["__debezium_unavailable_value"], {"S"}),
        ({"missing_columns": "error"}, [], {"E"}),
    ],
)
def test_what_is_not_read_back_is_a_placeholder_or_an_error(
    database: sa.Engine,
    configure: Configure,
    options: dict[str, Any],
    sent: list[str],
    letters: set[str],
) -> None:
    config = configure({"type": "stdout"}, **options)
    execute(database, "INSERT INTO usr VALUES (1, 'Ada', 1.50)")
    install(config)
    execute(database, "UPDATE usr SET fname = 'Augusta' WHERE idu = 1")
    sink = Kept()
    publish(config, sink)
    assert [value["after"]["salary"] for value in sink.values] == sent
    assert set(statuses(database).values()) == letters
    if letters == {"E"}:
        ((message,),) = fetch(database, "SELECT message FROM eventlog_error")
        assert "columns salary, born are unknown" in message


def test_one_refused_event_does_not_keep_the_others_of_its_document(
    database: sa.Engine, configure: Configure
) -> None:
    config = configure({"type": "stdout"})
    install(config)
    execute(
        database,
        "INSERT INTO usr VALUES (1, 'Ada')",
        "INSERT INTO usr_phone VALUES (1, '555')",
        "INSERT INTO usr VALUES (2, 'Bob', 'NaN')",
        "INSERT INTO usr VALUES (3, 'Cy')",
    )
    sink = Kept()
    publish(config, sink)
    assert [value["after"]["idu"] for value in sink.values] == [1, 3]
    messages = [
        message
        for (message,) in fetch(database, "SELECT message FROM eventlog_error ORDER BY record_id")
    ]
    assert any(
        "several values" in message and "[[watch]] of its own" in message for message in messages
    )
    assert any("column 'salary' of public.usr" in message for message in messages)
    assert set(statuses(database).values()) == {"S", "E"}


def test_an_update_away_from_nan_is_sent_without_the_row_before_and_counted(
    database: sa.Engine, configure: Configure
) -> None:
    config = configure({"type": "stdout"})
    execute(database, "INSERT INTO usr VALUES (1, 'Ada', 'NaN', NULL)")
    install(config)
    execute(database, "UPDATE usr SET salary = 1.50 WHERE idu = 1")
    sink = Kept()
    counters = publish(config, sink)
    assert [(value["before"], value["after"]["salary"]) for value in sink.values] == [
        (None, "AJY=")
    ]
    assert (counters.old_unreadable, counters.rows_error) == (1, 0)
    assert set(statuses(database).values()) == {"S"}


def test_a_child_table_with_its_own_watch_has_rows(
    database: sa.Engine, configure: Configure, tmp_path: Path
) -> None:
    """What the message of an event with values of a child table advises, works."""
    configure({"type": "stdout"})
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr"}, {"table": "usr_phone"}],
        sink={"type": "stdout"}, publisher={"allow_loopback": True}, format={"type": "debezium",
        "debezium": DEBEZIUM},
    )  # fmt: skip
    config = load(path, {})
    install(config)
    execute(
        database, "INSERT INTO usr VALUES (1, 'Ada')", "INSERT INTO usr_phone VALUES (1, '555')"
    )
    execute(database, "UPDATE usr_phone SET phoneno = '556'", "DELETE FROM usr_phone")
    sink = Kept()
    publish(config, sink)
    found = [(value["source"]["table"], value["op"]) for value in sink.values]
    assert found[0] == ("usr", "c")
    assert {table for table, _ in found[1:]} == {"usr_phone"}
    assert set(statuses(database).values()) == {"S"}


def test_what_was_in_delivery_is_sent_again_with_whole_rows(
    database: sa.Engine, configure: Configure
) -> None:
    """A publisher that was killed knows the rows of its events by their numbers alone."""
    config = configure({"type": "stdout"})
    execute(database, "INSERT INTO usr VALUES (1, 'Ada', 1.50), (2, 'Bob', 2.50), (3, 'Cy', 3.50)")
    install(config)
    execute(database, "UPDATE usr SET fname = lower(fname)")

    class Away(Kept):
        def send(self, document: Document) -> Answer:
            raise ReceiverUnavailable("away")

    with open_context(config, Counters()) as context:
        run_cycle(PublisherSession(context, recover(context), Away()))
    assert len(fetch(database, "SELECT 1 FROM eventlog_inflight")) == 1
    execute(database, "DELETE FROM usr WHERE idu = 2")
    sink = Kept()
    publish(config, sink)
    told = [(value["op"], (value["after"] or value["before"])["idu"]) for value in sink.values]
    assert told == [("u", 1), ("d", 2), ("u", 3), ("d", 2)]
    assert [sink.values[at]["after"]["salary"] for at in (0, 2)] == ["AJY=", "AV4="]
    assert set(statuses(database).values()) == {"S"}


def test_a_web_hook_gets_an_event_a_request_and_answers_by_its_status(
    database: sa.Engine, configure: Configure
) -> None:
    """As Debezium Server's HTTP sink sends them; what the format does not hold is an error without
    a request.
    """
    got: list[tuple[str | None, dict[str, Any]]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = configure({"type": "http", "url": f"http://127.0.0.1:{server.server_port}/"})
        config = replace(config, publisher=replace(config.publisher, batch_size=1))
        install(config)
        execute(
            database,
            "INSERT INTO usr VALUES (1, 'Ada')",
            "INSERT INTO usr VALUES (2, 'Bob', 'NaN')",
        )
        publish(config)
        server.shutdown()
    assert [(kind, value["after"]["fname"]) for kind, value in got] == [("application/json", "Ada")]
    assert set(statuses(database).values()) == {"S", "E"}


def test_query_back_gives_whole_rows_without_before(
    database: sa.Engine, configure: Configure
) -> None:
    config = configure({"type": "stdout"}, {"row_style": "row_query_back"})
    install(config)
    execute(database, "INSERT INTO usr VALUES (1, 'Ada', 1.50)")
    sink = Kept()
    publish(config, sink)
    execute(database, "UPDATE usr SET salary = NULL")
    publish(config, sink)
    created, updated = sink.values
    assert (created["op"], created["after"]["salary"]) == ("c", "AJY=")
    assert (updated["op"], updated["before"], updated["after"]["salary"]) == ("u", None, None)


def test_a_document_of_one_event_is_json_of_several_lines(
    database: sa.Engine, configure: Configure
) -> None:
    config = configure({"type": "stdout"})
    install(config)
    execute(database, "INSERT INTO usr VALUES (1, 'Ada')")
    sink = Kept()
    publish(config, sink)
    execute(database, "INSERT INTO usr VALUES (2, 'Bob'), (3, 'Cy')")
    publish(config, sink)
    assert [document.media_type for document in sink.documents] == [
        "application/json",
        "application/x-ndjson",
    ]


def test_a_dry_run_shows_what_would_be_sent(
    database: sa.Engine, configure: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(configure({"type": "stdout"}))
    execute(database, "INSERT INTO usr VALUES (1, 'Ada')")
    assert cli.run(["--config", str(tmp_path / "eventlog.toml"), "publish", "--dry-run"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["after"] == {"idu": 1, "fname": "Ada", "salary": None, "born": None}
    assert set(statuses(database).values()) == {"N"}


READ_BY_FLINK: Final = """
import json, sys
from pyflink.table import EnvironmentSettings, TableEnvironment
environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
environment.get_config().set("parallelism.default", "1")
environment.get_config().set("table.exec.source.cdc-events-duplicate", "true")
environment.execute_sql(
    "CREATE TABLE usr (idu INT, fname STRING, salary STRING, born BIGINT, PRIMARY KEY (idu) NOT ENFORCED) WITH ("
    f"'connector'='filesystem', 'path'='{sys.argv[1]}', 'format'='debezium-json', "
    f"'debezium-json.schema-include'='{sys.argv[2]}')"
)
rows = {}
with environment.execute_sql("SELECT * FROM usr").collect() as results:
    for row in results:
        if row.get_row_kind().name in ("DELETE", "UPDATE_BEFORE"):
            del rows[row[0]]
        else:
            rows[row[0]] = list(row)
print(json.dumps(sorted(rows.values())))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.skipif(
    FLINK is None, reason="needs EVENTLOG_FLINK_PYTHON, a Python with apache-flink, and Java"
)
def test_flink_comes_to_the_table_of_the_database(
    database: sa.Engine, configure: Configure, tmp_path: Path, schemas: bool
) -> None:
    """By its own format ``debezium-json``: inserts, updates of single columns, deletes, and events
    that come twice.
    """
    documents = tmp_path / "documents"
    config = configure(
        {"type": "files", "directory": str(documents)},
        schemas_enable=schemas,
        decimal_handling_mode="string",
    )
    install(config)
    execute(
        database,
        "INSERT INTO usr SELECT n, 'n' || n, n / 4.0, '2024-05-10 12:00:00.000001' FROM "
        "generate_series(1, 40) n",
    )
    publish(config)
    execute(
        database,
        "UPDATE usr SET salary = salary + 1 WHERE idu % 3 = 0",
        "UPDATE usr SET fname = NULL WHERE idu % 5 = 0",
        "UPDATE usr SET idu = idu + 100 WHERE idu < 4",
        "DELETE FROM usr WHERE idu % 4 = 0",
        "INSERT INTO usr VALUES (4, 'again', NULL, NULL)",
    )
    publish(config)
    files = [file.read_text() for file in sorted(documents.glob("*.jsonl"))]
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / "all.jsonl").write_text("".join([*files, files[-1]]))
    assert FLINK is not None
    done = subprocess.run(
        [FLINK, "-c", READ_BY_FLINK, str(tmp_path / "topic"), str(schemas).lower()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = fetch(
        database,
        "SELECT idu, fname, salary::text, (extract(epoch FROM born) * 1000000)::bigint FROM usr "
        "ORDER BY idu",
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [list(row) for row in wanted]
    assert len(wanted) > 20
