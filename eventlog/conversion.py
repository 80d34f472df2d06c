"""Convert any change format to any other, by the formats' names: a reader makes ``Change`` objects
and a writer writes them (spec/change-model.md). This module also defines the format ``jsonl``,
which contains the changes as they are.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Format, Report, RowTexts, written
from eventlog.changes.images import with_zones
from eventlog.changes.json_form import (
    CATALOG,
    CatalogOption,
    catalog_of,
    database_from_json,
    database_of,
    dumps,
    loads,
    read_catalog,
    typed_change,
)
from eventlog.changes.keys import class_of_change, with_key
from eventlog.changes.publishing import Publishing
from eventlog.core.arguments import NAME, OPTIONS, PATH_OR_URL, check_arguments, instance_of_type
from eventlog.core.catalog import Catalog
from eventlog.core.options import (
    BATCH_SIZE,
    CheckedOptions,
    GivenOptions,
    parse_all_options,
    shared,
)
from eventlog.errors import ConfigError, DatabaseError, FormatError, kind_of, with_location
from eventlog.files.atomic import check_parent, whole_file
from eventlog.files.text import numbered_lines, text_of
from eventlog.model import Change
from eventlog.registry import format_named, writer_of

_REPORT: Final = instance_of_type(Report | None, "an eventlog.Report")
_CHANGES: Final = instance_of_type(Iterable, "an iterable of eventlog.Change")
_FUNCTION: Final = instance_of_type(Callable | None, "a function of the report so far")


def _check_place(format: str, place: str) -> None:
    """Raise ConfigError for a URL that a format does not accept.

    The message leaves the URL out: it may contain a password.
    """
    scheme, is_url, _ = place.partition("://")
    schemes = format_named(format).schemes
    if is_url and schemes is not None and scheme not in schemes:
        urls = "".join(f", or {one}://..." for one in schemes)
        raise ConfigError(
            f"{format} does not accept {scheme}://...; name a file or a directory{urls}"
        )


def check_source(format: str, source: str) -> None:
    """Raise ConfigError for a URL that a format does not accept, and DatabaseError for a missing
    SQLite file: SQLite would create an empty one.
    """
    _check_place(format, source)
    scheme, _, path = source.partition(":///")
    if scheme.partition("+")[0] == "sqlite" and path and not path.startswith("file:"):
        file = path.partition("?")[0]
        if file != ":memory:" and not Path(file).exists():
            raise DatabaseError(f"there is no database file {file!r}: correct the database URL")


def _check_target(format: str, target: str, source_format: str, source: str) -> None:
    """Raise ConfigError for a target that cannot or must not be written.

    A URL must be one that the format accepts. A path must be in a directory that exists. The target
    must not be the source, nor a file inside the source, where the next run would read it. If both
    formats are the same, the target must not be the directory that contains the source.
    """
    _check_place(format, target)
    if "://" in target:
        return
    check_parent(Path(target))
    out, read = Path(target).resolve(), Path(source).resolve()
    is_path = "://" not in source and (read.is_file() or read.is_dir())
    if is_path and (read in (out, out.parent) or (source_format == format and out == read.parent)):
        raise ConfigError(
            f"OUT {target} is IN, contains it or is inside it, so the output could overwrite the "
            "input. Use another path"
        )


def convert(
    source_format: str,
    target_format: str,
    source: str | Path,
    target: str | Path,
    map: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    report: bool = False,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Read ``source`` in one format, write it to ``target`` in another, and return the report.

    ``map`` holds the options in the form of ``read_options``. With ``strict`` the first change that
    cannot be read or written stops the conversion; otherwise such changes are skipped and counted.
    With ``report`` the counters of single columns stay separate (spec/change-model.md 5.1);
    otherwise they are added up by reason. ``progress`` is called with the report so far after every
    change. Raises FormatError, ConfigError, DatabaseError, OSError; the target is then unchanged.
    If nothing could be read or written, the FormatError is a NothingWritten, whose ``report`` gives
    the reasons.
    """
    check_arguments(
        "convert",
        source_format=(source_format, NAME),
        target_format=(target_format, NAME),
        source=(source, PATH_OR_URL),
        target=(target, PATH_OR_URL),
        map=(map, OPTIONS),
        progress=(progress, _FUNCTION),
    )
    source, target = str(source), str(target)
    reader, writer = format_named(source_format), format_named(target_format)
    check_source(source_format, source)
    _check_target(target_format, target, source_format, source)
    options = read_options(map or {})
    done = Report(strict=strict)
    changes = _read(reader, source, options["reader"], done)
    own_options = in_own_options(target_format, "writer", options["writer"])
    write(writer, _followed(changes, done, progress), target, own_options, done)
    if not report:
        done.counters = by_reason(done.counters)
    return done


