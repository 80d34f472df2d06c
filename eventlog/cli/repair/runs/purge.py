"""The run of ``eventlog purge``: remove processed rows by age, one transaction per batch
(spec/event-log.md 11), and the leaves of a partitioned log (spec/event-log.md 14).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import click

from eventlog.cli.context import (
    CommandContext,
    confirm,
    note,
    print_json,
    progress,
    result,
    session,
)
from eventlog.cli.stopping import DONE, NOTHING, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, LogInUse, number_of
from eventlog.publisher.declared import find_log
from eventlog.publisher.upkeep import (
    Extent,
    LeafPurge,
    cut_ahead,
    detached_leaf,
    extent_of,
    finish_leaf,
    in_turn,
    means_to_partition,
    purge_batches,
    purge_error_lines,
    purge_leaves,
    refuse_unless_owner,
)
from eventlog.sql.log import Purged, check_purge_rights, purge_cutoff
from eventlog.sql.port import OpenLog, Purpose

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def run_purge(
    context: CommandContext,
    age: str | None,
    size: int,
    pause: float,
    table: str | None,
    *,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog purge``: the parameters are its argument and options."""
    if table is not None:
        if age is not None:
            raise click.UsageError("--finish goes without --older-than: it drops one table")
        _finish(context, table, yes=yes, dry=dry, as_json=as_json)
        return
    config = context.config()
    limit, older = _limit(config, age)
    with session(config, Purpose.PURGE) as db:
        log = find_log(db, config)
        if not dry:
            check_purge_rights(log)
        event_time, error_time = purge_cutoff(log, config.publisher.event_time_zone, limit)
        cutoff = event_time.isoformat(" ", "seconds")
        to_check = extent_of(log)
        log.commit()
        if not dry:
            confirm(
                f"This removes from the log {log} all rows of status S and W {older} (before "
                f"{cutoff}), and their error rows.",
                yes=yes,
            )
        detached = _detached(log)
        max_bytes = config.database.keep_bytes
        leaves, to_check = _purge_leaves(log, event_time, to_check, max_bytes, dry=dry)
        # Rows that were logged after the start are too new.
        batches = purge_batches(
            log,
            to_check,
            size,
            event_time,
            to_the_end=config.publisher.handle_future_events,
            dry=dry,
        )
        removed = dict.fromkeys(("checked", "rows", "error_lines", "batches"), 0)
        kept: Counter[str] = Counter()
        done = to_check.first - 1
        with progress(
            "Purge", to_check.last - done, context.quiet or as_json, "record_ids"
        ) as advance:
            for batch in _each_committed(log, batches, pause):
                removed["rows"] += batch.removed
                removed["checked"] += batch.rows_checked
                kept.update(batch.kept)
                removed["batches"] += 1
                _if_purge_stopped(removed, leaves, dry=dry)
                advance(batch.last - done)
                done = batch.last
        error_lines = purge_error_lines(log, size, event_time, error_time, dry=dry)
        for batch in _each_committed(log, error_lines, pause):
            removed["error_lines"] += batch.removed
            removed["batches"] += 1
            _if_purge_stopped(removed, leaves, dry=dry)
    if_stopped(NOTHING if dry else DONE)
    removed["rows"] += sum(one.rows for one in leaves)
    removed["checked"] += sum(one.rows + one.moved for one in leaves)
    gone = [one for one in leaves if not one.why_kept]
    held_back = next((one for one in leaves if one.why_kept), None)
    if as_json:
        of_leaves = {
            "leaves": len(gone),
            "kept_leaf": held_back and {"name": held_back.leaf.name, "reason": held_back.why_kept},
        }
        print_json(
            {"log": str(log), "dry_run": dry, "cutoff": cutoff, **removed, "kept": dict(kept)}
            | (of_leaves if log.table.is_partitioned else {})
            | ({"detached": detached} if detached else {})
        )
    elif not context.quiet:
        verb = "would be removed" if dry else "removed"
        if gone:
            result(f"{len(gone)} {'leaf' if len(gone) == 1 else 'leaves'} {verb}")
        if held_back is not None:
            result(f"leaf {held_back.leaf.name} stays: {held_back.why_kept}")
        result(
            f"log {log}, before {cutoff}: {removed['rows']:,} of "
            f"{number_of(removed['checked'], 'row')} {verb}, "
            f"{number_of(removed['error_lines'], 'error row')} {verb}"
        )
        for name, number in kept.items():
            result(f"{number_of(number, 'row')} kept for consumer {name}, still to process")


