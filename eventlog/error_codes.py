"""The codes of errors, with what happened and what to do for each. Programs act on codes, people on
messages.

This module is the only place of these texts: ``eventlog explain CODE``, the site and
docs/reference/codes.md show them. The texts are written for users: ``happened`` is a sentence in
the present or past tense, ``fix`` begins with an imperative.

A code either has its own exception class, or is given to the ``RowError`` or ``FormatError`` that
is raised. An error has its own class if code catches it by class, or if it carries more than a
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventlog.exit_codes import ExitCode


class ErrorText(NamedTuple):
    """What happened when an error has this code, and what to do."""

    happened: str
    fix: str
    exit_code: str = ""
    """The exit code if it differs from the group's exit code."""


class ErrorGroup(NamedTuple):
    """Errors that users find in the same places."""

    title: str
    where: str
    """Where a user finds the code."""
    commands: tuple[str, ...]
    """The commands that report these codes."""
    exit_code: str
    page: str
    """The page of the documentation to read next, by its path in the tree."""
    codes: Mapping[str, ErrorText]


_USAGE: Final = f"{ExitCode.USAGE}"
_ENDED: Final = f"{ExitCode.FAILED}"
_OF_FORMATS: Final = (
    f"{_ENDED} if nothing could be converted; {ExitCode.NO} with `--strict`; otherwise "
    f"{ExitCode.DONE}, and the report counts what was skipped"
)
_AGAIN: Final = (
    "Record the stream again. If the error repeats, report it with the bytes of the row."
)
_CONVERTING: Final = ("convert", "decode", "backlog run", "publish --from")
_IN_REPORTS: Final = (
    "the report of a conversion and its lines on skipped input; for a followed source "
    "`eventlog errors`"
)

