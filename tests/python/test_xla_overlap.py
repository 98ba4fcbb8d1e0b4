"""Transfers run while the rest of the backward pass computes, in graphs and under XLA: measured.

A transfer takes 200 ms, and the backward pass of each of the four layers longer. So of 800 ms only the last
one is waited for. What does it under jit_compile is the chain of starts: calls that each wait for their own
result, which is what an op for each tensor amounts to there, have all of it exposed.
"""

import os
import pathlib

import pytest
from harness import RunningJob

DELAY = 0.2
JOB = pathlib.Path(__file__).parent / "overlap_job.py"


@pytest.fixture(scope="module")
def exposed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_XLA_FLAGS", f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit")
        with RunningJob(2, str(JOB), str(int(DELAY * 1000))) as running:
            job = running.finish(240)
    assert job.exit_code == 0, str(job)
    print(job.reports[0]["exposed"])
    return job.reports[0]["exposed"]


@pytest.mark.parametrize("way", ["graph", "jit", "jit with overlap()", "auto-clustering with overlap()"])
def test_only_the_last_transfer_is_waited_for(exposed, way):
    # One, as a rule; where the machine is busy the last two gradients may come at once.
    assert exposed[way] < 2.5 * DELAY


def test_without_the_chain_all_are(exposed):
    assert exposed["jit, tensor by tensor"] > 3.5 * DELAY
