"""The schema registry over HTTP: Confluent's REST interface by a real server (formats/qlik.md
5.5).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from message_samples import COLUMNS, UPDATE, MemoryRegistry, read, write

from eventlog.errors import ConfigError, FormatError
from eventlog.qlik.messages.envelope import (
    HttpRegistry,
    RegistryError,
    UnknownSchema,
    open_registry,
    prefix_of,
    split,
)

Client = Callable[[str], AbstractContextManager[HttpRegistry]]


@dataclass
class Server:
    """A registry that keeps what it is given. ``requests``: method, path, authorization."""

    schemas: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    status: int = 200
    raw: bytes | None = None
    url: str = ""

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "not\ntoday"}
        if body is not None:
            if body["schema"] not in self.schemas:
                self.schemas.append(body["schema"])
            return 200, {"id": self.schemas.index(body["schema"]) + 1}
        number = int(path.split("?")[0].rpartition("/")[2])
        if not 1 <= number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"schema": self.schemas[number - 1]}


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self, body: Any) -> None:
            server.requests.append((self.command, self.path, self.headers.get("Authorization")))
            status, answer = server.answer(self.path, body)
            data = server.raw if server.raw is not None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *args: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


@contextmanager
def http_client(url: str) -> Iterator[HttpRegistry]:
    """The client of a URL."""
    yield open_registry(url)


@pytest.mark.parametrize("client", [http_client])
def test_messages_go_through_a_registry(client: Client) -> None:
    with serving() as server, client(server.url) as writing, client(server.url) as reading:
        (message,) = write(
            [UPDATE], registry=writing, encoding="avro", metadata="registry", columns=COLUMNS
        )
        assert read(message, registry=reading, columns=COLUMNS) == [UPDATE]
        assert {path.partition("?")[0] for method, path,
            _ in server.requests if method == "POST"} >= {
            "/subjects/app.item-key/versions", "/subjects/app.item-value/versions",
        }  # fmt: skip
        with pytest.raises(UnknownSchema):
            reading.schema(9)


@pytest.mark.parametrize("client", [http_client])
def test_the_refusal_of_a_registry_is_reported(client: Client) -> None:
    with serving() as server, client(server.url) as registry:
        server.status = 422
        with pytest.raises(RegistryError):
            registry.register("app.item-value", '"string"')
        with pytest.raises(RegistryError):
            registry.schema(1)


def test_what_was_asked_once_is_remembered() -> None:
    with serving() as server:
        registry = HttpRegistry(server.url)
        for _ in range(3):
            assert registry.register("a b/c-value", '"string"') == 1
            assert registry.schema(1) == '"string"'
        assert [path for _, path, _ in server.requests] == [
            "/subjects/a%20b%2Fc-value/versions",
            "/schemas/ids/1",
        ]


def test_credentials_are_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        registry = HttpRegistry(server.url, "u:hush")
        registry.register("s", '"string"')
        assert server.requests[0][2] == "Basic dTpodXNo"
        assert "hush" not in repr(registry)
        server.status = 401
        with pytest.raises(RegistryError) as refused:
            registry.register("s", '"int"')
        assert "hush" not in str(refused.value)
    monkeypatch.setenv("EVENTLOG_REGISTRY_AUTH", "u:hush")
    with pytest.raises(ConfigError, match="use https"):
        open_registry("http://elsewhere:8081")


def test_credentials_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auth").write_text("u:hush\n")
    monkeypatch.setenv("EVENTLOG_REGISTRY_AUTH_FILE", str(tmp_path / "auth"))
    with serving() as server:
        open_registry(server.url).register("s", '"string"')
        assert server.requests[0][2] == "Basic dTpodXNo"
    monkeypatch.setenv("EVENTLOG_REGISTRY_AUTH", "u:other")
    with pytest.raises(
        ConfigError, match="REGISTRY_AUTH_FILE and EVENTLOG_REGISTRY_AUTH are both set"
    ):
        open_registry(server.url)


@pytest.mark.parametrize("url", ["ftp://x", "registry:8081", "http://", "http://u:p@registry"])
def test_what_is_no_url_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_registry(url)
    assert ":p@" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "raw"),
    [(409, None), (500, None), (302, None), (200, b"[]"), (200, b"{"), (200, b"{}")],
)
def test_a_registry_that_refuses_or_answers_nonsense_is_an_error(
    status: int, raw: bytes | None
) -> None:
    with serving() as server:
        server.status, server.raw = status, raw
        registry = HttpRegistry(server.url)
        with pytest.raises(RegistryError):
            registry.register("s", '"string"')
        with pytest.raises(RegistryError):
            registry.schema(1)


def test_a_registry_that_is_not_there_is_an_error() -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(RegistryError, match="cannot get an answer"):
        HttpRegistry(url).schema(1)


def test_the_wire_format() -> None:
    assert prefix_of(258) == b"\0\0\0\1\2"
    assert split(b"\0\0\0\1\2body") == (258, b"body")
    for data in (b"\0\0\0\1", b"\1\0\0\1\2", b""):
        with pytest.raises(FormatError):
            split(data)


def test_in_memory_a_schema_has_one_id() -> None:
    registry = MemoryRegistry()
    assert [
        registry.register("a", "x"),
        registry.register("b", "x"),
        registry.register("a", "y"),
    ] == [1, 1, 2]
    assert registry.subjects == {"a": [1, 2], "b": [1]}
    with pytest.raises(UnknownSchema):
        registry.schema(3)
