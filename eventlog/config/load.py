"""The configuration: one TOML file, overridden by the environment, overridden by flags.

``load`` reads all of it and remembers where each value came from. Each option has one home section; what
spec/event-log.md 9 lists is taken in ``[publisher]`` too.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.config.kinds import BASE
from eventlog.config.settings import (
    MESSAGE_OPTIONS,
    SECTIONS,
    DatabaseSettings,
    FormatSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
    variable,
)
from eventlog.core.options import Option, nearest, options_of, parse_value, toml, unknown
from eventlog.errors import ConfigError, together

if TYPE_CHECKING:
    from sqlalchemy import URL

__all__ = [
    "Config",
    "DatabaseSettings",
    "Effective",
    "FormatSettings",
    "PublisherSettings",
    "SinkSettings",
    "SourceSettings",
    "WatchSettings",
    "connection_url",
    "effective",
    "load",
    "masked",
]


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
    watches: tuple[WatchSettings, ...]
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    url_of_file: str | None = field(default=None, repr=False)


_ELSEWHERE: Final = (
    ("database", ("log_table", "schema_name", "tables")),
    ("format", tuple(name for name in options_of(FormatSettings) if name not in MESSAGE_OPTIONS)),
)
"""Options of spec/event-log.md 9 whose home is another section, taken in [publisher] too."""

_DATABASE_URLS: Final = {
    ("database", "url"): "EVENTLOG_DATABASE_PASSWORD or url_file",
    ("source", "url"): "EVENTLOG_SOURCE_PASSWORD or url_file",
    ("source", "position_url"): "EVENTLOG_SOURCE_POSITION_PASSWORD or position_url_file",
}
"""URLs that may hold a password, and where it belongs."""

_FILE_URL: Final = re.compile(r"((?:sqlite(?:\+\w+)?|embedded):///)(?!/|:memory:|file:)([^?]+)(\?.*)?", re.IGNORECASE)
"""The URL of a database that is a file or a directory, by a relative path."""

_FLAG, _ENVIRONMENT, _OPTION, _ALIAS = range(4)

_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")
"""What Kubernetes sets in every container for a service that is called eventlog-database or the like."""

_MISSPELLED: Final = 0.9
"""From how much likeness on a variable is taken for a setting with a slip of the pen."""


class _Given(NamedTuple):
    rank: int
    value: Any
    source: str


class _Place(NamedTuple):
    section: str
    key: str
    option: Option
    alias: bool


def load(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str] | None = None) -> Config:
    """Read the configuration.

    ``path``: the TOML file, None = no file. ``environ``: ``EVENTLOG_<SECTION>_<KEY>`` count, all else is passed over.
    ``flags``: ``section.key`` -> text. A flag beats the environment, that beats the file; there an option and an alias
    or a second place of it must agree; then come the profile and the default (spec/event-log.md 9). Relative
    paths in the file are taken from the file's directory. Raises ConfigError, which names file and key.
    """
    document = {} if path is None else _read_toml(path)
    errors: list[ConfigError] = []
    given: dict[tuple[str, str], list[_Given]] = {}
    for read in (*_from_file(document, path), *_from_environment(environ), *_from_flags(flags or {})):
        if isinstance(read, ConfigError):
            errors.append(read)
        else:
            given.setdefault(read[0][:2], []).append(read[1])
    watches = _watches(document.get("watch", []), path, errors)
    chosen: dict[tuple[str, str], _Given] = {}
    for place, values_given in given.items():
        try:
            chosen[place] = _choose(values_given)
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
        for key, spec in options_of(cls).items():
            found = chosen.get((section, key))
            if found is not None:
                values[key], sources[f"{section}.{key}"] = found.value, found.source
            elif idm and spec.idm is not None:
                values[key], sources[f"{section}.{key}"] = spec.idm, "profile idm"
            else:
                sources[f"{section}.{key}"] = "default"
        settings[section] = cls(**values)
    sources["watch"] = str(path)
    settings["database"] = _with_url(settings["database"], chosen)
    warnings = tuple(_warnings(chosen))
    config = Config(**settings, watches=watches, sources=sources, warnings=warnings, url_of_file=_url_of_file(given))
    if contradictions := list(_contradictions(config, chosen)):
        raise together(contradictions)
    return config


def connection_url(database: DatabaseSettings) -> URL:
    """The URL to connect with, password filled in. Raises ConfigError if there is none or it is none."""
    if database.url is None:
        raise ConfigError(
            "no database is given: set url in [database] of eventlog.toml (`eventlog init` writes one), "
            "EVENTLOG_DATABASE_URL or --database-url"
        )
    url = _parse_url(database.url)
    return url if database.password is None else url.set(password=database.password)


def with_own_password(url: str, database: DatabaseSettings) -> str:
    """The URL, with the password of the configured database where it names that one and that user, and has none.

    The password goes nowhere else: whoever answers at another URL would learn it.
    """
    if database.url is None or database.password is None:
        return url
    given, own = _parse_url(url), _parse_url(database.url)
    if given.password is not None or _place_of(given) != _place_of(own):
        return url
    return given.set(password=database.password).render_as_string(hide_password=False)


def _place_of(url: URL) -> tuple[Any, ...]:
    """Which database a URL names, for whom. What stands behind ? may name another host."""
    return url.get_backend_name(), url.username, url.host, url.port, url.database, dict(url.query)


def effective(config: Config) -> Iterator[Effective]:
    """Every setting and where it came from, secrets masked."""
    for section, cls in SECTIONS.items():
        settings = getattr(config, section)
        for key, spec in options_of(cls).items():
            value = getattr(settings, key)
            if value is not None and spec.secret:
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


def masked(url: str) -> str:
    """The URL without its password, as a part of its own and in the query."""
    parsed = _parse_url(url)
    hidden = {key: "***" for key in parsed.query if "password" in key.lower() or "secret" in key.lower()}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def _read_toml(path: Path) -> dict[str, Any]:
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


def _keys(section: str) -> dict[str, _Place]:
    """What may stand in a section: its options, their aliases, in [publisher] also those of section 9 elsewhere."""
    homes = [(section, tuple(options_of(SECTIONS[section]))), *(_ELSEWHERE if section == "publisher" else ())]
    keys = {}
    for home, names in homes:
        for name in names:
            spec = options_of(SECTIONS[home])[name]
            keys[name] = _Place(home, name, spec, alias=False)
            keys.update({alias: _Place(home, name, spec, alias=True) for alias in spec.aliases})
    return keys


_Found = tuple[_Place, _Given] | ConfigError
"""A setting, or what is wrong with it: all of that is said at once."""


def _from_file(document: Mapping[str, Any], path: Path | None) -> Iterator[_Found]:
    for section, table in document.items():
        if section == "watch":
            continue
        if section not in SECTIONS:
            homes = [f"[{home}]" for home in SECTIONS if section in options_of(SECTIONS[home])]
            if homes and not isinstance(table, dict):
                yield ConfigError(f"{path}: {section} stands in no section; write it below {' or '.join(homes)}")
                continue
            near = nearest(section, [*SECTIONS, "watch"])
            yield ConfigError(f"{path}: [{section}] is not known; the nearest known one is [{near}]")
            continue
        if not isinstance(table, dict):
            yield ConfigError(f"{path}: {section} is to be a section: [{section}]")
            continue
        keys = _keys(section)
        for key, value in table.items():
            if key not in keys:
                yield unknown(f"{path}: {section}.{key}", _suggest(section, key))
                continue
            place = keys[key]
            source = f"{path}: {section}.{key}"
            if place.option.secret:
                yield ConfigError(f"{source}: a secret does not belong in this file; set {variable(section, key)}")
                continue
            try:
                parsed = _parse(place, value, source)
            except ConfigError as error:
                yield error
                continue
            if isinstance(parsed, Path) and path is not None:
                parsed = path.parent / parsed
            elif (place.section, place.key) in _DATABASE_URLS and path is not None:
                parsed = _from_directory(parsed, path.parent)
            yield place, _Given(_ALIAS if place.alias else _OPTION, parsed, source)


def _from_directory(url: str, directory: Path) -> str:
    """The URL of a database in a file, with a relative path of it taken from a directory; any other as it is."""
    found = _FILE_URL.fullmatch(url)
    return url if found is None else f"{found[1]}{directory / found[2]}{found[3] or ''}"


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Found]:
    for section in SECTIONS:
        prefix = f"EVENTLOG_{section.upper()}_"
        keys = {name.upper(): place for name, place in _keys(section).items() if not place.alias}
        for name in sorted(environ):
            if not name.startswith(prefix) or _SERVICE_LINK.fullmatch(name):
                continue
            key = name.removeprefix(prefix)
            if key not in keys:
                yield unknown(f"environment variable {name}", prefix + nearest(key, keys))
                continue
            yield _given_text(keys[key], environ[name], _ENVIRONMENT, f"environment variable {name}")
    yield from _misspelled_sections(environ)


def _misspelled_sections(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    # Only what is much like a setting: other programs may have EVENTLOG_ variables of their own.
    sections = tuple(f"EVENTLOG_{section.upper()}_" for section in SECTIONS)
    known = [f"EVENTLOG_{key.replace('.', '_').upper()}" for key in _all_keys()]
    for name in sorted(environ):
        if not name.startswith("EVENTLOG_") or name.startswith(sections) or _SERVICE_LINK.fullmatch(name):
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED):
            yield unknown(f"environment variable {name}", near[0])


def _from_flags(flags: Mapping[str, str]) -> Iterator[_Found]:
    for name, value in flags.items():
        section, _, key = name.partition(".")
        source = f"flag {name}"
        if section not in SECTIONS or key not in _keys(section):
            near = _suggest(section, key) if section in SECTIONS else nearest(name, _all_keys())
            yield unknown(source, near)
            continue
        place = _keys(section)[key]
        if place.option.secret:
            yield ConfigError(f"{source}: a secret does not belong in a command line; set {variable(section, key)}")
            continue
        yield _given_text(place, value, _FLAG, source)


def _given_text(place: _Place, text: str, rank: int, source: str) -> _Found:
    try:
        value = place.option.kind.from_text(text)
    except (ValueError, RecursionError):
        value = text
    try:
        return place, _Given(rank, _parse(place, value, source), source)
    except ConfigError as error:
        return error


def _parse(place: _Place, value: Any, source: str) -> Any:
    if place.alias:
        value = place.option.alias_values.get(str(value).strip().lower(), value)
    return parse_value(place.option, value, source)


def _choose(values: list[_Given]) -> _Given:
    """The value that counts. What one layer (flags, environment, file) says twice must agree."""
    first = min(values, key=lambda given: given.rank)
    for other in values:
        if min(other.rank, _OPTION) == min(first.rank, _OPTION) and other.value != first.value:
            second = other.source.rpartition(": ")[2]
            raise ConfigError(f"{first.source} and {second} are one option with two values; keep one")
    return first


def _watches(tables: Any, path: Path | None, errors: list[ConfigError]) -> tuple[WatchSettings, ...]:
    """The watches; what is wrong is added to ``errors``."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        errors.append(ConfigError(f"{path}: watch is to be written [[watch]], once a table or view"))
        return ()
    specs = options_of(WatchSettings)
    watches: dict[str, WatchSettings] = {}
    for number_, table in enumerate(tables, 1):
        where = f"{path}: watch {number_}"
        values, before = {}, len(errors)
        for key, value in table.items():
            if key not in specs:
                errors.append(unknown(f"{where}, {key}", nearest(key, specs)))
                continue
            try:
                values[key] = _parse(_Place("watch", key, specs[key], alias=False), value, f"{where}, {key}")
            except ConfigError as error:
                errors.append(error)
        if len(errors) > before:
            continue
        watch = WatchSettings(**values)
        if (wrong := _wrong_watch(watch)) is not None:
            named = f" ({watch.name})" if watch.name else ""
            errors.append(ConfigError(f"{where}{named}: {wrong}"))
        elif watch.name in watches:
            errors.append(ConfigError(f"{where}: {watch.name} is watched twice"))
        else:
            watches[watch.name] = watch
    return tuple(watches.values())


