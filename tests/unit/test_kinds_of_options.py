"""How the texts of options are read and written: truth values, statements, TOML."""

from __future__ import annotations

import contextlib
import tomllib
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.config.driver_tags import split_statements
from eventlog.core.options import parse_boolean, toml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("yes", True),
        ("TRUE", True),
        ("0", False),
        ("No", False),
        ("false", False),
        (1, True),
        (0, False),
    ],
)
def test_booleans_are_written_in_any_case(text: Any, value: bool) -> None:
    assert parse_boolean(text) is value


@pytest.mark.parametrize("text", ["", "2", "on", "y", 2, 1.0, None])
def test_other_words_are_no_booleans(text: Any) -> None:
    with pytest.raises(ValueError):
        parse_boolean(text)


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", ()),
        (" ; ;", ()),
        ("a;b", ("a", "b")),
        ("select ';' ; b", ("select ';'", "b")),
        ("select 'it''s;' ; b", ("select 'it''s;'", "b")),
        ('select ";";b', ('select ";"', "b")),
        ("do $$ a; b $$; c", ("do $$ a; b $$", "c")),
        ("do $x$ a; $$ b $x$; c", ("do $x$ a; $$ b $x$", "c")),
        ("select $1; b", ("select $1", "b")),
        ("do $ü$ a; $ü$; c", ("do $ü$ a; $ü$", "c")),
        ("select a$b$c; select d$b$", ("select a$b$c", "select d$b$")),
        ("a -- it's; not\n; b", ("a -- it's; not", "b")),
        ("a /* ; ' */; b", ("a /* ; ' */", "b")),
        ("a /* b /* ; */ ; */; c", ("a /* b /* ; */ ; */", "c")),
        ("a /* b /* ; */; c", ("a /* b /* ; */", "c")),
        ("-- nothing\n; /* nothing; */ ; a; -- nothing", ("a",)),
        ("select E'\\';' ; b", ("select E'\\';'", "b")),
        ("select e'it''s\\\\' ; b", ("select e'it''s\\\\'", "b")),
        ("select type'\\' ; b", ("select type'\\'", "b")),
        ("select '-- ;' ; b", ("select '-- ;'", "b")),
        ("a - -1; b", ("a - -1", "b")),
    ],
)
def test_sql_is_split_outside_quotes_and_comments(sql: str, statements: tuple[str, ...]) -> None:
    assert split_statements(sql) == statements


@pytest.mark.parametrize("sql", ["a 'b", 'a "b', "a $x$ b $y$", "a E'b\\'", "a /* b", "a `b"])
def test_a_quote_or_comment_that_does_not_end_is_refused(sql: str) -> None:
    with pytest.raises(ValueError, match="at offset 2 does not end"):
        split_statements(sql)


@pytest.mark.parametrize("piece", ["/*", "$x$", "$", "E'a'", "a$", "--\n", "\\"])
def test_long_sql_is_split_in_time(piece: str) -> None:
    begun = process_time()
    with contextlib.suppress(ValueError):
        split_statements("a;" + piece * 50_000)
    assert process_time() - begun < 2


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="'\"`$;-/"))))
def test_statements_without_quotes_come_back_as_they_were(statements: list[str]) -> None:
    stripped = tuple(statement.strip() for statement in statements if statement.strip())
    assert split_statements(";".join(statements)) == stripped


VALUES = st.recursive(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=5,
)


@given(VALUES)
@example("\x7f\x00\\\"'\n\t")
def test_what_is_written_as_toml_reads_back(value: Any) -> None:
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}
