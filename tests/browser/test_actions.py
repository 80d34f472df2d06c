"""The actions of the status page in a real browser: who has a named token pauses and resumes the
publisher, and requeues, skips and resyncs an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from test_status_page import (
    audit,
    axe,
    complaints,
    explain,
    forget_complaints,
    log,
    picture,
    text,
    watched,
)

from publishers import write  # isort: skip
from receiver import Receiver, answer, reply, status  # isort: skip
from shared import execute, fetch, url_of, wait_until  # isort: skip
from selenium.webdriver.common.by import By

__all__ = ["log"]
pytestmark = pytest.mark.xdist_group("status page")


@pytest.fixture
def page(log: sa.Engine, tmp_path: Path, browser: Any) -> Iterator[str]:
    """The page of a publisher whose receiver refuses row 1 and wants row 2 later, for anna."""
    execute(log, "INSERT INTO usr VALUES (1, 'Jack')")
    (tmp_path / "tokens").write_text("anna:secret-of-anna\n")
    refused = [status("error", "1", "no"), status("retry", "2", "locked")]
    with Receiver(lambda _: reply(200, answer(*refused))) as receiver:
        options = {
            "sink__type": "http",
            "sink__url": receiver.url,
            "retry_initial": 60,
            "monitor__tokens_file": tmp_path / "tokens",
            "monitor__database_url": url_of(log),
        }
        with watched(log, tmp_path, **options) as (_, url):
            write(log, 1, 2)
            forget_complaints(browser)
            browser.get(url)
            browser.find_element(By.NAME, "token").send_keys("secret-of-anna\n")
            wait_until(lambda: "row 1" in text(browser, "errors"), "one is refused")
            browser.get_log("browser")  # the page was refused before the token
            yield url


def submit(browser: Any, form: str, reason: str = "") -> None:
    found = browser.find_element(By.ID, f"{form}-form")
    wait_until(found.is_displayed, f"{form} is offered")
    if reason:
        found.find_element(By.TAG_NAME, "input").send_keys(reason)
    found.find_element(By.TAG_NAME, "button").click()


def test_the_publisher_is_paused_and_resumed_on_its_page(page: str, browser: Any) -> None:
    assert "recorded under the name anna" in text(browser, "may-change")
    submit(browser, "pause", "the index is rebuilt")
    wait_until(lambda: "by anna on the status page" in text(browser, "reader-done"), "it is done")
    wait_until(browser.find_element(By.ID, "resume-form").is_displayed, "it may be resumed")
    wait_until(lambda: "has been paused" in text(browser, "words"), "the health shows it")
    picture(browser, "status-paused", 420)
    submit(browser, "resume")
    wait_until(lambda: "is resumed" in text(browser, "reader-done"), "it is done")
    wait_until(browser.find_element(By.ID, "pause-form").is_displayed, "it may be paused again")
    assert complaints(browser) == []


def test_axe_finds_nothing_where_an_event_can_be_skipped(page: str, browser: Any) -> None:
    source = axe()
    explain(browser, "2")
    wait_until(browser.find_element(By.ID, "skip-form").is_displayed, "it may be skipped")
    audit(browser, source)


def test_an_event_is_skipped_requeued_and_resynced_on_its_page(
    page: str, browser: Any, log: sa.Engine
) -> None:
    explain(browser, "2")
    assert not browser.find_element(By.ID, "requeue-form").is_displayed()
    submit(browser, "skip", "no such mailbox")
    wait_until(lambda: "1 event given up" in text(browser, "event-done"), "it is skipped")
    statuses = "SELECT status FROM eventlog ORDER BY record_id"
    assert fetch(log, statuses) == [("E",), ("E",)]
    explain(browser, "1")
    wait_until(lambda: "Row 1:" in text(browser, "event-state"), "the other event is shown")
    submit(browser, "requeue")
    wait_until(lambda: "1 row set back to N" in text(browser, "event-done"), "it is requeued")
    submit(browser, "resync")
    wait_until(lambda: "1 row of type 5 written" in text(browser, "event-done"), "it is resynced")
    assert len(fetch(log, statuses)) == 3
    assert complaints(browser) == []
