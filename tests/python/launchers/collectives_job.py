"""A job for ranks on several hosts: each collective, small and large, a step that fails, and what follows it.

Each rank compares its results with NumPy's, and writes a line with a digest of what must be equal on all.
"""

import hashlib
import os
import sys

import numpy as np
import tensorflow as tf

import tf_smddp as sdp

sdp.init()
RANK, SIZE = sdp.rank(), sdp.size()
COUNTS = (1, 5, 1_000, 30_011, 1_000_003)
digest = hashlib.sha256()


def inputs(count, seed):
    """Every rank's input, the same on all ranks."""
    return [np.random.RandomState(seed * 100 + rank).randn(count).astype(np.float32) for rank in range(SIZE)]


def note(*results):
    for result in results:
        digest.update(np.ascontiguousarray(result).tobytes())


for count in COUNTS:
    mine = inputs(count, 1)
    total = np.sum(np.array(mine, np.float64), axis=0)
    mean = sdp.allreduce(tf.constant(mine[RANK]), 0, 1).numpy()
    np.testing.assert_allclose(mean, total / SIZE, rtol=1e-5, atol=1e-6)
    whole = sdp.allreduce(tf.range(count, dtype=tf.int64) * (RANK + 1), 0, 1, op=sdp.ReduceOp.SUM).numpy()
    np.testing.assert_array_equal(whole, np.arange(count) * (SIZE * (SIZE + 1) // 2))
    last = sdp.broadcast(tf.constant(mine[RANK]), SIZE - 1).numpy()
    np.testing.assert_array_equal(last, mine[SIZE - 1])
    gathered = sdp.allgather(tf.constant(mine[RANK][: count - RANK % 2])).numpy()
    np.testing.assert_array_equal(
        gathered, np.concatenate([each[: count - rank % 2] for rank, each in enumerate(mine)])
    )
    note(mean, whole, last, gathered)


@tf.function
def gradients(*tensors):
    return [sdp.allreduce(tensor, index, len(tensors)) for index, tensor in enumerate(tensors)]


@tf.function
def separately(*tensors):
    """Each is a group of its own, and none waits for another one."""
    return [sdp.allreduce(tensor, 0, 1) for tensor in tensors]


@tf.function
def loop(start, steps):
    """More groups in one step than a table has places for."""
    total = start
    for _ in tf.range(steps):
        total = sdp.allreduce(total, 0, 1, op=sdp.ReduceOp.SUM) / SIZE
    return total


sets = [inputs(7 + 5_000 * index, 2 + index) for index in range(40)]
for _ in range(3):
    results = gradients(*[tf.constant(each[RANK]) for each in sets])
    for each, result in zip(sets, results, strict=True):
        np.testing.assert_allclose(result.numpy(), np.mean(each, axis=0, dtype=np.float64), atol=1e-5)
        note(result.numpy())
for each, result in zip(sets, separately(*[tf.constant(each[RANK]) for each in sets]), strict=True):
    np.testing.assert_allclose(result.numpy(), np.mean(each, axis=0, dtype=np.float64), atol=1e-5)
    note(result.numpy())
np.testing.assert_allclose(
    loop(tf.fill([10], float(RANK)), tf.constant(100)).numpy(), np.full(10, (SIZE - 1) / 2), rtol=1e-5
)

for compression, error in ((sdp.Compression.fp16, 2**-10), (sdp.Compression.bf16, 2**-7)):
    mine = inputs(100_003, 3)
    mean = sdp.allreduce(tf.constant(mine[RANK]), 0, 1, compression=compression).numpy()
    np.testing.assert_allclose(mean, np.mean(mine, axis=0, dtype=np.float64), rtol=error, atol=4 * error)
    note(mean)

try:
    sdp.allreduce(tf.zeros(10 + RANK), 0, 1)
except tf.errors.InternalError as error:
    assert "the ranks run different collectives" in str(error), error
else:
    raise AssertionError("shapes that differ are an error on all ranks")
note(sdp.allreduce(tf.fill([100], float(RANK)), 0, 1).numpy())

place = f"rank {RANK} of {SIZE}, local {sdp.local_rank()} of {sdp.local_size()}"
os.write(1, f"{sys.argv[1]}: {place}, {digest.hexdigest()}\n".encode())
