"""The errors of eventlog: one small tree, each class with a stable code.

::

    EventlogError
     |__ ConfigError           configuration or usage is wrong          (exit code 2)
     |__ RowError              one row of the log is bad: status E, the rest goes on
     |    |__ BadTableKey      table_key against its grammar or its class (spec/event-log.md 4.2)
     |    |__ BadValue         text that is not of its column's type      (spec/xds.md 6)
     |    |__ BadXmlChar       a character that XML 1.0 cannot hold       (spec/xds.md 8)
     |__ XdsError              a document that is not well-formed or not XDS
     |__ DatabaseError         the database refuses or cannot be reached
     |    |__ LogTableError    the log or a companion is missing or of the wrong form
     |    |__ AnotherPublisher the log is already being published
     |    |__ DatabaseAway     the connection is lost, or the server asks to try again
     |__ TriggerError          a watch that cannot be compiled or applied
     |__ FormatError           input or output of a change format; each format has its own below it
     |    |__ InvalidChange    a Change against its invariants            (spec/change-model.md 1)
     |    |__ NotExpressible   a change that the target format cannot hold
     |    |    |__ ValueRange  a value outside the range of its column
     |    |__ NeedsQueryBack   a change without its row, to be read back from the database
     |    |__ NeedsRowCodec    a change whose row image has no codec
     |    |__ UnknownOperation an operation code that the format does not have
     |    |__ SchemaMissing    a row whose table was never described
     |__ ReceiverAway          no usable answer from the receiver: nothing is marked
     |__ FatalAnswer           the receiver answered fatal                (exit code 3)

A message says what is wrong, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar


class EventlogError(Exception):
    """Base of all errors that eventlog raises on purpose. ``code`` is stable and fit for programs.

    ``refusals``: the messages one by one, where several things are refused at once.
    """

    code: ClassVar[str] = "error"
    refusals: tuple[str, ...] = ()


class ConfigError(EventlogError):
    """The configuration file, an environment variable or a flag is wrong."""

    code = "config"


def together(errors: Sequence[EventlogError]) -> EventlogError:
    """One error of the first one's class that says all of these, at least one, so that nobody meets them run by run."""
    messages = tuple(dict.fromkeys(message for error in errors for message in error.refusals or (str(error),)))
    if len(messages) == 1:
        return errors[0]
    one = type(errors[0])("; ".join(messages))
    one.refusals = messages
    return one


class RowError(EventlogError):
    """One row of the log is bad (spec/event-log.md 5). ``code`` is what the error table gets.

    The code is per instance, since one check can fail for several reasons.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.row_code = code


class BadTableKey(RowError):
    """A table_key that does not parse or does not fit its class (spec/event-log.md 4.2).

    ``error`` is the code of 4.2 (``empty_part``, ``bad_value``, ...), ``offset`` the code point, from 0.
    """

    code = "bad_table_key"

    def __init__(self, error: str, offset: int, text: str) -> None:
        super().__init__("bad_table_key", f"{error} at offset {offset} of table_key {shown(text)}")
        self.error = error
        self.offset = offset
        self.text = text


class BadValue(RowError):
    """Text that is no value of its column's type (spec/xds.md 6.1)."""

    code = "bad_value"

    def __init__(self, message: str) -> None:
        super().__init__("bad_value", message)


class BadXmlChar(RowError):
    """Text with a character that XML 1.0 cannot hold (spec/xds.md 8)."""

    code = "bad_xml_char"

    def __init__(self, message: str) -> None:
        super().__init__("bad_xml_char", message)


class XdsError(EventlogError):
    """A document that is not well-formed, has a DOCTYPE, or is not of the XDS vocabulary."""

    code = "xds"


class DatabaseError(EventlogError):
    """The database cannot be reached, lacks something, or refuses a right."""

    code = "database"


class LogTableError(DatabaseError):
    """The log table or a companion is missing or has a column of the wrong type (spec/event-log.md 1.4)."""

    code = "log_table"


class AnotherPublisher(DatabaseError):
    """Another publisher (or a Spark job that marks) holds this log (spec/event-log.md 12)."""

    code = "another_publisher"


class DatabaseAway(DatabaseError):
    """The connection is lost, or the database failed in a way that passes: connect again and go on."""

    code = "database_away"


class TriggerError(EventlogError):
    """A watch that cannot be compiled to triggers or cannot be applied."""

    code = "trigger"


class FormatError(EventlogError):
    """A change format: input that is not of the format, or a change that it cannot hold.

    ``column``: ``schema.table.column`` where it is about the value of one (spec/change-model.md 5.1). ``offset``: where
    the record begins in a stream of bytes.
    """

    code = "format"
    column: str | None = None
    offset: int | None = None


class InvalidChange(FormatError):
    """A Change against the invariants of spec/change-model.md 1; ``field`` is the field that is wrong."""

    code = "invalid_change"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NotExpressible(FormatError):
    """A change that the target format cannot hold (spec/change-model.md 4)."""

    code = "not_expressible"


class ValueRange(NotExpressible):
    """A value outside the range of its target column (spec/change-model.md 5.1)."""

    code = "value_range"


class NeedsQueryBack(FormatError):
    """A change without its row, which only the source database has (spec/change-model.md 3.1)."""

    code = "needs_query_back"


class NeedsRowCodec(FormatError):
    """A change whose row image has no codec (spec/change-model.md 3.4)."""

    code = "needs_row_codec"


class UnknownOperation(FormatError):
    """An operation code that the format does not have."""

    code = "unknown_operation"


class SchemaMissing(FormatError):
    """A row of a table that nothing has described."""

    code = "schema_missing"


class ReceiverAway(EventlogError):
    """No answer, a lost connection or an answer that is not well-formed (spec/event-log.md 8.4)."""

    code = "receiver_away"


class FatalAnswer(EventlogError):
    """The receiver answered fatal: the publisher stops (spec/event-log.md 8.4)."""

    code = "fatal_answer"


Placed = TypeVar("Placed", bound=EventlogError)


def with_location(error: Placed, where: object) -> Placed:
    """The same error, its message begun with where it is: a file, perhaps a line or an offset in it."""
    error.refusals = tuple(f"{where}: {one}" for one in error.refusals)
    error.args = (f"{where}: {error}", *error.args[1:])
    return error


def first_of(texts: Sequence[str], most: int, what: str = "more") -> str:
    """The first texts of some, and how many there are beside them: ``a, b and 1,203 more``."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} {what}" if len(texts) > most else "")


def shown(text: str) -> str:
    """The text as a message shows it: one line, at most about 60 characters."""
    line = repr(text[:61])
    return line if len(line) <= 62 else f"{line[:60]}..."
