"""The life of one process: before init, init, shutdown, the end; with and without a launcher."""

import pytest
from harness import ROOT, run_job

pytestmark = pytest.mark.one_tensorflow

ALONE = """
def error_of(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "none"

one = tf.TensorSpec([], tf.float32)
report("before", {
    "rank": error_of(sdp.rank),
    "size": error_of(sdp.size),
    "local_rank": error_of(sdp.local_rank),
    "local_size": error_of(sdp.local_size),
    "allreduce": error_of(lambda: sdp.allreduce([1.0], 0, 1)),
    "broadcast": error_of(lambda: sdp.broadcast([1.0], 0)),
    "broadcast_variables": error_of(lambda: sdp.broadcast_variables([], 0)),
    "barrier": error_of(sdp.barrier),
    "broadcast_object": error_of(lambda: sdp.broadcast_object(1)),
    "allgather_object": error_of(lambda: sdp.allgather_object(1)),
    "get_worker_comm": error_of(sdp.get_worker_comm),
    "grouped_allreduce": error_of(lambda: sdp.grouped_allreduce([1.0])),
    "allgather": error_of(lambda: sdp.allgather([1.0])),
    "grouped_allgather": error_of(lambda: sdp.grouped_allgather([1.0])),
    "reducescatter": error_of(lambda: sdp.reducescatter([1.0])),
    "grouped_reducescatter": error_of(lambda: sdp.grouped_reducescatter([[1.0]])),
    "alltoall": error_of(lambda: sdp.alltoall([1.0])),
    "add_process_set": error_of(lambda: sdp.add_process_set([0])),
    "remove_process_set": error_of(lambda: sdp.remove_process_set(sdp.ProcessSet([0]))),
    "stats": error_of(sdp.stats),
    "DistributedGradientTape.gradient": error_of(
        lambda: sdp.DistributedGradientTape(tf.GradientTape()).gradient(None, [])
    ),
})
report("initialized before", sdp.is_initialized())
sdp.shutdown()  # nothing happens
sdp.init()
report("place", [sdp.rank(), sdp.size(), sdp.local_rank(), sdp.local_size()])
report("twice", error_of(sdp.init))
if os.fork() == 0:
    sys.exit(0)  # a child's end does not end the parent's job
os.wait()

# Scripts configure TensorFlow after init(): it must not have made a device.
from tensorflow.python.eager import context
report("context", context.context()._context_handle is not None)
tf.config.set_visible_devices(tf.config.list_physical_devices("CPU")[:1], "CPU")
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
report("sum", float(sdp.allreduce(3.0, 0, 1, op=sdp.ReduceOp.SUM)))
sdp.shutdown()
sdp.shutdown()
report("initialized after", sdp.is_initialized())
report("after", error_of(sdp.rank))
report("collective after", error_of(sdp.barrier))
function = tf.function(lambda: tf.constant(1.0))
report("tensorflow goes on", float(function()))
layer = sdp.SyncBatchNormalization(momentum=0.0)
layer(tf.constant([[1.0], [3.0]]), training=True)  # the stock layer, then
report("normalization goes on", float(layer.moving_mean[0]))
"""


def test_one_process_without_a_launcher():
    job = run_job(1, ALONE, launcher=False)
    assert job.exit_code == 0, str(job)
    report = job.reports[0]
    for caller, error in report["before"].items():
        assert error.startswith(f"tf_smddp.{caller}() was called before init(). Call tf_smddp.init() once"), (
            error
        )
    assert report["initialized before"] is False
    assert report["place"] == [0, 1, 0, 1]
    assert report["twice"].startswith("init() called more than once: ")
    assert report["context"] is False
    assert report["sum"] == 3.0
    assert report["initialized after"] is False
    assert report["after"].startswith("tf_smddp.rank() was called after shutdown().")
    assert report["collective after"].startswith("tf_smddp.barrier() was called after shutdown().")
    assert report["tensorflow goes on"] == 1.0
    assert report["normalization goes on"] == 2.0


def test_shutdown_while_another_thread_runs_a_function():
    """Its next collective fails; nothing else does."""
    job = run_job(
        1,
        """
import threading
under_way, go_on = threading.Event(), threading.Event()

def wait(x):
    under_way.set()
    go_on.wait(30.0)
    return x

@tf.function
def function(x):
    first = sdp.allreduce(x, 0, 1)
    late = tf.ensure_shape(tf.py_function(wait, [first], tf.float32), [2])
    return first + sdp.allreduce(late, 0, 1)

def work():
    try:
        function(tf.ones([2]))
    except tf.errors.OpError as error:
        report("error", error.message)

sdp.init()
thread = threading.Thread(target=work)
thread.start()
assert under_way.wait(30.0)
sdp.shutdown()
go_on.set()
thread.join()
report("done", True)
""",
        launcher=False,
    )
    assert job.exit_code == 0, str(job)
    assert "is not initialized" in job.reports[0]["error"], str(job)


