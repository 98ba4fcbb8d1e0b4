"""`import smdistributed.dataparallel.tensorflow.keras`: everything public of tf_smddp.keras."""

from tf_smddp.keras import *  # noqa: F403
from tf_smddp.keras import __all__ as __all__
