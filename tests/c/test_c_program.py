"""The example in C: it is compiled against smddp.h and libsmddp.so, and runs under smddprun.

This needs neither TensorFlow nor tf_smddp: only smddprun from the source tree, and psutil.
"""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "c" / "sum.c"
HEADERS = ROOT / "kernels" / "process"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
LIMIT_SECONDS = 60


def bazel(*words):
    """Runs Bazel; returns what it prints."""
    line = [sys.executable, str(ROOT / "tools" / "run_bazel.py"), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The compiled example."""
    bazel("build", "//kernels/process:libsmddp.so")
    library = pathlib.Path(bazel("info", "bazel-bin"), "kernels", "process")
    path = tmp_path_factory.mktemp("c") / "sum"
    link = (f"-L{library}", "-lsmddp", f"-Wl,-rpath,{library}")
    subprocess.run(["gcc", "-std=c11", *STRICT, f"-I{HEADERS}", EXAMPLE, "-o", path, *link], check=True)
    return path


def run(folder, *words):
    """Runs a command where TensorFlow cannot be imported."""
    (folder / "tensorflow.py").write_text("raise ImportError('this test is without TensorFlow')\n")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SMDDP_")}
    env = {**ours, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )


@pytest.mark.parametrize("size", [2, 3])
def test_under_smddprun(program, tmp_path, size):
    done = run(tmp_path, sys.executable, "-m", "smddprun", "-np", str(size), str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    total = size * (size - 1) // 2
    for rank in range(size):
        line = f"rank {rank} of {size}: the sum of element 0 is {total}, 0 elements are wrong"
        assert line in done.stdout, done.stdout + done.stderr


def test_alone(program, tmp_path):
    done = run(tmp_path, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "rank 0 of 1: the sum of element 0 is 0, 0 elements are wrong\n"


def test_an_error_is_shown(program, tmp_path):
    done = run(tmp_path, "env", "SMDDP_LOG_LEVEL=loud", str(program))
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
