"""Hooks of MkDocs (mkdocs.yml): pages that stand outside docs/ are pages of the site, README.md is
its first.

Their links and those that lead to them are written for the tree; on the site they lead to the same
pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent

OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "bench/RESULTS.md": "bench/RESULTS.md",
    "tests/conformance/vectors/README.md": "tests/conformance/vectors/README.md",
}
"""Pages outside docs/, by their path in the tree, with their path on the site."""

_LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\((?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of the tree into those of the site; of a link to a file that is not a page the
    text stays.
    """
    uri = page.file.src_uri
    place = {site: tree for tree, site in OUTSIDE.items()}.get(uri, f"docs/{uri}")

    def on_site(link: re.Match[str]) -> str:
        mark, text, path, heading = link[1], link[2], link[3], link[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        target = OUTSIDE.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(target) is None and (ROOT / path).exists():
            return text
        return (
            f"{mark}[{text}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{heading})"
        )

    return _LINK.sub(on_site, markdown)
