"""A receiver with a filter has what matches the condition, whatever happens to the objects
(spec/event-log.md 15.2).
"""

from __future__ import annotations

import json
import random
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import mysql_servers
import pytest
import sqlalchemy as sa
from applied import Killed, Receiver, change, select
from publishers import install
from shared import Run, execute, in_ci, met, url_of

from eventlog import Event, Operation, Publisher
from eventlog.cli.context import changing_log
from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.exit_codes import ExitCode
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.declared.configured_classes import filters_of, read_catalog
from eventlog.sql.log.accepted_filters import accept_filters
from eventlog.sql.readers.consumers import resend_classes
from eventlog.verify import VerifyOptions, verify

STYLES: Final = ("field", "remove_all", "field_query_back", "row_query_back")
TABLES: Final = (
    "CREATE TABLE orders (id integer PRIMARY KEY, tenant varchar(9), state varchar(9), amount integer)",
    "CREATE TABLE line (order_id integer, item varchar(9), FOREIGN KEY (order_id) REFERENCES orders (id))",
)
WHERE: Final = "tenant = 'a' and state <> 'draft' -- of one tenant"
OBJECTS: Final = 12
ROUNDS: Final = pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.night)])
GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "choose-tables.md"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        for table in TABLES:
            conn.execute(table)
    return f"sqlite:///{file}"


@pytest.fixture
def postgres(logged: sa.Engine) -> str:
    for table in TABLES:
        execute(logged, table)
    return url_of(logged)


@pytest.fixture
def mariadb(started_server: Callable[[str], mysql_servers.Server]) -> Iterator[str]:
    with started_server("mariadb").database() as url:
        text = url.render_as_string(hide_password=False)
        change(text, *TABLES)
        yield text


