"""The world of one schedule: the database, the processes, the receivers, and the story of what
happens.

``run`` does what a plan says, then ends all faults, lets everything be delivered, and has the
auditor look. Safety is checked at every moment, liveness at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import logging
import re
import shlex
import shutil
import sqlite3
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any
from unittest.mock import DEFAULT, patch

import beginnings
import exit_codes
import laws
import once
import pauses
import places
from application import KEYS, OWN_USER, SCHEMA, VIEW, VIEW_SCHEMA, Application, Shape
from auditor import Auditor
from backlog import Directory
from core import live_with_a_core
from disk import Disk
from entries import Rows, sets_of
from followed import NAME as FOLLOWER
from followed import Followed
from machine import Stop, Watching, installed
from operators import STEPS, take
from plans import OF_FORMATS, Plan, draw_options
from read_commands import undone_by
from replicas import Readers, Receiver, Replica
from scheduler import BusyLoop, Deadlock, Process, Scheduler

from eventlog import cli
from eventlog.cli.context import transaction
from eventlog.cli.install.runs.db import names
from eventlog.config.load import load
from eventlog.core.options import toml
from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import Answer, Event, EventType
from eventlog.publisher.publisher import Publisher
from eventlog.sql import migrations
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.resync import Due

Receive = Callable[[bytes, Sequence[Event]], Answer | None]

_END_SECONDS = 1200.0
"""Simulated seconds within which all is delivered once the last fault is over."""
_END_POINTS = 200_000
"""The points within which all is delivered, and within which commands end."""
_FAIR_SECONDS = 30.0
"""Simulated seconds within which all is delivered that does not wait for an object of its own."""
_PURGES_AGAIN = 8 * 86_400.0
"""Simulated seconds after which a purge begins with the first row again."""
_SETS = "SELECT owner, content FROM eventlog_inflight WHERE kind = 'done'"
_PLAIN = {"allow_loopback": True}
_PUBLISHERS = ("publisher", "second")
_MANY = 200
"""The objects of a burst beyond which windows and deliveries have as many rows at least, and
documents a tenth as many events."""


class Output(io.StringIO):
    """Standard output or standard error: what a process prints is kept with the process."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        # click keeps each standard output that it has written to.
        self._world: World = weakref.proxy(world)
        self._name = name

    def write(self, text: str) -> int:
        """Write a text of the process that runs."""
        written = super().write(text)  # which refuses bytes
        if (task := self._world.scheduler.current) is not None:
            getattr(task.process, self._name).append(text)
        return written


class Failed(Exception):
    """The schedule has failed; the world has told why."""


