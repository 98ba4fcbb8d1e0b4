"""The names of `horovod.tensorflow.keras`, of Horovod 0.28, on tf_smddp's engine.

import tf_smddp.horovod.tensorflow.keras as hvd
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from tf_smddp import ReduceOp
from tf_smddp.horovod.tensorflow import (
    Average,
    Compression,
    ProcessSet,
    Sum,
    _collectives,
    _gradients,
    add_process_set,
    broadcast_global_variables,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from tf_smddp.horovod.tensorflow._local import keep_local
from tf_smddp.horovod.tensorflow.keras import callbacks, elastic

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """As `tf_smddp.horovod.tensorflow.DistributedOptimizer`, whose arguments have another order.

    Raises:
        ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
    """
    return _gradients.DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedOptimizer`, but for the gradients of some layers, which each rank has for itself.

    Horovod has it in `horovod.keras`.

    Args:
        optimizer: of Keras.
        name: as in `DistributedOptimizer`, as the rest up to `process_set`.
        device_dense: no effect.
        device_sparse: no effect.
        compression: as in `DistributedOptimizer`.
        sparse_as_dense: likewise.
        gradient_predivide_factor: likewise.
        op: likewise.
        groups: no effect.
        process_set: as in `DistributedOptimizer`.
        local_layers: a layer, or a list of them, whose gradients are not reduced.
        scale_local_gradients: whether these are divided by the number of ranks, so that their steps are as
            large as those of averages.

    Returns:
        The optimizer.
    """
    distributed = DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        process_set=process_set,
    )
    keep_local(distributed, process_set, scale_local_gradients, local_layers)
    return distributed


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
) -> Any:
    """Returns the reduction; see `tf_smddp.horovod.tensorflow.allreduce`.

    It is a tensor, also in a `tf.function`; in a v1 graph its value, computed in the current session, or in
    Keras's.
    """
    return _evaluated(
        _collectives.allreduce(
            tf.convert_to_tensor(value),
            average=average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
    )


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Returns all ranks' rows, as `allreduce` does."""
    return _evaluated(_collectives.allgather(tf.convert_to_tensor(value), name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Returns the root's value, as `allreduce` does."""
    return _evaluated(_collectives.broadcast(tf.convert_to_tensor(value), root_rank, name))


def reducescatter(value: Any, name: Optional[str] = None, op: Any = Average) -> Any:
    """Returns this rank's rows of the reduction, as `allreduce` does."""
    return _evaluated(_collectives.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def _evaluated(result: tf.Tensor) -> Any:
    if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function:
        return result
    session = tf.compat.v1.get_default_session()
    if session is None and not hasattr(tf.compat.v1.keras.backend, "get_session"):  # Keras 3 has none
        raise RuntimeError(
            f"{result.name} is in a v1 graph, and its value is computed in a session, but there is none. "
            "Call this in `with tf.compat.v1.Session():`."
        )
    return (session or tf.compat.v1.keras.backend.get_session()).run(result)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[List[Callable[..., Any]]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model of Keras, and makes its optimizer distributed.

    Args:
        filepath: of a model that was saved with its optimizer.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: as for `tf.keras.models.load_model`.
        compression: as in `DistributedOptimizer`.
        legacy_opts: no effect: the optimizer is of the class that was saved.

    Returns:
        The compiled model.
    """
    classes = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    model = tf.keras.models.load_model(filepath, custom_objects={**classes, **(custom_objects or {})})
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
