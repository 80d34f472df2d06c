"""The log, its internal tables and its functions as Alembic migrations, run from code.

There are two branches, each with its own objects: ``internal`` (the tables of spec/event-log.md 10)
and ``log`` (the table itself, its trigger and the key quoting function). ``--existing-log`` runs
only ``internal``, for a log that another program made. A downgrade removes the objects of the
upgrade and nothing else. The table ``<log>_version`` next to the log holds the revisions that the
log has reached. ``operations`` and ``autogenerate`` do the same in a user's own migrations.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO

import sqlalchemy as sa
from alembic import command, context, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement, Executable

from eventlog.errors import ConfigError, DatabaseError, LogTableError, number_of
from eventlog.sql.connect.locate import new_log, refuse_schema
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.port.database import Storage
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import (
    as_database_errors,
    load_dialect,
    open_database,
    owner_advice,
)
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.rights import Part, name_of

_NO_STORAGE: Final = Storage()
_LOG_BRANCH: Final = "log"
_INTERNAL_BRANCH: Final = "internal"
_SCRIPTS: Final = str(Path(__file__).parent)


def upgrade(
    target: Engine | Connection | None,
    *,
    log_table: str,
    schema: str | None = None,
    revision: str | tuple[str, ...] = "head",
    existing_log: bool = False,
    sql: TextIO | None = None,
    dialect_name: str | None = None,
    storage: Storage = _NO_STORAGE,
    readers: Sequence[str] = (),
) -> list[str]:
    """Create the log and its internal tables, or bring them up to ``revision`` (one revision, or
    one per branch). Existing parts are not changed.

    Returns the GRANTs that give back the rights that other roles got by default on what was
    created, and that were revoked (spec/event-log.md 11.1). ``readers`` may read what is created.

    ``log_table`` may be ``schema.table``. Otherwise the log is made in ``schema``, by default the
    connection's current schema. The schema must exist. ``existing_log`` is for a log that another
    program made. With ``sql`` all SQL is written to that stream and nothing is run; ``target`` may
    then be None if ``dialect_name`` is given. If ``target`` is an engine, the transaction is
    committed; if it is a connection, the caller commits. ``storage`` is the place of the tables, in
    databases that can choose it.

    Raises LogTableError if a table of another program has the log's name, or if the log has reached
    an unknown revision; DatabaseError if the schema is missing; ConfigError for an unknown
    ``revision``, or a storage that the database lacks.
    """
    wanted = _revision(revision, existing_log)
    if sql is not None:
        dialect = _dialect(target, dialect_name)
        log = _offline_log(log_table, schema, dialect, readers)
        with _alembic_errors(), _script(sql, dialect, storage) as printed:
            command.upgrade(_config(log, dialect, None, printed, existing_log), wanted, sql=True)
            printed.writelines(f"{statement};\n\n" for statement in dialect.after_upgrade(log))
        return []
    with _connection(target) as conn:
        log = _online_log(conn, log_table, schema, readers)
        reached = _heads(conn, log)
        refuse_unknown(log, reached, conn)
        _check_before_upgrade(conn, log, existing_log)
        config = _config(log, _dialect(conn), conn, None, existing_log, storage)
        config.attributes["is_older"] = bool(reached)
        with _alembic_errors():
            command.upgrade(config, wanted)
        for statement in _dialect(conn).after_upgrade(log):
            open_database(conn).run(statement)
        return [*open_database(conn).denied()]


def write_transaction_ids(
    sql: TextIO, *, log_table: str, schema: str | None = None, dialect_name: str
) -> None:
    """Write the SQL that lets the database record the transaction of each row of a log
    (spec/event-log.md 1.5). The arguments are as in ``upgrade``. Raises ConfigError if the database
    cannot do this.
    """
    dialect = _dialect(None, dialect_name)
    log = _offline_log(log_table, schema, dialect)
    statements = ";\n\n".join(dialect.transaction_id_statements(log))
    sql.write(f"BEGIN;\n\n{statements};\n\nCOMMIT;\n")


def downgrade(
    target: Engine | Connection | None,
    *,
    log_table: str,
    schema: str | None = None,
    revision: str = "base",
    existing_log: bool = False,
    sql: TextIO | None = None,
    dialect_name: str | None = None,
    reached: Sequence[str] = (),
) -> None:
    """Remove the objects that the migrations after ``revision`` made: with ``base`` the log, its
    rows and its internal tables.

    A log that another program made stays. ``existing_log`` and ``reached``, the revisions of the
    log (none = the newest), have an effect only with ``sql``, where no database provides them. The
    other arguments are as in ``upgrade``.
    """
    if sql is not None:
        dialect = _dialect(target, dialect_name)
        log = _offline_log(log_table, schema, dialect)
        branches = [_INTERNAL_BRANCH] if existing_log else [_LOG_BRANCH, _INTERNAL_BRANCH]
        with _alembic_errors(), _script(sql, dialect) as printed:
            config = _config(log, dialect, None, printed, existing_log)
            for branch in branches:
                start = _newest(branch, reached)
                command.downgrade(config, f"{start}:{branch}@{revision}", sql=True)
            if revision == "base":
                _drop_at_the_end(printed, dialect.qualified(log.schema, log.version_table))
        return
    with _connection(target) as conn:
        log = _online_log(conn, log_table, schema)
        reached = _heads(conn, log)
        refuse_unknown(log, reached, conn)
        with _alembic_errors():
            command.downgrade(
                _config(log, _dialect(conn), conn, None, not _is_ours(reached)), revision
            )
        if not _heads(conn, log):
            sa.Table(quoted(log.version_table), sa.MetaData(), schema=schema_of(log)).drop(
                conn, checkfirst=True
            )


def current(
    target: Engine | Connection, *, log_table: str, schema: str | None = None
) -> tuple[str, ...]:
    """Return the revisions that the log has reached: at most one per branch."""
    with _connection(target) as conn:
        return tuple(sorted(_heads(conn, _online_log(conn, log_table, schema))))


def heads() -> tuple[str, ...]:
    """Return the newest revisions, one for each branch."""
    return tuple(sorted(_scripts().get_heads()))


def upgrade_command(reached: Sequence[str]) -> str:
    """Return the command that brings a log with these revisions up to the newest revisions. For a
    log that another program made, only its internal tables have revisions.
    """
    directory = _scripts()
    known = set(reached).difference(unknown(reached))
    branches = [directory.get_revision(one).branch_labels for one in known]
    is_ours = not branches or any(_LOG_BRANCH in labels for labels in branches)
    return "eventlog db upgrade" if is_ours else "eventlog db upgrade --existing-log"


def drops_log(reached: Iterable[str], revision: str) -> bool:
    """Return True if a downgrade from the reached revisions removes the log; False if the downgrade
    keeps the log, or cannot be done.
    """
    undone = _scripts().iterate_revisions(tuple(reached), revision, select_for_downgrade=True)
    try:
        return any(one.down_revision is None and _LOG_BRANCH in one.branch_labels for one in undone)
    except RevisionError:
        return False


def unknown(reached: Iterable[str]) -> tuple[str, ...]:
    """Return the reached revisions that this version of eventlog does not support."""
    known = _revisions_of(_LOG_BRANCH) | _revisions_of(_INTERNAL_BRANCH)
    return tuple(sorted(set(reached) - known))


def refuse_unknown(log: LogTable, reached: Iterable[str], conn: Connection | None = None) -> None:
    """Raise LogTableError if a log has reached a revision that this version of eventlog does not
    support. With ``conn`` the message has the number of recorded deliveries.
    """
    if revisions := unknown(reached):
        recorded = 0 if conn is None else _count_in_flight(conn, log)
        waiting = (
            f" Otherwise the {number_of(recorded, 'row')} of {log.inflight_table} would be lost."
            if recorded
            else ""
        )
        raise LogTableError(
            f"the log {log} is at revision {', '.join(revisions)}, which this version of eventlog "
            f"does not support: {OTHER_EVENTLOG}.{waiting}"
        )


def _count_in_flight(conn: Connection, log: LogTable) -> int:
    if not sa.inspect(conn).has_table(quoted(log.inflight_table), schema_of(log)):
        return 0
    table = sa.table(quoted(log.inflight_table), schema=schema_of(log))
    return int(conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


OTHER_EVENTLOG: Final = (
    "if a newer version made the log, install that version. If a version from "
    "before the first release made it, use that version to publish the waiting "
    "rows and to remove the log (`eventlog db downgrade base`); then create "
    "the log with `eventlog db upgrade` of this version"
)
"""The advice for a log at an unknown revision."""


@contextmanager
def _connection(target: Engine | Connection | None) -> Iterator[Connection]:
    if target is None:
        raise ConfigError(
            "internal error: a migration was started with neither a database nor a file for its SQL"
        )
    if isinstance(target, Connection):
        with as_database_errors(target, owner_advice(target)):
            yield target
        return
    with as_database_errors(target, owner_advice(target)), target.connect() as conn, conn.begin():
        yield conn


def _online_log(
    conn: Connection, log_table: str, schema: str | None, readers: Sequence[str] = ()
) -> LogTable:
    dialect = _dialect(conn)
    log = _offline_log(log_table, schema, dialect, readers)
    if "schemas" not in dialect.capabilities:
        return log
    inspector = sa.inspect(conn)
    default = inspector.default_schema_name
    real_schema = (
        log.schema if log.schema is not None or default is None else dialect.spelled(default)
    )
    if real_schema is None or not inspector.has_schema(real_schema):
        raise DatabaseError(
            f"there is no schema {real_schema!r} for the log: create it, "
            "or correct log_table or schema_name"
        )
    return replace(log, schema=real_schema)


@contextmanager
def _script(sql: TextIO, dialect: Dialect, storage: Storage = _NO_STORAGE) -> Iterator[io.StringIO]:
    """Yield the buffer to which Alembic prints.

    At the end ``sql`` gets the script for the database's own tool.
    """
    printed = io.StringIO()
    yield printed
    sql.writelines(f"{line}\n" for line in dialect.prologue)
    sql.write(dialect.as_script(dialect.placed(printed.getvalue().strip("\n") + "\n", storage)))
    sql.writelines(f"{line}\n" for line in dialect.epilogue)


def _offline_log(
    log_table: str, schema: str | None, dialect: Dialect, readers: Sequence[str] = ()
) -> LogTable:
    own_schema, name = split_name(log_table)
    schema = schema if own_schema is None else own_schema
    refuse_schema(dialect, schema)
    return replace(new_log(dialect, schema, name), readers=tuple(map(dialect.spelled, readers)))


def _check_before_upgrade(conn: Connection, log: LogTable, existing_log: bool) -> None:
    inspector = sa.inspect(conn)
    exists = inspector.has_table(quoted(log.name), log.schema)
    # Migrations create the version table first, so if it is missing, eventlog made none of the
    # other tables.
    is_begun = inspector.has_table(quoted(log.version_table), log.schema)
    if not is_begun:
        internal_tables = [
            name for name in log.own_tables if name not in (log.name, log.version_table)
        ]
        for internal_table in internal_tables:
            if inspector.has_table(quoted(internal_table), log.schema):
                raise LogTableError(
                    f"the table {internal_table} already exists and was not created by `eventlog "
                    "db upgrade`: rename it, or choose another log_table"
                )
    if existing_log:
        if not exists:
            raise LogTableError(
                f"there is no log {log} to create internal tables for: correct log_table"
            )
        return
    is_ours = _is_ours(_heads(conn, log))
    if (
        exists
        and not is_ours
        and not (is_begun and load_dialect(conn.dialect.name).open(conn).log(log).is_half_made())
    ):
        raise LogTableError(
            f"the table {log} already exists and was not created by `eventlog db upgrade`: create "
            "its internal tables with --existing-log, or choose another log_table"
        )
    if is_ours and not exists:
        raise LogTableError(
            f"the log {log} does not exist, but {log.version_table} shows that it was created: a "
            "downgrade was interrupted, or somebody dropped it. Run `eventlog db downgrade base` "
            "to remove the rest, then `eventlog db upgrade`"
        )


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations, whose files are loaded once in a process."""
    return ScriptDirectory(_SCRIPTS)


