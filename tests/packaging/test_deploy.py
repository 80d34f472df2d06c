"""What stands in deploy/: it says what it should, and the tools that it is for take it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eventlog import cli
from eventlog.config import layers
from eventlog.config.settings import SinkSettings
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
    activity.looked(Looked(0, 100, None, clock=datetime(2026, 1, 1)))
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


# --- systemd ----------------------------------------------------------------------------------------------------------

UNITS = ROOT / "deploy" / "systemd"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with the ``eventlog`` of this environment in place of the one that is installed."""
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(
            unit.read_text().replace("/opt/eventlog/bin", str(Path(sys.executable).parent))
        )
    return sorted(tmp_path.iterdir())


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False)


@needs_systemd
def test_systemd_takes_the_units_without_a_word(units: list[Path]) -> None:
    checked = analyze("verify", "--man=no", *units)
    if "Failed to" in checked.stderr and "bus" in checked.stderr:
        pytest.skip(f"systemd-analyze does not work here: {checked.stderr}")
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@needs_systemd
def test_the_services_are_shut_in(units: list[Path]) -> None:
    for unit in units:
        if unit.suffix == ".service":
            checked = analyze("security", "--offline=true", "--threshold=15", unit)
            if "unrecognized option" in checked.stderr:
                pytest.skip("this systemd-analyze judges no files")
            assert checked.returncode == 0, checked.stdout


def test_the_units_name_commands_options_and_variables_that_there_are() -> None:
    for unit in UNITS.glob("*.service"):
        section = _service(unit)
        (command,) = section["ExecStart"]
        words = command.split()
        assert words[:3] == ["/opt/eventlog/bin/eventlog", "--config", "/etc/eventlog/eventlog.toml"]
        with cli.cli.make_context("eventlog", words[3:]) as context:
            name, found, rest = cli.cli.resolve_command(context, words[3:])
            assert found is not None
            found.make_context(name, rest, parent=context)
        credentials = {credential.partition(":")[0] for credential in section["LoadCredential"]}
        named = dict(line.split("=", 1) for line in section["Environment"] if line.startswith("EVENTLOG_"))
        assert {value.removeprefix("%d/") for value in named.values()} == credentials
        for variable in named:
            error = next(layers.from_environment({variable: "/nowhere"}))
            assert "is not known" not in str(error)


def test_a_publisher_that_stops_has_the_time_that_its_receiver_has() -> None:
    section = _service(UNITS / "eventlog-publisher.service")
    assert int(section["TimeoutStopSec"][0]) > SinkSettings().timeout
    assert section["RestartPreventExitStatus"] == [f"{cli.USAGE} {cli.FATAL}"]


def _service(unit: Path) -> dict[str, list[str]]:
    """The settings of [Service], each with all its values."""
    settings: dict[str, list[str]] = {}
    _, _, text = unit.read_text().partition("[Service]\n")
    for line in text.partition("\n[")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings
