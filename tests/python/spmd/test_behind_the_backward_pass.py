"""Gradients are reduced while the backward pass computes the others: measured with a timeline."""

import json

import pytest
import tensorflow as tf
from delays import delayed

import tf_smddp as sdp

LAYERS = 4
LAYER_MS = 40


@tf.custom_gradient
def slow_backward(x):
    return tf.identity(x), lambda gradient: delayed(gradient, LAYER_MS, stateful=False)


def gradients_of(weights, x):
    with tf.GradientTape() as tape:
        for weight in weights:
            x = slow_backward(x) * weight
    return sdp.DistributedGradientTape(tape).gradient(x, weights)


def in_the_step(weights):
    return lambda x: gradients_of(weights, x)


def in_a_nested_function(weights):
    return tf.function(lambda x: gradients_of(weights, x))


def in_two_nested_functions(weights):
    inner = tf.function(lambda x: gradients_of(weights, x))
    return tf.function(lambda x: inner(x))


def in_a_function_that_is_not_inlined(weights):
    function = tf.function(lambda x: gradients_of(weights, x), experimental_attributes={"_noinline": True})
    return lambda x: function(x)


@pytest.mark.parametrize(
    "reduced", [in_the_step, in_a_nested_function, in_two_nested_functions, in_a_function_that_is_not_inlined]
)
def test_reduced_while_the_others_are_computed(rank, tmp_path, reduced):
    weights = [tf.Variable(tf.ones([1000]), name=f"layer_{i}") for i in range(LAYERS)]
    function = reduced(weights)

    @tf.function
    def step(x):
        for weight, gradient in zip(weights, function(x)):
            weight.assign_sub(0.1 * gradient)

    step(tf.ones([1000]))
    sdp.start_profiler(tmp_path / "trace.json")
    step(tf.ones([1000]))
    sdp.stop_profiler()

    spans = {}
    for event in json.loads((tmp_path / f"trace.rank{rank}.json").read_text()):
        if event["name"].startswith("layer_"):
            spans.setdefault(event["name"], []).append(event["ts"])
    # The last layer's gradient comes first. It has been reduced before the first layer's is there.
    (last_begin, last_end), (first_begin, _) = spans[f"layer_{LAYERS - 1}"], spans["layer_0"]
    assert first_begin - last_begin > (LAYERS - 1) * LAYER_MS * 900
    assert last_end < first_begin
