"""Send events to streams of NATS JetStream (spec/event-log.md 8.4, *Messages*).

The client is asynchronous: its loop runs in a thread, which also answers the server's pings while
the publisher waits for the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from eventlog.config.kafka import ALLOW_PLAIN, PASSWORD, USER
from eventlog.core.clock import start_thread
from eventlog.core.options import PATH, TEXT, WEB_URL, option, shared, toml
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply
from eventlog.publisher.sinks import CA_FILE, CLIENT_CERTIFICATE, CLIENT_KEY, TIMEOUT, TOKEN
from eventlog.publisher.sinks.messages import (
    DEFAULT_PLACE,
    Message,
    MessageSink,
    Outcome,
    PlaceWaits,
    Refused,
    ServerUrl,
    header_text,
    in_one_line,
    lacks_client,
    too_large,
    unavailable,
    unreachable,
)

if TYPE_CHECKING:
    import asyncio

_MESSAGE_TOO_LARGE: Final = 10054
_FULL: Final = (10077, 10047, 10023)
"""JetStream's error codes for a stream at its limits, and for a server without room."""

_NOT_OF_SUBJECTS: Final = re.compile(r"\s|[\x00-\x1f]|^\.|(?<=\.)\.|\.$|(?<![^.])[*>](?![^.])")
"""What a subject cannot have: blanks, dots that make a part empty, and parts that are wildcards."""

_FORBIDDEN: Final = re.compile(r'(?i)permissions violation for publish to "([^"]+)"')
"""The words of the server about a subject to which the user may not publish."""

_PATIENCE: Final = 5.0
"""The seconds that the loop has, in addition to the timeout of an answer, to return it."""

_TO_CLOSE: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """Options of ``[sink]`` of type ``nats``."""

    nats_url: str | None = option(
        None,
        WEB_URL,
        "nats://HOST:PORT, or tls://; several URLs of a cluster, comma-separated",
        example="tls://nats.example.org:4222",
    )
    subject: str | None = option(
        None,
        TEXT,
        "the subject of all messages; default: the topic that the format names, else eventlog",
        example="hr.changes",
    )
    credentials_file: Path | None = option(
        None,
        PATH,
        "credentials of the user, as nsc writes them",
        example="/etc/eventlog/nats.creds",
    )
    timeout: float = shared(TIMEOUT)
    ca_file: Path | None = shared(CA_FILE)
    client_certificate: Path | None = shared(CLIENT_CERTIFICATE)
    client_key: Path | None = shared(CLIENT_KEY)
    token: str | None = shared(TOKEN)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)
    allow_plain: bool = shared(ALLOW_PLAIN)


_URL: Final = ServerUrl(
    "nats_url",
    "nats",
    "tls",
    "nats://HOST:4222",
    secrets="a user, a password or a token; set EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or "
    "EVENTLOG_SINK_TOKEN",
)


