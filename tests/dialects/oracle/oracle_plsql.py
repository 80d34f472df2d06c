"""An interpreter of the little PL/SQL that our triggers and functions are written in: what they
would log.

It knows what the templates use and nothing else, and it is not proof that Oracle does the same: it
shows that the logic is right. NULL is None and so is ''; conditions have two values where the
templates leave no room for the third.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from oracle_lints import tokens

from eventlog.core import table_key

Row = Mapping[str, Any]
Logged = tuple[int, str, str | None, str | None, str | None]
"""Type, table_key, column_name, old and new value of a row of the log."""


class Locator:
    """A large object of :OLD or :NEW, which nobody promises a trigger beyond its row."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.row_is_over = False

    def read(self) -> str:
        assert not self.row_is_over, f"the locator of {self.text!r} is read when its row is over"
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Locator) and self.read() == other.read()

    __hash__ = None  # type: ignore[assignment]


class Collection(dict[Any, Any]):
    """An associative array."""

    def count(self) -> int:
        return len(self)

    def delete(self, first: Any = None, last: Any = None) -> None:
        for key in [
            key
            for key in self
            if first is None or (key == first if last is None else first <= key <= last)
        ]:
            del self[key]


class Source:
    """The tokens of a PL/SQL text, turned into Python."""

    def __init__(self, text: str) -> None:
        self.tokens = [
            (kind, part.upper() if kind == "word" and part.isupper() else part)
            for kind, part in tokens(text)
        ]
        self.at = 0
        self.lines: list[str] = []

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        found = self.peek()
        assert not expected or found in expected, (
            found,
            expected,
            [part for _, part in self.tokens[self.at : self.at + 9]],
        )
        self.at += 1
        return found

    def skip_behind(self, sign: str) -> None:
        while self.take() != sign:
            pass

    def has(self, *parts: str) -> bool:
        if [self.peek(i) for i in range(len(parts))] != list(parts):
            return False
        self.at += len(parts)
        return True

    # Expressions, as Python.

    def expression(self) -> str:
        parts = [self._and()]
        while self.has("OR"):
            parts.append(self._and())
        return f"({' or '.join(parts)})" if len(parts) > 1 else parts[0]

    def _and(self) -> str:
        parts = [self._not()]
        while self.has("AND"):
            parts.append(self._not())
        return f"({' and '.join(parts)})" if len(parts) > 1 else parts[0]

    def _not(self) -> str:
        return f"(not {self._not()})" if self.has("NOT") else self._comparison()

    def _comparison(self) -> str:
        left = self._sum()
        if self.has("IS", "NOT", "NULL"):
            return f"({left} is not None)"
        if self.has("IS", "NULL"):
            return f"({left} is None)"
        if self.has("IN"):
            return f"({left} in {self._arguments()})"
        signs = {"=": "==", "<": "<", "<=": "<=", ">=": ">="}
        if self.has("<>"):
            return f"differ({left}, {self._sum()})"
        if self.peek() in signs:
            return f"({left} {signs[self.take()]} {self._sum()})"
        return left

    def _sum(self) -> str:
        left = self._primary()
        while self.peek() in ("||", "+", "-"):
            sign, right = self.take(), self._primary()
            left = f"cat({left}, {right})" if sign == "||" else f"({left} {sign} {right})"
        return left

    def _arguments(self) -> str:
        self.take("(")
        parts = []
        while not self.has(")"):
            parts.append(self.expression())
            self.has(",")
        return f"({', '.join(parts)},)" if parts else "()"

    def _primary(self) -> str:
        kind, part = self.tokens[self.at]
        if self.has("("):
            inner = self.expression()
            self.take(")")
            return inner
        if self.has("-"):
            return f"-{self._primary()}"
        if self.has("NULL"):
            return "None"
        if self.has("CASE"):
            text = ""
            while self.has("WHEN"):
                condition = self.expression()
                self.take("THEN")
                text += f"{self.expression()} if {condition} else "
            otherwise = self.expression() if self.has("ELSE") else "None"
            self.take("END")
            return f"({text}{otherwise})"
        self.at += 1
        if kind == "literal":
            return repr(part[1:-1].replace("''", "'") or None)
        if kind == "number":
            return part
        if kind == "bind":
            self.take(".")
            return f"{part[1:]}[{self.take().strip(chr(34))!r}]"
        name = part
        while self.has("."):
            if self.peek() in ("COUNT", "EXISTS", "DELETE") or name.endswith(")"):
                break
            name = f"{name.strip(chr(34))}.{self.take().strip(chr(34))}"
        else:
            value = self._named(name.split(".")[-1].strip('"') if '"' in part else name)
            while self.peek() == "(":
                value = f"get({value}, {self._arguments()})"
                if self.has("."):
                    value = f"{value}.{self.take()}"
            return value
        method = self.take()
        return self._method(self._named(name), method)

    def _method(self, value: str, method: str) -> str:
        if method == "COUNT":
            return f"{value}.count()"
        arguments = self._arguments() if self.peek() == "(" else "()"
        return (
            f"({arguments}[0] in {value})"
            if method == "EXISTS"
            else f"{value}.delete(*{arguments})"
        )

    def _named(self, name: str) -> str:
        if name in ("TRUE", "FALSE"):
            return name.capitalize()
        first, *rest = name.split(".")
        if rest and first.isupper():
            return f"builtins[{name!r}]"
        return ".".join([f"v({first!r})", *rest])

    # Statements, as Python.

    def statements(self, depth: int, *ends: str) -> None:
        while self.peek() not in ends:
            self._statement(depth)

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def _statement(self, depth: int) -> None:
        if self.has("IF"):
            word = "if"
            while True:
                self.emit(depth, f"{word} {self.expression()}:")
                self.take("THEN")
                self.statements(depth + 1, "ELSIF", "ELSE", "END")
                if not self.has("ELSIF"):
                    break
                word = "elif"
            self.take("END")
            self.take("IF")
        elif self.has("FOR") or self.peek() == "WHILE":
            if self.has("WHILE"):
                self.emit(depth, f"while {self.expression()}:")
            else:
                name = self.take()
                self.take("IN")
                first = self.expression()
                self.take("..")
                self.emit(
                    depth, f"for v.scope[-1][{name!r}] in range({first}, {self.expression()} + 1):"
                )
            self.take("LOOP")
            self.statements(depth + 1, "END")
            self.take("END")
            self.take("LOOP")
        elif self.has("FORALL"):
            self.emit(depth, "write(v('log_rows'))")
            self.skip_behind(";")
            return
        elif self.has("RETURN"):
            self.emit(depth, f"return {self.expression()}")
        else:
            start = self.at
            target = self._primary()
            if self.has(":="):
                self._assignment(depth, start, target)
            else:
                self.emit(depth, f"{target}()" if re.fullmatch(r"v\('\w+'\)", target) else target)
        self.take(";")

    def _assignment(self, depth: int, start: int, target: str) -> None:
        value = self.expression()
        if target.startswith("get("):
            place = target.removeprefix("get(").removesuffix(")")
            self.emit(depth, f"put_at({place}, {value})")
        elif ")." in target:
            holder, field = target.rsplit(".", 1)
            self.emit(depth, f"setattr({holder}, {field!r}, {value})")
        else:
            self.emit(depth, f"v.set({self.tokens[start][1]!r}, {value})")

    def declarations(self, depth: int, *ends: str) -> None:
        while self.peek() not in ends:
            if self.has("TYPE"):
                self.skip_behind(";")
            elif self.peek() in ("PROCEDURE", "FUNCTION"):
                self.subprogram(depth)
            else:
                name, type_ = self.take(), self.take()
                value = {"log_row_t": "SimpleNamespace()"}.get(
                    type_, "Collection()" if type_.endswith("_t") else "None"
                )
                if self.peek() == "(":
                    self._arguments()
                if self.has(":="):
                    value = self.expression()
                self.emit(depth, f"v.scope[-1][{name!r}] = {value}")
                self.take(";")

    def subprogram(self, depth: int) -> None:
        self.take("PROCEDURE", "FUNCTION")
        name = self.take().strip('"')
        parameters = []
        if self.has("("):
            while not self.has(")"):
                parameters.append(self.take())
                while self.peek() not in (",", ")"):
                    self.take()
                self.has(",")
        while self.take() not in ("IS", "AS"):
            pass
        self.emit(depth, f"def {name}({', '.join(f'{one}=None' for one in parameters)}):")
        self.emit(
            depth + 1, f"v.scope.append({{{', '.join(f'{one!r}: {one}' for one in parameters)}}})"
        )
        self.emit(depth + 1, "try:")
        self.declarations(depth + 2, "BEGIN")
        self.take("BEGIN")
        self.statements(depth + 2, "END")
        self.emit(depth + 1, "finally:")
        self.emit(depth + 2, "v.scope.pop()")
        self.take("END")
        if self.peek() != ";":
            self.take(name)
        self.take(";")
        self.emit(depth, f"v.scope[0][{name!r}] = {name}")


