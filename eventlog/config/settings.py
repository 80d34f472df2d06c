"""The options, section by section, in frozen classes. Each option has a type, a default, a valid
range and a help text.

spec/event-log.md 9 has the rules; ``eventlog.config.load`` reads the options from a file, the
environment and flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import time
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from eventlog.changes.format import Format
from eventlog.config.kinds import (
    BASE,
    COLUMN_MAP,
    MASK_SECRET,
    PUBLICATION_MODE,
    PUBLISHED,
    SECRET,
    TIMES,
    TOKEN,
    TOKENS,
    URL,
    Texts,
    name_of,
    named_tokens,
)
from eventlog.core import options
from eventlog.core.catalog.masks import HASH, LAST, NULL, REDACT
from eventlog.core.options import (
    BOOLEAN,
    FLAG,
    MANY,
    NAME,
    NAMES,
    PATH,
    REQUIRED,
    STRING,
    TEXT,
    TEXTS,
    CheckedOptions,
    Option,
    choice,
    integer,
    number,
    option,
    options_of,
    shared,
    toml,
)
from eventlog.model import LOG_COLUMNS
from eventlog.registry import (
    FORMATS,
    SINKS,
    SOURCES,
    format_named,
    installed,
    sink_named,
    source_named,
)

Names: TypeAlias = tuple[str, ...]
"""The value of an option of kind ``NAMES``."""

DEFAULT_FORMAT: Final = "xds"
"""The format of a published log if none is configured."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """``[database]``: the database with the log, and the tables and views that are classes."""

    url: str | None = option(
        None, URL, "SQLAlchemy URL; if it contains a password, set url_file instead",
        example="postgresql+psycopg://publisher@localhost/hr",
    )  # fmt: skip
    password: str | None = option(None, SECRET, "password of url", secret=True)
    log_table: str = shared(options.LOG_TABLE)
    schema_name: str | None = option(
        None,
        TEXT,
        "schema of the log and the classes; default: the connection's current schema; "
        "not together with `tables`",
        example="public",
    )
    tables: Names | None = option(
        None,
        NAMES,
        "tables and views to read; do not name child tables; default: all of the schema",
        example=["usr", "grp"],
    )
    record_id_sequence: str | None = option(
        None,
        TEXT,
        "sequence for the record_ids of triggers of another program, if the column has no default; "
        "schema-qualified or in the schema of the log",
        example="seq_log",
    )
    transaction_ids: bool = option(
        False,
        BOOLEAN,
        "let `eventlog db upgrade` add a column to the log in which PostgreSQL records the "
        "transaction of each row",
    )
    readers: Names = option(
        (),
        NAMES,
        "roles that may read the log, such as that of a backup; on PostgreSQL `eventlog db "
        "upgrade` grants them SELECT on what it creates",
        example=["backup"],
    )
    keep_days: int | None = option(
        None,
        integer(1, 36500),
        "days for which `eventlog purge` keeps rows unless --older-than is given; "
        "`eventlog doctor` warns when a purge is late by half of this time",
        example=30,
    )
    keep_bytes: int | None = option(
        None,
        integer(1),
        "maximum bytes of a partitioned log: `eventlog purge` removes its oldest leaves, whatever "
        "their age, until it is smaller; rows that are needed stay",
        example=50_000_000_000,
    )


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """``[publisher]``: the options for reading, sending and marking rows (spec/event-log.md 9)."""

    profile: str = option(
        "default", choice("default", "idm"), "idm: the documented defaults of the vendor's driver"
    )
    publisher_disabled: bool = option(False, BOOLEAN, "publish nothing")
    publication_mode: int = option(1, PUBLICATION_MODE, "triggered publication")
    delete_from_log: bool = option(False, BOOLEAN, "delete rows that would get S or W")
    allow_loopback: bool = option(False, BOOLEAN, "publish the publisher's own changes too")
    loopback_action: str = option(
        "mark",
        choice("mark", "keep"),
        "mark loopback rows S, or keep them N; a publisher with this option does not warn of them",
    )
    handle_future_events: bool = option(
        False, BOOLEAN, "order by event_time and wait until it is due"
    )
    event_time_zone: str = option(
        "utc",
        choice("utc", "local"),
        "the time zone of event_time; local is for triggers of another program, and counts as utc "
        "on a log of eventlog",
    )
    polling_interval: int = option(10, integer(1, 604800), "maximum seconds of rest between cycles")
    time_of_day: tuple[time, ...] | None = option(
        None, TIMES, "the server's local times to start at, in place of the interval",
        example="06:00:00, 18:00:00",
    )  # fmt: skip
    notify: bool = option(
        True, BOOLEAN, "let the database wake the publisher where it can", idm=False
    )
    post_poll_statements: tuple[str, ...] = option(
        (),
        TEXTS,
        "SQL statements to run after a cycle that sent something",
        example=["CALL app.published()"],
    )
    batch_size: int = shared(options.BATCH_SIZE)
    query_limit: int = option(10000, integer(0, MANY), "rows per window, 0 = the publisher chooses")
    heartbeat_interval: int = option(
        0, integer(0, MANY), "minutes without a document until a heartbeat, 0 = off",
    )  # fmt: skip
    layout: str = shared(options.LAYOUT)
    column_map: Texts | None = option(
        None, COLUMN_MAP, "the ten standard column names, each with its real name",
        example={name: name for name in LOG_COLUMNS},
    )  # fmt: skip
    column_sort: str = shared(options.COLUMN_SORT)
    fold_distance: int = shared(options.FOLD_DISTANCE)
    fold_span: int = shared(options.FOLD_SPAN)
    driver_user: str | None = option(
        None,
        TEXT,
        "the publisher's database user; default: the user of its connection",
        example="publisher",
    )
    retry_initial: float = option(1.0, number(0.001, 604800), "first back-off after retry, seconds")
    retry_max: float = option(60.0, number(0.001, 604800), "longest back-off, seconds")
    on_retry: str = option(
        "park",
        choice("park", "stop"),
        "what the answer `retry` does: park the object, or stop the cycle",
        idm="stop",
    )
    max_parked: int = option(
        1000, integer(0, MANY), "number of parked objects at which the cycle stops"
    )
    isolate_after: int = option(
        5,
        integer(1, 1000),
        "consecutive failures (HTTP 500, a time-out) before a document is sent in halves, if the "
        "receiver answers no document meanwhile",
    )
    max_attempts: int = option(
        0,
        integer(0, MANY),
        "failed attempts to send an event alone before its rows get E; attempts count only while "
        "other documents are answered; 0 = no limit",
    )
    concurrency: int = option(1, integer(1, 64), "documents that are sent at the same time")
    delivery_rows: int = option(10000, integer(1, MANY), "maximum log rows of a delivery")
    delivery_bytes: int = option(
        16 * 2**20,
        integer(2**16, MANY),
        "maximum bytes of values that a window keeps in memory, and that a delivery contains",
    )
    mark_interval: float = option(1.0, number(0, 3600), "seconds between marks within a delivery")
    durable_marks: bool = option(
        False,
        BOOLEAN,
        "wait until the marks that end a delivery are on the disk (PostgreSQL), so that fewer "
        "deliveries are sent again after a crash of the server",
    )
    standby: bool = option(
        False,
        BOOLEAN,
        "wait while another publisher has the lock, and take over when it ends; a consumer always "
        "does",
    )
    health_file: Path | None = option(
        None,
        PATH,
        "file that is touched while the publisher is alive; `eventlog health` checks it",
        example="/run/eventlog/health",
    )


@dataclass(frozen=True, slots=True)
class _Typed:
    """A type, and the options that the class of this type declares. ``named`` returns the class."""

    type: str
    options: Any = None
    others: Mapping[str, Any] = field(default_factory=dict, repr=False)
    named: ClassVar[staticmethod[[str], Any]]

    def __post_init__(self) -> None:
        if self.options is None:
            object.__setattr__(self, "options", self.named(self.type).options())


@dataclass(frozen=True, slots=True)
class SinkSettings(_Typed):
    """``[sink]``: the receiver of documents. The section has a type, and the options that the class
    of this type declares.

    ``options`` is an object of the class's dataclass ``options``, None = the defaults. ``others``
    holds options of other types that are set and have no effect.
    """

    type: str = option("stdout", name_of(SINKS), "where documents go")
    named = staticmethod(sink_named)


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """``[dead_letter]``: the second sink, to which each refused event goes as a letter
    (spec/event-log.md 8.7). ``options`` is None without a type; ``others`` is as in
    ``SinkSettings``.
    """

    type: str | None = option(
        None, name_of(SINKS), "where refused events go, as letters; default: nowhere",
        example="http",
    )  # fmt: skip
    chat_member: str | None = option(
        None,
        TEXT,
        "http: the member of JSON that has the reason as one sentence, for the web hook of a "
        "chat: text for Slack and Mattermost, content for Discord",
        example="text",
    )
    options: Any = None
    others: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """``[format]``: the format of a published log, and the options that all formats share.

    ``given`` has the options in sections ``[format.<name>]`` that are set, by format.
    """

    type: str = option(DEFAULT_FORMAT, PUBLISHED, "the format that is published")
    time_zone: str = shared(options.TIME_ZONE)
    special_times: str = shared(options.SPECIAL_TIMES)
    meta_identifiers: bool = shared(options.META_IDENTIFIERS)
    referential: str = shared(options.REFERENTIAL)
    noop_updates: str = option(
        "drop", choice("drop", "emit"), "drop or send rows of type 2 whose two values are equal"
    )
    emit_keys: bool = option(False, BOOLEAN, "send key columns as attributes too")
    mask_secret: str | None = option(
        None, MASK_SECRET, "key of [[mask]] with how = hash", secret=True
    )
    char_padding: str = shared(options.CHAR_PADDING)
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchSettings(CheckedOptions):
    """A ``[[watch]]``: a table or a view whose changes triggers log (spec/triggers.md 1, 3, 7)."""

    table: str | None = option(None, NAME, "table to watch", example="usr")
    tables: Names | None = option(
        None,
        NAMES,
        "or tables by patterns with * ? [...]; never views, partitions, "
        "child tables or the log's own",
        example=["*"],
    )
    exclude_tables: Names = option(
        (), NAMES, "with tables: names and patterns of tables to leave out", example=["tmp_*"]
    )
    view: str | None = option(None, NAME, "or view to watch (direct model)", example="view_usr")
    renamed_from: Names = option(
        (),
        NAMES,
        "earlier names of the table or of its child tables; rows of the log may have them",
        example=["person"],
    )
    previous_key: Names = option(
        (),
        NAMES,
        "columns of the primary key before it was changed: `eventlog resync CLASS --deletes` "
        "deletes the objects whose rows in the log have this key",
        example=["id"],
    )
    row_style: str = shared(options.STYLE)
    trigger_level: str = option(
        "row",
        choice("row", "statement"),
        "kind of triggers: per row, or per statement (faster for bulk writes)",
    )
    columns: Names | None = option(None, NAMES, "only these columns", example=["fname", "lname"])
    exclude: Names = option((), NAMES, "all columns but these", example=["password_hash"])
    capture: Names = option(
        (),
        NAMES,
        "columns that are logged for the conditions of [[filter]] and are in no document",
        example=["tenant"],
    )
    base: Mapping[str, Texts] | None = option(
        None, BASE, "view: base tables and their columns -> view columns",
        example={"emp": {"empno": "pk_empno", "fname": "sv_fname"}},
    )  # fmt: skip
    membership: Names = option(
        (),
        NAMES,
        "view: its columns by which an object enters or leaves it, such as those of its WHERE",
        example=["tenant"],
    )
    capture_replicated: bool = option(False, BOOLEAN, "also log changes that replication applies")
    lob_values: bool = option(
        False,
        BOOLEAN,
        "on Oracle, log CLOB and NCLOB by value; no effect on other databases",
    )
    lob_capture_always: bool = option(
        False,
        BOOLEAN,
        "Oracle: log LOB columns (type 8) whenever another column of the row changes",
    )
    max_binary_bytes: int = option(
        16 * 1024 * 1024,
        integer(1, 256 * 1024 * 1024),
        "PostgreSQL: bytes of the largest bytea value that is logged; a row with a larger value "
        "is read back (types 5, 6)",
    )

    @property
    def name(self) -> str:
        """The name of the table or view, or the patterns."""
        return self.table or self.view or ", ".join(self.tables or ())

    def contradiction(self) -> str | None:
        """Return the message about options that contradict each other; None if there are none."""
        if sum(one is not None for one in (self.table, self.view, self.tables)) != 1:
            return "give one of table, tables and view"
        if self.columns is not None and self.exclude:
            return "give either columns or exclude"
        if (self.view is None) != (self.base is None):
            return f"a view, and only a view, needs base: {BASE.legal}"
        if (self.renamed_from or self.previous_key) and self.tables is not None:
            option_name = "renamed_from" if self.renamed_from else "previous_key"
            return (
                f"{option_name} belongs to one table: set it in a [[watch]] with "
                "table = ... or view = ..."
            )
        if self.name in self.renamed_from:
            names = toml(list(self.renamed_from))
            return f"renamed_from = {names} names the table itself; give its earlier names"
        if self.capture and self.tables is not None:
            return "capture belongs to one table: set it in a [[watch]] with table or view"
        if self.membership and self.view is None:
            return "membership belongs to a view: set it in a [[watch]] with view = ..."
        if self.exclude_tables and self.tables is None:
            return "exclude_tables needs tables = [...]"
        if self.columns is not None and self.tables is not None:
            return (
                "columns belong to one table: set them in a [[watch]] with table = ..., or "
                "leave columns out with exclude"
            )
        return None


@dataclass(frozen=True, slots=True)
class MaskSettings(CheckedOptions):
    """A ``[[mask]]``: columns whose values the receiver gets in another form (spec/event-log.md
    15.1).
    """

    table: str = option(
        REQUIRED, NAME, "table or view, or a child table, that has the columns", example="customer"
    )
    columns: Names = option(REQUIRED, NAMES, "columns to mask", example=["email", "phone"])
    how: str = option(
        REQUIRED,
        choice(HASH, REDACT, NULL, LAST),
        "hash: HMAC-SHA-256 under format.mask_secret; redact: ***; null: NULL; last: *** and the "
        "last four characters of texts longer than eight",
        example=REDACT,
    )
    salt_by_column: bool = option(
        False, BOOLEAN, "hash: equal values of different columns have different hashes"
    )
    plain: Names = option(
        (),
        NAMES,
        "generated columns that are sent although they are computed from masked columns",
        example=["email_domain"],
    )


@dataclass(frozen=True, slots=True)
class FilterSettings(CheckedOptions):
    """A ``[[filter]]``: which objects of a table or view exist for the receiver (spec/event-log.md
    15.2).
    """

    table: str = option(
        REQUIRED, NAME, "table or view of which the receiver gets some objects", example="orders"
    )
    where: str = option(
        REQUIRED,
        TEXT,
        "condition in the database's SQL over columns that are logged",
        example="tenant = 'a' AND state <> 'draft'",
    )
    changes: bool = option(
        True,
        BOOLEAN,
        "false: no column of the condition ever changes; a change of an object that does not "
        "match then makes no event",
    )


@dataclass(frozen=True, slots=True)
class SourceSettings(_Typed):
    """``[source]``: the source of events. The section has a type, and the options that the class of
    this type declares.

    ``options`` and ``others`` are as in ``SinkSettings``.
    """

    type: str = option(
        "eventlog",
        name_of(SOURCES),
        "what is published: the log of [database], or another source, as with --from",
    )
    named = staticmethod(source_named)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``: the log lines on standard error."""

    format: str = option(
        "text", choice("text", "json"), "lines for people, or one JSON object per line"
    )
    level: str = option(
        "info",
        choice("error", "warning", "info", "debug"),
        "the lowest level that is logged; --quiet and --verbose override it",
    )


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """``[monitor]``: metrics, health and the status page of a publisher (extra ``monitor``)."""

    listen: str | None = option(
        None,
        TEXT,
        "host:port to serve on; default: off; an address that is not loopback needs a token",
        example="127.0.0.1:9464",
    )
    token: str | None = option(None, TOKEN, "token that a client must send", secret=True)
    tokens: str | None = option(
        None,
        TOKENS,
        "tokens with the names of their users, name:token per line; only these users may use "
        "the page's actions",
        secret=True,
    )
    database_url: str | None = option(
        None,
        URL,
        "SQLAlchemy URL for the actions of the status page; default: no actions",
        example="postgresql+psycopg://operator@localhost/hr",
    )
    database_password: str | None = option(None, SECRET, "password of database_url", secret=True)
    allowed_hosts: Names = option(
        (),
        NAMES,
        "host names, in addition to that of listen, that requests may use",
        example=["monitor.example.org"],
    )
    certificate: Path | None = option(
        None, PATH, "certificate, to serve with TLS", example="/etc/ssl/monitor.pem"
    )
    private_key: Path | None = option(
        None,
        PATH,
        "key of the certificate, if it is not in the same file",
        example="/etc/ssl/monitor.key",
    )
    interval: float = option(
        5.0,
        number(1, 3600),
        "seconds between checks of the queue, and between points of a curve on the page",
    )
    liveness_timeout: float | None = option(
        None,
        number(1, 604800),
        "maximum seconds between signs of life of a publisher that neither rests nor waits; "
        "default: sink.timeout + 60; for a backlog job 900",
        example=300,
    )
    show_values: bool = option(
        False, BOOLEAN, "show column values, keys, documents and the texts of answers"
    )

    @property
    def has_token(self) -> bool:
        """True if a client must show a token."""
        return self.client_token is not None

    @property
    def client_token(self) -> str | None:
        """The token with which a command of this configuration reads; None = there is no token."""
        if self.token is None and self.tokens is not None:
            return next(iter(named_tokens(self.tokens).values()))
        return self.token


