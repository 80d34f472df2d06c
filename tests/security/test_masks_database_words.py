"""The database's messages about a row stay with the database: where a reader has masks or filters,
none of its texts quotes a value of a row (spec/event-log.md 15.5).

Each case plants a value that makes the condition of a filter fail, with an error whose message quotes
the value if the database's messages do. The value is then searched in every place where a message
about a row can be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import mysql_servers
import pytest
import sqlalchemy as sa
from receiver import Receiver, reply
from shared import Run, execute, fetch, url_of

from eventlog.config.load import load
from eventlog.core.options import toml
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.monitor.questions import Questions

PLANT: Final = "QZWXV"
NEEDLES: Final = (PLANT, PLANT.lower(), "0xf0")
"""The planted value, as a name in lower case, and the first byte of its last character."""


class Case(NamedTuple):
    """A condition, and a value of the column ``secret`` for which the condition fails."""

    where: str
    value: str
    error: str
    """The error in the words of eventlog."""


FUNCTIONS: Final[Mapping[str, str]] = {
    "raised": "RAISE 'no iban: %', v USING DETAIL = v, HINT = v;",
    "as_right": "RAISE '%', v USING ERRCODE = 'insufficient_privilege';",
    "as_timeout": "RAISE '%', v USING ERRCODE = 'query_canceled', DETAIL = v;",
    "as_own": "RAISE '%', v USING ERRCODE = 'EL001';",
    "as_name": "EXECUTE 'SELECT ' || v;",
    "handled": "PERFORM v::integer; EXCEPTION WHEN OTHERS THEN RAISE 'failed: %', SQLERRM;",
    "checked": "PERFORM length(v::short); INSERT INTO notes VALUES (v);",
}
POSTGRES: Final[Mapping[str, Case]] = {
    "integer": Case("secret::integer > 0", PLANT, "22P02 invalid text representation"),
    "date": Case("secret::date > '2000-01-01'", PLANT, "22007 invalid datetime format"),
    "division": Case("7 / (length(secret) - 5) > 0", PLANT, "22012 division by zero"),
    "domain": Case("secret::short IS NOT NULL", f"{PLANT} of a long name", "23514 check violation"),
    "json": Case("secret::json->>'a' = 'b'", PLANT, "22P02 invalid text representation"),
    "relation": Case("secret::regclass IS NOT NULL", PLANT, "42P01 undefined table"),
    "query": Case("to_tsquery(secret) IS NOT NULL", f"({PLANT} & (", "42601 syntax error"),
    "zone": Case(
        "now() AT TIME ZONE secret > '1900-01-01'", PLANT, "22023 invalid parameter value"
    ),
    "setting": Case("current_setting(secret) = ''", PLANT, "42704 undefined object"),
    "encoding": Case(
        "convert_to(secret, 'LATIN1') <> ''", f"{PLANT}\U0001f600", "22P05 untranslatable character"
    ),
    "raised": Case("raised(secret)", PLANT, "P0001 raise exception"),
    "as_right": Case("as_right(secret)", PLANT, "42501 insufficient privilege"),
    "as_own": Case("as_own(secret)", PLANT, "SQLSTATE EL001"),
    "as_name": Case("as_name(secret)", PLANT, "42703 undefined column"),
    "handled": Case("handled(secret)", PLANT, "P0001 raise exception"),
    "checked": Case("checked(secret)", PLANT, "23514 check violation"),
}
FAMILY_FUNCTIONS: Final[Mapping[str, str]] = {
    "raised": "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v;",
    "as_right": "SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1142, MESSAGE_TEXT = v;",
    "as_integer": "DECLARE x integer; SET x = v;",
    "as_date": "DECLARE x date; SET x = v;",
    "divided": "DECLARE x integer; SET x = 7 / (CHAR_LENGTH(v) - 5);",
    "short": "DECLARE x varchar(3); SET x = v;",
    "encoded": "DECLARE x varchar(40) CHARACTER SET latin1; SET x = v;",
}
MARIADB: Final[Mapping[str, Case]] = {
    "raised": Case("raised(secret)", PLANT, "1644"),
    "as_right": Case("as_right(secret)", PLANT, "1142"),
    "as_integer": Case("as_integer(secret)", PLANT, "1366"),
    "as_date": Case("as_date(secret)", PLANT, "1292"),
    "divided": Case("divided(secret)", PLANT, "1365"),
    "short": Case("short(secret)", PLANT, "1406"),
    "encoded": Case("encoded(secret)", f"{PLANT}\U0001f600", "1366"),
    "large": Case("CHAR_LENGTH(secret) + 9223372036854775807 > 0", PLANT, "1690"),
}
SQLITE: Final[Mapping[str, Case]] = {
    "path": Case("json_extract('{}', secret) IS NULL", PLANT, "SQLITE_ERROR"),
    "json": Case("json_extract(secret, '$.a') IS NULL", PLANT, "SQLITE_ERROR"),
    "large": Case("abs(-9223372036854775808 + 0 * length(secret)) > 0", PLANT, "SQLITE_ERROR"),
    "escape": Case("'a' LIKE 'b' ESCAPE secret", PLANT, "SQLITE_ERROR"),
}


class Planted(NamedTuple):
    """A database with the cases, and the expressions of views that fail for the planted value."""

    engine: sa.Engine
    cases: Mapping[str, Case]
    views: Mapping[str, Case]

    def plant(self, name: str) -> None:
        execute(self.engine, f"INSERT INTO {name}_t VALUES (1, '{self.cases[name].value}')")


def tables(cases: Mapping[str, Case]) -> list[str]:
    return [f"CREATE TABLE {name}_t (id integer PRIMARY KEY, secret varchar(60))" for name in cases]


def in_sqlite(file: Path) -> Iterator[Planted]:
    engine = sa.create_engine(f"sqlite:///{file}")
    execute(engine, *tables(SQLITE))
    yield Planted(engine, SQLITE, {"path": SQLITE["path"]})
    engine.dispose()


def in_postgres(engine: sa.Engine) -> Iterator[Planted]:
    execute(
        engine,
        *tables(POSTGRES),
        "CREATE DOMAIN short AS text CHECK (length(VALUE) < 9)",
        "CREATE TABLE notes (note text CHECK (note = ''))",
        *(
            f"CREATE FUNCTION {name}(v text) RETURNS boolean LANGUAGE plpgsql AS "
            f"$$ BEGIN {body} RETURN true; END $$"
            for name, body in FUNCTIONS.items()
        ),
    )
    timeout = Case("as_timeout(secret)", PLANT, "57014 query canceled")
    yield Planted(engine, POSTGRES, {"integer": POSTGRES["integer"], "division": timeout})


def in_mariadb(server: mysql_servers.Server) -> Iterator[Planted]:
    with server.database() as url:
        # The superuser sees the open writers, so consumers are possible.
        engine = sa.create_engine(server.url.set(database=url.database), poolclass=sa.NullPool)
        execute(
            engine,
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO'",
            *tables(MARIADB),
            *(
                f"CREATE FUNCTION {name}(v varchar(60)) RETURNS integer DETERMINISTIC NO SQL "
                f"BEGIN {body} RETURN 1; END"
                for name, body in FAMILY_FUNCTIONS.items()
            ),
        )
        yield Planted(engine, MARIADB, {"as_integer": MARIADB["as_integer"]})


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Planted]:
    if request.param == "sqlite":
        yield from in_sqlite(tmp_path / "app.db")
    elif request.param == "postgresql":
        yield from in_postgres(request.getfixturevalue("database"))
    else:
        yield from in_mariadb(request.getfixturevalue("started_server")("mariadb"))


# --- readers, and the places ----------------------------------------------------------------------


def written(place: Path, name: str, **sections: Any) -> Path:
    """A configuration file: sections by name; a list is an array of tables."""
    lines = []
    for section, content in sections.items():
        is_array = isinstance(content, list)
        for one in content if is_array else [content]:
            lines.append(f"[[{section}]]" if is_array else f"[{section}]")
            lines += [f"{key} = {toml(value)}" for key, value in one.items()]
    file = place / f"{name}.toml"
    file.write_text("\n".join(lines))
    return file


def configuration(planted: Planted, place: Path, name: str, **more: Any) -> Path:
    common = {
        "database": {"url": url_of(planted.engine)},
        "publisher": {"allow_loopback": True, "retry_initial": 0.01},
        "sink": {"type": "files", "directory": str(place / f"sent-by-{name}")},
        "format": {"type": "cloudevents"},
        "monitor": {"show_values": True},
    }
    return written(place, name, **common, **more)


def of_cases(cases: Mapping[str, Case]) -> dict[str, Any]:
    """The watches and filters. Only each second class has a mask: the others show that the filter
    alone hides the values of objects that belong to another reader.
    """
    return {
        "watch": [{"table": f"{name}_t"} for name in cases],
        "filter": [{"table": f"{name}_t", "where": case.where} for name, case in cases.items()],
        "mask": [
            {"table": f"{name}_t", "columns": ["secret"], "how": "redact"} for name in masked(cases)
        ],
    }


def masked(cases: Mapping[str, Case]) -> list[str]:
    return list(cases)[::2]


class Places:
    """The texts of all places, and the way to more of them."""

    def __init__(self, run: Run) -> None:
        self.texts: dict[str, str] = {}
        self._run = run

    def command(self, file: Path, *arguments: str) -> str:
        """What a command prints, results and log lines."""
        _, out, err = self._run("--config", str(file), *arguments)
        text = self.texts[f"{file.name} {' '.join(arguments)}"] = out + err
        return text

    def page(self, file: Path, what: str, *arguments: str) -> None:
        """What the status page answers in JSON."""
        asked = getattr(Questions(load(file, {}), planned_triggers), what)
        self.texts[f"{file.name} page {what}"] = json.dumps(asked(*arguments))

    def table(self, planted: Planted, name: str) -> list[tuple[Any, ...]]:
        rows = fetch(planted.engine, f"SELECT * FROM {name}")
        self.texts[name] = str(rows)
        return rows

    def quoting(self) -> dict[str, str]:
        """The places whose texts have a part of the planted value."""
        return {
            place: text
            for place, text in self.texts.items()
            if any(needle in text for needle in NEEDLES)
        }


def installed(run: Run, *files: Path, filtered: bool = True) -> None:
    for command in (["db", "upgrade"], ["triggers", "apply"]):
        code, out, err = run("--config", str(files[0]), *command)
        assert code == 0, out + err
    for file in files if filtered else ():
        code, out, err = run("--config", str(file), "filter", "accept")
        assert code == 0, out + err


def test_no_text_quotes_a_row_for_which_a_condition_fails(
    planted: Planted, run: Run, tmp_path: Path
) -> None:
    places, cases = Places(run), planted.cases
    with Receiver(lambda _: reply(200, b"ok")) as chat:
        publisher = configuration(
            planted,
            tmp_path,
            "publisher",
            **of_cases(cases),
            dead_letter={"type": "files", "directory": str(tmp_path / "letters")},
        )
        consumer = configuration(
            planted,
            tmp_path,
            "consumer",
            **of_cases(cases),
            source={"consumer": "tenant", "start_from": "snapshot"},
            dead_letter={"type": "http", "url": chat.url, "chat_member": "text"},
        )
        installed(run, publisher, consumer)
        for name in cases:
            planted.plant(name)
        for file in (publisher, consumer):
            places.command(file, "publish", "--once")
        places.table(planted, "eventlog_error")
        for name, case in cases.items():
            message = f"the condition of [[filter]] {name}_t fails: {case.error}"
            assert places.texts["eventlog_error"].count(message) >= 2, name
        places.command(publisher, "requeue", "--code", "bad_filter")
        places.command(publisher, "-vv", "publish", "--once")
        sentences = [json.loads(one.body)["text"] for one in chat.requests]
    assert len(sentences) == len(cases)
    places.texts["letters to a chat"] = str(sentences)
    letters = [one.read_text() for one in (tmp_path / "letters").rglob("*.jsonl")]
    assert sum(text.count("bad_filter") for text in letters) >= len(cases)
    places.texts["letters in files"] = str(letters)
    places.table(planted, "eventlog_inflight")
    for file in (publisher, consumer):
        for command in ("errors", "status", "doctor"):
            places.command(file, command)
            places.command(file, command, "--json")
        places.page(file, "errors")
    name = masked(cases)[0]  # explain shows the values of rows without a mask
    named = f"SELECT min(record_id) FROM eventlog WHERE table_name = '{name}_t'"
    record_id = str(fetch(planted.engine, named)[0][0])
    places.command(publisher, "explain", record_id)
    places.page(publisher, "explain", record_id)
    places.command(consumer, "explain", f"snapshot.{name}_t.id=1")
    places.command(publisher, "explain", "--key", f"{name}_t.id=1")
    places.page(publisher, "search", f"{name}_t.id=1")
    assert not places.quoting()


def test_no_text_quotes_a_row_for_which_a_view_fails(
    planted: Planted, run: Run, tmp_path: Path
) -> None:
    places = Places(run)
    for name, case in planted.views.items():
        execute(
            planted.engine,
            f"CREATE VIEW {name}_v AS SELECT id AS pk_id, {case.where} AS sv_secret FROM {name}_t",
        )
    base = {"id": "pk_id", "secret": "sv_secret"}
    for name, case in planted.views.items():
        file = configuration(
            planted,
            tmp_path,
            f"publisher-{name}",
            watch=[
                {"view": f"{name}_v", "row_style": "row_query_back", "base": {f"{name}_t": base}}
            ],
            mask=[{"table": f"{name}_v", "columns": ["sv_secret"], "how": "redact"}],
        )
        installed(run, file, filtered=False)
        planted.plant(name)
        lines = places.command(file, "publish", "--once")
        assert f"{case.error}" in lines
        assert f"reading class {name}_v" in lines
        places.command(file, "-vv", "publish", "--once")
        places.command(file, "explain", "1")
        places.command(file, "explain", "--key", f"{name}_v.pk_id=1")
        places.command(file, "resync", f"{name}_v")
        target = f"sqlite:///{tmp_path / 'copy.db'}"
        places.command(file, "verify", f"{name}_v", "--target", target, "--wait", "0")
        for command in ("errors", "status", "doctor"):
            places.command(file, command)
        execute(planted.engine, "DELETE FROM eventlog")
    assert not places.quoting()


def test_explain_show_values_quotes_the_database_to_who_asks(
    planted: Planted, run: Run, tmp_path: Path
) -> None:
    name = next(iter(planted.cases))
    case = {name: planted.cases[name]}
    file = configuration(planted, tmp_path, "publisher", **of_cases(case))
    installed(run, file)
    planted.plant(name)
    places = Places(run)
    places.command(file, "publish", "--once")
    assert PLANT in places.command(file, "explain", "1", "--show-values")
    assert PLANT in places.command(file, "explain", "--key", f"{name}_t.id=1", "--show-values")
    del places.texts["publisher.toml explain 1 --show-values"]
    del places.texts[f"publisher.toml explain --key {name}_t.id=1 --show-values"]
    places.table(planted, "eventlog_error")
    places.command(file, "explain", "1")
    assert not places.quoting()


def test_a_reader_without_masks_and_filters_quotes_the_database(
    planted: Planted, run: Run, tmp_path: Path
) -> None:
    name, case = next(iter(planted.views.items()))
    execute(
        planted.engine,
        f"CREATE VIEW {name}_v AS SELECT id AS pk_id, {case.where} AS sv_secret FROM {name}_t",
    )
    base = {f"{name}_t": {"id": "pk_id", "secret": "sv_secret"}}
    watch = [{"view": f"{name}_v", "row_style": "row_query_back", "base": base}]
    file = configuration(planted, tmp_path, "publisher", watch=watch)
    installed(run, file, filtered=False)
    planted.plant(name)
    assert PLANT in Places(run).command(file, "publish", "--once")
