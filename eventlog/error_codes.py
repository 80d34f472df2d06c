"""The codes of errors: what causes each, and its general cure. Programs act on codes, people on
messages.

A code belongs either to a class of its own, whose docstring says the cause, or to ``RowError`` or
``FormatError``, which are raised with the code. Classes of their own are those that somebody
catches, or that carry more than a message. ``scripts/reference.py`` lists all codes in
docs/reference.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROW_CODES: Final[Mapping[str, str]] = {
    "bad_event_type": "event_type is not 1 to 8, or a delete names a child table",
    "missing_column": "column_name is empty in a row that is about a column",
    "missing_table": "table_name is empty",
    "receiver": "the receiver answered *error* or *fatal*, and the message is its own",
    "unknown_column": "column_name is not an attribute of the class",
    "unknown_table": "table_name is neither a class nor a child table of one",
}
"""Causes of codes that ``RowError`` is raised with."""

FORMAT_CODES: Final[Mapping[str, str]] = {
    # any change format
    "needs_query_back": "A change without its row, which only the source database has",
    "needs_row_codec": "A change whose row exists only in the raw form of its source",
    "schema_missing": "A row of a table whose columns are unknown",
    "unknown_operation": "An operation code that the format lacks",
    "value_range": "A value outside the range of its target column",
    # GBase streams
    "bad_datetime": "A DATETIME or INTERVAL with a field out of its range",
    "bad_decimal": (
        "A packed decimal with a digit above 99, or with digits behind the first byte of zero"
    ),
    "bad_value": (
        "A byte that its column type does not have: sign of INT8, BOOLEAN, null flag, day number"
    ),
    "decode": "Text that is not of the configured charset",
    "duplicate_begin": "A transaction that begins while one with its id is open",
    "framing": "Bytes that are not a record of a stream",
    "orphan_record": 'A record of a transaction that did not begin, with `orphans = "raise"`',
    "row_length": "A payload that is shorter or longer than its columns",
    "schema_mismatch": "A table description (TABSCHEM) whose columns disagree with its own counts",
    "size_array": (
        "A size array that fits the payload in no byte order, or disagrees with a length prefix"
    ),
    "truncated_stream": "The declared end of a stream lies inside a record",
    "unknown_type": "A column of a type that the stream's format does not have",
    # Linter queues
    "bad_column_value": (
        "A value that its column cannot hold: text for a number, DATA that is not hex digits"
    ),
    "bad_length": "LEN1 or LEN2 that is negative, too great or beyond DATA",
    "bad_oper_date": "An OPER_DATE that is neither six bytes nor twelve hex digits",
    "destinations_differ": "One operation has different parts for two destinations",
    "missing_part": "EXTDATA of an operation with a gap or a repetition",
    "several_nodes": "A restart token together with rows of more than one DBNODE",
    "typ_contradiction": "Lengths that the operation code does not allow",
    # Qlik tables and messages
    "bad_avro": "Bytes that do not match their Avro schema, or a schema that cannot be read",
    "bad_magic": "A message envelope that does not begin with the magic `atMSG`",
    "bad_mask": "A mask text with a character that is not a hex digit",
    "bad_message_value": "A value in a message that does not fit its column's type",
    "bad_metadata": "A metadata message that lacks a part which data messages need",
    "bad_sequence": "A change_seq that is not 35 digits beginning with a date and time",
    "mask_too_wide": "A column list whose last column lies beyond the 1024 bits of a mask",
    "missing_header": "A change table that lacks a header column which the reader needs",
    "operation_mismatch": "A row whose change_oper and operation disagree",
    "sequence_exhausted": "A task whose change number has reached the limit of 19 digits",
    "unpaired_before_image": "A before image (B) without its update (U)",
    # Spark
    "missing_file": "Files are missing between two that continue one another by their numbers",
}
"""Causes of codes that ``FormatError`` and its subclasses are raised with."""

CURES: Final[Mapping[str, str]] = {
    # eventlog as a whole
    "another_publisher": (
        "Stop the other one, or wait for it with `[publisher] standby = true`; `eventlog status` "
        "shows whether one runs."
    ),
    "config": (
        "Correct the setting that the message names. `eventlog config` shows each setting and "
        "where it comes from."
    ),
    "consumer_runs": (
        "Let this process wait as a standby, stop the other one, or give this one another name."
    ),
    "database": (
        "Check the URL, the network and the user's rights; `eventlog doctor` lists the GRANTs "
        "that are missing."
    ),
    "database_away": "Wait: a publisher connects again by itself. Run any other command again.",
    "error": "Do what the message says.",
    "fatal_answer": (
        "Fix what the receiver names, `eventlog requeue` the rows of status F, and start the "
        "publisher again."
    ),
    "kafka_away": (
        "Check the brokers, the topic and the user's rights. Nothing is marked; the publisher "
        "tries again."
    ),
    "log_table": (
        "Run `eventlog db upgrade`, or correct `log_table`, `schema_name` or `column_map`."
    ),
    "receiver_away": (
        "Check the receiver and [sink]. The publisher marks nothing and tries again by itself."
    ),
    "record_refused": (
        "Let the topic take larger records (`max.message.bytes`), or send fewer events a document."
    ),
    "source_away": (
        "Wait: the publisher opens it again by itself. If it lasts, check the source and [source]."
    ),
    "source_lost": (
        "Put the files back as they were read. If they are gone, load the tables anew and begin "
        "at a new position."
    ),
    "plugin": (
        "Tell the authors of the package, with the traceback that -vv shows; another format, sink "
        "or source does without it."
    ),
    "trigger": (
        "Correct the `[[watch]]` that the message names; `eventlog triggers plan` shows what "
        "comes of it."
    ),
    "xds": (
        "Correct the document; the message names the line. Raise `limit` for a document that is "
        "longer."
    ),
    # rows of the log
    "bad_event_type": "Correct what writes the log.",
    "bad_table_key": (
        "Correct what writes the log, such as a trigger of your own; then `eventlog requeue`."
    ),
    "bad_value": (
        "Correct what writes the log, then `eventlog requeue`; `eventlog resync` logs the "
        "object as it is now. Capture a GBase stream again; if it repeats, report it with the "
        "bytes of the row."
    ),
    "bad_xml_char": (
        "Take the character out of the value in the application, or the column out of the watch "
        "(`exclude`); formats other than XDS hold it."
    ),
    "missing_column": "Correct what writes the log. Export a queue with all its columns.",
    "missing_table": "Correct what writes the log.",
    "receiver": "Fix what the receiver names, then `eventlog requeue`.",
    "unknown_column": (
        "Take the column into the watch (`columns`, `exclude`) and `eventlog requeue` the row, "
        "or correct what writes the log."
    ),
    "unknown_table": (
        "Add the table to `tables` or `[[watch]]` and `eventlog requeue` the row, or correct "
        "what writes the log."
    ),
    # any change format
    "format": (
        "Check the format's name and the reader's options; the message names the place in the "
        "input."
    ),
    "invalid_change": "Correct what made the change; the message names the field.",
    "needs_query_back": (
        "Give the reader the database that holds the row: `database_url`, or the log's URL as "
        "the source."
    ),
    "needs_row_codec": "Give the reader the `codec` that the row images are written in.",
    "not_expressible": (
        "Choose a target format that can hold the change, or the option that the message names."
    ),
    "nothing_written": (
        "Check the format's name in --from, and the options in --map; what was passed over says "
        "what is wrong."
    ),
    "schema_missing": (
        "Describe the table by the option `catalog`, or by the format's own option for its columns."
    ),
    "unknown_operation": (
        "Check that the input is of this format, and for a Linter queue the option `typ_table`."
    ),
    "value_range": "Correct the value, or give the target a wider column.",
    # GBase streams
    "bad_datetime": "Capture again. If it repeats, report it with the bytes of the row.",
    "bad_decimal": "Capture again. If it repeats, report it with the bytes of the row.",
    "cdc": (
        "Look the number up in the server's manual; for the common ones the message says what "
        "to do."
    ),
    "column": (
        "Read the rows with the description that stood before them in the stream: a capture "
        "from its start."
    ),
    "decode": 'Set `charset` to that of the database, or `charset_errors = "replace"`.',
    "duplicate_begin": (
        'Read the capture once and from its start, or set `duplicate_begin = "replace"`.'
    ),
    "framing": "Read the capture from its start, and its files in their order.",
    "orphan_record": 'Begin the capture before the transaction begins, or set `orphans = "skip"`.',
    "row_length": (
        "Set `size_order` and `varchar_prefix` as the server writes them, and read the capture "
        "from its start."
    ),
    "schema_mismatch": "Capture again. If it repeats, report it with the bytes of the record.",
    "session_dead": "Open another session from the last position; a publisher does so by itself.",
    "size_array": "Set `size_order` and `varchar_prefix` as the server writes them.",
    "truncated_stream": (
        "Read the capture together with the file that continues it, or copy the whole of it again."
    ),
    "unknown_type": "Leave the table out of the capture.",
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
    "operation_mismatch": "Correct the row: both columns name one operation.",
    "registry": (
        "Check `registry` and EVENTLOG_REGISTRY_AUTH, and look into the registry's own log."
    ),
    "sequence_exhausted": "Begin a new task with a log or a state of its own.",
    "unknown_schema": "Read the metadata messages too (`metadata_topic`), or set `registry`.",
    "unpaired_before_image": "Read the change table whole, with the row of the update.",
    # Spark
    "capture": (
        "Do what the message says of the capture; without --strict the others are converted all "
        "the same."
    ),
    "columns_changed": (
        "Start the query again with the same checkpoint, which takes the new types over; make the "
        "DataFrame, or the table of the catalogue, again."
    ),
    "copy_refused": (
        "Give a place where no table is, or the table that a live copy of this class has made. If "
        'the columns of the class have changed, give live_copy on_type_change="reload".'
    ),
    "missing_file": "Put the missing file beside the others, or number the files without a gap.",
    "other_epoch": (
        "Give the query a checkpoint of its own, and write its target anew: the log was put "
        "back meanwhile."
    ),
    "rows_removed": (
        "Give the query a checkpoint of its own and start again; with the option consumer purge "
        "keeps what it has not read."
    ),
    "run_damaged": (
        "Look at the disk that holds it, and run the command again, which begins the part anew."
    ),
    "spark": (
        "Do what the message says, then run the same command again; Spark's own log says more."
    ),
}
"""The general cure of each code."""
