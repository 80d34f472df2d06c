"""Behind a pool that lends sessions by the transaction no lock of a session holds: it is detected
and refused (spec/event-log.md 12).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from publishers import configuration, make_log, write
from transaction_pool import transaction_pool

from eventlog.errors import DatabaseError
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.sql.connect.connection import connect, is_pooled
from eventlog.sql.dialects.postgresql import DIALECT


@pytest.mark.parametrize("take_oldest", [False, True], ids=["last one first", "in turn"])
def test_a_pool_in_transaction_mode_is_refused(database: sa.Engine, take_oldest: bool) -> None:
    make_log(database)
    write(database, 1)
    with transaction_pool(database.url, take_oldest) as url:
        pooled = sa.create_engine(url)
        try:
            with (
                pytest.raises(
                    DatabaseError,
                    match=r"connection pool in transaction mode.*; connect to the database",
                ),
                open_context(configuration(pooled), Counters()),
            ):
                pytest.fail("it was let in")
        finally:
            pooled.dispose()


def test_a_pool_in_statement_mode_gets_the_same_words(database: sa.Engine) -> None:
    make_log(database)
    with transaction_pool(database.url, takes_transactions=False) as url:
        pooled = sa.create_engine(url)
        try:
            with (
                pytest.raises(
                    DatabaseError,
                    match=r"a connection pool in transaction mode.*; connect to the database",
                ),
                open_context(configuration(pooled), Counters()),
            ):
                pytest.fail("it was let in")
        finally:
            pooled.dispose()


@pytest.mark.parametrize("consumer", [None, "lake"])
def test_a_stream_of_changes_is_refused_through_a_pool(
    database: sa.Engine, tmp_path: Path, consumer: str | None
) -> None:
    change_log = pytest.importorskip(
        "eventlog.spark.changes.change_log", reason="the extra spark is not installed"
    )
    make_log(database)
    with transaction_pool(database.url) as url:
        file = tmp_path / "eventlog.toml"
        file.write_text(f'[database]\nurl = "{url.render_as_string(hide_password=False)}"\n')
        with pytest.raises(DatabaseError, match="a connection pool in transaction mode"):
            change_log.ChangeLog(str(file), consumer).first()


def test_a_server_that_is_spoken_to_directly_is_not_taken_for_a_pool(database: sa.Engine) -> None:
    engine = connect(database.url)
    with engine.connect() as conn:
        assert not is_pooled(conn, DIALECT)
        assert not conn.in_transaction()


def test_a_role_with_one_connection_is_not_taken_for_the_role_of_a_pool(
    database: sa.Engine,
) -> None:
    role = f"single_{database.url.database}"
    with database.begin() as conn:
        conn.execute(sa.text(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1"))
    try:
        try:
            conn = connect(database.url.set(username=role)).connect()
        except DatabaseError:
            pytest.skip("this server lets no role in without a password")
        with conn:
            assert not is_pooled(conn, DIALECT)
    finally:
        with database.begin() as conn:
            conn.execute(sa.text(f"DROP ROLE {role}"))
