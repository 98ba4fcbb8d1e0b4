"""The names of `horovod.tensorflow`, of Horovod 0.28, on tf_smddp's engine.

    import tf_smddp.horovod.tensorflow as hvd

This maps names and arguments, and reduces nothing by itself. The differences, and what there is not, are in
docs/horovod.md. `device_dense`, `device_sparse`, `num_groups`, `groups` and `ignore_name_scope` have no
effect: they place and join tensors, which the engine does by itself.

Source: the API documentation of Horovod 0.28, https://horovod.readthedocs.io.
"""

from tf_smddp import (
    BroadcastGlobalVariablesHook,
    Compression,
    ProcessSet,
    SyncBatchNormalization,
    add_process_set,
    broadcast_global_variables,
    global_process_set,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from tf_smddp import ReduceOp as _ReduceOp
from tf_smddp.horovod.tensorflow import elastic
from tf_smddp.horovod.tensorflow._arguments import Adasum
from tf_smddp.horovod.tensorflow._built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from tf_smddp.horovod.tensorflow._collectives import (
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from tf_smddp.horovod.tensorflow._gradients import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
)
from tf_smddp.horovod.tensorflow._job import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
    start_timeline,
    stop_timeline,
)

Average = _ReduceOp.AVERAGE
Sum = _ReduceOp.SUM
Min = _ReduceOp.MIN
Max = _ReduceOp.MAX
Product = _ReduceOp.PRODUCT

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]

# Last, since it has all names of this module.
from tf_smddp.horovod.tensorflow import mpi_ops as mpi_ops  # noqa: E402
