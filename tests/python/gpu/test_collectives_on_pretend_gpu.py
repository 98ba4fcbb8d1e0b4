"""Ranks on GPUs: jobs with TensorFlow's build for GPUs, on the pretend GPU and the pretend NCCL.

The SPMD suite, with `--collectives-on-gpu`, has the collectives themselves.
"""

import os
import signal
import time

import pytest
from harness import RunningJob, run_job
from pretend_gpu import GROWTH, OWN_GPU, first_and_long, run

TWO_RANKS = f"""
sdp.init()
rank = sdp.rank()
{OWN_GPU}
SUM = sdp.ReduceOp.SUM
with tf.device("/GPU:0"):
    x = on("GPU:0", tf.fill([1000], rank + 1.0))
    variable = tf.Variable(x)
    sdp.broadcast_variables([variable], 1)
    for mode in (lambda function: function, tf.function):
        for value, wanted in (
            (mode(lambda: sdp.allreduce(x, 0, 1, op=SUM))(), 3.0),
            (mode(lambda: sdp.broadcast(x, 1))(), 2.0),
            (variable, 2.0),
        ):
            assert np.all(value.numpy() == wanted), (value, wanted)

    weight = tf.Variable(tf.zeros([1000]))

    def step():
        with tf.GradientTape() as tape:
            error = weight * x - 6.0
            loss = error * error
        tape = sdp.DistributedGradientTape(tape)
        weight.assign_sub(0.05 * tape.gradient(loss, weight))

    compiled = tf.function(step)
    wanted = 0.0
    for i in range(6):
        step() if i % 2 == 0 else compiled()
        wanted -= 0.05 * np.mean([2 * (wanted * x_of_rank - 6) * x_of_rank for x_of_rank in (1, 2)])
    assert weight.device.endswith("GPU:0")
    np.testing.assert_allclose(weight.numpy(), np.full(1000, wanted), rtol=1e-5)
report("nccl", [sdp.stats()["collectives"][kind]["nccl_bytes"] for kind in ("allreduce", "broadcast")])
"""


@pytest.mark.parametrize("policy", first_and_long(["random", "lazy"]))
def test_two_ranks_with_a_gpu_each(gpus, policy):
    gpus(2, policy)
    job = run(TWO_RANKS, num_processes=2)
    # Eight allreduces and three broadcasts of 4,000 bytes.
    assert [found["nccl"] for found in job.reports] == [[32000, 12000]] * 2


@pytest.mark.long
def test_two_ranks_with_one_gpu(gpus):
    gpus(1)
    job = run(TWO_RANKS, num_processes=2)
    assert [found["nccl"] for found in job.reports] == [[0, 0]] * 2
    assert job.output.count("ranks 0, 1 share GPU 0") == 1


SAME_AS_ON_THE_CPU = f"""
sdp.init()
{OWN_GPU}
COUNT, STEPS = 3000, 6


def train(device, compiled):
    random = np.random.default_rng(sdp.rank())  # each rank has data of its own
    with tf.device(device):
        x, wanted = (tf.constant(random.standard_normal(COUNT), tf.float32) for _ in range(2))
        weights = [tf.Variable(tf.fill([COUNT], 0.1 * (i + sdp.rank()))) for i in range(4)]
        sdp.broadcast_variables(weights, 0)

        def step():
            a, b, c, d = weights
            with tf.GradientTape() as tape:
                error = c * (a * x + b) + d - wanted
                loss = tf.reduce_mean(error * error)
            gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
            for weight, gradient in zip(weights, gradients):
                weight.assign_sub(300.0 * gradient)

        run = tf.function(step) if compiled else step
        for _ in range(STEPS):
            run()
    return [on(device, weight).numpy() for weight in weights]


for compiled in (False, True):
    wanted, found = train("CPU:0", compiled), train("GPU:0", compiled)
    assert all(np.mean(np.abs(each - 0.1 * i)) > 0.01 for i, each in enumerate(wanted))  # all have learned
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    bits = [each.tobytes() for each in found]
    assert sdp.allgather_object(bits) == [bits] * sdp.size()
    report(f"different from the CPU's {{compiled}}", int(np.sum(np.array(found) != np.array(wanted))))
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""


@pytest.mark.long
@pytest.mark.parametrize("policy", ["random", "lazy", "tensorflow=prompt,*=lazy"])
@pytest.mark.parametrize("num_gpus", [3, 1])
def test_training_equals_the_cpus_and_all_ranks_agree(gpus, num_gpus, policy):
    """To rounding, and to the bit: with NCCL, and through the host."""
    gpus(num_gpus, policy)
    job = run(SAME_AS_ON_THE_CPU, num_processes=3)
    wanted = 2 * 6 * 4 * 12000 if num_gpus == 3 else 0
    assert [found["nccl"] for found in job.reports] == [wanted] * 3


TRAINING = f"""
sdp.init()
report("pid", os.getpid())
{OWN_GPU}
with tf.device("/GPU:0"):
    weights = [tf.Variable(tf.ones([1000 * (i + 1)])) for i in range(8)]


@tf.function
def step(size):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_mean(weight * weight) for weight in weights])
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
    more = sdp.oob_allreduce(tf.ones([size]))
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.1 * gradient)
    return more


def train(size=tf.constant(7)):
    with tf.device("/GPU:0"):
        return step(size)
"""

KILLED = (
    TRAINING
    + """
train()
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
sdp.barrier()
report("training", True)
try:
    while True:
        train()
except tf.errors.OpError as error:
    report("when", time.time())
    report("error", error.message)
