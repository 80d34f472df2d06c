"""What refuses a row of the log whose status is no letter, and so would never be read (spec/triggers.md 7).

The index that the publisher reads by does it: beside the rows N it asks for every other row whether its status is a
letter. A CHECK would be read from the catalogue and compiled for each statement that writes the log, 3 to 4 us of the
writer's time; the index is there for each statement anyway, and a row N costs it nothing more.
"""

from __future__ import annotations

from typing import Final

from eventlog.sql.dialects.postgresql import wake
from eventlog.sql.dialects.postgresql.text import literal, qualified, quote_identifier
from eventlog.sql.log_table import LogTable, cut_name

LOCK_TIMEOUT: Final = 5.0
"""Seconds that ``by_index`` and ``by_checks`` wait for the log; whoever writes it meanwhile waits behind them."""

_SETTING: Final = "pg_catalog.current_setting('{}')"
_LETTER: Final = "'^[A-Za-z]$'"


def function(log: LogTable) -> str:
    """The quoted name of the function that refuses."""
    return qualified(log.schema, cut_name(f"proc_{log.name}_status", log.max_identifier))


def predicate(log: LogTable) -> str:
    """SQL: which rows stand in the index; an error for a row whose status is no letter."""
    # Two conditions and not one function, so that a mark pays for no call; and an OR, so that status = 'N' implies it.
    return f"status = 'N' OR (status !~ {_LETTER} AND {function(log)}(status))"


def by_index(log: LogTable) -> list[str]:
    """The statements that make a log of ours cheaper to write: its queue's index guards status, and nothing else does.

    event_type needs no guard: a row of another type is read, and marked E (spec/event-log.md 5).
    """
    return [
        *_begin(log),
        _create_function(log),
        _drop_checks(log),
        *_index(log, predicate(log)),
        *wake.create(log),
        _end(),
    ]


def by_checks(log: LogTable) -> list[str]:
    """The statements that take ``by_index`` back, also if the log is gone already."""
    table = qualified(log.schema, log.name)
    statements = [
        *_begin(log),
        *_index(log, "status = 'N'"),
        # Rows of other types may stand there by now.
        f"ALTER TABLE {table} ADD CHECK (event_type BETWEEN 1 AND 8) NOT VALID, ADD CHECK (status ~ {_LETTER})",
        _end(),
    ]
    # EXECUTE, since a statement that names what is gone would fail before it is reached.
    guarded = "\n".join(f"        EXECUTE {literal(statement)};" for statement in statements)
    return [
        f"DO $eventlog$\nBEGIN\n    IF pg_catalog.to_regclass({literal(table)}) IS NOT NULL THEN\n{guarded}\n"
        "    END IF;\nEND\n$eventlog$",
        f"DROP FUNCTION IF EXISTS {function(log)}(pg_catalog.bpchar)",
    ]


def _begin(log: LogTable) -> list[str]:
    # The lock that all of it needs, at once: none of it waits with another lock in hand.
    return [
        f"SELECT pg_catalog.set_config('eventlog.lock_timeout', {_SETTING.format('lock_timeout')}, true)",
        f"SET LOCAL lock_timeout = {round(LOCK_TIMEOUT * 1000)}",
        f"LOCK TABLE {qualified(log.schema, log.name)} IN ACCESS EXCLUSIVE MODE",
    ]


def _end() -> str:
    return f"SELECT pg_catalog.set_config('lock_timeout', {_SETTING.format('eventlog.lock_timeout')}, true)"


def _index(log: LogTable, where: str) -> list[str]:
    name = cut_name(f"idx_{log.name}_1", log.max_identifier)
    return [
        f"DROP INDEX IF EXISTS {qualified(log.schema, name)}",
        f"CREATE INDEX {quote_identifier(name)} ON {qualified(log.schema, log.name)} (record_id) WHERE {where}",
    ]


def _create_function(log: LogTable) -> str:
    text = f"the status of a row of {log.name} is to be a letter, A to Z or a to z: any other is never read"
    return f"""\
CREATE OR REPLACE FUNCTION {function(log)}(status pg_catalog.bpchar) RETURNS pg_catalog.bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $eventlog$
BEGIN
    RAISE check_violation USING MESSAGE = {literal(text)},
        DETAIL = pg_catalog.concat('It is ', pg_catalog.quote_nullable(status::pg_catalog.text), '.');
END
$eventlog$"""


def _drop_checks(log: LogTable) -> str:
    """Those of the migration before, whatever their names; CHECKs of anybody else stay."""
    table = literal(qualified(log.schema, log.name))
    return f"""\
DO $eventlog$
DECLARE
    name pg_catalog.text;
BEGIN
    FOR name IN
        SELECT c.conname FROM pg_catalog.pg_constraint AS c
        WHERE c.conrelid = {table}::pg_catalog.regclass AND c.contype = 'c'
            AND pg_catalog.pg_get_expr(c.conbin, c.conrelid) IN (
                '((event_type >= 1) AND (event_type <= 8))', {literal(f"(status ~ {_LETTER}::text)")}
            )
    LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', {table}, name);
    END LOOP;
END
$eventlog$"""  # noqa: S608 - a literal
