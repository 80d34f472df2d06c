"""SQL text that others wrote: split into statements, and read for the tables that it changes.

A database alone can parse its SQL. What is asked here needs less: the pieces of the text (words,
quoted names, strings, comments), and the names that follow the words which change tables. A
statement that hides its tables, such as the call of a procedure, changes none by this reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_PIECE: Final = re.compile(
    r"""
    (?P<comment> --[^\n]*+ | /\*)
    | [eE]'(?:[^'\\]|\\.|'')*+ (?: ' | (?P<escaped>))   # PostgreSQL: a backslash escapes
    | '[^']*+' | "[^"]*+" | `[^`]*+`
    | \$(?P<tag>(?:[^\W\d]\w*+)?)\$ (?: .*? \$(?P=tag)\$ | (?P<open>))
    | \w[\w$]*+                         # a word, whose letters and dollars begin nothing
    | \s++
    | [^;'"`]
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT_ENDS: Final = re.compile(r"/\*|\*/")


def split_statements(sql: str) -> tuple[str, ...]:
    """Return the statements of a text: SQL split at ``;`` outside quotes and comments
    (spec/event-log.md 9). Statements of only blanks and comments are left out.

    Quotes are ``'``, ``"``, a backtick, and PostgreSQL's ``E''`` and ``$tag$``; comments ``--`` and
    ``/* */``, which may be nested. Raises ValueError for a quote or comment that does not end.
    """
    statements, start, at, says = [], 0, 0, False
    while at < len(sql):
        if sql[at] == ";":
            if says:
                statements.append(sql[start:at])
            at = start = at + 1
            says = False
            continue
        piece = _PIECE.match(sql, at)
        if piece is None or piece["open"] is not None or piece["escaped"] is not None:
            raise ValueError(f"the quote at offset {at} does not end")
        if piece["comment"] == "/*":
            at = _end_of_comment(sql, at)
            continue
        says = says or not (piece["comment"] or piece[0].isspace())
        at = piece.end()
    if says:
        statements.append(sql[start:])
    return tuple(statement.strip() for statement in statements)


def _end_of_comment(sql: str, begin: int) -> int:
    """Return the offset behind a comment. If not all nested comments end, it is the offset behind
    the first end, since comments nest in PostgreSQL only.
    """
    depth, first = 0, None
    for mark in _COMMENT_ENDS.finditer(sql, begin):
        depth += 1 if mark[0] == "/*" else -1
        if mark[0] == "*/":
            first = first or mark.end()
        if depth == 0:
            return mark.end()
    if first is None:
        raise ValueError(f"the comment at offset {begin} does not end")
    return first


# --- the tables that a statement changes ----------------------------------------------------------

Name = tuple[str, ...]
"""A name of a table with its schema, as far as it is written, casefolded."""


class _Token(NamedTuple):
    """A word, a quoted name or a sign of a statement. ``word`` is a bare word in upper case, empty
    for the others; ``name`` is what it names, casefolded, empty for a sign.
    """

    word: str
    name: str
    sign: str = ""


_QUOTES: Final = ("'", '"', "`")
_END: Final = _Token("", "", ";")
_RUN_COMMENT: Final = re.compile(r"/\*M?!\d*")
"""The beginning of a comment whose text MariaDB runs."""
_MOST_TOKENS: Final = 1_000
"""The most tokens of a statement that are read, since each word of change is read on from."""
_BODY: Final = re.compile(r"(\$\w*\$)(.*)\1", re.DOTALL)


def changed_table(statement: str, schema: str | None, tables: Collection[str]) -> str | None:
    """Return the first of these tables that a statement changes or removes by DELETE, UPDATE,
    MERGE, REPLACE, TRUNCATE, DROP, RENAME or ALTER TABLE; None if it changes none that can be seen.

    ``schema`` is that of the tables, None = the session's own. Names are compared without case; one
    without a schema is taken for one of ``schema``. A table that is only read is not changed.
    """
    # MariaDB escapes by a backslash in strings where other databases do not: both readings count.
    readings = {statement, re.sub(r"\\.", "", statement, flags=re.DOTALL)}
    changed = set[Name]().union(*map(_changed, readings))
    for table in tables:
        for *schemas, name in changed:
            is_there = schema is None or not schemas or schemas[-1] == schema.casefold()
            if is_there and name == table.casefold():
                return table
    return None


def _changed(statement: str) -> set[Name]:
    """Return the names that follow the words of change, and those that they are aliases of."""
    tokens, bodies = _tokens(statement)
    changed: set[Name] = set()
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else _END
        if token.word in _CHANGES and before.sign != "." and before.word != "FOR":
            changed.update(filter(None, _CHANGES[token.word](tokens, at + 1)))
    changed.update(_meant_by(tokens, {name for (name, *rest) in changed if not rest}))
    if tokens and tokens[0].word == "DO":  # a block of PostgreSQL
        changed.update(*map(_changed, bodies))
    return changed


def _tokens(sql: str) -> tuple[list[_Token], list[str]]:
    """Return the first tokens of a text, up to a quote without end, and its texts in ``$$``."""
    tokens: list[_Token] = []
    bodies: list[str] = []
    at = 0
    while at < len(sql) and len(tokens) < _MOST_TOKENS:
        piece = _PIECE.match(sql, at)
        text = sql[at] if piece is None else piece[0]
        if text in _QUOTES or (piece and {piece["open"], piece["escaped"]} != {None}):
            break
        at += len(text)
        if text == "/*":
            try:
                run = _RUN_COMMENT.match(sql, at - 2)
                at = _end_of_comment(sql, at - 2) if run is None else run.end()
            except ValueError:
                break
        elif body := _BODY.fullmatch(text):
            bodies.append(body[2])
        elif text[0] in _QUOTES:  # SQLite takes a string for a name
            tokens.append(_Token("", text[1:-1].casefold()))
        elif text[0].isalnum() or text[0] == "_":
            tokens.append(_Token(text.upper(), text.casefold()))
        elif not text.isspace() and not text.startswith("--"):
            tokens.append(_Token("", "", text))
    return tokens, bodies


def _meant_by(tokens: Sequence[_Token], aliases: Collection[str]) -> Iterator[Name]:
    """Yield the names that stand before these aliases, with ``AS`` or without."""
    for at, token in enumerate(tokens):
        if token.name not in aliases or not at:
            continue
        last = at - 2 if tokens[at - 1].word == "AS" else at - 1
        if last >= 0 and tokens[last].name:
            has_schema = last >= 2 and tokens[last - 1].sign == "."
            yield (*([tokens[last - 2].name] if has_schema else []), tokens[last].name)


class _Reader:
    """A place in the tokens of a statement, whose methods read on from there."""

    def __init__(self, tokens: Sequence[_Token], at: int) -> None:
        self._tokens, self.at = tokens, at

    @property
    def token(self) -> _Token:
        return self._tokens[self.at] if self.at < len(self._tokens) else _END

    def skip(self, *words: str) -> bool:
        """Pass over words as long as one of these is next, and return whether there was one."""
        begin = self.at
        while self.token.word in words:
            self.at += 1
        return self.at > begin

    def skip_sign(self, sign: str) -> bool:
        is_next = self.token.sign == sign
        self.at += is_next
        return is_next

    def name(self) -> Name:
        """Return the name that is next, empty if there is none."""
        parts: list[str] = []
        while True:
            in_brackets = self.skip_sign("[")  # SQLite
            if not self.token.name:
                break
            parts.append(self.token.name)
            self.at += 1
            if in_brackets:
                self.skip_sign("]")
            if not self.skip_sign("."):
                break
        return tuple(parts)

    def in_parentheses(self) -> Iterator[Name]:
        """Yield all names in the parentheses that are next, a query or a table."""
        depth = 0
        while self.token.sign != _END.sign:
            if self.token.name:
                yield self.name()
                continue
            depth += (self.token.sign == "(") - (self.token.sign == ")")
            self.at += 1
            if depth <= 0:
                return

    def list(self) -> Iterator[Name]:
        """Yield the names of a list of tables, with aliases or without, that is next."""
        while True:
            self.skip("ONLY")
            if self.token.sign == "(":
                yield from self.in_parentheses()
            elif name := self.name():
                yield name
            else:
                return
            self.skip_sign("*")
            self.skip("AS")
            if not self.skip_sign(","):
                self.name()
                if not self.skip_sign(","):
                    return

    def statement(self) -> Iterator[_Token]:
        """Yield the tokens up to the end of the statement that are in no parentheses."""
        depth = 0
        while self.token.sign != _END.sign:
            depth += (self.token.sign == "(") - (self.token.sign == ")")
            if depth < 0:
                return
            if depth == 0:
                yield self.token
            self.at += 1


def _deleted(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """DELETE: the tables between it and FROM, as MariaDB has several, else those behind FROM."""
    reader = _Reader(tokens, at)
    reader.skip("LOW_PRIORITY", "QUICK", "IGNORE")
    reader.skip("FROM")
    yield from reader.list()


def _updated(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """UPDATE: the table; of several joined ones those whose columns are set."""
    reader = _Reader(tokens, at)
    reader.skip("LOW_PRIORITY", "OR", "ROLLBACK", "ABORT", "REPLACE", "FAIL", "IGNORE", "ONLY")
    if reader.token.sign == "(":
        yield from reader.in_parentheses()
        return
    first = reader.at
    before_set = []
    for token in reader.statement():
        if token.word == "SET":
            break
        before_set.append(token)
    else:
        return
    if not any(token.sign == "," or token.word == "JOIN" for token in before_set):
        yield _Reader(tokens, first).name()
        return
    tables = [*_Reader(tokens, first).list()]
    joined = [at for at, token in enumerate(before_set) if token.word == "JOIN"]
    tables += [_Reader(before_set, at + 1).name() for at in joined]
    reader.at += 1
    while name := reader.name():
        yield from [name[:-1]] if len(name) > 1 else tables
        for token in reader.statement():
            if token.sign == ",":
                reader.at += 1
                break
            if token.word in ("WHERE", "ORDER", "LIMIT", "RETURNING"):
                return


def _merged(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """MERGE and REPLACE: the table behind INTO; REPLACE may be a function, or part of CREATE."""
    reader = _Reader(tokens, at)
    reader.skip("LOW_PRIORITY", "DELAYED", "INTO", "TABLE")
    yield reader.name()


def _truncated(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """TRUNCATE: a list of tables; it may be a function."""
    reader = _Reader(tokens, at)
    reader.skip("TABLE")
    if reader.token.sign != "(":
        yield from reader.list()


def _renamed(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """RENAME: a table, or several, each with its new name behind it."""
    reader = _Reader(tokens, at)
    reader.skip("TABLE", "TABLES", "IF", "EXISTS")
    while name := reader.name():
        yield name
        reader.skip("TO")
        reader.name()
        if not reader.skip_sign(","):
            return


def _dropped(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """DROP: a list of tables or sequences."""
    reader = _Reader(tokens, at)
    reader.skip("TEMPORARY", "FOREIGN")
    if reader.skip("TABLE", "SEQUENCE"):
        reader.skip("IF", "EXISTS")
        yield from reader.list()


_REMOVES: Final = frozenset({"RENAME", "TRUNCATE", "DROP", "EXCHANGE", "DETACH"})


def _altered(tokens: Sequence[_Token], at: int) -> Iterator[Name]:
    """ALTER TABLE: the table, if it loses rows, columns or its name."""
    reader = _Reader(tokens, at)
    if reader.skip("TABLE"):
        reader.skip("IF", "EXISTS", "ONLY")
        name = reader.name()
        if any(token.word in _REMOVES for token in reader.statement()):
            yield name


_CHANGES: Final[Mapping[str, Callable[[Sequence[_Token], int], Iterator[Name]]]] = {
    "DELETE": _deleted,
    "UPDATE": _updated,
    "MERGE": _merged,
    "REPLACE": _merged,
    "TRUNCATE": _truncated,
    "RENAME": _renamed,
    "DROP": _dropped,
    "ALTER": _altered,
}
"""The words of change, and the functions that yield the names of the tables behind them."""
