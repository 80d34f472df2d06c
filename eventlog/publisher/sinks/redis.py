"""Send events to Redis Streams by XADD (spec/event-log.md 8.4, *Messages*)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from eventlog.config.kafka import ALLOW_PLAIN, PASSWORD, USER
from eventlog.core.options import BOOLEAN, MANY, TEXT, WEB_URL, integer, option, shared
from eventlog.errors import ReceiverUnavailable, Reply
from eventlog.publisher.sinks import CA_FILE, CLIENT_CERTIFICATE, CLIENT_KEY, TIMEOUT
from eventlog.publisher.sinks.messages import (
    DEFAULT_PLACE,
    Message,
    MessageSink,
    Outcome,
    PlaceWaits,
    Refused,
    ServerUrl,
    lacks_client,
    unavailable,
    unreachable,
)

_PORT: Final = 6379
_MARGIN: Final = 1.0
"""The seconds before the end of the timeout, half of it at most, at which the server itself ends
its waiting.
"""
_LOST: Final = -1

_MAX_BULK: Final = 512 * 2**20
"""The server's default of ``proto-max-bulk-len``."""

_ADVICE: Final = {
    "WRONGPASS": "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD",
    "NOPERM": (
        "grant the user its rights: ACL SETUSER USER ~STREAM +ping +xadd +multi +exec (and +wait "
        "if wait_replicas is set, +waitaof if wait_disk is set); or correct EVENTLOG_SINK_USER"
    ),
    "WRONGTYPE": "the key is not a stream: set sink.stream to another key, or delete this key",
    "OOM": "free memory, or raise maxmemory of the server",
    "READONLY": "the server is a replica: set sink.redis_url to its master",
    "MOVED": "a cluster is not supported: set sink.redis_url to a single server",
    "LOADING": "wait until the server has loaded its data",
}
"""What to do, by the error code of the server."""

_OF_PLACE: Final = ("WRONGTYPE", "NOPERM")
"""The error codes that may concern one stream."""

_COMMAND: Final = re.compile("Command # ([0-9]+) ")
"""The number of the command that the server has refused, in the client's message."""

