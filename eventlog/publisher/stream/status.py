"""How far a source that is no log has been published, and what failed: what ``eventlog status --from`` tells."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.config.load import Config
from eventlog.errors import ConfigError, EventlogError
from eventlog.publisher.stream.open import place_of, source_of
from eventlog.publisher.stream.position import (
    POSITION_SECRET,
    Failure,
    Saved,
    TablePosition,
    failures_of,
    is_locked,
    position_tables,
    read_position,
)
from eventlog.publisher.stream.source import Backlog
from eventlog.sql.connection import as_database_errors, connect, dialect_of
from eventlog.sql.log_table import LogTable

SHOWN: Final = 20
"""Of the failures so many, the newest, are shown."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What is known of a source. ``place``: where its position is kept; ``moved``: when that last moved, None if never.

    ``failures``: how many there are in all, None if this user may not read them; ``newest``: the last of them with
    their times, the newest last. ``behind``: what the source holds behind the position, answered or not; None if that
    is unknown, for the reason ``unknown`` if that is an error.
    """

    source: str
    place: str
    position: Saved
    moved: datetime | None = None
    publisher_runs: bool = False
    failures: int | None = 0
    newest: Sequence[tuple[datetime, Failure]] = ()
    behind: Backlog | None = None
    unknown: str | None = None


def source_status(config: Config) -> SourceStatus:
    """How far the source of ``[source]`` has been published. Raises ConfigError, DatabaseError."""
    settings = config.source
    source, kept = settings.type or "", place_of(settings)
    status = _in_file(kept, source) if isinstance(kept, Path) else _in_table(kept, settings.position_table, source)
    try:
        return replace(status, behind=source_of(settings, Report()).backlog(status.position.token))
    except EventlogError as error:
        return replace(status, unknown=str(error))


def _in_file(path: Path, source: str) -> SourceStatus:
    """What a position file and its file of failures hold. Raises ConfigError."""
    saved, moved = read_position(path, source)
    status = SourceStatus(source, str(path), saved, moved, is_locked(path))
    lines: deque[bytes] = deque(maxlen=SHOWN)
    number = 0
    try:
        with failures_of(path).open("rb") as file:
            for line in file:
                number += 1
                lines.append(line)
    except FileNotFoundError:
        return status
    except PermissionError:
        return replace(status, failures=None)
    except OSError as error:
        raise ConfigError(f"{failures_of(path)} cannot be read: {error.strerror}") from error
    return replace(status, failures=number, newest=[one for line in lines if (one := _failure(line)) is not None])


def _failure(line: bytes) -> tuple[datetime, Failure] | None:
    """A failure from its line; None if the line is still being written."""
    try:
        content = json.loads(line)
        failure = Failure(content["event_id"], content["code"], content["message"])
        return datetime.fromisoformat(content["time"]), failure
    except (ValueError, TypeError, KeyError):
        return None


def _in_table(url: str, table: str, source: str) -> SourceStatus:
    """What a position table and its table of failures hold. Raises ConfigError, DatabaseError."""
    names = position_tables(table)
    position, failures = names
    dialect = dialect_of(url)
    with connect(url, secret=POSITION_SECRET).connect() as connection, as_database_errors(connection):
        if not sa.inspect(connection).has_table(position.name, position.schema):
            return SourceStatus(source, position.fullname, Saved())
        runs = dialect.is_locked(connection, LogTable(position.schema, position.name, ()))
        saved = TablePosition(connection, names, source).load()
        moved = connection.scalar(sa.select(position.c.saved).where(position.c.source == source))
        of_source = failures.c.source == source
        number = connection.execute(sa.select(sa.func.count()).select_from(failures).where(of_source)).scalar_one()
        lines = connection.execute(
            sa.select(failures.c.error_time, failures.c.event_id, failures.c.code, failures.c.message)
            .where(of_source)
            .order_by(failures.c.error_time.desc())
            .limit(SHOWN)
        )
        newest = [(time.replace(tzinfo=UTC), Failure(*rest)) for time, *rest in reversed(lines.all())]
    moved = None if moved is None else moved.replace(tzinfo=UTC)
    return SourceStatus(source, position.fullname, saved, moved, runs, int(number), newest)


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
