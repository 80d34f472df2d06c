"""What `requeue` does not refuse leaves the receiver with what is in the tables, on random
histories, answers and commands (spec/event-log.md 11), without a server.
"""

from __future__ import annotations

from typing import Any

import pytest
from fake_publisher import LOG, FakePublisher, Receiver, with_options
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import opened_log
from test_publisher_promises import Tables, changes, state_of

from eventlog.model import LOG_COLUMNS, LogRow
from eventlog.publisher.ledger.in_flight import sent_ids
from eventlog.sql.log.requeue import requeue

BAD = "\x01"
"""What no document can hold: a row with it gets E until somebody fixes the log."""

letters = st.sets(st.sampled_from("EFWS"), min_size=1)
steps = st.lists(
    st.one_of(
        changes.map(lambda history: ("change", history[:4])),
        st.tuples(st.just("publish"), st.integers(1, 2)),
        st.tuples(st.just("requeue"), st.tuples(letters, st.sampled_from([1, 1, 2, 3]))),
    ),
    min_size=4,
    max_size=14,
)


class LogOfOne:
    """A publisher, its log, and the tables that the log is of."""

    def __init__(self, random: Any) -> None:
        self.fake = FakePublisher(with_options(batch_size=random.choice([1, 3, 128])))
        self.random = random
        self.tables = Tables(self.fake.contents)
        self.receiver = Receiver(self.judge)
        self.is_calm = False
        # Copies get their numbers from the database.
        self.sql("ALTER TABLE eventlog RENAME TO former")
        fields = ", ".join(f"{name} TEXT" for name in LOG_COLUMNS[3:])
        self.sql(
            "CREATE TABLE eventlog (record_id INTEGER PRIMARY KEY, status TEXT, "
            f"event_type INTEGER, {fields})"
        )
        self.state = self.fake.start()

    def sql(self, statement: str) -> list[Any]:
        found = self.fake.connection.exec_driver_sql(statement)
        rows = list(found) if found.returns_rows else []
        self.fake.connection.commit()
        return rows

    def judge(self, _event: object) -> str:
        if self.is_calm:
            return "success"
        answers = ["success"] * 4 + ["warning", "error", "error", "retry", "fatal"]
        return str(self.random.choice(answers))

    def change(self, history: list[Any]) -> None:
        (last,) = self.sql("SELECT MAX(record_id) FROM eventlog")[0]
        self.tables.record_id = last or 0
        for change in history:
            self.fake.log(map(self.spoilt, self.tables.change(*change)))

    def spoilt(self, row: LogRow) -> LogRow:
        if row.new_value is None or self.random.random() > 0.2:
            return row
        return row._replace(new_value=BAD + row.new_value)

    def publish(self, cycles: int) -> None:
        for _ in range(cycles):
            self.fake.cycle(self.state, self.receiver)

    def requeue(self, chosen: tuple[set[str], int]) -> None:
        statuses, one_in = chosen
        self.fix()
        conn = self.fake.connection
        ids = None
        if one_in > 1:
            (last,) = self.sql("SELECT MAX(record_id) FROM eventlog")[0]
            numbers = range(1, (last or 0) + 1)
            ids = [(one, one) for one in numbers if self.random.randrange(one_in) == 0]
        requeue(opened_log(conn, LOG), statuses, ids, in_flight=sent_ids(opened_log(conn, LOG)))
        conn.commit()

    def fix(self) -> None:
        self.sql(
            "UPDATE eventlog SET new_value = REPLACE(new_value, CHAR(1), '') WHERE status = 'E'"
        )

    def finish(self) -> set[str]:
        """Publish and put back until nothing is left to do; return the objects whose rows stay
        refused.
        """
        self.is_calm = True
        for _ in range(2):
            self.fake.run(self.receiver, self.state)
            self.requeue(({"E", "F"}, 1))
        self.fake.run(self.receiver, self.state)
        assert self.sql("SELECT * FROM eventlog WHERE status = 'N'") == []
        return {
            key for (key,) in self.sql("SELECT table_key FROM eventlog WHERE status IN ('E', 'F')")
        }


@pytest.mark.parametrize("examples", [20, pytest.param(2000, marks=pytest.mark.night)])
def test_what_requeue_does_not_refuse_leaves_the_receiver_with_what_is_in_the_tables(
    examples: int,
) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(steps, st.randoms(use_true_random=False))
    def claim(history: list[Any], random: Any) -> None:
        log = LogOfOne(random)
        try:
            for name, of in history:
                getattr(log, name)(of)
            refused = log.finish()
            expected = state_of(log.fake.contents)
            for key in {key for (key,) in log.sql("SELECT table_key FROM eventlog")} - refused:
                name = f"{key},table=usr,schema=indirect"
                assert log.receiver.state.get(name) == expected.get(name)
        finally:
            log.fake.close()

    claim()
