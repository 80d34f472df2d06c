"""What a plan of triggers tells people: warnings, and what no trigger sees (spec/triggers.md 1, 7.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventlog.sql.dialects.postgresql.compile import BEFORE, INSTEAD, ROW, Compiled
from eventlog.sql.dialects.postgresql.installed import MARKER, Facts, Installed
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers


def warnings(
    schema: str, declared: Sequence[TableTriggers], compiled: Sequence[Compiled], facts: Facts, installed: Installed
) -> list[str]:
    """Sentences on what is declared; ``compiled`` stands in the same order."""
    sentences: list[str] = []
    of_each = [one for one in compiled if not one.is_replicated]
    for triggers, one in zip(declared, of_each, strict=True):
        sentences += _keys(triggers, one)
        sentences += _replicated(triggers, one)
        sentences += _filtered(schema, triggers, one, facts)
        sentences += _order(one, installed)
        sentences += _partitions(one, installed)
    return list(dict.fromkeys(sentences))


def _keys(triggers: TableTriggers, compiled: Compiled) -> Iterable[str]:
    if not (isinstance(triggers, ClassTriggers) and triggers.keys_may_shift):
        return
    how = (
        "logged a statement"
        if "u" in compiled.by_statement
        else "still logged row by row, since the table is "
        + ("partitioned" if triggers.table.partitioned else "in an inheritance tree")
    )
    yield (
        f"the primary key of {triggers.table.name} is DEFERRABLE: an UPDATE is {how}; with the check deferred to "
        "commit the order of two sessions' changes of one key is not promised"
    )


def _replicated(triggers: TableTriggers, compiled: Compiled) -> Iterable[str]:
    if triggers.always and compiled.by_statement:
        what = "changes" if len(compiled.by_statement) > 1 else "UPDATEs"
        yield (
            f"{triggers.table.name}: {what} are logged a statement, but what a replication applies is logged row by "
            "row, since an apply worker fires row triggers only"
        )


def _filtered(schema: str, triggers: TableTriggers, compiled: Compiled, facts: Facts) -> Iterable[str]:
    read = {(compiled.schema, compiled.table)}
    if isinstance(triggers, ChildTriggers):
        read.add((triggers.owner_schema or schema, triggers.owner.name))
    for place in sorted(read & facts.filtered):
        yield (
            f"row level security filters {'.'.join(place)} for the role that applies the triggers, and they do not see "
            "all of its rows: apply as its owner, or as a role with BYPASSRLS"
        )


def _order(compiled: Compiled, installed: Installed) -> Iterable[str]:
    first = min(trigger.name.encode() for trigger in compiled.triggers)
    for row in installed.triggers.get((compiled.schema, compiled.table), ()):
        is_after = not row.type & (BEFORE | INSTEAD)
        is_foreign = row.marker is None or not MARKER.match(row.marker)
        if not is_after or row.enabled == "D" or not is_foreign:
            continue
        meets = [
            trigger for trigger in compiled.triggers if not trigger.type & BEFORE and row.type & trigger.type & _EVENTS
        ]
        by_statement = [trigger for trigger in meets if not trigger.type & ROW]
        is_row = bool(row.type & ROW)
        if is_row and by_statement:
            yield (
                f"trigger {row.name} of {compiled.table} fires for each row, before ours for the statement: what it "
                "writes is logged before the change it answers"
            )
        elif row.name.encode() < first and (is_row or by_statement) and meets:
            yield (
                f"trigger {row.name} of {compiled.table} fires before ours: what it writes is logged before the change "
                "it answers; give it a name that sorts behind _tgr_"
            )


def _partitions(compiled: Compiled, installed: Installed) -> Iterable[str]:
    for partition, trigger in compiled.partitions.items():
        if trigger is None and not installed.on(*partition):
            yield (
                f"TRUNCATE of partition {'.'.join(partition)} of {compiled.table} is not captured: the role that "
                "applies the triggers does not own it, or may not read all of its rows; apply as its owner"
            )


_EVENTS = 4 | 8 | 16  # INSERT, DELETE, UPDATE


def not_captured(schema: str, declared: Sequence[TableTriggers], facts: Facts) -> tuple[str, ...]:
    """Sentences on what the declared triggers do not see."""
    if not declared:
        return ()
    places = {(triggers.schema or schema, triggers.table.name): triggers.table for triggers in declared}
    return (
        *(
            f"{table.name}: DETACH and DROP of a partition; TRUNCATE of a partition alone, or of several by a cascade, "
            "if they came after triggers apply"
            for table in places.values()
            if table.partitioned
        ),
        *(
            f"{table.name}: writes to the tables that inherit from it"
            for place, table in places.items()
            if place in facts.with_heirs
        ),
        *(
            ["writes of a replication apply worker or with session_replication_role = replica"]
            if not all(triggers.always for triggers in declared)
            else []
        ),
        "rows that TRUNCATE removes and a repeatable read snapshot does not see",
    )
