"""Transfers run while the rest of the backward pass computes, under XLA: measured.

A transfer takes 100 ms, and the backward pass of each of the four layers longer. So of 400 ms only the last
one is waited for. What does it is the chain of starts: calls that each wait for their own result, which is
what an op for each tensor amounts to under jit_compile, have all of it exposed. (In graphs without XLA:
spmd/test_behind_the_backward_pass.py.)
"""

import os
import pathlib

import pytest
from harness import RunningJob

DELAY = 0.1
JOB = pathlib.Path(__file__).parent / "overlap_job.py"


@pytest.fixture(scope="module")
def exposed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMDDP_TEST_TRANSFER_DELAY_MS", str(int(DELAY * 1000)))
        patch.setenv("TF_XLA_FLAGS", f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit")
        with RunningJob(2, str(JOB)) as running:
            job = running.finish(240)
    assert job.exit_code == 0, str(job)
    print(job.reports[0]["exposed"])
    return job.reports[0]["exposed"]


@pytest.mark.parametrize("way", ["jit", "jit with overlap()", "auto-clustering with overlap()"])
def test_only_the_last_transfer_is_waited_for(exposed, way):
    assert exposed[way] < 3 * DELAY


def test_without_the_chain_all_are(exposed):
    assert exposed["jit, tensor by tensor"] > 3.5 * DELAY
