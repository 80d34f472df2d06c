"""The names of formats, sinks and sources: the built-in names and the names of installed packages.

Only this module has the built-in names. A package adds names by entry points of the groups
``eventlog.formats``, ``eventlog.sinks`` and ``eventlog.sources``. The entry point of a format names
an object of ``eventlog.changes.format.Format``; the entry point of a sink or source names a class.
The object of a name is imported when the name is requested. The installed packages are searched
only if the requested name is not built in, or if all names are requested.
"""

from __future__ import annotations

import difflib
import logging
import traceback
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from eventlog.changes.format import PARTICIPLES, Format
from eventlog.changes.losses import Loss
from eventlog.changes.publishing import EventWriter, Need, Publishing
from eventlog.core.arguments import NAME, Kind
from eventlog.core.options import nearest, options_of
from eventlog.errors import (
    ConfigError,
    EventlogError,
    PluginError,
    WrongResult,
    called,
    check_result,
)
from eventlog.model import Names

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

_log = logging.getLogger("eventlog.registry")

FORMATS: Final = "eventlog.formats"
SINKS: Final = "eventlog.sinks"
SOURCES: Final = "eventlog.sources"

BUILT_IN: Final[Mapping[str, Mapping[str, str]]] = {
    FORMATS: {
        "xds": "eventlog.xds.format:FORMAT",
        "eventlog": "eventlog.log.format:FORMAT",
        "qlik-change-table": "eventlog.qlik.tables.change_table_format:FORMAT",
        "qlik-messages": "eventlog.qlik.messages.message_format:FORMAT",
        "gbase": "eventlog.gbase.format:FORMAT",
        "linter": "eventlog.linter.format:FORMAT",
        "cloudevents": "eventlog.cloudevents.format:FORMAT",
        "debezium": "eventlog.debezium.format:FORMAT",
        "jsonl": "eventlog.conversion:FORMAT",
    },
    SINKS: {
        "stdout": "eventlog.publisher.sinks.stdout:StreamSink",
        "files": "eventlog.publisher.sinks.files:FilesSink",
        "http": "eventlog.publisher.sinks.http:HttpSink",
        "kafka": "eventlog.publisher.sinks.kafka:KafkaSink",
        "python": "eventlog.publisher.sinks.python:CallableSink",
        "objects": "eventlog.publisher.sinks.objects:ObjectsSink",
        "nats": "eventlog.publisher.sinks.nats:NatsSink",
        "rabbitmq": "eventlog.publisher.sinks.rabbitmq:RabbitSink",
        "redis": "eventlog.publisher.sinks.redis:RedisSink",
        "sqs": "eventlog.publisher.sinks.sqs:SqsSink",
    },
    SOURCES: {
        "eventlog": "eventlog.publisher.stream.event_log:EventLog",
        "gbase": "eventlog.publisher.stream.gbase:Gbase",
        "linter": "eventlog.publisher.stream.linter:Linter",
        "qlik-messages": "eventlog.publisher.stream.qlik_messages:QlikMessages",
    },
}
"""For each group, its names, each with the place of its object as ``module:attribute``."""

_BASES: Final = {
    SINKS: "eventlog.publisher.sinks:Sink",
    SOURCES: "eventlog.publisher.stream:Source",
}
"""For each group of classes, the place of the base class that a package's class must extend."""

_KINDS: Final = {FORMATS: "format", SINKS: "sink", SOURCES: "source"}
"""The noun for a member of a group, in messages."""

_KNOWN_PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {
    FORMATS: {"messagepack": "eventlog-messagepack"},
    SINKS: {"sqlite": "eventlog-sqlite-sink"},
    SOURCES: {"jsonl-file": "eventlog-jsonl-source"},
}
"""For each group, names that are not built in. Each has the package in ``examples/plugins`` that
provides it.
"""


