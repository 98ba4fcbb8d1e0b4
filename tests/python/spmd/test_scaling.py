"""prescale_factor and postscale_factor: in every reduction, type and mode, also if the op can't hold them."""

import numpy as np
import pytest
import tensorflow as tf
from modes import MODES
from values import COMPLEX_TYPES, FLOAT_TYPES, INTEGER_TYPES, assert_equal, offset_of, own_rows, sum_of_ranks

import tf_smddp as sdp
from tf_smddp._collectives.allreduce import allreduce_op
from tf_smddp._collectives.scaling import Scaling

pytestmark = pytest.mark.one_rank

SUM, AVERAGE, MAX = sdp.ReduceOp.SUM, sdp.ReduceOp.AVERAGE, sdp.ReduceOp.MAX


@MODES
@pytest.mark.parametrize("dtype", [*FLOAT_TYPES, *COMPLEX_TYPES], ids=lambda dtype: dtype.name)
def test_every_reduction(rank, size, mode, dtype):
    """Powers of two, which round nothing."""
    factors = {"prescale_factor": 0.5, "postscale_factor": 8}

    @mode
    def function(x):
        return [
            sdp.allreduce(x, 0, 1, op=SUM, **factors),
            *sdp.grouped_allreduce([x], op=SUM, **factors),
            sdp.allgather(sdp.reducescatter(x, op=SUM, **factors)),
            sdp.allgather(sdp.grouped_reducescatter([x], op=SUM, **factors)[0]),
        ]

    wanted = np.full(6, 4.0 * sum_of_ranks(size), dtype.as_numpy_dtype)
    for result in function(tf.cast(tf.fill([6], rank + 1.0), dtype)):
        assert_equal(result, wanted, dtype)


def test_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([rank + 1.0])
        found = session.run(
            [
                sdp.allreduce(x, 0, 1, prescale_factor=4.0),
                sdp.allreduce(x, 0, 1, op=MAX, prescale_factor=-1.0, postscale_factor=0.25),
            ]
        )
        assert [float(value[0]) for value in found] == [4.0 * sum_of_ranks(size) / size, -0.25]


@MODES
def test_a_factor_that_a_32_bit_float_cannot_hold(rank, size, mode):
    """1/3 is another number in float64; 1e-300 and 1e300 are nothing and infinity in float32."""
    third, tiny, huge = 1.0 / 3.0, 1e-300, 1e300

    @mode
    def function(x):
        return [
            sdp.allreduce(x, 0, 1, op=SUM, prescale_factor=third),
            sdp.allreduce(x, 0, 1, op=SUM, postscale_factor=third),
            sdp.grouped_allreduce([x, x], op=SUM, prescale_factor=huge, postscale_factor=tiny)[1],
            sdp.allgather(sdp.reducescatter(x, op=SUM, prescale_factor=tiny, postscale_factor=huge)),
            sdp.allgather(
                sdp.grouped_reducescatter([tf.cast(x, tf.float32), x], op=SUM, postscale_factor=third)[1]
            ),
        ]

    x = np.full(6, rank + 1.0)
    before = np.sum([np.full(6, r + 1.0) * third for r in range(size)], axis=0)
    after = np.full(6, sum_of_ranks(size)) * third
    results = function(tf.constant(x))
    assert_equal(results[0], before)
    assert_equal(results[1], after)
    for result in results[2:4]:
        np.testing.assert_allclose(result.numpy(), sum_of_ranks(size), rtol=1e-15)
    assert_equal(results[4], after)


def test_the_op_applies_the_factor_if_it_can(rank, size):
    """No multiplication in the graph; and 16-bit floats are rounded once."""

    @tf.function
    def function(x):
        return sdp.allreduce(x, 0, 1, op=SUM, prescale_factor=1e-3, postscale_factor=1e3)

    x = tf.constant([60000.0], tf.float16)
    types = [op.type for op in function.get_concrete_function(x).graph.get_operations()]
    assert "Mul" not in types
    # Without the factors the sum of two would overflow; with them, it does after the second one.
    found = float(function(x / size)[0])
    assert abs(found - 60000.0) <= 64.0


def test_the_average_is_scaled_too(rank, size):
    result = sdp.allreduce([2.0 * rank], 0, 1, op=AVERAGE, prescale_factor=0.5, postscale_factor=3.0)
    assert float(result[0]) == pytest.approx(3.0 * sum(range(size)) / size)


def test_uneven_rows(rank, size):
    rows = size + 1
    result = sdp.reducescatter(tf.range(rows, dtype=tf.float32), op=SUM, postscale_factor=2.0)
    begin = offset_of(own_rows(rows, size), rank)
    assert result.numpy().tolist() == [2.0 * size * (begin + i) for i in range(own_rows(rows, size)[rank])]


@pytest.mark.parametrize("dtype", [*INTEGER_TYPES, tf.bool], ids=lambda dtype: dtype.name)
def test_integers_are_not_scaled(dtype):
    for collective in (lambda x, **f: sdp.allreduce(x, 0, 1, op=MAX, **f), sdp.reducescatter):
        with pytest.raises(
            ValueError, match=f"prescale_factor=1.0 and postscale_factor=0.5 only for .*{dtype.name}"
        ):
            collective(
                tf.cast([1], dtype), op=MAX, postscale_factor=0.5
            ) if collective is sdp.reducescatter else (collective(tf.cast([1], dtype), postscale_factor=0.5))
    # A factor of one is none.
    assert int(sdp.allreduce(tf.cast(1, dtype), 0, 1, op=MAX, prescale_factor=1)) == 1


@pytest.mark.parametrize(
    ("factor", "error"), [("2", TypeError), (None, TypeError), (True, TypeError), (1j, TypeError)], ids=repr
)
def test_factors_that_are_no_numbers(factor, error):
    with pytest.raises(error, match="needs prescale_factor as a number, but got"):
        sdp.allreduce(1.0, 0, 1, prescale_factor=factor)


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_factors_that_are_not_finite(factor):
    for collective, tensors in (
        (sdp.allreduce, (1.0, 0, 1)),
        (sdp.grouped_allreduce, ([1.0],)),
        (sdp.reducescatter, ([1.0],)),
    ):
        for name in ("prescale_factor", "postscale_factor"):
            with pytest.raises(ValueError, match=f"needs a finite {name}, but got {factor}"):
                collective(*tensors, **{name: factor})


@pytest.mark.parametrize("compiled", [False, True])
def test_an_op_refuses_factors_that_are_not_finite(compiled, size):
    """Whatever calls it: a NaN is unlike itself, and would look like a disagreement between the ranks."""

    @tf.function(jit_compile=compiled)
    def function():
        ticket = tf.constant(-1, tf.int64)
        factors = Scaling(float("nan"), 2.0)
        return allreduce_op(tf.ones([3]), ticket, sdp.ReduceOp.SUM, 0, 1, "x", None, scaling=factors)

    with pytest.raises(tf.errors.OpError, match="prescale nan and postscale 2; both must be finite"):
        function()
    assert float(sdp.allreduce(1.0, 0, 1, op=sdp.ReduceOp.SUM)) == size


def test_numpy_numbers(size):
    assert float(sdp.allreduce(1.0, 0, 1, prescale_factor=np.float32(2), postscale_factor=np.int64(3))) == 6.0
