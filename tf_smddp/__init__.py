"""Synchronous data parallelism for TensorFlow.

Every rank trains the same model on its own shard of the data; after each backward pass the gradients are
averaged over all ranks:

    import tensorflow as tf
    import tf_smddp as sdp

    sdp.init()
    ...
    with tf.GradientTape() as tape:
        loss = loss_fn(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)

Start it with `smddprun -np 2 python train.py`; a plain `python train.py` is rank 0 of 1.
This module only re-exports; each concept has a module of its own.
"""

from tf_smddp import _gradients  # noqa: F401  (registers the gradients of the ops)
from tf_smddp._allreduce import allreduce
from tf_smddp._barrier import barrier
from tf_smddp._broadcast import broadcast, broadcast_variables
from tf_smddp._compression import Compression
from tf_smddp._gradient_tape import DistributedGradientTape
from tf_smddp._reduce_op import ReduceOp
from tf_smddp._runtime import init, is_initialized, local_rank, local_size, rank, shutdown, size

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "ReduceOp",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_variables",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