_OF_TABLES: Final = {
    "parquet": "`eventlog backlog run --file-layout parquet` writes it",
    "csv": "`eventlog backlog run --format qlik-change-table --file-layout csv` writes it",
    "delta": "live_copy of eventlog.spark writes Delta tables",
    "iceberg": "live_copy of eventlog.spark writes Iceberg tables",
}
"""Names that users may take for names of formats, each with what writes files of this kind."""


# --- by name --------------------------------------------------------------------------------------


def format_named(name: str) -> Format:
    """Return the format of this name. Raises ConfigError."""
    format: Format = named(FORMATS, name)
    return format


def sink_named(name: str) -> Any:
    """Return the class of the sink of this name. Raises ConfigError."""
    return named(SINKS, name)


def source_named(name: str) -> Any:
    """Return the class of the source of this name. Raises ConfigError."""
    return named(SOURCES, name)


def check_name(group: str, name: str) -> None:
    """Raise ConfigError unless the group has the name. The name's object is not imported."""
    if name not in BUILT_IN[group] and name not in installed_entries(group):
        raise _unknown(group, name)


def check_format(name: str, *methods: str) -> None:
    """Raise ConfigError unless the format of a name has one of these methods. The error lists the
    formats that have one of the methods.
    """
    if name not in names(FORMATS):
        refused = f"format {name!r} is not known"
    elif any(map((format := format_named(name)).can, methods)):
        return
    else:
        refused = str(format.lacks(methods[0]))
    able = [one for one, format in installed(FORMATS) if any(map(format.can, methods))]
    if name in _OF_TABLES:
        refused += f"; {name} is a layout of files: {_OF_TABLES[name]}"
    if package := _KNOWN_PACKAGES[FORMATS].get(name):
        refused += f"; install the package {package}, which provides {name}"
    if near := difflib.get_close_matches(name, able, n=1):
        refused += f"; the nearest known one is {near[0]}"
    raise ConfigError(
        f"{refused}; formats that can be {PARTICIPLES[methods[0]]} are {', '.join(able)}"
    )


def is_own(group: str, name: str) -> bool:
    """Return True if a name of a group is built in."""
    return name in BUILT_IN[group]


def own_names(group: str) -> Names:
    """Return the built-in names of a group."""
    return tuple(BUILT_IN[group])


def names(group: str) -> Names:
    """Return the names of a group: the built-in names, then the names of packages."""
    return (*BUILT_IN[group], *installed_entries(group))


def installed(group: str) -> Iterator[tuple[str, Any]]:
    """Yield all names of a group with their objects. An object of a package that cannot be loaded
    is left out.
    """
    for name in names(group):
        try:
            yield name, named(group, name)
        except ConfigError:
            if name in BUILT_IN[group]:
                raise


def named(group: str, name: str) -> Any:
    """Return the object that a name has in a group. Raises ConfigError."""
    place = BUILT_IN[group].get(name)
    if place is not None:
        return _at(place)
    entry = installed_entries(group).get(name)
    if entry is None:
        raise _unknown(group, name)
    found = _loaded(group, entry)
    if isinstance(found, ConfigError):
        raise found
    return found


