"""Positions, markers and progress in files that others have changed: an error names the file."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventlog.errors import EventlogError
from eventlog.gbase.options import Token
from eventlog.publisher.sinks import files as sink_files
from eventlog.publisher.stream.stream_files import FilesPosition
from eventlog.qlik.tables import file_tables
from eventlog.qlik.tables.stored_tables import WriteOptions
from eventlog.verify import session

HOSTILE = [
    "[" * 200_000, '{"a":' * 200_000, "1e999", '{"prefix": "1", "number": 1e999}', "[]", '"x"', "{}",
    "null", "\ud800", '{"begun": 1}', "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_state_that_others_changed_is_refused(tmp_path: Path, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    (tmp_path / sink_files.MARKER).write_bytes(content)
    (tmp_path / file_tables.STATE_FILE).write_bytes(content)
    (tmp_path / "progress").write_bytes(content)
    work = cast("Any", SimpleNamespace(report=SimpleNamespace(log=None, reader=None, target=None)))
    with pytest.raises(EventlogError):
        Token.of(text if text != "{}" else "[]")
    with pytest.raises(EventlogError):
        sink_files.marked_owner(tmp_path)
    with pytest.raises(EventlogError):
        session.resume_from(tmp_path / "progress", work)
    store = file_tables.FileStore(tmp_path, WriteOptions())
    with pytest.raises(EventlogError):
        store.stored_state()


def test_a_position_that_expands_is_refused() -> None:
    packing = zlib.compressobj(9)
    packed = b"".join(packing.compress(bytes(1 << 20)) for _ in range(100)) + packing.flush()
    place = {"file": "a", "offset": 0, "digest": ""}
    position = {"restart": place, "read": place, "size_order": None, "between": []}
    with pytest.raises(EventlogError, match="more than 67108864 bytes"):
        FilesPosition.of({**position, "tables": base64.b64encode(packed).decode()})
    with pytest.raises(EventlogError, match="no place in a stream"):
        FilesPosition.of({**position, "tables": "", "read": json.loads('{"offset": 1e999}')})
