"""The configuration: which of several values counts, what is refused, and that secrets stay out of
sight.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventlog.cli.begin.settings import template
from eventlog.cli.convert.convert import with_configured_password
from eventlog.config.effective import effective
from eventlog.config.kafka import kafka_properties
from eventlog.config.kinds import masked
from eventlog.config.load import Config, connection_url, load
from eventlog.config.publishing import publish_options
from eventlog.config.settings import (
    FormatSettings,
    PublisherSettings,
    installed_sections,
    listed_options,
)
from eventlog.errors import ConfigError
from eventlog.registry import format_named

CLOUDEVENTS = '[format]\ntype = "cloudevents"\n[format.cloudevents]\n'


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def read(
        text: str, environ: dict[str, str] | None = None, flags: dict[str, str] | None = None
    ) -> Config:
        path = tmp_path / "eventlog.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ or {}, flags)

    return read


def test_without_any_setting_the_defaults_of_the_specification_hold() -> None:
    config = load(None, {})
    assert config.publisher == PublisherSettings()
    assert (
        config.publisher.batch_size,
        config.publisher.query_limit,
        config.publisher.on_retry,
    ) == (
        128,
        10000,
        "park",
    )
    assert (config.database.log_table, config.sink.type) == ("eventlog", "stdout")
    assert set(config.sources.values()) == {"default"}


def test_profile_idm_has_the_documented_defaults_and_gives_way_to_options(file: Any) -> None:
    config = file('[publisher]\nprofile = "idm"\nnotify = true')
    assert (config.publisher.batch_size, config.publisher.on_retry, config.publisher.notify) == (
        1,
        "stop",
        True,
    )
    assert config.sources["publisher.batch_size"] == "profile idm"


def test_a_flag_beats_the_environment_and_that_beats_the_file(file: Any) -> None:
    text, environ = "[publisher]\nbatch_size = 5", {"EVENTLOG_PUBLISHER_BATCH_SIZE": "6"}
    flags = {"publisher.batch_size": "7"}
    for config, value, source in [
        (file(text), 5, "eventlog.toml: publisher.batch_size"),
        (file(text, environ), 6, "environment variable EVENTLOG_PUBLISHER_BATCH_SIZE"),
        (file(text, environ, flags), 7, "flag publisher.batch_size"),
    ]:
        assert config.publisher.batch_size == value
        assert config.sources["publisher.batch_size"].endswith(source)


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("[publisher]\nbatch_sise "
"= 1", {}, "batch_sise is not known; the nearest known "
"one is publisher.batch_size"),
        ("[database]\nbatch_size = 1", {}, "database.batch_size is not known; use publisher.batch_size"),
        ("[publisher]\nurl = 'x'", {}, r"use database\.url or sink\.url or source\.url"),
        ("[publisher]\nindent = 2", {}, r"publisher\.indent is not known; use format\.xds\.indent"),
        ("", {"EVENTLOG_PUBLISHER_LOG_TABLE": "l"}, "is not known; use EVENTLOG_DATABASE_LOG_TABLE"),
        ("", {"EVENTLOG_PUBLISHER_DISABLE": "1"}, "use EVENTLOG_PUBLISHER_PUBLISHER_DISABLED"),
        ("[publihser]\nbatch_size = 1", {}, r"the nearest known one is \[publisher\]"),
        ("[monitor]\npatience = 1", {}, r"known ones are .*, monitor\.liveness_timeout, "),
        ("[nothing_like_it]\nx = 1", {}, r"the known ones are .*\[publisher\]"),
        ("publisher = 1", {}, "must be a section"),
        ("watch = 1", {}, r"\[\[watch\]\]"),
        ("watch = [1]", {}, r"\[\[watch\]\]"),
        ("[publisher]\nbatch_size "
"= 129", {}, "publisher.batch_size = 129 is not "
"allowed; legal: 1..128"),
        ("[publisher]\nbatch_size = 0", {}, "legal: 1..128"),
        ("[publisher]\nbatch_size = true", {}, "legal: 1..128"),
        ('[publisher]\nbatch_size = "5"', {}, 'batch_size = "5" is not allowed'),
        ("[publisher]\npolling_interval = 604801", {}, "legal: 1..604800"),
        ("[publisher]\nquery_limit = 2147483648", {}, "legal: 0..2147483647"),
        ("[publisher]\nconcurrency = 65", {}, "legal: 1..64"),
        ("[publisher]\nmark_interval = nan", {}, "mark_interval"),
        ("[publisher]\nretry_initial = 5\nretry_max = 2", {}, "retry_max = 2 is less than"),
        ("[publisher]\npublication_mode = 2", {}, "triggerless"),
        ('[publisher]\ntime_of_day = "6:00"', {}, "hh:mm:ss"),
        ('[publisher]\ntime_of_day = "25:00:00"', {}, "hh:mm:ss"),
        ('[publisher]\npost_poll_statements = "select \'a"', {}, "legal: a list of texts"),
        ('[publisher]\ncolumn_map = { record_id = "r" }', {}, "status is missing"),
        ('[publisher]\ncolumn_map = { recordid = "r" }', {}, "recordid is not a standard column"),
        ('[format]\ntime_zone = "Mars/Olympus"', {}, "time zone database lacks the zone"),
        (f'{CLOUDEVENTS}mode '
'= "binary"', {}, "mode = binary with sink.type = stdout: the "
"sink has no headers for it"),
        (f'{CLOUDEVENTS}mode = "batched"\n[sink]\ntype = "kafka"\nbrokers = "b:1"', {},
         "a record of Kafka is one event"),
        (f'{CLOUDEVENTS}mode = "structured"\n[sink]\ntype = "files"\ndirectory = "d"\n'
         'file_layout = "documents"', {}, "each document has its own file"),
        ('[format.cloudevents]\nsource = "a b"', {}, "that a URI cannot contain"),
        ('[format.cloudevents]\nevent_type = "a.{table}"', {},
         r"\{table\} is not one of \{operation\}, \{schema\}, \{class\}"),
        ('[format.cloudevents]\nevent_type = "a.{"', {}, r"write \{\{ and \}\} for braces"),
        ('[format.cloudevents]\nevent_type = "a\\u0007b"', {}, "control character"),
        ('[format]\ntime_zone = "../etc/passwd"', {}, "time zone database lacks the zone"),
        ('[source]\nproperties = { "sasl.password" '
'= "x" }', {}, "EVENTLOG_SOURCE_USER and "
"EVENTLOG_SOURCE_PASSWORD"),
        ('[sink]\nproperties = { "sasl.password" '
'= "x" }', {}, "EVENTLOG_SINK_USER and "
"EVENTLOG_SINK_PASSWORD"),
        ('[source]\nproperties = { "ssl.key.password" = "x" }', {}, "source.secret_properties"),
        (
            '[sink]\nproperties = { "sasl.oauthbearer.assertion.private.key.passphrase" = "x" }',
            {},
            "sink.secret_properties",
        ),
        ('[sink.secret_properties]\n"ssl.key.password" '
'= "geheim"', {}, "neither env:VARIABLE nor "
"file:/PATH"),
        (
            '[sink]\ntype = "kafka"\nbrokers = "b:1"\nproperties = { "a" = 1 }\nsecret_properties '
'= { "a" = "env:A" }',
            {},
            "sink.secret_properties and sink.properties both have a",
        ),
        ('[database]\nschema_name = "s"\ntables = ["t"]', {}, "exclude each other"),
        ('[database]\nurl = "postgresql://h/d"\nurl_file = "f"', {}, "exclude each other"),
        ('[database]\nurl_file = "nowhere"', {}, "cannot be read"),
        ('[sink]\ntype = "http"', {}, "http needs sink.url"),
        ('[sink]\ntype = "mail"', {}, "sink 'mail' is not known"),
        ('[sink]\ntype = "files"', {}, "files needs sink.directory"),
        ('[database]\npassword = "x"', {}, "EVENTLOG_DATABASE_PASSWORD"),
        ("", {"EVENTLOG_PUBLISHER_BATCH_SIZE": "x"}, "environment variable "
"EVENTLOG_PUBLISHER_BATCH_SIZE"),
        ("", {"EVENTLOG_PUBLISHER_BATCHSIZE": "1"}, "nearest known one is "
"EVENTLOG_PUBLISHER_BATCH_SIZE"),
        ("[[watch]]\nrow_style = 'field'", {}, "watch 1: give one of table, tables and view"),
        ("[[watch]]\ntable = 'a'\nview = 'b'", {}, "give one of table, tables and view"),
        ("[[watch]]\ntable = 'a'\nrow_stile = 'field'", {}, "nearest known one is row_style"),
        ("[[watch]]\ntable = 'a'\nrow_style = 'fields'", {}, "legal: field | remove_all"),
        ("[[watch]]\ntable = 'a'\ncolumns = "
"['b']\nexclude = ['c']", {}, "either columns or "
"exclude"),
        ("[[watch]]\nview = 'a'", {}, "needs base"),
        ("[[watch]]\ntable = 'a'\n[[watch]]\ntable = 'a'", {}, "a is watched twice"),
        ("", {"EVENTLOG_DATABSE_URL": "x"}, "nearest known one is EVENTLOG_DATABASE_URL"),
        ('url = '
'"x"', {}, r"url is in no section; write it below \[database\] "
r"or \[sink\] or \[source\]"),
        ("[oauth]\nscope = 'x'", {}, r"\[oauth\] is not known; oauth is an option of \[sink\]"),
        ("[filters]\ntable = 'a'", {}, r"nearest known one is \[\[filter\]\]"),
        ("x = ", {}, "is not TOML"),
        ("[database]\nurl = postgresql", {}, "write text in quotes"),
        ("[publisher]\nbatch_size = " + "9" * 5000, {}, "a number has thousands of digits"),
        (("[publisher]\nbatch_size "
"= 0x") + "F" * 5000, {}, r"batch_size = a int that is too large "
r"to show .*1\.\.128"),
        (("[publisher]\nbatch_size "
"= ") + "[" * 3000 + "]" * 3000, {}, "brackets or tables nest "
"too deep"),
        ("[source]\ncapture = { \"db:o.t\" = 7 }", {}, r"source.capture = .* is not allowed"),
        ("", {"EVENTLOG_SOURCE_READER": "[" * 3000}, "EVENTLOG_SOURCE_READER = .* is not allowed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place_and_what_is_legal(
    file: Any, text: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace(" | ", r" \| ")) as refused:
        file(text, environ)
    assert "\n" not in str(refused.value)
    assert environ or "retry" in str(refused.value) or "eventlog.toml" in str(refused.value)


@pytest.mark.parametrize("name", ["publisher.batchsize", "publsher.batch_size", "batch_size"])
def test_an_unknown_flag_is_refused_with_the_nearest_known_one(name: str) -> None:
    with pytest.raises(ConfigError, match=r"publisher\.batch_size"):
        load(None, {}, {name: "1"})


def test_the_environment_of_others_is_passed_over() -> None:
    environ = {
        "EVENTLOG_TEST_POSTGRES_URL": "x",
        "EVENTLOG_DATABASE_SERVICE_HOST": "10.0.0.1",
        "EVENTLOG_DATABASE_PORT": "tcp://10.0.0.1:5432",
        "EVENTLOG_DATABASE_PORT_5432_TCP_ADDR": "10.0.0.1",
    }
    assert load(None, environ) == load(None, {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load(tmp_path / "nowhere.toml", {})


def test_paths_in_the_file_are_taken_from_its_directory(file: Any, tmp_path: Path) -> None:
    text = '[sink]\ntype = "files"\ndirectory = "out"'
    assert file(text).sink.options.directory == tmp_path / "out"
    assert file(text, {"EVENTLOG_SINK_DIRECTORY": "other"}).sink.options.directory == Path("other")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sqlite:///data/app.db", "sqlite:///{here}/data/app.db"),
        ("sqlite+pysqlite:///app.db?timeout=3", "sqlite+pysqlite:///{here}/app.db?timeout=3"),
        ("embedded:///pg", "embedded:///{here}/pg"),
        ("sqlite:////var/lib/app.db", "sqlite:////var/lib/app.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
    ],
)
def test_a_database_file_is_taken_from_the_directory_of_the_configuration(
    file: Any, tmp_path: Path, written: str, meant: str
) -> None:
    meant = meant.format(here=tmp_path)
    assert file(f'[database]\nurl = "{written}"').database.url == meant
    assert (
        file(f'[source]\ntype = "gbase"\nposition_url = "{written}"').source.options.position_url
        == meant
    )
    # Of the shell that gives it: the directory that it is in.
    assert file("", {"EVENTLOG_DATABASE_URL": written}).database.url == written
    assert file("", {}, {"database.url": written}).database.url == written


def test_watches_are_read_in_order(file: Any) -> None:
    config = file("""
        [[watch]]
        table = "usr"
        row_style = "remove_all"
        exclude = ["password_hash"]
        [[watch]]
        view = "view_emp"
        row_style = "row_query_back"
        base = { emp = { empno = "pk_empno" }, phone = { no = "mv_phoneno" } }
    """)
    assert [watch.name for watch in config.watches] == ["usr", "view_emp"]
    assert config.watches[0].exclude == ("password_hash",)
    assert config.watches[1].base == {"emp": {"empno": "pk_empno"}, "phone": {"no": "mv_phoneno"}}


class TestSecrets:
    def test_the_password_comes_from_the_environment_and_is_never_shown(self, file: Any) -> None:
        environ = {"EVENTLOG_DATABASE_PASSWORD": " p@ss "}
        config = file('[database]\nurl = "postgresql+psycopg://u@h/d"', environ)
        assert connection_url(config.database).password == " p@ss "
        assert "p@ss" not in repr(config)
        assert "p@ss" not in str(list(effective(config)))
        assert config.warnings == ()

    def test_the_url_may_be_in_a_separate_file(self, file: Any, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("postgresql+psycopg://u:p%40ss@h/d\n")
        config = file('[database]\nurl_file = "secret"')
        assert connection_url(config.database).password == "p@ss"
        assert config.warnings == ()
        assert "p%40ss" not in repr(config)
        assert "p%40ss" not in str(list(effective(config)))

    def test_the_url_of_a_higher_layer_beats_the_url_file_of_a_lower_one(self, file: Any) -> None:
        config = file(
            '[database]\nurl_file = "nowhere"', {"EVENTLOG_DATABASE_URL": "postgresql://h/d"}
        )
        assert config.database.url == "postgresql://h/d"

    @pytest.mark.parametrize(
        "url", ["postgresql://u:geheim@h/d", "postgresql://u@h/d?password=geheim"]
    )
    def test_a_password_in_the_file_gives_a_warning_without_it(self, file: Any, url: str) -> None:
        (warning,) = file(f'[database]\nurl = "{url}"').warnings
        assert "holds a password" in warning
        assert "geheim" not in warning + masked(url)

    @pytest.mark.parametrize(
        ("text", "environ", "flags"),
        [
            ('[database]\nurl = "geheim"', {}, {}),
            ('[database]\nurl = ["geheim"]', {}, {}),
            ('[database]\npassword = "geheim"', {}, {}),
            ("", {"EVENTLOG_DATABASE_URL": "u:geheim@h"}, {}),
            ("", {}, {"database.password": "geheim"}),
        ],
    )
    def test_no_message_holds_a_secret(
        self, file: Any, text: str, environ: dict[str, str], flags: dict[str, str]
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            connection_url(file(text, environ, flags).database)
        assert "geheim" not in str(refused.value)

    def test_without_a_url_the_message_shows_where_to_set_one(self) -> None:
        with pytest.raises(ConfigError, match="EVENTLOG_DATABASE_URL"):
            connection_url(load(None, {}).database)


def test_everything_that_is_wrong_is_reported_at_once(file: Any) -> None:
    text = """
    [database]
    log_tabel = "x"
    [publisher]
    batch_size = 0
    polling_interval = "soon"
    [[watch]]
    row_style = "field"
    [[watch]]
    table = "usr"
    stile = "field"
    [[watch]]
    table = "grp"
    tables = ["*"]
    [[watch]]
    table = "one"
    exclude_tables = ["two"]
    [[watch]]
    tables = ["*"]
    columns = ["a"]
    """
    environ = {"EVENTLOG_SINK_TIMEOUT": "never", "EVENTLOG_PUBLISHER_BATCHSIZE": "1"}
    with pytest.raises(ConfigError) as refused:
        file(text, environ)
    parts = (
        "database.log_tabel is not known",
        "publisher.batch_size = 0 is not allowed",
        "publisher.polling_interval =",
        "EVENTLOG_PUBLISHER_BATCHSIZE is not known",
        "EVENTLOG_SINK_TIMEOUT = ",
        "watch 1: give one of table, tables and view",
        "watch 2: stile is not known",
        "watch 3 (grp): give one of table, tables and view",
        "watch 4 (one): exclude_tables needs tables",
        "watch 5 (*): columns belong to one table",
    )
    for part in parts:
        assert sum(part in refusal for refusal in refused.value.refusals) == 1, part
    assert len(refused.value.refusals) == len(parts)


class TestTemplate:
    def test_it_is_valid_and_changes_nothing_as_written(self, file: Any) -> None:
        assert file(template()).publisher == PublisherSettings()

    def test_uncommented_it_holds_every_option_and_only_defaults_and_examples(
        self, file: Any
    ) -> None:
        lines = [
            line.removeprefix("#") for line in template().splitlines() if not line.startswith("# ")
        ]
        masks = lines[lines.index("[[mask]]") :]
        # These exclude each other, or change what is the default.
        for key in (
            "schema_name",
            "tables",
            "exclude_tables",
            "view",
            "columns",
            "membership",
            "base",
            "time_of_day",
            "post_poll_statements",
            "column_map",
            "driver_user",
            "health_file",
            "mode",
            "source",
            "dataschema",
            "registry",
            "registry_oauth",
            "namespace",
        ):
            lines = [line for line in lines if not line.startswith(f"{key} =")]
        lines = [*lines[: lines.index("[[mask]]")], *masks]
        config = file("\n".join(lines))
        assert (config.publisher, replace(config.format, given={})) == (
            PublisherSettings(),
            FormatSettings(),
        )
        for name, given in config.format.given.items():
            kind = format_named(name).publish_options
            assert kind(**given) == kind()
        written = tomllib.loads(template().replace("\n#", "\n").replace("\n ", "\n# "))
        for section in installed_sections():
            options = listed_options(section)
            of_type = {"url"} if section == "dead_letter" else set()  # of the type in the example
            table = (
                written["format"][section.removeprefix("format.")]
                if "." in section
                else written[section]
            )
            inner = {
                key for key, one in table.items() if isinstance(one, dict) and section == "format"
            }
            assert set(table) - inner == of_type | {
                key for key, one in options.items() if not one.option.secret
            }


URL = "postgresql+psycopg://publisher@db.example:5432/hr"


@pytest.mark.parametrize("zone", ["utc", "Utc", "UTC"])
def test_utc_is_written_in_any_case(file: Any, zone: str) -> None:
    assert file(f'[format]\ntime_zone = "{zone}"').format.time_zone == "UTC"


@pytest.mark.parametrize(
    ("url", "filled"),
    [
        (URL, True),
        ("postgresql://publisher@db.example:5432/hr", True),
        ("postgresql://publisher:own@db.example:5432/hr", False),
        ("postgresql://publisher@db.example:5433/hr", False),
        ("postgresql://publisher@evil.example:5432/hr", False),
        ("postgresql://publisher@db.example:5432/other", False),
        ("postgresql://another@db.example:5432/hr", False),
        ("postgresql://db.example:5432/hr", False),
        ("postgresql://publisher@db.example:5432/hr?host=evil.example", False),
        ("oracle://publisher@db.example:5432/hr", False),
    ],
)
def test_the_password_of_the_configured_database_goes_there_alone(url: str, filled: bool) -> None:
    database = load(
        None, {"EVENTLOG_DATABASE_URL": URL, "EVENTLOG_DATABASE_PASSWORD": "geh:eim"}
    ).database
    completed = with_configured_password(url, database)
    assert (completed == url) is not filled
    assert ("publisher:geh%3Aeim@db.example:5432/hr" in completed) is filled


def test_a_password_without_a_configured_database_goes_nowhere() -> None:
    assert (
        with_configured_password(URL, load(None, {"EVENTLOG_DATABASE_PASSWORD": "geheim"}).database)
        == URL
    )


def test_a_secret_may_come_from_a_file_that_a_variable_names(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("geheim\n", encoding="utf-8")
    http = {"EVENTLOG_SINK_TYPE": "http", "EVENTLOG_SINK_URL": "https://receiver/"}
    files = {"EVENTLOG_MONITOR_TOKEN_FILE": str(secret), "EVENTLOG_SINK_PASSWORD_FILE": str(secret)}
    config = load(None, {**http, **files})
    assert (config.monitor.token, config.sink.options.password) == ("geheim", "geheim")
    assert config.sources["monitor.token"] == "environment variable EVENTLOG_MONITOR_TOKEN_FILE"


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (None, {}, "cannot be read"),
        ("", {}, "is empty"),
        ("x", {"EVENTLOG_SINK_TOKEN": "y"}, "exclude each other"),
    ],
)
def test_a_secret_file_that_gives_no_single_secret_is_refused_by_name(
    tmp_path: Path, content: str | None, more: dict[str, str], told: str
) -> None:
    secret = tmp_path / "token"
    if content is not None:
        secret.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"EVENTLOG_SINK_TOKEN_FILE.*{told}"):
        load(
            {"sink": {"type": "http", "url": "https://r/"}},
            {"EVENTLOG_SINK_TOKEN_FILE": str(secret), **more},
        )


@pytest.mark.parametrize("token", ["", "two words", "geheim\n", "schlüssel"])
def test_a_token_of_the_monitor_that_no_header_can_bear_is_refused_and_not_shown(
    token: str,
) -> None:
    with pytest.raises(
        ConfigError, match=r"EVENTLOG_MONITOR_TOKEN.*one or more ASCII characters without spaces"
    ) as error:
        load(None, {"EVENTLOG_MONITOR_TOKEN": token})
    assert not token or token not in str(error.value)


@pytest.mark.parametrize("place", ["file", "environment", "flag"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("database.password", "p"),
        ("database.url", "postgresql://u@h/d"),
        ("sink.token", "t"),
        ("sink.user", "u"),
        ("sink.password", "p"),
        ("sink.signing_secret", "whsec_x"),
        ("source.password", "p"),
        ("source.url", "postgresql://u@h/d"),
        ("source.position_url", "postgresql://u@h/d"),
        ("monitor.token", "t"),
    ],
)
def test_every_secret_is_taken_from_a_file_that_is_named(
    file: Any, tmp_path: Path, option: str, value: str, place: str
) -> None:
    section, _, key = option.partition(".")
    (tmp_path / "secret").write_text(f"{value}\n", encoding="utf-8")
    type_of = {"sink": "http", "source": "linter"}
    head = f"[{section}]\n" + (f'type = "{type_of[section]}"\n' if section in type_of else "")
    head += 'url = "https://receiver/"\n' if section == "sink" else ""
    config = {
        "file": lambda: file(f'{head}{key}_file = "secret"\n'),
        "environment": lambda: file(
            head, {f"EVENTLOG_{section}_{key}_FILE".upper(): str(tmp_path / "secret")}
        ),
        "flag": lambda: file(head, {}, {f"{option}_file": str(tmp_path / "secret")}),
    }[place]()
    settings = getattr(config, section)
    assert getattr(settings.options if section in type_of else settings, key) == value
    assert f"{key}_file" in config.sources[option].lower()
    assert config.secret_files == {option: tmp_path / "secret"}


def test_a_secret_and_its_file_exclude_each_other(file: Any) -> None:
    with pytest.raises(ConfigError, match=r"_TOKEN.* exclude each other; keep one"):
        file("", {"EVENTLOG_MONITOR_TOKEN": "a", "EVENTLOG_MONITOR_TOKEN_FILE": "b"})


def test_only_a_secret_is_taken_from_such_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="EVENTLOG_SINK_URL_FILE is not known"):
        load(None, {"EVENTLOG_SINK_URL_FILE": str(tmp_path)})


# Secrets of librdkafka.


def test_a_secret_of_kafka_is_named_by_its_place_and_read_from_there(
    file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("geheim\n")
    text = f"""
    [sink]
    type = "kafka"
    brokers = "broker:9092"
    properties = {{ "linger.ms" = 20 }}
    [sink.secret_properties]
    "ssl.key.password" = "file:{tmp_path}/key"
    "sasl.oauthbearer.client.secret" = "env:CLIENT_SECRET"
    """
    config = file(text)
    assert "geheim" not in repr(config) + str(list(effective(config)))
    with pytest.raises(
        ConfigError,
        match=r"sink.secret_properties, sasl.oauthbearer.client.secret: .* CLIENT_SECRET",
    ):
        kafka_properties(config.sink.options, "sink")
    monkeypatch.setenv("CLIENT_SECRET", "hush")
    assert kafka_properties(config.sink.options, "sink") == {
        "linger.ms": 20,
        "ssl.key.password": "geheim",
        "sasl.oauthbearer.client.secret": "hush",
    }


def test_no_message_shows_what_stands_in_the_place_of_a_reference(file: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        file('[sink.secret_properties]\n"ssl.key.password" = "geheim"')
    assert "geheim" not in str(refused.value)


def test_certificates_are_no_secrets(file: Any) -> None:
    config = file(
        '[sink]\ntype = "kafka"\nbrokers = "b:9092"\nproperties = { "ssl.ca.pem" = "-----BEGIN" }'
    )
    assert config.sink.options.properties == {"ssl.ca.pem": "-----BEGIN"}


# Options of types of sinks.


def test_options_of_another_type_of_sink_stay_harmless_when_the_type_is_switched(file: Any) -> None:
    text = '[sink]\ntype = "http"\nurl = "https://receiver/"\ntimeout = 5'
    assert file(text).sink.options.url == "https://receiver/"
    config = file(text, {"EVENTLOG_SINK_TOKEN": "geheim"}, {"sink.type": "stdout"})
    assert config.sink.options == load(None, {}).sink.options
    assert config.sink.others == {"url": "https://receiver/", "timeout": 5.0, "token": "geheim"}
    shown = {one.key: (one.value, one.source) for one in effective(config) if one.section == "sink"}
    assert "geheim" not in repr(config) + str(shown)
    assert shown["timeout"][0] == 5.0
    assert shown["timeout"][1].endswith("eventlog.toml: sink.timeout; not of stdout")


def test_a_wrong_value_is_refused_for_another_type_too(file: Any) -> None:
    with pytest.raises(ConfigError, match=r"sink\.timeout = 0 is not allowed"):
        file("[sink]\ntimeout = 0")


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        (
            '[sink]\ntype = "htp"',
            {},
            r"sink\.type: sink 'htp' is not known; the nearest known one is http",
        ),
        ('[sink]\ntype = "htp"\nurl = "https://r/"', {}, "sink 'htp' is not known"),
        (
            '[sink]\ntype = "http"\nurll = "x"',
            {},
            r"sink\.urll is not known; the nearest known one is sink\.url",
        ),
        ("[sink]\nbrokrs = 1", {}, r"the nearest known one is sink\.brokers"),
        ("", {"EVENTLOG_SINK_TYPE": "kafka", "EVENTLOG_SINK_BROKER": "b"}, "EVENTLOG_SINK_BROKERS"),
        (
            '[sink]\ntype = "http"',
            {},
            r"sink\.type: http needs sink\.url, the URL to which documents are posted",
        ),
    ],
)
def test_an_option_that_no_type_of_sink_has_is_refused(
    file: Any, text: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        file(text, environ)


# Options of formats.


def test_options_of_formats_stand_in_a_section_of_their_format(file: Any) -> None:
    text = f'{CLOUDEVENTS}integers = "text"\n[format.debezium]\ntopic_prefix = "hr"'
    environ = {
        "EVENTLOG_FORMAT_CLOUDEVENTS_SOURCE": "/hr",
        "EVENTLOG_FORMAT_QLIK_MESSAGES_KEY": "none",
    }
    config = file(text, environ, {"format.cloudevents.nested_values": "text"})
    options = publish_options(config)
    assert (options.integers, options.source, options.nested_values) == ("text", "/hr", "text")
    assert config.format.given["debezium"] == {"topic_prefix": "hr"}
    assert config.format.given["qlik-messages"] == {"key": "none"}
    shown = {(one.section, one.key): (one.value, one.source) for one in effective(config)}
    assert shown["format.cloudevents", "source"] == (
        "/hr",
        "environment variable EVENTLOG_FORMAT_CLOUDEVENTS_SOURCE",
    )
    assert shown["format.debezium", "topic_prefix"][0] == "hr"
    assert shown["format.xds", "indent"] == (0, "default")


@pytest.mark.parametrize(
    ("text", "environ", "flags", "message"),
    [
        (
            '[format]\nmode = "binary"',
            {},
            {},
            r"format\.mode is not known; use format\.cloudevents\.mode",
        ),
        ("", {"EVENTLOG_FORMAT_MODE": "binary"}, {}, "EVENTLOG_FORMAT_CLOUDEVENTS_MODE"),
        (
            "",
            {},
            {"format.indent": "2"},
            r"indent is not known; use format\.xds\.indent",
        ),
        (
            '[format.cloudevents]\ntopic_prefix = "x"',
            {},
            {},
            "topic_prefix is not known; use format.debezium.topic_prefix",
        ),
        (
            '[format.cloudevents]\ntime_zone = "UTC"',
            {},
            {},
            r"time_zone is not known; use format\.time_zone",
        ),
        (
            "",
            {"EVENTLOG_FORMAT_DEBEZIUM_MODE": "x"},
            {},
            "MODE is not known; use EVENTLOG_FORMAT_CLOUDEVENTS_MODE",
        ),
        (
            "[format.cloudevnts]",
            {},
            {},
            r"\[format\.cloudevnts\]: .*the nearest known one is cloudevents",
        ),
        ("", {}, {"format.cloudevnts.mode": "x"}, "the nearest known one is cloudevents"),
        (
            "[format.cloudevents]\nmod = 1",
            {},
            {},
            r"the nearest known one is format\.cloudevents\.mode",
        ),
        ("[format.jsonl]\nmode = 1", {}, {}, "mode is not known; use format.cloudevents.mode"),
        ('[format]\ntype = "jsonl"', {}, {}, "jsonl .* cannot be published"),
        (
            '[format]\ntype = "messagepack"',
            {},
            {},
            "install the package eventlog-messagepack, which provides messagepack",
        ),
    ],
)
def test_an_option_of_another_format_is_refused_by_its_name(
    file: Any, text: str, environ: dict[str, str], flags: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        file(text, environ, flags)


def test_without_options_of_a_format_none_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "eventlog.toml"
    path.write_text(template())
    code = (
        "import sys; from pathlib import Path; from eventlog.config.load import load; "
        "load(Path(sys.argv[1]), {'EVENTLOG_SINK_TYPE': 'http', 'EVENTLOG_SINK_URL': "
        "'https://r/'}); print([name for name in ('lxml', 'sqlalchemy', 'confluent_kafka', 'ssl', "
        "'eventlog.xds.format', 'importlib.metadata') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True
        ).stdout
        == "[]\n"
    )
