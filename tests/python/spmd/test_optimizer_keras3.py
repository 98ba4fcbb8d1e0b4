"""Features of Keras 3's optimizers: `apply`, accumulation, values as gradients, wrapping by `compile`."""

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import EAGER_AND_GRAPH, OF_KERAS_3, applier, array, assert_same_on_all_ranks
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.keras(3)
family = next(iter(OF_KERAS_3), None)


@EAGER_AND_GRAPH
def test_apply(rank, size, mode):
    x, amax = family.variable([1.0]), family.variable([0.0])
    amax.overwrite_with_gradient = True  # as a float8 layer's history of maxima
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)
    optimizer.build([x, amax])

    @mode
    def step():
        optimizer.apply([tf.constant([rank + 1.0]), tf.constant([rank + 1.0])])

    step()
    assert array(x).tolist() == [1.0 - sum_of_ranks(size)]
    assert array(amax).tolist() == [size]


@EAGER_AND_GRAPH
def test_the_inner_optimizer_alone_still_reduces(rank, size, mode):
    inner = sdp.DistributedOptimizer(family.optimizers.SGD(1.0))
    family.loss_scale_optimizer(inner)
    x = family.variable([0.0])
    applier(inner, [x], mode)([tf.constant([2.0 * rank + 1.0])])
    assert array(x).tolist() == [-float(size)]


def accumulation_data(rank, step):
    return [np.array([6.0 * (rank + 1) * (step + 1), -6.0 * rank + 3.0 * step], np.float32)]


@EAGER_AND_GRAPH
@pytest.mark.parametrize("clipping", [{}, {"global_clipnorm": 5.0}, {"clipvalue": 4.0}])
def test_accumulated_gradients_are_reduced_at_the_update(rank, size, mode, clipping):
    def run(optimizer, data):
        x = family.variable([1.0, 2.0])
        apply = applier(optimizer, [x], mode)
        sdp.stats(reset=True)
        for step in range(4):
            apply([tf.constant(gradient) for gradient in data(step)])
        return array(x), int(optimizer.iterations)

    def make():
        return family.optimizers.SGD(0.5, momentum=0.5, gradient_accumulation_steps=2, **clipping)

    mine = run(sdp.DistributedOptimizer(make()), lambda step: accumulation_data(rank, step))
    assert sdp.stats()["collectives"]["allreduce"]["calls"] == 2 + (size > 1)  # one compares the weights
    wanted = run(make(), lambda step: [np.mean([accumulation_data(r, step)[0] for r in range(size)], axis=0)])
    np.testing.assert_allclose(mine[0], wanted[0], rtol=1e-6)
    assert mine[1] == wanted[1] == 2
    assert_same_on_all_ranks([mine[0]])


@EAGER_AND_GRAPH
def test_two_optimizers_that_accumulate_in_one_step(rank, size, mode):
    """Their reductions keep their order, though they share no variables."""
    variables = [family.variable([0.0]) for _ in range(4)]
    optimizers = [
        sdp.DistributedOptimizer(family.optimizers.SGD(1.0, gradient_accumulation_steps=2)) for _ in variables
    ]

    @mode
    def step():
        for number, (optimizer, variable) in enumerate(zip(optimizers, variables)):
            optimizer.apply_gradients([(tf.constant([2.0 * rank + number]), variable)])

    for repeat in range(1, 4):
        step()
        step()
        for number, variable in enumerate(variables):
            assert array(variable).tolist() == [-repeat * (size - 1.0 + number)]


@EAGER_AND_GRAPH
@pytest.mark.parametrize("outside", [False, True])
def test_accumulation_with_loss_scale(rank, size, mode, outside):
    x = family.variable([0.0])
    optimizer = family.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    if outside:
        optimizer = family.loss_scale_optimizer(sdp.DistributedOptimizer(optimizer), initial_scale=4.0)
    else:
        optimizer = sdp.DistributedOptimizer(family.loss_scale_optimizer(optimizer, initial_scale=4.0))
    apply = applier(optimizer, [x], mode)
    apply([tf.constant([4.0 * (2.0 * rank + 1.0)])])
    apply([tf.constant([np.inf if rank == 0 else 1.0])])  # skipped by all, and the scale is 2 from now on
    assert array(x).tolist() == [0.0]
    apply([tf.constant([2.0 * (2.0 * rank + 3.0)])])
    assert array(x).tolist() == [-(size + 1.0)]


@pytest.mark.parametrize("eagerly", [True, False])
def test_fit_under_mixed_float16(rank, size, eagerly):
    family.keras.utils.set_random_seed(3)
    family.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = family.keras.Sequential([family.keras.Input((2,)), family.keras.layers.Dense(1)])
        model.compile(sdp.DistributedOptimizer(family.optimizers.SGD(0.5)), "mse", run_eagerly=eagerly)
    finally:
        family.keras.mixed_precision.set_global_policy("float32")
    assert isinstance(model.optimizer, family.loss_scale_optimizer)
    before = [array(weight) for weight in model.trainable_variables]
    overflow = np.full((4, 2), 60000.0 if rank == 0 else 1.0, np.float16)
    model.fit(overflow, np.ones((4, 1)), verbose=0)
    for value, weight in zip(before, model.trainable_variables):
        assert array(weight).tolist() == value.tolist()
    assert float(model.optimizer.dynamic_scale) == 2.0**14
    model.optimizer.dynamic_scale.assign(8.0)
    model.fit(np.full((4, 2), rank / 8.0), np.ones((4, 1)), verbose=0)
    weights = [array(weight) for weight in model.trainable_variables]
    assert any(value.tolist() != weight.tolist() for value, weight in zip(before, weights))
    assert_same_on_all_ranks(weights)


def test_backward_passes_are_keras_own():
    with pytest.raises(ValueError, match="pass gradient_accumulation_steps=2 to SGD"):
        sdp.DistributedOptimizer(family.optimizers.SGD(1.0), backward_passes_per_step=2)
