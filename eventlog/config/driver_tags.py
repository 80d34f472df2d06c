"""The parameters of the vendor's JDBC driver that are also options of eventlog (spec/event-log.md
9).

``config/idm.py`` reads an export by this table. The configuration refuses the driver's names with a
message that names the option of eventlog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from eventlog.sql.sql_text import split_statements


def _comparator(text: str) -> str:
    """Return the value of ``column_sort`` for the name of a Java class."""
    comparators = {"StringByteComparator": "bytes", "StringComparator": "collation"}
    return comparators.get(text.rpartition(".")[2], text)


def _words(words: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that translates the driver's words, in upper or lower case, and returns
    other texts unchanged.
    """
    return lambda text: words.get(text.strip().lower(), text)


class DriverTag(NamedTuple):
    """The option that a parameter of the driver becomes. ``value`` makes the option's value, or the
    text of that value, from the parameter's text; it raises ValueError.
    """

    section: str
    key: str
    value: Callable[[str], Any] = str


DRIVER_TAGS: Final[Mapping[str, DriverTag]] = {
    "log-table": DriverTag("database", "log_table"),
    "sync-schema": DriverTag("database", "schema_name"),
    "sync-tables": DriverTag("database", "tables"),
    "disable": DriverTag("publisher", "publisher_disabled"),
    "publication-mode": DriverTag("publisher", "publication_mode"),
    "delete-from-log": DriverTag("publisher", "delete_from_log"),
    "allow-loopback": DriverTag("publisher", "allow_loopback"),
    "handle-future-events": DriverTag("publisher", "handle_future_events"),
    "polling-interval": DriverTag("publisher", "polling_interval"),
    "time-of-day": DriverTag("publisher", "time_of_day"),
    "post-poll-stmt": DriverTag("publisher", "post_poll_statements", split_statements),
    "batch-size": DriverTag("publisher", "batch_size"),
    "query-limit": DriverTag("publisher", "query_limit"),
    "query limit": DriverTag("publisher", "query_limit"),
    "pub-heartbeat-interval": DriverTag("publisher", "heartbeat_interval"),
    "column-position-comparator": DriverTag("publisher", "column_sort", _comparator),
    "time-syntax": DriverTag(
        "format.xds", "time_syntax", _words({"1": "integer", "2": "canonical", "3": "java"})
    ),
    "enable-meta-identifiers": DriverTag("format", "meta_identifiers"),
    "enable-refs": DriverTag(
        "format",
        "referential",
        _words(
            dict.fromkeys(("1", "yes", "true"), "dn") | dict.fromkeys(("0", "no", "false"), "value")
        ),
    ),
}
