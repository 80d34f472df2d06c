"""What a conversion reads: captures, each of them the work of one task, found in a directory.

A capture is what a format's reader reads as one: its changes have one order, and what one file begins another may end.
In a directory

* a directory is a capture, whose files continue one another in the order of their names;
* files that are named alike but for the numbers at the end of their stem, which ``-``, ``_`` or ``.`` sets off
  (``shop-0001.cdc``, ``shop-0002.cdc``, ``shop.2024-05-10T12.cdc``), continue one another, in the order of the numbers;
* any other file is a capture of its own;
* names that begin with ``_`` or ``.`` are not looked at.

Change tables are one capture where ``<table>__ct`` stand beside each other, since transactions run over all of them.
Files of XDS documents and of JSON lines know nothing of each other, so a number in their names means nothing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventlog.convert import format_named
from eventlog.errors import ConfigError
from eventlog.formats import Report
from eventlog.linter.files import ATTRS_STEM
from eventlog.model import Change

_INDEPENDENT: Final = frozenset({"xds", "jsonl"})
"""Formats whose files know nothing of each other."""

_SUFFIXES: Final[Mapping[str, frozenset[str]]] = {
    "xds": frozenset({".xml", ".xmll"}),
    "eventlog": frozenset({".jsonl", ".json", ".ndjson", ".csv", ".parquet"}),
    "linter": frozenset({".csv", ".jsonl", ".parquet"}),
}
"""How files of a format are named; those of the others have any name."""

_NUMBERED: Final = re.compile(r"(?P<name>.*?)(?P<numbers>(?:(?:^|[-_.]|(?<=[0-9])T)[0-9]+)+)", re.DOTALL)


class Capture(NamedTuple):
    """One task's input. ``name``: that of its output; ``paths``: files that continue one another, or one directory;
    ``beside``: what describes them.
    """

    name: str
    paths: tuple[Path, ...]
    beside: tuple[Path, ...] = ()


def captures(format: str, source: str, options: Mapping[str, Any]) -> list[Capture]:
    """The captures of a file or directory, by name. ``options``: those of the format's reader.

    Raises ConfigError if there is none, if two have one name, or for a source that is no file.
    """
    place = Path(source)
    if "://" in source:
        # Not repeated: a password may stand in it.
        raise ConfigError("IN is a URL, and Spark converts files: leave --spark out")
    if place.is_file():
        return [Capture(place.stem, (place,))]
    if not place.is_dir():
        raise ConfigError(f"there is no file or directory {source}")
    found = sorted(_in_directory(format, place, options))
    if not found:
        raise ConfigError(f"{source} holds nothing of the format {format}")
    for name, alike in groupby(found, key=lambda capture: capture.name):
        paths = [str(capture.paths[0]) for capture in alike]
        if len(paths) > 1:
            raise ConfigError(f"{paths[0]} and {paths[1]} would both be written as {name!r}: rename one of them")
    return found


def _in_directory(format: str, place: Path, options: Mapping[str, Any]) -> Iterator[Capture]:
    entries = sorted(entry for entry in place.iterdir() if not entry.name.startswith(("_", ".")))
    if format == "qlik-change-table" and _is_of_tables([place, *entries], str(options.get("suffix", "__ct"))):
        yield Capture(place.resolve().name, (place,))
        return
    files = [entry for entry in entries if entry.is_file()]
    for directory in (entry for entry in entries if entry.is_dir()):
        within = _files(format, directory.iterdir()) if format in _INDEPENDENT else [directory]
        if within:
            yield Capture(directory.name, tuple(within))
    if format == "qlik-change-table":
        return  # a file that is no change table
    if format in _INDEPENDENT:
        yield from (Capture(file.stem, (file,)) for file in _files(format, files))
        return
    beside = tuple(file for file in files if format == "linter" and file.stem.casefold() == ATTRS_STEM)
    yield from _continuing([file for file in _files(format, files) if file not in beside], beside)


def _is_of_tables(entries: Iterable[Path], suffix: str) -> bool:
    return any((entry.name if entry.is_dir() else entry.stem).endswith(suffix) for entry in entries)


def _files(format: str, entries: Iterable[Path]) -> list[Path]:
    known = _SUFFIXES.get(format)
    return sorted(
        entry
        for entry in entries
        if entry.is_file()
        and not entry.name.startswith(("_", "."))
        and (known is None or entry.suffix.lower() in known)
    )


def _continuing(files: Sequence[Path], beside: tuple[Path, ...]) -> Iterator[Capture]:
    groups: dict[tuple[str, str], list[tuple[list[int], Path]]] = {}
    for file in files:
        found = _NUMBERED.fullmatch(file.stem)
        if found is None:
            yield Capture(file.stem, (file,), beside)
        else:
            numbers = [int(number) for number in re.findall("[0-9]+", found["numbers"])]
            groups.setdefault((found["name"], file.suffix.lower()), []).append((numbers, file))
    for (name, _), members in groups.items():
        paths = tuple(path for _, path in sorted(members))
        is_alone = len(paths) == 1
        yield Capture(paths[0].stem if is_alone or not name else name, paths, beside)


def read_capture(capture: Capture, format: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of a capture as the format's reader gives them. Raises what that raises."""
    read = format_named(format).read
    if format in _INDEPENDENT or len(capture.paths) == 1:
        for path in capture.paths:
            yield from read(str(path), options, report)
        return
    with _side_by_side(capture) as directory:
        yield from read(directory, options, report)


@contextmanager
def _side_by_side(capture: Capture) -> Iterator[str]:
    """A directory of nothing but the capture's files, named in their order."""
    with tempfile.TemporaryDirectory(prefix="eventlog-capture-") as directory:
        for number, path in enumerate(capture.paths):
            Path(directory, f"{number:09}{path.suffix}").symlink_to(path.resolve())
        for path in capture.beside:
            Path(directory, path.name).symlink_to(path.resolve())
        yield directory
