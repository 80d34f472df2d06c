"""Whatever stands in a file: its reader gives changes or passes it over, or says what is wrong, and nothing else."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loss_samples import SAMPLES
from loss_table import CATALOG

from eventlog.convert import convert, format_named
from eventlog.errors import EventlogError
from eventlog.formats import Report

SOURCES = [("xds", "xmll"), ("eventlog", "jsonl"), ("eventlog", "csv"), ("eventlog", "parquet"), ("jsonl", "jsonl")]


def samples(tmp_path: Path, format: str, suffix: str) -> bytes:
    """A good file of the format."""
    log = tmp_path / "log.jsonl"
    SAMPLES["E"](log)
    good = tmp_path / f"good.{suffix}"
    if log.name != good.name:
        convert("eventlog", format, str(log), str(good), {"catalog": CATALOG})
    return good.read_bytes()


@pytest.mark.parametrize(("format", "suffix"), SOURCES)
def test_a_damaged_file_is_passed_over_or_refused(tmp_path: Path, format: str, suffix: str) -> None:
    good = samples(tmp_path, format, suffix)
    path = tmp_path / f"damaged.{suffix}"
    reader = format_named(format)

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        content = bytearray(good)
        for _ in range(data.draw(st.integers(0, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(bytes(content[:cut]) + data.draw(st.binary(max_size=20)))
        for options in ({}, {"catalog": CATALOG}):
            with contextlib.suppress(EventlogError):
                list(reader.read(str(path), options, Report()))

    damaged()