def _finish(context: CommandContext, name: str, *, yes: bool, dry: bool, as_json: bool) -> None:
    """Drop a table that was a leaf of the log and that no purge has recorded."""
    config = context.config()
    with session(config, Purpose.PURGE) as db:
        log = find_log(db, config)
        means = means_to_partition(log)
        refuse_unless_owner(log, means)
        check_purge_rights(log)
        unprocessed = detached_leaf(log, name).unprocessed or 0
        log.commit()
        if not dry:
            confirm(
                f"This drops the table {name}, which was a leaf of the log {log}. It has "
                f"{number_of(unprocessed, 'row')} that are not of status S or W, which are first "
                "put back into the log, unless the log has them.",
                yes=yes,
            )
        put_back = None if dry else in_turn(log, partial(finish_leaf, log, means, name))
    report = {"log": str(log), "dry_run": dry, "table": name, "unprocessed": unprocessed}
    if as_json:
        print_json(report | {"put_back": put_back})
    elif not context.quiet:
        what = "would be dropped" if dry else f"dropped, {number_of(put_back or 0, 'row')} put back"
        result(
            f"log {log}, table {name} with {number_of(unprocessed, 'row')} that are not of status "
            f"S or W: {what}"
        )


def _detached(log: OpenLog) -> list[str]:
    """Return the detached tables that no purge has recorded, and report them."""
    means = log.dialect.partitioning
    names = [one.name for one in means.unrecorded(log)] if means is not None else []
    for name in names:
        note(
            f"the table {name} was a leaf of the log {log}, and no purge has recorded its removal, "
            f"so it stays. If nobody needs it, run: eventlog purge --finish {name}"
        )
    log.commit()
    return names


def _limit(config: Config, age: str | None) -> tuple[timedelta, str]:
    """Return the least age of the rows to remove, and these rows in words. Raises ConfigError if
    neither an option nor a setting limits the log.
    """
    keep_days, keep_bytes = config.database.keep_days, config.database.keep_bytes
    if age is not None:
        return parse_age(age), f"older than {age.strip()}"
    if keep_days is not None:
        return timedelta(days=keep_days), f"older than keep_days = {keep_days}"
    if keep_bytes is not None:
        return timedelta.max, f"of the oldest leaves, to keep_bytes = {keep_bytes:,}"
    raise ConfigError("give --older-than AGE, or set keep_days or keep_bytes in [database]")


def _if_purge_stopped(
    removed: Mapping[str, int], leaves: Sequence[LeafPurge], *, dry: bool
) -> None:
    """Set the sentence of a purge that a signal stops from now on."""
    if dry:
        return
    rows = removed["rows"] + sum(one.rows for one in leaves)
    if_stopped(
        f"{number_of(rows, 'row')} and {number_of(removed['error_lines'], 'error row')} were "
        "removed; run the same command again to remove the rest"
    )


def _purge_leaves(
    log: OpenLog, event_time: datetime, to_check: Extent, max_bytes: int | None, *, dry: bool
) -> tuple[list[LeafPurge], Extent]:
    """Purge the leaves of a partitioned log whose owner this session is. Return the result for the
    leaves, and which rows remain to be purged one by one.
    """
    means = log.dialect.partitioning
    known = means.leaves(log) if means is not None and log.table.is_partitioned else []
    if means is None or not known:
        if max_bytes is not None:
            note(
                f"keep_bytes has no effect on the log {log}, which is not partitioned: the space "
                "of deleted rows stays in the table"
            )
        return [], to_check
    if not means.is_owner(log):
        note(
            f"user {log.db.current_user()} does not own the log {log}, so that rows are deleted "
            "one by one and no leaf is removed or cut"
        )
        return [], to_check
    log.commit()
    if not dry:
        if_stopped("some leaves may be removed; run the same command again to remove the rest")
        in_turn(log, lambda: means.finish(log))
        try:
            cut_ahead(log, means)
        except LogInUse as error:
            note(f"the open leaf was not cut: {error}")
    found = list(purge_leaves(log, means, event_time, max_bytes=max_bytes, dry=dry))
    size = sum(means.sizes(log).values())
    log.commit()
    if max_bytes is not None and size > max_bytes and not dry:
        note(
            f"the log {log} has {size:,} bytes, more than keep_bytes = {max_bytes:,}: rows that "
            "are needed stay, and so do the lowest leaf and the leaf of the newest row"
        )
    # The leaf will be removed as a whole later; deleting its rows now would leave dead rows
    # unnecessarily.
    lowest = means.leaves(log)[0]
    log.commit()
    ends = [lowest.end, *(one.leaf.end for one in found if one.by_rows)]
    last = max(one for one in ends if one is not None) - 1
    return found, to_check._replace(last=min(to_check.last, last))


def _each_committed(log: OpenLog, batches: Iterator[Purged], pause: float) -> Iterator[Purged]:
    """Yield the batches, each committed, ``pause`` seconds apart."""
    for batch in batches:
        log.commit()
        yield batch
        if pause:
            sleep(pause)
    log.commit()


def parse_age(text: str) -> timedelta:
    """Return the span of time of a text such as ``30d``. Raises ConfigError."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smhdw])\s*", text, re.ASCII)
    if match is None:
        raise ConfigError(
            f"--older-than {text}: write a number and its unit, such as 30d, 12h, 90m, 45s or 2w"
        )
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        message = f"--older-than {text}: no log is that old; write 30d or the like"
        raise ConfigError(message) from None
