"""XDS documents as a source: one a line, one a file, a directory of files (spec/xds.md 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, XdsError
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named

READ = format_named("xds").read


def document(*events: str) -> str:
    return (
        '<nds dtdversion="2.0"><source><product '
        f'version="1">p</product></source><input>{"".join(events)}</input></nds>'
    )


def delete(number: int, key: str | None = None) -> str:
    association = f"<association>{key or f'id={number}'},table=item,schema=app</association>"
    return f'<delete class-name="item" event-id="{number}">{association}</delete>'


HEARTBEAT = '<status level="success" type="heartbeat"/>'


def changes(path: Path, report: Report | None = None, **options: object) -> list[Change]:
    return list(READ(str(path), options, report or Report(strict=True)))


def positions(path: Path, report: Report | None = None) -> list[str | None]:
    return [change.position for change in changes(path, report)]


@pytest.mark.parametrize(
    "text",
    [
        f"{document(delete(1), delete(2))}\n{document(delete(3))}\n",
        f'<?xml version="1.0"?>{document(delete(1), delete(2))}\n\n<?xml '
        f'version="1.0"?>{document(delete(3))}',
        f'<?xml version="1.0" encoding="UTF-8"?>\n{document(delete(1), delete(2), delete(3))}',
        document(delete(1), delete(2), delete(3)).replace("><", ">\n  <"),
        f"<!-- by hand -->\n{document(delete(1), delete(2), delete(3))}",
    ],
)
def test_a_file_is_one_document_or_one_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.xml").write_text(text)
    assert positions(tmp_path / "in.xml") == ["1", "2", "3"]


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "2.xml").write_text(document(delete(3)))
    (tmp_path / "1.xmll").write_text(f"{document(delete(1))}\n{document(delete(2))}\n")
    (tmp_path / "notes.txt").write_text("not a document")
    assert positions(tmp_path) == ["1", "2", "3"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"contains no \.xml"):
        positions(tmp_path / "empty")


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_file_of_nothing_holds_no_changes(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.xmll").write_text(text)
    assert positions(tmp_path / "in.xmll") == []


def test_status_and_other_elements_are_no_changes(tmp_path: Path) -> None:
    (tmp_path / "in.xmll").write_text(
        f"{document(HEARTBEAT)}\n{document(delete(1), '<sync/>', '<query/>')}\n"
    )
    report = Report()
    assert positions(tmp_path / "in.xmll", report) == ["1"]
    assert report.counters == {"other_elements": 2}


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "in.xmll"
    path.write_text(
        "\n".join([document(delete(1)), "<nds>", document(delete(2, "=5"), delete(3)), "", "<x/>"])
    )
    report = Report()
    assert positions(path, report) == ["1", "3"]
    assert report.counters == {"xds": 2, "invalid_format": 1}
    named = [
        "in.xmll, line 2: ",
        "in.xmll, line 3: delete of 'item', event '2'",
        "in.xmll, line 5: ",
    ]
    for part, problem in zip(named, report.problems, strict=True):
        assert part in problem
    with pytest.raises(XdsError, match="line 2"):
        positions(path)


def test_a_document_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "in.xmll"
    path.write_text(f"{document(delete(1))}\n{document(*map(delete, range(50)))}\n")
    with pytest.raises(XdsError, match="line 2: longer than 1000 bytes"):
        changes(path, limit=1000)


def test_documents_of_type_5_rows_read_as_updates(tmp_path: Path) -> None:
    (tmp_path / "in.xml").write_text(
        document(
            '<modify class-name="usr" '
            'event-id="1"><association>idu=1,table=usr</association><modify-attr '
            'attr-name="fname"><remove-all-values/><add-value><value '
            'type="string">John</value></add-value>'
            "</modify-attr></modify>"
        )
    )
    (change,) = changes(tmp_path / "in.xml")
    assert (change.op, change.before, change.after) == (
        ChangeOp.UPDATE,
        None,
        {"idu": "1", "fname": "John"},
    )
