"""All names of tf_smddp, and the callbacks for Keras's `fit`.

    import tf_smddp.keras as sdp

    sdp.init()
    model.compile(sdp.DistributedOptimizer(optimizer), loss)
    model.fit(dataset, callbacks=[sdp.callbacks.BroadcastGlobalVariablesCallback(0)])

Keras is the one that `tf.keras` stands for: Keras 2, Keras 3, or tf_keras with TF_USE_LEGACY_KERAS=1.
This module only re-exports. It is not imported by tf_smddp, since it loads Keras.
"""

from tf_smddp import *  # noqa: F403
from tf_smddp import __all__ as _of_tf_smddp
from tf_smddp.keras import callbacks as callbacks

__all__ = sorted([*_of_tf_smddp, "callbacks"])
