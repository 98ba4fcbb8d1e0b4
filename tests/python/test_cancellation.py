"""A step that fails on one rank while its allreduce waits for the others: nobody waits for ever."""

from harness import run_job

SCRIPT = """
sdp.init()
rank = sdp.rank()
assert sdp.allreduce(1.0, 0, 1, op=sdp.ReduceOp.SUM) == sdp.size()

def slow(number):
    time.sleep(0.5)
    return number

def step(tensor, bad):
    total = sdp.allreduce(tensor, 0, 1, name="total")
    # Late enough that the allreduce is under way.
    late = tf.py_function(slow, [tf.cast(bad, tf.float32)], tf.float32)
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(late, 0.0), ["the disk is full"])]):
        return tf.identity(total)

sdp.barrier()
if rank == 1:
    time.sleep(1.5)
begin = time.monotonic()
try:
    tf.function(step)(tf.ones([3]), tf.constant(rank == 0))
    report("error", "none")
except tf.errors.OpError as error:
    report("type", type(error).__name__)
    report("error", error.message)
report("seconds", time.monotonic() - begin)
"""


def test_the_other_ranks_are_told():
    job = run_job(3, SCRIPT)
    failed, absent, waiting = job.reports
    # Which error of the failed step TensorFlow reports is its own choice.
    assert failed["error"] != "none", job
    for report in (absent, waiting):
        assert report["type"] == "InternalError", job
        assert "rank 0" in report["error"] and "'total'" in report["error"], job
        assert "failed or was cancelled" in report["error"], job
        assert report["seconds"] < 10.0, job
