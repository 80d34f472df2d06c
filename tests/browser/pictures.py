"""The recorded pictures of the status page, docs/pictures/status-*.png.

Each holds the text that it shows, as its description, so that a test compares the page with the
picture wherever it comes by. EVENTLOG_TEST_PICTURES, the name of a directory, has the tests record
the pictures there in place of comparing them (``make recording``).
"""

from __future__ import annotations

import os
import re
import time
from difflib import unified_diff
from io import BytesIO
from pathlib import Path
from typing import Any

from documents import ROOT
from PIL import Image
from PIL.PngImagePlugin import PngInfo

WIDTH = 1100
SECONDS = 20
"""The time that a page may take to show its newest measurement."""

MASKED = (
    (r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?\b", "TIME"),
    (r", \d+(?:\.\d+)? (?:ms|s|min|h) ago", ""),  # of an older measurement
    (r"\b\d+(?:\.\d+)? (?:ms|s|min|h)\b", "DURATION"),
    (r"\b127\.0\.0\.1:\d+\b", "ADDRESS"),
    (r"\beventlog_test_\w+", "DATABASE"),
)
"""What differs from one run to the next."""

SHOWN = """
const [root, height] = arguments;
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
const lines = [];
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const {top, bottom, width} = range.getBoundingClientRect();
  const around = node.parentElement;
  if (node.data.trim() && width && bottom > 0 && top < height && around.checkVisibility()
      && !around.closest("#charts, #tiles > :not(.large)")) {
    lines.push(node.data.trim().replace(/\\s+/g, " "));
  }
}
return lines;
"""
"""The texts of an element that are above a height of the window, without curves and small tiles, which
differ from one moment to the next.
"""


def picture(browser: Any, name: str, height: int = 900, section: str = "") -> None:
    """Compare the page, or the section of this title, with docs/pictures/NAME.png, or record it."""
    directory = os.environ.get("EVENTLOG_TEST_PICTURES")
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    try:
        browser.execute_script("scrollTo(0, 0); dispatchEvent(new Event('resize'))")
        selector = f"section[aria-labelledby='{section}']" if section else "body"
        element = browser.find_element("css selector", selector)

        def lines() -> list[str]:
            return list(browser.execute_script(SHOWN, element, 1e9 if section else height))

        if directory is None:
            recorded = masked(described(ROOT / "docs" / "pictures" / f"{name}.png"))
            until = time.monotonic() + SECONDS
            while (shown := masked(lines())) != recorded and time.monotonic() < until:
                time.sleep(0.1)
            differences = list(unified_diff(recorded, shown, "picture", "page"))
            assert differences == [], "\n".join(["make recording", *differences])
            return
        browser.execute_script("document.activeElement.blur()")
        shot = element.screenshot_as_png if section else browser.get_screenshot_as_png()
        description = PngInfo()
        description.add_itxt("Description", "\n".join(lines()))
        Image.open(BytesIO(shot)).save(
            Path(directory) / f"{name}.png", pnginfo=description, optimize=True
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def described(path: Path) -> list[str]:
    """Return the lines of a picture's description."""
    with Image.open(path) as image:
        return str(image.info.get("Description", "")).splitlines()


def masked(lines: list[str]) -> list[str]:
    """Return lines without what differs from one run to the next."""
    text = "\n".join(lines)
    for pattern, mask in MASKED:
        text = re.sub(pattern, mask, text)
    return text.splitlines()
