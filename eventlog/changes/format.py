"""The base of change formats: the class that each format extends, the report of a conversion, and
the functions by which readers and writers find a change's class, key, rows and transaction
(spec/change-model.md 1, 4).

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
    NotExpressible,
    RowError,
    number_of,
)
from eventlog.model import Change, ChangeOp, Row, Value, column_name, differing, full_name, old_key


@dataclass(slots=True)
class Report:
    """The result of a conversion: the changes ``read`` and ``written``, and ``counters`` by reason.

    A counter is named after its reason (``truncate_skipped``); a counter of one column is named
    ``reason table.column`` (``truncated app.item.made_at``). With ``strict`` the first input that
    cannot be read or written stops the conversion. ``passed_over`` counts the inputs that could not
    be read or written. ``problems`` holds the messages of the first of them with their codes,
    ``PROBLEMS_KEPT`` at most.
    """

    read: int = 0
    written: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    strict: bool = False
    problems: list[str] = field(default_factory=list)
    passed_over: int = 0

    def count(self, reason: str, number: int = 1) -> None:
        """Count an input that is skipped, incomplete or unusual under its reason."""
        self.counters[reason] += number

    def skip(self, error: EventlogError) -> None:
        """Skip the input that ``error`` refuses, and count it under its code and column. Raises
        ``error`` if ``strict``.
        """
        if self.strict:
            raise error
        column = error.column if isinstance(error, FormatError) else None
        self.pass_over(error.code if column is None else f"{error.code} {column}")
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(f"{error} [{error.code}]")

    def pass_over(self, reason: str, number: int = 1) -> None:
        """Skip input that does not belong to the format, and count it under its reason."""
        self.passed_over += number
        self.count(reason, number)

    def refuse_nothing(self, written: int | None = None) -> None:
        """Raise NothingWritten if input was passed over and no change was written.

        A writer calls this before it commits its target, so that a wrong format empties no file
        (spec/change-model.md 4). ``written`` is the number of changes that are written and not
        counted yet, None = all are counted.
        """
        if self.passed_over and not (self.written if written is None else written):
            raise NothingWritten(self)


PROBLEMS_KEPT: Final = 100


class NothingWritten(FormatError):
    """An input without a change that can be read or written; the target is unchanged
    (spec/change-model.md 4).

    ``report`` lists the input that was passed over.
    """

    code = "nothing_written"

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
"""The participle by which messages name each method of a format."""

Block: TypeAlias = Callable[[Change], Iterable[str]]
"""A function that returns the lines that show a change to people."""


class Format:
    """One format: its names, options and methods. Each format extends this class in its own package
    and overrides what differs.

    ``name`` is the format's name in options and commands, ``title`` its name in help and pages.
    ``endings`` maps layouts of files of documents to file name endings. ``schemes`` are those of
    the URLs that the format reads and writes beside files, None = those of any database.
    ``reader_options`` and ``writer_options`` are the classes that declare its options,
    ``publish_options`` the class for a publisher, and ``backlog_options`` the class for a backlog
    job, None = the publisher's, without ``--map``. ``answer`` is the default place of an HTTP
    receiver's answer. ``is_of_rows`` says that an event is a row of one table, without values of
    child tables. ``is_numbered`` says that messages bear consecutive numbers, which a backlog job
    assigns last.

    Four attributes describe the files of a format. ``suffixes`` are those of the names of files to
    read, None = any. ``has_single_files``: each file stands alone. ``is_read_once``: a file is read
    from front to back, so that a pipe will do. ``is_several_files``: changes are written to several
    files.

    The methods ``read_changes``, ``write_changes``, ``publish`` and ``tables`` are optional: a
    format overrides the ones that it supports.
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

    # --- optional methods: a format overrides some of these ---

    def read_changes(self, *arguments: Any, **named: Any) -> Iterator[Change]:
        """Return the changes of ``source, *options, report``. The source is a path, or a URL if the
        format has live sources.

        Raises FormatError, which names the error and its place. Input that can be skipped goes to
        ``Report.skip``; the report counts the skipped and the lost.
        """
        raise self.lacks("read_changes")

    def write_changes(self, *arguments: Any, **named: Any) -> None:
        """Write ``changes`` to a ``target``, with ``*options`` and ``report``. A file is written
        whole or not at all.

        Raises FormatError as ``read_changes`` does. The report counts the written changes, too.
        """
        raise self.lacks("write_changes")

    def publish(self, options: Any, publishing: Publishing) -> EventWriter[Any]:
        """Return the writer of events, with options of ``publish_options``. Raises ConfigError."""
        raise self.lacks("publish")

    def tables(self) -> None:
        """Say that a backlog job writes tables of the format: ``eventlog.spark.output.tables``
        makes their rows.
        """
        raise self.lacks("tables")

    # --- defaults that a format may override ---

    def values(self, options: Any, shared: ValueOptions) -> ValueOptions:
        """Return the options by which values become texts in this format. ``options`` are those of
        publishing, ``shared`` those of the configuration.

        This default writes full times and all of Unicode. Only XDS has types of times that lose a
        fraction, and only XML lacks characters.
        """
        return replace(shared, time_syntax="full", characters="unicode")

    def insert_query_back(self, options: Any) -> str:
        """Return the operation of events that are only read back. The default is an insert
        (spec/change-model.md 3.1).
        """
        return "add"

    def refusal(self, options: Any, publishing: Publishing) -> tuple[str, str] | None:
        """Return an option that cannot be combined with the target in ``publishing``, and the
        reason; None if documents can go there. The option is ``type`` if the format itself is
        refused.
        """
        return None

    def ignored(self, options: Any, publishing: Publishing) -> tuple[str, str] | None:
        """Return an option that is set and has no effect on the target in ``publishing``, and the
        reason; None if there is none.
        """
        return None

    def options_of_catalog(self, side: str, database: Database) -> Mapping[str, Any] | None:
        """Return the options that a catalogue stands for on a ``side``, reader or writer, of a
        format without the option ``catalog``. These options hold an entry for each table. None if
        the format has the option ``catalog``.
        """
        return None

    def lines(
        self, source: str, options: Mapping[str, Any], report: Report, block: Block
    ) -> Iterator[str]:
        """Return the lines of text that show a source to people; ``block`` returns the lines of a
        change. Raises as ``read`` does.
        """
        for change in self.read(source, options, report):
            yield from block(change)
            yield ""

    def is_one_source(self, place: Path, options: Mapping[str, Any]) -> bool | None:
        """Return True if a directory is one source with all files and directories in it, False if
        each of them is a source, None if the directory has no file of the format.
        """
        return False

    def is_sorted_first(self, options: Mapping[str, Any]) -> bool:
        """Return True if rows are sorted before their changes are made, so that large inputs are
        sorted in bulk.
        """
        return False

    def is_description(self, file: Path) -> bool:
        """Return True if a file describes the files beside it."""
        return False

    def output_place(self, name: str, options: Mapping[str, Any]) -> str:
        """Return the path of the output for a source of this name, within a directory of such
        outputs: a file, a file in a directory, or a directory for several files. Raises ConfigError
        for an option that names one place.
        """
        return name if self.is_several_files else f"{name}{self.endings['lines']}"

    # --- calls from outside the format ---

    def can(self, method: str) -> bool:
        """Return True if the format has this optional method."""
        return getattr(type(self), method) is not getattr(Format, method)

    def lacks(self, method: str) -> ConfigError:
        """Return the error for a method that the format lacks."""
        return ConfigError(
            f"the format {self.name} ({self.title}) cannot be {_DONE[method]}: name another one"
        )

    def read(self, source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
        """Return the changes of a source, counted, with the reader's options of ``--map``. Raises
        ConfigError for wrong options.
        """
        chosen = parse_all_options(self.reader_options, options, f"the {self.name} reader")
        return counted(self.read_changes(source, *chosen, report), report)

    def write(
        self, changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report
    ) -> None:
        """Write changes to a target, with the writer's options of ``--map``.

        Raises ConfigError for wrong options.
        """
        chosen = parse_all_options(self.writer_options, options, f"the {self.name} writer")
        self.write_changes(changes, target, *chosen, report)


def counted(changes: Iterable[Change], report: Report) -> Iterator[Change]:
    """Yield the changes, and count each in ``report`` as it is read."""
    for change in changes:
        report.read += 1
        yield change


Written = TypeVar("Written")


def written(
    changes: Iterable[Change], write: Callable[[Change, str], Sequence[Written]], report: Report
) -> Iterator[Written]:
    """Yield the output of ``write`` for each change and its id, one after the other; a change that
    it refuses is passed over.

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


# --- class and key --------------------------------------------------------------------------------


def class_of(catalog: Catalog | None, table: str) -> ObjectClass | None:
    """Return the class of exactly this name, None without a catalogue or if it has none."""
    log_name = None if catalog is None else catalog.log_names.get(table)
    return None if log_name is None or log_name.child is not None else log_name.object_class


def may_be_one(schema: str | None, other: str | None) -> bool:
    """Return True if two schemas may be the same one; None is an unknown schema."""
    return schema is None or other is None or schema == other


def class_of_change(catalog: Catalog | None, change: Change) -> ObjectClass | None:
    """Return the class of a change's table, None if the catalogue describes another schema."""
    if catalog is None or not may_be_one(change.schema, catalog.schema):
        return None
    return class_of(catalog, change.table)


Key: TypeAlias = tuple[tuple[str, Value], ...]
"""Key columns with their values, in key order."""


def typed_key(parts: Sequence[table_key.Part], object_class: ObjectClass | None) -> Key:
    """Return the key of a table_key's parts: as text without a class, else typed and in key order.

    Raises BadTableKey if the parts do not fit the class's key columns.
    """
    if object_class is None:
        return tuple((part.name, part.value) for part in parts)
    return key_reader(object_class)(object_class.canonical_key(table_key.parts_text(parts)))


@lru_cache(maxsize=1024)
def key_reader(object_class: ObjectClass) -> Callable[[str], Key]:
    """Return the function that makes typed keys of canonical table_keys; it raises BadValue."""
    columns = [
        (column.name, len(column.name) + 1, value_reader(column.type))
        for column in object_class.key
    ]
    (first, start_of_first, read_first), *more = columns

    def read(text: str) -> Key:
        if '"' in text:
            texts = {part.name: part.value for part in table_key.parse(text)}
            return tuple([(name, read_value(texts[name])) for name, _, read_value in columns])
        # Nearly all canonical texts have no quotes, so names and values are taken as they are.
        if not more:
            return ((first, read_first(text[start_of_first:])),)
        parts = zip(columns, text.split("+"), strict=True)
        return tuple(
            [(name, read_value(part[start:])) for (name, start, read_value), part in parts]
        )

    return read


def with_key(change: Change, object_class: ObjectClass | None) -> Change:
    """Return the change with its key. A missing key is taken from the change's images by the
    class's key columns.

    Raises NotExpressible if the key cannot be known.
    """
    if change.key is not None:
        return change
    image = change.before if change.op is ChangeOp.DELETE else change.after
    if (
        object_class is None
        or image is None
        or not all(column.name in image for column in object_class.key)
    ):
        raise NotExpressible(
            f"{change.op} of {change.table!r} at {change.position} has no key, which is needed to "
            "name its row: give the key columns by the option of its reader, or by a catalog"
        )
    return change._replace(
        key=tuple((column.name, image[column.name]) for column in object_class.key)
    )


def old_and_new_key(change: Change) -> tuple[Key, Key]:
    """Return the key before and after a change that has a key.

    Both are equal if the key did not change.
    """
    assert change.key is not None
    old = old_key(change) if change.op is ChangeOp.UPDATE else change.key
    assert old is not None
    return old, change.key


def key_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """Return the canonical table_key (spec/event-log.md 4.3) of a key of the change's table.

    Raises NotExpressible for a NULL and for a value that the class's key column cannot hold.
    """
    try:
        parts = [(name, _normal_text(change, name, value)) for name, value in key]
        text = table_key.key_text(parts)
        if object_class is not None:
            text = object_class.canonical_key(text)
    except RowError as error:
        raise NotExpressible(
            f"the key of {change.op} of {change.table!r} at {change.position}: {error}"
        ) from error
    return text


def _normal_text(change: Change, name: str, value: Value) -> str:
    if value is None:
        raise NotExpressible(
            f"key column {name!r} of {change.op} of {change.table!r} at {change.position} is NULL"
        )
    return key_normalizer(type_of(value))(to_text(value))


EXISTING_KEYS: Final = Option(
    None, ANY, "keys that a TRUNCATE deletes, by table, or a function of the table"
)


ExistingKeys: TypeAlias = Callable[[str], Iterable[Key] | None]
"""A function from a table to the keys of its rows, None if they are unknown."""


def keys_of(option: Any, catalog: Catalog | None) -> ExistingKeys | None:
    """Return the option ``existing_keys`` as a function of the table.

    The option is such a function, or a mapping of tables to their keys, each an object of key
    columns in key order. Raises ConfigError.
    """
    if option is None:
        return None
    if callable(option):
        function: ExistingKeys = option
        return function
    if not isinstance(option, Mapping):
        raise ConfigError(
            'existing_keys is an object of tables to lists of keys: {"item": [{"id": 7}]}'
        )
    return {table: _keys(table, keys, catalog) for table, keys in option.items()}.get


def _keys(table: str, keys: Any, catalog: Catalog | None) -> list[Key]:
    if not isinstance(keys, list | tuple):
        raise ConfigError(
            f'the keys of {table!r} in existing_keys are no list, such as [{{"id": 7}}]'
        )
    return [_key(table, key, catalog) for key in keys]


def _key(table: str, key: Any, catalog: Catalog | None) -> Key:
    if not isinstance(key, Mapping):
        raise ConfigError(
            f'a key of {table!r} in existing_keys is no object of its columns, such as {{"id": 7}}'
        )
    object_class = class_of(catalog, table)
    types = (
        {} if object_class is None else {column.name: column.type for column in object_class.key}
    )
    return tuple(
        (
            name,
            value_reader(types[name])(value) if isinstance(value, str) and name in types else value,
        )
        for name, value in key.items()
    )


def existing_keys(change: Change, keys_of: ExistingKeys | None) -> Iterable[Key]:
    """Return the keys that a TRUNCATE deletes. Raises NotExpressible if they are unknown
    (spec/change-model.md 4).
    """
    keys = None if keys_of is None else keys_of(change.table)
    if keys is None:
        raise NotExpressible(
            f"TRUNCATE of {change.table!r} at {change.position}: one delete a key is written, and "
            "its keys are not known; give them by existing_keys"
        )
    return keys


# --- rows and transactions ------------------------------------------------------------------------


def refuse_without_row(change: Change) -> None:
    """Raise FormatError for a change whose row is unknown (spec/change-model.md
    3.1, 3.4).
    """
    is_gone = change.op in (ChangeOp.DELETE, ChangeOp.TRUNCATE)
    if (change.before if is_gone else change.after) is not None or (
        is_gone and change.key is not None
    ):
        return
    what = f"{change.op} of {change.table!r} at {change.position}"
    if "part1" in change.extras:
        raise FormatError(
            f"{what} has its row in raw parts alone: give the reader a row codec",
            code="needs_row_codec",
        )
    if not is_gone:
        raise FormatError(
            f"{what} has no row: read it with a connection to its database", code="needs_query_back"
        )


def refused_column(change: Change, column: str, error: RowError) -> NotExpressible:
    """Return the error that a writer raises for a column's value that has no text in its format."""
    return NotExpressible(
        f"{change.op} of {change.table!r}, column {column!r}: {error}", column_name(change, column)
    )


def written_columns(change: Change) -> list[str]:
    """Return the non-key columns that an UPDATE is written with, in the order of ``after``
    (spec/change-model.md 4).

    These are the changed columns, else the columns that differ, else all known ones; and the known
    columns of ``extras["changed_unknown"]``.
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
"""A function that returns the whole row of (schema, table, key), None if there is none
(spec/change-model.md 4).
"""


FILLED: Final = "filled_null"
"""The reason under which an unknown column is counted that its format writes as NULL."""


def whole_images(
    change: Change,
    names: frozenset[str],
    complete: Complete | None,
    *,
    needs_before: bool,
    count: Callable[[str], None],
) -> list[dict[str, Value]]:
    """Return the rows of a change in a format of whole rows (spec/change-model.md 4); an UPDATE has
    the old and the new one.

    ``names`` are the columns of the table in the target. ``complete`` is called once for unknown
    columns. Unknown columns of a deleted row are NULL, and ``count`` is called for each. With
    ``needs_before`` an UPDATE has an old row even if none is known. Raises FormatError
    if the row is wholly unknown, and NotExpressible naming columns that remain unknown or are not
    in ``names``.
    """
    table = full_name(change.schema, change.table)
    if change.before is None and change.after is None and "part1" in change.extras:
        raise FormatError(
            f"a row of {table!r} is there in raw parts alone: give the reader a row codec",
            code="needs_row_codec",
        )
    images = _known_images(change, needs_before)
    _refuse_columns_beyond(names, change, images)
    if change.op is ChangeOp.DELETE:
        for name in sorted(names - images[0].keys()):
            count(f"{FILLED} {column_name(change, name)}")
        return [{**dict.fromkeys(names), **images[0]}]
    if all(names <= image.keys() for image in images):
        return images
    return _completed(change, names, images, complete)


def _known_images(change: Change, needs_before: bool) -> list[dict[str, Value]]:
    """Return the rows of ``whole_images`` with the columns that the change knows."""
    row = change.before if change.op is ChangeOp.DELETE else change.after
    images = [{**dict(change.key or ()), **(row or {})}]
    if change.op is ChangeOp.UPDATE and (change.before or needs_before):
        images.insert(0, {**dict(old_key(change) or ()), **(change.before or {})})
    return images


def _refuse_columns_beyond(names: frozenset[str], change: Change, images: Iterable[Row]) -> None:
    """Raise NotExpressible for a column that is not among the names of the target's columns."""
    for image in images:
        if unknown := image.keys() - names:
            raise NotExpressible(
                f"{change.op} of {full_name(change.schema, change.table)!r} has the column "
                f"{min(unknown)!r}, which its description in the target does not list: add it "
                "there, with a type that the format has",
                column_name(change, min(unknown)),
            )


def _completed(
    change: Change, names: frozenset[str], images: Iterable[Row], complete: Complete | None
) -> list[dict[str, Value]]:
    """Return the rows with the columns that they lack, taken from the whole row that ``complete``
    returns. Raises FormatError if there is no row at all, NotExpressible for columns that it lacks.
    """
    table = full_name(change.schema, change.table)
    row = None if complete is None else complete(change.schema, change.table, change.key)
    way_out = "read a format that has them, or give the writer's option complete from Python"
    if row is None and change.after is None:
        raise FormatError(f"a change of {table!r} has no row: {way_out}", code="needs_query_back")
    row = row or {}
    for image in images:
        if missing := names - image.keys() - row.keys():
            raise NotExpressible(
                f"{change.op} of {table!r} with key {dict(change.key or ())} lacks the columns "
                f"{', '.join(sorted(missing))}, and the format holds whole rows: {way_out}"
            )
    return [{**{name: row[name] for name in names - image.keys()}, **image} for image in images]


def transactions(changes: Iterable[Change]) -> Iterator[Iterator[Change]]:
    """Yield the changes of one transaction after the other. Each must be read to its end before the
    next.

    A change without a transaction id is a transaction of its own. The end of any other transaction
    shows only by the next change, since a TRUNCATE that change tables do not count may follow the
    last counted change (spec/change-model.md 4).
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
            if ended and (
                following.op is not ChangeOp.TRUNCATE or following.event_number is not None
            ):
                return
            ended = ended or bool(following.last_in_transaction)
            yield following

    while True:
        first = next(coming, None) if following is None else following
        if first is None:
            return
        following = None
        yield transaction_of(first)
