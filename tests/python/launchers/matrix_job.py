"""A job for ranks on several hosts: each collective with all types, operations and kinds of sizes.

It runs collectives_job.py first. Then come the matrix, eagerly and in functions in which all are under way at
once, process sets over the hosts, and steps that fail on each rank in turn. The inputs are integers from 1 to
4 in number, so that results are exact in every type with up to six ranks.
"""

import hashlib
import itertools
import os

import collectives_job  # noqa: F401, it is a job that checks itself
import numpy as np
import tensorflow as tf

import tf_smddp as sdp

RANK, SIZE = sdp.rank(), sdp.size()
OPS = sdp.ReduceOp
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
COMPLEX = (tf.complex64, tf.complex128)
TYPES = (*FLOATS, *INTEGERS, *COMPLEX, tf.bool)
REDUCTIONS = [
    *itertools.product((*FLOATS, *INTEGERS), OPS),
    *itertools.product(COMPLEX, (OPS.SUM, OPS.AVERAGE, OPS.PRODUCT)),
    *((tf.bool, op) for op in (OPS.MIN, OPS.MAX)),
]
# Nothing, one, fewer than there are ranks, odd, and more than a piece that goes between hosts has.
COUNTS = (0, 1, 4, 5_003)
LARGE = 300_007
REDUCE = {
    OPS.SUM: lambda values: values.sum(axis=0),
    OPS.AVERAGE: lambda values: values.sum(axis=0) / SIZE,
    OPS.MIN: lambda values: values.min(axis=0),
    OPS.MAX: lambda values: values.max(axis=0),
    OPS.PRODUCT: lambda values: values.prod(axis=0),
}
digest = hashlib.sha256()


def exact(dtype, op, count, rank):
    """Rank `rank`'s input, as float64 or complex128."""
    values = 1.0 + (np.arange(count) * 3 + rank * 5) % 7 % 2
    if op is OPS.AVERAGE:
        values = values * SIZE  # so that the average is an integer
    return values * (1 + 1j) if dtype.is_complex else values


def of_rank(dtype, op, count, rank=RANK):
    values = exact(dtype, op, count, rank)
    return tf.constant(values % 2 == 1 if dtype == tf.bool else values.astype(dtype.as_numpy_dtype))


def reduced(dtype, op, count):
    """The result of the ranks' inputs."""
    if dtype == tf.bool:
        return REDUCE[op](np.array([of_rank(dtype, op, count, rank).numpy() for rank in range(SIZE)]))
    inputs = np.array([exact(dtype, op, count, rank) for rank in range(SIZE)])
    return REDUCE[op](inputs).astype(dtype.as_numpy_dtype)


def check(found, wanted, what):
    """Compares exactly; but a division by the number of ranks may be rounded."""
    found = found.numpy()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if OPS.AVERAGE in what and wanted.dtype.kind not in "iu":
        wide, right = found.astype(np.complex128), wanted.astype(np.complex128)
        assert (np.abs(wide - right) <= 2.0**-6 * np.abs(right)).all(), (what, found, wanted)
    else:
        np.testing.assert_array_equal(found, wanted, err_msg=str(what))


