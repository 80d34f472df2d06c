"""What tells one log from another: whose the directory of the files sink is (spec/event-log.md
10).
"""

from __future__ import annotations

from dataclasses import replace

from platforms import Platform


def test_a_log_has_an_identity_that_no_other_log_has(platform: Platform) -> None:
    platform.install()
    found = []
    for _ in range(2):
        with platform.session() as (conn, log):
            found.append(platform.dialect.open(conn).log(log).identity())
            other = platform.dialect.open(conn).log(replace(log, name=f"{log.name}2")).identity()
    assert len({*found}) == 1
    assert found[0].startswith(f"{platform.name}/")
    assert other not in found
