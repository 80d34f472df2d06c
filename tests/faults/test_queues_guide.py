"""The guide to queues and streams on fresh servers: its commands run, and what they make takes what
its configurations send.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from documents import blocks
from message_servers import GUIDE, example, program, records, running
from test_nats_sink import asked, nats_server
from test_rabbitmq_sink import connected, rabbitmq_server
from test_redis_sink import answers, client
from test_sqs_sink import KEYS, Service

from eventlog.config.load import load
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver

pytestmark = pytest.mark.night

PUBLISHER = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "PASSWORD"}
BLOCKS = blocks(GUIDE)


def shell(text: str, functions: str = "", environ: Mapping[str, str] = os.environ) -> None:
    """Run a block of the guide, in which these functions lead its programs to the test's server."""
    command = ["bash", "-euc", f"{functions}\n{text}"]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def send(kind: str, environ: Mapping[str, str], **options: Any) -> None:
    """Send two messages with the guide's configuration, after the trial of `doctor --receiver`."""
    given = {"sink": {**example(kind), **options}}
    try_receiver(load(given, environ), io.StringIO())
    with closing(open_sink(load(given, environ), io.StringIO())) as sink:
        sink.send(records(e1=b"a", e2=b"b"))
        sink.flush()


def test_the_commands_for_redis_make_the_user_of_the_publisher(tmp_path: Path) -> None:
    settings = tmp_path / "redis.conf"
    settings.write_text("bind 127.0.0.1\n")

    def command(port: int, directory: Path) -> list[str]:
        path = program("redis-server")
        return [path, str(settings), "--port", str(port), "--dir", str(directory)]

    with running(command, tmp_path, answers) as server:
        cli = f'redis-cli() {{ command redis-cli -e -p {server.port} "$@"; }}'
        shell(BLOCKS["Redis Streams", 1], cli)
        send("redis", PUBLISHER, redis_url=f"redis://127.0.0.1:{server.port}/0")
        found = [fields[b"value"] for _, fields in client(server.port).xrange("hr")]
    assert found == [b"a", b"b"]
    assert re.search(r"(?m)^user publisher on ", settings.read_text())


def test_the_commands_for_nats_make_its_users_and_the_stream(tmp_path: Path) -> None:
    def here(block: int) -> str:
        return BLOCKS["NATS JetStream", block].replace("/var/lib/nats", str(tmp_path / "store"))

    (tmp_path / "nats.conf").write_text(here(0))
    owner = f'install() {{ command install "${{@/=nats/={os.getuid()}}}"; }}; systemctl() {{ :; }}'
    shell(here(1), owner)
    with nats_server(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        program_of_guide = here(2).replace("localhost:4222", address)
        shell(shlex.join([sys.executable, "-c", program_of_guide]))
        send("nats", PUBLISHER, nats_url=f"nats://{address}")

        async def read(context: Any) -> list[bytes]:
            return [(await context.get_msg("EVENTLOG", number)).data for number in (1, 2)]

        found = asked(server, read, password="ADMIN")
    assert found == [b"a", b"b"]


def test_the_commands_for_rabbitmq_make_the_user_the_exchange_and_the_queue(tmp_path: Path) -> None:
    (tmp_path / "rabbitmq.conf").write_text("")
    with rabbitmq_server(tmp_path) as server:
        assert server.environment is not None
        # Debian's rabbitmqctl becomes the user of Debian's server before it runs this one.
        tools = {"PATH": f"/usr/lib/rabbitmq/bin:{os.environ['PATH']}"}
        shell(BLOCKS["RabbitMQ", 0], "rabbitmqctl await_startup", server.environment | tools)
        send("rabbitmq", PUBLISHER, amqp_url=f"amqp://127.0.0.1:{server.port}/")
        with closing(connected(server.port)) as connection:
            found = [connection.channel().basic_get("search", auto_ack=True)[2] for _ in range(2)]
    assert found == [b"a", b"b"]


def test_the_command_for_sqs_makes_the_queue() -> None:
    path, service = program("aws", "awscli"), Service()
    try:
        aws = f'aws() {{ {path} --endpoint-url {service.url} --region us-east-1 "$@"; }}'
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        shell(BLOCKS["Amazon SQS", 0], aws, os.environ | keys)
        queue = f"{service.url}/123456789012/hr.fifo"
        send("sqs", KEYS, queue_url=queue, endpoint=service.url, region="us-east-1")
        got = service.client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    finally:
        service.server.stop()
    assert [one["Body"] for one in got["Messages"]] == ["a", "b"]
