"""A job for test_xla_overlap.py: how much of its transfers a step has to wait for, in each way to run it.

    overlap_job.py MEASURE MILLISECONDS ROWS ENOUGH

Four layers. A transfer takes so many milliseconds; a layer's backward pass longer with many rows, and next to
nothing with few. It is read from a timeline, since the time of a whole step depends on what else the machine
does. A round with a figure below ENOUGH needs no other. MEASURE is one of

exposed: seconds with nothing left to compute: from the start of the last transfer to the end of all; or,
    where each is waited for at once, all of their time. For transfers that are shorter than a layer.
waited for: how many transfers had to end before the next gradient came. For those that are much longer.
"""

import json
import os
import shutil
import sys
import tempfile

import tensorflow as tf

import tf_smddp as sdp

# The backward pass of each layer needs the one above, as in any model: without tanh, XLA and
# TensorFlow would be free to have all gradients at the end.
LAYERS, WIDTH = 4, 1024
ROUNDS = 3
MEASURE, ROWS, ENOUGH = sys.argv[1], int(sys.argv[3]), float(sys.argv[4])

os.environ["SMDDP_TEST_TRANSFER_DELAY_MS"] = sys.argv[2]
# Comparisons of the weights would be among the transfers that are counted.
os.environ["SMDDP_UNEQUAL_WEIGHTS"] = "ignore"
os.environ["SMDDP_CHECK_EVERY"] = "0"
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
            y = tf.tanh(tf.matmul(y, weight))
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


def transfers(function):
    """(begin, end) of each, in seconds, in their order; the same on all ranks.

    Each begins when all ranks have come to it, so what one waits for another is not in it. The clock is one
    for all processes of a host.
    """
    path = f"{tempfile.mkdtemp()}/trace.json"
    sdp.barrier()
    sdp.start_profiler(path)
    float(tf.reduce_sum(function(batch)[0]))
    sdp.stop_profiler()
    path = path.replace(".json", f".rank{sdp.rank()}.json")
    times = {}
    with open(path) as file:
        for event in json.load(file):
            if event["ph"] in ("b", "e") and event["name"] not in ("wait for ranks", "move data"):
                times.setdefault(event["name"], []).append(event["ts"] / 1e6)
    shutil.rmtree(os.path.dirname(path))
    assert len(times) == LAYERS, times
    everywhere = sdp.allgather_object(times)
    assert all(each.keys() == times.keys() for each in everywhere), everywhere
    return sorted(
        (max(min(each[name]) for each in everywhere), max(max(each[name]) for each in everywhere))
        for name in times
    )


def behind_the_last(spans):
    return max(end for _, end in spans) - max(begin for begin, _ in spans)


def all_of_them(spans):
    return sum(end - begin for begin, end in spans)


def waited_for(spans):
    return sum(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))


def least(function, measure):
    """The least of some rounds. All ranks have the same figures, so all end at the same round."""
    found = []
    while len(found) < ROUNDS and not (found and min(found) < ENOUGH):
        found.append(measure(transfers(function)))
    return min(found)


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
    "graph": (tf.function, with_tape, behind_the_last),
    "jit": (compiled, with_tape, behind_the_last),
    "jit with overlap()": (compiled, with_tape_and_marks, behind_the_last),
    "auto-clustering with overlap()": (clustered, with_tape_and_marks, behind_the_last),
    "jit, tensor by tensor": (compiled, tensor_by_tensor, all_of_them),
}
found = {
    name: least(mode(function), exposed if MEASURE == "exposed" else waited_for)
    for name, (mode, function, exposed) in WAYS.items()
}
if sdp.rank() == 0:
    print(json.dumps(found), flush=True)
    folder = os.environ.get("TF_SMDDP_TEST_REPORTS")
    if folder:
        with open(f"{folder}/0", "a") as file:
            file.write(json.dumps([MEASURE, found]) + "\n")