def _wrong_watch(watch: WatchSettings) -> str | None:
    """What no option of a watch can say of itself."""
    if sum(one is not None for one in (watch.table, watch.view, watch.tables)) != 1:
        return "give one of table, tables and view"
    if watch.columns is not None and watch.exclude:
        return "give either columns or exclude"
    if (watch.view is None) != (watch.base is None):
        return f"a view, and only a view, needs base: {BASE.legal}"
    if watch.exclude_tables and watch.tables is None:
        return "exclude_tables goes with tables = [...]"
    if watch.columns is not None and watch.tables is not None:
        return (
            "columns are those of one table: name them in a [[watch]] with table = ..., or leave others out by exclude"
        )
    return None


def _contradictions(config: Config, chosen: Mapping[tuple[str, str], _Given]) -> Iterator[ConfigError]:
    """What no option can say of itself."""
    if config.database.schema_name is not None and config.database.tables is not None:
        schema, tables = chosen["database", "schema_name"].source, chosen["database", "tables"].source
        yield ConfigError(f"{schema} and {tables} exclude each other; keep one")
    if config.publisher.retry_max < config.publisher.retry_initial:
        yield ConfigError(f"publisher.retry_max = {toml(config.publisher.retry_max)} is less than retry_initial = "
                          f"{toml(config.publisher.retry_initial)}")  # fmt: skip
    if config.format.type == "qlik-messages" and config.sink.type != "kafka":
        yield ConfigError(f"format.type = qlik-messages needs sink.type = kafka, not {config.sink.type}")
    if config.format.metadata == "registry" and (config.format.encoding != "avro" or config.format.registry is None):
        yield ConfigError("format.metadata = registry needs format.encoding = avro and format.registry, its URL")
    if (config.sink.type == "kafka") and (config.sink.password is None) != (config.sink.user is None):
        yield ConfigError("Kafka needs both EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or neither")
    if config.sink.type == "kafka" and config.sink.timeout < _LEAST_KAFKA_TIMEOUT:
        yield ConfigError(
            f"{config.sources['sink.timeout']} = {toml(config.sink.timeout)} is too short for Kafka, whose producer "
            f"asks for its number first: at least {_LEAST_KAFKA_TIMEOUT:g} s, better 10 or more"
        )
    needed = _SINK_NEEDS.get(config.sink.type)
    if needed is not None and getattr(config.sink, needed[0]) is None:
        yield ConfigError(f"{chosen['sink', 'type'].source}: {config.sink.type} needs sink.{needed[0]}, {needed[1]}")


