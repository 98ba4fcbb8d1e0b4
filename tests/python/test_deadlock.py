"""Ranks that wait for each other for ever: an error within seconds, and none while a rank may still go on."""

import time

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

CERTAIN = "the ranks wait for each other for ever"

OTHER_NAMES = """
sdp.init()
name = "apples" if sdp.rank() == 0 else "pears"
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.compat.v1.placeholder(tf.float32, [3])
    common = sdp.allreduce(x, 0, 1, name="common")
    own = sdp.allreduce(x, 0, 1, name=name)
    session.run(common, {x: [1.0, 2.0, 3.0]})
    try:
        session.run(own, {x: [1.0, 2.0, 3.0]})
    except tf.errors.OpError as error:
        report("error", error.message)
"""

# Each rank is in both sets, and begins with the other one than its peer.
CROSSED_SETS = """
sdp.init()
sets = [sdp.add_process_set([0, 1]), sdp.add_process_set([0, 1])]
first, second = sets if sdp.rank() == 0 else reversed(sets)
try:
    sdp.allreduce(tf.ones([3]), 0, 1, name="first", process_set=first)
    sdp.allreduce(tf.ones([3]), 0, 1, name="second", process_set=second)
except tf.errors.OpError as error:
    report("error", error.message)
"""

# Rank 0 waits for rank 1, which is late by more than it takes to find that ranks wait for ever.
LATE = """
os.environ["SMDDP_STALL_WARNING"] = "60"
sdp.init()
sdp.allreduce(tf.ones([3]), 0, 1, name="before")
if sdp.rank() == 1:
    way = sys.argv[1]
    if way == "sleep":
        time.sleep(12)
    elif way == "pipe":
        import subprocess
        child = subprocess.Popen(["sh", "-c", "sleep 12; echo done"], stdout=subprocess.PIPE)
        assert child.stdout.read() == b"done\\n"
    elif way == "event":  # another thread sets it
        import threading
        event = threading.Event()
        threading.Timer(12, event.set).start()
        event.wait()
    elif way == "compute":
        end = time.monotonic() + 12
        while time.monotonic() < end:
            tf.linalg.matmul(tf.ones([50, 50]), tf.ones([50, 50]))
    else:
        def slow():
            yield 1.0
            time.sleep(12)
            yield 2.0
        element = tf.TensorSpec([], tf.float32)
        data = tf.data.Dataset.from_generator(slow, output_signature=element).prefetch(1)
        assert [float(each) for each in data] == [1.0, 2.0]
report("sum", float(sdp.allreduce(tf.ones([]), 0, 1, name="after")))
"""

# A callback of `fit` on the fourth batch: one that is collective, from which rank 1 returns early; or one
# that takes long on rank 0.
FIT = """
import numpy as np
import tf_smddp.keras
way, autotune = sys.argv[1:3]
os.environ["SMDDP_STALL_TIMEOUT"] = sys.argv[3]
sdp.init()
model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])
sdp.broadcast_variables(model.variables, root_rank=0)
model.compile(tf_smddp.keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
x = np.ones((64, 4), np.float32)

class Callback(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch != 3 or sdp.rank() == 1:
            return
        if way == "collective":
            sdp.oob_allreduce(1.0, name="metric")
            return
        end = time.monotonic() + 12
        while time.monotonic() < end:
            self.model.evaluate(x, x[:, :3], verbose=0)

options = tf.data.Options()
options.autotune.enabled = False
data = tf.data.Dataset.from_tensor_slices((x, x[:, :3])).batch(8).with_options(options)
inputs = {"x": data} if autotune == "off" else {"x": x, "y": x[:, :3], "batch_size": 8}
try:
    model.fit(**inputs, epochs=1, verbose=0, callbacks=[Callback()])
    report("fine", True)
except tf.errors.OpError as error:
    report("error", error.message)
"""


@pytest.mark.parametrize(
    "script, names",
    [
        pytest.param(OTHER_NAMES, ("'apples'", "'pears'"), id="other names"),
        pytest.param(
            CROSSED_SETS, ("in process set 1", "in process set 2"), id="crossed sets", marks=pytest.mark.long
        ),
    ],
)
def test_ranks_that_wait_for_each_other(script, names):
    begin = time.monotonic()
    job = run_job(2, script, seconds=60)
    for report in job.reports:
        for text in (CERTAIN, "rank 0 has waited", "waits for rank 0", *names):
            assert text in report["error"], str(job)
    assert time.monotonic() - begin < 45, str(job)  # TensorFlow's start among them


@pytest.mark.long
@pytest.mark.parametrize("way", ["sleep", "pipe", "event", "compute", "data"])
def test_a_rank_that_is_late(way):
    job = run_job(2, LATE, way)
    assert CERTAIN not in job.output, str(job)
    assert [report["sum"] for report in job.reports] == [1.0, 1.0], str(job)


@pytest.mark.long
@pytest.mark.parametrize(
    "autotune, text",
    [
        ("on", "no progress for 10 s"),  # with a thread that waits with a time limit, nothing is certain
        pytest.param("off", CERTAIN, marks=pytest.mark.keras(2)),
    ],
)
def test_a_collective_callback_from_which_a_rank_returns_early(autotune, text):
    job = run_job(2, FIT, "collective", autotune, "10" if autotune == "on" else "60", seconds=60)
    for report in job.reports:
        for part in (text, "'metric/0'", "dense/"):
            assert part in report["error"], str(job)


@pytest.mark.long
@pytest.mark.parametrize("autotune", ["on", "off"])
def test_a_callback_that_takes_long_on_one_rank(autotune):
    job = run_job(2, FIT, "evaluation", autotune, "60", seconds=60)
    assert CERTAIN not in job.output, str(job)
    assert [report["fine"] for report in job.reports] == [True, True], str(job)
