"""The configuration: one TOML file. The environment overrides the file, and flags override both
(spec/event-log.md 9). Each option has one section and one name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from eventlog.config.keys import Keys, Name, chosen_types
from eventlog.config.kinds import URL as DATABASE_URL
from eventlog.config.kinds import is_plain, masked, url_of
from eventlog.config.layers import (
    Layer,
    Setting,
    filters_of,
    from_environment,
    from_file,
    from_flags,
    masks_of,
    read_toml,
    watches_of,
)
from eventlog.config.publishing import refused_format
from eventlog.config.settings import (
    ARRAYS,
    CHOSEN,
    LETTERS,
    OF_FORMAT,
    SECTIONS,
    DatabaseSettings,
    DeadLetterSettings,
    FilterSettings,
    FormatSettings,
    LogSettings,
    MaskSettings,
    MonitorSettings,
    PublisherSettings,
    SinkSettings,
    SourceSettings,
    WatchSettings,
    as_of_letters,
    variable,
)
from eventlog.core.catalog.masks import HASH
from eventlog.core.options import options_of, parse_value, toml
from eventlog.core.secrets import read_secret
from eventlog.errors import ConfigError, called, check_result, together
from eventlog.registry import sink_named, source_named

if TYPE_CHECKING:
    from sqlalchemy import URL

_log = logging.getLogger("eventlog.publisher")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    database: DatabaseSettings
    publisher: PublisherSettings
    sink: SinkSettings
    dead_letter: DeadLetterSettings
    format: FormatSettings
    source: SourceSettings
    monitor: MonitorSettings
    log: LogSettings
    watches: tuple[WatchSettings, ...]
    sources: Mapping[str, str]
    """The place where each value was set, by ``section.key``."""
    warnings: tuple[str, ...] = ()
    """Warnings to show once."""
    url_of_file: str | None = field(default=None, repr=False)
    """The database URL in the file, which the publisher uses, even if another URL is in
    effect now.
    """
    own_consumer: str | None = None
    """The consumer that the file or the environment names, even if the command line names
    another.
    """
    secret_files: Mapping[str, Path] = field(default_factory=dict)
    """The files with the secrets in effect, by ``section.key``."""
    masks: tuple[MaskSettings, ...] = ()
    filters: tuple[FilterSettings, ...] = ()

    @property
    def hides_rows(self) -> bool:
        """True if no message of the database may quote a row, since there are masks or filters."""
        return bool(self.masks or self.filters)

    @property
    def publication(self) -> str:
        """The name of the published log with its schema, or of the followed source, for display and
        for labels.
        """
        if self.follows:
            return f"source {self.source.type}"
        name, schema = self.database.log_table, self.database.schema_name
        return f"{schema}.{name}" if schema and "." not in name else name

    @property
    def follows(self) -> bool:
        """True if the source of events is not a log."""
        return not source_named(self.source.type).is_log

    @property
    def of_letters(self) -> Config | None:
        """The configuration with ``[dead_letter]`` as its sink; None if there are no letters."""
        settings = self.dead_letter
        if settings.type is None:
            return None
        others = {k: v for k, v in self.secret_files.items() if not k.startswith("sink.")}
        return replace(
            self,
            sink=SinkSettings(settings.type, settings.options, settings.others),
            sources={**self.sources, **_as_of_sink(self.sources)},
            secret_files={**others, **_as_of_sink(self.secret_files)},
        )

    @property
    def of_log(self) -> Any:
        """The options of ``[source]`` for a log; the defaults if the source is not a log."""
        return source_named(_LOG).options() if self.follows else self.source.options


_LOG: Final = options_of(SourceSettings)["type"].default

T = TypeVar("T")


def _as_of_sink(of_letters: Mapping[str, T]) -> dict[str, T]:
    """Return the entries for options of ``[dead_letter]``, under their names in ``[sink]``."""
    before = f"{LETTERS}."
    return {
        f"sink.{name.removeprefix(before)}": one
        for name, one in of_letters.items()
        if name.startswith(before)
    }


def load(
    file: Path | Mapping[str, Any] | None,
    environ: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    ``file`` is the TOML file, or its content from a program, secrets included; None = no file.
    ``environ`` is the environment: variables ``EVENTLOG_<SECTION>_<KEY>`` are read, all others are
    ignored. ``flags`` maps ``section.key`` to text. Flags override the environment, which overrides
    the file, which overrides the profile and the defaults (spec/event-log.md 9). Relative paths in
    the file start from the file's directory. Raises one ConfigError for all wrong settings, with
    their files and keys. If all settings are right, raises one ConfigError for all settings that
    contradict each other.
    """
    flags = flags or {}
    path = file if isinstance(file, Path) else None
    document = file if isinstance(file, Mapping) else read_toml(file) if file is not None else {}
    keys = Keys(chosen_types(document, environ, flags))
    errors = _Errors()
    given = errors.without(
        (*from_file(document, path, keys), *from_environment(environ, keys),
         *from_flags(flags, keys))
    )  # fmt: skip
    watches = errors.without(watches_of(document.get("watch", []), path))
    masks = errors.without(masks_of(document.get("mask", []), path))
    filters = errors.without(filters_of(document.get("filter", []), path))
    chosen: dict[Name, Setting] = {}
    by_name: dict[Name, list[Setting]] = {}
    for setting in given:
        by_name.setdefault(setting.target.name, []).append(setting)
    for name, several in by_name.items():
        with errors:
            chosen[name] = _choose(several)
    errors.raise_any()

    values: dict[Name, Any] = {}
    for name, setting in chosen.items():
        if not setting.target.of:
            with errors:
                values[name] = setting.value()
    is_idm = values.get(("publisher", "profile")) == "idm"
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        with errors:
            sections[section] = _section(section, keys, values, chosen, is_idm)
    errors.raise_any()

    in_file = "default" if file is None else str(path or "the configuration")
    config = Config(
        **sections,
        watches=tuple(watches),
        sources={**_sources(keys, chosen, is_idm), **dict.fromkeys(ARRAYS, in_file)},
        warnings=() if isinstance(file, Mapping) else tuple(_warnings(chosen.values())),
        url_of_file=_url_of_file(given),
        own_consumer=_own_consumer(given),
        secret_files={
            f"{section}.{key}": setting.file
            for (section, key), setting in chosen.items()
            if setting.file is not None and not setting.target.of
        },
        masks=tuple(masks),
        filters=tuple(filters),
    )
    errors.extend(_contradictions(config))
    errors.raise_any()
    return config


