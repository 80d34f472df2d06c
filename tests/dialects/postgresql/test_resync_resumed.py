"""A resync that was stopped, and one that runs while the tables change (spec/event-log.md 11)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
import sqlalchemy as sa
from resyncs import LOG, Receiver, class_named, keys, others, positions, rows, stopped, users
from shared import Run, execute, opened_log

from eventlog.model import EventType
from eventlog.sql import resync as batches
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.log_operations import Selection


class TestResume:
    # At most 2000 rows a second, so that there are seconds between what is waited for and the end.
    @pytest.mark.parametrize(
        ("size", "rate", "wait_for"),
        [
            ("1", "4", 2),
            ("7", "2000", 70),
            pytest.param("1", "2000", 40, marks=pytest.mark.night),
        ],
    )
    def test_after_kill_9_every_object_is_written_exactly_once(
        self, run: Run, hr: sa.Engine, size: str, rate: str, wait_for: int
    ) -> None:
        users(hr, 3000)
        command = ["resync", "usr", "--batch", size, "--max-rows-per-second", rate]
        program = [sys.executable, "-c", "from eventlog.cli import main; main()", *command]
        with subprocess.Popen(program, stderr=subprocess.PIPE) as process:
            try:
                while len(keys(hr)) < wait_for:
                    assert process.poll() is None, process.stderr.read() if process.stderr else ""
            finally:
                process.kill()
        while others(hr):  # the server may still be at the last thing that it was sent
            sleep(0.01)
        written = len(keys(hr))
        assert wait_for <= written < 3000
        ((_, position, count),) = positions(hr)
        assert (position, count) == (f"idu={written}", written)
        code, out, _ = run("resync", "usr", "--resume", "--json")
        report = json.loads(out)
        assert (code, report["rows"], report["resumed_at"]) == (0, 3000 - written, f"idu={written}")
        assert keys(hr) == [f"idu={n}" for n in range(1, 3001)]
        assert positions(hr) == []

    def test_a_batch_that_fails_leaves_neither_rows_nor_position(
        self, run: Run, hr: sa.Engine
    ) -> None:
        users(hr, 6)
        execute(hr, "ALTER TABLE hr.eventlog ADD CHECK (table_key <> 'idu=4')")
        code, _, err = run("resync", "usr", "--batch", "2")
        assert code == 1
        assert (
            "stopped after 2 rows; run the same command with --resume to continue from there\n"
            in err
        )
        assert keys(hr) == ["idu=1", "idu=2"]
        assert positions(hr) == [("usr", "idu=2", 2)]
        execute(hr, "ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_table_key_check")
        assert run("resync", "usr", "--batch", "2", "--resume")[0] == 0
        assert keys(hr) == [f"idu={n}" for n in range(1, 7)]

    def test_an_unfinished_one_is_neither_forgotten_nor_begun_again_unasked(
        self, run: Run, hr: sa.Engine
    ) -> None:
        users(hr, 5)
        stopped(hr, "usr", after=2)
        code, _, err = run("resync", "usr")
        assert (code, err.count("\n")) == (2, 1)
        assert (
            "2 rows written, up to idu=2; continue it with --resume, or begin again with --restart"
            in err
        )
        assert run("resync", "usr", "--as-update", "--where", "idu = 5")[0] == 0
        assert run("resync", "usr", "--restart")[0] == 0
        assert keys(hr) == ["idu=1", "idu=2", "idu=5", *(f"idu={n}" for n in range(1, 6))]
        assert positions(hr) == []

    def test_without_one_there_is_nothing_to_resume(self, run: Run, hr: sa.Engine) -> None:
        code, _, err = run("resync", "usr", "--resume")
        assert (code, "there is no unfinished resync of usr: remove --resume" in err) == (
            2,
            True,
        )
        users(hr, 5)
        stopped(hr, "usr", after=1)
        code, _, err = run("resync", "usr", "--where", "idu > 1", "--resume")
        assert (code, err.count("\n")) == (2, 1)
        assert "there is one for whole class, as type 5 (1 row, up to idu=1)" in err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--resume", "--restart"),
            ("--key", "idu=1", "--resume"),
            ("--key", "idu=1", "--where", "true"),
            ("--where", "true", "--keys", "keys"),
            ("--deletes", "--where", "true"),
            ("--deletes", "--as-update"),
            ("--max-rows-per-second", "0"),
            ("--batch", "0"),
        ],
    )
    @pytest.mark.usefixtures("hr")
    def test_what_contradicts_itself_is_refused(self, run: Run, arguments: tuple[str, ...]) -> None:
        code, out, err = run("resync", "usr", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)

    def test_two_processes_on_one_share_the_work(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 7)
        cls = class_named(hr, "usr")
        selection = Selection("usr", EventType.INSERT_ROW_QUERY_BACK)
        first, second = connect(hr.url), connect(hr.url)
        with first.connect() as one, second.connect() as two:
            batches.begin(opened_log(one, LOG), selection, resume=False, restart=False)
            walk = DIALECT.open(one).log(LOG).start_walk("hr", cls, selection)
            one.commit()
            runs = [
                batches.run(
                    opened_log(conn, LOG),
                    selection,
                    lambda conn, position: (
                        DIALECT.open(conn).log(walk.log).write_batch(walk, position, 2)
                    ),
                )
                for conn in (one, two)
            ]
            done = [next(runs[turn]).rows for turn in (0, 1, 1, 0)]
            assert list(runs[1]) == []
        first.dispose()
        second.dispose()
        assert done == [2, 2, 2, 1]
        assert keys(hr) == [f"idu={n}" for n in range(1, 8)]


class TestConcurrentChanges:
    def test_deletes_inserts_and_new_keys_while_it_runs_leave_the_receiver_with_what_is_there(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        users(hr, 40)
        Path("eventlog.toml").write_text(
            "[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n"
        )
        assert run("triggers", "apply")[0] == 0
        cls = class_named(hr, "usr")
        selection = Selection("usr", EventType.INSERT_ROW_QUERY_BACK)
        engine = connect(hr.url)
        with engine.connect() as conn, hr.connect() as pending:
            batches.begin(opened_log(conn, LOG), selection, resume=False, restart=False)
            walk = DIALECT.open(conn).log(LOG).start_walk("hr", cls, selection)
            conn.commit()
            for number, _ in enumerate(
                batches.run(
                    opened_log(conn, LOG),
                    selection,
                    lambda conn, position: (
                        DIALECT.open(conn).log(walk.log).write_batch(walk, position, 10)
                    ),
                )
            ):
                if number == 0:
                    # Behind the position and before it; one that is published in between, and one
                    # that comes back.
                    execute(hr, "DELETE FROM hr.usr WHERE idu IN (3, 4, 25)")
                    execute(
                        hr, "INSERT INTO hr.usr VALUES (4, 'again', NULL), (0, 'new', 'before')"
                    )
                    publish()
                if number == 1:
                    execute(hr, "UPDATE hr.usr SET idu = idu + 100 WHERE idu IN (7, 38)")
                    execute(hr, "UPDATE hr.usr SET idu = -39 WHERE idu = 39")
                    # Not committed while its object is written and published.
                    pending.exec_driver_sql("DELETE FROM hr.usr WHERE idu = 31")
                    pending.exec_driver_sql("UPDATE hr.usr SET fname = 'late' WHERE idu = 32")
                if number == 3:
                    publish()
                    pending.commit()
        engine.dispose()
        receiver = publish()
        with hr.connect() as conn:
            there = {
                f"idu={row.idu}": {
                    name: {value}
                    for name, value in (("fname", row.fname), ("lname", row.lname))
                    if value is not None
                }
                for row in conn.exec_driver_sql("SELECT * FROM hr.usr")
            }
        held = {
            key: {name: value for name, value in values.items() if value}
            for key, values in receiver.objects.items()
        }
        assert held == there
        assert rows(hr, "DISTINCT status, 1 AS record_id") == [("S", 1)]
