"""How far a source that is no log has been published: its position, what lies behind it, what failed, and whether a
publisher follows it. It only looks: what a publisher has read and not saved yet is known to that publisher alone.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.config.load import Config, SourceSettings
from eventlog.errors import ConfigError, DatabaseError, EventlogError
from eventlog.publisher.stream.open import check_place, position_url, source_of
from eventlog.publisher.stream.position import failures_of, is_locked, read_position
from eventlog.publisher.stream.source import Backlog
from eventlog.sql.connection import as_database_errors, connect
from eventlog.sql.log_table import LogTable
from eventlog.sql.positions import POSITION_SECRET, PositionTables, Saved, tables
from eventlog.sql.registry import for_url, parse_url

SHOWN: Final = 20
"""Of the failures so many, the newest, are shown."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A line of what did not reach the receiver and is not tried again."""

    time: datetime
    event_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a source at ``place``. ``moved``: when it last did, None = there is none.

    ``failures``: how many there are in all, None = this user may not look; ``newest``: the last of them, the newest
    last.
    """

    place: str
    position: Saved
    moved: datetime | None
    publisher_runs: bool
    failures: int | None
    newest: tuple[Failed, ...]


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """``behind``: what the source holds behind the position, answered or not; None where that cannot be told, for the
    reason ``unknown`` if it is one.
    """

    source: str
    kept: Kept
    behind: Backlog | None
    unknown: str | None


def source_status(config: Config) -> SourceStatus:
    """What can be told of the source of ``[source]``. Raises ConfigError, DatabaseError."""
    settings = config.source
    source = settings.type or ""
    check_place(settings)
    kept = _in_table(settings, source) if settings.position_file is None else _in_file(settings.position_file, source)
    behind, unknown = None, None
    try:
        behind = source_of(settings, Report()).backlog(kept.position.token)
    except EventlogError as error:
        unknown = str(error)
    return SourceStatus(source, kept, behind, unknown)


def place_in_words(source: str, token: Any) -> str:
    """A position for people: from where the source is read again."""
    if token is None:
        return "where the source begins"
    try:
        return _in_words(source, token)
    except (AttributeError, KeyError, TypeError):  # changed by hand
        return json.dumps(token)


def _in_words(source: str, token: Any) -> str:
    if source == "linter":
        return f"behind the COMMIT at {token.get('restart') if isinstance(token, Mapping) else token}"
    if source != "gbase":
        return ", ".join(
            f"{topic} {' '.join(f'{number}:{offset}' for number, offset in partitions.items())}"
            for topic, partitions in token.items()
        )
    words = ", ".join(f"{name} {token.get(name) or 'none'}" for name in ("restart", "commit"))
    capture = token.get("capture")
    if capture is None:
        return words
    return f"{words}; byte {capture['restart']['offset']} of {capture['restart']['file']}"


# --- where it is kept -------------------------------------------------------------------------------------------------


def _in_file(path: Path, source: str) -> Kept:
    saved, moved = read_position(path, source)
    lines: deque[bytes] = deque(maxlen=SHOWN)
    number = 0
    try:
        with failures_of(path).open("rb") as file:
            for line in file:
                number += 1
                lines.append(line)
    except FileNotFoundError:
        pass
    except PermissionError:
        return Kept(str(path), saved, moved, is_locked(path), None, ())
    except OSError as error:
        raise ConfigError(f"{failures_of(path)} cannot be read: {error.strerror}") from error
    newest = tuple(one for line in lines if (one := _failed(line)) is not None)
    return Kept(str(path), saved, moved, is_locked(path), number, newest)


def _failed(line: bytes) -> Failed | None:
    """None for a line that is still being written."""
    try:
        content = json.loads(line)
        return Failed(datetime.fromisoformat(content["time"]), content["event_id"], content["code"], content["message"])
    except (ValueError, TypeError, KeyError):
        return None


def _in_table(settings: SourceSettings, source: str) -> Kept:
    url = parse_url(position_url(settings))
    own = tables(settings.position_table)
    place = own.position.fullname
    dialect = for_url(url)
    engine = connect(url, secret=POSITION_SECRET)
    try:
        with engine.connect() as connection, as_database_errors(connection):
            there = sa.inspect(connection)
            if not there.has_table(own.position.name, own.position.schema):
                return Kept(place, Saved(), None, False, 0, ())
            runs = dialect.is_locked(connection, LogTable(own.position.schema, own.position.name, ()))
            return _of_tables(connection, own, source, place, runs)
    finally:
        engine.dispose()


def _of_tables(connection: sa.Connection, own: PositionTables, source: str, place: str, runs: bool) -> Kept:
    position, failures = own
    row = connection.execute(
        sa.select(position.c.token, position.c.flight_no, position.c.saved).where(position.c.source == source)
    ).one_or_none()
    of_source = failures.c.source == source
    number = connection.execute(sa.select(sa.func.count()).select_from(failures).where(of_source)).scalar_one()
    lines = connection.execute(
        sa.select(failures.c.error_time, failures.c.event_id, failures.c.code, failures.c.message)
        .where(of_source)
        .order_by(failures.c.error_time.desc())
        .limit(SHOWN)
    )
    newest = tuple(Failed(time.replace(tzinfo=UTC), *rest) for time, *rest in reversed(lines.all()))
    if row is None:
        return Kept(place, Saved(), None, runs, int(number), newest)
    try:
        token = None if row.token is None else json.loads(row.token)
    except ValueError:
        raise DatabaseError(f"the position in {place} is no JSON; was it changed by hand?") from None
    return Kept(place, Saved(token, int(row.flight_no)), row.saved.replace(tzinfo=UTC), runs, int(number), newest)
