"""The configuration: one TOML file, overridden by the environment, overridden by flags (spec/event-log.md 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventlog.cloudevents.options import refused_mode
from eventlog.config.layers import Layer, Setting, from_environment, from_file, from_flags, read_toml, watches_of
from eventlog.config.settings import (
    CLOUDEVENTS,
    SECTIONS,
    SINK_NEEDS,
    DatabaseSettings,
    FormatSettings,
    LogSettings,
    MonitorSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
)
from eventlog.config.urls import DATABASE_URLS, masked, read_url
from eventlog.core.options import options_of, toml
from eventlog.errors import ConfigError, together


class Effective(NamedTuple):
    """A setting as it is in effect. ``value`` is never a secret; ``source`` says where it came from."""

    section: str
    key: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. ``sources``: where ``section.key`` came from; ``warnings``: lines to be shown once.

    ``url_of_file``: the database URL that the file has, which is the publisher's, where another one is in effect.
    """

    database: DatabaseSettings
    publisher: PublisherSettings
    sink: SinkSettings
    format: FormatSettings
    source: SourceSettings
    monitor: MonitorSettings
    log: LogSettings
    watches: tuple[WatchSettings, ...]
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    url_of_file: str | None = field(default=None, repr=False)

    @property
    def publication(self) -> str:
        """What is published, for people and labels: the log with its schema, or the source that is followed."""
        if self.source.type is not None:
            return f"source {self.source.type}"
        name, schema = self.database.log_table, self.database.schema_name
        return f"{schema}.{name}" if schema and "." not in name else name


