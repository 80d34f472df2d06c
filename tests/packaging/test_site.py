"""The documentation as a site (mkdocs.yml): it builds without a warning, and nothing of it comes
from another host.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from documents import ROOT
from PIL import Image

from eventlog.cli.inspect.explain_code import code_entries

DRAWINGS = runpy.run_path(str(ROOT / "scripts" / "drawings.py"))["DRAWINGS"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DIAGRAMS = sorted((ROOT / "docs" / "diagrams").glob("*.dot"))
LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\bsrc=\"([^\"]+)\"|<link[^>]*\bhref=\"([^\"]+)\""
)


pytestmark = pytest.mark.xdist_group("site")


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    pages = {
        page.relative_to(ROOT / "docs").with_suffix(".html")
        for page in (ROOT / "docs").rglob("*.md")
    }
    pages -= {page for page in pages if page.parts[0] == "examples"}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    readmes = {page for page in pages if page.name == "README.html"}
    assert pages - readmes <= built
    assert {page.parent / "index.html" for page in readmes} <= built
    assert Path("index.html") in built


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        for match in LOADED.finditer(page.read_text(encoding="utf-8")):
            assert not re.match(r"(?:\w+:)?//", match[1] or match[2]), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet.name
        )


def test_every_option_and_every_error_code_has_a_place_to_link_to(site: Path) -> None:
    configuration = (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    codes = (site / "reference" / "codes.html").read_text(encoding="utf-8")
    assert 'id="publisher.batch_size"' in configuration
    assert 'id="watch.table"' in configuration
    assert 'id="gbase.reader.charset"' in configuration
    assert 'id="error-another_publisher"' in codes
    assert 'id="finding-no_publisher"' in codes
    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert 'id="triggers-apply--lock-timeout"' in commands
    metrics = (site / "reference" / "metrics.html").read_text(encoding="utf-8")
    assert 'id="metric-eventlog_queue_rows"' in metrics


@pytest.mark.parametrize("code", code_entries())
def test_every_code_has_a_page_that_its_tables_link_to(site: Path, code: str) -> None:
    page = (site / "codes" / f"{code}.html").read_text(encoding="utf-8")
    assert f"eventlog explain {code}" in page
    assert page.count("What to do:") == len(code_entries()[code])
    tables = "".join(
        (site / page).read_text(encoding="utf-8")
        for page in ("reference/codes.html", "reference/metrics.html")
    )
    assert f'<a href="../codes/{code}.html"><code>{code}</code></a>' in tables


def test_the_search_leads_from_a_code_to_its_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["title"]: entry["location"] for entry in index["docs"]}
    assert titles["another_publisher"] == "codes/another_publisher.html"
    assert titles["bad_decimal"] == "codes/bad_decimal.html"


def test_the_search_has_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"index.html", "guides/publish.html", "spec/event-log.html"} <= found
    assert "reference/configuration.html" in found


def test_a_page_leads_to_the_next_and_to_the_previous_one(site: Path) -> None:
    page = (site / "concepts" / "guarantees.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]+)" class="md-footer__link md-footer__link--(\w+)', page) == [
        ("how-it-works.html", "prev"),
        ("comparison.html", "next"),
    ]


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda path: path.stem)
def test_the_picture_of_a_diagram_is_drawn_from_it_as_it_is(diagram: Path) -> None:
    fingerprint = runpy.run_path(str(ROOT / "scripts" / "diagrams.py"))["fingerprint"]
    picture = (ROOT / "docs" / "pictures" / f"{diagram.stem}.svg").read_text(encoding="utf-8")
    assert fingerprint(diagram) in picture, "make diagrams"
    links = [
        value for node in ElementTree.fromstring(picture).iter() for value in node.attrib.values()
    ]
    assert not [value for value in links if "://" in value]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_drawn_as_its_function_draws_it(name: str) -> None:
    picture = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert picture == DRAWINGS[name](), "make diagrams"
    root = ElementTree.fromstring(picture)
    assert root.attrib["viewBox"].split()[2] == "420"  # narrow enough for a telephone
    sizes = [int(node.attrib["font-size"]) for node in root.iter() if "font-size" in node.attrib]
    assert min(sizes) >= 12


@pytest.mark.parametrize("name", re.findall(r"docs/pictures/([\w-]+)\.svg", README))
def test_a_picture_of_the_readme_is_legible_on_a_telephone_and_complete_from_its_first_moment(
    name: str,
) -> None:
    picture = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    width = float(ElementTree.fromstring(picture).attrib["viewBox"].split()[2])
    sizes = re.findall(r"font-size[=:]\s*\"?([\d.]+)", picture)
    assert min(map(float, sizes)) * 420 / width >= 11
    assert re.findall("animat|keyframes|visibility|opacity", picture) == []


PICTURES = sorted(path.name for path in (ROOT / "docs" / "pictures").iterdir())


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_shown_on_a_page(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"pictures/{name}" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("name", [name for name in PICTURES if name.endswith(".png")])
def test_every_picture_of_a_browser_has_its_text_and_is_compared_by_a_test(name: str) -> None:
    with Image.open(ROOT / "docs" / "pictures" / name) as picture:
        assert picture.info["Description"].count("\n") > 10
    tests = "".join(
        page.read_text("utf-8") for page in (ROOT / "tests" / "browser").glob("test_*.py")
    )
    assert f'picture(browser, "{name.removesuffix(".png")}"' in tests
