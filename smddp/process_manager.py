"""Starts a process manager for MPI on rank 0, and has MPI ask it, where the launcher brings none.

Place in the stack: below runtime.py, whose init() it goes around. pmi_server.py is the process manager.
`mpiexec` and Slurm's pmi2 and pmix bring one; torchrun, horovodrun and a plain srun do not. On one host none
is needed, since MPI is not used there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Dict, Iterator, List, NamedTuple

from smddp.library import check, engine
from smddp.pmi_server import Names

_SERVER = pathlib.Path(__file__).with_name("pmi_server.py")
_TEXT_BYTES = 16384
_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 5.0
# MPI's libraries go by these. The agent of torchrun may itself be a rank of another launcher.
_VARIABLES = ("PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE", "PMIX_NAMESPACE", "PMIX_RANK")

# The process manager that this process has started; it lives as long as this process.
_started: List[subprocess.Popen[bytes]] = []
# Whether MPI has been initialised in this way. It stays so after shutdown().
_asked = False


class Place(NamedTuple):
    """Where the process manager of a job is, and who asks it.

    Attributes:
      host: The name or the address of rank 0's host.
      port: A TCP port there.
      rank: This process's index among the job's ranks.
      size: The number of ranks.
      seconds: How long a rank waits for the process manager.
      run_id: A text that tells the job from others. It may be a secret.
    """

    host: str
    port: int
    rank: int
    size: int
    seconds: int
    run_id: str

    @property
    def names(self) -> Names:
        """The names that follow from the job's id."""
        return Names.of(self.run_id, self.size)


@contextlib.contextmanager
def running() -> Iterator[None]:
    """While MPI is initialised in this context, it finds a process manager, if one of ours is needed.

    Raises:
        RuntimeError: The process manager could not be started, or did not answer in time; or the launcher's
          variables are wrong.
    """
    global _asked
    place = None if _asked else _place()
    if place is None:
        yield
        return
    server = _start(place) if place.rank == 0 else None
    try:
        _wait_for_answer(place)
        with _variables(
            {"PMI_PORT": f"{place.host}:{place.port}", "PMI_ID": str(place.rank ^ place.names.mask)}
        ):
            yield
    except BaseException:
        if server is not None:
            server.kill()
            server.wait()
        raise
    _asked = True
    if server is not None:
        _started.append(server)


def _place() -> Place | None:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    check(engine().smddp_process_manager(text, _TEXT_BYTES))
    lines = text.value.decode()
    if not lines:
        return None
    host, port, rank, size, seconds, run_id = lines.split("\n", 5)
    return Place(host, int(port), int(rank), int(size), int(seconds), run_id)


def _start(place: Place) -> subprocess.Popen[bytes]:
    """Starts the process manager. It ends by itself when this process and all that ask it have ended."""
    words = [sys.executable, "-S", "-E", str(_SERVER), place.host, str(place.port), str(place.size)]
    # In a session of its own, so that Ctrl-C leaves it alone: ranks that finish their work still need it.
    server = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
    )
    assert server.stdin is not None and server.stdout is not None
    # Not as an argument, which each user of the host may read.
    with contextlib.suppress(BrokenPipeError), server.stdin as its_input:
        its_input.write(place.run_id.encode())
    with server.stdout as output:
        said = output.read().decode(errors="replace").strip()
    if said == "listens":
        return server
    server.kill()
    server.wait()
    raise RuntimeError(
        f"rank 0 cannot listen at port {place.port} of its host for the other ranks: "
        f"{said or 'its program failed'}. Choose another port by MASTER_PORT, which is the one before it"
    )


def _wait_for_answer(place: Place) -> None:
    deadline = time.monotonic() + place.seconds
    while True:
        try:
            answer = _say_hello(place)
        except OSError as error:
            answer = str(error)
        if answer == f"cmd=hello_result job={place.names.job}":
            return
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    if answer.startswith("cmd=hello_result"):
        answer = "it is the one of another job"
    raise RuntimeError(
        f"rank {place.rank} has not found rank 0's process manager for MPI at {place.host}:{place.port} "
        f"within {place.seconds} s (SMDDP_BOOTSTRAP_TIMEOUT): {answer or 'no answer'}. Either rank 0 has not "
        "called init(), or MASTER_ADDR is not its host, or the hosts cannot reach each other"
    )


def _say_hello(place: Place) -> str:
    """Returns the answer of whoever listens there.

    Raises:
        OSError: Nobody does.
    """
    with socket.create_connection((place.host, place.port), _ANSWER_SECONDS) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(b"cmd=hello\n")
        return connection.makefile("rb").readline(1000).decode(errors="replace").strip()


@contextlib.contextmanager
def _variables(wanted: Dict[str, str]) -> Iterator[None]:
    """MPI's variables are these alone in this context; afterwards they are as before."""
    before = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    for name in before:
        del os.environ[name]
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)
        os.environ.update(before)
