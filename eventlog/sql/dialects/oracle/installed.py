"""What a database has: the log, our triggers, and what stands beside them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from eventlog.errors import LogTableError
from eventlog.sql.dialects.oracle.session import fetch
from eventlog.sql.dialects.oracle.text import own_name, qualified
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements

MARKER: Final = re.compile("-- (eventlog sha256:([0-9a-f]{64}) log (.*))")
"""The comment in the sources of our triggers, whichever log they write: whole, the hash, the log as SQL."""

TableName = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger as the database has it. ``source`` is that of one of ours; else it is None."""

    schema: str
    name: str
    table: TableName
    type: str
    event: str
    is_enabled: bool
    is_valid: bool
    source: str | None = None

    @property
    def marker(self) -> str | None:
        """The comment that makes it one of ours."""
        found = None if self.source is None else MARKER.search(self.source)
        return None if found is None else found[1].rstrip()

    @property
    def digest(self) -> str:
        """The hash of what was compiled, of one of ours."""
        found = MARKER.search(self.source or "")
        return "" if found is None else found[2]


@dataclass(frozen=True, slots=True)
class Installed:
    """The triggers of all tables, in the order of their names; those of one log among them are ``ours``.

    ``follows``: the triggers that a trigger FOLLOWS, all by schema and name.
    """

    triggers: Mapping[TableName, Sequence[Trigger]]
    log: str
    follows: Mapping[tuple[str, str], Collection[tuple[str, str]]] = field(default_factory=dict)

    def owns(self, trigger: Trigger) -> bool:
        """Whether a trigger writes this log."""
        return trigger.marker is not None and trigger.marker.endswith(f" log {self.log}")

    def on(self, table: TableName) -> list[Trigger]:
        """Ours on a table."""
        return [trigger for trigger in self.triggers.get(table, ()) if self.owns(trigger)]

    @property
    def tables(self) -> list[TableName]:
        """The tables that have triggers of ours."""
        return [table for table, found in sorted(self.triggers.items()) if any(map(self.owns, found))]


def find_log(conn: Connection, log: LogTable) -> LogTable:
    """The log as it is there. Raises LogTableError if it is not."""
    found = fetch(conn, statements(__package__, "installed.sql")["log"], {"owner": log.schema, "name": log.name})
    if not found:
        raise LogTableError(f"the log {log} is missing: run `eventlog db upgrade` first")
    return replace(log, schema=found[0][0], name=found[0][1])


def read_installed(conn: Connection, log: LogTable) -> Installed:
    """The triggers of a log, and those of others beside them."""
    sources: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for schema, name, type_, line in fetch(conn, statements(__package__, "installed.sql")["sources"]):
        if type_ == "TRIGGER":
            sources[schema, name].append(line or "")
    triggers: defaultdict[TableName, list[Trigger]] = defaultdict(list)
    for schema, name, owner, table, type_, event, status, validity in fetch(
        conn, statements(__package__, "installed.sql")["triggers"]
    ):
        lines = sources.get((schema, name))
        triggers[owner, table].append(
            Trigger(
                schema=schema,
                name=name,
                table=(owner, table),
                type=type_,
                event=event,
                is_enabled=status == "ENABLED",
                is_valid=validity == "VALID",
                source=None if lines is None else "".join(lines),
            )
        )
    follows: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for schema, name, other_schema, other in fetch(conn, statements(__package__, "installed.sql")["ordering"]):
        follows[schema, name].add((other_schema, other))
    return Installed(dict(triggers), qualified(log.schema, log.name), dict(follows))


def shows_triggers(conn: Connection, schema: str) -> bool:
    """Whether this session is shown the triggers on a schema's tables: where it is not, none of them is missing."""
    return bool(fetch(conn, statements(__package__, "installed.sql")["sees_triggers"], {"owner": schema}))


def missing_functions(conn: Connection, log: LogTable) -> list[str]:
    """The names of the functions of a log that are not there, as a log that somebody else made has none."""
    names = {"quote": own_name("proc_{}_quote", log.name), "base64": own_name("proc_{}_base64", log.name)}
    found = fetch(conn, statements(__package__, "installed.sql")["functions"], {"owner": log.schema, **names})
    there = {row[0] for row in found}
    return [name for name in names.values() if name not in there]
