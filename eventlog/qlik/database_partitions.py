"""Listing the partitions of change tables that can be read, in attrep_cdc_partitions of a database (spec/qlik.md 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from eventlog.qlik.change_rows import PARTITION_NAME
from eventlog.qlik.change_table_options import WriteOptions
from eventlog.qlik.control_tables import CONTROL_COLUMNS, CONTROL_TABLE, ControlRow, has_ended, parse_partition_name
from eventlog.qlik.database_tables import (
    change_tables,
    clause,
    control_rows,
    control_table,
    database_errors,
    header_column,
    stream,
)
from eventlog.qlik.database_types import header_type, moment_writer
from eventlog.qlik.sequence import WriterState

_TYPES: Final = {
    "PARTITION_NAME": header_type(PARTITION_NAME),
    "PARTITION_START_TIME": header_type("timestamp"),
    "PARTITION_END_TIME": header_type("timestamp"),
}
_NAME: Final = sa.String(128)


def list_ended_partitions(connection: sa.Connection, options: WriteOptions, state: WriterState) -> None:
    """Insert the partitions that a writer in this state has ended, or all (``close_partitions``), if not listed yet.

    The control table is created if it is not there. Raises FormatError, DatabaseError.
    """
    inspector = sa.inspect(connection)
    if control_table(inspector, CONTROL_TABLE) is None:
        columns = (sa.Column(name, _TYPES.get(name, _NAME), quote=True) for name in CONTROL_COLUMNS)
        with database_errors():
            sa.Table(quoted_name(CONTROL_TABLE, True), sa.MetaData(), *columns).create(connection)
        inspector = sa.inspect(connection)
    found = control_table(inspector, CONTROL_TABLE)
    assert found is not None
    control, names = found
    own_names = [names[name] for name in CONTROL_COLUMNS]
    moment = moment_writer(connection.dialect.name)
    ended = sorted(_ended(connection, inspector, options, state), key=lambda row: (row.partition_start_time, row[-1]))
    for row in ended:
        start, end = moment(row.partition_start_time), moment(row.partition_end_time)
        stored = row._replace(partition_start_time=start, partition_end_time=end)
        with database_errors():
            connection.execute(sa.insert(clause(control, own_names)).values(dict(zip(own_names, stored, strict=True))))


def _ended(
    connection: sa.Connection, inspector: sa.Inspector, options: WriteOptions, state: WriterState
) -> Iterator[ControlRow]:
    listed: set[tuple[Any, Any, Any]] = {
        (row["TABLE_OWNER"], row["TABLE_NAME"], row["PARTITION_NAME"])
        for row in control_rows(connection, inspector, CONTROL_TABLE)
    }
    for table in change_tables(inspector, options.suffix):
        column = header_column(inspector, table, PARTITION_NAME, options.header_prefix)
        if column is None:
            continue
        name = table.name[: -len(options.suffix)]
        stored = stream(connection, sa.select(column).where(column.is_not(None)).distinct())
        for partition_name in [row[0] for row in stored]:
            partition = parse_partition_name(partition_name)
            is_new = (table.schema, name, partition_name) not in listed
            if is_new and (options.close_partitions or has_ended(partition, state)):
                yield ControlRow(options.server, options.task, partition_name, *partition, table.schema, name)
