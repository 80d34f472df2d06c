"""With whose rights triggers run on MariaDB and MySQL (spec/triggers.md 7.7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mysql_servers
import pytest
import sqlalchemy as sa
from shared import execute, url_of

from eventlog import cli


class Shop(NamedTuple):
    owner: sa.Engine
    """A user with all rights on this database alone, who applies the triggers."""
    root: sa.Engine
    capfd: pytest.CaptureFixture[str]

    def command(self, engine: sa.Engine, *arguments: str) -> str:
        self.capfd.readouterr()
        cli.run(["--quiet", "--database-url", url_of(engine), *arguments])
        return self.capfd.readouterr().out

    def findings(self, engine: sa.Engine) -> list[dict[str, Any]]:
        found = json.loads(self.command(engine, "doctor", "--json"))["findings"]
        assert not [one for one in found if one["code"] == "check_failed"]
        return [one for one in found if one["code"].startswith("definer")]


@pytest.fixture
def shop(
    family_server: mysql_servers.Server, empty_home: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Shop]:
    Path("eventlog.toml").write_text('[[watch]]\ntable = "usr"\n')
    with family_server.database() as url:
        owner = sa.create_engine(url, poolclass=sa.NullPool)
        root = sa.create_engine(family_server.url.set(database=url.database), poolclass=sa.NullPool)
        shop = Shop(owner, root, capfd)
        execute(owner, "CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(40))")
        shop.command(owner, "db", "upgrade")
        yield shop


def test_a_definer_with_rights_on_all_databases_is_a_warning(shop: Shop) -> None:
    shop.command(shop.owner, "triggers", "apply")
    assert shop.findings(shop.owner) == shop.findings(shop.root) == []
    shop.command(shop.owner, "triggers", "drop", "--yes")
    shop.command(shop.root, "triggers", "apply")
    (finding,) = shop.findings(shop.root)
    assert (finding["code"], finding["severity"]) == ("definer_rights", "warning")
    assert "the triggers of usr run with the rights of root@localhost" in finding["text"]
    assert "SUPER" in finding["text"]
    # A user that sees no other user learns nothing.
    assert shop.findings(shop.owner) == []


def test_a_definer_that_is_gone_is_an_error(shop: Shop) -> None:
    execute(
        shop.root,
        "CREATE USER gone@localhost IDENTIFIED BY 'gone'",
        f"GRANT ALL ON {shop.root.url.database}.* TO gone@localhost",
    )
    gone = sa.create_engine(shop.owner.url.set(username="gone", password="gone"))
    shop.command(gone, "triggers", "apply")
    gone.dispose()
    assert shop.findings(shop.root) == []
    execute(shop.root, "DROP USER gone@localhost")
    with pytest.raises(sa.exc.DBAPIError, match="1449"):
        execute(shop.owner, "INSERT INTO usr VALUES (1, 'Ada')")
    (finding,) = shop.findings(shop.root)
    assert (finding["code"], finding["severity"]) == ("definer_missing", "error")
    assert "the triggers of usr run with the rights of gone@localhost" in finding["text"]
