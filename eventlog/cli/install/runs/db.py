"""The run of ``eventlog db``: create and upgrade the log and its internal tables by migrations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import click
from sqlalchemy import Connection

from eventlog.cli.context import (
    CommandContext,
    changing,
    confirm,
    engine_of,
    note,
    print_json,
    reading,
    result,
    sees_terminal,
    session,
    table,
)
from eventlog.cli.stopping import COMMITTING, DONE, if_stopped
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
from eventlog.sql.connect import dialect_of, new_log
from eventlog.sql.log import extent, raise_epoch, read_epoch, tail
from eventlog.sql.log_table import split_name
from eventlog.sql.port import OpenDatabase, OpenLog, Purpose, Storage, set_purpose
from eventlog.sql.readers import read_consumers
from eventlog.sql.triggers import triggers_of

_MIN_WIDTH: Final = 100_000
"""The least number of record_ids in a leaf, unless another size is requested."""

_PARTITIONING: Final = (
    "the log has all of its rows, in one table or in its leaves; run the same command again to "
    "complete it"
)


def run_db_upgrade(
    context: CommandContext,
    revision: str,
    tablespace: str | None,
    index_tablespace: str | None,
    renamed: tuple[str, ...],
    dialect_name: str | None,
    *,
    existing_log: bool,
    as_sql: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog db upgrade``: the parameters are its argument and options."""
    config = context.config()
    storage = Storage(tablespace, index_tablespace, _pairs(renamed))
    if as_sql:
        whose = offline(config, dialect_name)
        migrations.upgrade(
            None,
            revision=revision,
            existing_log=existing_log,
            sql=sys.stdout,
            storage=storage,
            **whose,
        )
        return
    _refuse_dialect(dialect_name)
    url = connection_url(config.database)
    dialect_of(url).prepare(url)
    with changing(config) as db:
        if existing_log:
            with suppress(NoLogTable):  # it may be created later
                find_log(db, config, has_internal_tables=False)
        before = migrations.current(db.connection, **names(config))
        migrations.upgrade(
            db.connection,
            revision=revision,
            existing_log=existing_log,
            storage=storage,
            **names(config),
        )
        after = migrations.current(db.connection, **names(config))
    if as_json:
        print_json(_moved(config, before, after))
    elif not context.quiet:
        what = "nothing to do" if after == before else "upgraded"
        result(f"log {config.database.log_table}: {what}, now at {_revisions(after)}")


def run_db_current(context: CommandContext, *, as_json: bool) -> None:
    """Run ``eventlog db current``: the parameters are its argument and options."""
    config = context.config()
    engine, _ = engine_of(config)
    set_purpose(engine, Purpose.MONITOR)
    reached, newest = migrations.current(engine, **names(config)), migrations.heads()
    if as_json:
        print_json({"log": config.database.log_table, "current": reached, "heads": newest})
        return
    newer = [revision for revision in newest if revision not in reached]
    table(
        ("log", "current", "not applied"),
        [(config.database.log_table, _revisions(reached), ", ".join(newer) or None)],
    )


def run_db_start_epoch(context: CommandContext, *, as_json: bool) -> None:
    """Run ``eventlog db start-epoch``: the parameters are its argument and options."""
    config = context.config()
    with session(config, Purpose.EPOCH) as db:
        log = find_log(db, config)
        db.begin_publishing()
        server = log.server_parts()
        lock_within(ledger_of(log), LOCK_WAIT)
        if running := [one.name for one in read_consumers(log) if log.is_consumer_locked(one.name)]:
            raise ConsumerRuns(
                f"{first_of(running, 3)} of the log {log} runs, and would continue under the old "
                "epoch: stop it first"
            )
        line = read_epoch(log)
        epoch, _ = raise_epoch(log, {**line.server, **server})
        advice = advice_for_consumers(log)
        if_stopped(COMMITTING)
        db.connection.commit()
    if_stopped(DONE)
    if as_json:
        print_json({"log": str(log), "epoch": epoch, "before": line.epoch or None})
    elif not context.quiet:
        result(f"log {log}: new event-ids carry the epoch {epoch}, as in 17.e{epoch}{advice}")


