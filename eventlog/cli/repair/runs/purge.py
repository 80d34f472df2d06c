"""The run of ``eventlog purge``: remove processed rows by age, one transaction per batch
(spec/event-log.md 11), and the leaves of a partitioned log (spec/event-log.md 14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, JsonObject, changing_log, confirm, note, progress
from eventlog.cli.repair.purge import Purge, parse_age
from eventlog.cli.stopping import DONE, NOTHING, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, LogInUse, number_of
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
    purge_error_rows,
    purge_leaves,
    refuse_unless_owner,
)
from eventlog.sql.log import Purged, check_purge_rights, purge_cutoff
from eventlog.sql.port import OpenLog, Purpose

_REMOVED: Final = {True: "would be removed", False: "removed"}
"""The words for what happened to the rows, by the value of --dry-run."""


def run_purge(context: CommandContext, request: Purge, config: Config) -> CommandResult:
    """Run ``eventlog purge``."""
    dry = request.dry
    if request.table is not None:
        return _finish(config, request, request.table)
    limit, older = _limit(config, request.age)
    with changing_log(config, Purpose.PURGE) as log:
        if not dry:
            check_purge_rights(log)
        event_time, error_time = purge_cutoff(log, config.publisher.event_time_zone, limit)
        # keep_bytes alone has no least age.
        cutoff = None if limit == timedelta.max else event_time.isoformat(" ", "seconds")
        before = f" (before {cutoff})" if cutoff else ""
        whole = to_check = extent_of(log)
        log.commit()
        if not dry:
            confirm(
                f"This removes from the log {log} all rows of status S and W {older}{before}, "
                "and their error rows.",
                yes=request.yes,
            )
        detached = _detached(log)
        max_bytes = config.database.keep_bytes
        leaves, to_check = _purge_leaves(log, event_time, to_check, max_bytes, dry=dry)
        removed = Counter(
            checked=sum(one.rows + one.moved for one in leaves),
            rows=sum(one.rows for one in leaves),
            error_lines=0,
            batches=0,
        )
        kept: Counter[str] = Counter()
        # Rows that were logged after the start are too new.
        batches = purge_batches(
            log,
            to_check,
            request.size,
            event_time,
            to_the_end=config.publisher.handle_future_events,
            dry=dry,
        )
        done = to_check.first - 1
        span = to_check.last - done
        with progress("Purge", span, context.hides_progress, "record_ids") as advance:
            for batch in _each_counted(log, batches, request, removed, "rows"):
                removed["checked"] += batch.rows_checked
                kept.update(batch.kept)
                advance(batch.last - done)
                done = batch.last
        errors = purge_error_rows(log, request.size, event_time, error_time, dry=dry)
        for _ in _each_counted(log, errors, request, removed, "error_lines"):
            pass
    if_stopped(NOTHING if dry else DONE)
    data: JsonObject = {
        "log": str(log),
        "dry_run": dry,
        "cutoff": cutoff,
        **removed,
        "kept": dict(kept),
    }
    lines = [*_lines_of_leaves(leaves, dry=dry), *_lines(data)]
    if to_check.last < whole.last:
        lines.append("in a leaf that stays as a whole, rows are not counted")
    if log.table.is_partitioned:
        data["leaves"] = sum(not one.why_kept for one in leaves)
        data["kept_leaf"] = next(
            ({"name": one.leaf.name, "reason": one.why_kept} for one in leaves if one.why_kept),
            None,
        )
    if detached:
        data["detached"] = detached
    return CommandResult(data, "\n".join(lines), is_confirmation=True)


def _lines_of_leaves(leaves: Sequence[LeafPurge], *, dry: bool) -> Iterator[str]:
    """Yield what people see about the leaves."""
    kept = [one for one in leaves if one.why_kept]
    if gone := len(leaves) - len(kept):
        yield f"{gone} {'leaf' if gone == 1 else 'leaves'} {_REMOVED[dry]}"
    for one in kept[:1]:
        yield f"leaf {one.leaf.name} stays: {one.why_kept}"


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what people see about the rows."""
    verb = _REMOVED[data["dry_run"]]
    before = f", before {data['cutoff']}" if data["cutoff"] else ""
    yield (
        f"log {data['log']}{before}: {data['rows']:,} of "
        f"{number_of(data['checked'], 'row')} {verb}, "
        f"{number_of(data['error_lines'], 'error row')} {verb}"
    )
    for name, number in data["kept"].items():
        yield f"{number_of(number, 'row')} kept, not yet processed by consumer {name}"


