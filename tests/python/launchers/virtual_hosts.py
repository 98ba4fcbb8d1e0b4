"""Several hosts on this machine: network namespaces with names of their own, joined by a bridge.

Each host has a network interface `eth0`, whose rate can be limited, and its own host name. Processes and
files are those of the machine. It needs root.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import tempfile
from typing import Dict, List, Optional, Sequence

_NETWORK = "10.213.77"
# MPICH's transport, UCX, takes the hosts for one, since they share this machine's kernel and file systems: it
# would read other ranks' memory, as it cannot between hosts.
UCX = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
# A launcher starts its helper on a host by `AGENT HOST COMMAND…`, as by ssh: a shell runs the command.
_AGENT = """#!/bin/bash
echo "$*" >> "{calls}"
# Options of ssh, of which three have a value.
while [ "${1#-}" != "$1" ]; do case $1 in -o|-p|-i) shift ;; esac; shift; done
host=${1%%.*}
shift
exec ip netns exec "{prefix}$host" unshare --uts sh -c 'hostname "$1"; shift; eval "$*"' sh "$host" "$@"
"""


def _run(*words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{shlex.join(map(str, words))}: {done.stderr}"


class VirtualHosts:
    """The hosts h0, h1, and so on. Use it as a context manager.

    Args:
      count: How many.
      rate: The most that each host's link sends, as tc writes it ("1gbit"); None for no limit.
      names: Other names for the hosts.
      domain: They can be reached as NAME.DOMAIN, too.
    """

    def __init__(
        self, count: int, rate: Optional[str] = None, names: Sequence[str] = (), domain: str = "test"
    ) -> None:
        self.names = list(names) or [f"h{index}" for index in range(count)]
        self._prefix = f"smddp-{os.getpid()}-"
        self._switch = f"{self._prefix}switch"
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))
        self._rate, self._domain = rate, domain
        self.agent = self._folder / "agent"
        self._calls = self._folder / "calls"
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> VirtualHosts:
        with contextlib.ExitStack() as undo:
            self._make(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _make(self, undo: contextlib.ExitStack) -> None:
        undo.callback(subprocess.run, ["rm", "-r", str(self._folder)], check=True)
        self.agent.write_text(_AGENT.replace("{prefix}", self._prefix).replace("{calls}", str(self._calls)))
        self.agent.chmod(0o755)
        self._add_namespace(self._switch, undo)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        names = "".join(f"{self.address(name)} {name}.{self._domain} {name}\n" for name in self.names)
        for name in self.names:
            namespace = self._prefix + name
            # `ip netns exec` puts these in the place of /etc's files.
            files = pathlib.Path("/etc/netns") / namespace
            files.mkdir(parents=True)
            undo.callback(subprocess.run, ["rm", "-r", str(files)], check=True)
            (files / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            self._add_namespace(namespace, undo)
            _run(
                *("ip", "link", "add", "eth0", "netns", namespace, "type", "veth"),
                *("peer", "name", self._port(name), "netns", self._switch),
            )
            _run("ip", "-n", self._switch, "link", "set", self._port(name), "master", "bridge", "up")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            _run("ip", "-n", namespace, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            _run("ip", "-n", namespace, "link", "set", "eth0", "up")
            if self._rate is not None:
                _run(
                    *("tc", "-n", namespace, "qdisc", "add", "dev", "eth0", "root", "tbf"),
                    *("rate", self._rate, "burst", "256kb", "latency", "50ms"),
                )

    def _add_namespace(self, name: str, undo: contextlib.ExitStack) -> None:
        _run("ip", "netns", "add", name)
        undo.callback(_run, "ip", "netns", "del", name)

    def address(self, name: str) -> str:
        """The address of a host."""
        return f"{_NETWORK}.{1 + self.names.index(name)}"

    def _port(self, name: str) -> str:
        """The bridge's end of a host's link. The names of interfaces are short."""
        return f"to-{self.names.index(name)}"

    def on(self, name: str, words: Sequence[object]) -> List[str]:
        """The words that run a command on a host."""
        return [str(self.agent), name, "exec " + shlex.join(map(str, words))]

    def agent_calls(self) -> List[str]:
        """The arguments of each call of the agent so far."""
        return self._calls.read_text().splitlines()

    def sent_bytes(self, name: str) -> int:
        """The bytes that a host's link has sent so far."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        words = self.on(name, ["cat", path])
        return int(subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout)

    def cut(self, name: str) -> None:
        """Takes a host's link down."""
        _run("ip", "-n", self._switch, "link", "set", self._port(name), "down")

    def mend(self, name: str) -> None:
        """Takes it up again."""
        _run("ip", "-n", self._switch, "link", "set", self._port(name), "up")


def mpirun(kind: str, hosts: VirtualHosts, ranks: Dict[str, int], program: str) -> List[str]:
    """Returns the words that start ranks on the hosts, to be run on the first one.

    Args:
      kind: The family of the launcher: "openmpi4", "openmpi5" or "mpich".
      hosts: The hosts.
      ranks: How many ranks each host has.
      program: The path of mpirun or mpiexec.
    """
    where = ",".join(f"{name}:{count}" for name, count in ranks.items())
    total = str(sum(ranks.values()))
    if kind == "mpich":
        agent = ["-launcher", "ssh", "-launcher-exec", str(hosts.agent)]
        ucx = [word for name, value in UCX.items() for word in ("-genv", name, value)]
        return [program, *agent, *ucx, "-iface", "eth0", "-hosts", where, "-np", total]
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-H", where, "-np", total]
    options += ["--mca", "btl", "self,vader,tcp" if kind == "openmpi4" else "self,sm,tcp"]
    options += ["--mca", "btl_tcp_if_include", "eth0"]
    if kind == "openmpi4":
        agent = ["--mca", "plm_rsh_agent", str(hosts.agent), "--mca", "oob_tcp_if_include", "eth0"]
    else:
        agent = ["--prtemca", "plm_ssh_agent", str(hosts.agent), "--prtemca", "prte_if_include", "eth0"]
    return [program, *options, *agent]


def agent_variables(kind: str, hosts: VirtualHosts) -> Dict[str, str]:
    """Returns the variables by which MPI's launcher finds the hosts, as `mpirun` has them in options."""
    if kind == "mpich":
        agent = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(hosts.agent)}
        return {**agent, **UCX, "HYDRA_IFACE": "eth0"}
    return {
        "OMPI_MCA_plm_rsh_agent": str(hosts.agent),
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