def test_a_process_set_ends_with_its_job_and_a_job_without_descriptors_ends():
    job = run_job(
        1,
        """
def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"

sdp.init()
alone = sdp.add_process_set([0])
sdp.shutdown()
report("number", alone.process_set_id)
report("after", [
    error_of(lambda: sdp.allreduce(1.0, 0, 1, process_set=alone)),
    error_of(lambda: sdp.add_process_set(alone)),
    error_of(lambda: sdp.remove_process_set(alone)),
])
sdp.init()
report("in the next job", error_of(lambda: sdp.barrier(process_set=alone)))
sdp.add_process_set(alone)
report("sum", float(sdp.allreduce(3.0, 0, 1, process_set=alone)))
os.closerange(3, 256)  # as code does that makes a daemon
sdp.shutdown()
report("without descriptors", sdp.is_initialized())
""",
        launcher=False,
    )
    assert job.exit_code == 0, str(job)
    report = job.reports[0]
    assert report["without descriptors"] is False, str(job)
    assert report["number"] is None, str(job)
    for error in report["after"]:
        assert error.startswith("RuntimeError: tf_smddp."), str(job)
        assert "was called after shutdown()" in error, str(job)
    assert "which is not added. Call add_process_set()" in report["in the next job"], str(job)
    assert report["sum"] == 3.0, str(job)


def test_the_end_of_the_process_is_an_orderly_end():
    """Without shutdown() in the script, and with ranks that end at different times: nobody gets an error."""
    job = run_job(
        2,
        """
sdp.init()
step = tf.function(lambda x: sdp.allreduce(x, 0, 1))
for _ in range(20):
    step(tf.ones([1000]))
if sdp.rank() == 0:
    time.sleep(1.0)
report("done", True)
""",
    )
    assert job.exit_code == 0, str(job)
    assert job.reports == [{"done": True}] * 2
    for complaint in ("Traceback", "rror:", "tf_smddp:", "terminate", "Aborted"):
        assert complaint not in job.output, str(job)


def test_shutdown_in_a_forked_child_leaves_the_parent_alone():
    job = run_job(
        2,
        """
import signal
sdp.init()
if sdp.rank() == 0:
    child = os.fork()
    if child == 0:
        sdp.shutdown()
        os._exit(0)
    report("child", os.waitpid(child, 0)[1])
sdp.barrier()
# The parent still notices a death.
if sdp.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    sdp.barrier()
except tf.errors.OpError as error:
    report("error", error.message)
""",
    )
    assert job.reports[0]["child"] == 0, str(job)
    assert "SIGKILL" in job.reports[0]["error"], str(job)


def test_ctrl_c_while_init_waits_for_another_rank():
    job = run_job(
        1,
        """
import shutil, signal, tempfile, threading
meeting = tempfile.mkdtemp()
os.environ.update(SMDDP_RANK="0", SMDDP_SIZE="2", SMDDP_RENDEZVOUS=meeting)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    sdp.init()
except KeyboardInterrupt:
    report("seconds", time.monotonic() - begin)
shutil.rmtree(meeting)  # as the launcher does
""",
        launcher=False,
    )
    assert job.exit_code == 0, str(job)
    assert job.reports[0]["seconds"] < 10.0, str(job)


def test_digits_example_with_two_ranks(tmp_path):
    """It exits with 1 below 97 %, or when the ranks' weights are not equal to the bit."""
    job = run_job(2, str(ROOT / "examples" / "digits.py"), "--checkpoint-dir", str(tmp_path), seconds=180.0)
    assert job.exit_code == 0, str(job)
    assert "ranks          2" in job.output
    assert "epoch 20/20: loss" in job.output
    assert "equal to the bit on all ranks" in job.output
    assert (tmp_path / "checkpoint").exists()


def test_init_after_shutdown_under_smddprun():
    job = run_job(
        2,
        """
sdp.init()
sdp.barrier()
sdp.shutdown()
while os.path.exists(os.environ["SMDDP_RENDEZVOUS"]):
    time.sleep(0.1)  # smddprun removes it when no rank needs it any more
try:
    sdp.init()
except RuntimeError as error:
    report("error", str(error))
""",
    )
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["error"].startswith("tf_smddp.init() was called after shutdown()"), str(job)
        assert "Call shutdown() only at the end" in report["error"], str(job)


UNEVEN = """
import numpy as np
sdp.init()
for step in range(3 if sdp.rank() == 1 else 5):
    sdp.allreduce(np.ones(100_000, np.float32))
"""


def test_a_rank_that_ends_before_the_others():
    job = run_job(2, UNEVEN)
    assert job.exit_code != 0, str(job)
    text = "rank 1 has ended (its script is at its end, or called sys.exit) after 3 collectives, but"
    assert text in str(job) and "it had fewer batches" in str(job), str(job)


@pytest.mark.long
def test_a_rank_that_ends_before_the_others_says_after_how_many_steps():
    job = run_job(
        2,
        """
sdp.init()
for step in range(3 if sdp.rank() == 1 else 5):
    sdp.grouped_allreduce([tf.ones([2]), tf.ones([3])])
""",
    )
    assert job.exit_code != 0, str(job)
    assert "called sys.exit) after 3 steps (6 collectives), but allreduce" in str(job), str(job)


def test_a_rank_that_calls_shutdown_before_the_others():
    job = run_job(2, f"{UNEVEN}sdp.shutdown()\ntime.sleep(3)\n")
    assert "rank 1 called shutdown() after 3 collectives, but allreduce" in str(job), str(job)
