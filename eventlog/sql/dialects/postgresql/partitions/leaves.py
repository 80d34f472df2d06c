# ruff: noqa: S608 - quoted names
"""A log of PostgreSQL that is partitioned by record_id (spec/event-log.md 14.1).

A leaf is attached without a scan. PostgreSQL scans a table that it attaches, unless a valid CHECK
implies the bounds of the partition. Such a CHECK would reject rows while the leaf still has its
old, wider bounds. So the CHECK of the lowest leaf and of the open leaf, whose bounds change later,
calls a function that returns ``true``. A transaction locks the log, and verifies with the index of
the key that the leaf has no row outside of the range. The transaction then replaces the body of the
function by the condition of the range, attaches the leaf, and restores ``true`` before it commits.
No other session ever sees the condition. The leaves in between, one of which gets the new rows,
have no CHECK, because a CHECK makes each INSERT slower.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.core.clock import monotonic, sleep
from eventlog.errors import DatabaseError, LogInUse
from eventlog.sql.dialects.postgresql.partitions import conversion
from eventlog.sql.dialects.postgresql.partitions.leaf_sql import (
    add_check,
    allow_inserts,
    ask,
    attach,
    changes,
    check_function,
    columns_of,
    copied_rows,
    copy_rows,
    create_leaf,
    drop_check,
    drop_function,
    free_names,
    leaf_comment,
    run,
    sessions_in_words,
    sibling,
    table_of,
    take,
    value_of,
)
from eventlog.sql.log.internal_tables import (
    Entry,
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.leaves import MAX_MOVED, Leaf, Partitioning, UnrecordedLeaf
from eventlog.sql.port.sql_files import literal

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog


_MAX_LOCK_SECONDS: Final = 0.015
_PAUSE: Final = 0.002
"""After locking the log, a removal checks for database snapshots for ``_MAX_LOCK_SECONDS``, with
``_PAUSE`` between two checks. Most statements of an application end in ``_MAX_LOCK_SECONDS``.
"""
_CHECK_VIOLATION: Final = "23514"
"""The SQLSTATE of a row for which the log has no leaf."""
_BOUND: Final = re.compile(r"FROM \(('?-?\d+'?|MINVALUE)\) TO \(('?-?\d+'?|MAXVALUE)\)")


class _Detached(NamedTuple):
    """A table that a purge has detached, as its entry of ``<log>_state`` records it."""

    oid: int
    """The table's OID. A table of the same name that was restored from a dump has another OID."""
    name: str


