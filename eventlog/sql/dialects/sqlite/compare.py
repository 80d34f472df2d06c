"""What is compiled against what is installed, as actions: create, replace, drop (spec/triggers.md 9, 10).

SQLite keeps the text of a trigger as it was written, and rewrites it when a table or column is renamed: so texts are
compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from eventlog.sql.dialects.sqlite.compile import Compiled, columns_of
from eventlog.sql.dialects.sqlite.installed import Installed, StoredTrigger
from eventlog.sql.dialects.sqlite.text import quote_identifier
from eventlog.sql.triggers.compare import declared_otherwise
from eventlog.sql.triggers.plan import Action, TableSql


def compare_table(
    table: str, compiled: Sequence[Compiled], installed: Installed, claimed: Mapping[str, str] | None = None
) -> Action:
    """What is to be done for one table, given all that is declared for it.

    ``claimed``: which table's trigger each name is to be, of all that is declared. A name is the file's, not a table's,
    and a trigger goes with its table when that is renamed: whoever claims a name takes it from the other table that is
    declared. Triggers of tables that are no longer watched are gone before (``drop_all``).
    """
    claimed = {one.name: table for one in compiled} if claimed is None else claimed
    old = installed.on(table)
    create = tuple(one.statement for one in compiled)
    others = set(claimed.values()) - {table}
    taken = _drop(
        trigger for trigger in installed.ours if trigger.table in others and claimed.get(trigger.name) == table
    )
    if not old:
        return Action("create", table, "watched, and not captured yet", (*taken, *create))
    reasons = list(_differences(compiled, old))
    if not reasons:
        return Action("unchanged", table, "as declared")
    own = _drop(trigger for trigger in old if claimed.get(trigger.name, table) == table)
    return Action("replace", table, "; ".join(dict.fromkeys(reasons)), (*taken, *own, *create))


def _differences(compiled: Sequence[Compiled], old: Sequence[StoredTrigger]) -> Iterable[str]:
    present = {trigger.name: trigger for trigger in old}
    for one in compiled:
        trigger = present.pop(one.name, None)
        if trigger is None:
            yield f"trigger {one.name} is missing"
        elif trigger.digest != one.digest:
            yield from declared_otherwise(columns_of(trigger.sql), one.columns, one.present)
        elif trigger.sql != one.statement:
            yield f"trigger {one.name} was changed by hand, or something it names was renamed"
    for name in present:
        yield f"trigger {name} is one too many"


def drop_all(installed: Installed, *, kept: Collection[str], reason: str) -> list[Action]:
    """What takes our triggers away, but for those of the tables that are kept."""
    tables = dict.fromkeys(trigger.table for trigger in installed.ours if trigger.table not in kept)
    return [Action("drop", table, reason, tuple(_drop(installed.on(table)))) for table in tables]


def table_sql(table: str, compiled: Sequence[Compiled]) -> TableSql:
    """All that is declared for one table, for a database that has none of it, and the way back."""
    return TableSql(
        table=table,
        digest=digest_of(one.digest for one in compiled),
        create=tuple(one.statement for one in compiled),
        drop=tuple(f"DROP TRIGGER {quote_identifier(one.name)}" for one in compiled),
    )


def digest_of(digests: Iterable[str]) -> str:
    """One hash of those of a table's triggers."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _drop(triggers: Iterable[StoredTrigger]) -> list[str]:
    return [f"DROP TRIGGER {quote_identifier(trigger.name)}" for trigger in triggers]
