"""Names with control characters, and texts with secrets, as log lines, commands and the
configuration show them.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url

from eventlog.cli import cli
from eventlog.cli.context import configure_logging, print_json, result
from eventlog.config.load import load
from eventlog.config.settings import LogSettings
from eventlog.core.options import toml
from eventlog.errors import visible, without_secrets
from eventlog.sql.connect.connection import reason_of

HOSTILE = "usr\x1b[31m\r\n2026 ERROR forged\u2028\u202e\x9b"


def is_visible(text: str) -> bool:
    return not any(char in text for char in "\x1b\r\u2028\u202e\x9b")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    handlers, root.handlers = root.handlers, [logging.StreamHandler(stream)]
    try:
        yield stream
    finally:
        root.handlers = handlers


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_line_stays_one_line_whatever_a_name_holds(logged: io.StringIO, form: str) -> None:
    configure_logging(LogSettings(format=form), quiet=False, verbose=0)
    logging.getLogger("eventlog.publisher").warning("table %s is gone", HOSTILE)
    (line,) = logged.getvalue().rstrip("\n").split("\n")
    assert is_visible(line)
    if form == "json":
        assert json.loads(line)["message"] == f"table {HOSTILE} is gone"


def test_config_shows_a_name_on_one_line() -> None:
    flags = ["--set", f"database.log_table={HOSTILE}x", "--database-url", "postgresql://u@h/d"]
    shown = CliRunner().invoke(cli, [*flags, "config"])
    assert shown.exit_code == 0, shown.output
    assert is_visible(shown.stdout)
    assert "forged\\u2028" in shown.stdout


@pytest.mark.parametrize("name", ["usr\u2028", "\u00a0usr", "usr\u2003"])
def test_a_name_keeps_blanks_of_unicode_at_its_ends(name: str) -> None:
    config = load(
        {"database": {"url": "postgresql://u@h/d", "tables": [name]}, "watch": [{"table": name}]},
        {},
    )
    assert config.watches[0].name == name
    assert config.database.tables == (name,)


def test_toml_writes_what_cannot_be_seen_as_escapes() -> None:
    assert toml("a\u2028\x85\x7fb") == '"a\\u2028\\u0085\\u007fb"'


def test_what_can_be_seen_is_left_as_it_is() -> None:
    assert visible("Größe 表 😀 \\u0041") == "Größe 表 😀 \\u0041"


def test_a_result_into_a_pipe_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    result('GRANT SELECT ON "plain\x1b[31m"', colour="red")
    print_json({"name": "plain\x1b[31m"})
    assert capsys.readouterr().out == (
        'GRANT SELECT ON "plain\x1b[31m"\n{\n  "name": "plain\\u001b[31m"\n}\n'
    )


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        ('role "publisher" does not exist', "pub", 'role "publisher" does not exist'),
        ('password "pub" is wrong for publisher', "pub", 'password "***" is wrong for publisher'),
        ("postgresql://u:p%b@h", "p%b", "postgresql://u:***@h"),
        ("user=u password=-x- host", "-x-", "user=u password=*** host"),
        ("a text", "", "a text"),
    ],
)
def test_a_secret_of_up_to_three_characters_is_replaced_as_a_whole_word(
    text: str, secret: str, shown: str
) -> None:
    assert without_secrets(text, [secret]) == shown


@pytest.mark.parametrize("secret", ["S3cr", "S3cretS3cretS3c", "S3cretS3cretS3cret"])
def test_a_longer_secret_is_replaced_wherever_it_stands(secret: str) -> None:
    assert without_secrets(f"xy{secret}99 \x1b[2J{secret} {secret}", [secret]) == (
        "xy***99 \x1b[2J*** ***"
    )


def test_a_secret_that_contains_another_one_is_replaced_whole() -> None:
    assert without_secrets("is S3cret-and-more right", ["S3cret", "S3cret-and-more"]) == (
        "is *** right"
    )


def test_a_password_with_several_blanks_is_replaced_in_a_drivers_reason() -> None:
    url = make_url("postgresql://u@h/d").set(password="two  blanks")
    assert reason_of(RuntimeError("invalid\nvalue two  blanks"), url) == "invalid value ***"


def test_a_drivers_reason_does_not_tell_a_short_password() -> None:
    url = make_url("postgresql://publisher:pub@h/d")
    reason = reason_of(
        RuntimeError('FATAL: password authentication failed for user "publisher"'), url
    )
    assert reason == 'FATAL: password authentication failed for user "publisher"'
