"""The watched tables change while a publisher runs: it reports this, once, and no row goes bad
(issue 5, schema drift).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, is_drained, opened, publishing, runs, write_config
from shared import execute, fetch, in_ci, statuses, url_of, wait_until

from eventlog.cli.context import reading
from eventlog.config.load import Config, load
from eventlog.errors import DatabaseError, ReceiverUnavailable
from eventlog.model import Answer, Document
from eventlog.publisher.context.context import Context
from eventlog.publisher.declared import catalog_watcher
from eventlog.publisher.declared.opening import find_log
from eventlog.publisher.declared.trigger_plan import differences, planned_triggers
from eventlog.publisher.inspect.doctor import examine
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.sinks.files import DocumentFiles, LineFiles
from eventlog.sql.triggers import TriggerPlan

USR = "CREATE TABLE usr (id integer PRIMARY KEY, name text, age integer, nick varchar(40))"
WATCH: dict[str, Any] = {"table": "usr"}


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def watched(engine: sa.Engine, tmp_path: Path, *watches: dict[str, Any]) -> Config:
    execute(engine, USR)
    config = load(
        write_config(
            tmp_path,
            url_of(engine),
            watches or (WATCH,),
            publisher={"polling_interval": 1, "allow_loopback": True},
        ),
        {},
    )
    install(config)
    return config


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def log_row(event_type: int, column: str | None, value: str | None, key: str = "id=1") -> str:
    texts = ", ".join("NULL" if text is None else f"'{text}'" for text in (column, value))
    return (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
        f" VALUES ({event_type}, 'usr', '{key}', {texts})"
    )


CHANGES = {
    "add": (
        "ALTER TABLE usr ADD mail text",
        log_row(2, "mail", "a@b.c"),
        "usr: column mail (text) is new",
        ["<add-attr attr-name=", 'attr-name="mail"', "a@b.c"],
    ),
    "drop": (
        "ALTER TABLE usr DROP nick",
        log_row(2, "nick", "Jay"),
        "usr: column nick was dropped",
        ['attr-name="nick"', "Jay"],
    ),
    "rename": (
        "ALTER TABLE usr RENAME nick TO alias",
        log_row(2, "alias", "Jay"),
        "usr: column nick is called alias now (or was dropped, and alias added)",
        ['attr-name="alias"', "Jay"],
    ),
    "retype": (
        "ALTER TABLE usr ALTER age TYPE bigint",
        log_row(2, "age", "3000000000"),
        "usr: column age is bigint now, and was integer",
        ['attr-name="age"', "3000000000"],
    ),
}


@pytest.mark.parametrize("change", in_ci(CHANGES, "add", "retype"))
def test_a_running_publisher_takes_a_change_up_and_no_row_goes_bad(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    statement, row, sentence, parts = CHANGES[change]
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        execute(database, statement, row)
        wait_until(
            lambda: len(sink.documents) == 2 and is_drained(database, running),
            "the second row is sent",
        )
        execute(database, row)
        wait_until(
            lambda: len(sink.documents) == 3 and is_drained(database, running),
            "the third row is sent",
        )
    assert set(statuses(database).values()) == {"S"}
    assert all(part in sink.bodies[1] for part in parts[-2:])
    if change != "drop":  # whose rows are good by the old catalogue, so nothing hurries
        assert warnings_of(caplog) == [
            f"{sentence}; see `eventlog triggers plan`, then `eventlog triggers apply`"
        ]


def test_a_new_table_of_a_pattern_is_published_by_a_publisher_that_runs(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = watched(database, tmp_path, {"tables": ["*"]})
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        for name in ("later", "latest"):
            execute(database, f"CREATE TABLE {name} (id integer PRIMARY KEY, name text)")
            install(config)
            execute(database, f"INSERT INTO {name} VALUES (1, 'x')")
            wait_until(lambda: is_drained(database, running), "the row of the new table is sent")
    assert set(statuses(database).values()) == {"S"}
    assert [
        name in body for name, body in zip(("later", "latest"), sink.bodies[1:], strict=True)
    ] == [True, True]


def test_a_look_at_the_tables_comes_by_the_clock_too(
    database: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    config = watched(database, tmp_path)
    with publishing(config, Collecting()):
        wait_until(lambda: runs(database), "it runs")
        execute(database, "ALTER TABLE usr DROP nick")
        wait_until(lambda: bool(warnings_of(caplog)), "it says so")
    (warning,) = warnings_of(caplog)
    assert warning.startswith("usr: column nick was dropped; see")


def test_rows_of_a_column_that_was_dropped_and_comes_back_are_sent(
    database: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        wait_until(lambda: runs(database), "it runs")
        for number, statement in enumerate(("DROP nick", "ADD nick varchar(40)"), 1):
            execute(database, f"ALTER TABLE usr {statement}")
            wait_until(lambda known=number: len(warnings_of(caplog)) == known, "it is known")
            execute(database, log_row(2, "nick", f"Jay {number}"))
            wait_until(lambda: is_drained(database, running), "the row is sent")
    assert set(statuses(database).values()) == {"S"}
    assert ["Jay 1" in sink.bodies[0], "Jay 2" in sink.bodies[1]] == [True, True]


QUERY_BACK: dict[str, tuple[dict[str, Any], str, Callable[[str], bool]]] = {
    "a whole row": (
        {"row_style": "row_query_back"},
        log_row(6, None, None),
        lambda body: '"nick"' not in body,
    ),
    "a column that is gone": (
        {"row_style": "field_query_back"},
        log_row(8, "nick", None),
        lambda body: "<remove-all-values/>" in body and '"nick"' in body,
    ),
}


@pytest.mark.parametrize("case", QUERY_BACK)
def test_reading_back_goes_on_without_a_column_that_is_gone(
    database: sa.Engine, tmp_path: Path, case: str
) -> None:
    settings, row, is_right = QUERY_BACK[case]
    config = watched(database, tmp_path, WATCH | settings)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr VALUES (1, 'Jack', 7, 'Jay')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        execute(database, "ALTER TABLE usr DROP nick", row)
        wait_until(
            lambda: len(sink.documents) == 2 and is_drained(database, running),
            "the second row is sent",
        )
    assert set(statuses(database).values()) == {"S"}
    assert is_right(sink.bodies[1]), sink.bodies[1]


RESYNC = (
    "ALTER TABLE usr ADD mail text",
    "UPDATE usr SET mail = 'a@b.c'",
    log_row(5, None, None),
)
"""A new column with values, and what `resync` logs for its object."""


@pytest.fixture(params=["PostgreSQL", "SQLite"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> sa.Engine:
    if request.param == "SQLite":
        return sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    engine: sa.Engine = request.getfixturevalue("database")
    return engine


def sent_since(config: Config, *statements: str, sink: Collecting | None = None) -> list[str]:
    """The documents of a publisher that has read its catalogue before the statements ran, and looks
    at the tables at no other time.
    """
    sink = sink or Collecting()
    with opened(config) as context:
        execute(context.log.connection.engine, *statements)
        publish_once(context, sink)
    return sink.bodies


def test_a_resync_directly_after_a_new_column_sends_it(
    either: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = watched(either, tmp_path)
    sent_since(config, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
    (body,) = sent_since(config, *RESYNC)
    assert "a@b.c" in body
    (warning,) = warnings_of(caplog)
    assert "column mail (text) is new" in warning.lower()


def test_a_format_of_whole_rows_reads_back_by_the_tables_as_they_are(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = watched(database, tmp_path)
    config = replace(config, format=replace(config.format, type="debezium"))
    sent_since(config, "INSERT INTO usr VALUES (1, 'Jack', 7, 'Jay')")
    (body,) = sent_since(config, *RESYNC[:2], "UPDATE usr SET name = 'Joe'")
    assert "a@b.c" in body


def test_a_recorded_delivery_is_built_again_by_the_tables_as_they_are(
    either: sa.Engine, tmp_path: Path
) -> None:
    def away(_document: Document) -> Answer:
        raise ReceiverUnavailable("the receiver is not there")

    config = watched(either, tmp_path)
    with pytest.raises(ReceiverUnavailable):
        sent_since(
            config, "INSERT INTO usr (id) VALUES (1)", log_row(5, None, None), sink=Collecting(away)
        )
    assert fetch(either, "SELECT count(*) FROM eventlog_inflight") == [(1,)]
    (body,) = sent_since(config, *RESYNC[:2])
    assert "a@b.c" in body


def consumer_of(engine: sa.Engine, tmp_path: Path, begin: str) -> Config:
    watched(engine, tmp_path)
    source = {"source.type": "eventlog", "source.consumer": "search", "source.start_from": begin}
    return load(tmp_path / "eventlog.toml", {}, source)


def test_a_consumer_reads_back_by_the_tables_as_they_are(either: sa.Engine, tmp_path: Path) -> None:
    config = consumer_of(either, tmp_path, "earliest")
    sent_since(config, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
    (body,) = sent_since(config, *RESYNC)
    assert "a@b.c" in body


def test_the_snapshot_of_a_consumer_has_a_column_that_is_newer_than_its_catalogue(
    either: sa.Engine, tmp_path: Path
) -> None:
    config = consumer_of(either, tmp_path, "snapshot")
    execute(either, "INSERT INTO usr (id) VALUES (1)")
    (body,) = sent_since(config, *RESYNC[:2])
    assert "a@b.c" in body


@pytest.mark.parametrize("moments", [1, 2])
def test_a_table_that_is_unavailable_for_the_moment_of_a_statement_ends_no_publisher(
    either: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    config = watched(either, tmp_path)
    execute(either, "INSERT INTO usr (id, name) VALUES (1, 'Jack')", log_row(5, None, None))
    read_back, away = Context.query_back, iter(range(moments))

    def from_afar(context: Context, *of: Any) -> Any:
        if next(away, None) is None:
            return read_back(context, *of)
        context.log.connection.rollback()
        execute(either, "ALTER TABLE usr RENAME TO person")
        try:
            return read_back(context, *of)
        finally:
            context.log.connection.rollback()
            execute(either, "ALTER TABLE person RENAME TO usr")

    monkeypatch.setattr(Context, "query_back", from_afar)
    if moments == 1:
        (body,) = sent_since(config)
        assert "Jack" in body
        assert set(statuses(either).values()) == {"S"}
    else:
        with pytest.raises(DatabaseError):
            sent_since(config)


def log_row_of(table: str, key: str = "id=1") -> str:
    return (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
        f" VALUES (2, '{table}', '{key}', 'name', 'of {table}')"
    )


ITEM = "CREATE TABLE item (id integer PRIMARY KEY, name text)"

BROKEN: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "the primary key is dropped": (
        {},
        "ALTER TABLE usr DROP CONSTRAINT usr_pkey",
        "ALTER TABLE usr ADD PRIMARY KEY (id)",
        "'usr' cannot be a class: it has no primary key",
    ),
    "the table is renamed": (
        {},
        "ALTER TABLE usr RENAME TO person",
        "ALTER TABLE person RENAME TO usr",
        "there is no table or view 'usr' in schema public, the only schema that the log watches; correct the name in "
        "the configuration, or remove its [[watch]] if the table was dropped; if it was renamed, add renamed_from = "
        "'usr' to its [[watch]]",
    ),
    "an excluded column is renamed": (
        {"exclude": ["nick"]},
        "ALTER TABLE usr RENAME nick TO alias",
        "ALTER TABLE usr RENAME alias TO nick",
        "watch usr, exclude: 'nick' is not an attribute of the class; it has id, name, age, alias",
    ),
    "a named column is dropped": (
        {"columns": ["name", "age"]},
        "ALTER TABLE usr DROP age",
        "ALTER TABLE usr ADD age integer",
        "watch usr, columns: 'age' is not an attribute of the class; it has id, name, nick",
    ),
}


@pytest.mark.parametrize("case", in_ci(BROKEN, *[*BROKEN][::2]))
def test_a_running_publisher_lets_the_rows_of_a_broken_class_wait_and_publishes_the_others(
    database: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    settings, breaks, fixes, reason = BROKEN[case]
    execute(database, ITEM)
    config = watched(
        database, tmp_path, WATCH | {"row_style": "row_query_back"} | settings, {"table": "item"}
    )
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        execute(database, breaks)
        wait_until(lambda: bool(warnings_of(caplog)), "it says so")
        execute(database, log_row_of("usr"), log_row(6, None, None), log_row_of("item"))
        wait_until(lambda: statuses(database)[4] == "S", "the other table is published")
        assert [statuses(database)[n] for n in (2, 3)] == ["N", "N"]
        execute(database, fixes)
        wait_until(
            lambda: is_drained(database, running),
            "its own rows are sent once it can be a class again",
        )
    assert set(statuses(database).values()) == {"S"}
    assert warnings_of(caplog)[0].startswith(f"usr is not published, and its rows wait: {reason}")


@pytest.mark.parametrize("case", in_ci(BROKEN, *[*BROKEN][1::2]))
def test_a_publisher_starts_with_a_broken_class_and_publishes_the_others(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    settings, breaks, fixes, reason = BROKEN[case]
    execute(database, ITEM)
    config = watched(database, tmp_path, WATCH | settings, {"table": "item"})
    execute(database, breaks, log_row_of("usr"), log_row_of("item"))
    sink = Collecting()
    with publishing(config, sink):
        wait_until(
            lambda: len(sink.documents) == 1 and statuses(database)[2] == "S",
            "the other table is published",
        )
    assert "of item" in sink.bodies[0]
    assert statuses(database) == {1: "N", 2: "S"}
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said == f"usr is not published, and its rows wait: {reason}"
    execute(database, fixes)
    with publishing(config, sink) as running:
        wait_until(
            lambda: is_drained(database, running),
            "its own rows are sent once it can be a class again",
        )
    assert set(statuses(database).values()) == {"S"}


def recorded_in_one_document(database: sa.Engine, tmp_path: Path) -> Config:
    """A publisher that has recorded a row of usr and one of item in flight, and sent neither."""
    execute(database, ITEM)
    config = watched(database, tmp_path, WATCH, {"table": "item"})
    execute(database, log_row_of("usr"), log_row_of("item"))

    def away(_document: Document) -> Answer:
        raise ReceiverUnavailable("the receiver is not there")

    with publishing(config, Collecting(away)):
        wait_until(
            lambda: fetch(database, "SELECT count(*) FROM eventlog_inflight") == [(1,)],
            "both are recorded",
        )
    return config


def test_what_is_recorded_in_delivery_of_a_broken_class_waits_and_keeps_its_event_id(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = recorded_in_one_document(database, tmp_path)
    execute(database, "ALTER TABLE usr RENAME TO person")
    sink = Collecting()
    with publishing(config, sink):
        wait_until(lambda: statuses(database) == {1: "N", 2: "S"}, "the other table is published")
    execute(database, "ALTER TABLE person RENAME TO usr")
    with publishing(config, sink) as running:
        wait_until(lambda: is_drained(database, running), "the recorded event is sent")
    assert [body.count("event-id=") for body in sink.bodies] == [1, 1]
    assert ['event-id="2"' in sink.bodies[0], 'event-id="1"' in sink.bodies[1]] == [True, True]


@pytest.mark.parametrize("layout", in_ci([LineFiles, DocumentFiles], DocumentFiles))
def test_the_rest_of_a_document_replaces_no_file_of_its_events_that_were_sent_before(
    database: sa.Engine, tmp_path: Path, layout: type[LineFiles | DocumentFiles]
) -> None:
    config = recorded_in_one_document(database, tmp_path)
    directory = tmp_path / "documents"
    execute(database, "ALTER TABLE usr RENAME TO person")
    with publishing(config, layout(directory)):
        wait_until(lambda: statuses(database) == {1: "N", 2: "S"}, "the other table is published")
    execute(database, "ALTER TABLE person RENAME TO usr")
    with publishing(config, layout(directory)) as running:
        wait_until(lambda: is_drained(database, running), "the recorded event is sent")
    bodies = [path.read_text() for path in sorted(directory.glob("[0-9]*"))]
    assert ['event-id="2"' in bodies[0], 'event-id="1"' in bodies[1]] == [True, True]


def test_what_was_sent_before_a_change_of_its_table_replaces_no_file_of_later_documents(
    either: sa.Engine, tmp_path: Path
) -> None:
    """The sent document is marked, although the next one cannot be built any more."""

    def away(_document: Document) -> Answer:
        raise ReceiverUnavailable("the receiver is not there")

    class Renaming(LineFiles):
        def send(self, document: Document) -> Answer:
            answer = super().send(document)
            if not self.is_renamed:
                self.is_renamed = True
                execute(either, "ALTER TABLE usr RENAME TO person")
            return answer

        is_renamed = False

    execute(either, ITEM)
    watched(either, tmp_path, WATCH, {"table": "item"})
    config = load(tmp_path / "eventlog.toml", {}, {"publisher.batch_size": "1"})
    rows = (log_row(5, None, None), log_row(5, None, None, "id=2"), log_row_of("item"))
    execute(either, "INSERT INTO usr (id) VALUES (1), (2)", "DELETE FROM eventlog", *rows)
    with pytest.raises(ReceiverUnavailable):
        sent_since(config, sink=Collecting(away))
    directory = tmp_path / "documents"
    for sink in (Renaming(directory), LineFiles(directory)):
        with opened(config) as context, closing(sink):
            publish_once(context, sink)
        if isinstance(sink, Renaming):
            assert sorted(statuses(either).values()) == ["N", "S", "S"]
            execute(either, "ALTER TABLE person RENAME TO usr")
    assert set(statuses(either).values()) == {"S"}
    texts = "".join(path.read_text() for path in sorted(directory.glob("[0-9]*")))
    for row in statuses(either):
        assert f'event-id="{row}"' in texts


@pytest.mark.parametrize("layout", in_ci([LineFiles, DocumentFiles], LineFiles))
def test_a_part_of_a_document_that_was_sent_before_replaces_no_file_of_it(
    database: sa.Engine, tmp_path: Path, layout: type[LineFiles | DocumentFiles]
) -> None:
    """A reader that comes late finds each event before the later ones of its object."""

    def publish_with(sink: LineFiles | DocumentFiles) -> None:
        with opened(config) as context:
            publish_once(context, sink)

    execute(database, ITEM)
    watched(database, tmp_path, WATCH, {"table": "item"})
    flags = {"publisher.batch_size": "2", "publisher.fold_distance": "0"}
    config = load(tmp_path / "eventlog.toml", {}, flags)
    rows = (log_row_of("usr"), log_row_of("item"), log_row_of("usr"), log_row_of("usr", "id=2"))
    execute(database, *rows)
    directory = tmp_path / "documents"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layout, "flush", losing_answers(layout.flush))
        with pytest.raises(ReceiverUnavailable):
            publish_with(layout(directory))
    execute(database, "ALTER TABLE usr RENAME TO person")
    publish_with(layout(directory))
    assert statuses(database) == {1: "N", 2: "S", 3: "N", 4: "N"}
    execute(database, "ALTER TABLE person RENAME TO usr")
    publish_with(layout(directory))
    assert set(statuses(database).values()) == {"S"}
    text = "".join(path.read_text() for path in sorted(directory.glob("[0-9]*")))
    assert text.index('event-id="1"') < text.index('event-id="3"')


def losing_answers(flush: Callable[[Any], None]) -> Callable[[Any], None]:
    """What a publisher sees that is killed between the flush and its marks."""

    def flush_and_fail(sink: Any) -> None:
        flush(sink)
        raise ReceiverUnavailable("its answers are lost")

    return flush_and_fail


def test_plan_and_apply_follow_the_other_watches_and_keep_what_a_renamed_table_has(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, ITEM)
    config = watched(database, tmp_path, WATCH, {"table": "item"})
    execute(database, "ALTER TABLE usr RENAME TO person", "ALTER TABLE item ADD price integer")
    plan = plan_of(config)
    assert [(action.kind, action.table) for action in plan.changes] == [("replace", "public.item")]
    assert [action.table for action in plan.actions if action.kind == "unchanged"] == [
        "public.person"
    ]
    assert plan.refused == (
        "there is no table or view 'usr' in schema public, the only schema that the log watches; correct the name in "
        "the configuration, or remove its [[watch]] if the table was dropped; if it was renamed, add renamed_from = "
        "'usr' to its [[watch]]",
    )
    found = {one.code: one for one in examine(config, planned_triggers)}
    assert found["class_missing"].severity == found["watch_refused"].severity == "error"
    assert drift_of(config)[-1] == plan.refused[0]


def test_an_exclusion_that_no_table_of_a_pattern_has_keeps_none_from_being_published(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, ITEM)
    config = watched(database, tmp_path, {"tables": ["*"], "exclude": ["nick"]})
    execute(database, "ALTER TABLE usr DROP nick", log_row_of("usr"), log_row_of("item"))
    with publishing(config, Collecting()) as running:
        wait_until(lambda: is_drained(database, running), "all is published")
    assert set(statuses(database).values()) == {"S"}
    assert plan_of(config).refused == (
        "watch *, exclude: 'nick' is an attribute of none of its tables",
    )
    assert plan_of(config).changes == ()


def test_another_key_is_reported_before_rows_of_the_old_key_become_invalid(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = watched(database, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(database, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        execute(
            database,
            "ALTER TABLE usr RENAME id TO no",
            log_row(4, None, None, "id=1"),
            log_row(4, None, None, "no=1"),
        )
        wait_until(
            lambda: len(sink.documents) == 2 and is_drained(database, running),
            "the third row is sent",
        )
    assert list(statuses(database).values()) == ["S", "E", "S"]
    (warning,) = warnings_of(caplog)
    assert warning.startswith(
        "usr: column id is called no now (or was dropped, and no added); the key is no now, and "
        "was id: rows that were logged under the old key get status E. "
        'Add previous_key = ["id"] to its [[watch]]; then `eventlog resync CLASS --deletes` deletes '
        "what the receiver has under the old key, and `eventlog resync CLASS` sends it under the new "
        "key; see `eventlog triggers plan`"
    )


def plan_of(config: Config) -> TriggerPlan:
    with reading(config) as db:
        return planned_triggers(db, config)


def drift_of(config: Config) -> list[str]:
    with reading(config) as db:
        differ = differences(find_log(db, config), config)
        return [*differ.tables, *differ.refused]


PLANS = {
    "add": (
        "ALTER TABLE usr ADD mail text",
        "column mail (text) is new in the watch and not captured yet",
    ),
    "drop": (
        "ALTER TABLE usr DROP nick",
        "column nick was dropped; the triggers still use nick: until triggers are applied, they "
        "log rows without values, which are read back",
    ),
    "rename": (
        "ALTER TABLE usr RENAME nick TO alias",
        "column nick is called alias now (or was dropped, and alias added); the triggers still "
        "use nick: until triggers are applied, they log rows without values, which are read back",
    ),
    "retype": (
        "ALTER TABLE usr ALTER age TYPE bigint",
        "column age is bigint now, and was integer",
    ),
}


@pytest.mark.parametrize("change", in_ci(PLANS, "drop", "rename"))
def test_the_plan_the_status_and_the_doctor_say_what_has_changed(
    database: sa.Engine, tmp_path: Path, change: str
) -> None:
    statement, words = PLANS[change]
    config = watched(database, tmp_path)
    assert [action.kind for action in plan_of(config).actions] == ["unchanged"]
    execute(database, statement)
    (action,) = plan_of(config).changes
    assert (action.kind, action.reason) == ("replace", words)
    (finding,) = [one for one in examine(config, planned_triggers) if one.code == "trigger_drifted"]
    assert finding.text == f"triggers of public.usr are not as declared: {words}"
    assert drift_of(config) == [f"public.usr: {words}"]
    install(config)
    assert [action.kind for action in plan_of(config).actions] == ["unchanged"]
    assert drift_of(config) == []


SQLITE_PLANS = {
    "ALTER TABLE usr ADD mail text": "column mail (TEXT) is new in the watch and not captured yet",
    "ALTER TABLE usr RENAME nick TO alias": (
        "column nick is called alias now (or was dropped, and alias added)"
    ),
}


@pytest.mark.parametrize("statement", SQLITE_PLANS)
def test_the_plan_reports_it_on_sqlite_too(tmp_path: Path, statement: str) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    config = watched(engine, tmp_path)
    execute(engine, statement)
    (action,) = plan_of(config).changes
    assert (action.kind, action.table, action.reason) == ("replace", "usr", SQLITE_PLANS[statement])
    assert drift_of(config) == [f"usr: {SQLITE_PLANS[statement]}"]


def test_a_publisher_on_sqlite_takes_a_new_column_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    config = watched(engine, tmp_path)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(engine, "INSERT INTO usr (id, name) VALUES (1, 'Jack')")
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(engine, running),
            "the first row is sent",
        )
        execute(engine, "ALTER TABLE usr ADD mail text", log_row(2, "mail", "a@b.c"))
        wait_until(
            lambda: len(sink.documents) == 2 and is_drained(engine, running),
            "the second row is sent",
        )
    assert set(statuses(engine).values()) == {"S"}
    assert 'attr-name="mail"' in sink.bodies[1]
    (warning,) = warnings_of(caplog)
    assert warning.startswith("usr: column mail (TEXT) is new; see")
