"""A SparkSession for a laptop or a cluster, its progress for users, and Spark's exceptions as
eventlog's errors.

This module and ``arrow_types`` contain everything that differs between versions of PySpark, 4.0 and
later.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import resources
from io import TextIOBase
from pathlib import Path
from threading import Event
from typing import Any, Final, cast

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from eventlog.core.clock import monotonic, start_thread
from eventlog.errors import ConfigError, EventlogError, SnapshotOutdated, number_of
from eventlog.publisher.context import JobProgress
from eventlog.spark.session.in_tasks import Batches
from eventlog.spark.session.spark_context import context_of

# --- versions -------------------------------------------------------------------------------------

_OLDEST_JAVA: Final = 17
JAVA_TOO_NEW: Final = 23 if pyspark.__version__.startswith(("4.0.", "4.1.")) else None
"""The first Java version on which this Spark does not run: its Hadoop or its Arrow needs parts of
Java that this version removed.
"""

READS_TIMES: Final = hasattr(t, "TimeType")
"""True if Spark has columns with a time of day, which were added in 4.1."""


def new_session(running: SparkSession) -> SparkSession:
    """Return a second session in the running Spark, with its own settings.

    Spark Connect supports second sessions from 4.3 on.
    """
    if hasattr(running, "newSession"):
        return running.newSession()
    of_connect: Any = running
    return type(of_connect)(of_connect.client._builder)  # type: ignore[no-any-return]


def by_number(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Return the frame with all rows of the same number in one partition. Before Spark 4.1 a
    partition may have several numbers; the rows of each number are adjacent.
    """
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, column)
    return frame.repartition(partitions, column).sortWithinPartitions(column)


# --- a session ------------------------------------------------------------------------------------

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)\])?")
_MASTER: Final = re.compile(
    r"local(?:-cluster)?(?:\[[^\]]+\])?|yarn|spark://[^\s,]+:\d+(?:,[^\s,]+:\d+)*"
    r"|(?!spark:)[a-z0-9]+://\S+"
)
"""A pattern of masters: Spark's own masters, and the URLs of cluster managers that plug-ins add to
Spark.
"""
_STANDALONE: Final = "spark://"
_MASTER_SECONDS: Final = 5.0
_ATTEMPTS: Final = 4
_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""The option that limits Java to its first compiler. Here Java only moves bytes between workers,
and the second compiler would take more time than it saves.
"""
LOCAL_JAVA_OPTIONS: Final = (
    f"-Dlog4j2.configurationFile={resources.files('eventlog.spark').joinpath('log4j2.properties')} "
    f"-Xlog:disable -Xlog:all=warning:stderr -XX:+UseParallelGC {_FIRST_COMPILER}"
)
"""The options for the Java of a job on this machine."""
_DAEMON: Final = "eventlog.spark.worker_daemon"
"""The module that starts Python workers."""


_LOG_LEVEL: Final = "spark.log.level"
_OWN_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",  # the sizes of all stages are known in advance
    "spark.sql.session.timeZone": "UTC",
    # A row is a blob of many log rows: codegen costs more than it saves for so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def running_session() -> SparkSession | None:
    """Return the session that this program already has, None if it has no session."""
    running: SparkSession | None = (
        SparkSession.getActiveSession() or SparkSession._instantiatedSession
    )
    return running


_GROUP: Final = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
)


@contextmanager
def job_group(spark: SparkSession, name: str, what: str) -> Iterator[None]:
    """Put the Spark jobs of a block into one group, which an interrupt of the block cancels.

    After the block the thread belongs to its former group again, since a notebook continues to use
    the thread.
    """
    context = context_of(spark)
    if context is None:
        spark.addTag(name)
        try:
            yield
        except KeyboardInterrupt:
            spark.interruptTag(name)
            raise
        finally:
            spark.removeTag(name)
        return
    before = [context.getLocalProperty(key) for key in _GROUP]
    context.setJobGroup(name, what, interruptOnCancel=True)
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(name)
        raise
    finally:
        for key, value in zip(_GROUP, before, strict=True):
            context.setLocalProperty(key, cast("str", value))  # None removes the setting


def open_session(
    master: str | None,
    app_name: str = "eventlog backlog",
    *,
    running: SparkSession | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a new session in the running Spark, or else in a new Spark on ``master`` (None: the
    master of spark-submit).

    ``running`` is the result of ``running_session`` in the thread of the caller. ``conf`` has the
    settings of a Spark that is started here. On this machine a failed task, for example of a killed
    worker, is retried as on a cluster. Raises ConfigError without a suitable Java, for a wrong or
    unreachable master, and for ``conf`` if Spark runs already; SparkFailed if Spark does not start.
    """
    check_master(master)
    running = running or running_session()
    if running is not None:
        if conf:
            raise ConfigError(
                f"{next(iter(conf))} cannot be set, since Spark runs already. "
                "Set it where Spark is started"
            )
        own = new_session(running)
        for name, value in _OWN_SETTINGS.items():
            own.conf.set(name, value)
        return own
    # The warning is about pandas' own types; eventlog gives Spark only Arrow batches.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_new_settings(master), **(conf or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException, OSError) as error:
        raise SparkFailed(
            f"Spark does not start: {_first_line(str(error))}. See the lines above"
        ) from error