def _revisions_of(branch: str) -> set[str]:
    """Return all revisions of a branch."""
    scripts = _scripts().walk_revisions("base", f"{branch}@head")
    return {script.revision for script in scripts}


def _newest(branch: str, reached: Iterable[str]) -> str:
    """Return the reached revision of a branch, or its newest revision if none was reached."""
    of_branch = _revisions_of(branch)
    return next((one for one in reached if one in of_branch), f"{branch}@head")


def _is_ours(reached: Iterable[str]) -> bool:
    """Return True if eventlog's migrations made the log itself."""
    return not _revisions_of(_LOG_BRANCH).isdisjoint(reached)


def _heads(conn: Connection, log: LogTable) -> tuple[str, ...]:
    options = {"version_table": quoted(log.version_table), "version_table_schema": schema_of(log)}
    return MigrationContext.configure(conn, opts=options).get_current_heads()


def _drop_at_the_end(printed: io.StringIO, table: str) -> None:
    """Drop the version table once, at the end of the script: Alembic before 1.20 drops it after
    each branch.
    """
    text = re.sub(
        rf"^DROP TABLE {re.escape(table)}\s*?(;|\n\n/)\n+",
        "",
        printed.getvalue(),
        flags=re.MULTILINE,
    )
    printed.seek(0)
    printed.truncate()
    printed.write(f"{text}DROP TABLE {table};\n")


