"""The run of ``eventlog filter``: accept the filters and masks of a reader (spec/event-log.md
15.3).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, JsonObject, changing_log, end_change
from eventlog.cli.install.filter import Accept
from eventlog.cli.repair.resync import Resync
from eventlog.cli.repair.runs.resync import run_resync
from eventlog.config.load import Config
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.filters import Filter, digest_of
from eventlog.core.catalog.masks import HASH
from eventlog.errors import first_of, number_of, together
from eventlog.exit_codes import ExitCode
from eventlog.publisher.declared import (
    filters_of,
    masks_of,
    shown_by_generated,
    tried_catalog,
    without_hashes,
    wrong_conditions,
)
from eventlog.publisher.inspect import renew_recorded
from eventlog.publisher.ledger import LOCK_WAIT, ledger_of, lock_within
from eventlog.sql.log import (
    AcceptedFilters,
    RecordedMasks,
    accept_filters,
    accepted_filters,
    key_of,
    masks_to_record,
    record_masks,
    recorded_masks,
)
from eventlog.sql.port import OpenLog, UnsafeSchema
from eventlog.sql.readers import consumers


class _Accepted(NamedTuple):
    """What was accepted, or would be accepted with --dry-run."""

    log: str
    is_changed: bool
    """True if the filters are others."""
    masks_changed: bool
    classes: Sequence[str]
    """The classes of which the receiver may lack objects, or have objects that it must not have."""
    is_new: bool
    """True if the reader is a consumer that is not registered yet."""
    others: Sequence[str]
    """The consumers that also read the rows of a resync for the publisher."""
    refused: Mapping[str, Exception]
    unsafe: Sequence[UnsafeSchema]


def run_accept(context: CommandContext, request: Accept, config: Config) -> CommandResult:
    """Run ``eventlog filter accept``."""
    filters, consumer = filters_of(config), request.consumer or config.of_log.consumer
    with changing_log(config) as log:
        done = _accept(log, config, filters, consumer, request)
    resyncs = []
    if request.resend and consumer is None and not request.dry:
        resyncs = [run_resync(context, Resync(name, restart=True), config) for name in done.classes]
    data: JsonObject = {
        "log": done.log,
        "consumer": consumer,
        "filters": len(filters),
        "changed": done.is_changed,
        "masks_changed": done.masks_changed,
        "resent": list(done.classes) if request.resend and not done.is_new else [],
        "dry_run": request.dry,
    }
    lines = [*_sentences(request, done, len(filters), consumer)]
    lines += [str(one.show) for one in resyncs]
    lines += [
        str(error)
        for error in done.refused.values()
        if "[[filter]]" in str(error) or "[[mask]]" in str(error)
    ]
    lines += [f"{one}; run {one.fix}" for one in done.unsafe]
    code = max((one.exit_code for one in resyncs), default=ExitCode.DONE)
    return CommandResult(data, "\n".join(lines), code, is_confirmation=not request.dry)


def _accept(
    log: OpenLog, config: Config, filters: Sequence[Filter], consumer: str | None, request: Accept
) -> _Accepted:
    catalog = tried_catalog(log, without_hashes(config))
    before = accepted_filters(log, consumer)
    is_changed = before.digest != digest_of(filters)
    changed = before.changed(filters)
    tried = [one for one in filters if is_changed and (changed is None or one.table in changed)]
    if wrong := wrong_conditions(log.db, tried):
        raise together(wrong)
    is_new = consumer is not None and not has_consumer(log, consumer)
    refused, _ = shown_by_generated(log, config, catalog, consumer)
    catalog = catalog.without(refused) if refused else catalog
    masks_before, masks = _masks(log, config, consumer, catalog)
    masked = [] if is_new else _masked_tables(masks_before, masks, config, is_known=is_changed)
    classes = _classes_to_send(catalog, before, filters, masked, is_changed=is_changed)
    is_written = not is_new and masks != masks_before
    if (is_changed or is_written) and not request.dry and not is_new:
        lock_within(ledger_of(log, consumer), LOCK_WAIT)  # it does not run meanwhile
    if is_changed or masked:
        renew_recorded(log, consumer)
    if is_changed:
        accept_filters(log, consumer, filters)
    if is_written:
        record_masks(log, consumer or "", masks)
    if request.resend and consumer is not None and not is_new and classes:
        consumers.resend_classes(log, consumer, classes)
    others = () if consumer is not None else consumers.consumer_names(log)
    unsafe = log.db.unsafe_schemas()
    end_change(log, dry=request.dry)
    return _Accepted(
        str(log), is_changed, bool(masked), classes, is_new, others, catalog.unavailable, unsafe
    )


def _masks(
    log: OpenLog, config: Config, consumer: str | None, catalog: Catalog
) -> tuple[RecordedMasks | None, RecordedMasks]:
    """Return the recorded masks of a reader, and its masks from now on. It is not recorded under
    which secret they hash unless that is known to be the same as before.
    """
    masks = masks_of(config)
    before = recorded_masks(log, consumer or "")
    key = key_of(log, consumer or "", masks)
    is_same = before is not None and before.key == key
    return before, masks_to_record(masks, before, catalog, key if is_same else None)


def _masked_tables(
    before: RecordedMasks | None, masks: RecordedMasks, config: Config, *, is_known: bool
) -> list[str]:
    """Return the tables whose masks are others, none if the former masks are unknown. With another
    secret these are also the tables with hashes. Without the secret, what has changed is unknown
    unless ``is_known`` is true because the filters have: the tables with filters are added.
    """
    if before is None:
        return []
    names = [*before.tables, *masks.tables]
    changed = [one for one in names if before.tables.get(one) != masks.tables.get(one)]
    has_secret = config.format.mask_secret is not None
    if before.key != masks.key and (has_secret or not (changed or is_known)):
        changed += [one.table for one in config.masks if one.how == HASH]
        changed += [] if has_secret else [one.table for one in config.filters]
    return list(dict.fromkeys(changed))


def _classes_to_send(
    catalog: Catalog,
    before: AcceptedFilters,
    filters: Sequence[Filter],
    masked: Sequence[str],
    *,
    is_changed: bool,
) -> list[str]:
    """Return the classes whose filter or mask has changed; ``masked`` are the tables of these
    masks. If nothing has changed, or the change is unknown, return all classes with a filter.
    """
    tables = before.changed(filters) if is_changed else None
    if tables is None:
        tables = [] if masked and not is_changed else [one.table for one in filters]
    found = (catalog.log_name(name) for name in (*tables, *masked))
    return sorted({one.object_class.name for one in found if one is not None})


def _sentences(
    request: Accept, done: _Accepted, filters: int, consumer: str | None
) -> Iterator[str]:
    reader = f"consumer {consumer}" if consumer else "the publisher"
    would = "would be " if request.dry else ""
    accepted = [number_of(filters, "filter") if filters else "no filter"] * done.is_changed
    accepted += ["the masks"] * done.masks_changed
    yield f"log {done.log}: " + (
        f"{' and '.join(accepted)} {would}accepted for {reader}" if accepted else "no change"
    )
    names = first_of(list(done.classes), 10)
    if done.is_new and (request.resend or done.is_changed):
        yield f"{reader} is not registered yet: its start_from decides what it gets"
    elif request.resend and done.classes:
        yield f"all objects of {names} {would}sent again to {reader}" + (
            "" if consumer else _also(done.others)
        )
    elif accepted:
        option = f" --consumer {shlex.quote(consumer)}" if consumer else ""
        yield (
            f"the receiver keeps what it has: run `eventlog filter accept{option} --resend` to "
            f"send all objects of {names or 'the classes'} again"
            + ("" if consumer else _also(done.others))
        )


def _also(others: Sequence[str]) -> str:
    """Return the words that name who else gets the rows of a resync."""
    named = f": {first_of(list(others), 10)}" if others else ""
    return f", by new rows of the log, which every consumer and Spark stream also gets{named}"


def has_consumer(log: OpenLog, name: str) -> bool:
    """Return True if a consumer of this name is registered."""
    return consumers.has_table(log) and consumers.begun_of(log, name) is not None
