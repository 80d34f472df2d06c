"""Send events to a FIFO queue of Amazon SQS (spec/event-log.md 8.4, *Messages*)."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from eventlog.config.kafka import ALLOW_PLAIN
from eventlog.core.clock import random_hex, sleep
from eventlog.core.options import WEB_URL, option, shared
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply
from eventlog.model import EventResult, Level
from eventlog.publisher.sinks import (
    ACCESS_KEY,
    CA_FILE,
    ENDPOINT,
    REGION,
    SECRET_KEY,
    TIMEOUT,
    plain_endpoint,
)
from eventlog.publisher.sinks.messages import (
    Message,
    MessageSink,
    Outcome,
    Refused,
    header_text,
    in_one_line,
    lacks_client,
    too_large,
    unavailable,
    unreachable,
)

_IN_BATCH: Final = 10
_BATCH_BYTES: Final = 256 * 1024
"""The maximum number of messages in a batch, and the bytes of a batch that each region of AWS
accepts.
"""

_MAX_BYTES: Final = 256 * 1024
"""The maximum number of bytes of a message if the user may not read the limit of the queue."""

_ATTRIBUTES: Final = 10
"""The maximum number of attributes of a message."""

_PAUSES: Final = (0.2, 0.8)
"""The seconds before the failed messages of a batch are sent again."""

_NOT_TEXT: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that a message cannot have."""

_REGION: Final = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")

_ADVICE: Final = (
    (
        ("NonExistentQueue", "QueueDoesNotExist"),
        "create it: aws sqs create-queue --queue-name {name} --attributes FifoQueue=true, or "
        "correct sink.queue_url",
    ),
    (
        ("AccessDenied",),
        "grant the user sqs:SendMessage and sqs:GetQueueAttributes on the queue {name}, or correct "
        "EVENTLOG_SINK_ACCESS_KEY or sink.queue_url",
    ),
    (
        ("InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity",
         "UnrecognizedClient", "IncompleteSignature", "ExpiredToken", "InvalidAccessKey"),
        "check EVENTLOG_SINK_ACCESS_KEY and EVENTLOG_SINK_SECRET_KEY, or the credentials of AWS's "
        "own tools",
    ),
    (
        ("KMS", "Kms"),
        "grant the user kms:GenerateDataKey and kms:Decrypt on the queue's key, or correct "
        "EVENTLOG_SINK_ACCESS_KEY",
    ),
)  # fmt: skip
"""What to do, by parts of AWS's error code. The code may be in a text of XML."""


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """Options of ``[sink]`` of type ``sqs``."""

    queue_url: str | None = option(
        None,
        WEB_URL,
        "URL of the FIFO queue",
        example="https://sqs.eu-central-1.amazonaws.com/123456789012/hr.fifo",
    )
    endpoint: str | None = shared(ENDPOINT)
    region: str | None = shared(REGION)
    access_key: str | None = shared(ACCESS_KEY)
    secret_key: str | None = shared(SECRET_KEY)
    timeout: float = shared(TIMEOUT)
    ca_file: Path | None = shared(CA_FILE)
    allow_plain: bool = shared(ALLOW_PLAIN)


