"""The configuration: one TOML file, overridden by the environment, overridden by flags
(spec/event-log.md 9).

Each option stands in one section, by one name.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.config.keys import Keys, Target, chosen_types
from eventlog.config.kinds import URL as DATABASE_URL
from eventlog.config.kinds import from_directory, is_plain, masked, read_url, url_of
from eventlog.config.publishing import refused_format
from eventlog.config.settings import (
    CHOSEN,
    OF_FORMAT,
    SECTIONS,
    DatabaseSettings,
    FormatSettings,
    LogSettings,
    MonitorSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
    format_options,
    installed_options,
    installed_sections,
    sections_with,
    variable,
)
from eventlog.core.options import (
    Option,
    nearest,
    options_of,
    parse_options,
    parse_value,
    toml,
    unknown,
)
from eventlog.errors import ConfigError, together, with_location
from eventlog.files.text import read_secret, secret_variable
from eventlog.registry import FORMATS, check_name, format_named, names, sink_named, source_named

if TYPE_CHECKING:
    from sqlalchemy import URL

_log = logging.getLogger("eventlog.publisher")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. ``sources`` maps ``section.key`` to where the value came from; ``warnings`` are
    lines to show once.

    ``url_of_file`` is the database URL of the file, which is the publisher's, even if another URL
    is in effect. ``secret_files`` maps ``section.key`` to the files of secrets in effect.
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
        """The name of the published log with its schema, or of the followed source, for people and
        labels.
        """
        if self.follows:
            return f"source {self.source.type}"
        name, schema = self.database.log_table, self.database.schema_name
        return f"{schema}.{name}" if schema and "." not in name else name

    @property
    def follows(self) -> bool:
        """True if a source other than a log is followed."""
        return not source_named(self.source.type).is_log

    @property
    def of_log(self) -> Any:
        """The options of ``[source]`` about a log; the defaults if another source is followed."""
        return source_named(_LOG).options() if self.follows else self.source.options


_LOG: Final = options_of(SourceSettings)["type"].default


def load(
    file: Path | Mapping[str, Any] | None,
    environ: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    ``file`` is the TOML file, or its content from a program, secrets included; None = no file.
    ``environ`` is the environment: variables ``EVENTLOG_<SECTION>_<KEY>`` count, all others are
    ignored. ``flags`` maps ``section.key`` to text. Flags override the environment, which overrides
    the file, which overrides the profile and the defaults (spec/event-log.md 9). Relative paths in
    the file start from the file's directory. Raises one ConfigError for all wrong settings, by file
    and key; if all are right, one for all settings that contradict each other.
    """
    path = file if isinstance(file, Path) else None
    document = file if isinstance(file, Mapping) else _read_toml(file) if file is not None else {}
    errors: list[ConfigError] = []
    said: dict[tuple[str, str], list[_Setting]] = {}
    keys = Keys(chosen_types(document, environ, flags or {}))
    for setting in (
        *_from_file(document, path, keys), *_from_environment(environ, keys),
        *_from_flags(flags or {}, keys)
    ):  # fmt: skip
        if isinstance(setting, ConfigError):
            errors.append(setting)
        else:
            said.setdefault((setting.section, setting.key), []).append(setting)
    read = list(_watches_of(document.get("watch", []), path))
    watches = tuple(watch for watch in read if isinstance(watch, WatchSettings))
    errors += [error for error in read if isinstance(error, ConfigError)]
    if errors:
        raise together(errors)
    chosen = {
        name: min(several, key=lambda setting: setting.layer) for name, several in said.items()
    }

    profile = chosen.get(("publisher", "profile"))
    idm = profile is not None and profile.value == "idm"
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def values_of(section: str, kind: type) -> dict[str, Any]:
        values = {}
        for key, option in options_of(kind).items():
            if (section, key) in chosen:
                values[key], sources[f"{section}.{key}"] = (
                    chosen[section, key].value,
                    chosen[section, key].source,
                )
            elif idm and option.idm is not None:
                values[key], sources[f"{section}.{key}"] = option.idm, "profile idm"
            else:
                sources[f"{section}.{key}"] = "default"
        return values

    for section, cls in SECTIONS.items():
        values = values_of(section, cls)
        if section in CHOSEN:
            try:
                kind = keys.options_of_type(section)
                values["options"] = kind(**values_of(section, kind))
            except ConfigError as error:
                errors.append(error)
            values["others"] = {
                key: one.value for (home, key), one in chosen.items() if home == section and one.of
            }
            sources |= {f"{section}.{key}": chosen[section, key].source for key in values["others"]}
        if section == "format":
            given: dict[str, dict[str, Any]] = {}
            values["given"] = given
            for (home, key), one in chosen.items():
                if home.startswith(OF_FORMAT):
                    given.setdefault(home.removeprefix(OF_FORMAT), {})[key] = one.value
                    sources[f"{home}.{key}"] = one.source
        settings[section] = cls(**values)
    if errors:
        raise together(errors)
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
        url_of_file=_url_of_file(said),
        secret_files=_secret_files(chosen, environ),
    )
    errors += _contradictions(config, chosen)
    if errors:
        raise together(errors)
    return config


