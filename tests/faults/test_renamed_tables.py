"""A table is renamed: what was logged under its old name is published under the new one
(spec/event-log.md 5.2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from publishers import Collecting, install, is_drained, publishing, runs, write_config
from shared import execute, fetch, statuses, url_of, wait_until

from eventlog.cli import cli
from eventlog.cli.context import reading
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.doctor import examine

USR = "CREATE TABLE usr (id integer PRIMARY KEY, name text)"
MAIL = (
    "CREATE TABLE usr_mail (id integer REFERENCES usr ON UPDATE CASCADE ON DELETE CASCADE, mail "
    "text)"
)
RENAMED = {"table": "person", "renamed_from": "usr"}


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def configured(engine: sa.Engine, directory: Path, *watches: dict[str, Any]) -> Config:
    options = {"polling_interval": 1, "allow_loopback": True}
    return load(write_config(directory, url_of(engine), watches, publisher=options), {})


def drained(engine: sa.Engine, config: Config) -> list[str]:
    """The documents of a publisher that runs until the queue is empty."""
    sink = Collecting()
    with publishing(config, sink) as running:
        wait_until(lambda: is_drained(engine, running), "all is published")
    return sink.bodies


def test_rows_of_the_old_name_are_sent_under_the_new_one_in_order_with_later_ones(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR)
    install(configured(database, tmp_path, {"table": "usr"}))
    execute(
        database, "INSERT INTO usr VALUES (1, 'a')", "UPDATE usr SET name = 'before' WHERE id = 1"
    )
    execute(
        database,
        "ALTER TABLE usr RENAME TO person",
        "UPDATE person SET name = 'between' WHERE id = 1",
    )
    waiting = configured(database, tmp_path, {"table": "usr"})
    with publishing(waiting, Collecting()):
        wait_until(lambda: runs(database), "it runs, and lets them wait")
    assert set(statuses(database).values()) == {"N"}

    config = configured(database, tmp_path, RENAMED)
    install(config)
    execute(
        database, "UPDATE person SET name = 'after' WHERE id = 1", "DELETE FROM person WHERE id = 1"
    )
    assert fetch(database, "SELECT DISTINCT table_name FROM eventlog ORDER BY 1") == [
        ("person",),
        ("usr",),
    ]
    text = "".join(drained(database, config))
    assert set(statuses(database).values()) == {"S"}
    assert "usr" not in text
    assert text.count("id=1,table=person") >= 2
    places = [text.index(word) for word in ("before", "between", "after", "<delete ")]
    assert places == sorted(places)


def test_a_row_logged_with_the_schema_is_of_the_class_too(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, "CREATE TABLE person (id integer PRIMARY KEY, name text)")
    config = configured(database, tmp_path, RENAMED)
    install(config)
    execute(
        database,
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'public.USR', 'id=1')",
    )
    assert "id=1,table=person" in drained(database, config)[0]


def test_a_child_table_that_was_renamed_is_named_in_was_of_its_class(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR, MAIL)
    install(configured(database, tmp_path, {"table": "usr"}))
    execute(database, "INSERT INTO usr VALUES (1, 'a')", "INSERT INTO usr_mail VALUES (1, 'a@b.c')")
    execute(
        database, "ALTER TABLE usr RENAME TO person", "ALTER TABLE usr_mail RENAME TO person_mail"
    )
    config = configured(
        database, tmp_path, {"table": "person", "renamed_from": ["usr", "usr_mail"]}
    )
    install(config)
    text = "".join(drained(database, config))
    assert set(statuses(database).values()) == {"S"}
    assert 'attr-name="person_mail.mail"' in text
    assert "a@b.c" in text


def test_a_class_that_has_the_old_name_makes_both_wait_and_the_reason_names_both(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE person (id integer PRIMARY KEY, name text)",
        USR,
        "CREATE TABLE item (id int PRIMARY KEY)",
    )
    config = configured(database, tmp_path, RENAMED, {"tables": ["*"]})
    rows = [
        f"INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, '{name}', 'id=1')"
        for name in ("usr", "person", "item")
    ]
    install(configured(database, tmp_path, {"table": "item"}))
    execute(database, *rows)
    sink = Collecting()
    with publishing(config, sink):
        wait_until(lambda: statuses(database)[3] == "S", "the third class is published")
    assert statuses(database) == {1: "N", 2: "N", 3: "S"}
    said = [
        one.text for one in examine(config, planned_triggers) if one.code == "class_unavailable"
    ]
    assert len(said) == 2
    assert all("person" in one and "'usr' is now a table of the class usr" in one for one in said)


def test_two_watches_that_mean_one_name_are_refused(database: sa.Engine, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"\[\[watch\]\] person, renamed_from = 'usr': \[\[watch\]\] usr has that name too",
    ):
        configured(database, tmp_path, {"table": "usr"}, RENAMED)


def test_what_is_gone_is_found_by_rows_of_the_old_name(database: sa.Engine, tmp_path: Path) -> None:
    execute(database, USR)
    install(configured(database, tmp_path, {"table": "usr"}))
    execute(
        database, "INSERT INTO usr VALUES (1, 'a'), (2, 'b')", "ALTER TABLE usr RENAME TO person"
    )
    config = configured(database, tmp_path, RENAMED)
    execute(database, "ALTER TABLE person DISABLE TRIGGER USER", "DELETE FROM person WHERE id = 1")
    ran = CliRunner().invoke(
        cli, ["--config", str(tmp_path / "eventlog.toml"), "resync", "person", "--deletes"]
    )
    assert ran.exit_code == 0, ran.output
    newest = (
        "SELECT event_type, table_name, table_key FROM eventlog ORDER BY record_id DESC LIMIT 1"
    )
    assert fetch(database, newest) == [(4, "person", "id=1")]
    assert "<delete " in "".join(drained(database, config))


def test_the_row_is_shown_as_one_of_the_class(database: sa.Engine, tmp_path: Path) -> None:
    execute(database, USR)
    install(configured(database, tmp_path, {"table": "usr"}))
    execute(database, "INSERT INTO usr VALUES (1, 'a')", "ALTER TABLE usr RENAME TO person")
    configured(database, tmp_path, RENAMED)
    ran = CliRunner().invoke(cli, ["--config", str(tmp_path / "eventlog.toml"), "explain", "1"])
    assert ran.exit_code == 0, ran.output
    assert "id=1,table=person" in ran.output


def test_the_plan_reports_that_the_triggers_were_made_for_another_name(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(database, USR)
    install(configured(database, tmp_path, {"table": "usr"}))
    execute(database, "ALTER TABLE usr RENAME TO person")
    config = configured(database, tmp_path, RENAMED)
    with reading(config) as db:
        (action,) = planned_triggers(db, config).changes
    assert (action.kind, action.table) == ("replace", "public.person")
    assert action.reason == (
        "its triggers call proc_usr_1, made for the former name of the table, and log "
        "that name until they are replaced"
    )


def test_on_sqlite_rows_of_the_old_name_are_sent_too(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}", poolclass=sa.NullPool)
    execute(engine, USR)
    install(configured(engine, tmp_path, {"table": "usr"}))
    execute(engine, "INSERT INTO usr VALUES (1, 'a')", "ALTER TABLE usr RENAME TO person")
    config = configured(engine, tmp_path, RENAMED)
    with reading(config) as db:
        (action,) = planned_triggers(db, config).changes
    assert action.reason.startswith("its triggers tgr_usr_d_1, tgr_usr_i_1, ")
    assert action.reason.endswith(
        "were made for the former name of the table, and log that name until they are replaced"
    )
    install(config)
    execute(engine, "UPDATE person SET name = 'b'")
    text = "".join(drained(engine, config))
    assert set(statuses(engine).values()) == {"S"}
    assert text.count("id=1,table=person") == 2
    assert text.index(">a<") < text.index(">b<")
