"""Bad arguments of DistributedOptimizer get an error that names the value and what to do."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
from optimizer_families import ALL, each

import tf_smddp as sdp
from tf_smddp._base import arguments


def sgd():
    return tf.keras.optimizers.SGD(1.0)


def test_signature():
    assert str(inspect.signature(sdp.DistributedOptimizer)).startswith(
        "(optimizer: 'Any', name: 'Optional[str]' = None, use_locking: 'bool' = False, "
        "device_dense: 'str' = '', device_sparse: 'str' = '', compression: 'Any' = <class"
    )
    parameters = inspect.signature(sdp.DistributedOptimizer).parameters
    assert list(parameters)[5:] == [
        "compression",
        "sparse_as_dense",
        "op",
        "bucket_cap_mb",
        "backward_passes_per_step",
        "average_aggregated_gradients",
        "process_set",
        "shard_state",
    ]
    assert parameters["bucket_cap_mb"].default == 25


@pytest.mark.parametrize("value", [25, np.int64(25), 1, 0.5, 128 / 1024 / 1024])
def test_bucket_caps(value):
    sdp.DistributedOptimizer(sgd(), bucket_cap_mb=value)


@pytest.mark.parametrize("value", [0, -1, 0.1, 1e-6, float("nan"), float("inf")])
def test_bad_bucket_caps(value):
    with pytest.raises(ValueError, match=f"positive multiple of 128, but bucket_cap_mb={value!r}"):
        sdp.DistributedOptimizer(sgd(), bucket_cap_mb=value)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"optimizer": "adam"}, TypeError, r"got 'adam'. Pass the optimizer itself: tf.keras.optimizers.get"),
        ({"optimizer": 3}, TypeError, "wraps an optimizer, but got 3. Pass an optimizer of tf.keras"),
        ({"optimizer": None}, TypeError, "wraps an optimizer, but got None"),
        ({"optimizer": tf.compat.v1.train.AdamOptimizer}, TypeError, r"Pass an object: AdamOptimizer\("),
        ({"bucket_cap_mb": "25"}, TypeError, "a number of MiB, but is '25'"),
        ({"bucket_cap_mb": True}, TypeError, "a number of MiB, but is True"),
        ({"op": "sum"}, TypeError, "op must be one of .* but is 'sum'"),
        ({"compression": int}, TypeError, "compression must be .* but is <class 'int'>"),
        ({"name": 3}, TypeError, "name as a string or None, but got 3"),
        ({"backward_passes_per_step": 0}, ValueError, "at least 1, but is 0"),
        ({"backward_passes_per_step": 1.5}, TypeError, "an integer, but is 1.5"),
        ({"backward_passes_per_step": 2, "sparse_as_dense": False}, ValueError, "rules out"),
    ],
)
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        sdp.DistributedOptimizer(**{"optimizer": sgd(), **arguments})


@each(ALL)
def test_twice(family):
    optimizer = sdp.DistributedOptimizer(family.optimizers.SGD(1.0))
    with pytest.raises(ValueError, match=r"SGD.* is distributed already"):
        sdp.DistributedOptimizer(optimizer)


def test_device_hints_warn_once(monkeypatch, recwarn):
    monkeypatch.setattr(arguments, "_warned_of_device", False)
    for _ in range(2):
        sdp.DistributedOptimizer(sgd(), device_dense="/gpu:0")
    messages = [warning for warning in recwarn if "device_dense='/gpu:0'" in str(warning.message)]
    assert len(messages) == 1
    assert messages[0].filename == __file__


def test_not_in_a_function_of_tf_data():
    x = tf.keras.Variable([0.0]) if hasattr(tf.keras, "Variable") else tf.Variable([0.0])
    optimizer = sdp.DistributedOptimizer(sgd())
    optimizer.build([x])
    with pytest.raises(RuntimeError, match=r"DistributedOptimizer\(\) was called in a function that tf.data"):
        tf.data.Dataset.range(1).map(lambda _: optimizer.apply_gradients([(tf.constant([1.0]), x)]) and 0)
