"""A log on MySQL or MariaDB in a session: its statements and its lock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from eventlog.core.ranges import Range, Ranges
from eventlog.model import LOG_COLUMNS, LogRow
from eventlog.sql.dialects.mysql_family import text, writers
from eventlog.sql.dialects.mysql_family.session import RIGHTS
from eventlog.sql.dialects.stepwise import StepwiseLog
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import LockHolder
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.rights import NeededRights, Part, Rights
from eventlog.sql.port.sql_files import Binds, PlainRows, fetch, in_parts

if TYPE_CHECKING:
    from eventlog.sql.dialects.mysql_family import Family
    from eventlog.sql.dialects.mysql_family.database import MySQLFamilyDatabase

_RANGES: Final = 500
"""The number of ranges of record_ids in one statement."""
_IDS: Final = 500
"""The maximum number of record_ids in a statement that names each record_id."""
_MANY: Final = 50
"""A range of at least this number of record_ids is marked by a separate statement."""
_KEY_OF_NUMBERS: Final = "eventlog_key_of_numbers"
"""``Connection.info`` has the index hint of each log under this key."""
_KEYS: Final = 500
"""The number of rows in one INSERT of a resync."""
_LOCK: Final = "CONCAT('eventlog ', LEFT(SHA2(CONCAT(DATABASE(), '.', %(log)s), 256), 40))"
_CONSUMER_LOCK: Final = (
    "CONCAT('eventlog consumer ', LEFT(SHA2(CONCAT(DATABASE(), '.', %(log)s, '.', %(consumer)s), "
    "256), 40))"
)


class MySQLFamilyLog(StepwiseLog):
    """A log on MySQL or MariaDB."""

    db: MySQLFamilyDatabase
    dialect: Family

    def identity(self) -> str:
        # The comment of the source of delivery numbers was generated when the source was created. A
        # replica that takes over has the same comment.
        statement = (
            "SELECT DATABASE(), table_comment FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND BINARY table_name = BINARY %(name)s"
        )
        rows = fetch(self.connection, statement, {"name": self.table.number_sequence})
        return "/".join(
            [self.dialect.name, *(str(part) for row in rows for part in row), self.table.name]
        )

    def try_lock(self) -> bool:
        # The session checks first, since a lock that is taken twice must be released twice.
        return self.holds_lock() or bool(self._ask_lock("GET_LOCK({name}, 0)"))

    def holds_lock(self) -> bool:
        return bool(self._ask_lock("IS_USED_LOCK({name}) = CONNECTION_ID()"))

    def is_locked(self) -> bool:
        return self._ask_lock("IS_USED_LOCK({name})") is not None

    def read_lock_holder(self, consumer: str = "") -> LockHolder | None:
        session = self._ask_lock("IS_USED_LOCK({name})", consumer)
        if session is None:
            return None
        # Without the right PROCESS the sessions of other users are hidden.
        seen = f"SELECT user, host FROM {self.dialect.processlist} WHERE id = %(session)s"  # noqa: S608
        ask = partial(fetch, self.connection, seen, {"session": session})
        ((user, address),) = for_message(self.connection, ask) or [("", "")]
        return LockHolder(int(session), str(user), "", str(address))

    def unlock(self) -> None:
        self._ask_lock("RELEASE_LOCK({name})")

    def try_consumer_lock(self, consumer: str) -> bool:
        taken = "IS_USED_LOCK({name}) <=> CONNECTION_ID() OR GET_LOCK({name}, 0)"
        return bool(self._ask_lock(taken, consumer))

    def is_consumer_locked(self, consumer: str) -> bool:
        return self._ask_lock("IS_USED_LOCK({name})", consumer) is not None

    # The row of <log>_epoch serves as the lock between registering a consumer and removing rows,
    # and between requeuing and recording a delivery, since named locks outlast a transaction. A
    # role that registers or requeues does not need the right to change the row.

    def lock_registering(self) -> None:
        self.connection.exec_driver_sql(
            self.statement(
                "lock_registering",
                epoch=self._epoch_table,
                shared=self.dialect.shared_lock,
            )
        ).close()

    def lock_removing(self) -> None:
        self.connection.exec_driver_sql(
            self.statement("lock_removing", epoch=self._epoch_table)
        ).close()

    def lock_requeuing(self) -> None:
        self.lock_registering()

    def lock_recording(self) -> None:
        self.lock_removing()

    @property
    def _epoch_table(self) -> str:
        return text.bindable(self.dialect.quote(self.table.epoch_table))

    # Open writers (spec/event-log.md 13.6)

    @property
    def writers(self) -> writers.Writers:
        """The open writers of the log."""
        return writers.Writers(self.connection, self.dialect, self.table)

    def open_writers(self) -> frozenset[str] | None:
        return self.writers.open()

    def hidden_writers(self) -> str | None:
        return self.writers.hidden()

    def grants(self, rights: Rights, user: str) -> list[str]:
        seeing = writers.grants(self.dialect, user) if Part.WRITERS in rights else ()
        return [*super().grants(rights, user), *seeing]

    def lacking(self, needed: NeededRights) -> list[str]:
        needed = list(needed)
        missing = RIGHTS.lacking(self, [one for one in needed if one[0] is not Part.NUMBERS])
        if any(part is Part.NUMBERS for part, _ in needed):
            missing += self.lacking_to_draw()
        return missing

    @abstractmethod
    def lacking_to_draw(self) -> list[str]:
        """Return, in words, the rights that this session lacks for drawing delivery numbers."""

    # There are no array binds. Ranges of record_ids, of which there may be thousands, are written
    # into the text of a few statements.

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        rows: list[LogRow] = []
        for condition in _conditions(self.table, ranges):
            rows += self.log_rows(self.statement("read_rows", ranges=condition), {})
        return sorted(rows, key=itemgetter(0))

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> PlainRows:
        rows: PlainRows = []
        for condition in _conditions(self.table, ranges):
            statement = self.statement(
                "read_rows",
                fields=self.dialect.log_fields(self.table, fields),
                ranges=condition,
            )
            rows += self.db.fetch(statement, {})
        return sorted(rows, key=itemgetter(0))

    def mark(self, status: str, ranges: Ranges) -> int:
        long = [one for one in ranges if _length(one) >= _MANY]
        short = [one for one in ranges if _length(one) < _MANY]
        record_id = _record_id(self.table)
        rows = [
            f"{record_id} BETWEEN {first:d} AND {last:d} LIMIT {last - first + 1:d}"
            for first, last in long
        ]
        return self._change("mark", [*rows, *_each(self.table, short)], {"status": status})

    def delete(self, ranges: Ranges) -> int:
        return self._change("delete", _each(self.table, ranges), {})

    def _change(self, name: str, rows: Iterable[str], binds: Binds) -> int:
        key, changed = self._key_of_numbers(), 0
        for condition in rows:
            done = self.connection.exec_driver_sql(
                self.statement(name, rows=condition, key=key), dict(binds)
            )
            changed += int(done.rowcount)
        return changed

    def _key_of_numbers(self) -> str:
        """Return an SQL hint that makes the server find rows by the unique key of record_id; empty
        if record_id has no unique key.
        """
        known: dict[LogTable, str] = self.connection.info.setdefault(_KEY_OF_NUMBERS, {})
        if self.table not in known:
            names = {"log": self.table.name, "record_id": self.table.column("record_id")}
            found = fetch(self.connection, self.statement("key_of_numbers"), names)
            quoted = [text.bindable(self.dialect.quote(str(name))) for (name,) in found]
            known[self.table] = f"FORCE INDEX ({quoted[0]})" if quoted else ""
        return known[self.table]

    def write_keys(self, selection: Selection, keys: Sequence[str]) -> None:
        head, _, row = self.statement("write_key").partition("\nVALUES ")
        for chunk in in_parts(keys, _KEYS):
            rows = ", ".join(row.replace("%(table_key)s", f"%(key{n})s") for n in range(len(chunk)))
            binds = {f"key{n}": key for n, key in enumerate(chunk)}
            named = {"event_type": int(selection.event_type), "class_name": selection.class_name}
            self.connection.exec_driver_sql(f"{head}\nVALUES {rows}", {**named, **binds})

    def is_half_made(self) -> bool:
        # This is a table with eventlog's columns to which nobody has written yet.
        columns = {
            column["name"] for column in sa.inspect(self.connection).get_columns(self.table.name)
        }
        return columns == set(LOG_COLUMNS)

    def _ask_lock(self, question: str, consumer: str = "") -> Any:
        """Return the answer to a question about the lock of the log, or of a consumer."""
        name = _CONSUMER_LOCK if consumer else _LOCK
        names = {"log": self.table.name, "consumer": consumer}
        return self.db.scalar(f"SELECT {question.format(name=name)}", names)


def _record_id(log: LogTable) -> str:
    return text.bindable(text.quote_identifier(log.column("record_id")))


def _length(one: Range) -> int:
    first, last = one
    return last - first + 1


def _each(log: LogTable, ranges: Ranges) -> Iterator[str]:
    """Yield SQL conditions that name each of these record_ids."""
    ids = (one for first, last in ranges for one in range(first, last + 1))
    while part := list(islice(ids, _IDS)):
        yield f"{_record_id(log)} IN ({', '.join(map(str, part))})"


def _conditions(log: LogTable, ranges: Ranges) -> list[str]:
    """Return SQL conditions that select these record_ids, each for a part of the ranges."""
    record_id = _record_id(log)
    single = [f"{record_id} BETWEEN {first:d} AND {last:d}" for first, last in ranges]
    return [" OR ".join(some) for some in in_parts(single, _RANGES)]
