"""Read the events of XDS documents, also of documents in files (spec/xds.md 1, 2), and read the
statuses of a receiver's answer (spec/xds.md 7).

Documents come from outside. So no DTD and no entity except the five of XML is accepted, no network
is used, and the size of documents is limited.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from lxml import etree

from eventlog.changes.events import event_to_change
from eventlog.changes.format import Report, RowTexts
from eventlog.core.catalog import Catalog
from eventlog.core.values import EXACT_WORDS, ValueOptions
from eventlog.core.values.moments import is_special
from eventlog.errors import FormatError, ReceiverUnavailable, XdsError
from eventlog.files.text import read_on, source_files
from eventlog.model import (
    LEVELS,
    Answer,
    AttributeSteps,
    Change,
    Event,
    EventResult,
    Level,
    Op,
    Operation,
    Step,
    answer_of,
    max_statuses,
)
from eventlog.xds.plain import DEFAULT_LIMIT, PlainDocument, event_of, read_plain
from eventlog.xds.texts import TextsReader

E = TypeVar("E")

VALUE_TYPES: Final = frozenset({"string", "int", "state", "octet", "time", "dn"})
"""The types of a value (spec/xds.md 6.1, 6.4)."""


class OtherElement(NamedTuple):
    """An element that is not of the vocabulary, such as an element that an engine adds. Only its
    name and place are kept, since its text may be a password.
    """

    name: str
    parent: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: element {self.name} in {self.parent} is not used"


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The content of one document.

    ``content`` has the events of the document in order. In place of an event that cannot be read,
    it has the XdsError that names the line. ``heartbeat`` is True if the document contains a
    heartbeat status (spec/xds.md 7). ``others`` are the other elements in order. These elements are
    not changes (spec/change-model.md 3.2); the caller reports that they were passed over.
    """

    content: tuple[Event | XdsError, ...]
    heartbeat: bool
    product_name: str
    product_version: str
    others: tuple[OtherElement, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that can be read."""
        return tuple([one for one in self.content if isinstance(one, Event)])


def read_events(document: bytes | str, limit: int = DEFAULT_LIMIT) -> ParsedDocument:
    """Read the events of one document, in either layout.

    ``limit`` is in bytes. A missing event-id is the empty text, and a value without type is a
    string. An attribute without any value (only remove-all-values) is of type string, since the
    document shows no type. An attribute with both times and special times is of type time.

    Raises XdsError, with the line, for a document that is not well-formed, has a DOCTYPE, is larger
    than ``limit``, or has an event that cannot be read.
    """
    if isinstance(document, bytes) and len(document) <= limit:
        plain = read_plain(document, event_of)
        if plain is not None:
            return ParsedDocument(plain.events, False, plain.product_name, plain.product_version)
    parsed = parse_events(document, limit)
    for one in parsed.content:
        if isinstance(one, XdsError):
            raise one
    return parsed


def parse_events(document: bytes | str, limit: int = DEFAULT_LIMIT) -> ParsedDocument:
    """Do the work of ``read_events`` for a document of any form. The errors of single events are
    not raised; they are in the returned content.
    """
    root = parse_document(document, limit)
    if root.tag != "nds":
        raise XdsError(f"line {root.sourceline}: the root element is {root.tag}; expected nds")
    name, version = "", ""
    inputs: list[etree._Element] = []
    others: list[OtherElement] = []
    for child in root:
        if child.tag == "source":
            product = child.find("product")
            if product is not None:
                name, version = product.text or "", product.get("version", "")
        elif child.tag == "input":
            inputs.append(child)
        else:
            others.append(_other(child, "nds"))
    if len(inputs) != 1:
        raise XdsError(
            f"line {root.sourceline}: nds has {len(inputs)} input elements; expected one"
        )
    content: list[Event | XdsError] = []
    heartbeat = False
    for child in inputs[0]:
        if child.tag in _EVENTS:
            try:
                content.append(_event(child, others))
            except XdsError as error:
                content.append(error)
        elif child.tag == "status" and child.get("type") == "heartbeat":
            heartbeat = True
        else:
            others.append(_other(child, "input"))
    return ParsedDocument(tuple(content), heartbeat, name, version, tuple(others))


def parse_document(
    document: bytes | str, limit: int = DEFAULT_LIMIT, most: int = sys.maxsize, *, huge: bool = True
) -> etree._Element:
    """Parse a document from outside, and return its root element. Comments and processing
    instructions are left out.

    ``document`` is text, or bytes in UTF-8, UTF-16 with byte order mark, or a declared ISO 8859-1,
    8859-15 or Windows-1252. ``limit`` is in bytes; ``most`` is the maximum number of elements and
    attributes. Without ``huge``, elements are nested in at most 256 levels, and a text has at most
    10 MB. Raises XdsError for a document that is not well-formed, has a DOCTYPE or another
    encoding, is larger than these limits, or has too many elements for its size
    (spec/xds.md 2).
    """
    data = _utf8(document)
    if len(data) > limit:
        raise XdsError(
            f"the document has {len(data)} bytes, more than the limit of {limit}: raise the limit "
            "or send fewer events per document"
        )
    # Counted before parsing, because an element takes up to a hundred times its bytes.
    most = min(most, _FREE_NODES + len(data) // _BYTES_OF_A_NODE)
    if data.count(b"<") + data.count(b"=") > most and _has_more_nodes(data, most):
        raise XdsError(
            f"the document has more than {most} elements and attributes in {len(data)} bytes"
        )
    # The DOCTYPE is searched before parsing: the parser would expand entities in attribute values,
    # and with huge_tree without bound.
    prolog = _PROLOG.match(data)
    end = prolog.end() if prolog else 0
    if data.startswith(b"<!DOCTYPE", end):
        raise XdsError(f"line {data.count(10, 0, end) + 1}: a DOCTYPE is not accepted")
    try:
        root = etree.fromstring(data, _PARSER if huge else _SMALL_PARSER)
    except etree.XMLSyntaxError as error:
        raise XdsError(
            f"line {error.lineno or 1}: not well-formed: {' '.join(error.msg.split())}"
        ) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise XdsError("a DOCTYPE is not accepted")
    return root


_FREE_NODES: Final = 10_000
_BYTES_OF_A_NODE: Final = 12
"""The number of elements and attributes that any document may have, and the bytes that a larger
document has for each further one. The shortest value of the vocabulary with its type has 13.
"""
_NODE: Final = re.compile(rb"""<[^/!?]|=[ \t\r\n]*(?:"[^"]*"|'[^']*')""")


