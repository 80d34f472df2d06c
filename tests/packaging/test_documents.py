"""The documentation as a whole: links lead somewhere, configurations can be read, commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from documents import ROOT, fenced

from eventlog import cli
from eventlog.config import load
from eventlog.convert import read_map

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ids = [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file_of_the_tree(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_names_every_page() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_configuration_can_be_read(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(fenced(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        if text.startswith("# map.toml"):  # options of a format, for --map
            read_map(file)
        else:
            load(file, {})


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_exists(page: Path) -> None:
    for block in fenced(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words or words[0] != "eventlog":
                continue
            named = [word for word in words[1:] if word in cli.COMMANDS]
            assert named, f"{page.name}: {line}"
