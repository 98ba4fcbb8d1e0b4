"""`smddprun --check` as a command. Most tests make up a tf_smddp, so that TensorFlow is not imported."""

import os
import pathlib
import signal
import sys

import pytest
from launcher_harness import PACKAGE_PARENT, processes_with, wait_until

import smddprun

FOUND = """
def found_libraries():
    from types import SimpleNamespace as Found
    names = ("CUDA driver", "NCCL", "MPI library")
    return {name: Found(found=False, text="there is none") for name in names}
"""
# Open MPI's launcher, as far as the check uses it. It starts its ranks on this host, and knows no host "bad".
MPIRUN = """#!/bin/sh
case "$*" in *--version*) echo "mpirun (Open MPI) 4.1.4"; exit ;; esac
case "$*" in *"-H bad:"*) echo "ssh: Could not resolve hostname bad" >&2; exit 255 ;; esac
while [ "$1" != {python} ]; do shift; done
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 exec "$@"
"""


@pytest.fixture
def made_up(tmp_path):
    """Returns a function that makes a tf_smddp, and returns the environment in which it is imported."""

    def make(found=FOUND, package="raise RuntimeError('no room; make some')\n", launcher=True):
        folder = tmp_path / "packages" / "tf_smddp"
        folder.mkdir(parents=True)
        (folder / "_build_info.py").write_text('TF_VERSION = "2.15.1"\n')
        (folder / "_smddp_ops.so").write_bytes(b"")
        # The self test imports TensorFlow before it imports tf_smddp.
        for name, text in (("tensorflow", package), ("tf_smddp", ""), ("smddp", found)):
            (folder.parent / name).mkdir(exist_ok=True)
            (folder.parent / name / "__init__.py").write_text(text)
        # Its version is in the metadata of distributions.
        for name, version in (("tensorflow", "2.15.0"), ("tf_smddp", smddprun.__version__)):
            info = folder.parent / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        programs = tmp_path / "bin"
        programs.mkdir()
        if launcher:
            (programs / "mpirun").write_text(MPIRUN.replace("{python}", sys.executable))
            (programs / "mpirun").chmod(0o755)
        return {
            "PATH": f"{programs}:/usr/bin:/bin" if launcher else str(programs),
            "PYTHONPATH": os.pathsep.join([str(folder.parent), PACKAGE_PARENT]),
            "CUDA_VISIBLE_DEVICES": "",
        }

    return make


def test_a_self_test_that_fails_is_a_problem_with_a_remedy(launcher, made_up):
    result = launcher.run("--check", env=made_up())
    output = "\n".join(result.lines)
    assert result.code == 1, output
    assert "  tf_smddp        " in output and "built for TensorFlow 2.15.1" in output, output
    assert "2.15.0 (package tensorflow), which fits tf_smddp" in output, output
    assert "  MPI launcher    Open MPI, " in output, output
    assert "  GPUs            none, so neither CUDA's driver nor NCCL is needed" in output, output
    assert sum("CUDA" in line or "NCCL" in line for line in result.lines) == 1, output
    assert "! self test       2 ranks were started, and 0 have the right results: exit code 1" in output, (
        output
    )
    assert "RuntimeError: no room; make some\n                  remedy: do what the error" in output, output
    assert result.lines[-1].startswith("1 problem: "), output


def test_a_tf_smddp_that_cannot_be_imported_is_said_once(launcher, made_up):
    environ = made_up(found="raise ImportError('built for another TensorFlow; install that one')\n")
    result = launcher.run("--check", env=environ)
    output = "\n".join(result.lines)
    assert result.code == 1 and result.messages == "", result.messages
    assert "! libraries " in output and "ImportError: built for another TensorFlow" in output, output
    assert "  self test       not run, since no job can start on " in output, output
    assert result.lines[-1].startswith("1 problem: "), output


