"""Change data capture by triggers, for databases whose transaction log you may not read.

Semantic versioning covers the names in ``__all__`` of this package, of ``eventlog.verify`` and of
``eventlog.spark`` (docs/reference/api.md), and the module ``eventlog.alembic``. Everything else is
private. The names here are resolved when they are first used: ``import eventlog`` loads no database
driver and no parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.changes.format import Report
    from eventlog.conversion import convert, read_changes, write_changes
    from eventlog.errors import (
        ConfigError,
        DatabaseError,
        EventlogError,
        FatalAnswer,
        FormatError,
        PublisherAlreadyRunning,
        ReceiverUnavailable,
    )
    from eventlog.model import (
        Answer,
        AttributeSteps,
        Change,
        ChangeOp,
        Event,
        EventResult,
        Level,
        Lob,
        Op,
        Operation,
        Step,
    )
    from eventlog.publisher.context.context import Counters
    from eventlog.publisher.publisher import Publisher

__all__ = [
    "Answer",
    "AttributeSteps",
    "Change",
    "ChangeOp",
    "ConfigError",
    "Counters",
    "DatabaseError",
    "Event",
    "EventResult",
    "EventlogError",
    "FatalAnswer",
    "FormatError",
    "Level",
    "Lob",
    "Op",
    "Operation",
    "Publisher",
    "PublisherAlreadyRunning",
    "ReceiverUnavailable",
    "Report",
    "Step",
    "convert",
    "read_changes",
    "write_changes",
]
__version__ = "0.1.0"

_MODULES: Final = {
    name: module
    for module, names in {
        "changes.format": ("Report",),
        "conversion": ("convert", "read_changes", "write_changes"),
        "errors": (
            "ConfigError", "DatabaseError", "EventlogError", "FatalAnswer", "FormatError",
            "PublisherAlreadyRunning", "ReceiverUnavailable",
        ),
        "model": (
            "Answer", "AttributeSteps", "Change", "ChangeOp", "Event", "EventResult", "Level",
            "Lob", "Op", "Operation", "Step",
        ),
        "publisher.context.context": ("Counters",),
        "publisher.publisher": ("Publisher",),
    }.items()
    for name in names
}  # fmt: skip
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