def read_changes(
    format: str, source: str | Path, *, report: Report | None = None, **options: Any
) -> Iterator[Change]:
    """Return an iterator over the changes of ``source``, a path or a URL. The iterator reads the
    changes one by one.

    ``format`` is one of ``eventlog convert --from``. ``options`` are the options of the reader, as
    in ``--options``; ``catalog`` is a path or the content of a catalogue. ``report`` receives the
    counters. Changes that cannot be read are skipped unless ``report`` is ``Report(strict=True)``.
    Raises ConfigError for the format and its options immediately, and FormatError, DatabaseError or
    OSError while iterating. The messages give the place in the source.
    """
    check_arguments(
        "read_changes",
        format=(format, NAME),
        source=(source, PATH_OR_URL),
        report=(report, _REPORT),
    )
    reader = format_named(format)
    check_source(format, str(source))
    named = read_options({"reader": options})["reader"]
    return _read(reader, str(source), named, report if report is not None else Report())


def _read(format: Format, source: str, options: GivenOptions, report: Report) -> Iterator[Change]:
    """Return the changes of a source, passed through ``zoned`` with the catalogue in the options.
    Raises ConfigError immediately.
    """
    catalog = catalog_of(options.get("catalog"))
    changes = format.read(source, in_own_options(format.name, "reader", options), report)
    return zoned(changes, catalog)


def read_texts(
    format: Format, source: Path, report: Report, options: GivenOptions
) -> Iterator[Change | RowTexts]:
    """Return the changes of a file, as ``read_changes`` does. For some changes it may return
    ``RowTexts`` instead.
    """
    catalog = catalog_of(options.get("catalog"))
    own = in_own_options(format.name, "reader", options)
    for change in format.texts(str(source), own, report):
        if isinstance(change, RowTexts) or catalog is None:
            yield change
        else:
            yield with_zones(change, class_of_change(catalog, change))


def zoned(changes: Iterator[Change], catalog: Catalog | None) -> Iterator[Change]:
    """Return the changes of a format that cannot hold zones, with zones added to the times of
    columns that have a zone in the catalogue (spec/change-model.md 5.1). Without a catalogue
    (None), changes stay unchanged.
    """
    if catalog is None:
        return changes
    return (with_zones(change, class_of_change(catalog, change)) for change in changes)


def write_changes(
    format: str,
    changes: Iterable[Change],
    target: str | Path,
    *,
    report: Report | None = None,
    **options: Any,
) -> Report:
    """Write changes to ``target``, a path or a URL, and return the report of the changes that were
    written, lost and skipped. A file appears complete or not at all.

    ``format`` is one of ``eventlog convert --to``. ``options`` are the options of the writer, as in
    ``--options``. ``report`` and the errors are as in ``read_changes``.
    """
    check_arguments(
        "write_changes",
        format=(format, NAME),
        changes=(changes, _CHANGES),
        target=(target, PATH_OR_URL),
        report=(report, _REPORT),
    )
    writer, done = format_named(format), report if report is not None else Report()
    _check_place(format, str(target))
    if "://" not in str(target):
        check_parent(Path(target))
    own_options = in_own_options(format, "writer", read_options({"writer": options})["writer"])
    write(writer, _checked(changes), str(target), own_options, done)
    return done


