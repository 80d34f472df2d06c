"""What makes a finished directory one that can be trusted (spec/event-log.md 8.6): it is marked under the settings that
it was made under and as it was written, and until then its rows are held, so that no publisher sends them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.config.load import Config, effective
from eventlog.core.options import toml
from eventlog.errors import ConfigError, DatabaseAway, number_of
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.open_log import open_context
from eventlog.publisher.queue import HOLD_WAYS_OUT, Hold, Writers, encode_hold, open_writers, read_recorded
from eventlog.sql.connection import as_database_errors
from eventlog.sql.rows import next_flight, strike_inflight, tail, update_inflight, write_inflight
from spark.directory import MANIFEST, SUCCESS, Directory, job_in, masked
from spark.job import FlightReport, OutputFile, PartReport, part_report

# --- the manifest -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished directory holds. ``totals``: counters of spec/event-log.md 11, and events by operation.

    ``job``: the name of the run, which stands in the names of its files. ``settings``: what decided on documents and
    marks. ``format``: one of ``spark.output.formats``; of those that number ``last_sequence`` is the highest change
    sequence, else empty. ``others``: the SHA-256 of files that hold no events.
    """

    job: str
    settings: Mapping[str, str]
    log: str
    database: str
    snapshot: str
    started: str
    finished: str
    totals: Mapping[str, int]
    in_flight: tuple[FlightReport, ...]
    in_flight_files: tuple[OutputFile, ...]
    parts: tuple[PartReport, ...]
    format: str
    last_sequence: str
    others: Mapping[str, str]

    @property
    def files(self) -> list[OutputFile]:
        """The files of documents, in queue order."""
        return [*self.in_flight_files, *(file for part in self.parts for file in part.files)]

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of every file that counts, by its name."""
        ids = {flight.ids: flight.ids_sha256 for flight in self.in_flight}
        ids |= {part.ids: part.ids_sha256 for part in self.parts}
        return {**ids, **self.others, **{file.name: file.sha256 for file in self.files}}


def manifest_of(value: Mapping[str, Any]) -> Manifest:
    """A manifest from its JSON form. Raises KeyError, TypeError for what is none."""
    known = {one.name: value[one.name] for one in fields(Manifest)}
    known["in_flight"] = tuple(FlightReport(**flight) for flight in known["in_flight"])
    known["in_flight_files"] = tuple(OutputFile(**file) for file in known["in_flight_files"])
    known["parts"] = tuple(map(part_report, known["parts"]))
    return Manifest(**known)


# --- settings ---------------------------------------------------------------------------------------------------------

_SECTIONS: Final = ("database", "publisher", "format", "watch ")
_INERT: Final = frozenset({
    "database.url", "database.url_file", "database.password", "publisher.profile", "publisher.publisher_disabled",
    "publisher.publication_mode", "publisher.polling_interval", "publisher.time_of_day", "publisher.notify",
    "publisher.post_poll_statements", "publisher.query_limit", "publisher.heartbeat_interval",
    "publisher.retry_initial", "publisher.retry_max", "publisher.on_retry", "publisher.max_parked",
    "publisher.concurrency", "publisher.flight_rows", "publisher.mark_interval", "publisher.health_file",
})  # fmt: skip
"""Settings that neither a document nor a mark depends on. All others count, those of later versions too."""


def settings_of(config: Config, context: Context, **request: Any) -> dict[str, str]:
    """The settings that decide on documents and marks, by name and without secrets, and what the command asks for."""
    settings = {
        f"{section}.{key}": value
        for section, key, value, _ in effective(config)
        if section.startswith(_SECTIONS) and f"{section}.{key}" not in _INERT
    }
    options = context.options
    settings |= {"publisher.driver_user": options.driver_user, "loopback rows are deleted": options.delete_loopback}
    settings |= {f"command.{name}": value for name, value in request.items()}
    return {name: "unset" if value is None else masked(toml(value)) for name, value in settings.items()}


def differences(made_under: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, a phrase each."""
    names = sorted(made_under.keys() | now.keys())
    pairs = ((name, made_under.get(name, "unset"), now.get(name, "unset")) for name in names)
    return [f"{name} is {after}, was {before}" for name, before, after in pairs if before != after]


ACKNOWLEDGED: Final = frozenset({"publisher.delete_from_log"})
"""What the command may say anew when it marks."""


def refuse_other_settings(
    directory: Directory, manifest: Manifest, settings: Mapping[str, str], explicit: Collection[str] = ()
) -> None:
    """Raises ConfigError that names what differs from what the directory was made under, but for what is explicit."""
    then, now = ({name: each[name] for name in each if name not in explicit} for each in (manifest.settings, settings))
    if different := differences(then, now):
        raise ConfigError(
            f"{directory.location} is finished already, under other settings: {'; '.join(different)}. Nothing was "
            "marked. Run the command under the settings of then, or give another directory"
        )


