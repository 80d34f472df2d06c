"""The configuration: one TOML file, overridden by the environment, overridden by flags (spec/event-log.md 9).

Each option has one home section; what spec/event-log.md 9 lists is taken in ``[publisher]`` too.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.config.kinds import from_directory, masked, read_url, url_of
from eventlog.config.publishing import refused_format
from eventlog.config.settings import (
    EVENTLOG,
    MESSAGE_OPTIONS,
    SECTIONS,
    SINKS,
    DatabaseSettings,
    FormatSettings,
    LogSettings,
    MonitorSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
    variable,
)
from eventlog.core.options import Option, nearest, options_of, parse_options, parse_value, toml, unknown
from eventlog.errors import ConfigError, together
from eventlog.files.text import read_secret, secret_variable

if TYPE_CHECKING:
    from sqlalchemy import URL

_log = logging.getLogger("eventlog.publisher")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. ``sources``: where ``section.key`` came from; ``warnings``: lines to be shown once.

    ``url_of_file``: the database URL that the file has, which is the publisher's, where another one is in effect.
    ``secret_files``: the files that hold secrets in effect, by ``section.key``.
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
    secret_files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def publication(self) -> str:
        """What is published, for people and labels: the log with its schema, or the source that is followed."""
        if self.follows:
            return f"source {self.source.type}"
        name, schema = self.database.log_table, self.database.schema_name
        return f"{schema}.{name}" if schema and "." not in name else name

    @property
    def follows(self) -> bool:
        """Whether a source is followed that is no log."""
        return self.source.type not in (None, EVENTLOG)


def load(
    file: Path | Mapping[str, Any] | None, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> Config:
    """Read the configuration.

    ``file``: the TOML file, or its content as a program hands it over, secrets included; None = no file. ``environ``:
    ``EVENTLOG_<SECTION>_<KEY>`` count, all else is passed over. ``flags``: ``section.key`` -> text. A flag beats the
    environment, that beats the file; there an option and an alias or a second place of it must agree; then come the
    profile and the default (spec/event-log.md 9). Relative paths in the file are taken from the file's directory.
    Raises one ConfigError for all settings that are wrong, by file and key; if none is, one for all that contradict
    each other.
    """
    path = file if isinstance(file, Path) else None
    document = file if isinstance(file, Mapping) else _read_toml(file) if file is not None else {}
    errors: list[ConfigError] = []
    named: dict[tuple[str, str], list[_Setting]] = {}
    for setting in (*_from_file(document, path), *_from_environment(environ), *_from_flags(flags or {})):
        if isinstance(setting, ConfigError):
            errors.append(setting)
        else:
            named.setdefault((setting.section, setting.key), []).append(setting)
    read = list(_watches_of(document.get("watch", []), path))
    watches = tuple(watch for watch in read if isinstance(watch, WatchSettings))
    errors += [error for error in read if isinstance(error, ConfigError)]
    chosen: dict[tuple[str, str], _Setting] = {}
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
    config = Config(
        **settings,
        watches=watches,
        sources=sources,
        warnings=warnings,
        url_of_file=_url_of_file(named),
        secret_files=_secret_files(chosen, environ),
    )
    errors += _contradictions(config, chosen)
    if errors:
        raise together(errors)
    return config


def _secret_files(chosen: Mapping[tuple[str, str], _Setting], environ: Mapping[str, str]) -> dict[str, Path]:
    """The files that secrets in effect were read from, by ``section.key``."""
    files = {
        f"{section}.{key}": Path(environ[f"{variable(section, key)}_FILE"])
        for (section, key), setting in chosen.items()
        if options_of(SECTIONS[section])[key].secret
        and setting.layer == _Layer.ENVIRONMENT
        and f"{variable(section, key)}_FILE" in environ
    }
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if file is not None and (url is None or url.layer > file.layer):
        files["database.url"] = file.value
    return files


def with_secrets_of_now(config: Config, *sections: str) -> Config:
    """The configuration with the secrets of these sections, all if none is named, read again out of their files.

    So a secret that was rotated is taken up when a connection is made. One that cannot be read now, perhaps since it is
    just being replaced, stays as it was, with a warning.
    """
    read: dict[str, dict[str, Any]] = {}
    for name, file in config.secret_files.items():
        section, _, key = name.partition(".")
        if sections and section not in sections:
            continue
        try:
            text = read_secret(file, f"{name}, read again")
            value = text.strip() if name == "database.url" else _parsed_secret(section, key, text)
        except ConfigError as error:
            _log.warning("%s; what was read before is used", error, extra={"code": error.code})
        else:
            read.setdefault(section, {})[key] = value
    return replace(config, **{section: replace(getattr(config, section), **values) for section, values in read.items()})


def _parsed_secret(section: str, key: str, text: str) -> Any:
    declared = options_of(SECTIONS[section])[key]
    return parse_value(declared, text, f"{section}.{key}")


def _choose(settings: Sequence[_Setting]) -> _Setting:
    """The value that counts. What one layer (flags, environment, file) says twice must agree."""
    first = min(settings, key=lambda setting: setting.layer)
    for other in settings:
        if min(other.layer, _Layer.OPTION) == min(first.layer, _Layer.OPTION) and other.value != first.value:
            second = other.source.rpartition(": ")[2]
            raise ConfigError(f"{first.source} and {second} are one option with two values; keep one")
    return first


def _contradictions(config: Config, chosen: Mapping[tuple[str, str], _Setting]) -> Iterator[ConfigError]:
    """What no option can say of itself."""
    if config.database.schema_name is not None and config.database.tables is not None:
        schema, tables = chosen["database", "schema_name"].source, chosen["database", "tables"].source
        yield ConfigError(f"{schema} and {tables} exclude each other; keep one")
    if config.publisher.retry_max < config.publisher.retry_initial:
        yield ConfigError(f"publisher.retry_max = {toml(config.publisher.retry_max)} is less than retry_initial = "
                          f"{toml(config.publisher.retry_initial)}")  # fmt: skip
    if why := refused_format(config):
        yield ConfigError(why)
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
    yield from _consumer_contradictions(config)
    yield from _former_names(config)
    needed = SINKS[config.sink.type].needs
    if needed is not None and getattr(config.sink, needed[0]) is None:
        yield ConfigError(f"{chosen['sink', 'type'].source}: {config.sink.type} needs sink.{needed[0]}, {needed[1]}")


def _consumer_contradictions(config: Config) -> Iterator[ConfigError]:
    """What a consumer of a log cannot have (spec/event-log.md 13.5)."""
    source = config.source
    if config.follows:
        return
    if source.consumer is None:
        for name in ("begin", "classes"):
            if config.sources[f"source.{name}"] != "default":
                yield ConfigError(f"{config.sources[f'source.{name}']} goes with source.consumer, a consumer's name")
        return
    if config.publisher.handle_future_events:
        yield ConfigError(
            "publisher.handle_future_events does not go with source.consumer: a consumer takes rows by their numbers"
        )
    if config.publisher.loopback_rows == "leave":
        yield ConfigError(
            'publisher.loopback_rows = "leave" does not go with source.consumer: rows that are left would stay gaps in '
            'its set; "consume" takes rows of driver_user for done'
        )


def _former_names(config: Config) -> Iterator[ConfigError]:
    """What watches say of names that tables had before and that two of them claim."""
    seen = {watch.name: f"[[watch]] {watch.name}" for watch in config.watches if watch.tables is None}
    for watch in config.watches:
        for old in watch.was:
            if old in seen:
                yield ConfigError(
                    f"[[watch]] {watch.name}, was = {old!r}: {seen[old]} has that name too, and a row of the log could "
                    "mean either; keep one"
                )
            seen.setdefault(old, f"was of [[watch]] {watch.name}")


_LEAST_KAFKA_TIMEOUT: Final = 2.0
"""Seconds. An idempotent producer that asks the brokers a second time for its number has waited for one by then."""


def _with_url(database: DatabaseSettings, chosen: Mapping[tuple[str, str], _Setting]) -> DatabaseSettings:
    """The settings with the URL out of ``url_file``, if that is what counts. Raises ConfigError."""
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if url is not None and file is not None and url.layer == file.layer:
        raise ConfigError(f"{url.source} and {file.source} exclude each other; keep one")
    if file is None or (url is not None and url.layer < file.layer):
        return database
    return replace(database, url=read_url(file.value, file.source))


def _url_of_file(named: Mapping[tuple[str, str], Sequence[_Setting]]) -> str | None:
    """The database URL of the file, its own or that of its ``url_file``, if it has one that can be read."""
    urls, files = ([one.value for one in named.get(("database", key), ()) if one.layer >= _Layer.OPTION]
                   for key in ("url", "url_file"))  # fmt: skip
    if urls or not files:
        return urls[0] if urls else None
    with suppress(ConfigError):
        return read_url(files[0], "")
    return None


def _warnings(chosen: Mapping[tuple[str, str], _Setting]) -> Iterator[str]:
    for place, instead in _DATABASE_URLS.items():
        url = chosen.get(place)
        if url is not None and url.layer != _Layer.ENVIRONMENT and "***" in masked(url.value):
            yield f"{url.source} holds a password; {instead} keep it out of sight"


class Effective(NamedTuple):
    """A setting as it is in effect. ``value`` is never a secret; ``source`` says where it came from."""

    section: str
    key: str
    value: Any
    source: str


def effective(config: Config) -> Iterator[Effective]:
    """Every setting and where it came from, secrets masked."""
    for section, cls in SECTIONS.items():
        settings = getattr(config, section)
        for key, option in options_of(cls).items():
            value = getattr(settings, key)
            if value is not None and option.secret:
                value = "***"
            elif value is not None and (section, key) in _DATABASE_URLS:
                value = masked(value)
            elif value is not None and (section, key) == ("sink", "url"):
                value = value.partition("?")[0]  # a query may hold a key
            yield Effective(section, key, value, config.sources[f"{section}.{key}"])
    for watch in config.watches:
        for key in options_of(WatchSettings):
            value = getattr(watch, key)
            if value != getattr(WatchSettings(), key):
                yield Effective(f"watch {watch.name}", key, value, config.sources["watch"])


# --- layers: what the file, the environment and flags say -------------------------------------------------------------


class _Layer(IntEnum):
    """Where a setting stands, the one that counts first. The last two are of the file."""

    FLAG = 0
    ENVIRONMENT = 1
    OPTION = 2
    ALIAS = 3


class _Setting(NamedTuple):
    """A value of the option ``key`` of ``section``; ``source`` says in words where it came from."""

    section: str
    key: str
    layer: _Layer
    value: Any
    source: str


Read = Iterator[_Setting | ConfigError]
"""Settings, and what is wrong with others: all of that is said at once."""


def _read_toml(path: Path) -> dict[str, Any]:
    """The content of the file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `eventlog init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ConfigError(f"{path}: is not read: brackets or tables are nested too deep") from None
    except ValueError as error:
        if not isinstance(error, tomllib.TOMLDecodeError):  # of int, which takes no more
            raise ConfigError(f"{path}: is not read: a number has thousands of digits") from None
        quotes = '; a text stands in quotes, such as url = "..."' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path}: is not TOML: {error}{quotes}") from None


def _from_file(document: Mapping[str, Any], path: Path | None) -> Read:
    """The settings of a file, but for its [[watch]] tables. Relative paths are taken from its directory.

    ``path`` None: a program hands the same content over. It may hold secrets, and paths as ``Path``.
    """
    place = _place(path)
    for section, table in document.items():
        if section == "watch":
            continue
        if section not in SECTIONS:
            homes = [f"[{home}]" for home in SECTIONS if section in options_of(SECTIONS[home])]
            if homes and not isinstance(table, dict):
                yield ConfigError(f"{place}: {section} stands in no section; write it below {' or '.join(homes)}")
                continue
            near = nearest(section, [*SECTIONS, "watch"])
            yield ConfigError(f"{place}: [{section}] is not known; the nearest known one is [{near}]")
            continue
        if not isinstance(table, Mapping):
            yield ConfigError(f"{place}: {section} is to be a section: [{section}]")
            continue
        keys = _keys(section)
        for key, value in table.items():
            if key not in keys:
                yield unknown(f"{place}: {section}.{key}", _suggest(section, key))
                continue
            target = keys[key]
            source = f"{place}: {section}.{key}"
            if target.option.secret and path is not None:
                yield ConfigError(f"{source}: a secret does not belong in this file; set {variable(section, key)}")
                continue
            if target.is_alias:
                value = target.option.alias_values.get(str(value).strip().lower(), value)
            if isinstance(value, Path):
                value = str(value)
            try:
                parsed = parse_value(target.option, value, source)
            except ConfigError as error:
                yield error
                continue
            if isinstance(parsed, Path) and path is not None:
                parsed = path.parent / parsed
            elif (target.section, target.key) in _DATABASE_URLS and path is not None:
                parsed = from_directory(parsed, path.parent)
            yield _Setting(
                target.section, target.key, _Layer.ALIAS if target.is_alias else _Layer.OPTION, parsed, source
            )


def _from_environment(environ: Mapping[str, str]) -> Read:
    """The settings of the variables ``EVENTLOG_<SECTION>_<KEY>``."""
    for section in SECTIONS:
        prefix = f"EVENTLOG_{section.upper()}_"
        keys = {name.upper(): target for name, target in _keys(section).items() if not target.is_alias}
        for name in sorted(environ):
            if not name.startswith(prefix) or _SERVICE_LINK.fullmatch(name):
                continue
            key = name.removeprefix(prefix)
            of_file = keys.get(key.removesuffix("_FILE"))
            if key not in keys and of_file is not None and of_file.option.secret:
                try:
                    secret = secret_variable(name.removesuffix("_FILE"), environ) or ""
                except ConfigError as error:
                    yield error
                else:
                    yield _text_setting(of_file, secret, _Layer.ENVIRONMENT, f"environment variable {name}")
                continue
            if key not in keys:
                yield unknown(f"environment variable {name}", prefix + nearest(key, keys))
                continue
            yield _text_setting(keys[key], environ[name], _Layer.ENVIRONMENT, f"environment variable {name}")
    yield from _misspelled_sections(environ)


_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")
"""What Kubernetes sets in every container for a service that is called eventlog-database or the like."""


def _misspelled_sections(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    # Only what is much like a setting: other programs may have EVENTLOG_ variables of their own.
    sections = tuple(f"EVENTLOG_{section.upper()}_" for section in SECTIONS)
    known = [f"EVENTLOG_{key.replace('.', '_').upper()}" for key in _all_keys()]
    for name in sorted(environ):
        if not name.startswith("EVENTLOG_") or name.startswith(sections) or _SERVICE_LINK.fullmatch(name):
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED):
            yield unknown(f"environment variable {name}", near[0])


_MISSPELLED: Final = 0.9
"""From how much likeness on a variable is taken for a misspelled setting."""


def _from_flags(flags: Mapping[str, str]) -> Read:
    """The settings of flags, ``section.key`` -> text."""
    for name, value in flags.items():
        section, _, key = name.partition(".")
        source = f"flag {name}"
        if section not in SECTIONS or key not in _keys(section):
            near = _suggest(section, key) if section in SECTIONS else nearest(name, _all_keys())
            yield unknown(source, near)
            continue
        target = _keys(section)[key]
        if target.option.secret:
            yield ConfigError(f"{source}: a secret does not belong in a command line; set {variable(section, key)}")
            continue
        yield _text_setting(target, value, _Layer.FLAG, source)


def _watches_of(tables: Any, path: Path | None) -> Iterator[WatchSettings | ConfigError]:
    """The ``[[watch]]`` tables of a file, or of what a program hands over in its place."""
    place = _place(path)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield ConfigError(f"{place}: watch is to be written [[watch]], once a table or view")
        return
    names = set()
    for number, table in enumerate(tables, 1):
        where = f"{place}: watch {number}"
        try:
            watch = parse_options(WatchSettings, table, where)
        except ConfigError as error:
            yield error
            continue
        if (wrong := watch.contradiction()) is not None:
            named = f" ({watch.name})" if watch.name else ""
            yield ConfigError(f"{where}{named}: {wrong}")
        elif watch.name in names:
            yield ConfigError(f"{where}: {watch.name} is watched twice")
        else:
            names.add(watch.name)
            yield watch


def _place(path: Path | None) -> str:
    return "the configuration" if path is None else str(path)


def _text_setting(target: _Target, text: str, layer: _Layer, source: str) -> _Setting | ConfigError:
    try:
        value = target.option.kind.from_text(text)
    except (ValueError, RecursionError):
        value = text
    try:
        return _Setting(target.section, target.key, layer, parse_value(target.option, value, source), source)
    except ConfigError as error:
        return error


class _Target(NamedTuple):
    """The option that a key of a section names."""

    section: str
    key: str
    option: Option
    is_alias: bool


_ELSEWHERE: Final = (
    ("database", ("log_table", "schema_name", "tables")),
    ("format", tuple(name for name in options_of(FormatSettings) if name not in MESSAGE_OPTIONS)),
)
"""Options of spec/event-log.md 9 whose home is another section, taken in [publisher] too."""


def _keys(section: str) -> dict[str, _Target]:
    """What may stand in a section: its options, their aliases, in [publisher] also those of section 9 elsewhere."""
    homes = [(section, tuple(options_of(SECTIONS[section]))), *(_ELSEWHERE if section == "publisher" else ())]
    keys = {}
    for home, names in homes:
        for name in names:
            spec = options_of(SECTIONS[home])[name]
            keys[name] = _Target(home, name, spec, is_alias=False)
            keys.update({alias: _Target(home, name, spec, is_alias=True) for alias in spec.aliases})
    return keys


def _all_keys() -> list[str]:
    return [f"{section}.{key}" for section in SECTIONS for key in options_of(SECTIONS[section])]


def _suggest(section: str, key: str) -> str:
    """The nearest known key: one of this name elsewhere, else the most alike in its own section."""
    for other, cls in SECTIONS.items():
        if key in options_of(cls):
            return f"{other}.{key}"
    return f"{section}.{nearest(key, _keys(section))}"


# --- URLs of databases ------------------------------------------------------------------------------------------------

_DATABASE_URLS: Final = {
    ("database", "url"): "EVENTLOG_DATABASE_PASSWORD or url_file",
    ("source", "url"): "EVENTLOG_SOURCE_PASSWORD or url_file",
    ("source", "position_url"): "EVENTLOG_SOURCE_POSITION_PASSWORD or position_url_file",
}
"""Settings that may hold a password, and where it belongs."""


def connection_url(database: DatabaseSettings) -> URL:
    """The URL to connect with, password filled in. Raises ConfigError if there is none or it is none."""
    if database.url is None:
        raise ConfigError(
            "no database is given: set url in [database] of eventlog.toml (`eventlog init` writes one), "
            "EVENTLOG_DATABASE_URL or --database-url"
        )
    url = url_of(database.url)
    return url if database.password is None else url.set(password=database.password)
