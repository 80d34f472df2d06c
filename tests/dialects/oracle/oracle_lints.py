"""What no parser sees in a statement of Oracle: rules that the server enforces and a grammar does
not.

``lint`` gives what is wrong with one statement, in words; nothing if all is well.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

MAX_NAME = 128
MAX_LITERAL = 4000
MAX_SOURCE = 32 * 1024
MAX_LINE = 2499  # of SQL*Plus

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<literal>'(?:[^']|'')*')
    | (?P<quoted>"[^"]*")
    | (?P<bind>:(?:"[^"]*"|\w+))
    | (?P<word>[A-Za-z][\w$\#]*)
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<sign>:=|\|\||\.\.|<>|!=|<=|>=|=>|\S)
    """,
    re.VERBOSE | re.DOTALL,
)
# Words that cannot be names of variables or parameters.
RESERVED = frozenset(
    re.findall(
        r"\w+",
        "ACCESS ALL ALTER AND ANY AS ASC BEGIN BETWEEN BY CASE CHECK CLUSTER COLUMN COMMENT "
        "COMPRESS CONNECT CREATE CURRENT DATE DECLARE DEFAULT DELETE DESC DISTINCT DROP ELSE END "
        "EXCEPTION EXISTS FETCH FILE FOR FROM GOTO GRANT GROUP HAVING IF IN INDEX INSERT "
        "INTERSECT INTO IS LEVEL LIKE LOCK LONG MINUS MODE NOCOMPRESS NOT NULL NUMBER OF ON "
        "OPTION OR ORDER PRIOR PROCEDURE PUBLIC RAW RESOURCE REVOKE ROW ROWID ROWNUM ROWS SELECT "
        "SESSION SET SHARE SIZE SQL START SUBTYPE TABLE THEN TO TRIGGER TYPE UID UNION UNIQUE "
        "UPDATE USER VALUES VARCHAR VARCHAR2 VIEW WHEN WHERE WITH ",
    )
)
Token = tuple[str, str]


def tokens(statement: str) -> list[Token]:
    """Kind and text of what a statement is made of, without comments."""
    found = []
    for match in _TOKEN.finditer(statement):
        assert match.lastgroup is not None
        if match.lastgroup != "comment":
            found.append((match.lastgroup, match[0]))
    return found


def lint(statement: str) -> list[str]:
    """Everything that is wrong with a statement."""
    found = tokens(statement)
    return [problem for rule in RULES for problem in rule(statement, found)]


def blocks_are_balanced(statement: str, found: list[Token]) -> Iterator[str]:
    """Every BEGIN, IF, LOOP, CASE has its own END, labels are those of what they end."""
    if not re.match(r"(CREATE OR REPLACE (TRIGGER|FUNCTION)|BEGIN|DECLARE)", statement):
        return
    stack: list[str] = ["COMPOUND TRIGGER"] if "COMPOUND TRIGGER" in statement else []
    names: list[str] = []
    words = [text.upper() if kind == "word" else text for kind, text in found]
    place = 0
    while place < len(words):
        word, following = words[place], words[place + 1 : place + 4]
        if word == "END":
            if not stack:
                yield "an END too many"
                return
            opened = stack.pop()
            label = list(following[: following.index(";") if ";" in following else 3])
            if opened in ("IF", "LOOP", "CASE") and label[:1] == [opened]:
                place += 1
            elif opened in ("IF", "LOOP"):
                yield f"{opened} is ended by END {' '.join(label)}"
            elif opened.startswith(("AFTER", "BEFORE")):
                if " ".join(label) != opened:
                    yield f"{opened} is ended by END {' '.join(label)}"
                place += len(label)
            elif opened == "SUBPROGRAM":
                name = names.pop()
                if label and label[0] != name:
                    yield f"{name} is ended by END {label[0]}"
                place += len(label)
            elif opened == "CASE":
                pass
            elif label:
                yield f"a block is ended by END {' '.join(label)}"
        elif word in ("PROCEDURE", "FUNCTION") and words[place - 1] != "REPLACE":
            names.append(words[place + 1])
            stack.append("SUBPROGRAM ahead")
        elif word == "BEGIN":
            if stack and stack[-1] == "SUBPROGRAM ahead":
                stack[-1] = "SUBPROGRAM"
            elif stack and stack[-1].endswith(" ahead"):
                stack[-1] = stack[-1].removesuffix(" ahead")
            else:
                stack.append("BEGIN")
        elif word in ("AFTER", "BEFORE") and following[:1] in (["EACH"], ["STATEMENT"]):
            size = 3 if following[0] == "EACH" else 2
            stack.append(" ".join(words[place : place + size]) + " ahead")
            place += size - 1
        elif word in ("IF", "CASE") or (word == "LOOP"):
            stack.append(word)
        place += 1
    if stack:
        yield f"no END for {stack[-1]}"


