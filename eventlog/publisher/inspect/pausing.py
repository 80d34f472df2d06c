"""Pause and resume a reader of a log when a person asks for it (spec/event-log.md 8.8)."""

from __future__ import annotations

from eventlog.errors import ConfigError
from eventlog.sql.log.pauses import Pause, pause, resume
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Purpose
from eventlog.sql.readers.consumers import check_columns, consumer_row


def pause_reader(log: OpenLog, consumer: str | None, reason: str, by: str) -> Pause:
    """Pause a consumer, None = the publisher; the caller commits.

    Raises Paused if the reader is paused already, ConfigError for an unknown consumer or an empty
    reason, LogTableError for a missing column or right.
    """
    if not reason.strip():
        raise ConfigError("give a reason: status and health show it")
    _check(log, consumer)
    return pause(log, consumer or "", reason.strip(), by)


def resume_reader(log: OpenLog, consumer: str | None) -> Pause | None:
    """Resume a consumer, None = the publisher, and return its pause, or None if it was not paused.
    The caller commits. The errors are those of ``pause_reader``.
    """
    _check(log, consumer)
    return resume(log, consumer or "")


def _check(log: OpenLog, consumer: str | None) -> None:
    log.check_rights(Purpose.OPERATE)
    if consumer is not None:
        consumer_row(log, consumer)
        check_columns(log)
