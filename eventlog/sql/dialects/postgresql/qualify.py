"""Statements in which every operator, function and type of the server has its schema.

The statements of eventlog are written with plain names, which a session with an unsafe search path
(``search_path``) would look up in schemas where others may create objects. ``with_schemas`` returns
the same statement in a form that the search path cannot affect. Some forms have an operator that
cannot be named: IN, BETWEEN, IS DISTINCT FROM, NULLIF, CASE with an operand, LIKE. They are
replaced by equivalent forms. A named operator has another precedence, so operands get parentheses
where they need them.

This is not a parser of SQL: it recognizes what the statements of eventlog, SQLAlchemy and Alembic
contain, and refuses the forms that it could not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple, NoReturn

from eventlog.sql.port.sql_files import AS_WRITTEN


class CannotQualify(ValueError):
    """A statement has a form that is not recognized."""


_TOKEN: Final = re.compile(
    r"""
    (?P<blank>(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)+)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
    |(?P<bind>%\([^)]+\)[sbt]|%[sbt]\b)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>(?:\d[\w]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<sign>::|[()\[\],;.:])
    |(?P<operator>(?:(?!--|/\*|%\([^)]+\)[sbt]|%[sbt]\b)[-+*/<>=~!@\#%^&|`?])+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS_IN_SIGN: Final = re.compile(r"(?![^-+]*[~!@#%^&|`?])(.+?)[-+]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STATEMENTS: Final = _words("SELECT INSERT UPDATE DELETE WITH VALUES DECLARE EXPLAIN COPY")
_CLAUSES: Final = _words(
    """ALL AS ASC BY CONFLICT CROSS DELETE DESC DISTINCT DO EXCEPT FETCH FIRST FOR FROM FULL GROUP
    HAVING INNER INSERT INTERSECT INTO JOIN LAST LATERAL LEFT LIMIT LOCKED MATERIALIZED NATURAL NEXT
    NOTHING NOWAIT NULLS OF OFFSET ON ONLY ORDER OUTER PARTITION RANGE RECURSIVE RETURNING RIGHT ROW
    ROWS SELECT SET SHARE SKIP UNION UPDATE USING VALUES VARIADIC WHERE WINDOW WITH"""
)
_INFIX: Final = _words("AND AT BETWEEN COLLATE ILIKE IN IS LIKE NOT OR OVERLAPS SIMILAR")
_INSIDE: Final = _words("ELSE END FILTER OVER THEN WHEN WITHIN")
_NO_FUNCTIONS: Final = _words(
    "ALL ANY ARRAY COALESCE EXISTS EXTRACT GREATEST GROUPING LEAST ROW SOME TRIM"
)
_TYPES: Final = _words(
    """aclitem anyarray bool bpchar bytea cidr date float4 float8 inet int2 int2vector int4 int8
    json jsonb jsonpath money name oid oidvector pg_lsn record regclass regnamespace regproc
    regprocedure regrole regtype text tid timestamptz timetz txid_snapshot uuid varchar xid xid8 xml
    "char" """
)
_LIKE: Final = {"LIKE": "~~", "ILIKE": "~~*"}
_PATTERN_ARRAY: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})

# The levels of PostgreSQL's precedence. A named operator has the level _NAMED.
(
    _OR,
    _AND,
    _NOT,
    _IS,
    _COMPARED,
    _IN,
    _NAMED,
    _SUM,
    _PRODUCT,
    _POWER,
    _AT,
    _COLLATE,
    _SIGN,
    _ATOM,
) = range(14)
_LEVELS: Final = {
    **dict.fromkeys(("<", ">", "=", "<=", ">=", "<>", "!="), _COMPARED),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys(("*", "/", "%", "%%"), _PRODUCT),
    "^": _POWER,
}


def with_schemas(statement: str) -> str:
    """Return a statement in which the search path finds no operator, function or type.

    SQL of users, which is marked by ``AS_WRITTEN``, and statements that change settings stay as
    they are; of a definition only the defaults and the condition change. Raises CannotQualify.
    """
    if statement.startswith(AS_WRITTEN):
        return statement
    tokens = list(_tokens(statement))
    parts, begin, depth = [], 0, 0
    for place, token in enumerate(tokens):
        depth += (token.text in "([") - (token.text in ")]") if token.kind == "sign" else 0
        if token.kind == "end" or (token.text == ";" and token.kind == "sign" and depth == 0):
            parts.append(_statement(tokens[begin:place]) + token.before + token.text)
            begin = place + 1
    return "".join(parts)


