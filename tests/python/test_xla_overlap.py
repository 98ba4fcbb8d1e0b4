"""Transfers run while the rest of the backward pass computes, in graphs and under XLA: measured.

In one job a transfer takes 200 ms, and the backward pass of each of the four layers longer. So of 800 ms only
the last one is waited for: the transfers start when their gradients are there, not at the end. In the other
a transfer takes much longer than all layers. So the gradients come while the first is under way: none waits
for the one before. The chain of starts does it under jit_compile: calls that each wait for their own
result, which is what an op for each tensor amounts to there, have all of it exposed.
"""

import os
import pathlib

import pytest
from harness import RunningJob

DELAY = 0.2
# Usually one transfer is exposed; in TensorFlow 2.21 the last two gradients are computed together.
MOST_EXPOSED = 2.5 * DELAY
LONG_DELAY = 0.6
JOB = pathlib.Path(__file__).parent / "overlap_job.py"
WAYS = ["graph", "jit", "jit with overlap()", "auto-clustering with overlap()"]


def measured(measure, delay, rows, enough):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_XLA_FLAGS", f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit")
        arguments = (measure, str(int(delay * 1000)), str(rows), str(enough))
        with RunningJob(2, str(JOB), *arguments) as running:
            job = running.finish(200)
    assert job.exit_code == 0, str(job)
    print(job.reports[0][measure])
    return job.reports[0][measure]


@pytest.fixture(scope="module")
def exposed():
    return measured("exposed", DELAY, rows=8192, enough=MOST_EXPOSED)


@pytest.fixture(scope="module")
def waited_for():
    return measured("waited for", LONG_DELAY, rows=64, enough=1)


@pytest.mark.parametrize("way", WAYS)
def test_only_the_last_transfer_is_waited_for(exposed, way):
    assert exposed[way] < MOST_EXPOSED


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_no_gradient_waits_for_the_transfer_before(waited_for, way):
    assert waited_for[way] == 0


def test_without_the_chain_all_transfers_are_exposed(exposed):
    assert exposed["jit, tensor by tensor"] > 3.5 * DELAY


@pytest.mark.long
def test_without_the_chain_all_are_waited_for(waited_for):
    assert waited_for["jit, tensor by tensor"] == 3
