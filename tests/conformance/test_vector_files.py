"""Nothing in a directory of vectors is passed over silently."""

from __future__ import annotations

import json
from pathlib import Path

from vector_cases import known_members

KNOWN = {"README.md", "table_key.json"}
WITHOUT_HARNESS = {"gbase.json", "linter.json", "qlik.json"}


def test_file_is_known(vector_file: Path) -> None:
    name, folder = vector_file.name, vector_file.parent.name
    assert name not in WITHOUT_HARNESS, f"this version of eventlog has no harness for {name}"
    if folder == "xds":
        partner = {".json": ".xml", ".xml": ".json"}.get(vector_file.suffix)
        assert partner, f"{name} is neither a case (.json) nor an envelope (.xml)"
        assert vector_file.with_suffix(partner).is_file(), f"{name} has no {partner} beside it"
    else:
        assert name in KNOWN, f"no harness knows {vector_file}"
    if name == "table_key.json":
        known_members(name, json.loads(vector_file.read_text(encoding="utf-8")), {"about", "valid", "invalid"})
