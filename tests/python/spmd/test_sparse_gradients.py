"""Sparse gradients (tf.IndexedSlices, from embeddings): made dense, or gathered."""

import numpy as np
import pytest
import tensorflow as tf
from modes import ALL_MODES, DYNAMIC_MODES, MODES, eager, modes
from values import sum_of_ranks

import tf_smddp as sdp
from tf_smddp._training.reduce_gradients import reduce_gradients

SUM, AVERAGE = sdp.ReduceOp.SUM, sdp.ReduceOp.AVERAGE


def gradient_of_table(indices, mode=lambda function: function, **options):
    """The gradient of a table of which each index is used once, as in an embedding."""
    table = tf.Variable(tf.zeros((4, 2)), name="table")

    @mode
    def step(indices):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, indices))
        return sdp.DistributedGradientTape(tape, **options).gradient(loss, table)

    return step(tf.constant(indices, tf.int64))


@MODES
def test_sparse_gradients_become_dense(rank, size, mode):
    gradient = gradient_of_table([3, 3] if rank == 0 else [0, 0], mode, op=SUM)
    assert isinstance(gradient, tf.Tensor)
    assert gradient.numpy().tolist() == [[2.0 * (size - 1)] * 2, [0.0] * 2, [0.0] * 2, [2.0] * 2]


@DYNAMIC_MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE, None])
def test_rows_are_gathered(rank, size, mode, op):
    """Rank r has r rows: rank 0 has none."""
    gradient = gradient_of_table([rank % 4] * rank, mode, op=op, sparse_as_dense=False)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.dtype == tf.int64
    assert gradient.indices.numpy().tolist() == [r % 4 for r in range(size) for _ in range(r)]
    value = 1.0 if op is SUM else 1.0 / size
    assert gradient.values.numpy() == pytest.approx(value)
    assert gradient.values.shape == (sum(range(size)), 2)
    assert gradient.dense_shape.numpy().tolist() == [4, 2]


@MODES
def test_sparse_and_dense_gradients_together(rank, size, mode):
    """The same update as with dense gradients; None stays None."""
    tables = [tf.Variable(tf.zeros((4, 2))) for _ in range(2)]
    bias, unused = tf.Variable([0.0, 0.0]), tf.Variable(0.0)

    @mode
    def step(x, sparse_as_dense):
        with tf.GradientTape() as tape:
            rows = [tf.gather(table, [rank % 4, 3]) for table in tables]
            loss = tf.reduce_sum((rows[0] + 2.0 * rows[1] + bias) * x)
        tape = sdp.DistributedGradientTape(tape, op=SUM, sparse_as_dense=sparse_as_dense)
        return tape.gradient(loss, [tables[0], bias, unused, tables[1]])

    x = tf.constant(rank + 1.0)
    sparse, dense = step(x, False), step(x, True)
    assert [isinstance(gradient, tf.IndexedSlices) for gradient in sparse] == [True, False, False, True]
    assert sparse[2] is None
    assert sparse[1].numpy().tolist() == [2 * sum_of_ranks(size)] * 2
    for i in (0, 1, 3):
        assert tf.convert_to_tensor(sparse[i]).numpy().tolist() == dense[i].numpy().tolist()


@ALL_MODES
def test_in_every_mode(rank, size, mode):
    def reduce(values):
        slices = [
            tf.IndexedSlices(values * (i + 1), tf.constant([rank]), tf.constant([8, 1])) for i in range(2)
        ]
        found = reduce_gradients(slices, ["", ""], sdp.Compression.none, SUM, False, "Test")
        return [(each.values, each.indices) for each in found]

    for i, (values, indices) in enumerate(mode(reduce)(tf.constant([[rank + 1.0]]))):
        assert np.asarray(values).tolist() == [[(i + 1) * (r + 1.0)] for r in range(size)]
        assert [int(index) for index in indices] == list(range(size))


@pytest.mark.min_ranks(2)
@modes(eager, tf.function)
def test_averages_of_rows_while_ranks_have_joined(rank, size, mode):
    """Rank r has r batches: an average is that of the ranks that have one."""
    with sdp.join([]):
        for step in range(rank):
            gradient = gradient_of_table([rank], mode, sparse_as_dense=False)
            there = list(range(step + 1, size))
            assert gradient.indices.numpy().tolist() == there
            assert gradient.values.numpy() == pytest.approx(1.0 / len(there))


def test_a_users_compressor_is_applied_to_the_rows(size):
    class Halved(sdp.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2.0, tensor.shape

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == (1, 2)
            return tensor * 8.0

    gradient = gradient_of_table([1], compression=Halved, op=SUM, sparse_as_dense=False)
    assert gradient.values.numpy().tolist() == [[4.0, 4.0]] * size


@pytest.mark.parametrize("op", [sdp.ReduceOp.MIN, sdp.ReduceOp.MAX, sdp.ReduceOp.PRODUCT])
def test_rows_can_only_be_added(op):
    with pytest.raises(
        ValueError, match=rf"sparse gradient \(table.*ReduceOp.{op.name}.*sparse_as_dense=True"
    ):
        gradient_of_table([1], op=op, sparse_as_dense=False)


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize("sparse_as_dense", [True, False])
@DYNAMIC_MODES
def test_tables_of_other_sizes(rank, size, mode, sparse_as_dense):
    """As with a vocabulary that each rank has made of its own data. No row is added to another's table."""
    table = tf.Variable(tf.zeros((4 + rank, 2)), name="table")

    @mode
    def step(indices):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, indices))
        tape = sdp.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        return tape.gradient(loss, table)

    shown = r"rank \d has all\w+ 'table.* \w+ \[.*[4-6](, 2)?\]"
    with pytest.raises(tf.errors.InternalError, match=f"{shown}.*; {shown}"):
        step(tf.constant([rank, 3]))
    sdp.barrier()
