"""What a change format is: the class that each extends, the report of a conversion, and what readers and writers ask
of a change: its class, key, rows and transaction (spec/change-model.md 1, 4).

Each format's package holds one ``FORMAT``, by which ``eventlog.registry`` knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from eventlog.changes.publishing import EventWriter, Publishing
from eventlog.core import table_key
from eventlog.core.catalog import Catalog, Database, ObjectClass
from eventlog.core.options import ANY, Option, parse_all_options
from eventlog.core.typed import to_text, type_of, value_reader
from eventlog.core.values import ValueOptions, key_normalizer
from eventlog.errors import (
    ConfigError,
    EventlogError,
    FormatError,
    NeedsQueryBack,
    NeedsRowCodec,
    NotExpressible,
    RowError,
    number_of,
)
from eventlog.model import Change, ChangeOp, Row, Value, column_name, differing, full_name, old_key


@dataclass(slots=True)
class Report:
    """What a conversion did: changes ``read`` and ``written``, and ``counters`` by reason.

    A counter is named after its reason (``truncate_skipped``), one that concerns a column
    ``reason table.column`` (``truncated app.item.made_at``). ``strict``: the first thing that cannot be read or written
    stops it. ``passed_over``: how many things could not be read or written; ``problems``: messages of the first of
    them with their codes, ``PROBLEMS_KEPT`` at most.
    """

    read: int = 0
    written: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    strict: bool = False
    problems: list[str] = field(default_factory=list)
    passed_over: int = 0

    def count(self, reason: str, number: int = 1) -> None:
        """Count something skipped, lost or odd under its reason."""
        self.counters[reason] += number

    def skip(self, error: EventlogError) -> None:
        """Go on without what ``error`` refuses, counted under its code and column; raises it if ``strict``."""
        if self.strict:
            raise error
        code = error.row_code if isinstance(error, RowError) else error.code
        column = error.column if isinstance(error, FormatError) else None
        self.pass_over(code if column is None else f"{code} {column}")
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(f"{error} [{code}]")

    def pass_over(self, reason: str, number: int = 1) -> None:
        """Go on without what is nothing of the format's, counted under its reason."""
        self.passed_over += number
        self.count(reason, number)

    def refuse_nothing(self, written: int | None = None) -> None:
        """Raise NothingWritten if something was passed over and nothing written: a writer asks before its target
        counts, so that a wrong format empties no file (spec/change-model.md 4).

        ``written``: the changes that are written and not counted yet, None = all are counted.
        """
        if self.passed_over and not (self.written if written is None else written):
            raise NothingWritten(self)


PROBLEMS_KEPT: Final = 100


class NothingWritten(FormatError):
    """Input of which no change could be read or written; the target is as it was (spec/change-model.md 4).

    ``report`` says what was passed over.
    """

    code = "nothing_written"
    cure = "Check the format's name in --from, and the options in --map; what was passed over says what is wrong."

    def __init__(self, report: Report) -> None:
        passed_over = f"{number_of(report.passed_over, 'thing')} passed over"
        super().__init__(f"nothing was written, and the target is as it was: {passed_over}")
        self.report = report
        for problem in report.problems[:1]:
            self.add_note(problem)


_DONE: Final = {
    "read_changes": "read",
    "write_changes": "written",
    "publish": "published",
    "tables": "written as tables",
}
"""What is done with a format by each of its methods, in words."""

Block: TypeAlias = Callable[[Change], Iterable[str]]
"""Gives the lines that show a change to people."""


