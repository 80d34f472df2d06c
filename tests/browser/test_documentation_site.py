"""The documentation's site in a real browser: it asks no other host for anything, finds pages, and
fits a phone.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from shared import wait_until

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402

ROOT = Path(__file__).parents[2]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.xdist_group("site"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="no chromium and chromedriver here (Debian: chromium chromium-driver)",
    ),
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The URL of the site."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def requested(browser: Any) -> set[str]:
    """The URLs that the browser has asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return {
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    }


def test_no_page_asks_another_host_for_anything(address: str, browser: Any) -> None:
    requested(browser)
    browser.get_log("browser")
    seen = set()
    for page in (
        "index.html",
        "concepts/guarantees.html",
        "reference/configuration.html",
        "spec/event-log.html",
    ):
        browser.get(address + page)
        seen |= requested(browser)
    hosts = {
        urlsplit(url).netloc for url in seen if not url.startswith(("data:", "blob:", "chrome"))
    }
    assert hosts == {urlsplit(address).netloc}
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_search_finds_an_option_and_the_page_of_a_task_among_the_first_three(
    address: str, browser: Any
) -> None:
    browser.get(f"{address}index.html?q=fold_distance")

    def found() -> bool:
        return "onfiguration" in browser.find_element(By.CSS_SELECTOR, ".md-search-result").text

    wait_until(found, "the search finds the option")
    script = "return [...document.querySelectorAll('.md-search-result__link')].map(one => one.href)"

    def first_three() -> list[str]:
        links = browser.execute_script(script)
        return list(dict.fromkeys(urlsplit(link).path[1:] for link in links))[:3]

    field = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    for word, page in (
        ("backfill", "guides/backfill-and-repair.html"),
        ("uninstall", "guides/install.html"),
        ("cost", "concepts/comparison.html"),
    ):
        field.clear()
        field.send_keys(word)
        wait_until(lambda page=page: page in first_three(), f"{page} is found by {word}")


def test_a_page_fits_a_phone_and_its_diagram_is_drawn(address: str, browser: Any) -> None:
    browser.set_window_size(390, 844)
    browser.get(address + "guarantees.html")
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= window.innerWidth"
    )
    drawn = "return [...document.images].every(image => image.complete && image.naturalWidth > 0)"
    wait_until(lambda: browser.execute_script(drawn), "the diagrams are drawn")