def _revision(revision: str | tuple[str, ...], existing_log: bool) -> Any:
    if existing_log:
        return f"{_INTERNAL_BRANCH}@{revision}"
    return "heads" if revision == "head" else revision


def _config(
    log: LogTable,
    dialect: Dialect,
    conn: Connection | None,
    sql: TextIO | None,
    existing_log: bool = False,
    storage: Storage = _NO_STORAGE,
) -> Config:
    config = Config() if sql is None else Config(output_buffer=sql)
    config.set_main_option("script_location", _SCRIPTS.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(
        connection=conn,
        dialect=dialect,
        log=log,
        existing_log=existing_log,
        storage=storage,
        version_table=quoted(log.version_table),
        version_table_schema=schema_of(log),
    )
    return config


def _dialect(target: Engine | Connection | None, name: str | None = None) -> Dialect:
    """Return the dialect of this name, None = the dialect of the database."""
    if name is not None:
        return load_dialect(name)
    if target is None:
        raise ConfigError(
            "writing the SQL of migrations needs a database, or the name of a dialect such as "
            "postgresql"
        )
    return load_dialect(target.dialect.name)


@contextmanager
def _alembic_errors() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise ConfigError(f"migration: {error}; see `eventlog db current`") from error


# --- the statements of a migration, and how they are run -------------


def log_and_dialect() -> tuple[LogTable, Dialect]:
    """Return the log of the running migration, and the dialect of its database."""
    attributes = context.config.attributes
    return attributes["log"], attributes["dialect"]


def is_older() -> bool:
    """Return True if the log was made before the running upgrade, so that it may have readers."""
    return bool(context.config.attributes.get("is_older"))


def execute(statements: Iterable[str]) -> None:
    """Run or print statements in the running migration by ``run_or_print``."""
    run_or_print(op.get_context(), statements)


NewColumn = tuple[str, str, bool, str]
"""The name of a column, its type, True if it may be NULL, and its comment."""


def new_columns(dialect: Dialect, *columns: NewColumn) -> Iterator[sa.Column[Any]]:
    """Yield columns. A time that cannot be NULL is by default the present time."""
    for name, kind, nullable, comment in columns:
        is_now = kind in ("time", "event_time") and not nullable
        yield sa.Column(
            name,
            dialect.column_types[kind],
            nullable=nullable,
            server_default=sa.text(dialect.utc_now) if is_now else None,
            comment=comment,
        )


def add_columns(part: Part, columns: Mapping[str, tuple[str, str]]) -> None:
    """Add columns to an internal table in the running migration: name -> type and comment."""
    log, dialect = log_and_dialect()
    table = name_of(log, part)
    present = set() if context.is_offline_mode() else _present_columns(log, table)
    for name, (kind, comment) in columns.items():
        if name not in present:  # an interrupted migration is run again
            column = sa.Column(name, dialect.column_types[kind], comment=comment)
            op.add_column(quoted(table), column, schema=schema_of(log))


def drop_columns(part: Part, columns: Iterable[str]) -> None:
    """Drop columns of an internal table in the running migration."""
    log, _ = log_and_dialect()
    table = name_of(log, part)
    present = set(columns) if context.is_offline_mode() else _present_columns(log, table)
    for name in columns:
        if name in present:
            op.drop_column(quoted(table), name, schema=schema_of(log))


def _present_columns(log: LogTable, table: str) -> set[str]:
    """Return the names of the columns of an internal table; none if the table is gone, as after an
    interrupted downgrade.
    """
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(quoted(table), schema_of(log)):
        return set()
    found = inspector.get_columns(quoted(table), schema_of(log))
    return {column["name"].lower() for column in found}


class _VerbatimStatement(Executable, ClauseElement):
    """SQL text that no dialect changes.

    A ``text()`` would double percent signs for drivers whose parameters are %s.
    """

    inherit_cache = False

    def __init__(self, statement: str) -> None:
        self.statement = statement


@compiles(_VerbatimStatement)
def _compile_verbatim(element: _VerbatimStatement, _compiler: Any, **_: Any) -> str:
    return element.statement


def run_or_print(context: MigrationContext, statements: Iterable[str]) -> None:
    """Run or print SQL text unchanged: colons do not begin parameters, and percent signs are not
    doubled.
    """
    for statement in statements:
        if context.as_sql:
            context.impl.execute(_VerbatimStatement(statement))
        else:
            assert context.bind is not None
            open_database(context.bind).run(statement)


@contextmanager
def every_statement(conn: Connection, written: Callable[[str], str]) -> Iterator[None]:
    """Replace each statement that the connection runs in the block by what ``written`` returns."""

    def rewrite(
        _conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> tuple[str, Any]:
        return written(statement), parameters

    sa.event.listen(conn, "before_cursor_execute", rewrite, retval=True)
    try:
        yield
    finally:
        sa.event.remove(conn, "before_cursor_execute", rewrite)