class Variables:
    """The variables of the block that runs, after them those of the trigger."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.scope: list[dict[str, Any]] = [dict(functions)]

    def __call__(self, name: str) -> Any:
        for scope in (self.scope[-1], self.scope[0]):
            if name in scope:
                return scope[name]
        raise NameError(name)

    def set(self, name: str, value: Any) -> None:
        (self.scope[-1] if name in self.scope[-1] else self.scope[0])[name] = (
            None if value == "" else value
        )


class PlsqlError(Exception):
    """An error that Oracle would raise, by its number."""


class Raw(bytes):
    """A RAW: bytes, and no text."""


class National(str):
    """A text in the national character set, AL16UTF16."""

    __slots__ = ()


MAX_TEXT = 32767  # bytes of VARCHAR2 and RAW in PL/SQL
MAX_PLS_INTEGER = 2**31 - 1


def text_of(value: Any, pattern: str | None = None, *_: Any) -> str | None:
    return None if value is None else str(value)


def cat(*parts: Any) -> str | None:
    assert not any(isinstance(part, Raw) for part in parts), (
        "a RAW in a text becomes hexadecimal digits"
    )
    return "".join(str(part) for part in parts if part is not None) or None


def substr(text: Any, start: int, size: int | None = None) -> Any:
    begin = len(text) + start if start < 0 else start - 1
    return text[begin : None if size is None else begin + size] or None


def raw_substr(raw: Raw, start: int, size: int) -> Raw:
    if not 1 <= start <= len(raw) or not 1 <= size <= len(raw) - start + 1:
        raise PlsqlError("ORA-06502: UTL_RAW.SUBSTR beyond its RAW")
    return Raw(raw[start - 1 : start - 1 + size])


def raw_compare(one: Raw | None, other: Raw | None) -> int:
    """As UTL_RAW has it: the first byte that differs, 0 for none; the shorter one is filled up with
    zeros.
    """
    one, other = one or Raw(), other or Raw()
    size = max(len(one), len(other))
    pairs = zip(one.ljust(size, b"\0"), other.ljust(size, b"\0"), strict=True)
    return next((place for place, (left, right) in enumerate(pairs, 1) if left != right), 0)


def base64_lines(value: Raw) -> Raw:
    """As UTL_ENCODE has it: CR LF behind every 64 characters."""
    assert isinstance(value, Raw)
    text = b64encode(value)
    return Raw(b"\r\n".join(text[place : place + 64] for place in range(0, len(text), 64)))


def differ(one: Any, other: Any) -> bool | None:
    """``<>``: a comparison with NULL is NULL; RAWs are compared by hexadecimal digits of them."""
    if one is None or other is None:
        return None
    assert not isinstance(one, str) or isinstance(other, str), (one, other)
    if isinstance(one, Raw) and max(len(one), len(other)) * 2 > MAX_TEXT:
        raise PlsqlError("ORA-06502: character string buffer too small")
    return bool(one != other)


class Charset:
    """A database character set, and what the functions of PL/SQL make of texts in it.

    ``UTF8`` is Oracle's: characters beyond the Basic Multilingual Plane are two there, of three
    bytes each.
    """

    def __init__(self, name: str = "AL32UTF8") -> None:
        self.name = name
        self.python = {
            "AL32UTF8": "utf-8",
            "UTF8": "utf-8",
            "WE8MSWIN1252": "cp1252",
            "JA16SJIS": "cp932",
        }[name]

    def encode(self, text: str) -> bytes:
        return text.encode(self.python, "surrogatepass" if self.python == "utf-8" else "strict")

    def stored(self, text: str | None) -> str | None:
        """A text as a column of this character set holds it, character by character."""
        if text is None or self.name != "UTF8":
            return text
        units = text.encode("utf-16-le")
        return "".join(
            chr(int.from_bytes(units[at : at + 2], "little")) for at in range(0, len(units), 2)
        )

    def shown(self, text: str | None) -> str | None:
        """What ``stored`` made of a text, as it was."""
        return None if text is None else text.encode("utf-16", "surrogatepass").decode("utf-16")

    def ascii(self, text: str | None) -> int | None:
        """The bytes of the first character as a number; PL/SQL's own returns PLS_INTEGER."""
        if not text:
            return None
        code = int.from_bytes(self.encode(text[0]), "big")
        if code > MAX_PLS_INTEGER:
            raise PlsqlError(f"ORA-01426: numeric overflow: ASCII gives {code}")
        return code

    def raw(self, text: str | None) -> Raw | None:
        if text is None:
            return None
        raw = Raw(text.encode("utf-16-be") if isinstance(text, National) else self.encode(text))
        if len(raw) > MAX_TEXT:
            raise PlsqlError("ORA-06502: raw variable length too long")
        return raw

    def hex(self, raw: Raw | None) -> str | None:
        assert raw is None or isinstance(raw, Raw)
        if raw is not None and len(raw) * 2 > MAX_TEXT:
            raise PlsqlError("ORA-06502: character string buffer too small")
        return None if raw is None else raw.hex().upper()

    def char_of(self, value: Any, *_: Any) -> str | None:
        """TO_CHAR: a national text loses what this character set lacks."""
        if not isinstance(value, National):
            return text_of(value)
        return str(value).encode(self.python, "replace").decode(self.python)

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "TO_CHAR": self.char_of,
            "TO_CLOB": self.char_of,
            "LTRIM": lambda text: text,
            "RTRIM": lambda text, _: None if text is None else text.rstrip(" ") or None,
            "SYS_EXTRACT_UTC": lambda value: value,
            "ROWIDTOCHAR": text_of,
            "REGEXP_REPLACE": lambda text, _, __: re.sub(r"^(-?)\.", r"\g<1>0.", text),
            "RAWTOHEX": self.hex,
            "LENGTH": lambda text: None if text is None else len(text),
            "LENGTHB": lambda text: None if text is None else len(self.raw(text) or b""),
            "NVL": lambda value, instead: instead if value is None else value,
            "LEAST": min,
            "CHR": chr,
            "ASCII": self.ascii,
            "SUBSTR": substr,
            "REPLACE": lambda text, part: text.replace(part, ""),
            "ABS": abs,
        }

    @property
    def builtins(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "UTL_RAW.CAST_TO_RAW": self.raw,
            "UTL_RAW.CAST_TO_VARCHAR2": lambda raw: raw.decode(self.python),
            "UTL_RAW.LENGTH": lambda raw: None if raw is None else len(raw),
            "UTL_RAW.SUBSTR": raw_substr,
            "UTL_RAW.COMPARE": raw_compare,
            "UTL_ENCODE.BASE64_ENCODE": base64_lines,
            "DBMS_LOB.COMPARE": lambda old, new: (
                None if old is None or new is None else int(old != new)
            ),
        }


