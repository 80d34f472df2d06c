#!/usr/bin/env python3
"""Record the first scene of ``eventlog demo`` in a narrow terminal to docs/pictures/demo.svg.

The picture is text with its own style: no script, no font of another host. It is narrow enough for
a telephone.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "pictures" / "demo.svg"
COMMAND: Final = "eventlog demo --no-backlog"
WIDTH: Final = 60
GLYPH: Final = 0.54
"""The width of a letter in parts of its height: narrower than that of most fonts."""

FIRST, NEXT = re.compile(r"1  \S"), re.compile(r"2  \S")
"""The beginnings of the scene that is shown, and of the one after it."""

FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def main() -> None:
    console = Console(
        record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False
    )
    console.print(f"[bold]$ {COMMAND}[/bold]")
    console.print("[dim]...[/dim]")
    for line in scene(shown_in_a_terminal()):
        console.print(line, soft_wrap=True, crop=True)
    svg = console.export_svg(title=COMMAND, font_aspect_ratio=GLYPH)
    svg = svg.replace("#272822", "#292929")  # the ground of highlighted text: no bars
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]*;", f"font-family: {FONTS};", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    PICTURE.write_text(svg, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(svg) // 1024} KiB")


def shown_in_a_terminal() -> str:
    """Run the command in a terminal of this width, and return what it showed."""
    environ = {**os.environ, "COLORTERM": "truecolor", "COLUMNS": str(WIDTH)}
    program = Path(sys.executable).with_name("eventlog")
    ours, its = pty.openpty()
    with subprocess.Popen([program, *COMMAND.split()[1:]], stdout=its, env=environ) as running:  # noqa: S603
        os.close(its)
        shown = b""
        with (
            suppress(OSError),
            os.fdopen(ours, "rb", buffering=0) as terminal,
        ):  # its end is an error
            while some := terminal.read(1 << 16):
                shown += some
    if running.returncode:
        raise SystemExit(f"{COMMAND} ended with exit code {running.returncode}")
    return shown.decode()


def scene(shown: str) -> list[Text]:
    """Return the lines of the scene."""
    lines = [Text.from_ansi(line) for line in shown.splitlines()]
    begin, end = (
        next(place for place, line in enumerate(lines) if start.match(line.plain))
        for start in (FIRST, NEXT)
    )
    return lines[begin : end - 1]


if __name__ == "__main__":
    main()