LETTERS: Final = "dead_letter"
"""The section of the second sink."""

SECTIONS: Final[Mapping[str, type]] = {
    "database": DatabaseSettings,
    "publisher": PublisherSettings,
    "sink": SinkSettings,
    LETTERS: DeadLetterSettings,
    "format": FormatSettings,
    "source": SourceSettings,
    "monitor": MonitorSettings,
    "log": LogSettings,
}
"""The sections in the order of the file, without the arrays of tables."""

ARRAYS: Final[Mapping[str, type]] = {
    "watch": WatchSettings,
    "filter": FilterSettings,
    "mask": MaskSettings,
}
"""The arrays of tables, such as ``[[watch]]``, by name."""


def variable(section: str, key: str) -> str:
    """Return the environment variable that sets an option."""
    name = f"{section}_{key}".replace(".", "_").replace("-", "_")
    return f"EVENTLOG_{name.upper()}"


def as_of_letters(text: str) -> str:
    """Return a message of a sink, with the options named as in ``[dead_letter]``."""
    return (
        text.replace("EVENTLOG_SINK_", variable(LETTERS, ""))
        .replace("sink.", f"{LETTERS}.")
        .replace("[sink]", f"[{LETTERS}]")
    )


def may_stand_in_file(option: Option) -> bool:
    """Return True if a file may hold the option's value, named by ``<key>_file`` or by a variable
    that ends in ``_FILE``: secrets, and URLs of databases, which may hold a password.
    """
    return option.secret or option.kind is URL


