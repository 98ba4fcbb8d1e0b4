"""The ways in which TensorFlow runs a function of tensors."""

import pytest
import tensorflow as tf

import tf_smddp as sdp


def eager(function):
    return function


# Where XLA compiles for; conftest.py sets it. None: where the test is.
compiled_for = None


def compiled(function):
    """With XLA, as a whole."""
    program = tf.function(function, jit_compile=True)
    if compiled_for is None:
        return program

    def run(*arguments):
        with tf.device(compiled_for):
            return program(*arguments)

    return run


def clustered(function):
    """With XLA, as much as auto-clustering takes; conftest.py lets it work on CPUs."""
    graph = tf.function(function)

    def run(*arguments):
        tf.config.optimizer.set_jit(True)
        try:
            return graph(*arguments)
        finally:
            tf.config.optimizer.set_jit(False)

    return run


def in_a_v1_session(function, config=None):
    """In a graph of its own; values go in and come out."""

    def run(*arguments):
        values = tf.nest.map_structure(lambda tensor: tf.convert_to_tensor(tensor).numpy(), arguments)
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            return session.run(function(*tf.nest.map_structure(tf.constant, values)))

    return run


def in_a_clustered_v1_session(function):
    config = tf.compat.v1.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    return in_a_v1_session(function, config)


_NAMES = {
    eager: "eager",
    tf.function: "graph",
    compiled: "jit",
    clustered: "clustered",
    in_a_v1_session: "v1",
    in_a_clustered_v1_session: "v1_clustered",
}


# In these, TensorFlow chooses the ops that XLA compiles.
_CLUSTERED = (clustered, in_a_clustered_v1_session)


def meet():
    """Waits for all ranks after an error, and gets what errors of their steps there still are."""
    while True:
        try:
            return sdp.barrier()
        except tf.errors.OpError:
            continue


def modes(*which):
    marks = {mode: pytest.mark.cpu_only("XLA compiles it") for mode in _CLUSTERED}
    cases = [pytest.param(mode, marks=marks.get(mode, ()), id=_NAMES[mode]) for mode in which]
    return pytest.mark.parametrize("mode", cases)


# The modes for shapes that XLA does not know at compile time.
DYNAMIC_MODES = modes(eager, tf.function, clustered)
ALL_DYNAMIC_MODES = modes(eager, tf.function, clustered, in_a_v1_session, in_a_clustered_v1_session)
MODES = modes(eager, tf.function, compiled, clustered)
ALL_MODES = modes(*_NAMES)