def parameters_have_no_size(_: str, found: list[Token]) -> Iterator[str]:
    """Parameters and RETURN name a type without a size."""
    words = [text.upper() if kind == "word" else text for kind, text in found]
    for place, word in enumerate(words):
        is_type = words[place + 1 : place + 2] in (
            [name] for name in ("VARCHAR2", "NVARCHAR2", "RAW", "NUMBER", "CHAR")
        )
        if word in ("IN", "RETURN") and is_type and words[place + 2 : place + 3] == ["("]:
            yield f"{word} {words[place + 1]} has a size"


def variables_have_a_size(_: str, found: list[Token]) -> Iterator[str]:
    """Variables and fields of VARCHAR2 and RAW have a size."""
    words = [text.upper() if kind == "word" else text for kind, text in found]
    for place, word in enumerate(words[1:-1], 1):
        is_variable = word in ("VARCHAR2", "NVARCHAR2", "RAW") and words[place - 1] not in (
            "IN",
            "RETURN",
        )
        if is_variable and words[place + 1] != "(":
            yield f"{words[place - 1]} {word} has no size"


def declarations_come_first(statement: str, found: list[Token]) -> Iterator[str]:
    """No type and no variable stands behind a subprogram of the same declarations."""
    if not statement.startswith("CREATE OR REPLACE TRIGGER"):
        return
    seen = False
    for line in statement.split("\n"):
        if re.match(r"    (PROCEDURE|FUNCTION) ", line):
            seen = True
        is_declaration = re.match(r"    (?!END|BEGIN|RETURN)(TYPE \w+ IS|\w+ [\w().]+;)", line)
        if seen and is_declaration:
            yield f"{line.strip()} stands behind a subprogram"
        if re.match(r"(BEGIN|    (AFTER|BEFORE) )", line):
            return


def names_are_short(_: str, found: list[Token]) -> Iterator[str]:
    """No name has more than 128 bytes."""
    for kind, text in found:
        name = text.strip('":')
        if kind in ("quoted", "word", "bind") and len(name.encode()) > MAX_NAME:
            yield f"{name} has {len(name.encode())} bytes"


def literals_are_short(_: str, found: list[Token]) -> Iterator[str]:
    """No literal has more than 4000 bytes."""
    for kind, text in found:
        if kind == "literal" and len(text[1:-1].replace("''", "'").encode()) > MAX_LITERAL:
            yield f"a literal has {len(text.encode())} bytes"


def sources_are_short(statement: str, _: list[Token]) -> Iterator[str]:
    """No trigger has more than 32 KiB."""
    if statement.startswith("CREATE OR REPLACE TRIGGER") and len(statement.encode()) > MAX_SOURCE:
        yield f"the trigger has {len(statement.encode())} bytes"


def lines_are_short(statement: str, _: list[Token]) -> Iterator[str]:
    """No line of what stands in scripts has more than SQL*Plus takes, and none is a command of its
    own there.
    """
    if not re.match(
        r"CREATE |BEGIN|DECLARE|ALTER |DROP |COMMENT |INSERT |UPDATE |DELETE ", statement
    ):
        return
    for line in statement.split("\n"):
        if len(line) > MAX_LINE:
            yield f"a line has {len(line)} characters"
        if re.match(r"\s*([/.]\s*$|#)", line):
            yield f"the line {line} is a command of SQL*Plus"
        if line.rstrip().endswith("-"):
            yield f"SQL*Plus joins the line {line} with the next one"


