"""The entry point of the Compose file: a publisher whose end a person has to correct stays down
(docs/operate/deploy.md).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from processes import EVENTLOG
from shared import PATIENCE

ENTRYPOINT = Path(__file__).parents[2] / "docker" / "stay_down.sh"
LINE = b"the publisher ended with exit code 2 and stays down"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "eventlog").symlink_to(EVENTLOG)
    (tmp_path / "eventlog.toml").write_text("[sink]\ntype = 'none'\n")
    return {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_a_wrong_configuration_stays_down_unhealthy_until_the_container_is_stopped(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    health = tmp_path / "health"
    health.touch()
    settings = {"EVENTLOG_PUBLISHER_HEALTH_FILE": str(health)}
    with subprocess.Popen(
        [ENTRYPOINT, "publish"],
        cwd=tmp_path,
        env=environment | settings,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stderr is not None
        try:
            while LINE not in (line := running.stderr.readline()):
                assert line
            assert running.poll() is None
            assert not health.exists()
        finally:
            running.terminate()
        assert running.wait(PATIENCE) == 2


def test_any_other_end_is_left_to_the_restart_policy(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    ended = subprocess.run([ENTRYPOINT, "--version"], cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == 0
