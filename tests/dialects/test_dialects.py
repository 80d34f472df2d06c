"""What every dialect declares, and what it prints with no database at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog.cli import run
from eventlog.errors import ConfigError
from eventlog.sql import dialects
from eventlog.sql.dialect import CAPABILITIES

CATALOG = {
    "dialect": "any",
    "schema": None,
    "tables": [
        {
            "name": "usr",
            "kind": "table",
            "columns": [{"name": "idu", "type": "integer"}, {"name": "fname", "type": "varchar(40)"}],
            "primary_key": ["idu"],
        },
        {
            "name": "usr_phone",
            "kind": "table",
            "columns": [{"name": "idu", "type": "integer"}, {"name": "phoneno", "type": "varchar(40)"}],
            "foreign_keys": [{"columns": ["idu"], "table": "usr", "ref_columns": ["idu"]}],
        },
    ],
}


@pytest.mark.parametrize("name", dialects.SUPPORTED)
def test_capabilities_are_of_the_known_ones(name: str) -> None:
    dialect = dialects.load(name)
    assert dialect.name == name
    assert dialect.capabilities <= set(CAPABILITIES)
    assert (dialect.wake is not None) == ("wake" in dialect.capabilities)


def test_an_unknown_database_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="postgresql, oracle, sqlite"):
        dialects.load("mysql")


@pytest.mark.parametrize("name", dialects.SUPPORTED)
def test_everything_is_printed_without_a_database_or_a_url(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("catalog.json").write_text(json.dumps({"database": CATALOG}))
    Path("eventlog.toml").write_text('[[watch]]\ntable = "usr"\nstyle = "row_query_back"\n')
    for command in (["db", "upgrade"], ["db", "downgrade"]):
        assert run([*command, "--sql", "--dialect", name]) == 0
        assert "eventlog_inflight" in capsys.readouterr().out.lower()
    assert run(["triggers", "show", "--sql", "--dialect", name, "--catalog", "catalog.json"]) == 0
    printed = capsys.readouterr().out.lower()
    for trigger in ("tgr_usr_i_1", "tgr_usr_u_1", "tgr_usr_d_1", "tgr_usr_phone_d_1"):
        assert trigger in printed
    assert run(["triggers", "show", "--sql", "--dialect", name, "--catalog", "catalog.json"]) == 0
    assert capsys.readouterr().out.lower() == printed
