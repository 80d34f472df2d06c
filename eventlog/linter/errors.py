"""The errors of the Linter queue, named as spec/linter-queue.md names them."""

from __future__ import annotations

from eventlog.errors import FormatError, NotExpressible


class MissingColumn(FormatError):
    """A column of DISPATCH_QUEUE or DISPATCH_ATTRS that is not there (spec/linter-queue.md 1)."""

    code = "missing_column"


class BadColumnValue(FormatError):
    """A value that its column cannot hold: text for a number, DATA that is no hex digits."""

    code = "bad_column_value"


class BadOperDate(FormatError):
    """OPER_DATE that is neither six bytes nor twelve hex digits (spec/linter-queue.md 2)."""

    code = "bad_oper_date"


class TypContradiction(FormatError):
    """Lengths that the operation code does not allow (spec/linter-queue.md 3)."""

    code = "typ_contradiction"


class MissingPart(FormatError):
    """EXTDATA of an operation with a gap or a repetition (spec/linter-queue.md 4)."""

    code = "missing_part"


class BadLength(FormatError):
    """LEN1 or LEN2 that is negative, too great or beyond the bytes of DATA (spec/linter-queue.md 4)."""

    code = "bad_length"


class DestinationsDiffer(FormatError):
    """One operation with different parts for two destinations (spec/linter-queue.md 5)."""

    code = "destinations_differ"


class SeveralNodes(FormatError):
    """A restart token in force and rows of more than one DBNODE (spec/linter-queue.md 5)."""

    code = "several_nodes"


class RowDecodeError(FormatError):
    """A row image that its codec cannot read (spec/linter-queue.md 6, 7).

    ``column`` None: the whole image. A codec names the column alone, the reader ``schema.table.column``.
    """

    code = "row_decode"

    def __init__(self, column: str | None, message: str) -> None:
        super().__init__(message)
        self.column = column


class RowEncodeError(NotExpressible):
    """A row that its codec cannot write (spec/linter-queue.md 7); ``column`` as that of RowDecodeError."""

    code = "row_encode"

    def __init__(self, column: str | None, message: str) -> None:
        super().__init__(message)
        self.column = column
