"""The receivers of documents. A sink takes a document and answers for its events.

Each type of sink is a class in its own module here, known by its name to ``eventlog.registry``;
packages add further types by the entry point ``eventlog.sinks``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TextIO
from urllib.parse import urlsplit

from eventlog.changes.format import Format
from eventlog.config.kinds import SECRET
from eventlog.core.options import PATH, TEXT, WEB_URL, Option, choice, number
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult

FILE_LAYOUT: Final = Option(
    "lines",
    choice("lines", "documents"),
    "one document per line (one file per delivery), or one file per document",
)
TIMEOUT: Final = Option(
    30.0, number(0.001, 3600),
    "seconds within which a document must be answered, or a record acknowledged by Kafka (at "
    "least 2)",
)  # fmt: skip
TOKEN: Final = Option(None, SECRET, "token; over HTTP a bearer token", secret=True)
ENDPOINT: Final = Option(
    None,
    WEB_URL,
    "URL of a service that is compatible with S3 or SQS",
    example="https://minio.example.org:9000",
)
REGION: Final = Option(
    None, TEXT, "region of AWS; default: that of AWS's own tools", example="eu-central-1"
)
ACCESS_KEY: Final = Option(
    None, SECRET, "access key; default: found like AWS's own tools do", secret=True
)
SECRET_KEY: Final = Option(None, SECRET, "its secret", secret=True)
CA_FILE: Final = Option(
    None, PATH, "certificates to trust in place of the system's", example="/etc/ssl/receiver-ca.pem"
)
CLIENT_CERTIFICATE: Final = Option(
    None, PATH, "client certificate", example="/etc/ssl/publisher.pem"
)
CLIENT_KEY: Final = Option(
    None, PATH, "key of the certificate, if it is not in the same file",
    example="/etc/ssl/publisher.key",
)  # fmt: skip
"""Options that several sinks declare."""


class Owner(NamedTuple):
    """A log, or a source that is followed. ``name`` is for people.

    ``identity`` is a text that only this owner has. If a log is created again, it gets another
    identity, as far as this can be determined.
    """

    identity: str
    name: str


class Opening(NamedTuple):
    """What a sink needs for opening in addition to its options: the format of its documents, and
    standard output.
    """

    format: Format
    stream: TextIO


class Sink(ABC):
    """A receiver of documents. Each type of sink extends this class and overrides what differs.

    ``send`` raises ReceiverUnavailable when there is no usable answer. An answer counts only after
    ``flush``, which makes it durable and is called before rows are marked. ``flush`` raises
    ReceiverUnavailable if answered documents were lost, even if ``send`` has raised it for this
    reason before. If a sink learns only at ``flush`` that an event is finally refused, it returns
    the event-id with a result of level error, which replaces the answer. A sink without
    ``takes_several`` may also return retry at ``flush``.

    A receiver may take some events of a document only. For the others the answer has retry, with
    the ``place`` that takes nothing. A ReceiverUnavailable has the results of the events that were
    answered before, in ``answered``.
    """

    name: ClassVar[str]
    """The value of ``sink.type``."""
    title: ClassVar[str]
    """The name in help and pages."""
    options: ClassVar[type]
    """The dataclass that declares the options in ``[sink]`` other than ``type``. An option
    ``file_layout`` selects the layout of documents; an option ``topic`` names the topic of records
    that name none.
    """
    needs: ClassVar[Mapping[str, str]] = {}
    """The options that must be set, with their meaning."""
    address: ClassVar[Sequence[str] | None] = None
    """The options that name the receiver, None = the options of ``needs``. A consumer records these
    options at its start (spec/event-log.md 13.4).
    """
    takes_records: ClassVar[bool] = False
    """True if the sink reads the records of a document instead of its body."""
    drops_repetitions: ClassVar[bool] = False
    """True if the receiver drops a message whose id it has had before. ``send`` puts the ``nonce``
    of the document into such ids, since other logs have the same event-ids (spec/event-log.md 8.4).
    """
    takes_several: ClassVar[bool] = False
    """True if ``send`` may be called for several documents at the same time, each of which is sent
    separately. A file or a stream receives one document after the other from one thread, since
    parallel lines would mix and names would depend on chance.
    """
    has_headers: ClassVar[bool] = False
    """True if headers go with each document."""
    is_terminal: ClassVar[bool] = False
    """True if the sink writes to a place that people may watch."""
    span_kind: ClassVar[str] = "INTERNAL"
    """OpenTelemetry's kind of the span of sending."""

    # --- class methods: they need only the options ---

    @classmethod
    def open(cls, options: Any, opening: Opening) -> Sink:
        """Return the sink of these options. Raises ConfigError. Slow libraries are loaded here."""
        return cls()

    @classmethod
    def contradictions(cls, options: Any, source_of: Callable[[str], str]) -> Iterator[str]:
        """Yield the contradictions between options. ``source_of`` returns for the name of an option
        the place where the option was set.
        """
        for name, what in cls.needs.items():
            if getattr(options, name) is None:
                yield f"{source_of('type')}: {cls.name} needs sink.{name}, {what}"

    @classmethod
    def plain_hosts(cls, options: Any) -> Iterator[tuple[str, str]]:
        """Yield each host to which the credentials in the options go without TLS, and what to write
        so that they go with TLS (spec/event-log.md 8.4, *TLS*). The options have ``allow_plain``.
        """
        yield from ()

    @classmethod
    def divided_by(cls, options: Any) -> str | None:
        """Return the option that divides bodies by events, so that each line must be one event;
        None if bodies stay whole.
        """
        return None

    @classmethod
    def answer_timeout(cls, options: Any) -> float:
        """Return the seconds after which a document without an answer counts as not received."""
        return 30.0

    @classmethod
    def try_out(cls, options: Any, opening: Opening) -> str | None:
        """Test whether the receiver can be reached (name, port, TLS, credentials) without sending a
        document; a publisher may run meanwhile. Return what answered, in words; None if there is
        nothing to test. Raises ReceiverUnavailable and ConfigError.
        """
        return None

    @classmethod  # noqa: B027 - most sinks keep nothing
    def claim(
        cls, options: Any, owner: Callable[[], Owner], newest_delivery: Callable[[int], int]
    ) -> None:
        """Record the owner in the place of the documents before anything is written there. Raises
        ConfigError.

        ``newest_delivery`` receives the latest delivery whose documents are there, and returns the
        newest number that the owner has drawn. If a receiver stores nothing under these numbers, it
        needs no owner.
        """

    # --- methods of an open sink ---

    @abstractmethod
    def send(self, document: Document) -> Answer:
        """Send a document and return the answer to its events. Raises ReceiverUnavailable."""

    def flush(self) -> Mapping[str, EventResult] | None:
        """Make durable what was answered.

        This default does nothing, for a sink that buffers nothing.
        """
        return None

    def close(self) -> None:
        """Close the resources of the sink and discard unflushed documents.

        This default does nothing.
        """
        return None  # noqa: RET501 - an empty body would be abstract


class NetworkSink(Sink):
    """A sink whose receiver must answer within its option ``timeout``."""

    @classmethod
    def answer_timeout(cls, options: Any) -> float:
        timeout: float = options.timeout
        return timeout


def plain_endpoint(endpoint: str | None) -> Iterator[tuple[str, str]]:
    """Yield the host of an endpoint without TLS, as ``Sink.plain_hosts`` does."""
    if endpoint is not None and endpoint.lower().startswith("http:"):
        yield urlsplit(endpoint).hostname or "", "https:// in sink.endpoint"


@contextmanager
def as_receiver_unavailable(path: Path | str) -> Iterator[None]:
    """Turn the OSError of a failed write into ReceiverUnavailable."""
    try:
        yield
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror or error}"
        raise ReceiverUnavailable(why, why) from error
