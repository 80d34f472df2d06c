"""The run of ``eventlog db``: create and upgrade the log and its internal tables by migrations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine

from eventlog.cli.command import CommandResult
from eventlog.cli.context import (
    CommandContext,
    JsonObject,
    changing,
    changing_log,
    confirm,
    end_change,
    engine_of,
    log_named,
    note,
    reading,
    sees_terminal,
    table,
)
from eventlog.cli.install.db import Downgrade, Partition, Unpartition, Upgrade
from eventlog.cli.stopping import DONE, if_stopped
from eventlog.config.load import Config, connection_url
from eventlog.errors import (
    ConfigError,
    ConsumerRuns,
    LogTableError,
    NoLogTable,
    first_of,
    number_of,
)
from eventlog.publisher.declared import advice_for_consumers, find_log
from eventlog.publisher.ledger import LOCK_WAIT, ledger_of, lock_within, try_within
from eventlog.publisher.upkeep import in_turn, means_to_partition, refuse_to_partition
from eventlog.sql import migrations
from eventlog.sql.connect import dialect_of
from eventlog.sql.log import EntryKind, extent, raise_epoch, read_entries, read_epoch, tail
from eventlog.sql.port import OpenDatabase, OpenLog, Purpose, Storage, ask, set_purpose
from eventlog.sql.readers import read_consumers
from eventlog.sql.triggers import triggers_of

_MIN_WIDTH: Final = 100_000
"""The least number of record_ids in a leaf, unless another size is requested."""

_PARTITIONING: Final = (
    "the log has all of its rows, in one table or in its leaves; run the same command again to "
    "complete it"
)


def run_upgrade(context: CommandContext, request: Upgrade, config: Config) -> CommandResult | None:
    """Run ``eventlog db upgrade``."""
    upgrade = partial(
        migrations.upgrade,
        revision=request.revision,
        existing_log=request.existing_log,
        storage=Storage(request.tablespace, request.index_tablespace, _pairs(request.renamed)),
        readers=config.database.readers,
    )
    with_transactions = config.database.transaction_ids
    if with_transactions and request.existing_log:
        raise ConfigError(
            "database.transaction_ids adds a column to the log, but with --existing-log "
            "the log must stay as another program made it: remove one of the two options"
        )
    if request.as_sql:
        whose = offline(config, request.dialect_name)
        upgrade(None, sql=sys.stdout, **whose)
        if with_transactions:
            migrations.write_transaction_ids(sys.stdout, **whose)
        return None
    url = connection_url(config.database)
    dialect_of(url).prepare(url)
    with changing(config) as db:
        if request.existing_log:
            with suppress(NoLogTable):  # it may be created later
                find_log(db, config, has_internal_tables=False)
        before = _reached(db.connection, config)
        revoked = upgrade(db.connection, **names(config))
        after = _reached(db.connection, config)
        unknown = [
            one for one in config.database.readers if db.has_user(db.dialect.spelled(one)) is False
        ]
        made = [] if before else [find_log(db, config, has_internal_tables=False)]
        owners = [row for log in made for row in ask(log, "superuser_log", lambda *values: values)]
    if revoked:
        note(
            "Default privileges gave other roles rights on what was created. These rights are "
            "revoked, since they would let the roles read or forge what is published. If a role "
            "needs one, run its statement; if it only reads, also name it in [database] readers:"
        )
    for statement in revoked:
        note(f"  {statement};")
    for role in unknown:
        note(
            f"the database has no role {role!r} of [database] readers: create it, and grant it "
            "SELECT"
        )
    for superuser, owner, statement in owners:
        note(
            f"The log belongs to {superuser}, a superuser. To give it to {owner}, who owns its "
            f"schema, run `{statement}`, and then `eventlog db upgrade` again."
        )
    added = with_transactions and _add_transaction_ids(config)
    what = "upgraded" if added or after != before else "nothing to do"
    more = ", and PostgreSQL records the transaction of each row from now on" if added else ""
    return CommandResult(
        _moved(config, before, after)
        | {"revoked": revoked}
        | ({"transaction_ids": True} if with_transactions else {}),
        f"log {config.database.log_table}: {what}, now at {_revisions(after)}{more}",
        is_confirmation=True,
    )


def _add_transaction_ids(config: Config) -> bool:
    """Add the column of transaction ids to the log. Return False if the log has the column already.
    Raises LogInUse while other sessions use the log for longer than the command waits.
    """
    with changing_log(config) as log:
        if log.table.transaction_column is not None:
            return False
        log.commit()
        in_turn(log, log.add_transaction_ids)
    return True


def run_current(context: CommandContext, request: object, config: Config) -> CommandResult:
    """Run ``eventlog db current``."""
    engine, _ = engine_of(config)
    set_purpose(engine, Purpose.MONITOR, hides_rows=config.hides_rows)
    reached, newest = _reached(engine, config), migrations.heads()
    log = config.database.log_table
    newer = ", ".join(revision for revision in newest if revision not in reached)
    row = log, _revisions(reached), newer or None
    return CommandResult(
        {"log": log, "current": reached, "heads": newest},
        partial(table, ("log", "current", "not applied"), [row]),
    )


def run_epoch(context: CommandContext, request: object, config: Config) -> CommandResult:
    """Run ``eventlog db start-epoch``."""
    with changing_log(config, Purpose.EPOCH) as log:
        log.db.begin_publishing()
        server = log.server_parts()
        lock_within(ledger_of(log), LOCK_WAIT)
        if running := [one.name for one in read_consumers(log) if log.is_consumer_locked(one.name)]:
            raise ConsumerRuns(
                f"{first_of(running, 3)} of the log {log} runs, and would continue under the old "
                "epoch: stop it first"
            )
        entry = read_epoch(log)
        epoch, _ = raise_epoch(log, {**entry.server, **server})
        advice = advice_for_consumers(log)
        end_change(log, dry=False)
    return CommandResult(
        {"log": str(log), "epoch": epoch, "before": entry.epoch or None},
        f"log {log}: new event-ids carry the epoch {epoch}, as in 17.e{epoch}{advice}",
        is_confirmation=True,
    )


def run_partition(context: CommandContext, request: Partition, config: Config) -> CommandResult:
    """Run ``eventlog db partition``."""
    with changing_log(config) as log:
        means = means_to_partition(log)
        if means.leaves(log):
            raise ConfigError(f"the log {log} is partitioned already: nothing to do")
        reached = _reached(log.connection, config)
        refuse_to_partition(log, means, is_ours=migrations.drops_log(reached, "base"))
        lock_all_readers(log)
        first, last = extent(log) or (1, 0)
        width = request.leaf_size or max((last - first + 1) // 4, _MIN_WIDTH)
        log.commit()
        if_stopped(_PARTITIONING)
        in_turn(log, lambda: means.prepare(log))
        leaves = in_turn(log, lambda: means.partition(log, width))
    if_stopped(DONE)
    ranges = ", ".join(leaf.name for leaf in leaves)
    return CommandResult(
        {"log": str(log), "leaves": [leaf._asdict() for leaf in leaves]},
        f"log {log}: partitioned, {width:,} record_ids per leaf ({ranges})",
        is_confirmation=True,
    )


def run_unpartition(context: CommandContext, request: Unpartition, config: Config) -> CommandResult:
    """Run ``eventlog db unpartition``."""
    with changing_log(config) as log:
        means = means_to_partition(log)
        if not means.leaves(log):
            raise ConfigError(f"the log {log} is not partitioned by eventlog: nothing to do")
        refuse_to_partition(log, means, is_ours=True)
        lock_all_readers(log)
        log.commit()
        if_stopped(_PARTITIONING)
        in_turn(log, lambda: means.finish(log))
        copied = in_turn(log, lambda: means.unpartition(log, request.max_copied))
    if_stopped(DONE)
    return CommandResult(
        {"log": str(log), "copied": copied},
        f"log {log}: one table again, {number_of(copied, 'row')} copied",
        is_confirmation=True,
    )


def run_downgrade(
    context: CommandContext, request: Downgrade, config: Config
) -> CommandResult | None:
    """Run ``eventlog db downgrade``."""
    revision = request.revision
    if request.as_sql:
        whose = offline(config, request.dialect_name)
        migrations.downgrade(
            None, revision=revision, existing_log=request.existing_log, sql=sys.stdout, **whose
        )
        return None
    asks = not request.yes and sees_terminal()
    if request.dry or asks:
        # The command asks outside of the transaction that drops, so that no lock is kept while it
        # waits for the answer.
        with reading(config) as db:
            what = _what_is_dropped(db, config, request)
            before = _reached(db.connection, config)
        if request.dry:
            return CommandResult(
                {**_moved(config, before, before), "dry_run": True, "would": what},
                f"{what} With --dry-run nothing is dropped.",
            )
        confirm(what, yes=False)
    with changing(config) as db:
        what = _what_is_dropped(db, config, request)
        if not asks:
            note(what)
        before = _reached(db.connection, config)
        migrations.downgrade(db.connection, revision=revision, **names(config))
        after = _reached(db.connection, config)
    return CommandResult(
        {**_moved(config, before, after), "dry_run": False},
        f"log {config.database.log_table}: now at {_revisions(after)}",
        is_confirmation=True,
    )


def lock_all_readers(log: OpenLog) -> None:
    """Lock a log's publisher and all consumers for this session. Ends the transaction.

    Raises PublisherAlreadyRunning, or ConsumerRuns, which names the session of the consumer.
    """
    lock_within(ledger_of(log), LOCK_WAIT)
    for consumer in read_consumers(log):
        if not try_within(partial(log.try_consumer_lock, consumer.name), log):
            holder = log.consumer_holder(consumer.name)
            by = f" as {holder}" if holder else ""
            raise ConsumerRuns(
                f"the consumer {consumer.name} of the log {log} runs{by}: stop it first"
            )
    log.commit()


def _moved(config: Config, before: Sequence[str], after: Sequence[str]) -> JsonObject:
    """Return the revisions of the log before and after a migration as an object for JSON."""
    return {"log": config.database.log_table, "before": before, "current": after}


def _pairs(renamed: Sequence[str]) -> dict[str, str]:
    """Return assignments ``OLD=NEW`` as a mapping. Raises ConfigError."""
    pairs = [one.partition("=") for one in renamed]
    if wrong := next(
        (one for one, (old, _, new) in zip(renamed, pairs, strict=True) if not (old and new)), None
    ):
        raise ConfigError(f"--name {wrong}: write NAME=OTHER, such as IDX_EVENTLOG_5=LOG_QUEUE")
    return {old: new for old, _, new in pairs}


def _reached(place: Connection | Engine, config: Config) -> tuple[str, ...]:
    """Return the revisions that the log has reached."""
    return migrations.current(place, **names(config))


def names(config: Config) -> dict[str, Any]:
    """Return the log and its schema as arguments of the migrations."""
    return {"log_table": config.database.log_table, "schema": config.database.schema_name}


def offline(config: Config, dialect_name: str | None = None) -> dict[str, Any]:
    """Return the arguments of migrations that only write SQL. Without ``dialect_name`` the SQL is
    for the configured URL's database.
    """
    return {
        **names(config),
        "dialect_name": dialect_name or dialect_of(connection_url(config.database)).name,
    }


def _usable_log(db: OpenDatabase, config: Config) -> OpenLog | None:
    """Return the log, or None if a publisher cannot use it."""
    with suppress(LogTableError):
        return find_log(db, config)
    return None


def refuse_to_lose_rows(db: OpenDatabase, config: Config) -> None:
    """Raise ConfigError if the log has unpublished rows."""
    log = _usable_log(db, config)
    last = None if log is None else tail(log)
    if last is not None:
        raise ConfigError(
            f"the log {log} has rows that are not published (up to record_id {last}) and would be "
            "lost: publish them, or give --force"
        )


def refuse_to_forget_deliveries(db: OpenDatabase, config: Config) -> None:
    """Raise ConfigError if deliveries of the log are in flight. The events of these deliveries
    would be sent again with other rows under the same event-ids.
    """
    log = _usable_log(db, config)
    if log is not None and read_entries(log, EntryKind.DELIVERY, None):
        raise ConfigError(
            f"the log {log} has deliveries in flight, which would be forgotten: let the publisher "
            "and the consumers finish them, or give --force"
        )


def _what_is_dropped(db: OpenDatabase, config: Config, request: Downgrade) -> str:
    """Return the sentence on what a downgrade drops. Raises ConfigError if triggers write to the
    log, or without --force if rows would be lost.
    """
    log, reached = config.database.log_table, _reached(db.connection, config)
    drops_log = migrations.drops_log(reached, request.revision)
    if request.revision != "base" and not drops_log:
        return (
            f"This removes from the log {log} what the migrations after {request.revision} "
            "created, with its data."
        )
    _refuse_to_orphan_triggers(db, config)
    if not reached:
        return f"eventlog has created nothing of the log {log}: nothing is dropped."
    if not drops_log:
        if not request.force:
            refuse_to_forget_deliveries(db, config)
        return (
            f"This drops the internal tables of the log {log} that eventlog created. The log and "
            "its rows stay: another program created it."
        )
    if not request.force:
        refuse_to_lose_rows(db, config)
    if request.revision == "base":
        return (
            f"This drops the log {log} with all its rows, and its internal tables (each only if "
            "eventlog created it)."
        )
    return f"This drops the log {log} with all its rows."


def _refuse_to_orphan_triggers(db: OpenDatabase, config: Config) -> None:
    """Raise ConfigError if triggers write to the log, since writes to the tables of these triggers
    would fail without the log.
    """
    try:
        log = find_log(db, config)
    except LogTableError:  # no publisher can use such a log, but triggers write to it
        log = db.log(log_named(config, db.dialect, config.database.schema_name))
    try:
        installed = triggers_of(db.dialect).installed(log)
    except LogTableError:
        return
    if installed:
        tables = ", ".join(sorted({one.table for one in installed}))
        raise ConfigError(
            f"triggers on {tables} write the log {config.database.log_table}, and without it "
            "every statement on these tables would fail: run `eventlog triggers drop` first, or "
            "`eventlog triggers drop --drop-log` for both"
        )


def _revisions(revisions: tuple[str, ...]) -> str:
    return ", ".join(revisions) or "base (nothing)"