_LEAST_KAFKA_TIMEOUT: Final = 2.0
"""Seconds. An idempotent producer that asks the brokers a second time for its number has waited for one by then."""

_SINK_NEEDS: Final = {
    "files": ("directory", "where the documents are written"),
    "http": ("url", "where the documents are posted to"),
    "kafka": ("brokers", "where a broker is: host:port"),
    "python": ("function", "which is called with each document"),
}


def _with_url(database: DatabaseSettings, chosen: Mapping[tuple[str, str], _Given]) -> DatabaseSettings:
    """The settings with the URL out of ``url_file``, if that is what counts."""
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if url is not None and file is not None and url.rank == file.rank:
        raise ConfigError(f"{url.source} and {file.source} exclude each other; keep one")
    text = database.url
    if file is not None and (url is None or file.rank < url.rank):
        try:
            text = file.value.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file.source}: {file.value} cannot be read: {error}") from None
        if not text:
            raise ConfigError(f"{file.source}: {file.value} is empty; it is to hold the database URL")
    return replace(database, url=text)


def _url_of_file(given: Mapping[tuple[str, str], Sequence[_Given]]) -> str | None:
    """The database URL of the file, its own or that of its ``url_file``, if it has one that can be read."""
    urls, files = ([one.value for one in given.get(("database", key), ()) if one.rank >= _OPTION]
                   for key in ("url", "url_file"))  # fmt: skip
    if urls or not files:
        return urls[0] if urls else None
    with suppress(OSError, UnicodeDecodeError):
        return str(files[0].read_text(encoding="utf-8").strip()) or None
    return None


def _warnings(chosen: Mapping[tuple[str, str], _Given]) -> Iterator[str]:
    for place, instead in _DATABASE_URLS.items():
        url = chosen.get(place)
        if url is not None and url.rank != _ENVIRONMENT and "***" in masked(url.value):
            yield f"{url.source} holds a password; {instead} keep it out of sight"


def _parse_url(text: str) -> URL:
    # SQLAlchemy is heavy, and most of the command line does without.
    from eventlog.sql.registry import parse_url

    return parse_url(text)


def _all_keys() -> list[str]:
    return [f"{section}.{key}" for section in SECTIONS for key in options_of(SECTIONS[section])]


def _suggest(section: str, key: str) -> str:
    """The nearest known key: one of this name elsewhere, else the most alike in its own section."""
    for other, cls in SECTIONS.items():
        if key in options_of(cls):
            return f"{other}.{key}"
    return f"{section}.{nearest(key, _keys(section))}"
