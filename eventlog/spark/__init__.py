"""eventlog on Spark: backlogs, captures, changes and change tables as DataFrames.

The names in ``__all__`` are public (docs/reference/api.md). They are imported at their first use,
so that ``import eventlog.spark`` does not need PySpark. No public name may equal the name of a
module of this package, since Python would replace it by the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.spark.backlog import Report as BacklogReport
    from eventlog.spark.backlog import Request as BacklogRequest
    from eventlog.spark.backlog import mark_finished as mark_backlog
    from eventlog.spark.backlog import run as run_backlog
    from eventlog.spark.change_frame import read_captures
    from eventlog.spark.change_tables import (
        find_change_tables,
        live_view,
        read_change_table,
        read_rows,
    )
    from eventlog.spark.convert import convert as convert_captures
    from eventlog.spark.copy_history import as_of, history
    from eventlog.spark.copy_query import live_copy
    from eventlog.spark.copy_verification import verify, verify_history
    from eventlog.spark.delta_copy import delta
    from eventlog.spark.iceberg_copy import iceberg
    from eventlog.spark.messages import read_messages, write_messages
    from eventlog.spark.session import SparkFailed
    from eventlog.spark.sources import register

__all__ = [
    "BacklogReport",
    "BacklogRequest",
    "SparkFailed",
    "as_of",
    "convert_captures",
    "delta",
    "find_change_tables",
    "history",
    "iceberg",
    "live_copy",
    "live_view",
    "mark_backlog",
    "read_captures",
    "read_change_table",
    "read_messages",
    "read_rows",
    "register",
    "run_backlog",
    "verify",
    "verify_history",
    "write_messages",
]

_MODULES: Final = {
    "BacklogReport": ("backlog", "Report"),
    "BacklogRequest": ("backlog", "Request"),
    "SparkFailed": ("session", "SparkFailed"),
    "as_of": ("copy_history", "as_of"),
    "convert_captures": ("convert", "convert"),
    "delta": ("delta_copy", "delta"),
    "iceberg": ("iceberg_copy", "iceberg"),
    "history": ("copy_history", "history"),
    "find_change_tables": ("change_tables", "find_change_tables"),
    "live_copy": ("copy_query", "live_copy"),
    "verify": ("copy_verification", "verify"),
    "verify_history": ("copy_verification", "verify_history"),
    "live_view": ("change_tables", "live_view"),
    "mark_backlog": ("backlog", "mark_finished"),
    "read_captures": ("change_frame", "read_captures"),
    "read_change_table": ("change_tables", "read_change_table"),
    "read_messages": ("messages", "read_messages"),
    "read_rows": ("change_tables", "read_rows"),
    "register": ("sources", "register"),
    "run_backlog": ("backlog", "run"),
    "write_messages": ("messages", "write_messages"),
}
"""For each public name: its module, and its name in that module."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _MODULES[name]
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), there)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
