#!/usr/bin/env python3
"""Record the first scenes of ``eventlog demo`` to docs/pictures/demo.svg, line after line as they
appear.

The picture is text with its own style: no script, no font of another host. For a reader who prefers
reduced motion it shows everything immediately.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "pictures" / "demo.svg"
WIDTH: Final = 132
LAST: Final = re.compile(r"3  \S")
"""The beginning of the first scene that is not shown."""

SECONDS_A_LINE: Final = 0.25
FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
MOTION: Final = """
@keyframes appear { from { visibility: hidden } to { visibility: visible } }
@media (prefers-reduced-motion: no-preference) { .line { animation: appear 0s both } }
"""


def main() -> None:
    environ = {**os.environ, "FORCE_COLOR": "1", "COLORTERM": "truecolor", "COLUMNS": str(WIDTH)}
    command = [str(Path(sys.executable).with_name("eventlog")), "demo", "--no-backlog"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout  # noqa: S603
    shown = re.sub(r"(/tmp|/var/folders)/\S+", "/tmp/eventlog-demo", shown)  # noqa: S108
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print("[bold]$ make demo[/bold]")
    for line in shown.splitlines():
        text = Text.from_ansi(line)
        if LAST.match(text.plain):
            break
        console.print(text, soft_wrap=True, crop=True)
    svg = console.export_svg(title="make demo")
    svg = svg.replace(
        "#272822", "#292929"
    )  # the ground of highlighted text: no bars before the text appears
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]*;", f"font-family: {FONTS};", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL).replace("<style>", f"<style>{MOTION}", 1)
    svg = re.sub(
        r'<text (class="[^"]*-r\d+)("[^>]*clip-path="url\(#[\w-]*-line-(\d+)\)")',
        lambda line: (
            f'<text {line[1]} line{line[2]} style="animation-delay: '
            f'{int(line[3]) * SECONDS_A_LINE:.2f}s"'
        ),
        svg,
    )
    PICTURE.write_text(svg, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(svg) // 1024} KiB")


if __name__ == "__main__":
    main()
