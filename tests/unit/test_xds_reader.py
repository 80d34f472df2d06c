"""Reading XDS documents and validating them: spec/xds.md 1, 7; what comes from outside is attacked
here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from shared import validate

from eventlog.errors import XdsError
from eventlog.model import AttributeSteps, Event, Op, Step
from eventlog.xds.reader import read_events

PRODUCT = '<source><product version="1.0">eventlog</product></source>'


def document_text(inside: str) -> str:
    return f'<nds dtdversion="2.0">{PRODUCT}<input>{inside}</input></nds>'


def event(
    inside: str, operation: str = "modify", attributes: str = 'class-name="usr" event-id="4"'
) -> str:
    return document_text(
        f"<{operation} "
        f"{attributes}><association>idu=1,table=usr</association>{inside}</{operation}>"
    )


def attribute(value: str) -> str:
    return event(f'<add-attr attr-name="n">{value}</add-attr>', "add")


def test_events_are_read_with_their_steps_in_order() -> None:
    document = read_events(
        event(
            '<modify-attr attr-name="fname"><remove-value><value '
            'type="string">a</value></remove-value>'
            '<add-value><value type="string">b</value><value '
            'type="string"/></add-value><remove-all-values/>'
            "</modify-attr>"
        )
    )
    steps = (Step(Op.REMOVE, ("a",)), Step(Op.ADD, ("b", "")), Step(Op.REMOVE_ALL, ()))
    attributes = (AttributeSteps("fname", "string", steps),)
    assert document.events == (Event("modify", "usr", "idu=1,table=usr", "4", attributes),)
    assert (document.product_name, document.product_version) == ("eventlog", "1.0")
    assert not document.heartbeat


@pytest.mark.parametrize(
    "document",
    [
        attribute('<value type="string">x<!-- a comment -->y<?pi?><![CDATA[&z]]></value>'),
        "<?xml version='1.0'?><!-- one --><?two?>\n"
        + attribute('<value type="string">xy&amp;z</value>')
        + "<!-- last -->",
        attribute('<value type="string">&#x78;y&#38;z</value>')
        .replace("><add", ">\n  <add")
        .replace("><ass", ">\n<ass"),
        attribute("<value>xy&amp;z</value>"),
    ],
)
def test_forms_of_writing_make_no_difference(document: str) -> None:
    (read,) = read_events(document).events
    assert read.attributes == (AttributeSteps("n", "string", (Step(Op.ADD, ("xy&z",)),)),)


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text,
        lambda text: text.encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b'<?xml version="1.0" encoding="UTF-8"?>' + text.encode(),
        lambda text: b'<?xml version="1.0" encoding="iso-8859-1"?>' + text.encode("latin-1"),
        lambda text: '<?xml version="1.0" encoding="UTF-16"?>' + text,
    ],
    ids=[
        "text",
        "utf-8",
        "byte order mark",
        "utf-16",
        "declared utf-8",
        "declared latin-1",
        "text with declaration",
    ],
)
def test_encodings(encode: Callable[[str], bytes | str]) -> None:
    document = read_events(encode(attribute('<value type="string">é</value>')))
    assert document.events[0].attributes[0].steps[0].values == ("é",)


def test_reference_is_read_from_its_association() -> None:
    (read,) = read_events(
        attribute('<value type="dn" association-ref="id=1,table=emp">\\T\\emp</value>')
    ).events
    assert read.attributes[0] == AttributeSteps("n", "dn", (Step(Op.ADD, ("id=1,table=emp",)),))


def test_heartbeat_is_no_event() -> None:
    document = read_events(document_text('<status level="success" type="heartbeat"/>'))
    assert document.heartbeat
    assert not document.events
    assert not document.others


def test_elements_that_are_no_changes_are_passed_over_and_named() -> None:
    document = read_events(
        document_text(
            '<status level="error">x</status><delete '
            'class-name="c"><association>a</association></delete>'
        )
        .replace("</input>", '<rename class-name="c"/><o:ther xmlns:o="urn:o"/></input>')
        .replace("<source>", "<source><contact>x</contact>")
    )
    assert [(read.operation, read.event_id) for read in document.events] == [("delete", "")]
    assert [one.name for one in document.others] == ["status", "rename", "{urn:o}ther"]


def test_value_longer_than_the_parser_usually_takes() -> None:
    text = "x" * 11_000_000
    assert read_events(attribute(f"<value>{text}</value>")).events[0].attributes[0].steps[
        0
    ].values == (text,)


VALUE = '<value type="string">x</value>'


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "not well-formed"),
        ("nonsense", "not well-formed"),
        ("<nds>", "not well-formed"),
        ("<nds>&nbsp;</nds>", "not well-formed"),
        ("<nds>\x00</nds>", "not well-formed"),
        ("<nds>\ud800</nds>", "not valid in its encoding"),
        (b"<nds>\xff</nds>", "not well-formed"),
        (b'<?xml version="1.0" encoding="UTF-7"?><nds/>', "unsupported encoding utf-7"),
        ("<nds>".encode("utf-16-le"), "not well-formed"),
        ("<sdn/>", "root element is sdn"),
        ('<nds xmlns="urn:x"/>', "root element is {urn:x}nds"),
        ("<nds/>", "0 input elements"),
        ("<nds><input/><input/></nds>", "2 input elements"),
        ("<nds><output/></nds>", "0 input elements"),
        (
            document_text('<add event-id="1"><association>a</association></add>'),
            "add without class-name",
        ),
        (document_text('<add class-name="c"/>'), "add must have exactly one association"),
        (
            document_text('<add class-name="c"><association/></add>'),
            "add must have exactly one association",
        ),
        (
            document_text('<delete class-name="c"><association>a<b/></association></delete>'),
            "element b in association",
        ),
        (event("<add-attr/>"), "element add-attr in modify"),
        (event("<modify-attr/>", "delete"), "element modify-attr in delete"),
        (event(""), "a modify element has no modify-attr"),
        (event('<modify-attr attr-name="n"/>'), "a modify-attr element is empty"),
        (
            event(f"<modify-attr><add-value>{VALUE}</add-value></modify-attr>"),
            "modify-attr without attr-name",
        ),
        (
            event('<modify-attr attr-name="n"><add-value/></modify-attr>'),
            "add-value has no value element",
        ),
        (
            event(f'<modify-attr attr-name="n">{VALUE}</modify-attr>'),
            "element value in modify-attr",
        ),
        (
            event(
                "<modify-attr "
                'attr-name="n"><remove-all-values><x/></remove-all-values></modify-attr>'
            ),
            "element x in",
        ),
        (event("<add-attr/>", "add"), "add-attr has no value element"),
        (attribute("<velue/>"), "element velue in add-attr"),
        (attribute("<value><component/></value>"), "element component in value"),
        (attribute('<value type="structured"/>'), "value of unknown type structured"),
        (attribute(f'{VALUE}<value type="int">1</value>'), "of several types: int, string"),
        (
            attribute('<value type="time">1</value><value type="string">1</value>'),
            "of several types: string, time",
        ),
    ],
)
def test_document_that_is_not_of_the_vocabulary_is_refused(
    document: bytes | str, said: str
) -> None:
    with pytest.raises(XdsError) as caught:
        read_events(document)
    assert said in str(caught.value)


def test_errors_say_the_line() -> None:
    with pytest.raises(XdsError, match=r"^line 3: element b in association"):
        read_events(
            document_text('\n<delete class-name="c"><association>\n<b/></association></delete>')
        )
    with pytest.raises(XdsError, match=r"^line 2: not well-formed"):
        read_events("<nds>\n</input></nds>")


ENTITIES = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
LAUGHS = f'<!DOCTYPE nds [<!ENTITY e0 "ha">{ENTITIES}]>'


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (f"{LAUGHS}<nds>&e12;</nds>", "DOCTYPE"),
        (f'{LAUGHS}<nds a="&e12;"/>', "DOCTYPE"),
        (f'\ufeff{LAUGHS}<nds a="&e12;"/>'.encode("utf-16-be"), "DOCTYPE"),
        (
            f'<?xml version="1.0"?><!-- > --><?pi <!-- ?>\n\n{LAUGHS}<nds a="&e12;"/>',
            "line 3: a DOCTYPE",
        ),
        ('<!DOCTYPE nds [<!ENTITY e SYSTEM "file:///etc/passwd">]><nds>&e;</nds>', "DOCTYPE"),
        ('<!DOCTYPE nds SYSTEM "http://127.0.0.1:1/nds.dtd"><nds/>', "DOCTYPE"),
        ("<!DOCTYPE nds><nds/>", "DOCTYPE"),
        ("<a>" * 9_000, "not well-formed"),
        ("<a>" * 9_000 + "</a>" * 9_000, "depth"),
        ("<a>" * 1_000_000, "more than 260000 elements and attributes in 3000000 bytes"),
        ("<!--" * 300_000, "not well-formed"),
        ("<?a " * 300_000, "not well-formed"),
        (" " * 1_000_000, "not well-formed"),
    ],
    ids=[
        "laughs in text",
        "laughs in an attribute",
        "laughs in utf-16",
        "laughs after comments",
        "external entity",
        "external subset",
        "empty doctype",
        "open elements",
        "depth",
        "many elements",
        "open comments",
        "open instructions",
        "blanks",
    ],
)
def test_attack_is_refused_before_it_costs_anything(document: bytes | str, said: str) -> None:
    with pytest.raises(XdsError) as caught:
        read_events(document)
    assert said in str(caught.value)
    assert "root:" not in str(caught.value)


def test_document_over_the_limit_is_refused() -> None:
    document = event("", "delete")
    assert read_events(document, limit=len(document)).events
    with pytest.raises(
        XdsError, match=f"has {len(document)} bytes, more than the limit of {len(document) - 1}"
    ):
        read_events(document, limit=len(document) - 1)


@pytest.mark.parametrize(
    "document",
    [
        document_text('<status level="success" type="heartbeat"/>'),
        event("", "delete"),
        event("", "add"),
        attribute('<value type="string"/><value type="string">  x </value>'),
        attribute('<value type="int">0</value><value type="int">-12</value>'),
        attribute('<value type="state">true</value><value type="state">false</value>'),
        attribute('<value type="octet"/><value type="octet">qqo=</value>'),
        attribute('<value type="time">-2</value>'),
        attribute('<value type="dn" association-ref="a">a</value>'),
        event('<modify-attr attr-name="n"><remove-all-values/></modify-attr>'),
        '<nds dtdversion="2.0"><output/></nds>',
        f'<nds dtdversion="2.0">{PRODUCT}<output><status level="retry">x<y '
        'z="1"/></status></output></nds>',
        '<nds dtdversion="2.0"><output><x><status level="fatal" event-id="1" '
        'type="t"/></x></output></nds>',
    ],
)
def test_the_schema_describes_what_is_written(document: str) -> None:
    validate(document)


@pytest.mark.parametrize(
    "document",
    [
        document_text(""),
        event("", "modify"),
        event("", "rename"),
        event("", "delete", 'class-name="usr"'),
        event("", "delete", 'class-name="usr" event-id=""'),
        event("", "delete", 'class-name="usr" event-id="1" src-dn="x"'),
        event("", "delete") + "<nds/>",
        event("text", "delete"),
        event("", "delete").replace(PRODUCT, ""),
        event("", "delete").replace('dtdversion="2.0"', 'dtdversion="2.0" ndsversion="8.x"'),
        event("", "delete").replace('dtdversion="2.0"', 'dtdversion="4.0"'),
        event("", "delete").replace("idu=1,table=usr", ""),
        event("", "delete").replace("<nds ", '<nds xmlns="urn:x" '),
        document_text(
            '<status level="success" type="heartbeat"/><status level="success" type="heartbeat"/>'
        ),
        document_text('<status level="error" type="heartbeat"/>'),
        attribute(""),
        attribute("<value>x</value>"),
        attribute('<value type="structured">x</value>'),
        attribute('<value type="string" association-ref="x">x</value>'),
        attribute('<value type="dn">x</value>'),
        attribute('<value type="int">007</value>'),
        attribute('<value type="int">-0</value>'),
        attribute('<value type="int"> 7</value>'),
        attribute('<value type="int"/>'),
        attribute('<value type="time">1.5</value>'),
        attribute('<value type="state">yes</value>'),
        attribute('<value type="octet">qqo</value>'),
        attribute('<value type="octet">qq\no=</value>'),
        attribute('<value type="octet">q*o=</value>'),
        event('<modify-attr attr-name="n"/>'),
        event('<modify-attr attr-name=""><remove-all-values/></modify-attr>'),
        event('<modify-attr attr-name="n"><remove-all-values>x</remove-all-values></modify-attr>'),
        event('<modify-attr attr-name="n"><add-value/></modify-attr>'),
        '<nds dtdversion="2.0"><output><status level="Success"/></output></nds>',
        '<nds dtdversion="2.0"><output><x><status/></x></output></nds>',
        '<nds dtdversion="2.0"><output/><input/></nds>',
    ],
)
def test_schema_refuses_what_is_never_written(document: str) -> None:
    with pytest.raises(XdsError, match=r"^line 1: "):
        validate(document)
