"""A step ends on one rank while its collectives wait for others: these get the reason, and can continue."""

import pytest
from harness import run_job

# Every rank does each step, with `bad` true on rank 0 alone; rank 1 comes when it has failed there, so the
# others' collectives wait for it. Then all do one more, which is right.
SCRIPT = """
import pathlib, threading
from tensorflow.python.eager import cancellation

sdp.init()
rank = sdp.rank()
assert sdp.allreduce(1.0, 0, 1, op=sdp.ReduceOp.SUM) == sdp.size()

def slow(number):
    time.sleep(0.5)
    return number

def wait_until_failed(name):
    path = pathlib.Path(os.environ["TF_SMDDP_TEST_REPORTS"], "0")
    deadline = time.monotonic() + 30.0
    while not (path.exists() and json.dumps(name + ": failed") in path.read_text()):
        assert time.monotonic() < deadline, "rank 0 waits for this one"
        time.sleep(0.01)

def run(name, step):
    sdp.barrier()
    if rank == 1:
        wait_until_failed(name)
    begin = time.monotonic()
    kind = text = "none"
    try:
        step(rank == 0)
    except tf.errors.OpError as error:
        kind, text = type(error).__name__, error.message
        if rank == 0:
            report(name + ": failed", True)
    seconds = time.monotonic() - begin
    after = [float(sdp.allreduce(i + rank, 0, 1)) for i in (0.0, 3.0)]
    report(name, {"type": kind, "error": text, "seconds": seconds, "next": after})

"""

FUNCTION = """
@tf.function
def function(tensor, bad):
    total = sdp.allreduce(tensor, 0, 1, name="total")
    # Late enough that the allreduce is under way.
    late = tf.py_function(slow, [tf.cast(bad, tf.float32)], tf.float32)
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(late, 0.0), ["the disk is full"])]):
        return tf.identity(total)

def step(bad):
    function(tf.ones([3]), tf.constant(bad))
"""

HALF_A_GROUP = """
@tf.function
def function(tensor, bad):
    first = sdp.allreduce(tensor, 0, 2, name="first")
    late = tf.py_function(slow, [tensor], tf.float32)
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(bad), ["the disk is full"])]):
        late = tf.ensure_shape(late, [3])
    return first, sdp.allreduce(late, 1, 2, name="second")

def step(bad):
    function(tf.ones([3]), tf.constant(bad))
"""

CANCELLED_FUNCTION = """
@tf.function
def function(tensor):
    return sdp.allreduce(tensor, 0, 1, name="total")

def step(bad):
    manager = cancellation.CancellationManager()
    call = manager.get_cancelable_function(function.get_concrete_function(tf.ones([3])))
    if bad:
        threading.Timer(0.5, manager.start_cancel).start()
    call(tf.ones([3]))
"""

CLOSED_SESSION = """
def step(bad):
    with tf.Graph().as_default() as graph:
        total = sdp.allreduce(tf.ones([3]), 0, 1, name="total")
    session = tf.compat.v1.Session(graph=graph)
    if bad:
        threading.Timer(0.5, session.close).start()
    session.run(total)
"""

SESSION = """
def step(bad):
    with tf.Graph().as_default() as graph:
        total = sdp.allreduce(tf.ones([3]), 0, 1, name="total")
        late = tf.compat.v1.py_func(slow, [1.0 if bad else 0.0], tf.float32)
        check = tf.debugging.Assert(tf.equal(late, 0.0), ["the disk is full"])
    tf.compat.v1.Session(graph=graph).run([total, check])
"""

FAILED = ["failed with INVALID_ARGUMENT", "the disk is full"]
WITHDRAWN = ["withdrew allreduce 'total'", "was cancelled"]

# The code of each step, and what the other ranks read of its end.
STEPS = {
    "function": (FUNCTION, FAILED),
    "half a group": (HALF_A_GROUP, FAILED),
    "session": (SESSION, FAILED),
    "cancelled function": (CANCELLED_FUNCTION, WITHDRAWN),
    "closed session": (CLOSED_SESSION, WITHDRAWN),
}


@pytest.fixture(scope="module")
def job():
    """One job of three ranks, in which all these steps fail, one after the other."""
    runs = [f"{code}\nrun({name!r}, step)\n" for name, (code, _) in STEPS.items()]
    return run_job(3, SCRIPT + "\n".join(runs) + "\nsdp.barrier()\n")


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("name", STEPS)
def test_the_others_get_the_reason_and_go_on(job, name):
    assert job.exit_code == 0, job
    failed, absent, waiting = (report[name] for report in job.reports)
    # Which error of the failed step TensorFlow reports is its own choice.
    assert failed["error"] != "none", job
    for report in (absent, waiting):
        assert report["type"] == "InternalError", job
        for text in ("rank 0", *STEPS[name][1]):
            assert text in report["error"], (text, job)
        assert report["seconds"] < 10.0, job
    for report in (failed, absent, waiting):
        assert report["next"] == [1.0, 4.0], job
