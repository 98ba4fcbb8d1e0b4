"""tests/gpu/lease_torch.py, what lease.sh runs with PyTorch on a GPU, on the CPU and beside Gloo."""

import pytest
from harness import ROOT, run_job

SCRIPT = str(ROOT / "tests" / "gpu" / "lease_torch.py")


def test_training_beside_torchs_backend():
    job = run_job(2, SCRIPT, "peer")
    assert job.exit_code == 0 and "figure: ms a step on cpu: ResNet" in job.output, str(job)


@pytest.mark.parametrize("how", ["kill", "stop", "throw"])
def test_a_rank_that_ends(how):
    job = run_job(2, SCRIPT, how)
    assert job.exit_code != 0 and "figure: in time" in job.output, str(job)
