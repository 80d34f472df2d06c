"""The harness itself: what it does not know fails, at every level of a case."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vector_cases import configuration, read_case, tree

from eventlog.errors import ConfigError

HERE = Path(__file__).parent
CASE = HERE / "vectors" / "xds" / "child_table.json"


def written(case: dict[str, Any], directory: Path) -> Path:
    path = directory / CASE.name
    path.write_text(json.dumps(case), encoding="utf-8")
    path.with_suffix(".xml").write_bytes(CASE.with_suffix(".xml").read_bytes())
    return path


@pytest.mark.parametrize(
    ("level", "place"),
    [
        ("child_table.json", lambda case: case),
        ("database", lambda case: case["database"]),
        ("table", lambda case: case["database"]["tables"][0]),
        ("column", lambda case: case["database"]["tables"][1]["columns"][0]),
        ("foreign key", lambda case: case["database"]["tables"][1]["foreign_keys"][0]),
        ("log", lambda case: case["log"]),
        ("contents", lambda case: case["contents"]),
        ("row of usr", lambda case: case["contents"]["usr"][0]),
        ("expect", lambda case: case["expect"]),
    ],
)
def test_unknown_member_fails(
    level: str, place: Callable[[dict[str, Any]], dict[str, Any]], tmp_path: Path
) -> None:
    case = json.loads(CASE.read_text(encoding="utf-8"))
    place(case)["new"] = 1
    with pytest.raises(
        AssertionError, match=f"^{level} has the member 'new', which this harness does not know"
    ):
        read_case(written(case, tmp_path))


def test_unknown_member_of_an_error_fails(tmp_path: Path) -> None:
    case = json.loads(CASE.read_text(encoding="utf-8"))
    case["expect"]["errors"] = [{"record_id": 1, "code": "bad_value", "new": 1}]
    with pytest.raises(AssertionError, match=r"^error has the member 'new'"):
        read_case(written(case, tmp_path))


def test_unknown_column_type_fails(tmp_path: Path) -> None:
    case = json.loads(CASE.read_text(encoding="utf-8"))
    case["log"]["columns"][0][1] = "serial"
    with pytest.raises(AssertionError, match=r"^column type 'serial' is not known"):
        read_case(written(case, tmp_path))


def test_unknown_option_fails(tmp_path: Path) -> None:
    case = json.loads(CASE.read_text(encoding="utf-8"))
    case["options"]["fold_distanc"] = 1
    with pytest.raises(ConfigError, match="fold_distanc is not known"):
        configuration(read_case(written(case, tmp_path)), tmp_path)


def test_a_directory_without_cases_of_xds_runs_the_others(tmp_path: Path) -> None:
    key = {"text": "id=1", "parts": [["id", "1"]], "canonical": "id=1"}
    (tmp_path / "table_key.json").write_text(json.dumps({"valid": [key]}), encoding="utf-8")
    files = [HERE / "test_table_key_vectors.py", HERE / "test_xds_database.py"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files]
    command += ["--vectors", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b"<a><b/> \n <c/></a>", b"<a><b></b><c/></a>", True),
        (b'<a x="1" y="2"/>', b'<a y="2" x="1"/>', True),
        (b"<a><b> </b></a>", b"<a><b/></a>", False),
        (b"<a><b> x</b></a>", b"<a><b>x</b></a>", False),
        (b"<a><b/><c/></a>", b"<a><c/><b/></a>", False),
        (b"<a><b/>x</a>", b"<a><b/></a>", False),
        (b'<a x="1"/>', b"<a/>", False),
        (b"<a>&#13;</a>", b"<a>\r</a>", False),
        (
            "<a>é</a>".encode(),
            '<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>'.encode("latin-1"),
            True,
        ),
    ],
)
def test_documents_are_compared_by_names_attributes_and_texts(
    one: bytes, other: bytes, equal: bool
) -> None:
    assert (tree(one) == tree(other)) is equal