def _checked(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield the changes. Raises ConfigError for an object that is not a change."""
    for number, change in enumerate(changes, 1):
        if not isinstance(change, Change):
            raise ConfigError(
                f"write_changes: item {number} of changes is {kind_of(change)}; give objects of "
                "eventlog.Change"
            )
        yield change


def write(
    format: Format,
    changes: Iterable[Change],
    target: str,
    options: GivenOptions,
    report: Report,
) -> None:
    """Write changes to a target by the format's ``write``.

    For a format that can only be published, the file gets the documents that a publisher would
    send. ``options`` then has the options of publishing, and ``catalog``.
    """
    if format.can("write_changes"):
        format.write(changes, target, options, report)
        return
    named = dict(options)
    catalog = catalog_of(named.pop("catalog", None))
    kind = format.publish_options
    kinds = () if kind is None else (kind,)
    chosen = next(iter(parse_all_options(kinds, named, f"the {format.name} writer")), None)
    with (
        closing(writer_of(format, chosen, Publishing(catalog=catalog))) as writer,
        whole_file(target) as file,
    ):

        def pieces_of(change: Change, event_id: str) -> list[Any]:
            object_class = class_of_change(catalog, change)
            piece = writer.piece_of(with_key(change, object_class), event_id, object_class)
            return [] if piece is None else [piece]

        pieces = written(format.counting(changes, report), pieces_of, report)
        size = BATCH_SIZE.default if writer.is_framed else 1
        while batch := list(islice(pieces, size)):
            file.write(writer.body_of(batch))


def by_reason(counters: Mapping[str, int]) -> Counter[str]:
    """Return the counters. The counters of single columns (``reason table.column``) are added up by
    reason.
    """
    added: Counter[str] = Counter()
    for name, number in counters.items():
        added[name.partition(" ")[0]] += number
    return added


def _followed(
    changes: Iterator[Change], report: Report, progress: Callable[[Report], None] | None
) -> Iterator[Change]:
    for change in changes:
        yield change
        if progress is not None:
            progress(report)


def read_map(path: Path) -> GivenOptions:
    """Return the content of a file of options. The name of the file shows whether it is TOML or
    JSON. Raises ConfigError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the options file {path}: {error.strerror}") from None
    try:
        value = tomllib.loads(content.decode()) if path.suffix == ".toml" else json.loads(content)
    except RecursionError:
        raise ConfigError(
            f"cannot read {path}: its lists or objects are nested too deeply"
        ) from None
    except ValueError as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON (a TOML file's name ends in .toml)"
        raise ConfigError(f"{path} is not {kind}: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not an object of options")
    return value


def read_options(map: GivenOptions) -> dict[str, GivenOptions]:
    """Return the options of ``reader`` and ``writer`` from a map: ``{"reader": {...}, "writer":
    {...}, "catalog": PATH}``, or the reader's options at the top level.

    ``catalog`` at the top level applies to each side whose options have no ``catalog``; every
    format gets the content of the file. Raises ConfigError, also for any other member next to
    ``reader`` and ``writer``.
    """
    of_both = {"catalog": map["catalog"]} if "catalog" in map else {}
    if "reader" not in map and "writer" not in map:
        return {"reader": _with_catalog(map), "writer": _with_catalog(of_both)}
    for name in map:
        if name not in ("reader", "writer", "catalog"):
            near = difflib.get_close_matches(name, ("reader", "writer", "catalog"), n=1)
            hint = f"did you mean {near[0]}?" if near else "move it into reader or writer"
            raise ConfigError(
                f"member {name!r} of the options file is not allowed next to reader and writer: "
                f"{hint}"
            )
    sides = {}
    for name in ("reader", "writer"):
        side = map.get(name, {})
        if not isinstance(side, Mapping):
            raise ConfigError(f"member {name!r} of the options file is not an object of options")
        sides[name] = _with_catalog({**of_both, **side})
    return sides


def _with_catalog(options: GivenOptions) -> GivenOptions:
    path = options.get("catalog")
    if not isinstance(path, str):
        return options
    content = read_catalog(Path(path))
    try:
        database_from_json(content)
    except ConfigError as error:
        raise with_location(error, path) from None
    return {**options, "catalog": content}


def in_own_options(format: str, side: str, options: GivenOptions) -> GivenOptions:
    """Return the options of a side (``reader`` or ``writer``). For a format without the option
    ``catalog``, this option is translated: into the columns of Qlik messages, or the keys of a CDC
    stream.
    """
    database = database_of(options.get("catalog"))
    own = None if database is None else format_named(format).options_of_catalog(side, database)
    if own is None:
        return options
    translated = {name: value for name, value in options.items() if name != "catalog"}
    for name, tables in own.items():
        named = translated.get(name, {})
        if isinstance(named, Mapping):  # the format refuses a value of another type
            translated[name] = {**tables, **named}
    return translated


# --- the format jsonl: one change per line, in its JSON form (spec/change-model.md 1.1)
# ---------------------------


@dataclass(frozen=True, slots=True)
class JsonlOptions(CheckedOptions):
    """Options of reader and writer.

    With a catalogue, the reader turns texts into dates, decimals and so on. The writer accepts a
    catalogue, as every format does, but ignores it, since its values carry their types.
    """

    catalog: CatalogOption = shared(CATALOG)


class JsonLinesFormat(Format):
    """The changes themselves, one per line, in their JSON form."""

    name = "jsonl"
    title = "changes as lines of JSON"
    reader_options = (JsonlOptions,)
    writer_options = (JsonlOptions,)
    has_single_files = True
    is_read_once = True

    def read_changes(self, source: str, options: JsonlOptions, report: Report) -> Iterator[Change]:
        catalog = catalog_of(options.catalog)
        with Path(source).open("rb") as file:
            for number, line in numbered_lines(file, source):
                try:
                    change = typed_change(loads(text_of(line)), catalog)
                except FormatError as error:
                    report.skip(FormatError(f"{source}, line {number}: {error}"))
                    continue
                yield change

    def write_changes(
        self, changes: Iterable[Change], target: str, options: JsonlOptions, report: Report
    ) -> None:
        with whole_file(target) as file:
            for change in changes:
                file.write(dumps(change).encode("utf-8", "surrogatepass") + b"\n")
                report.written += 1
            report.refuse_nothing()


FORMAT: Final = JsonLinesFormat()
