"""What an output directory says of itself: whose it is, whether it is finished, what it holds.

``_STARTED`` is written first and ``_SUCCESS`` last; in between nothing in the directory counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from eventlog.errors import ConfigError
from eventlog.qlik.file_tables import STATE_FILE
from spark.output.directory import TEMPORARY, Directory
from spark.output.formats import Counts
from spark.output.part_files import OutputFile

IDS: Final = "_ids"
"""The folder of the files that name every row that was read."""
MANIFEST: Final = "_manifest.json"
SUCCESS: Final = "_SUCCESS"
MARKED: Final = "_marked"
_STARTED: Final = "_STARTED"
_OURS: Final = re.compile(
    rf"{_STARTED}|{SUCCESS}|{IDS}|{MARKED}|{re.escape(MANIFEST)}|{TEMPORARY}.*"
    rf"|{re.escape(STATE_FILE)}"
    r"|part-\d{6,}-\d{5,}\.(?:xmll|xml|parquet|jsonl)(?:\.gz|\.zst)?"
)
_FORM: Final = 1


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part became. ``first`` and ``last`` record_id that were read; ``ids``: the file that names all of them.

    ``state``: greatest time prefix and last number of the formats that number, up to the end of the part.
    """

    part: int
    first: int
    last: int
    rows_read: int
    rows_loopback: int
    ids: str
    files: tuple[OutputFile, ...]
    counts: Counts = field(default_factory=dict)
    state: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class FlightReport:
    """A recorded flight that stands in the output: its number, the file that names its rows, its documents."""

    flight: int
    ids: str
    rows: int
    events: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished directory holds. ``totals``: counters of spec/event-log.md 11, and events by operation.

    ``format``: xds, qlik-messages or qlik-change-table; of the latter two ``last_sequence`` is the highest change
    sequence.
    """

    log: str
    database: str
    snapshot: str
    started: str
    finished: str
    totals: Mapping[str, int]
    in_flight: tuple[FlightReport, ...]
    in_flight_files: tuple[OutputFile, ...]
    parts: tuple[PartReport, ...]
    format: str = "xds"
    last_sequence: str = ""

    @property
    def files(self) -> list[OutputFile]:
        """The files of documents, in queue order."""
        return [*self.in_flight_files, *(file for part in self.parts for file in part.files)]


def finished(directory: Directory, log: str, database: str, format: str) -> Manifest | None:
    """The manifest of a directory that is finished, None if a job may begin there.

    Raises ConfigError for a directory that is somebody else's, or of another log, or finished in another format.
    """
    if directory.is_file():
        raise ConfigError(f"{directory.location} is a file; give a directory that is empty or does not exist")
    names = directory.names()
    if not names:
        return None
    own_folders = _own_folders(directory, names)
    foreign = sorted(name for name in names if _OURS.fullmatch(name) is None and name not in own_folders)
    if foreign or not {_STARTED, MANIFEST} & set(names):
        named = f": it holds {foreign[0]}" if foreign else ""
        raise ConfigError(
            f"{directory.location} is not empty and not the output of a backlog job{named}; nothing in it was touched. "
            "Give a directory that is empty or does not exist"
        )
    if MANIFEST in names and SUCCESS in names:
        manifest = _read(directory)
        _same_log(directory, manifest.log, manifest.database, log, database)
        if manifest.format != format:
            raise ConfigError(
                f"{directory.location} is finished already, in the format {manifest.format}, not {format}; give "
                "another directory"
            )
        return manifest
    if _STARTED in names:
        started = _parse(directory, _STARTED)
        _same_log(directory, started.get("log", ""), started.get("database", ""), log, database)
    return None


def _same_log(directory: Directory, log: str, database: str, wanted_log: str, wanted_database: str) -> None:
    if (log, database) != (wanted_log, wanted_database):
        raise ConfigError(
            f"{directory.location} holds documents of the log {log} of {database}, not of {wanted_log} of "
            f"{wanted_database}; give another directory"
        )


def _own_folders(directory: Directory, names: Collection[str]) -> frozenset[str]:
    """The folders that a job of ours has said it would make."""
    started = _parse(directory, _STARTED) if _STARTED in names else {}
    manifest = _parse(directory, MANIFEST) if MANIFEST in names else {}
    return frozenset((*started.get("folders", ()), *manifest.get("folders", ())))


def begin(directory: Directory, log: str, database: str, folders: Sequence[str] = ()) -> None:
    """Make the directory ours and empty: what an unfinished job left is discarded. ``folders``: what will be made."""
    directory.make()
    names = directory.names()
    told = {"eventlog": "backlog", "log": log, "database": database}
    all_folders = sorted({*folders, *_own_folders(directory, names)})
    directory.write(_STARTED, json.dumps({**told, "folders": all_folders}).encode())
    for name in sorted(names):
        if name != _STARTED:
            directory.delete(name)
    directory.make(TEMPORARY)
    directory.make(IDS)


def finish(directory: Directory, manifest: Manifest) -> None:
    """Check that every file is there, write the manifest, and then ``_SUCCESS``. Raises ConfigError."""
    there = directory.files()
    for file in manifest.files:
        if there.get(file.name) != file.bytes:
            raise ConfigError(
                f"{directory.location} does not hold {file.name} as it was written; is it a directory that the driver "
                "and all workers reach under the same name?"
            )
    directory.delete(TEMPORARY)
    for folder in sorted(_folders_of(there)):
        directory.sync(folder)
    own = sorted(name for name in _folders_of(there) if "/" not in name and _OURS.fullmatch(name) is None)
    value = {"form": _FORM, **asdict(manifest), "folders": own}
    directory.write(MANIFEST, (json.dumps(value, indent=1) + "\n").encode())
    directory.sync()
    directory.write(SUCCESS, b"")
    directory.sync()
    directory.delete(_STARTED)


def _folders_of(files: Iterable[str]) -> set[str]:
    """The folders that files stand in, and those that these stand in."""
    folders = set()
    for name in files:
        *inside, _ = name.split("/")
        folders |= {"/".join(inside[:depth]) for depth in range(1, len(inside) + 1)}
    return {folder for folder in folders if not folder.startswith(TEMPORARY)}


def _read(directory: Directory) -> Manifest:
    value = _parse(directory, MANIFEST)
    if value.get("form") != _FORM:
        raise ConfigError(f"{directory.location}/{MANIFEST} is of another version of eventlog; give another directory")
    try:
        return Manifest(
            log=value["log"],
            database=value["database"],
            snapshot=value["snapshot"],
            started=value["started"],
            finished=value["finished"],
            totals=value["totals"],
            in_flight=tuple(FlightReport(**flight) for flight in value["in_flight"]),
            in_flight_files=_files(value["in_flight_files"]),
            parts=tuple(part_report(part) for part in value["parts"]),
            format=value.get("format", "xds"),
            last_sequence=value.get("last_sequence", ""),
        )
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{directory.location}/{MANIFEST} is damaged ({error}); give another directory") from None


def part_report(value: Mapping[str, Any]) -> PartReport:
    """A report from its JSON form."""
    return PartReport(**{**value, "files": _files(value["files"])})


def _files(values: Sequence[Mapping[str, Any]]) -> tuple[OutputFile, ...]:
    return tuple(OutputFile(**file) for file in values)


def _parse(directory: Directory, name: str) -> dict[str, Any]:
    try:
        value = json.loads(directory.read(name))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory.location}/{name} cannot be read ({error}); give another directory") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{directory.location}/{name} is damaged; give another directory")
    return value