class Format:
    """All that is known of one format. Each format extends it in its own package and says what differs.

    ``name``: in options and commands; ``title``: for help and pages. ``endings``: of files that documents are
    written to, by their layout. ``schemes``: of the URLs that it reads and writes beside files, None = those of any
    database. ``reader_options``, ``writer_options``: the classes that declare its options; ``publish_options``:
    that of a publisher; ``backlog_options``: that of a backlog job, None = the publisher's, without ``--map``.
    ``answer``: where an HTTP receiver's answer stands if nothing else is said. ``is_of_rows``: an event is a row of
    one table, without values of child tables. ``is_numbered``: messages bear numbers that follow one another, which
    a backlog job gives them last.

    Of files that are read: ``suffixes`` of their names, None = any; ``has_single_files``: they know nothing of each
    other; ``is_read_once``: front to back, so that a pipe will do. ``is_several_files``: changes are written to
    several.

    What a format can do is a method each, which may be missing: ``read_changes``, ``write_changes``, ``publish``,
    ``tables``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    endings: ClassVar[Mapping[str, str]] = {"lines": ".jsonl", "documents": ".json"}
    schemes: ClassVar[tuple[str, ...] | None] = ()
    reader_options: ClassVar[tuple[type, ...]] = ()
    writer_options: ClassVar[tuple[type, ...]] = ()
    publish_options: ClassVar[type | None] = None
    backlog_options: ClassVar[type | None] = None
    answer: ClassVar[str] = "status"
    is_of_rows: ClassVar[bool] = False
    is_numbered: ClassVar[bool] = False
    suffixes: ClassVar[frozenset[str] | None] = None
    has_single_files: ClassVar[bool] = False
    is_read_once: ClassVar[bool] = False
    is_several_files: ClassVar[bool] = False

    # --- a format has some of these ---

    def read_changes(self, *arguments: Any, **named: Any) -> Iterator[Change]:
        """Return the changes of ``source, *options, report``: a path, or a URL where the format has live sources.

        Raises FormatError naming what and where. What it can go on without goes to ``Report.skip``; what is skipped
        and lost is counted in the report.
        """
        raise self.lacks("read_changes")

    def write_changes(self, *arguments: Any, **named: Any) -> None:
        """Put ``changes`` to a ``target``, with ``*options`` and ``report``: whole or not at all where that is a file.

        Errors as of ``read_changes``. Counts also the changes that are written.
        """
        raise self.lacks("write_changes")

    def publish(self, options: Any, publishing: Publishing) -> EventWriter[Any]:
        """Return the writer of events, with options of ``publish_options``. Raises ConfigError."""
        raise self.lacks("publish")

    def tables(self) -> None:
        """Say that a backlog job writes tables of the format: ``eventlog.spark.output.tables`` makes their rows."""
        raise self.lacks("tables")

    # --- what is not as here, a format says ---

    def values(self, options: Any, shared: ValueOptions) -> ValueOptions:
        """Return how values are made texts for it. ``options``: of publishing; ``shared``: as the configuration says.

        Only XDS has its types of times, which lose a fraction, and only XML lacks characters.
        """
        return replace(shared, time_syntax="full", characters="unicode")

    def insert_query_back(self, options: Any) -> str:
        """Return the element of events that are only read back: here they are inserts (spec/change-model.md 3.1)."""
        return "add"

    def refusal(self, options: Any, publishing: Publishing) -> tuple[str, str] | None:
        """Return the option that documents cannot have where ``publishing`` says they go, and why; None if they can
        go there. Where it is the format itself, the option is ``type``.
        """
        return None

    def ignored(self, options: Any, publishing: Publishing) -> tuple[str, str] | None:
        """Return an option that is set and has no effect on what goes where ``publishing`` says, and why, None if there
        is none.
        """
        return None

    def options_of_catalog(self, side: str, database: Database) -> Mapping[str, Any] | None:
        """Return the options that a catalogue stands for on a ``side``, reader or writer, of a format that has no
        option ``catalog``: options that hold something for each table. None if it has that option.
        """
        return None

    def lines(self, source: str, options: Mapping[str, Any], report: Report, block: Block) -> Iterator[str]:
        """Return the lines of text that show a source to people; ``block`` gives those of a change. Errors as of
        ``read``.
        """
        for change in self.read(source, options, report):
            yield from block(change)
            yield ""

    def is_one_source(self, place: Path, options: Mapping[str, Any]) -> bool | None:
        """Return whether a directory is read as one, with all files and directories in it, and not each of them;
        None if it holds nothing of the format.
        """
        return False

    def is_sorted_first(self, options: Mapping[str, Any]) -> bool:
        """Return whether rows are sorted before their changes are made, so that large inputs are sorted in bulk."""
        return False

    def is_description(self, file: Path) -> bool:
        """Return whether a file describes those beside it."""
        return False

    def output_place(self, name: str, options: Mapping[str, Any]) -> str:
        """Return where the output of a source of this name goes, within a directory of such outputs: a file, a file in
        a directory, or, of several files, a directory. Raises ConfigError for an option that names one place.
        """
        return name if self.is_several_files else f"{name}{self.endings['lines']}"

    # --- asked by all others ---

    def can(self, method: str) -> bool:
        """Return True if the format has this method: one of those above."""
        return getattr(type(self), method) is not getattr(Format, method)

    def lacks(self, method: str) -> ConfigError:
        """Return the refusal of what the format has no method for."""
        return ConfigError(f"the format {self.name} ({self.title}) cannot be {_DONE[method]}: name another one")

    def read(self, source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
        """Return the changes of a source, counted, with the reader's options of ``--map``. Raises ConfigError for
        these.
        """
        chosen = parse_all_options(self.reader_options, options, f"the {self.name} reader")
        return counted(self.read_changes(source, *chosen, report), report)

    def write(self, changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
        """Put changes to a target, with the writer's options of ``--map``. Raises ConfigError for these."""
        chosen = parse_all_options(self.writer_options, options, f"the {self.name} writer")
        self.write_changes(changes, target, *chosen, report)


