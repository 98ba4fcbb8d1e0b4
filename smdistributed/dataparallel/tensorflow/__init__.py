"""`import smdistributed.dataparallel.tensorflow as sdp`: everything public of tf_smddp."""

from tf_smddp import *  # noqa: F403
from tf_smddp import __all__ as __all__
