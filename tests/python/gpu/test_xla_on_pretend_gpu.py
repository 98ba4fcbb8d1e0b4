"""Collectives in functions that XLA compiles for a GPU, on the pretend GPU and the pretend NCCL."""

import os
import re

import pytest
from pretend_gpu import OWN_GPU, first_and_long, run

POLICIES = ["tensorflow=lazy,*=prompt", "tensorflow=prompt,*=lazy", "random", "lazy"]

START = f"""
sdp.init()
rank, size = sdp.rank(), sdp.size()
{OWN_GPU}
SUM = sdp.ReduceOp.SUM


def compiled(function):
    return tf.function(function, jit_compile=True)


def check(what, found, wanted):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted, np.float32), what)
"""

# Each step has a computation before and behind the collective, so that both waits count.
COLLECTIVES = (
    START
    + """
COUNT = 1000
inputs = [np.arange(COUNT, dtype=np.float32) % 7 + each for each in range(size)]


@compiled
def group(x):
    tensors = [x * 2.0, x + 1.0, (x + 1.0) * (x - 1.0)]
    return [each * 3.0 for each in sdp.grouped_allreduce(tensors, op=SUM)]


@compiled
def one(x):
    return sdp.allreduce(x * 2.0, 0, 1, op=SUM) + 1.0


@compiled
def gathered(x):
    return sdp.allgather(x * 2.0) + 1.0


@compiled
def scattered(x):
    return sdp.reducescatter(x * 2.0, op=SUM) + 1.0


@compiled
def broadcast(x):
    return sdp.broadcast(x * 2.0, 1) + 1.0


@compiled
def exchanged(x):
    return sdp.alltoall(x * 2.0) + 1.0


@compiled
def in_order(x):
    first = sdp.allreduce(x, 0, 1, op=SUM)
    sdp.barrier()
    return sdp.oob_allreduce(first * 2.0), sdp.allgather(x)


@compiled
def in_a_loop(x):
    for _ in tf.range(3):
        x = sdp.allreduce(x, 0, 1, op=SUM) * 0.5
    return sdp.allreduce(x, 0, 1, op=SUM)


@compiled
def in_a_branch(x, wanted):
    y = x * 2.0
    if wanted:
        y = sdp.allreduce(y, 0, 1, op=SUM)
    else:
        y = sdp.broadcast(y, 0)
    return sdp.allgather(y)


total = sum(inputs)
all_of_them = np.concatenate(inputs)
with tf.device("/GPU:0"):
    x = on("GPU:0", tf.constant(inputs[rank]))
    yes, no = tf.constant(True), tf.constant(False)
    for _ in range(3):
        a, b, c = group(x)
        check("group", a, total * 6)
        check("group", b, (total + size) * 3)
        check("group", c, sum((each + 1) * (each - 1) for each in inputs) * 3)
        check("allreduce", one(x), total * 2 + 1)
        check("allgather", gathered(x), all_of_them * 2 + 1)
        part = COUNT // size
        check("reducescatter", scattered(x), (total * 2 + 1)[rank * part :][:part])
        check("broadcast", broadcast(x), inputs[1] * 2 + 1)
        parts = [each[rank * part :][:part] for each in inputs]
        check("alltoall", exchanged(x), np.concatenate(parts) * 2 + 1)
        first, second = in_order(x)
        check("in order", first, total * 2)
        check("in order", second, all_of_them)
        check("loop", in_a_loop(x), total * size**3 * 0.5**3)
        check("branch", in_a_branch(x, yes), np.concatenate([total * 2] * size))
        check("branch", in_a_branch(x, no), np.concatenate([inputs[0] * 2] * size))
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""
)


@pytest.mark.parametrize("policy", first_and_long(POLICIES))
def test_collectives(gpus, policy):
    gpus(2, policy)
    job = run(COLLECTIVES, num_processes=2)
    assert all(found["nccl"] > 0 for found in job.reports), str(job)


@pytest.mark.long
def test_collectives_of_ranks_that_share_a_gpu(gpus):
    gpus(1)
    job = run(COLLECTIVES, num_processes=2)
    assert [found["nccl"] for found in job.reports] == [0, 0]


TRAINING = (
    START
    + """
with tf.device("/GPU:0"):
    x = tf.constant([1.0, 2.0, 3.0]) * (rank + 1.0)
    weights = [tf.Variable([1.0, 1.0, 1.0]), tf.Variable([2.0, 2.0, 2.0])]


def train(x):
    with tf.GradientTape() as tape:
        loss = weights[0] * x * weights[1]
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.125 * gradient)


