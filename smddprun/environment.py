"""What a rank finds in its environment, and which launcher this process itself was started by. Pure.

The names are a contract with the engine (`kernels/common/config.cc`); docs/launcher.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

JOB_ID = "SMDDP_JOB_ID"

# Variables by which math libraries and TensorFlow size their thread pools, where the program doesn't say.
# Checked in TensorFlow 2.15.1 and 2.21.0: TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS are its defaults.
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

# (rank, size) as launchers set them for a process that they started. Both must be there: conda, for one,
# exports PMI_* leftovers. The last is our own: `smddprun` inside a rank, without -np, must not start another
# job.
_RANK_AND_SIZE = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_NAMESPACE"),
    ("SMDDP_RANK", "SMDDP_SIZE"),
)


class Place(NamedTuple):
    """Where a rank stands: in the whole job, and among the ranks of its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def places_on_this_host(num_ranks: int) -> list[Place]:
    """The places of this host's ranks, in rank order. The job is this host alone."""
    return [Place(rank, num_ranks, rank, num_ranks) for rank in range(num_ranks)]


def outer_launcher(environ: Mapping[str, str]) -> str | None:
    """The variable that shows that a launcher started this process as one of its ranks; None: none did."""
    for rank, size in _RANK_AND_SIZE:
        if environ.get(rank) and environ.get(size):
            return rank
    # Slurm's tasks only count in a step of several: in a bare sbatch shell one process runs, whatever they
    # say.
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if environ.get("SLURM_PROCID") and tasks.isdecimal() and int(tasks) > 1:
        return "SLURM_PROCID"
    return None


def new_job_id(environ: Mapping[str, str], token: str) -> str:
    """The id of a new job. A job started inside a rank of another has an id that begins with the other's."""
    outer = environ.get(JOB_ID)
    return f"{outer}.{token}" if outer else token


def belongs_to_job(environ: Mapping[str, str], job_id: str) -> bool:
    """Whether a process with this environment was started by the job, or by a job started inside it."""
    found = environ.get(JOB_ID, "")
    return found == job_id or found.startswith(job_id + ".")


def with_exports(environ: Mapping[str, str], exports: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The environment with the `-x NAME=VALUE` of the command line applied (`-x NAME` changes nothing)."""
    return {**environ, **{name: value for name, value in exports if value is not None}}


def job_environment(environ: Mapping[str, str], threads: int, threads_forced: bool) -> dict[str, str]:
    """What is the same for all ranks, as far as it needs no knowledge of this run.

    Args:
      environ: the launcher's environment.
      threads: threads for each rank.
      threads_forced: the user gave the number, so it counts more than variables that are set already.
    """
    result = dict(environ)
    # Output must not be held back: a failing rank's last words are the ones that matter.
    result.setdefault("PYTHONUNBUFFERED", "1")
    for name in _THREADS:
        # Two inter-op threads at least: our own ops never block one, but a user's py_function may, and with a
        # single thread nothing else would run meanwhile.
        value = max(2, threads) if name == "TF_NUM_INTEROP_THREADS" else threads
        if threads_forced or not result.get(name):
            result[name] = str(value)
    return result


def rank_environment(
    environ: Mapping[str, str], place: Place, rendezvous: str, job_id: str
) -> dict[str, str]:
    """The complete environment of one rank."""
    return {
        **environ,
        "SMDDP_RANK": str(place.rank),
        "SMDDP_SIZE": str(place.size),
        "SMDDP_LOCAL_RANK": str(place.local_rank),
        "SMDDP_LOCAL_SIZE": str(place.local_size),
        "SMDDP_RENDEZVOUS": rendezvous,
        JOB_ID: job_id,
    }
