"""README.md against what it speaks of: commands, versions, figures and the description of the project."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from documents import ROOT, fenced
from test_documents import versions

import eventlog

README = (ROOT / "README.md").read_text(encoding="utf-8")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- the first minute -----------------------------------------------------------------------------


def commands() -> list[str]:
    """The commands of README's blocks, in order, without their comments."""
    lines = "\n".join(fenced(ROOT / "README.md", "sh")).splitlines()
    return [line.partition("#")[0].strip() for line in lines if line]


def test_the_readme_names_the_commands_from_a_clone_to_the_tests() -> None:
    clone, demo, tests, *by_pip = commands()
    assert clone.startswith("git clone ")
    assert (demo, tests) == ("make demo", "make test")
    assert "pip install" in by_pip[0]
    targets = re.findall(r"(?m)^(\w+):", text_of("Makefile"))
    assert {"demo", "test"} <= set(targets)


def test_continuous_integration_runs_the_readmes_command_of_the_tests() -> None:
    (run,) = re.findall(r"(?m)^exec (.+?) </dev/null$", text_of(".ci/run"))
    assert re.sub(r" --\S+", "", run) in commands()


def duration(page: str) -> str:
    """How long the tests take, as the page has it."""
    (found,) = re.findall(r"(?m)^(?:# )?make test\s.*?(about .*? on .*? cores)", text_of(page))
    return str(found)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "Makefile"])
def test_the_tests_take_as_long_on_another_page_as_in_the_readme(page: str) -> None:
    assert duration(page) == duration("README.md")


def test_the_readme_names_every_version_that_the_tests_have_passed_with() -> None:
    tested = {
        name: found for name, found in versions("tested").items() if found and name != "Python"
    }
    (sentence,) = re.findall(r"have passed\]\([^)]+\) with (.+?)\.\s", README.replace("\n", " "))
    named = re.findall(r"([A-Z]\w+) (\d[\d., ]*)", sentence)
    assert {name: re.findall(r"\d+(?:\.\d+)*", found) for name, found in named} == tested


@pytest.mark.parametrize("page", ["CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_the_readme_leads_to_what_changed_and_to_where_to_report(page: str) -> None:
    assert f"]({page})" in README


# --- figures --------------------------------------------------------------------------------------


FIGURES = re.findall(
    r"(?m)^- (.+?): (.+) \(`(bench/.+)`\)$",
    re.sub(r"\n +", " ", README.partition("## What it costs\n")[2].partition("\n## ")[0]),
)
MEASURED = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text_of("bench/RESULTS.md").splitlines()
    if line.startswith("|")
]


def test_what_it_costs_is_four_figures() -> None:
    assert len(FIGURES) == 4


@pytest.mark.parametrize(("name", "figure", "command"), FIGURES)
def test_a_figure_stands_in_the_results_under_its_name_with_its_command(
    name: str, figure: str, command: str
) -> None:
    (row,) = (row for row in MEASURED if row[0] == name)
    assert (row[1], row[-1]) == (figure, f"`{command}`")


# --- what the project is --------------------------------------------------------------------------


def described() -> dict[str, str]:
    """The places that describe the project in one sentence, with the sentence."""

    class Loader(yaml.SafeLoader):
        """Reads mkdocs.yml, which names functions of Python."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site: dict[str, Any] = yaml.load(text_of("mkdocs.yml"), Loader)
    (label,) = re.findall(r'image\.description="([^"]+)"', text_of("docker/Dockerfile"))
    return {
        "pyproject": tomllib.loads(text_of("pyproject.toml"))["project"]["description"],
        "package": (eventlog.__doc__ or "").partition(".\n")[0],
        "image": label,
        "site": site["site_description"],
    }


@pytest.mark.parametrize("place", described())
def test_a_description_of_the_project_is_the_first_sentence_of_the_readme(place: str) -> None:
    first = re.sub(r"\s+", " ", README.partition("\n\n")[2]).partition(".")[0]
    assert described()[place] == first
