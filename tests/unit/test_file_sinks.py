"""Documents to files: whole or not at all, named so that a repeated document replaces itself
(spec/event-log.md 10).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Document
from eventlog.publisher.sinks import Opening
from eventlog.publisher.sinks import files as sinks
from eventlog.publisher.sinks.files import DocumentFiles, FileOptions, FilesSink, LineFiles
from eventlog.registry import format_named

LARGE = "x" * 200_000 + "\n"


def document(delivery_no: int, document_no: int, body: str = "") -> Document:
    return Document(
        delivery_no, document_no, (), (body or f"{delivery_no}/{document_no}\n").encode()
    )


def files(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


@pytest.mark.promise("sink files")
def test_a_document_is_a_file_named_after_delivery_and_document(tmp_path: Path) -> None:
    sink = DocumentFiles(tmp_path)
    sink.send(document(3, 1, "é\n"))
    sink.send(document(12, 128))
    assert files(tmp_path) == {
        "000000000003-000001.xml": "é\n",
        "000000000012-000128.xml": "12/128\n",
    }


def test_a_document_that_is_sent_again_replaces_itself(tmp_path: Path) -> None:
    sink = DocumentFiles(tmp_path)
    sink.send(document(3, 1, "before"))
    sink.send(document(3, 1, "after"))
    assert files(tmp_path) == {"000000000003-000001.xml": "after"}


def test_a_delivery_is_a_file_of_lines_that_is_there_when_it_is_complete(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    sink.send(document(3, 1))
    sink.send(document(3, 2))
    assert [path.name for path in tmp_path.glob("*.xmll")] == []
    sink.flush()
    assert files(tmp_path) == {"000000000003-000001.xmll": "3/1\n3/2\n"}


def test_a_delivery_that_is_marked_in_parts_is_one_file_per_part(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    for document_no in (1, 2, 3):
        sink.send(document(3, document_no))
        if document_no == 2:
            sink.flush()
    sink.flush()
    sink.flush()
    assert files(tmp_path) == {
        "000000000003-000001.xmll": "3/1\n3/2\n",
        "000000000003-000003.xmll": "3/3\n",
    }


def test_a_file_that_is_there_already_gains_no_events(tmp_path: Path) -> None:
    killed_before_its_marks = LineFiles(tmp_path)
    killed_before_its_marks.send(document(3, 1))
    killed_before_its_marks.flush()
    sink = LineFiles(tmp_path)
    for document_no in (1, 2, 3):
        sink.send(document(3, document_no))
    sink.flush()
    assert files(tmp_path) == {
        "000000000003-000001.xmll": "3/1\n",
        "000000000003-000002.xmll": "3/2\n3/3\n",
    }


def test_a_document_after_a_gap_has_its_own_file_so_that_names_sort_like_documents(
    tmp_path: Path,
) -> None:
    sink = LineFiles(tmp_path)
    for number in (1, 2, 5, 6):
        sink.send(document(7, number))
    sink.flush()
    assert files(tmp_path) == {
        "000000000007-000001.xmll": "7/1\n7/2\n",
        "000000000007-000005.xmll": "7/5\n7/6\n",
    }


def test_other_formats_have_other_endings(tmp_path: Path) -> None:
    for sink in (DocumentFiles(tmp_path, ".json"), LineFiles(tmp_path, ".jsonl")):
        sink.send(document(3, 1))
        sink.close() if isinstance(sink, DocumentFiles) else sink.flush()
    assert list(files(tmp_path)) == ["000000000003-000001.json", "000000000003-000001.jsonl"]


def test_each_delivery_has_its_own_file(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    sink.send(document(3, 1))
    sink.send(document(4, 1))
    sink.flush()
    assert files(tmp_path) == {
        "000000000003-000001.xmll": "3/1\n",
        "000000000004-000001.xmll": "4/1\n",
    }


@pytest.mark.parametrize("make", [DocumentFiles, LineFiles])
def test_what_was_left_half_written_is_removed_at_the_start(
    tmp_path: Path, make: type[DocumentFiles] | type[LineFiles]
) -> None:
    directory = tmp_path / "not" / "there"
    make(directory)
    (directory / ".000000000003-000001.xml.part").touch()
    (directory / "000000000002-000001.xml").touch()
    make(directory)
    assert list(files(directory)) == ["000000000002-000001.xml"]


@pytest.mark.parametrize("kind", [DocumentFiles, LineFiles])
def test_a_name_that_a_killed_publisher_gave_is_durable_from_the_start(
    tmp_path: Path, kind: type[DocumentFiles | LineFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(sinks, "sync_path", synced.append)
    kind(tmp_path)
    assert synced == [tmp_path]


def test_lines_that_were_not_flushed_are_dropped_at_the_end(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    sink.send(document(3, 1))
    sink.close()
    assert files(tmp_path) == {}


def disk_full(directory: Path, name: str) -> Path:
    """The file that is written next is a full disk."""
    path = directory / f".{name}.part"
    path.symlink_to("/dev/full")
    return path


@pytest.mark.parametrize("body", ["short\n", LARGE])
def test_a_document_that_cannot_be_written_has_no_answer(tmp_path: Path, body: str) -> None:
    sink = DocumentFiles(tmp_path)
    full = disk_full(tmp_path, "000000000003-000001.xml")
    with pytest.raises(ReceiverUnavailable, match="No space left"):
        sink.send(document(3, 1, body))
    full.unlink()
    sink.send(document(3, 1, body))
    assert files(tmp_path) == {"000000000003-000001.xml": body}


def test_lines_that_cannot_be_made_durable_do_not_count(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    full = disk_full(tmp_path, "000000000003-000001.xmll")
    sink.send(document(3, 1))
    with pytest.raises(ReceiverUnavailable, match="No space left"):
        sink.flush()
    full.unlink()
    sink.send(document(3, 1))
    sink.flush()
    assert files(tmp_path) == {"000000000003-000001.xmll": "3/1\n"}


def test_a_file_with_a_torn_line_is_never_there(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    full = disk_full(tmp_path, "000000000003-000001.xmll")
    sink.send(document(3, 1))
    with pytest.raises(ReceiverUnavailable, match="No space left"):
        sink.send(document(3, 2, LARGE))
    # The first document was in the file that is dropped: it must not count either.
    with pytest.raises(
        ReceiverUnavailable, match=rf"{tmp_path}/.* has been dropped: No space left on device"
    ):
        sink.flush()
    assert not full.is_symlink()
    sink.send(document(3, 1))
    sink.send(document(3, 2, LARGE))
    sink.flush()
    assert files(tmp_path) == {"000000000003-000001.xmll": f"3/1\n{LARGE}"}


def test_lines_that_were_lost_when_another_delivery_began_do_not_count(tmp_path: Path) -> None:
    sink = LineFiles(tmp_path)
    full = disk_full(tmp_path, "000000000003-000001.xmll")
    sink.send(document(3, 1))
    with pytest.raises(ReceiverUnavailable, match="No space left"):
        sink.send(document(4, 1))
    sink.send(document(4, 1))
    with pytest.raises(ReceiverUnavailable, match="No space left"):
        sink.flush()
    full.unlink()
    sink.send(document(3, 1))
    sink.send(document(4, 1))
    sink.flush()
    assert files(tmp_path) == {
        "000000000003-000001.xmll": "3/1\n",
        "000000000004-000001.xmll": "4/1\n",
    }


@pytest.mark.parametrize("make", [DocumentFiles, LineFiles])
def test_a_directory_that_cannot_be_made_is_a_clear_error(
    tmp_path: Path, make: type[DocumentFiles] | type[LineFiles]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"sink directory .*file/below: Not a directory"):
        make(tmp_path / "file" / "below")


def test_a_directory_is_tried_by_a_file_that_is_removed_again(tmp_path: Path) -> None:
    opening = Opening(format_named("xds"), sys.stdout)
    running = tmp_path / ".000000000003-000001.xmll.part"
    running.write_text("of a publisher that runs")
    assert FilesSink.try_out(FileOptions(tmp_path), opening) == f"{tmp_path} can be written"
    assert list(tmp_path.iterdir()) == [running]
    assert "the publisher will create it" in FilesSink.try_out(
        FileOptions(tmp_path / "no"), opening
    )
    with pytest.raises(ReceiverUnavailable, match="cannot be written"):
        FilesSink.try_out(FileOptions(Path("/proc")), opening)
