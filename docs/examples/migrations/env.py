"""Alembic runs this for every command: an ordinary env.py with two lines for eventlog, which are
marked.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context
from models import metadata

import eventlog.alembic  # 1: the operations, and what compares

# 2: the watches in the tables' info, or an eventlog.toml
watched = eventlog.alembic.options(log_table="eventlog")
url = context.get_x_argument(as_dictionary=True).get("url") or context.config.get_main_option(
    "sqlalchemy.url"
)


def run_offline() -> None:
    context.configure(url=url, target_metadata=metadata, literal_binds=True, **watched)
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, **watched)
        with context.begin_transaction():
            context.run_migrations()


run_offline() if context.is_offline_mode() else run_online()