ERRORS: Final[tuple[ErrorGroup, ...]] = (
    ErrorGroup(
        title="Configuration and database",
        where="the line that ends a command, and log lines of a publisher",
        commands=("every command",),
        exit_code=_ENDED,
        page="docs/quick-start.md",
        codes={
            "config": ErrorText(
                "A setting, an environment variable or an argument is wrong, or two settings "
                "contradict each other.",
                "Correct the setting that the message names. `eventlog config` shows each setting "
                "and where it comes from.",
                _USAGE,
            ),
            "database": ErrorText(
                "The database cannot be reached, lacks an object that the command needs, or "
                "refuses a right.",
                "Check the URL, the network and the user's rights; `eventlog grants ROLE "
                "--purpose PURPOSE`, run by the owner, prints the rights.",
            ),
            "database_unavailable": ErrorText(
                "The connection to the database was lost, or the server asks clients to try again "
                "later.",
                "Wait: a publisher reconnects by itself. Run any other command again.",
            ),
            "log_table": ErrorText(
                "The log or one of its internal tables does not exist, or has a column of the "
                "wrong type.",
                "Run `eventlog db upgrade`, or correct `log_table`, `schema_name` or `column_map`.",
            ),
            "log_in_use": ErrorText(
                "Another session uses the log, so the log's leaves (partitions) cannot be changed "
                "now.",
                "Let the session that the message names end its transaction, and run the command "
                "again.",
            ),
            "snapshot_outdated": ErrorText(
                "A table was rewritten, truncated, replaced or altered while the command read it "
                "from a database snapshot, which no longer shows all of its rows. Nothing was "
                "marked.",
                "Wait until the table that the message names is no longer altered, and run the "
                "command again.",
            ),
            "trigger": ErrorText(
                "No triggers can be made for a `[[watch]]`, or the database refuses them.",
                "Correct the `[[watch]]` that the message names; `eventlog triggers plan` shows "
                "the result.",
            ),
            "plugin": ErrorText(
                "A format, sink or source of an installed package, or a function of your own, "
                "raised an unexpected exception or returned a wrong result.",
                "Report it to the authors of the package, with the traceback that -vv shows. "
                "Until then use another format, sink or source.",
            ),
            "monitor_unavailable": ErrorText(
                "Nothing answers at the address of the publisher's monitor.",
                "Start the publisher, or correct --url or `listen` of [monitor]. `eventlog top "
                "--database` reads the database instead.",
            ),
            "unspecified": ErrorText(
                "The error has no separate code; only the message describes it.",
                "Follow the message.",
            ),
        },
    ),
    ErrorGroup(
        title="Publishing",
        where="log lines of the publisher, and the line that ends it",
        commands=("publish", "doctor --receiver"),
        exit_code=f"{_ENDED} for `publish --once`; the daemon waits and tries again",
        page="docs/guides/publish.md",
        codes={
            "another_publisher": ErrorText(
                "Another publisher, or a Spark job that marks rows, has the lock of this log. A "
                "log has one publisher at a time.",
                "Stop the other publisher, or wait for it with `[publisher] standby = true` "
                "(without `--once`); "
                "`eventlog status` shows whether a publisher runs.",
                _ENDED,
            ),
            "consumer_runs": ErrorText(
                "Another process already works as this consumer.",
                "Let this process wait as a standby, stop the other process, or give this "
                "consumer another name.",
                _ENDED,
            ),
            "paused": ErrorText(
                "The publisher, or the consumer, was paused by `eventlog pause`: it sends "
                "nothing, and keeps its lock.",
                "Run `eventlog resume` when the reason that the message shows is over; with "
                "--consumer for a consumer.",
                _ENDED,
            ),
            "receiver_unavailable": ErrorText(
                "The receiver gave no answer, or one that the publisher cannot read. No row was "
                "marked, so nothing is lost.",
                "Check the receiver and [sink]; `eventlog doctor --receiver` tries the connection "
                "without sending a change. The publisher tries again by itself.",
            ),
            "receiver_misconfigured": ErrorText(
                "The receiver, or the connection to it, refuses what an option of the publisher "
                "has: credentials, a signature, a path, a certificate or the form of answers. No "
                "row was marked, so nothing is lost.",
                "Correct the option that the message names, and restart the publisher; "
                "`eventlog doctor --receiver` tries the connection without sending a change.",
            ),
            "fatal_answer": ErrorText(
                "The receiver answered *fatal*. The publisher marked the event's rows F and "
                "stopped.",
                "Fix the problem that the receiver reports, requeue the rows of status F with "
                "`eventlog requeue`, and start the publisher again.",
                f"{ExitCode.FATAL}",
            ),
            "kafka_unavailable": ErrorText(
                "The Kafka brokers cannot be reached, refuse the user, or did not acknowledge "
                "every record in time.",
                "Check the brokers, the topic and the user's rights. Nothing is marked; the "
                "publisher tries again.",
            ),
            "record_refused": ErrorText(
                "Kafka refuses a record, and would refuse it again, usually because it is too "
                "large.",
                "Let the topic accept larger records (`max.message.bytes`), or send fewer events "
                "per document.",
            ),
            "source_unavailable": ErrorText(
                "The source that the publisher follows cannot be read now.",
                "Wait: the publisher opens the source again by itself. If the error persists, "
                "check the source and [source].",
            ),
            "source_lost": ErrorText(
                "The source has lost changes that follow the position, so the publisher cannot "
                "continue without a gap.",
                "Restore the files as they were when they were read. If they are lost, load the "
                "tables again and begin at a new position.",
                _ENDED,
            ),
        },
    ),
    ErrorGroup(
        title="Rows of the log",
        where=(
            "the column `code` of `<log>_error`, and so `eventlog errors` and `eventlog explain`; "
            "before the row is read, the finding `invalid_rows` of `doctor`"
        ),
        commands=("publish", "errors", "explain", "doctor"),
        exit_code=f"{_ENDED} for `publish --once`; the row gets status E, and other rows continue",
        page="docs/guides/publish.md",
        codes={
            "bad_event_type": ErrorText(
                "event_type is not 1 to 8, or a delete names a child table.",
                "Correct the program or trigger that writes the log.",
            ),
            "bad_table_key": ErrorText(
                "table_key cannot be parsed, or does not have the key columns of its class.",
                "Correct the program or trigger that writes the log; then run `eventlog requeue`.",
            ),
            "bad_value": ErrorText(
                "A value in the row is not a value of its column's type.",
                "Correct the program or trigger that writes the log, then run `eventlog requeue`, "
                "or `eventlog resync` to send the object as it is now.",
            ),
            "bad_xml_char": ErrorText(
                "A value has a character that XML 1.0 cannot hold, such as U+0000 to U+0008.",
                "Remove the character from the value in the application: the update that does so "
                "is sent, because the old value was never sent. Or exclude the column from the "
                "watch (`exclude`), or use a format other than XDS.",
            ),
            "missing_column": ErrorText(
                "column_name is empty in a row that concerns a column.",
                "Correct the program or trigger that writes the log.",
            ),
            "missing_table": ErrorText(
                "table_name is empty.",
                "Correct the program or trigger that writes the log.",
            ),
            "receiver": ErrorText(
                "The receiver answered *error* or *fatal* for the event of this row. The message "
                "comes from the receiver.",
                "Fix the problem that the receiver reports, then run `eventlog requeue`.",
            ),
            "too_large": ErrorText(
                "The message of the event of this row is larger than the server of the sink takes, "
                "so it was not sent.",
                "Raise the limit that the message names, or leave large columns out of the watch "
                "(`exclude`), then run `eventlog requeue`.",
            ),
            "dead_letter": ErrorText(
                "The dead letter of this row was refused by the sink of `[dead_letter]`, or is too "
                "large for it. The row itself has another error row.",
                "Read the message. The letter is not sent again. The other error row shows what "
                "the row needs.",
            ),
            "bad_filter": ErrorText(
                "The condition of a `[[filter]]` raises an error for the object, for example "
                "because it casts 'abc' to a number. Other objects are sent.",
                "Correct the values of the object, or the condition, and run `eventlog requeue`. "
                "`eventlog explain RECORD_ID --show-values` shows the database's message.",
            ),
            "unknown_column": ErrorText(
                "column_name is not an attribute of the class.",
                "Include the column in the watch (`columns`, `exclude`) and run `eventlog "
                "requeue`, or correct the program or trigger that writes the log.",
            ),
            "unknown_table": ErrorText(
                "table_name is neither a class nor a child table of one.",
                "Add the table to `tables` or `[[watch]]` and run `eventlog requeue`, or correct "
                "the program or trigger that writes the log.",
            ),
        },
    ),
    ErrorGroup(
        title="Change formats",
        where=_IN_REPORTS,
        commands=_CONVERTING,
        exit_code=_OF_FORMATS,
        page="docs/formats/convert.md",
        codes={
            "invalid_format": ErrorText(
                "The input is not of its format.",
                "Check the format's name and the reader's options; the message names the place in "
                "the input.",
            ),
            "invalid_change": ErrorText(
                "A change contradicts itself, such as a DELETE that has a row after it.",
                "Correct the code that made the change; the message names the field.",
            ),
            "needs_query_back": ErrorText(
                "The change has no row; only the source database has it.",
                "Give the reader the database that holds the row: `database_url`, or the log's "
                "URL as the source.",
            ),
            "needs_row_codec": ErrorText(
                "The row of the change exists only in the raw form of its source.",
                "Give the reader the `codec` that the row images are written in.",
            ),
            "not_expressible": ErrorText(
                "The target format cannot hold the change.",
                "Choose a target format that can hold the change, or the option that the message "
                "names.",
            ),
            "nothing_written": ErrorText(
                "No change of the input could be read and written. The target is as it was.",
                "Check the format's name in --from, and the options in --options; the errors of "
                "the skipped changes show the cause.",
                _ENDED,
            ),
            "schema_missing": ErrorText(
                "The reader has a row of a table, but no description of its columns.",
                "Describe the table by the option `catalog`, or by the format's own option for "
                "its columns.",
            ),
            "unknown_operation": ErrorText(
                "The format does not have the operation code of a change.",
                "Check that the input is of this format, and for a Linter queue the option "
                "`typ_table`.",
            ),
            "unreadable_value": ErrorText(
                "The value of a column cannot be read. The change is kept without this column.",
                "Correct the column's type in `catalog` or the schema of the event, and convert "
                "again; the message shows the value.",
            ),
            "value_range": ErrorText(
                "A value is outside the range of its target column.",
                "Correct the value, or give the target a wider column.",
            ),
            "xds": ErrorText(
                "A document is not well-formed XML, has a DOCTYPE, or has elements that XDS lacks.",
                "Correct the document; the message names the line. Raise `limit` if the document "
                "is longer.",
            ),
        },
    ),
    ErrorGroup(
        title="GBase 8s streams",
        where=_IN_REPORTS,
        commands=_CONVERTING,
        exit_code=_OF_FORMATS,
        page="docs/formats/gbase-cdc.md",
        codes={
            "bad_datetime": ErrorText(
                "A DATETIME or INTERVAL has a field outside its range.", _AGAIN
            ),
            "bad_decimal": ErrorText(
                "A packed decimal has a digit above 99, or digits after the first byte of zero.",
                _AGAIN,
            ),
            "bad_value": ErrorText(
                "A byte is invalid for its column type: the sign of an INT8, a BOOLEAN, a null "
                "flag, a day number.",
                _AGAIN,
            ),
            "cdc": ErrorText(
                "A call of the server's CDC interface returned an error number.",
                "Look the number up in the server's manual; for common numbers the message "
                "includes the fix.",
            ),
            "decode": ErrorText(
                "A text is not valid in the configured charset.",
                'Set `charset` to that of the database, or `charset_errors = "replace"`.',
            ),
            "duplicate_begin": ErrorText(
                "A transaction begins while another with its id is open.",
                'Read the stream once and from its start, or set `duplicate_begin = "replace"`.',
            ),
            "framing": ErrorText(
                "Bytes of the input are not a record of the stream.",
                "Read the stream from its start, and its files in order.",
            ),
            "orphan_record": ErrorText(
                'A record belongs to a transaction that did not begin, and `orphans = "error"`.',
                'Begin the stream before the transaction begins, or set `orphans = "skip"`.',
            ),
            "row_length": ErrorText(
                "The bytes of a row are fewer or more than its columns require.",
                "Set `size_order` and `varchar_prefix` as the server writes them, and read the "
                "stream from its start.",
            ),
            "schema_mismatch": ErrorText(
                "The columns of a table description (TABSCHEM) disagree with its own counts.",
                "Record the stream again. If the error repeats, report it with the bytes of the "
                "record.",
            ),
            "session_dead": ErrorText(
                "The server ended the CDC session.",
                "Open another session from the last position; a publisher does so by itself.",
            ),
            "size_array": ErrorText(
                "A size array fits the row in no byte order, or contradicts a length prefix.",
                "Set `size_order` and `varchar_prefix` as the server writes them.",
            ),
            "truncated_stream": ErrorText(
                "The stream ends inside a record.",
                "Read the stream together with the file that continues it, or copy the stream "
                "again.",
            ),
            "unknown_type": ErrorText(
                "A column has a type that the stream's format lacks.",
                "Exclude the table from the stream.",
            ),
            "unreadable_row": ErrorText(
                "A row does not fit the description of its table.",
                "Read the rows with the description that precedes them in the stream: read the "
                "stream from its start.",
            ),
        },
    ),
    ErrorGroup(
        title="Linter queues",
        where=_IN_REPORTS,
        commands=_CONVERTING,
        exit_code=_OF_FORMATS,
        page="docs/formats/linter-queue.md",
        codes={
            "bad_column_value": ErrorText(
                "A column of the queue cannot hold its value: for example text in a column of "
                "numbers, or text that is not hex digits in DATA.",
                "Export numbers as digits, and DATA as bytes or hex digits.",
            ),
            "bad_length": ErrorText(
                "LEN1 or LEN2 is negative, too large or beyond DATA.",
                "Export LEN1, LEN2 and DATA whole and unchanged.",
            ),
            "bad_oper_date": ErrorText(
                "OPER_DATE is neither six bytes nor twelve hex digits.",
                "Export OPER_DATE as six bytes or twelve hex digits.",
            ),
            "destinations_differ": ErrorText(
                "One operation has different parts for two destinations.",
                "Choose one destination by the option `destination`.",
            ),
            "missing_column": ErrorText(
                "DISPATCH_QUEUE or DISPATCH_ATTRS lacks a column that the reader needs.",
                "Export a queue with all its columns.",
            ),
            "missing_part": ErrorText(
                "The numbers in EXTDATA of an operation have a gap or a repetition.",
                "Export all rows of the operation.",
            ),
            "row_decode": ErrorText(
                "The codec cannot read a row image.",
                'Choose the `codec` that wrote the rows, or set `on_row_error = "raw"` to pass '
                "them on as bytes.",
            ),
            "row_encode": ErrorText(
                "The codec cannot write a row.",
                "Correct the value, or the column's type in `dispatch_attrs`.",
            ),
            "several_nodes": ErrorText(
                "The reader has a restart token, but rows of more than one DBNODE.",
                "Choose one node by the option `dbnode`.",
            ),
            "typ_contradiction": ErrorText(
                "The operation code of a row does not allow the lengths of the row.",
                "Choose the table of operation codes that the server uses: `typ_table`.",
            ),
        },
    ),
    ErrorGroup(
        title="Qlik change tables and messages",
        where=_IN_REPORTS,
        commands=_CONVERTING,
        exit_code=_OF_FORMATS,
        page="docs/formats/qlik.md",
        codes={
            "bad_avro": ErrorText(
                "Bytes do not match their Avro schema, or the schema cannot be read.",
                "Give the reader the schema that the messages are written in, by their metadata "
                "or by `registry`.",
            ),
            "bad_envelope": ErrorText(
                "A record is not a Qlik message, in either of its two forms.",
                "Check that the topic or file holds Qlik messages; set `table` and `schema` if "
                "they name none.",
            ),
            "bad_magic": ErrorText(
                "A message does not begin with the magic `atMSG`.",
                "Check that the topic or file holds Qlik messages.",
            ),
            "bad_mask": ErrorText(
                "The text of a mask has a character that is not a hex digit.",
                "Store masks as bytes or as hex text.",
            ),
            "bad_message_value": ErrorText(
                "A value in a message does not fit its column's type.",
                "Correct the column's type in `columns` or in the catalogue.",
            ),
            "bad_metadata": ErrorText(
                "A metadata message lacks a part that data messages need.",
                "Have the Qlik task publish its metadata again.",
            ),
            "bad_sequence": ErrorText(
                "A change_seq is not 35 digits that begin with a date and time.",
                "Store the change sequence as text, unchanged.",
            ),
            "mask_too_wide": ErrorText(
                "The last column of a column list lies beyond the 1024 bits of a mask.",
                "Leave out header columns, or split the table.",
            ),
            "missing_header": ErrorText(
                "A change table lacks a header column that the reader needs.",
                "Correct `header_prefix`, or have the column stored.",
            ),
            "operation_mismatch": ErrorText(
                "The columns change_oper and operation of a row disagree.",
                "Correct the row: both columns must name the same operation.",
            ),
            "registry": ErrorText(
                "The schema registry cannot be reached, or refuses a schema.",
                "Check `registry` and EVENTLOG_REGISTRY_AUTH, and look into the registry's own "
                "log.",
            ),
            "sequence_exhausted": ErrorText(
                "The change number of a task has reached the limit of 19 digits.",
                "Begin a new task with its own log or state.",
            ),
            "unknown_schema": ErrorText(
                "The reader has no schema for the payload of a message.",
                "Read the metadata messages too (`metadata_topic`), or set `registry`.",
            ),
            "unpaired_before_image": ErrorText(
                "A before image (B) has no update (U) after it.",
                "Read the whole change table, including the row of the update.",
            ),
        },
    ),
    ErrorGroup(
        title="Spark",
        where="the line that ends a command, or the exception that ends a query",
        commands=("backlog run", "convert --spark", "functions of `eventlog.spark`"),
        exit_code=_ENDED,
        page="docs/guides/spark.md",
        codes={
            "capture_failed": ErrorText(
                "An input cannot be converted; the message names it and the reason.",
                "Follow the message about the input; without --strict the other inputs are "
                "converted nevertheless.",
            ),
            "columns_changed": ErrorText(
                "The types of columns have changed since the query began.",
                "Start the query again with the same checkpoint, which adopts the new types. "
                "Create the DataFrame, or the table of the catalogue, again.",
            ),
            "copy_refused": ErrorText(
                "`live_copy` cannot write to this table.",
                "Name a place without a table, or the table that a live copy of this class "
                "created. If the columns of the class have changed, pass "
                'on_type_change="reload" to live_copy.',
            ),
            "missing_file": ErrorText(
                "The numbers of consecutive files have a gap.",
                "Add the missing file to the directory, or number the files without a gap.",
            ),
            "other_epoch": ErrorText(
                "The checkpoint has record_ids of another epoch, because the log was restored to "
                "an earlier state.",
                "Give the query a new checkpoint, and write its target again. For a live copy, "
                'pass on_epoch="reload" instead.',
            ),
            "rows_removed": ErrorText(
                "Rows of the log were removed before the query has read them.",
                "Give the query a new checkpoint and start it again. With the option consumer, "
                "purge keeps the rows that the query has not read.",
            ),
            "run_damaged": ErrorText(
                "A file that one stage of the job wrote for the next has changed.",
                "Check the disk that holds the directory, and run the command again, which "
                "starts over.",
            ),
            "spark": ErrorText(
                "The Spark job failed, after Spark's own retries.",
                "Follow the message, then run the same command again. Spark's own log has details.",
            ),
        },
    ),
)
"""All codes of errors. A code, such as ``bad_value``, may be in two groups."""


def texts_of(code: str) -> list[tuple[ErrorGroup, ErrorText]]:
    """Return the texts of a code, each with its group. A code of another package has no texts."""
    return [(group, group.codes[code]) for group in ERRORS if code in group.codes]


FIXES: Final[Mapping[str, str]] = {
    code: " ".join(dict.fromkeys(text.fix for _, text in texts_of(code)))
    for group in ERRORS
    for code in group.codes
}
"""What to do for each code. A code in two groups has the advice of both."""