_CODES: Final = {
    "AuthenticationError": "WRONGPASS",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "MovedError": "MOVED",
}
"""The error codes by the client's classes of errors, whose messages lack the code."""


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Options of ``[sink]`` of type ``redis``."""

    redis_url: str | None = option(
        None,
        WEB_URL,
        "redis://HOST:PORT/DATABASE, or rediss://",
        example="rediss://redis.example.org:6379/0",
    )
    stream: str | None = option(
        None,
        TEXT,
        "the stream of all messages; default: the topic that the format names, else eventlog",
        example="hr",
    )
    max_length: int | None = option(
        None,
        integer(1, MANY),
        "maximum number of entries of a stream; the server removes older entries, read or not; "
        "default: no limit",
        example=1_000_000,
    )
    wait_replicas: int = option(
        0, integer(0, 100), "replicas that must have an entry before its rows are marked (WAIT)"
    )
    wait_disk: bool = option(
        False,
        BOOLEAN,
        "let the marks wait until the server has synced its append-only file (WAITAOF, Redis 7.2)",
    )
    timeout: float = shared(TIMEOUT)
    ca_file: Path | None = shared(CA_FILE)
    client_certificate: Path | None = shared(CLIENT_CERTIFICATE)
    client_key: Path | None = shared(CLIENT_KEY)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)
    allow_plain: bool = shared(ALLOW_PLAIN)


_URL: Final = ServerUrl(
    "redis_url",
    "redis",
    "rediss",
    "redis://HOST:6379/0",
    lambda url: _is_database(url.path),
)


class RedisSink(MessageSink):
    """A sink that adds an entry for each message. The entries of a document are one transaction."""

    name = "redis"
    title = "Redis Streams"
    options = RedisOptions
    needs = {"redis_url": "the address, redis://HOST:PORT"}  # noqa: RUF012 - read only
    server_url = _URL
    address = ("redis_url", "stream")

    @classmethod
    def contradictions(
        cls, options: RedisOptions, source_of: Callable[[str], str]
    ) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        if options.user is not None and options.password is None:
            yield "set EVENTLOG_SINK_PASSWORD too, or leave EVENTLOG_SINK_USER out"
        if options.redis_url is not None:
            yield from _URL.contradictions(options, [options.redis_url], source_of)

    def __init__(self, options: RedisOptions) -> None:
        """Prepare the connection. Raises ConfigError if the client is not installed."""
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ModuleNotFoundError:
            raise lacks_client("redis", "redis") from None
        assert options.redis_url is not None
        self._redis, self._options, self._shown = redis, options, options.redis_url
        self.has_one_place = options.stream is not None
        url = urlsplit(options.redis_url)
        tls: dict[str, Any] = {}
        if url.scheme == _URL.secure:
            from ssl import TLSVersion  # takes longer than a configuration

            tls = {
                "connection_class": redis.SSLConnection,
                "ssl_ca_certs": _text(options.ca_file),
                "ssl_certfile": _text(options.client_certificate),
                "ssl_keyfile": _text(options.client_key),
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": True,  # not the default of clients before 6
                "ssl_min_version": TLSVersion.TLSv1_2,
            }
        # One connection, since WAIT waits for what this connection has written. The client must
        # not repeat a command by itself: it would write twice.
        self._pool = redis.ConnectionPool(
            host=url.hostname,
            port=url.port or _PORT,
            db=int(url.path.strip("/") or 0),
            username=options.user,
            password=options.password,
            socket_timeout=options.timeout,
            socket_connect_timeout=options.timeout,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            protocol=2,
            max_connections=1,
            redis_connect_func=self._connected,
            **tls,
        )
        self._client: Any = redis.Redis(connection_pool=self._pool)
        self._connections = 0
        # The connection of the entries since the last flush, 0 = there are none.
        self._written_on = 0
        self._limit = 0

    def found(self) -> str:
        stream = self._options.stream or DEFAULT_PLACE
        with self._failing():
            self._client.ping()
            try:
                length = self._client.xlen(stream)
            except self._redis.exceptions.NoPermissionError:
                return f"{self._shown} answers; the user may not read stream {stream}"
        return f"{self._shown} answers; stream {stream} has {length} entries"

    def limit(self) -> tuple[int, str]:
        if not self._limit:
            try:
                with self._failing():
                    found = self._client.config_get("proto-max-bulk-len")
            except Refused:  # many users may not read the configuration
                found = {}
            self._limit = int(found.get("proto-max-bulk-len", _MAX_BULK))
        return self._limit, "proto-max-bulk-len"

    def size(self, message: Message) -> int:
        # The limit concerns each value, and all others are small.
        return max(len(message.body), *(len(value) for _, value in message.named), 0)

    def rounds(self, messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
        return (messages,)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        while left := [at for at in range(len(messages)) if at not in outcomes]:
            try:
                outcomes |= zip(left, self._add([messages[at] for at in left]), strict=True)
            except self._redis.ResponseError as error:
                # The server has refused a command before EXEC, and so has added nothing.
                found = _COMMAND.search(str(error))
                failure = self._error(error)
                if found is None or not isinstance(failure, PlaceWaits):
                    raise failure from None
                stream = self._stream_of(messages[left[int(found[1]) - 1]])
                outcomes |= {at: failure for at in left if self._stream_of(messages[at]) == stream}
        return [outcomes[at] for at in range(len(messages))]

    def _stream_of(self, message: Message) -> str:
        return self._options.stream or message.topic or DEFAULT_PLACE

    def _add(self, messages: Sequence[Message]) -> list[Outcome]:
        """Add the entries of messages in one transaction, and return the outcome of each: the
        server goes on after a command that fails. Raises ReceiverUnavailable, and ResponseError if
        no command was run.
        """
        pipeline = self._client.pipeline(transaction=True)
        for message in messages:
            pipeline.xadd(
                self._stream_of(message),
                {**dict(message.named), "value": message.body},
                maxlen=self._options.max_length,
                approximate=True,
            )
        with self._failing(but=self._redis.ResponseError):
            results = pipeline.execute(raise_on_error=False)
        if self._written_on not in (0, _LOST, self._connections):
            self._written_on = _LOST
            raise self._lost()
        if self._written_on != _LOST:
            self._written_on = self._connections
        return [self._error(one) if isinstance(one, Exception) else None for one in results]

    def flush(self) -> None:
        """Wait for replicas and disk, where that is configured. Raises ReceiverUnavailable."""
        written_on, self._written_on = self._written_on, 0
        replicas, timeout = self._options.wait_replicas, self._options.timeout
        milliseconds = int((timeout - min(_MARGIN, timeout / 2)) * 1000)
        if written_on == _LOST:
            raise self._lost()
        if not written_on or not (replicas or self._options.wait_disk):
            return
        with self._failing():
            if replicas:
                count = self._client.wait(replicas, milliseconds)
                if count < replicas:
                    raise unavailable(
                        self._shown,
                        f"{count} of {replicas} replicas have the entries after "
                        f"{milliseconds / 1000:g} s",
                        "check the replicas, or sink.wait_replicas",
                    )
            if self._options.wait_disk:
                local, _ = self._client.waitaof(1, 0, milliseconds)
                if not local:
                    raise unavailable(
                        self._shown,
                        f"the append-only file is not synced after {milliseconds / 1000:g} s",
                        "check the server's disk and appendfsync",
                    )
        if written_on != self._connections:
            raise self._lost()

    def close(self) -> None:
        self._written_on = 0
        self._client.close()
        self._pool.disconnect()

    def _connected(self, connection: Any) -> None:
        connection.on_connect()
        # Each command is tried before anything is written: if it fails only after the entries, each
        # attempt writes the entries again.
        for command, is_used in (
            (("WAIT", 0, 1), self._options.wait_replicas),
            (("WAITAOF", 1, 0, 1), self._options.wait_disk),
        ):
            if is_used:
                connection.send_command(*command)
                connection.read_response()
        self._connections += 1

    def _lost(self) -> ReceiverUnavailable:
        """Return the error for entries that were not confirmed: the connection broke, perhaps
        because the server crashed and lost the entries.
        """
        return unavailable(self._shown, "the connection broke before the entries were confirmed")

    @contextmanager
    def _failing(self, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """In the block, turn the errors of the client into ReceiverUnavailable, and the errors of
        the server into ``Refused``, ``but`` not these.
        """
        try:
            yield
        except self._redis.RedisError as error:
            if isinstance(error, but):
                raise
            raise self._error(error) from None

    def _error(self, error: Exception) -> ReceiverUnavailable:
        """Return the sink's error for an error of the client."""
        if not isinstance(error, self._redis.ResponseError):
            self._pool.disconnect()
        # The client's errors of a pipeline quote the command, and so values.
        words = " ".join(str(error).rpartition(" caused error: ")[2].split())
        text, code = words[:200], _CODES.get(type(error).__name__, words.partition(" ")[0])
        advice = _ADVICE.get(code, "")
        if "WAITAOF" in text.upper() and code != "NOPERM":
            advice = (
                "set appendonly yes on a server of Redis 7.2 or later, or remove sink.wait_disk"
            )
        answered = self._redis.ResponseError, self._redis.AuthenticationError
        if advice or isinstance(error, answered):
            reply = Reply.in_words(code if code.isupper() else "", words)
            is_of_place = code in _OF_PLACE and "WAITAOF" not in text.upper()
            kind = PlaceWaits if is_of_place else Refused
            return unavailable(self._shown, text, advice, kind, reply)
        # A server without TLS waits for more of the command for which it takes the handshake.
        if "handshake operation timed out" in str(error.__context__):
            text = f"no answer to the TLS handshake within {self._options.timeout:g} s"
            advice = "check that this port of sink.redis_url has TLS, and that the server runs"
            return unavailable(self._shown, text, advice)
        return unreachable(self._shown, text, "redis_url")


def _is_database(path: str) -> bool:
    number = path.strip("/")
    return not number or (number.isascii() and number.isdigit())


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
