"""The internal table ``<log>_deferred``, whose rows are logged at the commit (spec/triggers.md
7.1).
"""

from __future__ import annotations

from typing import Final

from eventlog.sql.dialects.postgresql.text import literal, new_time
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.sql_files import qualified, quote_identifier, statements, trigger_words

_SQL: Final = statements(__package__, "deferred.sql")


def create_deferred(log: LogTable) -> list[str]:
    """Return the statements that create the table, its trigger and the function of the trigger."""
    return _formatted(log, "table", "comment", "function", "revoke", "trigger", "always")


def drop_deferred(log: LogTable) -> list[str]:
    """Return the statements that drop what ``create_deferred`` creates."""
    return _formatted(log, "drop_table", "drop_function")


def deferred_function(log: LogTable) -> str:
    """Return the quoted name of the function that logs the rows."""
    return qualified(log.schema, log.own_name("proc_{}_deferred"))


def _formatted(log: LogTable, *names: str) -> list[str]:
    words = trigger_words(log, "", new_time(is_zoned=log.has_zoned_time))
    comment = f"Child rows without an owner, which {log.name} gets at the commit"
    words |= {
        "log": words["table"],
        "table": qualified(log.schema, log.deferred_table),
        "comment": literal(comment),
        "function": deferred_function(log),
        "trigger": quote_identifier(log.own_name("_tgr_{}_deferred")),
    }
    return [_SQL[name].format(**words) for name in names]
