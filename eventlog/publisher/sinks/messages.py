"""Events as messages of a queue or a stream: what the sinks of NATS, RabbitMQ, Redis Streams and
Amazon SQS have in common (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

from eventlog.core.extras import install_command
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply
from eventlog.model import SUCCESS, Answer, Document, EventResult, KafkaRecord, Level
from eventlog.publisher.sinks import NetworkSink, Opening

_OPTION: Final = re.compile(r"\b(sink\.[a-z_]+|EVENTLOG_SINK_)")
DEFAULT_PLACE: Final = "eventlog"
"""The stream, subject or routing key of messages if none is configured and the format names none.
"""


_OF_TLS: Final = ("ca_file", "client_certificate", "client_key")

_CREDENTIALS: Final = ("password", "token", "credentials_file")
_USER: Final = "a user or a password; set EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD"


class ServerUrl(NamedTuple):
    """What the URL of a server is like."""

    option: str
    """The option that has the URL."""
    scheme: str
    secure: str
    """The schemes without and with TLS."""
    like: str
    """An example with the first scheme."""
    fits: Callable[[SplitResult], bool] = lambda _: True
    """A function that returns True for a URL that is right in other respects."""
    secrets: str = _USER
    """The secrets that do not belong in the URL, and where they belong."""

    def is_secure(self, urls: Sequence[str]) -> bool:
        """Return True if one of the URLs asks for TLS."""
        return any(urlsplit(url).scheme == self.secure for url in urls)

    def contradictions(
        self, options: Any, urls: Sequence[str], source_of: Callable[[str], str]
    ) -> Iterator[str]:
        """Yield what is wrong with these URLs, and the options of TLS that have no effect."""
        place = source_of(self.option)
        parts = [urlsplit(url) for url in urls]
        if {url.scheme for url in parts} >= {self.scheme, self.secure}:
            yield f"{place} has URLs with and without TLS; write {self.secure}:// in each"
        for url in parts:
            if "@" in url.netloc:
                yield f"{place} contains {self.secrets}"
            elif (
                url.scheme not in (self.scheme, self.secure)
                or not url.hostname
                or not self.fits(url)
            ):
                yield f"{place} must be like {self.like}, or {self.secure}://"
        if not self.is_secure(urls):
            for name in _OF_TLS:
                if getattr(options, name) is not None:
                    yield f"{source_of(name)} needs {self.secure}:// in sink.{self.option}"


def lacks_client(sink: str, package: str) -> ConfigError:
    """Return the error of a sink whose client is not installed; the extra has the sink's name."""
    return ConfigError(f"sink {sink} needs the package {package}: {install_command(sink)}")


class Message(NamedTuple):
    """A message: one record of an event."""

    event_id: str
    """The event-id; empty for a heartbeat."""
    message_id: str
    """The event-id. If the event has earlier records, such as the description of its table, they
    have the event-id with ``-1``, ``-2`` and so on, counted from the last record.
    """
    topic: str | None
    """The topic of Kafka for which the format made the record, None = it names none."""
    key: bytes | None
    body: bytes
    headers: tuple[tuple[str, bytes], ...]
    nonce: str = ""
    """The random text of the delivery, empty if it has none."""

    @property
    def deduplication_id(self) -> str:
        """The id by which a server recognizes the message when it comes again; empty for a
        heartbeat.
        """
        if not self.nonce:
            return self.message_id
        return f"{self.event_id}.{self.nonce}{self.message_id.removeprefix(self.event_id)}"

    @property
    def object_id(self) -> tuple[str | None, bytes | None]:
        """What messages of one object have in common."""
        return self.topic, self.key

    @property
    def named(self) -> list[tuple[str, bytes]]:
        """The names and values that go with the body."""
        own = (
            ("event_id", self.event_id.encode() or None),
            ("topic", None if self.topic is None else self.topic.encode()),
            ("key", self.key),
        )
        return [*((name, value) for name, value in own if value is not None), *self.headers]


def messages_of(event_id: str, records: Sequence[KafkaRecord], nonce: str = "") -> list[Message]:
    """Return the messages of an event. A tombstone is only for Kafka's compaction, so it becomes no
    message.
    """
    bodies = [record for record in records if record.value is not None]
    return [
        Message(
            event_id,
            f"{event_id}-{behind}" if behind else event_id,
            record.topic,
            record.key,
            record.value or b"",
            record.headers,
            nonce,
        )
        for behind, record in zip(range(len(bodies) - 1, -1, -1), bodies, strict=True)
    ]


