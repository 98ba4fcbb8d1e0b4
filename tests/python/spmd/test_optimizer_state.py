"""A distributed optimizer is the same object with the same state, and is saved as a plain one.

An optimizer that is made of it in Python, by `from_config`, its type, copies and pickles, reduces as it does.
"""

import copy
import pickle

import pytest
import tensorflow as tf
from optimizer_families import ALL, applier, array, each

import tf_smddp as sdp


@each(ALL)
def test_state_is_kept(rank, size, family):
    x = family.variable([0.0])
    optimizer = family.optimizers.SGD(1.0, momentum=0.5)
    applier(optimizer, [x])([tf.constant([2.0])])
    distributed = sdp.DistributedOptimizer(optimizer)
    assert distributed is optimizer
    assert isinstance(distributed, family.optimizers.SGD)
    applier(distributed, [x])([tf.constant([2.0 * rank])])
    assert int(distributed.iterations) == 2
    assert array(x).tolist() == [-2.0 - (1.0 + size - 1.0)]  # the momentum of the first step is there
    distributed.learning_rate = 0.25
    assert float(distributed.learning_rate) == 0.25


def make_custom(family):
    register = (
        family.keras.saving.register_keras_serializable
        if hasattr(family.keras, "saving")
        else family.keras.utils.register_keras_serializable
    )

    @register("mine")
    class Custom(family.optimizers.SGD):
        pass

    return Custom(0.5)


@each(ALL)
@pytest.mark.parametrize("kind", ["built-in", "registered", "loss scale"])
def test_config_is_the_plain_ones(family, kind):
    def make():
        if kind == "registered":
            return make_custom(family)
        optimizer = family.optimizers.Adam(0.5, clipnorm=2.0, name="mine")
        return family.loss_scale_optimizer(optimizer) if kind == "loss scale" else optimizer

    plain, distributed = make(), sdp.DistributedOptimizer(make())
    wanted, config = plain.get_config(), distributed.get_config()
    assert {**wanted, "name": ""} == {**config, "name": ""}
    serialize = family.keras.optimizers.serialize
    found = serialize(distributed)
    assert {**found, "config": None} == {**serialize(plain), "config": None}
    assert "smddp" not in str(found)
    assert is_plain(family.keras.optimizers.deserialize(found))


def is_plain(optimizer):
    """Whether no class of ours is in it."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return "smddp" not in str(type(optimizer).__mro__ + type(inner).__mro__)


@each(ALL)
def test_checkpoints_go_both_ways(tmp_path, rank, size, family):
    def trained(wrap):
        x = family.variable([1.0])
        optimizer = wrap(family.optimizers.Adam(0.5))
        applier(optimizer, [x])([tf.constant([3.0])])
        return x, optimizer

    def checkpoint(x, optimizer):
        return tf.train.Checkpoint(x=x, optimizer=optimizer)

    for save, load in (
        (sdp.DistributedOptimizer, lambda optimizer: optimizer),
        (lambda optimizer: optimizer, sdp.DistributedOptimizer),
    ):
        x, optimizer = trained(save)
        path = checkpoint(x, optimizer).write(str(tmp_path / "checkpoint"))
        y, other = trained(load)
        applier(other, [y])([tf.constant([-3.0])])
        checkpoint(y, other).read(path).assert_consumed()
        assert int(other.iterations) == 1
        for each_x, each_optimizer in ((x, optimizer), (y, other)):
            applier(each_optimizer, [each_x])([tf.constant([3.0])])
        assert array(x).tolist() == array(y).tolist()


def from_config(optimizer):
    return optimizer.from_config(optimizer.get_config())


def of_its_type(optimizer):
    return type(optimizer)(**optimizer.get_config())


@each(ALL)
def test_a_copy_is_distributed_too(rank, size, family):
    original = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), op=sdp.ReduceOp.SUM)
    makers = [from_config, of_its_type]
    if family.is_keras3 or family.is_legacy:  # the others cannot be copied
        makers += [copy.deepcopy, copy.copy]
    for optimizer in [make(original) for make in makers] + [from_config(of_its_type(original))]:
        x = family.variable([0.0])
        applier(optimizer, [x])([tf.constant([2.0 * rank])])
        assert array(x).tolist() == [size * (1.0 - size)]
    assert original.__class__ is family.optimizers.SGD


@pytest.mark.keras(3)  # the others cannot be pickled
@pytest.mark.parametrize("scaled", [False, True])
def test_a_pickled_one_is_distributed_too(rank, size, scaled):
    family = ALL[0]
    plain = family.optimizers.SGD(1.0)
    original = sdp.DistributedOptimizer(family.loss_scale_optimizer(plain) if scaled else plain)
    optimizer = pickle.loads(pickle.dumps(original))
    x = family.variable([0.0])
    scale = float(getattr(optimizer, "initial_scale", 1.0))
    applier(optimizer, [x])([tf.constant([2.0 * rank * scale])])
    assert array(x).tolist() == [1.0 - size]


@each([family for family in ALL if not family.is_keras3])
def test_a_copy_counts_its_own_passes(rank, size, family):
    original = sdp.DistributedOptimizer(family.optimizers.SGD(1.0), backward_passes_per_step=2)
    x, y = family.variable([0.0]), family.variable([0.0])
    applier(original, [x])([tf.constant([2.0 * rank])])
    for _ in range(2):
        applier(from_config(original), [y])([tf.constant([2.0 * rank])])
    assert array(y).tolist() == [0.0]
    applier(original, [x])([tf.constant([2.0 * rank])])
    assert array(x).tolist() == [1.0 - size]
