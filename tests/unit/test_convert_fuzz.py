"""Whatever stands in a file: its reader gives changes or passes it over, or reports what is wrong,
and nothing else.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loss_formats import CATALOG
from loss_samples import SAMPLES
from shared import examples

from eventlog.changes.format import Report
from eventlog.conversion import convert
from eventlog.errors import EventlogError
from eventlog.registry import format_named

SOURCES: list[tuple[str, str, dict[str, Any]]] = [
    ("xds", "in.xmll", {}),
    ("eventlog", "in.jsonl", {}),
    ("eventlog", "in.csv", {}),
    ("eventlog", "in.parquet", {}),
    ("cloudevents", "in.jsonl", {}),
    ("cloudevents", "in.jsonl", {"mode": "batched"}),
    ("debezium", "in.jsonl", {}),
    ("debezium", "in.jsonl", {"schemas_enable": False}),
    ("jsonl", "in.jsonl", {}),
    ("qlik-messages", "in.jsonl", {}),
    ("qlik-messages", "in.jsonl", {"encoding": "avro"}),
    ("qlik-change-table", "tables", {"file_format": "csv"}),
    ("qlik-change-table", "tables", {"file_format": "json"}),
    ("qlik-change-table", "tables", {"file_format": "parquet"}),
]


def sample(tmp_path: Path, format: str, place: str, writer: dict[str, Any]) -> Path:
    """A good file of the format: of change tables, that of the only one."""
    SAMPLES["E"](tmp_path / "log.jsonl")
    good = tmp_path / place
    convert(
        "eventlog",
        format,
        str(tmp_path / "log.jsonl"),
        str(good),
        {"catalog": CATALOG, "writer": writer},
    )
    return next(good.glob("*__ct/*")) if good.is_dir() else good


@pytest.mark.parametrize(("format", "place", "writer"), SOURCES)
def test_a_damaged_file_is_passed_over_or_refused(
    tmp_path: Path, format: str, place: str, writer: dict[str, Any]
) -> None:
    path = sample(tmp_path, format, place, writer)
    good = path.read_bytes()
    reader = format_named(format)

    @settings(
        max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        content = bytearray(good)
        for _ in range(data.draw(st.integers(0, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(bytes(content[:cut]) + data.draw(st.binary(max_size=20)))
        for options in ({}, {"catalog": CATALOG}):
            with contextlib.suppress(EventlogError):
                list(reader.read(str(tmp_path / place), options, Report()))

    damaged()


def test_damaged_binary_messages_are_passed_over_or_refused(tmp_path: Path) -> None:
    path = sample(tmp_path, "qlik-messages", "in.jsonl", {"encoding": "avro"})
    good = [json.loads(line) for line in path.read_text().splitlines()]
    reader = format_named("qlik-messages")

    @settings(
        max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        lines = [dict(line) for line in good]
        for _ in range(data.draw(st.integers(1, 3))):
            one = data.draw(st.sampled_from(lines))
            value = bytearray.fromhex(one["value"]["hex"])
            if value:
                value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(
                    st.integers(0, 7)
                )
            one["value"] = {
                "hex": value[: data.draw(st.integers(0, len(value)) | st.just(len(value)))].hex()
            }
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with contextlib.suppress(EventlogError):
            list(reader.read(str(path), {}, Report()))

    damaged()
