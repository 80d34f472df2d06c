"""The exported configuration of the vendor's JDBC driver, as an eventlog.toml (spec/event-log.md 9,
column driver).

An export has the parameters anywhere inside, in one of two forms (*Driver Parameters*, *Publication
Parameters* of the guide; ``driver-config`` of the NDS DTD)::

    <polling-interval display-name="...">10</polling-interval>
    <definition name="polling-interval" type="integer"><value>10</value></definition>

The reader accepts parameters in any place of the export. But it is exact about the meaning of
parameters: it imports each parameter, or lists the parameter with the reason for leaving it out. No
password is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.config.driver_tags import DRIVER_TAGS
from eventlog.config.jdbc_urls import jdbc_url
from eventlog.config.post_poll import SAFE_WAYS, refused_statements
from eventlog.config.settings import installed_options, installed_sections
from eventlog.core.options import Option, toml
from eventlog.errors import ConfigError, XdsError
from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import LogTable, split_name
from eventlog.xds.reader import parse_document

if TYPE_CHECKING:
    from lxml.etree import _Element

LIMIT: Final = 16 << 20
"""The size of the largest export in bytes."""


class Setting(NamedTuple):
    """A parameter that was imported: its section and key in eventlog.toml, its value, and the
    driver's tag.
    """

    section: str
    key: str
    value: Any
    tag: str


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """The configuration in an export."""

    name: str
    url: str | None
    """The URL of SQLAlchemy, without a password."""
    settings: tuple[Setting, ...]
    """The parameters that are imported."""
    left_out: Mapping[str, str]
    """The reasons for the parameters that are not imported, by parameter. A reason is one line."""


def read_driver(export: bytes) -> DriverConfig:
    """Read an export.

    Raises ConfigError if the export is not XML, has a DOCTYPE, is too large or too deep, has no
    parameters of a JDBC driver, or has several JDBC drivers.
    """
    if len(export) > LIMIT:
        raise ConfigError(
            f"the driver's export has {len(export)} bytes, more than {LIMIT}: export the JDBC "
            "driver alone"
        )
    try:
        root = parse_document(export, LIMIT, huge=False)
    except XdsError as error:
        hint = "; delete the DOCTYPE, it is not needed" if "DOCTYPE" in str(error) else ""
        raise ConfigError(f"the driver's export cannot be read: {error}{hint}") from None
    config = _driver_config(root)
    parameters = _Parameters(global_values=_global_values(root))
    _walk(root if config is None else config, "", parameters)
    _authentication(root if config is None else _driver_of(config), parameters)
    if not parameters.values and parameters.jdbc_url is None:
        raise ConfigError(
            "the export contains no parameter of the JDBC driver, such as log-table or sync-schema"
        )
    settings = tuple(_settings(parameters))
    url = _url(parameters)
    if parameters.subscriber:
        names = ", ".join(dict.fromkeys(parameters.subscriber))
        parameters.refuse("subscriber-options", f"there is no subscriber channel ({names})")
    return DriverConfig(
        "" if config is None else config.get("name", ""), url, settings, parameters.left_out
    )


def toml_text(driver: DriverConfig, source: str) -> str:
    """Return the text of an eventlog.toml: profile idm, and settings that differ from the profile.
    ``source`` is the name of the export.
    """
    name = f" of driver {_plain(driver.name)}" if driver.name else ""
    lines = [
        f"# Made by `eventlog init --from-driver` from {_plain(source)}{name}.",
        "# Profile idm has the documented defaults of the driver; below is what differs from it.",
        "# `eventlog init` writes all options with their defaults.",
    ]
    if driver.left_out:
        lines += [
            "#",
            "# Not imported:",
            *(f"#   {name}: {reason}" for name, reason in driver.left_out.items()),
        ]
    for section in installed_sections():
        settings = [
            f"{one.key} = {toml(one.value)}  # {one.tag}"
            for one in driver.settings
            if one.section == section
        ]
        if section == "database":
            url = driver.url or "postgresql+psycopg://user@host:5432/database"
            settings.insert(
                0,
                f"{'' if driver.url else '#'}url = {toml(url)}  # password: "
                "EVENTLOG_DATABASE_PASSWORD",
            )
        if section == "publisher":
            settings.insert(0, 'profile = "idm"')
        if section == "sink":
            settings = [
                "# Where the documents go; the driver passed them to its engine.",
                'type = "stdout"',
            ]
        if settings:
            lines += ["", f"[{section}]", *settings]
    lines += [
        "",
        "# The driver's own triggers continue to fill the log: `eventlog db upgrade "
        "--existing-log` creates what the",
        "# publisher needs in addition. To use eventlog's triggers, remove the driver's triggers, "
        "add a [[watch]] for each",
        "# table, and run `eventlog triggers apply`.",
        "# If the log's columns have other names, they are found by their order: set "
        "publisher.layout",
        "# to 3.5 for driver 3.5 and later, else to 2.x.",
    ]
    return "\n".join(lines) + "\n"


# --- the driver's parameters ----------------------------------------------------------------------


_TRIGGERLESS: Final = "belongs to triggerless publication, which is not supported"
_JAVA: Final = "concerns the Java driver of the database; eventlog uses Python's"
_LOCKING: Final = "the statements of eventlog lock by the database's own rules"
_FILTER: Final = (
    "list the classes in database.tables, or use a [[watch]] whose tables and exclude_tables are "
    "patterns"
)
_NOT_TAKEN: Final[Mapping[str, str]] = {
    "jdbc-class": _JAVA,
    "jdbc-driver-descriptor": _JAVA,
    "database-descriptor": _JAVA,
    "connection-properties": (
        "may hold passwords, and concerns the Java driver; add what is needed to url, after ?"
    ),
    "connection-init": (
        "no statements are run at connect: use ALTER ROLE ... SET for the publisher's user"
    ),
    "state-dir": (
        "there is no state directory: what must survive a crash is in the log's database"
    ),
    "include-table-filter": _FILTER,
    "exclude-table-filter": _FILTER,
    "add-default-values-on-view-insert": (
        "only a subscriber channel inserts into views, and eventlog has no subscriber channel"
    ),
    "use-manual-transactions": "transactions are always used",
    "transaction-isolation-level": "read committed is always used",
    "use-single-connection": "one connection is used",
    "reuse-statements": _JAVA,
    "handle-stmt-results": _JAVA,
    "function-return-method": _JAVA,
    "minimal-metadata": _JAVA,
    "supports-schemas-in-metadata-retrieval": _JAVA,
    "left-outer-join-operator": _TRIGGERLESS,
    "current-timestamp-stmt": _TRIGGERLESS,
    "startup-option": _TRIGGERLESS,
    "enable-locking": _LOCKING,
    "disable-locking": _LOCKING,
    "lock-generator-class": _LOCKING,
    "time-translator-class": "event_time is read as the database has it",
    "preserve-sqlwhitespace": "SQL is run as it is written",
    "preserve-sql-whitespace": "SQL is run as it is written",
}
_SHOWN: Final = 10
_READ_ELSEWHERE: Final = frozenset({"sync-filter", "force-username-case"})
_SECTIONS: Final = {
    "driver-options": "driver",
    "subscriber-options": "subscriber",
    "publisher-options": "publisher",
}


@dataclass(slots=True)
class _Parameters:
    """The parameters of an export that have been read so far. ``values`` maps parameters to their
    texts; if a parameter has several values, the first is used.
    """

    global_values: Mapping[str, str]
    values: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    subscriber: list[str] = field(default_factory=list)
    jdbc_url: str | None = None
    user: str | None = None

    def refuse(self, name: str, reason: str) -> None:
        self.left_out.setdefault(_plain(name), _plain(reason))

    def take(self, name: str, value: str) -> None:
        """Take a value, or the global value that ``~NAME~`` refers to."""
        if reference := re.fullmatch(r"~([^~]+)~", value):
            if reference[1] not in self.global_values:
                self.refuse(
                    name, f"refers to the global value {reference[1]}, which is not in the export"
                )
                return
            self.values.setdefault(name, self.global_values[reference[1]])
        elif self.values.setdefault(name, value) != value:
            self.refuse(
                f"{name} (its second value)",
                "appears twice with different values; the first one is used",
            )


def _driver_config(root: _Element) -> _Element | None:
    """Return the only driver-config of the JDBC driver, None if the parameters are outside of any.
    Raises ConfigError for several driver-configs.
    """
    tags = {"jdbc-class", "log-table", "sync-schema", "sync-tables", "sync-filter"}
    drivers: dict[_Element, None] = {}
    for one in root.iter():
        if _name(one) in tags or _tag(one) in tags:
            for config in chain((one,), one.iterancestors()):
                if _tag(config) == "driver-config":
                    if config in drivers:
                        break
                    drivers[config] = None
    if len(drivers) > 1:
        shown = [_plain(one.get("name", "unnamed")) for one in islice(drivers, _SHOWN)]
        names = ", ".join(shown) + (", ..." if len(drivers) > _SHOWN else "")
        raise ConfigError(
            f"the export contains {len(drivers)} JDBC drivers ({names}): export only one of them"
        )
    return next(iter(drivers), None)


def _driver_of(config: _Element) -> _Element:
    """Return the element of the driver that contains a driver-config.

    User and server are also in this element, outside of the driver-config.
    """
    for above in config.iterancestors():
        if _tag(above) in ("driver-configuration", "driver", "init-params"):
            return above
    return config.getroottree().getroot()


def _global_values(root: _Element) -> dict[str, str]:
    """Return the texts of all definitions by name. A parameter may refer to a definition."""
    named = ((_name(one), _value(one)) for one in root.iter() if _tag(one) == "definition")
    return {name: value for name, value in named if name is not None and value}


def _walk(element: _Element, section: str, parameters: _Parameters) -> None:
    section = _SECTIONS.get(_tag(element), section)
    controller: _Element | None = None
    for child in element:
        if _tag(child) == "subordinates" and controller is not None:
            wanted, chosen = child.get("active-value", ""), _value(controller)
            if wanted != chosen and wanted.casefold() not in ("show", "hide"):
                # The choice is not enabled, so the driver ignores the parameters below it.
                for name in sorted(set(_parameters(child))):
                    parameters.refuse(
                        name, f"belongs to {_name(controller)} = {wanted}, which is not chosen"
                    )
                continue
        if _tag(child) == "definition":
            controller = child
        _parameter(child, section, parameters)
        _walk(child, section, parameters)


def _parameters(element: _Element) -> Iterator[str]:
    """Yield the known parameters that have a value somewhere in an element."""
    for one in element.iter():
        name = _parameter_name(one)
        if name is not None and name in DRIVER_TAGS and _value(one):
            yield name


def _parameter(element: _Element, section: str, parameters: _Parameters) -> None:
    """Import the parameter in an element, or refuse the parameter with the reason."""
    name = _parameter_name(element)
    is_reference = _tag(element) == "gcv-ref"
    value = (
        parameters.global_values.get(element.get("name", ""), "")
        if is_reference
        else _value(element)
    )
    if name is None or not value:
        return
    if section == "subscriber":
        parameters.subscriber.append(name)
    elif element.get("type") == "password-ref" or element.get("is-sensitive") == "true":
        parameters.refuse(name, "a secret: set it by the environment")
    elif name in _NOT_TAKEN:
        parameters.refuse(name, _NOT_TAKEN[name])
    elif name in DRIVER_TAGS or name in _READ_ELSEWHERE:
        parameters.take(name, value)
    else:
        # An entry outside of the driver's sections is no parameter, and neither is one that only
        # collapses a part of the administration tool's form.
        is_leaf = len(element) == 0 or element.find("{*}value") is not None
        if section and is_leaf and value.casefold() not in ("show", "hide"):
            parameters.refuse(name, "not a known parameter")


def _parameter_name(element: _Element) -> str | None:
    if _tag(element) == "gcv-ref":
        return element.get("driver-param-name")
    if (
        _tag(element) == "definition"
        or _name(element) in DRIVER_TAGS
        or _name(element) in _NOT_TAKEN
    ):
        return _name(element)
    return _tag(element) if _tag(element) not in _STRUCTURE else None


_STRUCTURE: Final = frozenset(
    {
        "configuration-values",
        "definitions",
        "group",
        "subordinates",
        "header",
        "description",
        "value",
        "ds-value",
        "item",
        "enum-choice",
    }
    | {"template", "instance", "config-object", "query", "pwd-value", *_SECTIONS}
)


def _tag(element: _Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _name(element: _Element) -> str | None:
    return element.get("name")


def _value(element: _Element) -> str:
    """Return the text of a parameter, from its value element, its attribute value, or the element
    itself. The items of a list become one text, with the separator that a parameter without a list
    has.
    """
    value = next((one for one in element if _tag(one) in ("value", "ds-value")), None)
    if value is not None:
        items = [(one.text or "").strip() for one in value if _tag(one) == "item"]
        if items:
            return "\n;".join(filter(None, items))
        return (value.text or "").strip() if len(value) == 0 else ""
    if element.get("value") is not None:
        return element.get("value", "").strip()
    return (element.text or "").strip() if len(element) == 0 else ""


# --- settings -------------------------------------------------------------------------------------


def _settings(parameters: _Parameters) -> Iterator[Setting]:
    values = dict(parameters.values)
    _scope(values, parameters)
    known: dict[tuple[str, str], str] = {}
    for tag, text in values.items():
        if tag in _READ_ELSEWHERE:
            continue
        section, key, read = DRIVER_TAGS[tag]
        if (first := known.setdefault((section, key), tag)) != tag:
            parameters.refuse(tag, f"cannot be combined with {first}, which has the same meaning")
            continue
        option = installed_options(section)[key].option
        try:
            value = _parsed(option, read(text))
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            parameters.refuse(
                tag, f"{toml(_plain(text))} is not legal here{reason}; legal: {option.kind.legal}"
            )
            continue
        if key == "post_poll_statements":
            value = tuple(_safe_statements(value, values, parameters))
        if value != (option.default if option.idm is None else option.idm):
            yield Setting(section, key, value, tag)
        if key == "time_of_day":
            parameters.refuse(
                "the clock of time-of-day",
                "the driver used the clock of its machine; eventlog uses the clock and time zone "
                "of the database. If the two differ, correct the times in publisher.time_of_day",
            )
        if key == "referential" and value == "dn":
            parameters.refuse(
                "enable-refs of views",
                "columns fk__... of views stay values: only a foreign key of a table makes an "
                "association, if it has one column and refers to the whole key of a class",
            )
    if "log-table" not in values:
        parameters.refuse(
            "log-table", "is not in the export: log_table is eventlog unless you set it"
        )
    if "enable-refs" not in values:
        parameters.refuse(
            "enable-refs",
            'is not in the export. Its default in the vendor\'s guide is 1 (referential = "dn"). '
            'Profile idm has referential = "value": set "dn" if the receiver takes associations',
        )


def _safe_statements(
    statements: Sequence[str], values: Mapping[str, str], parameters: _Parameters
) -> Iterator[str]:
    """Yield the post-poll statements that lose no rows of the log, and refuse all others."""
    name = values.get("log-table", installed_options("database")["log_table"].option.default)
    with suppress(ConfigError):
        schema, table = split_name(name)
        log = LogTable(schema or values.get("sync-schema"), table, LOG_COLUMNS)
        refused = dict(refused_statements(statements, log))
        for statement, reason in refused.items():
            parameters.refuse(
                f"post-poll-stmt {toml(_plain(statement))}", f"{reason}: {', '.join(SAFE_WAYS)}"
            )
        statements = [one for one in statements if one not in refused]
    yield from statements


def _scope(values: dict[str, str], parameters: _Parameters) -> None:
    """Remove the schema or the tables from ``values``, since eventlog does not accept both. The
    choice of the driver determines which of the two is removed.
    """
    chosen = values.get("sync-filter", "").casefold()
    if chosen == "empty":
        for tag in ("sync-schema", "sync-tables"):
            values.pop(tag, None)
        parameters.refuse(
            "sync-filter",
            "is empty, so there are no classes to publish: set schema_name or tables",
        )
    elif {"sync-schema", "sync-tables"} <= values.keys():
        left, used, reason = (
            ("sync-schema", "sync-tables", "list")
            if chosen == "list"
            else ("sync-tables", "sync-schema", chosen or "schema")
        )
        del values[left]
        parameters.refuse(
            left, f"cannot be combined with {used}, which sync-filter = {reason} uses"
        )


def _parsed(option: Option, value: Any) -> Any:
    """Return the value of an option. ``value`` is this value, or its text. Raises ValueError."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = option.kind.from_text(value)
    return option.kind.parse(value)


