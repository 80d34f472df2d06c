"""The errors of the Linter queue, named as spec/linter-queue.md names them."""

from __future__ import annotations

from eventlog.errors import FormatError, NotExpressible


class MissingColumn(FormatError):
    """DISPATCH_QUEUE or DISPATCH_ATTRS lacks a column (spec/linter-queue.md 1)."""

    code = "missing_column"
    cure = "Export the table with all its columns."


class BadColumnValue(FormatError):
    """A value that its column cannot hold: text for a number, DATA that is no hex digits."""

    code = "bad_column_value"
    cure = "Export numbers as digits, and DATA as bytes or hex digits."


class BadOperDate(FormatError):
    """OPER_DATE that is neither six bytes nor twelve hex digits (spec/linter-queue.md 2)."""

    code = "bad_oper_date"
    cure = "Export OPER_DATE as six bytes or twelve hex digits."


class TypContradiction(FormatError):
    """Lengths that the operation code does not allow (spec/linter-queue.md 3)."""

    code = "typ_contradiction"
    cure = "Choose the table of operation codes that the server uses: `typ_table`."


class MissingPart(FormatError):
    """EXTDATA of an operation with a gap or a repetition (spec/linter-queue.md 4)."""

    code = "missing_part"
    cure = "Export all rows of the operation."


class BadLength(FormatError):
    """LEN1 or LEN2 that is negative, too great or beyond the bytes of DATA (spec/linter-queue.md 4)."""

    code = "bad_length"
    cure = "Export LEN1, LEN2 and DATA whole and unchanged."


class DestinationsDiffer(FormatError):
    """One operation has different parts for two destinations (spec/linter-queue.md 5)."""

    code = "destinations_differ"
    cure = "Choose one destination by the option `destination`."


class SeveralNodes(FormatError):
    """A restart token is given, and there are rows of more than one DBNODE (spec/linter-queue.md 5)."""

    code = "several_nodes"
    cure = "Choose one node by the option `dbnode`."


class RowDecodeError(FormatError):
    """A row image that its codec cannot read (spec/linter-queue.md 6, 7).

    ``column`` None: the whole image. A codec names the column alone, the reader ``schema.table.column``.
    """

    code = "row_decode"
    cure = 'Choose the `codec` that wrote the rows, or set `on_row_error = "raw"` to pass them on as bytes.'


class RowEncodeError(NotExpressible):
    """A row that its codec cannot write (spec/linter-queue.md 7); ``column`` as that of RowDecodeError."""

    code = "row_encode"
    cure = "Correct the value, or the column's type in `dispatch_attrs`."
