"""Scripts with eager execution off: objects without a session, and layers of Keras 2."""

import pytest
from harness import run_job

OBJECTS = """
tf.compat.v1.disable_eager_execution()
sdp.init()
rank, size = sdp.rank(), sdp.size()
comm = sdp.get_worker_comm()
report("objects", [sdp.allgather_object([rank]), sdp.broadcast_object([rank], size - 1), comm.gather([rank])])
comm.Barrier()
report("operations", len(tf.compat.v1.get_default_graph().get_operations()))
"""

FIT = """
import numpy as np

tf.compat.v1.disable_eager_execution()
sdp.init()
rank, size = sdp.rank(), sdp.size()

def fit(normalization, x):
    def dense(seed):
        return tf.keras.layers.Dense(4, kernel_initializer=tf.keras.initializers.GlorotUniform(seed))

    model = tf.keras.Sequential([tf.keras.Input((4,)), dense(1), normalization(), dense(2), normalization()])
    model.compile(tf.keras.optimizers.legacy.SGD(0.0), "mse")
    model.fit(x, x, batch_size=len(x), epochs=2, verbose=0)
    return model

data = np.random.RandomState(0).normal(1.0, 2.0, (8 * size, 4)).astype(np.float32)
ours = fit(sdp.SyncBatchNormalization, data[8 * rank : 8 * rank + 8])
stock = fit(tf.keras.layers.BatchNormalization, data)
weights = zip(ours.get_weights(), stock.get_weights())
report("difference", max(float(np.abs(found - wanted).max()) for found, wanted in weights))
if rank == 0:  # alone
    report("prediction", float(np.abs(ours.predict(data) - stock.predict(data)).max()))
sdp.get_worker_comm().Barrier()
"""


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 2])
def test_objects(size):
    job = run_job(size, OBJECTS)
    assert job.exit_code == 0, str(job)
    everybody = [[rank] for rank in range(size)]
    for rank, report in enumerate(job.reports):
        assert report["objects"] == [everybody, [size - 1], everybody if rank == 0 else None], str(job)
        assert report["operations"] == 0, str(job)


@pytest.mark.long
@pytest.mark.keras(2)  # Keras 3 has no such mode.
def test_synchronized_statistics():
    job = run_job(2, FIT)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["difference"] < 1e-5, str(job)
    assert job.reports[0]["prediction"] < 1e-4, str(job)
