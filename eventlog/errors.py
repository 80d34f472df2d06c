"""The errors of eventlog: one small tree, and stable codes.

An error has its own class only if code catches it by class. The other errors of formats are
``FormatError`` with a code of ``error_codes``.

::

    EventlogError
     |__ ConfigError           configuration or usage is wrong          (exit code 2)
     |    |__ BadQuestion      a question about something that cannot exist
     |__ RowError              one row of the log is invalid: status E, other rows continue
     |    |__ BadTableKey      a table_key that violates its grammar or its class
     |    |                                                       (spec/event-log.md 4.2)
     |    |__ BadValue         text that is not a value of its column's type (spec/xds.md 6)
     |    |__ BadXmlChar       a character that XML 1.0 cannot hold       (spec/xds.md 8)
     |__ XdsError              a document that is not well-formed or not XDS
     |__ DatabaseError         the database refuses or cannot be reached
     |    |__ LogTableError    the log or an internal table is missing or has the wrong form
     |    |    |__ NoLogTable  the log does not exist
     |    |    |    |__ NoSchema  its schema does not exist
     |    |    |__ NoSuchRow   the log does not have the row
     |    |    |__ NoInternalTable  the log lacks an internal table
     |    |__ PublisherAlreadyRunning the log is already being published
     |    |    |__ ConsumerRuns another process already runs as this consumer
     |    |    |__ LostSession  the session that this publisher lost still holds its lock
     |    |__ LogInUse         another session uses the log: its leaves stay as they are
     |    |__ SnapshotOutdated a table was altered after the snapshot that reads it was taken
     |    |__ DatabaseUnavailable     the connection is lost, or the server asks to try again
     |         |__ ServerUnavailable  the server cannot be reached
     |__ MonitorUnavailable    no usable answer from the monitor of a publisher
     |__ TriggerError          a watch that cannot be compiled or applied
     |__ FormatError           input or output of a change format; formats have subclasses
     |    |__ InvalidChange    a Change that violates its invariants     (spec/change-model.md 1)
     |    |__ NotExpressible   a change that the target format cannot hold
     |__ Paused                the reader is paused: it sends nothing until it is resumed
     |__ ReceiverUnavailable          no usable answer from the receiver: nothing is marked
     |__ FatalAnswer           the receiver answered fatal                (exit code 3)
     |__ PluginError           the code of an installed package failed
          |__ WrongResult      a method of it breaks its promise

A message states what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from eventlog.error_codes import FIXES
from eventlog.exit_codes import ExitCode

if TYPE_CHECKING:
    from eventlog.model import EventResult


class EventlogError(Exception):
    """The base class of all errors that eventlog raises on purpose. If it is raised itself,
    the message alone describes the error.

    ``code`` is stable and meant for programs: the code of the class, or of the single error.
    A command that the error ends has the ``exit_code``. ``fix`` is general advice for the code. The
    reference lists both. ``refusals`` are the single messages if several things are refused
    together.
    """

    code: str = "unspecified"
    exit_code: ExitCode = ExitCode.FAILED
    refusals: tuple[str, ...] = ()

    @property
    def fix(self) -> str:
        """General advice for errors of this code; the message is more specific."""
        return FIXES.get(self.code, FIXES["unspecified"])


class ConfigError(EventlogError):
    """A wrong configuration file, environment variable or flag."""

    code = "config"
    exit_code = ExitCode.USAGE


def together(errors: Sequence[EventlogError]) -> EventlogError:
    """Return one error with the messages of all errors, so that one run shows all messages. The
    class of the error is the class of the first error. There must be at least one error.
    """
    messages = tuple(
        dict.fromkeys(message for error in errors for message in error.refusals or (str(error),))
    )
    if len(messages) == 1:
        return errors[0]
    one = type(errors[0])("; ".join(messages))
    one.refusals = messages
    return one


class BadQuestion(ConfigError):
    """A question about something that cannot exist."""


class RowError(EventlogError):
    """One invalid row of the log (spec/event-log.md 5), with the code that the error table gets."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadTableKey(RowError):
    """A table_key that does not parse or does not fit its class (spec/event-log.md 4.2).

    ``error`` is the code of 4.2 (``empty_part``, ``bad_value``, ...). ``offset`` is the offset of
    the wrong code point, from 0. ``detail`` is what the class expects at this offset.
    """

    code = "bad_table_key"

    def __init__(self, error: str, offset: int, text: str, detail: str = "") -> None:
        message = f"{error} at offset {offset} of table_key {shown(text)}"
        super().__init__(self.code, f"{message}: {detail}" if detail else message)
        self.error = error
        self.offset = offset
        self.text = text


class BadValue(RowError):
    """Text in a row of the log that is not a value of its column's type (spec/xds.md 6.1)."""

    code = "bad_value"

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message)


class BadXmlChar(RowError):
    """A value with a character that XML 1.0 cannot hold (spec/xds.md 8)."""

    code = "bad_xml_char"

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message)