class _Errors(list[ConfigError]):
    """The errors of several steps, which are reported together.

    As a context manager, it collects the error of a block.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, ConfigError):
            self.append(error)
            return True
        return False

    def without(self, read: Iterable[T | ConfigError]) -> list[T]:
        """Return the items that are not errors, and collect the errors."""
        found = []
        for one in read:
            if isinstance(one, ConfigError):
                self.append(one)
            else:
                found.append(one)
        return found

    def raise_any(self) -> None:
        """Raise one ConfigError for all errors, if there are any."""
        if self:
            raise together(self)


def _choose(settings: Sequence[Setting]) -> Setting:
    """Return the setting that takes precedence.

    Raises ConfigError if the same layer sets both the value and a file with the value.
    """
    first, *others = sorted(settings, key=lambda setting: setting.layer)
    if others and others[0].layer == first.layer:
        second = others[0].source.rpartition(": ")[2]
        raise ConfigError(f"{first.source} and {second} exclude each other; keep one")
    return first


def _section(
    section: str,
    keys: Keys,
    values: Mapping[Name, Any],
    chosen: Mapping[Name, Setting],
    is_idm: bool,
) -> Any:
    """Return the settings of a section. They include the settings of its type and of single
    formats.

    Raises ConfigError.
    """
    settings = _values_of_class(SECTIONS[section], section, values, is_idm)
    if section in CHOSEN:
        if (kind := keys.options_of_type(section)) is not None:
            settings["options"] = kind(**_values_of_class(kind, section, values, is_idm))
        settings["others"] = {
            key: one.given
            for (home, key), one in chosen.items()
            if home == section and one.target.of
        }
    if section == "format":
        given: dict[str, dict[str, Any]] = {}
        for (home, key), value in values.items():
            if home.startswith(OF_FORMAT):
                given.setdefault(home.removeprefix(OF_FORMAT), {})[key] = value
        settings["given"] = given
    return SECTIONS[section](**settings)


def _values_of_class(
    kind: type, section: str, values: Mapping[Name, Any], is_idm: bool
) -> dict[str, Any]:
    """Return the values that replace defaults of a class's options: values that are set, and values
    of profile idm.
    """
    declared = options_of(kind)
    profile = {key: one.idm for key, one in declared.items() if is_idm and one.idm is not None}
    return profile | {key: values[section, key] for key in declared if (section, key) in values}


def _sources(keys: Keys, chosen: Mapping[Name, Setting], is_idm: bool) -> dict[str, str]:
    """Return the place where each value was set, by ``section.key``."""
    sources = {}
    for section, cls in SECTIONS.items():
        declared = options_of(cls)
        if section in CHOSEN and (kind := keys.options_of_type(section)) is not None:
            declared |= options_of(kind)
        for key, one in declared.items():
            of_profile = is_idm and one.idm is not None
            sources[f"{section}.{key}"] = "profile idm" if of_profile else "default"
    return sources | {f"{section}.{key}": one.source for (section, key), one in chosen.items()}


def with_current_secrets(config: Config, *sections: str) -> Config:
    """Return the configuration with the secrets of these sections (none = of all sections) read
    again from their files.

    So a new connection uses a secret that was rotated. A secret that cannot be read now, perhaps
    while it is being replaced, stays as it was, with a warning.
    """
    changed: dict[str, Any] = {}
    for name, file in config.secret_files.items():
        section, _, key = name.partition(".")
        if sections and section not in sections:
            continue
        settings = changed.get(section, getattr(config, section))
        holder = settings.options if section in CHOSEN else settings
        try:
            text = read_secret(file, f"{name}, read again")
            value = parse_value(options_of(type(holder))[key], text, name)
            updated = replace(holder, **{key: value})
        except ConfigError as error:
            _log.warning("%s; still using the previous value", error, extra={"code": error.code})
        else:
            changed[section] = replace(settings, options=updated) if section in CHOSEN else updated
    return replace(config, **changed)


def _contradictions(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about combinations of settings."""
    if config.database.schema_name is not None and config.database.tables is not None:
        schema, tables = (config.sources[f"database.{key}"] for key in ("schema_name", "tables"))
        yield ConfigError(f"{schema} and {tables} exclude each other; keep one")
    if config.publisher.retry_max < config.publisher.retry_initial:
        yield ConfigError(
            f"publisher.retry_max = {toml(config.publisher.retry_max)} is less than retry_initial "
            f"= {toml(config.publisher.retry_initial)}"
        )
    sink = sink_named(config.sink.type)
    # The default format works with every sink that keeps bodies whole,
    # and most commands need not load it.
    if is_set(config, "format.type") or sink.divided_by(config.sink.options):
        try:
            why = refused_format(config)
        except ConfigError as error:
            yield error
        else:
            if why is not None:
                yield ConfigError(why)
    yield from _checked_contradictions(
        sink.contradictions, config.sink.options, lambda key: config.sources[f"sink.{key}"]
    )
    source = source_named(config.source.type)
    yield from _checked_contradictions(
        source.contradictions, config.source.options, lambda key: config.sources[f"source.{key}"]
    )
    yield from _consumer_contradictions(config)
    yield from _former_names(config)
    yield from _reader_contradictions(config)
    yield from _letter_contradictions(config)


