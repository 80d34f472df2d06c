"""Masks hold when they change: a reader records the masks that it uses, and a later start with other
masks is refused until `eventlog filter accept` (spec/event-log.md 15.3). A generated column does not
show what a new mask hides (15.1).
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import mysql_servers
import pytest
import sqlalchemy as sa
from publishers import install
from shared import Run, execute, in_ci, url_of

from eventlog import Event, Publisher
from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode
from eventlog.sql import migrations

SECRET: Final = "a secret of at least sixteen"
OTHER_SECRET: Final = "another secret of at least sixteen"
HASH: Final = {"table": "customer", "columns": ["email"], "how": "hash"}
REDACT: Final = {"table": "customer", "columns": ["city"], "how": "redact"}
CUSTOMER: Final = (
    "CREATE TABLE customer (id integer PRIMARY KEY, email varchar(99), city varchar(99))"
)
ANN: Final = "INSERT INTO customer (id, email, city) VALUES (1, 'ann@example.org', 'Rome')"
EVE: Final = "INSERT INTO customer (id, email, city) VALUES (2, 'eve@example.org', 'Oslo')"
READERS: Final = [None, "copy"]


def change(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    for statement in statements:
        execute(engine, statement)
    engine.dispose()


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        conn.execute(CUSTOMER)
    return f"sqlite:///{file}"


@pytest.fixture
def postgres(logged: sa.Engine) -> str:
    execute(logged, CUSTOMER)
    return url_of(logged)


@pytest.fixture
def mariadb(started_server: Callable[[str], mysql_servers.Server]) -> Iterator[str]:
    with started_server("mariadb").database() as url:
        text = url.render_as_string(hide_password=False)
        change(text, CUSTOMER)
        yield text


@pytest.fixture(params=in_ci(["sqlite", "postgres", "mariadb"], "sqlite", "postgres"))
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def configuration(
    url: str, *masks: object, consumer: str | None = None, secret: str = SECRET, **more: Any
) -> dict[str, Any]:
    source = {"consumer": consumer, "start_from": "earliest"}
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "format": {"type": "xds", "mask_secret": secret},
        "watch": [{"table": "customer"}],
        "mask": [*masks],
        **({"source": source} if consumer else {}),
        **more,
    }


def sent(config: dict[str, Any]) -> str:
    """The documents of a reader that sends the queue once."""
    bodies: list[str] = []

    def receive(body: bytes, several: Sequence[Event]) -> None:
        bodies.append(body.decode())

    Publisher.from_config(config, sink=receive, environ={}).run_once()
    return "".join(bodies)


def begun(url: str, *masks: object, consumer: str | None = None) -> None:
    """A reader that has sent an event with these masks."""
    config = configuration(url, *masks, consumer=consumer)
    install(load(config, {}))
    change(url, ANN)
    assert "customer" in sent(config)
    change(url, EVE)


def record(url: str, consumer: str | None = None) -> Any:
    """What is recorded of the masks of a reader; ``None`` = nothing."""
    statement = (
        f"SELECT masks FROM eventlog_consumer WHERE name = '{consumer}'"
        if consumer
        else "SELECT content FROM eventlog_inflight WHERE kind = 'masks'"
    )
    engine = sa.create_engine(url)
    with engine.connect() as conn:
        text = conn.exec_driver_sql(statement).scalar()
    engine.dispose()
    return None if text is None else json.loads(text)


@pytest.fixture
def command(tmp_path: Path, run: Run) -> Callable[..., tuple[int, str, str]]:
    """A function that runs a command with a configuration in a file."""

    def command(config: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
        file = tmp_path / "eventlog.toml"
        lines = []
        for name in ("database", "publisher", "format", "source"):
            values = "".join(
                f"{key} = {json.dumps(value)}\n"
                for key, value in config.get(name, {}).items()
                if key != "mask_secret"
            )
            lines.append(f"[{name}]\n{values}")
        for name in ("watch", "mask", "filter"):
            for one in config.get(name, ()):
                values = "".join(f"{key} = {json.dumps(value)}\n" for key, value in one.items())
                lines.append(f"[[{name}]]\n{values}")
        if config["format"]["mask_secret"]:
            secret = tmp_path / "secret"
            secret.write_text(config["format"]["mask_secret"])
            lines[2] += f"mask_secret_file = {json.dumps(str(secret))}\n"
        file.write_text("".join(lines))
        return run("--config", str(file), *arguments)

    return command


Command = Callable[..., tuple[int, str, str]]


class TestAChangedMask:
    @pytest.mark.parametrize("consumer", READERS)
    @pytest.mark.parametrize(
        ("masks", "secret", "what"),
        [
            ([], SECRET, r"customer\.email had the mask hash and has none now"),
            ([{**HASH, "how": "null"}], SECRET, "had the mask hash and has the mask null now"),
            ([{**HASH, "salt_by_column": True}], SECRET, "has the mask hash salt_by_column now"),
            ([HASH], OTHER_SECRET, "the secret of the hashes is another one"),
        ],
        ids=["removed", "other", "salt", "secret"],
    )
    def test_is_refused_and_nothing_is_sent(
        self, sqlite: str, consumer: str | None, masks: list[object], secret: str, what: str
    ) -> None:
        begun(sqlite, HASH, consumer=consumer)
        option = f" --consumer {consumer}" if consumer else ""
        with pytest.raises(ConfigError, match=f"{what}.*eventlog filter accept{option}`"):
            sent(configuration(sqlite, *masks, consumer=consumer, secret=secret))
        assert "eve@example.org" not in sent(configuration(sqlite, HASH, consumer=consumer))

    def test_is_refused_on_every_database(self, database: str) -> None:
        begun(database, HASH)
        with pytest.raises(ConfigError, match="had the mask hash and has none now"):
            sent(configuration(database))

    @pytest.mark.parametrize("consumer", READERS)
    def test_is_accepted_by_the_command(
        self, sqlite: str, consumer: str | None, command: Command
    ) -> None:
        begun(sqlite, HASH, REDACT, consumer=consumer)
        config = configuration(sqlite, REDACT, consumer=consumer)
        code, out, _ = command(config, "filter", "accept", "--dry-run")
        assert (code, "the masks would be accepted" in out) == (0, True)
        with pytest.raises(ConfigError):
            sent(config)
        code, out, _ = command(config, "filter", "accept")
        assert (code, "the masks accepted" in out) == (0, True)
        assert "eve@example.org" in sent(config)
        assert record(sqlite, consumer) == {"tables": {"customer": {"city": "redact"}}}

    def test_of_the_secret_is_accepted_and_the_next_delivery_records_it(
        self, sqlite: str, command: Command
    ) -> None:
        begun(sqlite, HASH)
        config = configuration(sqlite, HASH, secret=OTHER_SECRET)
        assert command(config, "filter", "accept")[0] == 0
        assert "key" not in record(sqlite)
        sent(config)
        assert "key" in record(sqlite)
        with pytest.raises(ConfigError, match="secret"):
            sent(configuration(sqlite, HASH))

    def test_is_accepted_without_the_secret(self, sqlite: str, command: Command) -> None:
        begun(sqlite, HASH, REDACT)
        config = configuration(sqlite, HASH, secret="")
        assert command(config, "filter", "accept")[0] == 0
        assert record(sqlite) == {"tables": {"customer": {"email": "hash"}}}
        assert "Oslo" in sent(configuration(sqlite, HASH))
        assert "key" in record(sqlite)

    def test_with_resend_all_objects_of_its_class_are_sent_again(
        self, sqlite: str, command: Command
    ) -> None:
        begun(sqlite, HASH, consumer="copy")
        sent(configuration(sqlite, HASH, consumer="copy"))
        config = configuration(sqlite, consumer="copy")
        code, out, _ = command(config, "filter", "accept", "--resend")
        assert (code, "all objects of customer sent again to consumer copy" in out) == (0, True)
        again = sent(config)
        assert ("ann@example.org" in again, "eve@example.org" in again) == (True, True)

    def test_is_compared_by_a_dry_run_which_records_nothing(
        self, sqlite: str, command: Command
    ) -> None:
        config = configuration(sqlite, HASH)
        install(load(config, {}))
        change(sqlite, ANN)
        code, out, _ = command(config, "publish", "--dry-run")
        assert (code, "customer" in out, record(sqlite)) == (0, True, None)
        sent(config)
        change(sqlite, EVE)
        code, out, err = command(configuration(sqlite), "publish", "--dry-run")
        assert (code, "eve@example.org" in out) == (ExitCode.USAGE, False)
        assert "had the mask hash" in err

    def test_stays_refused_after_a_reset_of_its_consumer(
        self, sqlite: str, command: Command
    ) -> None:
        begun(sqlite, HASH, consumer="copy")
        config = configuration(sqlite, consumer="copy")
        reset = ("consumers", "reset", "copy", "--start-from", "earliest", "--yes")
        assert command(config, *reset)[0] == 0
        with pytest.raises(ConfigError, match="had the mask hash"):
            sent(config)


class TestTheRecord:
    @pytest.mark.parametrize("consumer", READERS)
    def test_is_written_with_the_first_delivery_and_shows_no_secret(
        self, sqlite: str, consumer: str | None
    ) -> None:
        config = configuration(sqlite, HASH, REDACT, consumer=consumer)
        install(load(config, {}))
        sent(config)
        assert record(sqlite, consumer) == ({"tables": {}} if consumer else None)
        change(sqlite, ANN)
        sent(config)
        recorded = record(sqlite, consumer)
        assert recorded["tables"] == {"customer": {"email": "hash", "city": "redact"}}
        assert len(recorded["key"]) == 64
        assert SECRET not in json.dumps(recorded)

    def test_has_another_key_for_another_reader(self, sqlite: str) -> None:
        begun(sqlite, HASH)
        sent(configuration(sqlite, HASH, consumer="copy"))
        assert record(sqlite)["key"] != record(sqlite, "copy")["key"]

    def test_is_written_with_the_first_chunk_of_a_snapshot(self, sqlite: str) -> None:
        source = {"consumer": "copy", "start_from": "snapshot"}
        config = configuration(sqlite, HASH, consumer="copy", source=source)
        change(sqlite, ANN)
        install(load(config, {}))
        sent(config)
        assert record(sqlite, "copy")["tables"] == {"customer": {"email": "hash"}}

    @pytest.mark.parametrize("consumer", READERS)
    def test_gets_a_mask_that_is_added_and_the_log_names_it(
        self, sqlite: str, consumer: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun(sqlite, HASH, consumer=consumer)
        with caplog.at_level(logging.INFO):
            sent(configuration(sqlite, HASH, REDACT, consumer=consumer))
        assert "are recorded: customer.email (hash), customer.city (redact)" in caplog.text
        with pytest.raises(ConfigError, match=r"customer\.city had the mask redact"):
            sent(configuration(sqlite, HASH, consumer=consumer))

    @pytest.mark.parametrize("consumer", READERS)
    def test_is_made_by_a_reader_of_a_log_of_before(
        self, sqlite: str, consumer: str | None
    ) -> None:
        begun(sqlite, HASH, consumer=consumer)
        config = configuration(sqlite, REDACT, consumer=consumer)
        engine = sa.create_engine(sqlite)
        migrations.downgrade(engine, log_table="eventlog", revision="internal_5")
        migrations.upgrade(engine, log_table="eventlog")
        engine.dispose()
        assert record(sqlite, consumer) is None
        assert "eve@example.org" in sent(config)
        assert record(sqlite, consumer) == {"tables": {"customer": {"city": "redact"}}}

    def test_lacks_the_masks_of_classes_that_are_unavailable(self, sqlite: str) -> None:
        change(sqlite, "CREATE TABLE phone (id integer PRIMARY KEY, number text)")
        masks = [HASH, {"table": "phone", "columns": ["nummer"], "how": "null"}]
        watch = [{"table": "customer"}, {"table": "phone"}]
        config = configuration(sqlite, *masks, watch=watch)
        install(load({**config, "mask": []}, {}))
        change(sqlite, ANN, "INSERT INTO phone VALUES (1, '555')")
        sent(config)
        assert [*record(sqlite)["tables"]] == ["customer"]
        config["mask"][1] = {"table": "phone", "columns": ["number"], "how": "null"}
        assert "phone" in sent(config)
        assert [*record(sqlite)["tables"]] == ["customer", "phone"]


STORED: Final = {
    "sqlite": (
        "DROP TABLE customer",
        "CREATE TABLE customer (id integer PRIMARY KEY, email varchar(99), city varchar(99), "
        '[low,er] text AS (lower(/* city ) */ "email")) VIRTUAL, '
        "copied text GENERATED ALWAYS AS (trim(`low,er`)) STORED CHECK (copied <> 'id'), "
        "own text AS (upper(id || 'email')) STORED)",
    ),
    "postgres": (
        "ALTER TABLE customer ADD copied text GENERATED ALWAYS AS (lower(email)) STORED",
        "ALTER TABLE customer ADD own text GENERATED ALWAYS AS (upper(id::text || 'email')) STORED",
    ),
    "mariadb": (
        "ALTER TABLE customer ADD middle varchar(99) AS (lower(email)) VIRTUAL",
        "ALTER TABLE customer ADD copied varchar(99) AS (trim(middle)) STORED",
        "ALTER TABLE customer ADD own varchar(99) AS (upper(concat(id, 'email'))) STORED",
    ),
}
"""The column ``copied`` shows the e-mail, in databases that allow it by way of a virtual column. The
column ``own`` does not.
"""


def generate(database: str) -> None:
    """Add the generated columns."""
    dialect = {"postgresql": "postgres"}.get(name := sa.make_url(database).get_backend_name(), name)
    change(database, *STORED[dialect])


class TestAGeneratedColumn:
    def test_lets_the_class_wait_for_a_new_mask(
        self, database: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        generate(database)
        config = configuration(database, HASH)
        install(load(config, {}))
        change(database, ANN)
        assert sent(config) == ""
        assert "the generated column 'copied' shows what the mask of 'email' hides" in caplog.text
        assert "'own'" not in caplog.text
        plain = {"table": "customer", "columns": ["email"], "how": "hash", "plain": ["copied"]}
        assert "ann@example.org" in sent(configuration(database, plain))

    @pytest.mark.parametrize(
        ("mask", "watch"),
        [
            ({"columns": ["email", "copied"]}, {}),
            ({}, {"exclude": ["copied"]}),
        ],
        ids=["masked", "excluded"],
    )
    def test_that_is_masked_or_excluded_shows_nothing(
        self, sqlite: str, mask: dict[str, object], watch: dict[str, object]
    ) -> None:
        generate(sqlite)
        config = configuration(sqlite, {**HASH, **mask}, watch=[{"table": "customer", **watch}])
        install(load(config, {}))
        change(sqlite, ANN)
        body = sent(config)
        assert ("customer" in body, "ann@example.org" in body) == (True, False)

    def test_of_a_mask_that_is_changed_and_accepted_lets_the_class_wait(
        self, sqlite: str, command: Command
    ) -> None:
        begun(sqlite, HASH)
        change(sqlite, "ALTER TABLE customer ADD copied text AS (lower(email)) VIRTUAL")
        generate(sqlite)
        config = configuration(sqlite, {**HASH, "how": "redact"})
        code, out, _ = command(config, "filter", "accept")
        assert (code, "the generated column 'copied'" in out) == (0, True)
        install(load({**config, "mask": []}, {}))
        change(sqlite, ANN)
        assert sent(config) == ""

    def test_of_a_recorded_mask_is_an_error_of_doctor_and_a_warning_of_each_start(
        self, sqlite: str, command: Command, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun(sqlite, HASH)
        generate(sqlite)
        config = configuration(sqlite, HASH)
        install(load(config, {}))
        change(sqlite, ANN)
        body = sent(config)
        assert "ann@example.org" in body
        assert [
            one.levelname for one in caplog.records if "the generated column" in one.message
        ] == ["WARNING"]
        _, out, _ = command(config, "doctor", "--json")
        found = {one["code"]: one["severity"] for one in json.loads(out)["findings"]}
        assert found["mask_bypassed"] == "error"

    def test_of_a_log_of_before_is_sent_with_a_warning(
        self, sqlite: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        generate(sqlite)
        config = configuration(sqlite, HASH)
        install(load(config, {}))
        change(
            sqlite,
            "INSERT INTO eventlog_inflight (entry_no, kind, content) VALUES (0, 'masks', 'null')",
            ANN,
        )
        assert "ann@example.org" in sent(config)
        assert "the generated column 'copied' shows" in caplog.text
        assert record(sqlite)["tables"] == {"customer": {"email": "hash"}}
