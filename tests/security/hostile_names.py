"""Objects of another role that take exactly the types with which statements call operators and
functions, so that PostgreSQL prefers them wherever it looks a name up in the search path.

``calls_of`` reads the calls from the parse trees of statements (``debug_print_parse``), as the
server sends them to the client. ``create_hostile`` creates an operator or a function for each of
them. The objects return what the server's own return, and the server counts how often they are
called (``track_functions``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

Node = dict[str, Any]


class Call(NamedTuple):
    """A call of an operator or function of the server, with the types of its arguments. ``kind`` is
    operator or function.
    """

    kind: str
    oid: int
    types: tuple[str, ...]


# --- the parse tree -------------------------------------------------------------------------------

_WORD: Final = re.compile(r"[{}()]|(?:\\.|[^\s(){}\\])+", re.DOTALL)


def _tree(text: str) -> Node:
    words = _WORD.findall(text)
    place = 0

    def value() -> Any:
        nonlocal place
        word = words[place]
        place += 1
        if word == "{":
            node: Node = {"node": words[place]}
            place += 1
            while words[place] != "}":
                name = words[place]
                place += 1
                values = []
                while words[place] != "}" and not words[place].startswith(":"):
                    values.append(value())
                node[name[1:]] = values
            place += 1
            return node
        if word == "(":
            found = []
            while words[place] != ")":
                found.append(value())
            place += 1
            return found
        return word

    return value()  # type: ignore[no-any-return]


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from _nodes(one)
    elif isinstance(value, list):
        for one in value:
            yield from _nodes(one)


_BOOLEAN: Final = 16
_IMPLICIT: Final = "2"
_TYPE_FIELDS: Final = [
    "vartype",
    "consttype",
    "paramtype",
    "aggtype",
    "wintype",
    "refrestype",
    "funcresulttype",
    "opresulttype",
    "resulttype",
    "casetype",
    "array_typeid",
    "row_typeid",
    "coalescetype",
    "minmaxtype",
    "typeId",
    "type",
]
_FORMATS: Final = ("relabelformat", "funcformat", "coerceformat", "coercionformat")
_TRUE: Final = frozenset(
    ["SCALARARRAYOPEXPR", "BOOLEXPR", "NULLTEST", "BOOLEANTEST", "ROWCOMPAREEXPR", "BOOLEXPR"]
)


def _type(node: Node) -> int | None:
    """Return the type of an expression before an implicit cast."""
    if any(node.get(name) == [_IMPLICIT] for name in _FORMATS):
        inner = node.get("arg") or node["args"][0]
        return _type(inner[0])
    if node["node"] in _TRUE:
        return _BOOLEAN
    if node["node"] == "SUBLINK":
        if node["subLinkType"][0] not in ("4", "6"):
            return _BOOLEAN
        first = node["subselect"][0]["targetList"][0][0]
        found = _type(first["expr"][0])
        return found if node["subLinkType"][0] == "4" else None
    if node["node"] == "NAMEDARGEXPR":
        return _type(node["arg"][0])
    return next((int(node[name][0]) for name in _TYPE_FIELDS if name in node), None)


def _calls(tree: Node) -> Iterator[tuple[str, int, Sequence[int | None]]]:
    for node in _nodes(tree):
        arguments = node["args"][0] if node.get("args") and node["args"] != ["<>"] else []
        match node["node"]:
            case "OPEXPR" | "DISTINCTEXPR" | "NULLIFEXPR" | "SCALARARRAYOPEXPR":
                yield node["node"], int(node["opno"][0]), [_type(one) for one in arguments]
            case "ROWCOMPAREEXPR":
                pairs = zip(node["opnos"][0][1:], node["largs"][0], node["rargs"][0], strict=True)
                for operator, left, right in pairs:
                    yield "OPEXPR", int(operator), [_type(left), _type(right)]
            case "FUNCEXPR" if node["funcformat"] == ["0"]:
                yield "function", int(node["funcid"][0]), [_type(one) for one in arguments]
            case "AGGREF" if node["aggstar"] == ["false"]:
                called = [one for one in arguments if one["resjunk"] == ["false"]]
                types = [_type(one["expr"][0]) for one in called]
                yield "function", int(node["aggfnoid"][0]), types


def calls_of(trees: Iterable[str], conn: sa.Connection) -> set[Call]:
    """Return the calls in parse trees of statements in this database, except calls with arguments
    of a pseudo-type, for which no role can create an operator or a function.
    """
    rows = conn.execute(_TYPES).all()
    names = {oid: name for oid, name, *_ in rows}
    pseudo = {oid for oid, name, kind, _ in rows if kind == "p" and name != "record"}
    elements = {array: oid for oid, _, _, array in rows} | _VECTORS
    found = set()
    for text in trees:
        for name, oid, types in _calls(_tree(text)):
            if oid >= 16384 or None in types:  # an object of the test, or a list of columns
                continue
            known = [one for one in types if one is not None]
            if name == "SCALARARRAYOPEXPR":
                known[-1] = elements[known[-1]]
            kind = "function" if name == "function" else "operator"
            if pseudo.isdisjoint(known):
                found.add(Call(kind, oid, tuple(names[one] for one in known)))
    return found


# --- the objects ----------------------------------------------------------------------------------

_OPERATOR: Final = sa.text(
    """SELECT o.oprname, pg_catalog.format_type(o.oprresult, NULL) FROM pg_catalog.pg_operator o
    WHERE o.oid = :oid"""
)
_FUNCTION: Final = sa.text(
    """SELECT p.proname, p.prokind, p.proretset, pg_catalog.format_type(p.prorettype, NULL),
        (SELECT pg_catalog.string_agg(
             pg_catalog.format('OUT %I %s', coalesce(p.proargnames[n], 'out' || n),
                               pg_catalog.format_type(p.proallargtypes[n], NULL)), ', ' ORDER BY n)
         FROM pg_catalog.generate_subscripts(p.proallargtypes, 1) AS n
         WHERE p.proargmodes[n] IN ('o', 't')) AS outs
    FROM pg_catalog.pg_proc p WHERE p.oid = :oid"""
)
_TYPES: Final = sa.text("SELECT oid, format_type(oid, NULL), typtype, typarray FROM pg_type")
_VECTORS: Final = {22: 21, 30: 26}
"""The types of the elements of int2vector and oidvector."""


def create_hostile(conn: sa.Connection, calls: Iterable[Call]) -> dict[str, int]:
    """Create the objects in the schema public, and return how many there are of each kind. What no
    role can create is left out.
    """
    made = {"operator": 0, "function": 0}
    for number, call in enumerate(sorted(calls)):
        create = _operator if call.kind == "operator" else _function
        try:
            with conn.begin_nested():
                for statement in create(conn, call.oid, call.types, number):
                    conn.exec_driver_sql(statement, execution_options={"no_parameters": True})
        except sa.exc.DBAPIError as error:
            # A function without this result, or one that there is already.
            if error.orig.sqlstate not in ("42P13", "42723", "42883", "0A000", "42P17", "42725"):  # type: ignore[union-attr]
                raise
            continue
        made[call.kind] += 1
    return made


_BODY: Final = "LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN {}; END $$"


def _operator(conn: sa.Connection, oid: int, types: Sequence[str], number: int) -> list[str]:
    name, result = conn.execute(_OPERATOR, {"oid": oid}).one()
    sides = ["LEFTARG", "RIGHTARG"][2 - len(types) :]
    given = ", ".join(f"{side} = {one}" for side, one in zip(sides, types, strict=True))
    left = "$1 " if len(types) == 2 else ""
    body = _BODY.format(f"{left}OPERATOR(pg_catalog.{name}) ${len(types)}")
    return [
        f"CREATE FUNCTION public.hostile_{number}({', '.join(types)}) RETURNS {result} {body}",
        f"CREATE OPERATOR public.{name} ({given}, FUNCTION = public.hostile_{number})",
    ]


def _function(conn: sa.Connection, oid: int, types: Sequence[str], number: int) -> list[str]:
    name, kind, is_set, result, outs = conn.execute(_FUNCTION, {"oid": oid}).one()
    arguments = ", ".join(f"${i}" for i in range(1, len(types) + 1))
    if kind == "a" and len(types) > 1:
        return []
    if kind == "a":
        (one,) = types
        result = _result(conn, name, types)
        return [
            f"CREATE FUNCTION public.hostile_{number}({one}[], {one}) RETURNS {one}[] "
            + _BODY.format("pg_catalog.array_append($1, $2)"),
            f"CREATE FUNCTION public.hostile_end_{number}({one}[]) RETURNS {result} "
            + _BODY.format(f"(SELECT pg_catalog.{name}(x) FROM pg_catalog.unnest($1) AS x)"),
            f"CREATE AGGREGATE public.{name}({one}) (SFUNC = public.hostile_{number}, "
            f"STYPE = {one}[], INITCOND = '{{}}', FINALFUNC = public.hostile_end_{number})",
        ]
    if result.startswith("any"):
        result = _result(conn, name, types)
    given = ", ".join(filter(None, (*types, outs)))
    own = f"pg_catalog.{name}({arguments})"
    if outs and not is_set:
        body = f"LANGUAGE sql AS $$ SELECT * FROM {own} $$"
    elif is_set:
        body = f"LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT * FROM {own}; END $$"
        result = f"SETOF {'record' if outs and outs.count('OUT ') > 1 else result}"
    else:
        done = f"PERFORM {own}" if result == "void" else f"RETURN {own}"
        body = f"LANGUAGE plpgsql AS $$ BEGIN {done}; END $$"
    return [f"CREATE FUNCTION public.{name}({given}) RETURNS {result} {body}"]


def _result(conn: sa.Connection, name: str, types: Sequence[str]) -> str:
    """Return the type that a polymorphic function of the server returns for these arguments."""
    given = ", ".join(f"NULL::{one}" for one in types)
    found = conn.exec_driver_sql(f"SELECT pg_catalog.{name}({given}) LIMIT 0")
    assert found.cursor is not None
    oid = found.cursor.description[0].type_code
    return str(conn.execute(sa.text("SELECT format_type(:oid, NULL)"), {"oid": oid}).scalar_one())
