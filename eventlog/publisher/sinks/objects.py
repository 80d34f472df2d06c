"""Write documents to an object store, one object for each delivery, with Apache Arrow (extra
``objects``): S3 and compatible stores, Google Cloud Storage, Azure (spec/event-log.md 10).

An object appears complete or not at all. Like the name of a file, its name contains the delivery
and the first document, so that a document which is sent again replaces itself. The documents of a
delivery stay in memory until they are put, since a store does not accept parts of an object. A
state object next to the documents names the owner, the newest delivery, and for each day the
delivery that began the day: a delivery that is sent again on another day keeps its day.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from eventlog.config.kafka import ALLOW_PLAIN
from eventlog.core.clock import utc_now
from eventlog.core.options import NAMES, TEXT, OptionKind, option, parse_names, shared
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply
from eventlog.model import Answer, Document
from eventlog.publisher.sinks import (
    ACCESS_KEY,
    ENDPOINT,
    REGION,
    SECRET_KEY,
    TIMEOUT,
    NetworkSink,
    Opening,
    Owner,
    plain_endpoint,
)
from eventlog.publisher.sinks.messages import lacks_client
from eventlog.publisher.sinks.names import (
    OpenName,
    refuse_another_owner,
    refuse_later_deliveries,
    stem,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STATE: Final = "_eventlog.json"
"""The name of the state object. Readers of tables skip names that begin with an underscore."""

_AHEAD: Final = 100
"""The number of the delivery in the state object is ahead by this difference, so that most
deliveries need not write the state.
"""
_DAYS_KEPT: Final = 30
_BY: Final = ("class", "day")
_HAS_KEYS: Final = re.compile(
    "://[^/]*@|[?&][^=&]*(?:key|secret|token|password|sig|sas)", re.IGNORECASE
)

_NO_TLS: Final = re.compile(r"\benable_tls=(?:false|0)\b", re.IGNORECASE)


def _parse_location(value: Any) -> str:
    bucket_url: str = TEXT.parse(value)
    if "://" not in bucket_url:
        raise ValueError("it must be a URI such as s3://bucket/prefix")
    if _HAS_KEYS.search(bucket_url):
        raise ValueError(
            "the URL contains a key or token; remove it, and set EVENTLOG_SINK_ACCESS_KEY and "
            "EVENTLOG_SINK_SECRET_KEY"
        )
    return bucket_url.rstrip("/")


def _parse_partition(value: Any) -> tuple[str, ...]:
    names = parse_names(value)
    if not set(names) <= set(_BY):
        raise ValueError
    return names


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """Options of ``[sink]`` of type ``objects``."""

    bucket_url: str | None = option(
        None,
        OptionKind(
            _parse_location, "a URI of a bucket and a prefix, without keys", confidential=True
        ),
        "where objects are put",
        example="s3://landing/hr",
    )
    partition_by: tuple[str, ...] = option(
        (),
        OptionKind(
            _parse_partition, "a list of class and day, or text such as class,day", NAMES.from_text
        ),
        "folders class=... and day=... for the objects, in this order; class needs a format with "
        "one event per line",
        example=["class", "day"],
    )
    endpoint: str | None = shared(ENDPOINT)
    region: str | None = shared(REGION)
    access_key: str | None = shared(ACCESS_KEY)
    secret_key: str | None = shared(SECRET_KEY)
    timeout: float = shared(TIMEOUT)
    allow_plain: bool = shared(ALLOW_PLAIN)


class ObjectsSink(NetworkSink):
    """A sink that puts the documents of a delivery as one object, or one object for each class."""

    name = "objects"
    title = "objects of a store such as S3"
    options = ObjectOptions
    needs = {"bucket_url": "the URI where objects are put"}  # noqa: RUF012 - read only
    address = ("bucket_url", "endpoint")
    span_kind = "CLIENT"

    @classmethod
    def open(cls, options: ObjectOptions, opening: Opening) -> ObjectsSink:
        return cls(ObjectStore(options), options.partition_by, opening.format.endings["lines"])

    @classmethod
    def contradictions(
        cls, options: ObjectOptions, source_of: Callable[[str], str]
    ) -> Iterator[str]:
        yield from super().contradictions(options, source_of)
        if (options.access_key is None) != (options.secret_key is None):
            yield ("set both EVENTLOG_SINK_ACCESS_KEY and EVENTLOG_SINK_SECRET_KEY, or neither")
        if options.bucket_url is not None and not options.bucket_url.startswith("s3://"):
            if options.bucket_url.startswith("abfss:") and _NO_TLS.search(options.bucket_url):
                yield f"{source_of('bucket_url')}: abfss asks for TLS; remove enable_tls"
            for name in ("endpoint", "region", "access_key"):
                if getattr(options, name) is not None:
                    yield (
                        f"{source_of(name)} applies only to s3://..., not to "
                        f"{options.bucket_url}; remove it"
                    )

    @classmethod
    def plain_hosts(cls, options: ObjectOptions) -> Iterator[tuple[str, str]]:
        yield from plain_endpoint(options.endpoint)
        url = urlsplit(options.bucket_url or "")
        query = dict(parse_qsl(url.query))
        if query.get("scheme", "https") != "https" or _NO_TLS.search(url.query):
            places = ("endpoint_override", "blob_storage_authority")
            place = next(filter(None, map(query.get, places)), url.hostname)
            yield urlsplit(f"//{place}").hostname or "", "no such option in sink.bucket_url"

    @classmethod
    def divided_by(cls, options: ObjectOptions) -> str | None:
        return "partition_by" if "class" in options.partition_by else None

    @classmethod
    def try_out(cls, options: ObjectOptions, opening: Opening) -> str:
        """List the location, read its state, and put an object there that is removed again."""
        store = ObjectStore(options)
        store.list_nothing()
        state = store.state()
        owner = "it has no owner yet" if state is None else f"its owner is {state.get('name')}"
        left = store.try_to_put(f".eventlog-trial-{os.getpid()}")
        return f"{store.bucket_url} can be listed, read and written{left}; {owner}"

    @classmethod
    def claim(
        cls,
        options: ObjectOptions,
        owner: Callable[[], Owner],
        newest_delivery: Callable[[int], int],
    ) -> None:
        store, mine = ObjectStore(options), owner()
        state = store.state()
        if state is None:
            store.write_state(
                {"identity": mine.identity, "name": mine.name, "delivery": 0, "days": []},
                at_start=True,
            )
            state = store.state() or {}  # of another owner, if that one was faster
        place = f"location {store.bucket_url}"
        refuse_another_owner(
            mine,
            Owner(str(state.get("identity")), str(state.get("name"))),
            place=place,
            contents="objects",
            marker=f"{STATE} there",
        )
        ahead = int(state["delivery"])
        refuse_later_deliveries(
            mine, ahead - _AHEAD, newest_delivery, place=place, contents="objects", beyond=ahead
        )

    def __init__(self, store: ObjectStore, partition_by: tuple[str, ...], ending: str) -> None:
        self._store, self._by, self._ending = store, partition_by, ending
        self._open = OpenName()
        # By class: the first document, and the bodies.
        self._parts: dict[str, tuple[int, list[bytes]]] = {}
        self._state: dict[str, Any] | None = None  # the state in the store, None = not read yet
        self._tried: dict[str, Any] | None = None  # the state that was last to be written
        self._newest = 0  # the newest delivery that has been put since the sink was opened
        self._may_be_there = 0  # the newest delivery that may have objects

    def send(self, document: Document) -> Answer:
        """Buffer a document until the objects of its delivery are written.

        Events are never added to an existing name (``OpenName``). Raises ReceiverUnavailable if an
        earlier delivery cannot be written now, or if the store does not show whether an object
        exists.
        """
        if self._parts and not self._open.takes(document):
            self._open.change(self.flush)
        self._open.delivery_no, self._open.document_no = document.delivery_no, document.document_no
        bodies = list(self._bodies(document))
        self._open.was_there = self._open.was_there or any(
            self._is_there(class_name, document.document_no)
            for class_name, _ in bodies
            if class_name not in self._parts
        )
        for class_name, body in bodies:
            self._parts.setdefault(class_name, (document.document_no, []))[1].append(body)
        return Answer(is_pending=True)

    def flush(self) -> None:
        """Put the buffered documents. Raises ReceiverUnavailable: all buffered documents must then
        be sent again.
        """
        parts, lost = self._parts, self._open.lost
        self.close()
        if lost is not None:
            raise lost
        if not parts:
            return
        self._settle_state(
            [(class_name, document_no) for class_name, (document_no, _) in parts.items()]
        )
        self._may_be_there = max(self._may_be_there, self._open.delivery_no)
        for class_name, (document_no, bodies) in parts.items():
            self._store.put(self._name(class_name, document_no), b"".join(bodies))
        self._newest = max(self._newest, self._open.delivery_no)

    def close(self) -> None:
        """Discard unflushed documents, which are sent again: their rows are not marked."""
        self._parts, self._open.was_there, self._open.lost = {}, False, None

    def _bodies(self, document: Document) -> Iterator[tuple[str, bytes]]:
        """Yield the part of a document for each class, or the whole body under "" if objects are
        not divided by class.
        """
        body = document.body
        if not body:
            return
        if not body.endswith(b"\n"):
            body += b"\n"
        if "class" not in self._by:
            yield "", body
            return
        classes = [event.class_name for event in document.events]
        if not classes:  # a heartbeat
            return
        if len(set(classes)) == 1:
            yield classes[0], body
            return
        lines = body.splitlines(keepends=True)
        if len(lines) != len(classes):
            raise ConfigError(
                "sink.partition_by has class, and a line of this format holds several events: set "
                "publisher.batch_size = 1, name a format whose lines are events, or leave class out"
            )
        for class_name in dict.fromkeys(classes):
            yield (
                class_name,
                b"".join(
                    line for line, one in zip(lines, classes, strict=True) if one == class_name
                ),
            )

    def _name(self, class_name: str, document_no: int) -> str:
        """Return the name of an object: folders, delivery, first document, ending."""
        days = () if self._state is None else self._state["days"]
        day = next((day for first, day in reversed(days) if first <= self._open.delivery_no), "")
        folders = {"class": f"class={quote(class_name, safe='')}/", "day": f"day={day}/"}
        folder = "".join(folders[name] for name in self._by)
        return f"{folder}{stem(self._open.delivery_no, document_no)}{self._ending}"

    def _is_there(self, class_name: str, document_no: int) -> bool:
        """Return True if this object of the present delivery is there. Raises
        ReceiverUnavailable.
        """
        self._read_state()
        return self._open.delivery_no <= self._may_be_there and self._store.has(
            self._name(class_name, document_no)
        )

    def _read_state(self) -> dict[str, Any]:
        """Return the state, read at first use. Raises ReceiverUnavailable."""
        if self._state is None:
            self._state = self._store.state(is_open=True) or {"delivery": 0, "days": []}
            self._may_be_there = self._state["delivery"]
        return self._state

    def _settle_state(self, parts: Iterable[tuple[str, int]]) -> None:
        """Write the state if it does not cover the open delivery yet, and on each day before the
        first delivery of that day is written.

        ``parts`` has the class and the first document of each object that is about to be put. After
        a start, the previous process may already have written the first delivery. If an object of
        this delivery exists, the delivery keeps its day. Raises ReceiverUnavailable.
        """
        state = self._read_state()
        days = state["days"]
        today = utc_now().date().isoformat()
        is_new_day = "day" in self._by and (
            not days or (days[-1][1] < today and self._open.delivery_no > self._newest)
        )
        if is_new_day and days and not self._newest:
            is_new_day = not any(self._store.has(self._name(*part)) for part in parts)
        if is_new_day:
            days = [*days, [self._open.delivery_no, today]][-_DAYS_KEPT:]
        if is_new_day or self._open.delivery_no > state["delivery"]:
            ahead = max(state["delivery"], self._open.delivery_no + _AHEAD)
            self._refuse_changed()
            self._tried = {**state, "delivery": ahead, "days": days}
            self._store.write_state(self._tried)
            self._state = self._tried

    def _refuse_changed(self) -> None:
        """Raise ReceiverUnavailable if somebody else has written the state: the publisher of a copy
        of the database, which has the same identity, puts objects under the numbers that come next.
        """
        if self._store.state(is_open=True) in (self._state, self._tried):
            return
        advice = "name another sink.bucket_url for a copy of the database, then start this again"
        why = f"{self._store.bucket_url}: another publisher has changed {STATE}; {advice}"
        raise ReceiverUnavailable(why, why, advice=advice)


class ObjectStore:
    """The place of a sink's objects. ``bucket_url`` names it in messages."""

    def __init__(self, options: ObjectOptions) -> None:
        assert options.bucket_url is not None
        self.bucket_url = options.bucket_url
        self._secrets = [one for one in (options.access_key, options.secret_key) if one]
        try:
            # A late import, since Arrow takes half a second to load.
            from pyarrow import fs
        except ModuleNotFoundError:
            raise lacks_client("objects", "pyarrow") from None
        with self._refused("cannot be used"):
            if options.bucket_url.startswith("s3://"):
                bucket = options.bucket_url.removeprefix("s3://")
                self._fs: FileSystem = fs.S3FileSystem(
                    access_key=options.access_key,
                    secret_key=options.secret_key,
                    endpoint_override=options.endpoint,
                    region=options.region,
                    connect_timeout=options.timeout,
                    request_timeout=options.timeout,
                    retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
                )
                self._path = bucket
            else:
                self._fs, self._path = fs.FileSystem.from_uri(options.bucket_url)
            self._is_local = self._fs.type_name == "local"
        if self._is_local:
            raise ConfigError(
                f"sink.bucket_url {self.bucket_url} is not an object store; use sink.type = files "
                "for files"
            )

    def put(self, name: str, content: bytes) -> None:
        """Write an object; replace an existing object of this name. Raises ReceiverUnavailable."""
        try:
            self.write_object(name, content)
        except (OSError, ValueError) as error:
            raise self._unavailable(f"{self.bucket_url}: cannot put {name}", error) from None

    def try_to_put(self, name: str) -> str:
        """Put an object and remove it. Return a remark if it cannot be removed: a publisher does
        not need this right. Raises ConfigError.
        """
        with self._refused("cannot be written"):
            self.write_object(name, b"trial\n")
        # On S3 Arrow leaves an empty marker of the folder, "PREFIX/". It stays, since Arrow can
        # only delete it together with all objects that are in the folder by then.
        try:
            self._fs.delete_file(f"{self._path}/{name}")
        except (OSError, ValueError) as error:
            why = self._clean(error)
            return f" (delete the object {name} yourself; these keys may not delete it: {why})"
        return ""

    def has(self, name: str) -> bool:
        """Return True if there is an object of this name. Raises ReceiverUnavailable."""
        from pyarrow.fs import FileType

        try:
            return bool(self._fs.get_file_info(f"{self._path}/{name}").type == FileType.File)
        except (OSError, ValueError) as error:
            what = f"{self.bucket_url}: cannot check whether {name} exists"
            raise self._unavailable(what, error) from None

    def listed(self) -> list[tuple[str, int, int]]:
        """Return the name, the bytes and the time of the last change (ns) of each object. Raises
        ConfigError.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._refused("cannot be listed"):
            selector = FileSelector(self._path, allow_not_found=True, recursive=True)
            start = len(self._path) + 1
            return [
                (str(one.path)[start:], int(one.size), int(one.mtime_ns or 0))
                for one in self._fs.get_file_info(selector)
                if one.type == FileType.File
            ]

    def content(self, name: str) -> bytes:
        """Return the content of an object. Raises ConfigError."""
        with (
            self._refused("cannot be read"),
            self._fs.open_input_stream(f"{self._path}/{name}") as stream,
        ):
            return bytes(stream.readall())

    def list_nothing(self) -> None:
        """List a folder that does not exist: this needs the right to list, but hardly any time.
        Raises ConfigError.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._refused("cannot be listed"):
            bucket = self._path.partition("/")[0]
            if self._fs.get_file_info(bucket).type == FileType.NotFound:
                raise OSError(f"there is no bucket {bucket}; check sink.bucket_url")
            self._fs.get_file_info(FileSelector(f"{self._path}/.eventlog", allow_not_found=True))

    def state(self, *, is_open: bool = False) -> dict[str, Any] | None:
        """Return the state of the location, None if it has none. Raises ConfigError; once the sink
        is open, ReceiverUnavailable for an unreadable store.
        """
        with self._refused("cannot be read", is_open=is_open):
            try:
                with self._fs.open_input_stream(f"{self._path}/{STATE}") as stream:
                    content = bytes(stream.readall())
            except FileNotFoundError:
                return None
        try:
            state: dict[str, Any] = json.loads(content)
            _ = int(state["delivery"]), [(int(first), str(day)) for first, day in state["days"]]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"{self.bucket_url}/{STATE} does not name the owner of the objects; perhaps it "
                "was changed by hand. Delete it if all objects there come from one log"
            ) from None
        return state

    def write_state(self, state: dict[str, Any], *, at_start: bool = False) -> None:
        """Write the state object. Raises ReceiverUnavailable; at the start of a publisher
        ConfigError.
        """
        content = json.dumps(state, ensure_ascii=False).encode() + b"\n"
        if not at_start:
            self.put(STATE, content)
            return
        with self._refused("cannot be written"):
            self.write_object(STATE, content)

    def write_object(self, name: str, content: bytes) -> None:
        with self._fs.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(content)

    @contextmanager
    def _refused(self, what: str, *, is_open: bool = False) -> Iterator[None]:
        """In the block, turn the errors of the store into ConfigError, or into ReceiverUnavailable
        once the sink ``is_open``.
        """
        place = f"sink location {self.bucket_url} {what}"
        try:
            yield
        except (OSError, ValueError) as error:
            if is_open:
                raise self._unavailable(place, error) from None
            raise ConfigError(f"{place}: {self._clean(error)}") from None

    def _unavailable(self, what: str, error: Exception) -> ReceiverUnavailable:
        """Return the error of an operation that the open store refuses or does not answer."""
        text, why = self._text(error), f"{what}: {self._clean(error)}"
        advice, is_ours = _advice(text)
        status = _STATUS.search(text)
        reply = Reply.in_words("" if status is None else status[0], text)
        return ReceiverUnavailable(why, why, advice=advice if is_ours else "", reply=reply)

    def _text(self, error: Exception) -> str:
        """Return the message of an error on one line, without secrets."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _clean(self, error: Exception) -> str:
        """Return the message of an error on one line, without secrets, and with advice."""
        text = self._text(error)
        advice, _ = _advice(text)
        return f"{text}; {advice}" if advice else text


def _advice(text: str) -> tuple[str, bool]:
    """Return what to do about an error of the store, empty if that is unknown; and True if an
    option of the publisher is wrong.
    """
    for pattern, advice, is_ours in _ADVICE:
        if re.search(pattern, text):
            return advice, is_ours
    return "", False


_STATUS: Final = re.compile(r"[A-Z][A-Z_]{5,}(?= during)|HTTP status [0-9]{3}")
"""The name of the error, or the status of the answer, in a message of Arrow."""
_ADVICE: Final = (
    (
        "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|InvalidAccessKeyId|HTTP "
        "status 403|Forbidden",
        "the keys are refused; check EVENTLOG_SINK_ACCESS_KEY and EVENTLOG_SINK_SECRET_KEY, or "
        "those of the environment",
        True,
    ),
    ("NO_SUCH_BUCKET|Path does not exist", "there is no such bucket; check sink.bucket_url", True),
    (
        "curlCode: 60|SSL peer certificate",
        "the certificate of the store is not trusted; check sink.endpoint",
        True,
    ),
    ("curlCode: 6,|Could not resolve host", "there is no such host; check sink.endpoint", True),
    (
        "NETWORK_CONNECTION|curlCode|Could not connect",
        "the store cannot be reached; check sink.endpoint",
        False,
    ),
)
"""For each pattern of the messages of the store's errors, the advice, and True if an option is
wrong.
"""
