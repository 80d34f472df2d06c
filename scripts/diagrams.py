#!/usr/bin/env python3
"""Draw docs/diagrams/*.dot to docs/pictures/*.svg with Graphviz (``dot``, Debian's package
graphviz), and the pictures of ``drawings``, which need no program.

Each picture of Graphviz holds the hash of what it was drawn from, so that a test sees without
Graphviz whether it is current. Fonts are those of the reader: a picture asks no other host for
anything.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from drawings import DRAWINGS

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "docs" / "diagrams"
PICTURES: Final = ROOT / "docs" / "pictures"

LOOK: Final = (
    "-Gbgcolor=white", "-Gpad=0.2", "-Gnodesep=0.35", "-Granksep=0.5", "-Gfontname=sans-serif",
    "-Gfontsize=12", "-Gcolor=#90a4ae", "-Nshape=box", "-Nfontname=sans-serif", "-Nfontsize=12",
    "-Ncolor=#546e7a", "-Nmargin=0.15,0.08", "-Efontname=sans-serif", "-Efontsize=11",
    "-Ecolor=#546e7a", "-Efontcolor=#37474f",
)  # fmt: skip


def fingerprint(source: Path) -> str:
    """Return the hash of a diagram and of the look it is drawn with."""
    return hashlib.sha256(source.read_bytes() + "\0".join(LOOK).encode()).hexdigest()[:16]


def draw(source: Path) -> str:
    """Return the picture of a diagram, with the hash of its source."""
    command = ["dot", "-Tsvg", *LOOK, str(source)]
    svg = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!DOCTYPE.*?>\n?", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f"<!-- {source.name} {fingerprint(source)} -->\n<svg ", 1)


def main() -> None:
    for name, drawn in DRAWINGS.items():
        (PICTURES / f"{name}.svg").write_text(drawn(), encoding="utf-8")
    for source in sorted(SOURCES.glob("*.dot")):
        picture = PICTURES / f"{source.stem}.svg"
        if picture.exists() and fingerprint(source) in picture.read_text(encoding="utf-8"):
            continue
        picture.write_text(draw(source), encoding="utf-8")
        print(f"{picture.relative_to(ROOT)} drawn")


if __name__ == "__main__":
    main()