step = compiled(train)
wanted = [np.float32([1, 1, 1]), np.float32([2, 2, 2])]
mean = np.float32([1, 2, 3]) * np.mean(np.arange(size) + 1.0)
for _ in range(5):
    with tf.device("/GPU:0"):
        step(x)
    wanted = [wanted[0] - 0.125 * mean * wanted[1], wanted[1] - 0.125 * mean * wanted[0]]
for weight, each in zip(weights, wanted):
    assert weight.device.endswith("GPU:0")
    np.testing.assert_allclose(weight.numpy(), each, rtol=1e-6)
"""
)


@pytest.mark.parametrize("policy", first_and_long(POLICIES))
def test_training(gpus, policy):
    gpus(2, policy)
    run(TRAINING, num_processes=2)


# The ranks agree on which call fails, and what follows is well.
FAILURES = (
    START
    + """
@compiled
def total(x):
    return sdp.allreduce(x * 2.0, 0, 1, op=SUM)


@compiled
def group(x, y):
    return sdp.grouped_allreduce([x * 2.0, y * 2.0], op=SUM)


@compiled
def gathered(x):
    return sdp.allgather(x * 2.0)


def expect(text, call):
    try:
        call()
    except tf.errors.InternalError as error:
        assert text in error.message, error.message
    else:
        raise AssertionError(f"nothing was wrong: {text}")


with tf.device("/GPU:0"):
    same = tf.constant([1.0, 2.0, 3.0])
    other = tf.constant([1.0] * (3 + rank))
    for _ in range(2):
        expect("different collectives", lambda: total(other))
        check("after a failure", total(same), same * 2.0 * size)
        expect("different collectives", lambda: group(same, other))
        check("after a failure", group(same, same)[1], same * 2.0 * size)
        expect("was compiled by XLA for the rows", lambda: gathered(other))
        check("after a failure", total(same), same * 2.0 * size)
"""
)


@pytest.mark.long
@pytest.mark.parametrize("num_gpus", [2, 1])
def test_failures(gpus, num_gpus):
    gpus(num_gpus)
    run(FAILURES, num_processes=2)


LAYERS = 8

# Each layer has a gradient as large as its weight. The inputs of the dense ones are smaller.
SCHEDULES = f"""
sdp.init()


def dense(x, weight):
    return tf.nn.relu(tf.matmul(x, weight))


def element_wise(x, weight):
    return sdp.overlap(tf.tanh(x * weight))


def schedule(layer, rows):
    weights = [tf.Variable(tf.zeros([512, 512])) for _ in range({LAYERS})]

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            found = x
            for weight in weights:
                found = layer(found, weight)
        gradients = sdp.DistributedGradientTape(tape).gradient(found, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(gradient)
        return found

    compiler = step.experimental_get_compiler_ir(tf.zeros([rows, 512]))
    return compiler(stage="optimized_hlo", device_name="/GPU:0")


report("dense", schedule(dense, 64))
report("element-wise", schedule(element_wise, 512))
"""


def test_each_transfer_starts_behind_its_gradient(gpus, monkeypatch):
    """In the order in which XLA runs the program, which is compiled only: the pretend GPU has no cuBLAS."""
    gpus(1)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"  # it would run what it compares
    monkeypatch.setenv("XLA_FLAGS", flags)
    for model, program in run(SCHEDULES).reports[0].items():
        assert "is_scheduled=true" in program
        main = program[program.index("\nENTRY") :]
        places = {name: place for place, name in enumerate(re.findall(r"^ +(?:ROOT )?%(\S+) = ", main, re.M))}
        starts = re.findall(r"^ +%(\S+) = .* custom-call\([^%]*%([^,)]+).*\"tf_smddp_start\"", main, re.M)
        gradients = [places[gradient] for _, gradient in starts]
        behind = [sum(places[start] < gradient for gradient in gradients) for start, _ in starts]
        assert behind == list(range(LAYERS))[::-1], (model, behind)
