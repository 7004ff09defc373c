"""A real SLURM on this machine, below one folder, as anybody: Debian's munge, slurmctld and slurmd, no accounting."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")

# More CPUs than there are, and GPUs that are none: what is tested is what jobs ask for and where they go.
# OverTimeLimit: a job ends by its own clock; on a busy machine it may come too late, and that is another fault.
# MinJobAge: so that a test can look at jobs that have ended; 300 unless set.
# cred_expire: SLURM starts a requeued job that many seconds later, in its own defaults 120.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
MpiDefault=none
ReturnToService=0
JobRequeue=1
KillWait=10
OverTimeLimit=30
MinJobAge=3600
SlurmdTimeout=300
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=64000 Gres=gpu:4 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=60 OverSubscribe=NO State=UP
PartitionName=gpu Nodes={host} MaxTime={limit} OverSubscribe=NO State=UP
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    return [program for program in (*DAEMONS, *COMMANDS) if shutil.which(program, path=_path()) is None]


class Cluster:
    """One node, partitions ``cpu`` and ``gpu``; a context manager that leaves nothing behind but its logs."""

    def __init__(self, folder: Path, limit: int = 60) -> None:
        """Write it all to a folder, not too deep for a socket; ``limit`` of the partition ``gpu``, in minutes."""
        self.folder = folder.absolute()
        self.host = socket.gethostname().split(".")[0]
        self.environment = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{_path()}"}
        self._daemons: dict[str, subprocess.Popen] = {}
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # not SLURM_CONF in the environment: the executor takes SLURM's variables away before it calls srun
        for name in COMMANDS:
            command = self.folder / "bin" / name
            command.write_text(
                f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which(name, path=_path())} "$@"\n'
            )
            command.chmod(0o755)
        # munged refuses a key and a socket in folders that others may write
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        values = {"host": self.host, "user": getpass.getuser(), "folder": self.folder, "limit": limit}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(ports=_free_ports(2), **values))
        # a GPU has to be a device; any will do, nobody opens it
        devices = ("null", "zero", "full", "random")
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File=/dev/{name}\n" for name in devices))

    def __enter__(self) -> Self:
        try:
            self.start("munged")
            self.start("slurmctld")
            self.start("slurmd")
            self.wait_for("idle")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start a daemon in the foreground of a process group of its own."""
        place = self.folder
        options = {
            "munged": [f"--{key}={place}/munge.{key.split('-')[0]}" for key in ("key-file", "socket", "pid-file")]
            + [f"--log-file={place}/munged.log", f"--seed-file={place}/munge.seed", "--foreground", "--force"],
            "slurmctld": ["-D", "-f", f"{place}/slurm.conf"],
            "slurmd": ["-D", "-N", self.host, "-f", f"{place}/slurm.conf"],
        }
        program = shutil.which(name, path=_path()) or name
        with (place / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [program, *options[name]],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if name == "munged":
            _wait(lambda: (place / "munge.socket").exists(), f"munged did not start, see {place}/munged.out")

    def kill(self, name: str, signal_: int = signal.SIGKILL) -> None:
        """End a daemon; jobs that slurmd has started go on."""
        daemon = self._daemons.pop(name)
        daemon.send_signal(signal_)
        daemon.wait(timeout=30)

    def command(self, *arguments: object) -> str:
        """What one of SLURM's commands prints."""
        result = subprocess.run(
            list(map(str, arguments)), env={**os.environ, **self.environment}, capture_output=True, text=True
        )
        if result.returncode:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout.strip()

    def wait_for(self, state: str) -> None:
        """Wait until the node is in a state, as ``sinfo`` calls it."""

        def reached() -> bool:
            try:
                return self.command("sinfo", "-h", "-n", self.host, "-o", "%t").split()[0].startswith(state)
            except (RuntimeError, IndexError):
                return False

        _wait(reached, f"the node is not {state}, see {self.folder}/slurmctld.log and slurmd.log")

    def stop(self) -> None:
        """Cancel what runs and end the daemons, the jobs' processes with them."""
        try:
            self.command("scancel", "--full", "--signal=KILL", "--user", getpass.getuser())
            self.command("scancel", "--user", getpass.getuser())
            _wait(lambda: not self.command("squeue", "-h"), "jobs do not end", seconds=30)
        except (RuntimeError, TimeoutError):
            pass
        for name in reversed(list(self._daemons)):
            try:
                self.kill(name, signal.SIGTERM)
            except subprocess.TimeoutExpired:
                self._daemons[name].kill()
        for process in self._left_over():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _left_over(self) -> list[int]:
        """Processes with our commands in their environment: of jobs that SLURM lost, and of who submitted them."""
        mark, found = f"{self.folder / 'bin'}{os.pathsep}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes() and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found


def _path() -> str:
    """Debian has the daemons where only root looks."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait(condition, message: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(message)
        time.sleep(0.2)
