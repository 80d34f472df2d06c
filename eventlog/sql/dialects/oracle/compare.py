"""What is compiled against what is installed, as actions: create, replace, drop (spec/triggers.md 9, 10).

Oracle keeps no comment on a trigger, so the hash of what was compiled stands in its source; what somebody changed by
hand shows by comparing the rest of the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from eventlog.sql.dialects.oracle.compile import Compiled, CompiledTrigger
from eventlog.sql.dialects.oracle.installed import MARKER, Installed, TableName, Trigger
from eventlog.sql.dialects.oracle.script import unless
from eventlog.sql.dialects.oracle.text import qualified
from eventlog.sql.triggers.plan import Action, TableSql

_NO_TRIGGER = -4080

TriggerName = tuple[str, str]
"""Schema and name of a trigger."""


def by_table(compiled: Iterable[Compiled]) -> list[list[Compiled]]:
    """What is declared for each table, in the order of the first."""
    tables: dict[tuple[str | None, str], list[Compiled]] = {}
    for one in compiled:
        tables.setdefault((one.schema, one.table), []).append(one)
    return list(tables.values())


def table_sql(compiled: Sequence[Compiled]) -> TableSql:
    """All that is declared for one table, as SQL for a database that has none of it, and the way back."""
    triggers = _triggers(compiled)
    return TableSql(
        table=table_name(compiled),
        digest=digest_of(_digest(trigger.marker) for trigger in triggers),
        create=tuple(trigger.statement for trigger in triggers),
        drop=tuple(drop_trigger(compiled[0].schema, trigger.name) for trigger in triggers),
    )


def table_name(compiled: Sequence[Compiled]) -> str:
    """A table as actions name it."""
    schema, table = compiled[0].schema, compiled[0].table
    return table if schema is None else f"{schema}.{table}"


def digest_of(digests: Iterable[str]) -> str:
    """One hash of those of a table's triggers."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def drop_trigger(schema: str | None, name: str) -> str:
    """A statement that drops a trigger, if it is there."""
    return unless(f"DROP TRIGGER {qualified(schema, name)}", _NO_TRIGGER)


def claims(compiled: Iterable[Compiled]) -> dict[TriggerName, TableName]:
    """Which table's trigger each name is to be, of all that is declared."""
    return {
        (one.schema or "", trigger.name): (one.schema or "", one.table) for one in compiled for trigger in one.triggers
    }


def compare_table(
    compiled: Sequence[Compiled], installed: Installed, claimed: Mapping[TriggerName, TableName] | None = None
) -> Action:
    """What is to be done for one table, given all that is declared for it.

    ``claimed``: the names of all tables' triggers (``claims``). A name is a schema's, not a table's (ORA-04095), and a
    trigger goes with its table when that is renamed: whoever claims a name takes it from the other table that is
    declared. Triggers of tables that are no longer watched are gone before (``drop_all``).
    """
    claimed = claims(compiled) if claimed is None else claimed
    declared = _triggers(compiled)
    place = (compiled[0].schema or "", compiled[0].table)
    old = installed.on(place)
    name, create = table_name(compiled), tuple(trigger.statement for trigger in declared)
    taken = tuple(
        drop_trigger(trigger.schema, trigger.name)
        for other in sorted(set(claimed.values()) - {place})
        for trigger in installed.on(other)
        if claimed.get((trigger.schema, trigger.name)) == place
    )
    if not old:
        return Action("create", name, "watched, and not captured yet", (*taken, *create))
    reasons = list(_differences(declared, old))
    if not reasons:
        return Action("unchanged", name, "as declared")
    kept = {trigger.name for trigger in declared}
    # The new ones first: CREATE OR REPLACE leaves no moment in between without a trigger.
    gone = tuple(
        drop_trigger(trigger.schema, trigger.name)
        for trigger in old
        if claimed.get((trigger.schema, trigger.name)) is None
    )
    enabled = tuple(
        f"ALTER TRIGGER {qualified(trigger.schema, trigger.name)} ENABLE"
        for trigger in old
        if trigger.name in kept and not trigger.is_enabled
    )
    return Action("replace", name, "; ".join(dict.fromkeys(reasons)), (*taken, *create, *enabled, *gone))


def _differences(declared: Sequence[CompiledTrigger], old: Sequence[Trigger]) -> Iterable[str]:
    present = {trigger.name: trigger for trigger in old}
    for trigger in declared:
        found = present.pop(trigger.name, None)
        if found is None:
            yield f"trigger {trigger.name} is missing"
        elif found.marker != trigger.marker:
            yield "the watch, its table or the templates have changed"
        elif _behind_marker(found.source or "") != _behind_marker(trigger.statement):
            yield f"trigger {trigger.name} was changed by hand"
        elif not found.is_enabled:
            yield f"trigger {trigger.name} is disabled"
        elif not found.is_valid:
            yield f"trigger {trigger.name} is invalid"
    for name in present:
        yield f"trigger {name} is one too many"


def _behind_marker(source: str) -> str:
    # What is before it the database writes in its own way.
    found = MARKER.search(source)
    return "" if found is None else source[found.end() :].rstrip()


def drop_all(installed: Installed, *, kept: Iterable[TableName], reason: str) -> list[Action]:
    """What takes our triggers away, but for those of the tables of ``kept``."""
    there = set(kept)
    return [
        Action(
            "drop",
            ".".join(table),
            reason,
            tuple(drop_trigger(trigger.schema, trigger.name) for trigger in installed.on(table)),
        )
        for table in installed.tables
        if table not in there
    ]


def _triggers(compiled: Iterable[Compiled]) -> list[CompiledTrigger]:
    return [trigger for one in compiled for trigger in one.triggers]


def _digest(marker: str) -> str:
    found = MARKER.match(f"-- {marker}")
    assert found is not None
    return found[2]