def check_master(master: str | None) -> None:
    """Raise ConfigError for a master that Spark does not have, or a standalone master that cannot
    be reached: Spark would try for a minute, and log only Java's stack traces.
    """
    if master is None:
        return
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"{master!r} is not a Spark master; write local[*] (this machine), spark://HOST:PORT, "
            "yarn or k8s://URL"
        )
    if not master.startswith(_STANDALONE):
        return
    reasons = []
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS):
                return
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
    raise ConfigError(
        f"the Spark master {master} cannot be reached ({'; '.join(reasons)}): start it, or correct "
        "--master; local[*] runs the job on this machine"
    )


def start_workers(spark: SparkSession) -> None:
    """Start the Python workers of a new Spark by a job of one row, so that the first real job
    does not wait for their imports.
    """
    with suppress(Py4JError, PySparkException):  # the first real job raises the error
        spark.range(1).mapInArrow(_unchanged, "id long").collect()


def _unchanged(batches: Batches) -> Batches:
    return batches


def _new_settings(master: str | None) -> dict[str, str]:
    """Return the settings of a Spark that is started on ``master``.

    Raises ConfigError without a suitable Java.
    """
    submitted = _is_submitted()
    archive = "" if submitted else archive_option(check_java())
    settings = {
        **_OWN_SETTINGS,
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": _DAEMON,
    }
    if submitted and _LOG_LEVEL not in dict(SparkConf().getAll()):
        settings[_LOG_LEVEL] = "ERROR"  # otherwise Spark logs about 200 lines
    if master is not None and is_local(master):
        # The workers must run this Python with these packages, whatever else is installed.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return settings | {
            "spark.master": _with_attempts(master),
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": LOCAL_JAVA_OPTIONS + archive,
        }
    if master is not None:
        settings["spark.master"] = master
    # Java takes these before the user's own options, and stops if two of them choose a collector.
    settings["spark.executor.defaultJavaOptions"] = _FIRST_COMPILER + archive
    settings["spark.driver.defaultJavaOptions"] = _FIRST_COMPILER + archive
    return settings


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """Return True if the workers run on this machine."""
    return master.startswith("local")


def cores_of(master: str | None) -> int:
    """Return the number of tasks that a local master runs at the same time; 1 for a cluster."""
    match = _LOCAL.fullmatch(master or "")
    if match is None:
        return 1
    return os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)


def _with_attempts(master: str) -> str:
    match = _LOCAL.fullmatch(master)
    return master if match is None else f"local[{match[1] or 1},{_ATTEMPTS}]"


