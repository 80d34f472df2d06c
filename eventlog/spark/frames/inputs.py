"""Find the inputs in a directory that a conversion reads; one task converts each input.

An input is what a format's reader reads as one source: its changes have one order, and a
transaction may begin in one file and end in another. In a directory

* a directory is an input, whose files continue one another in the order of their names;
* files whose names differ only in the numbers at the end of their stem, which ``-``, ``_`` or
  ``.`` sets off (``shop-0001.cdc``, ``shop-0002.cdc``; ``shop.2024-05-10T12.cdc``; ``shop.cdc.1``),
  continue one another, in the order of the numbers;
* any other file is a separate input;
* names that begin with ``_`` or ``.`` are ignored.

Change tables (``<table>__ct``) in one directory are one input, since a transaction may change
several of them. Files of XDS documents and of JSON lines are independent of each other, so a number
in their names has no meaning.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventlog.changes.format import Format, Report
from eventlog.errors import ConfigError, EventlogError, FormatError
from eventlog.model import Change
from eventlog.registry import format_named

_COMPRESSED: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip"})

_NUMBERED: Final = re.compile(
    r"(?P<name>.*?)(?P<numbers>(?:(?:^|[-_.]|(?<=[0-9])T)[0-9]+)+)", re.DOTALL
)

_LARGEST_COUNT: Final = 9_999_999
"""The greatest number in a file name that is taken as a count of files; a larger number is a date
or a time.
"""


Options = Mapping[str, Any]
"""The options of a reader or a writer by name."""


class Input(NamedTuple):
    """The input of one task."""

    name: str
    """The name, which is also the name of the task's output."""
    paths: tuple[Path, ...]
    """Files that continue one another, or one directory."""
    descriptions: tuple[Path, ...] = ()
    """Files that describe ``paths``."""
    missing: tuple[str, ...] = ()
    """Sentences about files that seem to be missing between ``paths``."""

    @property
    def place(self) -> Path:
        """The place for messages: the file, or the directory of its files."""
        return self.paths[0] if len(self.paths) == 1 else self.paths[0].parent

    def size(self) -> int:
        """Return the size of the input in bytes, as far as its files can be read."""
        files = (
            file for path in self.paths for file in (path.rglob("*") if path.is_dir() else (path,))
        )
        return sum(file.stat().st_size for file in files if file.is_file())

    def check(self, report: Report) -> None:
        """Report missing files to ``Report.skip``, which raises FormatError if the report is
        strict. Raises FormatError for compressed files.
        """
        for path in self.paths:
            if path.suffix.lower() in _COMPRESSED:
                raise FormatError(f"{path} is compressed. Decompress it first")
        for sentence in self.missing:
            report.skip(FormatError(sentence, code="missing_file"))


def inputs(format: str, source: str, options: Options) -> list[Input]:
    """Return the inputs of a file or directory, by name. ``options`` are the options of the
    format's reader.

    Raises ConfigError if there is no input, if two inputs have the same name, or if the source is
    neither a file nor a directory.
    """
    place = Path(source)
    if "://" in source:
        # The message does not repeat the URL, which may contain a password.
        raise ConfigError("IN is a URL, and Spark converts only files. Leave out --spark")
    if place.is_file():
        return [Input(_stem(place), (place,))]
    if not place.is_dir():
        raise ConfigError(f"there is no file or directory {source}")
    found = sorted(_in_directory(format, place, options))
    if not found:
        raise ConfigError(f"{source} contains no files of the format {format}")
    for name, alike in groupby(found, key=lambda input: input.name):
        paths = [str(input.paths[0]) for input in alike]
        if len(paths) > 1:
            raise ConfigError(
                f"{paths[0]} and {paths[1]} would both be written as {name!r}. Rename one of them"
            )
    return found


def _in_directory(format: str, place: Path, options: Options) -> Iterator[Input]:
    asked = format_named(format)
    is_one = asked.is_one_source(place, options)
    if is_one:
        yield Input(place.resolve().name, (place,))
        return
    entries = sorted(entry for entry in place.iterdir() if not entry.name.startswith(("_", ".")))
    files = [entry for entry in entries if _is_file(entry)]
    for directory in (entry for entry in entries if entry.is_dir()):
        within = _files(asked, directory.iterdir()) if asked.has_single_files else [directory]
        if within:
            yield Input(directory.name, tuple(within))
    if is_one is None:
        return  # the files are not of this format
    if asked.has_single_files:
        yield from (Input(_stem(file), (file,)) for file in _files(asked, files))
        return
    descriptions = tuple(filter(asked.is_description, files))
    captured = [file for file in _files(asked, files) if file not in descriptions]
    yield from _continuing(captured, descriptions)


