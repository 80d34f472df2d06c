"""Nothing in a directory of vectors is passed over silently."""

from __future__ import annotations

import json
from pathlib import Path

from vector_cases import known_members

MEMBERS = {
    "table_key.json": {"about", "valid", "invalid"},
    "gbase.json": {"format", "about", "values", "records", "streams", "framing_errors"},
    "linter.json": {
        "format", "about", "oper_date", "syslog_addr", "blobatr", "images", "image_errors",
        "assembly", "queues",
    },
    "qlik.json": {
        "format", "about", "masks", "mask_errors", "mask_reads", "sequences", "sequence_writer",
        "partitions", "messages", "keys", "conversions", "live_views",
    },
}  # fmt: skip


def test_file_is_known(vector_file: Path) -> None:
    name, folder = vector_file.name, vector_file.parent.name
    if folder == "xds":
        partner = {".json": ".xml", ".xml": ".json"}.get(vector_file.suffix)
        assert partner, f"{name} is neither a case (.json) nor a document (.xml)"
        assert vector_file.with_suffix(partner).is_file(), f"{name} has no {partner} next to it"
    else:
        assert name in MEMBERS or name == "README.md", f"no harness knows {vector_file}"
        if name in MEMBERS:
            known_members(
                name, json.loads(vector_file.read_text(encoding="utf-8")), (), MEMBERS[name]
            )
