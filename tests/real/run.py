"""Applications that nobody here wrote, with triggers on all of their tables (``make real``).

    python tests/real/run.py                        Wagtail, Tryton and procrastinate
    python tests/real/run.py tryton

Each application has its own environment under ``.real/``, made of the pinned packages of
``requirements/``, on an embedded PostgreSQL. The steps: the state before; ``init --tables``, ``db
upgrade``, ``triggers apply``; the workload; the application's own migrations, each with ``triggers
apply`` and the resyncs that it prints. After each step a publisher sends CloudEvents into files,
and a receiver's objects are compared with the tables. The last line per application has the
counts. Exit code 1: a difference, or a write that failed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_HERE), str(_HERE.parent), str(_HERE.parent / "faults")]

import psycopg  # noqa: E402
from comparison import Compared, Receiver, State, compare, state_of  # noqa: E402
from postgres_clusters import Server, primary  # noqa: E402

_PLACE = _ROOT / ".real"
_SHOWN = 10
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


class Stage(NamedTuple):
    """A stage of an application's workload: ``WORK.py NAME`` in the environment ``environment``.

    ``publishes``: whether the publisher runs, and the objects are compared, before the next stage.
    """

    name: str
    environment: str
    publishes: bool = True


APPLICATIONS = {
    "wagtail": (
        Stage("base", "wagtail"),
        Stage("work", "wagtail"),
        Stage("backward", "wagtail", publishes=False),
        Stage("meanwhile", "wagtail"),
        Stage("forward", "wagtail"),
        Stage("load_again", "wagtail"),
    ),
    "tryton": (
        Stage("base", "tryton-7.0"),
        Stage("work", "tryton-7.0"),
        Stage("migrate", "tryton-7.4"),
        Stage("work", "tryton-7.4"),
    ),
    "procrastinate": (
        Stage("base", "procrastinate-2"),
        Stage("work", "procrastinate-2"),
        Stage("migrate", "procrastinate-3"),
        Stage("work", "procrastinate-3"),
    ),
}
"""The stages of each application. The first makes the state before the triggers."""


class Failed(Exception):
    """A step that has to succeed did not."""


@dataclass
class Trial:
    """An application on its server: its owner is ``app``, and ``publisher`` publishes."""

    application: str
    server: Server
    directory: Path
    receiver: Receiver = field(default_factory=lambda: Receiver({}))
    classes: list[str] = field(default_factory=list)
    children: dict[str, str] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    differences: int = 0
    compared: int = 0
    values: int = 0

    @property
    def config(self) -> Path:
        return self.directory / "eventlog.toml"

    def url(self, role: str) -> str:
        return f"postgresql+psycopg://{role}@127.0.0.1:{self.server.port}/app"

    def eventlog(self, *command: str, role: str = "app", accepted: tuple[int, ...] = (0,)) -> str:
        """Run a command with the configuration, and return its standard output."""
        return self._run(
            [sys.executable, "-m", "eventlog", "-c", str(self.config), *command],
            {"EVENTLOG_DATABASE_URL": self.url(role)},
            accepted,
        )

    def run_stage(self, stage: Stage) -> None:
        python = environment(stage.environment)
        self._report(f"{stage.name} ...")
        output = self._run(
            [str(python), "-W", "ignore", str(_HERE / f"{self.application}_work.py"), stage.name],
            {
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.server.port),
                "PGUSER": "app",
                "PGDATABASE": "app",
            },
        )
        counts = json.loads(output.splitlines()[-1])
        self.done += sum(counts["done"].values())
        self.failed += sum(counts["failed"].values())
        for failure in counts["failed"]:
            self._report(f"failed write: {failure}")

    def _run(
        self, command: list[str], variables: dict[str, str], accepted: tuple[int, ...] = (0,)
    ) -> str:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        with (self.directory / "commands.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}= {done.returncode}\n")
        if done.returncode not in accepted:
            raise Failed(f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def _report(self, line: str) -> None:
        print(f"{self.application}: {line}", flush=True)

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(
            host="127.0.0.1", port=self.server.port, user="postgres", dbname="app"
        ) as session:
            yield session

    def _state(self) -> State:
        with self._session() as session:
            present = {name for (name,) in session.execute(_TABLES)}
            children = {child: owner for child, owner in self.children.items() if child in present}
            return state_of(session, [c for c in self.classes if c in present], children)

    def install(self) -> None:
        """Do what the quick start asks for. The receiver begins with the objects of now."""
        chosen = json.loads(self.eventlog("init", "--tables", "--json"))
        self.classes, self.children = chosen["watched"], chosen["child_tables"]
        text = self.config.read_text(encoding="utf-8")
        for section, lines in {
            "database": f'url = "{self.url("publisher")}"\nschema_name = "public"',
            "sink": 'type = "files"\ndirectory = "events"',
            "format": 'type = "cloudevents"',
        }.items():
            text = re.sub(rf"(?m)^\[{section}\]$", f"[{section}]\n{lines}", text, count=1)
        text = text.replace(f'url = "{self.url("app")}"\n', "")
        self.config.write_text(text, encoding="utf-8")
        self.eventlog("db", "upgrade")
        self.receiver.objects = self._state().objects
        self.eventlog("triggers", "apply", "-y")
        self._execute(self.eventlog("grants", "publisher"))
        self._report(f"{len(self.classes)} classes, {len(self.children)} child tables")

    def _execute(self, statements: str) -> None:
        """As the owner of the tables."""
        with psycopg.connect(
            host="127.0.0.1", port=self.server.port, user="app", dbname="app"
        ) as session:
            session.execute(statements.encode())

    def follow_schema(self) -> bool:
        """Apply what `triggers plan` shows, with the lines, rights and resyncs that are printed.
        Return whether the schema had changed.
        """
        planned = json.loads(self.eventlog("triggers", "plan", "--json", accepted=(0, 1)))
        renamed = planned["renamed"]
        for one in renamed:
            self._rename(one["former"], one["present"], one["watch"])
        added = self._watch_new_tables()
        if not (planned["changes"] or planned["due"] or renamed or added):
            return False
        # A [[watch]] of a table that a migration has dropped stays, and is refused until it is back.
        applied = json.loads(self.eventlog("triggers", "apply", "-y", "--json", accepted=(0, 1)))
        for action in applied["actions"]:
            if action["kind"] == "ended":
                self.differences += 1
                self._report(f"difference: the capture of {action['table']} has ended")
        self._execute(";\n".join(applied["grants"]) or "SELECT 1")
        resyncs = [shlex.split(one["command"])[1:] for one in applied["due"]]
        for command in resyncs + [["resync", name] for name in added]:
            self.eventlog(*command)
        self._report(
            f"{applied['changes']} changes of triggers, {len(renamed)} renamed tables, "
            f"{len(added)} new ones, {len(resyncs)} resyncs"
        )
        return True

    def _rename(self, former: str, present: str, watch: str) -> None:
        self.receiver.rename(former, present)
        self.classes = [present if name == former else name for name in self.classes]
        # The watch of a renamed child table is its owner's, which keeps its name.
        watched = former if watch == present else watch
        text = self.config.read_text(encoding="utf-8")
        line = f'table = "{watch}"\nrenamed_from = ["{former}"]'
        self.config.write_text(text.replace(f'table = "{watched}"', line), encoding="utf-8")

    def _watch_new_tables(self) -> list[str]:
        """Add a [[watch]] for each table that `init --tables` would watch now."""
        fresh = self.directory / "fresh.toml"
        fresh.unlink(missing_ok=True)
        command = [sys.executable, "-m", "eventlog", "-c", str(fresh), "init", "--tables", "--json"]
        url = {"EVENTLOG_DATABASE_URL": self.url("app")}
        chosen = json.loads(self._run(command, url))
        added = sorted(set(chosen["watched"]) - set(self.classes) - set(self.children))
        children = chosen["child_tables"].items()
        self.children |= {child: owner for child, owner in children if child not in self.classes}
        with self.config.open("a", encoding="utf-8") as config:
            config.writelines(f'\n[[watch]]\ntable = "{name}"\n' for name in added)
        self.classes += added
        return added

    def publish(self, *, is_strict: bool) -> None:
        """Publish what waits, and compare every object of the receiver with the tables."""
        state = self._state()
        # A class whose table a migration has dropped waits, and the exit code shows it.
        code = 1 if set(self.classes) - state.tables.keys() else 0
        self.eventlog("publish", "--once", role="publisher", accepted=(code,))
        events = self.receiver.events
        self.receiver.read(self.directory / "events", state.tables, is_strict=is_strict)
        compared = compare(state, self.receiver)
        wrong = self.receiver.wrong + compared.differences
        self.receiver.wrong.clear()
        self._count(compared, wrong)
        self._report(
            f"{self.receiver.events - events} events, {compared.objects} objects, "
            f"{compared.values} values, {len(wrong)} differences"
        )

    def _count(self, compared: Compared, wrong: list[str]) -> None:
        self.compared += compared.objects
        self.values += compared.values
        self.differences += len(wrong)
        for difference in wrong[:_SHOWN]:
            self._report(f"difference: {difference[:500]}")


def environment(name: str) -> Path:
    """The Python of an environment with the packages of ``requirements/NAME.txt``."""
    required = (_HERE / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    place = _PLACE / "environments" / name
    python, stamp = place / "bin" / "python", place / "requirements.txt"
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == required):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-qq", "-r", "/dev/stdin"],
            input=required,
            text=True,
            check=True,
        )
        stamp.write_text(required, encoding="utf-8")
    return python


@contextmanager
def trial(application: str) -> Iterator[Trial]:
    """An application without tables yet, on a server that is stopped at the end."""
    directory = _PLACE / application
    subprocess.run(["rm", "-rf", str(directory)], check=True)
    directory.mkdir(parents=True)
    with primary() as server:
        server.execute(
            "ALTER SYSTEM SET max_locks_per_transaction = 1000",  # TRUNCATE of all tables
            "CREATE ROLE app LOGIN",
            "CREATE ROLE publisher LOGIN",
            "CREATE DATABASE app OWNER app",
        )
        server.restart()
        yield Trial(application, server, directory)


def run(application: str) -> bool:
    """Run the stages of an application, and return whether everything agreed."""
    begin = time.monotonic()
    base, *stages = APPLICATIONS[application]
    with trial(application) as one:
        one.run_stage(base)
        one.install()
        for stage in stages:
            one.run_stage(stage)
            if stage.publishes:
                is_strict = not one.follow_schema()
                one.publish(is_strict=is_strict)
    print(
        f"{application}: {one.compared} objects, {one.values} values, {one.receiver.events} events, "
        f"{one.differences} differences, {one.failed} failed writes of {one.done + one.failed} "
        f"operations, {time.monotonic() - begin:.0f} seconds",
        flush=True,
    )
    return not (one.differences or one.failed)


if __name__ == "__main__":
    agreed = [run(application) for application in sys.argv[1:] or APPLICATIONS]
    sys.exit(0 if all(agreed) else 1)