def _has_more_nodes(data: bytes, most: int) -> bool:
    return next(islice(_NODE.finditer(data), most, None), None) is not None


# The data is UTF-8 by now, so this parser and the search for a DOCTYPE see the same characters.
# huge_tree allows values longer than 10 MB; libxml2 still bounds the depth,
# and ``limit`` the length.
_PARSER, _SMALL_PARSER = (
    etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        no_network=True,
        huge_tree=huge_tree,
        remove_comments=True,
        remove_pis=True,
    )
    for huge_tree in (True, False)
)
_PROLOG = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]++|<!--.*?-->|<\?.*?\?>)*", re.DOTALL)
_DECLARED = re.compile(
    rb"(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']"
)
_AS_IT_IS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_CODECS = {
    "iso-8859-1": "iso-8859-1",
    "latin1": "iso-8859-1",
    "iso-8859-15": "iso-8859-15",
    "windows-1252": "cp1252",
    "cp1252": "cp1252",
}


def _utf8(document: bytes | str) -> bytes:
    try:
        if isinstance(document, str):
            return document.encode()
        if document[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return document.decode("utf-16").encode()
        declared = _DECLARED.match(document)
        if declared is None:
            return document
        encoding = declared[1].decode("ascii").lower()
        if encoding in _AS_IT_IS:
            return document
        if encoding not in _CODECS:
            raise XdsError(f"the document has the unsupported encoding {encoding}; use UTF-8")
        return document.decode(_CODECS[encoding]).encode()
    except UnicodeError as error:
        raise XdsError(f"the document is not valid in its encoding: {error}") from None


def _event(element: etree._Element, others: list[OtherElement]) -> Event:
    """Return an event. Add its elements that are not of the vocabulary to ``others``. Raises
    XdsError.
    """
    operation, attribute_tag, read_attribute = _EVENTS[str(element.tag)]
    associations: list[str] = []
    attributes: list[etree._Element] = []
    for child in element:
        if child.tag == "association":
            associations.append(_text(child))
        elif child.tag == attribute_tag:
            attributes.append(child)
        elif child.tag in _VOCABULARY:
            raise _unknown(
                child,
                operation,
                "association" if attribute_tag is None else f"association, {attribute_tag}",
            )
        else:
            others.append(_other(child, operation))
    if len(associations) != 1 or not associations[0]:
        raise XdsError(
            f"line {element.sourceline}: {operation} must have exactly one association, and it "
            "must not be empty"
        )
    class_name = _needed(element, "class-name")
    if operation is Operation.MODIFY and not attributes:
        raise XdsError(
            f"line {element.sourceline}: a modify element has no modify-attr; it needs at least one"
        )
    read = tuple(map(read_attribute, attributes))
    return Event(operation, class_name, associations[0], element.get("event-id", ""), read)


_VOCABULARY: Final = frozenset({
    *("association", "add-attr", "modify-attr", "remove-value", "remove-all-values"),
    *("add-value", "value"),
})  # fmt: skip
"""The elements within events that describe what has changed (spec/xds.md 1)."""


def _other(element: etree._Element, parent: str) -> OtherElement:
    line = element.sourceline
    return OtherElement(str(element.tag), parent, line if isinstance(line, int) else 1)


def _unknown(element: etree._Element, parent: str, legal: str) -> XdsError:
    return XdsError(
        f"line {element.sourceline}: element {element.tag} in {parent}; only {legal} is allowed "
        "there"
    )


def _needed(element: etree._Element, attribute: str) -> str:
    value = element.get(attribute)
    if not value:
        raise XdsError(f"line {element.sourceline}: {element.tag} without {attribute}")
    return value


def _text(element: etree._Element) -> str:
    if len(element):
        raise _unknown(element[0], str(element.tag), "text")
    return element.text or ""


def _add_attr(element: etree._Element) -> AttributeSteps:
    types: set[str] = set()
    steps = (Step(Op.ADD, _values(element, types)),)
    return AttributeSteps(_needed(element, "attr-name"), _one_type(element, types), steps)


def _modify_attr(element: etree._Element) -> AttributeSteps:
    types: set[str] = set()
    steps: list[Step] = []
    for child in element:
        if child.tag == "add-value":
            steps.append(Step(Op.ADD, _values(child, types)))
        elif child.tag == "remove-value":
            steps.append(Step(Op.REMOVE, _values(child, types)))
        elif child.tag == "remove-all-values":
            if len(child):
                raise _unknown(child[0], "remove-all-values", "nothing")
            steps.append(Step(Op.REMOVE_ALL, ()))
        else:
            raise _unknown(child, "modify-attr", "remove-value, remove-all-values, add-value")
    if not steps:
        raise XdsError(
            f"line {element.sourceline}: a modify-attr element is empty; it needs remove-value, "
            "remove-all-values or add-value"
        )
    return AttributeSteps(_needed(element, "attr-name"), _one_type(element, types), tuple(steps))


_EVENTS: Final[
    Mapping[str, tuple[Operation, str | None, Callable[[etree._Element], AttributeSteps]]]
] = {
    "add": (Operation.ADD, "add-attr", _add_attr),
    "modify": (Operation.MODIFY, "modify-attr", _modify_attr),
    "delete": (Operation.DELETE, None, _add_attr),
}
"""For each name that the element of an event may have: the operation, the name of the elements of
attributes (None if there are none), and the function that reads the element of an attribute.
"""


def _values(element: etree._Element, types: set[str]) -> tuple[str, ...]:
    """Return the values of an element, and add their types to ``types``."""
    values: list[str] = []
    for child in element:
        if child.tag != "value":
            raise _unknown(child, str(element.tag), "value")
        value_type = child.get("type", "string")
        if value_type not in VALUE_TYPES:
            raise XdsError(
                f"line {child.sourceline}: value of unknown type {value_type}; expected one of "
                f"{', '.join(sorted(VALUE_TYPES))}"
            )
        types.add(value_type)
        text = _text(child)
        values.append(child.get("association-ref", text) if value_type == "dn" else text)
    if not values:
        raise XdsError(f"line {element.sourceline}: {element.tag} has no value element")
    return tuple(values)


_WITH_WORDS: Final[Mapping[str, Callable[[str], bool]]] = {
    "time": is_special,  # special times (spec/xds.md 6.3)
    "int": EXACT_WORDS.__contains__,  # NaN (spec/xds.md 6.1)
}
"""For each type whose values may be strings: the function that checks such a string."""


def _one_type(element: etree._Element, types: set[str]) -> str:
    for kind, is_word in _WITH_WORDS.items():
        if types == {"string", kind} and all(
            is_word(value.text or "")
            for value in element.iter("value")
            if value.get("type", "string") == "string"
        ):
            return kind
    if len(types) > 1:
        raise XdsError(
            f"line {element.sourceline}: the values of one attribute are of several types: "
            f"{', '.join(sorted(types))}"
        )
    return next(iter(types), "string")


# --- documents in files ---------------------------------------------------------------------------


class _Events(NamedTuple, Generic[E]):
    """The events of a document, and its other elements. In place of an event that cannot be read,
    there is its error.
    """

    events: Sequence[E | XdsError]
    others: Sequence[OtherElement] = ()


_Read: TypeAlias = Callable[[bytes], PlainDocument[E] | None]
"""A function that reads a document of the plain form."""


def _documents(
    path: Path, limit: int, read: _Read[E]
) -> Iterator[tuple[int | None, _Events[E | Event] | XdsError]]:
    """Yield the documents of a file, each with the number of its line. There is one document per
    line if the first line contains the end of a document. Otherwise the file is one document, whose
    number is None.

    An empty file has no documents; writing no changes makes an empty file. The file is read once,
    from beginning to end.
    """
    with path.open("rb") as file:
        blank, line, number = bytearray(), file.readline(limit + 1), 1
        while line.isspace():
            blank += line
            line, number = file.readline(limit + 1), number + 1
        if b"</nds>" not in line:
            if line:
                data = read_on(file, blank + line, limit)
                yield None, _document(data, limit, path, None, read)
            return
        while line:
            if len(line) > limit:
                raise XdsError(
                    f"{path}, line {number}: longer than {limit} bytes: raise the option limit"
                )
            if not line.isspace():
                yield number, _document(line, limit, path, number, read)
            line, number = file.readline(limit + 1), number + 1


_WITHIN: Final = re.compile("line ([0-9]+): ")
_PARSER_PLACE: Final = re.compile(", line [0-9]+, column ([0-9]+)$")


def _document(
    data: bytes, limit: int, path: Path, number: int | None, read: _Read[E]
) -> _Events[E | Event] | XdsError:
    """Read a document, or return its error with file and line, as ``_placed`` does."""
    try:
        if len(data) <= limit and (plain := read(data)) is not None:
            return _Events(plain.events)
        document = parse_events(data, limit)
    except XdsError as error:
        return XdsError(_placed(error, path, number))
    return _Events(document.content, document.others)


def _placed(problem: object, path: Path, number: int | None) -> str:
    """Return the message about a problem in a document, with file and line. ``number`` is the line
    of the file if the document is one line, otherwise None.
    """
    text = str(problem)
    within = _WITHIN.match(text)
    line = number or (within and within[1])
    message = _PARSER_PLACE.sub(r", column \1", text[within.end() if within else 0 :])
    return f"{path}, line {line}: {message}" if line else f"{path}: {message}"


def _all_events(
    source: str, limit: int, report: Report, read: _Read[E]
) -> Iterator[tuple[str, E | Event]]:
    """Yield the events of a file, or of the files of a directory in the order of their names. Each
    event comes with the place of its document.
    """
    for path in source_files(Path(source), ".xml or .xmll file", (".xml", ".xmll")):
        for number, document in _documents(path, limit, read):
            if isinstance(document, XdsError):
                report.skip(document)
                continue
            for other in document.others:
                # An element within an event does not mean that input was skipped.
                count = report.count_with_message if other.parent in _EVENTS else report.pass_over
                count(f"other_elements {other.name}", _placed(other, path, number))
            place = str(path) if number is None else f"{path}, line {number}"
            for event in document.events:
                if isinstance(event, XdsError):
                    report.skip(XdsError(_placed(event, path, number)))
                else:
                    yield place, event


def changes_in(
    source: str, limit: int, catalog: Catalog | None, values: ValueOptions, report: Report
) -> Iterator[Change]:
    """Yield the changes of the events of a file, or of the files of a directory in the order of
    their names, as ``XdsFormat.read_changes`` does.
    """
    for place, event in _all_events(source, limit, report, partial(read_plain, read=event_of)):
        change = _change(place, event, catalog, values, report)
        if change is not None:
            yield change


def texts_in(
    source: str, limit: int, catalog: Catalog | None, values: ValueOptions, report: Report
) -> Iterator[Change | RowTexts]:
    """Yield the changes as ``changes_in`` does, but yield the texts of rows (``RowTexts``) in place
    of changes where the form of a document allows this.
    """
    reader = TextsReader(catalog, values)
    read = partial(read_plain, read=reader, read_alike=reader.read_alike)
    for place, event in _all_events(source, limit, report, read):
        change = (
            event if isinstance(event, RowTexts) else _change(place, event, catalog, values, report)
        )
        if change is not None:
            report.read += len(change.keys) if isinstance(change, RowTexts) else 1
            yield change


def _change(
    place: str, event: Event, catalog: Catalog | None, values: ValueOptions, report: Report
) -> Change | None:
    """Return the change that an event describes. If the change cannot be read, report this and
    return None.
    """
    try:
        return event_to_change(event, catalog, values)
    except FormatError as error:
        report.skip(FormatError(f"{place}: {error}"))
        return None


# --- answers --------------------------------------------------------------------------------------


_NODES_OF_AN_EVENT: Final = 100
"""The number of elements and attributes that an answer may have for each event."""

ANSWER_LIMIT: Final = 4 * 1024 * 1024
"""The default limit on the number of bytes of an answer that is read."""


def read_answer(body: bytes | str, event_ids: Collection[str], limit: int = ANSWER_LIMIT) -> Answer:
    """Read the answer to a document of the events ``event_ids``. A heartbeat has no event-ids.

    ``limit`` is in bytes. The message of a result is the whole text of its status, stripped. If an
    event has several equally bad statuses, the message is the text of the first status that has a
    text. Every other element of the answer is counted as ignored. Raises ReceiverUnavailable if the
    body is not an answer: if it is empty, not well-formed, or larger than ``limit``, has a DOCTYPE
    or another root element, is an nds without output, or has more statuses than ``max_statuses``
    allows. After ReceiverUnavailable, no row may be marked.
    """
    if not body.strip():
        why = "the receiver's answer is empty; it must be an nds document with output"
        raise ReceiverUnavailable(why, why)
    try:
        root = parse_document(body, limit, _FREE_NODES + _NODES_OF_AN_EVENT * len(event_ids))
    except XdsError as error:
        why = "the receiver's answer cannot be read"
        raise ReceiverUnavailable(f"{why}: {error}", why) from error
    outputs = root.findall("output")
    if root.tag != "nds" or not outputs:
        what = "nds without output" if root.tag == "nds" else f"root element {root.tag}"
        why = "the receiver's answer is not an XDS answer"
        raise ReceiverUnavailable(f"{why}: {what}", why)

    most = max_statuses(event_ids)
    if next(islice(root.iter("status"), most, None), None) is not None:
        why = f"the receiver's answer has more than {most} statuses"
        raise ReceiverUnavailable(why, why)
    outermost, ignored = _statuses(outputs)
    ignored += sum(child.tag not in ("source", "output") for child in root)
    statuses = []
    for outer in outermost:
        message = "".join(str(text) for text in outer.itertext()).strip()
        # A nested status counts, too, with the text of the outer one.
        for status in outer.iter("status"):
            level = LEVELS.get(status.get("level", ""), Level.ERROR)
            statuses.append((status.get("event-id"), EventResult(level, message)))
    return answer_of(statuses, event_ids, ignored)


def _statuses(outputs: list[etree._Element]) -> tuple[list[etree._Element], int]:
    """Return the outermost statuses in the outputs, in document order, and the number of other
    elements.
    """
    statuses: list[etree._Element] = []
    ignored = 0
    waiting = [child for output in reversed(outputs) for child in reversed(output)]
    while waiting:
        element = waiting.pop()
        if element.tag == "status":
            statuses.append(element)
        else:
            ignored += 1
            waiting.extend(reversed(element))
    return statuses, ignored
