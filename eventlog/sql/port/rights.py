"""The rights of the roles that work with a log, by purpose and part of the log (spec/event-log.md
11.1).

Only this module lists these rights. The checks at the start of a command, `eventlog grants`,
`doctor` and the documentation use this list. A dialect defines how a GRANT is written, and asks the
database whether a session has a right.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from eventlog.sql.log_table import LogTable


class Part(StrEnum):
    """A part of a log that a role needs rights on."""

    LOG = "log"
    ERROR = "error"
    INFLIGHT = "inflight"
    STATE = "state"
    EPOCH = "epoch"
    CONSUMER = "consumer"
    CAPTURED = "captured"
    RESYNC = "resync"
    DEFERRED = "deferred"
    VERSION = "version"
    NUMBERS = "numbers"
    """The sequence, or table, that numbers deliveries."""
    WRITERS = "writers"
    """The tables that show the open writers of the log: the metadata locks and the transactions of
    MariaDB or MySQL. Other databases show the open writers to every session.
    """
    RECORD_IDS = "record_ids"
    """The sequence that numbers the rows of the log, if there is one."""
    CLASSES = "classes"
    """The watched tables without their child tables."""
    TABLES = "tables"
    """The watched tables with their child tables."""


class Right(StrEnum):
    """A right on a part of a log."""

    SELECT = "SELECT"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    MARK = "UPDATE of status"
    """UPDATE of a row's status alone."""
    REWRITE = "UPDATE of event_type, old_value"
    """UPDATE of the columns that turn a row of an insert into a row of an update."""
    DRAW = "draw"
    """The right to draw the next number."""
    LOCK = "lock"
    """The right to lock the log, in databases that have such a right."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of ``LogRow`` whose columns may be updated; empty for all other rights."""
        return _COLUMNS.get(self, ())

    @property
    def statement(self) -> str:
        """The kind of statement that needs this right on a table."""
        return "UPDATE" if self.columns else self.value


_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    Right.MARK: ("status",),
    Right.REWRITE: ("event_type", "old_value"),
}


class Purpose(StrEnum):
    """What a role does with a log."""

    PUBLISHER = "publisher"
    CONSUMER = "consumer"
    STREAM = "stream"
    MONITOR = "monitor"
    BACKLOG = "backlog"
    REQUEUE = "requeue"
    SKIP = "skip"
    OPERATE = "operate"
    RESYNC = "resync"
    VERIFY = "verify"
    PURGE = "purge"
    RESET = "reset"
    EPOCH = "epoch"
    TRIGGERS = "triggers"

    @property
    def work(self) -> str:
        """What a role of this purpose does, for the documentation and the help."""
        return _WORK[self]


_WORK: Final[Mapping[str, str]] = {
    Purpose.PUBLISHER: "`publish`",
    Purpose.CONSUMER: "`publish` as a consumer",
    Purpose.STREAM: "reads the log with Spark",
    Purpose.MONITOR: (
        "`status`, `top`, `errors`, `explain`, `doctor`, `consumers list`, `triggers plan`"
    ),
    Purpose.BACKLOG: "`backlog run`, `mark` and `release`",
    Purpose.REQUEUE: "`requeue`",
    Purpose.SKIP: "`skip`",
    Purpose.OPERATE: "`pause`, `resume`, and the actions of the status page",
    Purpose.RESYNC: "`resync`",
    Purpose.VERIFY: "`verify`",
    Purpose.PURGE: "`purge`",
    Purpose.RESET: "`consumers reset` and `drop`",
    Purpose.EPOCH: "`db start-epoch`",
    Purpose.TRIGGERS: "`triggers apply` by the owner of the tables, if another role owns the log",
}


def grants_advice(role: str | None, purpose: Purpose) -> str:
    """Return the sentence with the command that prints the rights of a role. It is the same
    sentence wherever a right is missing (spec/event-log.md 11.1). ``role`` None = it is unknown.
    """
    name = shlex.quote(role) if role else "ROLE"
    return f"`eventlog grants {name} --purpose {purpose}`, run by the owner, prints the rights"


class Addition(StrEnum):
    """Work that needs further rights."""

    DELETE_FROM_LOG = "delete_from_log"
    """The option of ``[publisher]``: rows are deleted in place of being marked S."""
    POSITION = "position"
    """A resync of a class records the last key that it reached, so that it can continue."""
    FILTERS = "filters"
    """A reader with filters reads which filters it may use."""
    SUPERSEDE = "supersede"
    """A resync records that its rows take the place of refused rows."""
    REPAIR = "repair"
    """A verification logs an object again if it differs."""


