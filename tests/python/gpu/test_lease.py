"""tests/gpu/lease.sh, its steps with TensorFlow, on one pretend GPU. Bazel runs those in C++ (lease_test)."""

import pathlib
import subprocess

import pytest
from pretend_gpu import FOLDER, first_and_long

ROOT = pathlib.Path(__file__).resolve().parents[3]
STEPS = [
    "training",
    "starts under XLA",
    "cuda_malloc_async",
    "the same bits twice",
    "kill a rank",
    "stop a rank",
    "throw a rank",
    "little memory",
]
FAULTS = [f"NCCL with {fault}" for fault in ("init_fails:1", "kernel_hangs:0", "wrong_sums:1")]


@pytest.mark.pretend_gpu
@pytest.mark.parametrize("step", first_and_long([*STEPS, *FAULTS]))
def test_the_steps_with_tensorflow(gpus, monkeypatch, tmp_path, step):
    gpus(1)
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FOLDER))
    ended = subprocess.run(
        [ROOT / "tests" / "gpu" / "lease.sh", "run", tmp_path, step],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=160,
        check=False,
    )
    rows = [row for row in ended.stdout.splitlines() if row.startswith(f"| tensorflow: {step} | right |")]
    assert ended.returncode == 0 and rows, ended.stdout + ended.stderr
