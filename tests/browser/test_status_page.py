"""The status page in a real browser: it shows live numbers, reports when nobody answers, and fits
both screens.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from pictures import picture

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from cutting_proxy import cutting_proxy
from monitored import pause, read, write_and_resume
from publishers import LONG, make_log, process, settings, write
from receiver import Receiver, Request, answer, reply, status
from shared import Run, free_port, statuses, url_of, wait_until

from eventlog.config.load import load
from eventlog.publisher.monitor import monitoring_job

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="no chromium and chromedriver here (Debian: chromium chromium-driver)",
    ),
    pytest.mark.xdist_group("status page"),  # one browser for all
]


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@contextmanager
def watched(log: sa.Engine, directory: Path, **options: object) -> Iterator[tuple[Any, str]]:
    listen = f"127.0.0.1:{free_port()}"
    with process(
        log,
        directory,
        monitor__listen=listen,
        monitor__interval=1,
        polling_interval=LONG,
        **options,
    ) as running:
        wait_until(lambda: _listens(listen), "the monitor listens")
        yield running, f"http://{listen}/"


def _listens(listen: str) -> bool:
    host, _, port = listen.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def text(browser: Any, element: str) -> str:
    return str(browser.find_element(By.ID, element).text)


LARGE_TILES = """
return [...document.querySelectorAll("#tiles .large .tile")].map(
  (tile) => ["span", "b"].map((name) => tile.querySelector(name).innerText));
