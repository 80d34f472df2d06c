"""An installation with its roles for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hr_site import Site, new_site


@pytest.fixture
def site(database: sa.Engine, empty_home: Path) -> Iterator[Site]:
    with new_site(database) as made:
        yield made
