"""The actions of the status page in a real browser: who has a named token pauses and resumes the
publisher, and requeues, skips and resyncs an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from pictures import picture
from test_status_page import (
    RARELY,
    activate,
    audit,
    axe,
    complaints,
    explain,
    forget_complaints,
    log,
    text,
    watched,
)

from monitored import pause, wake, write_and_resume  # isort: skip
from publishers import make_log  # isort: skip
from receiver import Receiver, answer, reply, status  # isort: skip
from shared import execute, fetch, url_of, wait_until  # isort: skip
from selenium.webdriver.common.by import By

__all__ = ["log"]
pytestmark = pytest.mark.xdist_group("status page")


@contextmanager
def refused_and_parked(log: sa.Engine, directory: Path) -> Iterator[str]:
    """The URL of a publisher whose receiver has refused row 1 and wants row 2 later; anna may act."""
    execute(log, "INSERT INTO usr VALUES (1, 'Jack')")
    (directory / "tokens").write_text("anna:secret-of-anna\n")
    refused = [status("error", "1", "no"), status("retry", "2", "locked")]
    pause(log)
    with Receiver(lambda _: reply(200, answer(*refused))) as receiver:
        options = {
            "sink__url": receiver.url,
            "monitor__tokens_file": directory / "tokens",
            "monitor__database_url": url_of(log),
        }
        with watched(log, directory, **options, **RARELY) as (_, url):
            write_and_resume(log, url, 1, 2, token="secret-of-anna")
            yield url


class Shared(NamedTuple):
    """A publisher for tests that leave it as they found it."""

    log: sa.Engine
    url: str


@pytest.fixture(scope="module")
def shared(filled_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with (
        filled_database(make_log) as log,
        refused_and_parked(log, tmp_path_factory.mktemp("shared")) as url,
    ):
        yield Shared(log, url)


def open_as_anna(browser: Any, url: str) -> None:
    forget_complaints(browser)
    browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
    browser.get(url)
    browser.find_element(By.NAME, "token").send_keys("secret-of-anna\n")
    wait_until(lambda: browser.find_elements(By.ID, "errors"), "the page is shown")
    wait_until(lambda: "row 1" in text(browser, "errors"), "one is refused")
    browser.get_log("browser")  # the page was refused before the token


def submit(browser: Any, form: str, reason: str = "") -> None:
    found = browser.find_element(By.ID, f"{form}-form")
    wait_until(found.is_displayed, f"{form} is offered")
    if reason:
        found.find_element(By.TAG_NAME, "input").send_keys(reason)
    activate(found.find_element(By.TAG_NAME, "button"))


def test_the_publisher_is_paused_and_resumed_on_its_page(shared: Shared, browser: Any) -> None:
    open_as_anna(browser, shared.url)
    assert "recorded under the name anna" in text(browser, "may-change")
    submit(browser, "pause", "the index is rebuilt")
    wait_until(lambda: "by anna on the status page" in text(browser, "reader-done"), "it is done")
    wake(shared.log)
    wait_until(browser.find_element(By.ID, "resume-form").is_displayed, "it may be resumed")
    wait_until(lambda: "has been paused" in text(browser, "words"), "the health shows it")
    picture(browser, "status-paused", 420)
    submit(browser, "resume")
    wait_until(lambda: "is resumed" in text(browser, "reader-done"), "it is done")
    wait_until(browser.find_element(By.ID, "pause-form").is_displayed, "it may be paused again")
    assert complaints(browser) == []


def test_axe_finds_nothing_where_an_event_can_be_skipped(shared: Shared, browser: Any) -> None:
    open_as_anna(browser, shared.url)
    source = axe()
    explain(browser, "2")
    wait_until(browser.find_element(By.ID, "skip-form").is_displayed, "it may be skipped")
    audit(browser, source)


def test_an_event_is_skipped_requeued_and_resynced_on_its_page(
    log: sa.Engine, tmp_path: Path, browser: Any
) -> None:
    with refused_and_parked(log, tmp_path) as url:
        open_as_anna(browser, url)
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
        done = "1 row of type 5 written"
        wait_until(lambda: done in text(browser, "event-done"), "it is resynced")
        assert len(fetch(log, statuses)) == 3
        assert complaints(browser) == []
