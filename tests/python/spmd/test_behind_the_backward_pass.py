"""Gradients are reduced while the backward pass computes others; here it waits for the reductions."""

import json
import time

import pytest
import tensorflow as tf

import tf_smddp as sdp

LAYERS = 4
LIMIT_SECONDS = 10.0


class Backward:
    """Backward passes that do not end before the gradients above them have been reduced on this rank."""

    def run(self, step):
        self.ends = []  # of each layer's, in seconds of the timeline's clock
        self.all_reduced = True  # before each end
        sdp.stats(reset=True)
        step(tf.ones([1000]))
        assert self.all_reduced
        assert len(self.ends) == LAYERS - 1  # the first layer's has no gradient to pass on

    def after_reduced(self, number):
        """Returns the identity, with such a backward pass: `number` gradients are above it."""

        def wait(gradient):
            deadline = time.monotonic() + LIMIT_SECONDS
            while self.all_reduced and sdp.stats()["collectives"]["allreduce"]["calls"] < number:
                self.all_reduced = time.monotonic() < deadline
                time.sleep(0.001)
            self.ends.append(time.monotonic())
            return gradient

        def backward(gradient):
            # Tickets wait for a stateful op before them.
            late = tf.numpy_function(wait, [gradient], gradient.dtype, stateful=False)
            return tf.ensure_shape(late, gradient.shape)

        return tf.custom_gradient(lambda x: (tf.identity(x), backward))


backward = Backward()


def gradients_of(weights, x):
    with tf.GradientTape() as tape:
        for i, weight in enumerate(weights):
            x = backward.after_reduced(LAYERS - i)(x) * weight
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

    step.get_concrete_function(tf.ones([1000]))  # compares the weights, which is an allreduce, too
    backward.run(step)
    sdp.start_profiler(tmp_path / "trace.json")
    backward.run(step)
    sdp.stop_profiler()

    begins = {}
    for event in json.loads((tmp_path / f"trace.rank{rank}.json").read_text()):
        if event["name"].startswith("layer_"):
            begins.setdefault(event["name"], event["ts"] / 1e6)
    # The last layer's gradient comes first. The others come one by one.
    for i, end in zip(reversed(range(1, LAYERS)), backward.ends):
        assert begins[f"layer_{i}"] < end < begins[f"layer_{i - 1}"]
