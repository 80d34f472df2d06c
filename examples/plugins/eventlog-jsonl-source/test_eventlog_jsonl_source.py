"""The source passes eventlog's conformance kit, and reads no line before its end."""

from pathlib import Path

import pytest
from eventlog_jsonl_source import GrowingFile, JsonlFile, JsonlFileOptions

from eventlog.publisher.stream import Failure, Mark, Read
from eventlog.testing.source_kit import *  # noqa: F403
from eventlog.testing.source_kit import SourceCase

LINE = '{"table":"item","op":"INSERT","key":[["id",%d]],"after":{"id":%d}}\n'


@pytest.fixture
def source_case(tmp_path: Path) -> SourceCase:
    file = tmp_path / "changes.jsonl"
    file.touch()

    def feed(number: int) -> None:
        with file.open("a") as lines:
            lines.writelines(LINE % (key, key) for key in range(number))

    def lose() -> None:
        file.write_text("")

    return SourceCase(JsonlFile, JsonlFileOptions(path=file), feed, lose)


def test_a_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text(LINE % (1, 1) + "no JSON\n" + '{"table":')
    steps = list(GrowingFile(file, 1).steps(None, once=True))
    assert [type(step) for step in steps] == [Read, Mark, Failure, Mark]
