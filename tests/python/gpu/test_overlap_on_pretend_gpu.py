"""Gradients travel while the backward pass goes on, by the clock of the pretend GPU, and no thread waits.

On a paced GPU each kernel, copy and collective takes a time, and is in the trace: when it was put on its
stream, when it began and ended. Only orders are compared, so a busy machine changes nothing.
"""

import collections
import pathlib

import pytest
from pretend_gpu import run

LAYERS = 6
PACE_US = 20_000

STEPS = f"""
os.environ["SMDDP_BUCKET_CAP_BYTES"] = "7936"  # each gradient is a batch
sdp.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[sdp.local_rank() % len(gpus)], "GPU")
with tf.device("/GPU:0"):
    x = tf.ones([2000])
    weights = [tf.Variable(tf.ones([2000])) for _ in range({LAYERS})]


@tf.function
def step():
    with tf.device("/GPU:0"):
        with tf.GradientTape() as tape:
            found = x
            for weight in weights:
                found = found * weight
        return sdp.DistributedGradientTape(tape).gradient(found, weights)


steps = []
for _ in range(5):
    begin = time.monotonic_ns() // 1000
    assert all(np.all(gradient.numpy() == 1) for gradient in step())
    sdp.barrier()
    steps.append([begin, time.monotonic_ns() // 1000])
report("steps", steps)
report("pid", os.getpid())
"""

Task = collections.namedtuple("Task", "pid device role call queued begin end")


def tasks_of_steps(path, report):
    """Yields the tasks of the process in each step but the first, which TensorFlow traces."""
    lines = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    tasks = [Task(*line[:4], *map(int, line[4:])) for line in lines]
    for begin, end in report["steps"][1:]:
        yield [task for task in tasks if int(task.pid) == report["pid"] and begin <= task.queued <= end]


@pytest.mark.long
@pytest.mark.pretend_gpu
@pytest.mark.parametrize("num_gpus", [2, 1])
def test_gradients_travel_beside_the_backward_pass(gpus, monkeypatch, tmp_path, num_gpus):
    """With NCCL, and through the host."""
    gpus(num_gpus, "paced")
    monkeypatch.setenv("PRETEND_GPU_PACE_US", str(PACE_US))
    monkeypatch.setenv("PRETEND_GPU_TRACE", str(tmp_path / "trace"))
    job = run(STEPS, num_processes=2)
    for report in job.reports:
        beside, launched = [], []
        for tasks in tasks_of_steps(tmp_path / "trace", report):
            computed = [each for each in tasks if "tensorflow" in each.role and each.call == "cuLaunchKernel"]
            moved = [each for each in tasks if "smddp" in each.role]
            assert len(computed) >= 2 * LAYERS and len(moved) >= LAYERS, tasks
            # Gradients are under way before the last one is computed.
            last = max(each.end for each in computed)
            beside.append(sum(each.begin < last for each in moved))
            # The backward pass is on the stream before the first gradient has travelled: nobody waits.
            launched.append(max(each.queued for each in computed) < min(each.end for each in moved))
        assert any(beside) and any(launched), (beside, launched, job.output)
