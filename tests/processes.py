"""Programs of Python as processes, without the second that Python takes to load what they import.

``start`` is ``subprocess.Popen`` for such a program. A host, one per test process, has imported what
a publisher needs and forks the program's process: with its own arguments, environment, directory and
streams, which ends by an exit code or a signal like any other. Where coverage is measured, and on
systems without SOCK_SEQPACKET, Python is started in the usual way.

    python processes.py SOCKET    the host
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

EVENTLOG = str(Path(sys.executable).with_name("eventlog"))
"""The command as it is installed."""
PYTHON = sys.executable
LOADED = (
    "eventlog.__main__",
    "eventlog.changes.json_form",
    "eventlog.cli.publish.publish",
    "eventlog.publisher.declared.class_trial",
    "eventlog.publisher.run.daemon",
    "eventlog.publisher.inspect.doctor",
    "eventlog.publisher.inspect.explanation",
    "eventlog.publisher.run.health",
    "eventlog.publisher.monitor.openmetrics",
    "eventlog.publisher.monitor.server",
    "eventlog.publisher.declared.opening",
    "eventlog.publisher.declared.configured_sink",
    "eventlog.publisher.sinks.files",
    "eventlog.publisher.sinks.http",
    "eventlog.publisher.stream.event_log",
    "eventlog.sql.dialects.postgresql",
    "eventlog.sql.dialects.postgresql.log",
    "eventlog.sql.dialects.postgresql.objects",
    "eventlog.sql.migrations",
    "eventlog.xds.format",
    "eventlog.xds.publish",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)
"""What the host imports; a program imports what else it needs."""
_FORKS = hasattr(socket, "SOCK_SEQPACKET") and not any(
    name in os.environ for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
)
_lock = threading.Lock()


def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    text: bool = False,
) -> subprocess.Popen[Any]:
    """Start a program. It is forked if it is the command, or Python with a script or a module."""
    parts = [os.fspath(part) for part in command]
    forks = parts[0] == EVENTLOG or (parts[0] == PYTHON and parts[1] != "-c")
    kind = _Forked if forks and _FORKS else subprocess.Popen
    return kind(parts, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, text=text)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Start a program and wait until it ends: its exit code, and what it wrote."""
    pipe = subprocess.PIPE
    with start(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


_SHIM = """\
#!{python} -IS
import json, os, socket, sys
report, theirs = os.pipe()
request = {{"command": ["{eventlog}", *sys.argv[1:]], "directory": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(socket.socket(fileno={host}), [json.dumps(request).encode()], [0, 1, 2, theirs])
os.close(theirs)
_, code = map(int, open(report).read().split())
sys.exit(code if code >= 0 else 128 - code)
"""


def command_in(directory: Path) -> list[int]:
    """Make a command ``eventlog`` in a directory, for shells whose PATH begins with it, and return
    the file descriptors that they have to inherit. A signal for the command does not reach the
    program.
    """
    if not _FORKS:
        return []
    host = _host().fileno()
    file = directory / "eventlog"
    file.write_text(_SHIM.format(python=PYTHON, eventlog=EVENTLOG, host=host), encoding="utf-8")
    file.chmod(0o755)
    return [host]


class _Forked(subprocess.Popen[Any]):
    """A process that the host has forked, and waits for."""

    def _execute_child(self, args: Any, *given: Any) -> None:
        # Here Popen, which has made the streams, forks and executes.
        cwd, env, streams = given[4], given[5], given[9:15]
        inherited = [
            usual if stream == -1 else stream
            for usual, stream in enumerate((streams[0], streams[3], streams[5]))
        ]
        request = {
            "command": args,
            "directory": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
        }
        self._ending = threading.Lock()
        self._report, theirs = os.pipe()
        with _lock:
            socket.send_fds(_host(), [json.dumps(request).encode()], [*inherited, theirs])
        os.close(theirs)
        self.pid = int(self._line())
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            read = os.read(self._report, 1)
            assert read, "the host of the processes is gone"
            line += read
        return line.decode()

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with self._ending:
            if self.returncode is None and wait([self._report], 0):
                self.returncode = int(self._line())
                os.close(self._report)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end: its exit code."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() >= until:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            wait([self._report], None if until is None else max(0, until - time.monotonic()))
        assert self.returncode is not None
        return self.returncode


@cache
def _host() -> socket.socket:
    """The socket of this process's host, which ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [PYTHON, __file__, str(theirs.fileno())]
        host = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    @atexit.register
    def end() -> None:
        ours.close()
        host.wait()

    return ours


# --- the host -------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process per request. Returns in each such process what it is to run, and in the host
    None at the end.
    """
    while True:
        message, streams, *_ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            return None
        while _ended():
            pass
        if os.fork() == 0:  # waits for the program, since a process is waited for by its parent
            requests.close()
            *standard, report = streams
            if (child := os.fork()) == 0:
                os.close(report)
                for number, stream in enumerate(standard):
                    os.dup2(stream, number)
                for stream in standard:
                    os.close(stream)
                return dict(json.loads(message))
            for stream in standard:
                os.close(stream)
            os.write(report, f"{child}\n".encode())
            _, status = os.waitpid(child, 0)
            os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)
        for stream in streams:
            os.close(stream)


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return False


def become(program: dict[str, Any], path: Sequence[str]) -> None:
    """Run a program as Python runs it at its start."""
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["directory"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        number = ("stdin", "stdout", "stderr").index(name)
        stream = open(number, mode, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    command = [part for part in program["command"] if part != PYTHON]
    module = command.pop(1) if command[0] == "-m" else ""
    more = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.argv = command
    sys.path[:] = [*more, *path]
    if module:
        sys.path.insert(0, program["directory"])
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    usual_path = sys.path[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    if (given := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        become(given, usual_path)
