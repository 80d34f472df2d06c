"""The wheel: what is in it, and that it installs and runs where the source tree is not."""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from environments import build, install, run
from shared import memory, temporary_servers

from eventlog import __version__

ROOT = Path(__file__).parents[2]
# One worker builds the wheel, for all of them.
pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, and the wheel that is built from it."""
    directory, unpacked = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("unpacked")
    build("build_sdist", directory, ROOT)
    (path,) = directory.glob("*.tar.gz")
    extracted = run(sys.executable, "-m", "tarfile", "-e", path, unpacked, cwd=directory)
    assert extracted.returncode == 0, extracted.stderr
    build("build_wheel", directory, *unpacked.iterdir())
    return directory


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; the dependencies are those of the environment that runs
    the tests.
    """
    directory = tmp_path_factory.mktemp("environment")
    install(directory, [wheel], [sysconfig.get_path("purelib")])
    return directory


def test_every_file_of_the_package_and_no_other_is_in_the_wheel(wheel: Path) -> None:
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "eventlog").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == sources
    assert "eventlog/py.typed" in packed
    for suffix in (".sql", ".j2", ".rng"):
        assert any(name.endswith(suffix) for name in packed), suffix


def test_the_wheel_has_its_name_and_version(wheel: Path) -> None:
    assert wheel.name == f"eventlog_publisher-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        info = f"eventlog_publisher-{__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        assert "License-Expression: Apache-2.0" in metadata
        assert "Requires-Python: >=3.11\n" in metadata
        extras = set(re.findall(r"^Provides-Extra: (.+)$", metadata, re.MULTILINE))
        assert extras == {
            "all", "avro", "delta", "dev", "embedded", "iceberg", "kafka", "mariadb", "monitor",
            "mysql", "nats", "objects", "oracle", "otel", "parquet", "rabbitmq", "redis", "registry",
            "s3", "spark", "spark-cluster", "sqs", "testing",
        }  # fmt: skip
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert (
            "eventlog = eventlog.__main__:main" in archive.read(f"{info}/entry_points.txt").decode()
        )


def test_the_source_distribution_holds_what_is_needed_to_build_and_test(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "Makefile", "scripts/setup", "eventlog/py.typed"} <= names
    assert "tests/packaging/test_wheel.py" in names


def test_the_installed_wheel_runs(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    where = run(python, "-c", "import eventlog; print(eventlog.__file__)", cwd=tmp_path)
    assert str(environment) in where.stdout
    version = run(environment / "bin" / "eventlog", "--version", cwd=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"eventlog {__version__}\n")


@pytest.fixture(scope="module")
def demo(environment: Path) -> Iterator[tuple[str, str]]:
    """What the demo of the installed wheel prints, and then the command that its last line names."""
    eventlog = environment / "bin" / "eventlog"
    # The server of the demo waits for the disk at each commit.
    with pytest.MonkeyPatch.context() as patch, temporary_servers("eld-", memory()) as place:
        patch.setenv("COLUMNS", "500")  # a command stays on its line
        shown = run(eventlog, "demo", "--no-backlog", "--keep", "try", cwd=place)
        assert shown.returncode == 0, shown.stderr
        (arguments,) = re.findall(r"eventlog (--config \S+ status) ", shown.stdout)
        status = run(eventlog, *arguments.split(), cwd=place)
        assert status.returncode == 0, status.stderr
        yield shown.stdout, status.stdout


def test_the_installed_wheel_runs_the_demo_and_what_its_last_line_names(
    demo: tuple[str, str],
) -> None:
    assert "log hr.eventlog: " in demo[1]


def test_the_picture_of_the_demo_shows_the_command_of_the_readme_and_a_whole_scene_that_it_prints(
    demo: tuple[str, str],
) -> None:
    picture = ElementTree.parse(ROOT / "docs" / "pictures" / "demo.svg")
    texts = "".join(one.text or "" for one in picture.iter("{http://www.w3.org/2000/svg}text"))
    command, _, scene = texts.partition("...")
    (asked,) = re.findall(r"(?m)^eventlog demo[^#\n]*", (ROOT / "README.md").read_text("utf-8"))
    assert without_spaces(command) == without_spaces(f"{asked}${asked}"), "title and first line"
    _, shown, rest = without_spaces(demo[0]).partition(without_spaces(scene))
    assert (shown != "", rest[0]) == (True, "2"), "make recording"


def without_spaces(text: str) -> str:
    """Return a text that does not depend on the width of the terminal."""
    return re.sub(r"[\s─]", "", text)


@pytest.mark.night
def test_the_wheel_installs_with_its_dependencies_from_an_index(
    wheel: Path, tmp_path: Path
) -> None:
    assert run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path).returncode == 0
    installed = run(tmp_path / "env/bin/pip", "install", f"{wheel}[embedded]", cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    demo = run(tmp_path / "env/bin/eventlog", "demo", "--no-backlog", cwd=tmp_path)
    assert demo.returncode == 0, demo.stderr
