"""Validation against our RELAX NG schema of the vocabulary, ``xds.rng`` (spec/xds.md 1)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lxml import etree

from eventlog.errors import XdsError
from eventlog.xds.reader import DEFAULT_LIMIT, parse_document


def validate(document: bytes | str, limit: int = DEFAULT_LIMIT) -> None:
    """Check a document: events, a heartbeat or an answer. ``limit`` in bytes.

    Raises XdsError with line and reason: not well-formed, or not of the vocabulary as ``eventlog`` writes it (order of
    elements, attributes, content of typed values). The reader accepts a little more.
    """
    root = parse_document(document, limit)
    schema = _schema()
    if not schema.validate(root):
        # The first line alone says which alternative did not fit, which is no help; the innermost element comes next.
        said = [error for error in schema.error_log if not error.message.startswith("failed to compare")]
        reasons = "; ".join(dict.fromkeys(error.message for error in said[:2]))
        raise XdsError(f"line {said[0].line}: {reasons}")


@cache
def _schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.fromstring(files("eventlog.xds").joinpath("xds.rng").read_bytes()))