def test_no_launcher_of_mpi_is_no_problem_on_one_host_and_one_on_several(launcher, made_up):
    environ = made_up(launcher=False)
    result = launcher.run("--check", env=environ)
    assert "  MPI launcher    none that can be used: " in "\n".join(result.lines), result.lines
    assert result.lines[-1].startswith("1 problem: "), result.lines
    result = launcher.run("--check", "-H", "a,b", env=environ)
    assert result.code == 1 and "! several hosts   " in "\n".join(result.lines), result.lines


def test_a_host_on_which_tensorflow_crashes_has_its_versions(launcher, made_up):
    result = launcher.run("--check", env=made_up(found="import os\nos.kill(os.getpid(), 4)\n"))
    output = "\n".join(result.lines)
    assert "which fits tf_smddp" in output and "  memory " in output, output
    assert "! libraries       the program that imports tf_smddp has failed: ended by signal 4" in output, (
        output
    )
    assert "  self test       not run, since no job can start on " in output, output


def test_verbose_shows_what_the_ranks_write(launcher, made_up):
    environ = made_up(package="import os\nprint(os.environ['A'])\n")
    result = launcher.run("--check", "-v", "-x", "A=hello", env=environ)
    output = "\n".join(result.lines)
    assert "  its output      of " in output and " -np 2 " in output and "| hello" in output, output


def test_a_host_that_cannot_be_reached_is_named(launcher, made_up):
    result = launcher.run("--check", "-H", "good:4,bad:4", env=made_up())
    output = "\n".join(result.lines)
    assert result.code == 1 and result.lines[0].startswith("through "), output
    # Several hosts need an MPI library; the made-up one finds none.
    assert "! MPI library     there is none" in output, output
    assert "bad:\n! report          none came from bad: exit code 255" in output, output
    assert "| ssh: Could not resolve hostname bad" in output and "'ssh bad true'" in output, output
    assert "  self test       not run, since no job can start on bad" in output, output


def test_a_self_test_that_hangs_is_ended(launcher, made_up):
    environ = made_up(package="import time\ntime.sleep(100)\n")
    result = launcher.run("--check", "--timeout", "2", env=environ)
    output = "\n".join(result.lines)
    assert result.code == 1 and "the test took longer than 2 s" in output, output
    assert "'--timeout 300'" in output, output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_check_with_all_that_it_has_started(launcher, made_up, number):
    running = launcher.start("--check", env=made_up(package="import time\ntime.sleep(100)\n"))

    def ranks() -> set[int]:
        # Other tests, which run at the same time, have ranks of jobs of two, too.
        return set(processes_with("SMDDP_SIZE", "2")) & set(launcher.leftovers())

    wait_until(lambda: len(ranks()) >= 2, "the ranks of the self test")
    running.signal(number)
    assert running.finish().code == 128 + number  # the fixture looks for processes that are left


@pytest.mark.parametrize(
    "rank",
    [
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_it_does_not_run_as_a_rank(launcher, rank):
    result = launcher.run("--check", env=rank)
    assert (result.code, result.stdout) == (2, b"")
    assert "run it outside of mpirun" in result.messages and result.messages.count("\n") == 1


def test_it_imports_no_tensorflow_in_its_own_process(launcher, made_up):
    program = (
        *(sys.executable, "-c"),
        "import sys; from smddprun.__main__ import main; main(); sys.exit('tensorflow' in sys.modules)",
    )
    assert launcher.run("--check", env=made_up(), program=program).code == 0


@pytest.mark.long
def test_this_host_has_no_problem(launcher):
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    result = launcher.start("--check", env={"PATH": path}).finish(150)
    output = "\n".join(result.lines)
    assert result.code == 0, output + result.messages
    for line in ("  tf_smddp ", "  TensorFlow ", "  MPI library ", "  GPUs  ", "  cores ", "  memory "):
        assert line in output, output
    assert "(CPU:0): each collective is right" in output, output
    assert result.lines[-1] == "no problem was found"
