"""What the triggers of a table log, as SQL: CREATE TRIGGER statements (spec/triggers.md 2, 4, 5, 6, 7.2).

Nothing here asks the database; the texts are in the .sql.j2 files beside this module. A table has a trigger an
operation, since the source of one may have 32 KiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from eventlog.core import table_key
from eventlog.core.catalog import Column
from eventlog.errors import TriggerError
from eventlog.model import EventType
from eventlog.sql.dialects.oracle.text import (
    base64_function,
    change_function,
    changed,
    differs,
    joined,
    key_text,
    new_time,
    qualified,
    quote_function,
    quote_identifier,
    value_text,
)
from eventlog.sql.dialects.oracle.types import (
    SQL_TEXT,
    Family,
    family,
    is_locator,
    is_loggable,
    is_long,
    text_bytes,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import literal, template_renderer, trigger_words
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers

OPERATIONS: Final[Mapping[str, str]] = {"i": "INSERT", "u": "UPDATE", "d": "DELETE"}
MAX_SOURCE: Final = 32 * 1024
"""Bytes of a trigger's source that Oracle takes."""
_FLUSH: Final = 1000
"""Log rows that a compound trigger keeps in memory before it writes them."""


def trigger_texts(
    home: str | None, log: LogTable, triggers: TableTriggers, declared: Sequence[TableTriggers]
) -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What ``MarkedTriggers.texts`` gives. Raises TriggerError for a trigger that Oracle does not take."""
    for letter, operation in OPERATIONS.items():
        yield letter, partial(_trigger, home, log, triggers, operation)


def _trigger(home: str | None, log: LogTable, triggers: TableTriggers, operation: str, name: str, marker: str) -> str:
    if isinstance(triggers, ClassTriggers):
        template, words = "class_trigger.sql.j2", _class_words(log, triggers, operation)
        key, columns = triggers.log_key, triggers.key
    else:
        template, words = "child_trigger.sql.j2", _child_words(log, triggers, operation)
        key, columns = triggers.own_key, triggers.owner_columns
    base64 = base64_function(log, home)
    text = render(
        template,
        name=qualified(home, name),
        table=qualified(home, triggers.table.name),
        operation=operation,
        marker=marker,
        flush=_FLUSH,
        base64=base64,
        key_of=lambda row: key_text(key, _fields(row, columns), quote_function(log, home), base64),
        is_there=lambda row: _is_there(row, columns),
        **words,
    )
    if len(text.encode()) > MAX_SOURCE:
        raise TriggerError(
            f"watch {triggers.class_name}: the trigger for {operation} of {triggers.table.name} has "
            f"{len(text.encode())} bytes, and Oracle takes {MAX_SOURCE}: leave columns out with exclude, or use "
            "style = row_query_back"
        )
    return text


# --- bodies -----------------------------------------------------------------------------------------------------------


def _class_words(log: LogTable, triggers: ClassTriggers, operation: str) -> dict[str, object]:
    loggable = [column for column in triggers.columns if is_loggable(column, triggers.watch.lob_values)]
    compared = [*triggers.key, *triggers.columns] if operation == "UPDATE" else []
    by_value = triggers.insert_type == EventType.INSERT_FIELD
    written = loggable if by_value and operation != "DELETE" else []
    # A locator of :OLD or :NEW is written with its row, never kept until the end of the statement.
    by_statement = triggers.watch.capture == "statement" and not any(map(is_locator, written))
    return {
        "log": _log_for(log, triggers.class_name, triggers.log_key, written),
        "columns": triggers.columns,
        "names": triggers.log_names,
        "insert_type": int(triggers.insert_type),
        "update_type": int(triggers.update_type),
        "is_compound": by_statement or operation == "UPDATE",
        "inserted_by_value": [column for column in written if operation == "INSERT" or not is_locator(column)],
        "by_statement": by_statement,
        "is_nullable": triggers.is_nullable,
        "lob_always": triggers.watch.lob_always,
        "families": _families(compared, [Family.TEXT] if operation == "UPDATE" else []),
        "plain": [column for column in triggers.columns if is_loggable(column, lob_values=False)],
        "readable": [column for column in triggers.columns if _is_readable(column)],
        "is_loggable": loggable.__contains__,
        "key_is_changed": joined(" OR ", map(_is_changed, triggers.key)),
    }


def _child_words(log: LogTable, triggers: ChildTriggers, operation: str) -> dict[str, object]:
    by_statement = triggers.watch.capture == "statement"
    by_value = triggers.event_type == EventType.UPDATE_FIELD and is_loggable(triggers.column, lob_values=False)
    return {
        "log": _log_for(log, triggers.class_name, triggers.own_key, [triggers.column] if by_value else []),
        "event_type": int(EventType.UPDATE_FIELD if by_value else EventType.UPDATE_FIELD_QUERY_BACK),
        "attribute": triggers.attribute,
        "column": triggers.column,
        "is_compound": by_statement or (operation == "UPDATE" and by_value),
        "by_statement": by_statement,
        "families": _families([triggers.column], [Family.TEXT]) if operation == "UPDATE" else [],
    }


def _log_for(log: LogTable, class_name: str, key: Iterable[Column], by_value: Sequence[Column]) -> dict[str, str]:
    """``by_value``: the columns whose values are logged. Types that FORALL binds are no wider than they have to be:
    beyond 4000 bytes a text is bound as a LONG, with all that a LONG may not.
    """
    has_long = any(map(is_long, by_value))
    return {
        **trigger_words(log, class_name, new_time(is_zoned=log.has_zoned_time), quote_identifier),
        "key_type": _text_type(map(_key_part_bytes, key)),
        "value_type": "CLOB" if has_long else _text_type(_longest(by_value)),
        "parameter_type": "CLOB" if has_long else "VARCHAR2",
    }


def _text_type(parts: Iterable[int | None]) -> str:
    """The type that holds a text of parts with so many bytes each, None = the size is not known."""
    known = list(parts)
    fits = None not in known and sum(size or 0 for size in known) <= SQL_TEXT
    return f"VARCHAR2({SQL_TEXT if fits else 32767})"


def _longest(columns: Sequence[Column]) -> Sequence[int | None]:
    sizes = [text_bytes(column) for column in columns]
    return [None] if None in sizes else [max((size for size in sizes if size is not None), default=0)]


def _key_part_bytes(column: Column) -> int | None:
    """Bytes of a part of a key: + and =, the name, the value in quotation marks with each of its characters escaped."""
    size = text_bytes(column)
    return None if size is None else len(table_key.quote(column.name).encode()) + 4 + 2 * size


def _families(columns: Iterable[Column], needed: Iterable[Family]) -> list[Family]:
    used = {family(column) for column in columns} | set(needed)
    return [one for one in Family if one in used and one is not Family.UNREADABLE]


def _is_readable(column: Column) -> bool:
    return family(column) is not Family.UNREADABLE


def field(row: str, column: Column) -> str:
    """PL/SQL of a column of the row OLD or NEW."""
    return f":{row}.{quote_identifier(column.name)}"


def _fields(row: str, columns: Iterable[Column]) -> list[str]:
    return [field(row, column) for column in columns]


def _is_there(row: str, columns: Sequence[Column]) -> str:
    """PL/SQL: none of these columns is NULL."""
    return joined(" AND ", (f"{ref} IS NOT NULL" for ref in _fields(row, columns)))


def _is_changed(column: Column) -> str:
    return changed(column, field("OLD", column), field("NEW", column))


# --- templates --------------------------------------------------------------------------------------------------------


def render_quote_function(log: LogTable) -> str:
    """The statement that makes the key quoting function of a log, in the log's schema (spec/triggers.md 4, 9)."""
    return render("quote_function.sql.j2", function=quote_function(log))


def render_base64_function(log: LogTable) -> str:
    """The statement that makes the base64 function of a log, in the log's schema (spec/triggers.md 6)."""
    return render("base64_function.sql.j2", function=base64_function(log))


def render(template: str, **values: object) -> str:
    """The text of a template, without the blank lines that its conditions leave."""
    lines = _rendered(template, **values).strip("\n").split("\n")
    return "\n".join(line for at, line in enumerate(lines) if line.strip() or (at and lines[at - 1].strip()))


_rendered: Final = template_renderer(
    __package__,
    filters={"identifier": quote_identifier, "literal": literal},
    functions={
        "is_changed": _is_changed,
        "is_readable": _is_readable,
        "value_text": value_text,
        "change_function": change_function,
        "differs": differs,
        "field": field,
    },
)
