"""Where collectives may be called: after init, and not in the functions that tf.data runs."""

from __future__ import annotations

import tensorflow as tf

from tf_smddp import _runtime

# tf.data names the graphs of the functions that it is given "Dataset_map_<name>" and so on. A loop over a
# dataset inside a tf.function is one of them, too, and the only one whose order is that of the program.
_DATASET_PREFIX = "Dataset_"
_LOOP_BODY = "Dataset_scan_scan_body"


def check_call_site(caller: str) -> None:
    """Raises a RuntimeError that names `caller` and the remedy, unless it may be called here."""
    _runtime.require_initialized(caller)
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        name = getattr(graph, "name", None) or ""
        if name.startswith(_DATASET_PREFIX) and name != _LOOP_BODY:
            raise RuntimeError(
                f"tf_smddp.{caller}() was called in a function that tf.data runs ({name}). tf.data decides "
                "how often, in which order and how far ahead such a function runs, and would do so "
                "differently on each rank. Call it on what the dataset yields: in the training step, or in "
                "the loop over the dataset."
            )
        graph = getattr(graph, "outer_graph", None)