def _files(format: Format, entries: Iterable[Path]) -> list[Path]:
    return sorted(
        entry
        for entry in entries
        if _is_file(entry)
        and not entry.name.startswith(("_", "."))
        and _has_suffix(entry, format.suffixes)
    )


def _is_file(entry: Path) -> bool:
    """Return True for a file. A broken link counts as a file, so that an error names it."""
    return entry.is_file() or (entry.is_symlink() and not entry.exists())


def _has_suffix(file: Path, known: frozenset[str] | None) -> bool:
    """Return True if a file's name has one of the known suffixes.

    The suffix of a compression is left out, so that a compressed file is refused instead of
    ignored.
    """
    if known is not None and file.suffix.lower() in _COMPRESSED:
        file = file.with_suffix("")
    return known is None or file.suffix.lower() in known


def _continuing(files: Sequence[Path], descriptions: tuple[Path, ...]) -> Iterator[Input]:
    groups: dict[tuple[str, str], list[tuple[list[int], Path]]] = {}
    for file in files:
        stem = _stem(file)
        match = _NUMBERED.fullmatch(stem)
        if match is None:
            yield Input(stem, (file,), descriptions)
        else:
            numbers = [int(number) for number in re.findall("[0-9]+", match["numbers"])]
            groups.setdefault((match["name"], file.name[len(stem) :].lower()), []).append(
                (numbers, file)
            )
    for (name, _), members in groups.items():
        ordered = sorted(members)
        paths = tuple(path for _, path in ordered)
        is_alone = len(paths) == 1
        missing = tuple(_missing_files(ordered)) if name else ()
        yield Input(_stem(paths[0]) if is_alone or not name else name, paths, descriptions, missing)


def _stem(file: Path) -> str:
    """Return the name without its suffix. Digits alone are not a suffix, as in ``input.1``."""
    return file.name if file.suffix[1:].isdecimal() else file.stem


def _missing_files(ordered: Sequence[tuple[list[int], Path]]) -> Iterator[str]:
    """Yield the numbers that are missing among files that are numbered one by one, as 1, 2, 4 are;
    10, 20, 30, dates and times are not.
    """
    if any(len(numbers) != 1 or numbers[0] > _LARGEST_COUNT for numbers, _ in ordered):
        return
    counts = [numbers[0] for numbers, _ in ordered]
    if counts[0] > 1 and all(later - former > 1 for former, later in pairwise(counts)):
        return
    for (former, file), (later, next_file) in pairwise(
        zip(counts, (path for _, path in ordered), strict=True)
    ):
        if later - former > 1:
            missing = (
                f"{former + 1} is" if later - former == 2 else f"{former + 1} to {later - 1} are"
            )
            yield (
                f"{missing} missing between {file} and {next_file.name}, whose names are numbered "
                "in sequence"
            )


def files_of(input: Input, format: str) -> list[Path]:
    """Return the files of an input in their order, with the files of a directory by name."""
    asked = format_named(format)
    return [
        file
        for path in input.paths
        for file in (_files(asked, path.iterdir()) if path.is_dir() else (path,))
    ]


def read_input(input: Input, format: str, options: Options, report: Report) -> Iterator[Change]:
    """Yield the changes of an input as the format's reader yields them. Raises the errors of the
    reader, and FormatError for a file that is missing or not readable.
    """
    input.check(report)
    asked = format_named(format)
    read = asked.read
    with readable():
        if asked.has_single_files or len(input.paths) == 1:
            for path in input.paths:
                yield from read(str(path), options, report)
            return
        with _side_by_side(input, report) as directory:
            yield from read(directory, options, report)


@contextmanager
def readable() -> Iterator[None]:
    """Raise FormatError for a file that cannot be read, since a retry would fail, too."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise FormatError(f"{error.filename} cannot be read: {error.strerror}") from error


@contextmanager
def _side_by_side(input: Input, report: Report) -> Iterator[str]:
    """Yield a temporary directory that contains only the input's files, with names that sort in the
    order of the files.

    Errors and problems name the original files.
    """
    with tempfile.TemporaryDirectory(prefix="eventlog-input-") as directory:
        for number, path in enumerate(input.paths):
            Path(directory, f"{number:09}-{path.name}").symlink_to(path.resolve())
        for path in input.descriptions:
            Path(directory, path.name).symlink_to(path.resolve())
        numbered = re.compile(rf"{re.escape(directory)}/[0-9]{{9}}-")

        def with_file_names(message: str) -> str:
            return numbered.sub(f"{input.place}/", message).replace(directory, str(input.place))

        try:
            yield directory
        except EventlogError as error:
            error.args = tuple(
                with_file_names(one) if isinstance(one, str) else one for one in error.args
            )
            raise
        finally:
            report.problems[:] = map(with_file_names, report.problems)
