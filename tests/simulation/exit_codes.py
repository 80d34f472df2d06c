"""Which exit codes of commands are good, by command and reason.

A command ends with 0, or with a code that has a reason here: a text that it printed, and something
that the simulation finds to be so. A reason that does not hold is a failure, and so is a code
without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pauses
from entries import events_of_entry, may_mean

from eventlog.core.rows.event_ids import attempt_of
from eventlog.exit_codes import ExitCode

if TYPE_CHECKING:
    from scheduler import Process
    from world import World


class Ended(NamedTuple):
    """A command that has ended, and what it printed."""

    world: World
    process: Process
    words: Sequence[str]
    said: str


class Reason(NamedTuple):
    """Why commands of a name may end with a code."""

    command: str
    code: int
    text: str
    holds: Callable[[Ended], bool]


def _has_failed(ended: Ended) -> bool:
    return ended.process.has_failed


def _is_locked(ended: Ended) -> bool:
    return "database is locked" in ended.said


def _has_late(ended: Ended) -> bool:
    return bool(ended.world.application.late)


def _has_no_such_class(ended: Ended) -> bool:
    """Return True if a table was unavailable, or another one than configured, while the command
    ran.
    """
    application, told = ended.world.application, ended.world.story[ended.process.start["told"] :]
    has_changed = any("the schema changes" in line for line in told)
    configured = {application.configured, ended.process.start["configured"]}
    return has_changed or bool(application.hidden) or configured != {application.shape}


def _had_no_rows(ended: Ended) -> bool:
    """Return True if the log had no row of the class when the command began, or has none of those
    any more: a publisher with ``delete_from_log`` has removed them meanwhile.
    """
    name, start = ended.words[1], ended.process.start
    sql = "SELECT count(*) FROM eventlog WHERE table_name = ? AND record_id <= ?"
    left = ended.world.application.session.execute(sql, (name, start["top"])).fetchone()[0]
    return name not in start["logged"] or not left


def _has_no_such_consumer(ended: Ended) -> bool:
    of_option = "--consumer" in ended.words
    name = ended.words[ended.words.index("--consumer") + 1 if of_option else 2]
    sql = "SELECT count(*) FROM eventlog_consumer WHERE name = ?"
    return not ended.world.application.session.execute(sql, (name,)).fetchone()[0]


def _is_not_in_flight(ended: Ended) -> bool:
    """Return True if no in-flight entry has the first row of the event under its epoch and its
    number, but for those that a backlog job has claimed. A cut or a pause may have given the event
    the next number."""
    event_id = ended.words[1]
    row = int(event_id.partition(".")[0])
    directory = ended.world.backlog
    claimed = [0] if directory is None else [0, *directory.deliveries]
    ask = ended.world.application.session.execute
    lines = ask(
        "SELECT owner, content FROM eventlog_inflight WHERE kind = 'delivery' "
        f"AND entry_no NOT IN ({','.join(map(str, claimed))})"
    ).fetchall()
    whose = ended.words[ended.words.index("--consumer") + 1] if "--consumer" in ended.words else ""
    own = [content for owner, content in lines if (owner or "") == whose]
    number = attempt_of(event_id)
    return not any(
        may_mean(content, event_id)
        and any(
            row in one.rows and number == one.attempts for one in events_of_entry(content).values()
        )
        for content in own
    )


def _has_no_such_row(ended: Ended) -> bool:
    sql = "SELECT count(*) FROM eventlog WHERE record_id = ?"
    return not ended.world.application.session.execute(sql, (ended.words[1],)).fetchone()[0]


def _has_no_new_row(ended: Ended) -> bool:
    """Return True if the event's first row is done or gone."""
    row = ended.words[1].partition(".")[0]
    sql = "SELECT count(*) FROM eventlog WHERE record_id = ? AND status = 'N'"
    return not ended.world.application.session.execute(sql, (row,)).fetchone()[0]


_HAS_LINE = (
    "SELECT count(*) FROM eventlog_error "
    "WHERE record_id = ? AND coalesce(consumer, '') = ? AND code "
)


def _row_to_skip(ended: Ended) -> tuple[str, str]:
    """Return the row of ``skip --ids`` and the consumer, empty for the publisher."""
    words = ended.words
    consumer = words[words.index("--consumer") + 1] if "--consumer" in words else ""
    return words[words.index("--ids") + 1], consumer


def _is_asked_for_again(ended: Ended) -> bool:
    """Return True if the row of ``skip --ids`` is not refused any more: somebody has asked for it
    again meanwhile, or a row of ``resync`` counts in its place. A consumer may have been killed
    before it recorded the refusal."""
    execute = ended.world.application.session.execute
    row, consumer = _row_to_skip(ended)
    if execute(_HAS_LINE + "= 'superseded'", (row, consumer)).fetchone()[0]:
        return True
    if consumer:
        recorded = _HAS_LINE + (
            "IN ('receiver', 'too_large')"
            # A reset forgets what was refused before it.
            " AND error_time >= (SELECT begun FROM eventlog_consumer WHERE name = consumer)"
        )
        is_refused = execute(recorded, (row, consumer)).fetchone()[0]
        return not is_refused or consumer in ended.world.auditor.asked_again
    sql = "SELECT count(*) FROM eventlog WHERE record_id = ? AND status IN ('E', 'F')"
    return not execute(sql, (row,)).fetchone()[0]


def _was_skipped(ended: Ended) -> bool:
    """Return True if the row of ``skip --ids`` was given up before, as one of what was parked."""
    execute = ended.world.application.session.execute
    return bool(execute(_HAS_LINE + "= 'skipped'", _row_to_skip(ended)).fetchone()[0])