def archive_of(java: str) -> Path:
    """Return the path of the class data archive for this environment's PySpark and this version of
    Java (``class_archive``).
    """
    return Path(sys.prefix, "share", "eventlog", f"spark-{pyspark.__version__}-java-{java}.jsa")


def size_of(archive: Path) -> Path:
    """Return the file with the size of an archive: Java crashes on a truncated archive."""
    return archive.with_suffix(".size")


def archive_option(java: str) -> str:
    """Return the options for the class data archive, if it exists and is complete. Java itself
    silently ignores an archive of another Java or of other jars.
    """
    archive = archive_of(java)
    try:
        is_whole = archive.stat().st_size == int(size_of(archive).read_text())
    except (OSError, ValueError):
        is_whole = False
    return f' "-XX:SharedArchiveFile={archive}" -Xlog:cds*=off' if is_whole else ""


def check_java() -> str:
    """Return the version of the Java for Spark. Raises ConfigError if no suitable Java exists."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    needed = (
        f"Spark needs Java {_OLDEST_JAVA} or later (such as the package openjdk-17-jre-headless)"
    )
    if java is None:
        raise ConfigError(f"there is no java in PATH, and JAVA_HOME is not set. {needed}")
    try:
        output = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        where = "JAVA_HOME" if home else "PATH"
        raise ConfigError(f"{java}, from {where}, does not run ({error}). {needed}") from None
    version = re.search(r'version "((\d+)(?:\.(\d+))?[^"]*)"', output)
    if version is None:
        return "unknown"  # Spark raises the error
    major = int(version[3] or 0) if version[2] == "1" else int(version[2])  # 1.8 is 8
    if major < _OLDEST_JAVA:
        raise ConfigError(f"{java} is Java {major}. {needed}. Set JAVA_HOME to its directory")
    if JAVA_TOO_NEW is not None and major >= JAVA_TOO_NEW:
        raise ConfigError(
            f"{java} is Java {major}, on which PySpark {pyspark.__version__} does not run. Set "
            f"JAVA_HOME to a Java {_OLDEST_JAVA} or 21, or install PySpark 4.2 or later"
        )
    return version[1]


class _JavaErrors(TextIOBase):
    """The standard error of the Java that has started this process."""

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click tests in this way whether a stream accepts bytes
            raise TypeError("only text can be written to this stream")
        gateway: Any = SparkContext._gateway
        gateway.jvm.System.err.print(text)
        return len(text)


def keep_output_apart() -> None:
    """Send the messages of this process to Java's standard error, if spark-submit has started it.

    spark-submit writes all output of its program to standard output, but standard output must
    contain only the result.
    """
    if _is_submitted():
        SparkContext._ensure_initialized()
        sys.stderr = _JavaErrors()


# --- failures -------------------------------------------------------------------------------------

_OWN_ERROR: Final = re.compile(r"^(?:\w+: )?eventlog\.errors\.(\w+): (.+)$", re.MULTILINE)
_LOST_TASK: Final = re.compile(
    r"most recent failure: Lost task .*?\(TID \d+\) \(.*?\): (.+)$", re.MULTILINE
)
_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)


class SparkFailed(EventlogError):
    """The Spark job failed, after Spark's own retries."""

    code = "spark"


