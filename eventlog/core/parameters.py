"""The options that eventlog.toml and the formats have in common (spec/event-log.md 9, spec/triggers.md 1)."""

from __future__ import annotations

from typing import Final

from eventlog import __version__
from eventlog.core.options import BOOLEAN, TEXT, ZONE, Option, choice, integer
from eventlog.model import EventType

MANY: Final = 2147483647

STYLES: Final = {
    "field": (EventType.INSERT_FIELD, EventType.UPDATE_FIELD),
    "remove_all": (EventType.INSERT_FIELD, EventType.UPDATE_FIELD_REMOVE_ALL),
    "field_query_back": (EventType.INSERT_FIELD_QUERY_BACK, EventType.UPDATE_FIELD_QUERY_BACK),
    "row_query_back": (EventType.INSERT_ROW_QUERY_BACK, EventType.UPDATE_ROW_QUERY_BACK),
}
"""The types of inserts and of updates by style (spec/triggers.md 1)."""

STYLE: Final = Option("field", choice(*STYLES), "what the triggers log")
LOG_TABLE: Final = Option("eventlog", TEXT, "the log table, schema-qualified or in schema_name", aliases=("log-table",))
LAYOUT: Final = Option("2.x", choice("2.x", "3.5"), "order of the log's columns where names do not tell")
COLUMN_SORT: Final = Option(
    "bytes", choice("bytes", "collation"), "order of the log's columns in databases that do not number them",
    aliases=("column-position-comparator",),
)  # fmt: skip
FOLD_DISTANCE: Final = Option(1000, integer(0, MANY), "largest distance of record_ids between rows of one event")
FOLD_SPAN: Final = Option(10000, integer(0, MANY), "largest distance of first and last, 0 = no bound")
BATCH_SIZE: Final = Option(128, integer(1, 128), "events a document", aliases=("batch-size",), idm=1)

TIME_SYNTAX: Final = Option(
    "integer", choice("integer", "canonical", "java"), "form of dates and times", aliases=("time-syntax",),
    alias_values={"1": "integer", "2": "canonical", "3": "java"},
)  # fmt: skip
TIME_ZONE: Final = Option("UTC", ZONE, "zone of values without one")
SPECIAL_TIMES: Final = Option(
    "text", choice("text", "error"), "PostgreSQL: infinite times, years before 0001 or beyond 9999, 24:00:00: sent "
    "as their text, or bad rows",
)  # fmt: skip
CHAR_PADDING: Final = Option("trim", choice("trim", "keep"), "trailing blanks of CHAR(n) values")
META_IDENTIFIERS: Final = Option(
    True, BOOLEAN, "view columns have prefixes such as pk_, mv_", aliases=("enable-meta-identifiers",)
)
REFERENTIAL: Final = Option(
    "value", choice("value", "dn"), "foreign keys as stored, or as associations", aliases=("enable-refs",),
    alias_values={"1": "dn", "yes": "dn", "true": "dn", "0": "value", "no": "value", "false": "value"},
)  # fmt: skip
INSERT_QUERY_BACK: Final = Option("modify", choice("modify", "add"), "element of events that are only read back")
INDENT: Final = Option(0, integer(0, 16), "blanks a level with form = documents, 0 = no indentation")
PRODUCT_NAME: Final = Option("eventlog", TEXT, "text of the element product in each document")
PRODUCT_VERSION: Final = Option(__version__, TEXT, "version in that element")