def counted(changes: Iterable[Change], report: Report) -> Iterator[Change]:
    """Changes as they are read."""
    for change in changes:
        report.read += 1
        yield change


Written = TypeVar("Written")


def written(
    changes: Iterable[Change], write: Callable[[Change, str], Sequence[Written]], report: Report
) -> Iterator[Written]:
    """What ``write`` makes of each change and its id, one after the other; a change that it refuses is passed over.

    The id is the position of the change, or its number if it has none. Raises NothingWritten.
    """
    for number, change in enumerate(changes, 1):
        try:
            parts = write(change, str(number) if change.position is None else change.position)
        except FormatError as error:
            report.skip(error)
            continue
        if parts:
            report.written += 1
        else:
            report.count("changes_nothing")
        yield from parts
    report.refuse_nothing()


# --- class and key ----------------------------------------------------------------------------------------------------


def class_of(catalog: Catalog | None, table: str) -> ObjectClass | None:
    """The class of exactly this name, None without a catalog or if it has none."""
    log_name = None if catalog is None else catalog.log_names.get(table)
    return None if log_name is None or log_name.child is not None else log_name.object_class


def may_be_one(schema: str | None, other: str | None) -> bool:
    """Whether two schemas are one, as far as they are known."""
    return schema is None or other is None or schema == other


def class_of_change(catalog: Catalog | None, change: Change) -> ObjectClass | None:
    """The class of a change's table, unless the catalogue is of another schema."""
    if catalog is None or not may_be_one(change.schema, catalog.schema):
        return None
    return class_of(catalog, change.table)


Key: TypeAlias = tuple[tuple[str, Value], ...]
"""Key columns with their values, in key order."""


def typed_key(parts: Sequence[table_key.Part], object_class: ObjectClass | None) -> Key:
    """The key of a table_key's parts: text without a class, else typed and in key order.

    Raises BadTableKey against the class's key columns.
    """
    if object_class is None:
        return tuple((part.name, part.value) for part in parts)
    return key_reader(object_class)(object_class.canonical_key(table_key.parts_text(parts)))


@lru_cache(maxsize=1024)
def key_reader(object_class: ObjectClass) -> Callable[[str], Key]:
    """The function that makes typed keys of the canonical table_keys of the class; it raises BadValue."""
    columns = [(column.name, len(column.name) + 1, value_reader(column.type)) for column in object_class.key]
    (first, start_of_first, read_first), *more = columns

    def read(text: str) -> Key:
        if '"' in text:
            texts = {part.name: part.value for part in table_key.parse(text)}
            return tuple([(name, read_value(texts[name])) for name, _, read_value in columns])
        # Canonical text without quotes, as nearly all is: names and values stand as they are.
        if not more:
            return ((first, read_first(text[start_of_first:])),)
        parts = zip(columns, text.split("+"), strict=True)
        return tuple([(name, read_value(part[start:])) for (name, start, read_value), part in parts])

    return read


def with_key(change: Change, object_class: ObjectClass | None) -> Change:
    """The change with its key, taken from its images by the class's key columns if it does not say it.

    Raises NotExpressible if the key cannot be known.
    """
    if change.key is not None:
        return change
    image = change.before if change.op is ChangeOp.DELETE else change.after
    if object_class is None or image is None or not all(column.name in image for column in object_class.key):
        raise NotExpressible(
            f"{change.op} of {change.table!r} at {change.position} has no key, which is needed to name its row: "
            "give the key columns by the option of its reader, or by a catalog"
        )
    return change._replace(key=tuple((column.name, image[column.name]) for column in object_class.key))