class XdsError(EventlogError):
    """A document that is not well-formed, has a DOCTYPE, or is not in the XDS vocabulary."""

    code = "xds"


class DatabaseError(EventlogError):
    """A database that cannot be reached, lacks something, or refuses a right."""

    code = "database"


class LogTableError(DatabaseError):
    """A log or internal table that is missing or has a column of the wrong type (spec/event-log.md
    1.4). ``commands`` are the commands that help to correct it.
    """

    code = "log_table"
    commands: tuple[str, ...] = ("eventlog config",)


class NoLogTable(LogTableError):
    """A log table that does not exist."""

    commands: tuple[str, ...] = ("eventlog db upgrade", "eventlog config")


class NoSchema(NoLogTable):
    """A log whose schema does not exist."""

    commands: tuple[str, ...] = ("eventlog config",)


class NoSuchRow(LogTableError):
    """A row, or an object of a snapshot, that a log does not have."""


class NoInternalTable(LogTableError):
    """A log that lacks an internal table."""

    commands: tuple[str, ...] = ("eventlog db upgrade", "eventlog db upgrade --existing-log")


class PublisherAlreadyRunning(DatabaseError):
    """Another publisher, or a Spark job that marks rows, holds this log (spec/event-log.md 12)."""

    code = "another_publisher"


class LogInUse(DatabaseError):
    """Another session uses the log, or one of its leaves, so that its leaves cannot be changed
    now (spec/event-log.md 14).
    """

    code = "log_in_use"


class SnapshotOutdated(DatabaseError):
    """A database snapshot that does not show the rows of a table, because the table was rewritten,
    replaced or altered after the snapshot was taken (spec/event-log.md 12.3).
    """

    code = "snapshot_outdated"


class ConsumerRuns(PublisherAlreadyRunning):
    """Another process already runs as this consumer (spec/event-log.md 13.4). A daemon waits until
    the other process ends.
    """

    code = "consumer_runs"


class LostSession(PublisherAlreadyRunning):
    """A session that this publisher has lost, and that still holds its lock (spec/event-log.md
    12.2). A daemon waits until the server ends the session.
    """


class DatabaseUnavailable(DatabaseError):
    """A lost connection, or a database that fails temporarily: connect again and continue."""

    code = "database_unavailable"


class ServerUnavailable(DatabaseUnavailable):
    """A database server that cannot be reached or fails temporarily. A daemon waits for the server,
    even when the daemon starts.
    """


class MonitorUnavailable(EventlogError):
    """The monitor of a publisher gives no answer, or an answer that is not its status."""

    code = "monitor_unavailable"


class TriggerError(EventlogError):
    """A watch for which no triggers can be made, or triggers that the database refuses."""

    code = "trigger"


