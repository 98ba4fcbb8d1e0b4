"""Ranks that Open MPI's mpirun and MPICH's mpiexec start."""

import os
import pathlib
import signal
import sys
import time

import mpi_launchers
import pytest
from foreign_jobs import check_digits, check_who, digits


def words_of(pid):
    """Returns the command line of a process."""
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


@pytest.mark.long
@pytest.mark.parametrize("launcher", [mpi_launchers.open_mpi, mpi_launchers.mpich])
def test_two_jobs_of_the_example_at_once(bench, launcher):
    jobs = [bench.start(*launcher("-np", "2"), *digits("--seed", seed)) for seed in (1, 2)]
    for job in jobs:
        check_digits(job.finish())


def test_through_a_shell(bench):
    # The run is identified only by the launcher's process, and bash is between it and the rank.
    script = f"{sys.executable} {bench.who} shell; exit $?"
    check_who(bench.run(*mpi_launchers.mpich("-np", "3"), "bash", "-c", script), "shell", 3)


def test_a_rank_that_is_killed_while_it_waits_leaves_nothing_that_disturbs(bench):
    # Rank 1 never comes, and rank 0 is killed.
    script = '[ "$PMI_RANK" = 0 ] || exec sleep 100; exec "$0" "$@"'
    job = bench.start(
        *mpi_launchers.mpich("-np", "2"), "bash", "-c", script, sys.executable, bench.who, "killed"
    )
    deadline = time.monotonic() + 60
    while not [place for place in bench.meeting_places() if place.endswith("/bootstrap")]:
        assert time.monotonic() < deadline, job.output()
        time.sleep(0.05)
    # The words of mpiexec end in the same, but begin with others.
    rank_0 = [pid for pid in bench.processes() if words_of(pid) == [sys.executable, str(bench.who), "killed"]]
    assert len(rank_0) == 1
    os.kill(rank_0[0], signal.SIGKILL)
    assert job.finish().code != 0
    assert bench.meeting_places(), "the killed rank could not remove its place"
    # The next run meets in another directory, and removes this one.
    check_who(bench.run(*mpi_launchers.mpich("-np", "2"), sys.executable, bench.who, "next"), "next")


# It executes its arguments in rank 0, without SMDDP_*. smddprun also sets the variables of Open MPI and of
# torchrun, for scripts that read them.
NESTED = """
unset ${!SMDDP_@}
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
if [ "$1" = alone ]; then unset ${!OMPI_COMM_WORLD_@} RANK WORLD_SIZE; fi
shift
exec "$@"
"""


def smddprun(*words):
    return [
        sys.executable,
        "-m",
        "smddprun",
        "-np",
        "2",
        "--no-tag-output",
        "bash",
        "-c",
        NESTED,
        "bash",
        *words,
    ]


@pytest.mark.long
@pytest.mark.parametrize("launcher", [mpi_launchers.open_mpi, mpi_launchers.mpich])
def test_a_job_of_mpi_inside_a_rank_of_smddprun(bench, launcher):
    words = [*launcher("-np", "3"), sys.executable, bench.who, "nested"]
    check_who(bench.run(*smddprun("nested", *words), SMDDP_BOOTSTRAP_TIMEOUT="60"), "nested", 3)


def test_a_process_alone_inside_a_rank_of_smddprun(bench):
    words = [sys.executable, bench.who, "one"]
    check_who(bench.run(*smddprun("alone", *words)), "one", 1)
    ended = bench.run(*smddprun("", *words))
    assert ended.code == 1
    assert "remove OMPI_COMM_WORLD_*, RANK and WORLD_SIZE together with SMDDP_*" in ended.output, ended.output
