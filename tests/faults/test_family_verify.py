"""``eventlog verify`` on MariaDB and MySQL: tables of another database that a publisher and a
consumer feed, while transactions commit late, are prepared, or lose their session (spec/verify.md).
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import family_targets
import family_writers
import mysql_servers
import pytest
import sqlalchemy as sa
import verified
from family_writers import Writers, filled
from publishers import install
from shared import Unhesitating, execute, fetch, url_of
from verified import content, publish_once, published

from eventlog import cli
from eventlog.config.load import load
from eventlog.core import clock
from eventlog.core.catalog import ObjectClass
from eventlog.errors import ConfigError, DatabaseError
from eventlog.exit_codes import ExitCode
from eventlog.sql.port.log_operations import KeyValues, RangeReader
from eventlog.verify import VerifyOptions, VerifyReport, verification, verify
from eventlog.verify.session import repair
from eventlog.verify.targets.table import TableTarget

AT_ONCE = VerifyOptions(wait=0)
QUIET = "INSERT INTO usr VALUES (41, 'a', 1), (42, 'b', 2), (43, NULL, NULL)"
"""Objects that the writers leave alone; they insert others after these."""
SURPLUS = 2_000_000_000
"""A key that no writer gives."""
PLANTED = (
    "UPDATE usr SET name = 'wrong' WHERE id = 41",
    "DELETE FROM usr WHERE id = 42",
    f"INSERT INTO usr VALUES ({SURPLUS}, 'surplus', 3)",
)
FOUND = [("missing", "id=42"), ("surplus", f"id={SURPLUS}"), ("value", "id=41")]
INSTRUMENT = (
    "UPDATE performance_schema.setup_instruments SET enabled = '{}' "
    "WHERE name = 'wait/lock/metadata/sql/mdl'"
)


@pytest.fixture(autouse=True)
def _unhesitating() -> Iterator[None]:
    with clock.simulated(Unhesitating()):
        yield


@pytest.fixture
def source(family_server: mysql_servers.Server, tmp_path: Path) -> Iterator[sa.Engine]:
    """The table ``usr``, its log and its triggers."""
    with filled(family_server, tmp_path) as root:
        yield root


@contextmanager
def copied(source: sa.Engine, name: str) -> Iterator[sa.Engine]:
    """The same table without objects in another database."""
    copy = sa.create_engine(source.url.set(database=name), poolclass=sa.NullPool)
    execute(source, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    try:
        execute(copy, family_writers.TABLE)
        yield copy
    finally:
        execute(source, f"DROP DATABASE {name}")


@pytest.fixture
def copy(source: sa.Engine) -> Iterator[sa.Engine]:
    with copied(source, "copy") as made:
        yield made


def document(source: sa.Engine, consumer: str = "", **publisher: Any) -> dict[str, Any]:
    made = {**verified.document(source, **publisher), "watch": family_writers.WATCHES}
    if consumer:
        made["source"] = {"type": "eventlog", "consumer": consumer, "start_from": "earliest"}
    return made


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


def follow(config: dict[str, Any], copy: sa.Engine) -> None:
    """Publish what waits."""
    publish_once(config, family_targets.Table(copy))


# --- while others write ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compared",
    [
        ((0, 20), (1, 500)),
        pytest.param(((0, 20), (0, 500), (1, 50)), marks=pytest.mark.night),
    ],
)
def test_targets_that_follow_are_equal_and_planted_differences_are_found_and_repaired(
    source: sa.Engine,
    family_server: mysql_servers.Server,
    compared: Sequence[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "REST", 0.1)  # between two rounds
    execute(source, QUIET)
    own, of_consumer = document(source), document(source, "search")
    writers = Writers(family_server, 1_000_000, rest=0.05)
    with (
        copied(source, "copy") as copy,
        copied(source, "search") as search,
        published(own, family_targets.Table(copy)),
        published(of_consumer, family_targets.Table(search)),
    ):
        while fetch(source, "SELECT COUNT(*) FROM eventlog_consumer") == [(0,)]:
            time.sleep(0.1)
        targets = [(own, copy), (of_consumer, search)]

        def compare(number: int, size: int = 500) -> VerifyReport:
            config, target = targets[number]
            options = VerifyOptions(wait=60, batch=size)
            return verify(config, url_of(target), environ={}, options=options)

        writers.start()
        try:
            for number, size in compared:
                report = compare(number, size)
                assert (found(report), report.unconfirmed) == ([], 0)
                assert report.classes["usr"].equal > family_writers.KEYS / 2
            for _, target in targets:
                execute(target, *PLANTED)
            reports = [compare(0), compare(1)]
            assert [found(report) for report in reports] == [FOUND, FOUND]
            assert repair(load(own, {}), reports[0], surplus=True) == len(FOUND)
        finally:
            writers.stop.set()
            writers.join()
        assert not writers.errors
        family_writers.end_prepared(family_server)
        for number, (_, target) in enumerate(targets):
            report = compare(number)
            assert (report.result, found(report)) == ("equal", [])
            assert content(source, table="usr") == content(target, table="usr")
    assert fetch(source, "SELECT name FROM eventlog_consumer") == [("search",)]


# --- transactions that are open or prepared -------------------------------------------------------


def test_an_open_transaction_leaves_no_object_in_motion_and_its_end_does(
    source: sa.Engine, copy: sa.Engine, family_server: mysql_servers.Server
) -> None:
    config = document(source)
    update = "UPDATE usr SET name = 'late' WHERE id = {}"
    with family_writers.closed(family_writers.session(family_server)) as late:
        family_writers.run(late, "XA START 'x'", update.format(3), "XA END 'x'", "XA PREPARE 'x'")
    with family_writers.closed(family_writers.session(family_server)) as late:
        family_writers.run(late, "BEGIN", update.format(4))
        execute(source, update.format(5))
        follow(config, copy)
        report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
        assert (report.result, report.classes["usr"].equal) == ("equal", family_writers.KEYS)
        family_writers.run(late, "COMMIT")
        report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
        assert [one.key for one in report.in_motion] == ["id=4"]
    family_writers.end_prepared(family_server)
    report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
    assert [one.key for one in report.in_motion] == ["id=3", "id=4"]
    assert [one.age is not None for one in report.in_motion] == [True, True]
    follow(config, copy)
    assert verify(config, url_of(copy), environ={}, options=AT_ONCE).result == "equal"


# --- values ---------------------------------------------------------------------------------------

TYPES = {
    "a_tiny": ("tinyint unsigned", "200", "201"),
    "a_big": ("bigint", "-9000000000000000001", "-9000000000000000002"),
    "a_decimal": ("decimal(20, 5)", "12345678901234.50000", "12345678901234.50001"),
    "a_float": ("float", "0.1", "0.2"),
    "a_double": ("double", "1e100", "1.0000000000000002e100"),
    "a_boolean": ("bit(1)", "b'1'", "b'0'"),
    "some_bits": ("bit(12)", "b'101'", "b'100'"),
    "a_char": ("char(5)", "'a'", "'b'"),
    "a_text": ("text", "'gr\u00fc\u00df \U0001f600 '", "'gr\u00fc\u00df \U0001f600'"),
    "a_json": ("json", """'{"a": 1, "b": [2]}'""", """'{"a": 1, "b": [3]}'"""),
    "an_enum": ("enum('x', 'y')", "'x'", "'y'"),
    "a_set": ("set('x', 'y')", "'x,y'", "'x'"),
    "a_binary": ("binary(4)", "x'0001'", "x'0002'"),
    "a_blob": ("blob", "x'00ff'", "x'00fe'"),
    "a_date": ("date", "'2026-02-28'", "'2026-03-01'"),
    "a_time": ("time(3)", "'12:30:00.5'", "'12:30:00.501'"),
    "a_datetime": ("datetime(6)", "'2026-02-28 12:30:00.5'", "'2026-02-28 12:30:00.500001'"),
    "a_timestamp": ("timestamp(3) NULL", "'2026-02-28 12:30:00'", "'2026-02-28 12:30:00.001'"),
    "a_year": ("year", "2026", "2027"),
    "a_null": ("varchar(5)", "NULL", "''"),
}
"""By column the type, a value, and another one."""


@pytest.mark.parametrize(
    ("key_type", "parts"),
    [("varchar(20)", ("'a'", "'b, c'", "'n'")), ("bigint", ("-1", "7", "8"))],
    ids=["by keys", "by ranges of keys"],
)
def test_a_value_of_each_type_is_equal_or_different_by_its_column(
    family_server: mysql_servers.Server, key_type: str, parts: Sequence[str]
) -> None:
    columns = ", ".join(f"{name} {declared}" for name, (declared, _, _) in TYPES.items())
    table = f"CREATE TABLE typed (b {key_type}, a int, {columns}, PRIMARY KEY (b, a))"
    values = ", ".join(value for _, value, _ in TYPES.values())
    with family_server.database() as url:
        source = sa.create_engine(
            family_server.url.set(database=url.database), poolclass=sa.NullPool
        )
        execute(source, table)
        config = {**verified.document(source), "watch": [{"table": "typed"}]}
        install(load(config, {}))
        keys = [f"{part}, {number}" for number, part in enumerate(parts, 1)]
        for key in keys[:2]:
            execute(source, f"INSERT INTO typed VALUES ({key}, {values})")
        execute(source, f"INSERT INTO typed VALUES ({keys[2]}{', NULL' * len(TYPES)})")
        execute(source, "UPDATE eventlog SET status = 'S'")
        with copied(source, "copy") as copy:
            execute(copy, table, "INSERT INTO typed SELECT * FROM app.typed")
            report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
            assert (report.result, report.classes["typed"].equal) == ("equal", 3)
            for name, (_, _, other) in TYPES.items():
                execute(copy, f"UPDATE typed SET {name} = {other} WHERE a = 2")
            (one,) = verify(config, url_of(copy), environ={}, options=AT_ONCE).differences
            assert [column.column for column in one.columns] == [*TYPES]


PARTS = "CREATE TABLE part (area int, code int unsigned, name varchar(9), PRIMARY KEY (area, code))"


def test_reading_by_ranges_finds_what_reading_by_keys_finds(
    family_server: mysql_servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with family_server.database() as url:
        source = sa.create_engine(
            family_server.url.set(database=url.database), poolclass=sa.NullPool
        )
        execute(source, PARTS)
        config = {**verified.document(source), "watch": [{"table": "part"}]}
        install(load(config, {}))
        objects = [f"({n % 4 - 1}, {n + 4_294_967_000}, 'p{n}')" for n in range(40)]
        execute(source, f"INSERT INTO part VALUES {', '.join(objects)}")
        execute(source, "UPDATE eventlog SET status = 'S'")
        execute(source, "UPDATE part SET name = 'waits' WHERE code = 4294967010")
        with copied(source, "copy") as copy:
            execute(
                copy,
                PARTS,
                "INSERT INTO part SELECT * FROM app.part WHERE area <> 1 AND code > 4294967007",
                "INSERT INTO part VALUES (-9, 1, NULL), (1, 2, NULL), (9, 3, NULL)",
                "UPDATE part SET name = NULL WHERE area = 2 AND code > 4294967035",
                "UPDATE part SET name = CONCAT(name, ' ') WHERE area = 0",
            )
            told = []
            for size, is_ordered in itertools.product((1, 7, 1000), (True, False)):
                options = VerifyOptions(wait=0, batch=size)
                with monkeypatch.context() as patched:
                    if not is_ordered:
                        patched.setattr(TableTarget, "range_reader", lambda self, cls: None)
                    report = verify(config, url_of(copy), environ={}, options=options)
                told.append(
                    (
                        found(report),
                        sorted((*one.name, str(one.columns)) for one in report.differences),
                        [(one.key, one.record_ids) for one in report.in_motion],
                        report.classes["part"].as_data(),
                    )
                )
    assert told == [told[0]] * len(told)
    assert {kind for kind, _ in told[0][0]} == {"value", "missing", "surplus"}
    assert len(told[0][2]) == 1
    assert told[0][3]["equal"] == 15


# --- a server that hides its writers --------------------------------------------------------------


@pytest.fixture
def hidden(source: sa.Engine) -> Iterator[None]:
    execute(source, INSTRUMENT.format("NO"))
    yield
    execute(source, INSTRUMENT.format("YES"))


def test_a_server_that_hides_its_writers_is_verified_if_no_row_is_deleted(
    source: sa.Engine, copy: sa.Engine, hidden: None
) -> None:
    config = document(source)
    with source.connect() as conn:  # whose numbers nobody gets
        for _ in range(3):
            conn.exec_driver_sql("UPDATE usr SET num = num + 1")
            conn.rollback()
    execute(source, "UPDATE usr SET num = 7 WHERE id = 1")
    follow(config, copy)
    execute(copy, "UPDATE usr SET num = 8 WHERE id = 2")
    report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
    assert found(report) == [("value", "id=2")]
    assert report.classes["usr"].equal == family_writers.KEYS - 1
    with pytest.raises(ConfigError, match="delete_from_log is true"):
        verify(document(source, delete_from_log=True), url_of(copy), environ={})


def test_a_purge_ends_the_verification_if_no_consumer_can_keep_the_rows(
    source: sa.Engine,
    copy: sa.Engine,
    hidden: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, real = document(source), TableTarget.range_reader
    command = ("--quiet", "--config", str(tmp_path / "eventlog.toml"), "purge")
    follow(config, copy)

    def range_reader(target: TableTarget, cls: ObjectClass) -> RangeReader:
        reader = real(target, cls)
        assert reader is not None

        def read_late(
            behind: KeyValues | None, last: KeyValues | None, limit: int
        ) -> list[tuple[Any, ...]]:
            execute(source, "INSERT INTO usr (name) VALUES ('new')")
            follow(config, copy)
            execute(source, "UPDATE eventlog SET event_time = event_time - INTERVAL 1 DAY")
            assert cli.run([*command, "--older-than", "1h", "--yes"]) == 0
            return reader.read(behind, last, limit)

        return reader._replace(read=read_late)

    monkeypatch.setattr(TableTarget, "range_reader", range_reader)
    with pytest.raises(DatabaseError, match="Verify again while no purge runs"):
        verify(config, url_of(copy), environ={}, options=AT_ONCE)


# --- commands and publishers that are killed ------------------------------------------------------


@contextmanager
def killed_often(command: Sequence[str], chance: random.Random) -> Iterator[None]:
    """A process that is killed and started again at random moments."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with subprocess.Popen(command) as process:
                stop.wait(10 + chance.random() * 20)
                process.kill()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.night