def old_and_new_key(change: Change) -> tuple[Key, Key]:
    """The key before and after a change that has one; both are the key where it did not move."""
    assert change.key is not None
    old = old_key(change) if change.op is ChangeOp.UPDATE else change.key
    assert old is not None
    return old, change.key


def key_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """The canonical table_key (spec/event-log.md 4.3) of a key of the change's table.

    Raises NotExpressible: a NULL or a value that the class's key column cannot hold.
    """
    try:
        parts = [(name, _normal_text(change, name, value)) for name, value in key]
        text = table_key.key_text(parts)
        if object_class is not None:
            text = object_class.canonical_key(text)
    except RowError as error:
        raise NotExpressible(f"the key of {change.op} of {change.table!r} at {change.position}: {error}") from error
    return text


def _normal_text(change: Change, name: str, value: Value) -> str:
    if value is None:
        raise NotExpressible(f"key column {name!r} of {change.op} of {change.table!r} at {change.position} is NULL")
    return key_normalizer(type_of(value))(to_text(value))


EXISTING_KEYS: Final = Option(None, ANY, "keys that a TRUNCATE deletes, by table, or a function of the table")


ExistingKeys: TypeAlias = Callable[[str], Iterable[Key] | None]
"""Table -> the keys of its rows, None if they are not known."""


def keys_of(option: Any, catalog: Catalog | None) -> ExistingKeys | None:
    """The option ``existing_keys`` as a function of the table: as it is, or from a mapping of tables to their keys,
    each an object of key columns, in key order. Raises ConfigError.
    """
    if option is None:
        return None
    if callable(option):
        function: ExistingKeys = option
        return function
    if not isinstance(option, Mapping):
        raise ConfigError('existing_keys is an object of tables to lists of keys: {"item": [{"id": 7}]}')
    return {table: _keys(table, keys, catalog) for table, keys in option.items()}.get


def _keys(table: str, keys: Any, catalog: Catalog | None) -> list[Key]:
    if not isinstance(keys, list | tuple):
        raise ConfigError(f'the keys of {table!r} in existing_keys are no list, such as [{{"id": 7}}]')
    return [_key(table, key, catalog) for key in keys]


def _key(table: str, key: Any, catalog: Catalog | None) -> Key:
    if not isinstance(key, Mapping):
        raise ConfigError(f'a key of {table!r} in existing_keys is no object of its columns, such as {{"id": 7}}')
    object_class = class_of(catalog, table)
    types = {} if object_class is None else {column.name: column.type for column in object_class.key}
    return tuple(
        (name, value_reader(types[name])(value) if isinstance(value, str) and name in types else value)
        for name, value in key.items()
    )


def existing_keys(change: Change, keys_of: ExistingKeys | None) -> Iterable[Key]:
    """The keys that a TRUNCATE deletes. Raises NotExpressible without them (spec/change-model.md 4)."""
    keys = None if keys_of is None else keys_of(change.table)
    if keys is None:
        raise NotExpressible(
            f"TRUNCATE of {change.table!r} at {change.position}: one delete a key is written, and its keys are not "
            "known; give them by existing_keys"
        )
    return keys


# --- rows and transactions --------------------------------------------------------------------------------------------


def refuse_without_row(change: Change) -> None:
    """Raise NeedsRowCodec or NeedsQueryBack for a change whose row is not known (spec/change-model.md 3.1, 3.4)."""
    is_gone = change.op in (ChangeOp.DELETE, ChangeOp.TRUNCATE)
    if (change.before if is_gone else change.after) is not None or (is_gone and change.key is not None):
        return
    what = f"{change.op} of {change.table!r} at {change.position}"
    if "part1" in change.extras:
        raise NeedsRowCodec(f"{what} has its row in raw parts alone: give the reader a row codec")
    if not is_gone:
        raise NeedsQueryBack(f"{what} has no row: read it with a connection to its database")


