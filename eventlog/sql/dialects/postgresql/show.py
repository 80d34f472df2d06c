"""The triggers that are installed, as the database tells them: for people who want to see them."""

from __future__ import annotations

from importlib import resources

from sqlalchemy import Connection, text

from eventlog.sql.dialects.postgresql.text import qualified
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers.plan import InstalledTrigger


def installed(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write ``log``, in the order of tables and names. Nothing is changed."""
    statement = resources.files(__package__).joinpath("show.sql").read_text(encoding="utf-8")
    # The comment is the one that ``triggers`` writes: its end tells which log it is.
    suffix = f" log {qualified(log.schema, log.name)}"
    return [InstalledTrigger(*row) for row in conn.execute(text(statement), {"suffix": suffix})]