def _secret_files(
    chosen: Mapping[tuple[str, str], _Setting], environ: Mapping[str, str]
) -> dict[str, Path]:
    """Return the files from which secrets in effect were read, by ``section.key``."""
    files = {
        f"{section}.{key}": Path(environ[f"{variable(section, key)}_FILE"])
        for (section, key), setting in chosen.items()
        if setting.target.option.secret
        and not setting.of
        and setting.layer == _Layer.ENVIRONMENT
        and f"{variable(section, key)}_FILE" in environ
    }
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if file is not None and (url is None or url.layer > file.layer):
        files["database.url"] = file.value
    return files


def with_secrets_of_now(config: Config, *sections: str) -> Config:
    """Return the configuration with the secrets of these sections, or of all without sections, read
    again from their files.

    A new connection thus uses a rotated secret. A secret that cannot be read now, perhaps while it
    is being replaced, stays as it was, with a warning.
    """
    read: dict[str, dict[str, Any]] = {}
    for name, file in config.secret_files.items():
        section, _, key = name.partition(".")
        if sections and section not in sections:
            continue
        try:
            text = read_secret(file, f"{name}, read again")
            value = (
                text.strip()
                if name == "database.url"
                else _parsed_secret(config, section, key, text)
            )
        except ConfigError as error:
            _log.warning("%s; what was read before is used", error, extra={"code": error.code})
        else:
            read.setdefault(section, {})[key] = value
    changed = {}
    for section, values in read.items():
        settings = getattr(config, section)
        changed[section] = (
            replace(settings, options=replace(settings.options, **values))
            if section in CHOSEN
            else replace(settings, **values)
        )
    return replace(config, **changed)


def _parsed_secret(config: Config, section: str, key: str, text: str) -> Any:
    settings = getattr(config, section)
    kind = type(settings.options) if section in CHOSEN else type(settings)
    return parse_value(options_of(kind)[key], text, f"{section}.{key}")


def _contradictions(
    config: Config, chosen: Mapping[tuple[str, str], _Setting]
) -> Iterator[ConfigError]:
    """Yield the errors about combinations of settings."""
    if config.database.schema_name is not None and config.database.tables is not None:
        schema, tables = (
            chosen["database", "schema_name"].source,
            chosen["database", "tables"].source,
        )
        yield ConfigError(f"{schema} and {tables} exclude each other; keep one")
    if config.publisher.retry_max < config.publisher.retry_initial:
        yield ConfigError(
            f"publisher.retry_max = {toml(config.publisher.retry_max)} is less than retry_initial "
            f"= {toml(config.publisher.retry_initial)}"
        )
    sink = sink_named(config.sink.type)
    # The default format works with every sink that keeps bodies whole, and most commands need not
    # load it.
    if is_set(config, "format.type") or sink.divided_by(config.sink.options):
        try:
            why = refused_format(config)
        except ConfigError as error:
            yield error
        else:
            if why is not None:
                yield ConfigError(why)
    for wrong in sink.contradictions(
        config.sink.options, lambda key: config.sources[f"sink.{key}"]
    ):
        yield ConfigError(wrong)
    source = source_named(config.source.type)
    for wrong in source.contradictions(
        config.source.options, lambda key: config.sources[f"source.{key}"]
    ):
        yield ConfigError(wrong)
    yield from _consumer_contradictions(config)
    yield from _former_names(config)


