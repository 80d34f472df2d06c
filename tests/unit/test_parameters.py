"""The parameters: the section of each option, its default, and its value in profile idm
(spec/event-log.md 9).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import __version__
from eventlog.config.driver_tags import DRIVER_TAGS
from eventlog.config.load import Config, load
from eventlog.config.publishing import publish_options
from eventlog.errors import ConfigError
from eventlog.publisher.declared.opening import publisher_options
from eventlog.sql.dialects.postgresql import DIALECT

File = Callable[[str], Config]

# option, profile idm, our default, a value as TOML has it, what it means
TABLE: list[tuple[str, Any, Any, str, Any]] = [
    (
        "database.log_table",
        "eventlog",
        "eventlog",
        '"indirect_process"',
        "indirect_process",
    ),
    ("database.schema_name", None, None, '"indirect"', "indirect"),
    ("database.tables", None, None, '"usr; grp,  emp"', ("usr", "grp", "emp")),
    ("database.record_id_sequence", None, None, '"app.numbers"', "app.numbers"),
    ("publisher.publisher_disabled", False, False, '"1"', True),
    ("publisher.publication_mode", 1, 1, "1", 1),
    ("publisher.delete_from_log", False, False, '"Yes"', True),
    ("publisher.allow_loopback", False, False, '"TRUE"', True),
    ("publisher.handle_future_events", False, False, "1", True),
    ("publisher.event_time_zone", "utc", "utc", '"local"', "local"),
    ("publisher.polling_interval", 10, 10, "604800", 604800),
    (
        "publisher.time_of_day",
        None,
        None,
        '"18:30:00, 06:00:00"',
        (time(6), time(18, 30)),
    ),
    ("publisher.notify", False, True, "1", True),
    (
        "publisher.post_poll_statements",
        (),
        (),
        "[\"SELECT ';'\", 'SELECT 2']",
        ("SELECT ';'", "SELECT 2"),
    ),
    ("publisher.batch_size", 1, 128, "16", 16),
    ("publisher.query_limit", 10000, 10000, "0", 0),
    ("publisher.heartbeat_interval", 0, 0, "10", 10),
    ("format.xds.time_syntax", "integer", "integer", '"canonical"', "canonical"),
    ("format.meta_identifiers", True, True, '"no"', False),
    ("format.referential", "value", "value", '"dn"', "dn"),
    ("publisher.layout", "2.x", "2.x", '"3.5"', "3.5"),
    ("publisher.column_map", None, None, "", None),
    (
        "publisher.column_sort",
        "bytes",
        "bytes",
        '"collation"',
        "collation",
    ),
    ("format.xds.insert_query_back", "modify", "modify", '"add"', "add"),
    ("publisher.loopback_action", "mark", "mark", '"keep"', "keep"),
    ("publisher.fold_distance", 1000, 1000, "0", 0),
    ("publisher.fold_span", 10000, 10000, "0", 0),
    ("format.noop_updates", "drop", "drop", '"emit"', "emit"),
    ("format.emit_keys", False, False, '"yes"', True),
    ("format.char_padding", "trim", "trim", '"keep"', "keep"),
    ("format.time_zone", "UTC", "UTC", '"Europe/Berlin"', "Europe/Berlin"),
    ("format.special_times", "text", "text", '"error"', "error"),
    ("publisher.driver_user", None, None, '"idm"', "idm"),
    ("publisher.retry_initial", 1.0, 1.0, "2", 2.0),
    ("publisher.retry_max", 60.0, 60.0, "90.5", 90.5),
    ("publisher.on_retry", "stop", "park", '"park"', "park"),
    ("publisher.max_parked", 1000, 1000, "1", 1),
    ("publisher.isolate_after", 5, 5, "1", 1),
    ("publisher.max_attempts", 0, 0, "10", 10),
    ("publisher.concurrency", 1, 1, "64", 64),
    ("publisher.delivery_rows", 10000, 10000, "1", 1),
    ("publisher.delivery_bytes", 16777216, 16777216, "65536", 65536),
    ("publisher.mark_interval", 1.0, 1.0, "0.5", 0.5),
    ("publisher.durable_marks", False, False, "1", True),
    ("publisher.standby", False, False, "1", True),
    ("format.xds.product_name", "eventlog", "eventlog", '"IDM"', "IDM"),
    ("format.xds.product_version", __version__, __version__, '"4.8"', "4.8"),
]
LEGAL = {option: (text, value) for option, _, _, text, value in TABLE if text}


@pytest.fixture
def file(tmp_path: Path) -> File:
    path = tmp_path / "eventlog.toml"

    def read(text: str) -> Config:
        path.write_text(text, encoding="utf-8")
        return load(path, {})

    return read


def setting(config: Config, option: str) -> Any:
    section, _, key = option.rpartition(".")
    place = publish_options(config) if section == "format.xds" else getattr(config, section)
    return getattr(place, key)


@pytest.mark.parametrize(
    ("option", "idm", "default"), [(option, idm, default) for option, idm, default, *_ in TABLE]
)
def test_default_and_profile(file: File, option: str, idm: Any, default: Any) -> None:
    assert setting(load(None, {}), option) == default
    assert setting(file('[publisher]\nprofile = "idm"\n'), option) == idm


def line(option: str) -> str:
    section, _, key = option.rpartition(".")
    return f"[{section}]\n{key} = {LEGAL[option][0]}\n"


@pytest.mark.parametrize("option", LEGAL)
def test_an_option_is_read_in_its_section(file: File, option: str) -> None:
    assert setting(file(line(option)), option) == LEGAL[option][1]


@pytest.mark.parametrize("option", LEGAL)
def test_an_option_is_refused_in_another_section_which_states_its_own(
    file: File, option: str
) -> None:
    key = option.rpartition(".")[2]
    with pytest.raises(ConfigError, match=rf"log\.{key} is not known; use .*{option}"):
        file(f"[log]\n{key} = {LEGAL[option][0]}\n")


@pytest.mark.parametrize("option", LEGAL)
def test_what_is_given_counts_more_than_the_profile(file: File, option: str) -> None:
    given = line(option)
    if option.startswith("publisher."):
        given = given.replace("[publisher]\n", "")
    text = f'[publisher]\nprofile = "idm"\n{given}'
    assert setting(file(text), option) == LEGAL[option][1]


@pytest.mark.parametrize("tag", DRIVER_TAGS)
def test_a_parameter_of_the_driver_is_refused_with_the_option(file: File, tag: str) -> None:
    """`eventlog init --from-driver` reads these; a configuration has the options."""
    option = f"{DRIVER_TAGS[tag].section}.{DRIVER_TAGS[tag].key}"
    with pytest.raises(ConfigError, match=f"publisher.{tag} is not known; use {option}$"):
        file(f'[publisher]\n"{tag}" = 1\n')


@pytest.mark.promise("option publisher.publisher_disabled")
@pytest.mark.parametrize("word", ['"1"', '"yes"', '"TRUE"', '"Yes"', "1", "true"])
def test_true_is_written_in_many_ways(file: File, word: str) -> None:
    assert file(f"[publisher]\npublisher_disabled = {word}\n").publisher.publisher_disabled is True


@pytest.mark.parametrize("word", ['"0"', '"no"', '"FALSE"', "0", "false"])
def test_so_is_false(file: File, word: str) -> None:
    assert file(f"[publisher]\nnotify = {word}\n").publisher.notify is False


@pytest.mark.parametrize(
    "line",
    [
        "publication_mode = 2",
        "polling_interval = 0",
        "polling_interval = 604801",
        "batch_size = 0",
        "batch_size = 129",
        "query_limit = -1",
        "query_limit = 2147483648",
        "heartbeat_interval = -1",
        "concurrency = 0",
        "concurrency = 65",
        'time_of_day = "24:00:00"',
        'time_of_day = "6:00:00"',
        'post_poll_statements = "SELECT 1"',
        'notify = "perhaps"',
        'loopback_action = "none"',
        'on_retry = "wait"',
        'event_time_zone = "UTC+1"',
    ],
)
def test_what_is_not_legal_is_refused(file: File, line: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        file(f"[publisher]\n{line}\n")


def test_schema_and_tables_exclude_each_other(file: File) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        file('[database]\nschema_name = "a"\ntables = ["b"]\n')


@pytest.mark.parametrize(
    ("lines", "loopback_user"),
    [
        ("", "asked"),
        ("allow_loopback = true", None),
        ('driver_user = "Idm"', "idm"),
        ('driver_user = "IDM_Ü "', "idm_Ü"),
        ("driver_user = '\"Idm\"'", "Idm"),
        ('driver_user = \'"a""b"\'', 'a"b'),
        ("driver_user = '\"Idm  \"'", "Idm"),
        ("driver_user = 'idm'\nallow_loopback = 'yes'", None),
    ],
)
def test_whose_rows_are_loopback(file: File, lines: str, loopback_user: str | None) -> None:
    """As PostgreSQL spells a name that is written so (8.3)."""
    options = publisher_options(file(f"[publisher]\n{lines}\n"), "asked  ", DIALECT.fold_name)
    assert options.driver_user == loopback_user


@pytest.mark.promise("option publisher.event_time_zone")
def test_what_the_cycle_is_given(file: File) -> None:
    options = publisher_options(
        file(
            "[publisher]\nheartbeat_interval = 5\ntime_of_day = '06:00:00'\npost_poll_statements "
            "= ['SELECT 1']\nhandle_future_events = true\nevent_time_zone = 'local'\nnotify = "
            "false\nconcurrency = 8\nloopback_action = 'keep'\non_retry = 'stop'\n[sink]\ntype = "
            "'python'\nfunction = 'x:y'\n"
        ),
        "asked",
    )
    assert options.heartbeat_interval == 300.0
    assert options.time_of_day == (time(6),)
    assert options.post_poll_statements == ("SELECT 1",)
    assert (options.handle_future_events, options.event_time_zone) == (True, "local")
    assert (options.notify, options.concurrency, options.leave_loopback, options.park) == (
        False,
        8,
        True,
        False,
    )
