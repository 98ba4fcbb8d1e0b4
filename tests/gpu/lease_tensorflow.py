"""The steps of lease.sh with TensorFlow: what two ranks do that share a GPU, as if each had one of its own.

`smddprun -np 2 python lease_tensorflow.py MODE`, where MODE is `train`; `xla`, a step that XLA compiles; how
rank 1 ends, `kill`, `stop` or `throw`; or `memory`, where TensorFlow's pool leaves little of the GPU. A line
that begins with "figure: " goes into the table. It needs elementwise kernels alone, so it runs on the pretend
GPU, too.
"""

import hashlib
import os
import re
import sys
import time

import numpy as np
import tensorflow as tf
from lease_ranks import STEP, end_rank, write, write_end

import tf_smddp as sdp

MODE = sys.argv[1]
STEPS, RATE = 20, np.float32(0.05)
LENGTHS = (1, 300, 20_000, *[1 << 18] * 20)
LAYERS, SHAPE = 8, (64, 64)  # under XLA
# A pool of TensorFlow's leaves so much for all else on the GPU.
LEFT_MIB = 800

sdp.init()
gpu = tf.config.list_physical_devices("GPU")[0]
if MODE == "memory":
    all_mib = int(os.environ.get("LEASE_GPU_MIB", "2048"))
    pool = tf.config.LogicalDeviceConfiguration(memory_limit=all_mib // sdp.size() - LEFT_MIB)
    tf.config.set_logical_device_configuration(gpu, [pool])
else:
    tf.config.experimental.set_memory_growth(gpu, True)


def nccl_bytes(kind):
    """How many bytes of this collective NCCL has moved."""
    return sdp.stats()["collectives"][kind]["nccl_bytes"]


def train():
    """Trains weights whose result is known."""
    with tf.device("/GPU:0"):
        weights = [tf.Variable(tf.fill([length], tf.constant(sdp.rank() + 1.0))) for length in LENGTHS]
        sdp.broadcast_variables(weights, root_rank=0)
        scale = tf.constant(1.0 + sdp.rank())

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                errors = [scale * weight - 3.0 for weight in weights]
                losses = [error * error for error in errors]
            tape = sdp.DistributedGradientTape(tape)
            for weight, gradient in zip(weights, tape.gradient(losses, weights)):
                weight.assign_sub(RATE * gradient)

        step()
        sdp.stats(reset=True)
        begin = time.monotonic()
        for _ in range(STEPS - 1):
            step()
        found = [weight.numpy() for weight in weights]
    seconds = (time.monotonic() - begin) / (STEPS - 1)
    expected = np.float64(1)
    for _ in range(STEPS):
        gradients = [2 * (1 + rank) * ((1 + rank) * expected - 3) for rank in range(sdp.size())]
        expected -= RATE * np.mean(gradients)
    for weight in found:
        np.testing.assert_allclose(weight, expected, rtol=1e-4)
    moved = (
        0 if "FAULTY_NCCL" in os.environ else (STEPS - 1) * 4 * sum(LENGTHS)
    )  # through the host, if it fails
    assert nccl_bytes("allreduce") == moved, nccl_bytes("allreduce")
    digest = hashlib.sha256(np.concatenate(found).tobytes()).hexdigest()[:16]
    write(f"weights: {digest}")
    if sdp.rank() == 0:
        batches = sdp.stats()["process_sets"][0]["batches"] / (STEPS - 1)
        write(f"figure: {batches:.1f} batches and {1e3 * seconds:.1f} ms a step, weights {digest}")


def xla():
    """A compiled step, whose transfers start while other gradients are to be computed."""
    with tf.device("/GPU:0"):
        weights = [tf.Variable(tf.ones(SHAPE)) for _ in range(LAYERS)]
        x = tf.fill(SHAPE, tf.constant(1.0 + sdp.rank()))

        @tf.function(jit_compile=True)
        def step(x):
            with tf.GradientTape() as tape:
                found = x
                for weight in weights:
                    found = sdp.overlap(tf.tanh(found * weight))
            tape = sdp.DistributedGradientTape(tape)
            for weight, gradient in zip(weights, tape.gradient(found, weights)):
                weight.assign_sub(RATE * gradient)

        program = step.experimental_get_compiler_ir(x)(stage="optimized_hlo", device_name="/GPU:0")
        for _ in range(STEPS):
            step(x)
        found = [weight.numpy() for weight in weights]
    expected = np.ones(LAYERS)
    for _ in range(STEPS):
        gradients = np.zeros(LAYERS)
        for rank in range(sdp.size()):
            values = [1.0 + rank]
            for weight in expected:
                values.append(np.tanh(values[-1] * weight))
            upstream = 1.0
            for layer in reversed(range(LAYERS)):
                upstream *= 1 - values[layer + 1] ** 2
                gradients[layer] += upstream * values[layer] / sdp.size()
                upstream *= expected[layer]
        expected -= RATE * gradients
    for layer, weight in enumerate(found):
        np.testing.assert_allclose(weight, expected[layer], rtol=1e-3)
    assert nccl_bytes("allreduce") > 0
    main = program[program.index("\nENTRY") :]
    places = {name: place for place, name in enumerate(re.findall(r"^ +(?:ROOT )?%(\S+) = ", main, re.M))}
    starts = re.findall(r"^ +%(\S+) = .* custom-call\([^%]*%([^,)]+).*\"tf_smddp_start\"", main, re.M)
    behind = sum(places[gradient] > places[starts[0][0]] for _, gradient in starts)
    if sdp.rank() == 0:
        write(f"figure: {behind} of {len(starts)} gradients behind the first start")
    assert len(starts) == LAYERS and behind >= LAYERS // 2  # XLA fuses some gradients of small layers


def end():
    """Rank 1 ends in a step; rank 0 tells how long its error took."""
    try:
        with tf.device("/GPU:0"):
            for step in range(1_000_000):
                total = sdp.allreduce(tf.ones(5_000), 0, 1, op=sdp.ReduceOp.SUM)
                total = total + total  # a kernel behind it
                if step == STEP:
                    assert nccl_bytes("allreduce") > 0
                if step == STEP and sdp.rank() == 1:
                    end_rank(MODE)
    except tf.errors.OpError as error:
        write_end(error.message.split("}} ")[-1])


def memory():
    """All collectives that take memory of NCCL's, with little left."""
    with tf.device("/GPU:0"):
        for _ in range(5):
            sums = sdp.allreduce(tf.ones(1 << 20), 0, 1, op=sdp.ReduceOp.SUM)
            rows = sdp.alltoall(tf.ones([sdp.size() * 1000]))
        assert sums.numpy().tolist() == [sdp.size()] * (1 << 20)
        assert rows.numpy().tolist() == [1] * 1000 * sdp.size()
    if sdp.rank() == 0:
        write(f"figure: NCCL moved {nccl_bytes('allreduce')} and {nccl_bytes('alltoall')} bytes")


{"train": train, "xla": xla, "memory": memory}.get(MODE, end)()