def refused_column(change: Change, column: str, error: RowError) -> NotExpressible:
    """What a writer raises for a value of a column that has no text in its format."""
    return NotExpressible(f"{change.op} of {change.table!r}, column {column!r}: {error}", column_name(change, column))


def written_columns(change: Change) -> list[str]:
    """The non-key columns that an UPDATE is written with, in the order of ``after`` (spec/change-model.md 4).

    Those changed, else those that differ, else all known; and those of ``extras["changed_unknown"]`` that are known.
    """
    after = change.after or {}
    names = change.changed
    if names is None and change.before is not None:
        names = differing(change.before, after)
    if names is None:
        names = frozenset(after)
    if unknown := change.extras.get("changed_unknown"):
        names = names.union(unknown)
    key = dict(change.key or ())
    return [name for name in after if name in names and name not in key]


Complete: TypeAlias = Callable[[str | None, str, Key | None], Row | None]
"""Gives the whole row of (schema, table, key), None if there is none (spec/change-model.md 4)."""


FILLED: Final = "filled_null"
"""The reason under which a column is counted that is not known and that its format writes as NULL."""


def whole_images(
    change: Change,
    names: frozenset[str],
    complete: Complete | None,
    *,
    needs_before: bool,
    count: Callable[[str], None],
) -> list[dict[str, Value]]:
    """The rows of a change in a format of whole rows (spec/change-model.md 4): of an UPDATE the old and the new one.

    ``names``: the columns of the table there. ``complete`` is asked once for what is not known; of a deleted row that
    is NULL, and ``count`` is told so. ``needs_before``: an UPDATE of which no old row is known has one all the same.
    Raises NeedsRowCodec, NeedsQueryBack if nothing is known of the row, and NotExpressible naming columns that remain
    unknown or are none of ``names``.
    """
    table = full_name(change.schema, change.table)
    if change.before is None and change.after is None and "part1" in change.extras:
        raise NeedsRowCodec(f"a row of {table!r} is there in raw parts alone: give the reader a row codec")
    key = dict(change.key or ())
    is_deleted = change.op is ChangeOp.DELETE
    images = [{**key, **((change.before if is_deleted else change.after) or {})}]
    if change.op is ChangeOp.UPDATE and (change.before or needs_before):
        images.insert(0, {**dict(old_key(change) or ()), **(change.before or {})})
    for image in images:
        if unknown := image.keys() - names:
            raise NotExpressible(
                f"{change.op} of {table!r} has the column {min(unknown)!r}, which its description in the target does "
                "not list: add it there, with a type that the format has",
                column_name(change, min(unknown)),
            )
    if is_deleted:
        for name in sorted(names - images[0].keys()):
            count(f"{FILLED} {column_name(change, name)}")
        return [{**dict.fromkeys(names), **images[0]}]
    if all(names <= image.keys() for image in images):
        return images
    row = None if complete is None else complete(change.schema, change.table, change.key)
    way_out = "read a format that has them, or give the writer's option complete from Python"
    if row is None and change.after is None:
        raise NeedsQueryBack(f"a change of {table!r} has no row: {way_out}")
    row = row or {}
    for image in images:
        if missing := names - image.keys() - row.keys():
            raise NotExpressible(
                f"{change.op} of {table!r} with key {key} lacks the columns {', '.join(sorted(missing))}, and the "
                f"format holds whole rows: {way_out}"
            )
    return [{**{name: row[name] for name in names - image.keys()}, **image} for image in images]


def transactions(changes: Iterable[Change]) -> Iterator[Iterator[Change]]:
    """The changes of one transaction after the other; each is read to its end before the next.

    A change without a transaction id is a transaction of its own; the end of any other shows by the change behind it,
    since a TRUNCATE that change tables do not count may come behind the last counted one (spec/change-model.md 4).
    """
    coming = iter(changes)
    following: Change | None = None

    def transaction_of(change: Change) -> Iterator[Change]:
        nonlocal following
        yield change
        ended = bool(change.last_in_transaction)
        while change.transaction_id is not None:
            following = next(coming, None)
            if following is None or following.transaction_id != change.transaction_id:
                return
            if ended and (following.op is not ChangeOp.TRUNCATE or following.event_number is not None):
                return
            ended = ended or bool(following.last_in_transaction)
            yield following

    while True:
        first = next(coming, None) if following is None else following
        if first is None:
            return
        following = None
        yield transaction_of(first)
