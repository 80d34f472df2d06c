#!/usr/bin/env python3
"""Check the prose of the project for what a program can find (CONTRIBUTING.md, "How we write").

    python scripts/prose.py                 the whole tree: exit code 1 names what is new
    python scripts/prose.py PATH...         these files, with every finding, allowed or not
    python scripts/prose.py --write         lower the numbers of prose_allowed.txt to what is there

Read are comments, docstrings, messages and test names of Python files, comments of SQL and shell
files, and the paragraphs of pages. Code blocks and `code` are left out.

``scripts/prose_allowed.txt`` lists the findings that are still there, one line per file and rule
with their number. It only shrinks: a number that is too high fails as one that is too low does.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
ALLOWED: Final = ROOT / "scripts" / "prose_allowed.txt"

_EXEMPT: Final = frozenset({"scripts/prose.py", "tests/unit/test_prose.py"})
"""The files that quote what they refuse."""

_COUNTED: Final = (
    "answer batch cell change chunk class column commit consumer cycle database delete delivery "
    "directory document event failure file finding group insert job key kind line log message "
    "name object option package page part partition position read receiver record row schema "
    "sequence session set sink source statement step table test topic transaction trigger type "
    "update value view window writer"
).replace(" ", "|")

_RULES: Final = {
    "program-speaks": r"\b(?:tells|told|says|said|knows|knew|hears|heard)\b",
    "a-row-a-table": rf"\b(?:a|an|one|two|some|few|\d+) \w+ an? (?:{_COUNTED})\b",
    "again": r"\b(?:anew|once more|again and again)\b",
    "behind-beside": (
        r"\bbeside\b|(?<!rows )(?<!falls )(?<!fall )(?<!lags )"
        r"\bbehind\b(?! (?:a|the) (?:proxy|load balancer|firewall|NAT)\b)"
    ),
    "is-to-be": r"\b(?:is|are|was|were) to (?:be|have|go|come|stay|look|own)\b",
    "of-its-own": r"\bof (?:its|their) own\b",
    "sentence-start": r"^(?:Of|That|Who|Whoever)\b(?! said)",
    "given-up-term": (
        r"\b(?:(?<!in )(?<!in-)flights?|envelopes?|companions?|mend(?:s|ed|ing)?|cure[sd]?|fates?|"
        r"errands?|sendings|"
        r"a sending|accused|whole life|last word|bad rows?|empty events?|held rows?|"
        r"(?:is|are|was|were|be|being) away|goes away)\b"
    ),
}
RULES: Final = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _RULES.items()}
"""The rules by name. ``sentence-start`` looks at the beginning of a sentence alone."""
RULES["sentence-start"] = re.compile(_RULES["sentence-start"])

_OTHERS_TERMS: Final = {
    "eventlog/qlik/": r"envelopes?",
    "eventlog/debezium/": r"envelopes?",
    "docs/developers/architecture.md": r"envelopes?",
    "docs/reference/codes.md": r"envelopes?",
    "docs/formats/qlik.md": r"envelopes?",
    "docs/formats/debezium.md": r"envelopes?",
}
"""Terms that are somebody else's where they stand."""

