"""eventlog: a database-trigger publisher emulator and event-log processor.

The public names are resolved when they are first used: ``import eventlog`` loads no database driver and no parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.changes.format import Format, Report
    from eventlog.conversion import convert, format_named
    from eventlog.errors import EventlogError
    from eventlog.model import Answer, Change, Event, Level, Verdict

__all__ = [
    "Answer",
    "Change",
    "Event",
    "EventlogError",
    "Format",
    "Level",
    "Report",
    "Verdict",
    "convert",
    "format_named",
]
__version__ = "0.1.0"

_HOMES: Final = {
    "Answer": "model",
    "Change": "model",
    "Event": "model",
    "EventlogError": "errors",
    "Format": "changes.format",
    "Level": "model",
    "Report": "changes.format",
    "Verdict": "model",
    "convert": "conversion",
    "format_named": "conversion",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
