"""The configuration of the second sink (spec/event-log.md 8.7)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from eventlog.cli.begin.settings import template
from eventlog.config.load import load
from eventlog.config.publishing import ignored_options
from eventlog.errors import ConfigError

FILES = {"type": "files", "directory": "refused"}


def refused(**sections: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(sections, {})
    return str(error.value)


def test_it_has_the_options_of_its_type() -> None:
    letters = load({"dead_letter": {"type": "http", "url": "https://chat/hook"}}, {}).of_letters
    assert letters is not None
    assert letters.sink.options.url == "https://chat/hook"
    assert load({}, {}).of_letters is None


def test_the_environment_sets_its_secrets() -> None:
    environ = {
        "EVENTLOG_DEAD_LETTER_TYPE": "http",
        "EVENTLOG_DEAD_LETTER_URL": "https://chat/hook",
        "EVENTLOG_DEAD_LETTER_TOKEN": "abc",
    }
    letters = load({}, environ).of_letters
    assert letters is not None
    assert letters.sink.options.token == "abc"


@pytest.mark.parametrize(
    "sink",
    [
        FILES,
        {"type": "kafka", "brokers": "a:1", "topic": "t"},
        {"type": "http", "url": "https://a/"},
        {"type": "stdout"},
    ],
)
def test_the_address_of_the_first_sink_is_refused(sink: dict[str, str]) -> None:
    message = refused(sink=sink, dead_letter=sink)
    assert "would go to the receiver of [sink]" in message


def test_another_topic_of_the_same_brokers_is_accepted() -> None:
    kafka = {"type": "kafka", "brokers": "a:1", "topic": "t"}
    assert load({"sink": kafka, "dead_letter": {**kafka, "topic": "refused"}}, {}).of_letters


def test_its_messages_name_its_options() -> None:
    assert "http needs dead_letter.url" in refused(dead_letter={"type": "http"})


def test_options_without_a_type_are_refused() -> None:
    message = refused(dead_letter={"url": "https://chat/hook", "chat_member": "text"})
    assert "dead_letter.url needs dead_letter.type" in message
    assert "dead_letter.chat_member needs dead_letter.type" in message


def test_only_http_has_a_member_for_a_chat() -> None:
    assert "needs dead_letter.type" in refused(dead_letter={**FILES, "chat_member": "text"})


def test_a_format_that_the_second_sink_does_not_take_is_refused() -> None:
    message = refused(
        sink={"type": "kafka", "brokers": "a:1"}, format={"type": "qlik-messages"},
        dead_letter={"type": "objects", "url": "s3://bucket/refused", "partition_by": ["class"]},
    )  # fmt: skip
    assert "leave class out" in message


def test_an_option_of_another_type_is_warned_about(tmp_path: Path) -> None:
    file = tmp_path / "eventlog.toml"
    file.write_text('[dead_letter]\ntype = "files"\ndirectory = "refused"\nurl = "http://a/"\n')
    (warning,) = ignored_options(load(file, {}))
    assert warning.endswith("dead_letter.url has no effect: it is no option of the sink files")


def test_init_writes_a_commented_section() -> None:
    text = template()
    section = text.partition("[dead_letter]\n")[2].partition("\n\n")[0]
    assert all(line.startswith("#") for line in section.splitlines())
    own = "\n".join(line.removeprefix("#") for line in section.splitlines() if line[1] != " ")
    assert load({"dead_letter": tomllib.loads(own)}, {}).of_letters is not None
