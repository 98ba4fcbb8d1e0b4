"""Ranks that do different things: every rank gets an error at once that shows both sides, and can go on."""

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

# One job for all cases: after each error the ranks go on, and the next collectives pair up.
BEGIN = """
SUM, MAX = sdp.ReduceOp.SUM, sdp.ReduceOp.MAX
sdp.init()
rank = sdp.rank()
weight = tf.Variable(tf.zeros([5]), name="weight")
assert sdp.allreduce(1.0, 0, 1, op=SUM) == sdp.size()

@tf.function
def step(n):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight[:n] * tf.ones([n]))
    return sdp.DistributedGradientTape(tape).gradient(loss, [weight] * (1 + rank))
"""

# Runs `bad`, and reports its error with the time that it took.
CASE = """
sdp.barrier()
begin, found = time.monotonic(), {{"error": "none"}}
try:
    {bad}
except tf.errors.OpError as error:
    found = {{"type": type(error).__name__, "error": error.message}}
found["seconds"] = time.monotonic() - begin
# Nobody has missed a step, so the next ones pair up.
found["later"] = [float(sdp.allreduce(i + rank, 0, 1)) for i in (1.0, 2.0)]
report("{case}", found)
"""

CASES = {
    "shape": (
        "sdp.allreduce(tf.zeros([2, 3 + rank]), 0, 1, name='my_tensor')",
        ["my_tensor", "[2, 3]", "[2, 4]"],
    ),
    "dtype": (
        "sdp.allreduce(tf.zeros([4], tf.float32 if rank else tf.int64), 0, 1)",
        ["float32", "int64"],
    ),
    "operation": ("sdp.allreduce(tf.zeros([4]), 0, 1, op=MAX if rank else SUM)", ["sum", "max"]),
    "root": ("sdp.broadcast(tf.zeros([4]), rank)", ["root 0", "root 1"]),
    "number of gradients": ("step(5)", ["of 1", "of 2", "weight"]),
    "one collective more": (
        "[sdp.allreduce(tf.zeros([7]), 0, 1) for _ in range(rank)]; sdp.allreduce(tf.zeros([9]), 0, 1)",
        ["[7]", "[9]"],
    ),
}


@pytest.fixture(scope="module")
def job():
    return run_job(2, BEGIN + "".join(CASE.format(bad=bad, case=case) for case, (bad, _) in CASES.items()))


@pytest.mark.parametrize("case", CASES)
def test_every_rank_sees_both_sides(job, case):
    wanted = CASES[case][1]
    for rank, reports in enumerate(job.reports):
        report = reports[case]
        assert report["type"] in ("InternalError", "FailedPreconditionError"), job
        for text in [*wanted, "rank 0", "rank 1"]:
            assert text in report["error"], f"rank {rank} should say {text!r}: {job}"
        assert report["seconds"] < 5.0, job
        assert report["later"] == [1.5, 2.5], job
