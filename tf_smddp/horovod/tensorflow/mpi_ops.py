"""All names of `horovod.tensorflow`, as published scripts write them: `hvd.mpi_ops.Sum`."""

from tf_smddp.horovod.tensorflow import *  # noqa: F403
from tf_smddp.horovod.tensorflow import __all__ as __all__
