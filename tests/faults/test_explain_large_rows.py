"""``eventlog explain`` among rows of other objects that are large: it reads keys first
(spec/event-log.md 11).
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from publishers import configuration, make_log
from shared import execute

from eventlog.model import LogRow
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.explanation import explain
from eventlog.sql.dialects.postgresql.log import PostgresLog

COLUMNS = "status, event_type, table_name, table_key, column_name, new_value"


@pytest.mark.parametrize("status", ["N", "S"])
def test_values_of_other_objects_are_not_read(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    make_log(database)
    execute(
        database,
        f"INSERT INTO eventlog ({COLUMNS}) SELECT '{status}', 2, 'usr', 'idu=' || g % 5, 'fname', "
        "repeat('x', 100000) FROM generate_series(1, 20) AS g",
    )
    read: list[int] = []
    read_rows = PostgresLog.read_rows

    def recorded(self: object, *arguments: object) -> list[LogRow]:
        rows = read_rows(self, *arguments)  # type: ignore[arg-type]
        read.extend(row.record_id for row in rows)
        return rows

    monkeypatch.setattr(PostgresLog, "read_rows", recorded)
    with open_unlocked(configuration(database), Counters()) as context:
        explanation = explain(context, 7)
    assert [member.record_id for member in explanation.members] == [2, 7, 12, 17]
    assert set(read) == {2, 7, 12, 17}