_CODE: Final = re.compile(
    r"``.+?``|`[^`]*`|(?<![\w-])--[a-z][a-z-]+|\"[^\"\n]*\"|https?://\S+|\]\([^)]*\)|<[^>]*>",
    re.DOTALL,
)
_FENCE: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(])")
_ITEM: Final = re.compile(r"(?<=\n)(?=\s*(?:[-*+]|\d+\.|\|) )|(?<= )\| ")
_SQL: Final = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH|GRANT) ")
_LITERAL_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|.)*?"""|"(?:\\.|[^"\\\n])*"|'
    r"'''(?:\\.|.)*?'''|'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)
_DIRECTIVE: Final = re.compile(r"# (?:noqa|type:|fmt:|ruff:)")
_WORDS: Final = re.compile(r"[A-Za-z]{2,}")


class Text(NamedTuple):
    """A piece of prose and the line of its file where it begins."""

    line: int
    text: str


class Finding(NamedTuple):
    """A sentence that breaks a rule."""

    path: str
    line: int
    rule: str
    found: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.found!r} in: {self.sentence}"


def findings(path: str, source: str) -> Iterator[Finding]:
    """Yield what breaks a rule in a file, by its path below the root and its text."""
    own_terms = next((re.compile(t) for p, t in _OTHERS_TERMS.items() if path.startswith(p)), None)
    for piece in _texts(path, source):
        for sentence in _SENTENCE.split(_plain(piece.text)):
            shown = " ".join(sentence.split())
            for rule, pattern in RULES.items():
                for match in pattern.finditer(shown):
                    if own_terms is None or not own_terms.fullmatch(match.group().lower()):
                        yield Finding(path, piece.line, rule, match.group(), shown[:160])


def _plain(text: str) -> str:
    """Return prose without its code, so that a name in it breaks no rule."""
    return _CODE.sub(" X ", text)


def _texts(path: str, source: str) -> Iterator[Text]:
    if path.endswith(".py"):
        yield from _of_python(source)
    elif path.endswith(".md"):
        yield from _of_page(source)
    else:
        yield from _joined(_comments(source, r"^\s*(?:--|#)\s?(.*)$"))


def _of_python(source: str) -> Iterator[Text]:
    yield from _joined(_comments_of_python(source))
    tree = ast.parse(source)
    inner: set[int] = set()
    for node in ast.walk(tree):  # what holds others comes before them
        if isinstance(node, ast.JoinedStr):
            if id(node) not in inner:
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                )
                yield from _message(node.lineno, text)
            inner.update(map(id, node.values))
        elif isinstance(node, ast.keyword) and node.arg == "comment":
            # The comment of a table or column is stored in databases that exist.
            inner.update(map(id, ast.walk(node.value)))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, node.name.replace("_", " "))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner
        ):
            yield from _message(node.lineno, node.value)


def _comments_of_python(source: str) -> Iterator[Text]:
    """Yield the comments. To look for literals and comments alone takes a tenth of the time of
    ``tokenize``.
    """
    line, counted = 1, 0
    for match in _LITERAL_OR_COMMENT.finditer(source):
        comment = match.group()
        if comment.startswith("#") and not _DIRECTIVE.match(comment):
            line += source.count("\n", counted, match.start())
            counted = match.start()
            yield Text(line, comment.lstrip("# "))


def _message(line: int, text: str) -> Iterator[Text]:
    """Yield a literal if it is prose: some words, and no statement of SQL."""
    if len(_WORDS.findall(text)) < 4 or _SQL.match(text):
        return
    for paragraph in re.split(r"\n\s*\n", text):
        yield Text(line, paragraph)


def _of_page(source: str) -> Iterator[Text]:
    """Yield the paragraphs, items of lists and cells of tables."""
    blank = _FENCE.sub(lambda match: "\n" * match.group().count("\n"), source)
    for match in re.finditer(r"(?:^(?!\s*$).*\n?)+", blank, re.MULTILINE):
        line = 1 + blank.count("\n", 0, match.start())
        for item in _ITEM.split(match.group()):
            # The number of a section counts nothing.
            yield Text(line, re.sub(r"^(?:#+ \d+(?:\.\d+)*\.? |[\s>#*|\-]+)", "", item))
            line += item.count("\n")


def _comments(source: str, pattern: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), 1):
        if match := re.match(pattern, line):
            yield Text(number, match.group(1))


def _joined(lines: Iterable[Text]) -> Iterator[Text]:
    """Yield the comments of lines that follow each other as one text."""
    start = last = None
    parts: list[str] = []
    for line, text in lines:
        if last is not None and line != last + 1:
            yield Text(start or 1, "\n".join(parts))
            parts = []
        if not parts:
            start = line
        parts.append(text)
        last = line
    if parts:
        yield Text(start or 1, "\n".join(parts))


def read_allowed(text: str) -> Counter[tuple[str, str]]:
    """Return the numbers of findings by path and rule. Raises ValueError for a directory."""
    allowed: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        if line and not line.startswith("#"):
            path, rule, number = line.split()
            if path.endswith("/") or rule not in RULES:
                raise ValueError(f"prose_allowed.txt names a file and a rule in each line: {line}")
            allowed[path, rule] = int(number)
    return allowed


def compare(found: Counter[tuple[str, str]], allowed: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield what differs between the findings and the list of allowed ones."""
    for place in sorted(found.keys() | allowed.keys()):
        if found[place] > allowed[place]:
            yield f"{place[0]}: {place[1]}: {found[place]} found, {allowed[place]} allowed"
        elif found[place] < allowed[place]:
            yield (
                f"{place[0]}: {place[1]}: {found[place]} found, {allowed[place]} allowed: "
                "run scripts/prose.py --write"
            )


def _files() -> list[str]:
    kinds = ("*.py", "*.sql", "*.jinja*", "*.md", ".ci/*", "Makefile")
    listed = subprocess.run(  # noqa: S603 - fixed words
        ("git", "ls-files", "--cached", "--others", "--exclude-standard", *kinds),  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        path
        for path in listed.stdout.splitlines()
        if path not in _EXEMPT and (ROOT / path).is_file() and "/vectors/" not in path
    ]


def main() -> int:
    """Run the check and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    all_found = [
        finding
        for path in args.paths or _files()
        for finding in findings(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    if args.paths:
        print(*all_found, sep="\n")
        return 1 if all_found else 0
    found = Counter((finding.path, finding.rule) for finding in all_found)
    allowed = read_allowed(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else None
    if args.write:
        kept = found if allowed is None else found & allowed
        lines = [f"{path} {rule} {number}" for (path, rule), number in sorted(kept.items())]
        head = "# What scripts/prose.py still finds: file, rule, number. It only shrinks.\n"
        ALLOWED.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")
        allowed = kept
    differences = list(compare(found, allowed or Counter()))
    raised = {line.split(": ")[0] for line in differences if not line.endswith("--write")}
    print(*(finding for finding in all_found if finding.path in raised), sep="\n")
    print(*differences, sep="\n")
    print(f"prose: {found.total()} findings in {len({p for p, _ in found})} files")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