Rights = Mapping[Part, frozenset[Right]]
"""Rights by part of a log."""
NeededRights = Iterable[tuple[Part, Right]]
"""Rights one by one, each with the part of a log that it is for."""


def _rights(**parts: str) -> Rights:
    return MappingProxyType(
        {
            Part(part): frozenset(Right[right] for right in rights.split())
            for part, rights in parts.items()
        }
    )


_ALL: Final = "SELECT INSERT UPDATE DELETE"

RIGHTS: Final[Mapping[Purpose, Rights]] = MappingProxyType(
    {
        Purpose.PUBLISHER: _rights(
            log="SELECT MARK LOCK", error="SELECT INSERT", inflight=_ALL, state="SELECT DELETE",
            epoch="SELECT INSERT UPDATE", consumer="SELECT", captured="SELECT",
            numbers="DRAW", record_ids="SELECT", tables="SELECT",
            writers="SELECT",
        ),
        Purpose.CONSUMER: _rights(
            log="SELECT", error="SELECT INSERT", inflight=_ALL, epoch="SELECT INSERT UPDATE",
            consumer="SELECT INSERT UPDATE", captured="SELECT", numbers="DRAW",
            record_ids="SELECT", tables="SELECT",
            writers="SELECT",
        ),
        Purpose.STREAM: _rights(log="SELECT", epoch="SELECT", tables="SELECT", writers="SELECT"),
        Purpose.MONITOR: _rights(
            log="SELECT", error="SELECT", inflight="SELECT", state="SELECT", epoch="SELECT",
            consumer="SELECT", captured="SELECT", resync="SELECT", version="SELECT",
            record_ids="SELECT", tables="SELECT",
            writers="SELECT",
        ),
        Purpose.BACKLOG: _rights(
            log="SELECT MARK LOCK", error="SELECT INSERT", inflight="SELECT", state=_ALL,
            epoch="SELECT INSERT UPDATE", numbers="DRAW", record_ids="SELECT", tables="SELECT",
            writers="SELECT",
        ),
        Purpose.REQUEUE: _rights(
            log="SELECT INSERT MARK REWRITE", error="SELECT INSERT", inflight="SELECT",
            state="SELECT INSERT", epoch="SELECT", consumer="SELECT UPDATE", numbers="DRAW",
            record_ids="DRAW",
        ),
        Purpose.SKIP: _rights(
            log="SELECT MARK", error="SELECT INSERT", inflight=_ALL, state="SELECT",
            consumer="SELECT", numbers="DRAW",
        ),
        Purpose.OPERATE: _rights(
            log="SELECT INSERT MARK REWRITE", error="SELECT INSERT", inflight=_ALL,
            state="SELECT INSERT DELETE", epoch="SELECT", consumer="SELECT UPDATE", numbers="DRAW",
            record_ids="DRAW", classes="SELECT",
        ),
        Purpose.RESYNC: _rights(
            log="SELECT INSERT", error="SELECT", record_ids="DRAW", classes="SELECT",
            writers="SELECT",
        ),
        Purpose.VERIFY: _rights(
            log="SELECT", error="SELECT", inflight="SELECT DELETE", state="SELECT INSERT DELETE",
            epoch="SELECT", consumer="SELECT INSERT DELETE", numbers="DRAW", tables="SELECT",
            writers="SELECT",
        ),
        Purpose.PURGE: _rights(
            log="SELECT DELETE", error="SELECT DELETE", inflight="SELECT",
            state="SELECT INSERT DELETE", epoch="SELECT UPDATE", consumer="SELECT", numbers="DRAW",
        ),
        Purpose.RESET: _rights(
            log="SELECT", error="SELECT", inflight="SELECT DELETE",
            consumer="SELECT INSERT DELETE", epoch="SELECT", record_ids="SELECT",
            writers="SELECT",
        ),
        Purpose.EPOCH: _rights(
            log="SELECT LOCK", epoch="SELECT INSERT UPDATE", consumer="SELECT",
            numbers="DRAW",
        ),
        Purpose.TRIGGERS: _rights(log="INSERT", captured=_ALL, deferred="INSERT", tables="SELECT"),
    }
)  # fmt: skip
"""What a role of each purpose may do with each part."""

