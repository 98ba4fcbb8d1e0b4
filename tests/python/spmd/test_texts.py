"""Names and errors in any language: what TensorFlow raises is our message, though it had to be cut."""

import contextlib

import pytest
import tensorflow as tf

import tf_smddp as sdp


@pytest.fixture
def fails(size):
    """Expects a step that fails with a text on all ranks, or in a job of one rank, which agrees, none."""

    def context(text):
        return contextlib.nullcontext() if size == 1 else pytest.raises(tf.errors.OpError, match=text)

    return context


@pytest.mark.parametrize("name", ["é" * 60, "x" + "é" * 60, "重み" * 30, "a重み" * 30, "🙂" * 30], ids=ascii)
@pytest.mark.parametrize("mode", [lambda function: function, tf.function], ids=["eager", "graph"])
def test_a_long_name_is_cut_between_characters(rank, fails, mode, name):
    with fails(f"'{name[:20]}[^']*' average"):
        mode(lambda: sdp.allreduce(tf.ones([2 + rank]), 0, 1, name=name))()


def test_names_of_variables(rank, fails):
    variable = tf.Variable(tf.ones([2 + rank]), name="重み" * 20)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable)
    with fails("重み重み重み"):
        sdp.DistributedGradientTape(tape).gradient(loss, [variable])
    with fails("broadcast"):
        sdp.broadcast_variables([variable], 0)


@pytest.mark.parametrize("begin", ["", "x", "xx"])
def test_the_text_of_an_exception_is_cut_between_characters(rank, begin):
    def fail_on_rank_0(value):
        if rank == 0:
            raise FileNotFoundError("/" + begin + "学習" * 1000)
        return value

    @tf.function
    def step(x):
        first = sdp.allreduce(x, 0, 1)
        return sdp.allreduce(tf.py_function(fail_on_rank_0, [first], tf.float32), 0, 1)

    with pytest.raises(tf.errors.OpError, match="学習学習学習"):
        step(tf.ones([3]))
    assert float(sdp.allreduce(1.0, 0, 1)) == 1.0


def test_the_text_of_an_exception_may_be_no_text(rank):
    """TensorFlow's own error is only shown on the rank that has it, which fails to decode it."""

    @tf.function
    def step(x, path):
        first = sdp.allreduce(x, 0, 1)
        # A failure before the step's first collective would concern this rank only.
        with tf.control_dependencies([first]):
            text = tf.io.read_file(path)
        return sdp.allreduce(first + tf.cast(tf.strings.length(text), tf.float32), 0, 1)

    with pytest.raises(UnicodeDecodeError if rank == 0 else tf.errors.InternalError):
        step(tf.ones([3]), b"/nowhere/\xff" if rank == 0 else "/dev/null")
    assert float(sdp.allreduce(1.0, 0, 1)) == 1.0
