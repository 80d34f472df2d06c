"""What the tests of PostgreSQL alone share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from trigger_log import Watched, run


@pytest.fixture
def writer(usr: Watched) -> Iterator[str]:
    name = "eventlog_test_writer"
    run(usr.conn, f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name}", f"GRANT ALL ON usr, usr_phone TO {name}")
    yield name
    usr.conn.rollback()
