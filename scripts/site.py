"""Hooks of MkDocs (mkdocs.yml): pages that stand outside docs/ are pages of the site, README.md is
its first, and each code of an error, a finding or a condition has a page.

The links of pages outside docs/, and those that lead to them, are written for the tree; on the site
they lead to the same pages.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from eventlog.cli.inspect.explain_code import CodeEntry, code_entries  # noqa: E402

OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "bench/RESULTS.md": "bench/RESULTS.md",
    "tests/conformance/vectors/README.md": "tests/conformance/vectors/README.md",
}
"""Pages outside docs/, by their path in the tree, with their path on the site."""

_CODE_IN_TABLE: Final = re.compile(r'(<a id="(?:error|finding|condition)-(\w+)"></a>)`\2`')
_LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\((?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/, and a page for each code."""
    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    for code, entries in code_entries().items():
        files.append(File.generated(config, code_page(code), content=code_text(code, entries)))
    return files


def code_page(code: str) -> str:
    """Return the path of the page of a code, on the site."""
    return f"codes/{code}.md"


def code_text(code: str, entries: Sequence[CodeEntry]) -> str:
    """Return the page of a code: what `eventlog explain CODE` prints, with links."""
    lines = [f"# {code}", "", f"`eventlog explain {code}` prints this text in a terminal."]
    for entry in entries:
        page = (ROOT / entry.page).read_text(encoding="utf-8")
        title = page.splitlines()[0].lstrip("# ")
        link = posixpath.relpath(entry.page.removeprefix("docs/"), "codes")
        lines += ["", f"## {entry.kind[0].upper()}{entry.kind[1:]}"]
        for label, text in entry.parts():
            lines += ["", f"**{label}:** {text.replace('<', '&lt;') if '`' not in text else text}"]
        lines += ["", f"**Read on:** [{title}]({link})"]
    return "\n".join(lines) + "\n"


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

    if uri.startswith("codes/"):
        return markdown
    here = posixpath.dirname(place)

    def with_page(anchored: re.Match[str]) -> str:
        link = posixpath.relpath(f"docs/{code_page(anchored[2])}", here or ".")
        return f"{anchored[1]}[`{anchored[2]}`]({link})"

    return _LINK.sub(on_site, _CODE_IN_TABLE.sub(with_page, markdown))
