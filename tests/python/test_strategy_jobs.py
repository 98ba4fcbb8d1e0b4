"""Whole jobs with tf_smddp.distribute.Strategy in which a rank does something else than the others."""

import re
import signal

import numpy as np
import pytest
from harness import run_job

# What rank 0 does, and rank 1, for each case.
READS = """
sdp.init()
strategy = sdp.distribute.Strategy()
with strategy.scope():
    first, second = (tf.keras.metrics.Mean(name="mean") for _ in range(2))
numbers = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2))

@tf.function
def epoch():
    for batch in numbers:
        strategy.run(first.update_state, args=(batch,))

def reduce():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(5.0)), axis=None)

epoch()
report("together", float(first.result()))
for name, of_rank_0, of_rank_1 in [
    ("another metric", first.result, second.result),
    ("another metric in a function", tf.function(first.result), tf.function(second.result)),
    ("a reduction", first.result, reduce),
    ("the next epoch", first.result, epoch),
]:
    try:
        result = (of_rank_0 if sdp.rank() == 0 else of_rank_1)()
        report(name, f"no error, but {result}")
    except tf.errors.OpError as error:
        report(name, error.message)
    while True:
        try:
            sdp.barrier()
            break
        except tf.errors.OpError:
            pass
"""


@pytest.mark.one_tensorflow
def test_a_metric_that_one_rank_reads():
    """The other rank's next collective fails, whatever it is: it is not added to the metric."""
    job = run_job(2, READS)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report.pop("together") == 1.5
        assert len(report) == 4, str(job)
        for message in report.values():
            assert "the ranks run different collectives" in message, str(job)
            of_rank_0 = (
                r"rank 0 has allreduce '\S+:0 \(variable [23] of the strategy\), which all ranks must read"
            )
            assert re.search(of_rank_0, message), str(job)


FIT = """
sdp.init()
report("pid", os.getpid())
strategy = sdp.distribute.Strategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

class Killer(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5 and sdp.rank() == 1:
            os.kill(os.getpid(), 9)

try:
    model.fit(tf.ones([640, 4]), tf.ones([640, 1]), batch_size=8, verbose=0, callbacks=[Killer()])
except tf.errors.OpError as error:
    report("error", error.message)
"""


def test_a_rank_that_is_killed_in_fit():
    job = run_job(2, FIT)
    assert job.exit_code == 128 + signal.SIGKILL, str(job)
    for text in ("rank 1", str(job.reports[1]["pid"]), "SIGKILL"):
        assert text in job.reports[0]["error"], str(job)


MODELS = """
sdp.init()
with sdp.distribute.Strategy().scope():
    try:
        tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1 + sdp.rank())])
    except tf.errors.OpError as error:
        report("error", error.message)
"""


@pytest.mark.one_tensorflow
def test_another_model_on_a_rank():
    job = run_job(2, MODELS)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert "rank 0 has broadcast" in report["error"], str(job)
        assert "[4, 1]" in report["error"] and "[4, 2]" in report["error"], str(job)


EXTRA = """
sdp.init()
layers = tf.keras.layers
if sdp.rank() == 1:
    tf.keras.Sequential([tf.keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)])
with sdp.distribute.Strategy().scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
model.fit(tf.ones([16, 4]), tf.ones([16, 1]), batch_size=8, verbose=0)
report("weights", [weight.tolist() for weight in model.get_weights()])
"""


def test_a_model_that_one_rank_alone_has():
    """Keras counts layers in the process, so the ranks' variables have other names."""
    job = run_job(2, EXTRA)
    assert job.exit_code == 0, str(job)
    assert job.reports[0]["weights"] == job.reports[1]["weights"]


V1 = """
import numpy as np
workers, task = ["127.0.0.1:1", "127.0.0.1:2"], {"type": "worker", "index": 0}
os.environ.setdefault("TF_CONFIG", json.dumps({"cluster": {"worker": workers}, "task": task}))
tf.compat.v1.disable_eager_execution()
with sdp.distribute.Strategy().scope():
    layer = tf.keras.layers.Dense(2, input_shape=(3,), kernel_initializer="ones")
    model = tf.keras.Sequential([layer])
    model.compile("sgd", "mse")
inputs, outputs = np.arange(24.0).reshape(8, 3) / 24, np.ones((8, 2))
report("rows", model.predict(inputs, batch_size=4).shape[0])
history = model.fit(inputs, outputs, batch_size=4, epochs=2, shuffle=False, verbose=0)
report("weights", layer.get_weights()[0].tolist())
report("losses", [*history.history["loss"], model.evaluate(inputs, outputs, batch_size=4, verbose=0)])
"""


# All ranks of an unmodified script write one file.
SAVE = """
model.save(sys.argv[1])
loaded = tf.keras.models.load_model(sys.argv[1])
report("saved", loaded.get_weights()[0].tolist())
"""


@pytest.mark.keras(2)
@pytest.mark.parametrize("is_unmodified", [False, True])
def test_keras_in_a_v1_graph(is_unmodified, tmp_path):
    """Keras opens a session of its own, and not at a server of TF_CONFIG's."""
    script, options = V1, []
    if is_unmodified:
        script = script.replace("sdp.distribute.Strategy", "tf.distribute.MirroredStrategy") + SAVE
        options = ["--strategy"]
    alone, job = (run_job(n, script, str(tmp_path / f"{n}.h5"), options=options) for n in (1, 2))
    assert alone.exit_code == 0 and job.exit_code == 0, f"{alone} {job}"
    for report in job.reports:
        np.testing.assert_allclose(report["weights"], alone.reports[0]["weights"], 1e-6)
        np.testing.assert_allclose(report["losses"], alone.reports[0]["losses"], 1e-6)
        assert report.get("saved", report["weights"]) == report["weights"]