"""
"""Title and value of each large tile, read at one moment, since the page replaces the tiles at each poll."""


def queue_is_measured(browser: Any) -> bool:
    return bool(browser.execute_script(LARGE_TILES)[1][1] == "0")


def forget_complaints(browser: Any) -> None:
    """Leave the page of another test, which complains when its server ends, and forget its
    messages.
    """
    browser.get("about:blank")
    browser.get_log("browser")


def complaints(browser: Any) -> list[str]:
    return [line["message"] for line in browser.get_log("browser")]


def activate(element: Any) -> None:
    """Press a button, or follow a link, by the keyboard: where the page is written again, elements
    move, and a click could miss them.
    """
    element.send_keys(Keys.ENTER)


def press(browser: Any, button: str, shown: str, until_it_says: Callable[[str], bool]) -> None:
    activate(browser.find_element(By.ID, button))
    wait_until(lambda: until_it_says(text(browser, shown)), f"{button} is answered")


def explain(browser: Any, event: str) -> None:
    """Open the page of an event by its record_id or event-id."""
    browser.find_element(By.ID, "record-id").clear()
    browser.find_element(By.ID, "record-id").send_keys(f"{event}\n")


def test_the_page_shows_live_numbers_and_asks_the_database_on_request_and_values_stay_hidden(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (_, url):
        forget_complaints(browser)
        browser.get(url)
        wait_until(lambda: text(browser, "words").startswith("resting"), "it rests")
        write(log, *range(1, 51))
        wait_until(lambda: "50" in text(browser, "tiles"), "the rows are shown")
        wait_until(lambda: "success" in text(browser, "sent"), "the document is shown")
        wait_until(lambda: browser.title == "resting · eventlog", "it rests again")
        curves = "#charts svg path.first"
        wait_until(
            lambda: len(browser.find_elements(By.CSS_SELECTOR, curves)) >= 2, "curves are drawn"
        )
        assert complaints(browser) == []

        press(browser, "ask-queue", "queue", lambda shown: "S success" in shown)
        press(browser, "ask-errors", "errors", lambda shown: "No row was refused." in shown)
        press(browser, "ask-doctor", "doctor", lambda shown: "info" in shown or "warning" in shown)
        explain(browser, "1")
        wait_until(lambda: "Row 1: done" in text(browser, "event"), "the row is explained")
        assert "Jack" not in browser.page_source
        explain(browser, "99")
        wait_until(lambda: "no row 99" in text(browser, "event"), "the error is reported")


def test_what_comes_from_the_log_is_text_and_never_markup(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
                "VALUES (1, 'usr', 'idu=7', 'fname', '<img src=x onerror=document.title=1>')"
            )
        )
    with watched(log, tmp_path, monitor__show_values=True) as (_, url):
        browser.get(url)
        wait_until(lambda: "success" in text(browser, "sent"), "it is published")
        explain(browser, "1")
        wait_until(lambda: "<img src=x" in text(browser, "event"), "the row is explained")
        assert browser.find_elements(By.CSS_SELECTOR, "#event img") == []


def test_a_publisher_that_is_killed_is_seen_and_its_return_too(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (running, url):
        browser.get(url)
        wait_until(lambda: text(browser, "words").startswith("resting"), "it rests")
        wait_until(lambda: queue_is_measured(browser), "the queue is measured")
        running.kill()
        wait_until(lambda: text(browser, "lost").startswith("No answer since"), "the page shows it")
        assert text(browser, "words") == "No answer"
        assert "unknown" in text(browser, "tiles"), "the state of before is not the state"
        picture(browser, "status-lost", 420)
        listen = url.removeprefix("http://").removesuffix("/")
        with process(log, tmp_path, monitor__listen=listen, polling_interval=LONG):
            wait_until(
                lambda: not browser.find_element(By.ID, "lost").is_displayed(),
                "the page has found it again",
            )
            is_old = "return samples.some((one) => one.at < Date.parse(startedAt) / 1000)"
            assert browser.execute_script(is_old) is False, "no sample of the killed process"


def test_a_receiver_that_refuses_the_token_is_a_mistake_here_in_one_sentence_with_the_rest_folded(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with Receiver(lambda _: reply(401, b"who are you?")) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        with watched(log, tmp_path, monitor__show_values=True, **http) as (_, url):
            browser.get(url)
            wait_until(lambda: text(browser, "words").startswith("resting"), "it rests")
            write(log, 1, 2, 3)
            wait_until(
                lambda: re.fullmatch(
                    r"The receiver answers 401 Unauthorized for \d+ s\. Next attempt in \d+ s\.",
                    text(browser, "words"),
                ),
                "it is reported",
            )
            assert "EVENTLOG_SINK_TOKEN" in text(browser, "advice")
            (details,) = browser.find_elements(By.CSS_SELECTOR, "#advice details")
            assert "who are you?" not in text(browser, "advice"), "folded"
            activate(details.find_element(By.TAG_NAME, "summary"))
            assert "who are you?" in text(browser, "advice")
            wait_until(lambda: "waiting" in text(browser, "tiles"), "the state")
            wait_until(lambda: "Rows that wait" in text(browser, "charts"), "curves are drawn")
            assert "Time of a document" not in text(browser, "charts"), "there is nothing to draw"
            picture(browser, "status-misconfigured", 420)


def test_a_receiver_that_answers_503_is_waited_for_and_nothing_has_to_be_done_here(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with Receiver(lambda _: reply(503, b"maintenance")) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        with watched(log, tmp_path, **http) as (_, url):
            browser.get(url)
            wait_until(lambda: text(browser, "words").startswith("resting"), "it rests")
            write(log, 1, 2, 3)
            wait_until(
                lambda: re.fullmatch(
                    r"The receiver answers 503 Service Unavailable for \d+ s\. "
                    r"Next attempt in \d+ s\.",
                    text(browser, "words"),
                ),
                "it is reported",
            )
            assert "Nothing has to be done here" in text(browser, "advice")
            wait_until(lambda: "Rows that wait" in text(browser, "charts"), "curves are drawn")
            picture(browser, "status-away", 420)


def test_a_database_that_is_unavailable_is_one_sentence_with_the_lines_of_its_driver_folded(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    port, url_of_log = free_port(), sa.make_url(log.url)
    by_proxy = url_of_log.set(
        drivername="postgresql+psycopg", host="127.0.0.1", port=port, query={}
    )
    with ExitStack() as there:
        there.enter_context(cutting_proxy(url_of_log, port))
        with watched(
            sa.create_engine(by_proxy), tmp_path, retry_initial=1, monitor__show_values=True
        ) as (_, url):
            browser.get(url)
            wait_until(lambda: text(browser, "words").startswith("resting"), "it rests")
            wait_until(lambda: queue_is_measured(browser), "the queue is measured")
            there.close()
            wait_until(
                lambda: re.fullmatch(
                    r"The database has not answered for \d+ s: cannot connect to database '\w+' at "
                    r"127\.0\.0\.1:\d+\. Next attempt in \d+ s\.",
                    text(browser, "words"),
                ),
                "it is reported",
            )
            (details,) = browser.find_elements(By.CSS_SELECTOR, "#advice details")
            assert "Connection refused" not in text(browser, "advice"), "folded"
            assert not browser.find_element(By.ID, "lost").is_displayed(), "the process answers"
            picture(browser, "status-database", 420)
            activate(details.find_element(By.TAG_NAME, "summary"))
            assert "Connection refused" in text(browser, "advice")
            press(browser, "ask-queue", "queue", lambda shown: "cannot connect" in shown)


def test_a_token_is_asked_for_by_a_form(
    log: sa.Engine, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_MONITOR_TOKEN", "geheim")
    with watched(log, tmp_path) as (_, url):
        browser.get(url)
        field = browser.find_element(By.ID, "token")
        assert browser.find_element(By.TAG_NAME, "main").text.count("not the token") == 0
        field.send_keys("falsch\n")
        wait_until(lambda: browser.current_url.endswith("/login"), "it is refused")
        assert "This is not the token" in browser.find_element(By.TAG_NAME, "main").text
        browser.find_element(By.ID, "token").send_keys("geheim\n")
        wait_until(lambda: browser.find_elements(By.ID, "words"), "it is taken")
        wait_until(lambda: text(browser, "words").startswith("resting"), "the page is shown")
        assert browser.execute_script("return document.cookie") == ""


RARELY = {"sink__type": "http", "retry_initial": LONG, "retry_max": LONG}
"""A receiver that is asked again after the last test of the module."""


@pytest.fixture(scope="module")
def troubled(
    filled_database: Any, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The page of a publisher whose receiver refuses row 1 and parks rows 2 and 3."""
    refused = [status("error", "1", "Jack is gone")]
    mixed = reply(200, answer(*refused, *(status("retry", one, "Jack is locked") for one in "23")))
    directory = tmp_path_factory.mktemp("troubled")
    with filled_database(make_log) as log, Receiver(lambda _: mixed) as receiver:
        pause(log)
        with watched(log, directory, sink__url=receiver.url, **RARELY) as (_, url):
            write_and_resume(log, url, 1, 2, 3)
            yield url


