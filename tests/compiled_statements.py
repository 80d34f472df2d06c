"""What SQLAlchemy compiles, it compiles once in a test process, not once for each engine.

Each test, and each command in it, makes its own engine, whose cache of compiled statements is empty:
a fifth of the processor time of tests with a database went into compiling the same statements again.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import Dialect
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.util import LRUCache

_alike: dict[tuple[object, ...], tuple[Dialect, LRUCache[Any, Any]]] = {}
"""The first dialect of each kind, whose statements serve all of the kind, and its cache."""
_kinds: WeakKeyDictionary[Dialect, tuple[Dialect, LRUCache[Any, Any]]] = WeakKeyDictionary()


def _kind(dialect: Dialect) -> tuple[object, ...]:
    """The class and all settings of a dialect: what its statements depend on."""
    plain = (str, int, type(None), tuple)
    settings = ((name, value) for name, value in vars(dialect).items() if isinstance(value, plain))
    return (type(dialect), *sorted(settings, key=lambda setting: setting[0]))


def _connected(conn: sa.Connection) -> None:
    """Take up a dialect after its first connection, when its settings are those of the server."""
    if conn.dialect not in _kinds:
        new = conn.dialect, LRUCache[Any, Any](2000)
        _kinds[conn.dialect] = _alike.setdefault(_kind(conn.dialect), new)


def compile_once() -> None:
    """Share the compiled statements of all engines whose dialects have the same settings. An engine
    without a cache stays without.
    """
    compiled = ClauseElement._compile_w_cache

    def shared(
        self: ClauseElement, dialect: Dialect, *, compiled_cache: Any, **more: Any
    ) -> tuple[Any, ...]:
        if compiled_cache is not None and dialect in _kinds:
            dialect, compiled_cache = _kinds[dialect]
        return compiled(self, dialect, compiled_cache=compiled_cache, **more)

    ClauseElement._compile_w_cache = shared  # type: ignore[method-assign]
    sa.event.listen(sa.Engine, "engine_connect", _connected)
