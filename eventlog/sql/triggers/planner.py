"""Compare compiled triggers with the installed triggers, and plan the actions that make the
installed triggers match the declaration.

There is one ``StoredTrigger`` for each trigger of a *place*, which is a table or a partition. A
hash records for which declaration a trigger was compiled. The hash is in the trigger, or in the
function that the trigger calls (``StoredTrigger.helper``). The *records* of a place are the
triggers or functions that have the hash. A database implements how triggers and functions are read,
and the SQL that creates and drops them (spec/triggers.md 9.4).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection

from eventlog.errors import together
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import Quote, grouped, qualified, quote_identifier
from eventlog.sql.triggers import (
    ALL_GO,
    NO_LONGER_WATCHED,
    Action,
    TriggerPlan,
    Triggers,
    by_table,
    digest_of,
    error_for_log_table,
    made_for,
)
from eventlog.sql.triggers.declared import TableName, TableTriggers
from eventlog.sql.triggers.uncaptured import (
    ANOTHER_TABLE,
    NEW_TO_CLASS,
    Uncaptured,
    declared_otherwise,
    uncaptured_columns,
    uncaptured_table,
)


@dataclass(frozen=True, slots=True)
class CompiledTrigger:
    """A trigger, or a function that triggers call, as SQL.

    ``digest`` is the hash of the compiled text; None if the function of the trigger has the hash.
    """

    name: str
    operation: str
    statement: str
    digest: str | None
    kind: Literal["trigger", "function"] = "trigger"
    shape: str = ""
    """The text to compare with the text of the installed trigger; empty = ``statement``."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The triggers of one declaration on one table.

    ``schema`` is the schema of the table, None = the session's current one.
    """

    schema: str | None
    declared: TableTriggers
    triggers: Sequence[CompiledTrigger]
    columns: Mapping[str, str]
    """The columns, name -> type, for which the triggers are compiled."""
    function: CompiledTrigger | None = None
    """The function that the triggers call, None if they call none."""
    partitions: Mapping[TableName, CompiledTrigger | None] = field(default_factory=dict)
    """The partitions and their own triggers, None = this role may not create the trigger. These
    triggers are not in the hash, since partitions are attached and detached.
    """
    is_copy: bool = False
    """True if these triggers log changes that other triggers of the declaration log in another way.
    """
    former: Compiled | None = None
    """These triggers as compiled by earlier versions, if those triggers still log as before."""

    @property
    def place(self) -> TableName:
        """The schema and name of the table."""
        return self.schema or "", self.declared.table.name

    @property
    def records(self) -> Sequence[CompiledTrigger]:
        """The triggers, or the function, that have the hash."""
        return self.triggers if self.function is None else (self.function,)

    @property
    def keys(self) -> set[TableName]:
        """The schema and name of each record."""
        return {(self.schema or "", one.name) for one in self.records}

    def create(self) -> Iterable[str]:
        """Return the statements that create the triggers."""
        return (trigger.statement for trigger in self.triggers)


@dataclass(frozen=True, slots=True)
class StoredTrigger:
    """A trigger, or a function that triggers call, as a database has it."""

    schema: str
    name: str
    table: TableName
    text: str = ""
    """The SQL of the trigger, empty if the database does not show it."""
    is_enabled: bool = True
    is_valid: bool = True
    type: str = ""
    event: str = ""
    """The event on which the trigger fires, as the database writes it."""
    follows: frozenset[TableName] = frozenset()
    """The schemas and names of the triggers after which this trigger fires, if the database shows
    these triggers.
    """
    digest: str | None = None
    """The hash of the compiled text; None if eventlog has not written a hash."""
    log: str | None = None
    """The log that the trigger writes to, as SQL; None if the trigger is not one of eventlog's."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The columns, name -> type, for which the trigger was compiled; empty if it lists none."""
    helper: StoredTrigger | None = None
    """The function of eventlog that the trigger calls."""
    kind: Literal["trigger", "function"] = "trigger"
    is_partition: bool = False
    """True if its table is a partition of another table."""
    is_in_hash: bool = True
    """False for the trigger of a partition, or of a former partition, which is in no hash."""
    row: Any = None
    """Everything else that the database shows of the trigger or function."""

    @property
    def key(self) -> TableName:
        """The schema and the name."""
        return self.schema, self.name