def functions_of_the_own_schema_have_none(statement: str, found: list[Token]) -> Iterator[str]:
    """A function of the trigger's own schema is called without it: PL/SQL takes SCHEMA.F for a
    member of an object.
    """
    if not statement.startswith("CREATE OR REPLACE TRIGGER"):
        return
    home = next(text for kind, text in found if kind == "quoted")
    calls = zip(found, found[1:], found[2:], found[3:], strict=False)
    for (kind, schema), (_, dot), (named, name), (_, bracket) in calls:
        is_call = kind == named == "quoted" and dot == "." and bracket == "("
        if is_call and schema == home and "PROC" in name.upper():
            yield f"{schema}.{name} is called with its schema"  # PLS-00302


def names_are_not_reserved(_: str, found: list[Token]) -> Iterator[str]:
    """No parameter, bind or subprogram is called by a reserved word."""
    for kind, text in found:
        if kind == "bind" and text[1:].upper() in RESERVED:
            yield f"{text} is a reserved word"  # ORA-01745
    words = [text.upper() if kind == "word" else text for kind, text in found]
    for place, word in enumerate(words[:-1]):
        is_subprogram = word in ("PROCEDURE", "FUNCTION") and words[place - 1] not in (
            "REPLACE",
            "DROP",
        )
        if is_subprogram and words[place + 1] in RESERVED:
            yield f"{words[place + 1]} is a reserved word"
        if (
            words[place + 1] == "IN"
            and words[place - 1 : place] in (["("], [","])
            and word in RESERVED
        ):
            yield f"{word} is a reserved word"


def pseudorecords_stand_in_row_sections(statement: str, _: list[Token]) -> Iterator[str]:
    """A compound trigger names :OLD and :NEW in AFTER EACH ROW alone; INSERT has no :OLD, DELETE no
    :NEW.
    """
    if not statement.startswith("CREATE OR REPLACE TRIGGER"):
        return
    code = re.sub(r"\"[^\"]*\"|'[^']*'", "x", statement)
    if "COMPOUND TRIGGER" in code:
        row = re.search(r"AFTER EACH ROW IS(.*)END AFTER EACH ROW", code, re.DOTALL)
        code_elsewhere = code if row is None else code.replace(row[1], "")
        if re.search(r":(OLD|NEW)\b", code_elsewhere):
            yield ":OLD or :NEW outside of AFTER EACH ROW"
    operation = re.search(r"(?:AFTER|FOR) (INSERT|UPDATE|DELETE) ON", code)
    assert operation is not None
    if operation[1] == "INSERT" and ":OLD" in code:
        yield ":OLD in a trigger for INSERT"
    if operation[1] == "DELETE" and ":NEW" in code:
        yield ":NEW in a trigger for DELETE"


def local_names_are_declared(statement: str, found: list[Token]) -> Iterator[str]:
    """Every subprogram that is called without a schema is declared, or one of the server's."""
    if not statement.startswith("CREATE OR REPLACE TRIGGER"):
        return
    declared = set(re.findall(r"(?:PROCEDURE|FUNCTION) (\w+)", statement)) | set(
        re.findall(r"^    (\w+) \w+", statement, re.M)
    )
    for (kind, text), (_, following), (_, before) in zip(
        found, found[1:], [("", ""), *found], strict=False
    ):
        is_call = kind == "word" and following == "(" and before != "." and text.islower()
        if is_call and text not in declared:
            yield f"{text} is not declared"


_OF_CONDITIONS = frozenset(
    {
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "LIKE",
        "IS",
        "EXISTS",
        "=",
        "<",
        ">",
        "<=",
        ">=",
        "<>",
        "!=",
    }
)
_CLAUSES = frozenset({"WHERE", "AND", "OR", "NOT", "ON", "HAVING", "WHEN", "CONNECT"})
_ENDS_CONDITION = frozenset(
    {
        "",
        "AND",
        "OR",
        ")",
        "THEN",
        "GROUP",
        "ORDER",
        "FOR",
        "FETCH",
        "UNION",
        "WHERE",
        "START",
        "CONNECT",
        "WITH",
        ";",
    }
)
MAX_LIST = 1000
"""Expressions of an IN list, before 23."""


def _words(found: list[Token]) -> list[str]:
    """The texts, words in upper case."""
    return [text.upper() if kind == "word" else text for kind, text in found]