def run_db_partition(context: CommandContext, leaf_size: int | None, *, as_json: bool) -> None:
    """Run ``eventlog db partition``: the parameters are its argument and options."""
    config = context.config()
    with session(config) as db:
        log = find_log(db, config)
        means = means_to_partition(log)
        if means.leaves(log):
            raise ConfigError(f"the log {log} is partitioned already: nothing to do")
        reached = migrations.current(db.connection, **names(config))
        refuse_to_partition(log, means, is_ours=migrations.drops_log(reached, "base"))
        lock_all_readers(log)
        first, last = extent(log) or (1, 0)
        width = leaf_size or max((last - first + 1) // 4, _MIN_WIDTH)
        log.commit()
        if_stopped(_PARTITIONING)
        in_turn(log, lambda: means.prepare(log))
        leaves = in_turn(log, lambda: means.partition(log, width))
    if_stopped(DONE)
    if as_json:
        print_json({"log": str(log), "leaves": [leaf._asdict() for leaf in leaves]})
    elif not context.quiet:
        ranges = ", ".join(leaf.name for leaf in leaves)
        result(f"log {log}: partitioned, {width:,} record_ids per leaf ({ranges})")


def run_db_unpartition(context: CommandContext, max_copied: int, *, as_json: bool) -> None:
    """Run ``eventlog db unpartition``: the parameters are its argument and options."""
    config = context.config()
    with session(config) as db:
        log = find_log(db, config)
        means = means_to_partition(log)
        if not means.leaves(log):
            raise ConfigError(f"the log {log} is not partitioned by eventlog: nothing to do")
        refuse_to_partition(log, means, is_ours=True)
        lock_all_readers(log)
        log.commit()
        if_stopped(_PARTITIONING)
        in_turn(log, lambda: means.finish(log))
        copied = in_turn(log, lambda: means.unpartition(log, max_copied))
    if_stopped(DONE)
    if as_json:
        print_json({"log": str(log), "copied": copied})
    elif not context.quiet:
        result(f"log {log}: one table again, {number_of(copied, 'row')} copied")


def run_db_downgrade(
    context: CommandContext,
    revision: str,
    dialect_name: str | None,
    *,
    existing_log: bool,
    force: bool,
    yes: bool,
    dry: bool,
    as_sql: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog db downgrade``: the parameters are its argument and options."""
    config = context.config()
    if as_sql:
        whose = offline(config, dialect_name)
        migrations.downgrade(
            None, revision=revision, existing_log=existing_log, sql=sys.stdout, **whose
        )
        return
    _refuse_dialect(dialect_name)

    def drops_log(conn: Connection) -> bool:
        return revision == "base" or migrations.drops_log(
            migrations.current(conn, **names(config)), revision
        )

    def refuse_downgrade(db: OpenDatabase) -> None:
        if drops_log(db.connection):
            _refuse_to_orphan_triggers(db, config)
            if not force:
                refuse_to_lose_rows(db, config)

    if dry:
        with reading(config) as db:
            refuse_downgrade(db)
            what = _what_is_dropped(config, revision, drops_log=drops_log(db.connection))
            before = migrations.current(db.connection, **names(config))
        if as_json:
            print_json({**_moved(config, before, before), "dry_run": True, "would": what})
        else:
            result(f"{what} With --dry-run nothing is dropped.")
        return
    if not yes and sees_terminal():
        # The command asks outside of the transaction that drops, so that no lock is kept while it
        # waits for the answer.
        with reading(config) as db:
            refuse_downgrade(db)
            what = _what_is_dropped(config, revision, drops_log=drops_log(db.connection))
        confirm(what, yes=yes)
    with changing(config) as db:
        refuse_downgrade(db)
        if yes or not sees_terminal():
            note(_what_is_dropped(config, revision, drops_log=drops_log(db.connection)))
        before = migrations.current(db.connection, **names(config))
        migrations.downgrade(db.connection, revision=revision, **names(config))
        after = migrations.current(db.connection, **names(config))
    if as_json:
        print_json({**_moved(config, before, after), "dry_run": False})
    elif not context.quiet:
        result(f"log {config.database.log_table}: now at {_revisions(after)}")


def lock_all_readers(log: OpenLog) -> None:
    """Lock a log's publisher and all consumers for this session. Ends the transaction.

    Raises PublisherAlreadyRunning, and ConsumerRuns that names the session of a consumer.
    """
    lock_within(ledger_of(log), LOCK_WAIT)
    for consumer in read_consumers(log):
        if not try_within(partial(log.try_consumer_lock, consumer.name), log, LOCK_WAIT):
            holder = log.consumer_holder(consumer.name)
            by = f" as {holder}" if holder else ""
            raise ConsumerRuns(
                f"the consumer {consumer.name} of the log {log} runs{by}: stop it first"
            )
    log.commit()


def _moved(config: Config, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
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


def _refuse_dialect(dialect_name: str | None) -> None:
    """Raise a usage error if --dialect is given without --sql."""
    if dialect_name is not None:
        raise click.UsageError(
            "--dialect needs --sql, which prints the statements without running them"
        )


def refuse_to_lose_rows(db: OpenDatabase, config: Config) -> None:
    """Raise ConfigError if the log has unpublished rows."""
    try:
        log = find_log(db, config)
    except LogTableError:
        return
    last = tail(log)
    if last is not None:
        raise ConfigError(
            f"the log {log} has rows that are not published (up to record_id {last}) and would be "
            "lost: publish them, or give --force"
        )


def _what_is_dropped(config: Config, revision: str, *, drops_log: bool) -> str:
    log = config.database.log_table
    if revision == "base":
        return (
            f"This drops the log {log} with all its rows, and its internal tables (each only if "
            "eventlog created it)."
        )
    if drops_log:
        return f"This drops the log {log} with all its rows."
    return (
        f"This removes from the log {log} what the migrations after {revision} created, with its "
        "data."
    )


def _refuse_to_orphan_triggers(db: OpenDatabase, config: Config) -> None:
    """Raise ConfigError if triggers write to the log, since writes to their tables would fail
    without it.
    """
    try:
        log = find_log(db, config).table
    except LogTableError:  # no publisher can use such a log, but triggers write to it
        own_schema, name = split_name(config.database.log_table)
        log = new_log(db.dialect, own_schema or config.database.schema_name, name)
    try:
        installed = triggers_of(db.dialect).installed(db.connection, log)
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
