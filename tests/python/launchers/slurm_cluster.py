"""A Slurm cluster of this user, in a directory of its own: controller, node daemons and munge.

The nodes are virtual hosts, or this machine is the only one. It uses none of the machine's own configuration
and ports, no systemd, no cgroups, and no other user.
"""

from __future__ import annotations

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Dict, List, Optional

from virtual_hosts import VirtualHosts

_START_SECONDS = 60.0
_CONFIGURATION = """
ClusterName=smddp
SlurmctldHost={controller}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
KillWait=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A node has more CPUs than the machine, so that jobs need not wait for each other.
SlurmdParameters=config_overrides
{nodes}
PartitionName=test Nodes=ALL Default=YES MaxTime=10 State=UP
"""


class SlurmCluster:
    """The running cluster. Use it as a context manager.

    Args:
      hosts: The virtual hosts that are its nodes, with the controller on the first one; by default this
        machine is its only node.
    """

    def __init__(self, hosts: Optional[VirtualHosts] = None) -> None:
        self._hosts = hosts
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        # munged refuses a socket that other users cannot reach.
        self._folder.chmod(0o755)
        self._daemons: List[subprocess.Popen] = []
        (self._folder / "state").mkdir()
        key = self._folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        controller_port, node_port = free_ports(2)
        # The names of the nodes, and each one's host name and address.
        self._nodes = {"node": (socket.gethostname().split(".")[0], "127.0.0.1")}
        if hosts is not None:
            self._nodes = {name: (name, hosts.address(name)) for name in hosts.names}
        self._first = next(iter(self._nodes))
        host, address = self._nodes[self._first]
        configuration = _CONFIGURATION.format(
            folder=self._folder,
            controller=f"{host}({address})",
            nodes="\n".join(
                f"NodeName={node} NodeHostname={host} NodeAddr={address} CPUs=16 State=UNKNOWN"
                for node, (host, address) in self._nodes.items()
            ),
            user=getpass.getuser(),
            controller_port=controller_port,
            node_port=node_port,
        )
        (self._folder / "slurm.conf").write_text(configuration)
        # Nothing here uses cgroups, but slurmd looks for them, and a virtual host has none mounted.
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for node in self._nodes:
            (self._folder / f"spool-{node}").mkdir()
            (self._folder / f"tmp-{node}").mkdir()

    @property
    def environ(self) -> Dict[str, str]:
        """The variables that Slurm's commands need."""
        return {"SLURM_CONF": str(self._folder / "slurm.conf")}

    def __enter__(self) -> SlurmCluster:
        try:
            self._start_munge()
            self._start("slurmctld", "-D", "-c", host=self._first)
            for node in self._nodes:
                self._start("slurmd", "-D", "-N", node, host=node)
            self._wait_until_idle()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _start_munge(self) -> None:
        options = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
            "seed-file": "munge.seed",
        }
        files = [f"--{option}={self._folder / name}" for option, name in options.items()]
        self._start("munged", "--foreground", "--force", "--num-threads=2", *files)
        self._wait_for(lambda: (self._folder / "munge.socket").exists(), "munged listens")

    def _start(self, name: str, *arguments: str, host: str = "") -> None:
        path = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin")
        if path is None:
            raise FileNotFoundError(f"{name} is not installed; tools/setup_system.sh launchers installs it")
        words = [path, *arguments]
        if self._hosts is not None and host:
            words = self._hosts.on(host, words)
        with open(self._folder / f"{name}-{host}.out", "wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    words,
                    env={**os.environ, **self.environ},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait_until_idle(self) -> None:
        def states() -> List[str]:
            command = ["sinfo", "--noheader", "--Node", "--format=%t"]
            if self._hosts is not None:
                command = self._hosts.on(self._first, command)
            environ = {**os.environ, **self.environ}
            return subprocess.run(
                command, env=environ, capture_output=True, text=True, timeout=30, check=False
            ).stdout.split()

        self._wait_for(lambda: states() == ["idle"] * len(self._nodes), "all nodes are idle")

    def _wait_for(self, condition, what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            ended = [daemon.args[0] for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"not so: {what}; ended: {ended}; output:\n{self._outputs()}")
            time.sleep(0.1)

    def _outputs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.out")))

    def _stop(self) -> None:
        # munge ends last, since the other daemons need it.
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)
        shutil.rmtree(self._folder)


def free_ports(count: int) -> List[int]:
    """Returns different ports of this host on which no process listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
