"""What every dialect declares, and what it prints with no database at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from eventlog.cli import run
from eventlog.errors import ConfigError
from eventlog.sql.connect.connection import SUPPORTED
from eventlog.sql.dialects.stepwise import StepwiseDialect
from eventlog.sql.port.database import CAPABILITIES
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.triggers.marked import MarkedTriggers

CATALOG = {
    "dialect": "any",
    "schema": None,
    "tables": [
        {
            "name": "usr",
            "kind": "table",
            "columns": [
                {"name": "idu", "type": "integer"},
                {"name": "fname", "type": "varchar(40)"},
            ],
            "primary_key": ["idu"],
        },
        {
            "name": "usr_phone",
            "kind": "table",
            "columns": [
                {"name": "idu", "type": "integer"},
                {"name": "phoneno", "type": "varchar(40)"},
            ],
            "foreign_keys": [{"columns": ["idu"], "table": "usr", "ref_columns": ["idu"]}],
        },
    ],
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_capabilities_are_of_the_known_ones(name: str) -> None:
    dialect = load_dialect(name)
    assert dialect.name == name
    assert dialect.capabilities <= set(CAPABILITIES)
    assert (dialect.wake is not None) == ("wake" in dialect.capabilities)


def test_a_further_database_has_no_more_than_23_methods_to_write() -> None:
    architecture = (
        Path(__file__).parents[2] / "docs" / "developers" / "architecture.md"
    ).read_text(encoding="utf-8")
    to_write = [
        *sorted(StepwiseDialect.__abstractmethods__),
        *sorted(MarkedTriggers.__abstractmethods__),
    ]
    assert len(to_write) <= 23
    assert [name for name in to_write if f"`{name}`" not in architecture] == []


def test_an_unknown_database_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"mssql. is not supported"):
        load_dialect("mssql")


@pytest.mark.parametrize("name", SUPPORTED)
def test_what_migrations_print_is_one_transaction_where_ddl_is_part_of_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["db", "upgrade"], ["db", "downgrade", "base"]):
        assert run([*command, "--sql", "--dialect", name]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line]
        transactions = [line for line in lines if line in ("BEGIN;", "COMMIT;")]
        if "transactional_ddl" in load_dialect(name).capabilities:
            assert transactions == [lines[0], lines[-1]] == ["BEGIN;", "COMMIT;"]
        else:
            assert transactions == [lines[-1]] == ["COMMIT;"]


@pytest.mark.parametrize("name", SUPPORTED)
def test_everything_is_printed_without_a_database_or_a_url(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("catalog.json").write_text(json.dumps({"database": CATALOG}))
    Path("eventlog.toml").write_text('[[watch]]\ntable = "usr"\nrow_style = "row_query_back"\n')
    for command in (["db", "upgrade"], ["db", "downgrade", "base"]):
        assert run([*command, "--sql", "--dialect", name]) == 0
        assert "eventlog_inflight" in capsys.readouterr().out.lower()
    assert run(["triggers", "list", "--sql", "--dialect", name, "--catalog", "catalog.json"]) == 0
    printed = capsys.readouterr().out.lower()
    for trigger in ("tgr_usr_i_1", "tgr_usr_u_1", "tgr_usr_d_1", "tgr_usr_phone_d_1"):
        assert trigger in printed
    assert run(["triggers", "list", "--sql", "--dialect", name, "--catalog", "catalog.json"]) == 0
    assert capsys.readouterr().out.lower() == printed


OF_ANOTHER = [
    # dialect of the file, --dialect, exit code, in what is reported
    ("oracle", "oracle", 0, None),
    (
        "postgresql",
        "oracle",
        0,
        "its tables are from postgresql, but the SQL is for oracle",
    ),
    ("mysql", "sqlite", 0, "its tables are from mysql, but the SQL is for sqlite"),
]


@pytest.mark.parametrize(("of", "name", "code", "said"), OF_ANOTHER)
def test_a_catalogue_of_another_database_is_warned_of(
    of: str, name: str, code: int, said: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert show(name, {**CATALOG, "dialect": of}, tmp_path, monkeypatch) == code
    printed, errors = capsys.readouterr()
    assert "CREATE" in printed
    assert (
        errors == ""
        if said is None
        else f"warning: --catalog catalog.json: {said}" in " ".join(errors.split())
    )


NAMES_THAT_CANNOT_BE = [
    ("oracle", 'a"b', "contains a quotation mark"),
    ("oracle", "ä" * 65, "of 130 bytes, but oracle allows 128"),
    ("postgresql", "a" * 64, "of 64 bytes, but postgresql allows 63"),
]


@pytest.mark.parametrize(("dialect", "name", "said"), NAMES_THAT_CANNOT_BE)
def test_a_catalogue_with_a_name_that_the_database_cannot_have_is_refused(
    dialect: str, name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert show(dialect, catalogue_of(dialect, {name: "integer"}), tmp_path, monkeypatch) == 2
    printed, errors = capsys.readouterr()
    assert printed == ""
    assert said in " ".join(errors.split())


def test_a_catalogue_with_types_that_the_database_lacks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = catalogue_of("oracle", {"AT": "time", "WHO": "uuid", "ON": "date"})
    assert show("oracle", tables, tmp_path, monkeypatch) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "T.AT is time, a type that oracle does not have: its values are treated as text" in said
    assert "T.WHO is uuid" in said
    assert "T.ON" not in said


def catalogue_of(dialect: str, columns: Mapping[str, str]) -> dict[str, object]:
    found = [
        {"name": "ID", "type": "integer"},
        *({"name": name, "type": of} for name, of in columns.items()),
    ]
    table = {"name": "T", "kind": "table", "columns": found, "primary_key": ["ID"]}
    return {"dialect": dialect, "schema": None, "tables": [table]}


def show(
    name: str, catalogue: Mapping[str, object], place: Path, monkeypatch: pytest.MonkeyPatch
) -> int:
    monkeypatch.chdir(place)
    Path("catalog.json").write_text(json.dumps(catalogue))
    return run(["triggers", "list", "--sql", "--dialect", name, "--catalog", "catalog.json"])
