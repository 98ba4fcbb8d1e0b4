"""The environment of a rank, and how the launcher recognises that it runs under another one. Pure.

The names are a contract with the engine (`kernels/common/config.cc`); docs/launcher.md lists them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from smddprun import rank_notes

JOB_ID = "SMDDP_JOB_ID"
_RENDEZVOUS = "SMDDP_RENDEZVOUS"

# A rank finds its numbers under two prefixes: ours, and Open MPI's. SMDDP's launcher started the ranks with
# Open MPI, so scripts that were written for it read OMPI_COMM_WORLD_LOCAL_RANK. Open MPI itself and mpi4py
# take no rank from them (docs/launcher.md says what was tried).
_PREFIXES = ("SMDDP", "OMPI_COMM_WORLD")
_NUMBERS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
# And as torch's env:// calls them. Scripts for torch read LOCAL_RANK.
_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_FIRST_PORT, _NUM_PORTS = 20000, 10000  # below those that Linux gives to outgoing connections

# Math libraries and TensorFlow take the sizes of their thread pools from these variables, unless the program
# sets them. For the last two this was checked in TensorFlow 2.15.1 and 2.21.0.
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

# The variables of each launcher: rank, size, local rank, local size. A launcher counts only if the first two
# are set, because conda environments export some PMI_*. The last ones are our own: `smddprun` without -np
# inside a rank must not start another job.
_LAUNCHERS = (
    tuple(f"OMPI_COMM_WORLD_{name}" for name in _NUMBERS),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    tuple(f"MV2_COMM_WORLD_{name}" for name in _NUMBERS),
    ("PMIX_RANK", "PMIX_NAMESPACE"),
    tuple(f"SMDDP_{name}" for name in _NUMBERS),
)

# A Slurm step's: rank, size, local rank, the node's number, the tasks of each node, the ids of job and step.
_SLURM = (
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"),
    *("SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID"),
)


class Place(NamedTuple):
    """The place of a rank in the whole job, and among the ranks of its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    task: str = ""  # such as "ps 0", in a job with parameter servers

    @property
    def name(self) -> str:
        """What the launcher calls it: "rank 3" or "ps 0"."""
        return self.task or f"rank {self.rank}"


def places_on_this_host(num_ranks: int, tasks: Sequence[str] = ()) -> list[Place]:
    """The places of this host's ranks, in rank order. The job is this host alone."""
    return [
        Place(rank, num_ranks, rank, num_ranks, task) for rank, task in enumerate(tasks or [""] * num_ranks)
    ]


def outer_launcher(environ: Mapping[str, str]) -> str | None:
    """Returns the variable that shows that a launcher started this process as a rank, or None."""
    for rank, size, *_ in _LAUNCHERS:
        if environ.get(rank) and environ.get(size):
            return rank
    # SLURM_PROCID counts only in a step of several tasks. The shell of sbatch has it too, and is one process.
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if environ.get("SLURM_PROCID") and tasks.isdecimal() and int(tasks) > 1:
        return "SLURM_PROCID"
    return None


def with_torch_variables(environ: Mapping[str, str], parent: int) -> dict[str, str]:
    """Returns the environment of a rank of mpirun or srun with what torch's env:// reads, unless RANK is set.

    Under mpirun on several hosts MASTER_ADDR stays unset: no variable names the first rank's host.

    Args:
      environ: the rank's.
      parent: the process that has started it. It names a run of a launcher that sets no id; all ranks are on
        one host then.
    """
    if environ.get("RANK"):
        return dict(environ)
    numbers, run = numbers_of_launcher(environ)
    if not numbers:
        return dict(environ)
    result = {**environ, **dict(zip(_TORCH, numbers))}
    if numbers[1] == numbers[3]:
        address = "127.0.0.1"
    else:  # Slurm's list, such as gpu[01-04,07],big
        first = re.match(r"([^,[]+)\[?(\w*)", environ.get("SLURM_STEP_NODELIST", ""))
        address = "" if first is None else "".join(first.groups())
    if address and not environ.get("MASTER_ADDR"):
        result["MASTER_ADDR"] = address
    if not environ.get("MASTER_PORT"):
        result["MASTER_PORT"] = str(_FIRST_PORT + zlib.crc32((run or str(parent)).encode()) % _NUM_PORTS)
    return result


