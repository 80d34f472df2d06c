"""How the tables of a log are kept and vacuumed: storage parameters, set behind CREATE TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventlog.sql.dialects.postgresql.text import literal, qualified
from eventlog.sql.log_table import LogTable

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


def of_log(log: LogTable) -> str:
    """The statement for the log itself."""
    return _set(log, log.name, _LOG)


def of_inflight(log: LogTable) -> str:
    """The statement for the lines of its flights."""
    return _set(log, log.inflight_table, _INFLIGHT)


def of_resync(log: LogTable) -> str:
    """The statement for the positions of its resyncs."""
    return _set(log, log.resync_table, _RESYNC)


def _set(log: LogTable, table: str, parameters: Mapping[str, str]) -> str:
    settings = ", ".join(f"{name} = {literal(value)}" for name, value in parameters.items())
    return f"ALTER TABLE {qualified(log.schema, table)} SET ({settings})"
