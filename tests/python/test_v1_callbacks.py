"""The Keras callbacks of a script with eager execution off, in Keras 2: the same as with it on."""

import importlib.util

import pytest
from harness import run_job

FIT = """
import numpy as np

if sys.argv[1] == "graph":
    tf.compat.v1.disable_eager_execution()
from tf_smddp.keras import callbacks as smddp_callbacks

sdp.init()
rank, size = sdp.rank(), sdp.size()
backend, layers = tf.keras.backend, tf.keras.layers


class Record(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.start, self.weights, self.rates = None, [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(backend.get_value(self.model.optimizer.learning_rate)))
        if self.start is None and self.model.built:
            self.start = backend.get_value(self.model.weights[0]).tolist()

    def on_train_batch_end(self, batch, logs=None):
        # The optimizer's variables too, such as the velocities, which a change of the rate scales.
        state = [*self.model.weights, *self.model.optimizer.weights]
        self.weights.append([float(np.sum(backend.get_value(variable))) for variable in state])


class Kept(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["rank"] = rank  # what MetricAverageCallback averages


def fit(name, input_layers, callback, **options):
    kernel = tf.keras.initializers.Constant(rank + 1.0)
    model = tf.keras.Sequential([*input_layers, layers.Dense(1, kernel_initializer=kernel)])
    optimizer = tf.keras.optimizers.legacy.SGD(0.01 * (rank + 1), momentum=0.5)
    model.compile(sdp.DistributedOptimizer(optimizer), "mse")
    record = Record()
    folder = os.path.join(os.environ["TF_SMDDP_TEST_REPORTS"], "..", sys.argv[1] + name + str(rank))
    every = [
        smddp_callbacks.BroadcastGlobalVariablesCallback(0),
        Kept(),
        smddp_callbacks.MetricAverageCallback(),
        *callback,
        smddp_callbacks.RankZeroCheckpoint(
            os.path.join(folder, "best.h5"), "loss", save_best_only=True, save_weights_only=True
        ),
        smddp_callbacks.RankZeroCheckpoint(os.path.join(folder, "{epoch}.h5")),
        record,
    ]
    x = np.arange(16, dtype=np.float32).reshape(8, 2) / 16 + rank
    history = model.fit(x, x[:, :1], shuffle=False, epochs=5, verbose=0, callbacks=every, **options)
    if input_layers:
        report(name + "start", record.start)
    report(name + "weights", record.weights)
    report(name + "rates", record.rates)
    report(name + "history", {key: [float(v) for v in values] for key, values in history.history.items()})
    report(name + "final", [array.tolist() for array in model.get_weights()])
    sdp.get_worker_comm().Barrier()
    report(name + "files", sorted(os.listdir(folder)) if os.path.isdir(folder) else None)
    if rank == 0:
        saved = tf.keras.models.load_model(os.path.join(folder, "5.h5"))
        report(name + "saved", [array.tolist() for array in saved.get_weights()])
        saved.load_weights(os.path.join(folder, "best.h5"))
        report(name + "best", [array.tolist() for array in saved.get_weights()])


rate = 0.02 * size
fit(
    "warmup",
    [tf.keras.Input((2,))],
    [
        smddp_callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2, verbose=1),
        smddp_callbacks.LearningRateScheduleCallback(rate, 0.5, start_epoch=3),
    ],
    batch_size=4,
)
fit(  # Keras 2 builds it at the first batch
    "unbuilt",
    [],
    [smddp_callbacks.LearningRateScheduleCallback(rate, lambda epoch: 1 / (1 + epoch), staircase=False)],
    batch_size=3,
)
"""


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_the_callbacks_do_the_same_as_in_eager_mode(monkeypatch):
    size = 2
    # Keras 3 has no such mode; where tf.keras is Keras 3, this makes it Keras 2.
    if importlib.util.find_spec("tf_keras"):
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    eager, graph = (run_job(size, FIT, mode) for mode in ("eager", "graph"))
    for job in (eager, graph):
        assert job.exit_code == 0, str(job)
    rate = 0.02 * size
    for rank, (wanted, found) in enumerate(zip(eager.reports, graph.reports)):
        assert found.keys() == wanted.keys()
        for key in found:
            if key.endswith("files"):
                assert found[key] == wanted[key], f"{key} of {graph}"
            elif key.endswith("history"):
                assert found[key].keys() == wanted[key].keys(), f"{key} of {graph}"
                for log in found[key]:
                    assert found[key][log] == pytest.approx(wanted[key][log], rel=1e-4), f"{log} of {graph}"
            else:
                assert flat(found[key]) == pytest.approx(flat(wanted[key]), rel=1e-4), f"{key} of {graph}"
        # The ranks have the root's start and the expected learning rates, not only equal ones.
        assert found["warmupstart"] == [[1.0], [1.0]]
        warm = [rate * (1 / size + (1 - 1 / size) * (step + 1) / 4) for step in range(4)]
        assert found["warmuprates"] == pytest.approx([*warm, rate, rate, *[rate / 2] * 4])
        assert found["unbuiltrates"] == pytest.approx([rate / (1 + step / 3) for step in range(15)])
        assert found["warmuphistory"]["lr"] == pytest.approx([warm[1], rate, rate, rate / 2, rate / 2])
        assert found["warmuphistory"]["rank"] == [(size - 1) / 2] * 5
        assert found["warmupfinal"] == graph.reports[0]["warmupfinal"]
        files = ["1.h5", "2.h5", "3.h5", "4.h5", "5.h5", "best.h5"] if rank == 0 else None
        assert found["warmupfiles"] == found["unbuiltfiles"] == files
    root = graph.reports[0]
    for name in ("warmup", "unbuilt"):
        assert root[f"{name}saved"] == root[f"{name}final"]
    assert graph.output.count(f"the warm-up is over, the learning rate is {rate:g}") == size


def flat(values):
    return [number for value in values for number in flat(value)] if isinstance(values, list) else [values]