@pytest.fixture
def trouble(troubled: str, browser: Any) -> None:
    """The page of a publisher in trouble in the browser, with all that it shows unasked."""
    forget_complaints(browser)
    browser.get(troubled)
    wait_until(lambda: "eventlog skip" in text(browser, "parked"), "two are parked")
    wait_until(lambda: "row 1" in text(browser, "errors"), "one is refused")


def test_the_page_and_its_title_show_the_health_and_what_to_do(trouble: None, browser: Any) -> None:
    words = "1 row refused by the receiver"
    wait_until(lambda: text(browser, "words") == words, "the worst condition is shown")
    assert browser.title == f"warning: {words} · eventlog"
    assert browser.find_element(By.ID, "now").get_attribute("class") == "is-warn"
    assert text(browser, "advice").startswith("Fix the cause, then run the commands that")
    assert "2 objects parked" in text(browser, "conditions")
    assert "monitor.show_values = false" in text(browser, "now"), "what ••• stands for"
    tiles = browser.execute_script(LARGE_TILES)
    assert [title for title, _ in tiles] == [
        "state",
        "rows in the queue",
        "oldest row waits for",
        "refused or invalid",
    ]
    assert tiles[3][1] == "1"
    wait_until(lambda: "limit 15 min" in text(browser, "charts"), "of the age of the oldest row")
    # Drawn only once a measurement has seen a document.
    wait_until(lambda: "limit 30 s" in text(browser, "charts"), "of a document: sink.timeout")
    picture(browser, "status-page", 1150)
    assert complaints(browser) == []


