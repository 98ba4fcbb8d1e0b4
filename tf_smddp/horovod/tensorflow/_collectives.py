"""Horovod's collectives. All ranks call them in the same order, as those of tf_smddp."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

import tf_smddp as sdp
from tf_smddp import Compression, ReduceOp, global_process_set
from tf_smddp.horovod.tensorflow._arguments import op_of, set_of


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """As `tf_smddp.allreduce`, with Average by default.

    The rows of a `tf.IndexedSlices` are gathered, as Horovod does: for Sum and Average, without factors.

    Raises:
        NotImplementedError: a `tf.IndexedSlices` with another operation, or with factors.
        ValueError: both `average` and `op` are given; and as `tf_smddp.allreduce`.
    """
    reduce_op = op_of(average, op)
    if not isinstance(tensor, tf.IndexedSlices):
        return sdp.allreduce(
            tensor,
            compression=compression,
            op=reduce_op,
            name=name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=set_of(process_set),
        )
    if reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE) or (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise NotImplementedError(
            "hvd.allreduce() of tf.IndexedSlices gathers the rows, so it has only Sum and Average, without "
            "factors. Make the tensor dense first: tf.convert_to_tensor(slices)."
        )
    values = allgather(tensor.values, process_set=process_set)
    indices = allgather(tensor.indices, process_set=process_set)
    if reduce_op is ReduceOp.AVERAGE:
        values /= tf.cast(process_set.size(), values.dtype)
    return tf.IndexedSlices(values, indices, tensor.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """As `tf_smddp.grouped_allreduce`, with Average by default."""
    if not tensors:
        return list(tensors)
    return sdp.grouped_allreduce(
        tensors,
        compression,
        op_of(average, op),
        name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=set_of(process_set),
    )


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """As `tf_smddp.reducescatter`, between `compress` and `decompress`."""
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    result = sdp.reducescatter(
        compressed, op_of(None, op), name, prescale_factor, postscale_factor, set_of(process_set)
    )
    return compression.decompress(result, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
    process_set: sdp.ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[tf.Tensor]:
    """As `tf_smddp.grouped_reducescatter`, likewise."""
    compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    results = sdp.grouped_reducescatter(
        [tensor for tensor, _ in compressed],
        op_of(None, op),
        None,
        prescale_factor,
        postscale_factor,
        set_of(process_set),
    )
    return [compression.decompress(each, context) for each, (_, context) in zip(results, compressed)]


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> tf.Tensor:
    """As `tf_smddp.allgather`."""
    return sdp.allgather(tensor, name, set_of(process_set))


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[tf.Tensor]:
    """As `tf_smddp.grouped_allgather`."""
    return sdp.grouped_allgather(tensors, name, set_of(process_set))


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> tf.Tensor:
    """As `tf_smddp.broadcast`."""
    return sdp.broadcast(tensor, root_rank, name, set_of(process_set))


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[Any]:
    """Gives the variables the root's values, and returns them."""
    found = list(variables)
    sdp.broadcast_variables(found, root_rank, set_of(process_set))
    return found


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: sdp.ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """As `tf_smddp.broadcast_variables`. `inplace` has no effect: variables are written where they are."""
    return sdp.broadcast_variables(variables, root_rank, set_of(process_set))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
    """As `tf_smddp.alltoall`: with `splits`, a pair of the rows and how many came from each rank (int32)."""
    result = sdp.alltoall(tensor, splits, name, set_of(process_set))
    if splits is None:
        return result
    rows, received = result
    return rows, tf.cast(received, tf.int32)


def barrier(process_set: sdp.ProcessSet = global_process_set) -> Any:
    """As `tf_smddp.barrier`."""
    return sdp.barrier(process_set=set_of(process_set))


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> Any:
    """As `tf_smddp.broadcast_object`, which needs no session."""
    return sdp.broadcast_object(obj, root_rank, name, set_of(process_set))


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function of an object, which broadcasts it."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[Any]:
    """As `tf_smddp.allgather_object`, which needs no session."""
    return sdp.allgather_object(obj, name, set_of(process_set))
