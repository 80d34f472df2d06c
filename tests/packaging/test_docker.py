"""docker/: what the files say, and, where a Docker engine answers, the image and the services."""

from __future__ import annotations

import fnmatch
import json
import re
import runpy
import shlex
import shutil
import subprocess
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from documents import ROOT
from environments import build
from packaging.requirements import Requirement

from eventlog.config.load import load
from eventlog.publisher.sinks.stdout import StreamSink

DOCKER = ROOT / "docker"
PINS = runpy.run_path(str(ROOT / "scripts" / "constraints.py"))


class Instruction(NamedTuple):
    """One instruction of a Dockerfile. ``stage`` counts from 0; ``text`` on one line."""

    stage: int
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return list(json.loads(self.text)) if self.text.startswith("[") else shlex.split(self.text)


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile without heredocs: comments out, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, rest.strip()))
    return found


IMAGE = instructions((DOCKER / "Dockerfile").read_text(encoding="utf-8"))
FINAL = [one for one in IMAGE if one.stage == max(one.stage for one in IMAGE)]
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

KNOWN = {
    "FROM", "ENV", "LABEL", "RUN", "COPY", "WORKDIR", "USER", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT", "CMD",
}  # fmt: skip


def last(name: str) -> Instruction:
    return [one for one in FINAL if one.name == name][-1]


def environment() -> dict[str, str]:
    pairs: list[list[str]] = [
        pair.split("=", 1) for one in FINAL if one.name == "ENV" for pair in one.words
    ]
    return dict(pairs)


def extras() -> set[str]:
    """The extras of the package that the image installs."""
    (installed,) = re.findall(r"'\.\[([\w,-]+)\]'", (DOCKER / "Dockerfile").read_text())
    return set(installed.split(","))


# The image.


def test_the_dockerfile_holds_known_instructions_only() -> None:
    assert {one.name for one in IMAGE} <= KNOWN
    assert IMAGE[0].name == "FROM"


def test_the_image_has_two_stages_of_the_slim_python_and_takes_the_environment_alone_from_the_first() -> (
    None
):
    assert [one.words[0] for one in IMAGE if one.name == "FROM"] == ["python:3.14-slim"] * 2
    assert [one.words for one in FINAL if one.name == "COPY"] == [
        ["--from=build", "/opt/eventlog", "/opt/eventlog"]
    ]


def test_no_stage_compiles_or_installs_packages_of_the_system() -> None:
    runs = " ".join(one.text for one in IMAGE if one.name == "RUN")
    assert "--only-binary=:all:" in runs
    assert not re.search(r"\b(apt|apt-get|apk|gcc|make|curl|wget)\b", runs)
    assert not any("pip" in one.text for one in FINAL if one.name == "RUN")


def test_a_change_of_the_code_downloads_nothing() -> None:
    build = [one for one in IMAGE if one.stage == 0]
    downloads = next(place for place, one in enumerate(build) if "pip wheel" in one.text)
    assert build[downloads - 1].words == ["docker/constraints.txt", "./"]
    assert "--requirement=constraints.txt" in build[downloads].text
    assert all("--no-index" in one.text for one in build[downloads + 1 :] if one.name == "RUN")