"""
)


@pytest.mark.parametrize("victim", first_and_long(range(3)))
def test_a_rank_is_killed(gpus, victim):
    """In the middle of NCCL's calls: the others' GPUs do not wait for it."""
    gpus(3)
    with RunningJob(3, GROWTH + KILLED) as running:
        running.wait_for("training")
        pid = running.reports()[victim]["pid"]
        time.sleep(0.1 * victim)
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        job = running.finish()
    assert job.exit_code == 128 + signal.SIGKILL, str(job)
    assert not job.leftovers, str(job)
    for rank, report in enumerate(job.reports):
        if rank == victim:
            continue
        for text in (f"rank {victim}", str(pid), "SIGKILL"):
            assert text in report["error"], f"rank {rank} should say {text!r}: {job}"
        assert report["when"] - killed < 5.0, str(job)
        assert report["nccl"] > 0


THROWN = (
    TRAINING
    + """
train()
sdp.barrier()
try:
    while True:
        train()
        if sdp.rank() == VICTIM and next(steps) == 5:
            report("when", time.time())
            raise ValueError("this rank's data is broken")
except tf.errors.OpError as error:
    report("when", time.time())
    report("error", error.message)
    raise
"""
).replace("sdp.init()", "import itertools\n\nsdp.init()\nsteps = itertools.count()")


@pytest.mark.long
@pytest.mark.parametrize("num_gpus", [3, 1])
@pytest.mark.parametrize("victim", range(3))
def test_a_rank_throws(gpus, victim, num_gpus):
    """In its program, while the others have work on their GPUs, or on the one that all share."""
    gpus(num_gpus)
    job = run_job(3, GROWTH + THROWN.replace("VICTIM", str(victim)))
    assert job.exit_code == 1, str(job)
    assert not job.leftovers, str(job)
    thrown = job.reports[victim]["when"]
    for report in job.reports[:victim] + job.reports[victim + 1 :]:
        text = f"rank {victim} ended with an uncaught ValueError: this rank's data is broken"
        assert text in report["error"], str(job)
        assert report["when"] - thrown < 5.0, str(job)


BROKEN = (
    TRAINING
    + """
import ctypes

train()
sdp.barrier()
if rank == 1:
    # As after a kernel's access to an illegal address.
    ctypes.CDLL("libcuda.so.1").pretend_gpu_break_device(1, CALLS)
report("broken", time.time())
try:
    while True:
        train()
except tf.errors.OpError as error:
    report("when", time.time())
    report("error", error.message)
    raise
"""
).replace("sdp.init()", "sdp.init()\nrank = sdp.rank()")


@pytest.mark.long
@pytest.mark.pretend_gpu
@pytest.mark.parametrize("calls", [0, 7, 40])
def test_a_gpu_breaks(gpus, calls):
    """All ranks get the error, from us or from an op of TensorFlow's, which may also end the process."""
    gpus(3)
    job = run_job(3, GROWTH + BROKEN.replace("CALLS", str(calls)))
    assert job.exit_code != 0 and not job.leftovers, str(job)
    # TensorFlow 2.21 may be the first to notice, and does not name the error when it ends the process.
    noticed = ("CUDA_ERROR_ILLEGAL_ADDRESS", "Unexpected Event status")
    assert any(text in job.output for text in noticed), str(job)
    for rank in (0, 2):
        report = job.reports[rank]
        assert "rank 1" in report["error"], str(job)
        # NCCL may see that the process has ended before our watcher has the signal.
        causes = ("CUDA_ERROR_ILLEGAL_ADDRESS", "SIGABRT", "has ended")
        assert any(cause in report["error"] for cause in causes), str(job)
        assert report["when"] - report["broken"] < 20.0, str(job)


def test_training_goes_on_after_failed_steps(gpus):
    gpus(3)
    job = run(
        TRAINING
        + """
for i in range(6):
    train()
    try:
        train(tf.constant(7 + sdp.rank()))
        raise AssertionError("no error")
    except tf.errors.InternalError as error:
        assert "the ranks run different collectives" in error.message, error.message
# A step that fails may have changed some weights on some ranks.
sdp.broadcast_variables(weights, 0)
train()
first = [float(weight[0]) for weight in weights]
assert sdp.allgather_object(first) == [first] * sdp.size()
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
""",
        num_processes=3,
    )
    assert all(found["nccl"] > 6 * 36 * 4000 for found in job.reports)


THREADS = f"""
import threading

sdp.init()
{OWN_GPU}
rank, size = sdp.rank(), sdp.size()
sets = [sdp.add_process_set(range(size)) for _ in range(3)]
outcomes = [[] for _ in sets]


def work(number):
    # Thread 0's shapes differ between the ranks every time.
    for i in range(12):
        with tf.device("/CPU:0"):
            value = tf.ones([rank + 1]) if number == 0 and i % 2 else tf.constant([float(i + rank)])
        try:
            with tf.device("/GPU:0"):
                found = sdp.allreduce(value, 0, 1, op=sdp.ReduceOp.SUM, process_set=sets[number])
            assert found.numpy().tolist() == [i * size + sum(range(size))]
            outcomes[number].append("right")
        except tf.errors.OpError as error:
            assert "the ranks run different collectives" in error.message, error.message
            outcomes[number].append("failed")


threads = [threading.Thread(target=work, args=((i + rank) % 3,)) for i in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len({{str(each) for each in sdp.allgather_object(outcomes)}}) == 1, outcomes
report("outcomes", outcomes)
"""


@pytest.mark.long
@pytest.mark.parametrize("repetition", range(4))
def test_a_failure_in_one_thread_does_not_stop_the_others(gpus, repetition):
    """TensorFlow may hand it to eager ops of other threads; then it concerns all ranks, and no rank waits."""
    gpus(3)
    for found in run(THREADS, num_processes=3).reports:
        assert found["outcomes"][0][1::2] == ["failed"] * 6
        assert all(len(each) == 12 for each in found["outcomes"])
