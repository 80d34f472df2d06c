"""The command that installs an extra works where the package came from (PEP 610)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.core import extras
from eventlog.core.extras import install_command

INDEX = "pip install 'eventlog-publisher[kafka]'"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, INDEX),
        ({"url": "file:///srv/my%20clone", "dir_info": {}}, "pip install '/srv/my clone[kafka]'"),
        (
            {"url": "file:///srv/clone", "dir_info": {"editable": True}},
            "pip install --editable '/srv/clone[kafka]'",
        ),
        (
            {"url": "file:///tmp/eventlog_publisher-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'eventlog-publisher[kafka] @ "
            "file:///tmp/eventlog_publisher-0.1.0-py3-none-any.whl'",
        ),
        (
            {
                "url": "https://git.example.org/eventlog",
                "vcs_info": {"vcs": "git", "commit_id": "4f2c"},
            },
            "pip install 'eventlog-publisher[kafka] @ git+https://git.example.org/eventlog@4f2c'",
        ),
        ([], INDEX),
        ({"dir_info": {}}, INDEX),
        ("not JSON", INDEX),
    ],
)
def test_the_command_installs_from_where_the_package_came(
    origin: Any, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, tmp_path, origin)
    assert install_command("kafka") == command


def test_several_extras_are_one_command_and_none_is_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, tmp_path, None)
    assert install_command("oracle", "spark") == "pip install 'eventlog-publisher[oracle,spark]'"
    assert install_command("") == "pip install eventlog-publisher"


def test_a_tree_that_is_not_installed_is_installed_from_its_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extras, "DISTRIBUTION", "eventlog-that-nobody-has")
    root = Path(extras.__file__).parents[2]
    assert install_command("kafka") == f"pip install '{root}[kafka]'"


def installed(monkeypatch: pytest.MonkeyPatch, directory: Path, origin: Any) -> None:
    """Let the package be installed, with this content of direct_url.json; None = without."""
    metadata = directory / "eventlog_publisher-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: eventlog-publisher\n")
    if origin is not None:
        text = origin if isinstance(origin, str) else json.dumps(origin)
        (metadata / "direct_url.json").write_text(text)
    monkeypatch.syspath_prepend(directory)