AL32UTF8 = Charset()


def get(of: Any, arguments: Sequence[Any]) -> Any:
    return of[arguments[0]] if isinstance(of, Collection) else of(*arguments)


def put_at(of: Collection, arguments: Sequence[Any], value: Any) -> None:
    of[arguments[0]] = value


def function(statement: str, charset: Charset = AL32UTF8) -> Callable[..., Any]:
    """A CREATE FUNCTION statement as a function of Python, in a database of a character set."""
    source = Source(
        re.sub(r'CREATE OR REPLACE FUNCTION ("[^"]+"\.)?"(\w+)"', r"FUNCTION \2", statement)
    )
    source.subprogram(0)
    variables = Variables(charset.functions)
    name = source.tokens[1][1]
    exec("\n".join(source.lines), space := _space(variables, [], charset))
    made: Callable[..., Any] = space[name]
    return made


def _space(variables: Variables, logged: list[Logged], charset: Charset) -> dict[str, Any]:
    def write(rows: Collection) -> None:
        for _, row in sorted(rows.items()):
            values = (
                one.read() if isinstance(one, Locator) else one
                for one in (row.old_value, row.new_value)
            )
            texts = [row.table_key, row.column_name, *values]
            assert not any(isinstance(text, National | Raw) for text in texts), texts
            logged.append((row.event_type, *texts))

    return {
        "v": variables,
        "write": write,
        "get": get,
        "put_at": put_at,
        "cat": cat,
        "differ": differ,
        "builtins": charset.builtins,
        "Collection": Collection,
        "SimpleNamespace": SimpleNamespace,
    }


