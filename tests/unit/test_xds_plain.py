"""Documents in the form that the writer gives them are read by regular expressions, with the result
that the parser has (``eventlog.xds.plain``).
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.changes.format import Report, RowTexts
from eventlog.conversion import read_changes, read_texts
from eventlog.core.values.typed_values import to_text
from eventlog.errors import XdsError
from eventlog.model import AttributeSteps, Change, ChangeOp, Event, Op, Operation, Step
from eventlog.xds.format import FORMAT
from eventlog.xds.plain import event_of, read_plain
from eventlog.xds.reader import ParsedDocument, parse_events, read_events
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


Texts = tuple[str, bool, str, dict[str, str | None]]


def texts_of(change: Change) -> Texts:
    """The table, whether it is an insert, the key and the texts of a change with new values."""
    assert change.after is not None
    assert change.key is not None
    texts = {
        name: None if value is None else to_text(value)
        for name, value in change.after.items()
        if name != "idu"
    }
    return change.table, change.op is ChangeOp.INSERT, f"idu={change.key[0][1]}", texts


def rows_of(one: RowTexts) -> list[Texts]:
    return [
        (one.table, one.is_insert, key, dict(zip(one.names, row, strict=True)))
        for key, row in zip(one.keys, one.rows, strict=True)
    ]


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
            assert rows_of(one) == [texts_of(change)]
    assert seen == {RowTexts, Change}


# Values of the columns in every form, more often valid than not.
NUMBERS = st.one_of(
    st.decimals(allow_nan=True, allow_infinity=True).map(str),
    st.from_regex(r"[-+]?0{0,2}[0-9]{0,3}(\.[0-9]{0,3})?([eE]-?[0-9])?", fullmatch=True),
)
CELLS = {
    "fname": st.text(alphabet="ab &<>\"'\t\u00e9", max_size=5),
    "pay": st.one_of(st.sampled_from(["1.50", "0", "-0.10", "-12"]), NUMBERS),
    "made": st.one_of(st.integers(0, 3).map(str), st.sampled_from(["x", "-1"])),
}
FORMS = (
    lambda text: [(ALL, ()), (ADD, (text,))],
    lambda text: [(REMOVE, ("1",)), (ADD, (text,))],
    lambda text: [(ALL, ())],
    lambda text: [(REMOVE, ("1",))],
    lambda text: [(ADD, (text,))],
    lambda text: [(ADD, (text, text))],
)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_successive_events_of_one_form_are_read_as_each_of_them(data: st.DataObject) -> None:
    """Runs of alike events, with others between them."""
    events = []
    for _ in range(data.draw(st.integers(1, 3))):
        operation = data.draw(st.sampled_from([Operation.ADD, Operation.MODIFY]))
        names = data.draw(st.lists(st.sampled_from([*CELLS]), min_size=1, unique=True))
        usual = data.draw(st.sampled_from(FORMS[:2]))
        tail = data.draw(st.sampled_from(["table=usr", "table=usr,schema=a&b"]))
        for _ in range(data.draw(st.integers(1, 14))):
            attributes = []
            for name in names:
                form = data.draw(st.sampled_from([usual] * 12 + [*FORMS]))
                steps = form(data.draw(CELLS[name]))
                if operation is Operation.ADD:
                    steps = steps[-1:] if steps[-1][0] is ADD else [(ADD, ("1",))]
                attributes.append(attribute(name, TYPES[name], *steps))
            key = data.draw(
                st.sampled_from(["idu=1", "idu=2", "idu=22", "idu=2", "idu=03", "idu=x"])
            )
            events.append(Event(operation, "usr", f"{key},{tail}", "1.2", tuple(attributes)))
    catalog = {"catalog": CATALOG}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "one.xmll"
        lines = [line_form(list(map(write_event, part)), HEADER) for part in (events, events[:9])]
        path.write_bytes("".join(lines).encode())
        reports = Report(), Report()
        changes = list(read_changes("xds", path, report=reports[0], catalog=CATALOG))
        found = list(read_texts(FORMAT, path, reports[1], catalog))
    assert reports[0] == reports[1]
    told = [row for one in found for row in (rows_of(one) if isinstance(one, RowTexts) else [one])]
    assert len(told) == len(changes)
    for change, row in zip(changes, told, strict=True):
        assert repr(row) == repr(change if isinstance(row, Change) else texts_of(change))


def test_events_of_one_form_are_read_together(tmp_path: Path) -> None:
    events = [
        Event(Operation.MODIFY, "usr", f"idu={number},table=usr", "1", (
            attribute("fname", "string", (ALL, ()), *([(ADD, (f"<{number}>",))] * (number != 30))),
            attribute("pay", "string", (ALL, ()), (ADD, (f"{number}.50",))),
        ))
        for number in range(50)
    ]  # fmt: skip
    path = tmp_path / "one.xmll"
    path.write_bytes(line_form(list(map(write_event, events)), HEADER).encode())
    *first, last = read_texts(FORMAT, path, Report(), {"catalog": CATALOG})
    assert len(first) < 10
    assert isinstance(last, RowTexts)
    assert last.keys[-1] == "idu=49"
    assert [row for row in last.rows if row[0] in (None, "<31>")] == [
        (None, "30.50"),
        ("<31>", "31.50"),
    ]
