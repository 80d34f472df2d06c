"""The source reads what was appended, once, and notices a file that is no longer the same."""

from pathlib import Path

import pytest
from eventlog_jsonl_source import GrowingFile

from eventlog.publisher.stream import Failure, Mark, Read, SourceLost

LINE = '{"table":"item","op":"INSERT","key":[["id",%d]],"after":{"id":%d}}\n'


def test_a_line_is_read_once_it_is_complete_and_keeps_its_event_id(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text(LINE % (1, 1) + "no JSON\n" + '{"table":')
    steps = list(GrowingFile(file, 1).steps(None, once=True))
    assert [type(step) for step in steps] == [Read, Mark, Failure, Mark]
    assert steps == list(GrowingFile(file, 1).steps(None, once=True))
    file.write_text(LINE % (1, 1) + "no JSON\n" + LINE % (2, 2))
    token = steps[-1].token
    read = [step for step in GrowingFile(file, 1).steps(token, once=True) if isinstance(step, Read)]
    assert [step.change.after for step in read] == [{"id": 2}]


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text(LINE % (1, 1))
    (*_, mark) = GrowingFile(file, 1).steps(None, once=True)
    file.write_text("")
    with pytest.raises(SourceLost):
        list(GrowingFile(file, 1).steps(mark.token, once=True))