def _at(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _unknown(group: str, name: str) -> ConfigError:
    kind, known = _KINDS[group], names(group)
    message = f"{kind} {name!r} is not known"
    if known:
        message += f"; {nearest(name, known)}"
    if (package := _KNOWN_PACKAGES[group].get(name)) is not None:
        return ConfigError(f"{message}; install the package {package}, which provides {name}")
    others = [_KINDS[other] for other in BUILT_IN if other != group and name in names(other)]
    if others:
        message += f"; {name} is the name of a {others[0]}"
    return ConfigError(message)


# --- what packages bring --------------------------------------------------------------------------


@cache
def installed_entries(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name. An entry point is left out, with a warning, if
    its name is a built-in name or if another package uses the name.
    """
    # Takes 50 ms, which a configuration with only built-in names does not need.
    from importlib.metadata import distributions

    entries = sorted(
        (entry for distribution in distributions() for entry in _entries(distribution, group)),
        key=lambda entry: (entry.name, _package(entry)),
    )
    brought: dict[str, EntryPoint] = {}
    for entry in entries:
        first = brought.get(entry.name)
        if entry.name in BUILT_IN[group]:
            _log.warning(
                "the package %s has a %s named %r, which is a built-in name of eventlog; "
                "eventlog uses the built-in one",
                _package(entry),
                _KINDS[group],
                entry.name,
            )
        elif first is not None and _package(first) != _package(entry):
            _log.warning(
                "the packages %s and %s both have a %s named %r; eventlog uses that of %s",
                _package(first), _package(entry), _KINDS[group], entry.name, _package(first),
            )  # fmt: skip
        elif first is None:
            brought[entry.name] = entry
    return brought


def _entries(distribution: Distribution, group: str) -> list[EntryPoint]:
    try:
        return [entry for entry in distribution.entry_points if entry.group == group]
    except Exception as error:  # the files of a package may have any content
        text = distribution.read_text("entry_points.txt") or ""
        if group in text:
            _log.warning(
                "the entry points of the package %s cannot be read: %r",
                _distribution_name(distribution),
                error,
            )
        return []


def _package(entry: EntryPoint) -> str:
    return "" if entry.dist is None else _distribution_name(entry.dist)


def _distribution_name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"])


# --- packages that fail at run time ---------------------------------------------------------------


@contextmanager
def as_plugin_errors() -> Iterator[None]:
    """Turn an exception from a package's code into PluginError, which names the package. Errors of
    eventlog, and errors of files that cannot be opened, are specific enough and stay unchanged.

    Use this context inside the code that explains other exceptions, since an sqlite3.Error of a
    package's source is not an error of the database that holds the log.
    """
    try:
        yield
    except WrongResult as error:
        raise plugin_error(error) or error from error
    except Exception as error:
        is_specific = isinstance(error, EventlogError) or getattr(error, "filename", None)
        explained = None if is_specific else plugin_error(error)
        if explained is None:
            raise
        raise explained from error


def plugin_error(error: Exception) -> PluginError | None:
    """Return the error that names an installed package with a format, sink or source. The error
    names the package whose code is innermost in the traceback of ``error``. Return None if the
    traceback has no code of an installed package.
    """
    brought = [
        (_root(entry), _package(entry), f"{_KINDS[group]} {entry.name}")
        for group in BUILT_IN
        for entry in installed_entries(group).values()
    ]
    places = [
        (str(frame.f_globals.get("__name__")), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if isinstance(error, WrongResult):
        places = [(error.module, 0)]
    for module, line in reversed(places):
        of_module = [
            (package, what)
            for root, package, what in brought
            if module == root or module.startswith(f"{root}.")
        ]
        if of_module:
            package, parts = of_module[0][0], ", ".join(what for _, what in of_module)
            if isinstance(error, WrongResult):
                return PluginError(f"the package {package} ({parts}) failed: {error}")
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return PluginError(
                f"the package {package} ({parts}) failed: {text} ({module}, line {line})"
            )
    return None


def writer_of(format: Format, options: Any, publishing: Publishing) -> EventWriter[Any]:
    """Return the writer of a format's events. Raises ConfigError, and WrongResult if the format of
    a package returns another object.
    """
    writer = called(format.publish, options, publishing)
    check_result(format.publish, writer, EventWriter, "an eventlog.changes.publishing.EventWriter")
    if not _are(writer.needs, Need):
        raise WrongResult(
            format.publish,
            f"returned a writer whose attribute `needs` is {writer.needs!r}; it must be a set of "
            "eventlog.changes.publishing.Need",
        )
    made: EventWriter[Any] = writer
    return made


def _are(found: object, kind: type) -> bool:
    """Return True if an object is a set of objects of this type."""
    return isinstance(found, Set) and all(isinstance(one, kind) for one in found)


def _root(entry: EntryPoint) -> str:
    """Return the name of the top-level module of an entry point."""
    root = entry.module.partition(".")[0]
    return entry.module if root == "eventlog" else root


refused_entries: Final[dict[tuple[str, str], ConfigError]] = {}
"""The errors of plug-ins that could not be loaded, by group and name. Loading a plug-in is tried
only once, and a failure is logged as a warning.
"""


def _loaded(group: str, entry: EntryPoint) -> Any:
    """Return the object of an entry point. If it cannot be loaded or does not belong to the group,
    return the error.
    """
    if (known := refused_entries.get((group, entry.name))) is not None:
        return known
    try:
        found = entry.load()
        why = _why_not_member(group, entry.name, found)
    except (Exception, SystemExit) as error:  # a package's code may raise anything
        why = f"loading {entry.value} raised {' '.join(f'{type(error).__name__}: {error}'.split())}"
    if not why:
        return found
    kind, package = _KINDS[group], _package(entry)
    _log.warning("the %s %r of the package %s cannot be used: %s", kind, entry.name, package, why)
    refusal = ConfigError(
        f"{kind} {entry.name!r} of the package {package} cannot be used: {why}; fix or remove it"
    )
    refused_entries[group, entry.name] = refusal
    return refusal


def _why_not_member(group: str, name: str, found: Any) -> str:
    """Return why an object cannot be a member of its group. Return an empty text if it can."""
    if group == FORMATS and not isinstance(found, Format):
        return f"it is a {type(found).__name__}, not an object of eventlog.changes.format.Format"
    if group in _BASES and not (isinstance(found, type) and issubclass(found, _at(_BASES[group]))):
        return f"it is not a class that extends {_BASES[group].replace(':', '.')}"
    if (own := getattr(found, "name", None)) != name:
        return f"its attribute `name` is {own!r}"
    if group in _BASES and not is_dataclass(getattr(found, "options", None)):
        return "it has no dataclass of options"
    if group == SOURCES and "position_url" not in options_of(found.options):
        return "its options do not extend eventlog.publisher.stream.StreamOptions"
    if lacking := sorted(_lacking(group, found)):
        return f"it has no method {lacking[0]}"
    for name, needed in _ATTRIBUTES[group].items():
        value = getattr(found, name, None)
        if not needed.holds(value):
            return f"its attribute `{name}` is {value!r}; {needed.in_words} is needed"
    return ""


def _lacking(group: str, found: Any) -> frozenset[str]:
    """Return the methods that a class lacks, so that it can have no objects. A sink with its own
    ``open`` lacks no method, since it may be opened as an object of another class.
    """
    if group == FORMATS or (group == SINKS and "open" in vars(found)):
        return frozenset()
    lacking: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    return lacking


def _is_options(value: object) -> bool:
    return isinstance(value, type) and is_dataclass(value)


def _are_options(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_options, value))


_OPTIONS: Final = Kind(lambda value: value is None or _is_options(value), "a dataclass of options")
_SEVERAL: Final = Kind(_are_options, "a tuple of dataclasses of options")

_ATTRIBUTES: Final[Mapping[str, Mapping[str, Kind]]] = {
    FORMATS: {
        "title": NAME,
        "endings": Kind(
            lambda value: isinstance(value, Mapping) and {"lines", "documents"} <= value.keys(),
            "a mapping with lines and documents",
        ),
        "reader_options": _SEVERAL,
        "writer_options": _SEVERAL,
        "publish_options": _OPTIONS,
        "loses": Kind(lambda value: _are(value, Loss), "a set of eventlog.changes.losses.Loss"),
    },
    SINKS: {
        "title": NAME,
        "needs": Kind(
            lambda value: isinstance(value, Mapping) and all(map(NAME.holds, value)),
            "a mapping of options to texts",
        ),
    },
    SOURCES: {
        "title": NAME,
        "gives": Kind(
            lambda value: _are(value, _at("eventlog.publisher.stream:Gives")),
            "a set of eventlog.publisher.stream.Gives",
        ),
    },
}
"""For each group, the attributes of a package's plug-in that are checked when the plug-in is
loaded.
"""
