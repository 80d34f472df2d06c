"""The options, section by section: typed, frozen, each with its default, legal range, aliases and help.

The rules are those of spec/event-log.md 9; ``eventlog.config.load`` reads them from a file, the environment and flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import Any, Final

from eventlog import __version__
from eventlog.config.options import (
    BASE,
    BOOLEAN,
    COLUMN_MAP,
    LISTS,
    NAMES,
    PATH,
    PROPERTIES,
    PUBLICATION_MODE,
    SECRET,
    STATEMENTS,
    TABLE,
    TEXT,
    TIMES,
    URL,
    ZONE,
    choice,
    integer,
    number,
    option,
)
from eventlog.model import LogRow

MANY: Final = 2147483647

SOURCE_FORMATS: Final = ("gbase", "linter", "qlik-messages")
"""The formats that can be followed in place of a log."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """``[database]``: where the log is, and which tables and views are classes."""

    url: str | None = option(
        None, URL, "SQLAlchemy URL; the password belongs in EVENTLOG_DATABASE_PASSWORD or url_file",
        example="postgresql+psycopg://publisher@localhost/hr",
    )  # fmt: skip
    url_file: Path | None = option(
        None, PATH, "file that holds the URL, in place of url", example="/run/secrets/eventlog-url"
    )
    password: str | None = option(None, SECRET, "only by EVENTLOG_DATABASE_PASSWORD", secret=True)
    log_table: str = option(
        "eventlog", TEXT, "the log table, schema-qualified or in schema_name", aliases=("log-table",)
    )
    schema_name: str | None = option(
        None, TEXT, "schema of the log and the classes; default: the connection's current schema; excludes tables",
        aliases=("sync-schema",), example="public",
    )  # fmt: skip
    tables: tuple[str, ...] | None = option(
        None, NAMES, "parent tables and views that are classes; default: all of the schema",
        aliases=("sync-tables",), example=["usr", "grp"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """``[publisher]``: how rows are taken, sent and marked (spec/event-log.md 9)."""

    profile: str = option("default", choice("default", "idm"), "idm: the documented defaults of the vendor's driver")
    publisher_disabled: bool = option(False, BOOLEAN, "publish nothing", aliases=("disable",))
    publication_mode: int = option(1, PUBLICATION_MODE, "triggered publication", aliases=("publication-mode",))
    delete_from_log: bool = option(False, BOOLEAN, "delete rows that would get S or W", aliases=("delete-from-log",))
    allow_loopback: bool = option(
        False, BOOLEAN, "publish the publisher's own changes too", aliases=("allow-loopback",)
    )
    loopback_rows: str = option(
        "consume", choice("consume", "leave"), "mark loopback rows S, or leave them N; either one set ends the warnings"
    )
    handle_future_events: bool = option(
        False, BOOLEAN, "order by event_time and wait until it is due", aliases=("handle-future-events",)
    )
    event_time_zone: str = option("utc", choice("utc", "local"), "the clock that event_time is of")
    polling_interval: int = option(
        10, integer(1, 604800), "seconds of rest between cycles", aliases=("polling-interval",)
    )
    time_of_day: tuple[time, ...] | None = option(
        None, TIMES, "the server's local times to start at, in place of the interval",
        aliases=("time-of-day",), example="06:00:00, 18:00:00",
    )  # fmt: skip
    notify: bool = option(True, BOOLEAN, "be woken by the database where it can", idm=False)
    post_poll_statements: tuple[str, ...] = option(
        (), STATEMENTS, "SQL to run after a cycle that sent something", aliases=("post-poll-stmt",)
    )
    batch_size: int = option(128, integer(1, 128), "events a document", aliases=("batch-size",), idm=1)
    query_limit: int = option(
        10000, integer(0, MANY), "rows a cycle, 0 = no limit", aliases=("query-limit", "query limit")
    )
    heartbeat_interval: int = option(
        0,
        integer(0, MANY),
        "minutes without a document until a heartbeat, 0 = off",
        aliases=("pub-heartbeat-interval",),
    )
    layout: str = option("2.x", choice("2.x", "3.5"), "order of the log's columns where names do not tell")
    column_map: Mapping[str, str] | None = option(
        None, COLUMN_MAP, "the ten standard names and their real names",
        example={name: name for name in LogRow._fields},
    )  # fmt: skip
    column_sort: str = option(
        "bytes", choice("bytes", "collation"), "order of the log's columns in databases that do not number them",
        aliases=("column-position-comparator",),
    )  # fmt: skip
    fold_distance: int = option(1000, integer(0, MANY), "largest distance of record_ids between rows of one event")
    fold_span: int = option(10000, integer(0, MANY), "largest distance of first and last, 0 = no bound")
    driver_user: str | None = option(
        None, TEXT, "the publisher's database user; default: the database is asked", example="publisher"
    )
    retry_initial: float = option(1.0, number(0.001, 604800), "first back-off after retry, seconds")
    retry_max: float = option(60.0, number(0.001, 604800), "longest back-off, seconds")
    on_retry: str = option(
        "park", choice("park", "stop"), "an answer retry parks its object, or stops the cycle", idm="stop"
    )
    max_parked: int = option(1000, integer(0, MANY), "parked objects until the cycle stops")
    concurrency: int = option(1, integer(1, 64), "envelopes in the air at once")
    flight_rows: int = option(10000, integer(1, MANY), "log rows a flight at most")
    mark_interval: float = option(1.0, number(0, 3600), "seconds between marks within a flight")
    health_file: Path | None = option(
        None, PATH, "file that is touched while there is progress; `eventlog health` looks at it",
        example="/run/eventlog/health",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """``[sink]``: where documents go. Which options a type takes stands in their help."""

    type: str = option("stdout", choice("stdout", "files", "http", "kafka", "python"), "where documents go")
    directory: Path | None = option(
        None, PATH, "files: the directory, beside this file unless absolute", example="documents"
    )
    form: str = option(
        "lines", choice("lines", "documents"), "an envelope a line (a file a flight), or a file an envelope"
    )
    url: str | None = option(None, TEXT, "http: where documents are posted to", example="https://receiver/xds")
    timeout: float = option(
        30.0, number(0.001, 3600),
        "seconds; http: for a document and its answer; kafka: until a record is acknowledged, 2 at least",
    )  # fmt: skip
    ca_file: Path | None = option(
        None, PATH, "http: certificates to trust in place of the system's", example="/etc/ssl/receiver-ca.pem"
    )
    client_certificate: Path | None = option(None, PATH, "http: certificate to show", example="/etc/ssl/publisher.pem")
    client_key: Path | None = option(
        None, PATH, "http: its key, if it is not in the certificate's file", example="/etc/ssl/publisher.key"
    )
    max_answer_bytes: int = option(16 * 1024 * 1024, integer(1024, MANY), "http: largest answer that is read, bytes")
    token: str | None = option(None, SECRET, "http: bearer token, only by EVENTLOG_SINK_TOKEN", secret=True)
    user: str | None = option(None, SECRET, "http, kafka: user, only by EVENTLOG_SINK_USER", secret=True)
    password: str | None = option(None, SECRET, "http, kafka: password, only by EVENTLOG_SINK_PASSWORD", secret=True)
    function: str | None = option(
        None, TEXT, "python: module:function, called with each document and its events", example="receivers.hr:receive"
    )
    brokers: str | None = option(
        None, TEXT, "kafka: where to begin, comma-separated", example="broker-1:9092,broker-2:9092"
    )
    topic: str | None = option(
        None, TEXT, "kafka: the topic; default: eventlog for XDS, one a table for Qlik messages", example="hr.changes"
    )
    properties: Mapping[str, Any] | None = option(
        None, PROPERTIES, "kafka: settings of librdkafka", example={"compression.type": "lz4"}
    )


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """``[format]``: what the documents look like (spec/xds.md), or the messages (spec/qlik.md 5)."""

    type: str = option("xds", choice("xds", "qlik-messages"), "XDS documents, or messages (needs sink type kafka)")
    insert_query_back: str = option("modify", choice("modify", "add"), "element of events that are only read back")
    time_syntax: str = option(
        "integer", choice("integer", "canonical", "java"), "form of dates and times", aliases=("time-syntax",),
        alias_values={"1": "integer", "2": "canonical", "3": "java"},
    )  # fmt: skip
    time_zone: str = option("UTC", ZONE, "zone of values without one")
    special_times: str = option(
        "text", choice("text", "error"), "PostgreSQL: infinite times, years before 0001 or beyond 9999, 24:00:00: sent "
        "as their text, or bad rows",
    )  # fmt: skip
    meta_identifiers: bool = option(
        True, BOOLEAN, "view columns have prefixes such as pk_, mv_", aliases=("enable-meta-identifiers",)
    )
    referential: str = option(
        "value", choice("value", "dn"), "foreign keys as stored, or as associations", aliases=("enable-refs",),
        alias_values={"1": "dn", "yes": "dn", "true": "dn", "0": "value", "no": "value", "false": "value"},
    )  # fmt: skip
    noop_updates: str = option("drop", choice("drop", "emit"), "rows of type 2 whose two values are equal")
    emit_keys: bool = option(False, BOOLEAN, "send key columns as attributes too")
    char_padding: str = option("trim", choice("trim", "keep"), "trailing blanks of CHAR(n) values")
    indent: int = option(0, integer(0, 16), "blanks a level with form = documents, 0 = no indentation")
    product_name: str = option("eventlog", TEXT, "text of the element product in each document")
    product_version: str = option(__version__, TEXT, "version in that element")
    encoding: str = option("json", choice("json", "avro"), "messages: JSON or Avro")
    metadata: str = option(
        "publish", choice("publish", "none", "registry"), "messages: publish metadata, or register schemas (Avro)"
    )
    metadata_topic: str = option("eventlog.metadata", TEXT, "messages: where metadata are published to")
    registry: str | None = option(
        None, TEXT, "messages: URL of the schema registry; user:password by EVENTLOG_REGISTRY_AUTH",
        example="https://registry:8081",
    )  # fmt: skip
    names: str = option("message", choice("message", "headers", "off"), "messages: where schema and table stand")
    external_schema_id: bool = option(False, BOOLEAN, "messages: the header externalSchemaId")
    logical_types: bool = option(True, BOOLEAN, "messages: logical types of Avro")
    namespace: str | None = option(
        None, TEXT, "messages: what stands before .<schema>.<table> in Avro names", example="com.attunity.queue.msg.hr"
    )
    key: str = option("primary_key", choice("none", "table", "primary_key"), "messages: key of the records")
    server: str = option("eventlog", TEXT, "messages: server in the lineage")
    task: str = option("eventlog", TEXT, "messages: task in the lineage")


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """One ``[[watch]]``: a table or a view whose changes triggers log (spec/triggers.md 1, 3, 7)."""

    table: str | None = option(None, TEXT, "table to watch", example="usr")
    tables: tuple[str, ...] | None = option(
        None, NAMES, "or tables by patterns with * ? [...]; never views, partitions, child tables or the log's own",
        example=["*"],
    )  # fmt: skip
    exclude_tables: tuple[str, ...] = option(
        (), NAMES, "with tables: names and patterns of those that are left alone", example=["tmp_*"]
    )
    view: str | None = option(None, TEXT, "or view to watch (direct model)", example="view_usr")
    style: str = option(
        "field", choice("field", "remove_all", "field_query_back", "row_query_back"), "what the triggers log"
    )
    capture: str = option("row", choice("row", "statement"), "triggers a row, or a statement for bulk writes")
    columns: tuple[str, ...] | None = option(None, NAMES, "only these columns", example=["fname", "lname"])
    exclude: tuple[str, ...] = option((), NAMES, "all columns but these", example=["password_hash"])
    base: Mapping[str, Mapping[str, str]] | None = option(
        None, BASE, "view: base tables and their columns -> view columns",
        example={"emp": {"empno": "pk_empno", "fname": "sv_fname"}},
    )  # fmt: skip
    always: bool = option(False, BOOLEAN, "log what a replication applies too")
    lob_values: bool = option(False, BOOLEAN, "log large objects by value; of no effect on PostgreSQL, which has none")
    lob_always: bool = option(False, BOOLEAN, "Oracle: log LOB columns (8) whenever another column of the row changes")

    @property
    def name(self) -> str:
        """The table or view, or the patterns."""
        return self.table or self.view or ", ".join(self.tables or ())


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """``[source]``: what ``eventlog publish --from`` follows in place of a log, and where its position is kept."""

    type: str | None = option(None, choice(*SOURCE_FORMATS), "the format to follow, as --from has it", example="gbase")
    path: Path | None = option(
        None, PATH, "gbase: a file that grows, a directory of files that continue one another, or - for standard input",
        example="captures",
    )  # fmt: skip
    connect: str | None = option(
        None, TEXT, "gbase: module:function that gives a DB-API connection to syscdcv1 and the function that reads "
        "a session", example="gbase_access:connect",
    )  # fmt: skip
    server: str | None = option(None, TEXT, "gbase, with connect: name of the server", example="gbase01")
    capture: Mapping[str, tuple[str, ...]] | None = option(
        None, LISTS, "gbase, with connect: db:owner.table and the columns to capture",
        example={"shop:app.item": ["id", "name"]},
    )  # fmt: skip
    url: str | None = option(
        None, URL, "linter: SQLAlchemy URL of the queue; the password belongs in EVENTLOG_SOURCE_PASSWORD or url_file",
        example="postgresql+psycopg://reader@localhost/queue",
    )  # fmt: skip
    url_file: Path | None = option(
        None, PATH, "linter: file that holds the URL, in place of url", example="/run/secrets/queue-url"
    )
    queue_table: str = option("dispatch_queue", TEXT, "linter: the queue")
    attrs_table: str = option("dispatch_attrs", TEXT, "linter: the description of its tables")
    schema_name: str | None = option(None, TEXT, "linter: schema of both", example="replication")
    brokers: str | None = option(
        None, TEXT, "qlik-messages: where to begin, comma-separated", example="broker-1:9092,broker-2:9092"
    )
    topics: tuple[str, ...] | None = option(
        None, NAMES, "qlik-messages: the topics of the data", example=["app.item", "app.customer"]
    )
    properties: Mapping[str, Any] | None = option(
        None, PROPERTIES, "qlik-messages: settings of librdkafka", example={"client.id": "eventlog"}
    )
    user: str | None = option(None, SECRET, "qlik-messages: user, only by EVENTLOG_SOURCE_USER", secret=True)
    password: str | None = option(
        None, SECRET, "linter, qlik-messages: password, only by EVENTLOG_SOURCE_PASSWORD", secret=True
    )
    reader: Mapping[str, Any] | None = option(
        None, TABLE, "options of the format's reader, as those of convert --map",
        example={"keys": {"app.item": ["id"]}},
    )  # fmt: skip
    catalog: Path | None = option(
        None, PATH, "JSON catalogue of the tables, for keys and types", example="catalog.json"
    )
    poll_interval: float = option(1.0, number(0.01, 3600), "seconds between looks at a source that does not tell")
    position_file: Path | None = option(None, PATH, "file that keeps the position", example="state/position.json")
    position_url: str | None = option(
        None, URL, "in place of it: database that keeps the position; password: EVENTLOG_SOURCE_POSITION_PASSWORD",
        example="postgresql+psycopg://publisher@localhost/hr",
    )  # fmt: skip
    position_url_file: Path | None = option(
        None, PATH, "file that holds that URL, in place of position_url", example="/run/secrets/position-url"
    )
    position_password: str | None = option(
        None, SECRET, "only by EVENTLOG_SOURCE_POSITION_PASSWORD", secret=True
    )  # fmt: skip
    position_table: str = option("eventlog_position", TEXT, "table of the position, one a publisher")


SECTIONS: Final[Mapping[str, type]] = {
    "database": DatabaseSettings,
    "publisher": PublisherSettings,
    "sink": SinkSettings,
    "format": FormatSettings,
    "source": SourceSettings,
}
"""The sections in the order of the file; ``watch`` is an array of tables beside them."""

MESSAGE_OPTIONS: Final = (
    "type", "encoding", "metadata", "metadata_topic", "registry", "names", "external_schema_id", "logical_types",
    "namespace", "key", "server", "task",
)  # fmt: skip
"""What ``[format]`` holds that is not of spec/event-log.md 9."""
