"""`from smdistributed.dataparallel.tensorflow.keras import callbacks`: those of tf_smddp.keras."""

from tf_smddp.keras.callbacks import *  # noqa: F403
from tf_smddp.keras.callbacks import __all__ as __all__
