"""The run of ``eventlog schema`` and ``eventlog catalog``: descriptions of the watched tables for
programs.
"""

from __future__ import annotations

from dataclasses import replace

from eventlog.changes.json_form import database_to_json
from eventlog.cli.context import CommandContext, log_named, print_json, reading
from eventlog.cli.inspect.schema import Schema
from eventlog.cloudevents.format import FORMAT
from eventlog.cloudevents.schema import schema_of
from eventlog.cloudevents.values import JsonEncoding
from eventlog.config.load import Config
from eventlog.config.publishing import options_for
from eventlog.core.catalog import Catalog, Database, match_name
from eventlog.errors import ConfigError
from eventlog.publisher.declared import catalog_of, class_names, class_schema, with_tables


def run_schema(context: CommandContext, request: Schema, config: Config) -> None:
    """Run ``eventlog schema``."""
    class_name = request.class_name
    _, catalog = _watched(config)
    classes = {cls.name: cls for cls in catalog.classes}
    known = match_name(class_name, classes)
    if known is None:
        raise ConfigError(
            f"there is no class {class_name!r}; the classes are: {', '.join(classes) or 'none'}"
        )
    settings = options_for(config, FORMAT)
    encoding = JsonEncoding(settings.integers, settings.nested_values)
    print_json(schema_of(classes[known], catalog.schema, encoding, settings.dataschema))


def run_catalog(context: CommandContext, request: object, config: Config) -> None:
    """Run ``eventlog catalog``."""
    database, classes = _watched(config)
    names = {
        table.name
        for cls in classes.classes
        for table in (cls.table, *(child.table for child in cls.children))
    }
    tables = tuple(table for table in database.tables if table.name in names)
    print_json(database_to_json(replace(database, tables=tables)))


def _watched(config: Config) -> tuple[Database, Catalog]:
    """Return the tables of the database and the classes that the configuration names."""
    with reading(config) as db:
        database = db.reflect(class_schema(config))
        log = log_named(config, db.dialect, database.schema)
        chosen = with_tables(config, database, log)
        return database, catalog_of(chosen, database, class_names(chosen)[1], log)