def fire(
    statement: str,
    changes: Iterable[tuple[Row | None, Row | None]],
    named: Iterable[str] = (),
    charset: Charset = AL32UTF8,
) -> list[Logged]:
    """What a trigger logs when one statement makes these changes (old row, new row), naming these
    columns.
    """
    logged: list[Logged] = []
    wanted = set(named)
    functions = {
        **charset.functions,
        "UPDATING": lambda column: column in wanted,
        "PROC_EVENTLOG_QUOTE": lambda text: table_key.quote(text or ""),
        "PROC_EVENTLOG_BASE64": lambda raw: None if raw is None else b64encode(raw).decode(),
    }
    is_compound = "COMPOUND TRIGGER" in statement
    source = Source(re.split(r"COMPOUND TRIGGER|FOR EACH ROW\nDECLARE", statement, maxsplit=1)[1])
    sections: dict[str, Any] = {}
    variables = Variables(functions)
    space = _space(variables, logged, charset)
    ends = ("BEFORE",) if is_compound else ("BEGIN",)
    source.declarations(0, *ends)
    exec("\n".join(source.lines), space)
    for section in (
        ("BEFORE STATEMENT", "AFTER EACH ROW", "AFTER STATEMENT") if is_compound else ("ROW",)
    ):
        source.lines = ["def section(OLD, NEW):\n    v.scope.append({})"]
        if is_compound:
            for word in (*section.split(), "IS"):
                source.take(word)
        source.take("BEGIN")
        source.statements(1, "END")
        source.emit(1, "v.scope.pop()")
        source.skip_behind(";")
        exec("\n".join(source.lines), space)
        sections[section] = space["section"]
    if not is_compound:
        for old, new in changes:
            sections["ROW"](old, new)
        return logged
    sections["BEFORE STATEMENT"](None, None)
    for old, new in changes:
        sections["AFTER EACH ROW"](old, new)
    sections["AFTER STATEMENT"](None, None)
    return logged
