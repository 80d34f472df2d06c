# ruff: noqa: S608 - quoted names
"""The conversion of a log's table into a partitioned table, and back (spec/event-log.md 14.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from eventlog.errors import DatabaseError, number_of
from eventlog.sql.dialects.postgresql.partitions.leaf_sql import (
    add_check,
    allow_inserts,
    ask,
    attach,
    changes,
    check_function,
    check_name,
    columns_of,
    copy_rows,
    create_leaf,
    deny_table,
    drop_check,
    drop_function,
    free_names,
    leaf_comment,
    owner_of,
    run,
    sibling,
    table_of,
    take,
    value_of,
)
from eventlog.sql.dialects.postgresql.session import WAKE
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.port.leaves import Leaf
from eventlog.sql.port.sql_files import PlainRow, literal, quote_identifier

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog


class _Identity(NamedTuple):
    """How the record_ids of a log are numbered."""

    clause: str
    """The clause for ``ALTER COLUMN ... ADD``."""
    sequence: str
    """The quoted name of the sequence."""
    following: int
    """The next number of the sequence."""
    rights: Sequence[str]


def _index_name(log: LogTable, leaf: str, place: int) -> str:
    return cut_name(f"{leaf}_{place}x", log.max_identifier)


def _comment_of(log: OpenLog, table: str) -> str | None:
    statement = "SELECT obj_description(to_regclass(:name), 'pg_class')"
    comment: str | None = log.connection.execute(sa.text(statement), {"name": table}).scalar()
    return comment


def _count(log: OpenLog, tables: Sequence[str], most: int) -> int:
    """Return the number of rows of tables. Raises DatabaseError if there are more than ``most``."""
    rows = sum(
        value_of(log, f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {most + 1:d}) AS rows")
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
    for right, grantee, is_grantable in ask(log, "rights", name=name):
        # Both are quoted names or SQL keywords; braces in names are escaped.
        words = (str(one).replace("{", "{{").replace("}", "}}") for one in (right, grantee))
        privilege, who = words
        option = " WITH GRANT OPTION" if is_grantable else ""
        granted.append(f"{privilege} ON {{table}} TO {who}{option}")
    return granted


def _rename_index(log: OpenLog, name: str, new: str) -> None:
    # This renames a constraint that the index serves, too.
    if name != new:
        run(log, f"ALTER INDEX {sibling(log.table, name)} RENAME TO {quote_identifier(new)}")


@contextmanager
def _locked(log: OpenLog) -> Iterator[None]:
    """Change a log as its owner, while this session alone can use its table."""
    with changes(log):
        take(log)
        yield


def prepare(log: OpenLog) -> None:
    """Do what ``Partitioning.prepare`` describes."""
    check, table = quote_identifier(check_name(log.table)), table_of(log.table)
    known = ask(log, "check", name=check_name(log.table))
    found = known[0][0] if known else None
    if found is None:
        with _locked(log):
            allow_inserts(log)
            run(log, f"ALTER FUNCTION {check_function(log.table)}(bigint) OWNER TO {owner_of(log)}")
            run(log, f"GRANT EXECUTE ON FUNCTION {check_function(log.table)}(bigint) TO PUBLIC")
            column, _ = columns_of(log.table)
            run(
                log,
                f"ALTER TABLE {table} ADD CONSTRAINT {check} "
                f"CHECK ({check_function(log.table)}({column})) NOT VALID",
            )
    log.commit()
    if not found:
        run(log, f"ALTER TABLE {table} VALIDATE CONSTRAINT {check}")
        log.commit()


def partition(log: OpenLog, width: int) -> list[Leaf]:
    """Do what ``Partitioning.partition`` describes."""
    table = table_of(log.table)
    first, second, third = free_names(log, 1, 3)
    with _locked(log):
        owner = owner_of(log)
        column, _ = columns_of(log.table)
        highest = value_of(log, f"SELECT coalesce(max({column}), 0) FROM {table}")
        identity = _take_identity(log, column)
        bound = max(highest + 1, identity.following)
        rights = _rights(log, table)
        comment = _comment_of(log, table)
        names = ask(log, "index_names", name=table)
        _rename_away(log, table, first, names)
        leaf = sibling(log.table, first)
        run(
            log,
            f"CREATE TABLE {table} (LIKE {leaf} INCLUDING ALL EXCLUDING IDENTITY "
            f"EXCLUDING STATISTICS) PARTITION BY RANGE ({column})",
        )
        # The table itself does not need the CHECK, and its leaves would inherit it.
        drop_check(log, table)
        _make_log(log, table, column, identity, rights, comment)
        run(log, f"ALTER TABLE {table} OWNER TO {owner}")
        create_leaf(log, second)
        create_leaf(log, third)
        add_check(log, third)
        leaves = [
            Leaf(first, None, bound),
            Leaf(second, bound, bound + width),
            Leaf(third, bound + width, None),
        ]
        for one in leaves:
            attach(log, one)
        _rename_parents(log, leaf, names)
        allow_inserts(log)
    log.commit()
    return leaves


def unpartition(log: OpenLog, max_copied: int) -> int:
    """Do what ``Partitioning.unpartition`` describes."""
    table = table_of(log.table)
    with _locked(log):
        column, _ = columns_of(log.table)
        largest, *others = (name for name, _ in ask(log, "sizes"))
        home = sibling(log.table, largest)
        copied = _count(log, [sibling(log.table, one) for one in others], max_copied)
        identity = _take_identity(log, column)
        rights = _rights(log, table)
        comment = _comment_of(log, table)
        names = ask(log, "index_parents", name=home)
        for one in (largest, *others):
            run(log, f"ALTER TABLE {table} DETACH PARTITION {sibling(log.table, one)}")
        run(log, f"DROP TABLE {table}")
        for one in others:
            leaf = sibling(log.table, one)
            copy_rows(log, leaf, home)
            run(log, f"DROP TABLE {leaf}")
        drop_check(log, home)
        run(log, drop_function(log.table))
        own = {index: name for index, name, _ in ask(log, "index_names", name=home)}
        for index, name, _ in names:
            _rename_index(log, own[index], name)
        run(log, f"ALTER TABLE {home} RENAME TO {quote_identifier(log.table.name)}")
        _make_log(log, table, column, identity, rights, comment)
    log.commit()
    return copied


def _take_identity(log: OpenLog, column: str) -> _Identity:
    """Remove the identity of the record_id column from the table, and return its definition."""
    found = ask(log, "numbering", record_id_column=log.table.column("record_id"))
    if not found:
        raise DatabaseError(
            f"the record_ids of the log {log} do not come from an identity column. Only a "
            "log that `eventlog db upgrade` made can be partitioned"
        )
    name, sequence, generated, increment, cache, lowest, highest, cycles, start = found[0]
    # No other session draws a number meanwhile: an INSERT needs a lock of the table.
    drawn = f"CASE WHEN is_called THEN {increment:d} ELSE 0 END"
    following = value_of(log, f"SELECT last_value + {drawn} FROM {name}")
    identity = _Identity(
        f"GENERATED {generated} AS IDENTITY (SEQUENCE NAME {sibling(log.table, sequence)} "
        f"START {start:d} INCREMENT {increment:d} MINVALUE {lowest:d} MAXVALUE {highest:d} "
        f"CACHE {cache:d} {'' if cycles else 'NO '}CYCLE)",
        sibling(log.table, sequence),
        following,
        _rights(log, name),
    )
    run(log, f"ALTER TABLE {table_of(log.table)} ALTER COLUMN {column} DROP IDENTITY")
    return identity


def _rename_away(log: OpenLog, table: str, leaf: str, names: Sequence[PlainRow]) -> None:
    """Give the table of a log the name of a leaf, and the table's indexes the names of a leaf's
    indexes. Drop the trigger of the table.
    """
    trigger = quote_identifier(log.table.own_name("_tgr_{}_i_1"))
    run(log, f"DROP TRIGGER IF EXISTS {trigger} ON {table}")
    for place, (_, name, _) in enumerate(names):
        _rename_index(log, name, _index_name(log.table, leaf, place))
    run(log, f"ALTER TABLE {table} RENAME TO {quote_identifier(leaf)}")
    comment = literal(leaf_comment(log.table))
    run(log, f"COMMENT ON TABLE {sibling(log.table, leaf)} IS {comment}")
    deny_table(log, sibling(log.table, leaf))


def _rename_parents(log: OpenLog, leaf: str, names: Sequence[PlainRow]) -> None:
    """Give the log's indexes the names that the indexes of its first leaf had. All indexes get
    temporary names first, since a new name may be the present name of another index.
    """
    former = {index: name for index, name, _ in names}
    wanted = [(now, former[index]) for index, now, _ in ask(log, "index_parents", name=leaf)]
    for place, (now, _) in enumerate(wanted):
        _rename_index(log, now, f"_eventlog_{place}")
    for place, (_, name) in enumerate(wanted):
        _rename_index(log, f"_eventlog_{place}", name)


def _make_log(
    log: OpenLog,
    table: str,
    column: str,
    identity: _Identity,
    rights: Sequence[str],
    comment: str | None,
) -> None:
    """Give a table everything that the log's table had, except its rows."""
    run(log, f"ALTER TABLE {table} ALTER COLUMN {column} ADD {identity.clause}")
    value_of(log, f"SELECT setval({literal(identity.sequence)}, {identity.following:d}, false)")
    deny_table(log, table)
    for right in rights:
        run(log, f"GRANT {right.format(table=f'TABLE {table}')}")
    for right in identity.rights:
        run(log, f"GRANT {right.format(table=f'SEQUENCE {identity.sequence}')}")
    text = "NULL" if comment is None else literal(comment)
    run(log, f"COMMENT ON TABLE {table} IS {text}")
    for statement in WAKE.create(log.table):
        run(log, statement)
