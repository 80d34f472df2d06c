"""The codes of errors, with the cause and the general fix of each. Programs act on codes, people on
messages.

A code either has its own class, whose docstring states the cause, or is given to ``RowError`` or
``FormatError`` when they are raised. A code has its own class if code catches it, or if it carries
more than a message. ``scripts/reference.py`` lists all codes in docs/reference/terms-and-codes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROW_CODES: Final[Mapping[str, str]] = {
    "bad_event_type": "event_type is not 1 to 8, or a delete names a child table",
    "missing_column": "column_name is empty in a row that concerns a column",
    "missing_table": "table_name is empty",
    "receiver": "the receiver answered *error* or *fatal*; the message comes from the receiver",
    "unknown_column": "column_name is not an attribute of the class",
    "unknown_table": "table_name is neither a class nor a child table of one",
}
"""The causes of the codes with which ``RowError`` is raised."""

FORMAT_CODES: Final[Mapping[str, str]] = {
    # any change format
    "needs_query_back": "A change without its row, which only the source database has",
    "needs_row_codec": "A change whose row exists only in the raw form of its source",
    "schema_missing": "A row of a table whose columns are unknown",
    "unknown_operation": "An operation code that the format lacks",
    "value_range": "A value outside the range of its target column",
    # GBase streams
    "bad_datetime": "A DATETIME or INTERVAL with a field outside its range",
    "bad_decimal": (
        "A packed decimal with a digit above 99, or with digits after the first byte of zero"
    ),
    "bad_value": (
        "An invalid byte for the column type: sign of INT8, BOOLEAN, null flag, day number"
    ),
    "decode": "Text that is not valid in the configured charset",
    "duplicate_begin": "A transaction that begins while another with its id is open",
    "framing": "Bytes that are not a record of the stream",
    "orphan_record": 'A record of a transaction that did not begin, with `orphans = "error"`',
    "row_length": "A payload that is shorter or longer than its columns require",
    "schema_mismatch": "A table description (TABSCHEM) whose columns disagree with its own counts",
    "size_array": (
        "A size array that fits the payload in no byte order, or contradicts a length prefix"
    ),
    "truncated_stream": "The declared end of a stream lies inside a record",
    "unknown_type": "A column of a type that the stream's format does not have",
    # Linter queues
    "bad_column_value": (
        "A value that its column cannot hold: text for a number, DATA that is not hex digits"
    ),
    "bad_length": "LEN1 or LEN2 that is negative, too large or beyond DATA",
    "bad_oper_date": "An OPER_DATE that is neither six bytes nor twelve hex digits",
    "destinations_differ": "One operation has different parts for two destinations",
    "missing_part": "EXTDATA of an operation with a gap or a repetition",
    "several_nodes": "A restart token together with rows of more than one DBNODE",
    "typ_contradiction": "Lengths that the operation code does not allow",
    # Qlik tables and messages
    "bad_avro": "Bytes that do not match their Avro schema, or a schema that cannot be read",
    "bad_magic": "A Qlik message that does not begin with the magic `atMSG`",
    "bad_mask": "A mask text with a character that is not a hex digit",
    "bad_message_value": "A value in a message that does not fit its column's type",
    "bad_metadata": "A metadata message that lacks a part that data messages need",
    "bad_sequence": "A change_seq that is not 35 digits beginning with a date and time",
    "mask_too_wide": "A column list whose last column lies beyond the 1024 bits of a mask",
    "missing_header": "A change table that lacks a header column that the reader needs",
    "operation_mismatch": "A row whose change_oper and operation disagree",
    "sequence_exhausted": "A task whose change number has reached the limit of 19 digits",
    "unpaired_before_image": "A before image (B) without its update (U)",
    # Spark
    "missing_file": "A gap in the numbers of consecutive files",
}
"""The causes of the codes with which ``FormatError`` and its subclasses are raised."""

FIXES: Final[Mapping[str, str]] = {
    # eventlog as a whole
    "another_publisher": (
        "Stop the other publisher, or wait for it with `[publisher] standby = true`; "
        "`eventlog status` shows whether a publisher runs."
    ),
    "config": (
        "Correct the setting that the message names. `eventlog config` shows each setting and "
        "where it comes from."
    ),
    "consumer_runs": (
        "Let this process wait as a standby, stop the other process, or give this consumer "
        "another name."
    ),
    "database": (
        "Check the URL, the network and the user's rights; `eventlog grants ROLE --purpose "
        "PURPOSE`, run by the owner, prints the rights."
    ),
    "database_unavailable": "Wait: a publisher reconnects by itself. Run any other command again.",
    "unspecified": "Follow the message.",
    "fatal_answer": (
        "Fix the problem that the receiver reports, requeue the rows of status F with "
        "`eventlog requeue`, and start the publisher again."
    ),
    "kafka_unavailable": (
        "Check the brokers, the topic and the user's rights. Nothing is marked; the publisher "
        "tries again."
    ),
    "log_table": (
        "Run `eventlog db upgrade`, or correct `log_table`, `schema_name` or `column_map`."
    ),
    "log_in_use": (
        "Let the session that the message names end its transaction, and run the command again."
    ),
    "receiver_unavailable": (
        "Check the receiver and [sink]. The publisher marks nothing and tries again by itself."
    ),
    "record_refused": (
        "Let the topic accept larger records (`max.message.bytes`), or send fewer events per "
        "document."
    ),
    "source_unavailable": (
        "Wait: the publisher opens the source again by itself. If the error persists, check the "
        "source and [source]."
    ),
    "source_lost": (
        "Restore the files as they were when they were read. If they are lost, load the tables "
        "again and begin at a new position."
    ),
    "plugin": (
        "Report it to the authors of the package, with the traceback that -vv shows. Until then "
        "use another format, sink or source."
    ),
    "trigger": (
        "Correct the `[[watch]]` that the message names; `eventlog triggers plan` shows the result."
    ),
    "xds": (
        "Correct the document; the message names the line. Raise `limit` if the document is longer."
    ),
    # rows of the log
    "bad_event_type": "Correct the program or trigger that writes the log.",
    "bad_table_key": (
        "Correct the program or trigger that writes the log; then run `eventlog requeue`."
    ),
    "bad_value": (
        "Correct the program or trigger that writes the log, then run `eventlog requeue`, or "
        "`eventlog resync` to send the object as it is now. Capture a GBase stream again; if the "
        "error repeats, report it with the bytes of the row."
    ),
    "bad_xml_char": (
        "Remove the character from the value in the application, exclude the column from the "
        "watch (`exclude`), or use a format other than XDS."
    ),
    "missing_column": (
        "Correct the program or trigger that writes the log. Export a queue with all its columns."
    ),
    "missing_table": "Correct the program or trigger that writes the log.",
    "receiver": "Fix the problem that the receiver reports, then run `eventlog requeue`.",
    "unknown_column": (
        "Include the column in the watch (`columns`, `exclude`) and run `eventlog requeue`, or "
        "correct the program or trigger that writes the log."
    ),
    "unknown_table": (
        "Add the table to `tables` or `[[watch]]` and run `eventlog requeue`, or correct the "
        "program or trigger that writes the log."
    ),
    # any change format
    "invalid_format": (
        "Check the format's name and the reader's options; the message names the place in the "
        "input."
    ),
    "invalid_change": "Correct the code that made the change; the message names the field.",
    "needs_query_back": (
        "Give the reader the database that holds the row: `database_url`, or the log's URL as "
        "the source."
    ),
    "needs_row_codec": "Give the reader the `codec` that the row images are written in.",
    "not_expressible": (
        "Choose a target format that can hold the change, or the option that the message names."
    ),
    "nothing_written": (
        "Check the format's name in --from, and the options in --options; the errors of the "
        "skipped "
        "changes show the cause."
    ),
    "schema_missing": (
        "Describe the table by the option `catalog`, or by the format's own option for its columns."
    ),
    "unknown_operation": (
        "Check that the input is of this format, and for a Linter queue the option `typ_table`."
    ),
    "value_range": "Correct the value, or give the target a wider column.",
    # GBase streams
    "bad_datetime": "Capture again. If the error repeats, report it with the bytes of the row.",
    "bad_decimal": "Capture again. If the error repeats, report it with the bytes of the row.",
    "cdc": (
        "Look the number up in the server's manual; for common numbers the message includes the "
        "fix."
    ),
    "unreadable_row": (
        "Read the rows with the description that precedes them in the stream: read the capture "
        "from its start."
    ),
    "decode": 'Set `charset` to that of the database, or `charset_errors = "replace"`.',
    "duplicate_begin": (
        'Read the capture once and from its start, or set `duplicate_begin = "replace"`.'
    ),
    "framing": "Read the capture from its start, and its files in order.",
    "orphan_record": 'Begin the capture before the transaction begins, or set `orphans = "skip"`.',
    "row_length": (
        "Set `size_order` and `varchar_prefix` as the server writes them, and read the capture "
        "from its start."
    ),
    "schema_mismatch": (
        "Capture again. If the error repeats, report it with the bytes of the record."
    ),
    "session_dead": "Open another session from the last position; a publisher does so by itself.",
    "size_array": "Set `size_order` and `varchar_prefix` as the server writes them.",
    "truncated_stream": (
        "Read the capture together with the file that continues it, or copy the capture again."
    ),
    "unknown_type": "Exclude the table from the capture.",
    # Linter queues
    "bad_column_value": "Export numbers as digits, and DATA as bytes or hex digits.",
    "bad_length": "Export LEN1, LEN2 and DATA whole and unchanged.",
    "bad_oper_date": "Export OPER_DATE as six bytes or twelve hex digits.",
    "destinations_differ": "Choose one destination by the option `destination`.",
    "missing_part": "Export all rows of the operation.",
    "row_decode": (
        'Choose the `codec` that wrote the rows, or set `on_row_error = "raw"` to pass them on '
        "as bytes."
    ),
    "row_encode": "Correct the value, or the column's type in `dispatch_attrs`.",
    "several_nodes": "Choose one node by the option `dbnode`.",
    "typ_contradiction": "Choose the table of operation codes that the server uses: `typ_table`.",
    # Qlik tables and messages
    "bad_avro": (
        "Give the reader the schema that the messages are written in, by their metadata or by "
        "`registry`."
    ),
    "bad_envelope": (
        "Check that the topic or file holds Qlik messages; set `table` and `schema` if they "
        "name none."
    ),
    "bad_magic": "Check that the topic or file holds Qlik messages.",
    "bad_mask": "Store masks as bytes or as hex text.",
    "bad_message_value": "Correct the column's type in `columns` or in the catalogue.",
    "bad_metadata": "Have the Qlik task publish its metadata again.",
    "bad_sequence": "Store the change sequence as text, unchanged.",
    "mask_too_wide": "Leave out header columns, or split the table.",
    "missing_header": "Correct `header_prefix`, or have the column stored.",
    "operation_mismatch": "Correct the row: both columns must name the same operation.",
    "registry": (
        "Check `registry` and EVENTLOG_REGISTRY_AUTH, and look into the registry's own log."
    ),
    "sequence_exhausted": "Begin a new task with its own log or state.",
    "unknown_schema": "Read the metadata messages too (`metadata_topic`), or set `registry`.",
    "unpaired_before_image": "Read the whole change table, including the row of the update.",
    # Spark
    "capture_failed": (
        "Follow the message about the capture; without --strict the other captures are converted "
        "nevertheless."
    ),
    "columns_changed": (
        "Start the query again with the same checkpoint, which adopts the new types. Create the "
        "DataFrame, or the table of the catalogue, again."
    ),
    "copy_refused": (
        "Name a place without a table, or the table that a live copy of this class created. If "
        'the columns of the class have changed, pass on_type_change="reload" to live_copy.'
    ),
    "missing_file": "Add the missing file to the directory, or number the files without a gap.",
    "other_epoch": (
        "Give the query a new checkpoint, and write its target again: the log was restored to an "
        "earlier state."
    ),
    "rows_removed": (
        "Give the query a new checkpoint and start it again. With the option consumer, purge "
        "keeps the rows that the query has not read."
    ),
    "run_damaged": (
        "Check the disk that holds the directory, and run the command again, which starts the "
        "part again."
    ),
    "spark": ("Follow the message, then run the same command again. Spark's own log has details."),
}
"""The general fix of each code."""