class World:
    """What a plan is run in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.story: list[str] = []
        self.failures: list[str] = []
        self.stats: Counter[str] = Counter()
        self.directory = Path(tempfile.mkdtemp(prefix="simulation-", dir=_memory()))
        database = self.directory / "a.db"
        shape = Shape(
            row_style=plan.get("row_style", "field"), has_view=plan.get("has_view", False)
        )
        shutil.copy(template(shape), database)
        self.scheduler = Scheduler(plan["seed"], self._supervise)
        self.application = Application(self, database, plan["size"], shape)
        self.scheduler.most_points = self._most_points
        self.auditor = Auditor(self)
        self.receivers = {"receiver": Receiver(self, "receiver", is_strict=plan["is_strict"])}
        self.readers = Readers(self, self.directory / "out", plan["layout"])
        self.objects: dict[str, bytes] = {}
        self.disk = Disk(self, self.directory / "out")
        self.followed = Followed(self)
        self.away = 0.0
        self.copied: Any = None
        """The newest copy of the database: its last record_id, and what is not in the database."""
        self.backlog: Directory | None = None
        """The directory whose rows are held."""
        self.converting: Directory | None = None
        self.unsettled_epoch: tuple[str | None] | None = None
        """The epoch of the newest copy that was put back, None = none was: as long as the log has
        it, no publisher has begun a new one.
        """
        self.has_removed = False
        self.is_ordered = True
        self.has_gone_back = False
        """True once the clock on the wall has gone back."""
        self.begins: dict[str, str] = {}
        self._second_killed_at = -1
        self._highest = 0
        """The highest record_id that was there when points were counted."""
        self._chance = Random(f"world {plan['seed']}")
        self._commands = 0

    @property
    def refuses_values(self) -> bool:
        """True if the format refuses some values, as its page says: several of one attribute."""
        return self.plan["format"] in ("debezium", "qlik-messages")

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        short = re.sub("x{20,}", lambda found: f"x*{len(found[0])}", what)
        short = short.replace(str(self.directory), "DIRECTORY")
        short = short if len(short) < 900 else f"{short[:500]} ... {short[-300:]}"
        self.story.append(f"{self.scheduler.now:9.2f} #{self.scheduler.points:<5} {short}")

    def fail(self, why: str) -> None:
        """Note a failure; the story ends with the first."""
        self.tell(f"FAILURE: {why}")
        self.failures.append(why)

    def classes_of(self, consumer: str) -> frozenset[str] | None:
        """Return the classes that a consumer is limited to, by their first names; None = it has
        all.
        """
        classes = self._given_to(consumer).get("classes")
        return None if classes is None else frozenset(classes)

    def passes_over_own(self, consumer: str) -> bool:
        """Return True if rows of the publisher's own user are no changes for a consumer."""
        return "loopback" in self.plan["features"] and self._given_to(consumer).get(
            "has_driver", False
        )

    def own_user_of(self, consumer: str) -> Mapping[str, Any]:
        """Return the options that make changes of the publisher's own user those of a consumer."""
        is_own = self.passes_over_own(consumer)
        return {"driver_user": OWN_USER, "allow_loopback": False} if is_own else {}

    def _given_to(self, consumer: str) -> Mapping[str, Any]:
        given: Mapping[str, Any] = self.plan.get("consumers", {}).get(consumer, {})
        return given

    def replica_of(self, receiver: str) -> Replica:
        return (
            self.readers.remembering if receiver == "reader" else self.receivers[receiver].replica
        )

    def refuse_if_away(self, why: str) -> None:
        """Raise ReceiverUnavailable with the present probability: a full disk, a store that is
        unavailable.
        """
        if self.away and self._chance.random() < self.away:
            if self.scheduler.current is not None:
                self.scheduler.current.process.had_no_room = True
            self.tell(f"  {why}")
            raise ReceiverUnavailable(why, why)

    # --- processes ---

    def start(
        self,
        name: str,
        chance: Random | None,
        start_from: str = "",
        given: Mapping[str, Any] = MappingProxyType({}),
        *,
        is_once: bool = False,
    ) -> None:
        """Start the publisher, or the consumer of this name. Without chances its options are plain,
        but for those that are ``given``. With ``is_once`` it ends when it has sent what waits."""
        if name == FOLLOWER:
            self.followed.start(chance, is_once=is_once)
            return
        is_consumer = name not in _PUBLISHERS
        if start_from:
            self.begins[name] = start_from
        sink = "python" if is_consumer else self.plan["sink"]
        has_own = "loopback" in self.plan["features"] and not is_consumer
        options, bounds = (
            ({}, {})
            if chance is None
            else draw_options(
                chance, self.plan, sink, is_consumer=is_consumer, has_own_changes=has_own
            )
        )
        options = {
            **_PLAIN,
            "concurrency": 1,
            **options,
            **({"driver_user": OWN_USER} if has_own else {}),
            **self.own_user_of(name),
            **given,
        }
        if self.plan.get("burst", 0) > _MANY:  # small windows over a long queue take hours
            least = {"query_limit": _MANY, "delivery_rows": _MANY, "batch_size": _MANY // 10}
            options |= {
                name: max(options[name], value) for name, value in least.items() if name in options
            }
            bounds = {}
        if self.has_gone_back and "handle_future_events" in options:
            options["handle_future_events"] = False
        self.has_removed |= bool(options.get("delete_from_log"))
        self.is_ordered &= not options.get("handle_future_events")
        config = self.config_of(options, sink, name if is_consumer else None)
        start = {"bounds": bounds, "shape": self.application.configured, "once": is_once}
        start["second"] = self.has_second()
        process = Process(name, start)
        if chance is not None and chance.random() < 0.4:
            process.start["observer"] = Watching(self.scheduler)
        if name not in self.receivers and is_consumer:
            self.receivers[name] = Receiver(self, name, is_strict=self.plan["is_strict"])
        receive = (
            self.received(
                process, self.receivers[name if is_consumer else "receiver"], options["concurrency"]
            )
            if sink == "python"
            else None
        )
        told = {name: value for name, value in options.items() if name not in _PLAIN}
        once_only = "once" if is_once else ""
        self.tell(f"start {name} {told | bounds} {start_from}{once_only}")
        self.stats["starts"] += 1
        self.stats["snapshots"] += start_from == "snapshot"
        pauses.is_seen(process, pauses.paused(self))

        def run() -> None:
            publisher = Publisher.from_config(config, sink=receive, environ={})
            process.counters = None if receive is None else lambda: publisher.counters
            if is_once:
                consumer = name if is_consumer else ""
                once.run(self, process, publisher, lambda: undone_by(self, consumer))
            else:
                publisher.run(self.stop_of(process))

        self.scheduler.spawn(process, run)

    def stop_of(self, process: Process) -> Stop:
        """Return the request to stop that a process waits for."""
        return Stop(self, process)

    def received(self, process: Process, receiver: Receiver, most: int) -> Receive:
        """Return the function of a process that hands documents to a receiver, so many at a time at
        most.
        """

        def receive(body: bytes, events: Sequence[Event]) -> Answer | None:
            process.in_the_air += 1
            if process.in_the_air > most:
                self.fail(f"{process.name} has more than {most} documents in the air")
            try:
                return receiver.receive(body, events)
            finally:
                process.in_the_air -= 1

        return receive

    def command(
        self,
        *words: str,
        of: str | None = None,
        refused: str = "",
        config: dict[str, Any] | None = None,
    ) -> Process:
        """Run a command of an operator, as a process; ``of`` is the consumer of its configuration,
        ``config`` another configuration. ``refused`` is the text with which it must be refused, as
        a regular expression."""
        self._commands += 1
        start = {
            "words": words,
            "top": self.application.top(),
            "told": len(self.story),
            "configured": self.application.configured,
            "logged": self.application.logged_tables(),
        }
        process = Process(f"command{self._commands}", start)
        path = self.directory / f"{process.name}.toml"
        config = config or self._config_of_commands(of)
        path.write_text(_toml(config))
        self.tell(f"eventlog {' '.join(words)}")
        self.stats[f"eventlog {words[0]}"] += 1
        if words[0] == "requeue" and "--consumer" in words:
            self.auditor.asked_again.add(words[words.index("--consumer") + 1])

        def run() -> None:
            process.exit_code = cli.run(["--config", str(path), *words])
            printed = "".join([*process.stdout, *process.stderr])
            end = " ".join(printed[-400:].split()) if process.exit_code else ""
            self.tell(f"eventlog {words[0]}: exit {process.exit_code}{end and ': '}{end}")
            ended = exit_codes.Ended(self, process, words, " ".join(printed.split()))
            if what := exit_codes.wrong(ended, refused):
                self.fail(what)

        self.scheduler.spawn(process, run)
        return process

    def _config_of_commands(self, consumer: str | None) -> dict[str, Any]:
        options = dict(_PLAIN)
        if "loopback" in self.plan["features"]:
            options |= {"driver_user": OWN_USER, "allow_loopback": False}
        config = self.config_of(options, self.plan["sink"], consumer)
        if self.plan["sink"] == "python" and "sink" not in config:
            config["sink"] = {"type": "stdout"}
        return config

    def has_settled_epoch(self) -> bool:
        """Return True if no copy was put back since a publisher began its epoch."""
        return self.unsettled_epoch is None or self.unsettled_epoch != self.application.epoch()

    def is_registered(self, consumer: str) -> bool:
        """Return True if the log has a consumer of this name."""
        sql = "SELECT 1 FROM eventlog_consumer WHERE name = ?"
        return bool(self.application.session.execute(sql, (consumer,)).fetchone())

    def start_standby(self, name: str, chance: Random) -> None:
        """Start a second process of a consumer, let it wait for a while, and end it."""
        config = self.config_of({**_PLAIN, **self.own_user_of(name)}, "python", name)
        process = Process(f"{name}'s standby", {"bounds": {}})
        if process.name in self.scheduler.processes:
            return
        self.tell(f"start {process.name}")

        def run() -> None:
            receive = self.receivers[name].receive
            Publisher.from_config(config, sink=receive, environ={}).run(self.stop_of(process))

        self.scheduler.spawn(process, run)
        self.scheduler.run(chance.choice([10, 50, 200]))
        if process.is_running:
            self.stop(process)

    def follow_schema(self, chance: Random) -> None:
        """The configuration follows the schema: triggers are made again, processes start again, and
        the resyncs run that are due, as ``doctor`` names them."""
        self.application.configured = self.application.shape
        self._do("triggers", "apply")
        self._start_with_new_shape(chance)
        for due in self._due():
            self.command(*shlex.split(due.command)[1:], "--restart")

    def _start_with_new_shape(self, chance: Random | None) -> None:
        shape = self.application.configured
        for name, process in list(self.scheduler.processes.items()):
            if process.is_running and process.start.get("shape", shape) != shape:
                self.stop(process)
                if name != "second":
                    self.start(name, chance)

    def wait_for_commands(self) -> None:
        """Let everything run until no command runs."""
        if not self.scheduler.run(_END_POINTS, lambda: not self.has_commands()):
            self.fail(f"commands do not end after {_END_POINTS} points: {self._where()}")
            raise Failed

    def has_commands(self) -> bool:
        return any(name.startswith("command") for name in self.scheduler.processes)

    def kill(self, process: Process) -> None:
        """End a process where it is."""
        self.tell(f"KILL {process.name} at {', '.join(process.places)}")
        self.stats["kills"] += 1
        self.scheduler.end(process)
        self.scheduler.processes.pop(process.name, None)
        if process.name == "second":
            self._second_killed_at = self.scheduler.points

    def has_second(self) -> bool:
        """Return True if a second publisher runs, or was killed at this very point: the first one
        may have ended just before."""
        is_killed_now = self._second_killed_at == self.scheduler.points
        return "second" in self.scheduler.processes or is_killed_now

    def stop(self, process: Process) -> None:
        """Ask a process to stop, as SIGTERM does, and wait for it."""
        self.tell(f"stop {process.name}")
        process.is_stopping = True
        for task in process.tasks:
            task.wake_at = 0.0
        self.scheduler.run(_END_POINTS, lambda: not process.is_running)
        if process.is_running:
            self.fail(f"{process.name} does not stop: it is at {', '.join(process.places)}")
        self.auditor.audit_counters(process)
        self.scheduler.processes.pop(process.name, None)

    def _supervise(self) -> None:
        """Start again what has ended, as a supervisor does; receivers do what they do late."""
        for receiver in self.receivers.values():
            if receiver.unfinished:
                receiver.finish()
        for name, process in list(self.scheduler.processes.items()):
            if process.is_running or process.is_dead:
                continue
            self.scheduler.end(process)
            del self.scheduler.processes[name]
            if process.error is not None:
                self.auditor.process_ended(process, process.error)
            if name.startswith("command") or process.is_stopping:
                continue
            self.tell(f"{name} ended: {type(process.error).__name__}: {process.error}")
            if name == "second" or name.endswith("'s standby"):
                continue
            if isinstance(process.error, FatalAnswer):
                for receiver in (*self.receivers.values(), self.followed.receiver):
                    receiver.mood.pop("fatal", None)
            self.scheduler.now += 5
            self.start(name, Random(f"{self.plan['first']} {self.scheduler.points}"))

    def config_of(self, options: dict[str, Any], sink: str, consumer: str | None) -> dict[str, Any]:
        of_format = {name: options[name] for name in OF_FORMATS if name in options}
        config: dict[str, Any] = {
            "database": {"url": f"sqlite:///{self.application.path}"},
            "publisher": {name: value for name, value in options.items() if name not in of_format},
            "watch": self.application.configured.watches,
        }
        if consumer is not None:
            config["source"] = {
                "type": "eventlog", "consumer": consumer, "start_from": self.begins[consumer],
            }  # fmt: skip
            if (classes := self.classes_of(consumer)) is not None:
                shape = self.application.configured
                config["source"]["classes"] = sorted(map(shape.table, classes))
        if self.plan["format"] != "xds":
            of_format["type"] = self.plan["format"]
        if of_format:
            config["format"] = of_format
        if self.plan["format"] == "qlik-messages":  # which stdout does not take
            config["sink"] = {"type": "python", "function": "receivers:receive"}
        if sink == "files":
            config["sink"] = {
                "type": "files", "directory": str(self.directory / "out"), "file_layout": self.plan["layout"],
            }  # fmt: skip
        elif sink == "objects":
            config["sink"] = {"type": "objects", "bucket_url": "s3://bucket/log"}
        return config

    def _most_points(self) -> int:
        """Return how many points a process may take within a simulated second: three times what was
        ever measured. An object of a snapshot, or a row, that goes in a document and a delivery of
        its own takes seven; so does an object of a receiver that is verified, which may have more
        than a restored log, or an object of a table without triggers. Rows of before an older copy
        was put back count, too: they may have taken points of the same second."""
        objects = max((len(one.replica.objects) for one in self.receivers.values()), default=0)
        objects += len(self.application.without_triggers())
        self._highest = max(self._highest, self.application.top())
        return 500 + 20 * (self._highest + self.followed.feed.last + objects)

    # --- a schedule ---

    def run(self) -> None:
        """Run the plan. ``failures`` says what was wrong."""
        logging.disable(logging.CRITICAL)
        gc.disable()  # what is collected when would depend on what ran before
        try:
            with (
                installed(self, self.plan["seed"], self.plan.get("bounds", {})),
                self.followed.installed(),
                patch.multiple(gc, freeze=DEFAULT, set_threshold=DEFAULT),  # of the whole run
                places.counting(self.stats),
                laws.judging(self),
                contextlib.redirect_stdout(Output(self, "stdout")),
                contextlib.redirect_stderr(Output(self, "stderr")),
            ):
                try:
                    self._run()
                except Failed:
                    pass
                except Deadlock as deadlock:
                    self.fail(f"deadlock: {deadlock}")
                except BusyLoop as loop:
                    self.fail(f"busy loop: {loop}")
                finally:
                    for process in list(self.scheduler.processes.values()):
                        self.scheduler.end(process)
        finally:
            gc.enable()
            logging.disable(logging.NOTSET)
            self.application.session.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self) -> None:
        self.start("publisher", Random(self.plan["first"]))
        for gap, kind, seed, *given in self.plan["steps"]:
            if isinstance(gap, str):
                place, _, number = gap[1:].partition("*")
                self.scheduler.run_to(place, int(number or 1), 20 + 10 * int(number or 1))
            else:
                self.scheduler.aimed = None
                self.scheduler.run_on(gap)
            self._give_up_if_failed()
            take(self, kind, seed, given[0] if given else {})
        pauses.resume_all(self)
        live_with_a_core(self)
        self._give_up_if_failed()
        self._end()
        self.auditor.audit()
        beginnings.audit(self)
        self.followed.audit()
        self._give_up_if_failed()
        self._look_at_what_is_left()

    def _give_up_if_failed(self) -> None:
        if self.failures:
            raise Failed

    def _end(self) -> None:
        """End all faults, and let everything be delivered."""
        self.tell("--- the end: everything is well, and accepts")
        for receiver in self.receivers.values():
            receiver.mood = {}
        self.away = 0.0
        for process in self.scheduler.processes.values():
            process.failing, process.failing_commit = None, ""
        for table in sorted(self.application.hidden):
            self.application.rename_back(table)
        while self.application.late:
            self.application.end_late(Random(0))
        if (second := self.scheduler.processes.get("second")) is not None:
            self.kill(second)
        if "publisher" not in self.scheduler.processes:
            self.start("publisher", None)
        self.followed.heal()
        self.wait_for_commands()
        self._drop_forgotten_consumers()
        self.hand_over_backlog()
        if "loopback" in self.plan["features"]:  # rows of its own may be left N
            if "publisher" in self.scheduler.processes:
                self.stop(self.scheduler.processes["publisher"])
            self.start("publisher", None)
        self.application.configured = self.application.shape
        if "schema" in self.plan["features"]:
            self._do("triggers", "apply")
            self._start_with_new_shape(None)
        for due in self._due():
            self._do(*shlex.split(due.command)[1:], "--restart")
        if self._ends_with("requeue"):
            self._requeue_refused()
        if self._ends_with("starving") and self.plan["sink"] == "python":
            self._starve()
        if self.plan["heals"]:
            self._heal()
        self._deliver()
        if self._ends_with("refusals"):
            self._refuse_what_runs()
        for process in list(self.scheduler.processes.values()):
            self.stop(process)
        self._give_up_if_failed()

    def _drop_forgotten_consumers(self) -> None:
        """Drop the consumers that nobody runs: a copy that was put back has brought them again, or
        they have protected the rows of a verification that was killed.
        """
        for (name,) in self.application.session.execute(
            "SELECT name FROM eventlog_consumer"
        ).fetchall():
            if name.startswith(("cons", "verify-")) and name not in self.receivers:
                self._do("consumers", "drop", name)

    def _ends_with(self, what: str) -> bool:
        """Return True for a third of the plans, and for a plan that says so."""
        drawn = Random(f"ends with {what} {self.plan['seed']}").random() < 1 / 3
        return bool(self.plan.get(f"ends_with_{what}", drawn))

    def _requeue_refused(self) -> None:
        """Requeue all that was refused, and compare what receivers have before anything else
        repairs it.
        """
        self.tell("--- all that was refused is asked for again")
        self._deliver()
        self.readers.look()
        stale: dict[str, list[Any]] = {}
        for name in (self.auditor.reader, *sorted(self.receivers.keys() - {"receiver"})):
            is_publisher = name == self.auditor.reader
            which = ("--status", "E,F") if is_publisher else ("--consumer", name)
            stale[name] = self._told("requeue", *which, "--json")["refused"]
        self._deliver()
        self.readers.look()
        for name, rows in stale.items():
            self.auditor.refusals_end(name, rows)
        self.auditor.audit_replicas()
        self._give_up_if_failed()

    def _starve(self) -> None:
        """Let receivers never take some objects: all others have to arrive soon."""
        self._deliver()
        self.tell("--- receivers ask for later of some objects for ever")
        for name in ("publisher", *sorted(self.receivers.keys() - {"receiver"})):
            self.stop(self.scheduler.processes[name])
            self.start(name, None)
        for receiver in self.receivers.values():
            receiver.mood, receiver.seed = {"retry one": 1.0}, self.plan["seed"]
        for number in range(5):
            self.application.commit(Random(f"starve {self.plan['seed']} {number}"))
        self.application.burst_of(8)
        until = self.scheduler.now + _FAIR_SECONDS
        self.scheduler.run(_END_POINTS, lambda: self.scheduler.now > until or not self._starved())
        if starved := self._starved():
            self.fail(f"what a receiver does not take holds up for {_FAIR_SECONDS:g} s {starved}")
        self._give_up_if_failed()
        for receiver in self.receivers.values():
            receiver.mood = {}

    def _starved(self) -> str:
        told = (
            self.auditor.waits_only_for(name, receiver.is_poison_key)
            for name, receiver in self.receivers.items()
        )
        return "; ".join(filter(None, told))

    def _refuse_what_runs(self) -> None:
        """Give commands that must be refused while a consumer runs. One that waits for its receiver
        may not have found yet that the database was replaced, which has not its lock."""
        if self.auditor.is_restored:
            return
        for name in sorted(self.receivers.keys() - {"receiver"}):
            for words in (("reset", name, "--start-from", "latest", "--yes"), ("drop", name)):
                self.command("consumers", *words, refused="runs")
                self.wait_for_commands()
            self.command("db", "start-epoch", refused="runs|being published")
            self.wait_for_commands()

    def _look_at_what_is_left(self) -> None:
        """Have commands report on the log at rest, and remove what is done."""
        if self._ends_with("status"):
            self.auditor.audit_status(self._told("status", "--json"))
        if self._ends_with("purge"):
            for seconds in (1.0, _PURGES_AGAIN):
                self.scheduler.now += seconds + self.auditor.seconds_to_newest_row()
                self._do("purge", "--older-than", "0s", "--yes")
                self.auditor.audit_purged(is_first=seconds < _PURGES_AGAIN)

    def hand_over_backlog(self) -> None:
        """Give the receiver the directory whose rows are held, if there is one."""
        while self.backlog is not None:
            STEPS["hand_over"](self, Random(self.scheduler.points))

    def _due(self) -> list[Due]:
        """Return the resyncs that the database names as due: what an operator has to run, without
        ``--where`` if a receiver may have a value that is NULL now.
        """
        told = self.application.session.execute(
            "SELECT class_name, substr(selection, 6) FROM eventlog_resync WHERE selection LIKE 'due: %' ORDER BY started"
        )
        return [
            Due(
                Selection(
                    name,
                    EventType(what["type"]),
                    None if self.application.has_cleared else what["where"],
                ),
                what["reason"],
            )
            for name, what in ((name, json.loads(text)) for name, text in told.fetchall())
        ]

    def _heal(self) -> None:
        """Resync all classes: afterwards no object is excused, but those that are gone and of which
        the log has no row any more: nobody can know that a receiver has them.
        """
        self._deliver()
        self.readers.look()  # what was excused when it was sent
        for table in (*sorted(KEYS), *([VIEW] if self.plan.get("has_view", False) else [])):
            name = self.application.shape.table(table)
            self._do("resync", name, "--restart")
            self._do("resync", name, "--deletes", "--restart")
        for replica in (
            *(one.replica for one in self.receivers.values()),
            self.readers.remembering,
        ):
            replica.refused = self.auditor.unknown_objects(replica.refused)
        self.auditor.is_repaired()

    def _do(self, *words: str) -> Process:
        process = self.command(*words)
        self.wait_for_commands()
        self._give_up_if_failed()
        return process

    def _told(self, *words: str) -> Any:
        """Return the JSON that a command prints."""
        return json.loads("".join(self._do(*words).stdout))

    def _deliver(self) -> None:
        """Let simulated time pass until nothing is left to do, twice."""
        until = self.scheduler.now + _END_SECONDS
        for _ in range(2):
            is_over = self.scheduler.run(
                _END_POINTS, lambda: self.scheduler.now > until or self._is_quiet()
            )
            self._give_up_if_failed()
            if not is_over or self.scheduler.now > until:
                bound = f"{_END_SECONDS:g} s" if is_over else f"{_END_POINTS} points"
                self.fail(f"not delivered after {bound}: {self._undone()}; {self._where()}")
                raise Failed
            self.scheduler.now += 11

    def _is_quiet(self) -> bool:
        return (
            not self.has_commands()
            and not any(receiver.unfinished for receiver in self.receivers.values())
            and all(
                task.is_done or (task.at == "rest" and task.wake_at > self.scheduler.now)
                for process in self.scheduler.processes.values()
                for task in process.tasks
            )
            and not self._undone()
        )

    def _undone(self) -> str:
        ask = self.application.session.execute
        for what in (
            "eventlog WHERE status = 'N'",
            "eventlog_inflight WHERE kind = 'delivery'",
            "eventlog_state WHERE kind IN ('claim', 'request')",
            "eventlog_consumer WHERE loaded IS NOT NULL OR requeued IS NOT NULL",
        ):
            if count := ask(f"SELECT count(*) FROM {what}").fetchone()[0]:
                return f"{count} of {what}"
        done = self.done_by_consumers()
        for name in self.receivers.keys() - {"receiver"}:
            if name not in done:
                return f"{name} is not registered yet"
        rows = [row for (row,) in ask("SELECT record_id FROM eventlog").fetchall()]
        for name, known in done.items():
            if left := [row for row in rows if row not in known]:
                return f"rows {left[:10]} of consumer {name}"
        return self.followed.undone()

    def done_by_consumers(self) -> dict[str, Rows]:
        ask = self.application.session.execute
        first_sets = ask("SELECT name, done FROM eventlog_consumer").fetchall()
        return sets_of(first_sets, ask(_SETS))

    def undone_rows(self, consumer: str) -> list[int]:
        """Return the rows that a consumer, or the publisher, has not done."""
        ask = self.application.session.execute
        if not consumer:
            return [row for (row,) in ask("SELECT record_id FROM eventlog WHERE status = 'N'")]
        done = self.done_by_consumers().get(consumer, Rows())
        return [row for (row,) in ask("SELECT record_id FROM eventlog") if row not in done]

    def _where(self) -> str:
        told = (
            f"{process.name} at {', '.join(process.places)}"
            for process in self.scheduler.processes.values()
        )
        lines = self.application.session.execute("SELECT * FROM eventlog_consumer").fetchall()
        return f"{'; '.join(told)} {lines}"


