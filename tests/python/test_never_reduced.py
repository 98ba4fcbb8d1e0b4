"""A whole job whose ranks never reduce a gradient, or average weights, says so, and what to do."""

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

# It agrees on the number of steps, normalizes over all ranks and averages its loss, as a script may.
SCRIPT = """
sdp.init()
model = tf.keras.Sequential([tf.keras.Input((2,)), sdp.SyncBatchNormalization(), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1)
sdp.broadcast_variables(model.weights, root_rank=0)

@tf.function
def step(features):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(features, training=True) - 1.0) ** 2)
    if sys.argv[1] == "wrapped":
        tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return sdp.oob_allreduce(loss)

for _ in range(int(sdp.allreduce(3 + sdp.rank(), op=sdp.ReduceOp.MIN))):
    step(tf.random.normal([4, 2]))
"""


@pytest.mark.parametrize("tape", ["plain", "wrapped"])
def test_a_custom_loop(tape):
    job = run_job(2, SCRIPT, tape)
    assert job.exit_code == 0, str(job)
    text = (
        "variables were broadcast and the job has ended, but no gradient was reduced: each of the 2 ranks "
        "has trained a model of its own. Wrap the optimizer in DistributedOptimizer, or the tape in "
        "DistributedGradientTape."
    )
    assert job.output.count(text) == (tape == "plain"), str(job)


LOCAL_SGD = """
sdp.init()
x = tf.Variable([1.0, 2.0])
optimizer = sdp.LocalSGD(tf.keras.optimizers.SGD(0.1), every=4)

@tf.function
def step():
    optimizer.apply_gradients([(tf.ones([2]), x)])

for _ in range(int(sys.argv[1]) if sdp.rank() == 1 else 6):
    step()
report("steps", True)
"""


def test_weights_that_are_not_averaged_at_the_end():
    job = run_job(2, LOCAL_SGD, "6")
    assert job.exit_code == 0, str(job)
    text = "LocalSGD: the job has ended 2 steps after the weights were averaged (every 4 steps, and 1 times"
    assert job.output.count(text) == 1, str(job)


def test_a_rank_that_takes_fewer_steps():
    """Rank 0 waits for rank 1 to average, until that ends."""
    job = run_job(2, LOCAL_SGD, "3")
    assert job.exit_code != 0, str(job)
    text = "rank 1 has ended (its script is at its end, or called sys.exit) after 3 collectives, but"
    assert text in job.output, str(job)
    assert [list(report) for report in job.reports] == [[], ["steps"]], str(job)