def test_objects_and_errors_are_grouped_with_one_command_each_in_blocks_of_commands_alone(
    trouble: None, browser: Any
) -> None:
    assert "the receiver answers retry" in text(browser, "parked")
    picture(browser, "status-parked", section="parked-title")
    press(browser, "ask-doctor", "doctor", lambda shown: "rows_failed" in shown)
    commands = [
        one.text for one in browser.find_elements(By.CSS_SELECTOR, ".command code") if one.text
    ]
    assert "eventlog skip --reason 'given up on the status page' 2 3" in commands
    assert "eventlog requeue --status E --ids 1" in commands
    for command in commands:
        assert re.match(r"(eventlog [a-z]|[A-Z]{4,} )", command), command
        assert not re.search(r"^eventlog .*(, | or )", command), command
    errors, documents = (browser.find_element(By.ID, one) for one in ("errors", "sent"))
    assert errors.location["y"] < documents.location["y"]


ACTIVE = """
const active = document.activeElement;
return active.getAttribute("aria-label") || active.innerText || active.tagName.toLowerCase();
"""
"""What the reader of a screen calls the element that has the keyboard."""
NOTE_ITS_TEXTS = """
window.noted = [];
new MutationObserver((all) => window.noted.push(...all.map((one) => one.target.textContent)))
  .observe(document.activeElement, {childList: true});
"""
"""Note each text of the element that has the keyboard from now on, however briefly it is there."""


def test_everything_is_reached_by_the_keyboard_and_a_command_is_copied(
    trouble: None, browser: Any
) -> None:
    reached = []
    wait_until(lambda: "limit" in text(browser, "charts"), "the curves")
    browser.execute_script("window.pace = 1")  # what is written again loses the keyboard
    keys = webdriver.ActionChains(browser, duration=0)
    for _ in range(80):
        keys.send_keys(Keys.TAB).perform()
        reached.append(browser.execute_script(ACTIVE))
        if reached[-1] == "Copy: eventlog errors":
            browser.execute_script(NOTE_ITS_TEXTS)
            keys.send_keys(Keys.ENTER).perform()
            wait_until(
                lambda: "Copied" in browser.execute_script("return window.noted"), "it is copied"
            )
    assert reached[0] == "Skip to the status"
    assert "Copy: eventlog errors" in reached
    assert {"Ask the database", "Explain", "Examine the log"} <= set(reached)
    assert any(one.startswith("Rows a second: ") for one in reached), "a curve"


def test_a_link_of_a_delivery_keeps_the_keyboard_while_its_time_goes_on(
    trouble: None, browser: Any
) -> None:
    link = browser.find_element(By.CSS_SELECTOR, "#deliveries a")
    browser.execute_script("arguments[0].focus()", link)
    before = text(browser, "deliveries")
    wait_until(lambda: text(browser, "deliveries") != before, "the next second")
    assert browser.switch_to.active_element == link


AXE = "axe-core@4"


