"""What a Keras script needs of tf_smddp, and the callbacks for `model.fit`.

    import tf_smddp.keras as sdp

    sdp.init()
    model.compile(sdp.DistributedOptimizer(optimizer), loss)
    model.fit(dataset, callbacks=[sdp.callbacks.BroadcastGlobalVariablesCallback(0)])

Keras is the one that `tf.keras` stands for: Keras 2, Keras 3, or tf_keras with TF_USE_LEGACY_KERAS=1.
This module only re-exports. It is not imported by tf_smddp, since it loads Keras.
"""

from tf_smddp import (
    Compression,
    DistributedOptimizer,
    ReduceOp,
    allreduce,
    barrier,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from tf_smddp.keras import callbacks

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "ReduceOp",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