@pytest.mark.timeout(3_600)
def test_repairs_that_are_killed_make_no_false_alarm_and_end_with_an_equal_target(
    source: sa.Engine, copy: sa.Engine, family_server: mysql_servers.Server, tmp_path: Path
) -> None:
    chance, kills = random.Random(5), 0
    config, report = document(source), tmp_path / "report.json"
    publisher = [sys.executable, family_targets.__file__, json.dumps(config), url_of(copy)]
    command = [sys.executable, "-m", "eventlog", "--quiet"]
    command += [
        "--config",
        str(tmp_path / "eventlog.toml"),
        "--set",
        "publisher.allow_loopback=yes",
    ]
    command += ["verify", "--target", url_of(copy), "--report", str(report), "--batch", "3"]
    command += ["--wait", "120", "--repair=surplus"]
    execute(source, QUIET)
    follow(config, copy)
    writers = Writers(family_server, 1_000_000, rest=0.2)
    with killed_often(publisher, chance):
        writers.start()
        try:
            for number in range(6):
                key = SURPLUS + number
                planted = {("surplus", f"id={key}"), ("missing", "id=42"), ("value", "id=41")}
                execute(
                    copy,
                    "DELETE FROM usr WHERE id = 42",
                    f"UPDATE usr SET name = 'wrong {number}' WHERE id = 41",
                    f"INSERT INTO usr VALUES ({key}, 'surplus', 3)",
                )
                for left in (4, 3, 2, 1, 0):
                    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                        if left:
                            with suppress(subprocess.TimeoutExpired):
                                process.wait(0.3 + chance.random() * (3 if left < 3 else 1.5))
                            kills += process.poll() is None
                            process.kill()
                    if process.returncode >= 0:
                        told = json.loads(report.read_text())["differences"]
                        assert {(one["kind"], one["key"]) for one in told} <= planted
                        break
                assert process.returncode in (ExitCode.DONE, ExitCode.NO, ExitCode.UNDECIDED)
        finally:
            writers.stop.set()
            writers.join()
        family_writers.end_prepared(family_server)
        assert kills > 3
        assert verify(config, url_of(copy), environ={}).result == "equal"
        assert content(source, table="usr") == content(copy, table="usr")
    assert fetch(source, "SELECT COUNT(*) FROM eventlog_consumer") == [(0,)]
