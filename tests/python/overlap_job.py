"""A job for test_xla_overlap.py: how much of its transfers a step has to wait for, in each way to run it.

Four layers. A transfer takes as long as SMDDP_TEST_TRANSFER_DELAY_MS says, and a layer's backward pass longer
than that. What is exposed is the time of a step minus that of the same step without communication.
"""

import json
import os
import time

import tensorflow as tf

import tf_smddp as sdp

LAYERS, ROWS, WIDTH = 4, 10240, 1024
ROUNDS = 2

sdp.init()
weights = [
    tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [i, 1]) / WIDTH**0.5, name=f"layer_{i}")
    for i in range(LAYERS)
]
batch = tf.random.stateless_normal([ROWS, WIDTH], [7, sdp.rank()])


def local(x, marked=False):
    with tf.GradientTape() as tape:
        y = x
        for weight in weights:
            y = tf.matmul(y, weight)
            y = sdp.overlap(y) if marked else y
        loss = tf.reduce_mean(y)
    return tape, loss


def with_tape(x):
    tape, loss = local(x)
    return sdp.DistributedGradientTape(tape).gradient(loss, weights)


def with_tape_and_marks(x):
    tape, loss = local(x, marked=True)
    return sdp.DistributedGradientTape(tape).gradient(loss, weights)


def tensor_by_tensor(x):
    tape, loss = local(x)
    gradients = tape.gradient(loss, weights)
    reduced = [sdp.allreduce(g, i, LAYERS) for i, g in reversed(list(enumerate(gradients)))]
    return reduced[::-1]


def alone(x):
    tape, loss = local(x)
    return tape.gradient(loss, weights)


def seconds_of(function):
    """The least of some, of the slowest rank."""

    @tf.function(autograph=False)
    def largest(value):
        return sdp.oob_allreduce(value, op=sdp.ReduceOp.MAX)

    function(batch)
    times = []
    for _ in range(ROUNDS):
        sdp.barrier()
        begin = time.perf_counter()
        gradients = function(batch)
        float(tf.reduce_sum(gradients[0]))
        times.append(float(largest(tf.constant(time.perf_counter() - begin))))
    return min(times)


def clustered(function):
    graph = tf.function(function)

    def run(x):
        tf.config.optimizer.set_jit(True)
        try:
            return graph(x)
        finally:
            tf.config.optimizer.set_jit(False)

    return run


def compiled(function):
    return tf.function(function, jit_compile=True)


WAYS = {
    "graph": (tf.function, with_tape),
    "jit": (compiled, with_tape),
    "jit with overlap()": (compiled, with_tape_and_marks),
    "auto-clustering with overlap()": (clustered, with_tape_and_marks),
    "jit, tensor by tensor": (compiled, tensor_by_tensor),
}
found = {}
for name, (mode, function) in WAYS.items():
    lone = seconds_of(mode(alone))
    found[name] = {"alone": lone, "exposed": seconds_of(mode(function)) - lone}
if sdp.rank() == 0:
    print(json.dumps(found, indent=1), flush=True)
    folder = os.environ.get("TF_SMDDP_TEST_REPORTS")
    if folder:
        with open(f"{folder}/0", "a") as file:
            file.write(json.dumps(["exposed", found]) + "\n")
