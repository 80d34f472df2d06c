"""How the tables of a log are kept, and what refuses a row whose status is no letter (spec/triggers.md 7).

Storage parameters are set behind CREATE TABLE. A status that is no letter would never be read; the index that the
publisher reads by refuses it: beside the rows N it asks for every other row whether its status is a letter. A CHECK
would be read from the catalogue and compiled for each statement that writes the log, 3 to 4 us of the writer's time;
the index is there for each statement anyway, and a row N costs it nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import literal, quote_function
from eventlog.sql.dialects.postgresql.wake import WAKE
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified, quote_identifier

_LOG: Final = {
    # A row is written twice: as N, and when it is marked. The mark cannot be a HOT update, since the partial index
    # looks at status, but with some room it stays on the row's page, and the log keeps its order on the disk.
    "fillfactor": "80",
    # Every mark leaves a dead entry at the head of the partial index, which each window read has to step over until
    # vacuum has taken it away. The default of a fifth of the table would be millions of them in a long log.
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "10000",
    "autovacuum_analyze_scale_factor": "0.02",
    # Ten times the default: a vacuum that is slower than the publisher never comes to its end.
    "autovacuum_vacuum_cost_limit": "2000",
    # With delete_from_log the end of the table empties again and again; giving the pages back to the disk takes a
    # lock that holds up every writer, and the next rows need the pages again.
    "vacuum_truncate": "false",
}
_INFLIGHT: Final = {
    # A few lines, written anew every second: left to itself, autovacuum would wait for fifty dead ones, and their texts
    # (in TOAST) are large.
    "autovacuum_vacuum_scale_factor": "0",
    "toast.autovacuum_vacuum_scale_factor": "0",
}
_RESYNC: Final = {
    # One line, written anew with every batch.
    "autovacuum_vacuum_scale_factor": "0",
    "fillfactor": "50",
}

LOCK_TIMEOUT: Final = 5.0
"""Seconds that a change of guard waits for the log; whoever writes it meanwhile waits behind it."""

_SETTING: Final = "pg_catalog.current_setting('{}')"
_LETTER: Final = "'^[A-Za-z]$'"


class PostgresTables(Dialect):
    """The index of the queue guards status in place of a CHECK."""

    column_types: ClassVar = {
        "integer": sa.BigInteger(),
        "status": sa.CHAR(1),
        "event_type": sa.SmallInteger(),
        "event_time": sa.TIMESTAMP(),
        "time": sa.TIMESTAMP(),
        "digest": sa.CHAR(64),
        **dict.fromkeys(("name", "key", "value", "code", "text"), sa.Text()),
    }

    def is_letter(self, column: str) -> str:
        return f"{self.quote(column)} ~ {_LETTER}"

    def after_log(self, log: LogTable) -> list[str]:
        return [_set(log, log.name, _LOG), render_quote_function(log)]

    def drop_after_log(self, log: LogTable) -> list[str]:
        return [f"DROP FUNCTION IF EXISTS {quote_function(log)}(text)"]

    def after_companions(self, log: LogTable) -> list[str]:
        # A sequence of its own, not an identity: the number is needed before the line that it stands in is written.
        sequence = qualified(log.schema, log.flight_sequence)
        return [_set(log, log.inflight_table, _INFLIGHT), f"CREATE SEQUENCE {sequence} AS BIGINT CACHE 1"]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        name = {"name": qualified(log.schema, log.flight_sequence)}
        return int(conn.execute(sa.text("SELECT nextval(CAST(CAST(:name AS text) AS regclass))"), name).scalar_one())

    def after_resync(self, log: LogTable, index: str) -> list[str]:
        # A row identity, so that the table can be replicated.
        table = qualified(log.schema, log.resync_table)
        identity = f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {quote_identifier(index)}"
        return [_set(log, log.resync_table, _RESYNC), identity]

    def guard_by_index(self, log: LogTable) -> list[str]:
        # event_type needs no guard: a row of another type is read, and marked E (spec/event-log.md 5).
        return [
            *_begin(log),
            _create_function(log),
            _drop_checks(log),
            *_index(log, _predicate(log)),
            *WAKE.create(log),
            _end(),
        ]

    def guard_by_checks(self, log: LogTable) -> list[str]:
        # Also if the log is gone already.
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
            f"DROP FUNCTION IF EXISTS {_function(log)}(pg_catalog.bpchar)",
        ]


def _set(log: LogTable, table: str, parameters: Mapping[str, str]) -> str:
    settings = ", ".join(f"{name} = {literal(value)}" for name, value in parameters.items())
    return f"ALTER TABLE {qualified(log.schema, table)} SET ({settings})"


def _function(log: LogTable) -> str:
    """The quoted name of the function that refuses."""
    return qualified(log.schema, log.own_name("proc_{}_status"))


def _predicate(log: LogTable) -> str:
    """SQL: which rows stand in the index; an error for a row whose status is no letter."""
    # Two conditions and not one function, so that a mark pays for no call; and an OR, so that status = 'N' implies it.
    return f"status = 'N' OR (status !~ {_LETTER} AND {_function(log)}(status))"


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
    name = log.own_name("idx_{}_1")
    return [
        f"DROP INDEX IF EXISTS {qualified(log.schema, name)}",
        f"CREATE INDEX {quote_identifier(name)} ON {qualified(log.schema, log.name)} (record_id) WHERE {where}",
    ]


def _create_function(log: LogTable) -> str:
    text = f"the status of a row of {log.name} is to be a letter, A to Z or a to z: any other is never read"
    return f"""\
CREATE OR REPLACE FUNCTION {_function(log)}(status pg_catalog.bpchar) RETURNS pg_catalog.bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $eventlog$
BEGIN
    RAISE check_violation USING MESSAGE = {literal(text)},
        DETAIL = pg_catalog.concat('It is ', pg_catalog.quote_nullable(status::pg_catalog.text), '.');
END
$eventlog$"""


def _drop_checks(log: LogTable) -> str:
    """The statement that drops the CHECKs of migration 0002, whatever their names; CHECKs of others stay."""
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
