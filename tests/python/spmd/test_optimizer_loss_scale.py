"""LossScaleOptimizer inside or outside of DistributedOptimizer: reduced first, and skipped together."""

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import ALL, EAGER_AND_GRAPH, applier, array, each

import tf_smddp as sdp

pytestmark = pytest.mark.slow

SCALE = 8.0


def inside(family, optimizer):
    return sdp.DistributedOptimizer(family.loss_scale_optimizer(optimizer, initial_scale=SCALE))


def outside(family, optimizer):
    return family.loss_scale_optimizer(sdp.DistributedOptimizer(optimizer), initial_scale=SCALE)


def afterwards(family, optimizer):
    scaled = family.loss_scale_optimizer(optimizer, initial_scale=SCALE)
    sdp.DistributedOptimizer(optimizer)
    return scaled


NESTINGS = pytest.mark.parametrize("nest", [inside, outside, afterwards])


def scale_of(family, optimizer):
    return float(optimizer.dynamic_scale if family.is_keras3 else optimizer.loss_scale)


def scaled(family, gradients):
    """The gradients for apply_gradients: Keras 3 unscales by itself."""
    return [tf.constant(gradient) * (SCALE if family.is_keras3 else 1.0) for gradient in gradients]


@each(ALL)
@NESTINGS
@EAGER_AND_GRAPH
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_infinity_on_one_rank_skips_the_step_on_all(rank, size, family, nest, mode, bad):
    x, y = family.variable([1.0, 2.0]), family.variable([0.0])
    optimizer = nest(family, family.optimizers.SGD(1.0, momentum=0.5, clipvalue=2.0))
    assert isinstance(optimizer, family.loss_scale_optimizer)
    apply = applier(optimizer, [x, y], mode)

    # The mean is 1, but for the 6·size that rank 0 alone has.
    good = [[3.0 * size if rank == 0 else 0.0, 1.0], [2.0 * rank - size + 2.0]]
    apply(scaled(family, good))
    assert array(x).tolist() == [-1.0, 1.0]
    assert array(y).tolist() == [-1.0]
    assert scale_of(family, optimizer) == SCALE

    apply(scaled(family, [[bad if rank == 0 else 1.0, 1.0], [1.0]]))
    assert array(x).tolist() == [-1.0, 1.0]
    assert scale_of(family, optimizer) == SCALE / 2
    values = [*optimizer.inner_optimizer.variables] if family.is_keras3 else []
    for variable in values:
        assert array(sdp.broadcast(array(variable), 0)).tolist() == array(variable).tolist()


@each(ALL)
@NESTINGS
@EAGER_AND_GRAPH
def test_fixed_or_large_scale_reduces_once(rank, size, family, nest, mode):
    x = family.variable([0.0])
    optimizer = nest(family, family.optimizers.SGD(1.0))
    apply = applier(optimizer, [x], mode)
    for _ in range(2):
        apply(scaled(family, [[2.0 * rank + 1.0]]))
    assert array(x).tolist() == [-2.0 * size]
    assert int(optimizer.iterations) == 2


@each(ALL)
@NESTINGS
def test_twice(family, nest):
    with pytest.raises(ValueError, match="distributed already"):
        sdp.DistributedOptimizer(nest(family, family.optimizers.SGD(1.0)))
