"""The run of ``eventlog triggers``: make the triggers as the [[watch]] sections declare them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from eventlog.changes.json_form import database_from_json, read_catalog
from eventlog.cli.command import CommandResult, report
from eventlog.cli.context import (
    CommandContext,
    JsonObject,
    changing,
    confirm,
    log_named,
    note,
    reading,
    reading_log,
    report_error,
    result,
    sees_terminal,
    table,
)
from eventlog.cli.install.runs.db import names, offline, refuse_to_lose_rows
from eventlog.cli.install.triggers import Accept, Apply, Drop, List, Plan
from eventlog.config.load import Config
from eventlog.core.catalog import Database
from eventlog.core.options import toml
from eventlog.errors import (
    ConfigError,
    NoLogTable,
    TriggerError,
    number_of,
    together,
    visible,
    with_location,
)
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context import (
    LOOPBACK_WAYS_OUT,
    loopback_of_tables,
    owned_tables,
    utc_anyway,
)
from eventlog.publisher.declared import (
    captured_tables,
    catalog_of,
    class_names,
    declared_watches,
    find_log,
    plan_for_new_log,
    plan_triggers,
    planned_triggers,
    publisher_options,
    publisher_user,
    unwritable_classes,
    with_tables,
)
from eventlog.publisher.declared import read_catalog as present_catalog
from eventlog.publisher.inspect import missing_grants
from eventlog.sql import LOCK_TIMEOUT, migrations
from eventlog.sql import resync as batches
from eventlog.sql.connect import new_log
from eventlog.sql.log_table import split_name
from eventlog.sql.port import Addition, Dialect, OpenDatabase, Purpose, load_dialect
from eventlog.sql.triggers import TriggerPlan, triggers_of
from eventlog.sql.triggers.watch import WatchedTable

_NOTHING: Final = "Nothing to drop."

_SIGNS: Final = {
    "create": ("+", "green"),
    "replace": ("~", "yellow"),
    "drop": ("-", "red"),
    "resync": ("!", "yellow"),
    "ended": ("!", "red"),
    "unchanged": ("=", None),
}


def run_plan(context: CommandContext, request: Plan, config: Config) -> ExitCode:
    """Run ``eventlog triggers plan``."""
    with reading(config, Purpose.MONITOR) as db:
        planned = _plan_with_loopback(db, config, without_log=True)

    def show() -> None:
        _print(planned)
        _warn_of_drops(planned)
        _show_renamed(planned)
        _show_due(planned, is_plan=True)
        _show_ended(planned)
        if planned.lacks_log:
            return  # a warning names the command that comes first
        if planned.changes:
            note("Run `eventlog triggers apply` to do this.")
        elif planned.differences:
            note(
                "The triggers are as declared. `eventlog triggers apply` records for `doctor` that "
                "these resyncs are due."
            )
        elif not planned.refused and not planned.ended:
            result(_nothing_to_do(config))

    if request.as_sql:
        _print_script(db, planned, LOCK_TIMEOUT)
    else:
        report(context, CommandResult(_data(planned), show))
    refused = _refused(planned)
    is_other = planned.differences or planned.ended
    return ExitCode.NO if request.check and is_other and not planned.refused else refused


def run_apply(context: CommandContext, request: Apply, config: Config) -> ExitCode:
    """Run ``eventlog triggers apply``."""
    dry = request.dry
    if dry or request.as_sql:
        with reading(config) as db:
            planned = _plan_with_loopback(db, config, without_log=True)
        if request.as_sql:
            _print_script(db, planned, request.lock_timeout)
            return _refused(planned)
    else:
        planned = _applied(config, request.lock_timeout, asks=not request.yes and sees_terminal())

    def show() -> None:
        _print(planned)
        if dry:
            _warn_of_drops(planned)
        _show_renamed(planned)
        _show_due(planned, dry)
        _show_ended(planned)
        if planned.grants:
            result("A role that publishes may not read all of these tables. Run:")
        for statement in planned.grants:
            result(f"  {visible(statement)};")
        done = "would be applied" if dry else "applied"
        if planned.changes:
            result(f"{number_of(len(planned.changes), 'change')} {done}.")
        elif not planned.refused and not planned.differences and not planned.ended:
            result(_nothing_to_do(config))

    data = _data(planned) | {"dry_run": dry}
    report(context, CommandResult(data, show, is_confirmation=not dry))
    return _refused(planned)


def _applied(config: Config, lock_timeout: float, *, asks: bool) -> TriggerPlan:
    """Apply the declared triggers, and return what was done. With ``asks``, the triggers of a table
    are dropped only if the user was asked about this table. Raises TriggerError.
    """
    agreed = _confirmed_drops(config) if asks else None
    with changing(config) as db:
        planned = _plan_with_loopback(db, config, without_log=False)
        if agreed is not None and (more := set(planned.unwatched) - agreed):
            raise TriggerError(
                f"triggers of this log were added to {', '.join(sorted(more))} while the command "
                "waited for the answer: nothing was changed; run the command again"
            )
        triggers_of(db.dialect).apply(db.connection, planned, lock_timeout)
        log = find_log(db, config)
        missing = triggers_of(db.dialect).record(log, planned)
        _record_due(db, config, planned)
        grants = missing_grants(log, (one.place for one in planned.captured))
        planned = replace(planned, grants=grants)
    if not missing:
        return planned
    warning = (
        f"the captured columns were not recorded, because this role lacks {'; '.join(missing)}"
    )
    return replace(planned, warnings=(*planned.warnings, warning))


def _print_script(db: OpenDatabase, planned: TriggerPlan, lock_timeout: float) -> None:
    """Print the SQL of a plan. Raises TriggerError if this role cannot apply the plan, since the
    script would fail.
    """
    if planned.lacking:
        raise together([TriggerError(reason) for reason in planned.lacking])
    sys.stdout.write(triggers_of(db.dialect).script(planned, lock_timeout))


def _data(planned: TriggerPlan) -> JsonObject:
    """Return a plan as an object for JSON."""
    due = [
        {"command": one.command, "reason": one.reason}
        for one in batches.due_for(planned.uncaptured)
    ]
    # What is recorded about a table is not part of the plan.
    data = asdict(replace(planned, captured=(), ungranted={}))
    del data["captured"], data["ungranted"]
    for action in data["actions"]:
        action["gaps"] = action.pop("uncaptured")  # the name that programs read
    data["renamed"] = [one._asdict() for one in planned.renamed]
    return {**data, "changes": len(planned.changes), "due": due}


def _show_due(planned: TriggerPlan, is_plan: bool) -> None:
    """Print the resyncs that are due. Once the triggers exist, these resyncs send the changes that
    were not logged.
    """
    due = batches.due_for(planned.uncaptured)
    if due:
        after = " after apply" if is_plan else ""
        result(f"No trigger has logged these changes, and nothing else sends them. Run{after}:")
    for one in due:
        result(f"  {one.command}    # {visible(one.reason)}")


def _show_ended(planned: TriggerPlan) -> None:
    """Print what to do about tables whose capture has ended."""
    if planned.ended:
        names = " ".join(action.table for action in planned.ended)
        result(
            "Not captured any more, although no [[watch]] was removed. Add a [[watch]] for each "
            f"table, or, if it is meant, run:\n  eventlog triggers accept {visible(names)}",
            colour="red",
        )


def _show_renamed(planned: TriggerPlan) -> None:
    """Print the lines of the configuration that say which tables were renamed."""
    if planned.renamed:
        result("Tables were renamed. In eventlog.toml, add to each [[watch]], or change in it:")
    for one in planned.renamed:
        result(f"  [[watch]]\n  table = {toml(one.watch)}\n  renamed_from = [{toml(one.former)}]")


def run_accept(context: CommandContext, request: Accept, config: Config) -> CommandResult:
    """Run ``eventlog triggers accept``. Raises ConfigError for a table whose capture has not
    ended.
    """
    with (reading if request.dry else changing)(config) as db:
        log = find_log(db, config)
        planned, catalog = plan_triggers(log, config)
        ended = {one.table.removeprefix(f"{catalog.schema}."): one.table for one in planned.ended}
        ended |= {table: table for table in ended.values()}
        if wrong := [name for name in request.tables if name not in ended]:
            raise ConfigError(
                f"the capture of {', '.join(wrong)} has not ended; see `eventlog triggers plan`"
            )
        accepted = list(dict.fromkeys(ended[name] for name in request.tables))
        if not request.dry:
            triggers_of(db.dialect).accept(log, accepted)
    would = "Would be accepted" if request.dry else "Accepted"
    lines = "\n".join(f"{would}: {visible(table)} is not captured." for table in accepted)
    data = {"accepted": accepted, "dry_run": request.dry}
    return CommandResult(data, lines, is_confirmation=not request.dry)


def _record_due(db: OpenDatabase, config: Config, planned: TriggerPlan) -> None:
    """Record for `doctor` which resyncs are due, and clear the resyncs of dropped classes, if this
    user may write to the resync table.
    """
    log = find_log(db, config)
    has_table = log.may_have(log.table.resync_table)
    if has_table and not log.missing_rights(Purpose.RESYNC, Addition.POSITION):
        if batches.due_now(log):
            batches.settle_lost(log, present_catalog(log, config), planned.kept)
        batches.note_due(log, batches.due_for(planned.uncaptured))


def _refused(planned: TriggerPlan) -> ExitCode:
    """Print to standard error which watches cannot be applied. Returns the exit code."""
    for sentence in planned.refused:
        report_error(sentence, code=TriggerError.code)
    return ExitCode.FAILED if planned.refused else ExitCode.DONE


def _nothing_to_do(config: Config) -> str:
    if config.watches:
        return "Nothing to do."
    return "Nothing to do: the configuration has no [[watch]] that names a table."


def _confirmed_drops(config: Config) -> frozenset[str]:
    """Ask, outside of a transaction, whether the triggers of tables that are no longer watched may
    be dropped. Returns these tables.
    """
    with reading(config) as db:
        planned = planned_triggers(db, config)
    if planned.unwatched:
        confirm(f"This drops the triggers of {_unwatched(planned)}.", yes=False)
    return frozenset(planned.unwatched)


def _warn_of_drops(planned: TriggerPlan) -> None:
    if planned.unwatched:
        result(f"warning: apply drops the triggers of {_unwatched(planned)}")


def _unwatched(planned: TriggerPlan) -> str:
    return (
        f"{', '.join(planned.unwatched)}, which no [[watch]] names any longer: later changes there "
        "are not logged"
    )


def run_drop(context: CommandContext, request: Drop, config: Config) -> CommandResult | None:
    """Run ``eventlog triggers drop``."""
    drop_log, timeout = request.drop_log, request.lock_timeout

    def planned_drop(db: OpenDatabase) -> TriggerPlan:
        planned = triggers_of(db.dialect).plan_drop(find_log(db, config))
        if drop_log and not request.force and not request.as_sql:
            refuse_to_lose_rows(db, config)
        return planned

    log = config.database.log_table if drop_log else None
    asks = not request.yes and sees_terminal()
    if request.dry or request.as_sql or asks:
        with reading(config) as db:
            planned = planned_drop(db)
        if request.as_sql:
            sys.stdout.write(triggers_of(db.dialect).script(planned, timeout))
            if drop_log:
                migrations.downgrade(None, sql=sys.stdout, **offline(config))
            return None
        if request.dry:
            return _dropped(planned, log, dry=True)
        _confirm_drop(planned, log)
    with changing(config) as db:
        planned = planned_drop(db)
        triggers_of(db.dialect).apply(db.connection, planned, timeout)
        if drop_log:
            migrations.downgrade(db.connection, **names(config))
    return _dropped(planned, log, dry=False)


def _dropped(planned: TriggerPlan, log: str | None, *, dry: bool) -> CommandResult:
    """Return what is dropped, or would be dropped with ``dry``: the triggers, and the log of this
    name.
    """

    def show() -> None:
        _print(planned)
        tables = number_of(len(planned.changes), "table")
        would = "would be " if dry else ""
        result(f"{tables} {would}captured no longer." if planned.changes else _NOTHING)
        if log is not None:
            result(f"The log {log} {would or 'is '}dropped.")

    captured = [action.table for action in planned.changes]
    data = {"tables": captured, "log": log, "dry_run": dry}
    return CommandResult(data, show, is_confirmation=not dry)


def _confirm_drop(planned: TriggerPlan, log: str | None) -> None:
    """Ask whether all triggers, and the log of this name, may be dropped."""
    goes = [f"the log {log} with all its rows and its internal tables"] if log is not None else []
    if planned.changes:
        tables = ", ".join(action.table for action in planned.changes)
        goes.insert(0, f"the triggers of {tables}, whose changes are then not logged")
    if goes:
        confirm(f"This drops {'; and '.join(goes)}.", yes=False)


def run_list(context: CommandContext, request: List, config: Config) -> CommandResult | None:
    """Run ``eventlog triggers list``."""
    if request.dialect_name is not None and request.catalog_file is not None:
        _print_compiled(config, load_dialect(request.dialect_name), request.catalog_file)
        return None
    with reading_log(config, Purpose.MONITOR) as log:
        installed = triggers_of(log.dialect).installed(log)
    if request.as_sql:
        for function in dict.fromkeys(
            one.function_sql for one in installed if one.function_sql is not None
        ):
            sys.stdout.write(f"{function.rstrip()};\n\n")
        for one in installed:
            sys.stdout.write(f"{one.trigger_sql};\n")
        return None
    rows = [
        (one.table, one.trigger, one.function, "yes" if one.enabled else "no") for one in installed
    ]
    show = partial(table, ("table", "trigger", "function", "enabled"), rows)
    if not installed:
        show = partial(
            note, "No triggers are installed; `eventlog triggers plan` shows what is declared."
        )
    return CommandResult([one._asdict() for one in installed], show)


def _print_compiled(config: Config, dialect: Dialect, catalog_file: Path) -> None:
    """Print the script that makes the declared triggers, without connecting to a database.

    Raises ConfigError.
    """
    try:
        database = database_from_json(read_catalog(catalog_file))
    except ConfigError as error:
        raise with_location(error, "--catalog") from None
    for warning in _mismatch_warnings(database, dialect):
        note(f"warning: --catalog {catalog_file}: {warning}")
    log = log_named(config, dialect, config.database.schema_name or database.schema)
    # Triggers log what readers mask, and objects that do not exist for them.
    config = with_tables(replace(config, masks=(), filters=()), database, log)
    catalog = catalog_of(config, database, class_names(config)[1], log)
    watches = declared_watches(config) or tuple(
        WatchedTable(cls.name) for cls in catalog.classes if not cls.is_view
    )
    plan = TriggerPlan.of_new(triggers_of(dialect).compile(database, catalog, log, watches))
    sys.stdout.write(triggers_of(dialect).script(plan, LOCK_TIMEOUT))


def _mismatch_warnings(database: Database, dialect: Dialect) -> Iterator[str]:
    """Yield warnings about what does not fit this database in the tables of a catalogue file.

    Raises ConfigError for a name that is too long.
    """
    if database.dialect != dialect.name:
        yield (
            f"its tables are from {database.dialect}, but the SQL is for {dialect.name}: "
            "names keep their case, and types keep their names"
        )
    for one in database.tables:
        for name in (one.name, *(column.name for column in one.columns)):
            dialect.quote(name)
            if len(name.encode()) > dialect.max_identifier:
                raise ConfigError(
                    f"the catalog has the name {name!r} of {len(name.encode())} bytes, but "
                    f"{dialect.name} allows {dialect.max_identifier}: shorten the name, "
                    "or give the dialect of the catalog in --dialect"
                )
        for column in one.columns:
            if column.type.kind in dialect.lacks:
                yield (
                    f"{one.name}.{column.name} is {column.type.sql}, a type that {dialect.name} "
                    "does not have: its values are treated as text"
                )


def _plan_with_loopback(db: OpenDatabase, config: Config, *, without_log: bool) -> TriggerPlan:
    """Return the plan with its warnings, for example that the publisher's user owns watched tables
    (spec/event-log.md 8.3).

    If the log does not exist yet and ``without_log`` is True, the plan is for a new log, and a
    warning names the missing log.
    """
    writes_utc = config.publisher.event_time_zone == "local"
    try:
        log = find_log(db, config)
        planned, catalog = plan_triggers(log, config)
        # The triggers of the plan write UTC, too.
        writes_utc = writes_utc and (log.table.writes_utc or bool(planned.actions))
    except NoLogTable as error:
        if not without_log:
            raise
        planned, catalog = plan_for_new_log(db, config)
        planned = replace(
            planned,
            warnings=(f"{error}; until then nothing can be applied", *planned.warnings),
            lacks_log=True,
        )
    warnings = [utc_anyway(config.publication)] if writes_utc else []
    new = new_log(db.dialect, catalog.schema, split_name(config.database.log_table)[1])
    warnings += unwritable_classes(config, catalog, new)
    if planned.lacking:
        warnings += (f"this role cannot apply the plan: {reason}" for reason in planned.lacking)
    elif planned.actions:
        user = publisher_user(config, db.dialect, db.current_user())
        options = publisher_options(config, user, db.dialect.fold_name)
        owned = owned_tables(db, options, catalog.schema, captured_tables(config, catalog))
        if owned:
            loopback = loopback_of_tables(options.driver_user or "", owned)
            warnings.append(f"{loopback}: {', '.join(LOOPBACK_WAYS_OUT)}")
    return replace(planned, warnings=(*planned.warnings, *warnings))


def _print(planned: TriggerPlan) -> None:
    for action in planned.actions:
        sign, colour = _SIGNS[action.kind]
        result(visible(f"{sign} {action.table}: {action.reason}"), colour=colour)
        if action.kind == "drop":
            for statement in action.statements:
                result(f"    {' '.join(statement.split())}")
    for warning in planned.warnings:
        result(f"warning: {warning}")
    if planned.not_captured:
        result(f"Not captured: {'; '.join(planned.not_captured)}")
