"""The layer's first init() in a job: what HOROVOD_… variables and process sets do there.

spmd/test_horovod.py has each of the variables.
"""

import json

import pytest
from harness import run_job

pytestmark = [pytest.mark.long, pytest.mark.one_tensorflow]

JOB = """
import tf_smddp.horovod.tensorflow as hvd
os.environ["HOROVOD_TIMELINE"] = sys.argv[1]
os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "5"
os.environ["HOROVOD_CYCLE_TIME"] = "2"
hvd.init()
hvd.allreduce(tf.ones([3]), name="loss")
if hvd.rank() == 0:
    time.sleep(4)
hvd.barrier()
report("done", True)
"""


def test_a_timeline_a_warning_and_a_stall(tmp_path):
    file = tmp_path / "timeline.json"
    job = run_job(2, JOB, str(file))
    assert job.exit_code == 0 and job.reports == [{"done": True}] * 2, str(job)
    assert job.output.count("without effect here: HOROVOD_CYCLE_TIME. ") == 1, str(job)
    assert "has waited" in job.output, str(job)
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.json"], str(job)
    assert any("allreduce" in str(event) for event in json.loads(file.read_text())), str(job)


@pytest.mark.parametrize("sets", ["'dynamic'", "[hvd.ProcessSet([1])]"])
def test_process_sets_of_the_first_init(sets):
    job = run_job(
        2,
        f"""
import tf_smddp.horovod.tensorflow as hvd
sets = {sets}
hvd.init(process_sets=sets)
last = hvd.add_process_set([1]) if isinstance(sets, str) else sets[0]
report("number", last.process_set_id)
if last.included():
    report("sum", float(hvd.allreduce(3.0, op=hvd.Sum, process_set=last)))
hvd.barrier()
""",
    )
    assert job.exit_code == 0, str(job)
    assert job.reports == [{"number": 1}, {"number": 1, "sum": 3.0}], str(job)


# In the order of Horovod's example for Keras. In the third epoch of the first start, rank 1 is killed.
ELASTIC = """
import signal
import numpy as np
import tf_smddp.horovod.tensorflow.keras as hvd
hvd.init()
tf.keras.utils.set_random_seed(1)
x = np.random.default_rng(hvd.rank()).normal(size=(32, 4)).astype(np.float32)
model = tf.keras.Sequential([tf.keras.layers.InputLayer((4,)), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0)
state.register_reset_callbacks([lambda: report("reset", [hvd.size(), state.epoch, state.batch])])

class Kill(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if sys.argv[1] == "kill" and os.environ["SMDDP_RESTART_COUNT"] == "0":
            if hvd.rank() == 1 and state.epoch == 2 and batch == 1:
                os.kill(os.getpid(), signal.SIGKILL)

callbacks = [
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
    Kill(),
]

@hvd.elastic.run
def train(state):
    epochs = 4 - state.epoch
    model.fit(x, x[:, :1], 8, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)

train(state)
report("end", [state.epoch, [each.tolist() for each in model.get_weights()]])
"""


def test_elastic_training_goes_on_at_its_last_commit(tmp_path):
    ends = []
    for how in ("kill", "go on"):
        (tmp_path / how).mkdir()
        options = ["--max-restarts", "1", "-x", f"SMDDP_STATE_DIR={tmp_path / how}"]
        job = run_job(2, ELASTIC, how, options=options)
        assert job.exit_code == 0, str(job)
        assert [each.get("reset") for each in job.reports] == [[2, 2, 0] if how == "kill" else None] * 2, str(
            job
        )
        ends += [each["end"] for each in job.reports]
    assert ends[0][0] == 4 and ends == [ends[0]] * 4
