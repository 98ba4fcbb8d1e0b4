"""broadcast_global_variables: gives every rank the root's global variables, in v1 graphs."""

from __future__ import annotations

import tensorflow as tf

from tf_smddp._autograph import not_converted
from tf_smddp._broadcast import broadcast_variables


@not_converted
def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Returns the operation that gives all global variables of the default graph the root's values.

    Collective: every rank must run the operation, in a session and after the variables are initialized. It
    has the variables that exist at the time of the call, optimizer slots included; so call it once the graph
    is complete. `BroadcastGlobalVariablesHook` does both.

    Args:
        root_rank: the rank whose values all get.

    Returns:
        The operation; nothing is sent until it is run.

    Raises:
        RuntimeError: not in a v1 graph (there are no global variables in eager mode or a `tf.function`), or
            before `init`.
        TypeError: a variable's type is not supported, or `root_rank` is not an integer.
        ValueError: there is no such `root_rank`.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError(
            "tf_smddp.broadcast_global_variables() was called in eager mode or a tf.function, where "
            "TensorFlow keeps no list of global variables. Call broadcast_variables(model.weights, "
            "root_rank) instead, and the same for the optimizer's variables."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)
