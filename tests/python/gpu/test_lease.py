"""tests/gpu/lease.sh, its steps with TensorFlow, on one pretend GPU. Bazel runs those in C++ (lease_test)."""

import pathlib
import subprocess

import pytest
from pretend_gpu import FOLDER

ROOT = pathlib.Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.pretend_gpu, pytest.mark.long]


def test_the_steps_with_tensorflow(gpus, monkeypatch, tmp_path):
    gpus(1)
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FOLDER))
    ended = subprocess.run(
        [ROOT / "tests" / "gpu" / "lease.sh", "run", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    logs = "\n".join(log.read_text() for log in (tmp_path / "lease").glob("*.log"))
    assert ended.returncode == 0, ended.stdout + ended.stderr + logs
    rows = [row for row in ended.stdout.splitlines() if row.startswith("| tensorflow: ")]
    names = {"training", "the same bits twice", "kill a rank", "stop a rank", "throw a rank", "little memory"}
    assert {row.split("|")[1].strip() for row in rows} == {f"tensorflow: {name}" for name in names}
    assert all("| right |" in row for row in rows), ended.stdout
