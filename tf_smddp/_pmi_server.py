"""A process manager for MPI: the server that the ranks' MPI libraries ask, where the launcher brings none.

Run as a program by the job's rank 0 (_process_manager.py): `python _pmi_server.py PORT SIZE JOB`. It imports
neither TensorFlow nor this package, so that it starts at once.

While a rank initialises MPI, its library asks a process manager for its rank and size, and for the addresses
of the others. `mpiexec` and Slurm's pmi2 are such managers; torchrun and a plain srun bring none. The
protocol is PMI-1 of MPICH's family, lines of NAME=VALUE ("PMI: A Scalable Parallel Process-Management
Interface", Balaji et al., EuroMPI 2010; the lines are those of MPICH's "simple" PMI).

It listens until all ranks have connected. After the end of rank 0, its parent, it ends when all connections
are closed, or 15 seconds later.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import sys
from typing import Dict, List, Optional, Set

# How long ranks that are alive may keep the server after the end of rank 0, which has started it.
_LONGEST_LINGER_SECONDS = 15.0
_POLL_SECONDS = 0.2
# An earlier attempt's server listens until it has seen its parent's end.
_PORT_SECONDS = 5.0
# All ranks may connect at once.
_BACKLOG = 4096
_MOST_CHARACTERS = {"kvsname_max": 256, "keylen_max": 256, "vallen_max": 1024}


class ProcessManager:
    """What the ranks of one job have told and asked.

    Args:
      size: The number of ranks.
      job: What names the job; a rank of another one is told so, and does not get in.
    """

    def __init__(self, size: int, job: str) -> None:
        self._size = size
        self._job = job
        # MPICH derives the names of files in /dev/shm from it.
        self._space = f"smddp_{secrets.token_hex(8)}"
        self._values: Dict[str, str] = {}
        self._joined: Set[int] = set()
        self._at_barrier: List[asyncio.StreamWriter] = []
        self.connections = 0
        self.all_joined = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the lines of one connection, until its end."""
        self.connections += 1
        try:
            while line := await reader.readline():
                answer = self._answer(_fields(line.decode("utf-8", "replace")), writer)
                if answer is None:
                    break
                writer.write(answer.encode())
                await writer.drain()
        except (ConnectionError, ValueError, KeyError):
            return  # The process has died, or is no rank: nothing is left to answer.
        finally:
            self.connections -= 1
            writer.close()

    def _answer(self, fields: Dict[str, str], writer: asyncio.StreamWriter) -> Optional[str]:
        """The answer to a line; None if the connection is to be closed."""
        command = fields.get("cmd")
        if command == "hello":
            return f"cmd=hello_result job={self._job}\n"
        if command == "initack":
            return self._join(int(fields["pmiid"]))
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
        if command == "get_maxes":
            most = " ".join(f"{name}={value}" for name, value in _MOST_CHARACTERS.items())
            return f"cmd=maxes rc=0 {most}\n"
        if command == "get_appnum":
            return "cmd=appnum rc=0 appnum=0\n"
        if command == "get_universe_size":
            return f"cmd=universe_size rc=0 size={self._size}\n"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname rc=0 kvsname={self._space}\n"
        if command == "put":
            self._values[fields["key"]] = fields["value"]
            return "cmd=put_result rc=0 msg=success\n"
        if command == "get":
            value = self._values.get(fields["key"])
            if value is None:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
            return f"cmd=get_result rc=0 msg=success value={value}\n"
        if command == "barrier_in":
            return self._enter_barrier(writer)
        if command == "finalize":
            return "cmd=finalize_ack rc=0\n"
        return None

    def _join(self, rank: int) -> Optional[str]:
        if not 0 <= rank < self._size or rank in self._joined:
            return None
        self._joined.add(rank)
        if len(self._joined) == self._size:
            self.all_joined.set()
        return f"cmd=initack rc=0\ncmd=set size={self._size}\ncmd=set rank={rank}\ncmd=set debug=0\n"

    def _enter_barrier(self, writer: asyncio.StreamWriter) -> str:
        self._at_barrier.append(writer)
        if len(self._at_barrier) == self._size:
            for each in self._at_barrier:
                each.write(b"cmd=barrier_out rc=0\n")
            self._at_barrier = []
        return ""


def _fields(line: str) -> Dict[str, str]:
    """The names and values of a line; a value has no spaces."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


async def _listen(manager: ProcessManager, port: int) -> asyncio.AbstractServer:
    deadline = asyncio.get_running_loop().time() + _PORT_SECONDS
    while True:
        try:
            return await asyncio.start_server(manager.serve, port=port, backlog=_BACKLOG)
        except OSError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_POLL_SECONDS)


async def _run(port: int, size: int, job: str) -> None:
    parent = os.getppid()
    # Each rank has a connection, and a process may open 1,024 files by default.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    manager = ProcessManager(size, job)
    try:
        listening = await _listen(manager, port)
    except OSError as error:
        print(os.strerror(error.errno) if error.errno else error, flush=True)
        return
    print("listens", flush=True)
    # Nobody need wait for the end of the server to read the end of rank 0's output.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    while os.getppid() == parent and not manager.all_joined.is_set():
        await asyncio.sleep(_POLL_SECONDS)
    listening.close()
    while os.getppid() == parent:
        await asyncio.sleep(_POLL_SECONDS)
    deadline = asyncio.get_running_loop().time() + _LONGEST_LINGER_SECONDS
    while manager.connections and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
