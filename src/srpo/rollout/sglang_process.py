"""Starts, watches and stops an SGLang server, which is a group of processes."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil

from srpo.ground.errors import SrpoError
from srpo.rollout.sglang_protocol import HOST, ServerOptions, server_arguments, server_environment

COMMAND = (sys.executable, "-m", "sglang.launch_server")

STOP_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL: SGLang checks for the signal every 5 s."""

KILL_SECONDS = 30.0
"""Seconds to wait for the processes after SIGKILL: the driver first frees the memory of their GPU."""

PORTS = 3
"""Ports to try: another program may take one while the model is loaded."""

POLL_SECONDS = 0.5
"""Seconds between checks of a server."""

_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Runs in the server's process before the server, so that the server ends if this process is killed with SIGKILL.
SGLang makes its own children end with it by the same call. The signal is bound to the thread that starts the server."""

_WORKER = "sglang::"
"""How SGLang names its schedulers, its detokenizer and its data-parallel controller."""

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

_ERROR_LINE = re.compile(r"^(?:\[[^]]*\] )?((?:\w+\.)*\w*(?:Error|Exception)\b.*)", re.MULTILINE)
_GAVE_UP = ("Received sigquit from a child process", "Traceback (most recent call last)")
"""Text in the log that SGLang writes before it kills its own process group."""


class PortTakenError(SrpoError):
    """Another program listens on the port that was free when the server started."""


class ServerProcess:
    """One SGLang server, from its start to its end."""

    def __init__(self, checkpoint: Path, log: Path, options: ServerOptions, command: Sequence[str] = COMMAND) -> None:
        self._checkpoint = checkpoint
        self._log = log
        self._options = options
        self._command = command
        log.parent.mkdir(parents=True, exist_ok=True)
        for ports_left in reversed(range(PORTS)):
            self._launch()
            try:
                self._wait_until_healthy()
                break
            except PortTakenError:
                self.stop()
                if not ports_left:
                    raise
            except BaseException:
                self.stop()
                raise
        self._workers = [each for each in _members(self.process.pid) if _name(each).startswith(_WORKER)]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def failure(self) -> str | None:
        """Why the server cannot answer any more; None if no failure is known.

        A data-parallel SGLang runs on after one of its schedulers has died, and requests sent to that one never
        return. So this looks at each of the server's processes.
        """
        if (status := self.process.poll()) is not None:
            return self._ending(status)
        dead = (worker for worker in self._workers if _state(worker) in _ENDED)
        return next((f"its process {each.pid} ({_name(each) or 'collected'}) has died" for each in dead), None)

    def stop(self) -> None:
        """End every process of the server's group."""
        group = self.process.pid
        # SIGCONT: a stopped process handles SIGKILL alone
        for numbers, patience in (
            ((signal.SIGTERM, signal.SIGCONT), STOP_SECONDS),
            ((signal.SIGKILL,), KILL_SECONDS),
        ):
            if self._group_lives():
                with contextlib.suppress(ProcessLookupError):
                    for number in numbers:
                        os.killpg(group, number)
            deadline = time.monotonic() + patience
            while self._group_lives() and time.monotonic() < deadline:
                time.sleep(0.05)
        if self._group_lives():
            raise SrpoError(f"sglang server: process group {group} survives SIGKILL; its GPU memory is not free")

    def log_end(self) -> str:
        """Where the log is, the last error in it and its last lines, on one line."""
        text = self._output()
        last = " | ".join([line.strip() for line in text.splitlines() if line.strip()][-5:])[-1000:]
        errors = [error.strip() for error in _ERROR_LINE.findall(text)]
        error = f" has {errors[-1][:300]!r} and" if errors and errors[-1][:100] not in last else ""
        return f"{self._log}{error} ends: {last}"

    # ------------------------------------------------------------ start

    def _launch(self) -> None:
        self._port = free_port()
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            guard = [sys.executable, "-ISc", _DIE_WITH_PARENT]
            self.process = subprocess.Popen(
                [*guard, *self._command, *server_arguments(self._checkpoint, self._port, self._options)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=server_environment(os.environ),
            )

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self._options.start_timeout
        with httpx.Client(base_url=self.url, trust_env=False) as client:
            while True:
                if (status := self.process.poll()) is not None:
                    raise SrpoError(f"sglang server: {self._ending(status)} while starting; {self.log_end()}")
                # The port was free before the model was loaded; another program may have taken it since. SGLang would
                # only log this and wait.
                if _others_listen(self._port, self.process.pid):
                    raise PortTakenError(f"sglang server: another program took its port {self._port}; start again")
                if (served := _served_model(client, deadline)) is not None:
                    break
                if time.monotonic() > deadline:
                    raise SrpoError(
                        f"sglang server: not healthy after start_timeout = {self._options.start_timeout:g} s;"
                        f" {self.log_end()}"
                    )
                time.sleep(POLL_SECONDS)
        if served != str(self._checkpoint):
            raise SrpoError(f"sglang server: {self.url} is a server of {served} by now; start again")

    # ------------------------------------------------------------ end

    def _ending(self, status: int) -> str:
        if status >= 0:
            return f"ended with status {status}"
        name = signal.Signals(-status).name
        if status == -signal.SIGKILL and any(sign in self._output() for sign in _GAVE_UP):
            return "ended itself after an error"
        return f"was killed by {name}" + (", perhaps for memory of the host," * (status == -signal.SIGKILL))

    def _group_lives(self) -> bool:
        self.process.poll()  # reaps the first process of the group
        # Zombies do not count: in a container no process may reap them.
        return any(_state(each) not in _ENDED for each in _members(self.process.pid))

    def _output(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


def _served_model(client: httpx.Client, deadline: float) -> str | None:
    """Path of the model that a server serves; None while the server is not healthy.

    SGLang answers ``/health`` after it has generated a token, which takes a second or more.
    """
    try:
        if not client.get("/health", timeout=min(30.0, max(1.0, deadline - time.monotonic()))).is_success:
            return None
        return str(client.get("/model_info").json()["model_path"])
    except httpx.TransportError:
        return None
    except (ValueError, LookupError, TypeError):
        return "something else"


# ---------------------------------------------------------------- processes


def _members(group: int) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _group(process.pid) == group]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _state(process: psutil.Process) -> str:
    """psutil's status of a process; of one that is gone, dead."""
    try:
        return process.status() if process.is_running() else psutil.STATUS_DEAD
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _others_listen(port: int, group: int) -> bool:
    """Whether a process outside of the group listens on the port; one of another user has no id."""
    listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return any(each.laddr[1:] == (port,) and (each.pid is None or _group(each.pid) != group) for each in listening)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
