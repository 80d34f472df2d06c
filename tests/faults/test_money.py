"""Money is a number, whose point ``lc_monetary`` of the database determines (spec/xds.md 6.1)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import Run, execute, fetch, url_of

from eventlog.config.load import load
from eventlog.core.values import (
    ColumnType,
    Kind,
    ValueOptions,
    converter,
    money_numbers,
    parse_type,
)
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import dry_run
from eventlog.registry import FORMATS, installed


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


@pytest.mark.parametrize(
    ("logged", "by_point"),
    [
        ("$12.34", {0: "1234", 2: "12.34", 3: "1.234"}),
        ("-$1,234.50", {0: "-123450", 2: "-1234.50", 3: "-123.450"}),
        ("$0.01", {0: "1", 2: "0.01", 3: "0.001"}),
        ("$0.00", {0: "0", 2: "0.00", 3: "0.000"}),
        (
            '{$1.00,NULL,"-$92,233,720,368,547,758.08"}',
            {0: "{100,NULL,-9223372036854775808}", 2: "{1.00,NULL,-92233720368547758.08}"},
        ),
        ("1234.5", {0: "1234.5", 2: "1234.5"}),
    ],
)
def test_the_text_that_triggers_log_is_the_stored_integer(
    logged: str, by_point: dict[int, str]
) -> None:
    for point, number in by_point.items():
        assert money_numbers(logged, point) == number
        assert money_numbers(number, point) == number


@pytest.mark.parametrize(
    ("text", "sql", "point"),
    [("money", "money", 2), ("money(0)", "money", 0), ("money(3)[]", "money[]", 3)],
)
def test_a_catalogue_has_the_digits_after_the_point(text: str, sql: str, point: int) -> None:
    type = parse_type(text)
    assert type == ColumnType(Kind.OTHER, sql=sql, point=point)
    assert converter(type, ValueOptions())("$1.00") == {0: "100", 2: "1.00", 3: "0.100"}[point]


CURRENCIES = {"ja_JP.UTF-8": "1234", "ar_KW.UTF-8": "1.234", "C": "12.34"}
"""The number whose stored integer is 1234, by locale."""


@pytest.fixture(params=[*CURRENCIES])
def priced(database: sa.Engine, request: pytest.FixtureRequest) -> tuple[sa.Engine, str]:
    """A table with an amount whose stored integer is 1234, and its number."""
    try:
        execute(database, f"SELECT set_config('lc_monetary', '{request.param}', false)")
    except sa.exc.DBAPIError:
        pytest.skip(f"this machine has no locale {request.param}; install the package locales-all")
    name = database.url.database
    execute(database, f"ALTER DATABASE {name} SET lc_monetary = '{request.param}'")
    database.dispose()
    execute(database, "CREATE TABLE price (id integer PRIMARY KEY, amount money, amounts money[])")
    return database, CURRENCIES[request.param]


def test_an_amount_is_one_number_whoever_reads_it(
    priced: tuple[sa.Engine, str], tmp_path: Path, run: Run
) -> None:
    database, number = priced
    watch = {"table": "price"}
    where = {
        "publisher": {"allow_loopback": True},
        "sink": {"type": "kafka", "brokers": "x:1", "topic": "t"},
    }
    path = write_config(tmp_path, url_of(database), [watch], **where)
    install(load(path, {}))
    execute(
        database,
        f"INSERT INTO price VALUES (1, {number}::numeric::money, ARRAY[{number}::numeric::money, NULL])",
    )
    assert fetch(database, "SELECT new_value FROM eventlog WHERE column_name = 'amount'") == [
        ("$12.34",)
    ]
    read_back = (
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (6, 'price', 'id=1')"
    )
    execute(database, read_back, "UPDATE eventlog SET status = 'N'")
    for name, format in installed(FORMATS):
        if not format.can("publish"):
            continue
        path = write_config(tmp_path, url_of(database), [watch], format={"type": name}, **where)
        with open_context(load(path, {}), Counters()) as context:
            shown = "".join(dry_run(context))
        assert "$12" not in shown, name
        assert len(re.findall(rf'[">]{re.escape(number)}["<]', shown)) >= 2, (name, shown)
    _, out, _ = run("--config", str(path), "catalog")
    point = len(number.partition(".")[2])
    assert [one["type"] for one in json.loads(out)["tables"][0]["columns"]] == [
        "integer", f"money({point})", f"money({point})[]",
    ]  # fmt: skip


def test_the_sessions_own_setting_does_not_count(database: sa.Engine, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE price (id integer PRIMARY KEY, amount money)")
    path = write_config(
        tmp_path,
        url_of(database),
        [{"table": "price"}],
        publisher={"allow_loopback": True},
        format={"type": "cloudevents"},
    )
    config, sink = load(path, {}), Collecting()
    install(config)
    execute(database, "SET lc_monetary = 'C'; INSERT INTO price VALUES (1, '1234.5')")
    with opened(config) as context:
        publish_once(context, sink)
    assert json.loads(sink.bodies[0])["data"]["columns"]["amount"] == {"new": "1234.50"}
