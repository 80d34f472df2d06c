"""``eventlog requeue`` of rows that were applied, during transactions that are open
(spec/event-log.md 11).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
import sqlalchemy as sa
from resyncs import Receiver, rows
from shared import Run, execute

from eventlog.sql.port import open_writers

_LETTERS = "record_id, status"


@pytest.fixture
def logged(run: Run, hr: sa.Engine, publish: Callable[[], Receiver]) -> list[tuple[object, ...]]:
    """Users 1 and 2, each renamed, and published."""
    Path("eventlog.toml").write_text(
        "[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n"
    )
    assert run("triggers", "apply")[0] == 0
    execute(hr, "INSERT INTO hr.usr VALUES (1, 'a'), (2, 'a')")
    publish()
    execute(hr, "UPDATE hr.usr SET fname = 'b'")
    publish()
    return rows(hr, _LETTERS)


def begin(pool: Executor, run: Run, hr: sa.Engine) -> Future[tuple[int, str, str]]:
    """Put both renamed rows back, and return when their copies are written, and not committed."""
    drawn = _last_number(hr)
    requeue = pool.submit(run, "requeue", "--status", "S", "--ids", "3-4")
    while _last_number(hr) < drawn + 2:
        assert not requeue.done()
        sleep(0.01)
    return requeue


def _last_number(hr: sa.Engine) -> int:
    with hr.connect() as conn:
        numbers = "SELECT last_value FROM hr.eventlog_record_id_seq"
        return int(conn.exec_driver_sql(numbers).scalar_one())


def test_a_copy_does_not_come_after_a_change_that_had_not_committed(
    run: Run, hr: sa.Engine, publish: Callable[[], Receiver], logged: list[tuple[object, ...]]
) -> None:
    with hr.connect() as application, ThreadPoolExecutor(1) as pool:
        application.exec_driver_sql("UPDATE hr.usr SET fname = 'c' WHERE idu = 1")
        requeue = begin(pool, run, hr)
        application.commit()
        code, out, _ = requeue.result()
    assert (code, "1 logged again" in out) == (1, True)
    assert [letter for _, letter in rows(hr, _LETTERS)[len(logged) :]] == ["N", "N"]
    assert publish().objects["idu=1"] == {"fname": {"c"}}


def test_a_copy_does_not_come_after_a_change_under_the_new_name_of_a_renamed_table(
    run: Run, hr: sa.Engine, publish: Callable[[], Receiver], logged: list[tuple[object, ...]]
) -> None:
    execute(hr, "ALTER TABLE hr.usr RENAME TO member")
    Path("eventlog.toml").write_text(
        "[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'member'\nrenamed_from = ['usr']\n"
    )
    assert run("triggers", "apply")[0] == 0
    with hr.connect() as application, ThreadPoolExecutor(1) as pool:
        application.exec_driver_sql("UPDATE hr.member SET fname = 'c' WHERE idu = 1")
        requeue = begin(pool, run, hr)
        application.commit()
        code, out, _ = requeue.result()
    assert (code, "1 logged again" in out) == (1, True)
    assert publish().objects["idu=1"] == {"fname": {"c"}}


def test_a_change_of_another_object_is_awaited_and_outdates_nothing(
    run: Run, hr: sa.Engine, logged: list[tuple[object, ...]]
) -> None:
    with hr.connect() as application, ThreadPoolExecutor(1) as pool:
        application.exec_driver_sql("INSERT INTO hr.usr VALUES (3, 'c')")
        requeue = begin(pool, run, hr)
        application.commit()
        code, out, _ = requeue.result()
    assert (code, "2 logged again" in out) == (0, True)


def test_a_copy_does_not_come_after_a_change_that_was_published_while_it_waited(
    run: Run, hr: sa.Engine, publish: Callable[[], Receiver], logged: list[tuple[object, ...]]
) -> None:
    with hr.connect() as application, ThreadPoolExecutor(1) as pool:
        application.exec_driver_sql("INSERT INTO hr.usr VALUES (3, 'c')")
        requeue = begin(pool, run, hr)
        execute(hr, "UPDATE hr.usr SET fname = 'c' WHERE idu = 1")
        assert publish().objects["idu=1"] == {"fname": {"c"}}
        application.commit()
        code, out, _ = requeue.result()
    assert (code, "1 logged again" in out) == (1, True)
    assert publish().objects["idu=1"] == {"fname": {"c"}}


def test_a_transaction_that_does_not_end_stops_it_and_nothing_is_copied(
    run: Run, hr: sa.Engine, logged: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_writers, "PATIENCE", 0.1)
    with hr.connect() as application:
        application.exec_driver_sql("UPDATE hr.usr SET fname = 'c' WHERE idu = 1")
        code, _, err = run("requeue", "--status", "S", "--ids", "3-4")
        assert (code, "has been open for more than 0.1 s, and its rows may come" in err) == (
            1,
            True,
        )
        assert run("requeue", "--status", "S", "--ids", "3-4", "--force")[0] == 0
    assert len(rows(hr)) == len(logged) + 2


def test_rows_in_many_ranges_go_all_the_same(run: Run, hr: sa.Engine) -> None:
    Path("eventlog.toml").write_text("[[watch]]\ntable = 'usr'\n")
    execute(
        hr,
        "INSERT INTO hr.eventlog (record_id, status, event_type, table_name, table_key) "
        "SELECT 2 * n, 'S', 6, 'usr', 'idu=' || n % 7 FROM generate_series(1, 1200) n",
        "SELECT setval('hr.eventlog_record_id_seq', 2400)",
    )
    code, out, _ = run("requeue", "--status", "S")
    assert (code, "1200 logged again" in out) == (0, True)
