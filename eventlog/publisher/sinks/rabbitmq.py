"""Send events to RabbitMQ with publisher confirms (spec/event-log.md 8.4, *Messages*).

The connection lives in a thread of its client's loop, which sends heartbeats while the publisher
waits for the database.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from eventlog.config.kafka import ALLOW_PLAIN, PASSWORD, USER
from eventlog.core.clock import start_thread
from eventlog.core.options import MANY, TEXT, WEB_URL, integer, option, shared
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
    in_one_line,
    lacks_client,
    too_large,
    unavailable,
    unreachable,
)

_LONGEST_ID: Final = 255
"""The maximum number of bytes of a short text of AMQP."""

_MAX_SIZE: Final = re.compile(r"larger than (?:configured )?max size\D*([0-9]+)")
_NAME: Final = re.compile("^[A-Z_]+")
"""The name of an error at the beginning of its text, such as ``NOT_FOUND - no queue 'x'``."""
_TOPIC: Final = re.compile(r"access to topic '(.*?)' in exchange")
_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class RabbitOptions:
    """Options of ``[sink]`` of type ``rabbitmq``."""

    amqp_url: str | None = option(
        None,
        WEB_URL,
        "amqp://HOST:PORT/VHOST, or amqps://",
        example="amqps://rabbitmq.example.org:5671/hr",
    )
    exchange: str | None = option(
        None, TEXT, "the exchange; default: the one that leads to each queue by its name",
        example="hr",
    )  # fmt: skip
    routing_key: str | None = option(
        None,
        TEXT,
        "the routing key of all messages; default: the topic that the format names, else eventlog",
        example="hr.changes",
    )
    max_message_bytes: int = option(
        16 * 2**20,
        integer(1024, MANY),
        "largest message that is sent, bytes; not more than max_message_size of the server",
    )
    timeout: float = shared(TIMEOUT)
    ca_file: Path | None = shared(CA_FILE)
    client_certificate: Path | None = shared(CLIENT_CERTIFICATE)
    client_key: Path | None = shared(CLIENT_KEY)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)
    allow_plain: bool = shared(ALLOW_PLAIN)


_URL: Final = ServerUrl(
    "amqp_url",
    "amqp",
    "amqps",
    "amqp://HOST:5672/VHOST",
    lambda url: "/" not in url.path[1:],
)


class RabbitSink(MessageSink):
    """A sink that publishes persistent, mandatory messages, and waits until the server has
    confirmed them. A message that no queue takes is returned before it is confirmed, so the sink
    waits for both.
    """

    name = "rabbitmq"
    title = "RabbitMQ"
    options = RabbitOptions
    needs = {"amqp_url": "the address, amqp://HOST:PORT/VHOST"}  # noqa: RUF012 - read only
    server_url = _URL
    address = ("amqp_url", "exchange", "routing_key")

    @classmethod
    def contradictions(
        cls, options: RabbitOptions, source_of: Callable[[str], str]
    ) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        if (options.user is None) != (options.password is None):
            yield "set both EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or neither"
        if options.amqp_url is not None:
            yield from _URL.contradictions(options, [options.amqp_url], source_of)

    def __init__(self, options: RabbitOptions) -> None:
        """Prepare the connection. Raises ConfigError if the client is not installed, or if the TLS
        files cannot be used.
        """
        try:
            import pika
        except ModuleNotFoundError:
            raise lacks_client("rabbitmq", "pika") from None
        assert options.amqp_url is not None
        self._pika: Any = pika
        self._options, self._shown = options, options.amqp_url
        self.has_one_place = options.routing_key is not None
        # The client logs each failed connection with all its steps; ours has the reason.
        client_log = logging.getLogger("pika")
        if client_log.level == logging.NOTSET:
            client_log.setLevel(logging.CRITICAL)
        url = urlsplit(options.amqp_url)
        given: dict[str, Any] = {"port": url.port} if url.port else {}
        if options.user is not None:
            given["credentials"] = pika.PlainCredentials(options.user, options.password)
        if url.scheme == "amqps":
            from eventlog.transport.tls import tls_context

            context = tls_context(
                "sink", options.ca_file, options.client_certificate, options.client_key
            )
            given |= {"ssl_options": pika.SSLOptions(context, url.hostname)}
            given.setdefault("port", pika.ConnectionParameters.DEFAULT_SSL_PORT)
        self._parameters = pika.ConnectionParameters(
            host=url.hostname,
            virtual_host=unquote(url.path[1:]) or "/",
            socket_timeout=options.timeout,
            stack_timeout=options.timeout,
            blocked_connection_timeout=options.timeout,
            client_properties={"connection_name": "eventlog"},
            **given,
        )
        self._most = options.max_message_bytes
        self._session: _Session | None = None

    def found(self) -> str:
        return f"{self._shown} answers; {self._declared()}"

    def limit(self) -> tuple[int, str]:
        return self._most, "max_message_size; sink.max_message_bytes"

    def size(self, message: Message) -> int:
        return len(message.body)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        while left := [at for at in range(len(messages)) if at not in outcomes]:
            answered, failure = self._publish([messages[at] for at in left])
            outcomes |= {left[at]: outcome for at, outcome in answered.items()}
            if failure is None:
                continue
            # If the server has closed the channel because of some messages, the others are sent
            # again, as far as they are not confirmed.
            left = [at for at in left if at not in outcomes]
            causes = {at: self._cause(messages[at], failure) for at in left}
            found = {at: outcome for at, outcome in causes.items() if outcome is not None}
            outcomes |= found or dict.fromkeys(left, failure)
        return [outcomes[at] for at in range(len(messages))]

    def _cause(self, message: Message, failure: ReceiverUnavailable) -> Outcome:
        """Return the outcome of a message that has caused a failure, None for another message."""
        if isinstance(failure, _TooLarge):
            # The server has a lower limit than the option, which it only now reports.
            self._most = min(self._most, failure.most)
            if self.size(message) > self._most:
                return too_large(f"the server takes {self._most} bytes (max_message_size)")
        if isinstance(failure, _TopicRefused) and self._routing_key(message) == failure.routing_key:
            return failure
        return None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> _Session:
        """Return the open session. Raises ReceiverUnavailable."""
        if self._session is None or not self._session.is_open:
            self.close()
            session = _Session(self._pika, self._parameters)
            try:
                session.opened.result(self._options.timeout)
            except Exception as error:
                session.close()
                raise self._error(error) from None
            self._session = session
        return self._session

    def _publish(
        self, messages: Sequence[Message]
    ) -> tuple[Mapping[int, Outcome], ReceiverUnavailable | None]:
        """Publish messages, and wait for their confirmations. Return the outcomes of the messages
        that were answered, by their position, and the failure if there are others. Raises
        ReceiverUnavailable.
        """
        session, exchange = self._connected(), self._options.exchange or ""
        outgoing = [
            (exchange, self._routing_key(one), one.body, _properties(self._pika, one))
            for one in messages
        ]
        answer, failure = session.publish(outgoing), None
        try:
            answer.done.result(self._options.timeout)
        except Exception as error:
            blocked = session.is_blocked
            self.close()
            routing_key = self._routing_key(messages[0])
            failure = self._error(error, routing_key, is_blocked=blocked)
        returned = {at: self._returned(*found) for at, found in answer.returned.items()}
        refused = dict.fromkeys(answer.refused, self._nacked())
        confirmed: dict[int, Outcome] = dict.fromkeys(answer.confirmed)
        return confirmed | refused | returned, failure

    def _returned(self, code: int, text: str, routing_key: str) -> ReceiverUnavailable:
        return unavailable(
            self._shown,
            f"no queue takes a message with routing key {routing_key} ({code} {text})",
            self._make_queue(routing_key),
            PlaceWaits,
            Reply.in_words(f"{code} {text}", f"returned, routing key {routing_key}"),
        )

    def _nacked(self) -> ReceiverUnavailable:
        return unavailable(
            self._shown,
            "a queue has refused a message",
            "see whether a queue is full (overflow = reject-publish) or its node is down",
            PlaceWaits,
            Reply("basic.nack"),
        )

    def _routing_key(self, message: Message) -> str:
        return self._options.routing_key or message.topic or DEFAULT_PLACE

    def _make_queue(self, routing_key: str) -> str:
        """Return what a user must do if no queue takes a routing key."""
        if self._options.exchange is None:
            return f"declare the queue {routing_key}, durable, or correct sink.routing_key"
        return (
            f"bind a queue to the exchange {self._options.exchange} for {routing_key}, or correct "
            "sink.routing_key"
        )

    def _declared(self) -> str:
        """Return the sentence that the exchange or queue is there. Raises ReceiverUnavailable."""
        exchange, queue = self._options.exchange, self._options.routing_key or DEFAULT_PLACE
        session = self._connected()
        kind, name = ("queue", queue) if exchange is None else ("exchange", exchange)
        try:
            session.find(kind, name).result(self._options.timeout)
        except Exception as error:
            self.close()
            code = getattr(error, "reply_code", None)
            if code == 403 and kind == "queue":
                return f"the user may not ask for queue {name}"
            raise self._error(error, queue) from None
        return f"{kind} {name} is there"

    def _error(
        self, error: BaseException, routing_key: str = DEFAULT_PLACE, *, is_blocked: bool = False
    ) -> ReceiverUnavailable:
        """Return the sink's error for an error of the client."""
        found = _innermost(error)
        code, text = getattr(found, "reply_code", 0), in_one_line(found)
        text = str(getattr(found, "reply_text", text))
        reply = Reply.in_words(f"{code} {''.join(_NAME.findall(text))}", text) if code else None
        vhost, user = self._parameters.virtual_host, self._options.user or "guest"
        exchange = self._options.exchange
        if (largest := _MAX_SIZE.search(text)) is not None:
            return _TooLarge(self._shown, text, int(largest[1]))
        kind: Callable[..., ReceiverUnavailable] = Refused
        if (topic := _TOPIC.search(text)) is not None:
            kind = partial(_TopicRefused, routing_key=topic[1])
        if is_blocked:
            text, advice = (
                "the server takes no messages, because its memory or disk is short",
                "free them: rabbitmqctl status shows the alarm",
            )
        elif isinstance(found, self._pika.exceptions.ProbableAuthenticationError) or (
            "Login was refused" in text or "PLAIN login refused" in text
        ):
            text = "the server refuses the user"
            advice = "check EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD"
        elif code == 530 or isinstance(found, self._pika.exceptions.ProbableAccessDeniedError):
            advice = (
                f"check the virtual host of sink.amqp_url, and permit the user: rabbitmqctl "
                f"set_permissions -p '{vhost}' {user} '' '{_pattern(exchange)}' ''"
            )
        elif code == 403:
            advice = (
                f"permit the user: rabbitmqctl set_permissions -p '{vhost}' {user} '' "
                f"'{_pattern(exchange)}' '', or correct EVENTLOG_SINK_USER"
            )
        elif code == 404:
            advice = (
                self._make_queue(routing_key)
                if exchange is None
                else f"declare the exchange {exchange}, durable, and bind a queue for "
                f"{routing_key}, or correct sink.exchange"
            )
        elif isinstance(found, self._pika.exceptions.ShortStringTooLong):
            routing_key = found.args[0].decode("utf-8", "replace")
            kind = partial(_TopicRefused, routing_key=routing_key)
            text = f"the routing key {routing_key[:40]}... has more than 255 bytes"
            advice = "shorten sink.routing_key, or the topic that the format names"
        elif isinstance(found, TimeoutError):
            text = f"no confirmation within {self._options.timeout:g} s"
            return unavailable(self._shown, text, "check the server's log and its disk")
        else:
            return unreachable(self._shown, text or type(found).__name__, "amqp_url")
        return unavailable(self._shown, text, advice, kind, reply)


