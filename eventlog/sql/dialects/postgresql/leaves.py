# ruff: noqa: S608 - quoted names
"""A log of PostgreSQL that is partitioned by record_id (spec/event-log.md 14.1).

A leaf is attached without a scan. PostgreSQL scans a table that it attaches, unless a valid CHECK
implies the bounds of the partition. Such a CHECK would reject rows while the leaf still has its
old, wider bounds. So the CHECK of the lowest leaf and of the open leaf, whose bounds change later,
calls a function that returns ``true``. A transaction that has locked the log verifies with the
index of the key that the leaf has no row outside of the range, replaces the body of the function by
the condition of the range, attaches the leaf, and restores ``true`` before it commits. No other
session ever sees the condition. The leaves in between, one of which gets the new rows, have no
CHECK, because a CHECK makes each INSERT slower.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from eventlog.core.clock import monotonic, sleep
from eventlog.errors import DatabaseError, LogInUse, number_of
from eventlog.sql.dialects.postgresql.log_session import OTHER_PLANS
from eventlog.sql.log.internal_tables import (
    Entry,
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.leaves import MAX_MOVED, Leaf, Partitioning, UnrecordedLeaf
from eventlog.sql.port.sql_files import (
    literal,
    qualified,
    quote_identifier,
    run_as_it_stands,
    statements,
)

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog

_SQL: Final = statements(__package__, "leaves.sql")
WAIT: Final = 20
"""The milliseconds that a change waits for the lock of the log. Writers that come later wait during
this time and during the change itself, which takes some milliseconds; so consecutive statements are
sent together.
"""
_MAX_LOCK_SECONDS: Final = 0.015
_PAUSE: Final = 0.002
"""The seconds after locking the log in which a removal checks for database snapshots, and the
seconds between two checks. Most statements of an application end in that time.
"""
_LOCK_NOT_AVAILABLE: Final = "55P03"
_DEADLOCK: Final = "40P01"
_UNDEFINED_TABLE: Final = "42P01"
"""The SQLSTATE of a table that another session has dropped: two purges finish the same removal."""
_CHECK_VIOLATION: Final = "23514"
"""The SQLSTATE of a row for which the log has no leaf."""
_BOUND: Final = re.compile(r"FROM \(('?-?\d+'?|MINVALUE)\) TO \(('?-?\d+'?|MAXVALUE)\)")
_MAX_BYTES: Final = 55
"""The maximum number of bytes of the base of a leaf's name; the names of its indexes are longer."""


class _Identity(NamedTuple):
    """How the record_ids of a log are numbered."""

    clause: str
    """The clause for ``ALTER COLUMN ... ADD``."""
    sequence: str
    """The quoted name of the sequence."""
    following: int
    """The next number of the sequence."""
    rights: Sequence[str]


class _Detached(NamedTuple):
    """A table that a purge has detached, as its entry of ``<log>_state`` records it."""

    oid: int
    """Its OID. A table of the same name that was restored from a dump has another one."""
    name: str


