"""The memory that a training run takes at its peak, with tensors in shared memory and without the plugin."""

import pytest
from harness import run_job

# Proportional set sizes: pages of an arena that ranks share count once. Pages of files, such as TensorFlow's
# code, do not count: how much of them falls to these ranks depends on what other processes run TensorFlow.
TRAINING = """
import json, os, sys, threading
import tensorflow as tf

peak = 0

def sample():
    global peak
    with open("/proc/self/smaps_rollup") as lines:
        sizes = [int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))]
    assert len(sizes) == 2
    peak = max(peak, sum(sizes))

stop = threading.Event()

def watch():
    while not stop.wait(0.05):
        sample()

if sys.argv[1] == "plugin":
    import tf_smddp as sdp
    sdp.init()
x, y = tf.random.normal([16, 3000]), tf.random.normal([16, 3000])
weights = [tf.Variable(0.02 * tf.random.normal([3000, 3000])) for _ in range(4)]
moments = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

@tf.function
def step():
    with tf.GradientTape() as tape:
        hidden = x
        for weight in weights:
            hidden = tf.nn.relu(hidden @ weight)
        loss = tf.reduce_mean((hidden - y) ** 2)
    if sys.argv[1] == "plugin":
        tape = sdp.DistributedGradientTape(tape)
    # Fused updates, as optimizers have. How many of the others' intermediate results there are at a time
    # depends on which op comes first.
    for weight, moment, gradient in zip(weights, moments, tape.gradient(loss, weights)):
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle, accum=moment.handle, lr=0.01, grad=gradient, momentum=0.9
        )
    return loss

thread = threading.Thread(target=watch)
thread.start()
for _ in range(10):
    step()
stop.set()
thread.join()
found = {"peak": peak}
if sys.argv[1] == "plugin":
    found["staged"] = sdp.stats()["collectives"]["allreduce"]["staged_bytes"]
    found["reduced"] = sdp.stats()["collectives"]["allreduce"]["bytes"]
with open(f"{os.environ['TF_SMDDP_TEST_REPORTS']}/{os.environ['SMDDP_RANK']}", "w") as file:
    file.writelines(json.dumps(item) + "\\n" for item in found.items())
"""


@pytest.mark.long
def test_training_takes_no_more_memory_than_without_the_plugin(tmp_path):
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    peaks = {}
    for variant in ("stock", "plugin"):
        job = run_job(2, str(script), variant, seconds=120)
        assert job.exit_code == 0, str(job)
        peaks[variant] = sum(report["peak"] for report in job.reports)
    for report in job.reports:
        # The guards compare a few words of the first step.
        assert 0 <= report["reduced"] - 10 * 4 * 9_000_000 * 4 < 1000, str(job)
        assert report["staged"] == 0, str(job)
    # It was 0.99 to 1.03. A copy of each gradient would make it 1.2.
    assert peaks["plugin"] <= 1.1 * peaks["stock"], peaks
