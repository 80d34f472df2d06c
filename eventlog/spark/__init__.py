"""eventlog on Spark: backlogs, inputs, changes and change tables as DataFrames.

The names in ``__all__`` are public (docs/reference/api.md). These names are imported at their first
use, so that ``import eventlog.spark`` does not need PySpark. No public name may equal the name of a
module of this package, since Python would replace the public name by the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.spark.backlog.backlog import Report as BacklogReport
    from eventlog.spark.backlog.backlog import Request as BacklogRequest
    from eventlog.spark.backlog.backlog import mark_finished as mark_backlog
    from eventlog.spark.backlog.backlog import run as run_backlog
    from eventlog.spark.copies.copy_history import as_of, history
    from eventlog.spark.copies.copy_query import live_copy
    from eventlog.spark.copies.copy_verification import verify, verify_history
    from eventlog.spark.copies.delta_copy import delta
    from eventlog.spark.copies.iceberg_copy import iceberg
    from eventlog.spark.data_sources import register
    from eventlog.spark.frames.change_frame import read_inputs
    from eventlog.spark.frames.change_tables import (
        find_change_tables,
        live_view,
        read_change_table,
        read_rows,
    )
    from eventlog.spark.frames.convert import convert as convert_inputs
    from eventlog.spark.frames.messages import read_messages, write_messages
    from eventlog.spark.session.session import SparkFailed

__all__ = [
    "BacklogReport",
    "BacklogRequest",
    "SparkFailed",
    "as_of",
    "convert_inputs",
    "delta",
    "find_change_tables",
    "history",
    "iceberg",
    "live_copy",
    "live_view",
    "mark_backlog",
    "read_change_table",
    "read_inputs",
    "read_messages",
    "read_rows",
    "register",
    "run_backlog",
    "verify",
    "verify_history",
    "write_messages",
]

_MODULES: Final = {
    "BacklogReport": ("backlog.backlog", "Report"),
    "BacklogRequest": ("backlog.backlog", "Request"),
    "SparkFailed": ("session.session", "SparkFailed"),
    "as_of": ("copies.copy_history", "as_of"),
    "convert_inputs": ("frames.convert", "convert"),
    "delta": ("copies.delta_copy", "delta"),
    "iceberg": ("copies.iceberg_copy", "iceberg"),
    "history": ("copies.copy_history", "history"),
    "find_change_tables": ("frames.change_tables", "find_change_tables"),
    "live_copy": ("copies.copy_query", "live_copy"),
    "verify": ("copies.copy_verification", "verify"),
    "verify_history": ("copies.copy_verification", "verify_history"),
    "live_view": ("frames.change_tables", "live_view"),
    "mark_backlog": ("backlog.backlog", "mark_finished"),
    "read_inputs": ("frames.change_frame", "read_inputs"),
    "read_change_table": ("frames.change_tables", "read_change_table"),
    "read_messages": ("frames.messages", "read_messages"),
    "read_rows": ("frames.change_tables", "read_rows"),
    "register": ("data_sources", "register"),
    "run_backlog": ("backlog.backlog", "run"),
    "write_messages": ("frames.messages", "write_messages"),
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