@dataclass(frozen=True, slots=True)
class Installed:
    """All installed triggers, by table or partition. A trigger is *ours* if it writes to the log,
    or was made for it under a ``former`` name.
    """

    ours: Mapping[TableName, Sequence[StoredTrigger]]
    others: Mapping[TableName, Sequence[StoredTrigger]]
    """``ours`` are our triggers, in the order of tables and names. ``others`` are all other
    triggers.
    """
    former: Mapping[TableName, str] = field(default_factory=dict)
    """The log's former name, as SQL, by table."""
    lost: Mapping[TableName, Collection[str]] = field(default_factory=dict)
    """Other logs that no longer exist, by the table whose triggers write to these logs."""
    unused: Sequence[StoredTrigger] = ()
    """The functions of the log that no trigger calls."""

    def on(self, table: TableName) -> Sequence[StoredTrigger]:
        """Return our triggers on a table or a partition."""
        return self.ours.get(table, ())

    def every(self) -> list[StoredTrigger]:
        """Return all our triggers."""
        return list(chain.from_iterable(self.ours.values()))

    def functions(self) -> dict[TableName, StoredTrigger]:
        """Return our functions, by schema and name."""
        return called_by(self.every()) | {one.key: one for one in self.unused}

    def digests(self) -> dict[str, str]:
        """Return the hash of our triggers on each table, by the table's name in actions."""
        return {
            name_of(table): digest_of(str(one.digest) for one in records_of(old).values())
            for table, old in self.ours.items()
            if any(one.is_in_hash for one in old)
        }


def by_place(triggers: Iterable[StoredTrigger]) -> dict[TableName, list[StoredTrigger]]:
    """Return triggers by their tables, in the order of the tables."""
    return dict(sorted(grouped((one.table, one) for one in triggers).items()))


def called_by(triggers: Iterable[StoredTrigger]) -> dict[TableName, StoredTrigger]:
    """Return our functions that triggers call, by schema and name."""
    return {one.helper.key: one.helper for one in triggers if one.helper is not None}


def records_of(triggers: Iterable[StoredTrigger]) -> dict[TableName, StoredTrigger]:
    """Return the records of our triggers, by schema and name. A record shows for which declaration
    a trigger was compiled: it is the trigger itself, or the function that the trigger calls.
    """
    found = ((one.helper or one) for one in triggers)
    return {one.key: one for one in found if one.digest is not None}


def refuse_own_tables(log: LogTable, schema: str | None, declared: Iterable[TableTriggers]) -> None:
    """Raise TriggerError for triggers on the log or on one of its internal tables."""
    places = ((one.schema or schema, one.table.name) for one in declared)
    if own := [name for home, name in places if home == log.schema and name in log.own_tables]:
        raise together(list(map(error_for_log_table, own)))


Claims = Mapping[TableName, TableName]
"""The table of each declared trigger, by the trigger's schema and name."""


class _Every(NamedTuple):
    """What the comparison of one table needs about all tables."""

    installed: Installed
    claims: Claims
    functions: frozenset[TableName]
    """The declared functions, by schema and name."""
    known: Set[TableName]
    """The records of the installed triggers (``records_of``), by schema and name."""
    captured: Collection[str]
    """The declared classes that have a table with triggers."""


