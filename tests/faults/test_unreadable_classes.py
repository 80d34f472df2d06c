"""A class whose tables the publisher's role may not read waits, and the others go on
(spec/event-log.md 5.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, publishing, write_config
from shared import PATIENCE, Run, execute, fetch, statuses, url_of, wait_until

from eventlog.config.load import Config, load
from eventlog.errors import DatabaseError
from eventlog.publisher.declared import catalog_watcher

TABLES = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name text)",
    "CREATE TABLE usr_phone (id integer REFERENCES usr, no text)",
    "CREATE TABLE grp (id integer PRIMARY KEY, name text)",
)


@pytest.fixture
def role(logged: sa.Engine) -> Iterator[str]:
    """A role that may publish."""
    name = f"publisher_{logged.url.database}"
    execute(logged, *TABLES, f"CREATE ROLE {name} LOGIN")
    yield name
    execute(logged, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def configured(owner: sa.Engine, role: str, directory: Path, run: Run, **styles: str) -> Config:
    """The triggers of the classes, installed by the owner, and the publisher's configuration."""
    styles = {"grp": "row_query_back", "usr": "row_query_back", **styles}
    watches = [{"table": table, "row_style": style} for table, style in styles.items()]
    file = write_config(directory, url_of(owner), watches)
    install(load(file, {}))
    code, printed, _ = run("-c", str(file), "grants", role)
    assert code == 0
    execute(owner, *(line for line in printed.splitlines() if line.startswith("GRANT ")))
    url = owner.url.set(username=role).render_as_string(hide_password=False)
    return load(write_config(directory, url, watches, publisher={"polling_interval": 1}), {})


def recreate(owner: sa.Engine, run: Run, directory: Path, table: str, *statements: str) -> None:
    """The owner drops the table and makes it again, with its triggers, as a migration does."""
    execute(owner, f"DROP TABLE {table} CASCADE", *statements)
    watches = [{"table": name, "row_style": "row_query_back"} for name in ("grp", "usr")]
    directory.mkdir()
    install(load(write_config(directory, url_of(owner), watches), {}))


def of_class(engine: sa.Engine, name: str) -> set[str]:
    found = fetch(engine, f"SELECT DISTINCT status FROM eventlog WHERE table_name = '{name}'")
    return {status for (status,) in found}


def test_a_table_that_was_made_again_waits_for_its_right_and_the_others_go_on(
    logged: sa.Engine,
    role: str,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.0)
    monkeypatch.setattr(catalog_watcher, "RIGHTS_INTERVAL", 0.0)
    config = configured(logged, role, tmp_path, run)
    sink = Collecting()
    with publishing(config, sink):
        execute(logged, "INSERT INTO grp VALUES (1, 'a')", "INSERT INTO usr VALUES (1, 'b')")
        wait_until(lambda: set(statuses(logged).values()) == {"S"}, "both classes are sent")
        recreate(logged, run, tmp_path / "owner", "grp", TABLES[2])
        execute(logged, "INSERT INTO grp VALUES (2, 'c')", "INSERT INTO usr VALUES (2, 'd')")
        wait_until(lambda: of_class(logged, "usr") == {"S"}, "the other class is sent")
        assert "N" in of_class(logged, "grp")
        said = [one for one in caplog.messages if one.startswith("grp is not published")]
        assert said == [
            "grp is not published, and its rows wait: this role may not read grp; `eventlog "
            f"grants {role} --purpose publisher`, run by the owner, prints the rights"
        ]
        execute(logged, f"GRANT SELECT ON grp TO {role}")
        wait_until(lambda: of_class(logged, "grp") == {"S"}, "it returns without a restart")


def test_a_child_table_that_may_not_be_read_lets_the_class_wait(
    logged: sa.Engine, role: str, tmp_path: Path, run: Run
) -> None:
    config = configured(logged, role, tmp_path, run)
    recreate(logged, run, tmp_path / "owner", "usr_phone", TABLES[1])
    sink = Collecting()
    with publishing(config, sink):
        execute(logged, "INSERT INTO usr VALUES (2, 'd')", "INSERT INTO grp VALUES (2, 'c')")
        wait_until(lambda: of_class(logged, "grp") == {"S"}, "the other class is sent")
        assert of_class(logged, "usr") == {"N"}


def test_a_class_whose_values_are_in_the_log_goes_on_without_the_right(
    logged: sa.Engine, role: str, tmp_path: Path, run: Run
) -> None:
    execute(logged, "CREATE TABLE item (id integer PRIMARY KEY)")
    config = configured(logged, role, tmp_path, run, usr="field", item="field")
    execute(logged, f"REVOKE SELECT ON usr, usr_phone, grp FROM {role}")
    with publishing(config, Collecting()):
        execute(logged, "INSERT INTO grp VALUES (2, 'c')", "INSERT INTO usr VALUES (2, 'd')")
        wait_until(lambda: of_class(logged, "usr") == {"S"}, "the other class is sent")
        assert of_class(logged, "grp") == {"N"}


def test_if_the_role_may_read_no_class_it_is_refused(
    logged: sa.Engine, role: str, tmp_path: Path, run: Run
) -> None:
    config = configured(logged, role, tmp_path, run)
    execute(logged, f"REVOKE SELECT ON usr, usr_phone, grp FROM {role}")
    execute(logged, "INSERT INTO grp VALUES (2, 'c')")
    with (
        pytest.raises(DatabaseError, match="permission denied"),
        publishing(config, Collecting()) as running,
    ):
        running.thread.join(PATIENCE)


def test_apply_prints_the_grant_that_a_publisher_lacks(
    logged: sa.Engine, role: str, tmp_path: Path, run: Run
) -> None:
    configured(logged, role, tmp_path, run)
    file = write_config(tmp_path, url_of(logged), [{"table": "grp"}, {"table": "usr"}])
    assert "Run:" not in run("-c", str(file), "triggers", "apply", "-y")[1]
    execute(logged, "DROP TABLE grp", TABLES[2])
    printed = run("-c", str(file), "triggers", "apply", "-y")[1].splitlines()
    first = printed.index("A role that publishes may not read all of these tables. Run:") + 1
    assert printed[first : first + 2] == [
        f'  GRANT USAGE ON SCHEMA "public" TO "{role}";',
        f'  GRANT SELECT ON "public"."grp" TO "{role}";',
    ]
