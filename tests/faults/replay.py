"""A receiver in miniature: XDS documents applied to dicts, with lxml and nothing of eventlog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lxml import etree

Objects = dict[str, dict[str, list[str]]]
"""Association -> attribute -> its values, sorted. Attributes without value are left out."""


@dataclass
class Replay:
    """Objects as the events make them. Events whose event-id was applied before are dropped.

    ``strict``: classes whose every change is logged by value. There an add finds no object, a
    modify and a delete find one, and what is removed is there: anything else is an event that came
    in the wrong order, or was lost. ``whole_adds``: no insert is cut into several adds, so that an
    add takes the place of what the receiver had of an object whose delete no trigger has logged.
    """

    strict: frozenset[str] = frozenset()
    whole_adds: bool = False
    deleting: frozenset[str] | None = None
    """The event-ids of rows of type 4, None = of every delete. A recorded event that reads back may
    come again as a delete of its object (spec/event-log.md 8.4): until the row of type 4, earlier
    changes of the object then find nothing there.
    """
    deleted_early: set[str] = field(default_factory=set)
    objects: Objects = field(default_factory=dict)
    applied: dict[str, str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    repeated: int = 0

    @property
    def filled(self) -> Objects:
        """The objects that have a value."""
        return {key: attributes for key, attributes in self.objects.items() if attributes}

    def documents(self, bodies: Iterable[str | bytes]) -> None:
        for body in bodies:
            root = etree.fromstring(body if isinstance(body, bytes) else body.encode())
            for event in root.iterfind("input/*"):
                self.event(event)

    def event(self, event: etree._Element) -> None:
        event_id, association = event.attrib["event-id"], event.findtext("association")
        assert association
        if event_id in self.applied:
            self.repeated += 1
            return
        self.applied[event_id] = association
        class_name = event.attrib["class-name"]
        self.classes[association] = class_name
        by_value = class_name in self.strict and association not in self.deleted_early
        if by_value:
            there = association in self.objects
            assert there is (event.tag != "add"), (
                f"{event.tag} {event_id} of {association}: there is {there}"
            )
        if event.tag == "delete":
            self.objects.pop(association, None)
            if self.deleting is None or event_id.partition(".")[0] in self.deleting:
                self.deleted_early.discard(association)
            else:
                self.deleted_early.add(association)
            return
        if event.tag == "add" and self.whole_adds:
            self.objects[association] = {}
        attributes = self.objects.setdefault(association, {})
        for attribute in event.iterfind("*[@attr-name]"):
            name = attribute.attrib["attr-name"]
            values = attributes.pop(name, [])
            for step in [attribute] if event.tag == "add" else attribute:
                values = _stepped(values, step, by_value)
            if values:
                attributes[name] = sorted(values)


def _stepped(values: list[str], step: etree._Element, by_value: bool) -> list[str]:
    given = [value.text or "" for value in step.iterfind("value")]
    if step.tag == "remove-all-values":
        return []
    if step.tag == "remove-value":
        for value in given:
            if by_value:
                assert value in values, f"{value!r} is to be removed from {values!r}"
            values = [other for other in values if other != value]
        return values
    if by_value:
        assert not set(given) & set(values), f"{given!r} is to be added to {values!r}"
    return values + [value for value in given if value not in values]
