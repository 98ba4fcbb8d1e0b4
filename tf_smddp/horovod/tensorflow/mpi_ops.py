"""The names of `horovod.tensorflow.mpi_ops`, which published scripts use: `hvd.mpi_ops.Sum`."""

from tf_smddp import ReduceOp as _ReduceOp
from tf_smddp import is_initialized, local_rank, local_size, rank, shutdown, size
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
from tf_smddp.horovod.tensorflow._collectives import allgather, alltoall, broadcast, broadcast_, reducescatter
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
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
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
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