@contextmanager
def as_spark_failed(what_then: str) -> Iterator[None]:
    """Turn Spark's exceptions into SparkFailed with the reason, in one line, and the next step. A
    SnapshotOutdated of a task is raised unchanged.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        ours = _OWN_ERROR.search(str(error))
        if ours is not None and ours[1] == SnapshotOutdated.__name__:
            raise SnapshotOutdated(ours[2].strip()) from error
        raise SparkFailed(f"the Spark job failed: {_reason(str(error))}; {what_then}") from error


def _reason(text: str) -> str:
    ours = _OWN_ERROR.search(text)
    if ours is not None:
        return ours[2].strip()
    if f"{_DAEMON}'s stdout" in text:
        return (
            "the Python of an executor cannot start a worker: eventlog, or a package that it "
            "needs, is missing there"
        )
    # This is the disk of Spark's shuffle: if the output directory is full, eventlog raises its own
    # error.
    if "No space left on device" in text:
        return (
            f"no space is left for Spark's own files, {_own_directories()}; free some space there"
        )
    raised = [line for line in _PYTHON_ERROR.findall(text) if "PythonException" not in line]
    lost = _LOST_TASK.search(text)
    return raised[-1].strip() if raised else lost[1].strip() if lost else _first_line(text)


def _own_directories() -> str:
    """Return, in words, the directories of Spark's own files as far as this process can determine
    them, and the settings that choose these directories.
    """
    running = running_session()
    context = None if running is None else context_of(running)
    known = None
    if context is not None and is_local(str(context.master)):
        known = os.environ.get("SPARK_LOCAL_DIRS") or context.getConf().get(
            "spark.local.dir",
            "/tmp",  # noqa: S108
        )
    return f"{known or 'on the machine of an executor'} (SPARK_LOCAL_DIRS, or else spark.local.dir)"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


# --- progress -------------------------------------------------------------------------------------

_log = logging.getLogger("eventlog.backlog")

_LINE_SECONDS: Final = 10.0
_STAGE_WEIGHTS: Final = (0.85, 0.05, 0.1)
"""The approximate shares of the time for reading, folding and writing."""


Measure = Callable[[], JobProgress]
"""A function that returns the progress of some work now."""

Progress = Callable[[str, Measure], AbstractContextManager[None]]
"""A function that reports progress during a block. Its arguments: a name for the work, and a
function that returns the progress.
"""


def no_progress(_what: str, _done: Measure) -> AbstractContextManager[None]:
    """Return a context that reports no progress."""
    return nullcontext()


def spark_progress(
    context: SparkContext, group: str, rows: int, events: Callable[[], int]
) -> Measure:
    """Return a function that returns the progress of the stages of a job group.

    ``rows`` is the number of rows to read.
    """

    def now() -> JobProgress:
        tracker = context.statusTracker()
        shares = []
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in sorted(info.stageIds) if info is not None else ():
                progress = tracker.getStageInfo(stage)
                if progress is not None:
                    shares.append(progress.numCompletedTasks / max(1, progress.numTasks))
        done = sum(weight * share for weight, share in zip(_STAGE_WEIGHTS, shares, strict=False))
        return JobProgress(done, round(rows * shares[0]) if shares else 0, events(), total=rows)

    return now


@contextmanager
def shown(
    what: str, done: Measure, quiet: bool, progress: Progress = no_progress
) -> Iterator[None]:
    """Show progress on standard error until the end of the block: a bar on a terminal, otherwise a
    line every ten seconds.

    The function ``progress`` also receives the progress.
    """
    if quiet:
        with progress(what, done):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    console, stop, began = Console(stderr=True), Event(), monotonic()

    def draw_bar() -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")
        with ProgressBar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=1.0, text="")
            while not stop.wait(0.5):
                at = done()
                bar.update(task, completed=at.share, text=_described(at, began))

    def log_lines() -> None:
        while not stop.wait(_LINE_SECONDS):
            _log.info("%s: %s", what, _described(done(), began))

    thread = start_thread(draw_bar if console.is_terminal else log_lines, "eventlog-progress")
    try:
        with progress(what, done):
            yield
    finally:
        stop.set()
        thread.join(5)


def _described(at: JobProgress, began: float) -> str:
    seconds = max(monotonic() - began, 0.001)
    left = f"{seconds / at.share - seconds:,.0f} s left" if at.share > 0.01 else "time left unknown"
    events = f", {number_of(at.events, 'event')}" if at.events else ""
    parts = f", {at.parts}" if at.parts else ""
    return (
        f"{at.share:.0%}{parts}, {at.rows:,} {at.name}{events}, {at.rows / seconds:,.0f} "
        f"{at.name}/s, {left}"
    )
