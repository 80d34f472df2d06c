"""What is sent: spec/xds.md 1 to 3 and 8, byte by byte."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from samples import usr as usr_class
from shared import validate

from eventlog import __version__
from eventlog.core.catalog import ObjectId
from eventlog.core.rows.checks import Texts
from eventlog.core.rows.events import Outgoing
from eventlog.errors import ConfigError
from eventlog.model import ALL, All, AttributeSteps, Event, Op, Operation, Step
from eventlog.xds.reader import read_events
from eventlog.xds.writer import (
    HEARTBEAT,
    Header,
    file_form,
    line_form,
    write_event,
    write_outgoing,
)

HEADER = Header("eventlog", "1.0")
USR = "idu=1,table=usr,schema=indirect"


def added(*values: str) -> Step:
    return Step(Op.ADD, values)


def removed(*values: str) -> Step:
    return Step(Op.REMOVE, values)


REMOVED_ALL = Step(Op.REMOVE_ALL, ())


def usr(operation: str, *attributes: tuple[str, str, tuple[Step, ...]]) -> Event:
    return Event(
        operation, "usr", USR, "1", tuple(AttributeSteps(*attribute) for attribute in attributes)
    )


def fname(*steps: Step) -> tuple[str, str, tuple[Step, ...]]:
    return "fname", "string", steps


def lname(*steps: Step) -> tuple[str, str, tuple[Step, ...]]:
    return "lname", "string", steps


def photo(*steps: Step) -> tuple[str, str, tuple[Step, ...]]:
    return "photo", "octet", steps


# The listings of spec/xds.md 3; A stands for the association, the event-id is added (it is always
# written).
LISTINGS = {
    "L1": (
        usr("add", fname(added("Jack")), lname(added("Frost")), photo(added("qqo="))),
        """<add class-name="usr" event-id="1">A
             <add-attr attr-name="fname"><value type="string">Jack</value></add-attr>
             <add-attr attr-name="lname"><value type="string">Frost</value></add-attr>
             <add-attr attr-name="photo"><value type="octet">qqo=</value></add-attr></add>""",
    ),
    "L2": (
        usr(
            "modify",
            fname(removed("Jack"), added("John")),
            lname(removed("Frost"), added("Doe")),
            photo(removed("qqo="), added("u7s=")),
        ),
        """<modify class-name="usr" event-id="1">A
             <modify-attr attr-name="fname"><remove-value><value type="string">Jack</value></remove-value>
                                            <add-value><value type="string">John</value></add-value></modify-attr>
             <modify-attr attr-name="lname"><remove-value><value type="string">Frost</value></remove-value>
                                            <add-value><value type="string">Doe</value></add-value></modify-attr>
             <modify-attr attr-name="photo"><remove-value><value type="octet">qqo=</value></remove-value>
                                            <add-value><value type="octet">u7s=</value></add-value></modify-attr>
           </modify>""",
    ),
    "L3, L5, L6": (
        usr(
            "modify",
            fname(REMOVED_ALL, added("John")),
            lname(REMOVED_ALL, added("Doe")),
            photo(REMOVED_ALL, added("u7s=")),
        ),
        """<modify class-name="usr" event-id="1">A
             <modify-attr attr-name="fname"><remove-all-values/>
               <add-value><value type="string">John</value></add-value></modify-attr>
             <modify-attr attr-name="lname"><remove-all-values/>
               <add-value><value type="string">Doe</value></add-value></modify-attr>
             <modify-attr attr-name="photo"><remove-all-values/>
               <add-value><value type="octet">u7s=</value></add-value></modify-attr></modify>""",
    ),
    "L4": (usr("delete"), '<delete class-name="usr" event-id="1">A</delete>'),
    "L5a": (
        usr("add", fname(added("John")), lname(added("Doe")), photo(added("u7s="))),
        """<add class-name="usr" event-id="1">A
             <add-attr attr-name="fname"><value type="string">John</value></add-attr>
             <add-attr attr-name="lname"><value type="string">Doe</value></add-attr>
             <add-attr attr-name="photo"><value type="octet">u7s=</value></add-attr></add>""",
    ),
    "L7": (
        usr("modify", lname(REMOVED_ALL, added("Doe")), fname(REMOVED_ALL, added("John"))),
        """<modify class-name="usr" event-id="1">A
             <modify-attr attr-name="lname"><remove-all-values/>
               <add-value><value type="string">Doe</value></add-value></modify-attr>
             <modify-attr attr-name="fname"><remove-all-values/>
               <add-value><value type="string">John</value></add-value></modify-attr></modify>""",
    ),
    "L7a": (
        usr("add", lname(added("Doe")), fname(added("John"))),
        """<add class-name="usr" event-id="1">A
             <add-attr attr-name="lname"><value type="string">Doe</value></add-attr>
             <add-attr attr-name="fname"><value type="string">John</value></add-attr></add>""",
    ),
    "L8": (
        usr("modify", lname(REMOVED_ALL, added("Doe"))),
        """<modify class-name="usr" event-id="1">A
             <modify-attr attr-name="lname"><remove-all-values/>
               <add-value><value type="string">Doe</value></add-value></modify-attr></modify>""",
    ),
}


@pytest.mark.promise("format xds")
@pytest.mark.parametrize(("event", "listing"), LISTINGS.values(), ids=LISTINGS)
def test_event_is_written_as_the_listing(event: Event, listing: str) -> None:
    expected = re.sub(r">\s+<", "><", listing).replace(">A", f"><association>{USR}</association>")
    assert write_event(event) == re.sub(r"\s+<", "<", expected)


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        ((removed("a"),), "<remove-value>a</remove-value>"),
        ((added("a"),), "<add-value>a</add-value>"),
        ((REMOVED_ALL,), "<remove-all-values/>"),
        ((REMOVED_ALL, added("a", "b")), "<remove-all-values/><add-value>ab</add-value>"),
        ((added("a"), added("b")), "<add-value>a</add-value><add-value>b</add-value>"),
        (
            (removed("a"), removed("b")),
            "<remove-value>a</remove-value><remove-value>b</remove-value>",
        ),
        ((added("a"), removed("a")), "<add-value>a</add-value><remove-value>a</remove-value>"),
        ((removed("a"), REMOVED_ALL), "<remove-value>a</remove-value><remove-all-values/>"),
        (
            (removed("a"), added("b"), REMOVED_ALL, added("c"), removed("c")),
            "<remove-value>a</remove-value><add-value>b</add-value><remove-all-values/>"
            "<add-value>c</add-value><remove-value>c</remove-value>",
        ),
    ],
)
def test_steps_of_a_modify_keep_their_order(steps: tuple[Step, ...], written: str) -> None:
    text = write_event(usr("modify", fname(*steps)))
    inside = text.partition('<modify-attr attr-name="fname">')[2].removesuffix(
        "</modify-attr></modify>"
    )
    assert inside.replace('<value type="string">', "").replace("</value>", "") == written


def test_empty_string_is_a_value() -> None:
    assert '<value type="string"></value>' in write_event(usr("add", fname(added(""))))
    assert (
        write_event(usr("modify", fname(removed(""), added("")))).count(
            '<value type="string"></value>'
        )
        == 2
    )


@pytest.mark.parametrize("operation", ["add", "modify"])
def test_reference_carries_the_association_of_its_target_twice(operation: str) -> None:
    target = 'id="a<b",table=emp'
    steps = (added(target),) if operation == "add" else (REMOVED_ALL, added(target))
    assert (
        '<value type="dn" '
        'association-ref="id=&quot;a&lt;b&quot;,table=emp">id="a&lt;b",table=emp</value>'
    ) in write_event(
        Event(operation, "emp", "id=2,table=emp", "1", (AttributeSteps("boss", "dn", steps),))
    )


@pytest.mark.parametrize(
    ("character", "in_text", "in_attribute"),
    [
        ("&", "&amp;", "&amp;"),
        ("<", "&lt;", "&lt;"),
        (">", "&gt;", "&gt;"),
        ('"', '"', "&quot;"),
        ("'", "'", "'"),
        ("\r", "&#13;", "&#13;"),
        ("\n", "&#10;", "&#10;"),
        ("\t", "\t", "&#9;"),
        ("\x7f", "\x7f", "\x7f"),
        ("\x85", "\x85", "\x85"),
        ("\u2028", "\u2028", "\u2028"),
        ("\ufffd", "\ufffd", "\ufffd"),
        ("😀", "😀", "😀"),
        ("e\u0301", "e\u0301", "e\u0301"),
        ("]]>", "]]&gt;", "]]&gt;"),
    ],
)
def test_characters_are_written_as_the_table_specifies(
    character: str, in_text: str, in_attribute: str
) -> None:
    attribute = AttributeSteps(
        f"n{character}", "string", (removed(f"o{character}"), added(f"v{character}"))
    )
    event = Event("modify", f"c{character}", f"a{character}", f"i{character}", (attribute,))
    assert write_event(event) == (
        f'<modify class-name="c{in_attribute}" '
        f'event-id="i{in_attribute}"><association>a{in_text}</association><modify-attr '
        f'attr-name="n{in_attribute}"><remove-value><value '
        f'type="string">o{in_text}</value></remove-value><add-value><value '
        f'type="string">v{in_text}</value></add-value></modify-attr></modify>'
    )


DELETE = usr("delete")
DOCUMENT = (
    '<nds dtdversion="2.0"><source><product version="1.0">eventlog</product></source>'
    f"<input>{write_event(DELETE)}</input></nds>"
)


def test_file_form_has_its_declaration_on_its_own_line() -> None:
    assert (
        file_form([write_event(DELETE)], HEADER)
        == f'<?xml version="1.0" encoding="UTF-8"?>\n{DOCUMENT}'
    )


def test_line_form_is_one_line() -> None:
    event = write_event(usr("add", fname(added("two\r\nlines"))))
    line = line_form([event, event], HEADER)
    assert line.index("\n") == len(line) - 1
    assert "\r" not in line
    assert (
        line_form([write_event(DELETE)], HEADER)
        == f'<?xml version="1.0" encoding="UTF-8"?>{DOCUMENT}\n'
    )


def test_events_keep_their_order_in_the_document() -> None:
    events = [Event("delete", "usr", USR, str(number)) for number in (3, 1, 2)]
    document = read_events(line_form(map(write_event, events), HEADER))
    assert [event.event_id for event in document.events] == ["3", "1", "2"]


@pytest.mark.parametrize("form", [line_form, file_form])
def test_document_without_events_is_never_written(form: Callable[[list[str], Header], str]) -> None:
    with pytest.raises(ValueError, match="without events"):
        form([], HEADER)


def test_product_is_the_program_unless_configured_otherwise() -> None:
    assert f'<product version="{__version__}">eventlog</product>' in line_form(
        [HEARTBEAT], Header()
    )
    assert '<product version="&quot;1&quot;">a &amp; b</product>' in line_form(
        [HEARTBEAT], Header("a & b", '"1"')
    )


@pytest.mark.parametrize("header", [{"product_name": "bell\a"}, {"product_version": "\ufffe"}])
def test_product_that_xml_cannot_hold_is_refused(header: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(header))} = .* cannot be written in XML"):
        Header(**header)


def test_heartbeat() -> None:
    assert line_form((HEARTBEAT,), HEADER) == (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<nds dtdversion="2.0"><source><product version="1.0">eventlog</product></source>'
        '<input><status level="success" type="heartbeat"/></input></nds>\n'
    )
    validate(line_form((HEARTBEAT,), HEADER))


def test_indent_moves_elements_that_have_element_children_and_nothing_else() -> None:
    event = usr("modify", fname(REMOVED_ALL, added("  a > b\n", "")), lname(removed("x")))
    assert file_form([write_event(event)], HEADER, indent=2) == (
        """<?xml version="1.0" encoding="UTF-8"?>
