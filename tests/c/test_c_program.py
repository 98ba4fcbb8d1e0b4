"""The example in C: it is compiled against smddp.h and libsmddp.so, and runs under smddprun.

This needs neither TensorFlow nor tf_smddp: only smddprun from the source tree, and psutil.
"""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "c" / "sum.c"
HEADERS = ROOT / "kernels" / "process"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


@pytest.fixture(scope="module")
def program(library, tmp_path_factory):
    """The compiled example."""
    path = tmp_path_factory.mktemp("c") / "sum"
    link = (f"-L{library.parent}", "-lsmddp", f"-Wl,-rpath,{library.parent}")
    subprocess.run(["gcc", "-std=c11", *STRICT, f"-I{HEADERS}", EXAMPLE, "-o", path, *link], check=True)
    return path


@pytest.mark.parametrize("size", [2, 3])
def test_under_smddprun(program, run, size):
    done = run(sys.executable, "-m", "smddprun", "-np", str(size), str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    total = size * (size - 1) // 2
    for rank in range(size):
        line = f"rank {rank} of {size}: the sum of element 0 is {total}, 0 elements are wrong"
        assert line in done.stdout, done.stdout + done.stderr


def test_alone(program, run):
    done = run(str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "rank 0 of 1: the sum of element 0 is 0, 0 elements are wrong\n"


def test_an_error_is_shown(program, run):
    done = run("env", "SMDDP_LOG_LEVEL=loud", str(program))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "smddp_init failed: SMDDP_LOG_LEVEL='loud'" in done.stderr


@pytest.mark.parametrize("standard", ["c99", "c11", "c17"])
def test_the_header_alone_in_c(tmp_path, standard):
    source = tmp_path / "header.c"
    source.write_text('#include "smddp.h"\n')
    subprocess.run(["gcc", f"-std={standard}", *STRICT, f"-I{HEADERS}", "-fsyntax-only", source], check=True)


def test_the_header_alone_in_cpp(tmp_path):
    source = tmp_path / "header.cc"
    source.write_text('#include "smddp.h"\n')
    subprocess.run(["g++", "-std=c++11", *STRICT, f"-I{HEADERS}", "-fsyntax-only", source], check=True)
