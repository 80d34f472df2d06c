"""Each role can do its whole work with what `eventlog grants` prints, and no right is superfluous
(spec/event-log.md 11.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mysql_servers
import pytest
from rights_work import WORK
from roles import Worker, granted, role_of_family, role_of_postgresql, superfluous
from shared import Run, Unhesitating

from eventlog.core import clock
from eventlog.sql.port.rights import RIGHTS, Part, Purpose


@pytest.fixture(params=["postgresql", *mysql_servers.params()])
def worker(request: pytest.FixtureRequest, empty_home: Path) -> Iterator[Worker]:
    if request.param == "postgresql":
        made = role_of_postgresql(request.getfixturevalue("filled_database"))
    else:
        made = role_of_family(request.getfixturevalue("started_server")(request.param))
    with made as role, clock.simulated(Unhesitating()):
        yield role


@pytest.mark.parametrize("purpose", [*WORK])
def test_a_role_works_with_its_rights_and_needs_each_of_them(
    worker: Worker, run: Run, purpose: Purpose
) -> None:
    if purpose in (Purpose.CONSUMER, Purpose.RESET, Purpose.VERIFY) and not worker.has_consumers:
        pytest.skip("the database has no consumers of a log")
    statements = granted(worker, run, purpose)
    WORK[purpose](worker)
    may_read_revision = Part.VERSION in RIGHTS[purpose]
    refused = [
        statement
        for statement in worker.refused()
        if may_read_revision or "eventlog_version" not in statement  # `doctor` goes on without it
    ]
    assert refused == []
    assert superfluous(worker, purpose, statements, WORK[purpose]) == []
