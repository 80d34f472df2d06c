"""The status page of a followed source in a real browser: what waits is found by its key, and has a
page; what only a log has is not shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_status_page import activate, audit, axe, complaints, forget_complaints, text

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from followed_stream import Receiver, Stream
from selenium.webdriver.common.by import By
from shared import wait_until
from test_follow_sources import configure
from test_source_event_page import published

from eventlog.config.load import load
from eventlog.model import Level

pytestmark = pytest.mark.xdist_group("status page")


@pytest.fixture
def page(tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page of a publisher whose receiver has refused event 1 and fails for event 2."""
    monkeypatch.chdir(tmp_path)
    stream, config = Stream(tmp_path / "capture.cdc"), configure(tmp_path)
    stream.insert(1, 2, 3)
    receiver = Receiver(k1=[Level.ERROR] * 9, k2=[OSError("gone")] * 99)
    with published(stream, tmp_path / "position.db", config, receiver):
        forget_complaints(browser)
        browser.get(f"http://{load(config, {}).monitor.listen}/")
        wait_until(lambda: text(browser, "log") == "source gbase", "its page")
        yield


def test_an_event_that_waits_is_found_by_its_key_and_has_a_page(page: None, browser: Any) -> None:
    source = axe()
    for section in ("list-title", "queue-title", "doctor-title"):
        assert not browser.find_element(By.ID, section).is_displayed(), "only a log has this"
    browser.find_element(By.ID, "search-key").send_keys("id=2\n")
    wait_until(lambda: "the receiver fails for it" in text(browser, "found"), "it is found")
    activate(browser.find_element(By.CSS_SELECTOR, "#found a"))
    wait_until(lambda: "eventlog skip --from gbase" in text(browser, "event"), "what can be done")
    shown = text(browser, "event")
    assert '"name": "new"' in shown, "the change"
    assert "<add " in shown, "the document"
    assert "no answer" in text(browser, "event-attempts")
    audit(browser, source)
    assert complaints(browser) == []


def test_what_was_refused_is_shown_unasked_and_has_a_page(page: None, browser: Any) -> None:
    wait_until(lambda: "refused by the receiver" in text(browser, "errors"), "it is listed")
    activate(browser.find_element(By.CSS_SELECTOR, "#errors a"))
    wait_until(lambda: "it failed (receiver): because" in text(browser, "event"), "its page")
    assert complaints(browser) == []
