"""The watches that the migrations of a tree have made so far: what a downgrade has to bring back.

The database knows only the hash of what was compiled. What was declared stands in the migrations as literals, and is
read from their text; nothing of them is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from alembic.script import ScriptDirectory

from eventlog.errors import TriggerError
from eventlog.sql.alembic.definition import WatchDefinition, from_literals

_CALLS: Final = ("watch_table", "unwatch_table")


def watches_in_force(scripts: ScriptDirectory, heads: tuple[str, ...]) -> list[WatchDefinition]:
    """The watches after the upgrades up to ``heads``, oldest first; calls that are no literals are passed over."""
    found: dict[tuple[str, str | None, str], WatchDefinition] = {}
    revisions = list(scripts.iterate_revisions(heads, "base")) if heads else []
    for script in reversed(revisions):
        for name, definition in _calls(Path(script.path)):
            place = (definition.log, definition.schema, definition.watch.table)
            found.pop(place, None)
            if name == "watch_table":
                found[place] = definition
    return list(found.values())


def _calls(path: Path) -> Iterator[tuple[str, WatchDefinition]]:
    """The calls of ``op.watch_table`` and ``op.unwatch_table`` in the upgrade of a migration, in their order."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    for function in module.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "upgrade":
            continue
        calls = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS
        ]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            assert isinstance(call.func, ast.Attribute)
            try:
                (table,) = map(ast.literal_eval, call.args)
                arguments = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg is not None}
                yield call.func.attr, from_literals(table, arguments)
            except (ValueError, TypeError, TriggerError):
                continue
