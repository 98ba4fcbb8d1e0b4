"""A distributed optimizer of Keras does with every rank's gradient what a plain one does with their mean."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import values
from optimizer_families import (
    ALL,
    EAGER_AND_GRAPH,
    OF_KERAS_2,
    applier,
    array,
    assert_same_on_all_ranks,
    each,
)
from values import sum_of_ranks

import tf_smddp as sdp

STEPS = 3


def gradients_of(rank, step):
    """Integers; so different on the ranks that clipping before the reduction would give something else."""
    sign = -1.0 if rank % 2 else 1.0
    return [
        np.array([6.0 + 30.0 * sign, 12.0 * step, 6.0 * rank], np.float32),
        np.array([[6.0, -12.0 * sign]], np.float32),
    ]


def mean_gradients(size, step):
    return [np.mean(each_rank, axis=0) for each_rank in zip(*(gradients_of(r, step) for r in range(size)))]


CASES = {
    "momentum": ("SGD", {"learning_rate": 0.5, "momentum": 0.5}),
    "adam": ("Adam", {"learning_rate": 0.1}),
    "clipnorm": ("SGD", {"learning_rate": 0.5, "clipnorm": 2.0}),
    "clipvalue": ("SGD", {"learning_rate": 0.5, "clipvalue": 3.0}),
    "global_clipnorm": ("SGD", {"learning_rate": 0.5, "global_clipnorm": 2.0}),
}
NEW_CASES = {
    "weight_decay": ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.1}),
    "ema": ("SGD", {"learning_rate": 0.5, "use_ema": True, "ema_overwrite_frequency": 2}),
}


def run(family, optimizer, mode, gradients_at):
    variables = [family.variable([1.0, 2.0, 3.0]), family.variable([[4.0, 5.0]])]
    apply = applier(optimizer, variables, mode)
    for step in range(STEPS):
        apply([tf.constant(gradient) for gradient in gradients_at(step)])
    return [array(variable) for variable in variables]


@each(ALL)
@EAGER_AND_GRAPH
@pytest.mark.parametrize("case", [*CASES, "schedule"])
def test_a_step_equals_the_plain_optimizers_with_the_mean(rank, size, family, mode, case):
    check_steps(rank, size, family, mode, case)


@each([family for family in ALL if not family.is_legacy])
@EAGER_AND_GRAPH
@pytest.mark.parametrize("case", NEW_CASES)
def test_what_legacy_optimizers_do_not_have(rank, size, family, mode, case):
    check_steps(rank, size, family, mode, case)


def check_steps(rank, size, family, mode, case):
    def make():
        if case == "schedule":
            schedule = family.keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
            return family.optimizers.SGD(schedule)
        name, arguments = {**CASES, **NEW_CASES}[case]
        return getattr(family.optimizers, name)(**arguments)

    optimizer, plain = sdp.DistributedOptimizer(make()), make()
    mine = run(family, optimizer, mode, lambda step: gradients_of(rank, step))
    wanted = run(family, plain, mode, lambda step: mean_gradients(size, step))
    for value, reference in zip(mine, wanted):
        np.testing.assert_allclose(value, reference, rtol=1e-6, atol=1e-6)
    assert_same_on_all_ranks(mine)
    assert int(optimizer.iterations) == int(plain.iterations) == STEPS


@each(ALL)
@pytest.mark.parametrize("sparse_as_dense", [True, False])
@EAGER_AND_GRAPH
def test_sparse_gradients(rank, size, family, mode, sparse_as_dense):
    table = family.variable(np.zeros((4, 2)))
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), sparse_as_dense=sparse_as_dense)

    @mode
    def step(row):
        rows = tf.stack([row, row])
        values = tf.ones([2, 2]) * float(size)
        optimizer.apply_gradients([(tf.IndexedSlices(values, rows, tf.constant([4, 2])), table)])

    step(tf.constant(rank))
    wanted = np.zeros((4, 2), np.float32)
    wanted[:size] = -2.0
    assert array(table).tolist() == wanted.tolist()


@each(ALL)
@EAGER_AND_GRAPH
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_none_stays_none(rank, size, family, mode):
    x, unused = family.variable([1.0]), family.variable([7.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)

    @mode
    def step():
        optimizer.apply_gradients([(None, unused), (tf.constant([rank + 1.0]), x)])

    step()
    assert array(x).tolist() == [1.0 - sum_of_ranks(size)]
    assert array(unused).tolist() == [7.0]


class Doubled(sdp.Compression.none):
    @staticmethod
    def compress(tensor):
        return tensor * 2.0, None


@each(ALL)
@pytest.mark.parametrize(
    ("compression", "factor"), [(sdp.Compression.fp16, 1.0), (sdp.Compression.bf16, 1.0), (Doubled, 2.0)]
)
def test_compression(rank, size, family, compression, factor):
    x = family.variable([0.0])
    optimizer = sdp.DistributedOptimizer(
        family.optimizers.SGD(1.0), compression=compression, op=sdp.ReduceOp.SUM
    )
    optimizer.apply_gradients([(tf.constant([1 / 3]), x)])
    # NCCL rounds to the format, which has 8 bits at least.
    precision = 2.0**-7 if values.roundings and compression is not Doubled else 1e-6
    np.testing.assert_allclose(array(x), -factor * size / 3, rtol=precision)


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
def test_minimize_reduces_once(rank, size, family, mode):
    x = family.variable([1.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)

    @mode
    def step():
        optimizer.minimize(lambda: (rank + 1.0) * x, [x])

    step()
    assert array(x).tolist() == [1.0 - sum_of_ranks(size)]


@each(OF_KERAS_2)
def test_aggregation_can_be_skipped(rank, size, family):
    x = family.variable([1.0])
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)
    reduced = sdp.allreduce(tf.constant([rank + 1.0]), 0, 1, op=sdp.ReduceOp.SUM)
    optimizer.apply_gradients([(reduced, x)], experimental_aggregate_gradients=False)
    assert array(x).tolist() == [1.0 - sum_of_ranks(size)]


@each([family for family in ALL if family.is_legacy])
def test_get_gradients_and_get_updates_in_a_v1_session(rank, size, family):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x, y = tf.Variable([1.0]), tf.Variable([1.0])
        optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)
        updates = optimizer.get_updates((rank + 1.0) * x, [x])
        gradients = optimizer.get_gradients((rank + 1.0) * y, [y])
        apply = optimizer.apply_gradients(zip(gradients, [y]))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(updates)
        session.run(apply)
        assert session.run([x[0], y[0]]) == [1.0 - sum_of_ranks(size)] * 2


def delegating(family, inner):
    """An optimizer that has its steps done by another one, as those that are made of several do."""

    class Delegating(family.optimizers.Optimizer):
        def __init__(self):
            super().__init__(*([0.5] if family.is_keras3 else ["delegating"]))

        def build(self, variables):
            inner.build(variables)

        def apply_gradients(self, grads_and_vars, name=None):
            return inner.apply_gradients(list(grads_and_vars))

        def get_config(self):
            return {}

    optimizer = Delegating()
    if hasattr(optimizer, "_build_learning_rate"):
        optimizer._learning_rate = optimizer._build_learning_rate(0.5)
    return optimizer


@each(ALL)
@EAGER_AND_GRAPH
def test_an_optimizer_that_has_another_one_apply(rank, size, family, mode):
    def make():
        return family.optimizers.SGD(0.5, momentum=0.5)

    if family.is_legacy:
        optimizer = delegating(dataclasses.replace(family, optimizers=family.keras.optimizers.legacy), make())
    else:
        optimizer = delegating(family, make())
    optimizer, plain = sdp.DistributedOptimizer(optimizer), make()
    x, y = family.variable([1.0]), family.variable([1.0])
    apply, apply_plain = applier(optimizer, [x], mode), applier(plain, [y])
    for step in range(STEPS):
        apply([tf.constant([4.0 * rank + step])])
        apply_plain([tf.constant([2.0 * (size - 1.0) + step])])
    assert array(x).tolist() == array(y).tolist()


@each(ALL)
@EAGER_AND_GRAPH
@pytest.mark.parametrize("scaled", [False, True])
def test_a_subclass_that_clips_in_apply_gradients(rank, size, family, mode, scaled):
    """It sees what one process with the large batch sees. All is reduced once, which a sum would show."""

    class Clips(family.optimizers.SGD):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            clipped = [
                (tf.clip_by_value(gradient, -2.0, 2.0), variable) for gradient, variable in grads_and_vars
            ]
            return super().apply_gradients(clipped, *args, **kwargs)

    optimizer = sdp.DistributedOptimizer(Clips(1.0), op=sdp.ReduceOp.SUM)
    if scaled:
        optimizer = family.loss_scale_optimizer(optimizer, initial_scale=1.0)
    x, y = family.variable([0.0]), family.variable([0.0])
    apply = applier(optimizer, [x, y], mode)
    # The sums are 1 and 8, but for the 3 by which ranks 0 and 1 are apart.
    apart = {0: 3.0, 1: -3.0}.get(rank, 0.0) if size > 1 else 0.0
    apply([tf.constant([apart + (rank == 0)]), tf.constant([8.0 * (rank == 0)])])
    # Keras 3's LossScaleOptimizer calls its inner one's `apply`, not its `apply_gradients`.
    assert array(x).tolist() == [-1.0]
    assert array(y).tolist() == [-8.0 if scaled and family.is_keras3 else -2.0]


@each(OF_KERAS_2)
@EAGER_AND_GRAPH
def test_a_subclass_that_clips_the_sum_of_several_passes(rank, size, family, mode):
    class Clips(family.optimizers.SGD):
        def apply_gradients(self, grads_and_vars):
            return super().apply_gradients([(tf.clip_by_value(g, -2.0, 2.0), v) for g, v in grads_and_vars])

    optimizer = sdp.DistributedOptimizer(Clips(1.0), backward_passes_per_step=2)
    x = family.variable([0.0])
    apply = applier(optimizer, [x], mode)
    for _ in range(2):
        apply([tf.constant([(10.0 if rank == 0 else 0.0) * size])])
    assert array(x).tolist() == [-2.0]