def rounds(messages: Iterable[Message], most: int = 1000) -> Iterator[list[Message]]:
    """Yield the messages in their order, in rounds. A round has at most one message of each object
    and of each event, so its messages can be sent together: a failure does not change the order
    within an object, and an event whose description fails is not sent.

    ``most`` is the greatest number of messages in a round.
    """
    together: list[Message] = []
    known: set[object] = set()
    for message in messages:
        own = {message.object_id, message.event_id or len(together)}
        if not known.isdisjoint(own) or len(together) == most:
            yield together
            together, known = [], set()
        together.append(message)
        known |= own
    if together:
        yield together


class MessageSink(NetworkSink):
    """A sink that sends each record of an event as a message, and waits until the server has
    confirmed it. A message that is larger than the server takes is not sent: its event is an error.
    """

    server_url: ClassVar[ServerUrl | None] = None
    """The option with the URLs of the servers, None = there is none."""
    # Without headers for attributes, so that a CloudEvent is structured, the one mode that the
    # bindings of all these protocols read alike.
    takes_records = True
    span_kind = "PRODUCER"
    at_once: ClassVar[int] = 256
    """The maximum number of messages that wait for their confirmation."""
    has_one_place = True
    """True if all messages go to one place, whatever their topics."""

    @abstractmethod
    def __init__(self, options: Any) -> None:
        """Prepare the client. Raises ConfigError if the client is not installed."""

    @classmethod
    def open(cls, options: Any, opening: Opening) -> Self:
        return cls(options)

    @classmethod
    def plain_hosts(cls, options: Any) -> Iterator[tuple[str, str]]:
        of_url = cls.server_url
        if of_url is not None and any(getattr(options, one, None) for one in _CREDENTIALS):
            urls = [urlsplit(one.strip()) for one in getattr(options, of_url.option).split(",")]
            for url in urls:
                if url.scheme != of_url.secure:
                    yield url.hostname or "", f"{of_url.secure}:// in sink.{of_url.option}"

    @classmethod
    def try_out(cls, options: Any, opening: Opening) -> str:
        """Connect, and query the server for the place of the messages."""
        with closing(cls(options)) as sink:
            return sink.found()

    @abstractmethod
    def found(self) -> str:
        """Return what the server answers about the place of the messages, in words. Raises
        ReceiverUnavailable.
        """

    @abstractmethod
    def limit(self) -> tuple[int, str]:
        """Return the maximum number of bytes of a message, and the setting of the server that has
        this limit. Raises ReceiverUnavailable.
        """

    @abstractmethod
    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        """Send the messages of a round, and wait until they are confirmed. Return the outcome of
        each. Raises ReceiverUnavailable if the server has confirmed none of them.
        """

    def rounds(self, messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
        """Return the messages in the rounds in which they are delivered."""
        return rounds(messages, self.at_once)

    def size(self, message: Message) -> int:
        """Return how many bytes of a message count towards the limit."""
        return len(message.body) + sum(
            len(name.encode()) + len(value) for name, value in message.named
        )

    def send(self, document: Document) -> Answer:
        """Send the messages of a document. What the server has confirmed is a success of its
        events. An event whose place takes nothing gets *retry* with the place.

        Raises ReceiverUnavailable, with the results of the events that were answered before. This
        includes a place that takes nothing if the sink has no other place.
        """
        if not document.event_ids:  # a heartbeat, which only some formats have
            lines = document.body.split(b"\n")[:-1]
            self._deliver([Message("", "", None, None, line, ()) for line in lines], {})
            return Answer()
        most, setting = self.limit()
        refused: dict[str, EventResult] = {}
        accepted: list[Message] = []
        for event_id, records in zip(document.event_ids, document.records, strict=True):
            if isinstance(records, EventResult):
                refused[event_id] = records
                continue
            messages = messages_of(event_id, records, document.nonce)
            largest = max(map(self.size, messages), default=0)
            if largest > most:
                refused[event_id] = too_large(
                    f"the message has more bytes ('{largest}') than the server takes "
                    f"({most}, {setting})"
                )
            else:
                accepted += messages
        return Answer(self._deliver(accepted, refused))

    def _deliver(
        self, messages: Sequence[Message], results: dict[str, EventResult]
    ) -> dict[str, EventResult]:
        """Send messages, and return ``results`` with the results of the events that were not taken.
        After a message that was not taken, no later message of its object is sent.
        """
        left = Counter(one.event_id for one in messages)
        waiting: dict[object, EventResult] = {}
        for together in self.rounds(messages):
            ready = []
            for one in together:
                before = waiting.get(one.object_id) or results.get(one.event_id)
                if before is None:
                    ready.append(one)
                elif before.level is Level.RETRY:
                    waiting[one.object_id] = results[one.event_id] = before
            failure = None
            for one, outcome in zip(ready, self._outcomes(ready), strict=True):
                if outcome is None:
                    left[one.event_id] -= 1
                elif isinstance(outcome, EventResult):
                    results[one.event_id] = outcome
                elif isinstance(outcome, PlaceWaits) and one.topic and not self.has_one_place:
                    waits = EventResult(Level.RETRY, str(outcome), place=one.topic)
                    waiting[one.object_id] = results[one.event_id] = waits
                else:
                    failure = failure or outcome
            if failure is not None:
                failure.answered = {
                    event_id: results.get(event_id, SUCCESS)
                    for event_id, count in left.items()
                    if event_id in results or not count
                }
                raise failure
        return results

    def _outcomes(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        try:
            return self.deliver(messages) if messages else ()
        except ReceiverUnavailable as failure:
            return [failure] * len(messages)


def in_one_line(text: object) -> str:
    """Return the beginning of a text of a server or a client, without line breaks."""
    return " ".join(str(text).split())[:200]


def header_text(value: bytes) -> str:
    """Return a value as a header of ASCII without line breaks; other characters are
    percent-encoded.
    """
    text = value.decode("utf-8", "replace")
    return re.sub(r"[^ -~]|%|^ | $", lambda found: quote(found[0], safe=""), text)


def too_large(why: str) -> EventResult:
    """Return the error of an event whose message the server does not take."""
    return EventResult(Level.ERROR, why, code="too_large")


_OF_ADDRESS: Final = re.compile(
    "hostname mismatch|ip address mismatch|name or service not known|wrong.version.number",
    re.IGNORECASE,
)
"""The errors for a host that does not exist, has a certificate for another name, or has no TLS."""


def unreachable(place: str, why: str, option: str) -> ReceiverUnavailable:
    """Return the error if nothing can be sent to ``place``; ``option`` names the option with the
    address of the place.
    """
    if _OF_ADDRESS.search(why) is not None:
        return unavailable(place, why, f"check sink.{option}", _Misconfigured)
    if "certificate" in why.lower():
        advice = "set sink.ca_file to the authorities to trust"
        return unavailable(place, why, advice, _Misconfigured)
    return unavailable(place, why, f"check sink.{option}, and that the server runs")


class _Misconfigured(ReceiverUnavailable):
    """An address that cannot be right, or a certificate that cannot be checked."""


class Refused(ReceiverUnavailable):
    """A server that is there, but refuses the client, its credentials or a command."""


class PlaceWaits(Refused):
    """A place, such as a queue, that takes no message now: it does not exist, it is full, or the
    user may not write to it.
    """


Outcome: TypeAlias = EventResult | ReceiverUnavailable | None
"""The outcome of a message: None if the server has confirmed it, the error of its event if the
server would refuse it again, or why it is not confirmed.
"""


def unavailable(
    place: str,
    why: str,
    advice: str = "",
    kind: Callable[..., ReceiverUnavailable] = ReceiverUnavailable,
    reply: Reply | None = None,
) -> ReceiverUnavailable:
    """Return the error of a server at ``place``. ``why`` may quote the server, but has no secret.
    ``advice`` is what a user must do, in words that do not quote the server. If a server refuses
    something, and the advice names an option of the publisher, this option is wrong. ``reply`` is
    what the server has answered, None = nothing.
    """
    to_do = f"; {advice}" if advice else ""
    is_ours = kind is not ReceiverUnavailable and _OPTION.search(advice) is not None
    in_short = f"{place}: {advice}" if advice else ""
    advised = advice if is_ours else ""
    return kind(f"{place}: {why}{to_do}", in_short, advice=advised, reply=reply)