class _Token(NamedTuple):
    kind: str
    before: str
    """The blanks and comments before the token."""
    text: str

    @property
    def key(self) -> str:
        """The keyword that the token is, or the text of a sign or an operator."""
        match self.kind:
            case "word":
                return self.text.upper()
            case "sign" | "operator":
                return self.text
            case _:
                return ""


class _Term(NamedTuple):
    """A part of an expression."""

    before: str
    text: str
    level: int
    """The level of the outermost operator."""
    is_simple: bool = False
    """True for a literal, a bound value or a column, which may be written twice."""
    kind: str = ""

    def within(self, level: int) -> str:
        """Return the term as an operand of an operator, in parentheses if it needs them."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def whole(self) -> str:
        return self.before + self.text


def _tokens(statement: str) -> Iterator[_Token]:
    place, before = 0, ""
    while place < len(statement):
        found = _TOKEN.match(statement, place)
        if found is None:
            raise CannotQualify(f"unknown character at {statement[place : place + 20]!r}")
        kind, text = found.lastgroup or "", found[0]
        if kind == "tag":
            kind = "text"
        if kind == "operator" and (shorter := _ENDS_IN_SIGN.fullmatch(text)):
            text = shorter[1]
        place += len(text)
        if kind == "blank":
            before = text
        else:
            yield _Token(kind, before, text)
            before = ""
    yield _Token("end", before, "")


def _statement(tokens: list[_Token]) -> str:
    first = next((token.key for token in tokens if token.key != "("), "")
    if first in _STATEMENTS:
        return _Parser(tokens).all()
    if first in ("ALTER", "CREATE") and {"TABLE", "INDEX"} & {token.key for token in tokens[:3]}:
        return _Parser(tokens).definition()
    return "".join(token.before + token.text for token in tokens)


def _operator(text: str) -> str:
    return f"OPERATOR(pg_catalog.{'<>' if text == '!=' else text})"


_EQUAL: Final = _operator("=")


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = [*tokens, _Token("end", "", "")]
        self._place = 0

    def all(self) -> str:
        text = ""
        if self._key() == "DECLARE":
            while self._key() != "FOR":
                text += self._take()
            text += self._take()
        elif self._key() in ("EXPLAIN", "COPY"):
            is_copy = self._key() == "COPY"
            text += self._take()
            if self._key() == "(" and not is_copy:
                text += self._verbatim()
            if is_copy:
                text += self._group().whole if self._key() == "(" else ""
                return text + self._rest()
        text += self._items()
        if self._token().kind != "end":
            self._refuse()
        return text

    def definition(self) -> str:
        """Take the definition of a table or an index, with its defaults and its condition."""
        text = ""
        while self._token().kind != "end":
            key = self._key()
            text += self._take()
            if key == "WHERE" or (key == "DEFAULT" and self._key() != "AS"):
                text += self._expression(_OR if key == "WHERE" else _NAMED).whole
        return text

    # --- tokens

    def _token(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)]

    def _key(self, ahead: int = 0) -> str:
        return self._token(ahead).key

    def _take(self, *expected: str) -> str:
        token = self._token()
        if expected and token.key not in expected:
            self._refuse()
        self._place += 1
        return token.before + token.text

    def _rest(self) -> str:
        text = ""
        while self._token().kind != "end":
            text += self._take()
        return text

    def _verbatim(self) -> str:
        """Take a group in parentheses as it is written."""
        text, depth = "", 0
        while self._token().kind != "end":
            depth += (self._key() in ("(", "[")) - (self._key() in (")", "]"))
            text += self._take()
            if depth == 0:
                return text
        self._refuse()
        return None

    def _refuse(self) -> NoReturn:
        near = "".join(token.before + token.text for token in self._tokens[self._place :][:6])
        raise CannotQualify(f"unknown form at {near.strip()!r}")

    # --- clauses

    def _items(self) -> str:
        """Take the clauses of a statement, or what is in parentheses."""
        text, former = "", ""
        while self._token().kind != "end" and self._key() not in (")", "]"):
            key, is_first = self._key(), former in ("", "WITH", "RECURSIVE", ",")
            if key in (",", ":"):
                text += self._take()
            elif is_first and self._token().kind in ("word", "quoted") and self._names_table():
                text += self._take() + self._columns()
            elif key in _CLAUSES and not self._is_name():
                text += self._clause(key)
            else:
                text += self._expression(_OR).whole + self._alias()
            former = key
        return text

    def _names_table(self) -> bool:
        """Return True at the name of a common table expression with names of its columns."""
        if self._key(1) != "(":
            return False
        ahead = depth = 0
        while self._token(ahead).kind != "end":
            depth += (self._key(ahead) == "(") - (self._key(ahead) == ")")
            ahead += 1
            if depth == 0 and ahead > 1:
                after = self._key(ahead + 1)
                return self._key(ahead) == "AS" and after in ("(", "NOT", "MATERIALIZED")
        return False

    def _is_name(self) -> bool:
        """Return True if a word that may be a keyword is a name here."""
        after = self._token(1)
        if self._key() in ("LEFT", "RIGHT"):
            return after.key == "("
        return (
            self._key() in ("FIRST", "LAST", "NEXT", "RANGE", "ROWS", "OF", "SHARE", "ROW")
            and (
                (after.kind == "operator" and after.text != "*")
                or after.key in (".", "::", "IS", "IN", "BETWEEN", "LIKE", ")")
                or (self._key() == "ROW" and after.key == "(")
            )
            and not (after.key == ")" and self._place and self._key(-1) in ("NULLS", "ROWS"))
        )

    def _clause(self, key: str) -> str:
        text = self._take()
        match key:
            case "INTO":
                text += self._name()
                if self._key() == "(" and self._key(1) not in ("SELECT", "WITH", "VALUES"):
                    text += self._verbatim()
            case "AS":
                if self._key() == "NOT" or self._key() in ("(", "MATERIALIZED"):
                    text += self._take("NOT") if self._key() == "NOT" else ""
                else:
                    text += self._take() + self._columns()
                    if self._key() == "(":
                        text += self._columns()
            case "FROM" | "JOIN":
                if (
                    self._token().kind == "word"
                    and self._token().text.startswith("pg_")
                    and self._key(1) not in (".", "(")
                ):
                    token = self._token()
                    self._place += 1
                    text += f"{token.before}pg_catalog.{token.text}" + self._alias()
            case "WITH":
                if self._key() == "ORDINALITY":
                    text += self._take()
            case "SET":
                text += self._assignments()
            case "CONFLICT":
                text += self._verbatim() if self._key() == "(" else ""
            case "USING":
                if self._key() == "(":
                    self._refuse()
            case "FOR":
                while self._token().kind in ("word", "quoted") or self._key() in (",", "."):
                    text += self._take()
            case "ROWS" | "RANGE":
                while self._key() != ")" and self._token().kind != "end":
                    text += self._take()
        return text

    def _assignments(self) -> str:
        text = ""
        while True:
            text += self._verbatim() if self._key() == "(" else self._name()
            text += self._take("=") + self._expression(_OR).whole
            if self._key() != ",":
                return text
            text += self._take()

    def _name(self) -> str:
        """Take a name, which may have its schema."""
        if self._token().kind not in ("word", "quoted"):
            self._refuse()
        text = self._take()
        while self._key() == ".":
            text += self._take() + self._take()
        return text

    def _alias(self) -> str:
        token = self._token()
        if token.kind == "quoted" or (
            token.kind == "word" and token.key not in _CLAUSES | _INFIX | _INSIDE
        ):
            return self._take() + self._columns()
        return ""

    def _columns(self) -> str:
        """Take the names of columns after an alias, which may have types."""
        if self._key() != "(":
            return ""
        text = self._take()
        while self._key() != ")":
            text += self._take()
            if self._token().kind in ("word", "quoted"):
                text += self._type()
            if self._key() == ",":
                text += self._take()
        return text + self._take()

    # --- expressions

    def _expression(self, least: int) -> _Term:
        left = self._prefix()
        while (step := self._infix(least)) is not None:
            left = step(left)
        return left

    def _infix(self, least: int) -> Callable[[_Term], _Term] | None:
        token = self._token()
        key = token.key
        if token.kind == "operator":
            level = _LEVELS.get(key, _NAMED)
            return self._binary if level >= least and key != "=>" else None
        if key == "NOT":
            key = self._key(1)
            steps = {"IN": self._in, "BETWEEN": self._between, "LIKE": self._like}
            steps["ILIKE"] = self._like
            return steps.get(key) if least <= _IN else None
        steps_by_key: dict[str, tuple[int, Callable[[_Term], _Term]]] = {
            "OR": (_OR, self._joined),
            "AND": (_AND, self._joined),
            "IS": (_IS, self._is),
            "IN": (_IN, self._in),
            "BETWEEN": (_IN, self._between),
            "LIKE": (_IN, self._like),
            "ILIKE": (_IN, self._like),
            "OPERATOR": (_NAMED, self._binary),
            "AT": (_AT, self._at),
            "COLLATE": (_COLLATE, self._collate),
            "::": (_ATOM, self._cast),
            "[": (_ATOM, self._subscript),
            ".": (_ATOM, self._field),
        }
        if key == "OPERATOR" and self._key(1) != "(":
            return None
        if key not in steps_by_key:
            return None
        level, step = steps_by_key[key]
        return step if level >= least else None

    def _joined(self, left: _Term) -> _Term:
        level = _OR if self._key() == "OR" else _AND
        operator = self._take()
        right = self._expression(level + 1)
        return _Term(left.before, f"{left.text}{operator}{right.whole}", level)

    def _binary(self, left: _Term) -> _Term:
        token = self._token()
        if token.key == "OPERATOR":
            level, operator = _NAMED, self._take() + self._verbatim()
        else:
            self._place += 1
            level = _LEVELS.get(token.key, _NAMED)
            operator = (token.before or " ") + _operator(token.text)
        right = self._expression(level + 1)
        text = f"{left.within(_NAMED)}{operator}{right.before or ' '}{right.within(_NAMED + 1)}"
        return _Term(left.before, text, _NAMED)

    def _is(self, left: _Term) -> _Term:
        text = self._take()
        is_negated = self._key() == "NOT"
        text += self._take() if is_negated else ""
        if self._key() != "DISTINCT":
            return _Term(left.before, left.text + text + self._take(), _IS)
        text += self._take() + self._take("FROM")
        right = self._expression(_COMPARED)
        if "NULL" in (left.text.upper(), right.text.upper()):  # the server tests for NULL then
            return _Term(left.before, f"{left.text}{text}{right.whole}", _IS)
        one, other = left.within(_ATOM), right.within(_ATOM)
        same = (
            f"CASE WHEN {one} IS NOT DISTINCT FROM NULL THEN {other} IS NOT DISTINCT FROM NULL "
            f"WHEN {other} IS NOT DISTINCT FROM NULL THEN false ELSE {one} {_EQUAL} {other} END"
        )
        return _Term(left.before, f"({same})" if is_negated else f"(NOT {same})", _ATOM)

    def _in(self, left: _Term) -> _Term:
        is_negated = self._key() == "NOT"
        before = self._token().before
        self._take() if is_negated else ""
        self._take("IN")
        operator = f"{before}{_operator('<>')} ALL" if is_negated else f"{before}{_EQUAL} ANY"
        if self._key(1) in ("SELECT", "WITH", "VALUES"):
            text = f"{left.within(_NAMED)}{operator} {self._group().text}"
            return _Term(left.before, text, _NAMED)
        self._take("(")
        terms = [self._expression(_OR)]
        while self._key() == ",":
            self._take()
            terms.append(self._expression(_OR))
        self._take(")")
        if all(term.kind == "text" for term in terms):
            array = ",".join(f'"{term.text[1:-1].translate(_PATTERN_ARRAY)}"' for term in terms)
            return _Term(left.before, f"{left.within(_NAMED)}{operator} ('{{{array}}}')", _NAMED)
        if all(term.kind in ("number", "cast") for term in terms) and len(terms) > 1:
            array = ", ".join(term.text for term in terms)
            return _Term(left.before, f"{left.within(_NAMED)}{operator} (ARRAY[{array}])", _NAMED)
        single, joined = (_operator("<>"), " AND ") if is_negated else (_EQUAL, " OR ")
        pairs = [f"{left.within(_NAMED)} {single} {term.within(_NAMED + 1)}" for term in terms]
        return _Term(left.before, f"({joined.join(pairs)})", _ATOM)

    def _between(self, left: _Term) -> _Term:
        is_negated = self._key() == "NOT"
        if is_negated:
            self._take()
        self._take("BETWEEN")
        low = self._expression(_NAMED)
        self._take("AND")
        high = self._expression(_NAMED)
        one = left.within(_NAMED)
        text = (
            f"{one} {_operator('>=')} {low.within(_NAMED + 1)} AND "
            f"{one} {_operator('<=')} {high.within(_NAMED + 1)}"
        )
        return _Term(left.before, f"(NOT ({text}))" if is_negated else f"({text})", _ATOM)

    def _like(self, left: _Term) -> _Term:
        before = self._token().before
        is_negated = self._key() == "NOT"
        if is_negated:
            self._take()
        operator = _operator(("!" if is_negated else "") + _LIKE[self._key()])
        self._take()
        right = self._expression(_NAMED)
        pattern = right.within(_NAMED + 1)
        if self._key() == "ESCAPE":
            self._take()
            escape = self._expression(_NAMED)
            pattern = f"pg_catalog.like_escape({right.text}, {escape.text})"
        text = f"{left.within(_NAMED)}{before}{operator}{right.before}{pattern}"
        return _Term(left.before, text, _NAMED)

    def _at(self, left: _Term) -> _Term:
        text = self._take() + self._take("TIME") + self._take("ZONE")
        right = self._expression(_AT + 1)
        return _Term(left.before, f"{left.within(_AT)}{text}{right.whole}", _AT)

    def _collate(self, left: _Term) -> _Term:
        text = self._take()
        if self._token().kind == "quoted" and self._key(1) != ".":
            token = self._token()
            self._place += 1
            text += f"{token.before}pg_catalog.{token.text}"
        else:
            text += self._name()
        return _Term(left.before, left.within(_COLLATE) + text, _COLLATE)

    def _cast(self, left: _Term) -> _Term:
        text = self._take() + self._type()
        return _Term(left.before, left.within(_ATOM) + text, _ATOM, left.is_simple, "cast")

    def _subscript(self, left: _Term) -> _Term:
        text = self._take() + self._items() + self._take("]")
        return _Term(left.before, left.within(_ATOM) + text, _ATOM)

    def _field(self, left: _Term) -> _Term:
        return _Term(left.before, left.within(_ATOM) + self._take() + self._take(), _ATOM)

    def _prefix(self) -> _Term:
        token = self._token()
        if token.key == "NOT":
            self._place += 1
            right = self._expression(_NOT)
            return _Term(token.before, f"{token.text}{right.whole}", _NOT)
        if token.kind == "operator" and token.text != "*":
            self._place += 1
            right = self._expression(_SIGN if token.text in "+-" else _SUM)
            if right.kind == "number" and token.text in "+-":
                return _Term(token.before, token.text + right.whole, _SIGN, kind="number")
            return _Term(
                token.before, f"{_operator(token.text)} {right.within(_NAMED + 1)}", _NAMED
            )
        return self._atom()

    def _atom(self) -> _Term:
        token = self._token()
        key, before = token.key, token.before
        if key == "(":
            return self._group()
        if token.kind in ("text", "number", "bind") or key == "*":
            self._place += 1
            kind = "text" if token.kind == "text" and token.text.startswith("'") else token.kind
            return _Term(before, token.text, _ATOM, is_simple=True, kind=kind)
        if key == "CASE":
            return self._case()
        if key == "CAST" and self._key(1) == "(":
            self._place += 2
            value = self._expression(_OR)
            text = f"{token.text}({value.whole}{self._take('AS')}{self._type()}{self._take(')')}"
            return _Term(before, text, _ATOM, value.is_simple, "cast")
        if key == "NULLIF" and self._key(1) == "(":
            self._place += 2
            one = self._expression(_OR)
            self._take(",")
            other = self._expression(_OR)
            self._take(")")
            same = f"{one.within(_NAMED)} {_EQUAL} {other.within(_NAMED + 1)}"
            return _Term(before, f"CASE WHEN {same} THEN NULL ELSE {one.text} END", _ATOM)
        if key == "ARRAY" and self._key(1) == "[":
            self._place += 1
            text = token.text + self._take("[") + self._items() + self._take("]")
            return _Term(before, text, _ATOM)
        if token.kind not in ("word", "quoted") or key in (_CLAUSES | _INFIX | _INSIDE) - {
            "ALL",
            "FIRST",
            "LAST",
            "NEXT",
            "RANGE",
            "ROWS",
            "OF",
            "SHARE",
            "ROW",
            "LEFT",
            "RIGHT",
        }:
            self._refuse()
        return self._named()

    def _named(self) -> _Term:
        """Take a column, a function with its arguments, or a literal with its type."""
        token = self._token()
        key, before, text = token.key, token.before, token.text
        after = self._token(1)
        if token.kind == "word" and after.kind == "text":
            self._place += 1
            schema = "pg_catalog." if text.lower() in _TYPES else ""
            return _Term(before, schema + text + self._take(), _ATOM)
        name = self._name()[len(before) :]
        if self._key() != "(":
            while self._key() == "[":
                name += self._take() + self._items() + self._take("]")
            return _Term(before, name, _ATOM, is_simple=True)
        if key in ("ANY", "ALL", "SOME"):
            return _Term(before, name + self._group().whole, _ATOM)
        is_special = key in _NO_FUNCTIONS or (
            (key in ("SUBSTRING", "OVERLAY") and self._has(("FROM", "FOR", "PLACING")))
            # The server makes one call per argument, always of pg_catalog.unnest.
            or (key == "UNNEST" and self._has((",",)))
        )
        if key == "POSITION":
            self._refuse()
        if token.kind == "word" and name == text and not is_special:
            name = f"pg_catalog.{name}"
        name += self._group().whole
        while self._key() in ("FILTER", "OVER", "WITHIN"):
            name += self._take()
            name += self._take("GROUP") if self._key() == "GROUP" else ""
            name += self._group().whole if self._key() == "(" else self._take()
        return _Term(before, name, _ATOM)

    def _has(self, separators: Container[str]) -> bool:
        """Return True if the arguments of a function are separated by one of these."""
        ahead = depth = 0
        while self._token(ahead).kind != "end":
            key = self._key(ahead)
            depth += (key in ("(", "[")) - (key in (")", "]"))
            if depth == 0:
                return False
            if depth == 1 and key in separators:
                return True
            ahead += 1
        return False

    def _group(self) -> _Term:
        """Take an expression, a list or a statement in parentheses."""
        before = self._token().before
        if AS_WRITTEN in before:
            return _Term(before, self._verbatim()[len(before) :], _ATOM)
        self._place += 1
        return _Term(before, f"({self._items()}{self._take(')')}", _ATOM)

    def _case(self) -> _Term:
        before = self._token().before
        text = self._take("CASE")[len(before) :]
        operand = None if self._key() == "WHEN" else self._expression(_OR)
        while self._key() == "WHEN":
            text += self._take()
            condition = self._expression(_OR)
            if operand is None:
                text += condition.whole
            else:
                text += f" {operand.within(_NAMED)} {_EQUAL} {condition.within(_NAMED + 1)}"
            text += self._take("THEN") + self._expression(_OR).whole
        if self._key() == "ELSE":
            text += self._take() + self._expression(_OR).whole
        return _Term(before, text + self._take("END"), _ATOM)

    def _type(self) -> str:
        """Take the name of a type."""
        token = self._token()
        if token.kind not in ("word", "quoted"):
            self._refuse()
        text = self._name()
        if text == token.before + token.text and token.text.lower() in _TYPES:
            text = f"{token.before}pg_catalog.{token.text}"
        if self._key() in ("PRECISION", "VARYING"):
            text += self._take()
        if self._key() == "(":
            text += self._verbatim()
        if self._key() in ("WITH", "WITHOUT") and self._key(1) == "TIME":
            text += self._take() + self._take() + self._take("ZONE")
        while self._key() == "[":
            text += self._verbatim()
        return text
