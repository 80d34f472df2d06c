"""The recipes of docs/guides/change-a-schema.md, on tables of one's own names, and what they
promise: a replay that equals the tables.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from documents import ROOT
from replay import Replay
from shared import fetch

PAGE = ROOT / "docs" / "guides" / "change-a-schema.md"
TABLES = "The tables of this page"
RELATIONS = (
    *("usr", "usr_phone", "item", "article", "emp", "emp_new", "emp_old", "view_emp"),
    *("sale", "sale_2023", "sale_2024", "sale_2025"),
)
_STEP = re.compile(
    r"^### (?P<heading>[^\n]*)$|^(?:<!-- without: (?P<without>\w+) "
    r"-->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Step(NamedTuple):
    """A block: ``language`` is sql, sh or toml; ``without``: the table whose watch is taken out
    before it.
    """

    language: str
    text: str
    without: str | None

    @property
    def statements(self) -> list[str]:
        return [one.strip() for one in self.text.split(";") if one.strip()]


def recipes() -> dict[str, list[Step]]:
    """The blocks of the page's recipes by heading; those below ``TABLES`` make what the others
    change.
    """
    found: dict[str, list[Step]] = {}
    heading = ""
    page = PAGE.read_text(encoding="utf-8")
    for match in _STEP.finditer(page.partition("\n## Recipes\n")[2].partition("\n## ")[0]):
        if match["heading"] is not None:
            heading = match["heading"]
        else:
            found.setdefault(heading, []).append(
                Step(match["language"], match["text"], match["without"])
            )
    return found


RECIPES = recipes()
CHANGES = [heading for heading in RECIPES if heading != TABLES]


@dataclass
class Copy:
    """The tables of the page, with a suffix to each name, and the watches of these tables."""

    suffix: str
    watches: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watches = [
            watch
            for step in RECIPES[TABLES]
            if step.language == "toml"
            for watch in self._read(step)
        ]

    def named(self, text: str) -> str:
        """A block with the names of this copy."""
        text = re.sub(rf"\b({'|'.join(RELATIONS)})\b", rf"\1{self.suffix}", text)
        return re.sub(r"\bitem_pkey\b", f"item{self.suffix}_pkey", text)

    def statements(self, step: Step) -> list[str]:
        return [self.named(one) for one in step.statements]

    def lines(self, step: Step) -> list[list[str]]:
        """The words of each line of a shell, without the program."""
        return [shlex.split(self.named(line))[1:] for line in step.text.splitlines()]

    def declare(self, step: Step) -> None:
        """Change the watches as a block tells."""
        if step.without is not None:
            self._take_out({self.named(step.without)})
        if step.language == "toml":
            for watch in self._read(step):
                self._take_out({watch.get("table", watch.get("view")), watch.get("renamed_from")})
                self.watches.append(watch)

    def _read(self, step: Step) -> list[dict[str, Any]]:
        watches: list[dict[str, Any]] = tomllib.loads(self.named(step.text))["watch"]
        return watches

    def _take_out(self, names: set[Any]) -> None:
        self.watches = [
            one for one in self.watches if one.get("table", one.get("view")) not in names
        ]


def config_text(sections: dict[str, dict[str, Any]], watches: Iterable[dict[str, Any]]) -> str:
    """A configuration file."""
    lines = []
    for name, settings in sections.items():
        lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
    for watch in watches:
        lines += ["[[watch]]", *(f"{key} = {_toml(value)}" for key, value in watch.items())]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


# --- what a receiver has, and what the tables hold ------------------------------------------------

Held = dict[str, dict[str, list[str]]]


def received(documents: Path, renamed: dict[str, str]) -> Replay:
    """What a receiver of the files has that knows of renamed tables, old name -> new."""
    replay = Replay(whole_adds=True)
    bodies = []
    for path in sorted(path for path in documents.glob("*") if not path.name.startswith(".")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for old, new in renamed.items():
                line = line.replace(f"table={old},", f"table={new},")
            bodies.append(line)
    replay.documents(bodies)
    return replay


def differences(
    database: sa.Engine, watches: Sequence[dict[str, Any]], documents: Path
) -> list[str]:
    """Where a receiver does not have what watched tables hold, in words; attributes that are gone
    do not count.
    """
    renamed = {
        watch["renamed_from"]: watch["table"] for watch in watches if "renamed_from" in watch
    }
    has = received(documents, renamed).objects
    found = []
    known = set()
    for watch in watches:
        name = watch.get("table") or watch["view"]
        held, columns = _held(
            database, name, set(watch.get("exclude", ())), {w.get("table") for w in watches}
        )
        known |= {key for key in has if f",table={name}," in key}
        of_name = {key: value for key, value in has.items() if f",table={name}," in key}
        for key in sorted(held.keys() | of_name.keys()):
            if key not in of_name or key not in held:
                found.append(f"{key}: {'missing' if key not in of_name else 'not deleted'}")
                continue
            got = {column: values for column, values in of_name[key].items() if column in columns}
            if got != held[key]:
                found.append(f"{key}: {got} is not {held[key]}")
    return found + [
        f"{key}: not deleted, its table is watched no longer" for key in sorted(has.keys() - known)
    ]


def _held(
    database: sa.Engine, name: str, excluded: set[str], watched: set[Any]
) -> tuple[Held, set[str]]:
    """The objects of a class as its table holds them, and its attributes."""
    inspector = sa.inspect(database)
    is_view = name not in inspector.get_table_names()
    key = ["pk_id"] if is_view else inspector.get_pk_constraint(name)["constrained_columns"]
    columns = [
        one["name"] for one in inspector.get_columns(name) if one["name"] not in {*excluded, *key}
    ]
    attributes = {column: column.removeprefix("sv_") for column in columns}
    held: Held = {}

    def association(values: Iterable[Any]) -> str:
        pairs = zip(key, values, strict=True)
        return ",".join(
            [
                "+".join(f"{column}={value}" for column, value in pairs),
                f"table={name}",
                "schema=public",
            ]
        )

    selected = ", ".join(
        [*(f'"{one}"::text' for one in key), *(f'"{one}"::text' for one in columns)]
    )
    for row in fetch(database, f'SELECT {selected} FROM "{name}"'):
        values = dict(zip(attributes.values(), row[len(key) :], strict=True))
        held[association(row[: len(key)])] = {
            one: [value] for one, value in values.items() if value is not None
        }
    child = name.replace("usr", "usr_phone", 1)
    if re.match("usr(?!_phone)", name) and child not in watched:
        attributes[child] = f"{child}.no"
        for owner, *values in fetch(
            database, f'SELECT id, array_agg(no ORDER BY no COLLATE "C") FROM {child} GROUP BY id'
        ):
            held[association([owner])][f"{child}.no"] = values[0]
    return held, set(attributes.values())
