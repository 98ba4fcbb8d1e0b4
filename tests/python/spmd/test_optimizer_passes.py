"""backward_passes_per_step: n small batches do what one large one does."""

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import EAGER_AND_GRAPH, OF_KERAS_2, applier, array, assert_same_on_all_ranks, each

import tf_smddp as sdp

pytestmark = pytest.mark.slow

PASSES = 2
STEPS = 2


def gradient_of(rank, number):
    return np.array([6.0 * (rank + 1) * (number + 1), 12.0 * number - 6.0 * rank], np.float32)


def mean_gradient(size, step):
    numbers = range(step * PASSES, (step + 1) * PASSES)
    return np.mean([gradient_of(r, number) for r in range(size) for number in numbers], axis=0)


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
@pytest.mark.parametrize("loss_scale", ["none", "inside", "outside"])
def test_passes(rank, size, family, mode, loss_scale):
    def make():
        return family.optimizers.SGD(0.5, momentum=0.5, clipnorm=20.0)

    optimizer = make()
    if loss_scale == "inside":
        optimizer = family.loss_scale_optimizer(optimizer, initial_scale=4.0)
    optimizer = sdp.DistributedOptimizer(optimizer, backward_passes_per_step=PASSES)
    if loss_scale == "outside":
        optimizer = family.loss_scale_optimizer(optimizer, initial_scale=4.0)
    x, plain_x = family.variable([1.0, 2.0]), family.variable([1.0, 2.0])
    apply = applier(optimizer, [x], mode)
    plain = make()
    sdp.stats(reset=True)
    for step in range(STEPS):
        for number in range(PASSES):
            np.testing.assert_allclose(array(x), array(plain_x), rtol=1e-6)
            apply([tf.constant(gradient_of(rank, step * PASSES + number))])
        applier(plain, [plain_x])([tf.constant(mean_gradient(size, step))])
    np.testing.assert_allclose(array(x), array(plain_x), rtol=1e-6)
    assert int(optimizer.iterations) == int(plain.iterations) == STEPS
    # One more compares the weights before the first step.
    assert sdp.stats()["collectives"]["allreduce"]["calls"] == STEPS + (size > 1)
    assert_same_on_all_ranks([array(x)])

    if loss_scale != "none":
        before = array(x)
        for number in range(PASSES):
            apply([tf.constant([np.inf if rank == 0 and number == 0 else 1.0, 1.0])])
        assert array(x).tolist() == before.tolist()
        assert float(optimizer.loss_scale) == 2.0


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
def test_none_and_two_sets_of_variables(rank, size, family, mode):
    """As in a GAN with one optimizer: each set counts for itself."""
    a, b, unused = family.variable([0.0]), family.variable([0.0]), family.variable([3.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), backward_passes_per_step=2)
    if not family.is_legacy:
        optimizer.build([a, b, unused])

    @mode
    def step():
        optimizer.apply_gradients([(tf.constant([1.0]), a), (None, unused)])
        optimizer.apply_gradients([(tf.constant([2.0 * rank]), b)])

    step()
    assert array(a).tolist() == array(b).tolist() == [0.0]
    for repeat in range(1, 4):
        step()
        assert array(a).tolist() == [-1.0 * repeat]
        assert array(b).tolist() == [(1.0 - size) * repeat]
        if repeat < 3:
            step()
    assert array(unused).tolist() == [3.0]


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
def test_lists_that_share_variables(rank, size, family, mode):
    """Another order, or some of the variables: what one list adds up does not get into the other's mean."""
    for others in ([1, 0], [1]):
        variables = [family.variable([0.0]), family.variable([0.0])]
        optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), backward_passes_per_step=2)
        if not family.is_legacy:
            optimizer.build(variables)
        first = applier(optimizer, variables, mode)
        second = applier(optimizer, [variables[i] for i in others], mode)
        for repeat in range(2):
            first([tf.constant([1.0])] * 2)
            second([tf.constant([10.0])] * len(others))
            first([tf.constant([1.0])] * 2)
            expected = np.array([1.0, 1.0]) * (repeat + 1)
            expected[others] += 10.0 * repeat
            assert [float(array(x)[0]) for x in variables] == [-x for x in expected]
            second([tf.constant([10.0])] * len(others))
            expected[others] += 10.0
            assert [float(array(x)[0]) for x in variables] == [-x for x in expected]


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
def test_none_in_some_passes(rank, size, family, mode):
    """As with two heads that are trained in turns: a gradient that is None in a pass counts as zero."""
    x, y = family.variable([0.0]), family.variable([0.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), backward_passes_per_step=2)
    if not family.is_legacy:
        optimizer.build([x, y])
    both = applier(optimizer, [x, y], mode)

    @mode
    def one():
        optimizer.apply_gradients([(tf.constant([4.0]), x), (None, y)])

    for repeat in range(1, 3):
        both([tf.constant([2.0]), tf.constant([6.0 + 4.0 * rank])])
        one()
        assert array(x).tolist() == [-3.0 * repeat]
        assert array(y).tolist() == [-(3.0 + (size - 1.0)) * repeat]


@EAGER_AND_GRAPH
def test_a_v1_optimizer(rank, size, mode):
    x = tf.Variable([0.0])
    optimizer = sdp.DistributedOptimizer(
        tf.compat.v1.train.MomentumOptimizer(1.0, 0.5), backward_passes_per_step=2
    )

    @mode
    def step(factor):
        optimizer.minimize(lambda: factor * x, var_list=[x])

    values = []
    for number in range(4):
        step(tf.constant([2.0 * rank + 2.0 * number]))
        values.append(float(x[0]))
    # Means of size and size + 4; the momentum of the second is half of the first.
    assert values == [0.0, -float(size), -float(size), -float(size) - (size + 4 + size / 2)]


def test_in_a_v1_session(rank, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.get_variable("x", initializer=[0.0])
        factor = tf.compat.v1.placeholder(tf.float32, [])
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer = sdp.DistributedOptimizer(
            tf.compat.v1.train.MomentumOptimizer(1.0, 0.5), backward_passes_per_step=2
        )
        train = optimizer.minimize(factor * x[0], global_step=step)
        assert len(tf.compat.v1.global_variables()) == 3  # what is accumulated is not saved
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        values = []
        for number in range(4):
            session.run(train, {factor: 2.0 * rank + 2.0 * number})
            values.append(session.run([x[0], step]))
        assert values[0] == [0.0, 0]
        assert values[1] == values[2] == [-float(size), 1]
        assert values[3] == [-float(size) - (size + 4 + size / 2), 2]
