"""What stands in deploy/: it contains what it should, and the tools that it is for take it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from eventlog import cli
from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context.conditions import KINDS
from eventlog.publisher.monitor.server import parse_address
from eventlog.publisher.sinks.http import HttpOptions

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "eventlog.rules.yml"
TROUBLESHOOT = ROOT / "docs" / "operate" / "troubleshoot.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "eventlog.json"


def rules() -> list[dict[str, str]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def test_every_alert_has_its_section_in_the_documentation() -> None:
    sections = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TROUBLESHOOT.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    }
    runbooks = {rule["annotations"]["runbook_url"] for rule in rules()}  # type: ignore[index]
    assert len(runbooks) == 13
    prefix = "{{ $externalLabels.eventlog_docs }}docs/operate/troubleshoot.md#"
    assert {runbook.removeprefix(prefix) for runbook in runbooks} <= sections


def test_the_page_names_every_alert() -> None:
    named = set(re.findall(r"\bEventlog[A-Z]\w+", TROUBLESHOOT.read_text(encoding="utf-8")))
    assert named == {rule["alert"] for rule in rules()}


def test_every_condition_that_a_publisher_detects_fires_an_alert() -> None:
    by_alerts = {
        name
        for rule in rules()
        for names in re.findall(r'condition=~?"([^"]+)"', rule["expr"])
        for name in names.split("|")
    }
    without_alert = {
        "not_connected",  # a standby is not connected for as long as the other publisher runs
        "trigger_drifted",  # triggers that nobody declared lose no change
    }
    detected = {name for name, kind in KINDS.items() if kind.known_to != "command"}
    assert by_alerts == detected - without_alert


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here (Debian: prometheus)"
)
def test_prometheus_takes_the_rules() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here (Debian: prometheus)"
)
def test_each_alert_fires_when_it_should_and_is_silent_otherwise() -> None:
    tests = RULES.with_name("eventlog.rules.test.yml")
    told = yaml.safe_load(tests.read_text())["tests"]
    fired = {
        one["alertname"]
        for test in told
        for one in test["alert_rule_test"]
        if one.get("exp_alerts")
    }
    assert fired == {rule["alert"] for rule in rules()}
    checked = subprocess.run(
        ["promtool", "test", "rules", tests], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- systemd --------------------------------------------------------------------------------------

UNITS = ROOT / "deploy" / "systemd"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here"
)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with the ``eventlog`` of this environment in place of the one that is installed."""
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(
            unit.read_text().replace("/opt/eventlog/bin", str(Path(sys.executable).parent))
        )
    return sorted(tmp_path.iterdir())


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


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
        assert words[:3] == [
            "/opt/eventlog/bin/eventlog",
            "--config",
            "/etc/eventlog/eventlog.toml",
        ]
        with cli.cli.make_context("eventlog", words[3:]) as context:
            name, found, rest = cli.cli.resolve_command(context, words[3:])
            assert found is not None
            found.make_context(name, rest, parent=context)
        credentials = {credential.partition(":")[0] for credential in section["LoadCredential"]}
        named = dict(
            line.split("=", 1) for line in section["Environment"] if line.startswith("EVENTLOG_")
        )
        assert {value.removeprefix("%d/") for value in named.values()} == credentials
        for variable in named:
            with pytest.raises(ConfigError) as error:  # of a file that is not there
                load(None, {variable: "/nowhere"})
            assert "is not known" not in str(error.value)


def test_a_publisher_that_stops_has_the_time_that_its_receiver_has() -> None:
    section = _service(UNITS / "eventlog-publisher.service")
    assert int(section["TimeoutStopSec"][0]) > HttpOptions().timeout
    assert section["RestartPreventExitStatus"] == [f"{ExitCode.USAGE} {ExitCode.FATAL}"]


def _service(unit: Path) -> dict[str, list[str]]:
    """The settings of [Service], each with all its values."""
    settings: dict[str, list[str]] = {}
    _, _, text = unit.read_text().partition("[Service]\n")
    for line in text.partition("\n[")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


# --- Kubernetes -----------------------------------------------------------------------------------

BASE = ROOT / "deploy" / "kubernetes"
Manifest = dict[str, Any]
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")


def manifests() -> list[Manifest]:
    """What the base holds, as its files say it."""
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [one for name in names for one in yaml.safe_load_all((BASE / name).read_text())]


