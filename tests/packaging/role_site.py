"""A database as the pages describe it, on which their blocks are run by the roles that they
name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from documents import Block

from eventlog import cli


def at_home_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory, without settings of the environment, with documents as files in
    ``documents``.
    """
    for name in os.environ:
        if name.startswith("EVENTLOG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", "")
    monkeypatch.setenv("EVENTLOG_SINK_TYPE", "files")
    monkeypatch.setenv("EVENTLOG_SINK_DIRECTORY", str(directory / "documents"))
    monkeypatch.chdir(directory)


@dataclass
class Site:
    """A database. Roles belong to the whole server, so each site has its own names for them."""

    engine: sa.Engine
    directory: Path
    suffix: str

    def named(self, text: str) -> str:
        """A text with this site's names of the roles; ``publisher.`` is a section."""
        return re.sub(r"\b(hr_owner|hr_app|publisher|log_owner)\b(?!\.)", rf"\1{self.suffix}", text)

    def url(self, role: str) -> str:
        url = (
            self.engine.url
            if role == "postgres"
            else self.engine.url.set(username=self.named(role))
        )
        return url.render_as_string(hide_password=False)

    def sql(self, role: str, statements: str) -> None:
        conninfo = self.url(role).replace("+psycopg", "")
        with psycopg.connect(conninfo, autocommit=True) as session:
            session.execute(self.named(statements).encode())

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        with self.engine.connect() as conn:
            return [tuple(row) for row in conn.exec_driver_sql(statement)]

    def command(self, role: str, line: str) -> int:
        """A line of a shell: ``eventlog ... [> FILE]`` or ``psql ... -f FILE``."""
        words = shlex.split(line, comments=True)
        if words[0] == "psql":
            self.sql(
                role, (self.directory / words[words.index("-f") + 1]).read_text(encoding="utf-8")
            )
            return 0
        assert words[0] == "eventlog", line
        os.environ["EVENTLOG_DATABASE_URL"] = self.url(role)
        return cli.run(words[1 : words.index(">") if ">" in words else None])

    def run(self, block: Block, capture: pytest.CaptureFixture[str]) -> None:
        if block.language == "sql":
            self.sql(block.role, block.text)
            return
        for line in self.named(block.text).splitlines():
            capture.readouterr()
            code = self.command(block.role, line)
            printed = capture.readouterr()
            if ">" in (words := shlex.split(line, comments=True)):
                (self.directory / words[-1]).write_text(printed.out, encoding="utf-8")
            assert code == 0, f"{line}\n{printed.out}{printed.err}"

    @contextmanager
    def roles(self, *roles: str) -> Iterator[None]:
        """The roles that the block makes are gone at its end, with all that belongs to them."""
        names = [self.named(role) for role in roles]
        try:
            yield
        finally:
            for name in names:
                if self.rows(f"SELECT FROM pg_roles WHERE rolname = '{name}'"):
                    self.sql("postgres", f"DROP OWNED BY {name} CASCADE")
            for name in names:
                self.sql("postgres", f"DROP ROLE IF EXISTS {name}")
