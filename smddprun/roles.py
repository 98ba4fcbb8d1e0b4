"""Jobs with parameter servers: the role of each task, and how the tasks begin and end together.

TensorFlow moves the data between the tasks; our engine has no part in it. The launcher, or MPI's on several
hosts, starts a process for each task as it starts ranks. Each runs `main`, which has one child: the script,
or a server of TensorFlow's (ps_server.py).

Note [the first task ends the job]: servers never end by themselves, and a worker's script may wait for a
first task that has ended already. So every other task holds a connection to the first one, and nobody writes
to it. When the first task ends, however it does, the kernel closes the connections, and the others end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from smddprun import environment, gpus, rendezvous
from smddprun.check import programs
from smddprun.command import NOT_EXECUTABLE
from smddprun.hosts import Host
from smddprun.ranks import Exit
from smddprun.signals import STOPPING, end_with_parent

# TensorFlow 2's coordinator is the chief: it alone runs the script. In a graph of TensorFlow 1, and with
# estimators, the master runs it, and so do the workers.
CHIEF, MASTER, WORKER, SERVER = "chief", "master", "worker", "ps"

_START_SECONDS = 120.0  # until all tasks have reached the first one; MPI's launchers may be slow
_SCRIPT_SECONDS = 20.0  # for a script whose first task has ended
_GREETING_SECONDS = 5.0
_LOOK_SECONDS = 0.1


class Task(NamedTuple):
    """A task of the cluster. `number` counts those of its role from 0, and `address` is HOST:PORT."""

    role: str
    number: int
    address: str

    @property
    def greeting(self) -> str:
        """What it says to the first task. Another job on this host has other ports."""
        return f"{self.name} at {self.address}"

    @property
    def name(self) -> str:
        """A name such as "ps 0"; there is one chief, or one master."""
        return self.role if self.role in (CHIEF, MASTER) else f"{self.role} {self.number}"


def deal(slots: Sequence[int], servers: int, between_graph: bool) -> list[list[str]]:
    """Returns the roles of each host's tasks. The order of all is that of the ranks. Pure.

    Args:
      slots: the workers of each host. The master is one of them, and the chief is one more task.
      servers: how many there are; the hosts take turns.
      between_graph: whether workers run the script.
    """
    hosts = [[WORKER] * count for count in slots]
    hosts[0] = [MASTER, *hosts[0][1:]] if between_graph else [CHIEF, *hosts[0]]
    for server in range(servers):
        hosts[server % len(hosts)].append(SERVER)
    return hosts


class Plan(NamedTuple):
    """How a job with parameter servers starts."""

    counts: list[int]  # the tasks of each host
    names: list[str]  # of all tasks, in the order of their ranks
    words: list[str]  # what each rank executes
    ports: list[socket.socket]  # while they are open, only TensorFlow's servers get the tasks' ports


def plan(hosts: Sequence[Host], servers: int, between_graph: bool, command: Sequence[str]) -> Plan:
    """Gives each task its host, and a port that is free on this host.

    Args:
      hosts: their addresses, and the workers of each.
      servers: see `deal`.
      between_graph: see `deal`.
      command: what the script's tasks execute.

    Raises:
      OSError: the system has no socket, or no port.
    """
    dealt = deal([host.slots for host in hosts], servers, between_graph)
    parts, ports = [], []
    for host, roles in zip(hosts, dealt):
        address = f"[{host.name}]" if ":" in host.name else host.name
        for role in roles:
            ports.append(rendezvous.reserve_port())
            parts.append(f"{role}={address}:{ports[-1].getsockname()[1]}")
    text = ",".join(parts)
    words = [*programs.words_of("smddprun.roles"), text, *command]
    return Plan([len(roles) for roles in dealt], [task.name for task in parse(text)], words, ports)


def parse(text: str) -> list[Task]:
    """Parses "chief=HOST:PORT,worker=HOST:PORT", which names all tasks in the order of their ranks."""
    tasks: list[Task] = []
    for each in text.split(","):
        role, _, address = each.partition("=")
        tasks.append(Task(role, sum(task.role == role for task in tasks), address))
    return tasks


def task_environment(environ: Mapping[str, str], tasks: Sequence[Task], rank: int) -> dict[str, str]:
    """Returns the environment of a task: TF_CONFIG as its version of TensorFlow reads it, and no rank's.

    A worker sees one of the host's GPUs, where there are some. Others see none, since TensorFlow takes all
    memory of those that it sees.
    """
    task = tasks[rank]
    cluster: dict[str, list[str]] = {}
    for each in tasks:
        cluster.setdefault(each.role, []).append(each.address)
    config = {"cluster": cluster, "task": {"type": task.role, "index": task.number}}
    if MASTER in cluster:
        config["environment"] = "cloud"  # some estimators ask for it
    result = environment.without_rank(environ)
    result["TF_CONFIG"] = json.dumps(config)
    # A call to a task that has not started yet waits. Without it, TensorFlow 2's coordinator fails at once.
    result.setdefault("GRPC_FAIL_FAST", "use_caller")
    count = gpus.count(environ)
    if count:
        shown = environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        host = task.address.rpartition(":")[0]
        before = [each for each in tasks[:rank] if each.address.rpartition(":")[0] == host]
        place = sum(each.role in (MASTER, WORKER) for each in before)
        computes = task.role in (MASTER, WORKER)
        result["CUDA_VISIBLE_DEVICES"] = shown.split(",")[place % count] if computes else "-1"
    return result


def main() -> int:
    """Runs the task of this process. Its arguments are what `parse` takes, and the command.

    Returns:
      The exit code of the child; 0 if the first task has ended before.
    """
    tasks, command = parse(sys.argv[1]), sys.argv[2:]
    rank = int(environment.numbers_of_launcher(os.environ)[0][0])
    task = tasks[rank]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    try:
        connections = _wait_for_others(tasks) if rank == 0 else [_connect(task.greeting)]
    except OSError as error:
        return _fail(task, str(error))
    is_script = rank == 0 or (task.role == WORKER and tasks[0].role == MASTER)
    try:
        child = subprocess.Popen(
            command if is_script else programs.words_of("smddprun.ps_server"),
            env=task_environment(os.environ, tasks, rank),
            preexec_fn=lambda: _before_exec(is_script),
        )
    except OSError as error:
        text = f"{command[0]!r} can't be executed: {error.strerror}; does a script begin with '#!...'?"
        return _fail(task, text, NOT_EXECUTABLE)
    # The script decides what a signal does, and may need the servers for that. Up to here one ends the task.
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if rank > 0 and _outlives_first(child, connections[0]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_SCRIPT_SECONDS if is_script else 0.0)
        child.kill()
        child.wait()
        return 0
    return _end_like(task, child.wait())


def _before_exec(is_script: bool) -> None:
    end_with_parent(signal.SIGKILL)
    for number in () if is_script else STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _fail(task: Task, text: str, code: int = 1) -> int:
    print(f"smddprun: {task.name}: {text}", file=sys.stderr, flush=True)
    return code


def _end_like(task: Task, code: int) -> int:
    """Returns the child's exit code, or ends this process by the signal that has ended the child."""
    if code != 0 and "SMDDP_RANK" not in os.environ:  # MPI's launcher knows no names
        how = Exit(code) if code > 0 else Exit(signal=-code)
        _fail(task, f"{how}, on {socket.gethostname()}")
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left its own core
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _wait_for_others(tasks: Sequence[Task]) -> list[socket.socket]:
    """Returns the connections of all other tasks.

    Raises:
      OSError: the port cannot be had, or some tasks have not come in time.
    """
    port = int(os.environ["MASTER_PORT"])
    missing = [task.greeting for task in tasks[1:]]
    found = []
    deadline = time.monotonic() + _START_SECONDS
    if os.environ["MASTER_ADDR"] == "127.0.0.1":
        listener = socket.create_server(("127.0.0.1", port))
    else:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    with listener:
        while missing:
            if not select.select([listener], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise OSError(f"{', '.join(missing)} did not start within {_START_SECONDS:g} s")
            connection, _ = listener.accept()
            connection.settimeout(_GREETING_SECONDS)
            with contextlib.suppress(OSError):  # of one that says nothing, and is no task
                greeting = connection.recv(1024).decode(errors="replace")
                if greeting in missing:
                    missing.remove(greeting)
                    found.append(connection)
    return found


def _connect(greeting: str) -> socket.socket:
    """Returns a connection to the first task.

    Raises:
      OSError: that did not listen in time.
    """
    first = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            connection = socket.create_connection(first, timeout=_START_SECONDS)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise OSError(f"the first task, {first[0]}:{first[1]}, can't be reached: {error}") from error
            time.sleep(_LOOK_SECONDS)
    connection.sendall(greeting.encode())
    return connection


def _outlives_first(child: subprocess.Popen, connection: socket.socket) -> bool:
    """Waits until the child or the first task has ended. See Note [the first task ends the job]."""
    while child.poll() is None:
        if select.select([connection], [], [], _LOOK_SECONDS)[0]:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