CHOSEN: Final[Mapping[str, str]] = {"sink": SINKS, LETTERS: SINKS, "source": SOURCES}
"""The sections whose ``type`` names a class of a group of the registry.

These sections also contain the options of that class.
"""


class Declared(NamedTuple):
    """An option of a section, and the types that have it. If ``types`` is empty, all types have
    it.
    """

    option: Option
    types: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """The help text: the types that have the option, and its description."""
        return f"{', '.join(self.types)}: {self.option.about}" if self.types else self.option.about


OF_FORMAT: Final = "format."
"""The beginning of the names of sections with the options of one format, ``[format.<name>]``."""

_KINDS_IN_FILE: Final = {STRING: TEXT, FLAG: BOOLEAN}
"""The kinds of format options that have more spellings in eventlog.toml and the environment than in
JSON.
"""


def format_options(format: Format) -> dict[str, Option]:
    """Return the options that ``[format.<name>]`` accepts, none if it cannot be published."""
    if format.publish_options is None:
        return {}
    declared = options_of(format.publish_options).items()
    return {key: replace(one, kind=_KINDS_IN_FILE.get(one.kind, one.kind)) for key, one in declared}


def installed_options(section: str) -> dict[str, Declared]:
    """Return the options of a section by name, including those of all installed types."""
    if section.startswith(OF_FORMAT):
        format = format_named(section.removeprefix(OF_FORMAT))
        return {key: Declared(one) for key, one in format_options(format).items()}
    declared = {key: Declared(one) for key, one in options_of(SECTIONS[section]).items()}
    if section not in CHOSEN:
        return declared
    for name, kind in installed(CHOSEN[section]):
        for key, one in options_of(kind.options).items():
            before = declared.get(key)
            declared[key] = (
                Declared(one, (name,))
                if before is None
                else before._replace(types=(*before.types, name))
            )
    return declared


def listed_options(section: str) -> dict[str, Declared]:
    """Return the options that pages and the file list in a section. ``[dead_letter]`` also has the
    options of sinks, which are listed in ``[sink]``.
    """
    options = installed_options(section)
    if section != LETTERS:
        return options
    return {key: one for key, one in options.items() if not one.types}


def installed_sections() -> list[str]:
    """Return the names of all sections, also of installed formats, in the order of the file."""
    return sections_with(
        [f"{OF_FORMAT}{name}" for name, format in installed(FORMATS) if format_options(format)]
    )


def sections_with(formats: Sequence[str]) -> list[str]:
    """Return the names of all sections in the order of the file, including sections for these
    formats.
    """
    return [
        one for section in SECTIONS for one in (section, *(formats if section == "format" else ()))
    ]
