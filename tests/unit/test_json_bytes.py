"""Objects of JSON as bytes, by orjson and by the plain way for what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.values.json_bytes import JsonText, escaped_json_bytes, json_bytes, plain_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_reads_back_as_it_was(value: Any) -> None:
    assert repr(json.loads(json_bytes(value))) == repr(value)


@given(VALUES)
def test_the_plain_way_means_the_same(value: Any) -> None:
    plain = plain_text(value, json.encoder.encode_basestring)
    assert repr(json.loads(plain)) == repr(json.loads(json_bytes(value)))


def test_members_keep_their_order_and_text_its_characters() -> None:
    assert (
        json_bytes({"b": "é\u2028", "a": [True, None, "\n\x7f"]})
        == '{"b":"é\u2028","a":[true,null,"\\n\x7f"]}'.encode()
    )


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**60, 2**64 - 1, 2**63])
def test_an_integer_of_more_than_64_bits_is_a_number(number: int) -> None:
    assert json_bytes({"n": number, "t": "é"}) == f'{{"n":{number},"t":"é"}}'.encode()


def test_half_a_surrogate_pair_is_refused() -> None:
    for value in ({"t": "a\ud800"}, {"\udc00": 1}, {"d": JsonText('"\ud800"')}):
        with pytest.raises(UnicodeEncodeError):
            json_bytes(value)


def test_half_a_surrogate_pair_is_escaped_where_that_is_asked_for() -> None:
    value = {"t": "a\ud800", "other": "é", "n": 2**64}
    assert (
        escaped_json_bytes(value) == b'{"t":"a\\ud800","other":"\\u00e9","n":18446744073709551616}'
    )
    assert (
        escaped_json_bytes({"d": JsonText('["é\ud800", 1.10]')})
        == b'{"d":["\\u00e9\\ud800", 1.10]}'
    )
    assert escaped_json_bytes({"t": "é"}) == '{"t":"é"}'.encode()


@pytest.mark.parametrize("number", [1, 2**64])
def test_a_text_of_json_stands_as_it_is(number: int) -> None:
    value = {"doc": JsonText('{"price": 1.10, "n": 1e400}'), "n": number}
    assert json_bytes(value) == f'{{"doc":{{"price": 1.10, "n": 1e400}},"n":{number}}}'.encode()


def test_what_is_no_json_is_refused() -> None:
    for value in (b"x", {"a": b"x"}, {"a": {1}}, [object()]):
        with pytest.raises(TypeError):
            json_bytes(value)