def own_rows(count, rank=RANK):
    """The rows of a reduce-scatter that a rank gets."""
    begins = [each * (count // SIZE) + min(each, count % SIZE) for each in range(SIZE + 1)]
    return slice(begins[rank], begins[rank + 1])


def rows_to(source, target):
    """How many rows an all-to-all sends from one rank to another."""
    return (source * 3 + target * 2) % 5


def reductions(count):
    """Calls of allreduce and reducescatter: (what, the call, its result)."""
    for dtype, op in REDUCTIONS:
        mine, wanted = of_rank(dtype, op, count), reduced(dtype, op, count)
        yield ("allreduce", dtype, op, count), lambda x=mine, o=op: sdp.allreduce(x, 0, 1, op=o), wanted
        yield (
            ("reducescatter", dtype, op, count),
            lambda x=mine, o=op: sdp.reducescatter(x, op=o),
            wanted[own_rows(count)],
        )


def movements(count):
    """Calls of those that only move data, likewise; each rank has another number of rows."""
    for dtype in TYPES:
        every = [of_rank(dtype, OPS.SUM, max(0, count - rank), rank).numpy() for rank in range(SIZE)]
        mine, root = tf.constant(every[RANK]), count % SIZE
        yield ("allgather", dtype, count), lambda x=mine: sdp.allgather(x), np.concatenate(every)
        same = [of_rank(dtype, OPS.SUM, count, rank) for rank in range(SIZE)]
        yield (
            ("broadcast", dtype, count),
            lambda x=same[RANK], r=root: sdp.broadcast(x, r),
            same[root].numpy(),
        )
        splits = [
            [rows_to(source, target) * min(count, 50) for target in range(SIZE)] for source in range(SIZE)
        ]
        sent = [of_rank(dtype, OPS.SUM, sum(of), rank).numpy() for rank, of in enumerate(splits)]
        parts = [rows[sum(of[:RANK]) : sum(of[: RANK + 1])] for rows, of in zip(sent, splits, strict=True)]
        yield (
            ("alltoall", dtype, count),
            lambda x=sent[RANK], of=splits[RANK]: sdp.alltoall(tf.constant(x), of)[0],
            np.concatenate(parts),
        )


def run_matrix():
    """All calls one after the other, and then those of a size at once in a function."""
    calls = 0
    for count in (*COUNTS, LARGE):
        entries = [*reductions(count), *movements(count)]
        if count == LARGE:
            entries = [each for each in entries if each[0][1] in (tf.float32, tf.float16, tf.int64)]
        for what, call, wanted in entries:
            result = call()
            check(result, wanted, what)
            # The shards of a rank are its own; what all get must be equal to the bit.
            if what[0] in ("allreduce", "allgather", "broadcast"):
                digest.update(result.numpy().tobytes())
        results = tf.function(lambda some=entries: [entry[1]() for entry in some])()
        for (what, _, wanted), result in zip(entries, results, strict=True):
            check(result, wanted, what)
        calls += 2 * len(entries)
    return calls


def run_process_sets():
    """Ranks 0 and the last one, and all but one: sets over the hosts, whose members run each collective."""
    for ranks in ([0, SIZE - 1], *([r for r in range(SIZE) if r != absent] for absent in range(SIZE))):
        process_set = sdp.add_process_set(ranks)
        if RANK in ranks:
            x, total = tf.constant([RANK + 1.0]), float(sum(rank + 1 for rank in ranks))
            every = tf.repeat(x, len(ranks))
            found = [
                sdp.allreduce(x, 0, 1, op=OPS.SUM, process_set=process_set),
                sdp.reducescatter(every, op=OPS.SUM, process_set=process_set),
                sdp.allgather(x, process_set=process_set),
                sdp.alltoall(every, process_set=process_set),
                sdp.broadcast(x, ranks[-1], process_set=process_set),
            ]
            each = [rank + 1.0 for rank in ranks]
            assert [y.numpy().tolist() for y in found] == [[total], [total], each, each, each[-1:]], found
        sdp.remove_process_set(process_set)


@tf.function
def step(x, is_bad):
    """Two groups of collectives, and an error between them if `is_bad`."""
    total = sdp.allreduce(x, 0, 1, op=OPS.SUM, name="total")
    with tf.control_dependencies([total]):
        check_disk = tf.debugging.Assert(tf.logical_not(is_bad), ["the disk is full"])
    with tf.control_dependencies([check_disk]):
        return total, sdp.allgather(tf.identity(x), name="rows")


def run_failed_steps():
    """Each rank fails twice; all have an error with its text, and the next step is right."""
    x = tf.fill([1_000], RANK + 1.0)
    for failing in (*range(SIZE), *range(SIZE)):
        try:
            step(x, tf.constant(failing == RANK))
        except tf.errors.OpError as error:
            assert "the disk is full" in str(error), error
        else:
            raise AssertionError(f"rank {failing} failed, and rank {RANK} has no error")
        total, rows = step(x, tf.constant(False))
        np.testing.assert_array_equal(total.numpy(), np.full(1_000, SIZE * (SIZE + 1) / 2))
        np.testing.assert_array_equal(rows.numpy(), np.repeat(np.arange(SIZE) + 1.0, 1_000))


number = run_matrix()
if SIZE > 2:
    run_process_sets()
run_failed_steps()
os.write(1, f"matrix: rank {RANK} of {SIZE}, {number} calls, {digest.hexdigest()}\n".encode())