class SqsSink(MessageSink):
    """A sink that sends batches to a FIFO queue: each object is a group, and the queue discards a
    message that comes again within five minutes.
    """

    name = "sqs"
    title = "Amazon SQS"
    options = SqsOptions
    drops_repetitions = True
    needs = {"queue_url": "the URL of the queue"}  # noqa: RUF012 - read only
    at_once = _IN_BATCH
    address = ("queue_url", "endpoint")

    @classmethod
    def contradictions(cls, options: SqsOptions, source_of: Callable[[str], str]) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        if (options.access_key is None) != (options.secret_key is None):
            yield "set both EVENTLOG_SINK_ACCESS_KEY and EVENTLOG_SINK_SECRET_KEY, or neither"
        if options.queue_url is None:
            return
        if not options.queue_url.startswith(("https://", "http://")):
            yield (
                f"{source_of('queue_url')} must be the URL of a queue, not its name or ARN: "
                "https://sqs.REGION.amazonaws.com/ACCOUNT/NAME.fifo"
            )
        elif not options.queue_url.endswith(".fifo"):
            yield (
                f"{source_of('queue_url')} is not a FIFO queue; other queues do not keep the order "
                "of events. The URL of a FIFO queue ends in .fifo"
            )

    @classmethod
    def plain_hosts(cls, options: SqsOptions) -> Iterator[tuple[str, str]]:
        yield from plain_endpoint(options.endpoint)

    def __init__(self, options: SqsOptions) -> None:
        """Prepare the client. Raises ConfigError if the client or a region is missing."""
        try:
            import boto3
            import botocore.exceptions
            from botocore.config import Config
        except ModuleNotFoundError:
            raise lacks_client("sqs", "boto3") from None
        assert options.queue_url is not None
        self._errors: Any = botocore.exceptions
        self._shown = self._url = options.queue_url
        of_url = _REGION.search(urlsplit(options.queue_url).netloc)
        try:
            # Not the default session, which is not for several threads.
            self._client: Any = boto3.session.Session().client(
                "sqs",
                region_name=options.region or (of_url[1] if of_url else None),
                endpoint_url=options.endpoint,
                aws_access_key_id=options.access_key,
                aws_secret_access_key=options.secret_key,
                verify=None if options.ca_file is None else str(options.ca_file),
                config=Config(
                    connect_timeout=options.timeout,
                    read_timeout=options.timeout,
                    retries={"total_max_attempts": 1},
                ),
            )
        except (self._errors.BotoCoreError, ValueError, OSError) as error:
            raise ConfigError(f"sink sqs: {error}; check sink.region and sink.endpoint") from None
        is_secure = urlsplit(options.queue_url).scheme == "https" and options.endpoint is None
        if is_secure and urlsplit(self._client.meta.endpoint_url).scheme != "https":
            raise ConfigError(
                "sink sqs: AWS_ENDPOINT_URL, or the configuration of AWS's own tools, names an "
                "endpoint without TLS; remove it, or set sink.endpoint"
            )
        self._limit = 0

    def found(self) -> str:
        count = self._attribute("ApproximateNumberOfMessages")
        if count is None:
            return f"{self._shown} answers; the user may not read its attributes"
        return f"{self._shown} has about {count} messages"

    def limit(self) -> tuple[int, str]:
        if not self._limit:
            self._limit = int(self._attribute("MaximumMessageSize") or _MAX_BYTES)
        return self._limit, "MaximumMessageSize of the queue"

    def size(self, message: Message) -> int:
        return _size(_entry(message))

    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for batch in _batches(messages, max(self._limit, _BATCH_BYTES)):
            try:
                outcomes += self._send(batch)
            except ReceiverUnavailable as failure:
                return [*outcomes, *[failure] * (len(messages) - len(outcomes))]
        return outcomes

    def close(self) -> None:
        self._client.close()

    def _send(self, batch: Sequence[Message]) -> list[Outcome]:
        """Send a batch, and return the outcome of each message. Messages that fail are sent again
        before any later message. Raises ReceiverUnavailable if no message was sent.
        """
        outcomes: list[Outcome] = [None] * len(batch)
        left = list(range(len(batch)))
        for pause in (*_PAUSES, None):
            entries = [{"Id": str(at), **_entry(batch[at])} for at in left]
            try:
                with self._failing():
                    answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
            except ReceiverUnavailable as failure:
                if len(left) == len(batch):
                    raise
                for at in left:
                    outcomes[at] = failure
                break
            failed = {int(one["Id"]): one for one in answer.get("Failed", ())}
            for at, one in failed.items():
                error = self._error(str(one.get("Code")), str(one.get("Message", "")))
                outcomes[at] = (_refusal(one) if one.get("SenderFault") else None) or error
            confirmed = {int(one["Id"]) for one in answer.get("Successful", ())}
            cut_off = unavailable(self._shown, "the answer lacks the results of some messages")
            for at in set(left) - failed.keys():
                outcomes[at] = None if at in confirmed else cut_off
            left = [at for at, one in failed.items() if not one.get("SenderFault")]
            if not left or pause is None:
                break
            sleep(pause)
        return outcomes

    def _attribute(self, name: str) -> str | None:
        """Return an attribute of the queue, None if the user may not read it. Raises
        ReceiverUnavailable.
        """
        try:
            with self._failing():
                answer = self._client.get_queue_attributes(
                    QueueUrl=self._url, AttributeNames=[name]
                )
        except Refused as refused:
            if "sqs:GetQueueAttributes" not in refused.in_short:
                raise
            return None
        found = answer.get("Attributes", {}).get(name)
        if found is None:
            raise unavailable(self._shown, f"the answer lacks the attribute {name}")
        return str(found)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """In the block, turn the errors of the client into ReceiverUnavailable."""
        try:
            yield
        except self._errors.ClientError as error:
            found = error.response.get("Error", {})
            raise self._error(str(found.get("Code")), str(found.get("Message", ""))) from None
        except self._errors.NoCredentialsError:
            raise self._error("InvalidClientTokenId", "there are no credentials") from None
        except self._errors.SSLError as error:
            raise unreachable(self._shown, in_one_line(error), "queue_url") from None
        except self._errors.BotoCoreError as error:
            advice = "check sink.queue_url, sink.endpoint and sink.region, and the network"
            raise unavailable(self._shown, in_one_line(error), advice) from None

    def _error(self, code: str, text: str) -> ReceiverUnavailable:
        """Return the error for an error code of AWS."""
        name = self._url.rpartition("/")[2]
        words, reply = f"{code}: {in_one_line(text)}", Reply.in_words(code, text)
        for parts, advice in _ADVICE:
            if any(part in words for part in parts):
                return unavailable(self._shown, words, advice.format(name=name), Refused, reply)
        return unavailable(self._shown, words, reply=reply)