def load(
    file: Path | Mapping[str, Any] | None, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> Config:
    """Read the configuration.

    ``file``: the TOML file, or its content as a program hands it over, secrets included; None = no file. ``environ``:
    ``EVENTLOG_<SECTION>_<KEY>`` count, all else is passed over. ``flags``: ``section.key`` -> text. A flag beats the
    environment, that beats the file; there an option and an alias or a second place of it must agree; then come the
    profile and the default (spec/event-log.md 9). Relative paths in the file are taken from the file's directory.
    Raises one ConfigError for all that is wrong, by file and key.
    """
    path = file if isinstance(file, Path) else None
    document = file if isinstance(file, Mapping) else read_toml(file) if file is not None else {}
    errors: list[ConfigError] = []
    named: dict[tuple[str, str], list[Setting]] = {}
    for setting in (*from_file(document, path), *from_environment(environ), *from_flags(flags or {})):
        if isinstance(setting, ConfigError):
            errors.append(setting)
        else:
            named.setdefault((setting.section, setting.key), []).append(setting)
    read = list(watches_of(document.get("watch", []), path))
    watches = tuple(watch for watch in read if isinstance(watch, WatchSettings))
    errors += [error for error in read if isinstance(error, ConfigError)]
    chosen: dict[tuple[str, str], Setting] = {}
    for name, settings_named in named.items():
        try:
            chosen[name] = _choose(settings_named)
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise together(errors)

    profile = chosen.get(("publisher", "profile"))
    idm = profile is not None and profile.value == "idm"
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for section, cls in SECTIONS.items():
        values = {}
        for key, option in options_of(cls).items():
            if (section, key) in chosen:
                values[key], sources[f"{section}.{key}"] = chosen[section, key].value, chosen[section, key].source
            elif idm and option.idm is not None:
                values[key], sources[f"{section}.{key}"] = option.idm, "profile idm"
            else:
                sources[f"{section}.{key}"] = "default"
        settings[section] = cls(**values)
    sources["watch"] = "default" if file is None else str(path or "the configuration")
    try:
        settings["database"] = _with_url(settings["database"], chosen)
    except ConfigError as error:
        errors.append(error)
    warnings = () if isinstance(file, Mapping) else tuple(_warnings(chosen))
    config = Config(**settings, watches=watches, sources=sources, warnings=warnings, url_of_file=_url_of_file(named))
    errors += _contradictions(config, chosen)
    if errors:
        raise together(errors)
    return config


def _choose(settings: Sequence[Setting]) -> Setting:
    """The value that counts. What one layer (flags, environment, file) says twice must agree."""
    first = min(settings, key=lambda setting: setting.layer)
    for other in settings:
        if min(other.layer, Layer.OPTION) == min(first.layer, Layer.OPTION) and other.value != first.value:
            second = other.source.rpartition(": ")[2]
            raise ConfigError(f"{first.source} and {second} are one option with two values; keep one")
    return first


def _contradictions(config: Config, chosen: Mapping[tuple[str, str], Setting]) -> Iterator[ConfigError]:
    """What no option can say of itself."""
    if config.database.schema_name is not None and config.database.tables is not None:
        schema, tables = chosen["database", "schema_name"].source, chosen["database", "tables"].source
        yield ConfigError(f"{schema} and {tables} exclude each other; keep one")
    if config.publisher.retry_max < config.publisher.retry_initial:
        yield ConfigError(f"publisher.retry_max = {toml(config.publisher.retry_max)} is less than retry_initial = "
                          f"{toml(config.publisher.retry_initial)}")  # fmt: skip
    if config.format.type == "qlik-messages" and config.sink.type != "kafka":
        yield ConfigError(f"format.type = qlik-messages needs sink.type = kafka, not {config.sink.type}")
    if config.format.type == CLOUDEVENTS and (
        why := refused_mode(config.format.mode, config.sink.type, config.sink.form)
    ):
        yield ConfigError(f"{config.sources['format.mode']} = {config.format.mode}: {why}")
    if config.format.metadata == "registry" and (config.format.encoding != "avro" or config.format.registry is None):
        yield ConfigError("format.metadata = registry needs format.encoding = avro and format.registry, its URL")
    if (config.sink.type == "kafka") and (config.sink.password is None) != (config.sink.user is None):
        yield ConfigError("Kafka needs both EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or neither")
    if config.sink.type == "kafka" and config.sink.timeout < _LEAST_KAFKA_TIMEOUT:
        yield ConfigError(
            f"{config.sources['sink.timeout']} = {toml(config.sink.timeout)} is too short for Kafka, whose producer "
            f"asks for its number first: at least {_LEAST_KAFKA_TIMEOUT:g} s, better 10 or more"
        )
    for section, settings in (("sink", config.sink), ("source", config.source)):
        secrets, plain = settings.secret_properties or {}, settings.properties or {}
        source = config.sources[f"{section}.secret_properties"]
        for name in sorted(secrets.keys() & plain.keys()):
            yield ConfigError(f"{source} and {section}.properties both have {name}; keep one")
        if settings.user is not None and "sasl.password" in secrets:
            yield ConfigError(f"{source} and EVENTLOG_{section.upper()}_PASSWORD both give sasl.password; keep one")
    needed = SINK_NEEDS.get(config.sink.type)
    if needed is not None and getattr(config.sink, needed[0]) is None:
        yield ConfigError(f"{chosen['sink', 'type'].source}: {config.sink.type} needs sink.{needed[0]}, {needed[1]}")


_LEAST_KAFKA_TIMEOUT: Final = 2.0
"""Seconds. An idempotent producer that asks the brokers a second time for its number has waited for one by then."""


def _with_url(database: DatabaseSettings, chosen: Mapping[tuple[str, str], Setting]) -> DatabaseSettings:
    """The settings with the URL out of ``url_file``, if that is what counts. Raises ConfigError."""
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if url is not None and file is not None and url.layer == file.layer:
        raise ConfigError(f"{url.source} and {file.source} exclude each other; keep one")
    if file is None or (url is not None and url.layer < file.layer):
        return database
    return replace(database, url=read_url(file.value, file.source))


def _url_of_file(named: Mapping[tuple[str, str], Sequence[Setting]]) -> str | None:
    """The database URL of the file, its own or that of its ``url_file``, if it has one that can be read."""
    urls, files = ([one.value for one in named.get(("database", key), ()) if one.layer >= Layer.OPTION]
                   for key in ("url", "url_file"))  # fmt: skip
    if urls or not files:
        return urls[0] if urls else None
    with suppress(ConfigError):
        return read_url(files[0], "")
    return None


def _warnings(chosen: Mapping[tuple[str, str], Setting]) -> Iterator[str]:
    for place, instead in DATABASE_URLS.items():
        url = chosen.get(place)
        if url is not None and url.layer != Layer.ENVIRONMENT and "***" in masked(url.value):
            yield f"{url.source} holds a password; {instead} keep it out of sight"


def effective(config: Config) -> Iterator[Effective]:
    """Every setting and where it came from, secrets masked."""
    for section, cls in SECTIONS.items():
        settings = getattr(config, section)
        for key, option in options_of(cls).items():
            value = getattr(settings, key)
            if value is not None and option.secret:
                value = "***"
            elif value is not None and (section, key) in DATABASE_URLS:
                value = masked(value)
            elif value is not None and (section, key) == ("sink", "url"):
                value = value.partition("?")[0]  # a query may hold a key
            yield Effective(section, key, value, config.sources[f"{section}.{key}"])
    for watch in config.watches:
        for key in options_of(WatchSettings):
            value = getattr(watch, key)
            if value != getattr(WatchSettings(), key):
                yield Effective(f"watch {watch.name}", key, value, config.sources["watch"])
