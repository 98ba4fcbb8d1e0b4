"""Scripts that know SMDDP's import paths only."""

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

FIT = """
import smdistributed.dataparallel.tensorflow as sdp
import smdistributed.dataparallel.tensorflow.keras as dist
from smdistributed.dataparallel.tensorflow.keras import callbacks
from smddpcommon import setBucketSize
import numpy as np

setBucketSize(1 << 20)
dist.init()
tf.keras.utils.set_random_seed(dist.rank())

class Model(tf.keras.Sequential):
    def train_step(self, batch):
        features, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - targets) ** 2)
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

model = Model([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.Adam(0.01 * dist.size()), jit_compile=False)
features = np.random.default_rng(dist.rank()).normal(size=(12, 3))
history = model.fit(features, features.sum(1, keepdims=True), batch_size=4, epochs=2, verbose=0, callbacks=[
    callbacks.BroadcastGlobalVariablesCallback(0), dist.callbacks.MetricAverageCallback()])
report("weights", [weight.tolist() for weight in model.get_weights()])
report("loss", history.history["loss"])
"""

DIFFERENT_SIZES = """
import smddpcommon
smddpcommon.setBucketSize(1280 * (1 + int(os.environ["SMDDP_RANK"])))
try:
    sdp.init()
except RuntimeError as error:
    report("error", str(error))
"""


def test_fit():
    job = run_job(2, FIT)
    assert job.exit_code == 0, str(job)
    assert job.reports[0]["weights"] == job.reports[1]["weights"], str(job)
    assert job.reports[0]["loss"] == job.reports[1]["loss"], str(job)
    assert len(job.reports[0]["loss"]) == 2, str(job)


def test_set_bucket_size_before_init():
    """It is what init() reads: each rank's call is in the error that says that they differ."""
    job = run_job(2, DIFFERENT_SIZES)
    for report in job.reports:
        assert "1280" in report["error"], str(job)
        assert "2560" in report["error"], str(job)