def _refusal(failed: Mapping[str, Any]) -> EventResult | None:
    """Return the error if a message itself is refused; None if there is another reason."""
    code, text = str(failed.get("Code")), in_one_line(failed.get("Message", ""))
    if "must be shorter than" in text or "TooLong" in code:
        return too_large(f"the queue refuses the message: {text}")
    if "InvalidMessageContents" in code:
        return EventResult(Level.ERROR, f"the queue refuses the message: {text}")
    return None


def _batches(messages: Sequence[Message], most: int) -> Iterator[list[Message]]:
    """Yield the messages in their order, in batches of at most ``most`` bytes."""
    batch: list[Message] = []
    bytes_in_batch = 0
    for message in messages:
        size = _size(_entry(message))
        if batch and bytes_in_batch + size > most:
            yield batch
            batch, bytes_in_batch = [], 0
        batch.append(message)
        bytes_in_batch += size
    if batch:
        yield batch


def _entry(message: Message) -> dict[str, Any]:
    """Return the entry of a message in a batch, without the number that it has in the batch."""
    named, body = message.named[:_ATTRIBUTES], message.body.decode("utf-8", "surrogateescape")
    if not body or _NOT_TEXT.search(body) is not None:
        body = b64encode(message.body).decode("ascii") or " "
        named = [*named[: _ATTRIBUTES - 1], ("content-encoding", b"base64")]
    group = b"\0".join((str(message.topic or "").encode(), message.key or b""))
    return {
        "MessageBody": body,
        "MessageGroupId": hashlib.sha256(group).hexdigest(),
        "MessageDeduplicationId": hashlib.sha256(
            (message.deduplication_id or random_hex(16)).encode()
        ).hexdigest(),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": header_text(value)}
            for name, value in named
            if value
        },
    }


def _size(entry: Mapping[str, Any]) -> int:
    attributes = entry["MessageAttributes"].items()
    return len(entry["MessageBody"].encode()) + sum(
        len(name) + len(one["DataType"]) + len(one["StringValue"]) for name, one in attributes
    )