@functools.cache
def axe() -> str:
    """The source of axe-core: the file at EVENTLOG_TEST_AXE, that of the package
    axe-playwright-python, or that of npm.
    """
    found = importlib.util.find_spec("axe_playwright_python")
    if (named := os.environ.get("EVENTLOG_TEST_AXE")) is not None:
        return Path(named).read_text(encoding="utf-8")
    if found is not None and found.origin is not None:
        return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    if (npm := shutil.which("npm")) is not None:
        with tempfile.TemporaryDirectory() as directory:
            pack = [npm, "pack", "--silent", "--pack-destination", directory, AXE]
            if subprocess.run(pack, stdin=subprocess.DEVNULL, check=False).returncode == 0:
                (package,) = Path(directory).iterdir()
                with tarfile.open(package) as files:
                    source = files.extractfile("package/axe.min.js")
                    assert source is not None
                    return source.read().decode()
    pytest.skip("no axe-core here, and no npm that finds it")


VIOLATIONS = """
const done = arguments[arguments.length - 1];
axe.run().then((found) => done(found.violations.map((one) => `${one.id}: ${one.nodes[0].html}`)));
"""


def test_axe_finds_nothing_on_a_wide_and_on_a_narrow_screen_in_light_and_in_dark(
    trouble: None, browser: Any
) -> None:
    source = axe()
    press(browser, "ask-doctor", "doctor", lambda shown: "rows_failed" in shown)
    audit(browser, source)


def audit(browser: Any, source: str) -> None:
    """The page fits a wide and a narrow screen, and axe finds nothing in light and in dark."""
    browser.execute_script(source)
    for width, scheme in itertools.product((1280, 400), ("light", "dark")):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_async_script(VIOLATIONS) == [], (width, scheme)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


NOT_SHOWN = """
return [...document.querySelectorAll("td")].filter((cell) => {
  const box = cell.getBoundingClientRect();
  return cell.textContent !== "" && (box.width === 0 || box.left < 0 || box.right > window.innerWidth);
}).map((cell) => `${cell.dataset.title}: ${cell.textContent}`)
"""
"""The cells of tables that stand behind an edge of the screen."""