class PostgresPartitioning(Partitioning):
    """Range partitions of a log's table."""

    def __init__(self, parameters: str, wake: Callable[[LogTable], Sequence[str]]) -> None:
        """``parameters`` are the storage parameters of a leaf as SQL, ``wake`` makes the statements
        of the trigger that wakes a publisher.
        """
        self._parameters = parameters
        self._wake = wake

    def leaves(self, log: OpenLog) -> list[Leaf]:
        read = _ask(log, "leaves", function=f"{_function(log.table)}(bigint)")
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
        return {name: int(size) for name, size in _ask(log, "sizes")}

    def is_owner(self, log: OpenLog) -> bool:
        return bool(_ask(log, "owns")[0][0])

    def dependents(self, log: OpenLog) -> list[str]:
        trigger = log.table.own_name("_tgr_{}_i_1")
        is_partitioned = log.table.is_partitioned
        return [
            str(one)
            for (one,) in _ask(log, "dependents", trigger=trigger, is_partitioned=is_partitioned)
        ]

    def publications(self, log: OpenLog) -> list[str]:
        return [str(name) for (name,) in _ask(log, "publications")]

    def prepare(self, log: OpenLog) -> None:
        check, table = quote_identifier(_check_name(log.table)), _name(log.table)
        known = _ask(log, "check", name=_check_name(log.table))
        found = known[0][0] if known else None
        if found is None:
            with _locked(log):
                self._allow_inserts(log)
                _run(log, f"ALTER FUNCTION {_function(log.table)}(bigint) OWNER TO {_owner(log)}")
                _run(log, f"GRANT EXECUTE ON FUNCTION {_function(log.table)}(bigint) TO PUBLIC")
                column, _ = _columns(log.table)
                _run(
                    log,
                    f"ALTER TABLE {table} ADD CONSTRAINT {check} "
                    f"CHECK ({_function(log.table)}({column})) NOT VALID",
                )
        log.commit()
        if not found:
            _run(log, f"ALTER TABLE {table} VALIDATE CONSTRAINT {check}")
            log.commit()

    def partition(self, log: OpenLog, width: int) -> list[Leaf]:
        table = _name(log.table)
        first, second, third = self._free_names(log, 1, 3)
        with _locked(log):
            owner = _owner(log)
            column, _ = _columns(log.table)
            highest = _value(log, f"SELECT coalesce(max({column}), 0) FROM {table}")
            identity = self._take_identity(log, column)
            bound = max(highest + 1, identity.following)
            rights = _rights(log, table)
            comment = _comment_of(log, table)
            names = _ask(log, "index_names", name=table)
            self._rename_away(log, table, first, names)
            leaf = _sibling(log.table, first)
            _run(
                log,
                f"CREATE TABLE {table} (LIKE {leaf} INCLUDING ALL EXCLUDING IDENTITY "
                f"EXCLUDING STATISTICS) PARTITION BY RANGE ({column})",
            )
            # The table itself does not need the CHECK, and its leaves would inherit it.
            self._drop_check(log, table)
            self._make_log(log, table, column, identity, rights, comment)
            _run(log, f"ALTER TABLE {table} OWNER TO {owner}")
            self._create_leaf(log, second)
            self._create_leaf(log, third)
            self._add_check(log, third)
            self._attach(log, Leaf(first, None, bound))
            self._attach(log, Leaf(second, bound, bound + width))
            self._attach(log, Leaf(third, bound + width, None))
            self._rename_parents(log, leaf, names)
            self._allow_inserts(log)
        log.commit()
        return [
            Leaf(first, None, bound),
            Leaf(second, bound, bound + width),
            Leaf(third, bound + width, None),
        ]

    def unpartition(self, log: OpenLog, max_copied: int) -> int:
        table = _name(log.table)
        with _locked(log):
            column, _ = _columns(log.table)
            largest, *others = (name for name, _ in _ask(log, "sizes"))
            home = _sibling(log.table, largest)
            copied = _count(log, [_sibling(log.table, one) for one in others], max_copied)
            identity = self._take_identity(log, column)
            rights = _rights(log, table)
            comment = _comment_of(log, table)
            names = _ask(log, "index_parents", name=home)
            for one in (largest, *others):
                _run(log, f"ALTER TABLE {table} DETACH PARTITION {_sibling(log.table, one)}")
            _run(log, f"DROP TABLE {table}")
            for one in others:
                leaf = _sibling(log.table, one)
                _run(log, f"INSERT INTO {home} SELECT * FROM {leaf}")
                _run(log, f"DROP TABLE {leaf}")
            self._drop_check(log, home)
            _run(log, _drop_function(log.table))
            own = {index: name for index, name, _ in _ask(log, "index_names", name=home)}
            for index, name, _ in names:
                _rename_index(log, own[index], name)
            _run(log, f"ALTER TABLE {home} RENAME TO {quote_identifier(log.table.name)}")
            self._make_log(log, table, column, identity, rights, comment)
        log.commit()
        return copied

    def cut(self, log: OpenLog, at: int) -> Leaf:
        known = self.leaves(log)
        head = known[-1]
        newest = max(int(leaf.name.rpartition("_")[2]) for leaf in known)
        (name,) = self._free_names(log, newest + 1, 1)
        new = Leaf(name, at, None)
        old_table, new_table = _sibling(log.table, head.name), _sibling(log.table, new.name)
        column, _ = _columns(log.table)
        with _changes(log):
            self._create_leaf(log, new.name)
            self._add_check(log, new.name)
            _commit_at_once(log)
            _take(log)
            self._check_known(log, known)
            _take_leaves(log, [old_table])
            beyond = f"FROM {old_table} WHERE {column} >= {at:d}"
            if (
                _value(log, f"SELECT count(*) FROM (SELECT {beyond} LIMIT {MAX_MOVED + 1}) AS rows")
                > MAX_MOVED
            ):
                raise DatabaseError(
                    f"the open leaf {head.name} of the log {log} has more than {MAX_MOVED:,} rows "
                    f"from record_id {at} on. Cut it at a higher record_id"
                )
            _run(log, f"ALTER TABLE {_name(log.table)} DETACH PARTITION {old_table}")
            _run(log, f"INSERT INTO {new_table} SELECT * {beyond}")
            _run(log, f"DELETE {beyond}")
            self._attach(log, head._replace(end=at))
            self._drop_check(log, old_table)
            self._attach(log, new)
            self._allow_inserts(log)
        log.commit()
        return head._replace(end=at)

    def remove(
        self, log: OpenLog, leaf: Leaf, stay: Collection[int], check: Callable[[], None]
    ) -> None:
        known = self.leaves(log)
        lowest, table = known[0], _sibling(log.table, leaf.name)
        home = _sibling(log.table, lowest.name)
        column, _ = _columns(log.table)
        if leaf not in known:
            raise LogInUse(
                f"another session has removed the leaf {leaf.name} of the log {log}, or cut it. "
                "Run the command again"
            )
        if leaf.end is None or len(known) < 2 or leaf != known[1]:
            raise DatabaseError(
                f"the leaf {leaf.name} of the log {log} cannot be removed. Remove the "
                "leaf above the lowest one first; only that leaf can be removed"
            )
        with _changes(log):
            _commit_at_once(log)
            self._record(log, leaf.name)
            _take(log)
            begun = monotonic()
            self._check_known(log, known)
            _take_leaves(log, [home, table])
            check()
            log_name = _name(log.table)
            _run(log, "; ".join(_detach(log_name, one) for one in (table, home)))
            if stay:
                numbers = ", ".join(f"{one:d}" for one in sorted(stay))
                _run(log, f"INSERT INTO {home} SELECT * FROM {table} WHERE {column} IN ({numbers})")
            self._attach(log, lowest._replace(end=leaf.end))
            self._allow_inserts(log)
            self._refuse_readers(log, begun + _MAX_LOCK_SECONDS)
        log.commit()

    def finish(self, log: OpenLog) -> int:
        entries = read_entries(log, EntryKind.DETACHED)
        log.commit()
        dropped = 0
        for entry in entries:
            with _changes(log):
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
        with _changes(log):
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
        return [_drop_function(log)]

    # The parts of a change

    def _detached(self, log: OpenLog) -> list[tuple[int, str, bool]]:
        """Return the OIDs and names of the tables that have the comment of a leaf and are not
        attached, and whether this session may read them.
        """
        found = _ask(log, "detached", comment=_comment(log.table))
        return [(int(oid), str(name), bool(is_readable)) for oid, name, is_readable in found]

    def _record(self, log: OpenLog, name: str) -> tuple[int, _Detached]:
        """Record that ``finish`` is to drop a table, and return the number of the entry."""
        # This lock keeps the table from being replaced by another one of its name.
        _run(log, f"LOCK TABLE {_sibling(log.table, name)} IN ACCESS SHARE MODE")
        oid = _value(log, f"SELECT {literal(_sibling(log.table, name))}::regclass::oid::bigint")
        number = next_number(log)
        add_entry(log, EntryKind.DETACHED, number, json.dumps({"oid": oid, "name": name}))
        return number, _Detached(oid, name)

    def _finish(self, log: OpenLog, number: int, table: _Detached) -> int | None:
        """Drop a recorded table, after its rows that are not done were put back into the log, and
        delete the entry. Return the number of these rows; None, and only delete the entry, if the
        table is not the recorded one any longer: it was dropped, renamed or attached, or has
        another comment.
        """
        name, put_back = _sibling(log.table, table.name), None
        if self._is_detached(log, table):
            _run(log, f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            if self._is_detached(log, table):
                put_back = self._put_back(log, name)
                _run(log, f"DROP TABLE {name}")
        delete_entry(log, EntryKind.DETACHED, number)
        return put_back

    def _is_detached(self, log: OpenLog, table: _Detached) -> bool:
        return any(_Detached(oid, name) == table for oid, name, _ in self._detached(log))

    def _put_back(self, log: OpenLog, table: str) -> int:
        """Put the rows of a table back into the log that are not done, and return their number."""
        log_name = _name(log.table)
        column, status = _columns(log.table)
        try:
            return _value(
                log,
                f"WITH put_back AS (INSERT INTO {log_name} OVERRIDING SYSTEM VALUE "
                f"SELECT r.* FROM {table} AS r WHERE r.{status} NOT IN ('S', 'W') AND NOT EXISTS "
                f"(SELECT FROM {log_name} AS there WHERE there.{column} = r.{column}) RETURNING 1) "
                "SELECT count(*) FROM put_back",
            )
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _CHECK_VIOLATION:
                raise
            raise DatabaseError(
                f"the table {table} has rows to put back, and the log {log} has no leaf for "
                "them, so nothing was changed. Attach the table again, with ALTER TABLE "
                f"{log_name} ATTACH PARTITION {table}; a purge removes it later"
            ) from None

    def _allow_inserts(self, log: OpenLog) -> None:
        """Make the function of the CHECKs true."""
        _run(log, _SQL["function"].format(function=_function(log.table), condition="true"))

    def _attach(self, log: OpenLog, leaf: Leaf) -> None:
        """Attach a leaf, after verifying with the index of its key that it has no row outside of
        its range.
        """
        table, column = (
            _sibling(log.table, leaf.name),
            quote_identifier(log.table.column("record_id")),
        )
        outside, inside = [], ["true"]
        if leaf.first is not None:
            outside.append(f"{column} < {leaf.first:d}")
            inside.append(f"$1 OPERATOR(pg_catalog.>=) {_number(leaf.first)}")
        if leaf.end is not None:
            outside.append(f"{column} >= {leaf.end:d}")
            inside.append(f"$1 OPERATOR(pg_catalog.<) {_number(leaf.end)}")
        # Each end needs its own index lookup: one index scan cannot find both.
        looks = [f"EXISTS (SELECT FROM {table} WHERE {condition})" for condition in outside]
        if looks and _value(log, f"SELECT {' OR '.join(looks)}"):
            raise DatabaseError(
                f"the leaf {leaf.name} of the log {log} has rows outside of its range "
                f"({' or '.join(outside)}), so nothing was changed. Correct these rows"
            )
        first = "MINVALUE" if leaf.first is None else f"{leaf.first:d}"
        end = "MAXVALUE" if leaf.end is None else f"{leaf.end:d}"
        function = _SQL["function"].format(
            function=_function(log.table), condition=" AND ".join(inside)
        )
        attach = (
            f"ALTER TABLE {_name(log.table)} ATTACH PARTITION {table} "
            f"FOR VALUES FROM ({first}) TO ({end})"
        )
        _run(log, f"{function}; {attach}")

    def _create_leaf(self, log: OpenLog, name: str) -> None:
        table = _sibling(log.table, name)
        _run(
            log,
            f"CREATE TABLE {table} (LIKE {_name(log.table)} INCLUDING ALL EXCLUDING IDENTITY "
            f"EXCLUDING COMMENTS) WITH ({self._parameters})",
        )
        _run(log, f"COMMENT ON TABLE {table} IS {literal(_comment(log.table))}")
        _run(log, f"ALTER TABLE {table} OWNER TO {_owner(log)}")
        _deny_others(log, "TABLE", table)

    def _add_check(self, log: OpenLog, name: str) -> None:
        """Add the CHECK to a new, empty leaf, so that its bounds can be changed later without a
        scan.
        """
        column, _ = _columns(log.table)
        _run(
            log,
            f"ALTER TABLE {_sibling(log.table, name)} "
            f"ADD CONSTRAINT {quote_identifier(_check_name(log.table))} "
            f"CHECK ({_function(log.table)}({column}))",
        )

    def _drop_check(self, log: OpenLog, table: str) -> None:
        check = quote_identifier(_check_name(log.table))
        _run(log, f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {check}")

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
            _run(log, "SELECT pg_catalog.pg_stat_clear_snapshot()")
            readers = _in_words(_ask(log, "readers"))
            if not readers:
                return
            if monotonic() + _PAUSE >= until:
                break
            sleep(_PAUSE)
        raise LogInUse(
            f"a leaf of the log {log} cannot be removed yet, because an open snapshot may read it: "
            f"{'; '.join(readers)}"
        )

    def _free_names(self, log: OpenLog, first: int, count: int) -> list[str]:
        """Return names of leaves, numbered from ``first`` on, that no table has. A table that was
        detached keeps its name.
        """
        names = (_leaf_name(log.table, number) for number in itertools.count(first))
        free = (
            name
            for name in names
            if not _ask(log, "has_relation", name=_sibling(log.table, name))[0][0]
        )
        return list(itertools.islice(free, count))

    def _take_identity(self, log: OpenLog, column: str) -> _Identity:
        """Remove the identity of the record_id column from the table, and return its definition."""
        found = _ask(log, "numbering", record_id_column=log.table.column("record_id"))
        if not found:
            raise DatabaseError(
                f"the record_ids of the log {log} do not come from an identity column. Only a "
                "log that `eventlog db upgrade` made can be partitioned"
            )
        name, sequence, generated, increment, cache, lowest, highest, cycles, start = found[0]
        # No other session draws a number meanwhile: an INSERT needs a lock of the table.
        drawn = f"CASE WHEN is_called THEN {increment:d} ELSE 0 END"
        following = _value(log, f"SELECT last_value + {drawn} FROM {name}")
        identity = _Identity(
            f"GENERATED {generated} AS IDENTITY (SEQUENCE NAME {_sibling(log.table, sequence)} "
            f"START {start:d} INCREMENT {increment:d} MINVALUE {lowest:d} MAXVALUE {highest:d} "
            f"CACHE {cache:d} {'' if cycles else 'NO '}CYCLE)",
            _sibling(log.table, sequence),
            following,
            _rights(log, name),
        )
        _run(log, f"ALTER TABLE {_name(log.table)} ALTER COLUMN {column} DROP IDENTITY")
        return identity

    def _rename_away(
        self, log: OpenLog, table: str, leaf: str, names: Sequence[tuple[Any, ...]]
    ) -> None:
        """Rename the table of a log and its indexes to those of a leaf, and drop its trigger."""
        trigger = quote_identifier(log.table.own_name("_tgr_{}_i_1"))
        _run(log, f"DROP TRIGGER IF EXISTS {trigger} ON {table}")
        for place, (_, name, _) in enumerate(names):
            _rename_index(log, name, _index_name(log.table, leaf, place))
        _run(log, f"ALTER TABLE {table} RENAME TO {quote_identifier(leaf)}")
        comment = literal(_comment(log.table))
        _run(log, f"COMMENT ON TABLE {_sibling(log.table, leaf)} IS {comment}")
        _deny_others(log, "TABLE", _sibling(log.table, leaf))

    def _rename_parents(self, log: OpenLog, leaf: str, names: Sequence[tuple[Any, ...]]) -> None:
        """Give the log's indexes the names that the indexes of its first leaf had; first others,
        since one index may have the name that the next one gets.
        """
        former = {index: name for index, name, _ in names}
        wanted = [(now, former[index]) for index, now, _ in _ask(log, "index_parents", name=leaf)]
        for place, (now, _) in enumerate(wanted):
            _rename_index(log, now, f"_eventlog_{place}")
        for place, (_, name) in enumerate(wanted):
            _rename_index(log, f"_eventlog_{place}", name)

    def _make_log(
        self,
        log: OpenLog,
        table: str,
        column: str,
        identity: _Identity,
        rights: Sequence[str],
        comment: str | None,
    ) -> None:
        """Give a table everything that the log's table had, except its rows."""
        _run(log, f"ALTER TABLE {table} ALTER COLUMN {column} ADD {identity.clause}")
        _value(log, f"SELECT setval({literal(identity.sequence)}, {identity.following:d}, false)")
        _deny_others(log, "TABLE", table)
        _deny_others(log, "SEQUENCE", identity.sequence)
        for right in rights:
            _run(log, f"GRANT {right.format(table=f'TABLE {table}')}")
        for right in identity.rights:
            _run(log, f"GRANT {right.format(table=f'SEQUENCE {identity.sequence}')}")
        text = "NULL" if comment is None else literal(comment)
        _run(log, f"COMMENT ON TABLE {table} IS {text}")
        for statement in self._wake(log.table):
            _run(log, statement)


# --- names ----------------------------------------------------------------------------------------


def _name(log: LogTable) -> str:
    return qualified(log.schema, log.name)


def _sibling(log: LogTable, name: str) -> str:
    """Return the quoted name of a relation in the schema of a log."""
    return qualified(log.schema, name)


def _columns(log: LogTable) -> tuple[str, str]:
    """Return the quoted names of the columns of record_id and status."""
    return quote_identifier(log.column("record_id")), quote_identifier(log.column("status"))


def _leaf_name(log: LogTable, number: int) -> str:
    return f"{cut_name(log.name, _MAX_BYTES - len(str(number)))}_{number}"


def _index_name(log: LogTable, leaf: str, place: int) -> str:
    return cut_name(f"{leaf}_{place}x", log.max_identifier)


def _check_name(log: LogTable) -> str:
    return log.own_name("chk_{}_leaf")


def _function(log: LogTable) -> str:
    return qualified(log.schema, log.own_name("proc_{}_leaf"))


def _drop_function(log: LogTable) -> str:
    # A detached table that somebody keeps may still have the CHECK, which then goes with it.
    return f"DROP FUNCTION IF EXISTS {_function(log)}(bigint) CASCADE"


def _comment(log: LogTable) -> str:
    """Return the comment of a leaf, without which no table is dropped."""
    return f"eventlog: leaf of the log {_name(log)}"


def _recorded(log: OpenLog, entry: Entry) -> _Detached:
    """Return the table that an entry records. Raises DatabaseError."""
    try:
        content = json.loads(entry.content)
        return _Detached(int(content["oid"]), str(content["name"]))
    except (TypeError, ValueError, KeyError) as error:
        raise unreadable(log, EntryKind.DETACHED, entry.number, error) from None


def _number(number: int) -> str:
    return f"({number:d})::pg_catalog.int8"


# --- statements -----------------------------------------------------------------------------------


def _ask(log: OpenLog, question: str, **parameters: object) -> list[Any]:
    statement = _SQL[question]
    if ":log" in statement:
        parameters["log"] = _name(log.table)
    return list(log.connection.execute(sa.text(statement), parameters).all())


def _run(log: OpenLog, statement: str) -> None:
    run_as_it_stands(log.connection, statement)


def _value(log: OpenLog, statement: str) -> int:
    options = {"no_parameters": True}
    return int(log.connection.exec_driver_sql(statement, execution_options=options).scalar_one())


def _owner(log: OpenLog) -> str:
    """Return the quoted owner of a log's table, who also owns the leaves."""
    return str(_ask(log, "owner")[0][0])


def _comment_of(log: OpenLog, table: str) -> str | None:
    statement = "SELECT obj_description(to_regclass(:name), 'pg_class')"
    comment: str | None = log.connection.execute(sa.text(statement), {"name": table}).scalar()
    return comment


def _count(log: OpenLog, tables: Sequence[str], most: int) -> int:
    """Return the number of rows of tables. Raises DatabaseError if they are more than ``most``."""
    rows = sum(
        _value(log, f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {most + 1:d}) AS rows")
        for table in tables
    )
    if rows > most:
        raise DatabaseError(
            f"more than {number_of(most, 'row')} of the log {log} would be copied while every "
            "writer waits. Purge it first, or allow more with --max-copied"
        )
    return rows


def _rights(log: OpenLog, name: str) -> list[str]:
    """Return the GRANT clauses for the rights of other roles on a relation, with ``{table}`` in
    place of its name.
    """
    granted = []
    for right, grantee, is_grantable in _ask(log, "rights", name=name):
        # Both are quoted names or SQL keywords; braces in names are escaped.
        words = (str(one).replace("{", "{{").replace("}", "}}") for one in (right, grantee))
        privilege, who = words
        option = " WITH GRANT OPTION" if is_grantable else ""
        granted.append(f"{privilege} ON {{table}} TO {who}{option}")
    return granted


def _deny_others(log: OpenLog, kind: str, name: str) -> None:
    """Take all rights on a TABLE or SEQUENCE from every role but its owner: those of the default
    privileges that a new one has, and those of the log that it was.
    """
    for (role,) in _ask(log, "grantees", name=name):
        _run(log, f"REVOKE ALL ON {kind} {name} FROM {role} CASCADE")


def _rename_index(log: OpenLog, name: str, new: str) -> None:
    # This renames a constraint that the index serves, too.
    if name != new:
        _run(log, f"ALTER INDEX {_sibling(log.table, name)} RENAME TO {quote_identifier(new)}")


def _in_words(sessions: Sequence[Any]) -> list[str]:
    return [
        f"prepared transaction {gid!r}"
        if gid is not None
        else f"session {pid}, user {user}, application {application!r}"
        + (f", transaction since {since:%Y-%m-%d %H:%M:%S}" if since else "")
        for pid, gid, user, application, since in sessions
    ]


# --- the log for oneself --------------------------------------------------------------------------


@contextmanager
def _locked(log: OpenLog) -> Iterator[None]:
    """Change a log as its owner, while this session alone can use its table."""
    with _changes(log):
        _take(log)
        yield


@contextmanager
def _changes(log: OpenLog) -> Iterator[None]:
    """Let the statements of this transaction wait only briefly for a lock, and roll back after an
    error. Raises LogInUse if another session has a lock.
    """
    try:
        _run(log, f"SET LOCAL lock_timeout = '{WAIT}ms'")
        for plan in OTHER_PLANS:
            _run(log, f"SET LOCAL {plan} = off")
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        log.connection.rollback()
        if state not in (_LOCK_NOT_AVAILABLE, _DEADLOCK, _UNDEFINED_TABLE):
            raise
        found = for_message(log.connection, lambda: _in_words(_ask(log, "holders"))) or ()
        log.connection.rollback()
        by = f" by {'; '.join(found)}" if found else ""
        raise LogInUse(f"the log {log} is in use{by}") from None
    except BaseException:
        log.connection.rollback()
        raise


def _detach(log_name: str, table: str) -> str:
    return f"ALTER TABLE {log_name} DETACH PARTITION {table}"


def _commit_at_once(log: OpenLog) -> None:
    """Let the commit return without waiting for the disk or a standby, since writers wait for it.

    After a crash immediately afterwards the leaves are as before, and later commits are lost, too.
    Dropping the table of a removed leaf waits for the disk in any case.
    """
    _run(log, "SET LOCAL synchronous_commit = off")


def _take(log: OpenLog) -> None:
    """Lock the table of a log for this session."""
    _run(log, f"LOCK TABLE ONLY {_name(log.table)} IN ACCESS EXCLUSIVE MODE")


def _take_leaves(log: OpenLog, tables: Sequence[str]) -> None:
    # Each session that reads or writes the log holds a lock on the log's table, so only a vacuum or
    # a session that names the leaf can conflict.
    _run(log, f"LOCK TABLE ONLY {', ONLY '.join(tables)} IN ACCESS EXCLUSIVE MODE NOWAIT")