class NatsSink(MessageSink):
    """A sink that publishes to a subject, and waits until the stream that takes it has answered.
    Within a period that is configured for the stream, the stream drops a message that comes again.
    """

    name = "nats"
    title = "NATS JetStream"
    options = NatsOptions
    drops_repetitions = True
    needs = {"nats_url": "the address, nats://HOST:PORT"}  # noqa: RUF012 - read only
    server_url = _URL
    address = ("nats_url", "subject")

    @classmethod
    def contradictions(cls, options: NatsOptions, source_of: Callable[[str], str]) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        if (options.user is None) != (options.password is None):
            yield "set both EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or neither"
        ways = (options.user, options.token, options.credentials_file)
        if sum(one is not None for one in ways) > 1:
            yield (
                "EVENTLOG_SINK_USER, EVENTLOG_SINK_TOKEN and sink.credentials_file exclude each "
                "other; keep one"
            )
        if options.subject is not None and _NOT_OF_SUBJECTS.search(options.subject):
            yield (
                f"{source_of('subject')} = {toml(options.subject)} cannot be published to: a "
                "subject has no blanks, no empty parts between dots, and no part that is * or >"
            )
        urls = [] if options.nats_url is None else _servers(options.nats_url)
        yield from _URL.contradictions(options, urls, source_of)

    def __init__(self, options: NatsOptions) -> None:
        """Prepare the client. Raises ConfigError if the client is not installed, or if the TLS
        files cannot be used.
        """
        import asyncio  # takes longer than a configuration

        try:
            import nats
            import nats.js.errors
        except ModuleNotFoundError:
            raise lacks_client("nats", "nats-py") from None
        if options.credentials_file is not None:
            try:
                import nkeys  # noqa: F401 - the client loads it when it connects
            except ModuleNotFoundError:
                # Not in the extra, since there is only its source.
                raise ConfigError(
                    "sink.credentials_file needs the package nkeys: pip install nkeys"
                ) from None
        assert options.nats_url is not None
        self._nats: Any = nats
        self._asyncio: Any = asyncio
        self._options, self._shown = options, options.nats_url
        self.has_one_place = options.subject is not None
        self._tls, self._new_client = None, self._nats.NATS
        if _URL.is_secure(_servers(options.nats_url)):
            from eventlog.transport.tls import tls_context

            self._new_client = _only_over_tls(self._nats)
            self._tls = tls_context(
                "sink", options.ca_file, options.client_certificate, options.client_key
            )
        self._loop = self._asyncio.new_event_loop()
        self._thread = start_thread(self._loop.run_forever, "nats")
        self._client: Any = None  # None = not connected
        self._failed: asyncio.Future[None] | None = None
        """The failure of the connection, which no answer reports."""
        self._sending: list[tuple[Message, asyncio.Task[Any]]] = []
        self._denied: dict[str, BaseException | None] = {}
        """The errors of subjects in small letters to which the user may not publish."""

    def found(self) -> str:
        stream = self._run(self._stream_of(self._options.subject or DEFAULT_PLACE))
        return f"{self._shown} answers; {stream}"

    def limit(self) -> tuple[int, str]:
        return self._run(self._connected()).max_payload, "max_payload"

    def size(self, message: Message) -> int:
        # "NATS/1.0", a line per header, and an empty line.
        headers = _headers(message).items()
        lines = sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
        return len(b"NATS/1.0\r\n\r\n") + lines + len(message.body)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return self._run(self._publish(messages))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        with suppress(ReceiverUnavailable):
            self._run(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop. Raises ReceiverUnavailable."""
        doing = self._asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            result: T = doing.result(2 * self._options.timeout + _PATIENCE)
        except (TimeoutError, CancelledError):
            doing.cancel()
            raise unavailable(self._shown, "the client does not return") from None
        return result

    # --- in the loop ---

    async def _connected(self) -> Any:
        """Return the connected client. Raises ReceiverUnavailable."""
        if self._client is not None and self._client.is_connected:
            return self._client
        await self._disconnect()
        client, options = self._new_client(), self._options
        self._failed = self._loop.create_future()
        given: dict[str, Any] = {"token": options.token} if options.token is not None else {}
        if options.user is not None:
            given = {"user": options.user, "password": options.password}
        if options.credentials_file is not None:
            given = {"user_credentials": str(options.credentials_file)}
        if self._tls is not None:
            given["tls"] = self._tls
        # It connects again only with the next message: what it has buffered by itself could arrive
        # after later messages.
        try:
            await self._asyncio.wait_for(
                client.connect(
                    _servers(self._shown),
                    name="eventlog",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=options.timeout,
                    error_cb=self._note,
                    disconnected_cb=self._note,
                    **given,
                ),
                options.timeout,
            )
        except (OSError, TimeoutError, ValueError, self._nats.errors.Error) as error:
            await self._end(client)
            noted = self._failed.exception() if self._failed.done() else None
            raise self._error(noted or error) from None
        self._client = client
        return client

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._end(client)

    async def _end(self, client: Any) -> None:
        # After a failed handshake of TLS the client waits for ever.
        with suppress(Exception):
            await self._asyncio.wait_for(client.close(), _TO_CLOSE)

    async def _note(self, error: Exception | None = None) -> None:
        """Record an error of the connection, or of a subject to which the user may not publish."""
        if (forbidden := _FORBIDDEN.search(str(error))) is not None:
            subject = forbidden[1].lower()  # as the client writes it
            self._denied[subject] = error
            for message, task in self._sending:
                if self._subject(message).lower() == subject:
                    task.cancel()
            return
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error or ConnectionError("the connection ended"))
            self._failed.exception()  # read, so that nothing reports it as forgotten

    async def _publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send messages together. Return the outcome of each."""
        stream = (await self._connected()).jetstream(timeout=self._options.timeout)
        assert self._failed is not None
        self._denied = {}
        self._sending = [
            (
                message,
                self._loop.create_task(
                    stream.publish(self._subject(message), message.body, headers=_headers(message))
                ),
            )
            for message in messages
        ]
        tasks = [task for _, task in self._sending]
        answers: asyncio.Future[list[Any]] = self._asyncio.gather(*tasks, return_exceptions=True)
        waited: set[asyncio.Future[Any]] = {answers, self._failed}
        await self._asyncio.wait(waited, return_when=self._asyncio.FIRST_COMPLETED)
        failure = None if answers.done() else self._failed.exception()
        for task in tasks:
            task.cancel()  # without effect on those that are done
        outcomes = [
            self._outcome(message, answer, failure)
            for message, answer in zip(messages, await answers, strict=True)
        ]
        broken = [one for one in outcomes if isinstance(one, ReceiverUnavailable)]
        if not all(isinstance(one, PlaceWaits) for one in broken):
            await self._disconnect()
        return outcomes

    def _outcome(self, message: Message, answer: object, failure: BaseException | None) -> Outcome:
        """Return the outcome of a message for an answer, or for the ``failure`` of the connection
        if there is no answer.
        """
        if not isinstance(answer, BaseException):
            return None
        if getattr(answer, "err_code", None) == _MESSAGE_TOO_LARGE:
            return too_large("the stream takes no message of this size (max_msg_size)")
        if isinstance(answer, self._asyncio.CancelledError):
            answer = self._denied.get(self._subject(message).lower(), failure)
        return self._error(answer, self._subject(message))

    def _subject(self, message: Message) -> str:
        """Return the subject of a message. Characters of a topic that a subject cannot have become
        ``_``, so that the name of one table stops no other table.
        """
        topic = message.topic or DEFAULT_PLACE
        return self._options.subject or _NOT_OF_SUBJECTS.sub("_", topic)

    async def _stream_of(self, subject: str) -> str:
        """Return the stream that takes a subject, in words. Raises ReceiverUnavailable."""
        stream = (await self._connected()).jetstream(timeout=self._options.timeout)
        try:
            name = await stream.find_stream_name_by_subject(subject)
            config = (await stream.stream_info(name)).config
        except self._nats.js.errors.NotFoundError:
            raise self._error(self._nats.js.errors.NoStreamResponseError(), subject) from None
        except self._nats.errors.Error as error:
            return f"the user may not ask for its streams ({_words(error)})"
        window = config.duplicate_window or 0
        return (
            f"stream {name} takes {subject}, and recognizes a message that comes again within "
            f"{window:g} s{_dropped(config)}"
        )

    def _error(self, error: BaseException | None, subject: str = "") -> ReceiverUnavailable:
        """Return the sink's error for an error of the client. ``subject`` is the subject of the
        message that has the error; empty for an error of the connection.
        """
        errors, stream_errors = self._nats.errors, self._nats.js.errors
        forbidden = _FORBIDDEN.search(_words(error))
        if forbidden is not None and subject.lower() != forbidden[1].lower():
            subject = forbidden[1]
        subject = subject or self._options.subject or DEFAULT_PLACE
        text, lower = _words(error), _words(error).lower()
        code = getattr(error, "err_code", None)
        reply = Reply.in_words(str(code or ""), " ".join(str(error or "").split()))
        is_of_place = (
            isinstance(error, stream_errors.NoStreamResponseError)
            or forbidden is not None
            or code in _FULL
        )
        if isinstance(error, stream_errors.NoStreamResponseError):
            text = f"no stream takes the subject {subject}"
            advice = (
                f"make one, such as: nats stream add EVENTLOG --subjects '{subject}', or correct "
                "sink.subject"
            )
        elif isinstance(error, errors.AuthorizationError) or "authorization violation" in lower:
            text, advice = (
                "the server refuses the user",
                "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, EVENTLOG_SINK_TOKEN or "
                "sink.credentials_file",
            )
        elif "permissions violation" in lower:
            advice = (
                f'permit the user: publish = ["{subject}"], subscribe = ["_INBOX.>"], or correct '
                "EVENTLOG_SINK_USER or sink.subject"
            )
        elif isinstance(error, errors.SecureConnRequiredError):
            text, advice = (
                "the server does not ask for TLS, so nothing was sent",
                "configure tls in the server, or correct sink.nats_url",
            )
        elif code in _FULL:
            advice = "raise the limits of the stream, or of the server's storage"
        elif isinstance(error, TimeoutError | errors.TimeoutError):
            text = f"no answer within {self._options.timeout:g} s"
            advice = "check that the server runs, and that JetStream has its majority"
            return unavailable(self._shown, text, advice)
        elif isinstance(error, stream_errors.APIError):
            advice = ""
        else:
            return unreachable(self._shown, text, "nats_url")
        kind = PlaceWaits if is_of_place else Refused
        return unavailable(self._shown, text, advice, kind, reply)


def _servers(urls: str) -> list[str]:
    # The client recognizes only schemes in small letters.
    return [urlsplit(url.strip()).geturl() for url in urls.split(",")]


def _only_over_tls(nats: Any) -> Any:
    """Return a class of clients that send nothing to a server whose INFO does not ask for TLS. The
    client of the package would then go on without TLS, whatever its options are. Raises
    ConfigError.
    """
    if not hasattr(nats.NATS, "_connect_command"):
        raise ConfigError("tls:// needs another release of nats-py: its first command is unknown")

    class TlsClient(nats.NATS):  # type: ignore[misc]
        def _connect_command(self) -> Any:
            # The first bytes to the server, after its INFO and the handshake.
            if not self._server_info.get("tls_required"):
                raise nats.errors.SecureConnRequiredError
            return super()._connect_command()

    return TlsClient


def _headers(message: Message) -> dict[str, str]:
    headers = {name: header_text(value) for name, value in message.named}
    if message.message_id:
        headers["Nats-Msg-Id"] = header_text(message.deduplication_id.encode())
    return headers


def _dropped(config: Any) -> str:
    """Return which limits of a stream drop messages, in words; empty if none does."""
    names = ["max_msgs", "max_bytes"] if config.discard == "old" else []
    names += [] if config.discard_new_per_subject else ["max_msgs_per_subject"]
    values = {name: getattr(config, name) or 0 for name in (*names, "max_age")}
    limits = ", ".join(f"{name} = {value:g}" for name, value in values.items() if value > 0)
    return f"; beyond {limits} it drops its oldest messages, read or not" if limits else ""


def _words(error: BaseException | None) -> str:
    return in_one_line(error or "") or type(error).__name__
