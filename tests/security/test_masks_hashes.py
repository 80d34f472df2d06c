"""What a receiver can learn from hashes, and who needs their key (spec/event-log.md 15.1)."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from shared import Run

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.core.options import toml
from eventlog.errors import ConfigError

SECRET: Final = "a secret of at least sixteen"
HASHED: Final = {"table": "person", "columns": ["email", "login"], "how": "hash"}
SALTED: Final = {**HASHED, "salt_by_column": True}


def digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def hashed_in(column: str, text: str) -> str:
    key = hmac.digest(SECRET.encode(), f"person\0{column}".encode(), "sha256")
    return digest(key, text)


@pytest.fixture
def url(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("CREATE TABLE person (id integer PRIMARY KEY, email text, login text)")
    return f"sqlite:///{file}"


def file_of(url: str, place: Path, mask: dict[str, Any]) -> Path:
    file = place / "eventlog.toml"
    lines = [f'[database]\nurl = "{url}"', '[[watch]]\ntable = "person"', "[[mask]]"]
    lines += [f"{name} = {toml(value)}" for name, value in mask.items()]
    lines += ["[[filter]]", 'table = "person"', 'where = "id > 0"']
    file.write_text("\n".join(lines))
    return file


def documents(file: Path) -> str:
    """What a publisher with the key sends."""
    bodies: list[str] = []
    environ = {
        "EVENTLOG_FORMAT_MASK_SECRET": SECRET,
        "EVENTLOG_PUBLISHER_ALLOW_LOOPBACK": "true",
    }
    sink = lambda body, _: bodies.append(body.decode())  # noqa: E731
    Publisher.from_config(file, sink=sink, environ=environ).run_once()
    return "\n".join(bodies)


def install(run: Run, file: Path) -> None:
    for command in (["db", "upgrade"], ["triggers", "apply"], ["filter", "accept"]):
        code, out, err = run("--config", str(file), *command)
        assert code == 0, out + err


@pytest.mark.parametrize("mask", [HASHED, SALTED], ids=["plain", "salted"])
def test_grants_filter_accept_and_resync_need_no_key_and_a_publisher_does(
    url: str, run: Run, tmp_path: Path, mask: dict[str, Any]
) -> None:
    file = file_of(url, tmp_path, mask)
    install(run, file)
    assert run("--config", str(file), "resync", "person")[0] == 0
    assert run("--config", str(file), "grants", "eventlog")[0] == 0
    with pytest.raises(ConfigError, match="EVENTLOG_FORMAT_MASK_SECRET"):
        Publisher.from_config(file, sink=lambda *_: None, environ={}).run_once()


def test_with_salt_by_column_equal_values_of_two_columns_have_different_hashes(
    url: str, run: Run, tmp_path: Path
) -> None:
    file = file_of(url, tmp_path, SALTED)
    install(run, file)
    with closing(sqlite3.connect(tmp_path / "app.db")) as conn:
        conn.execute("INSERT INTO person VALUES (1, 'ann', 'ann')")
        conn.commit()
    text = documents(file)
    assert hashed_in("email", "ann") != hashed_in("login", "ann")
    assert text.count(hashed_in("email", "ann")) == text.count(hashed_in("login", "ann")) == 1
    assert digest(SECRET.encode(), "ann") not in text


def test_without_salt_the_hash_is_that_of_the_value_alone(
    url: str, run: Run, tmp_path: Path
) -> None:
    file = file_of(url, tmp_path, HASHED)
    install(run, file)
    with closing(sqlite3.connect(tmp_path / "app.db")) as conn:
        conn.execute("INSERT INTO person VALUES (1, 'ann', 'ann')")
        conn.commit()
    assert documents(file).count(digest(SECRET.encode(), "ann")) == 2


def test_salt_by_column_of_a_mask_without_a_hash_is_refused(url: str) -> None:
    mask = {**SALTED, "how": "redact"}
    with pytest.raises(ConfigError, match="salt_by_column needs how = 'hash'"):
        load({"database": {"url": url}, "mask": [mask]}, {})
