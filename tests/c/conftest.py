"""What the tests share: libsmddp.so, and commands that run where there is no TensorFlow."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60


def bazel(*words):
    """Runs Bazel; returns what it prints."""
    line = [sys.executable, str(ROOT / "tools" / "run_bazel.py"), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def library():
    """The path of libsmddp.so."""
    bazel("build", "//kernels/process:libsmddp.so")
    return pathlib.Path(bazel("info", "bazel-bin"), "kernels", "process", "libsmddp.so")


@pytest.fixture
def run(tmp_path):
    """Runs a command where TensorFlow cannot be imported, and smddprun and smddp are those of this tree."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('this test is without TensorFlow')\n")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SMDDP_")}
    env = {**ours, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}

    def run_words(*words):
        return subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )

    return run_words
