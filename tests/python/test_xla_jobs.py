"""Compiled functions in jobs of their own: the library loaded late, clusters, training."""

import json

import pytest
from harness import run_job

LATE = """
import tensorflow as tf

# XLA has its kernels from here on.
assert float(tf.function(lambda x: x * 2.0, jit_compile=True)(tf.constant(1.0))) == 2.0

import tf_smddp as sdp

sdp.init()
total = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM), jit_compile=True)
assert float(total(tf.constant(1.0))) == sdp.size()
"""


def test_loaded_after_the_first_compiled_function(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE)
    job = run_job(2, str(script))
    assert job.exit_code == 0, str(job)


def test_a_program_outlives_shutdown():
    job = run_job(
        1,
        """
sdp.init()
function = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM), jit_compile=True)
assert float(function(1.0)) == 1.0
sdp.shutdown()
try:
    function(1.0)
except tf.errors.InternalError as error:
    report("error", error.message)
sdp.init()
report("again", float(function(1.0)))
""",
        launcher=False,
    )
    assert "tf_smddp is not initialized" in job.reports[0]["error"], str(job)
    assert job.reports[0]["again"] == 1.0


CLUSTERS = """
import glob
sdp.init()

def modules(mark):
    before = set(glob.glob(f"{sys.argv[1]}/module_*before_optimizations.txt"))
    weights = [tf.Variable(tf.eye(8)) for _ in range(3)]

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = mark(tf.tanh(tf.matmul(x, weight)) * 2.0)
            loss = tf.reduce_sum(x)
        return tape.gradient(loss, weights)

    tf.config.optimizer.set_jit(True)
    found = gradients(tf.ones([2, 8]))
    after = set(glob.glob(f"{sys.argv[1]}/module_*before_optimizations.txt"))
    return len(after - before), [float(tf.reduce_sum(gradient)) for gradient in found]

report("without", modules(lambda x: x))
report("with", modules(sdp.overlap))
"""


def test_clusters_split_at_overlap(tmp_path, monkeypatch):
    """Counted by the modules that XLA dumps."""
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text")
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1")
    job = run_job(1, CLUSTERS, str(tmp_path))
    (without, wanted), (marked, found) = (job.reports[0][key] for key in ("without", "with"))
    print(f"{without} modules without overlap, {marked} with")
    assert without >= 1
    assert marked >= without + 2
    assert found == pytest.approx(wanted, rel=1e-5)


# Each Python thread has a process set of its own and a compiled function, which a graph calls as Keras's
# fit(jit_compile=True) does, or Python itself. Rank 1 starts its threads in the reverse order.
THREADS = """
import threading

plan = json.loads(sys.argv[1])
tf.config.threading.set_inter_op_parallelism_threads(plan["inter_op"])
tf.config.threading.set_intra_op_parallelism_threads(plan["intra_op"])
sdp.init()
count = plan["threads"]
sets = [sdp.add_process_set([0, 1]) for _ in range(count)]
values, errors = {}, []

def make_step(number):
    @tf.function(jit_compile=True)
    def compiled(x):
        if plan["large"]:  # matrices and operations enough for TensorFlow 2.21 to use its intra-op pool
            matrices = [tf.matmul(tf.eye(64) * (x + float(i)), tf.eye(64)) for i in range(12)]
            matrices = [tf.matmul(tf.tanh(matrix), matrix) for matrix in matrices]
            x += 0.0 * sum(tf.reduce_sum(matrix) for matrix in matrices)
        for _ in range(2):
            x = sdp.allreduce(x, 0, 1, process_set=sets[number])
            if plan["large"]:
                matrices = [tf.matmul(tf.tanh(matrix + x), matrix) for matrix in matrices]
                x += 0.0 * sum(tf.reduce_sum(matrix) for matrix in matrices)
        return x

    return compiled if plan["direct"] else tf.function(lambda x: compiled(x) + 1.0)

def run(number, step):
    try:
        for i in range(plan["steps"]):
            values[number] = float(step(tf.constant(float(i))))
    except (tf.errors.InternalError, RuntimeError) as error:
        errors.append(str(error))

threads = [threading.Thread(target=run, args=(number, make_step(number))) for number in range(count)]
if sdp.rank() == 1:
    threads.reverse()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
report("values", values)
report("errors", errors)
"""


def run_threads(**plan):
    settings = {"inter_op": 2, "intra_op": 8, "large": False, "direct": False, "steps": 30}
    return run_job(2, THREADS, json.dumps({**settings, **plan}), seconds=180)


def expect_values(job, threads, value):
    for report in job.reports:
        assert report == {"values": {str(i): value for i in range(threads)}, "errors": []}, str(job)


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("large", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("direct", [pytest.param(False, marks=pytest.mark.long), True])
def test_enough_threads(direct, large):
    job = run_threads(threads=4, inter_op=4, intra_op=4, direct=direct, large=large)
    expect_values(job, 4, 29.0 if direct else 30.0)


DIGITS = """
import numpy as np
from sklearn.datasets import load_digits

sdp.init()
tf.keras.utils.set_random_seed(1)
images, labels = load_digits(return_X_y=True)
images, labels = (images / 16.0).astype(np.float32)[..., None], labels.astype(np.int64)
train_x, train_y, test_x, test_y = images[:1536], labels[:1536], images[1536:, :, 0], labels[1536:]
mine = train_x[sdp.rank() :: sdp.size(), :, 0], train_y[sdp.rank() :: sdp.size()]
BATCH = 96 // sdp.size()
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def model():
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential(
        [tf.keras.Input([64]), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
    )

def accuracy(trained):
    return float(np.mean(np.argmax(trained(test_x).numpy(), -1) == test_y))

def fit(jit):
    trained = model()
    optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.Adam(1e-2))
    trained.compile(optimizer, LOSS, jit_compile=jit)
    trained.fit(*mine, batch_size=BATCH, epochs=5, shuffle=False, verbose=0)
    return trained

def loop(jit):
    trained = model()
    optimizer = tf.keras.optimizers.Adam(1e-2)
    optimizer.build(trained.trainable_variables)

    @tf.function(jit_compile=jit)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = LOSS(y, trained(x, training=True))
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, trained.trainable_variables)
        optimizer.apply_gradients(zip(gradients, trained.trainable_variables))
        return sdp.oob_allreduce(loss)

    for _ in range(5):
        for begin in range(0, len(mine[0]), BATCH):
            step(tf.constant(mine[0][begin : begin + BATCH]), tf.constant(mine[1][begin : begin + BATCH]))
    return trained

for way in (fit, loop):
    for jit in (False, True):
        trained = way(jit)
        weights = [weight.numpy().tobytes() for weight in trained.trainable_variables]
        assert sdp.allgather_object(weights) == [weights] * sdp.size()
        report(f"{way.__name__} {jit}", accuracy(trained))
"""


@pytest.mark.one_tensorflow
def test_digits():
    """With fit and with a loop, compiled and not: equally good, and the same weights on all ranks."""
    job = run_job(2, DIGITS, seconds=180)
    assert job.exit_code == 0, str(job)
    print(job.reports[0])
    for way in ("fit", "loop"):
        assert job.reports[0][f"{way} False"] > 0.85
        assert abs(job.reports[0][f"{way} True"] - job.reports[0][f"{way} False"]) < 0.02