ADDITIONS: Final[Mapping[tuple[Purpose, Addition], Rights]] = MappingProxyType(
    {
        (Purpose.PUBLISHER, Addition.DELETE_FROM_LOG): _rights(log="DELETE"),
        (Purpose.BACKLOG, Addition.DELETE_FROM_LOG): _rights(log="DELETE", consumer="SELECT"),
        (Purpose.CONSUMER, Addition.FILTERS): _rights(state="SELECT"),
        (Purpose.RESYNC, Addition.POSITION): _rights(resync=_ALL),
        (Purpose.RESYNC, Addition.SUPERSEDE): _rights(error="INSERT", consumer="SELECT"),
        (Purpose.VERIFY, Addition.REPAIR): _rights(log="INSERT", record_ids="DRAW"),
    }
)
"""The further rights for each addition."""

OPTIONAL: Final[Mapping[tuple[Part, Right], str]] = MappingProxyType(
    {
        (Part.CAPTURED, Right.SELECT): "tables that no trigger has captured are not reported",
        (Part.DEFERRED, Right.INSERT): "child rows may be logged before their owners",
        (Part.VERSION, Right.SELECT): "the revision of the log is not shown",
        (Part.WRITERS, Right.SELECT): (
            "consumers and streams check this right with the settings of the server "
            "(spec/event-log.md 13.6); without this right, other commands do not wait for open "
            "writers"
        ),
        (
            Part.RECORD_IDS,
            Right.SELECT,
        ): "a sequence that was set back is detected later, by its rows",
        (Part.RECORD_IDS, Right.DRAW): "the database itself refuses a row without it",
        (Part.LOG, Right.LOCK): "without it, the log is locked in another way",
        (Part.CLASSES, Right.SELECT): "the columns that are needed depend on the class",
        (Part.TABLES, Right.SELECT): "the columns that are needed depend on the classes",
    }
)
"""The rights that are not checked at the start of a command, each with the reason, or with the
effect if the right is missing.
"""


def rights_for(purpose: Purpose, *additions: Addition) -> Rights:
    """Return the rights of a purpose with these additions, in the order of the parts."""
    rights = dict(RIGHTS[purpose])
    for addition in additions:
        for part, more in ADDITIONS.get((purpose, addition), {}).items():
            rights[part] = rights.get(part, frozenset()) | more
    return {part: rights[part] for part in Part if part in rights}


def demanded(purpose: Purpose, *additions: Addition) -> list[tuple[Part, Right]]:
    """Return the rights without which the work of a purpose is impossible."""
    return [
        (part, right)
        for part, rights in rights_for(purpose, *additions).items()
        for right in Right
        if right in rights and (part, right) not in OPTIONAL
    ]


NAMES: Final[Mapping[Part, str]] = {
    Part.LOG: "name",
    Part.NUMBERS: "number_sequence",
    **{
        Part(part): f"{part}_table"
        for part in (
            "error", "inflight", "state", "epoch", "consumer", "captured", "resync", "deferred",
            "version",
        )
    },
}  # fmt: skip
"""The field of ``LogTable`` with the name of each part that is one table or sequence."""
_A_COLUMN: Final[Mapping[Part, str]] = {
    Part.ERROR: "record_id",
    Part.INFLIGHT: "entry_no",
    Part.STATE: "entry_no",
    Part.EPOCH: "epoch",
    Part.CONSUMER: "name",
    Part.CAPTURED: "table_name",
    Part.RESYNC: "position",
    Part.DEFERRED: "table_key",
    Part.VERSION: "version_num",
    Part.NUMBERS: "delivery_no",
}
"""One column of each internal table, for statements that test a right."""


def name_of(log: LogTable, part: Part) -> str:
    """Return the name of a part of a log that is one table or sequence."""
    return str(getattr(log, NAMES[part]))


def tried_columns(
    log: LogTable, part: Part, right: Right, spelled: Callable[[str], str]
) -> tuple[str, ...]:
    """Return the columns in the statements that test a right on a part. ``spelled`` returns a name
    as the database stores it.
    """
    if part is Part.LOG:
        return tuple(map(log.column, right.columns or ("status",)))
    return (spelled(_A_COLUMN[part]),)
