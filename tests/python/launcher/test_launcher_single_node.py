"""smddpsinglenode starts the number of ranks that suits this host, and otherwise does what smddprun does."""

import pathlib
import sys

import pytest

from smddprun import __main__ as main
from smddprun import cores, gpus

SINGLE_NODE = (sys.executable, "-c", "import sys, smddprun.__main__ as m; sys.exit(m.single_node())")
FOUR_GPUS = ("null", "nvidia0", "nvidia1", "nvidia2", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-caps")
SHOW_RANK = ("bash", "-c", "echo $SMDDP_RANK of $SMDDP_SIZE $A")
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": ""}


def made_up_devices(folder, names):
    for name in names:
        (folder / name).touch()
    return str(folder)


@pytest.mark.parametrize(
    "visible,expected",
    [
        (None, 4),
        ("0,1,2,3", 4),
        ("3", 1),
        ("1, 2", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("0,4,1", 1),
        ("NoDevFiles", 0),
        ("GPU-8932f937,GPU-5a1b", 2),
        ("MIG-3,MIG-4,MIG-5,MIG-6,MIG-7", 5),
        ("²", 0),
    ],
)
def test_visible_gpus(tmp_path, visible, expected):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus.count(environ, made_up_devices(tmp_path, FOUR_GPUS)) == expected


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}])
def test_a_host_without_gpus(tmp_path, environ):
    assert gpus.count(environ, made_up_devices(tmp_path, ("null", "nvidiactl"))) == 0


@pytest.mark.parametrize("usable,expected", [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (96, 48)])
def test_ranks_that_fit_the_cores(usable, expected):
    assert cores.fitting_ranks(usable) == expected


@pytest.mark.parametrize(
    "num_gpus,usable,expected", [(8, 96, 8), (1, 96, 1), (0, 96, 48), (0, 256, 64), (0, 1, 1)]
)
def test_ranks_of_a_host(monkeypatch, num_gpus, usable, expected):
    monkeypatch.setattr(gpus, "count", lambda environ: num_gpus)
    monkeypatch.setattr(cores, "usable", lambda: usable)
    assert main._ranks_of_this_host({}) == expected


def test_one_rank_for_each_two_cores(launcher):
    size = cores.fitting_ranks(cores.usable())
    result = launcher.run("--tag-output", "-x", "A=x", *SHOW_RANK, program=SINGLE_NODE, env=CPU_ONLY)
    assert result.code == 0, result.messages
    assert sorted(result.lines) == sorted(f"[{rank}] {rank} of {size} x" for rank in range(size))


def test_np_counts_more_than_the_host(launcher):
    result = launcher.run("-np", 3, *SHOW_RANK, program=SINGLE_NODE, env=CPU_ONLY)
    assert sorted(result.lines) == ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]


@pytest.mark.parametrize(
    "rank",
    [
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
    ],
    ids=["mpirun", "mpiexec", "srun"],
)
def test_in_a_rank_of_an_mpi_launcher_it_becomes_the_command(launcher, rank):
    running = launcher.start(
        "-x", "A=x", "bash", "-c", "echo $$ $SMDDP_RANK- $A; exit 5", program=SINGLE_NODE, env=rank
    )
    result = running.finish()
    assert (result.code, result.lines, result.stderr) == (5, [f"{running.pid} - x"], b"")


def test_the_command_is_installed(launcher):
    command = pathlib.Path(sys.executable).with_name("smddpsinglenode")
    result = launcher.run("-np", 1, *SHOW_RANK, program=(str(command),))
    assert result.lines == ["0 of 1"]