def test_each_package_of_the_image_is_pinned_to_a_version_that_the_project_allows() -> None:
    pinned = {
        name: version
        for name, (version, _) in PINS["pins"](PINS["CONSTRAINTS"].read_text()).items()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for text in PINS["image_requirements"](project, (DOCKER / "Dockerfile").read_text()):
        required = Requirement(text)
        assert pinned[required.name.lower()] in required.specifier, text


def test_each_archive_of_the_image_has_the_hash_of_its_pin() -> None:
    text = PINS["CONSTRAINTS"].read_text()
    pinned = PINS["pins"](text)
    assert len(pinned) == text.count("==") > 40
    assert [name for name, (_, hashes) in pinned.items() if not hashes] == []
    (download,) = (one.text for one in IMAGE if "pip wheel" in one.text)
    assert "--require-hashes" in download


def test_the_image_runs_as_a_fixed_user_that_is_not_root() -> None:
    uid, gid = last("USER").text.split(":")
    assert uid == gid == "10001"
    made = next(one.text for one in FINAL if one.name == "RUN")
    assert f"--uid={uid}" in made
    assert FINAL.index(last("USER")) < FINAL.index(last("ENTRYPOINT"))


def test_the_image_publishes_and_is_stopped_by_sigterm() -> None:
    # As lists, so that no shell stands between the signal and the publisher.
    assert (last("ENTRYPOINT").words, last("CMD").words) == (["eventlog"], ["publish"])
    assert last("ENTRYPOINT").text.startswith("[")
    assert last("STOPSIGNAL").text == "SIGTERM"


def test_the_health_check_means_progress() -> None:
    options, command = re.fullmatch(r"(.*) CMD (\[.*\])", last("HEALTHCHECK").text).groups()  # type: ignore[union-attr]
    assert json.loads(command) == ["eventlog", "health"]
    assert {option.partition("=")[0] for option in options.split()} == {
        "--interval", "--timeout", "--start-period", "--retries",
    }  # fmt: skip


def test_the_image_writes_only_where_a_read_only_root_allows() -> None:
    settings = environment()
    config = load(
        None, {name: value for name, value in settings.items() if name.startswith("EVENTLOG_")}
    )
    assert config.publisher.health_file is not None
    assert config.publisher.health_file.parent == Path("/dev/shm")
    assert settings["PYTHONDONTWRITEBYTECODE"] == "1"


# The build context.


def context_patterns() -> list[str]:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Docker would send to the engine: all is ignored, then some of it is not."""
    everything, *allowed, cache = context_patterns()
    assert (everything, cache) == ("*", "**/__pycache__")
    assert all(pattern.startswith("!") for pattern in allowed)
    directory = tmp_path_factory.mktemp("context")
    for name in (pattern.removeprefix("!") for pattern in allowed):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, directory / name)
    return directory


def test_everything_that_is_copied_is_in_the_context(context: Path) -> None:
    copied = [
        word
        for one in IMAGE
        if one.name == "COPY" and "--from" not in one.text
        for word in one.words[:-1]
    ]
    assert [name for name in copied if not (context / name).exists()] == []
    assert sorted({Path(name).parts[0] for name in copied}) == sorted(
        path.name for path in context.iterdir()
    )


def test_the_context_is_enough_to_build_the_wheel(context: Path, tmp_path: Path) -> None:
    # What pip of the build stage asks the backend for.
    build("build_wheel", tmp_path, context)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in (
        "eventlog/cli/publish/publish.py",
        "eventlog/sql/dialects/postgresql/*.sql",
        "eventlog/spark/__init__.py",
    ):
        assert fnmatch.filter(names, pattern), pattern


# The services.


def test_every_file_that_a_service_mounts_is_there() -> None:
    files = 0
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                files += 1
                assert (DOCKER / source).is_file(), (name, source)
                assert mode == ["ro"]
                assert target.startswith("/")
            else:
                assert source in COMPOSE["volumes"]
    assert files


def test_each_service_waits_for_what_it_needs() -> None:
    def needs(name: str) -> dict[str, str]:
        return {
            other: how["condition"] for other, how in SERVICES[name].get("depends_on", {}).items()
        }

    assert needs("database") == {}
    assert needs("install") == {"database": "service_healthy"}
    assert needs("grants") == {"install": "service_completed_successfully"}
    assert needs("publisher") == {"grants": "service_completed_successfully"}


def test_each_publisher_starts_again_by_itself_and_stays_down_after_a_fatal_answer() -> None:
    publishers = {name: one for name, one in SERVICES.items() if one.get("command") == ["publish"]}
    assert publishers.keys() == {"publisher", "oracle-publisher"}
    for service in publishers.values():
        assert service["restart"] == "unless-stopped"
        assert service["entrypoint"] == ["/bin/sh", "/etc/eventlog/stay_down.sh"]
        assert "./stay_down.sh:/etc/eventlog/stay_down.sh:ro" in service["volumes"]


def test_kafka_comes_on_demand_and_the_publisher_can_be_configured_to_write_to_it() -> None:
    assert [
        name for name, service in SERVICES.items() if "kafka" in service.get("profiles", [])
    ] == ["kafka"]
    given = {
        key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value)
        for key, value in SERVICES["publisher"]["environment"].items()
    }
    assert load(DOCKER / "eventlog.toml", given).sink.type == "stdout"
    chosen = given | {"EVENTLOG_SINK_TYPE": "kafka", "EVENTLOG_FORMAT_TYPE": "qlik-messages"}
    assert load(DOCKER / "eventlog.toml", chosen).sink.options.brokers == "kafka:9092"
    assert {"kafka", "avro"} <= extras()


def test_the_image_has_what_the_monitor_needs() -> None:
    assert "monitor" in extras()


def test_the_image_has_the_drivers_of_all_databases() -> None:
    assert {"oracle", "mariadb", "mysql"} <= extras()


def test_monitoring_comes_on_demand_with_our_rules_and_our_dashboard() -> None:
    services = {
        name: service
        for name, service in SERVICES.items()
        if "monitoring" in service.get("profiles", [])
    }
    assert services.keys() == {"prometheus", "grafana"}
    mounted = {
        volume.split(":")[1]: (DOCKER / volume.split(":")[0]).resolve()
        for service in services.values()
        for volume in service["volumes"]
    }
    assert (
        mounted["/etc/prometheus/eventlog.rules.yml"]
        == ROOT / "deploy/prometheus/eventlog.rules.yml"
    )
    dashboards = yaml.safe_load((DOCKER / "monitoring" / "dashboards.yml").read_text())
    (provider,) = dashboards["providers"]
    assert (
        mounted[f"{provider['options']['path']}/eventlog.json"]
        == ROOT / "deploy/grafana/eventlog.json"
    )
    (source,) = yaml.safe_load((DOCKER / "monitoring" / "datasources.yml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["isDefault"], source["url"]) == (
        "prometheus",
        True,
        "http://prometheus:9090",
    )


def test_prometheus_scrapes_the_publisher_by_the_token_that_both_get() -> None:
    told = yaml.safe_load((DOCKER / "monitoring" / "prometheus.yml").read_text())
    assert told["rule_files"] == ["/etc/prometheus/eventlog.rules.yml"]
    (scrape,) = told["scrape_configs"]
    assert scrape["job_name"] == "eventlog"  # of which the rules speak
    settings = SERVICES["publisher"]["environment"]
    host, _, port = scrape["static_configs"][0]["targets"][0].partition(":")
    assert host in settings["EVENTLOG_MONITOR_ALLOWED_HOSTS"].split(", ")
    assert settings["EVENTLOG_MONITOR_LISTEN"].endswith(f":{port}")
    (token,) = SERVICES["prometheus"]["configs"]
    assert token["target"] == scrape["authorization"]["credentials_file"]
    assert COMPOSE["configs"][token["source"]]["content"] == settings["EVENTLOG_MONITOR_TOKEN"]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here (Debian: prometheus)"
)
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    text = (DOCKER / "monitoring" / "prometheus.yml").read_text()
    for name in ("/etc/prometheus/eventlog.rules.yml", "/run/monitor-token"):
        text = text.replace(name, str(tmp_path / Path(name).name))
    shutil.copy(ROOT / "deploy/prometheus/eventlog.rules.yml", tmp_path)
    (tmp_path / "monitor-token").write_text("for-a-look")
    (tmp_path / "prometheus.yml").write_text(text)
    checked = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_port_is_opened_to_others_and_the_publisher_gives_everything_away() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for name in ("install", "publisher"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert [one.partition(":")[0] for one in service["tmpfs"]] == ["/tmp"]
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["build"] == {"context": "..", "dockerfile": "docker/Dockerfile"}


def test_the_publisher_gets_time_to_end_the_document_in_the_air() -> None:
    config = load(DOCKER / "eventlog.toml", {})
    assert float(
        SERVICES["publisher"]["stop_grace_period"].removesuffix("s")
    ) > StreamSink.answer_timeout(config.sink.options)


def test_the_environment_of_the_services_is_known_to_eventlog() -> None:
    for name in ("install", "publisher"):
        given = {
            key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value)
            for key, value in SERVICES[name]["environment"].items()
            if key.startswith("EVENTLOG_")
        }
        assert load(DOCKER / "eventlog.toml", given).database.password is not None


def test_no_password_stands_in_a_file_that_is_mounted() -> None:
    for path in (DOCKER / "eventlog.toml", DOCKER / "roles.sql", DOCKER / "grants.sql"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"PASSWORD\s+'|://[^@/\s]*:[^@/\s]*@", text), path


def test_docker_compose_reads_the_file_where_it_is_installed() -> None:
    if not _answers("docker", "compose", "version"):
        pytest.skip("docker compose is not installed here")
    read = subprocess.run(
        ["docker", "compose", "-f", DOCKER / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
    )
    assert read.returncode == 0, read.stderr


# With a Docker engine.


def _answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def docker(*arguments: str | Path, timeout: float = 900) -> str:
    done = subprocess.run(
        ["docker", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if not _answers("docker", "info"):
        pytest.skip("no Docker engine answers `docker info` here: the image is not built")
    tag = "eventlog-publisher:test"
    docker("build", "--file", DOCKER / "Dockerfile", "--tag", tag, ROOT)
    yield tag
    docker("image", "rm", "--force", tag)


@pytest.mark.docker
def test_the_built_image_runs_with_a_read_only_root_as_its_user(image: str) -> None:
    run = ("run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none")
    assert docker(*run, image, "--version").startswith("eventlog ")
    script = (
        "import os, shutil; print(os.getuid(), [shutil.which(c) for c in ('gcc', 'cc', 'make')])"
    )
    assert docker(*run, "--entrypoint=python", image, "-c", script) == "10001 [None, None, None]\n"


@pytest.fixture
def project(image: str) -> Iterator[list[str]]:
    if not _answers("docker", "compose", "version"):
        pytest.skip("docker compose is not installed here: the services are not started")
    compose = ["compose", "--project-name", "eventlog-test", "--file", str(DOCKER / "compose.yaml")]
    try:
        docker(*compose, "up", "--build", "--detach")
        yield compose
    finally:
        docker(*compose, "down", "--volumes", "--timeout", "10")


@pytest.mark.docker
def test_the_services_publish_what_the_application_changes(project: list[str]) -> None:
    insert = "INSERT INTO hr.usr (login, fname, lname) VALUES ('ada', 'Ada', 'Lovelace')"
    until = time.monotonic() + 180

    def wait(holds: Any, what: str) -> None:
        while not holds():
            assert time.monotonic() < until, f"{what}\n{docker(*project, 'logs')}"
            time.sleep(1)

    wait(lambda: docker(*project, "ps", "--quiet", "publisher"), "the publisher does not start")
    container = docker(*project, "ps", "--quiet", "publisher").strip()
    docker(
        *project,
        "exec",
        "--no-TTY",
        "database",
        "psql",
        "-X",
        "-U",
        "hr_app",
        "-d",
        "hr",
        "-c",
        insert,
    )
    wait(
        lambda: '<add class-name="usr"' in docker(*project, "logs", "publisher"),
        "nothing is published",
    )
    health = ("inspect", "--format", "{{.State.Health.Status}}", container)
    wait(lambda: docker(*health).strip() == "healthy", "the publisher is not healthy")
    docker(*project, "stop", "publisher")
    assert docker("inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"
