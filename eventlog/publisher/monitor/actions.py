"""The actions of the status page: requeue, skip, resync, pause, resume (docs/operate/monitor.md).

Each action does what the command of the same name does, under a separate role (``[monitor]
database_url``). A refusal has the message of the command. Only a client with a named token may act:
its name is in the log line, and in the error rows that the request writes. A browser sends a cookie
with every request, even with a request that a foreign page makes. So a request must be a POST of
JSON from this origin, with the token against forgery, which only this page can read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eventlog.config.load import Config, connection_url, with_current_secrets
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.clock import monotonic
from eventlog.core.ranges import Ranges, to_ranges
from eventlog.core.rows.event_ids import is_of_snapshot, object_text
from eventlog.errors import ConfigError, DatabaseError, EventlogError, RowError, number_of
from eventlog.model import EventType
from eventlog.publisher.declared.configured_classes import class_named, read_catalog
from eventlog.publisher.declared.opening import find_log
from eventlog.publisher.inspect.pausing import pause_reader, resume_reader
from eventlog.publisher.inspect.sending_again import (
    AskedAgain,
    instead_of_refused,
    requeue_rows,
    settle,
    write_objects,
)
from eventlog.publisher.inspect.skipping import given_up, ledger_to_skip, skip, skip_refused
from eventlog.publisher.monitor.access import USER, json_answer
from eventlog.sql.connect.connection import open_session
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Purpose
from eventlog.sql.readers.consumers import highest_row

_log = logging.getLogger("eventlog.publisher")

FORGERY: Final = "x-eventlog-forgery"
"""The header with the token against forgery."""
_LARGEST: Final = 16_384
"""The bytes of the largest request."""
_QUEUED_SECONDS: Final = 30.0
_STATEMENT_SECONDS: Final = 20
"""The time-out of one statement, in seconds. Meanwhile other actions wait."""


class Done(NamedTuple):
    """What an action has done."""

    sentence: str
    notes: Sequence[str] = ()
    """What a person should notice."""
    commands: Sequence[str] = ()
    """The commands that may follow."""


class BadRequest(Exception):
    """A request that lacks what the action needs."""


class Actions:
    """The actions on the log of a configuration. The actions run as the role of ``[monitor]
    database_url``. All actions raise BadRequest and EventlogError. ``seconds`` is the time-out of
    one statement, which may wait for a lock.
    """

    def __init__(self, config: Config, seconds: int = _STATEMENT_SECONDS) -> None:
        self._config, self._seconds = config, seconds

    @property
    def names(self) -> Sequence[str]:
        """The names of the actions; none without a role for them."""
        settings = self._config.monitor
        return () if settings.database_url is None or self._config.follows else tuple(_ACTIONS)

    def check(self) -> None:
        """Log a warning if the role cannot act at present: the publisher works without it."""
        try:
            with self._changing():
                pass
        except EventlogError as error:
            _log.warning(
                "monitor.database_url: the actions of the status page are refused for now: %s",
                error,
                extra={"code": error.code},
            )

    def run(self, name: str, asked: Mapping[str, Any], user: str) -> Done:
        """Do what is asked, in one transaction, and log who asked for it."""
        begun = monotonic()
        try:
            with self._changing() as (log, config):
                done = _ACTIONS[name](Order(log, config, asked, f"{user} on the status page"))
                log.commit()
        except DatabaseError as error:
            if monotonic() - begun < self._seconds:
                raise
            raise DatabaseError(
                f"{name} did not end within {self._seconds} s, so nothing was changed: {error}. "
                "Another session may hold a lock; ask again, or run the command"
            ) from error
        _log.info("%s by %s on the status page: %s", name, user, done.sentence)
        return done

    @contextmanager
    def _changing(self) -> Iterator[tuple[OpenLog, Config]]:
        config = with_current_secrets(self._config, "monitor")
        monitor = config.monitor
        database = replace(
            config.database, url=monitor.database_url, password=monitor.database_password
        )
        config = replace(config, database=database)
        url, hides_rows = connection_url(database), config.hides_rows
        with open_session(url, Purpose.OPERATE, hides_rows=hides_rows) as db:
            db.limit_statements(self._seconds)
            log = find_log(db, config)
            log.check_rights(Purpose.OPERATE)
            db.limit_statements(self._seconds)  # these may have ended the transaction
            yield log, config


class Order(NamedTuple):
    """A request for an action: the members of a JSON object, by name."""

    log: OpenLog
    config: Config
    asked: Mapping[str, Any]
    by: str
    """The name of the person who asks."""

    def text(self, name: str) -> str:
        """Return a text that the request must have. Raises BadRequest."""
        value = self.asked.get(name)
        if not isinstance(value, str) or not value.strip():
            raise BadRequest(f"give {name}, a text")
        return value.strip()

    @property
    def rows(self) -> Ranges | None:
        """The record_ids in ``rows``, None if there are none. Raises BadRequest."""
        rows = self._list("rows", int)
        return to_ranges(sorted({*rows})) if rows else None

    @property
    def events(self) -> list[str]:
        """The event-ids in ``events``. Raises BadRequest."""
        return [*dict.fromkeys(self._list("events", str))]

    def _list(self, name: str, kind: type) -> list[Any]:
        values = self.asked.get(name, [])
        if not isinstance(values, list) or not all(type(one) is kind for one in values):
            raise BadRequest(f"{name} must be a list of {'numbers' if kind is int else 'texts'}")
        return values

    @property
    def consumer(self) -> str | None:
        """The named consumer, by default the consumer that this process runs as; None = the
        publisher. Raises BadRequest.
        """
        return self.text("consumer") if "consumer" in self.asked else self.config.of_log.consumer


def _requeue(order: Order) -> Done:
    rows, events = order.rows, order.events
    if rows is None and not events:
        raise BadRequest("give rows, or events of a consumer's snapshot")
    consumer = order.config.of_log.consumer
    if consumer is None and events:
        raise BadRequest("only a consumer accepts events: give rows")
    asked = AskedAgain(ranges=rows, consumer=consumer, event_ids=events, by=order.by)
    requeued = requeue_rows(order.log, order.config, asked)
    if refusal := requeued.refusal():
        commands = instead_of_refused(order.log, order.config, requeued.done)
        instead = f". Instead: {'; '.join(commands)}" if commands else ""
        raise ConfigError(f"{refusal}{instead}")
    return Done(requeued.sentence, [*requeued.remarks()])


def _skip(order: Order) -> Done:
    why, rows, events = given_up(order.by, order.text("reason")), order.rows, order.events
    log, consumer = order.log, order.config.of_log.consumer
    if (rows is None) is not bool(events):
        raise BadRequest("give either events that are parked, or rows that were refused")
    if events:
        ledger = ledger_to_skip(log, consumer, dry=False)
        skipped = skip(log, ledger, events, why)
        number = number_of(sum(one.rows for one in skipped), "row")
        return Done(f"{number_of(len(skipped), 'event')} given up: {number} set to E")
    found = skip_refused(log, consumer or "", why, rows, None, None, dry=False)
    return Done(f"{number_of(len(found.rows), 'refused row')} skipped")


def _resync(order: Order) -> Done:
    log = order.log
    catalog = read_catalog(log, order.config)
    cls, key = _object(order, catalog)
    selection = Selection(cls.name, EventType.INSERT_ROW_QUERY_BACK, None, None)
    highest = highest_row(log) or 0
    rows, missing = write_objects(log, catalog, cls, selection, [key], dry=False)
    if missing:
        raise ConfigError(f"this object of {cls.name} does not exist any more: nothing was written")
    settled = settle(log, catalog, selection, highest, order.by)
    notes = [settled.obstacle] if settled.obstacle else []
    return Done(f"{number_of(rows, 'row')} of type 5 written for {cls.name}", notes)


def _object(order: Order, catalog: Catalog) -> tuple[ObjectClass, str]:
    """Return the class and the canonical key of an object. The request names it by ``row``, by
    ``event`` (an object of a snapshot), or by ``class`` and ``key``.
    """
    if "row" in order.asked:
        row = order.asked["row"]
        if type(row) is not int:
            raise BadRequest("row must be a number")
        found = order.log.read_rows([(row, row)])
        if not found:
            raise ConfigError(f"the log has no row {row}")
        name, key = found[0].table_name, found[0].table_key or ""
    elif "event" in order.asked:
        event = order.text("event")
        if not is_of_snapshot(event):
            raise BadRequest("event must be the event-id of an object of a snapshot")
        name, _, key = object_text(event).partition(".")
    else:
        name, key = order.text("class"), order.text("key")
    meant = catalog.log_name(name) if name else None
    cls = class_named(catalog, name or "") if meant is None else meant.object_class
    try:
        return cls, cls.canonical_key(key)
    except RowError as error:
        raise ConfigError(f"the key of the object cannot be read ({error.code})") from None


def _pause(order: Order) -> Done:
    return Done(str(pause_reader(order.log, order.consumer, order.text("reason"), order.by)))


def _resume(order: Order) -> Done:
    consumer = order.consumer
    ended = resume_reader(order.log, consumer)
    if ended is None:
        return Done(f"{f'consumer {consumer}' if consumer else 'the publisher'} is not paused")
    return Done(f"{ended.reader} is resumed; it was paused by {ended.by}: {ended.reason}")


_ACTIONS: Final[Mapping[str, Callable[[Order], Done]]] = {
    "requeue": _requeue,
    "skip": _skip,
    "resync": _resync,
    "pause": _pause,
    "resume": _resume,
}


# --- over HTTP ------------------------------------------------------------------------------------


class ActionPages:
    """The answers of the server to requests for actions."""

    def __init__(self, actions: Actions | None) -> None:
        self._actions = actions
        self._forgery: dict[str, str] = {}
        self._acting = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return the routes of the actions."""
        return [
            Route("/actions.json", self.offered),
            Route("/actions/{name}", self.act, methods=["POST"]),
        ]

    async def offered(self, request: Request) -> Response:
        """Return the names of the actions that this client may ask for, and the token against
        forgery.
        """
        user = request.scope.get(USER, "")
        names = [] if self._actions is None or not user else [*self._actions.names]
        token = self._forgery.setdefault(user, secrets.token_urlsafe(32)) if names else None
        return json_answer({"user": user or None, "actions": names, "forgery_token": token})

    async def act(self, request: Request) -> Response:
        """Do what a client asks for, or refuse it."""
        if self._actions is None or not self._actions.names:
            why = "this monitor has no actions: set database_url in [monitor], or run the command"
            return self._refused(404, why)
        name, user = request.path_params["name"], request.scope.get(USER, "")
        if name not in self._actions.names:
            return self._refused(404, f"there is no action {name}")
        if why := self._forged(request, user):
            return self._refused(403, why)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST:
                return self._refused(413, "the request is too large")
        try:
            asked = json.loads(body)
            json.dumps(asked, ensure_ascii=False).encode()  # \ud800 is no character
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            return self._refused(400, "send a JSON object of Unicode text")
        try:
            await asyncio.wait_for(self._acting.acquire(), _QUEUED_SECONDS)
        except TimeoutError:
            return self._refused(503, "another action has not ended yet: ask again")
        try:
            done = await run_in_threadpool(self._actions.run, name, asked, user)
        except BadRequest as error:
            return self._refused(400, str(error))
        except EventlogError as error:
            return self._refused(409, str(error), error.code)
        finally:
            self._acting.release()
        return json_answer(
            {"done": done.sentence, "notes": [*done.notes], "commands": [*done.commands]}
        )

    def _forged(self, request: Request, user: str) -> str:
        """Return why a request may not act, empty if it may."""
        if not user:
            return "an action needs a token with a name: set tokens in [monitor]"
        headers = request.headers
        try:
            origin = urlsplit(headers.get("origin", "")).netloc.lower()
        except ValueError:  # [
            origin = ""
        is_own = origin and origin == headers.get("host", "").lower()
        if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "only the status page may request an action: the header Origin must name it"
        if not headers.get("content-type", "").startswith("application/json"):
            return "send application/json"
        expected = self._forgery.get(user)
        if expected is None or not secrets.compare_digest(
            headers.get(FORGERY, "").encode(), expected.encode()
        ):
            return f"send the forgery_token of /actions.json in the header {FORGERY}"
        return ""

    def _refused(self, status: int, why: str, code: str | None = None) -> Response:
        return json_answer({"error": why, "code": code}, status)
