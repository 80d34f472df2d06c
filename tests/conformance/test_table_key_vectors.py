"""``table_key.json``: every key parsed, normalised, written, every error with its offset
(spec/event-log.md 4).
"""

from __future__ import annotations

from typing import Any

import pytest
from vector_cases import known_members

from eventlog.core.table_key import canonicalizer, parse, parts_text
from eventlog.core.values import parse_type
from eventlog.errors import BadTableKey

Case = dict[str, Any]


def canonical_text(case: Case) -> str:
    if "key_columns" not in case:
        return parts_text(parse(case["text"]))
    return canonicalizer(
        [(name, parse_type(column_type)) for name, column_type in case["key_columns"]]
    )(case["text"])


def test_valid_key(valid_key: Case) -> None:
    known_members("valid key", valid_key, {"text", "parts", "canonical"}, {"key_columns"})
    assert [[part.name, part.value] for part in parse(valid_key["text"])] == valid_key["parts"]
    assert canonical_text(valid_key) == valid_key["canonical"]


def test_canonical_text_is_its_own_canonical_text(valid_key: Case) -> None:
    assert canonical_text({**valid_key, "text": valid_key["canonical"]}) == valid_key["canonical"]


def test_invalid_key(invalid_key: Case) -> None:
    known_members("invalid key", invalid_key, {"text", "error", "offset"}, {"key_columns"})
    with pytest.raises(BadTableKey) as caught:
        canonical_text(invalid_key)
    assert (caught.value.error, caught.value.offset) == (
        invalid_key["error"],
        invalid_key["offset"],
    )