def _letter_contradictions(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about the second sink (spec/event-log.md 8.7)."""
    letters = config.of_letters
    if letters is None:
        given = [key for key in (*config.dead_letter.others, "chat_member")
                 if is_set(config, f"{LETTERS}.{key}")]  # fmt: skip
        for key in given:
            yield ConfigError(
                f"{config.sources[f'{LETTERS}.{key}']} needs dead_letter.type, the type of the "
                "sink for refused events"
            )
        return
    sink, options = sink_named(letters.sink.type), letters.sink.options
    for wrong in _checked_contradictions(
        sink.contradictions, options, lambda key: letters.sources[f"sink.{key}"]
    ):
        yield ConfigError(as_of_letters(str(wrong)))
    if config.dead_letter.chat_member is not None and not (
        sink.has_headers and not sink.takes_records
    ):
        yield ConfigError(
            f'{config.sources[f"{LETTERS}.chat_member"]} needs dead_letter.type = "http"'
        )
    if divided_by := sink.divided_by(options):
        yield ConfigError(
            f"{letters.sources[f'sink.{divided_by}']} divides documents by class, but a dead "
            "letter belongs to no class: leave class out"
        )
    try:
        why = refused_format(letters)
    except ConfigError as error:
        yield error
    else:
        if why is not None:
            yield ConfigError(as_of_letters(why))
    if letters.sink.type == config.sink.type and address_of(letters) == address_of(config):
        yield ConfigError(
            f"{config.sources[f'{LETTERS}.type']}: the dead letters would go to the receiver of "
            "[sink], among its events; give [dead_letter] another address"
        )


def address_of(config: Config) -> dict[str, Any]:
    """Return the options of a sink that name its receiver, and the values of these options."""
    sink, options = sink_named(config.sink.type), config.sink.options
    names = sink.needs if sink.address is None else sink.address
    # The same directory has one name, wherever the process was started.
    values = {name: getattr(options, name) for name in names}
    return {
        name: value.absolute() if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None
    }


def _reader_contradictions(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about masks and filters that this reader cannot apply (spec/event-log.md
    15).
    """
    found = (
        ("filter", config.filters, "the condition is evaluated by the database of a log. Filter"),
        ("mask", config.masks, "masks are for a log, whose texts they act on. Mask"),
    )
    for array, given, why in found:
        if given and config.follows:
            yield ConfigError(
                f"[[{array}]] cannot be used with source.type = {config.source.type}: {why} in the "
                "program that writes the source"
            )
    for mask in config.masks:
        if mask.salt_by_column and mask.how != HASH:
            yield ConfigError(
                f"[[mask]] {mask.table}: salt_by_column needs how = {HASH!r}, not {mask.how!r}"
            )


def _checked_contradictions(
    contradictions: Callable[..., Any], options: Any, source_of: Callable[[str], str]
) -> Iterator[ConfigError]:
    """Yield the contradictions that a sink or a source finds in its options."""
    found = called(contradictions, options, source_of)
    check_result(contradictions, found, Iterable, "an iterator of texts")
    for wrong in found:
        check_result(contradictions, wrong, str, "an iterator of texts")
        yield ConfigError(wrong)


def _consumer_contradictions(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about settings that a consumer cannot have (spec/event-log.md 13.5)."""
    if config.follows:
        return
    source = config.source.options
    if source.consumer is None:
        for name in ("start_from", "classes"):
            if config.sources[f"source.{name}"] != "default":
                yield ConfigError(
                    f"{config.sources[f'source.{name}']} needs source.consumer, a consumer's name"
                )
        return
    if config.publisher.handle_future_events:
        yield ConfigError(
            "publisher.handle_future_events cannot be used with source.consumer: a consumer "
            "reads rows in the order of record_id"
        )
    if config.publisher.loopback_action == "keep":
        yield ConfigError(
            'publisher.loopback_action = "keep" cannot be used with source.consumer: the kept rows '
            'would never count as done. With "mark", rows of driver_user count as done'
        )


def _former_names(config: Config) -> Iterator[ConfigError]:
    """Yield the errors about former table names that two watches claim."""
    seen = {
        watch.name: f"[[watch]] {watch.name}" for watch in config.watches if watch.tables is None
    }
    for watch in config.watches:
        for old in watch.renamed_from:
            if old in seen:
                yield ConfigError(
                    f"[[watch]] {watch.name}, renamed_from = {old!r}: {seen[old]} has that name "
                    "too, so a row of the log with this name could belong to either; remove one"
                )
            seen.setdefault(old, f"renamed_from of [[watch]] {watch.name}")


def _url_of_file(settings: Iterable[Setting]) -> str | None:
    """Return the database URL in the file, or in the URL file that the file names. None if there is
    no URL, or if the URL file cannot be read.
    """
    for setting in settings:
        if (*setting.target.name, setting.layer) == ("database", "url", Layer.FILE):
            with suppress(ConfigError):
                url: str = setting.value()
                return url
    return None


def _own_consumer(settings: Iterable[Setting]) -> str | None:
    """Return the consumer that the environment names, otherwise the one that the file names."""
    named = [
        setting
        for setting in settings
        if setting.target.name == ("source", "consumer") and setting.layer != Layer.FLAG
    ]
    return min(named, key=lambda setting: setting.layer).value() if named else None


def _warnings(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        if setting.target.option.kind is not DATABASE_URL or setting.layer == Layer.ENVIRONMENT:
            continue
        url, (section, key) = setting.given, setting.target.name
        if setting.file is None and not is_plain(url) and "***" in masked(url) != "***":
            password = variable(section, f"{key.removesuffix('url')}password")
            yield (f"{setting.source} holds a password; set {password} or {key}_file instead")


def is_set(config: Config, name: str) -> bool:
    """Return True if an option, ``section.key``, is set, even if its value is the default."""
    return config.sources.get(name, "default") != "default"


# --- URLs of databases ----------------------------------------------------------------------------


def connection_url(database: DatabaseSettings) -> URL:
    """Return the URL to connect with, including the password.

    Raises ConfigError if it is missing or malformed.
    """
    if database.url is None:
        raise ConfigError(
            "no database is given: set url in [database] of eventlog.toml (`eventlog init` writes "
            "one), EVENTLOG_DATABASE_URL or --database-url"
        )
    url = url_of(database.url)
    return url if database.password is None else url.set(password=database.password)