class FormatError(EventlogError):
    """Input that violates its format, or a change that the format cannot hold.

    ``column`` is ``schema.table.column`` if the error concerns the value of a column
    (spec/change-model.md 5.1). ``offset`` is the offset at which the record begins in a stream of
    bytes. ``code`` is one of ``error_codes.FORMAT_CODES``; by default it is the code of the class.
    """

    code = "invalid_format"
    offset: int | None = None

    def __init__(self, message: str, column: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        if code is not None:
            self.code = code


class InvalidChange(FormatError):
    """A change that contradicts itself, such as a DELETE with an ``after`` row
    (spec/change-model.md 1).

    ``field`` is the wrong field.
    """

    code = "invalid_change"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NotExpressible(FormatError):
    """A change that the target format cannot represent (spec/change-model.md 4)."""

    code = "not_expressible"


class Paused(EventlogError):
    """The publisher, or the consumer, sends nothing until it is resumed (spec/event-log.md 8.8)."""

    code = "paused"


class Reply(NamedTuple):
    """What a receiver has replied to a document, for people. A reply is decoded when it is shown,
    since most replies are never shown.
    """

    status: str = ""
    """The status in the protocol, such as ``503 Service Unavailable``."""
    beginning: bytes = b""
    show: Callable[[bytes], str] = lambda beginning: ""
    """Returns the beginning of the reply as text, without secrets and control characters."""

    @classmethod
    def in_words(cls, status: str, words: str) -> Reply:
        """Return a reply that is a text without secrets."""
        return cls(status, words.encode()[:_KILOBYTE], _decoded)

    @property
    def text(self) -> str:
        """The first kilobyte of the reply."""
        return self.show(self.beginning)


_KILOBYTE: Final = 1024


def _decoded(beginning: bytes) -> str:
    return visible(beginning.decode("utf-8", "ignore"))


class ReceiverUnavailable(EventlogError):
    """A receiver that gives no answer, or an answer that is not well-formed (spec/event-log.md
    8.4).

    ``in_short`` is the message without the text of the receiver, which may quote values; it is
    empty if the message has no such text. ``is_suspicious`` is True if the receiver got the
    document, which may then be the cause. ``advice`` names the option to correct, without text of
    the receiver; the code is then ``receiver_misconfigured``. ``advice`` is empty if only the
    receiver can end the failure.
    ``reply`` is what came in place of an answer, None = nothing. ``seconds`` is how long the
    attempt took. ``answered`` has the results of the events, by event-id, that the receiver had
    answered before it failed; all other events are sent again.
    """

    code = "receiver_unavailable"

    def __init__(
        self,
        message: str,
        in_short: str = "",
        *,
        is_suspicious: bool = False,
        advice: str = "",
        reply: Reply | None = None,
    ) -> None:
        super().__init__(message)
        self.in_short, self.advice = in_short, advice
        self.code = receiver_code(advice)
        self.is_suspicious = is_suspicious
        self.reply = reply
        self.seconds = 0.0
        self.answered: Mapping[str, EventResult] = {}


def receiver_code(advice: str) -> str:
    """Return the code of a failure of the receiver. If there is ``advice``, an option is wrong."""
    return "receiver_misconfigured" if advice else "receiver_unavailable"


class FatalAnswer(EventlogError):
    """A fatal answer of the receiver: the publisher stops (spec/event-log.md 8.4)."""

    code = "fatal_answer"
    exit_code = ExitCode.FATAL


class PluginError(EventlogError):
    """An unexpected exception in a format, sink or source of an installed package."""

    code = "plugin"


class WrongResult(PluginError):
    """A method of an installed package, or a function of the user, that violates the interface: it
    does not accept the arguments, or returns a value of another type.

    ``module`` and ``line`` are the place where the method is defined; ``eventlog.registry`` adds
    the name of the package.
    """

    def __init__(self, method: Callable[..., Any], problem: str) -> None:
        name = getattr(method, "__qualname__", type(method).__name__)
        self.module = str(getattr(method, "__module__", None) or type(method).__module__)
        line = getattr(getattr(method, "__code__", None), "co_firstlineno", None)
        where = self.module if line is None else f"{self.module}, line {line}"
        super().__init__(f"{name} {problem} ({where})")


def called(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a method of a package and return its result. Raises WrongResult if the method does not
    accept these arguments.
    """
    try:
        return method(*arguments, **named)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # from within the method
        raise WrongResult(method, f"cannot be called: {error}") from error


def check_result(method: Callable[..., Any], found: object, kinds: Any, needed: str) -> None:
    """Raise WrongResult unless the result of a method is of one of the types ``kinds``. ``needed``
    describes these types in words.
    """
    if not isinstance(found, kinds):
        raise WrongResult(method, f"returned {kind_of(found)}; {needed} is needed")


def kind_of(value: object) -> str:
    """Return the kind of a wrong value for a message: ``None``, or its type."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


Placed = TypeVar("Placed", bound=EventlogError)


def with_location(error: Placed, where: object) -> Placed:
    """Return the same error with the place in front of its message. A place is a file, perhaps with
    a line or an offset in the file.
    """
    error.refusals = tuple(f"{where}: {one}" for one in error.refusals)
    error.args = (f"{where}: {error}", *error.args[1:])
    return error


def first_of(texts: Sequence[str], most: int, noun: str = "") -> str:
    """Return a text with the first of some texts and the number of the others: ``a, b and 1,203
    more``, or ``... more keys`` if ``noun`` is ``key``.
    """
    first, left = ", ".join(texts[:most]), len(texts) - most
    if left <= 0:
        return first
    return f"{first} and {number_of(left, f'more {noun}') if noun else f'{left:,} more'}"


def number_of(count: int, noun: str) -> str:
    """Return a number with a noun that has a regular plural: ``1 row``, ``1,203 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_SHORT: Final = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20
_SHORT.maxstring = 61


def shown(value: object) -> str:
    """Return a value for a message: one line of at most about 60 characters. The rest of a long
    list or object never becomes text: many records may share the long names of their fields.
    """
    text = _SHORT.repr(value) if isinstance(value, dict | list | tuple) else str(value)
    line = repr(text[:61])
    return line if len(line) <= 62 else f"{line[:60]}..."


_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, line separators, and characters that change the direction of a text."""


def visible(text: str) -> str:
    r"""Return a text on one line of a terminal or a log; control characters and the like are
    escaped as ``\u001b``.
    """
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_REPLACED_ANYWHERE: Final = 4
"""The shortest length at which a secret is also replaced inside a word."""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets.

    A secret of one to three characters is replaced only as a whole word: other words contain it by
    chance, and ``***lisher`` would reveal it.
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if len(secret) >= _REPLACED_ANYWHERE:
            text = text.replace(secret, "***")
            continue
        before = r"(?<!\w)" if secret[0].isalnum() else ""
        behind = r"(?!\w)" if secret[-1].isalnum() else ""
        text = re.sub(before + re.escape(secret) + behind, "***", text)
    return text