def pods() -> dict[str, Manifest]:
    """The pods that the base makes, by the name of what makes them."""
    found = {}
    for one in manifests():
        spec = one["spec"].get("jobTemplate", one)["spec"]
        if "template" in spec:
            found[one["metadata"]["name"]] = spec["template"]
    return found


def settings_of(pod: Manifest) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {
        one["name"]: one.get("value", "")
        for one in container["env"]
        if one["name"].startswith("EVENTLOG_")
    }


def test_each_manifest_is_one_that_kubernetes_takes() -> None:
    assert {one["kind"] for one in manifests()} == {
        "Deployment",
        "Service",
        "Job",
        "CronJob",
        "NetworkPolicy",
    }
    for manifest in manifests():
        kubernetes_validate.validate(manifest, "1.30", strict=True)


@needs_kubectl
def test_kustomize_makes_of_the_base_what_kubernetes_takes() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", BASE], capture_output=True, text=True, check=False
    )
    if "unknown command" in built.stderr:
        pytest.skip("this kubectl has no kustomize")
    assert built.returncode == 0, built.stderr
    made = list(yaml.safe_load_all(built.stdout))
    for manifest in made:
        kubernetes_validate.validate(manifest, "1.30", strict=True)
    (configuration,) = [one for one in made if one["kind"] == "ConfigMap"]
    assert configuration["data"]["eventlog.toml"] == (BASE / "eventlog.toml").read_text()
    (deployment,) = [one for one in made if one["kind"] == "Deployment"]
    (mounted,) = [
        one["configMap"]
        for one in deployment["spec"]["template"]["spec"]["volumes"]
        if "configMap" in one
    ]
    assert mounted["name"] == configuration["metadata"]["name"] != "eventlog"


def test_one_publisher_ends_before_the_next_one_begins() -> None:
    (deployment,) = [one for one in manifests() if one["kind"] == "Deployment"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (
        1,
        {"type": "Recreate"},
    )
    assert (
        deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        > HttpOptions().timeout
    )


@pytest.mark.parametrize("name", ["eventlog-publisher", "eventlog-install", "eventlog-purge"])
def test_a_pod_has_no_rights_and_its_secrets_as_files(name: str, tmp_path: Path) -> None:
    pod = pods()[name]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (
        True,
        10001,
    )
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["args"], "the program is process 1, no shell"
        assert "command" not in container
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {volume["name"] for volume in pod["volumes"]} == mounts.keys()
        assert mounts["temporary"] == "/tmp"
    variables = settings_of(pods()[name])
    files = {key: value for key, value in variables.items() if value.startswith("/")}
    assert files
    for key, value in files.items():
        assert key.endswith("_FILE")
        assert value.startswith(mounts["secrets"] + "/")
        variables[key] = str(tmp_path / Path(value).name)
        (tmp_path / Path(value).name).write_text("postgresql://owner@database/hr")
    config = load(BASE / "eventlog.toml", variables)
    assert (
        config.database.password is not None
        or config.database.url == "postgresql://owner@database/hr"
    )


def test_the_probes_ask_the_monitor_for_its_two_words(tmp_path: Path) -> None:
    (container,) = pods()["eventlog-publisher"]["spec"]["containers"]
    paths = {
        name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")
    }
    assert (
        paths
        == {
            "startupProbe": "/livez",  # a database that is unavailable at the start is not a reason to kill it
            "livenessProbe": "/livez",
            "readinessProbe": "/readyz",
        }
    )
    settings = settings_of(pods()["eventlog-publisher"])
    address = parse_address(settings["EVENTLOG_MONITOR_LISTEN"])
    (port,) = container["ports"]
    assert address.port == port["containerPort"]
    assert {container[name]["httpGet"]["port"] for name in paths} == {port["name"]}


def test_the_network_policy_and_the_service_are_of_these_pods() -> None:
    of_kind = {one["kind"]: one["spec"] for one in manifests()}
    selected = of_kind["NetworkPolicy"]["podSelector"]["matchLabels"]
    for pod in pods().values():
        assert selected.items() <= pod["metadata"]["labels"].items()
    labels = pods()["eventlog-publisher"]["metadata"]["labels"]
    assert of_kind["Service"]["selector"].items() <= labels.items()
    assert of_kind["Deployment"]["selector"]["matchLabels"] == labels