def _begins_below_removed(ended: Ended) -> bool:
    sql = "SELECT count(*) FROM removed_rows WHERE record_id >= ?"
    begin = ended.words[ended.words.index("--start-from") + 1]
    if begin.endswith("Z"):  # a time
        return _has_removed(ended)
    return bool(ended.world.application.session.execute(sql, (begin,)).fetchone()[0])


def _is_resync_over(ended: Ended) -> bool:
    sql = (
        "SELECT selection FROM eventlog_resync WHERE class_name = ? AND selection NOT LIKE 'due: %'"
    )
    kind = "4" if "--deletes" in ended.words else "[56]"
    lines = ended.world.application.session.execute(sql, (ended.words[1],)).fetchall()
    return not any(re.search(rf"as type {kind}$", line) for (line,) in lines)


def _has_findings(ended: Ended) -> bool:
    told = json.loads("".join(ended.process.stdout))
    return bool(told["errors"] or told["warnings"])


def _has_removed(ended: Ended) -> bool:
    sql = "SELECT count(*) FROM removed_rows"
    return bool(ended.world.application.session.execute(sql).fetchone()[0])


def _has_backlog(ended: Ended) -> bool:
    return ended.world.backlog is not None


def _is_resync_begun(ended: Ended) -> bool:
    sql = (
        "SELECT count(*) FROM eventlog_resync WHERE class_name = ? AND selection NOT LIKE 'due: %'"
    )
    return bool(ended.world.application.session.execute(sql, (ended.words[1],)).fetchone()[0])


def _is_paused(ended: Ended) -> bool:
    return bool(pauses.paused(ended.world))


def _runs_a_second_publisher(ended: Ended) -> bool:
    return "second" in ended.world.scheduler.processes


def _runs_a_consumer(ended: Ended) -> bool:
    """Return True if the consumer that is named runs, and has ended by itself before, so that it was
    started again although the operator has stopped what ran.
    """
    world, name = ended.world, ended.said.partition(" of the log")[0].rpartition(" ")[2]
    has_ended = any(f"{name} ended: " in line for line in world.story)
    return has_ended and name in world.scheduler.processes


def _always(_: Ended) -> bool:
    return True


REASONS = (
    Reason("", 1, r"disk I/O error", _has_failed),
    Reason("", 1, r"database is locked", _always),
    Reason("requeue", 1, r"restore old values", _always),
    Reason(
        "requeue", 1, r"a lower record_id is refused, because the log does not show", _has_removed
    ),
    Reason("requeue", 1, r"has been open for more than", _has_late),
    Reason("resync", 1, r"has been open for more than", _has_late),
    Reason("requeue", 1, r"A row of status E or F up to that record_id is refused", _has_backlog),
    Reason("doctor", ExitCode.NO, r"", _has_findings),
    Reason("requeue", 2, r"has no consumer", _has_no_such_consumer),
    Reason("consumers", 2, r"has no consumer", _has_no_such_consumer),
    Reason("skip", 2, r"has no consumer", _has_no_such_consumer),
    Reason("consumers", 2, r"were removed from the log", _begins_below_removed),
    Reason("skip", 2, r"no row of --ids is refused", _is_asked_for_again),
    Reason("skip", 2, r"the rows of --ids were skipped before", _was_skipped),
    Reason("skip", 2, r"its rows are already done or deleted", _has_no_new_row),
    Reason("skip", 2, r"no event \S+ is in flight", _is_not_in_flight),
    Reason("resync", 1, r"the log has no rows of", _had_no_rows),
    Reason("resync", 2, r"there is no unfinished resync", _is_resync_over),
    Reason("explain", 1, r"the log \S+ has no row", _has_no_such_row),
    Reason("publish", 1, r"no such (table|column)", _has_no_such_class),
    Reason("resync", 2, r"is not a class", _has_no_such_class),
    Reason("resync", 1, r"no such (table|column)", _has_no_such_class),
    Reason("resync", 2, r"--where .*: no such column", _has_no_such_class),
    Reason("resync", 1, r"unknown_(table|column) at offset", _always),
    Reason("resync", 2, r"is not finished: ", _is_resync_begun),
    Reason("triggers", 1, r"there is no table or view", _has_no_such_class),
    Reason("pause", 2, r"has no consumer", _has_no_such_consumer),
    Reason("resume", 2, r"has no consumer", _has_no_such_consumer),
    Reason("pause", ExitCode.FAILED, r"has been paused since", _is_paused),
    Reason("db", 1, r"is already being published", _runs_a_second_publisher),
    Reason("db", 1, r"would continue under the old epoch", _runs_a_consumer),
)


def wrong(ended: Ended, refused: str) -> str:
    """Return what is wrong with the exit code of a command, empty if nothing is. ``refused`` is the
    text with which it must be refused, empty = it need not be."""
    code, told = ended.process.exit_code, f"eventlog {' '.join(ended.words)}"
    if refused:
        is_refused = code != 0 and re.search(refused, ended.said)
        return "" if is_refused else f"{told} ended with {code}, and must be refused: {refused}"
    if code == 0:
        return ""
    has_reason = any(
        reason.command in ("", ended.words[0])
        and reason.code == code
        and re.search(reason.text, ended.said)
        and reason.holds(ended)
        for reason in REASONS
    )
    return "" if has_reason else f"{told} ended with {code} without a reason: {ended.said[-400:]}"
