"""Documents in the form that the writer gives them are read by regular expressions, with the result
that the parser has (``eventlog.xds.plain``).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eventlog.changes.format import Report, RowTexts
from eventlog.conversion import read_changes, read_texts
from eventlog.core.typed import to_text
from eventlog.errors import XdsError
from eventlog.model import AttributeSteps, Change, ChangeOp, Event, Op, Operation, Step
from eventlog.xds.format import FORMAT, ParsedDocument, parse_events, read_events
from eventlog.xds.plain import event_of, read_plain
from eventlog.xds.writer import Header, file_form, line_form, write_event

ADD, REMOVE, ALL = Op.ADD, Op.REMOVE, Op.REMOVE_ALL


def attribute(name: str, kind: str, *steps: tuple[Op, tuple[str, ...]]) -> AttributeSteps:
    return AttributeSteps(name, kind, tuple(Step(*step) for step in steps))


EVENTS = [
    Event(Operation.ADD, "usr", "idu=1,table=usr", "7", (
        attribute("fname", "string", (ADD, ("Ann & <b>",))),
        attribute("lname", "string", (ADD, ("",))),
        attribute("age", "int", (ADD, ("-12",))),
        attribute("phone.no", "string", (ADD, ("1", "2\n\r", "\t3 "))),
    )),
    Event(Operation.ADD, "usr", "idu=2,table=usr", "", ()),
    Event(Operation.MODIFY, 'us"r', '"i""="a\\"b",table=usr', "7.2", (
        attribute("fname", "string", (ALL, ()), (ADD, ("é\u0085\U0001f600",))),
        attribute("made", "time", (REMOVE, ("1",)), (ADD, ("2",))),
        attribute("photo", "octet", (REMOVE, ("qqo=",))),
        attribute("is_on", "string", (ALL, ())),
        attribute("phone.no", "int", (REMOVE, ("1", "2")), (ADD, ("3", "4"))),
    )),
    Event(Operation.DELETE, "usr\t", "idu=3,table=usr", "9", ()),
]  # fmt: skip
HEADER = Header('eventlog "&"', "1.0 <2>")


def plain(data: bytes) -> ParsedDocument | None:
    found = read_plain(data, event_of)
    return found and ParsedDocument(found.events, False, found.product_name, found.product_version)


def parsed(data: bytes) -> ParsedDocument | None:
    try:
        return parse_events(data)
    except XdsError:
        return None


def documents() -> list[bytes]:
    texts = [write_event(event) for event in EVENTS]
    return [
        line_form(texts, HEADER).encode(),
        file_form(texts, HEADER).encode(),
        *(line_form([text], Header("", "")).encode() for text in texts),
    ]


def test_a_plain_document_is_read_as_any_other() -> None:
    for document in documents():
        found = plain(document)
        assert found is not None
        assert found == parse_events(document) == read_events(document)
        assert [type(event) for event in found.events] == [Event] * len(found.events)
    found = plain(documents()[0])
    assert found is not None
    assert list(found.events) == EVENTS


def test_a_document_with_any_change_is_read_as_the_parser_reads_it_or_not_at_all() -> None:
    chance = random.Random(7)
    inserts = [
        *(bytes([code]) for code in range(256)),
        *(b"<!--x-->", b"<?p x?>", b"<![CDATA[x]]>", b"]]>", b"&#0;", b"&x;", b"&#65;", b"&amp;"),
        *(
            b'<value type="int">1</value>',
            b'<value type="dn">1</value>',
            b'<value type="x">1</value>',
        ),
        *(b"<remove-all-values/>", b"<add-value/>", b"</modify>", b"</add>", b"<!DOCTYPE nds>"),
        *("\ufffe".encode(), "\uffff".encode(), b"\xed\xa0\x80", b"\xc0\xaf"),
    ]
    read = 0
    for document in documents()[:1] + documents()[2:]:
        for _ in range(4000):
            at = chance.randrange(len(document))
            end = at + chance.choice((0, 0, 1, 1, chance.randrange(40)))
            changed = document[:at] + chance.choice((b"", *inserts)) + document[end:]
            found = plain(changed)
            if found is not None:
                read += 1
                assert found == parsed(changed), changed
    assert read > 500


def test_parts_in_any_order_are_read_as_the_parser_reads_them_or_not_at_all() -> None:
    chance = random.Random(8)
    parts = [
        '<add-attr attr-name="a">', "</add-attr>", '<modify-attr attr-name="b">', "</modify-attr>",
        '<value type="string">x</value>', '<value type="int">1</value>', "<value>1</value>",
        '<value type="time">1</value>', '<value type="string">infinity</value>',
        "<remove-value>", "</remove-value>", "<add-value>", "</add-value>",
        "<remove-all-values/>", '<modify-attr attr-name="">', " ", "x",
    ]  # fmt: skip
    whole = [
        '<add-attr attr-name="a"><value type="int">1</value></add-attr>',
        '<modify-attr attr-name="b"><remove-all-values/></modify-attr>',
        '<modify-attr attr-name="b"><remove-value><value type="int">1</value></remove-value>'
        '<add-value><value type="string">NaN</value></add-value></modify-attr>',
        '<modify-attr attr-name="b"></modify-attr>',
    ]
    read = 0
    for _ in range(6000):
        chosen = chance.choice((parts, whole, whole + parts))
        inside = "".join(chance.choices(chosen, k=chance.randrange(4)))
        operation = chance.choice(("add", "modify", "delete"))
        document = line_form(
            [
                f'<{operation} class-name="{chance.choice(("c", "c", "c", ""))}" event-id="1">'
                f"<association>{chance.choice(('a', 'a', 'a', ''))}</association>{inside}"
                f"</{operation}>"
            ],
            HEADER,
        ).encode()
        found = plain(document)
        if found is not None:
            read += 1
            assert found == parsed(document), document
    assert read > 500


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<nds/>",
        line_form(['<status level="success" type="heartbeat"/>'], HEADER).encode(),
        line_form([write_event(EVENTS[0])], HEADER).encode("utf-16"),
        file_form([write_event(EVENTS[0])], HEADER, indent=2).encode(),
    ],
)
def test_documents_of_other_forms_are_left_to_the_parser(document: bytes) -> None:
    assert read_plain(document, event_of) is None


# --- the texts of new values ----------------------------------------------------------------------

CATALOG = {
    "dialect": "postgresql",
    "tables": [
        {
            "name": "usr",
            "columns": [
                {"name": "idu", "type": "integer"},
                {"name": "fname", "type": "text"},
                {"name": "pay", "type": "numeric(9,2)"},
                {"name": "made", "type": "timestamp"},
            ],
            "kind": "table",
            "primary_key": ["idu"],
        }
    ],
}
VALUES = {
    "fname": ["a & b", "", "é"],
    "pay": ["1.50", "NaN", "x"],
    "made": ["1767225600", "infinity"],
}
TYPES = {"fname": "string", "pay": "string", "made": "time"}


def test_the_texts_of_a_change_are_those_of_its_values(tmp_path: Path) -> None:
    chance = random.Random(9)
    seen = set()
    for number in range(1500):
        operation = chance.choice(list(Operation))
        names = chance.sample([*TYPES, *(["other"] * (number % 20 == 0))], k=chance.randrange(1, 4))
        attributes = []
        for name in names:
            text = chance.choice(VALUES.get(name, ["1"]))
            kind = "string" if text == "infinity" else TYPES.get(name, "string")
            steps: list[tuple[Op, tuple[str, ...]]] = [(ADD, (text,))]
            if operation is Operation.MODIFY:
                steps = chance.choice(
                    ([(ALL, ()), *steps], [(REMOVE, (text,)), *steps], steps, [(ALL, ())])
                )
            attributes.append(attribute(name, kind, *steps))
        key = chance.choice(("idu=1", "idu=1", "idu=007", "idu=x", '"idu"="1"'))
        given = () if operation is Operation.DELETE else tuple(attributes)
        event = Event(operation, "usr", f"{key},table=usr", "1", given)
        path = tmp_path / "one.xmll"
        path.write_bytes(line_form([write_event(event)], HEADER).encode())
        reports = Report(), Report()
        changes = list(read_changes("xds", path, report=reports[0], catalog=CATALOG))
        found = list(read_texts(FORMAT, path, reports[1], {"catalog": CATALOG}))
        assert reports[0] == reports[1]
        for change, one in zip(changes, found, strict=True):
            seen.add(type(one))
            if not isinstance(one, RowTexts):
                assert repr(one) == repr(change)  # NaN is never equal
                continue
            assert change.after is not None
            assert change.key is not None
            texts = {
                name: None if value is None else to_text(value)
                for name, value in change.after.items()
                if name != "idu"
            }
            assert (one.table, one.key, dict(one.texts)) == (
                "usr",
                f"idu={change.key[0][1]}",
                texts,
            )
            assert one.is_insert is (change.op is ChangeOp.INSERT)
    assert seen == {RowTexts, Change}
