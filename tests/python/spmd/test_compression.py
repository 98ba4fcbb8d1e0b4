"""Compression.fp16 and bf16 round what crosses a link, and nothing else; own ones are applied as written."""

import numpy as np
import pytest
import tensorflow as tf
import values
from values import assert_equal, sum_of_ranks

import tf_smddp as sdp

OURS = (sdp.Compression.none, sdp.Compression.fp16, sdp.Compression.bf16)
SUM = sdp.ReduceOp.SUM
# A value that float16 and bfloat16 cannot represent.
FINE = 1.0 + 2.0**-20


@pytest.mark.gpu
@pytest.mark.parametrize("compression", OURS)
def test_fp16_and_bf16_round_what_crosses_a_link(size, compression):
    rounded = values.roundings > 0 and compression is not sdp.Compression.none
    fine = 1.0 if rounded else FINE
    x = tf.constant([FINE, 1024.0])
    wanted = np.array([fine * size, 1024.0 * size], np.float32)
    assert_equal(sdp.allreduce(x, 0, 1, compression=compression, op=SUM), wanted)
    assert_equal(tf.function(lambda x: sdp.allreduce(x, 0, 1, compression=compression, op=SUM))(x), wanted)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * FINE
    tape = sdp.DistributedGradientTape(tape, compression=compression, op=SUM)
    assert_equal(tape.gradient(y, x), np.array([fine * size] * 2, np.float32))


@pytest.mark.parametrize(
    ("compression", "dtype"), [(sdp.Compression.fp16, tf.float16), (sdp.Compression.bf16, tf.bfloat16)]
)
def test_the_pair_casts_when_it_is_called(compression, dtype):
    for original in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        compressed, context = compression.compress(tf.constant([1.5], original))
        assert compressed.dtype == dtype
        assert compression.decompress(compressed, context).dtype == original
    integers = tf.constant([1, 2])
    compressed, context = compression.compress(integers)
    assert compressed is integers
    assert compression.decompress(compressed, context) is integers
    compressed, context = sdp.Compression.none.compress(integers)
    assert sdp.Compression.none.decompress(compressed, context) is integers


def test_a_subclass_is_applied_as_written(rank, size):
    class Doubled(sdp.Compression.fp16):
        @staticmethod
        def compress(tensor):
            return sdp.Compression.fp16.compress(tensor * 2.0)

        @staticmethod
        def decompress(tensor, ctx):
            return sdp.Compression.fp16.decompress(tensor, ctx) + 100.0

    x = tf.constant([rank + FINE])
    wanted = np.array([2.0 * sum_of_ranks(size) + 100.0], np.float32)
    assert_equal(sdp.allreduce(x, 0, 1, compression=Doubled, op=SUM), wanted)
    assert_equal(sdp.allreduce(x, 0, 1, compression=Doubled(), op=SUM), wanted)
    for mode in (lambda f: f, tf.function):

        @mode
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x * (rank + 1.0)
            return sdp.DistributedGradientTape(tape, compression=Doubled, op=SUM).gradient(y, x)

        assert_equal(gradient(x), wanted)


def test_a_subclass_that_changes_nothing_still_casts(size):
    class Mine(sdp.Compression.bf16):
        pass

    assert_equal(
        sdp.allreduce(tf.constant([FINE]), 0, 1, compression=Mine, op=SUM), np.array([size], np.float32)
    )


@pytest.mark.parametrize("bad", [None, "fp16", 16, sdp.Compression], ids=repr)
def test_a_class_without_compress_and_decompress(bad):
    with pytest.raises(TypeError, match=r"compression must be Compression\.none"):
        sdp.allreduce(1.0, 0, 1, compression=bad)