class PlannedTriggers(Triggers):
    """Triggers that are compiled as a whole, and compared with the installed ones by their hashes
    and texts.

    A subclass provides the way to read triggers, the SQL of triggers, and sentences for people.
    """

    replaces: bool = False
    """True if CREATE replaces a trigger of the same name, so that the table is never without the
    trigger.
    """
    names_in_schema: bool = True
    """True if the names of triggers belong to the schema, and stay when a table is renamed."""
    quote: Quote = staticmethod(quote_identifier)
    """The function that writes a name as an SQL identifier."""
    follow_log: bool = False
    """True if the database puts the log's new name into the triggers when the log is renamed."""
    compared: Callable[[str], str] = staticmethod(str)
    """The function that returns the part of a text that is compared: the database may rewrite the
    other parts.
    """
    by_hand: str = "was changed by hand"
    """The words after the name of a trigger or function whose text is not as it was compiled."""
    former_reason: str = ""
    """The reason for replacing triggers that an earlier version made and that log as before."""

    @abstractmethod
    def stored(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> tuple[Sequence[StoredTrigger], Sequence[StoredTrigger]]:
        """Return two results. The first is the triggers of ``tables`` and of all tables that have
        one of our triggers, in the order of tables and names. The second is the functions, of any
        log, that no trigger calls.
        """

    @abstractmethod
    def gone(self, log: OpenLog, names: Collection[str]) -> set[str]:
        """Return the ``names`` of logs, as SQL, that are no tables of the database."""

    @abstractmethod
    def drop_stored(self, trigger: StoredTrigger) -> Sequence[str]:
        """Return the statements that drop a trigger or a function."""

    def former_names(self, log: LogTable, gone: Collection[str]) -> Collection[str]:
        """Return the names in ``gone``, as SQL, that may be former names of ``log``."""
        return gone

    def outdated(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        """Return the fault of a trigger that an earlier version compiled for the same columns, in
        words that follow the trigger's name. None = no fault is known.
        """
        return None

    def redeclared(
        self, compiled: Compiled, stored: StoredTrigger, record: CompiledTrigger
    ) -> Iterable[str]:
        """Return the differences between the present declaration and the declaration for which an
        installed trigger was compiled.
        """
        before, present = stored.columns, compiled.declared.table.columns
        why = self.outdated(stored, record) if before == compiled.columns else None
        if why is not None:
            return (f"trigger {record.name} {why}",)
        return declared_otherwise(before, compiled.columns, [column.name for column in present])

    def further_differences(
        self,
        compiled: Sequence[Compiled],
        old: Sequence[StoredTrigger],
        superfluous: Collection[StoredTrigger],
    ) -> Iterable[str]:
        """Return the differences besides the differences of records. ``superfluous`` are records
        without a declaration.
        """
        return (f"trigger {one.name} is superfluous" for one in superfluous)

    def compare_partitions(
        self, compiled: Sequence[Compiled], old: Sequence[StoredTrigger]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the differences of the triggers of partitions, and the statements that remove
        these differences. The triggers of the table itself are as declared.
        """
        return (), ()

    @abstractmethod
    def silent(
        self,
        compiled: Compiled,
        old: Sequence[StoredTrigger],
        records: Sequence[StoredTrigger],
        has_others: bool,
    ) -> str | None:
        """Return the reason, in words, why our triggers ``old`` have not logged all changes of a
        table; None if all of these triggers fire. ``records`` are the records of this declaration
        (``records_of``). ``has_others`` means that other records of the table belong to no
        declaration.
        """

    def at_once(self, table: TableName, statements: Sequence[str]) -> Sequence[str]:
        """Return ``statements``, which drop and create triggers of a table. Add a lock that blocks
        writers while the statements run.
        """
        return statements

    def enable(self, trigger: StoredTrigger) -> Sequence[str]:
        """Return the statements that enable the trigger that has replaced ``trigger``."""
        return ()

    def log_in_marker(self, log: LogTable) -> str:
        """Return the name of the log in the markers of its triggers, on one line."""
        return qualified(log.schema, log.name, self.quote)

    # The interface for the core

    def read_installed(
        self,
        log: OpenLog,
        tables: Collection[TableName] = (),
        takes: Callable[[TableName], bool] = lambda _: False,
    ) -> Installed:
        """Return the triggers of a log, and other triggers on their tables and on ``tables``.

        ``takes`` returns True for a table whose triggers belong to this log if they were made for a
        log that does not exist any more (spec/triggers.md 9.3).
        """
        triggers, functions = self.stored(log.connection, tables)
        own, logs = self.log_in_marker(log.table), defaultdict[TableName, set[str]](set)
        for one in triggers:
            logs[one.table] |= {one.log} if one.log is not None else set()
        gone = self.gone(log, set().union(*logs.values()) - {own})
        former = {
            table: names[0]
            for table, of_table in logs.items()
            if takes(table)
            and own not in of_table
            # Several missing logs may each be another one that was moved.
            and len(names := [*self.former_names(log.table, of_table & gone)]) == 1
        }
        taken = {
            (one.helper or one).key
            for one in triggers
            if one.log and one.log == former.get(one.table)
        }
        ours: list[StoredTrigger] = []
        others: list[StoredTrigger] = []
        for one in triggers:
            is_ours = one.log == own or (one.helper or one).key in taken
            (ours if is_ours else others).append(one)
        lost = by_place(one for one in others if one.log in gone)
        return Installed(
            by_place(ours),
            by_place(others),
            former,
            {table: sorted({str(one.log) for one in several}) for table, several in lost.items()},
            [one for one in functions if one.log == own],
        )

    def plan_drop(self, log: OpenLog) -> TriggerPlan:
        log = self.find_log(log)
        # There is no declaration that shows which tables are meant, so the tables in the schema of
        # the log are taken.
        schema = log.table.schema or ""
        installed = self.read_installed(log, takes=lambda table: table[0] == schema)
        return self.plan_drop_of(log.table, installed)

    def plan_drop_of(self, log: LogTable, installed: Installed) -> TriggerPlan:
        """Return the plan that drops all installed triggers of a log."""
        return TriggerPlan(tuple(self._drop_all(installed, (), ALL_GO)))

    def tables_of(self, log: OpenLog) -> list[TableName]:
        return list(self.read_installed(log).ours)

    def digests(self, log: OpenLog, tables: Collection[TableName] = ()) -> Mapping[str, str]:
        return self.read_installed(self.find_log(log), takes=tables.__contains__).digests()

    # One action for each table

    def claims(self, compiled: Iterable[Compiled]) -> Claims:
        """Return the table of each declared trigger by the trigger's schema and name; empty if
        triggers of several tables may have the same name.
        """
        return {
            (one.schema or "", trigger.name): one.place
            for one in (compiled if self.names_in_schema else ())
            for trigger in one.triggers
        }

    def actions(self, compiled: Sequence[Compiled], installed: Installed) -> list[Action]:
        """Return the actions that bring the triggers of a log to the compiled declarations."""
        ours, claims = installed.every(), self.claims(compiled)
        every = _Every(
            installed,
            claims,
            frozenset(key for one in compiled if one.function is not None for key in one.keys),
            records_of(ours).keys() | {one.key for one in installed.unused},
            {one.declared.class_name for one in compiled if one.place in installed.ours},
        )
        renamed: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        declared = set(claims.values())
        for one in ours:
            place = claims.get(one.key, one.table)
            if place != one.table and one.table in declared:
                renamed[place].append(one)
        drops = self._drop_all(installed, compiled, NO_LONGER_WATCHED)
        compared = [
            self._compare(of_table, every, renamed[of_table[0].place])
            for of_table in by_table(compiled)
        ]
        # A renamed table keeps the names of its triggers, which the new table with its former name
        # needs.
        return [*drops, *compared] if self.names_in_schema else [*compared, *drops]

    def _drop_all(
        self, installed: Installed, compiled: Iterable[Compiled], reason: str
    ) -> list[Action]:
        """Return the actions that drop our triggers and functions, except the declared ones.

        The triggers of a partition are dropped with the triggers of the table whose function they
        call. A function is dropped with the last trigger that calls it.
        """
        declared = [one for one in compiled if one.triggers]
        staying = {place for one in declared for place in (one.place, *one.partitions)}
        kept = {key for one in declared if one.function is not None for key in one.keys}
        gone = [one for one in installed.every() if one.table not in staying]
        roots = {
            one.helper.key: one.table
            for one in reversed(gone)
            if one.helper is not None and not one.is_partition
        }
        doomed: defaultdict[TableName, list[StoredTrigger]] = defaultdict(list)
        for one in gone:
            key = one.helper.key if one.helper is not None and one.is_partition else one.key
            doomed[roots.get(key, one.table)].append(one)
        actions = [
            Action("drop", name_of(one.key), "a function without triggers", self._dropped([one]))
            for one in installed.unused
            if one.digest is not None and one.key not in kept
        ]
        for place, several in reversed(doomed.items()):
            called = called_by(several)
            functions = [called[key] for key in sorted(called.keys() - kept)]
            kept |= called.keys()
            statements = self._dropped([*several, *functions])
            actions.insert(0, Action("drop", name_of(place), reason, statements))
        return actions

    def _compare(
        self, compiled: Sequence[Compiled], every: _Every, renamed: Iterable[StoredTrigger]
    ) -> Action:
        """Return the action for one table, from its compiled declarations.

        If a trigger of another declared table has a claimed name (``renamed``), that trigger is
        dropped. Triggers of tables that are no longer watched were dropped before. A function that
        another table claims is replaced together with its triggers.
        """
        place, name = compiled[0].place, name_of(compiled[0].place)
        installed, old = every.installed, every.installed.on(place)
        drops = self._dropped(renamed)
        create = [statement for one in compiled for statement in one.create()]
        # Triggers of partitions that this role may not change stay as they are.
        changeable = (
            place
            for one in compiled
            for place, trigger in one.partitions.items()
            if trigger is not None
        )
        of_partitions = [one for place in dict.fromkeys(changeable) for one in installed.on(place)]
        if not old:
            statements = self.at_once(place, [*self._dropped(of_partitions), *create])
            return Action(
                "create",
                name,
                "watched, but not captured yet",
                (*drops, *statements),
                tuple(_uncaptured_of_new(compiled, every)),
            )
        former, records = installed.former.get(place), records_of(old)
        reasons = (
            list(dict.fromkeys(self._differences(compiled, old, records)))
            if former is None
            else [made_for(former, fails=not self.follow_log)]
        )
        if not reasons:
            differences, statements = self.compare_partitions(compiled, of_partitions)
            kind: Literal["replace", "unchanged"] = "replace" if differences else "unchanged"
            return Action(kind, name, "; ".join(differences) or "as declared", tuple(statements))
        claims = every.claims
        if self.replaces:
            names = {trigger.name for one in compiled for trigger in one.triggers}
            enable = [text for one in old if one.name in names for text in self.enable(one)]
            gone = [one for one in old if one.key not in claims]
            statements = [*create, *enable, *self._dropped(gone)]
        else:
            dropped = [one for one in old if claims.get(one.key, place) == place]
            called = called_by(old)
            gone = [called[key] for key in sorted(called.keys() - every.functions)]
            statements = [
                *self.at_once(place, [*self._dropped([*dropped, *of_partitions]), *create]),
                *self._dropped(gone),
            ]
        uncaptured = tuple(self._uncaptured(compiled, old, records))
        return Action(
            "replace",
            name,
            "; ".join(reasons),
            (*drops, *statements),
            uncaptured,
            is_former=reasons == [self.former_reason] and not uncaptured,
        )

    def _differences(
        self,
        compiled: Sequence[Compiled],
        old: Sequence[StoredTrigger],
        records: Mapping[TableName, StoredTrigger],
    ) -> Iterator[str]:
        unmatched = {one.name: one for one in records.values()}
        if unmatched and not unmatched.keys() & {one.name for of in compiled for one in of.records}:
            names = ", ".join(sorted(unmatched))
            how = f"{names} were" if compiled[0].function is None else f"call {names},"
            yield (
                f"its triggers {how} made for the former name of the table, and log that name "
                "until they are replaced"
            )
            return
        digests = {one.digest for one in records.values()}
        as_installed = [
            one.former
            if one.former and {of.digest for of in one.former.records} <= digests
            else one
            for one in compiled
        ]
        for one in as_installed:
            for record in one.records:
                stored = unmatched.pop(record.name, None)
                if stored is None:
                    yield f"{record.kind} {record.name} is missing"
                elif stored.digest != record.digest:
                    yield from self.redeclared(one, stored, record)
                else:
                    if (what := self._how(stored, record)) is not None:
                        yield f"{record.kind} {record.name} {what}"
                    continue
                if one.function is not None:
                    return  # the triggers of a function are compared only if it is as declared
        yield from self.further_differences(as_installed, old, unmatched.values())

    def _how(self, stored: StoredTrigger, record: CompiledTrigger) -> str | None:
        """Return the difference of a trigger whose hash is as declared, in words that follow the
        trigger's name; None if there is no difference.
        """
        text = record.shape or record.statement
        if self.compared(stored.text) != self.compared(text):
            return self.by_hand
        if not stored.is_enabled:
            return "is disabled"
        return None if stored.is_valid else "is invalid"

    def _uncaptured(
        self,
        compiled: Sequence[Compiled],
        old: Sequence[StoredTrigger],
        records: Mapping[TableName, StoredTrigger],
    ) -> Iterator[Uncaptured]:
        """Yield the uncaptured changes of a table that has triggers: columns for which the triggers
        were not compiled, and operations for which no trigger fires.
        """
        declared = {record.name for one in compiled for record in one.records}
        present = {one.name: one for one in records.values()}
        # The functions of a renamed table have the names of the former table.
        left = [one for name, one in present.items() if name not in declared]
        further = iter(left)
        for one in compiled:
            if one.is_copy:
                continue
            own = [present[record.name] for record in one.records if record.name in present]
            own += [] if own or one.function is None else islice(further, 1)
            before = next((found.columns for found in own if found.columns), {})
            yield from uncaptured_columns(one.declared, before, one.columns)
            if (reason := self.silent(one, old, own, bool(left))) is not None:
                yield uncaptured_table(one.declared, reason)

    def _dropped(self, triggers: Iterable[StoredTrigger]) -> tuple[str, ...]:
        return tuple(statement for one in triggers for statement in self.drop_stored(one))


def _uncaptured_of_new(compiled: Iterable[Compiled], every: _Every) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of a table without triggers. There are such changes if the table
    that had this name before still has triggers, or if other tables of the class have triggers.
    """
    for one in compiled:
        if one.is_copy:
            continue
        if one.keys & every.known:
            yield uncaptured_table(one.declared, ANOTHER_TABLE)
        elif one.function is not None and one.declared.class_name in every.captured:
            yield uncaptured_table(one.declared, NEW_TO_CLASS)


def name_of(table: TableName) -> str:
    """Return a table's name in the form that actions use."""
    return ".".join(filter(None, table))
