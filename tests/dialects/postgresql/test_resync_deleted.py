"""``eventlog resync --deletes``: what is gone from the tables and no trigger saw go
(spec/event-log.md 11).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
import sqlalchemy as sa
from resyncs import Receiver, keys, positions, rows, users
from shared import Run, execute

from eventlog.sql.port import open_writers


class TestDeleted:
    """What no trigger saw go: the log knows it, the table has it no more (spec/event-log.md 11)."""

    @pytest.fixture
    def lost(self, run: Run, hr: sa.Engine) -> None:
        """Six users that the log knows; 1 is deleted, and 2, 4 and 5 are gone without a word."""
        Path("eventlog.toml").write_text(
            "[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n"
        )
        assert run("triggers", "apply")[0] == 0
        users(hr, 6)
        execute(hr, "DELETE FROM hr.usr WHERE idu = 1")
        unseen(hr, "DELETE FROM hr.usr WHERE idu IN (2, 4, 5)")

    @pytest.mark.usefixtures("lost")
    def test_what_is_gone_is_deleted_at_the_receiver_and_nothing_else(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        assert set(publish().objects) == {f"idu={n}" for n in range(2, 7)}
        before = len(keys(hr))
        code, out, err = run("resync", "usr", "--deletes", "--batch", "2")
        assert (code, out.startswith("3 rows of type 4 written for usr in ")) == (0, True)
        assert "5 keys checked, from rows of the log since 20" in err
        written = rows(hr, "event_type, table_name, table_key, column_name, perpetrator")[before:]
        assert written == [(4, "usr", f"idu={n}", None, None) for n in (2, 4, 5)]
        assert set(publish().objects) == {"idu=3", "idu=6"}
        # What was logged as deleted by now is known to be gone.
        code, out, _ = run("resync", "usr", "--deletes", "--json")
        assert (code, json.loads(out)["rows"], json.loads(out)["compared"]) == (0, 0, 2)

    @pytest.mark.usefixtures("lost")
    @pytest.mark.parametrize(("status", "told"), [("E", ["idu=1"]), ("F", ["idu=1"]), ("S", [])])
    def test_a_delete_that_the_receiver_has_not_received_is_sent_again(
        self, run: Run, hr: sa.Engine, status: str, told: list[str]
    ) -> None:
        execute(hr, f"UPDATE hr.eventlog SET status = '{status}' WHERE event_type = 4")
        before = len(keys(hr))
        assert run("resync", "usr", "--deletes")[0] == 0
        assert sorted(keys(hr)[before:]) == [*told, "idu=2", "idu=4", "idu=5"]

    @pytest.mark.usefixtures("lost")
    def test_an_object_whose_last_row_has_no_type_is_compared_too(
        self, run: Run, hr: sa.Engine
    ) -> None:
        # A foreign log may have such a row; it becomes E.
        execute(
            hr,
            "ALTER TABLE hr.eventlog ALTER event_type DROP NOT NULL",
            "INSERT INTO hr.eventlog (table_name, table_key) VALUES ('usr', 'idu=2')",
        )
        code, out, _ = run("resync", "usr", "--deletes", "--dry-run", "--json")
        assert (code, json.loads(out)["rows"], json.loads(out)["compared"]) == (0, 3, 5)

    @pytest.mark.usefixtures("lost")
    def test_a_dry_run_counts_them(self, run: Run, hr: sa.Engine) -> None:
        before = keys(hr)
        code, out, _ = run("resync", "usr", "--deletes", "--dry-run", "--batch", "2")
        assert (code, out.startswith("3 rows of type 4 would be written for usr")) == (0, True)
        assert (keys(hr), positions(hr)) == (before, [])

    @pytest.mark.usefixtures("lost")
    def test_what_was_stopped_goes_on_and_leaves_nothing_out(self, run: Run, hr: sa.Engine) -> None:
        before = len(keys(hr))
        execute(
            hr,
            "ALTER TABLE hr.eventlog ADD CHECK (event_type <> 4 OR table_key <> 'idu=4') NOT VALID",
        )
        assert run("resync", "usr", "--deletes", "--batch", "1")[0] == 1
        assert keys(hr)[before:] == ["idu=2"]
        ((_, position, written),) = positions(hr)
        execute(hr, "ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_check")
        code, _, err = run("resync", "usr", "--deletes")
        assert code == 2
        assert "a resync of usr (deleted objects, as type 4) is not finished: 1 row written" in err
        code, out, _ = run("resync", "usr", "--deletes", "--resume", "--json")
        assert (code, written, json.loads(out)["rows"], json.loads(out)["resumed_at"]) == (
            0,
            1,
            2,
            position,
        )
        assert keys(hr)[before:] == ["idu=2", "idu=4", "idu=5"]

    def test_without_history_it_reports_that_nothing_can_be_determined(
        self, run: Run, hr: sa.Engine
    ) -> None:
        users(hr, 2)
        code, out, err = run("resync", "usr", "--deletes")
        assert (code, out.startswith("0 rows of type 4 written")) == (0, True)
        assert "the log has no rows of usr, so it does not show which objects were deleted" in err
        code, out, _ = run("resync", "usr", "--deletes", "--json")
        assert (code, json.loads(out)["known_since"]) == (0, None)

    def test_keys_of_any_spelling_and_of_no_class_in_a_log_that_others_fill(
        self, run: Run, hr: sa.Engine
    ) -> None:
        users(hr, 2)
        logged = [
            ("usr", "idu=1"),
            ("USR", "idu=02"),
            ("usr", 'idu="3"'),
            ("hr.usr", "idu=4"),
            ("usr", "nonsense"),
        ]
        logged += [("usr_phone", "idu=5"), ("desk", "branch=x+num=1"), ("nobody", "idu=6")]
        for name, key in logged:
            row = f"6, '{name}', '{key}'"
            execute(
                hr, f"INSERT INTO hr.eventlog (event_type, table_name, table_key) VALUES ({row})"
            )
        code, _, err = run("resync", "usr", "--deletes")
        assert (code, "the log, row 5: " in err) == (1, True)
        assert keys(hr)[len(logged) :] == ["idu=3", "idu=4", "idu=5"]

    @pytest.mark.usefixtures("lost")
    def test_an_object_that_comes_back_meanwhile_is_not_deleted(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        before = len(keys(hr))
        with hr.connect() as application, ThreadPoolExecutor(1) as pool:
            # Logged by now, and seen by nobody yet.
            application.exec_driver_sql("INSERT INTO hr.usr VALUES (4, 'back')")
            resync = pool.submit(run, "resync", "usr", "--deletes")
            sleep(0.5)
            assert not resync.done()
            application.commit()
            code, out, _ = resync.result()
        assert (code, out.startswith("2 rows of type 4")) == (0, True)
        assert keys(hr)[before:] == ["idu=4", "idu=2", "idu=5"]
        assert set(publish().objects) == {"idu=3", "idu=4", "idu=6"}

    @pytest.mark.usefixtures("lost")
    def test_a_writer_that_does_not_end_stops_it_with_its_position(
        self, run: Run, hr: sa.Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(open_writers, "PATIENCE", 0.1)
        before = keys(hr)
        with hr.connect() as application:
            application.exec_driver_sql("INSERT INTO hr.usr VALUES (4, 'back')")
            code, _, err = run("resync", "usr", "--deletes")
        assert code == 1
        assert "has been open for more than 0.1 s, and the objects that it inserts must not" in err
        assert keys(hr) == before
        assert run("resync", "usr", "--deletes", "--resume")[0] == 0
        assert keys(hr)[len(before) :] == ["idu=2", "idu=4", "idu=5"]

    @pytest.mark.usefixtures("lost")
    def test_where_commits_of_others_are_not_seen_what_is_there_is_sent_again(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        name = hr.url.database
        execute(hr, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        before = len(keys(hr))
        assert run("resync", "usr", "--deletes")[0] == 0
        assert rows(hr, "event_type, table_key")[before:] == [
            *((4, f"idu={n}") for n in (2, 4, 5)),
            *((5, f"idu={n}") for n in (2, 4, 5)),
        ]
        execute(hr, "INSERT INTO hr.usr VALUES (4, 'back')")
        assert set(publish().objects) == {"idu=3", "idu=4", "idu=6"}


def unseen(hr: sa.Engine, statement: str) -> None:
    """A change that no trigger sees."""
    execute(
        hr,
        f"SET session_replication_role = replica; {statement}; SET session_replication_role = "
        "origin",
    )
