"""The formats that a job writes: their forms, and the options that configuration and request give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from eventlog.changes.format import parse_options
from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.qlik import change_table_options, message_options
from spark import documents, message_output, table_output
from spark.job import Job, Output

FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "xds": documents.FORMS,
    "qlik-messages": message_output.FORMS,
    "qlik-change-table": table_output.FORMS,
}
"""The formats by name, with the forms that files of each may have, the usual one first."""


def check(format: str, form: str | None) -> None:
    """Raises ConfigError for a format that there is not, or a form that it does not have."""
    forms = FORMATS.get(format)
    if forms is None:
        raise ConfigError(f"format {format!r} is unknown: use {', '.join(FORMATS)}")
    if form is not None and form not in forms:
        raise ConfigError(f"form {form!r} is unknown: files of {format} are {', '.join(forms)}")


def output_of(
    config: Config,
    format: str,
    options: Mapping[str, Any],
    *,
    directory: str,
    form: str | None,
    compression: str,
    max_bytes: int,
) -> Output:
    """Where the output of a job goes and in what form. Raises ConfigError for the options of its format."""
    form = FORMATS[format][0] if form is None else form
    output = Output(directory, form, compression, max_bytes, config.publisher.batch_size, format)
    match format:
        case "qlik-messages":
            return replace(output, messages=_message_options(config, options))
        case "qlik-change-table":
            return replace(output, tables=_table_options(config, options, form))
        case _:
            if options:
                raise ConfigError("format xds takes no options of --map: set them in [format] of the configuration")
            return output


def _message_options(config: Config, options: Mapping[str, Any]) -> message_options.WriteOptions:
    """Those of ``[format]``, as the publisher takes them, under those of the request."""
    settings = config.format
    own = {
        "encoding": settings.encoding,
        "metadata": settings.metadata,
        "metadata_topic": settings.metadata_topic,
        "registry": settings.registry,
        "names": settings.names,
        "external_schema_id": settings.external_schema_id,
        "logical_types": settings.logical_types,
        "namespace": settings.namespace,
        "topic": config.sink.topic,
        "key": settings.key,
        "server": settings.server,
        "task": settings.task,
    }
    chosen = parse_options(message_options.WriteOptions, {**own, **options}, "the backlog's Qlik messages")
    if chosen.metadata == "registry" and chosen.registry is None:
        raise ConfigError("metadata = registry of the Qlik messages needs the option registry, its URL")
    return chosen


def _table_options(config: Config, options: Mapping[str, Any], form: str) -> change_table_options.WriteOptions:
    own = {"server": config.format.server, "task": config.format.task, **options, "file_format": form}
    chosen = parse_options(change_table_options.WriteOptions, own, "the backlog's change tables")
    if chosen.tables or chosen.catalog is not None:
        raise ConfigError(
            "the change tables of a backlog have the columns of the database; leave out tables and catalog"
        )
    return chosen


def folders(job: Job) -> list[str]:
    """The folders that the output of a job may have. Raises MaskTooWide, FormatError for classes it cannot hold."""
    return table_output.folders(job) if job.output.format == "qlik-change-table" else []
