"""The GRANTs of the pages are the rights of the list (spec/event-log.md 11.1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventlog.sql.port.rights import RIGHTS, Part, Purpose, Right

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = (
    Part.LOG, Part.ERROR, Part.INFLIGHT, Part.STATE, Part.EPOCH, Part.CONSUMER, Part.CAPTURED,
)  # fmt: skip
GRANT = re.compile(
    r"^GRANT (?P<rights>[^;]+?) ON (?P<names>[^;]+?) TO `?publisher`?;", re.MULTILINE
)


def granted(text: str) -> dict[Part, set[str]]:
    """What the first block of GRANTs to a publisher gives on each internal table."""
    found: dict[Part, set[str]] = {}
    for grant in GRANT.finditer(text):
        for name in re.split(", *", grant["names"]):
            table = name.replace("`", "").split(".")[-1]
            part = "log" if table == "eventlog" else table.removeprefix("eventlog_")
            if part in TABLES and Part(part) not in found:
                found[Part(part)] = set(grant["rights"].split(", "))
    return found


@pytest.mark.parametrize(
    "page",
    ["docs/guides/install.md", "docker/grants.sql", "docker/oracle/grants.sql"],
)
def test_a_page_grants_a_publisher_what_its_work_needs(page: str) -> None:
    needed = {
        part: {"UPDATE (status)" if right is Right.MARK else right.value for right in rights}
        - {Right.LOCK.value}
        for part, rights in RIGHTS[Purpose.PUBLISHER].items()
        if part in TABLES
    }
    text = (ROOT / page).read_text(encoding="utf-8").replace("(`status`)", "(status)")
    assert granted(text) == needed
