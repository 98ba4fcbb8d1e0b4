"""A process manager for MPI: the server that the ranks' MPI libraries ask, where the launcher brings none.

Run as a program by the job's rank 0 (process_manager.py): `python pmi_server.py HOST PORT SIZE`, with the
job's id as input. It imports no framework and nothing of this package, so that it starts at once.

While a rank initialises MPI, its library asks a process manager for its rank and size, and for the addresses
of the others. `mpiexec` and Slurm's pmi2 are such managers; torchrun and a plain srun bring none. The
protocol is PMI-1 of MPICH's family, lines of NAME=VALUE ("PMI: A Scalable Parallel Process-Management
Interface", Balaji et al., EuroMPI 2010; the lines are those of MPICH's "simple" PMI).

Whoever reaches the port may connect, so a connection may do nothing but ask which job this is, or join as a
rank. A rank joins with a number that follows from the job's id: who does not know the id has to guess it.

It listens until all ranks have joined, and then closes all other connections. After the end of rank 0, its
parent, it ends when all connections are closed, or 15 seconds later.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import resource
import secrets
import socket
import sys
from typing import Dict, NamedTuple, Optional, Set, Tuple

# How long ranks that are alive may keep the server after the end of rank 0, which has started it.
_LONGEST_LINGER_SECONDS = 15.0
_POLL_SECONDS = 0.2
# An earlier attempt's server listens until it has seen its parent's end.
_PORT_SECONDS = 5.0
# All ranks may connect at once.
_BACKLOG = 4096
# A connection that has not joined may say nothing for so long. When there are more of them than this, and
# than there are ranks, the oldest is closed.
_SILENT_SECONDS = 10.0
_MOST_STRANGERS = 256
# MPICH's library goes by the first three. It puts a few values for each rank.
_MOST_CHARACTERS = {"kvsname_max": 256, "keylen_max": 256, "vallen_max": 1024}
_MOST_BYTES_OF_LINE = 2048
_MOST_VALUES_OF_RANK = 512


class Names(NamedTuple):
    """The names that follow from a job's id.

    Attributes:
      job: The name that the server tells to everybody. A rank compares it with its own.
      mask: Rank r joins as number r ^ mask.
    """

    job: str
    mask: int

    @classmethod
    def of(cls, run_id: str, size: int) -> Names:
        """The names of a job with so many ranks."""
        digest = hashlib.sha256(f"{run_id} {size}".encode()).digest()
        # MPI's library reads the number as an int.
        return cls(digest[:16].hex(), int.from_bytes(digest[16:20], "big") >> 1)


class ProcessManager:
    """The values that the ranks of one job have told, and their questions."""

    def __init__(self, size: int, names: Names) -> None:
        """Makes a manager that nobody has asked."""
        self._size = size
        self._names = names
        # MPICH derives the names of files in /dev/shm from it.
        self._space = f"smddp_{secrets.token_hex(8)}"
        # By key: the rank that has put it, and the value.
        self._values: Dict[str, Tuple[int, str]] = {}
        self._numbers_of_values = [0] * size
        self._joined: Dict[int, asyncio.StreamWriter] = {}
        self._at_barrier: Set[int] = set()
        # The connections that have not joined, the oldest first.
        self._strangers: Dict[asyncio.StreamWriter, None] = {}
        self.connections = 0
        self.all_joined = False
        # The text of an error that ends the job.
        self.error = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the lines of one connection, until its end."""
        self.connections += 1
        self._strangers[writer] = None
        if len(self._strangers) > _MOST_STRANGERS + self._size:
            self._close(next(iter(self._strangers)))
        try:
            line = await asyncio.wait_for(reader.readline(), _SILENT_SECONDS)
            fields = _fields(line)
            if fields.get("cmd") == "hello":
                writer.write(f"cmd=hello_result job={self._names.job}\n".encode())
                await writer.drain()
            elif fields.get("cmd") == "initack":
                rank = self._join(int(fields["pmiid"]) ^ self._names.mask, writer)
                if rank is not None:
                    await self._serve_rank(rank, reader, writer)
        except (ConnectionError, ValueError, KeyError, asyncio.TimeoutError):
            return  # The process has died, or is no rank: nothing is left to answer.
        finally:
            self.connections -= 1
            self._close(writer)

    async def _serve_rank(
        self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answers = ["initack rc=0", f"set size={self._size}", f"set rank={rank}", "set debug=0"]
        answer: Optional[str] = "".join(f"cmd={line}\n" for line in answers)
        while answer is not None:
            writer.write(answer.encode())
            await writer.drain()
            line = await reader.readline()
            answer = self._answer(rank, _fields(line)) if line else None

    def _answer(self, rank: int, fields: Dict[str, str]) -> Optional[str]:
        """The answer to a line of a rank; None if the connection is to be closed."""
        command = fields.get("cmd")
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
            return self._put(rank, fields["key"], fields["value"])
        if command == "get":
            if fields["key"] not in self._values:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
            return f"cmd=get_result rc=0 msg=success value={self._values[fields['key']][1]}\n"
        if command == "barrier_in":
            return self._enter_barrier(rank)
        if command == "finalize":
            return "cmd=finalize_ack rc=0\n"
        return None

    def _join(self, rank: int, writer: asyncio.StreamWriter) -> Optional[int]:
        """Returns the rank that the connection is from now on; None if it is none."""
        if not 0 <= rank < self._size or writer not in self._strangers:
            return None
        if rank in self._joined:
            first, second = _address(self._joined[rank]), _address(writer)
            self.error = (
                f"rank {rank} has come twice to MPI's process manager, from {first} and from {second}. "
                "Either two processes were given the same rank, or one of them is no rank of this job. The "
                "job ends."
            )
            return None
        del self._strangers[writer]
        self._joined[rank] = writer
        if len(self._joined) == self._size:
            self.all_joined = True
            for stranger in list(self._strangers):
                self._close(stranger)
        return rank

    def _put(self, rank: int, key: str, value: str) -> Optional[str]:
        too_long = len(key) > _MOST_CHARACTERS["keylen_max"] or len(value) > _MOST_CHARACTERS["vallen_max"]
        if too_long or self._values.get(key, (rank, ""))[0] != rank:
            return None
        if key not in self._values:
            self._numbers_of_values[rank] += 1
            if self._numbers_of_values[rank] > _MOST_VALUES_OF_RANK:
                return None
        self._values[key] = (rank, value)
        return "cmd=put_result rc=0 msg=success\n"

    def _enter_barrier(self, rank: int) -> str:
        self._at_barrier.add(rank)
        if len(self._at_barrier) == self._size:
            for each in self._at_barrier:
                self._joined[each].write(b"cmd=barrier_out rc=0\n")
            self._at_barrier.clear()
        return ""

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._strangers.pop(writer, None)
        writer.close()


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return f"{peer[0]} port {peer[1]}" if peer else "an address that is gone"


def _fields(line: bytes) -> Dict[str, str]:
    """The names and values of a line; a value has no spaces."""
    return dict(word.split("=", 1) for word in line.decode("utf-8", "replace").split() if "=" in word)


def _addresses_of(host: str) -> Optional[Set[str]]:
    """The addresses of this host by which the other hosts know it; None if its name does not tell."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return None
    for address in found:
        # A host may know itself as 127.0.1.1, and its name may lead to a gateway's address.
        if ipaddress.ip_address(address.partition("%")[0]).is_loopback or not _is_of_this_host(address):
            return None
    return found


def _is_of_this_host(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


async def _listen(manager: ProcessManager, host: str, port: int) -> asyncio.AbstractServer:
    deadline = asyncio.get_running_loop().time() + _PORT_SECONDS
    addresses = _addresses_of(host)
    while True:
        try:
            return await asyncio.start_server(
                manager.serve,
                addresses,  # type: ignore[arg-type]  # typeshed has no collections here
                port,
                backlog=_BACKLOG,
                limit=_MOST_BYTES_OF_LINE,
            )
        except OSError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_POLL_SECONDS)


async def _run(host: str, port: int, size: int, run_id: str) -> None:
    parent = os.getppid()
    logging.disable()
    # Each rank has a connection, and a process may open 1,024 files by default.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    manager = ProcessManager(size, Names.of(run_id, size))
    try:
        listening = await _listen(manager, host, port)
    except OSError as error:
        print(os.strerror(error.errno) if error.errno else error, flush=True)
        return
    print("listens", flush=True)
    # Nobody need wait for the end of the server to read the end of rank 0's output.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    while os.getppid() == parent and not manager.all_joined and not manager.error:
        await asyncio.sleep(_POLL_SECONDS)
    listening.close()
    if manager.error:
        print(f"[tf_smddp rank 0 error] {manager.error}", file=sys.stderr, flush=True)
        return
    os.dup2(nowhere, 2)
    while os.getppid() == parent:
        await asyncio.sleep(_POLL_SECONDS)
    deadline = asyncio.get_running_loop().time() + _LONGEST_LINGER_SECONDS
    while manager.connections and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.stdin.read()))