def _finish(config: Config, request: Purge, name: str) -> CommandResult:
    """Drop a table that was a leaf of the log and that no purge has recorded."""
    with changing_log(config, Purpose.PURGE) as log:
        means = means_to_partition(log)
        refuse_unless_owner(log, means)
        check_purge_rights(log)
        unprocessed = detached_leaf(log, name).unprocessed or 0
        log.commit()
        rows = f"{number_of(unprocessed, 'row')} that are not of status S or W"
        put_back, what = None, "would be dropped"
        if not request.dry:
            confirm(
                f"This drops the table {name}, which was a leaf of the log {log}. It has {rows}, "
                "which are first put back into the log, unless the log has them.",
                yes=request.yes,
            )
            put_back = in_turn(log, partial(finish_leaf, log, means, name))
            what = f"dropped, {number_of(put_back, 'row')} put back"
    return CommandResult(
        {
            "log": str(log),
            "dry_run": request.dry,
            "table": name,
            "unprocessed": unprocessed,
            "put_back": put_back,
        },
        f"log {log}, table {name} with {rows}: {what}",
        is_confirmation=True,
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


def _purge_leaves(
    log: OpenLog, event_time: datetime, to_check: Extent, max_bytes: int | None, *, dry: bool
) -> tuple[list[LeafPurge], Extent]:
    """Purge the leaves of a partitioned log that the user of this session owns. Return the result
    for the leaves, and which rows remain to be purged one by one.
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
            f"user {log.db.current_user()} does not own the log {log}, so rows are deleted one "
            "by one, and no leaf is removed or made"
        )
        return [], to_check
    log.commit()
    if not dry:
        if_stopped(
            "some leaves may already be removed; run the same command again to remove the rest"
        )
        in_turn(log, lambda: means.finish(log))
        try:
            cut_ahead(log, means)
        except LogInUse as error:
            note(f"the next leaf was not made: {error}")
    found = list(purge_leaves(log, means, event_time, max_bytes=max_bytes, dry=dry))
    size = sum(means.sizes(log).values())
    log.commit()
    if max_bytes is not None and size > max_bytes and not dry:
        note(
            f"the log {log} has {size:,} bytes, more than keep_bytes = {max_bytes:,}: needed "
            "rows, the lowest leaf and the leaf of the newest row stay"
        )
    # The leaf will be removed as a whole later; deleting its rows now would leave dead rows
    # unnecessarily.
    lowest = means.leaves(log)[0]
    log.commit()
    ends = [lowest.end, *(one.leaf.end for one in found if one.by_rows)]
    last = max(one for one in ends if one is not None) - 1
    return found, to_check._replace(last=min(to_check.last, last))


def _each_counted(
    log: OpenLog, batches: Iterable[Purged], request: Purge, removed: Counter[str], what: str
) -> Iterator[Purged]:
    """Yield the batches. Each batch is committed and counted, and there is a pause between two
    batches.
    """
    for batch in batches:
        log.commit()
        removed[what] += batch.removed
        removed["batches"] += 1
        if not request.dry:
            if_stopped(
                f"{number_of(removed['rows'], 'row')} and "
                f"{number_of(removed['error_lines'], 'error row')} were removed; run the same "
                "command again to remove the rest"
            )
        yield batch
        if request.pause:
            sleep(request.pause)
    log.commit()
