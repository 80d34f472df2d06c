"""The conditions in which a publisher, a consumer or a backlog job needs attention
(spec/event-log.md 11.2). Each has a rule for when it holds, words, and an action. ``health.judge``
finds the conditions that hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

LINES_READ: Final = 10_000
"""The number of the newest error rows that are read to find refused and invalid rows."""


class Severity(StrEnum):
    """The severity of a condition, as in ``doctor``. The least severe value is the first."""

    OK = "ok"
    WARNING = "warning"
    """Action is needed, or the publisher waits for something."""
    ERROR = "error"
    """Changes are lost, or nothing is published."""

    @property
    def level(self) -> int:
        """0, 1 or 2, for a metric and for comparisons."""
        return list(Severity).index(self)


class Kind(NamedTuple):
    """The description of a kind of condition. ``KINDS`` has its name."""

    severity: Severity
    when: str
    """The rule that decides when the condition holds."""
    words: str
    """The sentence, with placeholders."""
    action: str
    """What to do, an imperative sentence, with placeholders."""
    commands: tuple[str, ...] = ()
    """The commands that belong to the action."""
    known_to: Literal["both", "process", "command"] = "both"
    """Where the condition can be determined: in the process, in a command that reads the database,
    or in both.
    """


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "process_hangs": Kind(
            Severity.ERROR,
            "no sign of life has come within `monitor.liveness_timeout`, as `/livez` judges it",
            "the process hangs: no progress for {age}",
            "Restart the process, unless its supervisor watches /livez and restarts it.",
            known_to="process",
        ),
        "uncaptured_tables": Kind(
            Severity.ERROR,
            "the triggers of a watched table are missing or not as declared, so that they "
            "do not log a change",
            "{tables} not captured as declared: changes are not logged ({names})",
            "Have the owner of the tables apply the triggers, then run the resync commands that "
            "`triggers apply` prints.",
            ("eventlog triggers plan", "eventlog triggers apply"),
        ),
        "captured_otherwise": Kind(
            Severity.ERROR,
            "the triggers of a watched table log all its declared columns, but are not the "
            "triggers of this configuration",
            "{tables} captured otherwise than this configuration declares ({names})",
            "If the triggers come from another configuration, use the other configuration. "
            "Otherwise have the owner of the tables apply this configuration, which replaces the "
            "triggers.",
            ("eventlog triggers plan",),
        ),
        "class_unavailable": Kind(
            Severity.ERROR,
            "a class or a `[[watch]]` does not fit the database, or the format fails to write a "
            "class",
            "{classes} cannot be published as configured, and rows wait: {names}",
            "Correct the [[watch]] or the table; `eventlog doctor` and the publisher's log show "
            "why.",
            ("eventlog doctor",),
        ),
        "no_progress": Kind(
            Severity.ERROR,
            "rows wait, and nothing has progressed for 10 minutes; a command reports this if no "
            "publisher runs and the oldest row is older than 10 minutes",
            "{rows} to publish, and no progress for {age}",
            "Find out what the publisher waits for.",
            ("eventlog status",),
        ),
        "rows_missing": Kind(
            Severity.ERROR,
            "the process has read rows that were gone before their answer was recorded",
            "{rows} deleted from the log before the answer was recorded",
            "Revoke the right to delete rows of the log from other users, then resync the objects.",
            ("eventlog doctor",),
            known_to="process",
        ),
        "dead_letters_wait": Kind(
            Severity.ERROR,
            "more than 10,000 dead letters wait for the sink of `[dead_letter]`, or one is older "
            "than an hour",
            "{letters} for the sink of [dead_letter], the oldest for {age}",
            "Find out why that sink does not accept them; the publisher's log has its answer.",
            ("eventlog doctor --receiver",),
        ),
        "verify_different": Kind(
            Severity.ERROR,
            "the last verification of a target found objects that differ",
            "{objects} of {target} differed at the last verification",
            "Find out what changed the target, then verify it again with --repair.",
            ("eventlog verify --help",),
        ),
        "paused": Kind(
            Severity.WARNING,
            "`eventlog pause` has paused the publisher, or a consumer of its log",
            "{reader} has been paused for {age} by {by}: {reason}",
            "Resume it when the reason is over.",
            ("eventlog resume",),
        ),
        "database_unavailable": Kind(
            Severity.WARNING,
            "the process waits for the database",
            "{state}",
            "Nothing has to be done here: the publisher tries again.",
            known_to="process",
        ),
        "receiver_misconfigured": Kind(
            Severity.WARNING,
            "the process waits for the receiver, and an answer or the connection shows that an "
            "option is wrong: HTTP 401, 403, 404, 405, 413 or 415, a redirect, an HTML page, a "
            "wrong name or authority in TLS, or an OAuth error; after 10 minutes without any "
            "answer to events, the severity is *error*",
            "{state}",
            "{advice}, then restart the publisher; until then it tries again.",
            known_to="process",
        ),
        "receiver_unavailable": Kind(
            Severity.WARNING,
            "the process waits for the receiver for any other reason: it refuses connections, "
            "answers 429 or 5xx, or is too slow; after 10 minutes without any answer to events, "
            "the severity is *error*",
            "{state}",
            "Nothing has to be done here: the publisher tries again.",
            known_to="process",
        ),
        "source_unavailable": Kind(
            Severity.WARNING,
            "the process waits for the source that it follows",
            "{state}",
            "Nothing has to be done here: the publisher tries again.",
            known_to="process",
        ),
        "not_connected": Kind(
            Severity.WARNING,
            "the process has no connection to the database yet",
            "{state}",
            "Nothing has to be done if this ends soon; else read the log of the process.",
            known_to="process",
        ),
        "no_publisher": Kind(
            Severity.WARNING,
            "nobody has the lock of the log, or of the consumer",
            "{state}",
            "Start it.",
            ("eventlog publish",),
            known_to="command",
        ),
        "refused_rows": Kind(
            Severity.WARNING,
            "the newest 10,000 error rows show that the receiver refused rows of status E or F; "
            "rows that were skipped, or whose `resync` is done, do not count",
            "{rows} refused by the receiver",
            "Fix the cause, then run the commands that `eventlog errors` shows; or skip rows that "
            "need no action.",
            ("eventlog errors",),
        ),
        "invalid_rows": Kind(
            Severity.WARNING,
            "the newest 10,000 error rows show that rows of status E or F failed a check; rows "
            "with a later `skip` or `resync` do not count",
            "{rows} invalid, and not sent",
            "Fix the cause, then run the commands that `eventlog errors` shows; or skip rows that "
            "need no action.",
            ("eventlog errors",),
        ),
        "consumer_waits": Kind(
            Severity.WARNING,
            "a consumer has rows to process, and has processed none for 10 minutes",
            "consumer {consumer} {runs} and has not moved for {age}: {rows} to do",
            "Start it, fix its receiver, or drop it if nobody needs it.",
            ("eventlog consumers list",),
        ),
        "parked_objects": Kind(
            Severity.WARNING,
            "the receiver answered *retry* for events, or fails for them",
            "{objects} parked: the receiver answers retry for their events, or fails for them",
            "Fix the cause of the receiver's answers, or skip an event.",
            ("eventlog status",),
        ),
        "queue_old": Kind(
            Severity.WARNING,
            "the oldest row has waited for 15 minutes",
            "the oldest row has waited for {age}",
            "Compare the number of logged rows with the number of published rows.",
            ("eventlog top",),
        ),
        "resync_due": Kind(
            Severity.WARNING,
            "`triggers apply` found changes that no trigger has logged; a role without "
            "SELECT on `<log>_resync` does not see this condition",
            "{resyncs} due: objects may differ from those of the receiver",
            "Run what is due.",
        ),
        "trigger_drifted": Kind(
            Severity.WARNING,
            "triggers stand on tables that no `[[watch]]` names, and everything declared is"
            " captured",
            "{tables} with triggers that the configuration does not declare",
            "Have the owner of the tables apply the triggers.",
            ("eventlog triggers plan", "eventlog triggers apply"),
        ),
        "open_transaction": Kind(
            Severity.WARNING,
            "a transaction that has written the log has been open for 30 minutes",
            "a transaction that has written the log has been open for {age}: {who}",
            "End the transaction; its rows cannot be seen before.",
            ("eventlog doctor",),
        ),
        "old_snapshot": Kind(
            Severity.WARNING,
            "a database snapshot is an hour old and 1,000 transactions followed it, or its age is "
            "unknown and 1,000,000 followed it",
            "for {age}, a database snapshot has blocked the removal of dead rows: {who}",
            "End the session that holds it.",
            ("eventlog doctor",),
        ),
        "dead_rows": Kind(
            Severity.WARNING,
            "for 15 minutes, the log has had at least 100,000 dead rows and one dead row per 5 "
            "live rows, or an internal table has had 20,000 dead rows",
            "{rows} dead in the log or an internal table: reading gets slow",
            "Remove what keeps them, then vacuum.",
            ("eventlog doctor",),
            known_to="process",
        ),
        "purge_overdue": Kind(
            Severity.WARNING,
            "all rows of a leaf (a partition of the log) are older than 1.5 times "
            "`database.keep_days`, or the leaf for new rows has rows older than half of "
            "`database.keep_days`",
            "a purge of the log is overdue: {what} ({why})",
            "Run `eventlog purge` as the owner of the log; if something blocks the purge, end that "
            "first.",
            ("eventlog purge",),
        ),
        "log_too_large": Kind(
            Severity.WARNING,
            "the log has more than `database.keep_bytes`, with its indexes",
            "the log has {bytes}, and keep_bytes is {limit}",
            "Run purge as the owner of the log; it names what keeps the oldest leaf.",
            ("eventlog purge", "eventlog doctor"),
        ),
        "log_grows": Kind(
            Severity.WARNING,
            "the log and its internal tables have 1 GB, and will have doubled within a day "
            "if they grow as in the last six hours",
            "the log will have doubled within a day, to {bytes}",
            "Purge what is done, or find out what keeps it.",
            ("eventlog purge --older-than 30d", "eventlog doctor"),
            known_to="process",
        ),
    }
)
"""The conditions, the worst first. ``judge`` reports them in this order."""