# --- user and server ------------------------------------------------------------------------------

_URL_NAMES: Final = frozenset(
    {
        "shim-auth-server",
        "auth-server",
        "auth-context",
        "authentication-context",
        "connection-url",
        "jdbc-url",
    }
)
_USER_NAMES: Final = frozenset({"shim-auth-id", "auth-id", "authentication-id"})
_OF_DIRECTORY: Final = {
    "DirXML-ShimAuthID": "shim-auth-id",
    "DirXML-ShimAuthServer": "shim-auth-server",
}
"""The names of a driver's attributes in an export, by their names in the LDAP directory."""


def _authentication(element: _Element, parameters: _Parameters) -> None:
    urls: dict[bool, str] = {}
    for one in element.iter():
        names = {_tag(one), _name(one), _OF_DIRECTORY.get(one.get("ds-attr-name", ""))}
        above = one.getparent()
        inside = above is not None and _tag(above) == "authentication-info"
        text = _value(one)
        if (
            parameters.user is None
            and text
            and (names & _USER_NAMES or (inside and _tag(one) == "user"))
        ):
            parameters.user = text
        # The URL may follow the address of a remote loader: REMOTE(hostname=... port=...)jdbc:...
        start = text.find("jdbc:")
        is_known = bool(names & _URL_NAMES) or (inside and _tag(one) == "server")
        if start == 0 or (start > 0 and is_known):
            urls.setdefault(is_known, text[start:])
    parameters.jdbc_url = urls.get(True, urls.get(False))


def _url(parameters: _Parameters) -> str | None:
    """Return the SQLAlchemy URL without a password, None if the export has no usable URL."""
    if parameters.jdbc_url is None:
        parameters.refuse("database URL", "is not in the export: set url")
        return None
    try:
        url, dropped = jdbc_url(parameters.jdbc_url)
    except ConfigError as error:
        parameters.refuse("database URL", f"{error}; set url")
        return None
    if dropped:
        parameters.refuse(
            "properties of the database URL",
            f"{', '.join(dropped)}: add what is needed to url, after ?",
        )
    user = parameters.user or url.username
    match parameters.values.get("force-username-case", "").casefold():
        case "upper":
            user = user and user.upper()
        case "lower":
            user = user and user.lower()
        case _:
            pass
    if user is None:
        parameters.refuse("user", "is not in the export: add it to url")
    return url.set(username=user).render_as_string(hide_password=False)


def _plain(text: str) -> str:
    """Return a text from the export for a comment or a message: one short line without control
    characters.
    """
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= 300 else shown[:300] + "..."
