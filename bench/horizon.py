"""What an old snapshot costs: blocks of the log's tables an event and a poll, by the rows that were
marked since.

A session holds a snapshot, so that no dead row can be removed. Rows are published meanwhile, up to
each of --rows. Then --times single updates are published one by one, and as many polls find
nothing. Printed are the blocks that all sessions read of each table, its indexes and large values,
from memory or disk, the writer's own among them: they do not depend on load. `start` is what
connecting and the first look read once, the whole scan of a publisher that knows a set.

plain: each --delivery rows are a delivery, as beside a busy application. deliveries: each row is a
delivery, so that the in-flight table has as many dead rows as the log (at most --most-deliveries of
them). parked: the receiver answers retry for an object since before the snapshot. loopback: 100
rows of the publisher's own user are left alone since before the snapshot. consumer: a consumer of
the log reads the rows in place of the publisher. consumer-flights: the same, each row a delivery.

--leaves divides the log into so many leaves of equal width, up to the greatest of --rows. An empty
one is above them.

The blocks are the server's own counts, which a session gives up at once from PostgreSQL 15 on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import common
import psycopg
import sqlalchemy as sa

from eventlog.config.load import load
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession, PublisherState

_ROWS = (10_000, 100_000)
_LEFT = 100
_PARKED = 1
"""The record_id of the parked object's row: the first."""
_WITHOUT = "-"

_FILL = f"""
INSERT INTO {common.LOG} (event_type, event_time, perpetrator, table_name, table_key, column_name, old_value, new_value)
SELECT 2, now(), %s, 'usr', 'idu=' || number, 'mail', 'user.' || number || '@example.com', 'user.' || number || '@example.org'
FROM generate_series(%s::bigint, %s::bigint) AS number"""

_BLOCKS = f"""
SELECT regexp_replace(relname, '^eventlog_[0-9]+$', 'eventlog'), sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0)
       + coalesce(idx_blks_hit, 0) + coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0)
       + coalesce(tidx_blks_read, 0) + coalesce(tidx_blks_hit, 0))
FROM pg_statio_all_tables WHERE schemaname = '{common.SCHEMA}' AND starts_with(relname, 'eventlog') GROUP BY 1"""

Blocks = Mapping[str, float]
"""Blocks by table, and all of them by ``all``."""

