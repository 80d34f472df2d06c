"""The base of change formats: the class that each format extends, and the report of a conversion
(spec/change-model.md 4).

Each format's package has one ``FORMAT``, which ``eventlog.registry`` lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from eventlog.changes.answers import AnswerForm
from eventlog.changes.losses import NO_LOSS, Loss, in_words, loss_counter
from eventlog.changes.publishing import EventWriter, Publishing
from eventlog.core.catalog import Database
from eventlog.core.options import GivenOptions, parse_all_options
from eventlog.core.values import ValueOptions
from eventlog.errors import (
    ConfigError,
    EventlogError,
    FormatError,
    called,
    check_result,
    number_of,
)
from eventlog.exit_codes import ExitCode
from eventlog.model import Change


@dataclass(slots=True)
class Report:
    """The result of a conversion."""

    read: int = 0
    """The number of changes read."""
    written: int = 0
    """The number of changes written."""
    counters: Counter[str] = field(default_factory=Counter)
    """The counters by reason (``truncate_skipped``). The counter of one column is named ``reason
    table.column`` (``truncated app.item.made_at``).
    """
    strict: bool = False
    """True if the first input that cannot be read or written stops the conversion."""
    problems: list[str] = field(default_factory=list)
    """The messages of the first skipped inputs, with their codes; at most ``PROBLEMS_KEPT``."""
    passed_over: int = 0
    """The number of skipped inputs, which could not be read or written."""
    lost: Counter[str] = field(default_factory=Counter)
    """How often the target had no place for a part of a written change, by
    ``eventlog.changes.losses.Loss``.
    """

    def count(self, reason: str, number: int = 1) -> None:
        """Increase the counter of the reason why an input is skipped, incomplete or unusual."""
        self.counters[reason] += number

    def skip(self, error: EventlogError) -> None:
        """Skip the input that ``error`` refuses, and count it under the error's code and column.
        Raises ``error`` if ``strict``.
        """
        if self.strict:
            raise _as_answer_no(error)
        column = error.column if isinstance(error, FormatError) else None
        self.pass_over(
            error.code if column is None else f"{error.code} {column}", f"{error} [{error.code}]"
        )

    def leave_out(self, error: FormatError) -> None:
        """Leave out a value that ``error`` refuses, and count it under the error's code and column.
        The rest of the change is read, and the column is unknown in the change
        (spec/change-model.md 1). Raises ``error`` if ``strict``.
        """
        if self.strict:
            raise _as_answer_no(error)
        self.count_with_message(f"{error.code} {error.column}", f"{error} [{error.code}]")

    def pass_over(self, reason: str, message: str = "") -> None:
        """Skip input that holds no change of this format, even if ``strict``, and add the input to
        the counter of the reason.
        """
        self.passed_over += 1
        self.count_with_message(reason, message)

    def count_with_message(self, reason: str, message: str) -> None:
        """Count a part of the input under its reason. Keep ``message``, which names the place of
        the part, unless it is empty.
        """
        self.count(reason)
        if message and len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(message)

    def refuse_nothing(self, written: int | None = None) -> None:
        """Raise NothingWritten if input was skipped and no change was written.

        A writer calls this method before it commits its target, so that a wrong format does not
        empty the file (spec/change-model.md 4). ``written`` is the number of changes that are
        written but not counted yet; None = all are counted.
        """
        if self.passed_over and not (self.written if written is None else written):
            raise NothingWritten(self)

    def losses(self) -> str:
        """Return the losses in words: skipped input, values that were cut, and parts of changes
        that the target has no place for. The text is empty if nothing was lost.
        """
        counted = [
            f"{number:,} {reason}"
            for reason, number in sorted(self.counters.items())
            if number and reason not in NO_LOSS
        ]
        return "; ".join(filter(None, (", ".join(counted), in_words(self.lost))))


PROBLEMS_KEPT: Final = 100


def _as_answer_no(error: EventlogError) -> EventlogError:
    """Return the error of a strict conversion with the exit code NO."""
    error.exit_code = ExitCode.NO
    return error


class NothingWritten(FormatError):
    """No change of the input could be read and written; the target is unchanged
    (spec/change-model.md 4).

    ``report`` lists the skipped input.
    """

    code = "nothing_written"

    def __init__(self, report: Report) -> None:
        passed_over = f"{number_of(report.passed_over, 'thing')} passed over"
        super().__init__(f"nothing was written, and the target is unchanged: {passed_over}")
        self.report = report
        if report.strict:
            self.exit_code = ExitCode.NO
        for problem in report.problems[:1]:
            self.add_note(problem)


PARTICIPLES: Final = {
    "read_changes": "read",
    "write_changes": "written",
    "publish": "published",
    "tables": "written as tables",
}
"""The participle for each method of a format, in messages."""


class RowTexts(NamedTuple):
    """Successive inserts or updates of rows of one table, with the texts that a log has for the
    values. RowTexts need less memory than one ``Change`` per row, and much less time.
    """

    table: str
    is_insert: bool
    names: Sequence[str]
    """The single-valued attributes that have new values."""
    keys: Sequence[str]
    """The canonical table_keys of the rows. The changes do not change a key."""
    rows: Sequence[Sequence[str | None]]
    """The new values of each row in the order of ``names``; None for NULL."""


Block: TypeAlias = Callable[[Change], Iterable[str]]
"""A function that returns the lines that show a change to people."""


Refusal: TypeAlias = tuple[str, str]
"""The name of an option, and why it cannot be set or has no effect."""


class Format:
    """One format: its names, options and methods. Each format extends this class in its own package
    and overrides what differs.

    The methods ``read_changes``, ``write_changes``, ``publish`` and ``tables`` are optional: a
    format overrides the methods that it supports.
    """

    name: ClassVar[str]
    """The format's name in options and commands."""
    title: ClassVar[str]
    """The format's name in help and pages."""
    endings: ClassVar[Mapping[str, str]] = {"lines": ".jsonl", "documents": ".json"}
    """The file name endings of files of documents, by their layouts."""
    schemes: ClassVar[tuple[str, ...] | None] = ()
    """The schemes of the URLs that the format reads and writes in addition to files; None = the
    schemes of any database.
    """
    reader_options: ClassVar[tuple[type, ...]] = ()
    writer_options: ClassVar[tuple[type, ...]] = ()
    """The classes that declare the options of the format's reader and of its writer."""
    written_by: ClassVar[type | None] = None
    """The class with the reader options that must equal the options with which a publisher wrote
    the documents; None = the documents themselves show how to read them.
    """
    publish_options: ClassVar[type | None] = None
    """The class that declares the options for a publisher."""
    backlog_options: ClassVar[type | None] = None
    """The class that declares the options for a backlog job; None = the class for a publisher, and
    ``--options`` is refused.
    """
    response_format: ClassVar[str] = "status"
    """The default of ``sink.response_format``, which determines where the answer of an HTTP
    receiver is.
    """
    answer_form: ClassVar[AnswerForm | None] = None
    """The form of answers that the format defines. This form applies if ``sink.response_format`` is
    the name of the format.
    """
    is_of_rows: ClassVar[bool] = False
    """True if an event is one row of one table, without values of child tables."""
    is_numbered: ClassVar[bool] = False
    """True if messages have consecutive numbers. A backlog job assigns the numbers in its last
    step.
    """
    suffixes: ClassVar[frozenset[str] | None] = None
    """The suffixes of the names of files to read; None = any."""
    has_single_files: ClassVar[bool] = False
    """True if each file is a complete source."""
    is_read_once: ClassVar[bool] = False
    """True if a file is read once from beginning to end, so that a pipe works."""
    is_several_files: ClassVar[bool] = False
    """True if a conversion writes several files."""
    is_written_later: ClassVar[bool] = False
    """True if a change may be written, or skipped, only after later changes were read."""
    loses: ClassVar[frozenset[Loss]] = frozenset()
    """The parts of a change that the format has no place for, or leaves out by design. A conversion
    counts and reports these parts.
    """

    # --- optional methods: a format overrides some of these ---

    def read_changes(self, *arguments: Any, **named: Any) -> Iterator[Change]:
        """Return the changes of a source. The arguments are ``source``, ``*options`` and
        ``report``; the source is a path, or a URL if the format has live sources.

        Raises FormatError, which names the error and its place. Input that can be skipped goes to
        ``Report.skip``; the report counts what is skipped and what is lost.
        """
        raise self.lacks("read_changes")

    def write_changes(self, *arguments: Any, **named: Any) -> None:
        """Write ``changes`` to a ``target``, with ``*options`` and ``report``. A file is written
        completely or not at all.

        Raises FormatError as ``read_changes`` does. The report also counts the written changes.
        """
        raise self.lacks("write_changes")

    def publish(self, options: Any, publishing: Publishing) -> EventWriter[Any]:
        """Return the writer of events, with options of ``publish_options``. Raises ConfigError."""
        raise self.lacks("publish")

    def tables(self) -> None:
        """Override this method if a backlog job can write tables of the format;
        ``eventlog.spark.backlog.output.tables`` makes the rows of the tables.
        """
        raise self.lacks("tables")

    # --- defaults that a format may override ---

    def values(self, options: Any, shared: ValueOptions) -> ValueOptions:
        """Return the options by which values become texts in this format. ``options`` are the
        format's options for a publisher, ``shared`` are the options that all formats share.

        By default times are written in full, and texts with all characters of Unicode. Only XDS has
        types of times without fractions, and only XML cannot hold some characters.
        """
        return replace(shared, time_syntax="full", characters="unicode")

    def insert_query_back(self, options: Any) -> str:
        """Return the operation for an insert whose values are all read back: ``add`` or ``modify``.
        The default is ``add`` (spec/change-model.md 3.1).
        """
        return "add"

    def offline(self, options: Any) -> Any:
        """Return the options of a publisher, changed so that its writer sends no request to another
        program such as a registry. A trial of the classes uses the result.
        """
        return options

    def refusal(self, options: Any, publishing: Publishing) -> Refusal | None:
        """Return an option that cannot be combined with the target in ``publishing``, and the
        reason; None if the target accepts the documents. The option is ``type`` if the format
        itself is refused.
        """
        return None

    def ignored(self, options: Any, publishing: Publishing) -> Refusal | None:
        """Return an option that is set but has no effect on the target in ``publishing``, and the
        reason; None if there is no such option.
        """
        return None

    def options_of_catalog(self, side: str, database: Database) -> GivenOptions | None:
        """Return the options of a ``side`` (reader or writer) that replace the option ``catalog``.
        These options hold an entry for each table. None = the format has the option ``catalog``.
        """
        return None

    def lines(
        self, source: str, options: GivenOptions, report: Report, block: Block
    ) -> Iterator[str]:
        """Return the lines of text that show a source to people; ``block`` returns the lines for
        one change. Raises as ``read`` does.
        """
        for change in self.read(source, options, report):
            yield from block(change)
            yield ""

    def texts(
        self, source: str, options: GivenOptions, report: Report
    ) -> Iterator[Change | RowTexts]:
        """Return the changes of a source as ``read`` does. If the format has the texts of values
        anyway, RowTexts may take the place of successive changes.
        """
        return self.read(source, options, report)

    def is_one_source(self, place: Path, options: GivenOptions) -> bool | None:
        """Return True if a directory is one source with all files and directories in it, False if
        each file or directory in it is a source, None if the directory has no file of the format.
        """
        return False

    def is_sorted_first(self, options: GivenOptions) -> bool:
        """Return True if rows are sorted before they become changes, so that large inputs are
        sorted in bulk.
        """
        return False

    def is_description(self, file: Path) -> bool:
        """Return True if a file describes the other files in its directory."""
        return False

    def output_place(self, name: str, options: GivenOptions) -> str:
        """Return the path of the output for a source of this name, within a directory of outputs: a
        file, a file in a directory, or a directory for several files. Raises ConfigError for an
        option that names a single path.
        """
        return name if self.is_several_files else f"{name}{self.endings['lines']}"

    # --- called from outside the format ---

    def can(self, method: str) -> bool:
        """Return True if the format has this optional method."""
        return getattr(type(self), method) is not getattr(Format, method)

    def lacks(self, method: str) -> ConfigError:
        """Return the error for a method that the format lacks."""
        return ConfigError(f"the format {self.name} ({self.title}) cannot be {PARTICIPLES[method]}")

    def read(self, source: str, options: GivenOptions, report: Report) -> Iterator[Change]:
        """Return the changes of a source, each counted when it is read. ``options`` are the
        reader's options, as in ``--options``. Raises ConfigError for wrong options.
        """
        chosen = parse_all_options(self.reader_options, options, f"the {self.name} reader")
        changes = called(self.read_changes, source, *chosen, report)
        check_result(self.read_changes, changes, Iterable, "an iterator of changes")
        return counted(changes, report, self.read_changes)

    def write(
        self, changes: Iterable[Change], target: str, options: GivenOptions, report: Report
    ) -> None:
        """Write changes to a target. ``options`` are the writer's options, as in ``--options``.

        Raises ConfigError for wrong options.
        """
        chosen = parse_all_options(self.writer_options, options, f"the {self.name} writer")
        called(self.write_changes, self.counting(changes, report), target, *chosen, report)

    def counting(self, changes: Iterable[Change], report: Report) -> Iterator[Change]:
        """Yield changes to a writer, and count what the format loses of each change that the writer
        did not skip immediately.
        """
        count = loss_counter(self.loses, report.lost)
        for change in changes:
            passed_over = report.passed_over
            yield change
            if self.is_written_later or report.passed_over == passed_over:
                count(change)


def counted(
    changes: Iterable[Change], report: Report, read: Callable[..., Any]
) -> Iterator[Change]:
    """Yield the changes that ``read`` has returned, and count each in ``report`` as it is read.
    Raises WrongResult for an item that is not a change.
    """
    for change in changes:
        if type(change) is not Change:
            check_result(read, change, Change, "an iterator of changes")
        report.read += 1
        yield change


Written = TypeVar("Written")


def written(
    changes: Iterable[Change], write: Callable[[Change, str], Sequence[Written]], report: Report
) -> Iterator[Written]:
    """Call ``write`` with each change and its id, and yield the parts that it returns. A change
    that ``write`` refuses is skipped.

    The id is the position of the change, or its number if it has no position. Raises
    NothingWritten.
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