<nds dtdversion="2.0">
  <source>
    <product version="1.0">eventlog</product>
  </source>
  <input>
    <modify class-name="usr" event-id="1">
      <association>idu=1,table=usr,schema=indirect</association>
      <modify-attr attr-name="fname">
        <remove-all-values/>
        <add-value>
          <value type="string">  a &gt; b&#10;</value>
          <value type="string"></value>
        </add-value>
      </modify-attr>
      <modify-attr attr-name="lname">
        <remove-value>
          <value type="string">x</value>
        </remove-value>
      </modify-attr>
    </modify>
  </input>
</nds>"""
    )


# Everything XML 1.0 can hold, with what is special made frequent.
XML_CHARACTERS = st.one_of(
    st.sampled_from("&<>\"'\r\n\t ]\x85\u2028\ufffd😀=,;+\\"),
    st.characters(exclude_categories=["Cs"]).filter(
        lambda c: c in "\t\n\r" or (ord(c) >= 0x20 and ord(c) not in (0xFFFE, 0xFFFF))
    ),
)
TEXTS = st.text(XML_CHARACTERS, max_size=12) | st.sampled_from(
    ["]]>", "\r\n", " x ", "<![CDATA[x]]>", "&amp;", "\ufeff"]
)
NAMES = st.text(XML_CHARACTERS, min_size=1, max_size=8)
INTEGERS = st.integers().map(str)
VALUES = {
    "string": TEXTS,
    "int": INTEGERS,
    "time": INTEGERS,
    "state": st.sampled_from(["true", "false"]),
    "octet": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    "dn": NAMES,
}


@st.composite
def attributes(draw: st.DrawFn, operation: str) -> AttributeSteps:
    value_type = draw(st.sampled_from(sorted(VALUES)))
    values = st.lists(VALUES[value_type], min_size=1, max_size=3).map(tuple)
    if operation == "add":
        steps = (Step(Op.ADD, draw(values)),)
    else:
        step = st.one_of(
            st.just(REMOVED_ALL), st.builds(Step, st.sampled_from([Op.REMOVE, Op.ADD]), values)
        )
        steps = tuple(draw(st.lists(step, min_size=1, max_size=4)))
    if not any(step.values for step in steps):
        value_type = "string"  # a document does not say the type of no value
    return AttributeSteps(draw(NAMES), value_type, steps)


@st.composite
def events(draw: st.DrawFn) -> Event:
    operation = draw(st.sampled_from(["add", "modify", "delete"]))
    count = {"add": (0, 3), "modify": (1, 3), "delete": (0, 0)}[operation]
    found = draw(st.lists(attributes(operation), min_size=count[0], max_size=count[1]))
    return Event(operation, draw(NAMES), draw(NAMES), draw(NAMES), tuple(found))


@given(
    st.lists(events(), min_size=1, max_size=3), st.builds(Header, TEXTS, TEXTS), st.integers(0, 4)
)
def test_what_is_written_is_valid_and_reads_back_equal(
    written: list[Event], header: Header, indent: int
) -> None:
    texts = [write_event(event) for event in written]
    for document in (
        line_form(texts, header),
        file_form(texts, header),
        file_form(texts, header, indent),
    ):
        data = document.encode()
        assert etree.fromstring(data).tag == "nds"
        validate(data)
        read = read_events(data)
        assert list(read.events) == written
        assert (read.product_name, read.product_version) == (
            header.product_name,
            header.product_version,
        )


@given(st.lists(events(), min_size=1, max_size=3))
def test_lines_are_documents(written: list[Event]) -> None:
    lines = io.BytesIO(
        "".join(line_form([write_event(event)], HEADER) for event in written).encode()
    )
    assert [read_events(line).events for line in lines] == [(event,) for event in written]


@pytest.mark.parametrize(
    "special", ["infinity", "-infinity", "12345-01-01", "0044-03-15 BC", "24:00:00"]
)
@pytest.mark.parametrize(
    "steps",
    [
        (removed("{}"), added("1704067200")),
        (removed("-1"), added("{}")),
        (REMOVED_ALL, added("{}")),
        (added("{}"),),
        (removed("{}"), added("-1"), removed("-1"), added("{}", "0")),
    ],
)
def test_a_special_time_among_seconds_is_a_string(steps: tuple[Step, ...], special: str) -> None:
    filled = tuple(
        Step(op, tuple(value.format(special) for value in values)) for op, values in steps
    )
    event = usr("modify", ("day", "time", filled))
    document = line_form([write_event(event)], HEADER)
    texts = re.findall('<value type="([a-z]+)">([^<]*)</value>', document)
    values = [value for _, step in filled for value in step]
    assert texts == [("string" if value == special else "time", value) for value in values]
    (read,) = read_events(document).events
    assert read.attributes[0].steps == filled
    assert read.attributes[0].value_type == ("string" if set(values) == {special} else "time")


def test_an_add_has_special_times_as_strings() -> None:
    event = usr(
        "add",
        ("day", "time", (added("infinity"),)),
        ("days", "time", (added("infinity", "86400"),)),
    )
    assert re.findall('<value type="([a-z]+)">', write_event(event)) == ["string", "string", "time"]


TYPED = {one: AttributeSteps("a", one, ()) for one in sorted(VALUES)}
"""Attributes of which nothing but name and type is read."""


@given(st.data())
def test_the_two_forms_of_a_step_are_the_same_text(data: st.DataObject) -> None:
    value_type = data.draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[value_type]
    old = data.draw(st.one_of(st.none(), st.just(ALL), value))
    operation = data.draw(st.sampled_from([Operation.ADD, Operation.MODIFY]))
    if operation is Operation.ADD:
        old = None
    new = data.draw(value)

    def written(old: Texts | Literal[All.ALL], new: Texts) -> str:
        object_id: ObjectId = usr_class(), "idu=1"
        step: Any = (1, 2, object_id, TYPED[value_type], old, new)
        return write_outgoing(Outgoing("1", [1], object_id, operation, [step]))

    in_tuples = (old,) if isinstance(old, str) else old
    assert written(old, new) == written(in_tuples, (new,))