_TABLES = {"log": "eventlog", "inflight": "eventlog_inflight", "consumer": "eventlog_consumer"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to be beside an old snapshot: ``settings`` are lines of the configuration."""

    name: str
    settings: str = ""
    one_by_one: bool = False
    parks: bool = False
    leaves: bool = False


_CONSUMER = '[source]\ntype = "eventlog"\nconsumer = "reader"\nstart_from = "earliest"\n'
_VARIANTS = {
    one.name: one
    for one in (
        Variant("plain"),
        Variant("deliveries", one_by_one=True),
        Variant("parked", "retry_initial = 86400.0\nretry_max = 86400.0", parks=True),
        Variant("loopback", 'loopback_action = "keep"', leaves=True),
        Variant("consumer", _CONSUMER),
        Variant("consumer-flights", _CONSUMER, one_by_one=True),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"of {', '.join(_VARIANTS)}; default all")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=_ROWS,
        help="rows marked under the snapshot, rising (default 10000 100000; 1000000 is long)",
    )
    parser.add_argument(
        "--delivery", type=int, default=100, help="rows of a delivery (default %(default)s)"
    )
    parser.add_argument(
        "--most-deliveries",
        type=int,
        default=100_000,
        help="deliveries of one row in a variant at most (default %(default)s)",
    )
    parser.add_argument(
        "--times", type=int, default=100, help="events, and polls, that are measured (%(default)s)"
    )
    parser.add_argument("--leaves", type=int, default=0, help="leaves of the log (default: none)")
    options = parser.parse_args()
    if unknown := set(options.what) - set(_VARIANTS):
        parser.error(f"{', '.join(sorted(unknown))}: write any of {', '.join(_VARIANTS)}")
    columns = [f"{what}: {each}" for what in ("event", "poll") for each in ("all", *_TABLES)]
    for place, name in enumerate(options.what or _VARIANTS):
        with (
            common.server() as bench,
            tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
        ):
            if place == 0:
                print(common.machine(bench))
                print(f"\n| variant | rows marked | start | {' | '.join(columns)} |")
                print("|" + "---|" * (3 + len(columns)), flush=True)
            common.install(bench)
            _run(bench, Path(directory), _VARIANTS[name], options)


def _run(
    bench: common.Server, directory: Path, variant: Variant, options: argparse.Namespace
) -> None:
    """Print a line for each number of rows, and what the last costs of the first."""
    # Nothing but what is measured reads the tables. Leaves take the setting from the table.
    off = (
        f"ALTER TABLE {common.SCHEMA}.{table} SET (autovacuum_enabled = false)"
        for table in _TABLES.values()
    )
    bench.run(*off)
    if options.leaves:
        _divide(bench, options.leaves, max(options.rows) // options.leaves)
    file = common.configuration(directory)
    settings = variant.settings
    if settings.startswith("["):
        file.write_text(file.read_text() + settings)
    else:
        file.write_text(file.read_text().replace("[publisher]\n", f"[publisher]\n{settings}\n"))
    application = Application(bench)
    sink = Taking(parks=variant.parks)
    found: list[tuple[Blocks, Blocks]] = []
    with application.session, _publishing(bench, file) as (context, state):
        if variant.parks:
            application.write(1)
        if variant.leaves:
            application.write(_LEFT, bench.value("SELECT current_user"))
        _drain(context, state, sink)
    marked = 0
    with application.session, _snapshot(bench):
        for rows in options.rows:
            if variant.one_by_one and rows > options.most_deliveries:
                continue
            delivery = 1 if variant.one_by_one else options.delivery
            with _publishing(bench, file) as (context, state):
                while marked < rows:
                    marked += (number := min(delivery, rows - marked))
                    application.write(number)
                    _cycle(context, state, sink)
                _drain(context, state, sink)
                _give_up_counts(context)
            application.vacuum()
            begun = _blocks(bench)
            with _publishing(bench, file) as (context, state):
                _drain(context, state, sink)
                _give_up_counts(context)
                start = _since(begun, bench, 1)
                begun = _blocks(bench)
                for _ in range(options.times):
                    application.write(1)
                    _cycle(context, state, sink)
                application.give_up_counts()
                _give_up_counts(context)
                event = _since(begun, bench, options.times)
                marked += options.times
                begun = _blocks(bench)
                for _ in range(options.times):
                    _cycle(context, state, sink)
                _give_up_counts(context)
                poll = _since(begun, bench, options.times)
            found.append((event, poll))
            cells = [f"{cost[each]:,.1f}" for cost in found[-1] for each in ("all", *_TABLES)]
            print(
                f"| {variant.name} | {rows:,} | {start['all']:,.0f} | {' | '.join(cells)} |",
                flush=True,
            )
    if len(found) > 1:
        times = [
            f"{last['all'] / first['all']:.2f}" if first["all"] else _WITHOUT
            for first, last in zip(found[0], found[-1], strict=True)
        ]
        print(
            f"| {variant.name}, the last of the first | | | {times[0]} | | | | {times[1]} | | | |",
            flush=True,
        )


def _divide(bench: common.Server, leaves: int, width: int) -> None:
    """Divide the log into so many leaves of ``width`` numbers, and an open one."""
    with common.owner(bench) as (log, means):
        means.prepare(log)
        means.partition(log, width)
        for number in range(2, leaves + 1):
            means.cut(log, number * width + 1)


# --- the sessions ---------------------------------------------------------------------------------


class Application:
    """The session of an application that changes users. ``number`` is the last that it changed."""

    def __init__(self, bench: common.Server) -> None:
        url = sa.make_url(bench.url).set(drivername="postgresql")
        self.url = url.render_as_string(hide_password=False)
        self.number = 0
        self._open: psycopg.Connection | None = None

    @property
    @contextmanager
    def session(self) -> Iterator[None]:
        with psycopg.connect(self.url, autocommit=True) as self._open:
            yield

    def write(self, rows: int, user: str = "hr_app") -> None:
        """Log a change of so many other users, in one transaction."""
        assert self._open is not None
        self._open.execute(_FILL, (user, self.number + 1, self.number + rows))
        self.number += rows

    def vacuum(self) -> None:
        """Do what autovacuum does, here, so that it does not come in between."""
        assert self._open is not None
        for table in _TABLES.values():
            self._open.execute(f"VACUUM (ANALYZE) {common.SCHEMA}.{table}")
        self.give_up_counts()

    def give_up_counts(self) -> None:
        assert self._open is not None
        self._open.execute("SELECT pg_stat_force_next_flush()")


@contextmanager
def _snapshot(bench: common.Server) -> Iterator[None]:
    """A session that holds a snapshot."""
    with bench.engine.execution_options(isolation_level="REPEATABLE READ").connect() as holder:
        holder.exec_driver_sql(f"SELECT count(*) FROM {common.LOG}")
        yield


class Taking:
    """A receiver that takes everything, or asks to have the first row's event later."""

    def __init__(self, *, parks: bool) -> None:
        self._locked = {str(_PARKED)} if parks else set[str]()

    def send(self, document: Document) -> Answer:
        asked = self._locked.intersection(document.event_ids)
        return (
            Answer(dict.fromkeys(asked, EventResult(Level.RETRY, "locked"))) if asked else Answer()
        )

    def flush(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def _publishing(bench: common.Server, file: Path) -> Iterator[tuple[Context, PublisherState]]:
    """A publisher, or a consumer, that has just connected."""
    with open_context(load(file, {"EVENTLOG_DATABASE_URL": bench.url}), Counters()) as context:
        yield context, recover(context)


def _cycle(context: Context, state: PublisherState, sink: Taking) -> None:
    run_cycle(PublisherSession(context, state, sink))  # type: ignore[arg-type]


def _drain(context: Context, state: PublisherState, sink: Taking) -> None:
    """Publish what there is, and look again."""
    read = -1
    while context.counters.rows_read > read:
        read = context.counters.rows_read
        _cycle(context, state, sink)


# --- blocks ---------------------------------------------------------------------------------------


def _blocks(bench: common.Server) -> Counter[str]:
    with bench.engine.connect() as connection:
        return Counter({name: int(blocks) for name, blocks in connection.exec_driver_sql(_BLOCKS)})


def _give_up_counts(context: Context) -> None:
    """Have the server count now what this session has read: else it does so later."""
    context.log.connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
    context.log.connection.commit()


def _since(begun: Counter[str], bench: common.Server, times: int) -> Blocks:
    """The blocks since then, each time, of the sessions that have given up their counts."""
    now = _blocks(bench)
    spent = {name: (now[name] - begun[name]) / times for name in now}
    return {"all": sum(spent.values()), **{name: spent[table] for name, table in _TABLES.items()}}


if __name__ == "__main__":
    main()