@pytest.fixture(params=["sqlite", "postgres"])
def with_consumers(request: pytest.FixtureRequest) -> str:
    """A database in which every user may have consumers."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(params=in_ci(["sqlite", "postgres", "mariadb"], "sqlite", "postgres"))
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def configuration(url: str, style: str = "field", **more: Any) -> dict[str, Any]:
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "format": {"type": "xds", "xds": {"insert_query_back": "add"}},
        "watch": [{"table": "orders", "row_style": style}],
        "filter": [{"table": "orders", "where": WHERE}],
        **more,
    }


def accept(config: dict[str, Any]) -> None:
    """What ``eventlog filter accept`` records."""
    loaded = load(config, {})
    with changing_log(loaded) as log:
        accept_filters(log, loaded.of_log.consumer, filters_of(loaded))
        log.commit()


def rows(
    receiver: Receiver,
) -> list[tuple[int, str | None, str | None, str | None, tuple[str, ...]]]:
    return sorted(
        (
            key,
            *(next(iter(one.get(name, ())), None) for name in ("tenant", "state", "amount")),
            tuple(sorted(one.get("line.item", ()))),
        )
        for key, one in receiver.objects.items()
    )  # type: ignore[return-value]


def matching(url: str, where: str = WHERE) -> list[tuple[Any, ...]]:
    """What SELECT ... WHERE finds."""
    lines: dict[int, set[str]] = {}
    for key, item in select(url, "SELECT order_id, item FROM line"):
        lines.setdefault(key, set()).add(item)
    found = select(url, f"SELECT id, tenant, state, amount FROM orders WHERE (\n{where}\n)")
    return sorted(
        (
            key,
            tenant,
            state,
            None if amount is None else str(amount),
            tuple(sorted(lines.get(key, ()))),
        )
        for key, tenant, state, amount in found
    )


def random_change(chance: random.Random) -> list[str]:
    """The statements of a transaction: objects enter, leave and return, change their key and their
    values, come and go.
    """
    key = chance.randrange(1, OBJECTS)
    match chance.randrange(9):
        case 0 | 1:
            return [f"UPDATE orders SET tenant = '{chance.choice('ab')}' WHERE id = {key}"]
        case 2:
            return [
                f"UPDATE orders SET state = '{chance.choice(('draft', 'open'))}' WHERE id = {key}"
            ]
        case 3:
            value = chance.choice(("NULL", str(chance.randrange(100))))
            return [f"UPDATE orders SET amount = {value} WHERE id = {key}"]
        case 4:
            return [
                f"DELETE FROM line WHERE order_id = {key}",
                f"DELETE FROM orders WHERE id = {key}",
            ]
        case 5 | 6:
            tenant, state = chance.choice("ab"), chance.choice(("draft", "open"))
            return [
                f"INSERT INTO orders SELECT {key}, '{tenant}', '{state}', {key} "
                f"WHERE NOT EXISTS (SELECT 1 FROM orders WHERE id = {key})"
            ]
        case 7:
            item = chance.choice(("nut", "bolt", "cog"))
            return [
                f"INSERT INTO line SELECT {key}, '{item}' WHERE EXISTS (SELECT 1 FROM orders WHERE "
                f"id = {key}) AND NOT EXISTS (SELECT 1 FROM line WHERE order_id = {key} AND item = '{item}')"
            ]
        case _:
            new = chance.randrange(1, OBJECTS)
            return [
                f"DELETE FROM line WHERE order_id = {key}",
                f"UPDATE orders SET id = {new} WHERE id = {key} AND NOT EXISTS (SELECT 1 FROM "
                f"orders WHERE id = {new})",
            ]


def write(url: str, chance: random.Random, transactions: int) -> None:
    engine = sa.create_engine(url)
    for _ in range(transactions):
        with engine.begin() as conn:
            for statement in random_change(chance):
                conn.exec_driver_sql(statement)
    engine.dispose()


@ROUNDS
@pytest.mark.parametrize("style", STYLES)
def test_after_each_run_the_receiver_has_what_matches(
    database: str, style: str, rounds: int
) -> None:
    chance = random.Random(style)
    config = configuration(database, style)
    install(load(config, {}))
    accept(config)
    receiver = Receiver(chance, failing=0.2)
    for _ in range(rounds):
        write(database, chance, 25)
        receiver.run(config)
        assert rows(receiver) == matching(database)
    assert {event.operation for event in receiver.events} >= {Operation.ADD, Operation.DELETE}


@pytest.mark.parametrize("rounds", [1, pytest.param(30, marks=pytest.mark.night)])
@pytest.mark.parametrize("style", in_ci(STYLES, "field"))
def test_after_kills_the_receiver_has_what_matches(
    postgres: str, tmp_path: Path, style: str, rounds: int
) -> None:
    """The process ends after a document was applied and before its rows are marked."""
    config = configuration(postgres, style)
    config["publisher"] |= {"batch_size": 4, "delivery_rows": 12}
    install(load(config, {}))
    accept(config)
    killed = Killed(config, tmp_path / "journal")
    for seed in range(rounds):
        write(postgres, random.Random(seed), 15)
        receiver = killed.run(seed)
        assert rows(receiver) == matching(postgres)
    assert killed.kills > 0


def test_one_statement_per_class_reads_values_and_condition(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(sqlite, watch=[{"table": "orders", "exclude": ["line.item"]}])
    install(load(config, {}))
    accept(config)
    change(sqlite, *(f"INSERT INTO orders VALUES ({n}, 'a', 'open', {n})" for n in range(1, 11)))
    read: list[str] = []

    def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "CASE WHEN" in statement and "1 = 0" not in statement and "FROM k" in statement:
            read.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        receiver = Receiver()
        receiver.run(config)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(receiver.objects) == 10
    # As every class that is read back: one object, then up to sixteen.
    assert len(read) == 2


def operations(receiver: Receiver) -> list[tuple[str, str]]:
    return [
        (event.association.partition(",")[0], event.operation.value) for event in receiver.events
    ]


def test_objects_enter_leave_and_return(database: str) -> None:
    config = configuration(database)
    install(load(config, {}))
    accept(config)
    receiver = Receiver()
    for statement in (
        "INSERT INTO orders VALUES (1, 'b', 'open', 1)",
        "UPDATE orders SET tenant = 'a' WHERE id = 1",
        "UPDATE orders SET amount = 2 WHERE id = 1",
        "UPDATE orders SET tenant = 'b' WHERE id = 1",
        "UPDATE orders SET tenant = 'a' WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
    ):
        change(database, statement)
        receiver.run(config)
    assert operations(receiver) == [
        ("id=1", one) for one in ("delete", "add", "add", "delete", "add", "delete")
    ]


def test_rows_of_an_object_that_is_gone_give_its_delete_only(database: str) -> None:
    config = configuration(database)
    install(load(config, {}))
    accept(config)
    change(
        database,
        "INSERT INTO orders VALUES (1, 'a', 'open', 1)",
        "UPDATE orders SET amount = 2 WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
    )
    receiver = Receiver()
    receiver.run(config)
    assert operations(receiver) == [("id=1", "delete")]


class TestAConditionThatNeverChanges:
    FILTER: Final = [{"table": "orders", "where": "tenant = 'a'", "changes": False}]

    def test_matching_objects_have_the_bytes_of_a_reader_without_a_filter(
        self, sqlite: str
    ) -> None:
        config = configuration(sqlite, filter=self.FILTER)
        install(load(config, {}))
        accept(config)
        change(
            sqlite,
            "INSERT INTO orders VALUES (1, 'a', 'open', 1)",
            "INSERT INTO line VALUES (1, 'nut')",
            "UPDATE orders SET amount = 2",
            "UPDATE orders SET state = 'paid', amount = 3",
        )
        bodies: dict[str, list[bytes]] = {"all": [], "part": []}
        for name, rules in (("all", []), ("part", self.FILTER)):
            source = {"consumer": name, "start_from": "earliest"}

            def receive(body: bytes, _: Sequence[Event], name: str = name) -> None:
                bodies[name].append(body)

            reader = {**config, "filter": rules, "source": source}
            accept(reader)
            Publisher.from_config(reader, sink=receive, environ={}).run_once()
        assert bodies["all"] == bodies["part"]
        assert len(bodies["all"]) == 1

    def test_other_objects_cost_no_event(self, database: str) -> None:
        config = configuration(database, filter=self.FILTER)
        install(load(config, {}))
        accept(config)
        change(
            database,
            "INSERT INTO orders VALUES (1, 'b', 'open', 1)",
            "UPDATE orders SET amount = 2",
        )
        receiver = Receiver()
        receiver.run(config)
        assert receiver.events == []
        change(database, "DELETE FROM orders")
        receiver.run(config)
        assert operations(receiver) == [("id=1", "delete")]


class TestACapturedColumn:
    """``capture`` logs a column for conditions, and no document has it."""

    @staticmethod
    def configuration(url: str, where: str | None) -> dict[str, Any]:
        """A table for each style, with a filter each if there is a condition."""
        tables = {style: f"by_{style}" for style in STYLES}
        columns = "(id integer PRIMARY KEY, tenant varchar(9), state varchar(9))"
        change(url, *(f"CREATE TABLE {table} {columns}" for table in tables.values()))
        config = configuration(
            url,
            watch=[
                {"table": table, "row_style": style, "columns": ["state"], "capture": ["tenant"]}
                for style, table in tables.items()
            ],
            filter=[{"table": table, "where": where} for table in tables.values() if where],
        )
        install(load(config, {}))
        return config

    @staticmethod
    def told(config: dict[str, Any], *statements: str) -> dict[str, Receiver]:
        """What a receiver gets for each style, if each of these changes is sent alone."""
        receiver = Receiver()
        for statement in statements:
            change(config["database"]["url"], *(statement.format(f"by_{one}") for one in STYLES))
            receiver.run(config)
        told = {style: Receiver() for style in STYLES}
        for event in receiver.events:
            told[event.class_name.removeprefix("by_")].events.append(event)
        return told

    def test_decides_about_objects_and_is_in_no_document(self, database: str) -> None:
        config = self.configuration(database, "tenant = 'a'")
        accept(config)
        told = self.told(
            config,
            "INSERT INTO {} VALUES (1, 'b', 'open')",
            "UPDATE {} SET tenant = 'a'",
            "UPDATE {} SET tenant = 'b'",
        )
        for style, receiver in told.items():
            expected = [("id=1", one) for one in ("delete", "add", "delete")]
            assert operations(receiver) == expected, style
            names = {one.name for event in receiver.events for one in event.attributes}
            assert names == {"state"}, style

    def test_changes_nothing_for_a_reader_without_a_filter(self, sqlite: str) -> None:
        told = self.told(
            self.configuration(sqlite, None),
            "INSERT INTO {} VALUES (1, 'b', 'open')",
            "UPDATE {} SET tenant = 'a'",
            "UPDATE {} SET tenant = 'b', state = 'paid'",
        )
        for style, receiver in told.items():
            names = {one.name for event in receiver.events for one in event.attributes}
            assert names == {"state"}, style
            if style != "row_query_back":
                assert operations(receiver) == [("id=1", "add"), ("id=1", "modify")], style

    def test_is_neither_a_key_nor_of_a_child_table_nor_unknown(self, sqlite: str) -> None:
        for wrong in ("id", "line.item", "tenannt"):
            config = configuration(sqlite, watch=[{"table": "orders", "capture": [wrong]}])
            config["filter"] = []
            install(loaded := load(config, {}))
            with changing_log(loaded) as log:
                (error,) = read_catalog(log, loaded).unavailable.values()
            assert f"capture: '{wrong}'" in str(error)


def errors(url: str) -> list[tuple[Any, ...]]:
    return select(url, "SELECT code, message FROM eventlog_error")


def test_an_object_for_which_the_condition_fails_is_an_error_and_others_go_on(
    postgres: str,
) -> None:
    rule = {"table": "orders", "where": "CAST(state AS integer) > 0 AND tenant <> '%'"}
    config = configuration(postgres, filter=[rule])
    install(load(config, {}))
    accept(config)
    change(
        postgres,
        *(f"INSERT INTO orders VALUES ({n}, 'a', '{n}', {n})" for n in range(1, 9)),
        "UPDATE orders SET state = 'open' WHERE id = 3",
    )
    receiver = Receiver()
    receiver.run(config)
    assert sorted(receiver.objects) == [1, 2, 4, 5, 6, 7, 8]
    found = errors(postgres)
    assert {code for code, _ in found} == {"bad_filter"}
    (message,) = {message for _, message in found}
    assert message == (
        "the condition of [[filter]] orders fails: 22P02 invalid text representation"
    )
    change(postgres, "UPDATE orders SET state = '3' WHERE id = 3")
    receiver.run(config)
    assert sorted(receiver.objects) == [1, 2, 3, 4, 5, 6, 7, 8]


REFUSED: Final = ("tenannt = 'a'", "tenant = = 'a'", "secret = 1", "tenant = 'a' /* open")


def test_a_class_whose_condition_is_refused_waits_and_others_go_on(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    tables = {f"orders_{number}": where for number, where in enumerate(REFUSED)}
    change(
        database,
        *(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, tenant varchar(9), secret integer)"
            for table in tables
        ),
    )
    watches = [{"table": table, "exclude": ["secret"]} for table in tables]
    filters = [{"table": table, "where": where} for table, where in tables.items()]
    config = configuration(database)
    config["watch"] += watches
    config["filter"] += filters
    install(load(config, {}))
    accept(config)
    change(database, *(f"INSERT INTO {table} VALUES (1, 'a', 1)" for table in tables))
    change(database, "INSERT INTO orders VALUES (1, 'a', 'open', 1)")
    receiver = Receiver()
    receiver.run(config)
    assert [event.class_name for event in receiver.events] == ["orders"]
    for table in tables:
        (told,) = [one for one in caplog.messages if table in one]
        assert "the database refuses its condition" in told


def test_a_snapshot_has_what_matches(with_consumers: str) -> None:
    change(
        with_consumers,
        *(f"INSERT INTO orders VALUES ({n}, '{'ab'[n % 2]}', 'open', {n})" for n in range(1, 9)),
    )
    config = configuration(with_consumers, source={"consumer": "part", "start_from": "snapshot"})
    install(load(config, {}))
    accept(config)
    receiver = Receiver()
    receiver.run(config)
    assert rows(receiver) == matching(with_consumers)
    assert {event.operation for event in receiver.events} == {Operation.ADD}


class TestAnotherFilter:
    """A reader uses no filter that was not accepted for it (spec/event-log.md 15.3)."""

    def test_stops_the_reader_and_names_the_command(self, sqlite: str) -> None:
        config = configuration(sqlite)
        install(load(config, {}))
        with pytest.raises(ConfigError, match="eventlog filter accept`"):
            Receiver().run(config)
        consumer = {**config, "source": {"consumer": "part"}}
        with pytest.raises(ConfigError, match="eventlog filter accept --consumer part`"):
            Receiver().run(consumer)

    def test_is_accepted_by_the_command_which_prints_how_to_fill_the_receiver(
        self, sqlite: str, tmp_path: Path, run: Run
    ) -> None:
        file = tmp_path / "eventlog.toml"
        file.write_text(
            f'[database]\nurl = "{sqlite}"\n[publisher]\nallow_loopback = true\n'
            '[[watch]]\ntable = "orders"\n[[filter]]\ntable = "orders"\nwhere = "tenant = \'a\'"\n'
        )
        install(load(file, {}))
        assert run("--config", str(file), "publish", "--once")[0] == ExitCode.USAGE
        code, out, _ = run("--config", str(file), "filter", "accept")
        assert code == 0
        assert "1 filter accepted for the publisher" in out
        assert "eventlog filter accept --resend" in out
        assert run("--config", str(file), "publish", "--once")[0] == 0
        _, out, _ = run("--config", str(file), "filter", "accept", "--consumer", "x", "--dry-run")
        assert "would be accepted for consumer x" in out
        assert "not registered yet" in out

    def test_with_resend_a_consumer_alone_gets_all_objects_again(
        self, with_consumers: str, tmp_path: Path, run: Run
    ) -> None:
        config = configuration(with_consumers)
        install(load(config, {}))
        part, other = (
            {**config, "source": {"consumer": name, "start_from": "snapshot"}}
            for name in ("part", "other")
        )
        receivers = {"part": Receiver(), "other": Receiver()}
        write(with_consumers, random.Random(3), 40)
        for reader in (part, other):
            accept(reader)
            receivers[reader["source"]["consumer"]].run(reader)
        file = tmp_path / "eventlog.toml"
        file.write_text(
            f'[database]\nurl = "{with_consumers}"\n[publisher]\nallow_loopback = true\n'
            '[[watch]]\ntable = "orders"\n[[filter]]\ntable = "orders"\nwhere = "tenant = \'b\'"\n'
            '[source]\nconsumer = "part"\n'
        )
        code, out, _ = run("--config", str(file), "filter", "accept", "--resend")
        assert (code, "all objects of orders sent again to consumer part" in out) == (0, True)
        sent = len(receivers["other"].events)
        part["filter"] = [{"table": "orders", "where": "tenant = 'b'"}]
        receivers["part"].events.clear()
        receivers["part"].run(part)
        receivers["other"].run(other)
        assert rows(receivers["part"]) == matching(with_consumers, "tenant = 'b'")
        assert rows(receivers["other"]) == matching(with_consumers)
        assert len(receivers["other"].events) == sent
        ids = [event.event_id for event in receivers["part"].events]
        assert len(set(ids)) == len(ids) == len(select(with_consumers, "SELECT 1 FROM orders"))
        assert {event.operation for event in receivers["part"].events} == {
            Operation.ADD, Operation.DELETE,
        }  # fmt: skip

    def test_with_resend_a_consumer_that_is_killed_gets_what_matches(
        self, with_consumers: str
    ) -> None:
        config = configuration(with_consumers, source={"consumer": "part"})
        config["publisher"] |= {"batch_size": 2, "delivery_rows": 4}
        install(load(config, {}))
        accept(config)
        receiver, chance = Receiver(random.Random(5), failing=0.4), random.Random(4)
        receiver.run(config)
        write(with_consumers, chance, 40)
        receiver.run(config)
        config["filter"] = [{"table": "orders", "where": "tenant = 'b'"}]
        accept(config)
        with changing_log(load(config, {})) as log:
            resend_classes(log, "part", ["orders"])
            log.commit()
        write(with_consumers, chance, 10)
        receiver.run(config)
        assert rows(receiver) == matching(with_consumers, "tenant = 'b'")

    def test_with_resend_the_publisher_logs_the_class_again_and_names_who_else_gets_it(
        self, with_consumers: str, tmp_path: Path, run: Run
    ) -> None:
        config = configuration(with_consumers)
        install(load(config, {}))
        accept(config)
        receiver = Receiver()
        write(with_consumers, random.Random(6), 40)
        receiver.run(config)
        Receiver().run({**config, "filter": [], "source": {"consumer": "all"}})
        file = tmp_path / "eventlog.toml"
        file.write_text(
            f'[database]\nurl = "{with_consumers}"\n[publisher]\nallow_loopback = true\n'
            '[[watch]]\ntable = "orders"\n[[filter]]\ntable = "orders"\nwhere = "tenant = \'b\'"\n'
        )
        code, out, _ = run("--config", str(file), "filter", "accept", "--resend")
        assert code == 0
        assert "every consumer and Spark stream also gets: all" in out
        assert "written for orders" in out
        config["filter"] = [{"table": "orders", "where": "tenant = 'b'"}]
        receiver.run(config)
        assert rows(receiver) == matching(with_consumers, "tenant = 'b'")

    def test_is_also_that_all_filters_were_removed(
        self, with_consumers: str, tmp_path: Path, run: Run
    ) -> None:
        config = configuration(with_consumers)
        install(load(config, {}))
        for reader in (config, {**config, "source": {"consumer": "part"}}):
            accept(reader)
            Receiver().run(reader)
            with pytest.raises(ConfigError, match="eventlog filter accept"):
                Receiver().run({**reader, "filter": []})
        file = tmp_path / "eventlog.toml"
        file.write_text(f'[database]\nurl = "{with_consumers}"\n[[watch]]\ntable = "orders"\n')
        code, out, _ = run("--config", str(file), "filter", "accept", "--resend")
        assert (code, "no filter accepted for the publisher" in out) == (0, True)
        assert "written for orders" in out
        Receiver().run({**config, "filter": []})

    def test_gives_recorded_events_new_ids(self, sqlite: str, tmp_path: Path, run: Run) -> None:
        config = configuration(sqlite)
        install(load(config, {}))
        accept(config)
        change(sqlite, "INSERT INTO orders VALUES (1, 'a', 'open', 1)")
        applied: list[Event] = []

        def apply_and_hang_up(body: bytes, events: Sequence[Event]) -> None:
            applied.extend(events)
            raise ReceiverUnavailable("hung up")

        with pytest.raises(ReceiverUnavailable):
            Publisher.from_config(config, sink=apply_and_hang_up, environ={}).run_once()
        file = tmp_path / "eventlog.toml"
        file.write_text(
            f'[database]\nurl = "{sqlite}"\n[publisher]\nallow_loopback = true\n'
            '[[watch]]\ntable = "orders"\n[[filter]]\ntable = "orders"\nwhere = "tenant = \'b\'"\n'
        )
        assert run("--config", str(file), "filter", "accept")[0] == 0
        receiver = Receiver()
        Publisher.from_config(file, sink=receiver, environ={}).run_once()
        first, again = applied[0].event_id, receiver.events[0]
        assert (again.event_id, again.operation) == (f"{first}.2", Operation.DELETE)

    def test_is_taken_over_by_a_resync(self, with_consumers: str) -> None:
        config = configuration(with_consumers)
        install(load(config, {}))
        accept(config)
        receiver, chance = Receiver(), random.Random(3)
        write(with_consumers, chance, 40)
        receiver.run(config)
        other = configuration(with_consumers, filter=[{"table": "orders", "where": "tenant = 'b'"}])
        accept(other)
        change(
            with_consumers,
            "INSERT INTO eventlog (event_type, table_name, table_key) "
            "SELECT 5, 'orders', 'id=' || id FROM orders",
        )
        receiver.run(other)
        assert rows(receiver) == matching(with_consumers, "tenant = 'b'")


def test_rows_that_are_requeued_leave_the_receiver_with_what_matches(
    database: str, run: Run, tmp_path: Path
) -> None:
    config = configuration(database)
    install(load(config, {}))
    accept(config)
    receiver, chance = Receiver(), random.Random(5)
    write(database, chance, 30)
    receiver.run(config)
    change(database, "UPDATE eventlog SET status = 'E' WHERE record_id % 3 = 0")
    write(database, chance, 10)
    code, _, error = run("--database-url", database, "requeue", "--force")
    assert code == 0, error
    receiver.run(config)
    assert rows(receiver) == matching(database)


class Asking(Receiver):
    """A receiver that asks for events later, for which ``is_later`` returns True."""

    def __init__(self, is_later: Callable[[Event], bool]) -> None:
        super().__init__()
        self.is_later = is_later

    def __call__(self, body: bytes, events: Sequence[Event]) -> Answer | None:  # type: ignore[override]
        later = {event.event_id for event in events if self.is_later(event)}
        super().__call__(body, [event for event in events if event.event_id not in later])
        retry = EventResult(Level.RETRY, "later")
        return Answer(dict.fromkeys(later, retry), EventResult(Level.SUCCESS))


# Each style meets each database above, where the same rows are read: what waits is the publisher's.
@pytest.mark.parametrize(
    ("with_consumers", "style"), met(["sqlite", "postgres"], STYLES), indirect=["with_consumers"]
)
def test_a_receiver_that_stops_the_log_by_retry_has_what_matches(
    with_consumers: str, style: str
) -> None:
    """With ``on_retry = stop`` an event waits, and its object enters or leaves meanwhile."""
    config = configuration(with_consumers, style)
    config["publisher"] |= {"on_retry": "stop", "batch_size": 3}
    install(load(config, {}))
    accept(config)
    chance = random.Random(style)
    receiver = Asking(lambda _: chance.random() < 0.2)
    publisher = Publisher.from_config(config, sink=receiver, environ={})
    for _ in range(3):
        write(with_consumers, chance, 15)
        for _ in range(200):
            with suppress(ReceiverUnavailable):
                publisher.run_once()
            if not select(with_consumers, "SELECT 1 FROM eventlog WHERE status = 'N'"):
                break
            if chance.random() < 0.1:
                write(with_consumers, chance, 1)
        assert rows(receiver) == matching(with_consumers)


def test_an_object_whose_event_is_skipped_comes_whole_when_it_changes_again(
    with_consumers: str, tmp_path: Path, run: Run
) -> None:
    config = configuration(with_consumers)
    config["publisher"] |= {"retry_initial": 0.01, "retry_max": 0.01}
    install(load(config, {}))
    accept(config)
    receiver = Asking(lambda event: event.association.startswith("id=1,"))
    publisher = Publisher.from_config(config, sink=receiver, environ={})
    change(
        with_consumers,
        "INSERT INTO orders VALUES (1, 'a', 'open', 1)",
        "INSERT INTO orders VALUES (2, 'a', 'open', 1)",
    )
    with pytest.raises(ReceiverUnavailable, match="1 object left"):
        publisher.run_once()
    assert list(receiver.objects) == [2]
    waiting = f"{select(with_consumers, 'SELECT MIN(record_id) FROM eventlog')[0][0]}"
    code, _, error = run("--database-url", with_consumers, "skip", waiting, "--reason", "no need")
    assert code == 0, error
    receiver.is_later = lambda _: False
    change(with_consumers, "UPDATE orders SET amount = 2 WHERE id = 1")
    publisher.run_once()
    assert rows(receiver) == matching(with_consumers)
    assert len(receiver.objects) == 2


def test_verify_compares_what_matches(with_consumers: str, tmp_path: Path) -> None:
    config = configuration(with_consumers, watch=[{"table": "orders", "exclude": ["line.item"]}])
    install(load(config, {}))
    accept(config)
    write(with_consumers, random.Random(7), 60)
    Receiver().run(config)
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    change(target, TABLES[0])
    for key, tenant, state, amount, _ in matching(with_consumers):
        change(
            target, f"INSERT INTO orders VALUES ({key}, '{tenant}', '{state}', {amount or 'NULL'})"
        )
    options = VerifyOptions(wait=0)
    assert verify(config, target, options=options, environ={}).differences == []
    (outside, *_) = select(
        with_consumers, "SELECT id FROM orders WHERE tenant = 'b' OR state = 'draft'"
    )
    change(target, f"INSERT INTO orders VALUES ({outside[0]}, 'b', 'open', 1)")
    (found,) = verify(config, target, options=options, environ={}).differences
    assert (found.kind.value, found.key) == ("surplus", f"id={outside[0]}")


def test_the_example_of_the_guide_has_one_tenant_for_each_web_hook(sqlite: str) -> None:
    _, _, after = GUIDE.read_text().partition("<!-- example: one tenant for each web hook -->")
    text = after.partition("```toml\n")[2].partition("```")[0]
    hooks: dict[str, set[str]] = {}
    for tenant in "ab":
        example = tomllib.loads(text.replace("'a'", f"'{tenant}'").replace("-a", f"-{tenant}"))
        example["database"] = {"url": sqlite}
        del example["sink"]
        if tenant == "a":
            install(load({**example, "source": {}}, {}))
            change(
                sqlite,
                "INSERT INTO orders VALUES (1, 'a', 'open', 1)",
                "INSERT INTO orders VALUES (2, 'b', 'open', 1)",
                "INSERT INTO orders VALUES (3, 'a', 'draft', 1)",
            )
        accept(example)
        hooks[tenant] = set()

        def receive(body: bytes, events: Sequence[Event], tenant: str = tenant) -> None:
            hooks[tenant] |= {event.association.partition(",")[0] for event in events}

        Publisher.from_config(example, sink=receive, environ={}).run_once()
    assert hooks == {"a": {"id=1"}, "b": {"id=2"}}


def test_plan_and_doctor_report_a_condition_that_the_database_refuses(
    sqlite: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{sqlite}"\n[[watch]]\ntable = "orders"\n[[filter]]\n'
        'table = "orders"\nwhere = "tenannt = 1"\n'
    )
    _, out, error = run("--config", str(file), "triggers", "plan")
    assert "no such column: tenannt" in out + error
    run("--config", str(file), "db", "upgrade")
    _, out, _ = run("--config", str(file), "doctor")
    assert "no such column: tenannt" in out


def test_a_refresh_has_the_operation_of_its_format(sqlite: str) -> None:
    config = configuration(sqlite, watch=[{"table": "orders", "exclude": ["line.item"]}])
    formats = ("debezium", "cloudevents", "xds")
    install(load(config, {}))
    readers = {
        one: {**config, "source": {"consumer": one}, "format": {"type": one}} for one in formats
    }
    bodies: dict[str, bytes] = {}
    change(sqlite, "INSERT INTO orders VALUES (1, 'b', 'open', NULL)")
    for statement in ("SELECT 1", "UPDATE orders SET tenant = 'a'"):
        change(sqlite, statement)
        for format, reader in readers.items():
            accept(reader)

            def receive(body: bytes, events: Sequence[Event], format: str = format) -> None:
                bodies[format] = body

            Publisher.from_config(reader, sink=receive, environ={}).run_once()
    content = json.loads(bodies["debezium"])
    (record,) = content if isinstance(content, list) else [content]
    record = record.get("payload", record)
    assert (record["op"], record["before"], record["after"]) == (
        "r", None, {"id": 1, "tenant": "a", "state": "open", "amount": None},
    )  # fmt: skip
    (event,) = json.loads(bodies["cloudevents"])
    assert event["type"].endswith(".refresh")
    assert b"<modify class-name" in bodies["xds"]
    assert b"<remove-all-values/>" in bodies["xds"]


class TestAConditionThatIsNotOneExpression:
    """A condition ends within its parentheses (spec/event-log.md 15.2)."""

    WHERE = "tenant = 'a') OR (tenant = 'b'"

    def test_is_not_accepted(self, database: str, tmp_path: Path, run: Run) -> None:
        file = tmp_path / "eventlog.toml"
        file.write_text(
            f'[database]\nurl = "{database}"\n[[watch]]\ntable = "orders"\n[[filter]]\n'
            f'table = "orders"\nwhere = "{self.WHERE}"\n'
        )
        install(load(file, {}))
        code, _, error = run("--config", str(file), "filter", "accept")
        assert (code, "[[filter]] orders: where = " in error) == (ExitCode.USAGE, True)
        assert "one is closed there" in error
        assert "orders will wait" in "".join(run("--config", str(file), "triggers", "plan")[1:])
        assert "one is closed there" in run("--config", str(file), "doctor")[1]

    def test_is_not_used_by_a_command_that_asks_for_no_consent(self, database: str) -> None:
        config = configuration(database)
        config["filter"] = [{"table": "orders", "where": self.WHERE}]
        install(load(config, {}))
        with changing_log(load(config, {})) as log:
            assert "one is closed there" in str(
                read_catalog(log, load(config, {})).unavailable["orders"]
            )

    def test_is_used_with_a_warning_if_it_was_accepted_before(
        self, database: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = configuration(database)
        config["filter"] = [{"table": "orders", "where": self.WHERE}]
        install(load(config, {}))
        accept(config)
        change(database, "INSERT INTO orders VALUES (1, 'a', 'open', 1), (2, 'c', 'open', 1)")
        receiver = Receiver()
        receiver.run(config)
        assert sorted(receiver.objects) == [1]
        (told,) = {one for one in caplog.messages if "is not one condition" in one}
        assert "accepted before" in told

    def test_is_refused_for_a_resync(self, database: str, tmp_path: Path, run: Run) -> None:
        file = tmp_path / "eventlog.toml"
        file.write_text(f'[database]\nurl = "{database}"\n[[watch]]\ntable = "orders"\n')
        install(load(file, {}))
        code, _, error = run("--config", str(file), "resync", "orders", "--where", self.WHERE)
        assert (code, f"--where {self.WHERE} is not one condition" in error) == (2, True)
