"""XML from outside: documents of events that are read from files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import fuzzing
import hostile
from fuzzing import ODD, damaged
from hostile import Border

from eventlog.registry import format_named
from eventlog.xds.reader import parse_events

HEAD = b'<nds dtdversion="2.0"><source><product version="1">p</product></source><input>'
MODIFY = (
    b'<modify class-name="usr" event-id="1"><association>id=1</association>'
    b'<modify-attr attr-name="name"><remove-all-values/><add-value><value type="string">x</value>'
    b"</add-value></modify-attr></modify>"
)
ADD = (
    b'<add class-name="usr" event-id="2"><association>id=2</association><add-attr attr-name="n">'
    b'<value type="int">7</value><value type="dn" association-ref="id=9">x</value></add-attr></add>'
)
DELETE = b'<delete class-name="usr" event-id="3"><association>id=3</association></delete>'
EVENTS = (MODIFY, ADD, DELETE)
END = b"</input></nds>"
FORMAT = format_named("xds")


def document(*events: bytes) -> bytes:
    return HEAD + b"".join(events) + END


def document_of(rnd: Random) -> bytes:
    good = document(*rnd.choices(EVENTS, k=rnd.randrange(1, 4)))
    match rnd.randrange(4):
        case 0:
            return good
        case 1:
            parts = good.split(b">")
            parts.insert(rnd.randrange(len(parts)), rnd.choice(parts))
            return b">".join(parts)
        case 2:
            odd = str(rnd.choice(ODD)).encode("utf-8", "surrogatepass")
            return good.replace(rnd.choice((b"x", b"7", b"id=1", b"usr", b"int")), odd)
        case _:
            return damaged(rnd, good)


def read(data: bytes) -> int:
    """How many changes a file gives. A document that cannot be read is passed over."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(data)
        file.flush()
        given = fuzzing.read(FORMAT, Path(file.name), {})
    parse_events(data)
    return given


FILLED = b"x" * 9
DOCUMENTS = Border(
    case=document_of,
    read=read,
    limit=8 << 20,
    factor=40,
    seconds=5.0,
    known={
        "elements": lambda: document(b"<a/>" * 150_000),
        "elements as sparse as may be": lambda: document(b"x<abcdefgh/>" * 60_000),
        "elements in an event": lambda: document(DELETE[:-9] + b"<abcdefghi/>" * 60_000, b"</delete>"),
        "attributes": lambda: document(
            b"<a " + b" ".join(b'a%x=""' % number for number in range(50_000)) + b"/>"
        ),
        "attributes with blanks": lambda: document(
            b"<a " + b" ".join(b"a%x = ''" % number for number in range(50_000)) + b"/>"
        ),
        "attributes as sparse as may be": lambda: document(
            b"<a " + b" ".join(b'a%06x="xx"' % number for number in range(8_000)) + b"/>"
        ),
        "values of one event": lambda: document(
            ADD.replace(b'<value type="int">', b'<value type="int">7</value>' * 20_000 + b'<value type="int">')
        ),
        "many events": lambda: document(DELETE * 8_000),
        "depth": lambda: document(b"<a>" * 150_000),
        "depth that ends": lambda: document(b"<a>" * 1_500 + b"</a>" * 1_500),
        "namespaces": lambda: document(
            b"<a " + b" ".join(b'xmlns:a%x="%x"' % (n, n) for n in range(4_000)) + b"/>"
        ),
        "comments": lambda: b"<!-- -->" * 80_000 + document(DELETE),
        "an open comment": lambda: b"<!--" * 80_000,
        "references": lambda: document(MODIFY.replace(b">x<", b">" + b"&amp;" * 150_000 + b"<")),
        "UTF-16": lambda: document(DELETE * 4_000).decode().encode("utf-16"),
        "entities": lambda: b'<!DOCTYPE nds [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>' + document(),
    },
)  # fmt: skip


def test_no_xml_ends_the_process() -> None:
    hostile.generate(f"{__name__}.DOCUMENTS")