def _toml(config: dict[str, Any]) -> str:
    """Return the text of a configuration file."""
    sections = [
        f"[{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in section.items())
        for name, section in config.items()
        if name != "watch"
    ]
    sections += [
        "[[watch]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in watch.items())
        for watch in config.get("watch", ())
    ]
    return "\n".join(sections)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@cache
def template(shape: Shape) -> Path:
    """Return a database with the tables, the log and the triggers. ``removed_rows`` has each row
    that was removed from the log, ``removed_lines`` its error rows, ``written_lines`` each error row that was ever written,
    ``begun_consumers`` the set with which each consumer began, and ``asked_rows`` what consumers were asked to send again, and when:
    both with how many rows had been removed by then.
    """
    directory = Path(tempfile.mkdtemp(prefix="simulation-", dir=_memory()))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / "template.db"
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.executescript(SCHEMA + VIEW_SCHEMA if shape.has_view else SCHEMA)
    conn.close()
    content = {
        "database": {"url": f"sqlite:///{path}"},
        "publisher": _PLAIN,
        "watch": shape.watches,
    }
    config = load(content, {})
    with transaction(config) as db:
        session = db.connection
        migrations.upgrade(session, **names(config))
    configuration = directory / "eventlog.toml"
    configuration.write_text(_toml(content))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert cli.run(["--config", str(configuration), "triggers", "apply"]) == 0
    with sqlite3.connect(path) as conn:
        conn.execute(
            "CREATE TABLE removed_rows (record_id integer, status text, table_name text, table_key text, perpetrator text)"
        )
        conn.execute(
            "CREATE TRIGGER removed AFTER DELETE ON eventlog BEGIN INSERT INTO removed_rows VALUES (OLD.record_id, OLD.status, OLD.table_name, OLD.table_key, OLD.perpetrator); END"
        )
        conn.execute(
            "CREATE TABLE removed_lines (record_id integer, code text, consumer text, error_time text, message text)"
        )
        conn.execute(
            "CREATE TRIGGER removed_line AFTER DELETE ON eventlog_error BEGIN INSERT INTO removed_lines VALUES (OLD.record_id, OLD.code, OLD.consumer, OLD.error_time, OLD.message); END"
        )
        conn.execute("CREATE TABLE written_lines (record_id integer, code text, consumer text)")
        conn.execute(
            "CREATE TRIGGER written_line AFTER INSERT ON eventlog_error BEGIN INSERT INTO written_lines VALUES (NEW.record_id, NEW.code, coalesce(NEW.consumer, '')); END"
        )
        beginnings.record(conn)
        pauses.record(conn)
        conn.execute("CREATE TABLE asked_rows (name text, rows text, at text, removed integer)")
        conn.execute(
            "CREATE TRIGGER asked AFTER UPDATE OF requeued ON eventlog_consumer WHEN NEW.requeued IS NOT NULL BEGIN "
            "INSERT INTO asked_rows VALUES (NEW.name, NEW.requeued, strftime('%s', 'monotonic'), (SELECT coalesce(max(rowid), 0) FROM removed_rows)); END"
        )
        conn.execute(
            "CREATE TABLE begun_consumers (name text, begins text, done text, removed integer)"
        )
        conn.execute(
            "CREATE TRIGGER begun AFTER INSERT ON eventlog_consumer BEGIN INSERT INTO begun_consumers SELECT NEW.name, NEW.begins, NEW.done, (SELECT coalesce(max(rowid), 0) FROM removed_rows); END"
        )
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
    return path


def run_plan(plan: Plan) -> World:
    """Run a plan, and return the world that it leaves."""
    world = World(plan)
    world.run()
    return world