class _TooLarge(ReceiverUnavailable):
    """A server that has closed the channel because of a message of more than ``most`` bytes."""

    def __init__(self, place: str, text: str, most: int) -> None:
        advice = "set sink.max_message_bytes"
        super().__init__(f"{place}: {text}; {advice}", f"{place}: {advice}", advice=advice)
        self.most = most


class _TopicRefused(PlaceWaits):
    """A server that has closed the channel because the user may not write to a routing key."""

    def __init__(self, *words: str, routing_key: str, **more: Any) -> None:
        super().__init__(*words, **more)
        self.routing_key = routing_key


class _Answer:
    """What the server has answered to messages, by their positions."""

    def __init__(self, messages: Sequence[tuple[str, str, bytes, Any]]) -> None:
        self.positions = {one[-1].message_id: at for at, one in enumerate(messages)}
        self.waiting: dict[int, int] = {}  # by number, the messages without a confirmation
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()
        self.returned: dict[int, tuple[int, str, str]] = {}  # code, text, routing key
        self.done: Future[None] = Future()


class _Session:
    """A connection with one channel, in the thread of its loop. Its methods are called from one
    other thread, and return futures.
    """

    def __init__(self, pika: Any, parameters: Any) -> None:
        self._pika = pika
        self.opened: Future[None] = Future()
        self.is_open = self.is_blocked = False
        self._channel: Any = None
        self._published = 0
        self._answer: _Answer | None = None
        self._asked: Future[None] | None = None
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=self._on_connected,
            on_open_error_callback=self._on_failed,
            on_close_callback=self._on_failed,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._loop = self._connection.ioloop
        self._thread = start_thread(self._loop.start, "rabbitmq")

    def publish(self, messages: Sequence[tuple[str, str, bytes, Any]]) -> _Answer:
        """Publish messages, each given as exchange, routing key, body and properties."""
        answer = _Answer(messages)

        def publish() -> None:
            if not self.is_open:
                _fail(answer.done, ConnectionError("the connection ended"))
                return
            self._answer = answer
            try:
                for at, (exchange, routing_key, body, properties) in enumerate(messages):
                    self._published += 1
                    answer.waiting[self._published] = at
                    self._channel.basic_publish(
                        exchange, routing_key, body, properties, mandatory=True
                    )
            except Exception as error:
                _fail(answer.done, error)

        self._loop.add_callback_threadsafe(publish)
        return answer

    def find(self, kind: str, name: str) -> Future[None]:
        """Ask for a queue or an exchange; the future fails if it is not there."""
        self._asked = asked = Future[None]()

        def ask() -> None:
            declare = getattr(self._channel, f"{kind}_declare")
            declare(name, passive=True, callback=lambda _: asked.set_result(None))

        self._loop.add_callback_threadsafe(ask)
        return asked

    def close(self) -> None:
        """Close the connection, and end the thread."""

        def end() -> None:
            if self._connection.is_open:
                self._connection.close()
            elif self._connection.is_closed:
                self._loop.stop()

        with suppress(Exception):  # the loop has ended
            self._loop.add_callback_threadsafe(end)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            self._loop.add_callback_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    # --- in the loop ---

    def _on_connected(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_failed)
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirmed, callback=self._on_ready)

    def _on_ready(self, _: Any) -> None:
        self.is_open = True
        self.opened.set_result(None)

    def _on_returned(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        # The server returns a message before it confirms it.
        if self._answer is not None:
            position = self._answer.positions[properties.message_id]
            found = method.reply_code, method.reply_text, method.routing_key
            self._answer.returned[position] = found

    def _on_confirmed(self, frame: Any) -> None:
        answer, method = self._answer, frame.method
        if answer is None:
            return
        tag = method.delivery_tag
        tags = [one for one in answer.waiting if one <= tag] if method.multiple else [tag]
        is_refused = isinstance(method, self._pika.spec.Basic.Nack)
        answered = answer.refused if is_refused else answer.confirmed
        answered.update(answer.waiting.pop(one) for one in tags if one in answer.waiting)
        if not answer.waiting and not answer.done.done():
            answer.done.set_result(None)

    def _on_failed(self, _: Any, error: Exception | str) -> None:
        """Record that the connection or the channel has ended, or was not opened."""
        reason = error if isinstance(error, Exception) else ConnectionError(str(error))
        self.is_open = False
        answered = None if self._answer is None else self._answer.done
        waiting: list[Future[Any] | None] = [self.opened, answered, self._asked]
        for future in waiting:
            if future is not None:
                _fail(future, reason)
        if self._connection.is_closed:
            self._loop.stop()

    def _on_blocked(self, *_: Any) -> None:
        self.is_blocked = True

    def _on_unblocked(self, *_: Any) -> None:
        self.is_blocked = False


def _fail(future: Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _innermost(error: BaseException) -> BaseException:
    """Return the innermost reason for an error of the client, whose connections fail in several
    steps.
    """
    inner = getattr(error, "exceptions", None) or getattr(error, "exception", None)
    if isinstance(inner, tuple | list):
        inner = inner[-1] if inner else None
    if not isinstance(inner, BaseException):
        inner = next((one for one in error.args if isinstance(one, BaseException)), None)
    return error if inner is None else _innermost(inner)


def _pattern(exchange: str | None) -> str:
    return f"^{re.escape(exchange)}$" if exchange else r"^amq\.default$"


def _properties(pika: Any, message: Message) -> Any:
    headers = {name: value.decode("utf-8", "replace") for name, value in message.named}
    whole = message.message_id
    message_id = (
        whole if len(whole.encode()) <= _LONGEST_ID else hashlib.sha256(whole.encode()).hexdigest()
    )
    return pika.BasicProperties(
        content_type=headers.pop("content-type", None),
        headers=headers,
        delivery_mode=pika.DeliveryMode.Persistent.value,
        message_id=message_id or None,
        app_id="eventlog",
    )