def numbers_of_launcher(environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Returns rank, size, local rank and local size, and the run's id, or none of them."""
    for names in _LAUNCHERS:
        values = [environ.get(name, "") for name in names]
        if len(values) == len(_TORCH) and all(value.isdecimal() for value in values):
            return values, environ.get("PMIX_NAMESPACE", "")
    rank, size, local_rank, node, tasks_per_node, job, step = (environ.get(name, "") for name in _SLURM)
    if outer_launcher(environ) != _SLURM[0] or not (local_rank and node and tasks_per_node):
        return [], ""
    tasks: list[str] = []  # of each node; 2(x3),1 are 2, 2, 2 and 1
    for part in tasks_per_node.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        tasks += [count] * int(times or 1)
    return [rank, size, local_rank, tasks[int(node)]], f"{job}.{step}"


def with_torch_store(environ: Mapping[str, str], address: str, port: int) -> dict[str, str]:
    """Returns the environment with the address at which rank 0 listens, if the script uses torch's env://.

    The user's own MASTER_ADDR and MASTER_PORT count more than these. Those of a job in which the launcher is
    a rank itself are not the user's own.
    """
    own = {name: environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if environ.get(name)}
    if outer_launcher(environ) or environ.get("TORCHELASTIC_RUN_ID"):
        own = {}
    result = {**environ, "MASTER_ADDR": address, "MASTER_PORT": str(port), **own}
    # torchrun sets it in its ranks: its agent listens there, not rank 0.
    result.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return result


def new_job_id(environ: Mapping[str, str], token: str) -> str:
    """Returns the id of a new job. If a rank of another job starts it, the id begins with the other's id."""
    outer = environ.get(JOB_ID)
    return f"{outer}.{token}" if outer else token


def belongs_to_job(environ: Mapping[str, str], job_id: str) -> bool:
    """Whether a process with this environment was started by the job, or by a job started inside it."""
    found = environ.get(JOB_ID, "")
    return found == job_id or found.startswith(job_id + ".")


def with_exports(environ: Mapping[str, str], exports: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Applies the `-x NAME=VALUE` of the command line. `-x NAME` changes nothing."""
    return {**environ, **{name: value for name, value in exports if value is not None}}


def without_rank(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process that is no rank, though a launcher has started it as one."""
    of_ranks = {
        *(name for names in _LAUNCHERS for name in names),
        *_TORCH,
        _SLURM[0],
        _RENDEZVOUS,
        rank_notes.VARIABLE,
    }
    return {name: value for name, value in environ.items() if name not in of_ranks}


def job_environment(environ: Mapping[str, str], threads: int, threads_forced: bool) -> dict[str, str]:
    """Returns the part of the environment that is the same on all ranks and in all runs.

    Args:
      environ: the launcher's environment.
      threads: threads for each rank.
      threads_forced: whether `threads` overrides variables that are set already, since the user gave it.
    """
    result = dict(environ)
    # Python's buffer would hold back the last lines of a rank that crashes.
    result.setdefault("PYTHONUNBUFFERED", "1")
    for name in _THREADS:
        # A user's py_function may block an inter-op thread. Other ops need a second one to run meanwhile.
        value = max(2, threads) if name == "TF_NUM_INTEROP_THREADS" else threads
        if threads_forced or not result.get(name):
            result[name] = str(value)
    return result


def rank_environment(
    environ: Mapping[str, str], place: Place, rendezvous: str, job_id: str
) -> dict[str, str]:
    """Returns the complete environment of one rank."""
    names = [*([f"{prefix}_{name}" for name in _NUMBERS] for prefix in _PREFIXES), _TORCH]
    return {
        **environ,
        **{name: str(number) for each in names for name, number in zip(each, place)},
        _RENDEZVOUS: rendezvous,
        JOB_ID: job_id,
    }
