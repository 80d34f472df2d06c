"""Values that are too large to be logged (spec/triggers.md 6.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trigger_log import Watched, run

from eventlog.sql.triggers.watch import Capture, WatchedTable

TABLE = "CREATE TABLE t (id integer PRIMARY KEY, name text, photo bytea)"
SMALL, LARGE = "decode(repeat('00', 3), 'hex')", "decode(repeat('00', 11), 'hex')"


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
def test_a_row_with_a_value_that_is_too_large_is_read_back(
    empty: Watched, trigger_level: Capture
) -> None:
    run(empty.conn, TABLE)
    empty = replace(empty, trigger_level=trigger_level)
    empty.watch(WatchedTable("t", max_binary_bytes=10))
    assert empty.logged(f"INSERT INTO t VALUES (1, 'a', {SMALL})") == [
        (1, "id=1", "name", None, "a"),
        (1, "id=1", "photo", None, "AAAA"),
    ]
    assert empty.logged(f"INSERT INTO t VALUES (2, 'a', {LARGE})") == [
        (5, "id=2", None, None, None)
    ]
    assert empty.logged("UPDATE t SET name = 'b' WHERE id = 2") == [(2, "id=2", "name", "a", "b")]
    assert empty.logged(f"UPDATE t SET photo = {LARGE}, name = 'c' WHERE id = 1") == [
        (6, "id=1", None, None, None)
    ]
    assert empty.logged("UPDATE t SET photo = NULL WHERE id = 1") == [(6, "id=1", None, None, None)]
    assert empty.logged("UPDATE t SET id = 3 WHERE id = 2") == [
        (4, "id=2", None, None, None),
        (5, "id=3", None, None, None),
    ]
    assert empty.logged("DELETE FROM t WHERE id = 3") == [(4, "id=3", None, None, None)]


@pytest.mark.night
@pytest.mark.parametrize("trigger_level", ["row", "statement"])
def test_a_write_of_hundreds_of_mebibytes_does_not_fail(
    empty: Watched, trigger_level: Capture
) -> None:
    run(empty.conn, TABLE, "ALTER TABLE t ALTER photo SET STORAGE EXTERNAL")
    empty = replace(empty, trigger_level=trigger_level)
    empty.watch(WatchedTable("t"))
    value = f"convert_to(repeat('x', {400 * 1024 * 1024}), 'UTF8')"
    assert empty.logged(f"INSERT INTO t VALUES (1, 'a', {value})") == [
        (5, "id=1", None, None, None)
    ]
    assert empty.logged("UPDATE t SET photo = photo || '\\x00'") == [(6, "id=1", None, None, None)]