def show_at(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_every_column_can_be_seen_on_any_screen_and_errors_of_before_the_start_are_shown_unasked(
    log: sa.Engine, browser: Any, tmp_path: Path, run: Run
) -> None:
    with Receiver(lambda _: reply(422, b"Jack is locked")) as receiver:
        http = {"sink__type": "http", "sink__response_format": "status", "sink__url": receiver.url}
        write(log, 1, 2)
        flags = settings(log, **http).items()
        run(*(part for one in flags for part in ("--set", "=".join(one))), "publish", "--once")
        assert set(statuses(log).values()) == {"E"}, "both are refused"
        with watched(log, tmp_path, **http) as (_, url):
            browser.get(url)
            wait_until(lambda: "row 2" in text(browser, "errors"), "the errors are shown")
            wait_until(
                lambda: "(2 refused or invalid)" in text(browser, "errors-title"),
                "one number for refused rows",
            )
            assert "usr" in text(browser, "errors")
            loads = "document.getElementById('ask-errors').disabled = {}"
            browser.execute_script(loads.format("true"))  # as while errors are loaded
            write(log, 3)
            wait_until(lambda: "error" in text(browser, "sent"), "the document is shown")
            wait_until(
                lambda: "(3 refused or invalid)" in text(browser, "errors-title"),
                "the last number that leads to a load",
            )
            browser.execute_script(loads.format("false"))
            wait_until(lambda: "row 3" in text(browser, "errors"), "the new error is shown too")
            # Both at once: one waits for the other.
            browser.execute_script("document.getElementById('ask-doctor').click()")
            press(browser, "ask-queue", "queue", lambda shown: "E error" in shown)
            wait_until(
                lambda: "rows_failed" in text(browser, "doctor"), "both questions are answered"
            )
            assert text(browser, "queue-hint") == "All 3 rows of the log."
            (moment, *_) = browser.find_elements(By.CSS_SELECTOR, "#sent time")
            assert re.fullmatch(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", moment.text)
            assert re.fullmatch(r"[\d-]{10} [\d:]{8} UTC", moment.get_attribute("title"))
            assert "Jack" not in browser.page_source
            assert "the receiver answers 422" in text(browser, "sent")
            assert "the receiver answers 422" in text(browser, "errors")
            for width in (1280, 390):
                show_at(browser, width)
                assert browser.execute_script(NOT_SHOWN) == [], width
                scrolled = browser.execute_script("return document.documentElement.scrollWidth")
                assert scrolled <= width
            titles = browser.execute_script(
                "return [...document.querySelectorAll('td')].map((c) => c.dataset.title)"
            )
            assert {"answer", "reason", "what fixes it"} <= set(titles)
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def answers_error(url: str) -> int:
    """How many events the receiver has refused since the start of the process."""
    return int(json.loads(read(f"{url}status.json")[1])["counters"]["answers_error"])


def test_the_page_of_a_consumer_is_about_what_it_has_to_do_and_what_was_refused_for_it(
    log: sa.Engine, browser: Any, tmp_path: Path
) -> None:
    with log.begin() as conn:
        conn.execute(sa.text("INSERT INTO usr VALUES (1, 'a'), (2, 'b')"))

    def refuse_twos(request: Request) -> bytes:
        ids = re.findall(r'event-id="(snapshot[^"]*idu=2)"', request.body)
        return reply(200, answer(*(status("error", one) for one in ids)))

    source = {
        "source__type": "eventlog",
        "source__consumer": "search",
        "source__start_from": "snapshot",
    }
    with Receiver(refuse_twos) as receiver:
        sink = {"sink__type": "http", "sink__url": receiver.url, "monitor__show_values": True}
        with watched(log, tmp_path, **source, **sink) as (_, url):
            wait_until(lambda: answers_error(url) == 1, "one is refused")
            forget_complaints(browser)
            browser.get(url)
            wait_until(
                lambda: text(browser, "log") == "eventlog, consumer search",
                "the page shows whose it is",
            )
            wait_until(
                lambda: "idu=2" in text(browser, "errors"), "what was refused is shown unasked"
            )
            assert "eventlog requeue --consumer search --event-id snapshot." in text(
                browser, "errors"
            )
            assert "rows to do" in text(browser, "tiles")
            event_id = re.search(r"snapshot\S*idu=2", text(browser, "errors"))
            assert event_id is not None
            activate(browser.find_element(By.LINK_TEXT, event_id[0]))
            wait_until(
                lambda: "the receiver answered error" in text(browser, "event"),
                "the object is explained",
            )
            activate(browser.find_element(By.LINK_TEXT, "Back to the status"))
            press(
                browser,
                "ask-queue",
                "queue-hint",
                lambda shown: "The letters are the publisher's" in shown,
            )
            assert complaints(browser) == []


def opens(browser: Any, section: str, link: str, shown: str) -> None:
    """A link of a table opens the page of an event, and the way back leads to the status."""

    def is_explained() -> bool:
        follow(browser, section, link)  # it is not displayed any more once the event has the page
        return shown in text(browser, "event")

    wait_until(is_explained, f"{section} has {link}, and explains it")
    assert not browser.find_element(By.ID, "tiles").is_displayed(), "the event has the page"
    activate(browser.find_element(By.LINK_TEXT, "Back to the status"))
    wait_until(lambda: browser.find_element(By.ID, "tiles").is_displayed(), "the status is back")


def follow(browser: Any, section: str, link: str) -> None:
    """Click a link, unless the section does not show it, or has just been written again."""
    with suppress(StaleElementReferenceException):
        for one in browser.find_elements(By.CSS_SELECTOR, f"#{section} a"):
            if one.text == link:
                one.click()
                return


@pytest.fixture(scope="module")
def inspected(filled_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A publisher whose receiver refuses row 1, parks row 2 and accepts row 3; values are shown."""
    refused = [status("error", "1", "Jack is gone"), status("retry", "2", "Jack is locked")]
    directory = tmp_path_factory.mktemp("inspected")
    with (
        filled_database(make_log) as log,
        Receiver(lambda _: reply(200, answer(*refused))) as receiver,
    ):
        pause(log)
        shown = {"sink__url": receiver.url, "monitor__show_values": True}
        with watched(log, directory, **shown, **RARELY) as (_, url):
            write_and_resume(log, url, 1, 2, 3)
            yield url


@pytest.fixture
def inspector(inspected: str, browser: Any) -> None:
    forget_complaints(browser)
    browser.get(inspected)
    wait_until(lambda: "row 1" in text(browser, "errors"), "one is refused")


def test_an_event_has_a_page_that_every_table_leads_to(inspector: None, browser: Any) -> None:
    opens(browser, "errors", "row 1", "the receiver answered error: Jack is gone")
    opens(browser, "parked", "2", "parked as event 2")
    opens(browser, "deliveries", "2", "parked as event 2")
    opens(browser, "sent", "3", "Row 3: done")
    assert complaints(browser) == []


def test_the_page_of_an_event_shows_its_attempts_its_document_and_what_can_be_done(
    inspector: None, browser: Any
) -> None:
    explain(browser, "2")
    wait_until(lambda: "parked as event 2" in text(browser, "event"), "it is explained")
    shown = text(browser, "event")
    wait_until(
        lambda: (
            "it is sent again later: the receiver answered retry" in text(browser, "event-waits")
        ),
        "what it waits for in the outbox",
    )
    assert "eventlog skip 2 --reason REASON" in shown
    assert "200 OK" in shown, "the status of the answer"
    assert 'event-id="2"' in shown, "the first kilobyte of the answer"
    assert "As recorded for its delivery" in shown
    assert "idu=2" in browser.find_element(By.CSS_SELECTOR, "#event pre").text
    picture(browser, "status-event")
    explain(browser, "1")
    wait_until(lambda: "eventlog requeue --status E --ids 1" in text(browser, "event"), "the fix")
    explain(browser, "3")
    wait_until(lambda: "eventlog resync usr --key idu=3" in text(browser, "event"), "the fix")
    assert "success" in text(browser, "event")


def test_an_event_is_found_by_class_and_key_in_a_range_that_is_named(
    inspector: None, browser: Any
) -> None:
    browser.find_element(By.ID, "search-class").send_keys("usr")
    browser.find_element(By.ID, "search-key").send_keys("idu=3\n")
    wait_until(lambda: "Searched: the rows 1 to 3" in text(browser, "found"), "it is found")
    activate(browser.find_element(By.CSS_SELECTOR, "#found a"))
    wait_until(lambda: "Row 3: done" in text(browser, "event"), "it is explained")
    browser.find_element(By.ID, "search-key").clear()
    browser.find_element(By.ID, "search-key").send_keys("nobody=1\n")
    wait_until(lambda: "is not a key of any class" in text(browser, "found"), "it is reported")


LISTED = "return [...document.querySelectorAll('#list a')].map((one) => one.textContent)"


def test_rows_and_documents_are_listed_by_status_and_answer_and_lead_to_their_events(
    inspector: None, browser: Any
) -> None:
    submit(browser, "list-form")
    wait_until(lambda: "Searched: " in text(browser, "list-hint"), "rows are listed")
    rows = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#list a")]
    assert rows == ["3", "2", "1"], "the newest first"
    assert "receiver: Jack is gone" in text(browser, "list"), "why row 1 was refused"
    picture(browser, "status-lists", section="list-title")
    choose(browser, "list-status", "refused")
    submit(browser, "list-form")
    wait_until(lambda: browser.execute_script(LISTED) == ["1"], "only the refused row")
    assert "receiver: Jack is gone" in text(browser, "list")
    assert not browser.find_element(By.ID, "list-older").is_displayed(), "there are no more"
    choose(browser, "sent-answer", "success")
    submit(browser, "sent-form")
    wait_until(lambda: "None of the newest documents" in text(browser, "sent"), "none had success")
    choose(browser, "sent-answer", "")
    submit(browser, "sent-form")
    wait_until(lambda: "retry" in text(browser, "sent"), "all are shown again")
    opens(browser, "list", "1", "Row 1: the receiver answered error")


def choose(browser: Any, select: str, value: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"#{select} option[value='{value}']").click()


def submit(browser: Any, form: str) -> None:
    activate(browser.find_element(By.CSS_SELECTOR, f"#{form} button"))


def test_the_page_of_an_event_fits_and_axe_finds_nothing(inspector: None, browser: Any) -> None:
    source = axe()
    submit(browser, "list-form")
    wait_until(lambda: "Searched: " in text(browser, "list-hint"), "rows are listed")
    audit(browser, source)
    explain(browser, "2")
    wait_until(lambda: "parked as event 2" in text(browser, "event"), "it is explained")
    audit(browser, source)


def test_the_publishers_page_has_a_curve_of_what_each_consumer_has_to_do(
    log: sa.Engine, browser: Any, tmp_path: Path, run: Run
) -> None:
    consumer = ("source.type=eventlog", "source.consumer=search", "source.start_from=latest")
    sets = [part for one in (*consumer, "sink.type=stdout") for part in ("--set", one)]
    assert run("--database-url", url_of(log), *sets, "publish", "--once")[0] == 0
    with watched(log, tmp_path) as (_, url):
        write(log, 1, 2)
        browser.get(url)
        wait_until(
            lambda: "Rows that consumer search has to do" in text(browser, "charts"), "its curve"
        )
        opens(browser, "consumers", "row 1", "Row 1: done")


def test_tiles_and_curves_are_of_one_look(log: sa.Engine, browser: Any, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}/xds"
    with watched(log, tmp_path, sink__type="http", sink__url=dead, retry_initial=60) as (_, url):
        browser.get(url)
        for first in range(1, 400, 100):
            write(log, *range(first, first + 100))
            tile, curve = browser.execute_script(
                "return [[...document.querySelectorAll('.tile')].find((t) => "
                "t.textContent.startsWith('rows in'))?.querySelector('b').textContent, "
                "document.querySelectorAll('figcaption span')[1].textContent]"
            )
            assert not curve or tile == curve  # before the first sample there is no curve
            time.sleep(0.3)
        wait_until(lambda: "400" in text(browser, "tiles"), "all that wait are shown")
        assert "no answer" in text(browser, "sent"), "the attempt is listed"
        is_shown = "return charts.filter((one) => !one.figure.hidden).length"
        wait_until(lambda: browser.execute_script(is_shown) > 0, "curves are drawn")
        assert browser.execute_script(f"samples = []; charts.forEach(draw); {is_shown}") == 0


def test_a_backlog_job_shows_its_stage_and_what_is_left_and_no_queue_of_a_publisher(
    browser: Any,
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    url = "postgresql://nobody@localhost:1/x"
    config = load(None, {"EVENTLOG_DATABASE_URL": url, "EVENTLOG_MONITOR_INTERVAL": "1"})
    done = SimpleNamespace(share=0.0, rows=0, events=0, total=2000, parts="")
    with (
        monitoring_job(config, listen, "/out", "xds", lambda *_: None) as activity,  # type: ignore[arg-type, return-value]
        activity.during("converting", lambda: done),
    ):
        forget_complaints(browser)
        browser.get(f"http://{listen}/")
        wait_until(lambda: text(browser, "words").startswith("converting"), "the stage is shown")
        done.share, done.rows, done.events, done.parts = 0.5, 1000, 400, "5 of 10"
        wait_until(lambda: "1,000 of 2,000" in text(browser, "tiles"), "the rows are shown")
        assert "50 %" in text(browser, "tiles")
        assert "5 of 10" in text(browser, "tiles")
        assert not browser.find_element(By.ID, "parked-title").is_displayed()
        assert browser.find_element(By.ID, "ask-queue").is_displayed()
        assert complaints(browser) == []