# --- the files --------------------------------------------------------------------------------------------------------


def verify(directory: Directory, manifest: Manifest, hold: Hold, threads: int) -> None:
    """Raises ConfigError unless the manifest and every file that it names are as the job wrote them."""
    expected = {MANIFEST: hold.manifest, **manifest.checksums}

    def is_damaged(name: str) -> str | None:
        try:
            found = directory.sha256(name)
        except OSError as error:
            return f"{name} cannot be read ({masked(str(error))})"
        return None if found == expected[name] else f"{name} is not as it was written (SHA-256 {found})"

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="eventlog-verify") as pool:
        damaged = [said for said in pool.map(is_damaged, expected) if said is not None]
    if damaged:
        more = f", and {number_of(len(damaged) - 1, 'more file')}" if len(damaged) > 1 else ""
        raise ConfigError(
            f"{directory.location}: {damaged[0]}{more}; nothing was marked. Bring the file back, or give the rows "
            "back to the publisher by --abandon and convert them anew"
        )


# --- the line ---------------------------------------------------------------------------------------------------------


@contextmanager
def committed(context: Context) -> Iterator[Connection]:
    """The connection of the context, for a transaction that the end of the block commits. Raises DatabaseError."""
    with as_database_errors(context.connection):
        yield context.connection
        context.connection.commit()


Extent = tuple[int, Writers]
"""What a job's snapshot holds: the last record_id with status N (0 = there is none), and who was writing."""


def extent_of(context: Context, holder: Connection) -> Extent:
    """The extent of the snapshot that ``holder`` has just exported."""
    last = tail(holder, context.log) or 0
    with committed(context):
        # After the tail: whoever has a record_id below it is among the writers, or can be seen by now.
        writers = open_writers(context)
    return last, writers


def hold_rows(context: Context, directory: Directory, manifest: Manifest, sha256: str, extent: Extent) -> None:
    """Write the line that holds the rows of a directory that is about to be finished.

    Raises DatabaseAway if the lock of the log is lost, since then somebody may have published them.
    """
    last, writers = extent
    flights = tuple(report.flight for report in manifest.in_flight)
    if not last and not flights:
        return
    log = context.log
    with committed(context) as connection:
        if not context.dialect.holds_lock(connection, log):
            raise DatabaseAway(f"the lock of the log {log} is lost: nothing counts; run the same command again")
        now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        rows = manifest.totals.get("rows_read", 0) + manifest.totals.get("rows_in_flight", 0)
        number = next_flight(connection, log)
        hold = Hold(number, manifest.job, name_of(directory), sha256, now, last, rows, flights, writers)
        write_inflight(connection, log, number, encode_hold(hold))


def name_of(directory: Directory) -> str:
    """The name of a directory in the line."""
    return directory.path if directory.is_local else directory.location


def held_rows(context: Context) -> Hold | None:
    """The hold on rows of the log, None if no directory holds any."""
    with committed(context) as connection:
        _, hold = read_recorded(connection, context.log)
    return hold


def refuse_if_held(context: Context, directory: Directory) -> None:
    """Let a job begin in a directory: what an unfinished run in it held is given back.

    Raises ConfigError if rows are held by another directory, or are being marked.
    """
    hold = held_rows(context)
    if hold is None:
        return
    if hold.job != job_in(directory) or hold.is_marking:
        raise ConfigError(f"{hold.in_words}. Before rows are converted again: {', '.join(HOLD_WAYS_OUT)}")
    release(context, hold)


def begin_marking(context: Context, hold: Hold) -> None:
    """Say in the line that from now on rows may be marked."""
    with committed(context) as connection:
        update_inflight(connection, context.log, hold.number, encode_hold(hold._replace(is_marking=True)))


def release(context: Context, hold: Hold) -> None:
    """Strike the line: its rows are marked, or the publisher's again."""
    with committed(context) as connection:
        strike_inflight(connection, context.log, hold.number)


def abandon(config: Config, out: str, *, force: bool = False) -> Hold:
    """Give the rows that a directory holds back to the publisher; its documents count no more.

    Raises ConfigError if it holds none, and, unless ``force``, if marking has begun: rows that are marked already are
    not sent again.
    """
    directory = Directory(out)
    with open_context(config, Counters()) as context:
        hold = held_rows(context)
        if hold is None:
            raise ConfigError(
                f"no rows of the log {context.log} are held by a backlog job; there is nothing to abandon"
            )
        if hold.directory != name_of(directory):
            raise ConfigError(f"{hold.in_words}: give --out {hold.directory}")
        if hold.is_marking and not force:
            raise ConfigError(
                f"{hold.in_words}. Complete the marks by --mark; --abandon --yes gives back only the rows that are "
                "not marked yet, and the documents of the others are nowhere else"
            )
        if directory.exists(SUCCESS) and job_in(directory) == hold.job:
            directory.delete(SUCCESS)
        release(context, hold)
    return hold
