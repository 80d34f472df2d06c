"""The command that installs an extra of the package from where the package itself was installed
(PEP 610).
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from eventlog.model import JsonDict

DISTRIBUTION: Final = "eventlog-publisher"


def install_command(*extras: str) -> str:
    """Return the command that installs this package with these extras, if any. The command installs
    from the clone, the archive or the repository that the package came from, or from the index.
    """
    named = f"[{','.join(extras)}]" if any(extras) else ""
    origin = _origin()
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        directory = url2pathname(urlsplit(origin["url"]).path)
        return f"pip install {editable}{shlex.quote(f'{directory}{named}')}"
    place = ""
    if "vcs_info" in origin:
        commit = origin["vcs_info"]["commit_id"]
        place = f" @ {origin['vcs_info']['vcs']}+{origin['url']}@{commit}"
    elif "archive_info" in origin:
        place = f" @ {origin['url']}"
    return f"pip install {shlex.quote(f'{DISTRIBUTION}{named}{place}')}"


def _origin() -> JsonDict:
    """Return the content of ``direct_url.json``; empty for a package from an index. A source tree
    that is not installed is treated as a package that was installed from a directory.
    """
    try:
        text = Distribution.from_name(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        tree = Path(__file__).parents[2]
        if (tree / "pyproject.toml").is_file():
            return {"url": tree.as_uri(), "dir_info": {}}
        text = None
    try:
        origin = json.loads(text or "{}")
        urlsplit(origin.get("url", ""))
    except (ValueError, AttributeError):  # another installer's file
        return {}
    return origin if "url" in origin else {}
