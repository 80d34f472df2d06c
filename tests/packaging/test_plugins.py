"""The packages of ``examples/plugins``, built as wheels and installed in their own environment,
work by name.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import environments
import pytest
from documents import ROOT

PLUGINS = sorted((ROOT / "examples" / "plugins").iterdir())
BY_NAME = Path(__file__).with_name("installed_plugins.py")
SIZE = 150
"""Lines that each package has at most, with its tests."""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with the wheels of the plugins; eventlog and its dependencies are those of
    this tree.
    """
    directory = tmp_path / "environment"
    directory.mkdir()
    environments.build("build_wheel", directory, *PLUGINS)
    wheels = sorted(directory.glob("*.whl"))
    assert len(wheels) == 3
    paths = [
        str(ROOT),
        *(path for path in sys.path if path.endswith("site-packages")),
        sysconfig.get_path("purelib"),
    ]
    environments.install(directory, wheels, dict.fromkeys(paths))
    return directory


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_each_plugin_is_short(plugin: Path) -> None:
    files = [path for path in plugin.iterdir() if path.suffix in (".py", ".toml")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < SIZE


def test_each_plugin_passes_its_tests_and_works_by_its_name(
    environment: Path, tmp_path: Path
) -> None:
    """All in one process of the environment: each other one would load eventlog again."""
    copies = [tmp_path / "test_by_name.py"]
    copies[0].write_text(BY_NAME.read_text(encoding="utf-8"), encoding="utf-8")
    for plugin in PLUGINS:
        (tests,) = plugin.glob("test_*.py")
        copies.append(tmp_path / tests.name)
        copies[-1].write_text(tests.read_text(encoding="utf-8"), encoding="utf-8")
    # In its usual place pytest takes away the rights by which the servers of other tests reach their directories.
    own = "-q", "-rA", "-p", "no:cacheprovider", "--basetemp", tmp_path / "pytest"
    done = environments.run(
        environment / "bin" / "python", "-m", "pytest", *own, *copies, cwd=tmp_path,
        environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"(?m)^PASSED (test_\w+)\.py::", done.stdout))
    assert passed == {copy.stem for copy in copies}