def _consumer_contradictions(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about settings that a consumer of a log cannot have (spec/event-log.md
    13.5).
    """
    if config.follows:
        return
    source = config.source.options
    if source.consumer is None:
        for name in ("begin", "classes"):
            if config.sources[f"source.{name}"] != "default":
                yield ConfigError(
                    f"{config.sources[f'source.{name}']} goes with source.consumer, a consumer's "
                    "name"
                )
        return
    if config.publisher.handle_future_events:
        yield ConfigError(
            "publisher.handle_future_events does not go with source.consumer: a consumer takes "
            "rows by their numbers"
        )
    if config.publisher.loopback_rows == "leave":
        yield ConfigError(
            'publisher.loopback_rows = "leave" does not go with source.consumer: rows that are '
            'left would stay gaps in its set; "consume" takes rows of driver_user for done'
        )


def _former_names(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about former table names that two watches claim."""
    seen = {
        watch.name: f"[[watch]] {watch.name}" for watch in config.watches if watch.tables is None
    }
    for watch in config.watches:
        for old in watch.was:
            if old in seen:
                yield ConfigError(
                    f"[[watch]] {watch.name}, was = {old!r}: {seen[old]} has that name too, and a "
                    "row of the log could mean either; keep one"
                )
            seen.setdefault(old, f"was of [[watch]] {watch.name}")


def _with_url(
    database: DatabaseSettings, chosen: Mapping[tuple[str, str], _Setting]
) -> DatabaseSettings:
    """Return the settings with the URL from ``url_file`` if that takes precedence. Raises
    ConfigError.
    """
    url, file = chosen.get(("database", "url")), chosen.get(("database", "url_file"))
    if url is not None and file is not None and url.layer == file.layer:
        raise ConfigError(f"{url.source} and {file.source} exclude each other; keep one")
    if file is None or (url is not None and url.layer < file.layer):
        return database
    return replace(database, url=read_url(file.value, file.source))


def _url_of_file(named: Mapping[tuple[str, str], Sequence[_Setting]]) -> str | None:
    """Return the database URL of the file, its own or the one in its ``url_file``; None if it has
    none or the file cannot be read.
    """
    urls, files = ([one.value for one in named.get(("database", key),
                   ()) if one.layer == _Layer.FILE]
                   for key in ("url", "url_file"))  # fmt: skip
    if urls or not files:
        return urls[0] if urls else None
    with suppress(ConfigError):
        return read_url(files[0], "")
    return None


def _warnings(chosen: Mapping[tuple[str, str], _Setting]) -> Iterator[str]:
    for (section, key), url in chosen.items():
        if url.target.option.kind is not DATABASE_URL or url.layer == _Layer.ENVIRONMENT:
            continue
        if not is_plain(url.value) and "***" in masked(url.value):
            password = variable(section, f"{key.removesuffix('url')}password")
            yield f"{url.source} holds a password; {password} or {key}_file keep it out of sight"


def is_set(config: Config, name: str) -> bool:
    """Return True if an option, ``section.key``, has another source than its default."""
    return config.sources.get(name, "default") != "default"


class Effective(NamedTuple):
    """A setting in effect. ``value`` is never a secret; ``source`` tells where it came from."""

    section: str
    key: str
    value: Any
    source: str


def effective(config: Config) -> Iterator[Effective]:
    """Yield every setting and its source, secrets masked. The options of other types follow those
    of the chosen type.
    """
    yield from _settings(config, installed_sections(), others=True)


def said(config: Config) -> Iterator[Effective]:
    """Return the settings that have another source than the default, as ``effective`` does.

    A format that is not published is loaded only if one of its options is set, and so is a type
    that is not chosen: loading all takes a quarter of a second.
    """
    sections = sections_with([f"{OF_FORMAT}{name}" for name in config.format.given])
    others = any(getattr(config, section).others for section in CHOSEN)
    return (one for one in _settings(config, sections, others=others) if one.source != "default")


def _settings(config: Config, sections: Iterable[str], *, others: bool) -> Iterator[Effective]:
    """Yield the settings of these sections. With ``others`` the options of types that are not
    chosen are included.
    """
    for section in sections:
        if section.startswith(OF_FORMAT):
            name = section.removeprefix(OF_FORMAT)
            values, declared = config.format.given.get(name, {}), format_options(format_named(name))
            in_effect = {key: values.get(key, one.default) for key, one in declared.items()}
            yield from _shown(config, section, in_effect, declared)
            continue
        settings, cls = getattr(config, section), SECTIONS[section]
        yield from _shown(
            config,
            section,
            {key: getattr(settings, key) for key in options_of(cls)},
            options_of(cls),
        )
        if section in CHOSEN:
            own = options_of(type(settings.options))
            yield from _shown(
                config, section, {key: getattr(settings.options, key) for key in own}, own
            )
            for key, (other, types) in installed_options(section).items() if others else ():
                if types and key not in own:
                    value = settings.others.get(key, other.default)
                    (one,) = _shown(config, section, {key: value}, {key: other})
                    yield one._replace(source=f"{one.source}; not of {settings.type}")
    for watch in config.watches:
        for key in options_of(WatchSettings):
            value = getattr(watch, key)
            if value != getattr(WatchSettings(), key):
                yield Effective(f"watch {watch.name}", key, value, config.sources["watch"])


def _shown(
    config: Config, section: str, values: Mapping[str, Any], options: Mapping[str, Option]
) -> Iterator[Effective]:
    for key, value in values.items():
        if value is not None:
            value = "***" if options[key].secret else options[key].kind.shown(value)
        yield Effective(section, key, value, config.sources.get(f"{section}.{key}", "default"))


# --- layers: the settings of the file, the environment and flags ----------------------------------


class _Layer(IntEnum):
    """The place of a setting, the one that takes precedence first."""

    FLAG = 0
    ENVIRONMENT = 1
    FILE = 2


class _Setting(NamedTuple):
    """A value of an option; ``source`` tells in words where it came from."""

    target: Target
    layer: _Layer
    value: Any
    source: str

    @property
    def section(self) -> str:
        return self.target.section

    @property
    def key(self) -> str:
        return self.target.key

    @property
    def of(self) -> str:
        return self.target.of


Read = Iterator[_Setting | ConfigError]
"""The settings of one layer, with the errors about others, so that all errors are reported at
once.
"""


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the content of the file. Raises ConfigError."""
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
        if not isinstance(
            error, tomllib.TOMLDecodeError
        ):  # int refuses numbers of thousands of digits
            raise ConfigError(f"{path}: is not read: a number has thousands of digits") from None
        quotes = (
            '; a text stands in quotes, such as url = "..."'
            if "Invalid value" in str(error)
            else ""
        )
        raise ConfigError(f"{path}: is not TOML: {error}{quotes}") from None


def _from_file(document: Mapping[str, Any], path: Path | None, keys: Keys) -> Read:
    """Yield the settings of a file except its [[watch]] tables. Relative paths start from its
    directory.

    ``path`` is None for content from a program, which may hold secrets, and paths as ``Path``.
    """
    place = _place(path)
    for section, table in document.items():
        if section == "watch":
            continue
        if section not in SECTIONS:
            homes = [
                f"[{home}]" for home in installed_sections() if section in installed_options(home)
            ]
            if homes and not isinstance(table, dict):
                yield ConfigError(
                    f"{place}: {section} stands in no section; write it below {' or '.join(homes)}"
                )
                continue
            near = nearest(section, [*SECTIONS, "watch"])
            yield ConfigError(
                f"{place}: [{section}] is not known; the nearest known one is [{near}]"
            )
            continue
        if not isinstance(table, Mapping):
            yield ConfigError(f"{place}: {section} is to be a section: [{section}]")
            continue
        for key, value in table.items():
            if section == "format" and isinstance(value, Mapping):
                yield from _of_format(key, value, place, path, keys)
                continue
            yield from _file_setting(section, key, value, place, path, keys)


def _of_format(
    name: str, table: Mapping[str, Any], place: str, path: Path | None, keys: Keys
) -> Read:
    """Yield the settings of a section ``[format.<name>]``."""
    section = f"{OF_FORMAT}{name}"
    try:
        check_name(FORMATS, name)
        if table:
            keys.of(section)
    except ConfigError as error:
        if name in names(FORMATS) and name != keys.format:
            return  # a broken package was warned of, and its format is unused here
        yield ConfigError(f"{place}: [{section}]: {error}")
        return
    for key, value in table.items():
        yield from _file_setting(section, key, value, place, path, keys)


def _file_setting(
    section: str, key: str, value: Any, place: str, path: Path | None, keys: Keys
) -> Read:
    """Yield the setting of a key of a section of the file, or its error. ``path`` is as in
    ``_from_file``.
    """
    target = keys.find(section, key)
    source = f"{place}: {section}.{key}"
    if target is None:
        yield keys.unknown(source, section, key)
        return
    if target.option.secret and path is not None:
        yield ConfigError(
            f"{source}: a secret does not belong in this file; set {variable(section, key)}"
        )
        return
    if isinstance(value, Path):
        value = str(value)
    try:
        parsed = parse_value(target.option, value, source)
    except ConfigError as error:
        yield error
        return
    if isinstance(parsed, Path) and path is not None:
        parsed = path.parent / parsed
    elif target.option.kind is DATABASE_URL and path is not None:
        parsed = from_directory(parsed, path.parent)
    yield _Setting(target, _Layer.FILE, parsed, source)


def _from_environment(environ: Mapping[str, str], keys: Keys) -> Read:
    """Yield the settings of the variables ``EVENTLOG_<SECTION>_<KEY>``."""
    for section in SECTIONS:
        prefix = f"EVENTLOG_{section.upper()}_"
        for name in sorted(environ):
            if not name.startswith(prefix) or _SERVICE_LINK.fullmatch(name):
                continue
            key = name.removeprefix(prefix).lower()
            home, key = keys.split(section, key)
            target, of_file = keys.find(home, key), keys.find(home, key.removesuffix("_file"))
            if target is None and of_file is not None and of_file.option.secret:
                try:
                    secret = secret_variable(name.removesuffix("_FILE"), environ) or ""
                except ConfigError as error:
                    yield error
                else:
                    yield _text_setting(
                        of_file, secret, _Layer.ENVIRONMENT, f"environment variable {name}"
                    )
                continue
            if target is None or name != name.upper():
                yield keys.unknown(f"environment variable {name}", home, key, variable)
                continue
            yield _text_setting(
                target, environ[name], _Layer.ENVIRONMENT, f"environment variable {name}"
            )
    yield from _misspelled_sections(environ)


_SERVICE_LINK: Final = re.compile(
    r".*_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)"
)
"""The names of the variables that Kubernetes sets in every container for a service with a name such
as eventlog-database.
"""


def _misspelled_sections(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    # Only variables much like a setting are reported, since other programs may have EVENTLOG_
    # variables of their own.
    sections = tuple(f"EVENTLOG_{section.upper()}_" for section in SECTIONS)
    known = [
        variable(section, key) for section in SECTIONS for key in options_of(SECTIONS[section])
    ]
    for name in sorted(environ):
        if (
            not name.startswith("EVENTLOG_")
            or name.startswith(sections)
            or _SERVICE_LINK.fullmatch(name)
        ):
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED):
            yield unknown(f"environment variable {name}", near[0])


_MISSPELLED: Final = 0.9
"""The least similarity at which a variable counts as a misspelled setting."""


def _from_flags(flags: Mapping[str, str], keys: Keys) -> Read:
    """Yield the settings of flags, ``section.key`` -> text."""
    for name, value in flags.items():
        section, _, key = name.rpartition(".")
        source = f"flag {name}"
        try:
            target = (
                keys.find(section, key)
                if section in SECTIONS or section.startswith(OF_FORMAT)
                else None
            )
        except ConfigError as error:
            yield with_location(error, source)
            continue
        if target is None:
            yield keys.unknown(source, section, key)
            continue
        if target.option.secret:
            yield ConfigError(
                f"{source}: a secret does not belong in a command line; set "
                f"{variable(section, key)}"
            )
            continue
        yield _text_setting(target, value, _Layer.FLAG, source)


def _watches_of(tables: Any, path: Path | None) -> Iterator[WatchSettings | ConfigError]:
    """Yield the ``[[watch]]`` tables of a file, or of the content from a program."""
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


def _text_setting(target: Target, text: str, layer: _Layer, source: str) -> _Setting | ConfigError:
    try:
        value = target.option.kind.from_text(text)
    except (ValueError, RecursionError):
        value = text
    try:
        return _Setting(target, layer, parse_value(target.option, value, source), source)
    except ConfigError as error:
        return error


# --- URLs of databases ----------------------------------------------------------------------------


def connection_url(database: DatabaseSettings) -> URL:
    """Return the URL to connect with, including the password. Raises ConfigError if it is missing
    or malformed.
    """
    if database.url is None:
        raise ConfigError(
            "no database is given: set url in [database] of eventlog.toml (`eventlog init` writes "
            "one), EVENTLOG_DATABASE_URL or --database-url"
        )
    url = url_of(database.url)
    return url if database.password is None else url.set(password=database.password)
