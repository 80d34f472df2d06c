"""What stands in deploy/: every metric that rules and dashboard name is one that a publisher gives."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eventlog.publisher.context import Counters
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.monitor.openmetrics import Labels, exposition
from eventlog.publisher.observer import Looked

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "eventlog.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "eventlog.json"


def given() -> set[str]:
    """The names of all samples of a scrape of a publisher that has looked at its queue."""
    activity = Activity(Counters(), interval=5, patience=60)
    activity.looked(Looked(0, 100, None))
    text = exposition(activity, Labels("eventlog", "files")).decode()
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def rules() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [rule["expr"] for rule in rules()] + [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_metric_that_is_named_is_given() -> None:
    named = {name for expression in expressions() for name in re.findall(r"\beventlog_[a-z_]+", expression)}
    assert len(named) > 20
    assert named - given() == set()


def test_every_alert_has_its_section_in_the_documentation() -> None:
    sections = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in (ROOT / "docs" / "operate.md").read_text().splitlines()
        if line.startswith("#")
    }
    runbooks = {rule["annotations"]["runbook"] for rule in rules()}  # type: ignore[index]
    assert len(runbooks) == 6
    assert {runbook.removeprefix("docs/operate.md#") for runbook in runbooks} <= sections


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (Debian: prometheus)")
def test_prometheus_takes_the_rules() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