class PostgresPartitioning(Partitioning):
    """Range partitions of a log's table."""

    def leaves(self, log: OpenLog) -> list[Leaf]:
        read = ask(log, "leaves", function=f"{check_function(log.table)}(bigint)")
        found = []
        for name, bound in read:
            match = _BOUND.search(bound)
            if match is None:  # another program has partitioned the table
                return []
            first, end = (one.strip("'") for one in match.groups())
            found.append(
                Leaf(
                    name,
                    None if first == "MINVALUE" else int(first),
                    None if end == "MAXVALUE" else int(end),
                )
            )
        return sorted(found, key=lambda leaf: (leaf.first is not None, leaf.first or 0))

    def sizes(self, log: OpenLog) -> dict[str, int]:
        return {name: int(size) for name, size in ask(log, "sizes")}

    def is_owner(self, log: OpenLog) -> bool:
        return bool(ask(log, "owns")[0][0])

    def dependents(self, log: OpenLog) -> list[str]:
        trigger = log.table.own_name("_tgr_{}_i_1")
        is_partitioned = log.table.is_partitioned
        return [
            str(one)
            for (one,) in ask(log, "dependents", trigger=trigger, is_partitioned=is_partitioned)
        ]

    def publications(self, log: OpenLog) -> list[str]:
        return [str(name) for (name,) in ask(log, "publications")]

    prepare = staticmethod(conversion.prepare)
    partition = staticmethod(conversion.partition)
    unpartition = staticmethod(conversion.unpartition)

    def cut(self, log: OpenLog, at: int) -> Leaf:
        known = self.leaves(log)
        head = known[-1]
        newest = max(int(leaf.name.rpartition("_")[2]) for leaf in known)
        (name,) = free_names(log, newest + 1, 1)
        new = Leaf(name, at, None)
        old_table, new_table = sibling(log.table, head.name), sibling(log.table, new.name)
        column, _ = columns_of(log.table)
        with changes(log):
            create_leaf(log, new.name)
            add_check(log, new.name)
            _commit_at_once(log)
            take(log)
            self._check_known(log, known)
            _take_leaves(log, [old_table])
            beyond = f"FROM {old_table} WHERE {column} >= {at:d}"
            if (
                value_of(
                    log, f"SELECT count(*) FROM (SELECT {beyond} LIMIT {MAX_MOVED + 1}) AS rows"
                )
                > MAX_MOVED
            ):
                raise DatabaseError(
                    f"the newest leaf {head.name} of the log {log} has more than {MAX_MOVED:,} "
                    f"rows from record_id {at} on. Cut the leaf in two at a higher record_id"
                )
            run(log, f"ALTER TABLE {table_of(log.table)} DETACH PARTITION {old_table}")
            copy_rows(log, old_table, new_table, f"WHERE {column} >= {at:d}")
            run(log, f"DELETE {beyond}")
            attach(log, head._replace(end=at))
            drop_check(log, old_table)
            attach(log, new)
            allow_inserts(log)
        log.commit()
        return head._replace(end=at)

    def remove(
        self, log: OpenLog, leaf: Leaf, stay: Collection[int], check: Callable[[], None]
    ) -> None:
        known = self.leaves(log)
        lowest, table = known[0], sibling(log.table, leaf.name)
        home = sibling(log.table, lowest.name)
        column, _ = columns_of(log.table)
        if leaf not in known:
            raise LogInUse(
                f"another session has removed the leaf {leaf.name} of the log {log}, or has cut "
                "the leaf in two. Run the command again"
            )
        if leaf.end is None or len(known) < 2 or leaf != known[1]:
            raise DatabaseError(
                f"the leaf {leaf.name} of the log {log} cannot be removed. Remove lower leaves "
                "first, beginning with the second lowest; the newest leaf always stays"
            )
        with changes(log):
            _commit_at_once(log)
            self._record(log, leaf.name)
            take(log)
            begun = monotonic()
            self._check_known(log, known)
            _take_leaves(log, [home, table])
            check()
            log_name = table_of(log.table)
            run(log, "; ".join(_detach(log_name, one) for one in (table, home)))
            if stay:
                numbers = ", ".join(f"{one:d}" for one in sorted(stay))
                copy_rows(log, table, home, f"WHERE {column} IN ({numbers})")
            attach(log, lowest._replace(end=leaf.end))
            allow_inserts(log)
            self._refuse_readers(log, begun + _MAX_LOCK_SECONDS)
        log.commit()

    def finish(self, log: OpenLog) -> int:
        entries = read_entries(log, EntryKind.DETACHED)
        log.commit()
        dropped = 0
        for entry in entries:
            with changes(log):
                put_back = self._finish(log, entry.number, _recorded(log, entry))
            log.commit()
            dropped += put_back is not None
        return dropped

    def unrecorded(self, log: OpenLog) -> list[UnrecordedLeaf]:
        before = self._detached(log)
        if not before:
            return []
        recorded = {_recorded(log, entry) for entry in read_entries(log, EntryKind.DETACHED)}
        # A purge writes the record with the removal and deletes it with the table: a table that is
        # there before and after the records are read has none, if it is not among them.
        return [
            UnrecordedLeaf(name, is_readable)
            for oid, name, is_readable in self._detached(log)
            if (oid, name, is_readable) in before and _Detached(oid, name) not in recorded
        ]

    def finish_unrecorded(self, log: OpenLog, name: str) -> int:
        with changes(log):
            number, table = self._record(log, name)
            put_back = self._finish(log, number, table)
            if put_back is None:
                raise LogInUse(
                    f"another session has changed the table {name} of the log {log} in the "
                    "meantime. Run the command again"
                )
        log.commit()
        return put_back

    def drop(self, log: LogTable) -> list[str]:
        return [drop_function(log)]

    def _detached(self, log: OpenLog) -> list[tuple[int, str, bool]]:
        """Return the OIDs and names of the tables that have the comment of a leaf and are not
        attached, and whether this session may read them.
        """
        found = ask(log, "detached", comment=leaf_comment(log.table))
        return [(int(oid), str(name), bool(is_readable)) for oid, name, is_readable in found]

    def _record(self, log: OpenLog, name: str) -> tuple[int, _Detached]:
        """Record that ``finish`` must drop a table; return the entry's number and the table."""
        # This lock keeps the table from being replaced by another one of its name.
        run(log, f"LOCK TABLE {sibling(log.table, name)} IN ACCESS SHARE MODE")
        oid = value_of(log, f"SELECT {literal(sibling(log.table, name))}::regclass::oid::bigint")
        number = next_number(log)
        add_entry(log, EntryKind.DETACHED, number, json.dumps({"oid": oid, "name": name}))
        return number, _Detached(oid, name)

    def _finish(self, log: OpenLog, number: int, table: _Detached) -> int | None:
        """Put back into the log those rows of a recorded table that are not done, drop the table,
        and delete the entry that records it. Return the number of rows that were put back. If the
        table is no longer the recorded table (it was dropped, renamed or attached, or has another
        comment), only delete the entry, and return None.
        """
        name, put_back = sibling(log.table, table.name), None
        if self._is_detached(log, table):
            run(log, f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            if self._is_detached(log, table):
                put_back = self._put_back(log, name)
                run(log, f"DROP TABLE {name}")
        delete_entry(log, EntryKind.DETACHED, number)
        return put_back

    def _is_detached(self, log: OpenLog, table: _Detached) -> bool:
        return any(_Detached(oid, name) == table for oid, name, _ in self._detached(log))

    def _put_back(self, log: OpenLog, table: str) -> int:
        """Put rows of a table that are not done back into the log, and return their number."""
        log_name = table_of(log.table)
        column, status = columns_of(log.table)
        columns, values = copied_rows(log, table)
        try:
            return value_of(
                log,
                f"WITH put_back AS (INSERT INTO {log_name} ({columns}) OVERRIDING SYSTEM VALUE "
                f"SELECT {values} FROM {table} AS r WHERE r.{status} NOT IN ('S', 'W') AND NOT "
                f"EXISTS (SELECT FROM {log_name} AS there WHERE there.{column} = r.{column}) "
                "RETURNING 1) SELECT count(*) FROM put_back",
            )
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _CHECK_VIOLATION:
                raise
            raise DatabaseError(
                f"the table {table} has rows to put back, and the log {log} has no leaf for "
                "them, so nothing was changed. Attach the table again, with ALTER TABLE "
                f"{log_name} ATTACH PARTITION {table}; a purge removes it later"
            ) from None

    def _check_known(self, log: OpenLog, known: Sequence[Leaf]) -> None:
        """Raise LogInUse if another session has changed the leaves since they were read."""
        if self.leaves(log) != list(known):
            raise LogInUse(
                f"another session has changed the leaves of the log {log} in the meantime. "
                "Run the command again"
            )

    def _refuse_readers(self, log: OpenLog, until: float) -> None:
        """Raise LogInUse if a session may still read the leaf that is being removed. The check is
        repeated until ``until``, a time of the monotonic clock.
        """
        while True:
            run(log, "SELECT pg_catalog.pg_stat_clear_snapshot()")
            readers = sessions_in_words(ask(log, "readers"))
            if not readers:
                return
            if monotonic() + _PAUSE >= until:
                break
            sleep(_PAUSE)
        raise LogInUse(
            f"a leaf of the log {log} cannot be removed yet, because an open snapshot may read it: "
            f"{'; '.join(readers)}"
        )


def _recorded(log: OpenLog, entry: Entry) -> _Detached:
    """Return the table that an entry records. Raises DatabaseError."""
    try:
        content = json.loads(entry.content)
        return _Detached(int(content["oid"]), str(content["name"]))
    except (TypeError, ValueError, KeyError) as error:
        raise unreadable(log, EntryKind.DETACHED, entry.number, error) from None


def _detach(log_name: str, table: str) -> str:
    return f"ALTER TABLE {log_name} DETACH PARTITION {table}"


def _commit_at_once(log: OpenLog) -> None:
    """Let the commit return without waiting for the disk or a standby, since writers wait for the
    commit.

    After a crash immediately after the commit, the leaves are as they were before it, and later
    commits are lost, too. Dropping the table of a removed leaf waits for the disk in any case.
    """
    run(log, "SET LOCAL synchronous_commit = off")


def _take_leaves(log: OpenLog, tables: Sequence[str]) -> None:
    # Each session that reads or writes the log holds a lock on the log's table, so only a vacuum or
    # a session that names the leaf can conflict.
    run(log, f"LOCK TABLE ONLY {', ONLY '.join(tables)} IN ACCESS EXCLUSIVE MODE NOWAIT")
