"""XDS documents as a source: one a line, one a file, a directory of files (spec/xds.md 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, XdsError
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named

XDS = format_named("xds")
READ = XDS.read
each_reader = pytest.mark.parametrize("read", [XDS.read, XDS.texts], ids=["changes", "texts"])


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
    assert report.counters == {"other_elements sync": 1, "other_elements query": 1}


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


def added(*parts: str, association: str = "<association>id=1,table=item</association>") -> str:
    inside = association + "".join(parts)
    return f'<add class-name="item" event-id="1">{inside}</add>'


def attribute(*values: str) -> str:
    return f'<add-attr attr-name="name">{"".join(values)}</add-attr>'


NAME = attribute('<value type="string">Ann</value>')

UNREADABLE = {
    "value type of an engine": added(attribute('<value type="structured"><component/></value>')),
    "telephone number": added(attribute('<value type="teleNumber">1</value>')),
    "no association": added(NAME, association=""),
    "two associations": added(NAME, "<association>id=2,table=item</association>"),
    "element of the vocabulary in a wrong place": added('<modify-attr attr-name="name"/>'),
    "attribute without values": added('<add-attr attr-name="name"/>'),
    "modify without attributes": added().replace("add", "modify"),
    "empty add-value": added(
        '<modify-attr attr-name="name"><remove-all-values/><add-value/></modify-attr>'
    )
    .replace("<add ", "<modify ")
    .replace("</add>", "</modify>"),
    "key that cannot be read": delete(1, "=5"),
}


@pytest.mark.parametrize("unreadable", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("is_line", [True, False], ids=["line", "file"])
@each_reader
def test_only_the_event_that_cannot_be_read_is_skipped(
    tmp_path: Path, unreadable: str, is_line: bool, read: Callable[..., Iterator[Any]]
) -> None:
    path = tmp_path / ("in.xmll" if is_line else "in.xml")
    text = document(delete(7), unreadable, delete(8))
    path.write_text(f"{document(delete(6))}\n{text}\n" if is_line else text.replace("><", ">\n<"))
    report = Report()
    assert [change.position for change in read(str(path), {}, report)] == [
        *(["6"] if is_line else []),
        "7",
        "8",
    ]
    (problem,) = report.problems
    assert problem.startswith(f"{path}, line 2: " if is_line else f"{path}")


def test_what_an_engine_adds_is_passed_over_and_named_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "in.xml"
    secret = "<password>s3cret</password>"
    event = added(f'<operation-data key="s3cret">{secret}</operation-data>\n', NAME, f"\n{secret}")
    path.write_text(document(event, f"\n<modify-password>{secret}</modify-password>", delete(2)))
    report = Report()
    assert positions(path, report) == ["1", "2"]
    assert report.counters == {
        "other_elements operation-data": 1,
        "other_elements password": 1,
        "other_elements modify-password": 1,
    }
    assert report.problems == [
        f"{path}, line 1: element operation-data in add is not used",
        f"{path}, line 3: element password in add is not used",
        f"{path}, line 4: element modify-password in input is not used",
    ]


@each_reader
def test_line_breaks_around_an_association_do_not_count(
    tmp_path: Path, read: Callable[..., Iterator[Any]]
) -> None:
    path = tmp_path / "in.xmll"
    indented = "<association>\n        id=1,table=item,schema=app\r\n      </association>"
    path.write_text(document(added(NAME, association=indented)))
    report = Report(strict=True)
    (change,) = read(str(path), {}, report)
    assert isinstance(change, Change)
    assert (change.schema, change.key) == ("app", (("id", "1"),))


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
