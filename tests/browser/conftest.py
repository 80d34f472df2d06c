"""``browser``   one browser for all pages of publishers, which shows none between two tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_HURRIED = """{
  const later = window.setTimeout;
  window.pace = 8;
  window.setTimeout = (call, pause, ...more) => later(call, pause / window.pace, ...more);
}"""
"""Each pause of a page is an eighth as long: it reads the status four times a second. A test may set
``window.pace``.
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _HURRIED})
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(autouse=True)
def no_page_stays_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A page that stays open asks a publisher that has ended for the rest of the run."""
    yield
    if "browser" in request.fixturenames:
        request.getfixturevalue("browser").get("about:blank")
