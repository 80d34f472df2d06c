"""A publisher without a server for the test; a followed stream and its position; change events are
checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connect_records import check
from fake_publisher import FakePublisher, NewWorld, with_options
from followed_stream import Stream
from installed_package import Install, installing

from eventlog.core import clock
from eventlog.debezium.writer import EnvelopeWriter
from eventlog.model import KafkaRecord, LogRow


class Ticking(clock.Machine):
    """A machine whose clock only goes on when it is looked at: the result of a cycle does not depend
    on how fast the machine of the test is.
    """

    def __init__(self) -> None:
        self.now = super().monotonic()

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    """Publishers with a fake log, a fake receiver and their own clock."""
    worlds: list[FakePublisher] = []

    def new(rows: list[LogRow], **options: Any) -> FakePublisher:
        worlds.append(FakePublisher(with_options(**options)))
        worlds[-1].log(rows)
        return worlds[-1]

    with clock.simulated(Ticking()):
        yield new
    for fake in worlds:
        fake.close()


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A CDC stream in a file that grows."""
    return Stream(tmp_path / "capture.cdc")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the position is kept."""
    return tmp_path / "position.db"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """What puts a package with entry points in place."""
    with installing(tmp_path, monkeypatch) as install:
        yield install


@pytest.fixture(autouse=True, scope="session")
def _connect_reads_every_record() -> Iterator[None]:
    """Every change event with a schema that a test writes is one that Kafka Connect reads, by its
    words and forms.
    """
    write = EnvelopeWriter.records

    def checked(self: EnvelopeWriter, *arguments: Any, **named: Any) -> list[KafkaRecord]:
        records = write(self, *arguments, **named)
        if self.options.schemas_enable:
            for record in records:
                check(record.key)
                check(record.value)
        return records

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvelopeWriter, "records", checked)
        yield
