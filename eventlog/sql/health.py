"""What a database can tell of the health of a log and its watched tables: facts for ``doctor``, no judgement.

Each dialect has a module ``doctor`` that gives them, which is its ``Dialect.health``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from sqlalchemy import Connection

from eventlog.sql.log_table import LogTable


class Clock(NamedTuple):
    """How many seconds the database's clock is ahead of this machine's, and how far that may be wrong."""

    ahead: float
    uncertainty: float


class StatusRows(NamedTuple):
    """Rows of one status among the newest ones; ``status`` is None for NULL, blanks at its end are kept."""

    status: str | None
    rows: int
    first: int | None
    last: int | None


class Rows(NamedTuple):
    """Some rows of the log: how many of those that were looked at, and the lowest record_id among them."""

    rows: int
    first: int | None
    looked_at: int


class Due(NamedTuple):
    """Rows N whose event_time lies ahead: how many of those that were looked at, and when the first one is due."""

    rows: int
    next_time: str | None
    next_seconds: float | None
    looked_at: int


class Ahead(NamedTuple):
    """The newest rows' latest event_time, in seconds ahead of the database's clock, and the row that has it."""

    record_id: int
    event_time: str
    seconds: float


class SpelledKey(NamedTuple):
    """A table_key as rows among the newest ones spell it."""

    table_name: str | None
    table_key: str | None
    rows: int
    first: int


class Index(NamedTuple):
    """An index of the log. ``columns`` in order, None for an expression; ``predicate`` as the database writes it."""

    name: str
    is_valid: bool
    columns: tuple[str | None, ...]
    predicate: str | None


class Numbering(NamedTuple):
    """A sequence that gives record_ids. ``name`` is SQL; ``cache``: so many numbers a session keeps for itself.

    ``disorder``: why else its numbers may not rise in the order of the requests, None if they do; ``mend`` is SQL
    against that.
    """

    name: str
    cache: int
    increment: int
    cycles: bool
    disorder: str | None = None
    mend: str = ""


class OpenTransaction(NamedTuple):
    """A transaction of another session. ``seconds`` is None where this role may not see its start.

    ``writes``: it has changed something; ``wrote_log``: it has written rows to the log (nobody else sees them yet);
    ``prepared``: the name of a prepared one, which no session has.
    """

    pid: int | None
    user: str | None
    application: str | None
    state: str | None
    seconds: float | None
    writes: bool
    wrote_log: bool
    prepared: str | None = None


class Storage(NamedTuple):
    """The rows of the log by the database's own statistics. ``vacuumed`` is when it was last vacuumed, as text."""

    live: int
    dead: int
    vacuumed: str | None
    autovacuum: bool


class InstalledTrigger(NamedTuple):
    """A trigger of the log. ``table`` is ``schema.table``; ``mend`` is SQL that enables it."""

    table: str
    trigger: str
    enabled: bool
    mend: str


class Orphan(NamedTuple):
    """A trigger of ours whose log is gone: whatever it is on cannot be changed any more. ``mend`` is SQL."""

    table: str
    trigger: str
    log: str
    mend: str


class PartitionTrigger(NamedTuple):
    """A trigger of ours on a partitioned table that a partition lacks or has disabled. ``mend`` is SQL."""

    table: str
    partition: str
    trigger: str
    state: Literal["missing", "disabled"]
    mend: str


class Unreadable(NamedTuple):
    """Columns that this role may not read, of one table."""

    table: str
    columns: tuple[str, ...]


class Health(Protocol):
    """What a dialect's module ``doctor`` has. Nothing changes anything; ``limit`` and ``sample`` bound the work."""

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        """Make the transaction that begins see one moment, change nothing, and no statement of it take longer."""

    def clock(self, conn: Connection) -> Clock: ...

    def statuses(self, conn: Connection, log: LogTable, sample: int) -> list[StatusRows]: ...

    def without_record_id(self, conn: Connection, log: LogTable, limit: int) -> Rows:
        """Rows N whose record_id is NULL or not positive."""

    def made_by(self, conn: Connection, log: LogTable, user: str, limit: int) -> Rows:
        """Which of the first rows N a perpetrator made."""

    def not_due(self, conn: Connection, log: LogTable, event_time_zone: str, limit: int) -> Due: ...

    def ahead(self, conn: Connection, log: LogTable, event_time_zone: str, sample: int) -> Ahead | None: ...

    def spelled_keys(self, conn: Connection, log: LogTable, sample: int) -> list[SpelledKey]: ...

    def indexes(self, conn: Connection, log: LogTable) -> list[Index]: ...

    def numberings(self, conn: Connection, log: LogTable) -> list[Numbering]: ...

    def reading_index(self, log: LogTable) -> str:
        """SQL that makes the index which the publisher reads by."""

    def row_index(self, log: LogTable) -> str:
        """SQL that makes the index by which single rows are found."""

    def serves_reading(self, log: LogTable, index: Index) -> bool: ...

    def serves_rows(self, log: LogTable, index: Index) -> bool: ...

    def inflight_seconds(self, conn: Connection, log: LogTable) -> float | None:
        """The age of the oldest in-flight line."""

    def transactions(self, conn: Connection, log: LogTable, limit: int) -> list[OpenTransaction]:
        """The oldest first; those whose age this role may not see only if they have written to the log."""

    def storage(self, conn: Connection, log: LogTable) -> Storage | None: ...

    def installed_triggers(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]: ...

    def sees_triggers(self, conn: Connection, schema: str) -> bool:
        """Whether this session is shown the triggers of a schema's tables: where it is not, none of them is missing."""

    def orphans(self, conn: Connection) -> list[Orphan]: ...

    def partition_triggers(self, conn: Connection, log: LogTable) -> list[PartitionTrigger]: ...

    def without_triggers(self, conn: Connection, schema: str, tables: Sequence[str]) -> list[str]:
        """Those of the tables that have no trigger at all."""

    def owned(self, conn: Connection, schema: str, tables: Sequence[str], user: str) -> list[str]:
        """Those of the tables that belong to a user."""

    def unreadable(self, conn: Connection, schema: str, columns: Sequence[tuple[str, str]]) -> list[Unreadable]: ...

    def grants(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        """The GRANT statements that let this session's user publish."""

    def rights_to_apply(self, conn: Connection, log: LogTable, schema: str, tables: Sequence[str]) -> list[str]:
        """What this session's role lacks to apply triggers to the tables, in words."""