def conditions_are_no_columns(_: str, found: list[Token]) -> Iterator[str]:
    """A select list holds conditions within CASE WHEN ... THEN alone (ORA-00923 before 23)."""
    words = _words(found)
    lists: list[str] = []  # what each open bracket, SELECT list and CASE is
    for place, word in enumerate(words):
        if word == "(":
            lists.append("(")
        elif word == ")":
            while lists and lists.pop() != "(":
                pass
        elif word == "SELECT":
            lists.append("SELECT")
        elif word == "FROM" and lists[-1:] == ["SELECT"]:
            lists[-1] = "FROM"  # what follows may hold conditions
        elif word == "CASE":
            lists.append("CASE")
        elif word == "WHEN" and lists[-1:] == ["CASE"]:
            lists.append("WHEN")
        elif (word == "THEN" and lists[-1:] == ["WHEN"]) or (
            word == "END" and lists[-1:] == ["CASE"]
        ):
            lists.pop()
        elif word in _OF_CONDITIONS:
            holder = next((one for one in reversed(lists) if one != "("), "")
            # IS is of a cast too, BETWEEN of a window's frame: neither stands in our lists.
            if holder in ("SELECT", "CASE"):
                yield f"{' '.join(words[max(0, place - 3) : place + 2])}: a condition as a column"


def numbers_are_no_conditions(_: str, found: list[Token]) -> Iterator[str]:
    """No number, literal or bind stands for a condition: WHERE 0."""
    words = _words(found)
    is_between = False
    is_searched: list[bool] = []  # whether each open CASE is one of conditions
    for place, word in enumerate(words[:-1]):
        if word == "CASE":
            is_searched.append(words[place + 1] == "WHEN")
        elif word == "END" and is_searched:
            is_searched.pop()
        elif word == "WHEN" and is_searched[-1:] == [False]:
            continue
        elif word == "BETWEEN":
            is_between = True
        elif word == "AND" and is_between:
            is_between = False
        elif word in _CLAUSES:
            following = words[place + 2] if place + 2 < len(words) else ""
            if re.match(r"[\d':]", words[place + 1]) and following in _ENDS_CONDITION:
                yield f"{word} {words[place + 1]} is not a condition"


def aliases_are_not_reserved(_: str, found: list[Token]) -> Iterator[str]:
    """No alias of a column or a table is a reserved word."""
    words = _words(found)
    brackets: list[str] = []  # what stands before each open one
    for place, (word, following) in enumerate(itertools.pairwise(words)):
        if word == "(":
            brackets.append(words[place - 1])
        elif word == ")" and brackets:
            brackets.pop()
        is_type = brackets[-1:] in (["CAST"], ["XMLSERIALIZE"])
        if word == "AS" and following in RESERVED - {"OF"} and not is_type:  # AS OF SCN
            yield f"the alias {following} is reserved"
        if word in RESERVED and following == "." and words[place - 1] != ".":
            yield f"the alias {word} is reserved"


def lists_are_short(_: str, found: list[Token]) -> Iterator[str]:
    """No IN list has more expressions than Oracle takes (ORA-01795)."""
    words = _words(found)
    for place, word in enumerate(words[:-1]):
        if word != "IN" or words[place + 1] != "(":
            continue
        depth, number = 0, 1
        for text in words[place + 1 :]:
            depth += (text == "(") - (text == ")")
            number += text == "," and depth == 1
            if not depth:
                break
        if number > MAX_LIST:
            yield f"an IN list of {number} expressions"


def limits_are_by_rownum(_: str, found: list[Token]) -> Iterator[str]:
    """No FETCH FIRST, which sorts all rows before 19."""
    words = _words(found)
    if any(pair in (("FETCH", "FIRST"), ("FETCH", "NEXT")) for pair in itertools.pairwise(words)):
        yield "FETCH FIRST"


Rule = Callable[[str, list[Token]], Iterator[str]]
RULES: tuple[Rule, ...] = (
    blocks_are_balanced,
    parameters_have_no_size,
    variables_have_a_size,
    declarations_come_first,
    names_are_short,
    literals_are_short,
    sources_are_short,
    lines_are_short,
    functions_of_the_own_schema_have_none,
    names_are_not_reserved,
    pseudorecords_stand_in_row_sections,
    local_names_are_declared,
    conditions_are_no_columns,
    numbers_are_no_conditions,
    aliases_are_not_reserved,
    lists_are_short,
    limits_are_by_rownum,
)
